//! Fused elementwise expressions: a program is lowered to steps on block registers ([`lower`]), the engine
//! runs them a block at a time ([`engine`]), each by a formula of the [`table`], of [`compare`] or of
//! [`pair`]. [`map`] is the kernel that is nothing else. Uses `memory`, `simd` and `threads`.

pub(crate) mod compare;
pub(crate) mod engine;
pub(crate) mod indexed;
pub(crate) mod lower;
pub(crate) mod map;
pub(crate) mod pair;
pub(crate) mod table;
