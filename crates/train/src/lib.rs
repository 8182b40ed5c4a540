//! Long runs: stopped and gone on with, watched, ended in time.
//!
//! | look for | in |
//! |---|---|
//! | [`Checkpoint`], [`Checkpoints`] | a whole training in a file; the last and the best of them in a folder |
//! | [`Interrupt`] | Ctrl-C lets a training finish its step and save |
//! | [`Progress`] | a bar on a terminal, lines in a log |
//! | [`metrics`] | means, accuracy, precision, recall, F1, confusion matrices, items a second |
//! | [`SummaryWriter`] | TensorBoard: scalars, histograms, texts, settings, graphs; pictures (feature `plots`) |
//! | [`RunLog`], `Curves` | CSV and JSON lines; pictures of curves (feature `plots`) |
//! | [`EarlyStopping`], [`LrFinder`] | when to stop, and which learning rate to begin with |

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

/// The root of these sources, for `taper`: errors name no line in them.
#[doc(hidden)]
pub const ROOT: &str = file!();
