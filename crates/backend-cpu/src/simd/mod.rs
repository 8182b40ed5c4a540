//! Numbers in registers: instruction sets, real functions, inner loops and the order of elements; and hints
//! for caches. Uses nothing of this crate.

pub(crate) mod bf16;
pub(crate) mod cache;
pub(crate) mod gaussian;
pub(crate) mod isa;
pub(crate) mod loops;
pub(crate) mod math;
pub(crate) mod order;
pub(crate) mod vector;
