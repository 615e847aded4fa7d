//! Several trainings on one device, a step at a time. The ones of the highest priority go first, and among them the one that has
//! had the least time for its weight. Which one goes when never changes what any of them computes.
//!
//! Between two turns a training tells what it did and fetches its next batch. If only those counted that wait at the instant when
//! a turn ends, whoever had the turn would never be among them, and the others would go whatever their shares are. So who had a
//! turn is expected back, and if it would go first, the device is held for it, for a short grace. That costs nothing against
//! training it alone, where the device idles in the same gap. Who comes back too late costs the others this one grace: it is not
//! held for again until it has once come back in time. Nobody waits for a training that has ended.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a training gets of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// Twice the weight is twice the time; positive and finite.
    pub weight: f64,
    /// While one of a higher priority is ready, or about to be, no other goes.
    pub priority: i64,
}

impl Default for Share {
    fn default() -> Self {
        Share { weight: 1.0, priority: 0 }
    }
}

/// Who comes late is given no more than so many seconds at once to make up for it.
const CREDIT: f64 = 1.0;

/// The device is held for a quarter of the time that the last turn took, but no shorter and no longer than this.
const GRACE: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];

/// A training's place in the order. Once it is dropped, nobody waits for it.
///
/// ```
/// use memfit_train::{Share, Ticket};
///
/// // The second gets twice the time of the first.
/// let tickets = Ticket::issue(&[Share::default(), Share { weight: 2.0, ..Share::default() }]);
/// std::thread::scope(|scope| {
///     for mut ticket in tickets {
///         scope.spawn(move || {
///             for _ in 0..3 {
///                 let _turn = ticket.turn();
///                 // A step; then the turn ends.
///             }
///         });
///     }
/// });
/// ```
pub struct Ticket {
    scheduler: Arc<Scheduler>,
    index: usize,
}

/// The device, for as long as this lives.
pub struct Turn<'a>(&'a Ticket);

struct Scheduler {
    state: Mutex<State>,
    /// Somebody has ended a turn, or has left.
    changed: Condvar,
}

impl Ticket {
    /// A ticket for each of those who share a device.
    pub fn issue(shares: &[Share]) -> Vec<Ticket> {
        let scheduler = Arc::new(Scheduler { state: Mutex::new(State::new(shares)), changed: Condvar::new() });
        (0..shares.len()).map(|index| Ticket { scheduler: scheduler.clone(), index }).collect()
    }

    /// Waits for its turn.
    pub fn turn(&mut self) -> Turn<'_> {
        let (mut state, changed) = (self.scheduler.lock(), &self.scheduler.changed);
        state.enqueue(self.index, Instant::now());
        // That somebody comes never makes it the turn of one who waits already, so coming wakes nobody; that time passes
        // may, so who waits while the device is held wakes up by itself.
        loop {
            let now = Instant::now();
            state = match state.next(now) {
                Next::Goes(index) if index == self.index => break,
                Next::HeldUntil(end) => {
                    changed.wait_timeout(state, end - now).unwrap_or_else(PoisonError::into_inner).0
                }
                Next::Goes(_) | Next::Nobody => changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        state.start(self.index, Instant::now());
        drop(state);
        Turn(self)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.scheduler.lock().leave(self.index);
        self.scheduler.changed.notify_all();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.scheduler.lock().end(Instant::now());
        self.0.scheduler.changed.notify_all();
    }
}

impl Scheduler {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who waits, who runs, who is expected, and what each has had.
struct State {
    rows: Vec<Row>,
    /// And since when.
    runs: Option<(usize, Instant)>,
}

struct Row {
    share: Share,
    waits: bool,
    /// Seconds over weight.
    time: f64,
    /// Since its turn ended and until it comes back: by when it should.
    due: Option<Instant>,
    /// Whether it came back in time when it last came back.
    trusted: bool,
}

#[derive(Debug, PartialEq)]
enum Next {
    Goes(usize),
    /// For one who is expected, unless it comes or leaves before.
    HeldUntil(Instant),
    /// The device is taken, or there is nobody.
    Nobody,
}

impl Row {
    /// Whether it had a turn and will be back in a moment, as far as one can tell.
    fn expected(&self, now: Instant) -> bool {
        self.trusted && self.due.is_some_and(|due| now < due)
    }
}

impl State {
    fn new(shares: &[Share]) -> State {
        let row = |&share| Row { share, waits: false, time: 0.0, due: None, trusted: true };
        State { rows: shares.iter().map(row).collect(), runs: None }
    }

    /// Somebody is ready. What was not asked for is lost but for some credit.
    fn enqueue(&mut self, index: usize, now: Instant) {
        let runs = self.runs.map(|(i, _)| i);
        let priority = self.rows[index].share.priority;
        // Those of another priority do not share time with it.
        let active = |&(i, r): &(usize, &Row)| {
            i != index && r.share.priority == priority && (r.waits || r.expected(now) || runs == Some(i))
        };
        let least = self.rows.iter().enumerate().filter(active).map(|(_, r)| r.time).min_by(f64::total_cmp);
        let row = &mut self.rows[index];
        row.time = row.time.max(least.map_or(row.time, |t| t - CREDIT / row.share.weight));
        row.trusted = row.due.take().map_or(row.trusted, |due| now < due);
        row.waits = true;
    }

    /// Who goes, or for how long the device is held.
    fn next(&self, now: Instant) -> Next {
        if self.runs.is_some() {
            return Next::Nobody;
        }
        let ready = self.rows.iter().enumerate().filter(|(_, r)| r.waits || r.expected(now));
        let order = |a: &Row, b: &Row| b.share.priority.cmp(&a.share.priority).then(a.time.total_cmp(&b.time));
        // Between equals, whoever is there.
        let first = ready.min_by(|(_, a), (_, b)| order(a, b).then(b.waits.cmp(&a.waits)));
        match first {
            Some((index, row)) => row.due.map_or(Next::Goes(index), Next::HeldUntil),
            None => Next::Nobody,
        }
    }

    fn start(&mut self, index: usize, now: Instant) {
        self.rows[index].waits = false;
        self.runs = Some((index, now));
    }

    fn end(&mut self, now: Instant) {
        if let Some((index, start)) = self.runs.take() {
            let (row, took) = (&mut self.rows[index], now.saturating_duration_since(start));
            row.time += took.as_secs_f64() / row.share.weight;
            row.due = Some(now + grace(took));
        }
    }

    /// Somebody does not come back.
    fn leave(&mut self, index: usize) {
        self.runs = self.runs.filter(|(i, _)| *i != index);
        let row = &mut self.rows[index];
        (row.waits, row.due) = (false, None);
    }
}

fn grace(took: Duration) -> Duration {
    (took / 4).clamp(GRACE[0], GRACE[1])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn share(weight: f64, priority: i64) -> Share {
        Share { weight, priority }
    }

    fn shares(weights: &[f64]) -> Vec<Share> {
        weights.iter().map(|&w| share(w, 0)).collect()
    }

    fn ms(number: f64) -> Duration {
        Duration::from_secs_f64(number / 1000.0)
    }

    /// A training in simulated time, in milliseconds.
    #[derive(Clone, Copy)]
    struct Run {
        comes: f64,
        step: f64,
        gap: f64,
    }

    const RUN: Run = Run { comes: 0.0, step: 2.0, gap: 0.1 };

    /// What became of the time, in milliseconds.
    struct Spent {
        by: Vec<f64>,
        /// Somebody waited, and nobody ran.
        held: f64,
        /// Nobody waited, and nobody ran.
        idle: f64,
    }

    /// Runs for some time: at every instant, whoever is due comes, and what the state says is done.
    fn simulate(shares: &[Share], runs: &[Run], length: f64) -> Spent {
        let (mut state, start) = (State::new(shares), Instant::now());
        let (mut now, end) = (start, start + ms(length));
        let mut comes: Vec<Option<Instant>> = runs.iter().map(|r| Some(start + ms(r.comes))).collect();
        let mut spent = Spent { by: vec![0.0; runs.len()], held: 0.0, idle: 0.0 };
        let earliest = |comes: &[Option<Instant>]| comes.iter().enumerate().filter_map(|(i, t)| Some(((*t)?, i))).min();
        let let_in = |state: &mut State, comes: &mut [Option<Instant>], until: Instant| {
            while let Some((time, index)) = earliest(comes).filter(|(time, _)| *time <= until) {
                state.enqueue(index, time);
                comes[index] = None;
            }
        };
        while now < end {
            let_in(&mut state, &mut comes, now);
            if let Next::Goes(index) = state.next(now) {
                state.start(index, now);
                assert_eq!(state.next(now), Next::Nobody, "one at a time");
                now += ms(runs[index].step);
                let_in(&mut state, &mut comes, now);
                state.end(now);
                spent.by[index] += runs[index].step;
                comes[index] = Some(now + ms(runs[index].gap));
                continue;
            }
            let (next, _) = earliest(&comes).expect("who does not wait comes");
            let then = if let Next::HeldUntil(limit) = state.next(now) { next.min(limit) } else { next };
            let waits = state.rows.iter().any(|r| r.waits);
            *(if waits { &mut spent.held } else { &mut spent.idle }) += (then - now).as_secs_f64() * 1000.0;
            now = then;
        }
        spent
    }

    #[test]
    fn time_is_shared_by_weight_whatever_a_step_takes() {
        let cases: [(&[f64], &[f64]); 8] = [
            (&[1.0, 1.0], &[2.0, 2.0]),
            (&[1.0, 1.0], &[1.0, 7.0]),
            (&[10.0, 1.0], &[2.0, 2.0]),
            (&[10.0, 1.0], &[0.5, 9.0]),
            (&[10.0, 1.0], &[9.0, 0.5]),
            (&[10.0, 1.0, 1.0], &[2.0, 2.0, 2.0]),
            (&[10.0, 3.0, 1.0], &[2.0, 1.0, 5.0]),
            (&[3.0, 1.0, 1.0], &[20.0, 100.0, 50.0]),
        ];
        for (weights, steps) in cases {
            let runs: Vec<Run> = steps.iter().map(|&step| Run { step, ..RUN }).collect();
            let spent = simulate(&shares(weights), &runs, 100_000.0);
            let (used, whole) = (spent.by.iter().sum::<f64>(), weights.iter().sum::<f64>());
            for (had, weight) in spent.by.iter().zip(weights) {
                let fair = used * weight / whole;
                assert!((had / fair - 1.0).abs() < 0.03, "{weights:?}, {steps:?}: {:?}", spent.by);
            }
        }
    }

    #[test]
    fn holding_takes_no_more_than_the_gaps_that_a_run_has_alone() {
        let spent = simulate(&shares(&[10.0, 1.0]), &[RUN, RUN], 10_000.0);
        let gaps = spent.by[0] / RUN.step * RUN.gap;
        assert!(spent.held > gaps / 2.0 && spent.held <= gaps, "{} of {gaps}", spent.held);
    }

    #[test]
    fn a_higher_priority_has_everything_while_it_comes_back_in_time() {
        let shares = [share(1.0, 0), share(1.0, 5), share(100.0, 4)];
        let spent = simulate(&shares, &[RUN, Run { gap: 0.9, ..RUN }, RUN], 1000.0);
        assert!(spent.by[1] > 600.0 && spent.by[0] == 0.0 && spent.by[2] == 0.0, "{:?}", spent.by);
        // A gap longer than the grace lets the next in line work, and only that one.
        let spent = simulate(&shares, &[RUN, Run { gap: 30.0, ..RUN }, RUN], 1000.0);
        assert!(spent.by[1] > 50.0 && spent.by[2] > 850.0 && spent.by[0] == 0.0, "{:?}", spent.by);
    }

    #[test]
    fn who_is_slow_with_its_data_costs_the_others_one_grace() {
        let slow = Run { step: 8.0, gap: 100.0, ..RUN };
        // The second has no gaps, so that nobody but the first is held for: for its whole grace, or for what is left of it
        // when the second has had its turn.
        for (first, held) in [(share(1.0, 5), 2.0), (share(50.0, 0), 1.0)] {
            let spent = simulate(&[first, share(1.0, 0)], &[slow, Run { step: 1.0, gap: 0.0, ..RUN }], 20_000.0);
            assert!((spent.held - held).abs() < 1e-6, "{} ms", spent.held);
            assert!(spent.idle == 0.0 && spent.by[0] > 180.0 * slow.step, "{:?}", spent.by);
        }
    }

    #[test]
    fn trust_is_lost_by_coming_late_and_regained_by_coming_in_time() {
        let (mut state, mut now) = (State::new(&[share(1.0, 1), share(1.0, 0)]), Instant::now());
        let turn = |state: &mut State, now: &mut Instant| {
            state.enqueue(0, *now);
            assert_eq!(state.next(*now), Next::Goes(0));
            state.start(0, *now);
            *now += ms(2.0);
            state.end(*now);
        };
        state.enqueue(1, now);
        turn(&mut state, &mut now);
        // It comes back after a gap; then whether the device is held for it when its next turn has ended.
        for (gap, held) in [(0.5, true), (1.5, false), (1.5, false), (0.5, true), (0.9, true), (5.0, false)] {
            now += ms(gap);
            turn(&mut state, &mut now);
            let next = if held { Next::HeldUntil(now + ms(1.0)) } else { Next::Goes(1) };
            assert_eq!(state.next(now), next, "after {gap} ms");
        }
    }

    #[test]
    fn the_grace_is_a_quarter_of_the_last_turn_within_limits() {
        for (took, held) in [(0.1, 1.0), (4.0, 1.0), (40.0, 10.0), (80.0, 20.0), (5000.0, 20.0)] {
            let (mut state, start) = (State::new(&[share(1.0, 1), share(1.0, 0)]), Instant::now());
            (0..2).for_each(|i| state.enqueue(i, start));
            state.start(0, start);
            let now = start + ms(took);
            state.end(now);
            assert_eq!(state.next(now), Next::HeldUntil(now + ms(held)), "after {took} ms");
            assert_eq!(state.next(now + ms(held)), Next::Goes(1), "after {took} ms");
        }
    }

    #[test]
    fn who_has_left_is_not_waited_for() {
        let (mut state, now) = (State::new(&[share(1.0, 1), share(1.0, 0)]), Instant::now());
        (0..2).for_each(|i| state.enqueue(i, now));
        state.start(0, now);
        state.end(now);
        assert_eq!(state.next(now), Next::HeldUntil(now + GRACE[0]));
        state.leave(0);
        assert_eq!(state.next(now), Next::Goes(1));
    }

    #[test]
    fn who_comes_late_makes_up_for_no_more_than_its_credit() {
        let late = Run { comes: 100_050.0, ..RUN };
        // It has its credit first, and half of what is left; also where one of a lower priority waits and has had nothing,
        // and whatever the unit of the weights is.
        let ahead = 1000.0 * CREDIT;
        for (weight, low) in [(1.0, share(1.0, -1)), (50.0, share(1.0, -1)), (0.02, share(9.0, -1))] {
            let spent = simulate(&[share(weight, 0), share(weight, 0), low], &[RUN, late, RUN], 110_000.0);
            assert!((spent.by[1] - ahead - (9950.0 - ahead) / 2.0).abs() < 250.0, "{weight}: {:?}", spent.by);
        }
    }

    #[test]
    fn threads_take_turns_one_at_a_time_until_all_are_done() {
        let tickets = Ticket::issue(&[share(1.0, 0), share(2.0, 0), share(1.0, 1)]);
        let (inside, turns) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for mut ticket in tickets {
                let (inside, turns) = (&inside, &turns);
                scope.spawn(move || {
                    for _ in 0..300 {
                        let _turn = ticket.turn();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        // Two at a time would lose one of their turns here.
                        let before = turns.load(Ordering::SeqCst);
                        std::thread::yield_now();
                        turns.store(before + 1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(turns.into_inner(), 900);
    }
}
