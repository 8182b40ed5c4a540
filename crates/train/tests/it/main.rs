//! Long runs, over the CPU.

mod checkpoints;
mod killed;
mod small;
