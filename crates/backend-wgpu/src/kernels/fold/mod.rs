//! Kernels that combine many elements to one.
//!
//! | file | contents |
//! |---|---|
//! | `reduce` | reductions with an inlined prologue |
//! | `arg_reduce` | the index of an extreme |
//! | `rows` | row kernels, such as softmax: elementwise programs with folds along a row |
//! | `rows_held` | the row kernels whose rows fit registers |
//! | `accumulate` | the loop and the formulas of a fold |
//! | `group` | the invocations of a workgroup that share results |

pub(crate) mod accumulate;
pub(crate) mod arg_reduce;
pub(crate) mod group;
pub(crate) mod reduce;
pub(crate) mod rows;
pub(crate) mod rows_held;
