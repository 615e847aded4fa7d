//! Who ends how, and who of them tells it. Plain data: it sends and hears nothing.

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    pub claim: Claim,
    /// What all leave with if this process tells.
    pub code: u8,
}

/// How much a process has to tell: of several the one with the most does, and of these the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Claim {
    /// It did all that it was to do, and says nothing.
    Well,
    /// It was asked to stop, as all were.
    Asked,
    /// Another one has told it what is wrong, ...
    Heard,
    /// ... all see it, ...
    Seen,
    /// ... or it is its own.
    Own,
}

const CLAIMS: [Claim; 5] = [Claim::Well, Claim::Asked, Claim::Heard, Claim::Seen, Claim::Own];

/// How all end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    pub code: u8,
    /// Whether everybody came, and nobody failed: MPI can end.
    pub is_in_order: bool,
}

/// Bytes of a word.
pub(crate) const WORD: usize = 3;

/// What the processes have said of their ends.
pub(crate) struct Roll {
    ends: Vec<Option<End>>,
    /// Of whom it is known that they do not come.
    absent: Vec<bool>,
    /// Who has told what is wrong.
    told: Option<usize>,
}

impl Roll {
    pub fn new(own_rank: usize, size: usize, own: End, absent: &[usize]) -> Roll {
        let mut ends = vec![None; size];
        ends[own_rank] = Some(own);
        Roll { ends, absent: (0..size).map(|rank| absent.contains(&rank)).collect(), told: None }
    }

    /// Takes in a word of a process; what is none is not heard.
    pub fn hear(&mut self, rank: usize, word: &[u8]) {
        let (&[claim, code, has_told], Some(end)) = (word, self.ends.get_mut(rank)) else { return };
        let Some(&claim) = CLAIMS.get(usize::from(claim)) else { return };
        *end = Some(End { claim, code });
        if has_told == 1 {
            self.told.get_or_insert(rank);
        }
    }

    /// Whether nobody is waited for any more.
    pub fn is_complete(&self) -> bool {
        self.told.is_some() || self.ends.iter().zip(&self.absent).all(|(end, absent)| end.is_some() || *absent)
    }

    pub fn has_told(&self) -> bool {
        self.told.is_some()
    }

    /// Whoever is to tell, as far as it is known; nobody where all is well.
    pub fn teller(&self) -> Option<usize> {
        let claims = self.ends.iter().enumerate().filter_map(|(rank, end)| Some((rank, end.as_ref()?.claim)));
        let most = claims.clone().map(|(_, claim)| claim).max().filter(|claim| *claim > Claim::Well)?;
        claims.clone().find(|(_, claim)| *claim == most).map(|(rank, _)| rank)
    }

    /// Whoever was to tell is gone: the next one does.
    pub fn give_up(&mut self, rank: usize) {
        self.ends[rank] = None;
        self.absent[rank] = true;
    }

    /// What all leave with, when somebody has told or nobody has to.
    pub fn settled(&self) -> Settled {
        let code = self.told.or(self.teller()).and_then(|rank| self.ends[rank]).map_or(0, |end| end.code);
        let is_fine = |end: &Option<End>| end.is_some_and(|end| end.claim <= Claim::Asked);
        Settled { code, is_in_order: self.ends.iter().all(is_fine) }
    }
}

/// What a process says: how it ends, and whether it has told why.
pub(crate) fn word(end: End, has_told: bool) -> [u8; WORD] {
    [end.claim as u8, end.code, has_told.into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(claim: Claim, code: u8) -> End {
        End { claim, code }
    }

    /// What each of several processes finds when all have heard each other.
    fn rolls(ends: &[End]) -> Vec<Roll> {
        let roll = |own: usize| {
            let mut roll = Roll::new(own, ends.len(), ends[own], &[]);
            assert_eq!(roll.is_complete(), ends.len() == 1);
            let others = ends.iter().enumerate().filter(|(rank, _)| *rank != own);
            others.for_each(|(rank, end)| roll.hear(rank, &word(*end, false)));
            roll
        };
        (0..ends.len()).map(roll).collect()
    }

    fn check(ends: &[End], teller: Option<usize>, code: u8, is_in_order: bool) {
        for roll in rolls(ends) {
            assert!(roll.is_complete());
            assert_eq!((roll.teller(), roll.settled()), (teller, Settled { code, is_in_order }), "{ends:?}");
        }
    }

    #[test]
    fn one_tells_and_all_leave_alike() {
        let [well, asked] = [end(Claim::Well, 0), end(Claim::Asked, 130)];
        check(&[well, well, well], None, 0, true);
        check(&[asked, asked], Some(0), 130, true);
        check(&[end(Claim::Heard, 3), end(Claim::Own, 3), end(Claim::Heard, 3)], Some(1), 3, false);
        check(&[end(Claim::Own, 2), end(Claim::Own, 4)], Some(0), 2, false);
        check(&[end(Claim::Seen, 6), end(Claim::Heard, 6), end(Claim::Own, 4)], Some(2), 4, false);
        // Whoever finished well leaves with the others.
        check(&[end(Claim::Own, 4), well, well], Some(0), 4, false);
        check(&[well, asked], Some(1), 130, true);
    }

    #[test]
    fn whoever_is_missing_is_not_waited_for_and_does_not_tell() {
        let mut roll = Roll::new(1, 3, end(Claim::Seen, 6), &[0]);
        assert!(!roll.is_complete());
        roll.hear(2, &word(end(Claim::Seen, 6), false));
        assert!(roll.is_complete());
        assert_eq!((roll.teller(), roll.settled().is_in_order), (Some(1), false));
        roll.give_up(1);
        assert_eq!(roll.teller(), Some(2));
    }

    #[test]
    fn whoever_comes_late_hears_that_it_was_told() {
        let mut roll = Roll::new(0, 3, end(Claim::Own, 4), &[]);
        roll.hear(1, &word(end(Claim::Seen, 6), true));
        assert!(roll.is_complete() && roll.has_told());
        assert_eq!(roll.settled(), Settled { code: 6, is_in_order: false });
    }

    #[test]
    fn what_is_no_word_is_not_heard() {
        let mut roll = Roll::new(0, 2, end(Claim::Well, 0), &[]);
        roll.hear(1, &[9, 0, 0]);
        roll.hear(1, &[0, 0]);
        roll.hear(7, &word(end(Claim::Well, 0), false));
        assert!(!roll.is_complete());
    }
}
