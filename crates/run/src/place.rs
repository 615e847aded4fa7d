//! Where a run computes: a device, and what its data pipeline may hold there.

use anyhow::Result;
use memfit::data::BytePool;
use memfit::exec::{Device, Reservation};

use crate::config::Spec;
use crate::data;
use crate::resources::Run;
use crate::together::Neighbour;

/// Where a run computes, and under which name.
pub struct Place {
    /// What it is called among others.
    pub label: String,
    pub device: Device,
    /// What the pipeline holds is drawn from here.
    pub pool: BytePool,
    /// And all that it may hold is taken of the device, until the run is over.
    pub host: Option<Reservation>,
}

impl Place {
    /// For one of so many runs on the device.
    pub fn new(label: String, spec: &Spec, device: Device, neighbours: usize) -> Result<Place> {
        let pool = data::pool(spec.memory.host_budget, &device, neighbours);
        Place::with_pool(label, device, pool)
    }

    /// For a run that only answers, which may be on a smaller machine than it was trained on: then its pipeline has the
    /// usual share.
    pub fn to_answer(label: String, spec: &Spec, device: Device, neighbours: usize) -> Result<Place> {
        let said = spec.memory.host_budget.filter(|&said| said <= device.free() / 2);
        let pool = data::pool(said, &device, neighbours);
        Place::with_pool(label, device, pool)
    }

    /// For a run that is only planned, maybe for a larger machine; but a split says what there is.
    pub fn to_plan(label: String, spec: &Spec, device: Device, neighbours: usize) -> Result<Place> {
        let make = if spec.memory.logical.is_empty() { Place::to_answer } else { Place::new };
        make(label, spec, device, neighbours)
    }

    fn with_pool(label: String, device: Device, pool: BytePool) -> Result<Place> {
        let host = device.take(&format!("the data pipeline of {label}"), pool.limit())?;
        Ok(Place { label, device, pool, host: Some(host) })
    }

    /// The run at this place, as others see it.
    pub fn neighbour<'a>(&'a self, run: &'a Run) -> Neighbour<'a> {
        Neighbour { label: &self.label, run, device: &self.device }
    }
}
