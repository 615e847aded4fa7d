//! Planning for a budget that holds all that is taken of a device: both segments, and what stands beside them.

use memfit_plan::Plan;

use crate::executor::Executor;

/// Plans so that the arena and what the executor takes beside it ([`Executor::staging_bytes`]) are within a budget together.
/// `plan` is told what the arena may have; where nothing stands beside it, that is the budget, and it is asked once.
///
/// # Errors
/// Those of `plan`: such as a refusal, in which the limit is what is left for the arena.
pub fn plan_within<X: Executor, E>(
    executor: &X,
    budget: Option<u64>,
    plan: impl FnMut(Option<u64>) -> Result<Plan, E>,
) -> Result<Plan, E> {
    settle(budget, plan, |plan| (plan.arena_bytes(), executor.staging_bytes(plan)))
}

/// Asks again with less for the arena until both fit: each time it is less, so this ends.
fn settle<P, E>(
    budget: Option<u64>,
    mut plan: impl FnMut(Option<u64>) -> Result<P, E>,
    sizes: impl Fn(&P) -> (u64, u64),
) -> Result<P, E> {
    let mut room = budget;
    loop {
        let made = plan(room)?;
        let (arena, beside) = sizes(&made);
        match budget.map(|budget| budget.saturating_sub(beside)) {
            Some(left) if left < arena => room = Some(left),
            Some(_) | None => return Ok(made),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Settled = Result<(u64, u64), u64>;

    /// Plans of an arena and what stands beside it; the largest arena that fits is taken.
    fn settled(budget: Option<u64>, plans: &[(u64, u64)]) -> (Settled, Vec<Option<u64>>) {
        let mut asked = Vec::new();
        let plan = |room: Option<u64>| {
            asked.push(room);
            let room = room.unwrap_or(u64::MAX);
            plans.iter().copied().filter(|(arena, _)| *arena <= room).max().ok_or(room)
        };
        let made = settle(budget, plan, |made| *made);
        (made, asked)
    }

    #[test]
    fn the_arena_and_what_stands_beside_it_are_within_the_budget() {
        let plans = [(100, 30), (90, 20), (70, 20), (50, 25), (40, 10)];
        for (budget, expected) in [(130, 100), (129, 90), (110, 90), (109, 70), (89, 50), (74, 40), (50, 40)] {
            let (made, _) = settled(Some(budget), &plans);
            assert_eq!(made.map(|(arena, _)| arena), Ok(expected), "of {budget}");
        }
        assert_eq!(settled(Some(49), &plans).0, Err(39), "what is left for the arena of the smallest");
        assert_eq!(settled(Some(5), &[(3, 9)]).0, Err(0));
    }

    #[test]
    fn where_nothing_stands_beside_the_arena_planning_is_asked_once() {
        assert_eq!(settled(Some(80), &[(100, 0), (80, 0)]), (Ok((80, 0)), vec![Some(80)]));
        assert_eq!(settled(None, &[(100, 30), (80, 0)]), (Ok((100, 30)), vec![None]));
    }
}
