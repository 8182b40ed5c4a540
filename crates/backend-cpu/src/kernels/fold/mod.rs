//! Kernels that fold elements into one: reductions, and rows that are reduced and then mapped.
//!
//! | file | contents |
//! |---|---|
//! | `accumulator` | accumulators: f64 for floats, i64 for integers |
//! | `reduce` | reductions by rows and by columns |
//! | `few_terms` | reductions of a few strided terms, such as those of pooling |
//! | `row_fold` | the folds of `rows` |
//! | `rows` | several reductions of a row, each of which the next one reads: softmax, layer norm |
//! | `arg_reduce` | positions of extremes |

pub(crate) mod accumulator;
pub(crate) mod arg_reduce;
pub(crate) mod few_terms;
pub(crate) mod reduce;
pub(crate) mod row_fold;
pub(crate) mod rows;
