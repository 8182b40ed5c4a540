//! Operations that move elements: views, padding, concatenation, diagonals, windows.

pub(crate) mod combine;
pub(crate) mod diagonal;
pub(crate) mod movement;
pub(crate) mod rearrange;
pub(crate) mod window;
