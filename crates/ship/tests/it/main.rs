//! Programs of compiled functions. The tests need gcc, clang and rustc.
#![allow(clippy::unwrap_used, clippy::panic)]

mod bodies;
mod functions;
mod networks;
mod programs;
