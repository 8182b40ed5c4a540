//! The wgpu backend against the reference backend, and the failures of a GPU. One module for each topic, in
//! a single binary that links once.

mod adapters;
mod agree;
mod along;
mod at_exit;
mod attention;
mod autotune;
mod bad_index;
mod columns;
mod common;
mod counts;
mod custom;
mod dispatch;
mod epilogue;
mod faults;
mod few_rows;
mod floor_division;
mod indexing;
mod layouts;
mod load_at;
mod lost;
mod maps;
mod matmul;
mod matrix_units;
mod memory;
mod natives;
mod new_sizes;
mod packed;
mod pipeline_cache;
mod profile;
mod random;
mod reductions;
mod rows;
mod window;
