//! Programs of compiled functions. The tests need gcc, clang and rustc; pages are tested where there is
//! Chromium, and a microcontroller where there is QEMU.
#![allow(clippy::unwrap_used, clippy::panic)]

mod blocks;
mod bodies;
mod functions;
mod int8;
mod networks;
mod pages;
mod programs;
mod qemu;
mod tiny;
