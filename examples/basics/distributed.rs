//! A network learns handwritten digits on several processes or machines: each computes a part of every
//! batch, and all have the same model.
//!
//!     cargo build --release --features mpi --example distributed
//!     mpirun -n 4 target/release/examples/distributed
//!     mpirun -n 4 target/release/examples/distributed --measure --width 2048
//!     mpirun -n 4 target/release/examples/distributed --checkpoint training.safetensors
//!
//! With `--checkpoint` it saves after each epoch, and continues from the file if it exists, on any number of
//! processes.
//!
//! Without mpirun it is one process, and with `--threads 4` the ranks are threads; neither needs MPI, so
//! `--features distributed` is enough.

mod common;

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use common::{Outcome, evaluate, holds, mean_loss};
use taper::{
    autograd::TensorGrad,
    data::DistributedSampler,
    distributed::{Communicator, DistributedConfig, DistributedDataParallel, ReduceOp, ShardedOptimizer},
    prelude::*,
};

/// Trains a three-layer network on all processes that mpirun starts.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, wgpu:N; `each`: the GPU with the process's number on its machine; `cpu-each`: a
    /// separate CPU device for each rank
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Passes over the training images
    #[arg(long, default_value_t = 12)]
    epochs: usize,
    /// Batch size: images per step of all processes together
    #[arg(long, default_value_t = 64)]
    batch_size: usize,
    /// Learning rate of Adam
    #[arg(long, default_value_t = 2e-3)]
    lr: f64,
    /// Neurons of the hidden layers
    #[arg(long, default_value_t = 256)]
    width: usize,
    /// Bucket size: MiB of gradients that are sent together
    #[arg(long, default_value_t = 25.0)]
    bucket_mib: f64,
    /// Timeout in seconds of a process that waits for the others
    #[arg(long, default_value_t = 600.0)]
    timeout: f64,
    /// Seed of the split, the weights and the shuffling
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// A folder with MNIST or Fashion-MNIST files (IDX, plain or gzip), in place of the digits that ship with
    /// Taper
    #[arg(long)]
    data: Option<PathBuf>,
    /// Number of threads of one process to use in place of mpirun's processes
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Shard the optimizer's state: each process keeps the state of its part of the parameters (ZeRO, stage
    /// 1)
    #[arg(long)]
    shard: bool,
    /// A checkpoint file: saved after each epoch, and loaded if it exists, also with another number of
    /// processes
    #[arg(long)]
    checkpoint: Option<PathBuf>,
    /// Measure steps and exchanges instead of training
    #[arg(long)]
    measure: bool,
    /// Write a trace of rank 0's second step for ui.perfetto.dev, and print which buckets were reduced while
    /// it computed
    #[arg(long)]
    trace: Option<PathBuf>,
}

#[derive(Debug, Module)]
struct Net {
    fc1: Linear,
    fc2: Linear,
    fc3: Linear,
}

impl Layer for Net {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        let hidden = self.fc1.forward(&images.flatten(1, -1)?)?.relu();
        self.fc3.forward(&self.fc2.forward(&hidden)?.relu())
    }
}

/// The number of timed calls, after two to warm up.
const ROUNDS: u64 = 40;

/// The time of the fastest call in milliseconds, which other programs disturb least. All ranks start each
/// call together.
fn timed(comm: &Communicator, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut least = f64::INFINITY;
    for round in 0..ROUNDS + 2 {
        comm.barrier()?;
        let began = Instant::now();
        call()?;
        if round >= 2 {
            least = least.min(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    Ok(least)
}

fn measure(
    model: &DistributedDataParallel<Net>,
    train: &TensorDataset,
    each: usize,
    out: &mut impl Write,
) -> Outcome {
    let (comm, first) = (model.communicator(), model.communicator().rank() == 0);
    let device = model.fc1.weight.device();
    let loader = DataLoader::new(train.select(&(0..each).collect::<Vec<_>>())?, each)?;
    let (images, labels) = loader.iter().next().ok_or("no images")??.to(&device)?;
    let mut adam = Adam::new(model.parameters(), AdamConfig::default());
    let mut step = |exchanges: bool| -> Result<()> {
        adam.zero_grad();
        let loss = cross_entropy(&model.forward(&images)?, &labels)?;
        if exchanges {
            model.backward(&loss)?;
        } else {
            loss.backward()?;
        }
        adam.step()?;
        device.synchronize()
    };
    let alone = timed(comm, || step(false))?;
    let before = comm.traffic();
    let together = timed(comm, || step(true))?;
    let sent = comm.traffic();
    if first {
        // A barrier before each call.
        let header = 128 * (comm.size() as u64 - 1);
        let bytes = (sent.bytes - before.bytes) / (ROUNDS + 2) - header;
        writeln!(
            out,
            "{} ranks, {} parameters, {each} images each: a step {together:.2} ms, without exchange {alone:.2} ms; each rank sends {bytes} bytes",
            comm.size(),
            model.num_parameters()
        )?;
    }
    for kib in [1, 4, 64, 256, 1024, 4096, 16384] {
        let row = Tensor::ones([kib * 256], &device)?;
        row.eval()?;
        let time = timed(comm, || comm.all_reduce(&row, ReduceOp::Sum).map(drop))?;
        if first {
            writeln!(out, "all_reduce of {kib:>6} KiB: {time:.3} ms")?;
        }
    }
    Ok(())
}

/// Profiles a step: when kernels ran, and when buckets of gradients were sent.
fn trace(
    model: &DistributedDataParallel<Net>,
    train: &TensorDataset,
    each: usize,
    path: &Path,
    out: &mut impl Write,
) -> Outcome {
    let comm = model.communicator();
    let device = model.fc1.weight.device();
    let loader = DataLoader::new(train.select(&(0..each).collect::<Vec<_>>())?, each)?;
    let (images, labels) = loader.iter().next().ok_or("no images")??.to(&device)?;
    let step = || -> Result<()> {
        model.parameters().iter().for_each(Tensor::zero_grad);
        model.backward(&cross_entropy(&model.forward(&images)?, &labels)?)
    };
    step()?;
    comm.barrier()?;
    if comm.rank() != 0 {
        step()?;
        return Ok(());
    }
    let profiled = taper::inspect::profile(step)?;
    std::fs::write(path, profiled.trace())?;
    let kernels = || profiled.runs.iter().filter(|run| run.device == device.name());
    let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
    let ended = kernels().map(|run| run.start + run.time).max().unwrap_or_default();
    writeln!(out, "{} kernels until {:.2} ms", kernels().count(), milliseconds(ended))?;
    for call in profiled.runs.iter().filter(|run| run.device == "rank 0") {
        let (start, end) = (call.start, call.start + call.time);
        let beside =
            kernels().map(|run| (run.start + run.time).min(end).saturating_sub(run.start.max(start)));
        let beside: Duration = beside.sum();
        writeln!(
            out,
            "{} of {} bytes from {:.2} to {:.2} ms, {:.2} ms of it beside kernels",
            call.kernel,
            call.bytes_read,
            milliseconds(start),
            milliseconds(end),
            milliseconds(beside)
        )?;
    }
    Ok(())
}

/// In each process that mpirun started, or in threads of this one.
fn run(options: &Options) -> Outcome {
    if options.threads == 0 {
        return work(options, Communicator::world()?);
    }
    let ranks = Communicator::threads(options.threads)?;
    thread::scope(|scope| {
        // Errors become strings, which can be sent to another thread.
        let run = |comm| work(options, comm).map_err(|error| error.to_string());
        let threads: Vec<_> = ranks.into_iter().map(|comm| scope.spawn(move || run(comm))).collect();
        let ended = threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| "a rank panicked")?.map_err(Into::into));
        ended.collect::<Vec<Outcome>>().into_iter().collect()
    })
}

fn work(options: &Options, comm: Communicator) -> Outcome {
    let mut out = io::stdout();
    let start = Instant::now();
    comm.set_timeout(Duration::from_secs_f64(options.timeout));
    let first = comm.rank() == 0;
    let device = match options.device.as_str() {
        "each" => taper::device(&format!("wgpu:{}", comm.local_rank()))?,
        "cpu-each" => taper::device(&format!("cpu#{}", comm.rank()))?,
        name => taper::device(name)?,
    };
    let each = options.batch_size / comm.size();
    if each == 0 {
        return Err(format!(
            "{} images a step for {} processes: give --batch-size",
            options.batch_size,
            comm.size()
        )
        .into());
    }

    let (train, test) = common::images(options.data.as_deref(), options.seed)?;
    let pixels = train.get(0)?.0.numel();
    // All ranks get rank 0's weights.
    let rng = Generator::seed(options.seed, &taper::cpu());
    let mut net = Net {
        fc1: Linear::new(pixels, options.width, &rng)?,
        fc2: Linear::new(options.width, options.width, &rng)?,
        fc3: Linear::new(options.width, 10, &rng)?,
    };
    net.to(&device)?;
    let config =
        DistributedConfig { bucket_bytes: (options.bucket_mib * 1048576.0) as usize, ..Default::default() };
    let model = DistributedDataParallel::with_config(net, &comm, config)?;
    if options.measure {
        return measure(&model, &train, each, &mut out);
    }
    if let Some(path) = &options.trace {
        return trace(&model, &train, each, path, &mut out);
    }

    // Each process has its own part of the same order, with the same number of images.
    let part = DistributedSampler::new(comm.size(), comm.rank())?.shuffle(options.seed).drop_last(true);
    let train = DataLoader::new(train, each)?.drop_last(true).sampler(part)?;
    let test = DataLoader::new(test, 512)?;
    let config = AdamConfig { lr: options.lr, ..Default::default() };
    // Without sharding, each rank has the whole state.
    let sharers = if options.shard { comm.clone() } else { Communicator::solo() };
    let mut adam = ShardedOptimizer::new(model.parameters(), &sharers, |own| Adam::new(own, config))?;
    let mut done = 0;
    if let Some(path) = options.checkpoint.as_ref().filter(|path| path.exists()) {
        let checkpoint = Checkpoint::load(path, &device)?;
        checkpoint.restore().module("model", model.module()).part("optimizer", &mut adam).finish()?;
        done = checkpoint.get_number("epoch").map_or(0, |epoch| epoch.as_i64() as usize);
        if first {
            writeln!(out, "goes on after epoch {done} on {} ranks", comm.size())?;
        }
    }
    // All ranks have read the file before it is written again.
    comm.barrier()?;
    for epoch in done + 1..=options.epochs {
        train.set_epoch(epoch as u64);
        let mut losses = Vec::with_capacity(train.len());
        for batch in train.iter() {
            let (images, labels) = batch?.to(&device)?;
            adam.zero_grad();
            let loss = cross_entropy(&model.forward(&images)?, &labels)?;
            model.backward(&loss)?;
            adam.step()?;
            losses.push(loss.detach());
        }
        let own = mean_loss(&losses)?;
        let loss = comm.all_reduce(&Tensor::full((), own, &device)?, ReduceOp::Mean)?.item_f64()?;
        if first {
            writeln!(out, "epoch {epoch:>2}/{}: loss {loss:.4}", options.epochs)?;
        }
        if let Some(path) = &options.checkpoint {
            let optimizer = adam.whole_state_dict()?;
            if first {
                let checkpoint =
                    Checkpoint::new().module("model", model.module()).part("optimizer", &optimizer);
                checkpoint.number("epoch", epoch as i64).save(path)?;
            }
        }
    }
    // All ranks have the same weights, bit by bit.
    let mut sums = Vec::new();
    for parameter in model.parameters() {
        let bounds = [ReduceOp::Min, ReduceOp::Max].map(|op| comm.all_reduce(&parameter, op));
        let [least, greatest] = bounds;
        sums.push(least?.equal(&greatest?)?);
    }
    let (accuracy, _) = evaluate(model.module(), &test, &device)?;
    if first {
        holds(sums.into_iter().all(|same| same), "all ranks have the same model")?;
        let (ranks, seconds) = (comm.size(), start.elapsed().as_secs_f64());
        writeln!(out, "test accuracy {accuracy:.4} on {ranks} ranks ({seconds:.1} s)")?;
    }
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
