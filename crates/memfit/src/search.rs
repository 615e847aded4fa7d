//! The largest batch that fits: a search over plans. Every answer was planned, and so was the next larger batch, which
//! does not fit.

use memfit_plan::{Change, MicroBatch, Plan, PlanError, Point, Request};
use memfit_transform::StepGraph;

use crate::subject::Subject;

/// A batch that was planned.
#[derive(Clone, Debug, PartialEq)]
pub struct TriedBatch {
    /// Its samples.
    pub batch: usize,
    /// What its smallest plan takes; none where there are more bytes than can be counted.
    pub needed: Option<u64>,
    /// Whether that is within the budget.
    pub fits: bool,
}

/// What came out of a search.
#[derive(Debug)]
pub struct LargestBatch {
    /// The fastest plan of the largest batch that fits; none if not even one sample does.
    pub plan: Option<Plan>,
    /// In the order in which they were tried.
    pub tried: Vec<TriedBatch>,
}

/// More samples than anybody puts into a step: where this fits, the search ends.
pub const LIMIT: usize = 1 << 20;

/// Searches below a batch that is known not to fit, with the bytes of its smallest plan; where none is known, up to
/// [`LIMIT`]. Where the batch has lanes, it tries those that all lanes have as many samples of; where nobody said how many, with one
/// lane for each replica.
pub fn largest_batch(
    subject: &Subject,
    budget: u64,
    too_large: Option<(usize, u64)>,
    progress: &mut dyn FnMut(&Change),
) -> Result<LargestBatch, PlanError> {
    let mut found = LargestBatch { plan: None, tried: Vec::new() };
    let request = evenly(subject.request);
    // What was known was of other lanes.
    let too_large = too_large.filter(|_| request.exchange == subject.request.exchange);
    let subject = &Subject { request: &request, ..*subject };
    let unit = unit(subject);
    let base = state_bytes(subject)?;
    let too_large = too_large.map(|(batch, bytes)| (batch.div_ceil(unit), bytes));
    let mut bracket = Bracket { base, fits: None, too_large, turn: 0, limit: (LIMIT / unit).max(1) };
    let start = (subject.request.batch / unit).clamp(1, bracket.limit);
    while let Some(units) = bracket.next(budget, start) {
        let batch = units * unit;
        progress(&Change::Batch(batch));
        let (plan, needed) = try_batch(subject, budget, batch)?;
        found.tried.push(TriedBatch { batch, needed, fits: plan.is_some() });
        match plan {
            Some(plan) => {
                bracket.fits = Some((units, needed.unwrap_or(0)));
                found.plan = Some(plan);
            }
            None => bracket.too_large = Some((units, needed.unwrap_or(u64::MAX))),
        }
    }
    Ok(found)
}

/// As it is asked for another batch, which all replicas have an equal part of where nobody said otherwise.
fn evenly(request: &Request) -> Request {
    let mut request = request.clone();
    if request.do_lanes_follow {
        request.exchange.replica.lanes = request.exchange.replica.count;
    }
    request
}

/// The smallest batch that can be cut as it is asked for; all others are multiples of it.
fn unit(subject: &Subject) -> usize {
    let lanes = subject.request.exchange.replica.lanes.max(1);
    match subject.request.micro_batch {
        MicroBatch::Exactly(samples) if lanes > 1 => lanes * samples.max(1),
        MicroBatch::Exactly(_) | MicroBatch::Auto | MicroBatch::Off | MicroBatch::Allow => lanes,
    }
}

/// What every batch takes.
pub(crate) fn state_bytes(subject: &Subject) -> Result<u64, PlanError> {
    let unit = unit(subject);
    let graphs =
        subject.build(unit, unit / subject.request.exchange.replica.lanes.max(1)).map_err(PlanError::Source)?;
    let states = graphs
        .first()
        .into_iter()
        .flat_map(|(_, StepGraph { graph, .. })| graph.states().map(|(_, v)| graph.ty(v).bytes()));
    Ok(states.sum())
}

/// A model was built for one sample before, so one that cannot be built, bound or allocated has too many.
fn try_batch(subject: &Subject, budget: u64, batch: usize) -> Result<(Option<Plan>, Option<u64>), PlanError> {
    let request = Request { batch, ..subject.request.clone() };
    let survey = match (Subject { request: &request, ..*subject }).survey() {
        Ok(survey) => survey,
        Err(PlanError::TooLarge | PlanError::Source(_) | PlanError::Binding { .. } | PlanError::Segment { .. }) => {
            return Ok((None, None));
        }
        Err(e) => return Err(e),
    };
    let needed = survey.frontier().last().map(Point::device_bytes);
    match survey.plan(Some(budget)) {
        Ok(plan) => Ok((Some(plan), needed)),
        Err(PlanError::Refused(_)) => Ok((None, needed)),
        Err(e) => Err(e),
    }
}

/// What is known: batches with the bytes of their smallest plans, in units.
struct Bracket {
    /// Of no samples.
    base: u64,
    fits: Option<(usize, u64)>,
    too_large: Option<(usize, u64)>,
    /// Guesses so far.
    turn: usize,
    /// Where this fits, the search ends.
    limit: usize,
}

/// Guesses along a line before every other one halves, so that a bad model of the bytes costs little.
const TRUST: usize = 3;

impl Bracket {
    /// The next batch to try; none when the largest is found. Bytes grow with the batch along a line, nearly.
    fn next(&mut self, budget: u64, start: usize) -> Option<usize> {
        let origin = (0, self.base);
        self.turn += 1;
        let doubt = self.turn > TRUST && self.turn.is_multiple_of(2);
        let low = self.fits.map_or(0, |f| f.0);
        let (guess, high) = match (self.fits, self.too_large) {
            (None, None) => return Some(start),
            (Some((fits, _)), _) if fits >= self.limit => return None,
            (_, Some((high, _))) if low + 1 >= high => return None,
            (Some(fits), None) if doubt => (2 * fits.0, self.limit + 1),
            (Some(fits), None) => (crossing(origin, fits, budget), self.limit + 1),
            (_, Some((high, _))) if doubt => (low.midpoint(high), high),
            (fits, Some(large)) => (crossing(fits.unwrap_or(origin), large, budget), large.0),
        };
        Some(guess.clamp(low + 1, high - 1))
    }
}

/// Where a line through two batches meets the budget.
fn crossing(a: (usize, u64), b: (usize, u64), budget: u64) -> usize {
    let slope = (b.1 as f64 - a.1 as f64) / (b.0 as f64 - a.0 as f64);
    let meets = a.0 as f64 + (budget as f64 - a.1 as f64) / slope.max(1e-3);
    meets.clamp(1.0, LIMIT as f64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches where a batch takes `bytes` of it; the answer and how many were tried.
    fn search(bytes: impl Fn(usize) -> u64, budget: u64, start: usize, too_large: Option<usize>) -> (usize, usize) {
        let too_large = too_large.map(|b| (b, bytes(b)));
        let mut bracket = Bracket { base: 0, fits: None, too_large, turn: 0, limit: LIMIT };
        let mut tried = 0;
        while let Some(batch) = bracket.next(budget, start) {
            tried += 1;
            let point = Some((batch, bytes(batch)));
            *(if bytes(batch) <= budget { &mut bracket.fits } else { &mut bracket.too_large }) = point;
        }
        (bracket.fits.map_or(0, |f| f.0), tried)
    }

    #[test]
    fn the_largest_batch_is_found_in_few_steps() {
        let curves: [fn(usize) -> u64; 4] =
            [|b| 1000 + 37 * b as u64, |b| 500_000 + b as u64, |b| (b * b) as u64, |b| 100 * (b as f64).sqrt() as u64];
        for (i, bytes) in curves.into_iter().enumerate() {
            for want in [1, 2, 7, 48, 500, 4096] {
                let budget = bytes(want + 1) - 1;
                let answer = (1..=LIMIT).take_while(|&b| bytes(b) <= budget).last().unwrap_or(0);
                for (start, above) in [(1, None), (32, None), (want + 1, Some(answer + 1)), (1, Some(10 * answer + 9))]
                {
                    let (found, tried) = search(bytes, budget, start, above);
                    assert_eq!(found, answer, "curve {i}, start {start}");
                    assert!(tried <= 30, "curve {i}, start {start}: {tried} tried for {answer}");
                }
            }
        }
        assert_eq!(search(|_| 10, 9, 32, None).0, 0);
        assert_eq!(search(|_| 10, 10, 32, None).0, LIMIT);
    }
}
