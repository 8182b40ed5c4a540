//! Buffers and the pool that they come from, walks along strides, strided copies, conversions of half types. Uses `simd` and
//! `threads`.

pub(crate) mod buffer;
pub(crate) mod halves;
pub(crate) mod layouts;
pub(crate) mod lines;
pub(crate) mod pool;
pub(crate) mod strided;
