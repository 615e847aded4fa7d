//! The planner: from step graphs and a budget in bytes to the fastest plan that fits, which says where every byte lies and
//! when, or to a refusal. Pure functions over plain data; no device is touched here.
//!
//! `planner` is the pipeline, `request` what is asked of it, `survey` what comes out before a budget is given: the programs of
//! each size of micro-batch (`micro_programs`) and of their candidates those worth choosing from (`frontier`).
//!
//! The stages, one file each: `flow` (a program as memory sees it), `order`, `lifetime`, `draft` (these three, for
//! one graph), `recompute` (many drafts: what to keep and what to recompute), [`pack`], `place`; and beside them
//! [`passes`], the list of what is done to graphs on the way, [`validate`], which shares no code with them and checks what they made, `bound`, which proves what no plan can go
//! below, `equivalence`, which says whether a plan computes what its source says, [`report`], which reads a plan, and [`save`], which writes it to a file and reads it back.

mod baseline;
mod bound;
mod change;
pub mod compare;
mod cost_model;
mod draft;
mod equivalence;
mod error;
pub mod exchange;
mod flow;
mod frontier;
mod lifetime;
mod limit;
mod memory;
mod micro_programs;
mod order;
mod outline;
pub mod pack;
pub mod passes;
mod place;
mod planner;
mod recompute;
mod refuse;
pub mod report;
mod request;
pub mod save;
mod sizes;
mod staging;
mod state_slots;
mod support;
mod survey;
mod target;
mod together;
mod types;
pub mod validate;

pub use change::{Change, Effect, Fix};
pub use cost_model::{CONSTANTS, Constant, CostModel, Link};
pub use equivalence::{Departure, check_source};
pub use error::{LiveTensor, PlanError, Refusal, Unsupported};
pub use flow::storage;
pub use frontier::Point;
pub use memfit_ir::bytes;
pub use memory::plan_bytes;
pub use planner::{plan, survey};
pub use request::{MicroBatch, Programs, Request, Source};
pub use sizes::divisors;
pub use staging::{StagedProgram, staged_programs};
pub use survey::Survey;
pub use target::Target;
pub use together::{Member, Need, Together, TogetherRefusal, plan_together};
pub use types::{Launch, MadeFor, Phase, Place, Plan, Program, Saving, Segment, StateSlot, Tool};
