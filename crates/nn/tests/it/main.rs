//! Layers, losses, modules and their files, on the reference backend. One module per topic in one program,
//! which links once.

mod common;
mod derive;
mod gathers;
mod layers;
mod lora;
mod losses;
mod modules;
mod preference;
mod qat;
mod quantize;
mod safetensors;
