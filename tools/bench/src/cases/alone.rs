//! Cases that are not a call repeated: a process from its start to its first result or training step, and
//! graphs that are dropped.

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::Instant,
};

use taper::{
    Device, Tensor,
    nn::{Linear, Module, Relu, Sequential, cross_entropy},
    optim::{Optimizer, Sgd, SgdConfig},
    prelude::TensorGrad,
};

use super::networks::simplenet;
use crate::{
    Result,
    case::{Bench, Case, Inputs},
    check::{all, host, part},
    line::{Line, Times},
    round,
};

const SIDE: usize = 64;

/// A separate process, from its start to its end; it makes a device, two matrices, and their product.
pub(super) fn import() -> Case {
    Case::alone("import", |bench, name| {
        let program = std::env::current_exe()?;
        let (a, b) = operands(&bench.device)?;
        let (a, b) = (host(&a)?, host(&b)?);
        let want: f64 = (0..SIDE).map(|k| f64::from(a[k]) * f64::from(b[k * SIDE])).sum();
        let mut times = Vec::new();
        let begin = Instant::now();
        // The first one reads the program from the disk, and does not count.
        while times.len() < 11 || (times.len() < 41 && begin.elapsed() < bench.budget) {
            let mut child = Command::new(&program);
            child.args(["--first-result", "--device", bench.device.name()]);
            child.args(["--threads", &bench.threads.to_string()]);
            let start = Instant::now();
            let output = child.output()?;
            times.push(start.elapsed().as_secs_f64() * 1e3);
            let said = String::from_utf8_lossy(&output.stdout);
            let got: f32 = said.trim().parse().map_err(|_| {
                format!("the child said {said:?} and {:?}", String::from_utf8_lossy(&output.stderr))
            })?;
            all("product", &[got], &[want], part(&bench.device, 1e-5))?;
        }
        times.remove(0);
        let mut line = Line::timed("taper", name, &Times::of(times));
        line.extra.insert("version".into(), env!("CARGO_PKG_VERSION").into());
        Ok(line)
    })
}

/// The child process of [`import`]: computes the first element of a matrix product, which it prints.
pub(crate) fn first_result(device: &Device) -> Result<f32> {
    let (a, b) = operands(device)?;
    let product = a.matmul(&b)?.to_vec::<f32>()?;
    Ok(product[0])
}

fn operands(device: &Device) -> Result<(Tensor, Tensor)> {
    let inputs = Inputs::new(device);
    Ok((inputs.rand([SIDE, SIDE])?, inputs.rand([SIDE, SIDE])?))
}

/// A separate process that trains with empty caches of compiled kernels: the time from its start to the end
/// of the first step, and the time of its hundredth step.
pub(super) fn training_starts() -> [Case; 2] {
    [
        Case::alone("first_step", |bench, name| starts(bench, name, |[first, _]| first)),
        Case::alone("hundredth_step", |bench, name| starts(bench, name, |[_, hundredth]| hundredth)),
    ]
}

fn starts(bench: &Bench, name: &str, which: fn([f64; 2]) -> f64) -> Result<Line> {
    let times: Vec<f64> = (0..5).map(|_| Ok(which(start(bench)?))).collect::<Result<_>>()?;
    Ok(Line::timed("taper", name, &Times::of(times)))
}

/// Milliseconds until the first step is done, and those of the hundredth.
fn start(bench: &Bench) -> Result<[f64; 2]> {
    // Mesa keeps compiled shaders, too.
    let cache = tempfile::tempdir()?;
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["--first-steps", "--device", bench.device.name(), "--threads", &bench.threads.to_string()])
        .envs([("TAPER_CACHE_DIR", "off".as_ref()), ("MESA_SHADER_CACHE_DIR", cache.path().as_os_str())])
        .stdout(Stdio::piped());
    let begin = Instant::now();
    let mut child = command.spawn()?;
    let out = child.stdout.take().ok_or("a child process without its pipe")?;
    let mut lines = BufReader::new(out).lines();
    let mut number = || -> Result<f64> {
        let line = lines.next().ok_or("the child process ended early; it said why above")??;
        Ok(line.trim().parse()?)
    };
    let first_loss = number()?;
    let first = begin.elapsed().as_secs_f64() * 1e3;
    let (hundredth, last_loss) = (number()?, number()?);
    if !child.wait()?.success() || last_loss.is_nan() || last_loss >= first_loss {
        return Err(format!("wrong result: the loss went from {first_loss} to {last_loss}").into());
    }
    Ok([first, hundredth])
}

/// The child process of [`training_starts`]: prints the loss of the first step as soon as it is done, then
/// the milliseconds of the hundredth step and its loss.
pub(crate) fn first_steps(device: &Device) -> Result<()> {
    let mut call = simplenet(&Inputs::new(device))?;
    let (mut took, mut loss) = (0.0, f32::NAN);
    for step in 1..=100 {
        let begin = Instant::now();
        let results = call()?;
        device.synchronize()?;
        took = begin.elapsed().as_secs_f64() * 1e3;
        if step == 1 || step == 100 {
            loss = results[0].item::<f32>()?;
        }
        if step == 1 {
            println!("{loss}");
        }
    }
    println!("{took}\n{loss}");
    Ok(())
}

/// Tracked results that are computed and dropped without a backward pass. Afterwards, neither the memory nor
/// the time of a backward pass may be larger than before.
pub(super) fn dropped_graphs() -> Case {
    const DROPPED: usize = 200_000;
    Case::alone("dropped_graphs", |bench, name| {
        let inputs = Inputs::new(&bench.device);
        let (a, b) = (inputs.rand([16])?.requires_grad(), inputs.rand([16])?);
        let drop_all = || -> Result<f64> {
            let start = Instant::now();
            for _ in 0..DROPPED {
                a.add(&b)?.eval()?;
            }
            bench.device.synchronize()?;
            Ok(start.elapsed().as_secs_f64() * 1e3)
        };
        // One of the dropped ones, and the backward, to warm up.
        a.add(&b)?.eval()?;
        backward(&a, &b)?;
        let before = backward(&a, &b)?;
        let allocated = bench.device.memory().allocated;
        let mut times = Vec::new();
        let begin = Instant::now();
        while times.len() < 3 || (times.len() < 10 && begin.elapsed() < bench.budget) {
            times.push(drop_all()?);
        }
        let grown = i128::from(bench.device.memory().allocated) - i128::from(allocated);
        let after = backward(&a, &b)?;
        let (kept, other) = (host(&a.add(&b)?)?, host(&a)?.into_iter().zip(host(&b)?));
        let want: Vec<f64> = other.map(|(a, b)| f64::from(a) + f64::from(b)).collect();
        let times = Times::of(times);
        let mut line = Line::timed("taper", name, &times);
        line.ns_per_op = Some(round(times.median() * 1e6 / DROPPED as f64, 1));
        line.extra.insert("backward_after_over_before".into(), round(after / before, 3).into());
        line.extra.insert("memory_grown_bytes".into(), (grown as i64).into());
        if grown > 0 {
            line.wrong = Some(format!("{DROPPED} dropped results left {grown} bytes behind"));
        }
        all("sum", &kept, &want, 1e-6)?;
        Ok(line)
    })
}

/// The median time of one fixed backward pass, in milliseconds.
fn backward(a: &Tensor, b: &Tensor) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..101 {
        let start = Instant::now();
        a.zero_grad();
        let mut r = a.clone();
        for _ in 0..20 {
            r = r.mul(b)?;
        }
        r.sum().backward()?;
        let gradient = a.grad().ok_or("backward left no gradient")?;
        gradient.eval()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    a.zero_grad();
    Ok(Times::of(times).median())
}

/// The extra time of a training step of a two-layer network with new sizes: ten thousand shapes, each run
/// once and then three more times. The median of the differences is the time of planning, including the
/// backend's work for new kernels.
pub(super) fn new_sizes() -> Case {
    const WIDTHS: usize = 312;
    const BATCHES: usize = 32;
    const AGAIN: usize = 3;
    Case::alone("step_of_new_sizes", |bench, name| {
        let inputs = Inputs::new(&bench.device);
        let mut times = Vec::new();
        let (mut new, mut known) = (0.0, 0.0);
        for width in 2..2 + WIDTHS {
            let mut net = Sequential::new();
            net.push(Linear::new(width, 16, &inputs.rng)?);
            net = net.add(Relu);
            net.push(Linear::new(16, 4, &inputs.rng)?);
            let mut sgd = Sgd::new(net.parameters(), SgdConfig { lr: 0.01, ..Default::default() });
            let data = (1..=BATCHES)
                .map(|batch| Ok((inputs.rand([batch, width])?, inputs.indices(4, batch)?)))
                .collect::<Result<Vec<_>>>()?;
            let mut last = f64::NAN;
            let mut all_sizes = || -> Result<f64> {
                let start = Instant::now();
                for (x, y) in &data {
                    sgd.zero_grad();
                    let loss = cross_entropy(&net.forward(x)?, y)?;
                    loss.backward()?;
                    sgd.step()?;
                    last = loss.item_f64()?;
                }
                bench.device.synchronize()?;
                Ok(start.elapsed().as_secs_f64() * 1e3 / BATCHES as f64)
            };
            let first = all_sizes()?;
            let again = (0..AGAIN).map(|_| all_sizes()).sum::<Result<f64>>()? / AGAIN as f64;
            if !last.is_finite() {
                return Err(format!("wrong result: the loss is {last}").into());
            }
            (new, known) = (new + first, known + again);
            times.push(first - again);
        }
        let mut line = Line::timed("taper", name, &Times::of(times));
        line.extra.insert("new_ms".into(), round(new / WIDTHS as f64, 4).into());
        line.extra.insert("known_ms".into(), round(known / WIDTHS as f64, 4).into());
        Ok(line)
    })
}
