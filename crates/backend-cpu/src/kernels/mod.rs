//! The kernels, in rooms that the GPU's backend has too. The map is beside its engine in `elementwise`. The
//! kernels use all other modules of the crate.
//!
//! | room | contents |
//! |---|---|
//! | `fold` | reductions, rows, positions of extremes |
//! | `scan` | cumulative operations |
//! | `sort` | orders |
//! | `product` | contractions |
//! | `movement` | copies, gathers, scatters |
//! | `native` | operations as data: Taper's own, and those of other crates |
//!
//! Each room uses only those before it in this table.

pub(crate) mod fold;
pub(crate) mod movement;
pub(crate) mod native;
pub(crate) mod product;
pub(crate) mod scan;
pub(crate) mod sort;
