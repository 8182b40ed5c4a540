//! Kernels that order elements.
//!
//! | file | contents |
//! |---|---|
//! | `arg_sort` | the order of the elements along an axis, stable or of the first few alone |

pub(crate) mod arg_sort;
