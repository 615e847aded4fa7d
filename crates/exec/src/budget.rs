//! Planning for a budget that holds all that is taken of a device: both segments, and what stands beside them.

use memfit_plan::Plan;

use crate::executor::Executor;

/// Plans so that the arena and what the executor takes beside it ([`Executor::staging_bytes`]) are within a budget together.
/// `plan` is told what the arena may have, and gives the best plan for that. Where nothing stands beside it, that is the budget,
/// and it is asked once; otherwise it may be asked for one smaller plan after the other, so that a larger budget never gives a
/// worse one.
///
/// # Errors
/// Those of `plan`: such as a refusal, in which the limit is what the smallest plan leaves for its arena.
pub fn plan_within<X: Executor, E>(
    executor: &X,
    budget: Option<u64>,
    plan: impl FnMut(Option<u64>) -> Result<Plan, E>,
) -> Result<Plan, E> {
    first_that_fits(budget, plan, |plan| (plan.arena_bytes(), executor.staging_bytes(plan)))
}

/// Goes from the best plan down. Each arena is smaller than the one before, so this ends.
fn first_that_fits<P, E>(
    budget: Option<u64>,
    mut plan: impl FnMut(Option<u64>) -> Result<P, E>,
    sizes: impl Fn(&P) -> (u64, u64),
) -> Result<P, E> {
    let mut made = plan(budget)?;
    let Some(budget) = budget else { return Ok(made) };
    loop {
        let (arena, beside) = sizes(&made);
        let left = budget.saturating_sub(beside);
        if arena <= left {
            return Ok(made);
        }
        match plan(Some(arena - 1)) {
            Ok(smaller) => made = smaller,
            // There is none: what is left is even less.
            Err(_) => return plan(Some(left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An arena, and what stands beside it.
    type Sizes = (u64, u64);

    /// The largest arena that fits is taken, or the room is given that is too small; and what was asked for.
    fn settled(budget: Option<u64>, plans: &[Sizes]) -> (Result<Sizes, u64>, Vec<Option<u64>>) {
        let mut asked = Vec::new();
        let plan = |room: Option<u64>| {
            asked.push(room);
            let room = room.unwrap_or(u64::MAX);
            plans.iter().copied().filter(|(arena, _)| *arena <= room).max().ok_or(room)
        };
        let made = first_that_fits(budget, plan, |made| *made);
        (made, asked)
    }

    #[test]
    fn the_arena_and_what_stands_beside_it_are_within_the_budget() {
        let plans = [(100, 30), (90, 20), (70, 20), (50, 25), (40, 10)];
        for (budget, expected) in [(130, 100), (129, 90), (110, 90), (109, 70), (89, 50), (74, 40), (50, 40)] {
            let (made, _) = settled(Some(budget), &plans);
            assert_eq!(made.map(|(arena, _)| arena), Ok(expected), "of {budget}");
        }
        assert_eq!(settled(Some(49), &plans).0, Err(39), "what the smallest leaves for its arena");
        assert_eq!(settled(Some(5), &[(3, 9)]).0, Err(0));
    }

    #[test]
    fn where_nothing_stands_beside_the_arena_planning_is_asked_once() {
        assert_eq!(settled(Some(80), &[(100, 0), (80, 0)]), (Ok((80, 0)), vec![Some(80)]));
        assert_eq!(settled(None, &[(100, 30), (80, 0)]), (Ok((100, 30)), vec![None]));
    }
}
