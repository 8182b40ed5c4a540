//! The flags. Errors in them are reported before anything is measured.

use std::path::PathBuf;

use clap::{ArgGroup, Parser};

use crate::{Result, case::Case, expression::PREFIX, models, onnx};

/// Times Taper's operations, checks each result, and measures the machine's limits.
#[derive(Parser)]
#[command(name = "taper-bench", bin_name = "cargo xtask bench")]
#[command(group = ArgGroup::new("in_python").args(["vs_torch", "vs_onnxruntime"]))]
pub(crate) struct Args {
    /// Print a JSON line for each case, in place of the table
    #[arg(long)]
    pub(crate) json: bool,
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "cpu")]
    pub(crate) device: String,
    /// Threads of the host's processor [default: as many as TAPER_THREADS says, or all cores]
    #[arg(long, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Only cases whose name contains this; may be repeated. `ops` selects the table of operations, which is
    /// not measured otherwise
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// Seconds for each case; every case is run ten times at least
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS", allow_negative_numbers = true)]
    pub(crate) budget: f64,
    /// Number of turns of each case, alternating with the peer; the turn with the middle median is reported,
    /// for a machine whose speed varies
    #[arg(long, default_value_t = 1, value_name = "TIMES", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) turns: u8,
    /// Run PyTorch's twin of each case right after it, and compare
    #[arg(long)]
    pub(crate) vs_torch: bool,
    /// The same with burn on Vulkan, for a GPU's times; builds scripts/bench_burn, which takes minutes the
    /// first time
    #[arg(long, conflicts_with = "vs_torch")]
    pub(crate) vs_burn: bool,
    /// Run each case again in a process without a special form of the CPU's kernels, and compare: the ratio
    /// is how many times longer it takes there. `TAPER_CPU_FORMS=-?` names the forms
    #[arg(long, value_name = "FORM", conflicts_with_all = ["vs_torch", "vs_burn", "vs_onnxruntime"])]
    pub(crate) without: Option<String>,
    /// Answer each name of a case on standard input with its line: the other side of `--without`
    #[arg(long, hide = true)]
    pub(crate) serve: bool,
    /// A Python that has torch or onnxruntime [default: python3]
    #[arg(long, value_name = "PATH", requires = "in_python")]
    python: Option<PathBuf>,
    /// Run ONNX files in ONNX Runtime too, right after each of Taper's cases, and compare
    #[arg(long, conflicts_with_all = ["vs_torch", "vs_burn"])]
    pub(crate) vs_onnxruntime: bool,
    /// The folder of the packages that contain ONNX files and known models; docs/benchmarks/onnx.md and
    /// models.md name them
    #[arg(long, value_name = "FOLDER")]
    pub(crate) models: Option<PathBuf>,
    /// Write the table into this Markdown file, between its marks, and, if there is a peer, a chart next to
    /// it
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// In place of times, which kernels ten calls of each case run, for which line, how long and at what
    /// rate
    #[arg(long, conflicts_with_all = ["vs_torch", "vs_burn", "report", "json"])]
    pub(crate) profile: bool,
    /// In place of times, the work that a GPU is given by one call of some cases: dispatches, barriers,
    /// bytes. Nothing is run; docs/benchmarks/counts.md explains the columns
    #[arg(long, conflicts_with_all = ["vs_torch", "vs_burn", "report", "json", "profile"])]
    pub(crate) count: bool,
    /// Compare the counts with tools/bench/counts.tsv
    #[arg(long, requires = "count")]
    pub(crate) check: bool,
    /// Write the counts to tools/bench/counts.tsv and docs/benchmarks/counts.md
    #[arg(long, requires = "count", conflicts_with_all = ["check", "filter"])]
    pub(crate) write: bool,
    /// With the counts, a line for each kind of kernel, and one for each line of a program that it runs for
    #[arg(long, requires = "count")]
    pub(crate) kernels: bool,
    /// With the counts, each launch in its order, with its index space, line and program
    #[arg(long, requires = "count")]
    pub(crate) launches: bool,
    /// In place of the counts, how long the host takes for a call of each case: to build the graph, plan it,
    /// and record its dispatches. Give it a release build
    #[arg(long, requires = "count", conflicts_with_all = ["check", "write", "kernels"])]
    pub(crate) host: bool,
    /// For the case `import`: print one result and end
    #[arg(long, hide = true)]
    pub(crate) first_result: bool,
    /// For the cases `onnx_*_load` and `models_load_*`: load this file, answer once, and report the times
    #[arg(long, hide = true, value_name = "FILE")]
    pub(crate) first_answer: Option<String>,
    /// For the cases `first_step` and `hundredth_step`: train and report both steps
    #[arg(long, hide = true)]
    pub(crate) first_steps: bool,
    /// For the `_busy` cases: spin until stdin ends
    #[arg(long, hide = true)]
    pub(crate) spin: bool,
}

impl Args {
    /// The number of threads, checked.
    pub(crate) fn threads(&self) -> Result<usize> {
        let cores = cores();
        match self.threads {
            // No more threads than cores.
            None => Ok(taper::num_threads().min(cores)),
            Some(0) => Err("--threads 0: at least one thread is needed".into()),
            Some(n) if n > cores => {
                Err(format!("--threads {n}: there are only {cores} cores here, give at most {cores}").into())
            }
            Some(n) => Ok(n),
        }
    }

    /// Whether the number of threads was given here, and not left to Taper.
    pub(crate) fn sets_threads(&self) -> bool {
        self.threads.is_some()
    }

    pub(crate) fn check_budget(&self) -> Result<()> {
        if self.budget.is_finite() && self.budget > 0.0 && self.budget <= 86_400.0 {
            return Ok(());
        }
        Err(format!("--budget {}: give a number of seconds above 0, a day at most", self.budget).into())
    }

    pub(crate) fn python(&self) -> PathBuf {
        self.python.clone().unwrap_or_else(|| "python3".into())
    }

    /// The cases that the filters let through. Each filter must let some through.
    pub(crate) fn select(&self, cases: Vec<Case>) -> Result<Vec<Case>> {
        for text in &self.filter {
            if !cases.iter().any(|case| lets_through(text, &case.name)) {
                // Single operations are named to those who ask for them.
                let fits = |case: &&Case| text.starts_with("ops") == case.name.starts_with(PREFIX);
                let names: Vec<&str> = cases.iter().filter(fits).map(|case| case.name.as_str()).collect();
                return Err(
                    format!("--filter {text}: no such case; there are\n  {}", names.join("\n  ")).into()
                );
            }
        }
        let wanted = |case: &Case| match self.filter.is_empty() {
            true => {
                case.name.starts_with(onnx::PREFIX) == self.vs_onnxruntime
                    && ![PREFIX, models::PREFIX].iter().any(|prefix| case.name.starts_with(prefix))
            }
            false => self.filter.iter().any(|text| lets_through(text, &case.name)),
        };
        Ok(cases.into_iter().filter(wanted).collect())
    }
}

/// Whether a filter lets a case through. The hundreds of single operations are asked for by their prefix
/// alone.
fn lets_through(text: &str, name: &str) -> bool {
    name.contains(text) && (!name.starts_with(PREFIX) || text.starts_with(PREFIX.trim_end_matches('_')))
}

/// The cores that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
