//! Kernels that move elements.
//!
//! | file | contents |
//! |---|---|
//! | `copy` | strided copies into regions of the output |
//! | `interleave` | a few tensors that are stacked along a new last axis |
//! | `index` | the index operand of `gather` and `scatter` |
//! | `gather` | elements that an index selects |
//! | `scatter` | elements that are placed where an index says, or combined with those there |

pub(crate) mod copy;
pub(crate) mod gather;
pub(crate) mod index;
pub(crate) mod interleave;
pub(crate) mod scatter;
