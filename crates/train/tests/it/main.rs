//! Long trainings, on the CPU.

mod checkpoints;
mod killed;
mod logs;
mod metrics;
mod small;
mod summaries;
mod torchmetrics;
