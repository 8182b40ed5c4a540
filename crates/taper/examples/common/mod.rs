//! What the examples share: images of digits, a progress bar, how many images a network recognises, the end of a program.
//! `mod common;` brings it into a program.
#![allow(dead_code)] // no program uses all of it

use std::{
    io::{self, ErrorKind, IsTerminal},
    path::Path,
    process::ExitCode,
};

use indicatif::{ProgressBar, ProgressStyle};
use taper::{
    data::{Digits, Mnist, random_split},
    prelude::*,
};

/// A result whose error may come from Taper, from a file, or from a drawing.
pub(crate) type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Images to train with and images to test with, `[N, 1, S, S]` from 0 to 1, with their labels: MNIST's from a folder of IDX
/// files, or else the 8x8 digits that ship with Taper, a fifth of which is held out.
pub(crate) fn images(folder: Option<&Path>, seed: u64) -> Result<(TensorDataset, TensorDataset)> {
    let host = taper::cpu();
    let (train, test) = match folder {
        Some(folder) => (Mnist::load(folder, true, &host)?, Mnist::load(folder, false, &host)?),
        None => {
            let all = Digits::load(&host)?;
            let held_out = all.len() / 5;
            let parts = random_split(&all, &[all.len() - held_out, held_out], seed)?;
            (all.select(parts[0].indices())?, all.select(parts[1].indices())?)
        }
    };
    let square = |flat: &TensorDataset| {
        let (pixels, labels) = flat.tensors();
        let side = pixels.dims()[1].isqrt();
        TensorDataset::new((pixels.reshape((-1, 1, side, side))?, labels.clone()))
    };
    Ok((square(&train)?, square(&test)?))
}

/// The share of a loader's images that a model recognises, and its mean loss. The model is set to training afterwards.
pub(crate) fn evaluate(
    model: &impl Layer,
    loader: &DataLoader<TensorDataset>,
    device: &Device,
) -> Result<(f64, f64)> {
    model.eval();
    let found = no_grad(|| {
        let (mut right, mut loss, mut seen) = (0.0, 0.0, 0);
        for batch in loader.iter() {
            let (images, labels) = batch?.to(device)?;
            let logits = model.forward(&images)?;
            let hits = logits.argmax_axis(1, false)?.eq(&labels)?.to_dtype(DType::F32)?.sum();
            let n = labels.numel();
            loss += cross_entropy(&logits, &labels)?.item_f64()? * n as f64;
            right += hits.item_f64()?;
            seen += n;
        }
        Ok((right / seen as f64, loss / seen as f64))
    });
    model.train();
    found
}

/// The mean of the losses of an epoch. They are kept as tensors and read once: reading each would wait for the device each time.
pub(crate) fn mean_loss(losses: &[Tensor]) -> Outcome<f64> {
    let mean = Tensor::stack(losses, 0)?.mean().item_f64()?;
    if mean.is_finite() { Ok(mean) } else { Err(format!("the loss is {mean}: try a smaller --lr").into()) }
}

/// A bar of so many steps on a terminal, and nothing elsewhere.
pub(crate) fn progress(steps: usize, title: String) -> ProgressBar {
    let bar = if io::stderr().is_terminal() { ProgressBar::new(steps as u64) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:40}] {pos}/{len}") {
        bar.set_style(style.progress_chars("=> "));
    }
    bar.with_message(title)
}

/// The end of a program: its error, if there is one, is printed.
pub(crate) fn finish(outcome: Outcome) -> ExitCode {
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    // Whoever read the output has seen enough, as in `digits | head`. (`println!` would panic there: examples use `writeln!`.)
    if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {error}");
    ExitCode::FAILURE
}
