//! Files of weights: what other libraries wrote is read, what is written they read, and what is broken is
//! refused. One module a topic.
#![allow(clippy::unwrap_used)]

mod bitsandbytes;
mod common;
mod formats;
mod gguf;
mod hostile;
mod hub;
mod hub_download;
mod loading;
mod mapped;
mod packages;
mod shards;
mod torch;
mod written;
