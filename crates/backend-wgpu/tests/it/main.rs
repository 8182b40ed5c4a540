//! The wgpu backend against the plain reference, and the faults that a GPU can have. One module a topic, one
//! program for all: it links once.

mod adapters;
mod agree;
mod along;
mod autotune;
mod bad_index;
mod common;
mod custom;
mod dispatch;
mod epilogue;
mod faults;
mod floor_division;
mod indexing;
mod layouts;
mod load_at;
mod lost;
mod maps;
mod matmul;
mod memory;
mod new_sizes;
mod packed;
mod pipeline_cache;
mod profile;
mod random;
mod reductions;
mod rows;
mod window;
