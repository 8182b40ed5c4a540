//! Taper's benchmark: `cargo xtask bench` runs this program.
//!
//! | subject | module |
//! |---|---|
//! | the cases and their checks | `cases`, a file for each kind of work |
//! | the timing | `case` |
//! | expressions of inputs, in Rust and in PyTorch's Python | `expression`; `cases/rows` has them |
//! | the table of operations, a case for each | `operations` |
//! | ONNX files | `onnx` |
//! | known models | `models` |
//! | networks that are trained, and the references of their steps | `networks` (of the examples), `twin` |
//! | the work that a GPU is given, counted | `count` |
//! | the machine's own limits | `machine`, `fma` |
//! | a process that keeps a core busy | `busy` |
//! | PyTorch, ONNX Runtime or burn, for comparison | `peer`, and `scripts/bench_*` |
//! | the output | `line` (JSON), `table`, `report` (Markdown), `chart` (SVG) |

mod args;
mod busy;
mod case;
mod cases;
mod chart;
mod check;
mod count;
mod expression;
mod fma;
mod line;
mod machine;
mod models;
#[path = "../../../examples/basics/networks/mod.rs"]
mod networks;
mod onnx;
mod operations;
mod peer;
mod report;
mod table;
mod twin;

use std::{
    io::Write,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;

use crate::{
    args::Args,
    busy::Busy,
    case::{Bench, Case, Work},
    line::Line,
    machine::Machine,
    peer::Peer,
    report::Report,
};

/// The error is a message for the user of the command.
type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// How long the threads of one library are given to fall asleep before the other's turn.
const SETTLE: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    taper::end_quietly_on_closed_pipe();
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    if args.spin {
        busy::spin();
    }
    let threads = args.threads()?;
    args.check_budget()?;
    if args.sets_threads() {
        taper::set_num_threads(threads)?;
    }
    // The machine's limits are measured on rayon's own threads.
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    if args.count {
        return count::run(args, args.select(cases::all())?);
    }
    let device = taper::device(&args.device)?;
    if args.first_result {
        println!("{}", cases::first_result(&device)?);
        return Ok(());
    }
    if args.first_steps {
        return cases::first_steps(&device);
    }
    if let Some(case) = &args.first_answer {
        let folder = args.models.as_deref().ok_or("--first-answer needs --models")?;
        let answer = match case.starts_with(models::PREFIX) {
            true => models::first_answer(folder, &device)?,
            false => onnx::first_answer(case, folder, &device)?,
        };
        println!("{answer}");
        return Ok(());
    }
    let cases = args.select(cases::all())?;
    if args.profile {
        return cases.iter().try_for_each(|case| case.profile(&device, args.models.as_deref()));
    }
    if args.serve {
        return serve(&cases::all(), &prepared(args, device, threads));
    }
    let report = args.report.as_ref().map(|path| Report::open(path)).transpose()?;
    let mut peer = start_peer(args, &device, threads)?;
    let started = Instant::now();
    let bench = prepared(args, device, threads);
    let layout = table::Table { peer: peer.as_ref().map(|peer| peer.name.clone()) };
    if !args.json {
        print!("{}", layout.head());
    }
    let mut rows: Vec<(Line, Option<Line>)> = Vec::new();
    for case in &cases {
        // Beside both sides, until the next case.
        let _busy = case.beside_busy.then(Busy::start).transpose()?;
        let (mut turns, mut their_turns) = (Vec::new(), Vec::new());
        for _ in 0..args.turns {
            let (ours, theirs) = turn(case, &bench, peer.as_mut())?;
            turns.push(ours);
            their_turns.extend(theirs);
        }
        let (Some(ours), theirs) = (Line::of_turns(turns), Line::of_turns(their_turns)) else { continue };
        if args.json {
            for line in std::iter::once(&ours).chain(&theirs) {
                // A line without times begins with a space: JSON all the same, and passed over by scripts
                // that look for `{`.
                let indent = if line.median_ms.is_none() { " " } else { "" };
                println!("{indent}{}", serde_json::to_string(line)?);
            }
        } else {
            print!("{}", layout.row(&ours, theirs.as_ref()));
        }
        std::io::stdout().flush()?;
        rows.push((ours, theirs));
    }
    if !args.json {
        print!("{}", layout.summary(&rows));
    }
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|(line, _)| Some(format!("{}: {}", line.case, line.wrong.as_ref()?)))
        .collect();
    if !wrong.is_empty() {
        return Err(
            format!("{} of {} cases are wrong\n  {}", wrong.len(), rows.len(), wrong.join("\n  ")).into()
        );
    }
    if let Some(report) = report {
        report.write(&bench, peer.as_ref(), &rows, started.elapsed())?;
    }
    Ok(())
}

/// One turn of a case on either side.
fn turn(case: &Case, bench: &Bench, peer: Option<&mut Peer>) -> Result<(Line, Option<Line>)> {
    if peer.is_some() {
        std::thread::sleep(SETTLE);
    }
    Ok(match (&case.work, peer) {
        (Work::Compared(work), peer)
            if case.absent(&bench.device).is_none() && peer.as_ref().is_none_or(|peer| !peer.by_name) =>
        {
            work.run(bench, case, peer)
        }
        (_, Some(peer)) => {
            let ours = bench.run(case);
            std::thread::sleep(SETTLE);
            (ours, Some(peer.ask(&case.name)?))
        }
        (_, None) => (bench.run(case), None),
    })
}

/// The state that all cases share; the machine's limits are measured first.
fn prepared(args: &Args, device: taper::Device, threads: usize) -> Bench {
    let budget = Duration::from_secs_f64(args.budget);
    let machine = Machine::measure(args.budget);
    Bench { device, threads, budget, machine, models: args.models.clone() }
}

/// Runs the cases that standard input names, as a peer does.
fn serve(cases: &[Case], bench: &Bench) -> Result<()> {
    // The first line has the error of the environment, if there is one.
    let hello = match taper::Tensor::full((), 1.0, &bench.device).and_then(|one| one.to_f64_vec()) {
        Ok(_) => serde_json::json!({ "version": env!("CARGO_PKG_VERSION"), "device": bench.device.name() }),
        Err(error) => serde_json::json!({ "error": error.to_string() }),
    };
    println!("{hello}");
    for name in std::io::stdin().lines() {
        let name = name?;
        let case = cases.iter().find(|case| case.name == name).ok_or_else(|| format!("no case {name}"))?;
        println!("{}", serde_json::to_string(&bench.run(case))?);
    }
    Ok(())
}

/// The library to compare with, if one is asked for.
fn start_peer(args: &Args, device: &taper::Device, threads: usize) -> Result<Option<Peer>> {
    let on_cpu = device.name() == "cpu";
    if args.vs_torch {
        let device = if on_cpu { "cpu" } else { "gpu" };
        return Ok(Some(Peer::torch(&args.python(), threads, device, args.budget)?));
    }
    if args.vs_onnxruntime {
        return Ok(Some(Peer::onnxruntime(&args.python(), threads, args.budget)?));
    }
    if args.vs_burn && on_cpu {
        return Err("--vs-burn compares with burn on Vulkan: give --device wgpu".into());
    }
    if let Some(form) = &args.without {
        return Ok(Some(Peer::without(form, threads, args.budget, args.models.as_deref())?));
    }
    args.vs_burn.then(|| Peer::burn(threads, args.budget)).transpose()
}

/// `x` rounded to `digits` digits after the point.
fn round(x: f64, digits: i32) -> f64 {
    let unit = 10_f64.powi(digits);
    (x * unit).round() / unit
}
