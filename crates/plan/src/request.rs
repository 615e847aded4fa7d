//! What is asked of the planner.

use memfit_transform::group::Grouping;
use memfit_transform::{Exchange, StepGraph};

use crate::cost_model::CostModel;
use crate::types::Phase;

/// Makes the programs for a micro-batch: `[Step]` where it is the whole batch, else `[Accumulate, Apply]`; and `Eval`
/// where it is wanted. Each phase once, and the same programs whenever it is asked.
pub type Source<'a> = dyn Fn(usize) -> Programs + 'a;

/// What a source makes.
pub type Programs = Result<Vec<(Phase, StepGraph)>, Box<dyn std::error::Error + Send + Sync>>;

/// Whether a step may be done in micro-batches whose gradients are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum MicroBatch {
    /// Where no sample's result depends on the rest of the batch, so that only the rounding of the sum differs.
    #[default]
    Auto,
    Off,
    /// So many samples at a time; a divisor of the batch.
    Exactly(usize),
    /// Also where batch statistics then come from fewer samples.
    Allow,
}

/// What is asked of the planner besides the model and the device.
#[derive(Clone, Debug)]
pub struct Request {
    /// Of all replicas together.
    pub batch: usize,
    pub micro_batch: MicroBatch,
    /// Which replica is planned for, and what it exchanges with others. Where the batch has several lanes, micro-batches are as
    /// they are asked for, or a lane each: sums are the same bits for all replicas only if none has other leaves.
    pub exchange: Exchange,
    /// Whether nobody said how many lanes there are: then another batch would have as many as replicas, as far as that divides it.
    pub do_lanes_follow: bool,
    /// Bytes for all that is taken of the device: both segments, and what stands beside them. None for as much as it takes.
    pub budget: Option<u64>,
    pub grouping: Grouping,
    /// None for that of the target.
    pub cost_model: Option<CostModel>,
    /// Bytes of the host that planning itself may take; none for as much as it takes. No plan depends on it, only whether
    /// there is one.
    pub planning_room: Option<u64>,
}

impl Request {
    pub fn new(batch: usize) -> Request {
        Request {
            batch,
            micro_batch: MicroBatch::Auto,
            exchange: Exchange::ALONE,
            do_lanes_follow: false,
            budget: None,
            grouping: Grouping::Fused,
            cost_model: None,
            planning_room: None,
        }
    }
}
