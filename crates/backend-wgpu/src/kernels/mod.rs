//! The kernels as dispatches, in rooms that the CPU's backend has too, and what the rooms share.
//!
//! | module | contents |
//! |---|---|
//! | `body` | the dispatches of any kernel, by its body |
//! | `map`, `fold`, `scan`, `sort`, `product`, `movement` | the kernels of each kind of body |
//! | `native` | operations as data: Taper's own, and those of other crates |
//! | `window` | kernels that are larger than a binding, in pieces |
//! | `cut` | what `window` asks about a body |
//! | `blocks` | the parts of a buffer that bindings show, and copies between larger buffers |
//! | `copy` | strided copies and fills |
//! | `by_index` | the reads of an index, and reports of bad ones |
//!
//! Each file uses only those below it in this table, and rooms only rooms before them.

pub(crate) mod blocks;
pub(crate) mod body;
pub(crate) mod by_index;
pub(crate) mod copy;
pub(crate) mod cut;
pub(crate) mod fold;
pub(crate) mod map;
pub(crate) mod movement;
pub(crate) mod native;
pub(crate) mod product;
pub(crate) mod scan;
pub(crate) mod sort;
pub(crate) mod window;
