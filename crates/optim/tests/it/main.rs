//! Optimizers and schedules, on the plain reference and the CPU. One module a topic, one program for all:
//! it links once.

mod averages;
mod clip;
mod common;
mod lbfgs;
mod masters;
mod schedules;
mod sgd;
mod updates;
