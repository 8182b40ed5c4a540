//! Code that the examples share: images of digits, checkpoints, the accuracy of a network, checks of claims,
//! timings, the exit of a program. `mod common;` brings it into a program.
#![allow(dead_code)] // no program uses all of it

use std::{
    io::{self, Write},
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

/// Runs `f` under autocast, if a half type is given.
pub(crate) fn in_half<R>(half: Option<Half>, f: impl FnOnce() -> Result<R>) -> Result<R> {
    match half {
        Some(Half::Bf16) => autocast(DType::BF16, f),
        Some(Half::F16) => autocast(DType::F16, f),
        None => f(),
    }
}

/// A scaler that is only active for f16: bf16 and f32 have enough range for gradients.
pub(crate) fn scaler(half: Option<Half>) -> Result<GradScaler> {
    GradScaler::new(GradScalerConfig { enabled: half == Some(Half::F16), ..Default::default() })
}

/// Training images and test images, `[N, 1, S, S]` from 0 to 1, with their labels: MNIST's from a folder of
/// IDX files, or else the 8x8 digits that ship with Taper, a fifth of which is for testing.
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

/// A model's accuracy and mean loss over a loader. Afterwards the model is in training mode.
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

/// The mean of the losses of an epoch. They are tensors and read once, because each read waits for the
/// device.
pub(crate) fn mean_loss(losses: &[Tensor]) -> Outcome<f64> {
    let mean = Tensor::stack(losses, 0)?.mean().item_f64()?;
    if mean.is_finite() { Ok(mean) } else { Err(format!("the loss is {mean}: try a smaller --lr").into()) }
}

/// Options of a training that can be stopped and resumed.
#[derive(clap::Args)]
pub(crate) struct Saving {
    /// A folder for checkpoints: the last two are kept, and Ctrl-C saves one more
    #[arg(long, value_name = "DIR")]
    checkpoint: Option<PathBuf>,
    /// Resume from the latest checkpoint of the folder; the other options must be as before
    #[arg(long, requires = "checkpoint")]
    resume: bool,
}

impl Saving {
    /// The folder, and the checkpoint to resume from.
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

/// Saves a training if `--checkpoint` is given.
pub(crate) struct Saver {
    checkpoints: Option<Checkpoints>,
    interrupt: Option<Interrupt>,
}

impl Saver {
    /// Called after each step. Saves a checkpoint if one is `due` or after Ctrl-C, and returns whether to
    /// stop.
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

/// The exit code of a program; its error, if there is one, is printed.
pub(crate) fn finish(outcome: Outcome) -> ExitCode {
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    // The reader of the output closed it, as in `digits | head`. (`println!` would panic there: examples use
    // `writeln!`.)
    if taper::is_closed_pipe(&*error) {
        return ExitCode::SUCCESS;
    }
    eprintln!("error: {error}");
    ExitCode::FAILURE
}

/// Prints a claim that holds, or fails with one that does not: an example checks its claims when it runs.
pub(crate) fn holds(condition: bool, claim: &str) -> Outcome {
    if !condition {
        return Err(format!("this does not hold: {claim}").into());
    }
    writeln!(io::stdout(), "  holds: {claim}")?;
    Ok(())
}

/// Prints the error of a call that must fail.
pub(crate) fn refused<T>(result: Result<T>) -> Outcome<Error> {
    let Err(error) = result else { return Err("this should have failed, and did not".into()) };
    writeln!(io::stdout(), "  refused: {error}")?;
    Ok(error)
}

/// The time of some work, in seconds.
pub(crate) struct Timing {
    /// The first run, which makes a plan and, on a GPU, compiles kernels. Without a warm-up you would
    /// measure this.
    pub(crate) first: f64,
    /// The fastest of the later runs.
    pub(crate) best: f64,
}

/// Runs `work` once to warm up and then `rounds` times. Each run ends with its result in memory and the
/// device idle, because nothing is computed before it is read. Returns the last result.
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

/// The greatest difference between elements of two tensors, relative to the greatest element of the second.
/// They may be on different devices.
pub(crate) fn apart(a: &Tensor, b: &Tensor) -> Outcome<f64> {
    let (a, b) = (a.to_f64_vec()?, b.to_f64_vec()?);
    if a.len() != b.len() {
        return Err(format!("{} elements are compared with {}", a.len(), b.len()).into());
    }
    let greatest = b.iter().fold(f64::MIN_POSITIVE, |most, x| most.max(x.abs()));
    let far = a.iter().zip(&b).map(|(a, b)| (a - b).abs());
    // NaN counts as an infinite difference.
    Ok(far.fold(0.0, |most: f64, d| if d.is_nan() { f64::INFINITY } else { most.max(d) }) / greatest)
}

/// Formats seconds with a suitable unit.
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

/// The pseudo-inverse of a matrix by products alone, on the matrix's device: X ← X (2 I − A X), from X = Aᵀ
/// / (‖A‖₁ ‖A‖∞). It takes at most `steps` steps and stops earlier when the steps no longer get smaller.
pub(crate) fn newton_schulz(a: &Tensor, steps: usize) -> Result<Tensor> {
    // Use the smaller of the two squares A X and X A.
    let wide = a.dims()[0] < a.dims()[1];
    let a = if wide { a.t()? } else { a.clone() };
    let (columns, rows) = (a.abs().sum_axis(0, false)?.max()?, a.abs().sum_axis(1, false)?.max()?);
    let mut x = a.t()?.div(&columns.mul(&rows)?)?;
    let mut before = f64::INFINITY;
    for _ in 0..steps {
        // X (2 I − A X) = 2 X − (X A) X.
        let next = x.mul_scalar(2.0).sub(&x.matmul(&a)?.matmul(&x)?)?;
        // Each step reads one number: the size of the step.
        let went = norm(&next.sub(&x)?)? / norm(&next)?.max(f64::MIN_POSITIVE);
        // If steps no longer get smaller, only rounding errors are left.
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
