//! Several models on one device: their states stand side by side, and what else a step needs takes turns in one segment. So
//! together they take the sum of their states and of what stands beside the segments, and the largest of their transients. Under
//! a budget each model is given the fastest plan whose turn fits beside all that: the largest ones become smaller first, and no other does. Another
//! micro-batch than alone, which rounds sums in another order, is the last resort.

use std::fmt;

use crate::bytes::{Bytes, round_up, told_apart};
use crate::change::{Change, Fix};
use crate::error::PlanError;
use crate::frontier::EfficientCandidate;
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
    let alone: Vec<&EfficientCandidate> =
        members.iter().map(|m| m.survey.choose(m.budget)).collect::<Result<_, PlanError>>()?;
    let micro_batch = |(m, o): (&Member, &&EfficientCandidate)| m.survey.sizes[o.size_index].size;
    let micro_batches_alone: Vec<usize> = members.iter().zip(&alone).map(micro_batch).collect();
    let finish = |chosen: &[&EfficientCandidate]| {
        let plans = members.iter().zip(chosen).map(|(m, option)| m.survey.finish(option));
        Ok(Together {
            plans: plans.collect::<Result<_, PlanError>>()?,
            micro_batches_alone: micro_batches_alone.clone(),
        })
    };
    let Some(budget) = budget.filter(|&b| taken(members, &alone) > b) else { return finish(&alone) };
    let choices: Vec<Choices> =
        members.iter().zip(&micro_batches_alone).map(|(m, &size)| Choices::new(m, size)).collect();
    let mut needed = u64::MAX;
    for chosen in in_turns(&choices) {
        let bytes = taken(members, &chosen);
        if bytes <= budget {
            return finish(&chosen);
        }
        needed = needed.min(bytes);
    }
    let most_staging = choices.iter().flat_map(Choices::all).map(|o| o.staging).max().unwrap_or(0);
    Err(PlanError::TogetherRefused(Box::new(TogetherRefusal::new(members, budget, needed, most_staging))))
}

/// What candidates of members take of the device together.
fn taken(members: &[Member], chosen: &[&EfficientCandidate]) -> u64 {
    let states: u64 = members.iter().map(|m| m.survey.state_bytes()).sum();
    let (staging, turn) = (chosen.iter().map(|o| o.staging).sum::<u64>(), chosen.iter().map(|o| o.transient).max());
    states.saturating_add(staging).saturating_add(turn.unwrap_or(0))
}

/// What a member may be given: candidates of the micro-batch that it has alone, and then those of any.
struct Choices<'a> {
    own: Vec<EfficientCandidate>,
    any: &'a [EfficientCandidate],
    budget: Option<u64>,
}

impl<'a> Choices<'a> {
    fn new(member: &Member<'a>, micro_batch: usize) -> Choices<'a> {
        let own = member.survey.efficient(|m| m.size == micro_batch);
        Choices { own, any: &member.survey.options, budget: member.budget }
    }

    /// The first wanted first.
    fn all(&self) -> impl Iterator<Item = &EfficientCandidate> {
        self.own.iter().chain(self.any).filter(|o| self.budget.is_none_or(|b| o.bytes() <= b))
    }
}

/// What an option has beside the states of all.
fn turn(option: &EfficientCandidate) -> u64 {
    option.transient + option.staging
}

/// What all may be given, from the fastest down: each the first of its choices whose turn is no larger than a limit, for every
/// limit that makes a difference. They are the same for every budget, so a larger one never gives a slower plan.
fn in_turns<'a>(choices: &'a [Choices]) -> impl Iterator<Item = Vec<&'a EfficientCandidate>> {
    let mut limits: Vec<u64> = choices.iter().flat_map(Choices::all).map(turn).collect();
    limits.sort_unstable_by_key(|&limit| std::cmp::Reverse(limit));
    limits.dedup();
    let chosen =
        |limit: u64| choices.iter().map(move |c| c.all().find(|o| turn(o) <= limit)).collect::<Option<Vec<_>>>();
    limits.into_iter().map_while(chosen)
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
    /// Most that one of their plans takes beside its segments.
    pub most_staging: u64,
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
    /// Beside its segments.
    pub staging_bytes: u64,
    /// What no plan of it goes below, without its states.
    pub transient_bound: u64,
    /// Where that is too much beside the states of all: what would make it fit, fastest first.
    pub fixes: Vec<Fix>,
}

impl Need {
    fn new(member: &Member) -> Need {
        let survey = member.survey;
        let (state_bytes, smallest) = (survey.state_bytes(), survey.options.last());
        Need {
            name: member.name.to_string(),
            state_bytes,
            transient_bytes: smallest.map_or(0, |o| o.transient),
            staging_bytes: smallest.map_or(0, |o| o.staging),
            transient_bound: survey.sizes.iter().map(|m| m.bound.bytes).min().unwrap_or(0).saturating_sub(state_bytes),
            fixes: Vec::new(),
        }
    }

    /// What it takes alone, of its device.
    pub fn device_bytes(&self) -> u64 {
        self.state_bytes + self.transient_bytes + self.staging_bytes
    }
}

impl TogetherRefusal {
    fn new(members: &[Member], budget: u64, needed: u64, most_staging: u64) -> TogetherRefusal {
        let beside: u64 =
            members.iter().map(|m| m.survey.sizes.iter().map(|s| s.staging_bound).min().unwrap_or(0)).sum();
        let members: Vec<Need> = members.iter().map(Need::new).collect();
        let states: u64 = members.iter().map(|m| m.state_bytes).sum();
        let lower_bound = states + beside + members.iter().map(|m| m.transient_bound).max().unwrap_or(0);
        let cure = Some(Change::Budget(round_up(needed)));
        TogetherRefusal { budget, needed, lower_bound, members, most_staging, cure }
    }

    /// What a model may take at most, for its own states and for its turn beside all states. Where each takes no more, and beside
    /// its segments no more than `most_staging`, all fit, whoever has the largest turn.
    pub fn room(&self, member: &Need) -> u64 {
        let others = self.members.len() as u64 - 1;
        let held = self.state_bytes() - member.state_bytes + others * self.most_staging;
        self.budget.saturating_sub(held)
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
        let too_large: Vec<&Need> = self.members.iter().filter(|m| m.device_bytes() > self.room(m)).collect();
        if too_large.iter().any(|m| m.fixes.is_empty()) { Vec::new() } else { too_large }
    }

    /// The budget with which each fits alone, one after the other.
    pub fn one_after_the_other(&self) -> u64 {
        self.members.iter().map(Need::device_bytes).max().unwrap_or(0)
    }
}

impl TogetherRefusal {
    /// What is needed and by whom, in lines; not what would fit.
    pub fn facts(&self) -> String {
        let certainty = if self.is_proved() { "no plans can fit" } else { "no plans were found that fit" };
        let count = self.members.len();
        let [budget, needed] = told_apart(self.budget, self.needed);
        let excess = Bytes(self.needed - self.budget);
        let mut text =
            format!("{certainty} {count} models together into {budget}: {needed} are needed, {excess} too much");
        let bound = Bytes(self.lower_bound);
        let beside = if self.most_staging > 0 { "copies, " } else { "" };
        text += &format!("\n  lower bound: {bound}: {beside}all states, and the most that one step must have");
        let width = self.members.iter().map(|m| m.name.len()).max().unwrap_or(0);
        for m in &self.members {
            let (states, transient) = (Bytes(m.state_bytes).to_string(), Bytes(m.transient_bytes).to_string());
            let name = &m.name;
            text += &format!("\n    {name:<width$}  states {states:>10}  and in its turn at least {transient:>10}");
            if m.staging_bytes > 0 {
                text += &format!("  beside them, for copies {:>10}", Bytes(m.staging_bytes).to_string());
            }
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
