//! Two networks in a page of a browser, on the GPU through WebGPU or in WebAssembly alone: one learns
//! handwritten digits, the other finds speech in sound. `cargo xtask browser` builds and serves the page.
//!
//! A page has one thread, which must not block. So a device is opened by [`taper::device_async`], and reads
//! are awaited; building, training and gradients are the same as elsewhere.

#[cfg(target_arch = "wasm32")]
mod page;
mod voice;

pub use voice::{CHUNK, Listener, RATE};

use taper::{
    data::{Digits, random_split},
    prelude::*,
};

/// The results of an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Epoch {
    /// Its number, from 1 on.
    pub number: usize,
    /// The mean loss of its steps.
    pub loss: f64,
    /// The share of the images held out that are recognised.
    pub accuracy: f64,
}

/// Learns the 1,797 digits of 8x8 pixels that ship with Taper, a fifth of which is for testing, and reports
/// each epoch.
///
/// # Errors
/// The errors of the device.
pub async fn learn(device: &Device, epochs: usize, mut tell: impl AsyncFnMut(Epoch)) -> Result<()> {
    const SEED: u64 = 42;
    let host = taper::cpu();
    let all = Digits::load(&host)?;
    let held_out = all.len() / 5;
    let parts = random_split(&all, &[all.len() - held_out, held_out], SEED)?;
    let train = DataLoader::new(all.select(parts[0].indices())?, 32)?.shuffle(SEED);
    let test = DataLoader::new(all.select(parts[1].indices())?, held_out)?;

    let rng = Generator::seed(SEED, &host);
    let mut model =
        Sequential::new().add(Linear::new(64, 128, &rng)?).add(Relu).add(Linear::new(128, 10, &rng)?);
    model.to(device)?;
    let config = SgdConfig { lr: 0.1, momentum: 0.9, weight_decay: 1e-4, ..Default::default() };
    let mut sgd = Sgd::new(model.parameters(), config);

    for number in 1..=epochs {
        let mut losses = Vec::new();
        for batch in train.iter() {
            let (images, labels) = batch?.to(device)?;
            sgd.zero_grad();
            let loss = cross_entropy(&model.forward(&images)?, &labels)?;
            loss.backward()?;
            sgd.step()?;
            losses.push(loss.detach());
        }
        let loss = Tensor::stack(&losses, 0)?.mean().item_async::<f32>().await?;
        let (mut right, mut seen) = (0.0, 0);
        for batch in test.iter() {
            let (images, labels) = batch?.to(device)?;
            let hits = no_grad(|| model.forward(&images)?.argmax_axis(1, false)?.eq(&labels))?;
            right += hits.to_dtype(DType::F32)?.sum().item_async::<f32>().await?;
            seen += labels.numel();
        }
        tell(Epoch { number, loss: loss.into(), accuracy: f64::from(right) / seen as f64 }).await;
    }
    Ok(())
}
