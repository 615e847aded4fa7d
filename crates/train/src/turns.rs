//! Several trainings on one device, a step at a time. Of those that are ready, the ones of the highest priority go first, and
//! among them the one that has had the least time for its weight: so each gets its share of the time, and nobody waits for one
//! that is not ready. Which one goes when never changes what any of them computes.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a training gets of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Twice the weight is twice the time; positive and finite.
    pub weight: f64,
    /// While one of a higher priority is ready, no other goes.
    pub priority: i64,
}

impl Default for Share {
    fn default() -> Self {
        Share { weight: 1.0, priority: 0 }
    }
}

/// Who waits for the longest is not given more than this at once to make up for it.
const CREDIT: f64 = 1.0;

/// A table with a seat for each training.
pub struct Turns(Arc<Table>);

struct Table {
    book: Mutex<Book>,
    free: Condvar,
}

/// A training's place in the order.
pub struct Seat {
    table: Arc<Table>,
    index: usize,
}

/// The device, for as long as this lives.
pub struct Turn<'a> {
    seat: &'a Seat,
    start: Instant,
}

impl Turns {
    pub fn new(shares: &[Share]) -> Turns {
        let rows = shares.iter().map(|&share| Row { share, waits: false, time: 0.0, busy: Duration::ZERO }).collect();
        Turns(Arc::new(Table { book: Mutex::new(Book { rows, runs: None }), free: Condvar::new() }))
    }

    /// The seat of a training.
    pub fn seat(&self, index: usize) -> Seat {
        Seat { table: self.0.clone(), index }
    }

    /// How long each has had the device.
    pub fn busy(&self) -> Vec<Duration> {
        self.0.book().rows.iter().map(|r| r.busy).collect()
    }
}

impl Table {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Waits for its turn.
    pub fn turn(&self) -> Turn<'_> {
        let mut book = self.table.book();
        book.come(self.index);
        while book.next() != Some(self.index) {
            book = self.table.free.wait(book).unwrap_or_else(PoisonError::into_inner);
        }
        book.go(self.index);
        Turn { seat: self, start: Instant::now() }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.seat.table.book().end(self.start.elapsed());
        self.seat.table.free.notify_all();
    }
}

/// Who waits, who runs, and what each has had.
struct Book {
    rows: Vec<Row>,
    runs: Option<usize>,
}

struct Row {
    share: Share,
    waits: bool,
    /// Seconds over weight.
    time: f64,
    busy: Duration,
}

impl Book {
    /// Somebody is ready. What was not asked for is lost but for some credit.
    fn come(&mut self, index: usize) {
        let active = self.rows.iter().enumerate().filter(|(i, r)| *i != index && (r.waits || self.runs == Some(*i)));
        let least = active.map(|(_, r)| r.time).min_by(f64::total_cmp);
        let row = &mut self.rows[index];
        row.waits = true;
        row.time = row.time.max(least.map_or(row.time, |t| t - CREDIT));
    }

    /// Who goes, if the device is free.
    fn next(&self) -> Option<usize> {
        if self.runs.is_some() {
            return None;
        }
        let waiting = self.rows.iter().enumerate().filter(|(_, r)| r.waits);
        let first = |a: &Row, b: &Row| b.share.priority.cmp(&a.share.priority).then(a.time.total_cmp(&b.time));
        waiting.min_by(|(_, a), (_, b)| first(a, b)).map(|(i, _)| i)
    }

    fn go(&mut self, index: usize) {
        self.rows[index].waits = false;
        self.runs = Some(index);
    }

    fn end(&mut self, took: Duration) {
        if let Some(index) = self.runs.take() {
            let row = &mut self.rows[index];
            row.time += took.as_secs_f64() / row.share.weight;
            row.busy += took;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn book(shares: &[(f64, i64)]) -> Book {
        let row = |&(weight, priority): &(f64, i64)| Row {
            share: Share { weight, priority },
            waits: false,
            time: 0.0,
            busy: Duration::ZERO,
        };
        Book { rows: shares.iter().map(row).collect(), runs: None }
    }

    /// Everybody is always ready; `steps` are the seconds of a step of each. Gives the seconds that each has had.
    fn run(book: &mut Book, steps: &[f64], turns: usize) -> Vec<f64> {
        for _ in 0..turns {
            (0..steps.len())
                .filter(|&i| !book.rows[i].waits)
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|i| book.come(i));
            let index = book.next().expect("somebody waits");
            book.go(index);
            assert_eq!(book.next(), None, "one at a time");
            book.end(Duration::from_secs_f64(steps[index]));
        }
        book.rows.iter().map(|r| r.busy.as_secs_f64()).collect()
    }

    #[test]
    fn time_is_shared_by_weight_whatever_a_step_takes() {
        let had = run(&mut book(&[(1.0, 0), (1.0, 0)]), &[0.1, 0.7], 800);
        assert!((had[0] / had[1] - 1.0).abs() < 0.02, "{had:?}");
        let had = run(&mut book(&[(3.0, 0), (1.0, 0), (1.0, 0)]), &[0.2, 0.1, 0.5], 2000);
        assert!((had[0] / had[1] - 3.0).abs() < 0.1 && (had[1] / had[2] - 1.0).abs() < 0.05, "{had:?}");
    }

    #[test]
    fn a_higher_priority_goes_first_and_lets_others_in_when_it_is_not_ready() {
        let mut book = book(&[(1.0, 0), (1.0, 5)]);
        assert_eq!(run(&mut book, &[0.1, 0.1], 10), [0.0, 1.0]);
        book.rows[1].waits = false;
        assert_eq!(book.next(), Some(0));
    }

    #[test]
    fn who_comes_late_makes_up_for_no_more_than_its_credit() {
        let mut book = book(&[(1.0, 0), (1.0, 0)]);
        for _ in 0..100 {
            book.come(0);
            book.go(0);
            book.end(Duration::from_secs(1));
        }
        let before = book.rows[0].busy.as_secs_f64();
        let had = run(&mut book, &[0.25, 0.25], 100);
        let (first, second) = (had[0] - before, had[1]);
        assert!(second - first <= CREDIT + 0.5 && second >= first, "{first} and {second}");
    }

    #[test]
    fn threads_take_turns_one_at_a_time_until_all_are_done() {
        let turns =
            Turns::new(&[Share::default(), Share { weight: 2.0, priority: 0 }, Share { weight: 1.0, priority: 1 }]);
        let (inside, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for i in 0..3 {
                let (seat, inside, done) = (turns.seat(i), &inside, &done);
                scope.spawn(move || {
                    for _ in 0..300 {
                        let _turn = seat.turn();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        std::hint::spin_loop();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        assert_eq!(done.load(Ordering::SeqCst), 3);
        assert_eq!(turns.busy().len(), 3);
    }
}
