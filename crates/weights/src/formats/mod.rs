//! The formats of files: each reads a file as [`Parsed`](crate::parsed::Parsed), and those that are written
//! have their writers beside.

pub(crate) mod gguf;
pub(crate) mod npz;
pub(crate) mod safetensors;
pub(crate) mod torch;
