//! `cargo xtask fuzz`: runs cases, one after the other, and stops at the first that fails.

use std::{io::IsTerminal, process::ExitCode};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use taper_fuzz::{Report, program_case};

/// Random programs on a device, against the plain reference.
#[derive(Parser)]
#[command(name = "taper-fuzz", bin_name = "cargo xtask fuzz")]
struct Args {
    /// How many programs
    #[arg(long, default_value_t = 300)]
    programs: u64,
    /// The seed of the run: the same seed gives the same cases
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Only this case, as a failure names it
    #[arg(long)]
    case: Option<u64>,
    /// Print the programs in place of running them
    #[arg(long)]
    show: bool,
    /// Go on after a failure
    #[arg(long)]
    keep_going: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let device = match taper::device(&args.device) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    taper_fuzz::modes::keep_panics();
    let cases = match args.case {
        Some(case) => case..case + 1,
        None => 0..args.programs,
    };
    let bar = if std::io::stderr().is_terminal() {
        let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}");
        ProgressBar::new(args.programs).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    } else {
        ProgressBar::hidden()
    };
    if args.show {
        for case in cases {
            println!("// case {case}\n{}", taper_fuzz::show(args.seed, case, &device));
        }
        return ExitCode::SUCCESS;
    }
    let mut failed = 0;
    for case in cases.clone() {
        if let Err(Report { what, code }) = program_case(args.seed, case, &device) {
            failed += 1;
            println!("case {case} on {device}: {what}\n\n{code}");
            println!("again: cargo xtask fuzz --device {} --seed {} --case {case}\n", args.device, args.seed);
            if !args.keep_going {
                break;
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if failed > 0 {
        return ExitCode::FAILURE;
    }
    println!("{} programs on {device} with seed {}: nothing wrong", cases.end - cases.start, args.seed);
    ExitCode::SUCCESS
}
