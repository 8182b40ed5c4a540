//! Datasets and loaders, on the reference backend. One module per topic in one program, which links once.

mod audio;
mod common;
mod images;
mod loader;
mod pictures;
mod pipeline;
mod torchvision;
