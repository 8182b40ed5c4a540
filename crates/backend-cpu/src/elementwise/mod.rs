//! Fused elementwise expressions. A program is lowered to steps on block registers ([`lower`]), and the
//! engine runs them a block at a time ([`engine`]), each with a formula of [`table`] or [`compare`]. [`map`]
//! is the kernel that runs such a program alone. Uses `memory`, `simd` and `threads`.

pub(crate) mod compare;
pub(crate) mod engine;
pub(crate) mod indexed;
pub(crate) mod lower;
pub(crate) mod map;
pub(crate) mod table;
pub(crate) mod values;
