//! The optimizers, a file for each algorithm.

pub(crate) mod adadelta;
pub(crate) mod adagrad;
pub(crate) mod adam;
pub(crate) mod adamax;
pub(crate) mod asgd;
pub(crate) mod lbfgs;
pub(crate) mod line_search;
pub(crate) mod lion;
pub(crate) mod muon;
pub(crate) mod nadam;
pub(crate) mod radam;
pub(crate) mod rmsprop;
pub(crate) mod rprop;
pub(crate) mod sgd;
