//! Data sets and loaders, on the plain reference. One module a topic, one program for all:
//! it links once.

mod common;
mod images;
mod loader;
mod pictures;
mod pipeline;
