//! Several models on one device: their states stand side by side, and what else a step needs takes turns in one segment. So
//! together they take the sum of their states and the largest of their transients. Under a budget each model is given the
//! fastest plan whose transient fits beside all states: the largest ones become smaller first, and no other does. Another
//! micro-batch than alone, which rounds sums in another order, is the last resort.

use std::fmt;

use crate::bytes::{Bytes, round_up};
use crate::change::{Change, Fix};
use crate::error::PlanError;
use crate::survey::Survey;
use crate::types::Plan;

/// A model that is to share a device.
pub struct Member<'a> {
    pub name: &'a str,
    pub survey: &'a Survey<'a>,
    /// What it may take itself, whatever the others take.
    pub budget: Option<u64>,
}

/// Plans of models that share a device, in their order.
#[derive(Clone, Debug)]
pub struct Together {
    pub plans: Vec<Plan>,
    /// The micro-batch that each has alone: with the same, it computes the same bits.
    pub micro_batches_alone: Vec<usize>,
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

/// Plans models for one device under one budget, and each under its own.
pub fn plan_together(members: &[Member], budget: Option<u64>) -> Result<Together, PlanError> {
    let mut together = Together { plans: Vec::new(), micro_batches_alone: Vec::new() };
    let states: u64 = members.iter().map(|m| m.survey.state_bytes()).sum();
    for Member { survey, budget: own, .. } in members {
        let alone = survey.plan(*own)?;
        together.micro_batches_alone.push(alone.micro_batch);
        let Some(budget) = budget.filter(|b| states.saturating_add(alone.transient_bytes) > *b) else {
            together.plans.push(alone);
            continue;
        };
        let refused = || PlanError::TogetherRefused(Box::new(TogetherRefusal::new(members, budget)));
        // For its own states, and for its turn in what is left beside all of them.
        let room = survey.state_bytes() + budget.checked_sub(states).ok_or_else(refused)?;
        together.plans.push(match survey.plan_of_size(room, alone.micro_batch)? {
            Some(plan) => plan,
            None => survey.plan(Some(room)).map_err(|e| match e {
                PlanError::Refused(_) => refused(),
                other => other,
            })?,
        });
    }
    Ok(together)
}

/// Why a budget is too small for a set of models.
#[derive(Clone, Debug, PartialEq)]
pub struct TogetherRefusal {
    pub budget: u64,
    /// What the smallest plans found take together.
    pub needed: u64,
    /// No plans can take less.
    pub lower_bound: u64,
    pub members: Vec<Need>,
    /// What lets them in as they are, where something does.
    pub cure: Option<Change>,
}

/// The least that a model takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Need {
    pub name: String,
    pub state_bytes: u64,
    /// Of its smallest plan.
    pub transient_bytes: u64,
    /// What no plan of it goes below, without its states.
    pub transient_bound: u64,
    /// Where that is too much beside the states of all: what would make it fit, fastest first.
    pub fixes: Vec<Fix>,
}

impl Need {
    fn new(member: &Member) -> Need {
        let survey = member.survey;
        let state_bytes = survey.state_bytes();
        Need {
            name: member.name.to_string(),
            state_bytes,
            transient_bytes: survey.frontier().last().map_or(0, |p| p.transient_bytes),
            transient_bound: survey.lower_bound_bytes().saturating_sub(state_bytes),
            fixes: Vec::new(),
        }
    }

    /// What it takes alone.
    pub fn arena_bytes(&self) -> u64 {
        self.state_bytes + self.transient_bytes
    }
}

impl TogetherRefusal {
    fn new(members: &[Member], budget: u64) -> TogetherRefusal {
        let members: Vec<Need> = members.iter().map(Need::new).collect();
        let states: u64 = members.iter().map(|m| m.state_bytes).sum();
        let most = |of: fn(&Need) -> u64| members.iter().map(of).max().unwrap_or(0);
        let (needed, lower_bound) = (states + most(|m| m.transient_bytes), states + most(|m| m.transient_bound));
        TogetherRefusal { budget, needed, lower_bound, members, cure: Some(Change::Budget(round_up(needed))) }
    }

    /// What a model may take at most, for its own states and for its turn beside all states.
    pub fn room(&self, member: &Need) -> u64 {
        self.budget.saturating_sub(self.state_bytes() - member.state_bytes)
    }

    /// Whether it is proved that no plans fit, and not only that none were found.
    pub fn is_proved(&self) -> bool {
        self.budget < self.lower_bound
    }

    pub fn state_bytes(&self) -> u64 {
        self.members.iter().map(|m| m.state_bytes).sum()
    }

    /// The models of which each must be changed for all to fit: those that are too large beside the states of the others.
    /// None where one of them stays too large whatever is done, for it keeps all of them out.
    pub fn to_be_changed(&self) -> Vec<&Need> {
        let too_large: Vec<&Need> = self.members.iter().filter(|m| m.arena_bytes() > self.room(m)).collect();
        if too_large.iter().any(|m| m.fixes.is_empty()) { Vec::new() } else { too_large }
    }

    /// The budget with which each fits alone, one after the other.
    pub fn one_after_the_other(&self) -> u64 {
        self.members.iter().map(Need::arena_bytes).max().unwrap_or(0)
    }
}

impl TogetherRefusal {
    /// What is needed and by whom, in lines; not what would fit.
    pub fn facts(&self) -> String {
        let certainty = if self.is_proved() { "no plans can fit" } else { "no plans were found that fit" };
        let (count, budget) = (self.members.len(), Bytes(self.budget));
        let (needed, excess) = (Bytes(self.needed), Bytes(self.needed - self.budget));
        let mut text =
            format!("{certainty} {count} models together into {budget}: {needed} are needed, {excess} too much");
        let bound = Bytes(self.lower_bound);
        text += &format!("\n  lower bound: {bound}: all states, and the most that one step must have");
        let width = self.members.iter().map(|m| m.name.len()).max().unwrap_or(0);
        for m in &self.members {
            let (states, transient) = (Bytes(m.state_bytes).to_string(), Bytes(m.transient_bytes).to_string());
            let name = &m.name;
            text += &format!("\n    {name:<width$}  states {states:>10}  and in its turn at least {transient:>10}");
        }
        text
    }

    /// That running them one after the other would fit, or into how much, in words.
    pub fn in_sequence(&self) -> String {
        let alone = self.one_after_the_other();
        if alone <= self.budget {
            format!("one after the other: each alone fits into {}", Bytes(self.budget))
        } else {
            format!("one after the other, into {}", Bytes(alone))
        }
    }
}

impl fmt::Display for TogetherRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  what would fit:", self.facts())?;
        if let Some(cure) = &self.cure {
            write!(f, "\n    {cure}: together, as they are")?;
        }
        write!(f, "\n    {}", self.in_sequence())?;
        for (i, m) in self.to_be_changed().into_iter().enumerate() {
            let word = if i == 0 { "or" } else { "and" };
            write!(f, "\n  {word} one of these for {}, each planned:", m.name)?;
            m.fixes.iter().try_for_each(|fix| write!(f, "\n    {fix}"))?;
        }
        Ok(())
    }
}
