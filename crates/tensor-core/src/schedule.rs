#[derive(Default)]
pub(crate) struct PlanCache;
