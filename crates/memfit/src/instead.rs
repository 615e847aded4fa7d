//! Models that could be trained instead of one that does not fit: smaller ones, and such that read less.

use memfit_nn::Model;
use memfit_plan::{Change, Effect, Fix};
use memfit_transform::Training;

use crate::search::state_bytes;
use crate::subject::Subject;

/// A model that could be trained instead, and what makes it so.
pub struct Instead {
    /// What is asked for differently.
    pub change: Change,
    /// What that does to the training.
    pub effect: Effect,
    /// The model itself.
    pub model: Box<dyn Model>,
    /// How it is trained: what is frozen goes by its own names.
    pub training: Training,
}

/// Models of which the largest that fits is looked for.
pub struct Ladder {
    /// From the largest to the smallest: what comes later takes less, so that a few plans find the first that fits.
    pub models: Vec<Instead>,
    /// Whether each that fits is to be offered: where they are of several families, and none takes the place of another.
    pub is_each_offered: bool,
}

impl Ladder {
    /// What of it fits into the budget. Each was planned.
    pub(crate) fn fixes(&self, subject: &Subject, budget: u64, progress: &mut dyn FnMut(&Change)) -> Vec<Fix> {
        let mut fix = |instead: &Instead| {
            progress(&instead.change);
            instead.fix(subject, budget)
        };
        if self.is_each_offered {
            return self.models.iter().filter_map(fix).collect();
        }
        let (mut low, mut high, mut best) = (0, self.models.len(), None);
        while low < high {
            let middle = low.midpoint(high);
            match fix(&self.models[middle]) {
                Some(fix) => (high, best) = (middle, Some(fix)),
                None => low = middle + 1,
            }
        }
        best.into_iter().collect()
    }
}

impl Instead {
    fn fix(&self, subject: &Subject, budget: u64) -> Option<Fix> {
        let subject = Subject { model: &*self.model, training: &self.training, ..*subject };
        // Known without a plan.
        if state_bytes(&subject).ok()? > budget {
            return None;
        }
        let plan = subject.survey().ok()?.plan(Some(budget)).ok()?;
        Some(Fix::new(vec![self.change.clone()], Some(self.effect.clone()), &plan))
    }
}
