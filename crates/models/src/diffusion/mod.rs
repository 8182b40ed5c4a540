//! The networks of latent diffusion: the autoencoder between images and latents, and the U-Net that
//! estimates their noise. The text's tokens come from [`ClipTextModel`](crate::vision::ClipTextModel).

mod blocks;
mod schedulers;
mod unet;
mod vae;

pub use schedulers::{Rule, Scheduler};
pub use unet::{DiffusionUNet, DiffusionUNetConfig};
pub use vae::{AutoencoderKl, AutoencoderKlConfig, Latents};
