//! How replicas differ in what they hold, without a plan for each: states that are dealt out whole, and sums that are kept while other
//! lanes are added up.

use std::collections::HashMap;

use memfit_ir::Replica;
use memfit_ir::op::StateClass;
use memfit_nn::Mode;
use memfit_plan::{MicroBatch, PlanError};
use memfit_transform::{Exchange, parameter_owners};

use crate::subject::Subject;

/// What a replica holds that another may have more or less of. All else is the same for all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaBytes {
    /// Which of them.
    pub rank: usize,
    /// How many lanes of the batch are its own.
    pub lanes: usize,
    /// Of its parameters, optimizer and statistics: those of its plan.
    pub state_bytes: u64,
    /// Of what it adds up over micro-batches, with the sums of lanes that it keeps meanwhile.
    pub accumulator_bytes: u64,
}

impl ReplicaBytes {
    /// All of it.
    pub fn bytes(&self) -> u64 {
        self.state_bytes + self.accumulator_bytes
    }
}

/// The one that holds the most, the first of equals: where that one fits, so do all with as much memory.
pub fn largest_replica(replicas: &[ReplicaBytes]) -> Option<&ReplicaBytes> {
    replicas.iter().reduce(|most, other| if other.bytes() > most.bytes() { other } else { most })
}

/// Bytes of a model's states, each with what is left free behind it.
pub(crate) struct States {
    exchange: Exchange,
    /// That every replica has.
    everywhere: u64,
    /// Slots of a parameter, each with the one replica that has them; none where all have.
    slots: Vec<(Option<usize>, u64)>,
    /// One sum of everything that is added up.
    sums: u64,
}

impl States {
    /// Bytes that others keep for one replica.
    pub(crate) fn sharded_bytes(&self, rank: usize) -> u64 {
        let of_others = self.slots.iter().filter(|(owner, _)| owner.is_some_and(|owner| owner != rank));
        of_others.map(|(_, bytes)| bytes).sum()
    }
}

impl Subject<'_> {
    /// What each replica of the run holds, in the order of their ranks. One small model is built for all of them.
    pub fn replicas(&self) -> Result<Vec<ReplicaBytes>, PlanError> {
        let states = self.states()?;
        let mut slots = vec![0; states.exchange.replica.count];
        for (owner, bytes) in &states.slots {
            match owner {
                Some(owner) => slots[*owner] += bytes,
                None => slots.iter_mut().for_each(|of_rank| *of_rank += bytes),
            }
        }
        let is_whole = self.is_whole_step();
        let replica = |(rank, slots): (usize, u64)| {
            let own = states.exchange.replica.with_rank(rank);
            ReplicaBytes {
                rank,
                lanes: own.own_lanes().len(),
                state_bytes: states.everywhere + slots,
                accumulator_bytes: if is_whole { 0 } else { states.sums * (1 + own.most_kept() as u64) },
            }
        };
        Ok(slots.into_iter().enumerate().map(replica).collect())
    }

    /// Whether every replica has one lane, and that is one micro-batch.
    fn is_whole_step(&self) -> bool {
        let Replica { lanes, count, .. } = self.request.exchange.replica;
        let lane = self.request.batch / lanes.max(1);
        let is_lane = match self.request.micro_batch {
            MicroBatch::Exactly(samples) => samples == lane,
            MicroBatch::Auto | MicroBatch::Off | MicroBatch::Allow => true,
        };
        is_lane && lanes == count
    }

    pub(crate) fn states(&self) -> Result<States, PlanError> {
        let failed = |e: crate::SourceError| PlanError::Source(e);
        // Two samples, of which one is looked at a time: so what is added up is among the states.
        let programs = memfit_train::programs(self.model, self.training, 2, 1).map_err(failed)?;
        let forward = self.model.build(1, Mode::Train).map_err(|e| failed(e.into()))?;
        let exchange = self.request.exchange;
        let owners = parameter_owners(&forward.graph, self.training, &exchange).map_err(|e| failed(e.into()))?;
        let owners: HashMap<String, Option<usize>> = owners.into_iter().collect();
        let alignment = self.target.alignment();
        let mut states = States { exchange, everywhere: 0, slots: Vec::new(), sums: 0 };
        let mut seen: HashMap<&str, ()> = HashMap::new();
        for (state, v, graph) in
            programs.iter().flat_map(|(_, step)| step.graph.states().map(move |(s, v)| (s, v, &step.graph)))
        {
            if seen.insert(&state.name, ()).is_some() {
                continue;
            }
            let bytes = graph.ty(v).bytes().next_multiple_of(alignment);
            match state.class {
                StateClass::Param | StateClass::Statistic => states.everywhere += bytes,
                StateClass::Accumulator => states.sums += bytes,
                StateClass::Slot => {
                    let owner = parameter_of(&state.name).and_then(|name| owners.get(name).copied().flatten());
                    states.slots.push((owner, bytes));
                }
            }
        }
        Ok(states)
    }
}

/// The parameter that a slot of the optimizer belongs to.
fn parameter_of(slot: &str) -> Option<&str> {
    Some(slot.strip_prefix("optimizer/")?.rsplit_once('/')?.0)
}
