//! A list whose memory, spare room included, is drawn from a pool. Indices are made of it.

use std::ops::{Deref, DerefMut};

use crate::memory::{BytePool, Lease, NoRoom};

#[derive(Debug)]
pub(super) struct PoolVec<T> {
    items: Vec<T>,
    lease: Lease,
    pool: BytePool,
}

impl<T: Copy> PoolVec<T> {
    pub fn new(pool: &BytePool) -> Result<PoolVec<T>, NoRoom> {
        Ok(PoolVec { items: Vec::new(), lease: pool.reserve(0)?, pool: pool.clone() })
    }

    pub fn push(&mut self, item: T) -> Result<(), NoRoom> {
        self.room_for(1)?;
        self.items.push(item);
        Ok(())
    }

    pub fn extend(&mut self, items: &[T]) -> Result<(), NoRoom> {
        self.room_for(items.len())?;
        self.items.extend_from_slice(items);
        Ok(())
    }

    /// Both the old and the new memory are held while one is copied into the other.
    fn room_for(&mut self, more: usize) -> Result<(), NoRoom> {
        let wanted = self.items.len() + more;
        if wanted <= self.items.capacity() {
            return Ok(());
        }
        let capacity = wanted.max(self.items.capacity() * 2).max(16);
        let lease = self.pool.reserve((capacity * size_of::<T>()) as u64)?;
        let mut items = Vec::with_capacity(capacity);
        items.extend_from_slice(&self.items);
        self.items = items;
        self.lease = lease;
        Ok(())
    }
}

impl<T> Deref for PoolVec<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.items
    }
}

impl<T> DerefMut for PoolVec<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.items
    }
}

/// Strings one after another.
#[derive(Debug)]
pub(super) struct StringList {
    text: PoolVec<u8>,
    entries: PoolVec<(u64, u32)>,
}

impl StringList {
    pub fn new(pool: &BytePool) -> Result<StringList, NoRoom> {
        Ok(StringList { text: PoolVec::new(pool)?, entries: PoolVec::new(pool)? })
    }

    pub fn push(&mut self, name: &str) -> Result<(), NoRoom> {
        let entry = (self.text.len() as u64, name.len() as u32);
        self.text.extend(name.as_bytes())?;
        self.entries.push(entry)
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn get(&self, index: usize) -> Option<&str> {
        self.entries.get(index).map(|entry| name(&self.text, *entry))
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|entry| name(&self.text, *entry))
    }

    /// By what `key` makes of a name.
    pub fn sort_by(&mut self, key: fn(&str) -> &str) {
        let text = &self.text;
        self.entries.sort_unstable_by(|a, b| key(name(text, *a)).cmp(key(name(text, *b))));
    }
}

fn name(text: &[u8], (start, length): (u64, u32)) -> &str {
    let bytes = &text[start as usize..][..length as usize];
    std::str::from_utf8(bytes).expect("names are pushed as strings")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_holds_what_it_took_and_gives_it_back() {
        let pool = BytePool::new(1000);
        let mut list = PoolVec::new(&pool).expect("nothing is taken yet");
        let pushed = (0..200u32).take_while(|i| list.push(*i).is_ok()).count();
        // 64 items fit with 128 beside them while they move; 256 would not.
        assert_eq!((pushed, pool.used(), list[127]), (128, 512, 127));
        drop(list);
        assert_eq!(pool.used(), 0);
    }

    #[test]
    fn names_come_back_in_order() {
        let pool = BytePool::new(10_000);
        let mut names = StringList::new(&pool).expect("room");
        for name in ["b/2", "a", "", "b/10"] {
            names.push(name).expect("room");
        }
        names.sort_by(|name| name);
        assert_eq!(names.iter().collect::<Vec<_>>(), ["", "a", "b/10", "b/2"]);
        assert_eq!((names.get(3), names.get(4)), (Some("b/2"), None));
    }
}
