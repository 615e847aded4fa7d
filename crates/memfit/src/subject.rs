//! What is to be planned: a zoo model by its name, how it is trained, on what, and what is asked.

use memfit_nn::zoo::Model;
use memfit_plan::{PlanError, Request, Survey, Target};
use memfit_transform::Training;

use crate::survey_model;

#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// The model's name in the zoo, by which its smaller siblings are found.
    pub name: &'a str,
    pub model: &'a Model,
    pub training: &'a Training,
    pub target: &'a dyn Target,
    pub request: &'a Request,
}

impl<'a> Subject<'a> {
    pub fn survey(&self) -> Result<Survey<'a>, PlanError> {
        survey_model(self.model, self.training, self.target, self.request)
    }
}
