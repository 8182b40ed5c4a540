//! The command `taper`, started as a process, on small models of random weights and files of a few tensors.
#![allow(clippy::unwrap_used)]

mod common;
mod convert;
mod inspect;
mod language;
mod networks;
mod program;
#[cfg(feature = "serve")]
mod serve;
mod speech;
mod vision;
