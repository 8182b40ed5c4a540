//! The smallest network that learns exclusive or, which no linear model can, with a picture of its graph at
//! each step.
//!
//!     cargo run --release --example micrograd
//!
//! Writes `micrograd/step-000.svg` and so on, for a browser. Every number of the network is a separate
//! tensor, so that the picture shows each neuron. There are no layers and no optimizer, only gradients and
//! subtractions.
//!
//! After Karpathy's micrograd.

mod common;

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Parser;
use common::Outcome;
use taper::{inspect::Graph, prelude::*};

/// Trains a network of three neurons and draws its graph at each step.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Training steps
    #[arg(long, default_value_t = 100)]
    steps: usize,
    /// Learning rate
    #[arg(long, default_value_t = 0.5)]
    lr: f64,
    /// Seed of the weights
    #[arg(long, default_value_t = 2)]
    seed: u64,
    /// The folder of the pictures
    #[arg(long, default_value = "micrograd")]
    out: PathBuf,
}

/// tanh(w0 · x0 + w1 · x1 + b).
struct Neuron {
    w0: Tensor,
    w1: Tensor,
    b: Tensor,
}

impl Neuron {
    fn new(rng: &Generator) -> Result<Neuron> {
        // Scalars have the shape (); requires_grad makes them leaves that accumulate gradients.
        let number = || Ok(Tensor::uniform((), -1.0, 1.0, rng)?.requires_grad());
        Ok(Neuron { w0: number()?, w1: number()?, b: number()? })
    }

    fn forward(&self, x0: &Tensor, x1: &Tensor) -> Tensor {
        (&self.w0 * x0 + &self.w1 * x1 + &self.b).tanh()
    }
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let device = taper::device(&options.device)?;
    fs::create_dir_all(&options.out).map_err(|e| format!("{}: {e}", options.out.display()))?;

    // The four inputs at once, and the targets: 1 where exactly one of the two is 1, else -1.
    let x0 = Tensor::new([-1.0, -1.0, 1.0, 1.0], &device)?;
    let x1 = Tensor::new([-1.0, 1.0, -1.0, 1.0], &device)?;
    let wanted = Tensor::new([-1.0, 1.0, 1.0, -1.0], &device)?;

    let rng = Generator::seed(options.seed, &device);
    let neurons = [Neuron::new(&rng)?, Neuron::new(&rng)?, Neuron::new(&rng)?];
    let parameters: Vec<&Tensor> = neurons.iter().flat_map(|n| [&n.w0, &n.w1, &n.b]).collect();
    let [first, second, last] = &neurons;
    // The names of the leaves in the pictures: x0, x1, wanted, and w0, w1, b of each neuron.
    let mut names =
        vec![("x0".to_string(), x0.clone()), ("x1".into(), x1.clone()), ("wanted".into(), wanted.clone())];
    for (neuron, parts) in parameters.chunks(3).enumerate() {
        let named = ["w0", "w1", "b"].iter().zip(parts);
        names.extend(named.map(|(part, &tensor)| (format!("neuron {neuron}, {part}"), tensor.clone())));
    }
    let forward = || last.forward(&first.forward(&x0, &x1), &second.forward(&x0, &x1));

    for step in 0..options.steps {
        // Computing builds the graph ...
        let loss = (forward() - &wanted).powi(2).mean();
        let path = options.out.join(format!("step-{step:03}.svg"));
        fs::write(&path, Graph::of(&[&loss], &names).svg())
            .map_err(|e| format!("{}: {e}", path.display()))?;
        // ... and backward goes through it from the loss to the leaves, and releases it.
        loss.backward()?;
        if step % 10 == 0 {
            writeln!(out, "step {step:>3}: loss {:.4}", loss.item::<f32>()?)?;
        }
        for parameter in &parameters {
            // A step against the gradient; then the gradient is cleared for the next step.
            let Some(gradient) = parameter.grad() else { continue };
            parameter.assign(&(parameter.detach() - gradient * options.lr))?;
            parameter.set_grad(None);
        }
    }

    let answers = no_grad(forward);
    writeln!(out, "answers {answers}")?;
    let loss = (answers - &wanted).powi(2).mean().item::<f32>()?;
    writeln!(out, "graphs in {}", options.out.display())?;
    writeln!(out, "loss {loss:.4} after {} steps on {device}", options.steps)?;
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
