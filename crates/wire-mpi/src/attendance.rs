//! Who of the replicas waits or works, and who is missing, as they say themselves. Plain data: it sends and hears nothing.

use std::time::{Duration, Instant};

/// What the replicas said last.
pub(crate) struct Attendance {
    own_rank: usize,
    heard: Vec<Option<Heard>>,
}

#[derive(Clone, Copy)]
struct Heard {
    /// The last one that it was in, if any.
    round: Option<u64>,
    at: Instant,
}

impl Attendance {
    pub fn new(own_rank: usize, size: usize) -> Attendance {
        Attendance { own_rank, heard: vec![None; size] }
    }

    /// A replica says that it waits in this round.
    pub fn waits(&mut self, rank: usize, round: u64, at: Instant) {
        if let Some(heard) = self.heard.get_mut(rank) {
            *heard = Some(Heard { round: Some(round), at });
        }
    }

    /// A replica says that it does something else, and will come.
    pub fn works(&mut self, rank: usize, at: Instant) {
        if let Some(heard) = self.heard.get_mut(rank) {
            *heard = Some(Heard { round: heard.and_then(|heard| heard.round), at });
        }
    }

    /// Who has not come to a round. Whoever said lately that it waits is not missing in whatever round it does: it waits for
    /// whoever keeps it, as this replica does.
    pub fn missing(&self, round: u64, now: Instant, lately: Duration) -> Vec<usize> {
        let here = |heard: &Heard| heard.round >= Some(round) || now.saturating_duration_since(heard.at) <= lately;
        let is_missing = |rank: &usize| *rank != self.own_rank && !self.heard[*rank].as_ref().is_some_and(here);
        (0..self.heard.len()).filter(is_missing).collect()
    }
}

/// How long a replica waits before it says so, and says so again. Short waits, which are all in a run that goes well, cost no word.
pub(crate) fn between_words(stall: Duration) -> Duration {
    (stall / 4).min(Duration::from_secs(5))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATELY: Duration = Duration::from_secs(2);

    /// By rank, what replicas 1, 2, ... said, as (round, seconds ago); replica 0 asks in round 7.
    fn check(said: &[Option<(u64, u64)>], expected: &[usize]) {
        let now = Instant::now() + Duration::from_secs(1000);
        let mut attendance = Attendance::new(0, said.len() + 1);
        for (i, word) in said.iter().enumerate() {
            if let Some((round, ago)) = word {
                attendance.waits(i + 1, *round, now - Duration::from_secs(*ago));
            }
        }
        assert_eq!(attendance.missing(7, now, LATELY), expected, "{said:?}");
    }

    #[test]
    fn whoever_says_nothing_is_missing() {
        check(&[None, None], &[1, 2]);
        check(&[Some((7, 1)), None], &[2]);
        check(&[Some((7, 1)), Some((7, 0))], &[]);
    }

    #[test]
    fn whoever_said_it_of_an_earlier_round_long_ago_is_missing() {
        check(&[Some((3, 100)), Some((7, 100))], &[1]);
    }

    #[test]
    fn whoever_waits_in_another_round_is_not_missing() {
        check(&[Some((6, 1)), Some((8, 100)), None], &[3]);
    }

    #[test]
    fn whoever_works_is_not_missing_as_long_as_it_says_so() {
        let now = Instant::now() + Duration::from_secs(1000);
        let mut attendance = Attendance::new(0, 3);
        attendance.works(1, now - Duration::from_secs(1));
        attendance.waits(2, 7, now - Duration::from_secs(100));
        attendance.works(2, now - Duration::from_secs(50));
        assert!(attendance.missing(7, now, LATELY).is_empty());
        assert_eq!(attendance.missing(7, now, Duration::ZERO), [1]);
        assert_eq!(attendance.missing(8, now, LATELY), [2]);
    }

    #[test]
    fn a_rank_that_does_not_exist_is_not_heard() {
        let mut attendance = Attendance::new(1, 2);
        attendance.waits(9, 7, Instant::now());
        attendance.works(9, Instant::now());
        assert_eq!(attendance.missing(7, Instant::now(), LATELY), [0]);
    }

    #[test]
    fn there_are_some_words_before_a_stall() {
        for (stall, between) in [(1, 250), (20, 5000), (600, 5000)] {
            assert_eq!(between_words(Duration::from_secs(stall)), Duration::from_millis(between));
        }
    }
}
