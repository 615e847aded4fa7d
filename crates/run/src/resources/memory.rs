//! The memory of a run: what its data pipeline may hold, what its device leaves for its arena, and how one gives way to the
//! other.

use std::sync::Arc;

use memfit::data::BytePool;
use memfit::exec::{Device, Reservation, exchange_staging_bytes};
use memfit::plan::plan_bytes;
use memfit::{ExecError, Plan, PlanError};

use super::{Purpose, RunResources};
use crate::config::RunConfig;
use crate::data;
use crate::device::Placement;
use crate::error::Result;
use crate::host_budget;
use crate::process::ProcessMemory;
use crate::room::Room;

/// What a data pipeline may hold, taken of its host.
pub(crate) struct Pool {
    pub(super) pool: BytePool,
    pub(super) memory: Reservation,
    pub(super) gives_way: bool,
}

impl Pool {
    /// For one of so many runs on the host.
    pub(super) fn new(
        config: &RunConfig,
        purpose: Purpose,
        place: &Placement,
        process: Option<&ProcessMemory>,
        co_runs: usize,
        label: &str,
    ) -> Result<Pool> {
        let host = &place.host;
        let is_part = place.is_on_host() && !config.memory.logical.is_empty();
        // A split says what there is; but elsewhere, on another machine than it was said for, the usual share must do.
        let is_elsewhere = match purpose {
            Purpose::Train | Purpose::Profile => false,
            Purpose::Plan => !is_part,
            Purpose::Answer => true,
        };
        let is_said_here =
            !is_elsewhere || (purpose == Purpose::Answer && config.is_overridden("memory", "host_budget"));
        let budget = config.memory.host_budget.filter(|&budget| is_said_here || budget <= host.free() / 2);
        // A share of what the program leaves has nothing of it.
        let outside = process.filter(|p| !is_part && host.limit() >= p.bytes).map_or(0, |p| p.outside);
        let pool = data::pool(budget, host, outside, co_runs);
        let gives_way = budget.is_none() || (purpose == Purpose::Answer && !is_said_here);
        Ok(Pool { gives_way, ..Pool::of(pool.limit(), host, label)? })
    }

    /// Of so many bytes.
    pub(crate) fn of(bytes: u64, host: &Device, label: &str) -> Result<Pool> {
        let memory = host.take(&format!("the data pipeline of {label}"), bytes)?;
        Ok(Pool { pool: BytePool::new(bytes), memory, gives_way: false })
    }
}

impl RunResources {
    /// A plan and its kernels take memory too; where the process has a limit, that much is not for the arena.
    pub(super) fn keep_room_for_plan(&mut self) -> Result<()> {
        let Some(process) = self.process.clone().filter(|p| p.is_limited()) else { return Ok(()) };
        if self.is_part_of_host() {
            return Ok(());
        }
        let batch = self.request.batch;
        let programs = memfit::programs(&self.model, &self.training, batch, batch).map_err(PlanError::Source)?;
        let bytes = plan_bytes(&programs);
        host_budget::give_way(&[self], bytes);
        let taken = self.host.take(&format!("the plan of {}", self.label), bytes);
        self._plan_memory = Some(taken.map_err(|e| match e {
            ExecError::DeviceFull(_) => process.no_room_for_program(bytes),
            other => other.into(),
        })?);
        Ok(())
    }

    /// What replicas exchange goes through the host where their device has memory of its own: that is taken of the host before
    /// anything is begun.
    pub(crate) fn keep_room_for_exchanges(&mut self, plan: &Plan) -> Result<()> {
        let bytes = exchange_staging_bytes(plan);
        if self.crew.size > 1 && !self.is_on_host() && bytes > 0 {
            host_budget::give_way(&[self], bytes);
            let taken = self.host.take(&format!("exchanges of {}", self.label), bytes)?;
            self.exchange_memory = Some(taken);
        }
        Ok(())
    }

    /// Bytes of the host through which it exchanges.
    pub fn exchange_bytes_of_host(&self) -> u64 {
        self.exchange_memory.as_ref().map_or(0, Reservation::bytes)
    }

    /// Whether that is a logical device.
    fn is_part_of_host(&self) -> bool {
        self.is_on_host() && !self.config.memory.logical.is_empty()
    }

    /// A logical device has a limit, and so may the process; and so has what is planned for it: what others have left there.
    pub(super) fn limit_to_device(&mut self) {
        // A plan may be for another machine than this, unless it is said for how much.
        let holds = |p: &&Arc<ProcessMemory>| p.is_said() || (p.is_limited() && self.purpose != Purpose::Plan);
        let process = self.process.as_ref().filter(|_| self.is_on_host()).filter(holds);
        let of_process = || Some(Room::of_process(&self.device, process?).shared_by(self.crew.here));
        self.room = Room::of_part(&self.device, &self.config.memory).or_else(of_process);
        self.limit_budget();
    }

    /// To the whole device, where it has no other limit.
    pub(crate) fn limit_to_whole(&mut self) {
        self.room = Some(Room::of_whole(&self.device));
        self.limit_budget();
    }

    /// Takes a budget where none is said.
    pub(crate) fn choose_budget(&mut self, budget: u64) {
        self.budget = Some(budget);
        self.limit_budget();
    }

    fn limit_budget(&mut self) {
        let room = self.room.as_ref().map(|room| room.bytes);
        self.request.budget = [self.budget, room].into_iter().flatten().min();
    }

    /// What there is to plan with when the pipeline has given way to an arena of so many bytes, as far as it can.
    pub(crate) fn make_room(&self, arena: u64) -> Option<u64> {
        if self.room.is_none() || self.budget.is_some_and(|said| said < arena) {
            return self.request.budget;
        }
        host_budget::give_way_to_arena(&[self], arena);
        self.budget_now()
    }

    /// The budget, with what is left of the device now.
    pub(crate) fn budget_now(&self) -> Option<u64> {
        let left = self.room.as_ref().map(|_| self.device.free());
        [self.budget, left].into_iter().flatten().min()
    }

    /// When pipelines have given way.
    pub(crate) fn look_at_room_again(&mut self) {
        self.room = self.room.as_ref().map(|room| room.now(&self.device));
        self.limit_budget();
    }

    /// Bytes that the pipeline would give up.
    pub(crate) fn spare_in_pool(&self) -> u64 {
        self.least_pool().map_or(0, |least| self.pool.limit().saturating_sub(least.max(self.pool.used())))
    }

    /// The same, for an arena of this run.
    pub(crate) fn spare_for_arena(&self) -> u64 {
        if self.is_on_host() { self.spare_in_pool() } else { 0 }
    }

    /// Bytes that the pipeline would take besides if there were more where the arena is.
    pub(crate) fn lack_in_pool(&self) -> u64 {
        self.least_pool().filter(|_| self.is_on_host()).map_or(0, |least| least.saturating_sub(self.pool.limit()))
    }

    /// Of a pipeline that gives way.
    fn least_pool(&self) -> Option<u64> {
        self.pool_gives_way.then(|| *self.least_pool.get_or_init(|| host_budget::least(self, self.purpose)))
    }

    pub(crate) fn shrink_pool(&self, bytes: u64) {
        let limit = self.pool.limit().saturating_sub(bytes);
        if self.pool.shrink(limit) {
            self.pool_memory.shrink(limit);
        }
    }

    /// The room as it is now, if it is what its own budget comes to.
    pub fn tight_room(&self) -> Option<Room> {
        self.room_now().filter(|room| self.budget_now() == Some(room.bytes))
    }

    /// What training would have here, of a run that is only planned and for any machine.
    pub(crate) fn room_here(&self) -> Option<Room> {
        let is_elsewhere = self.purpose == Purpose::Plan && self.room.is_none();
        let limited = self.process.as_ref().filter(|p| p.is_limited() && self.is_on_host());
        let of_process = |process| Room::of_process(&self.device, process).shared_by(self.crew.here);
        let here = || limited.map_or_else(|| Room::of_whole(&self.device), |process| of_process(process));
        is_elsewhere.then(here)
    }

    /// The room as it is now, with what the pipeline would take besides.
    pub(crate) fn room_now(&self) -> Option<Room> {
        let room = self.room.as_ref()?.now(&self.device).with_lack(self.lack_in_pool());
        // What goes on together computes with the same threads.
        let process = self.process.as_ref().filter(|p| p.is_limited() && !self.is_one_of_several);
        Some(match process.filter(|_| self.is_on_host() && self.config.memory.logical.is_empty()) {
            Some(process) => room.with_threads(self.threads, process.per_thread),
            None => room,
        })
    }
}
