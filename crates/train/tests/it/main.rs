//! Long runs, over the CPU.

mod checkpoints;
mod killed;
mod logs;
mod metrics;
mod small;
mod summaries;
