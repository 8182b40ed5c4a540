//! Programs of compiled functions.
#![allow(clippy::unwrap_used)]

mod bodies;
mod programs;
