//! Kernels whose results are those of all elements so far.
//!
//! | file | contents |
//! |---|---|
//! | `running` | running sums and extremes along contiguous lines, eight elements at a time |
//! | `cumulative` | cumulative operations along any axis |

pub(crate) mod cumulative;
pub(crate) mod running;
