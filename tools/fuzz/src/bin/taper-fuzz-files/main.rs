//! `cargo xtask fuzz files`: damaged and invented files of weights, of ONNX and of language models. Reading
//! one, and running a small model, must never panic, crash, hang or take memory that the file's size does
//! not bound, and an error must name its place.
//!
//! A process runs the cases and notes the number of each before it begins; its parent reports the case if
//! the process ends by a signal or stands still.

mod allocations;
mod archives;
mod cases;
mod graphs;
mod language;
mod operators;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{Seek, Write},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    sync::Mutex,
    time::{Duration, Instant},
};

use clap::Parser;
use taper_fuzz::rng::Rng;

use crate::cases::{DEVICE_BYTES, Family, Sources, bytes, check, describe};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// Damaged and invented files, which must be read or refused, within bounds.
#[derive(Parser)]
#[command(name = "taper-fuzz-files", bin_name = "cargo xtask fuzz files")]
struct Args {
    /// The seed of the run: the same seed gives the same cases
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How long to go on
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Only this family
    #[arg(long)]
    family: Option<Family>,
    /// Only this case of the family, as a failure names it
    #[arg(long, requires = "family")]
    case: Option<u64>,
    /// Print the case in place of running it, and write its bytes to this file
    #[arg(long, requires = "case")]
    show: Option<PathBuf>,
    /// Print the most frequent reasons why files were refused
    #[arg(long)]
    reasons: bool,
    /// Go on after a failure
    #[arg(long)]
    keep_going: bool,
    /// The file for the number of the current case, in the process that runs the cases
    #[arg(long, hide = true)]
    worker: Option<PathBuf>,
}

/// A process that stays at one case for this long hangs.
const STILL: Duration = Duration::from_secs(60);

/// How many reasons are printed.
const REASONS: usize = 60;

/// The case that runs.
static CURRENT: Mutex<String> = Mutex::new(String::new());

fn main() -> ExitCode {
    taper::end_quietly_on_closed_pipe();
    let args = Args::parse();
    let outcome = match &args.worker {
        Some(file) => work(&args, file),
        None if args.show.is_some() => show(&args),
        None => watch(),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the cases in another process, and reports the one at which it ends by a signal or hangs.
fn watch() -> Result<bool, String> {
    let text = |error: std::io::Error| error.to_string();
    let note = std::env::temp_dir().join(format!("taper-fuzz-files-{}", std::process::id()));
    let program = std::env::current_exe().map_err(text)?;
    let mut worker = Command::new(program)
        .args(std::env::args_os().skip(1))
        .arg("--worker")
        .arg(&note)
        .spawn()
        .map_err(text)?;
    let current = || fs::read_to_string(&note).unwrap_or_default();
    let (mut last, mut since) = (current(), Instant::now());
    let outcome = loop {
        if let Some(status) = worker.try_wait().map_err(text)? {
            if status.code().is_none() {
                println!("the process ended by {status} at {}", current());
            }
            break status.success();
        }
        let now = current();
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() > STILL {
            worker.kill().map_err(text)?;
            println!("no end after {} s: {last}", STILL.as_secs());
            break false;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let _ = fs::remove_file(&note);
    Ok(outcome)
}

fn show(args: &Args) -> Result<bool, String> {
    let (Some(family), Some(case), Some(path)) = (args.family, args.case, &args.show) else {
        return Ok(false);
    };
    let bytes = bytes(family, &mut stream(args.seed, family, case), &Sources::read()?);
    println!("{}", describe(&bytes));
    fs::write(path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(true)
}

/// The choices of a case.
fn stream(seed: u64, family: Family, case: u64) -> Rng {
    Rng::new(seed, case << 4 | family as u64)
}

fn work(args: &Args, note: &Path) -> Result<bool, String> {
    let sources = Sources::read()?;
    let device = taper::cpu();
    device.set_memory_limit(DEVICE_BYTES).map_err(|error| error.to_string())?;
    taper_fuzz::modes::keep_panics(|| CURRENT.lock().map(|c| c.clone()).unwrap_or_default());
    let mut note = File::create(note).map_err(|error| format!("{}: {error}", note.display()))?;
    let families: Vec<Family> = args.family.map_or(Family::ALL.to_vec(), |family| vec![family]);
    let (begin, limit) = (Instant::now(), Duration::from_secs(args.seconds));
    let mut counts: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    let (mut failed, mut reasons) = (0, BTreeMap::<String, u64>::new());
    let cases = args.case.map_or(0..u64::MAX, |case| case..case + 1);
    'all: for case in cases {
        for &family in &families {
            if begin.elapsed() > limit && args.case.is_none() {
                break 'all;
            }
            let name = format!("--seed {} --family {} --case {case}", args.seed, family.name());
            let line = format!("{name:<60}\n");
            // Not an error of the reader if the note cannot be written.
            let _ = note.rewind().and_then(|()| note.write_all(line.as_bytes()));
            if let Ok(mut current) = CURRENT.lock() {
                current.clone_from(&name);
            }
            let bytes = bytes(family, &mut stream(args.seed, family, case), &sources);
            let count = counts.entry(family.name()).or_default();
            count[0] += 1;
            match check(family, bytes, &device) {
                Ok(None) => count[1] += 1,
                Ok(Some(reason)) if args.reasons => *reasons.entry(shortened(&reason)).or_default() += 1,
                Ok(Some(_)) => {}
                Err(what) => {
                    count[2] += 1;
                    failed += 1;
                    println!("{what}\nagain: cargo xtask fuzz files {name}");
                    if !args.keep_going {
                        break 'all;
                    }
                }
            }
        }
    }
    for (family, [tried, accepted, failed]) in counts {
        println!("{family}: {tried} files, {accepted} accepted, {failed} failed");
    }
    let mut reasons: Vec<(u64, String)> =
        reasons.into_iter().map(|(reason, count)| (count, reason)).collect();
    reasons.sort_unstable_by(|a, b| b.cmp(a));
    reasons.iter().take(REASONS).for_each(|(count, reason)| println!("{count:>8} {reason}"));
    Ok(failed == 0)
}

/// A message without its numbers and quoted names, so that equal reasons are equal.
fn shortened(message: &str) -> String {
    let parts = message.split('"').step_by(2);
    let text: String = parts.collect::<Vec<_>>().join("*").chars().filter(|c| !c.is_ascii_digit()).collect();
    text.lines().next().unwrap_or("").chars().take(160).collect()
}
