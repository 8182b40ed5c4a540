//! MLPerf Tiny's four networks learn from data that is at hand or made by formulas, in f32 and with integers
//! of 8 bits, and become programs in C, which are run on the rows that no network learnt from:
//!
//!     cargo run --release -p taper-examples-ship --example ship_tiny
//!     cargo run --release -p taper-examples-ship --example ship_tiny -- --only sounds --epochs 2
//!
//! | network | MLPerf Tiny's data | here |
//! |---|---|---|
//! | pictures: ResNet-8 | CIFAR-10 | digits in colours and noise, 32 × 32 |
//! | persons: MobileNet ¼ | persons in photographs | a digit, or a disc or nothing, 96 × 96 |
//! | words: DS-CNN | spoken words | vowels, tones, sweeps, clicks and noise, as coefficients |
//! | sounds: autoencoder | machines with faults | harmonics of a machine, with a bearing that clicks |

mod networks;
mod pictures;
mod program;
mod random;
mod sounds;

use std::{error::Error, path::PathBuf, time::Instant};

use clap::{Parser, ValueEnum};
use taper::{
    nn::{
        functional::ConvPadding,
        qat::{ObserverKind, QatConfig, prepare_qat},
    },
    prelude::*,
    ship::Target,
    train::metrics::{Auroc, Average},
};

use self::{
    networks::{Autoencoder, Chain, Folding, Residual},
    pictures::Pictures,
    random::Random,
};

/// Trains MLPerf Tiny's networks, and runs them as programs.
#[derive(Parser)]
struct Options {
    /// One of the networks; by default all
    #[arg(long, value_enum)]
    only: Option<Network>,
    /// Passes over the training rows; by default as many as the network needs
    #[arg(long)]
    epochs: Option<usize>,
    /// Passes with rounding to 8 bits; without any, the ranges of values are observed alone
    #[arg(long, default_value_t = 1)]
    rounded: usize,
    /// The rows whose results are interpreted too
    #[arg(long, default_value_t = 4)]
    checked: usize,
    /// The least score of a program: a lower one is an error
    #[arg(long, default_value_t = 0.0)]
    at_least: f64,
    /// The folder of the programs
    #[arg(long, default_value = "tiny")]
    out: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Network {
    Pictures,
    Persons,
    Words,
    Sounds,
}

/// Rows with what they are: a class, or 1 for a fault.
pub(crate) struct Rows {
    pub(crate) inputs: Tensor,
    pub(crate) labels: Vec<i64>,
}

type Made<'a> = Box<dyn Fn(&mut Random) -> Result<Rows> + 'a>;

/// A network's data: new rows for each pass of a training, and those that are held out.
struct Task<'a> {
    name: &'static str,
    epochs: usize,
    training: Made<'a>,
    held_out: Made<'a>,
    /// Whether rows are reconstructed, and have no classes.
    is_reconstructed: bool,
}

const BATCH: usize = 25;
const LEARNING_RATE: f64 = 3e-3;

impl Task<'_> {
    fn loss(&self, found: &Tensor, inputs: &Tensor, labels: &[i64]) -> Result<Tensor> {
        if self.is_reconstructed {
            return mse_loss(found, inputs);
        }
        cross_entropy(found, &Tensor::from_vec(labels.to_vec(), [labels.len()], &taper::cpu())?)
    }

    /// Trains a network with a rate that falls to 0.
    fn train(&self, net: &impl Folding, epochs: usize, rate: f64, random: &mut Random) -> Result<()> {
        net.train();
        let mut adam = Adam::new(net.parameters(), AdamConfig { lr: rate, ..Default::default() });
        let mut schedule = None;
        for epoch in 0..epochs {
            let Rows { inputs, labels } = (self.training)(random)?;
            let steps = labels.len() / BATCH;
            if schedule.is_none() {
                let rates = CosineAnnealingLr::new((epochs * steps) as u64, 0.0)?;
                schedule = Some(LrScheduler::new(rates, &mut adam));
            }
            let mut total = 0.0;
            for k in 0..steps {
                let x = inputs.narrow(0, k * BATCH, BATCH)?;
                adam.zero_grad();
                let loss = self.loss(&net.forward(&x)?, &x, &labels[k * BATCH..][..BATCH])?;
                loss.backward()?;
                adam.step()?;
                if let Some(schedule) = &mut schedule {
                    schedule.step(&mut adam)?;
                }
                total += loss.item::<f32>()? / steps as f32;
            }
            println!("{}: pass {} of {epochs}, loss {total:.4}", self.name, epoch + 1);
        }
        net.eval();
        Ok(())
    }

    /// The share of right classes, or the area under the curve of faults by their errors.
    fn score(&self, found: &Tensor, rows: &Rows) -> Result<f64> {
        if self.is_reconstructed {
            let errors = found.sub(&rows.inputs)?.square().mean_axis(1, false)?;
            let mut area = Auroc::new();
            area.update(&errors, &Tensor::new(rows.labels.clone(), &taper::cpu())?)?;
            return Ok(area.value(Average::Macro).unwrap_or(0.0));
        }
        let classes = found.argmax_axis(1, false)?.to_vec::<i64>()?;
        let right = classes.iter().zip(&rows.labels).filter(|(a, b)| a == b).count();
        Ok(right as f64 / classes.len() as f64)
    }

    /// The results of the network itself.
    fn computed(&self, net: &impl Folding, inputs: &Tensor) -> Result<Tensor> {
        let count = inputs.shape()[0];
        let parts: Result<Vec<Tensor>> = (0..count)
            .step_by(BATCH)
            .map(|start| no_grad(|| net.forward(&inputs.narrow(0, start, BATCH.min(count - start))?)))
            .collect();
        Tensor::concat(&parts?, 0)
    }

    /// Ships a network, and scores what the program and the network itself give for the held-out rows.
    fn shipped(&self, net: &impl Folding, rows: &Rows, kind: &str, options: &Options) -> Answer<String> {
        let network = taper::compile(|x: Tensor| net.forward(&x));
        let _ = no_grad(|| network.call(rows.inputs.narrow(0, 0, 1)?.contiguous()?))?;
        let name = format!("{}_{kind}", self.name);
        let program = taper::ship(&network, Target::C)?.named(&name)?;
        let folder = options.out.join(&name);
        let found = program::results(&program, &name, &folder, &rows.inputs, options.checked)?;
        let own = self.score(&self.computed(net, &rows.inputs)?, rows)?;
        let by_program = self.score(&found, rows)?;
        if by_program < options.at_least {
            return Err(format!("{name}: the program has {by_program:.4}, below {}", options.at_least).into());
        }
        let sizes = program.sizes();
        println!("{name}: {own:.4}, as a program {by_program:.4}; {sizes}");
        Ok(format!("{own:.4} | {by_program:.4} | {} | {}", sizes.weights, sizes.arena))
    }

    /// Trains, quantizes and ships a network; gives its row of a table.
    fn run<M: Folding>(&self, make: fn(&Generator) -> Result<M>, options: &Options) -> Answer<String> {
        let start = Instant::now();
        let mut random = Random(1);
        let mut net = make(&Generator::seed(1, &taper::cpu()))?;
        self.train(&net, options.epochs.unwrap_or(self.epochs), LEARNING_RATE, &mut random)?;
        net.fold()?;
        let rows = (self.held_out)(&mut Random(2))?;
        let float = self.shipped(&net, &rows, "f32", options)?;
        let observer = ObserverKind::MinMax;
        let qat = prepare_qat(&net, &QatConfig { observer, ..Default::default() })?;
        // Ranges are observed before values are rounded to them.
        qat.fake_quantize(false);
        let known = (self.training)(&mut random)?.inputs.narrow(0, 0, 16 * BATCH)?;
        self.computed(&net, &known)?.eval()?;
        qat.observe(false);
        qat.fake_quantize(true);
        self.train(&net, options.rounded, LEARNING_RATE / 10.0, &mut random)?;
        qat.convert(&mut net)?;
        let integers = self.shipped(&net, &rows, "int8", options)?;
        let (count, seconds) = (rows.labels.len(), start.elapsed().as_secs());
        Ok(format!("| {} | {count} | {float} | {integers} | {seconds} s |", self.name))
    }
}

type Answer<T> = std::result::Result<T, Box<dyn Error>>;

fn of_pictures<'a>(name: &'static str, epochs: usize, pictures: &'a Pictures) -> Task<'a> {
    Task {
        name,
        epochs,
        training: Box::new(|random| pictures.training(random)),
        held_out: Box::new(|random| pictures.held_out(random)),
        is_reconstructed: false,
    }
}

fn main() -> Answer<()> {
    let options = Options::parse();
    let wants = |network: Network| options.only.is_none_or(|only| only == network);
    let mut table = Vec::new();
    if wants(Network::Pictures) {
        let task = of_pictures("pictures", 12, &Pictures::of_digits()?).run(Residual::pictures, &options);
        table.push(task?);
    }
    if wants(Network::Persons) {
        let task = of_pictures("persons", 5, &Pictures::with_or_without()?).run(Chain::persons, &options);
        table.push(task?);
    }
    if wants(Network::Words) {
        let task = Task {
            name: "words",
            epochs: 6,
            training: Box::new(|random| sounds::words(1500, random)),
            held_out: Box::new(|random| sounds::words(600, random)),
            is_reconstructed: false,
        };
        table.push(task.run(Chain::words, &options)?);
    }
    if wants(Network::Sounds) {
        let task = Task {
            name: "sounds",
            epochs: 12,
            training: Box::new(|random| sounds::machines(2000, false, random)),
            held_out: Box::new(|random| sounds::machines(1000, true, random)),
            is_reconstructed: true,
        };
        table.push(task.run(Autoencoder::sounds, &options)?);
    }
    println!(
        "| network | held-out rows | f32 | program | weights | arena | int8 | program | weights | arena | time |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    table.iter().for_each(|row| println!("{row}"));
    Ok(())
}
