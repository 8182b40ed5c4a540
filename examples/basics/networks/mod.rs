//! Networks that the examples and the benchmark share: `#[path = "networks/mod.rs"] mod networks;` brings
//! them into a program.
//!
//! Their parameters have the names and shapes of the same networks in PyTorch, as in
//! `scripts/bench_torch.py`.
#![allow(dead_code)] // no program uses all of them

pub(crate) mod gpt;
pub(crate) mod mnist;
pub(crate) mod resnet;
pub(crate) mod vision_transformer;
