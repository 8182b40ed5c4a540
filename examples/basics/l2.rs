//! L2 regularisation in two ways: as the optimizer's `weight_decay`, and as a term of the loss. The
//! gradients are the same.
//!
//!     cargo run --release --example l2 -- --weight-decay 0.01
//!
//! SGD with a weight decay of λ adds λ w to the gradient of each parameter w. That is the gradient of λ/2 ·
//! ‖w‖². Adam scales gradients by their history, so there the two ways differ: its `weight_decay` equals the
//! term of the loss, and AdamW's does not.

mod common;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::Parser;
use common::{Outcome, apart, holds};
use taper::prelude::*;

/// Trains one network with a weight decay and its copy with an explicit loss term.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// λ
    #[arg(long, default_value_t = 0.01)]
    weight_decay: f64,
    /// Training steps
    #[arg(long, default_value_t = 50)]
    steps: usize,
    /// Batch size
    #[arg(long, default_value_t = 64)]
    rows: usize,
    /// Features of a row
    #[arg(long, default_value_t = 20)]
    columns: usize,
    /// Learning rate
    #[arg(long, default_value_t = 0.05)]
    lr: f64,
    /// Seed of the numbers and weights
    #[arg(long, default_value_t = 42)]
    seed: u64,
}

#[derive(Clone, Debug, Module)]
struct Net {
    hidden: Linear,
    last: Linear,
}

impl Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.last.forward(&self.hidden.forward(x)?.tanh())
    }
}

/// λ/2 · Σ ‖w‖² over all parameters.
fn penalty(model: &impl Module, weight_decay: f64) -> Result<Tensor> {
    let squares: Vec<Tensor> = model.parameters().iter().map(|w| w.powi(2).sum()).collect();
    Ok(Tensor::stack(&squares, 0)?.sum().mul_scalar(weight_decay / 2.0))
}

fn norm(model: &impl Module) -> Result<f64> {
    penalty(model, 2.0)?.item_f64().map(f64::sqrt)
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let device = taper::device(&options.device)?;
    let lambda = options.weight_decay;
    let rng = Generator::seed(options.seed, &taper::cpu());
    let x = Tensor::randn((options.rows, options.columns), &rng)?.to(&device)?;
    let y = x.narrow(1, 0, 1)?.sin();
    let mut decayed =
        Net { hidden: Linear::new(options.columns, 32, &rng)?, last: Linear::new(32, 1, &rng)? };
    decayed.to(&device)?;
    let penalised = decayed.deep_copy()?;
    let free = decayed.deep_copy()?;
    let config = SgdConfig { lr: options.lr, ..Default::default() };
    let with_decay = SgdConfig { weight_decay: lambda, ..config };

    let error = |model: &Net| -> Result<Tensor> { Ok(model.forward(&x)?.sub(&y)?.powi(2).mean()) };

    writeln!(out, "one step: λ = {lambda}")?;
    error(&decayed)?.backward()?;
    error(&penalised)?.add(&penalty(&penalised, lambda)?)?.backward()?;
    let (mut bits, mut all) = (0, 0);
    for (plain, explicit) in decayed.parameters().iter().zip(&penalised.parameters()) {
        let (Some(gradient), Some(explicit)) = (plain.grad(), explicit.grad()) else {
            return Err("a parameter has no gradient".into());
        };
        // The gradient that SGD uses: the plain gradient plus weight decay.
        let decayed = gradient.add(&plain.detach().mul_scalar(lambda))?;
        let far = apart(&decayed, &explicit)?;
        if far > 1e-6 {
            return Err(format!("the gradients differ by {far:.1e} of the greatest").into());
        }
        let pairs = decayed.to_vec::<f32>()?.into_iter().zip(explicit.to_vec::<f32>()?);
        for (a, b) in pairs {
            bits += usize::from(a.to_bits() == b.to_bits());
            all += 1;
        }
    }
    writeln!(out, "  {bits} of {all} gradients are equal bit by bit")?;
    holds(true, "g + λ w is the gradient with the term, up to 1e-6 of the greatest element")?;

    writeln!(out, "{} steps", options.steps)?;
    let mut optimizers = [
        Sgd::new(decayed.parameters(), with_decay),
        Sgd::new(penalised.parameters(), config),
        Sgd::new(free.parameters(), config),
    ];
    let models = [&decayed, &penalised, &free];
    for _ in 0..options.steps {
        for (k, (sgd, model)) in optimizers.iter_mut().zip(models).enumerate() {
            sgd.zero_grad();
            let loss = error(model)?;
            let loss = if k == 1 { loss.add(&penalty(model, lambda)?)? } else { loss };
            loss.backward()?;
            sgd.step()?;
        }
    }
    for (a, b) in decayed.parameters().iter().zip(&penalised.parameters()) {
        let far = apart(a, b)?;
        if far > 1e-4 {
            return Err(format!("after training, parameters differ by {far:.1e} of the greatest").into());
        }
    }
    holds(true, "both networks have the same parameters, up to 1e-4 of the greatest element")?;
    let [with, without] = [norm(&decayed)?, norm(&free)?];
    writeln!(out, "  ‖w‖ is {with:.4} with λ = {lambda} and {without:.4} without")?;
    if lambda > 0.0 && options.steps > 0 {
        holds(with < without, "the decay keeps the weights small")?;
    }
    writeln!(out, "loss {:.4} on {device}", error(&decayed)?.item_f64()?)?;
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
