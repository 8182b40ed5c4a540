//! Long trainings: saving and resuming, monitoring, stopping in time.
//!
//! | items | purpose |
//! |---|---|
//! | [`Checkpoint`], [`Checkpoints`] | a training in a file; a folder of the last and the best |
//! | [`Interrupt`] | Ctrl-C lets a training finish its step and save |
//! | [`Progress`] | a bar on a terminal, lines in a log |
//! | [`metrics`] | means, accuracy, precision, recall, F1, confusion matrices, items a second |
//! | [`SummaryWriter`] | TensorBoard: scalars, histograms, images, texts, hyperparameters, graphs |
//! | [`RunLog`], [`Curves`] | CSV and JSON lines; plots |
//! | [`EarlyStopping`], [`LrFinder`] | when to stop; the initial learning rate |

pub mod metrics;

mod checkpoints;
mod curves;
mod early_stopping;
mod interrupt;
mod lr_finder;
mod progress;
mod raster;
mod run_log;
mod summary_writer;

pub use checkpoints::{Checkpoints, Goal, LoadedStep, SavedStep};
pub use curves::Curves;
pub use early_stopping::EarlyStopping;
pub use interrupt::Interrupt;
pub use lr_finder::{LrCurve, LrFinder};
pub use nn::Checkpoint;
pub use progress::Progress;
pub use run_log::RunLog;
pub use summary_writer::{HyperParameter, SummaryWriter};

/// The root of these sources, for `taper`: error locations skip lines below it.
#[doc(hidden)]
pub const ROOT: &str = file!();
