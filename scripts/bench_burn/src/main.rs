//! burn's side of `cargo xtask bench`: cases with the same names and the same work, on burn's wgpu backend
//! with kernel fusion and autotuning.
//!
//!     cargo xtask bench --device wgpu --vs-burn     # runs each case here right after Taper's
//!     cargo run --release -- matmul                 # alone: the cases with "matmul" in their names
//!
//! Prints a JSON line for each case, in the form of `scripts/bench_torch.py`. Inputs are random f32 numbers
//! that are on the device before the clock starts, and each timed call waits for the device. With `--serve`,
//! it reads names from stdin, one per line.

mod cases;

use std::{
    any::Any,
    io::{BufRead, Write},
    process::{Command, ExitCode, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use burn::tensor::{Device, DeviceKind, Distribution, Int, Tensor};
use serde_json::{Value, json};

/// The exact version in `Cargo.toml`.
const BURN: &str = "0.22.1";
const SHADERS: &str = if cfg!(feature = "vulkan") { "wgpu (SPIR-V)" } else { "wgpu (WGSL)" };

/// A timed call: gives its results, which live until the device is done with them.
type Call = Box<dyn FnMut() -> Box<dyn Any>>;

struct Case {
    name: String,
    make: Box<dyn Fn(&Inputs) -> Call>,
    flop: Option<f64>,
    ops: Option<f64>,
    most: usize,
    check: Option<Check>,
}

/// Looks at a result, where that is known to be wrong on some device.
type Check = Box<dyn Fn(&Inputs) -> Result<(), String>>;

/// Where a case gets its inputs.
struct Inputs {
    device: Device,
}

impl Inputs {
    /// Uniform on [0, 1).
    fn rand<const D: usize>(&self, shape: [usize; D]) -> Tensor<D> {
        Tensor::random(shape, Distribution::Default, &self.device)
    }

    /// As `rand`, and a gradient is wanted.
    fn leaf<const D: usize>(&self, shape: [usize; D]) -> Tensor<D> {
        self.rand(shape).autodiff().require_grad()
    }

    /// Integers below `bound`.
    fn indices(&self, bound: usize, n: usize) -> Tensor<1, Int> {
        // Knuth's multiplicative hash: spread over the whole range, the same each time.
        let spread = |i: usize| ((i as u64 * 2_654_435_761) % bound as u64) as i32;
        let indices: Vec<i32> = (0..n).map(spread).collect();
        Tensor::from_ints(indices.as_slice(), &self.device)
    }
}

struct Args {
    serve: bool,
    first_steps: bool,
    threads: usize,
    budget: f64,
    texts: Vec<String>,
}

impl Args {
    fn parse() -> Result<Args, String> {
        let mut args = Args { serve: false, first_steps: false, threads: 1, budget: 2.0, texts: Vec::new() };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--serve" => args.serve = true,
                "--first-steps" => args.first_steps = true,
                "--threads" => args.threads = value()?.parse().map_err(|e| format!("--threads: {e}"))?,
                "--budget" => args.budget = value()?.parse().map_err(|e| format!("--budget: {e}"))?,
                "--device" => match value()?.as_str() {
                    "gpu" => {}
                    other => return Err(format!("--device {other}: this program times a GPU only")),
                },
                other if other.starts_with("--") => return Err(format!("{other}: no such flag")),
                _ => args.texts.push(word),
            }
        }
        Ok(args)
    }
}

fn main() -> ExitCode {
    match Args::parse().and_then(|args| run(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&json!({ "error": error }));
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<(), String> {
    let inputs = Inputs { device: Device::wgpu(DeviceKind::DefaultDevice) };
    if args.first_steps {
        return first_steps(&inputs);
    }
    inputs.device.seed(0);
    let cases = cases::all();
    if args.serve {
        say(&json!({ "version": BURN, "device": SHADERS }));
        for name in std::io::stdin().lock().lines() {
            let name = name.map_err(|e| e.to_string())?;
            say(&answer(&cases, name.trim(), &inputs, args));
        }
        return Ok(());
    }
    let alone = ["first_step", "hundredth_step"].into_iter().map(String::from);
    for name in alone.chain(cases.iter().map(|case| case.name.clone())) {
        if args.texts.is_empty() || args.texts.iter().any(|text| name.contains(text)) {
            say(&answer(&cases, &name, &inputs, args));
        }
    }
    Ok(())
}

fn say(line: &Value) {
    println!("{line}");
    let _ = std::io::stdout().flush();
}

fn answer(cases: &[Case], name: &str, inputs: &Inputs, args: &Args) -> Value {
    let times = match (name, cases.iter().find(|case| case.name == name)) {
        ("first_step" | "hundredth_step", _) => training_starts(name == "first_step"),
        (_, Some(case)) => timed(case, inputs, args.budget),
        _ => Err("not burn's to measure".into()),
    };
    let mut line = json!({ "peer": "burn", "case": name, "device": SHADERS, "threads": args.threads });
    match times {
        Err(why) => line["absent"] = why.into(),
        Ok(mut times) => {
            times.sort_by(f64::total_cmp);
            let n = times.len();
            let median = (times[(n - 1) / 2] + times[n / 2]) / 2.0;
            line["median_ms"] = median.into();
            line["min_ms"] = times[0].into();
            line["reps"] = n.into();
            let case = cases.iter().find(|case| case.name == name);
            if let Some(flop) = case.and_then(|case| case.flop) {
                line["gflops"] = (flop / median / 1e6).into();
            }
            if let Some(ops) = case.and_then(|case| case.ops) {
                line["ns_per_op"] = (median * 1e6 / ops).into();
            }
        }
    }
    line
}

/// How long calls warm up: a GPU lowers its clock while it is idle.
const WARM_UP: Duration = Duration::from_millis(1500);

/// The times of a case's calls in milliseconds, after three or more to warm up, in which burn chooses among
/// its kernels.
fn timed(case: &Case, inputs: &Inputs, budget: f64) -> Result<Vec<f64>, String> {
    let work = std::panic::AssertUnwindSafe(|| {
        let mut call = (case.make)(inputs);
        let mut last: Option<Box<dyn Any>> = None;
        wait(inputs);
        let mut once = || {
            let start = Instant::now();
            last = None;
            last = Some(call());
            wait(inputs);
            start.elapsed().as_secs_f64() * 1e3
        };
        let (start, mut calls) = (Instant::now(), 0);
        while calls < 3 || start.elapsed() < WARM_UP {
            once();
            calls += 1;
        }
        let (start, budget) = (Instant::now(), Duration::from_secs_f64(budget));
        let mut times = Vec::new();
        while times.len() < 10 || (start.elapsed() < budget && times.len() < case.most) {
            times.push(once());
        }
        drop(once);
        drop((last, call));
        let checked = case.check.as_ref().map_or(Ok(()), |check| check(inputs));
        // Free the memory that the case left, so that it does not affect the next one.
        inputs.device.memory_cleanup();
        checked.map(|()| times)
    });
    std::panic::catch_unwind(work).unwrap_or_else(|_| Err("burn panicked; it said why on stderr".into()))
}

fn wait(inputs: &Inputs) {
    if let Err(error) = inputs.device.sync() {
        panic!("the device failed: {error:?}");
    }
}

/// The times of processes of their own, from their start until the first training step is done, or what their
/// hundredth step took. Mesa's cache of compiled shaders is empty. Each takes a minute on a software device,
/// so both cases share them.
fn training_starts(first: bool) -> Result<Vec<f64>, String> {
    static STARTED: OnceLock<Result<Vec<[f64; 2]>, String>> = OnceLock::new();
    let started = STARTED.get_or_init(|| (0..3).map(training_start).collect());
    started
        .clone()
        .map(|times| times.into_iter().map(|[begin, later]| if first { begin } else { later }).collect())
}

fn training_start(i: usize) -> Result<[f64; 2], String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let cache = std::env::temp_dir().join(format!("bench_burn-{}-{i}", std::process::id()));
    std::fs::create_dir(&cache).map_err(|e| format!("{}: {e}", cache.display()))?;
    let start = Instant::now();
    let child = Command::new(&program)
        .arg("--first-steps")
        .env("MESA_SHADER_CACHE_DIR", &cache)
        .stdout(Stdio::piped())
        .spawn();
    let mut child = child.map_err(|e| e.to_string())?;
    let out = child.stdout.take().ok_or("a child process without its pipe")?;
    let mut lines = std::io::BufReader::new(out).lines();
    let mut line = || lines.next().and_then(Result::ok).ok_or("the child process ended early");
    line()?;
    let until_first = start.elapsed().as_secs_f64() * 1e3;
    let hundredth: f64 = line()?.trim().parse().map_err(|e| format!("the child process: {e}"))?;
    let _ = child.wait();
    let _ = std::fs::remove_dir_all(&cache);
    Ok([until_first, hundredth])
}

/// The child process of [`training_starts`]: prints a line after the first step, and one with the time of
/// the hundredth.
fn first_steps(inputs: &Inputs) -> Result<(), String> {
    let mut step = cases::simplenet(64, inputs);
    let mut last = 0.0;
    for i in 0..100 {
        let start = Instant::now();
        let results = step();
        wait(inputs);
        drop(results);
        last = start.elapsed().as_secs_f64() * 1e3;
        if i == 0 {
            println!("first");
            let _ = std::io::stdout().flush();
        }
    }
    println!("{last}");
    Ok(())
}
