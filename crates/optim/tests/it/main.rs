//! Optimizers and schedules, on the reference backend and the CPU. One module per topic in one program,
//! which links once.

mod averages;
mod clip;
mod common;
mod compiled;
mod compiled_gradients;
mod eight_bit;
mod lbfgs;
mod masters;
mod schedules;
mod sgd;
mod updates;
