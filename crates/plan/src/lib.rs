//! The planner: from step graphs and a budget in bytes to the fastest plan that fits, which says where every byte lies and
//! when, or to a refusal. Pure functions over plain data; no device is touched here.
//!
//! The stages, one file each: [`flow`] (a program as memory sees it), [`order`], [`lifetime`], [`draft`] (these three, for
//! one graph), [`recompute`] (many drafts: what to keep and what to make again), [`pack`], [`place`]; and beside them
//! [`passes`], what is done to graphs, [`validate`], which shares no code with them and checks what they made, [`bound`], which proves what no plan can go
//! below, [`report`], which reads a plan, and [`save`], which writes it to a file and reads it back.

pub mod bound;
mod change;
pub mod compare;
mod cost_model;
pub mod draft;
mod error;
pub mod flow;
pub mod lifetime;
mod limit;
pub mod order;
pub mod pack;
pub mod passes;
pub mod place;
mod planner;
pub mod recompute;
mod refuse;
pub mod report;
pub mod save;
mod sizes;
mod support;
mod target;
mod together;
mod types;
pub mod validate;
mod yardstick;

pub use change::{Change, Effect, Fix};
pub use cost_model::{CONSTANTS, Constant, CostModel};
pub use error::{PlanError, Refusal, Resident, Unsupported};
pub use memfit_ir::bytes;
pub use planner::{MicroBatch, Point, Request, Source, Survey, plan, survey};
pub use sizes::divisors;
pub use target::Target;
pub use together::{Member, Need, Together, TogetherRefusal, plan_together};
pub use types::{MadeFor, Phase, Place, Plan, Program, Saving, Segment, StateSlot, Step, Tool};
