//! `cargo xtask fuzz`: runs cases, one after the other, and stops at the first that fails.

use std::{io::IsTerminal, process::ExitCode, sync::Mutex};

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use taper::Device;
use taper_fuzz::{
    Report, everyday_case, gradient_case, kernels_case, product_case, program_case, threads_case,
};

/// Random programs on a device, against the plain reference; derivatives, products of views, and threads.
#[derive(Parser)]
#[command(name = "taper-fuzz", bin_name = "cargo xtask fuzz")]
struct Args {
    /// Number of programs; there are half as many derivatives, as many products, three times as many everyday
    /// programs, a quarter whose kernels are counted, and one round of threads per twenty programs
    #[arg(long, default_value_t = 300)]
    programs: u64,
    /// The seed of the run: the same seed gives the same cases
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Only this family
    #[arg(long)]
    family: Option<Family>,
    /// Only this case of the family, as a failure names it
    #[arg(long, requires = "family")]
    case: Option<u64>,
    /// Print the programs in place of running them
    #[arg(long)]
    show: bool,
    /// Go on after a failure
    #[arg(long)]
    keep_going: bool,
}

/// The case that runs.
static CURRENT: Mutex<String> = Mutex::new(String::new());

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Family {
    /// Programs of every operation, evaluated in every way
    Programs,
    /// First and second derivatives
    Gradients,
    /// Products of views
    Products,
    /// One to three operations of matrices, columns, rows, numbers and constants at everyday sizes
    Everyday,
    /// The kernels that lazy programs run, against those of eager ones
    Kernels,
    /// Threads that share leaves and graphs
    Threads,
}

impl Family {
    const ALL: [Family; 6] = [
        Family::Everyday,
        Family::Programs,
        Family::Gradients,
        Family::Products,
        Family::Kernels,
        Family::Threads,
    ];

    fn name(self) -> &'static str {
        match self {
            Family::Programs => "programs",
            Family::Gradients => "gradients",
            Family::Products => "products",
            Family::Everyday => "everyday",
            Family::Kernels => "kernels",
            Family::Threads => "threads",
        }
    }

    /// The number of cases of this family in a run of `programs` programs.
    fn cases(self, programs: u64) -> u64 {
        match self {
            Family::Programs | Family::Products => programs,
            Family::Everyday => 3 * programs,
            Family::Gradients => programs.div_ceil(2),
            Family::Kernels => programs.div_ceil(4),
            Family::Threads => programs.div_ceil(20),
        }
    }

    fn run(self, seed: u64, case: u64, device: &Device) -> Result<(), Report> {
        match self {
            Family::Programs => program_case(seed, case, device),
            Family::Gradients => gradient_case(seed, case, device),
            Family::Products => product_case(seed, case, device),
            Family::Everyday => everyday_case(seed, case, device),
            Family::Kernels => kernels_case(seed, case, device),
            Family::Threads => threads_case(seed, case, device),
        }
    }
}

fn main() -> ExitCode {
    taper::end_quietly_on_closed_pipe();
    let args = Args::parse();
    let device = match taper::device(&args.device) {
        Ok(device) => device,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    let families: Vec<Family> = args.family.map_or(Family::ALL.to_vec(), |family| vec![family]);
    if args.show {
        let cases = args.case.map_or(0..args.programs, |case| case..case + 1);
        for case in cases {
            println!("// case {case}\n{}", taper_fuzz::show(args.seed, case, &device));
        }
        return ExitCode::SUCCESS;
    }
    taper_fuzz::modes::keep_panics(|| CURRENT.lock().map(|c| c.clone()).unwrap_or_default());
    println!("fuzzing {device} ({}) with seed {}", device.info().description, args.seed);
    let mut failed = 0;
    for family in families {
        let cases = args.case.map_or(0..family.cases(args.programs), |case| case..case + 1);
        failed += run(family, cases, &args, &device);
        if failed > 0 && !args.keep_going {
            break;
        }
    }
    if failed > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Runs the cases of a family, and says how many failed.
fn run(family: Family, cases: std::ops::Range<u64>, args: &Args, device: &Device) -> u64 {
    let (name, n) = (family.name(), cases.end - cases.start);
    let bar = if std::io::stderr().is_terminal() {
        let style = ProgressStyle::with_template("{msg:10} {bar:40} {pos}/{len}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        ProgressBar::new(n).with_style(style).with_message(name)
    } else {
        ProgressBar::hidden()
    };
    let mut failed = 0;
    for case in cases {
        bar.inc(1);
        if let Ok(mut current) = CURRENT.lock() {
            *current = format!("{name}, case {case} of seed {}", args.seed);
        }
        let Err(Report { what, code }) = family.run(args.seed, case, device) else { continue };
        failed += 1;
        bar.suspend(|| {
            println!("\n{name}, case {case} on {device}: {what}\n\n{code}");
            println!(
                "again: cargo xtask fuzz --device {} --seed {} --family {name} --case {case}",
                args.device, args.seed
            );
        });
        if !args.keep_going {
            break;
        }
    }
    bar.finish_and_clear();
    println!(
        "{name}: {n} cases, {}",
        if failed == 0 { "nothing wrong".into() } else { format!("{failed} FAILED") }
    );
    failed
}
