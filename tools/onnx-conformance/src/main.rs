//! `cargo xtask onnx-conformance`: runs ONNX's own test cases on a device, and compares the outcome with a
//! list of expected failures.
//!
//! The cases are in the Python package `onnx`: `pip download --no-deps onnx==1.17.0`, and unpack the wheel,
//! which is a zip. `cases` finds them, `compare` compares results, `expected` reads the list.

mod cases;
mod compare;
mod expected;

use std::{collections::BTreeMap, panic::AssertUnwindSafe, path::PathBuf, process::ExitCode, time::Instant};

use clap::Parser;

use crate::{
    cases::{Case, find},
    expected::Expected,
};

/// Runs ONNX's test cases, and compares the outcome with tools/onnx-conformance/expected.tsv.
///
/// An unexpected failure fails, and so does an unexpected pass until its line is taken out of the list.
#[derive(Parser)]
#[command(bin_name = "cargo xtask onnx-conformance")]
struct Args {
    /// Where the package onnx was unpacked: the folder with `onnx/`, or `backend/test/data` within it
    #[arg(long)]
    data: PathBuf,
    /// The device: `cpu`, `wgpu`, `wgpu:1` …
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Run the cases alone whose names contain this, and print why they fail
    #[arg(long)]
    only: Option<String>,
    /// Groups: node, simple, pytorch-operator, pytorch-converted, light
    #[arg(long, value_delimiter = ',')]
    groups: Vec<String>,
    /// Print all failures with their reasons, in the form of the list
    #[arg(long)]
    list: bool,
}

/// The numbers of cases of an operator or a group by outcome.
#[derive(Clone, Copy, Default)]
struct Count {
    passed: usize,
    failed: usize,
    expected: usize,
}

impl Count {
    fn add(&mut self, passed: bool, expected: bool) {
        match (passed, expected) {
            (true, _) => self.passed += 1,
            (false, true) => self.expected += 1,
            (false, false) => self.failed += 1,
        }
    }
}

fn main() -> ExitCode {
    taper::end_quietly_on_closed_pipe();
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> std::result::Result<bool, String> {
    let device = taper::device(&args.device).map_err(|error| error.to_string())?;
    let cases = find(&args.data)?;
    let kind = args.device.split([':', '#']).next().unwrap_or("cpu");
    let suite = cases.iter().map(|case| case.version).max().unwrap_or(0);
    let expected = Expected::read(suite, kind)?;
    // A case that panics is a failure; its message is printed as the reason.
    std::panic::set_hook(Box::new(|_| {}));
    let begun = Instant::now();
    let (mut by_group, mut by_operator) = (BTreeMap::new(), BTreeMap::new());
    let (mut unexpected, mut passes, mut seen) = (Vec::new(), Vec::new(), Vec::new());
    for case in &cases {
        if args.only.as_ref().is_some_and(|part| !case.name.contains(part.as_str())) {
            continue;
        }
        if !args.groups.is_empty() && !args.groups.contains(&case.group) {
            continue;
        }
        seen.push(case.name.clone());
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| case.run(&device)));
        let outcome = outcome.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            Err(format!("panic: {}", text.unwrap_or_default()))
        });
        let reason = expected.reason(&case.name);
        let passed = outcome.is_ok();
        count(&mut by_group, &case.group, passed, reason.is_some());
        for operator in operators(case) {
            count(&mut by_operator, &operator, passed, reason.is_some());
        }
        match (outcome, reason) {
            (Ok(()), Some(_)) => passes.push(case.name.clone()),
            (Err(message), None) => unexpected.push((case.name.clone(), message)),
            (Err(message), Some(_)) if args.only.is_some() => println!("{}: {message}", case.name),
            (Ok(()), None) | (Err(_), Some(_)) => {}
        }
    }
    let _ = std::panic::take_hook();
    table("operator", &by_operator, args.only.is_none());
    table("group", &by_group, false);
    println!("{} cases of version {suite} on {device} in {:.1} s", seen.len(), begun.elapsed().as_secs_f64());
    for (name, message) in &unexpected {
        let message = message.replace(['\n', '\t'], " ");
        if args.list {
            println!("{name}\t{suite}\t{kind}\t{message}");
        } else {
            println!("failed: {name}: {message}");
        }
    }
    for name in &passes {
        println!("passes, but is in the list of expected failures: {name}; take its line out");
    }
    let unknown: Vec<&str> =
        expected.names().filter(|name| !cases.iter().any(|case| case.name == *name)).collect();
    for name in &unknown {
        println!("is in the list of expected failures, and is no case: {name}");
    }
    Ok(unexpected.is_empty() && passes.is_empty() && unknown.is_empty() && !seen.is_empty())
}

fn count(table: &mut BTreeMap<String, Count>, key: &str, passed: bool, expected: bool) {
    table.entry(key.to_string()).or_default().add(passed, expected);
}

/// The operators that a case contains.
fn operators(case: &Case) -> Vec<String> {
    case.operators.iter().cloned().collect()
}

/// Prints counts; for operators, those that do not pass completely, and the others in one line.
fn table(title: &str, counts: &BTreeMap<String, Count>, short: bool) {
    println!("{title:<36} {:>7} {:>7} {:>9}", "passed", "failed", "expected");
    let mut whole = (0, 0);
    for (name, count) in counts {
        if short && count.failed + count.expected == 0 {
            whole = (whole.0 + 1, whole.1 + count.passed);
            continue;
        }
        println!("{name:<36} {:>7} {:>7} {:>9}", count.passed, count.failed, count.expected);
    }
    if short {
        println!("{} more, of which all pass {:>24}", whole.0, whole.1);
    }
}
