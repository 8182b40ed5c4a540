//! Products with a matrix in one of the block formats of GGUF files.
//!
//! | file | holds |
//! |---|---|
//! | `decoded` | the driver: many vectors read decoded rows, a few are multiplied as rows are decoded |
//! | `block_kernel` | rows that are decoded in registers |
//! | `rounded_kernel` | the same with vectors that are rounded to 8 bits |

mod block_kernel;
pub(crate) mod decoded;
mod rounded_kernel;
