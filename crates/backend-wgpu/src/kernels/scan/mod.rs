//! Kernels whose results each continue from the one before.
//!
//! | file | contents |
//! |---|---|
//! | `cumulative` | cumulative sums, products and extremes along an axis |

pub(crate) mod cumulative;
