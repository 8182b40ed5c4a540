//! The kernels as dispatches, one file for each body. `body.rs` chooses the file. `window.rs` cuts kernels
//! that are larger than a binding into pieces, as their files say (`cut.rs`).

pub(crate) mod arg_reduce;
pub(crate) mod arg_sort;
pub(crate) mod blocks;
pub(crate) mod body;
pub(crate) mod by_index;
pub(crate) mod contract;
pub(crate) mod copy;
pub(crate) mod cumulative;
pub(crate) mod custom;
pub(crate) mod cut;
pub(crate) mod epilogue;
pub(crate) mod few_rows;
pub(crate) mod fold;
mod frame;
pub(crate) mod gather;
pub(crate) mod group;
pub(crate) mod map;
pub(crate) mod matrix;
pub(crate) mod merge_sort;
pub(crate) mod native;
pub(crate) mod parts;
pub(crate) mod product;
pub(crate) mod radix_sort;
pub(crate) mod reduce;
pub(crate) mod regions;
pub(crate) mod rows;
pub(crate) mod rows_held;
pub(crate) mod scatter;
pub(crate) mod scatter_segments;
pub(crate) mod select;
pub(crate) mod sort_keys;
pub(crate) mod staging;
pub(crate) mod tile;
pub(crate) mod window;
