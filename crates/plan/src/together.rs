//! Several models on one device: their states stand side by side, and what else a step needs takes turns in one segment. So
//! together they take the sum of their states and the largest of their transients. Under a budget each model is given the
//! fastest plan whose transient fits beside all states: the largest ones become smaller first, and no other does.

use std::fmt;

use crate::bytes::{Bytes, rounded_up};
use crate::error::PlanError;
use crate::planner::Survey;
use crate::types::Plan;

/// A model that is to share a device.
pub struct Member<'a> {
    pub name: &'a str,
    pub survey: &'a Survey<'a>,
}

/// Plans of models that share a device, in their order.
#[derive(Clone, Debug)]
pub struct Together {
    pub plans: Vec<Plan>,
}

impl Together {
    /// Of all models, side by side.
    pub fn state_bytes(&self) -> u64 {
        self.plans.iter().map(|p| p.state_bytes).sum()
    }

    /// Of the segment in which they take turns.
    pub fn transient_bytes(&self) -> u64 {
        self.plans.iter().map(|p| p.transient_bytes).max().unwrap_or(0)
    }

    pub fn arena_bytes(&self) -> u64 {
        self.state_bytes() + self.transient_bytes()
    }
}

/// Plans models for one device under one budget.
pub fn plan_together(members: &[Member], budget: Option<u64>) -> Result<Together, PlanError> {
    let states: u64 = members.iter().map(|m| m.survey.state_bytes()).sum();
    let refused = |budget| PlanError::TogetherRefused(Box::new(TogetherRefusal::new(members, budget)));
    let room = match budget {
        Some(budget) => Some(budget.checked_sub(states).ok_or_else(|| refused(budget))?),
        None => None,
    };
    let plan = |m: &Member| match m.survey.plan(room.map(|room| m.survey.state_bytes() + room)) {
        Err(PlanError::Refused(_)) => Err(refused(budget.unwrap_or(0))),
        result => result,
    };
    Ok(Together { plans: members.iter().map(plan).collect::<Result<_, _>>()? })
}

/// Why a budget is too small for a set of models.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TogetherRefusal {
    pub budget: u64,
    /// What the smallest plans found take together.
    pub needed: u64,
    /// No plans can take less.
    pub lower_bound: u64,
    pub members: Vec<Need>,
}

/// The least that a model takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    pub name: String,
    pub state_bytes: u64,
    /// Of its smallest plan.
    pub transient_bytes: u64,
    /// What no plan of it goes below, without its states.
    pub transient_bound: u64,
}

impl Need {
    fn of(member: &Member) -> Need {
        let survey = member.survey;
        let state_bytes = survey.state_bytes();
        Need {
            name: member.name.to_string(),
            state_bytes,
            transient_bytes: survey.frontier().last().map_or(0, |p| p.transient_bytes),
            transient_bound: survey.lower_bound_bytes().saturating_sub(state_bytes),
        }
    }

    /// What it takes alone.
    pub fn arena_bytes(&self) -> u64 {
        self.state_bytes + self.transient_bytes
    }
}

impl TogetherRefusal {
    fn new(members: &[Member], budget: u64) -> TogetherRefusal {
        let members: Vec<Need> = members.iter().map(Need::of).collect();
        let states: u64 = members.iter().map(|m| m.state_bytes).sum();
        let most = |of: fn(&Need) -> u64| members.iter().map(of).max().unwrap_or(0);
        TogetherRefusal {
            budget,
            needed: states + most(|m| m.transient_bytes),
            lower_bound: states + most(|m| m.transient_bound),
            members,
        }
    }

    /// Whether it is proved that no plans fit, and not only that none were found.
    pub fn is_proved(&self) -> bool {
        self.budget < self.lower_bound
    }

    pub fn state_bytes(&self) -> u64 {
        self.members.iter().map(|m| m.state_bytes).sum()
    }

    /// The budget with which each fits alone, one after the other.
    pub fn one_after_the_other(&self) -> u64 {
        self.members.iter().map(Need::arena_bytes).max().unwrap_or(0)
    }
}

impl fmt::Display for TogetherRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let certainty = if self.is_proved() { "no plans can fit" } else { "no plans were found that fit" };
        writeln!(
            f,
            "{certainty} {} models together into {}: {} are needed, {} too much",
            self.members.len(),
            Bytes(self.budget),
            Bytes(self.needed),
            Bytes(self.needed - self.budget)
        )?;
        writeln!(f, "  lower bound: {}: all states, and the most that one step must have", Bytes(self.lower_bound))?;
        let width = self.members.iter().map(|m| m.name.len()).max().unwrap_or(0);
        for m in &self.members {
            let (states, transient) = (Bytes(m.state_bytes).to_string(), Bytes(m.transient_bytes).to_string());
            writeln!(f, "    {:<width$}  states {states:>10}  and in its turn at least {transient:>10}", m.name)?;
        }
        write!(f, "  what would fit:\n    --budget {}  together", rounded_up(self.needed))?;
        let alone = self.one_after_the_other();
        match alone <= self.budget {
            true => write!(f, "\n    one after the other: each alone fits into {}", Bytes(self.budget)),
            false => write!(f, "\n    --budget {}  one after the other", rounded_up(alone)),
        }
    }
}
