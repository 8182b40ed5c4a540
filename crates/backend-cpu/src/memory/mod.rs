//! Buffers and their pool, iteration along strides, strided copies, conversions of narrow types. Uses
//! `simd` and `threads`.

pub(crate) mod blocks;
pub(crate) mod buffer;
pub(crate) mod layouts;
pub(crate) mod lines;
pub(crate) mod narrow;
pub(crate) mod pool;
pub(crate) mod strided;
