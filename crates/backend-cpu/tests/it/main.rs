//! The CPU backend against the reference backend, and the launches that it refuses. One module for each
//! topic, in a single binary that links once.

mod agree;
mod bad_launch;
mod custom;
mod environment;
mod epilogue;
mod load_at;
mod rounding;
mod strided_products;
