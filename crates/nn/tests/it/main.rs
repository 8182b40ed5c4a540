//! Layers, losses, modules and their files, on the plain reference. One module a topic, one program for all:
//! it links once.

mod common;
mod derive;
mod gathers;
mod layers;
mod losses;
mod modules;
mod safetensors;
