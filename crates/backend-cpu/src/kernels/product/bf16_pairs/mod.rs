//! Products of bf16 in pairs of terms, where the processor has instructions for them.
//!
//! | file | holds |
//! |---|---|
//! | `gemm` | the driver, which packs both operands into strips of tiles |
//! | `kernel` | a block of tiles, by AMX or by AVX-512 |

pub(crate) mod gemm;
pub(crate) mod kernel;
