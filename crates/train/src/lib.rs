//! Long runs: stopped and gone on with, watched, ended in time.
//!
//! | look for | in |
//! |---|---|
//! | [`Checkpoint`], [`Checkpoints`] | a whole training in a file; the last and the best of them in a folder |
//! | [`Interrupt`] | Ctrl-C lets a training finish its step and save |

mod checkpoints;
mod interrupt;

pub use checkpoints::{Checkpoints, Goal, LoadedStep, SavedStep};
pub use interrupt::Interrupt;
pub use nn::Checkpoint;
