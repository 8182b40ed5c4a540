//! Linear algebra.
mod factor;
mod routine;
