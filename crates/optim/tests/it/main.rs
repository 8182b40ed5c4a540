//! Optimizers and schedules, on the plain reference. One module a topic, one program for all:
//! it links once.

mod clip;
mod common;
mod sgd;
