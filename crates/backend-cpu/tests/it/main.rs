//! The CPU backend against the plain reference, and what it refuses. One module a topic, one program for all:
//! it links once.

mod agree;
mod bad_launch;
mod custom;
mod environment;
mod epilogue;
mod load_at;
mod rounding;
mod strided_products;
