//! Kernels that move elements and, but for scatters that combine, compute nothing. The copy between two
//! layouts and the reads of an index, which other rooms use too, are beside this room.
//!
//! | file | contents |
//! |---|---|
//! | `regions` | concatenation and padding |
//! | `gather` | reads by index along an axis |
//! | `scatter` | writes by index along an axis, also sums and extremes |
//! | `scatter_segments` | the scatters that sort their index first |

pub(crate) mod gather;
pub(crate) mod regions;
pub(crate) mod scatter;
pub(crate) mod scatter_segments;
