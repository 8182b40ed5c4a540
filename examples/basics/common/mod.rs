//! The code that the examples share: images of digits, checkpoints, how many images a network recognises,
//! claims that are checked, timings, the end of a program. `mod common;` brings it into a program.
#![allow(dead_code)] // no program uses all of it

use std::{
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use clap::ValueEnum;
use taper::{
    data::{Digits, Mnist, random_split},
    optim::{GradScaler, GradScalerConfig},
    prelude::*,
    train::{Checkpoints, Interrupt, LoadedStep},
};

/// A result whose error may come from Taper, from a file, or from a drawing.
pub(crate) type Outcome<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The half type of `--autocast`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Half {
    Bf16,
    F16,
}

/// `f` in a half type, if one is asked for.
pub(crate) fn in_half<R>(half: Option<Half>, f: impl FnOnce() -> Result<R>) -> Result<R> {
    match half {
        Some(Half::Bf16) => autocast(DType::BF16, f),
        Some(Half::F16) => autocast(DType::F16, f),
        None => f(),
    }
}

/// A scaler that scales for f16 alone: bf16 and f32 have the range that gradients need.
pub(crate) fn scaler(half: Option<Half>) -> Result<GradScaler> {
    GradScaler::new(GradScalerConfig { enabled: half == Some(Half::F16), ..Default::default() })
}

/// Images to train with and images to test with, `[N, 1, S, S]` from 0 to 1, with their labels: MNIST's from
/// a folder of IDX files, or else the 8x8 digits that ship with Taper, a fifth of which is held out.
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

/// The share of a loader's images that a model recognises, and its mean loss. The model is set to training
/// afterwards.
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

/// The mean of the losses of an epoch. They are kept as tensors and read once: reading each would wait for
/// the device each time.
pub(crate) fn mean_loss(losses: &[Tensor]) -> Outcome<f64> {
    let mean = Tensor::stack(losses, 0)?.mean().item_f64()?;
    if mean.is_finite() { Ok(mean) } else { Err(format!("the loss is {mean}: try a smaller --lr").into()) }
}

/// Options of a training that can be stopped and gone on with.
#[derive(clap::Args)]
pub(crate) struct Saving {
    /// A folder for checkpoints: the last two are kept, and Ctrl-C saves one more
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// Goes on from the latest checkpoint of the folder, with the other options as they were
    #[arg(long, requires = "checkpoint")]
    resume: bool,
}

impl Saving {
    /// The folder, and the checkpoint to go on from.
    pub(crate) fn start(&self, device: &Device) -> Outcome<(Saver, Option<LoadedStep>)> {
        let Some(folder) = &self.checkpoint else {
            return Ok((Saver { checkpoints: None, interrupt: None }, None));
        };
        let checkpoints = if self.resume { Checkpoints::resume(folder) } else { Checkpoints::create(folder) };
        let mut checkpoints = checkpoints?.keep_last(2);
        let latest = if self.resume { checkpoints.latest(device)? } else { None };
        match &latest {
            Some(latest) => {
                latest.passed_over.iter().for_each(|error| eprintln!("passed over: {error}"));
                writeln!(io::stdout(), "goes on after step {} from {}", latest.step, latest.path.display())?;
            }
            None if self.resume => {
                return Err(format!("{} has no checkpoint to go on from", folder.display()).into());
            }
            None => {}
        }
        Ok((Saver { checkpoints: Some(checkpoints), interrupt: Some(Interrupt::install()?) }, latest))
    }
}

/// Saves a training where `--checkpoint` asks for it.
pub(crate) struct Saver {
    checkpoints: Option<Checkpoints>,
    interrupt: Option<Interrupt>,
}

impl Saver {
    /// After each step: whether to stop, having saved. A checkpoint is made where one is `due`, and on
    /// Ctrl-C.
    pub(crate) fn step(
        &mut self,
        step: u64,
        due: bool,
        checkpoint: impl FnOnce() -> Outcome<Checkpoint>,
    ) -> Outcome<bool> {
        let stop = self.interrupt.as_ref().is_some_and(Interrupt::requested);
        if let Some(checkpoints) = &mut self.checkpoints
            && (due || stop)
        {
            let path = checkpoints.save(step, &checkpoint()?)?;
            if stop {
                writeln!(
                    io::stdout(),
                    "stopped after step {step}, saved in {}; the same command with --resume goes on",
                    path.display()
                )?;
            }
        }
        Ok(stop)
    }
}

/// The end of a program: its error, if there is one, is printed.
pub(crate) fn finish(outcome: Outcome) -> ExitCode {
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    // The reader of the output has seen enough, as in `digits | head`. (`println!` would panic there:
    // examples use `writeln!`.)
    if error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

/// Says what holds, or fails with what does not: what an example claims is checked where it runs.
pub(crate) fn holds(condition: bool, claim: &str) -> Outcome {
    if !condition {
        return Err(format!("this does not hold: {claim}").into());
    }
    writeln!(io::stdout(), "  holds: {claim}")?;
    Ok(())
}

/// The error of what must fail, printed.
pub(crate) fn refused<T>(result: Result<T>) -> Outcome<Error> {
    let Err(error) = result else { return Err("this should have failed, and did not".into()) };
    writeln!(io::stdout(), "  refused: {error}")?;
    Ok(error)
}

/// How long work takes, in seconds.
pub(crate) struct Timing {
    /// The first run: it makes a plan and, on a GPU, compiles kernels. A stopwatch that is not warmed up
    /// measures that.
    pub(crate) first: f64,
    /// The least of the runs after it.
    pub(crate) best: f64,
}

/// Runs `work` once to warm up and then `rounds` times. Each run ends with its result in memory and the
/// device at rest, as nothing is computed before its value is asked for. Gives the last result.
pub(crate) fn timed(
    device: &Device,
    rounds: usize,
    mut work: impl FnMut() -> Result<Tensor>,
) -> Result<(Tensor, Timing)> {
    let mut once = || -> Result<(Tensor, f64)> {
        device.synchronize()?;
        let start = Instant::now();
        let result = work()?;
        result.eval()?;
        device.synchronize()?;
        Ok((result, start.elapsed().as_secs_f64()))
    };
    let (mut result, first) = once()?;
    let mut best = f64::INFINITY;
    for _ in 0..rounds.max(1) {
        let (again, seconds) = once()?;
        (result, best) = (again, best.min(seconds));
    }
    Ok((result, Timing { first, best }))
}

/// The greatest distance between elements of two tensors, as a share of the greatest element of the second.
/// Both may be anywhere.
pub(crate) fn apart(a: &Tensor, b: &Tensor) -> Outcome<f64> {
    let (a, b) = (a.to_f64_vec()?, b.to_f64_vec()?);
    if a.len() != b.len() {
        return Err(format!("{} elements are compared with {}", a.len(), b.len()).into());
    }
    let greatest = b.iter().fold(f64::MIN_POSITIVE, |most, x| most.max(x.abs()));
    let far = a.iter().zip(&b).map(|(a, b)| (a - b).abs());
    // NaN is far from everything.
    Ok(far.fold(0.0, |most: f64, d| if d.is_nan() { f64::INFINITY } else { most.max(d) }) / greatest)
}

/// Seconds as people read them.
pub(crate) fn seconds(s: f64) -> String {
    match s {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.1} µs", s * 1e6),
    }
}

/// √Σ x².
pub(crate) fn norm(x: &Tensor) -> Result<f64> {
    x.powi(2).sum().item_f64().map(f64::sqrt)
}

/// The pseudo-inverse of a matrix by products alone, where the matrix is: X ← X (2 I − A X), from X = Aᵀ /
/// (‖A‖₁ ‖A‖∞). In `steps` steps at most; fewer, where they no longer grow shorter.
pub(crate) fn newton_schulz(a: &Tensor, steps: usize) -> Result<Tensor> {
    // The smaller of the two squares A X and X A.
    let wide = a.dims()[0] < a.dims()[1];
    let a = if wide { a.t()? } else { a.clone() };
    let (columns, rows) = (a.abs().sum_axis(0, false)?.max()?, a.abs().sum_axis(1, false)?.max()?);
    let mut x = a.t()?.div(&columns.mul(&rows)?)?;
    let mut before = f64::INFINITY;
    for _ in 0..steps {
        // X (2 I − A X) = 2 X − (X A) X.
        let next = x.mul_scalar(2.0).sub(&x.matmul(&a)?.matmul(&x)?)?;
        // One number is read in each step: how far it still went.
        let went = norm(&next.sub(&x)?)? / norm(&next)?.max(f64::MIN_POSITIVE);
        // Where steps no longer grow shorter, what is left is rounding.
        if !went.is_finite() || (went < 1e-2 && went >= before) {
            break;
        }
        (x, before) = (next, went);
        if went == 0.0 {
            break;
        }
    }
    if wide { x.t() } else { Ok(x) }
}
