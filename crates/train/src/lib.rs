//! Long trainings: saving and resuming, monitoring, stopping in time.
//!
//! | items | purpose |
//! |---|---|
//! | [`Checkpoint`], [`Checkpoints`] | a training in a file; a folder of the last and the best |
//! | [`Interrupt`] | Ctrl-C lets a training finish its step and save |
//! | [`Progress`] | lines in a log; a bar on a terminal (feature `progress`) |
//! | [`metrics`] | means, accuracy, precision, recall, F1, confusion matrices, items a second |
//! | [`SummaryWriter`] | TensorBoard: scalars, histograms, texts, graphs; images (feature `plots`) |
//! | [`RunLog`], `Curves` | CSV and JSON lines; plots (feature `plots`) |
//! | [`EarlyStopping`], [`LrFinder`] | when to stop; the initial learning rate |

pub mod metrics;

mod checkpoints;
#[cfg(feature = "plots")]
mod curves;
mod early_stopping;
mod interrupt;
mod lr_finder;
mod progress;
#[cfg(feature = "plots")]
mod raster;
mod run_log;
mod summary_writer;

pub use checkpoints::{Checkpoints, Goal, LoadedStep, SavedStep};
#[cfg(feature = "plots")]
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
