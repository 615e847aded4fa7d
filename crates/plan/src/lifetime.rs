//! Lifetimes: when each buffer of the transient segment is needed, as half-open intervals of launches. A buffer may hold
//! several values in turn: a kernel that can work in place writes its result over an input that it reads for the last
//! time.

use memfit_ir::ValueId;

use crate::flow::Flow;

/// A buffer of the transient segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    pub owner: Owner,
    /// First launch that needs it; inputs are staged before launch 0.
    pub lower: usize,
    /// One past the last launch that needs it.
    pub upper: usize,
    /// Bytes.
    pub size: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Values that hold it in turn, each taking over from the one before.
    Values(Vec<ValueId>),
    /// Of the launch with this number.
    Scratch(usize),
}

/// The buffers of a program that runs in the given order. States and what takes their place have none: they live in the
/// state segment.
pub fn buffers(flow: &Flow, order: &[u32]) -> Vec<Buffer> {
    let last = last_uses(flow, order);
    let mut buffers: Vec<Buffer> = Vec::with_capacity(order.len());
    // By value, the buffer it lies in.
    let mut home: Vec<usize> = vec![usize::MAX; flow.size.len()];
    let stage = |buffers: &mut Vec<Buffer>, home: &mut [usize], v: ValueId, lower: usize| {
        home[v.index()] = buffers.len();
        let owner = Owner::Values(vec![v]);
        buffers.push(Buffer { owner, lower, upper: last[v.index()], size: flow.size[v.index()] });
    };
    for &v in &flow.staged {
        stage(&mut buffers, &mut home, v, 0);
    }
    for (launch, &g) in order.iter().enumerate() {
        let access = &flow.groups[g as usize];
        let mut taken: Vec<ValueId> = Vec::new();
        for &w in &access.writes {
            let dies = |r: ValueId| last[r.index()] == launch + 1 && !flow.at_end[r.index()] && !taken.contains(&r);
            let over = access.in_place.iter().find(|&&(r, to)| to == w && home[r.index()] != usize::MAX && dies(r));
            let Some(&(r, _)) = over else {
                stage(&mut buffers, &mut home, w, launch);
                continue;
            };
            taken.push(r);
            let buffer = &mut buffers[home[r.index()]];
            buffer.upper = last[w.index()];
            if let Owner::Values(values) = &mut buffer.owner {
                values.push(w);
            }
            home[w.index()] = home[r.index()];
        }
        if access.scratch > 0 {
            let owner = Owner::Scratch(launch);
            buffers.push(Buffer { owner, lower: launch, upper: launch + 1, size: access.scratch });
        }
    }
    buffers
}

/// By value, one past the last launch that needs it; what nobody reads is there for the launch that makes it.
fn last_uses(flow: &Flow, order: &[u32]) -> Vec<usize> {
    // Even without a launch, what is given and what is asked for lie beside each other.
    let end = order.len().max(1);
    let mut last = vec![0; flow.size.len()];
    for v in &flow.staged {
        last[v.index()] = 1;
    }
    for (launch, &g) in order.iter().enumerate() {
        let access = &flow.groups[g as usize];
        for v in access.reads.iter().chain(&access.writes) {
            last[v.index()] = launch + 1;
        }
    }
    for (v, at_end) in flow.at_end.iter().enumerate() {
        if *at_end {
            last[v] = end;
        }
    }
    last
}

/// Live bytes at every launch.
pub fn live_bytes(buffers: &[Buffer], launches: usize) -> Vec<u64> {
    let mut change = vec![0i64; launches + 1];
    for b in buffers.iter().filter(|b| b.lower < launches) {
        change[b.lower] += b.size as i64;
        change[b.upper.min(launches)] -= b.size as i64;
    }
    let mut now = 0;
    let sum = |c: &i64| {
        now += c;
        now as u64
    };
    change[..launches].iter().map(sum).collect()
}

/// Live bytes at every launch of an order.
pub fn live(flow: &Flow, order: &[u32]) -> Vec<u64> {
    live_bytes(&buffers(flow, order), order.len())
}

/// The most live bytes of an order.
pub fn peak(flow: &Flow, order: &[u32]) -> u64 {
    live(flow, order).into_iter().max().unwrap_or(0)
}
