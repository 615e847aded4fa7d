//! The planner: from step graphs and a budget in bytes to a plan that says where every byte lies and when, or to a
//! refusal. Pure functions over plain data; no device is touched here.
//!
//! The stages, one file each: [`order`], [`lifetime`], [`pack`], and beside them [`validate`], which shares no code with
//! them and checks what they made.

pub mod bytes;
mod error;
pub mod lifetime;
pub mod order;
pub mod pack;
mod planner;
mod profile;
mod target;
mod types;
pub mod validate;

pub use error::{PlanError, Refusal, Resident};
pub use planner::{Request, Source, plan};
pub use profile::Profile;
pub use target::Target;
pub use types::{Phase, Place, Plan, Program, Segment, StateSlot, Step};
