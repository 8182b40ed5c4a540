//! Instruction sets, vector registers, block formats, real functions, inner loops, sort keys, and prefetch
//! hints. Uses no other module of this crate.

pub(crate) mod bf16;
pub(crate) mod block_formats;
pub(crate) mod bytes;
pub(crate) mod cache;
pub(crate) mod gaussian;
pub(crate) mod integers;
pub(crate) mod isa;
#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
mod lanes;
pub(crate) mod loops;
pub(crate) mod math;
pub(crate) mod order;
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
mod simd128;
pub(crate) mod vector;

// Registers of 16 bytes, which every processor has.
#[cfg(not(all(target_arch = "wasm32", target_feature = "simd128")))]
pub(crate) use lanes::{F32x4, F64x2};
#[cfg(all(target_arch = "wasm32", target_feature = "simd128"))]
pub(crate) use simd128::{F32x4, F64x2};
