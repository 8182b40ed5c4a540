//! Programs of compiled functions. The tests need gcc, clang and rustc; pages are tested
//! where there is Chromium.
#![allow(clippy::unwrap_used, clippy::panic)]

mod bodies;
mod functions;
mod networks;
mod pages;
mod programs;
