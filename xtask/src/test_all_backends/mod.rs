//! `cargo xtask test-all-backends`: every test of the workspace, and the behaviour suite once per device.
//!
//! The suite is `crates/taper/tests/it`: ordinary tests that take their device from
//! `TAPER_TEST=device=wgpu:0`. The tests of all other crates need no device or open their own; they run once,
//! and so do the doctests. The suite runs again with kernels that a device would not choose by itself
//! (`reruns.rs`). Tests of a GPU run in several processes at the same time, a few tests in each, because a
//! device compiles its kernels one after the other, and that takes most of the time. A test that finds at run
//! time that its device lacks a capability appends a line `name<TAB>reason` to the file that the setting
//! `skip_log` names, and returns; the table then counts it as skipped.

pub(crate) mod build;
#[path = "../../../tools/testing/src/deal.rs"]
#[allow(dead_code, unreachable_pub)] // it is public in taper-testing, whose tests use the rest
mod deal;
mod devices;
mod kernels;
mod libtest;
mod reruns;
mod table;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    io::{BufRead, BufReader, PipeReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use self::{
    build::{Built, Executable, build},
    devices::{list, no_adapter},
    libtest::Tally,
    reruns::{Part, Rerun, SETTINGS},
    table::Table,
};
use crate::{
    Result, check_layers, check_prose,
    workspace::{Workspace, cargo, in_words, output, succeed, sysroot},
};

/// The crate whose tests are the behaviour suite.
const SUITE: &str = "taper";

/// How many tests of a GPU a process takes: few, so that those that take long are dealt out.
const TESTS_OF_A_PROCESS: usize = 4;

/// The most processes that run tests of a GPU at once: each takes memory of it.
const MOST_PROCESSES: usize = 4;

#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Fail if there is no such device (`wgpu`, or one by name: `wgpu:1`)
    #[arg(long, value_name = "DEVICE")]
    require: Vec<String>,
    /// Run only the tests whose names contain this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Which tests and cases run on a GPU, each in one form of its kernels: the next number takes the next
    /// ones [default: the day]
    #[arg(long, conflicts_with = "all")]
    seed: Option<u64>,
    /// Run every test and case in every form of a GPU's kernels: hours
    #[arg(long)]
    all: bool,
    /// Run the behaviour suite alone, on this device alone: `wgpu:0`
    #[arg(long, value_name = "DEVICE", conflicts_with = "tools")]
    suite: Option<String>,
    /// Run the tests of tools and of examples too
    #[arg(long)]
    tools: bool,
    /// Name this many of the slowest tests of each run, with their seconds
    #[arg(long, value_name = "N", default_value_t = 0)]
    slowest: usize,
}

/// The number of the day since 1970.
fn day() -> u64 {
    const SECONDS_PER_DAY: u64 = 24 * 60 * 60;
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / SECONDS_PER_DAY)
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let workspace = Workspace::read()?;
    let runner = Runner::new(&workspace, args)?;
    let mut table = Table::default();

    let built = build(&workspace, args.tools)?;
    record_missing(&built, &workspace, args.tools, &mut table);
    let turn = format!("turn={}", runner.seed);
    let others = if args.all { runner.clone() } else { runner.with(&[(SETTINGS, &turn)]) };
    for test in built.tests.iter().filter(|test| test.package != SUITE && args.suite.is_none()) {
        // On a GPU in software the backend's tests take what users' GPUs run.
        let of_gpu = own_backend(&test.package) == "wgpu" && !args.all;
        let form: &[_] = if of_gpu { &[(SETTINGS, "wgpu.form=tiled")] } else { &[] };
        let tally = others.with(form).test(test, None, Part::Whole);
        table.add(own_backend(&test.package), &test.package, tally);
    }
    if built.whole && args.suite.is_none() {
        table.add("-", "doctests", runner.doctests(&workspace.selection(args.tools)));
    }
    let mut devices = list(&built, |command| runner.prepare(command));
    if let (Ok(devices), Some(name)) = (&mut devices, &args.suite) {
        devices.retain(|device| device.name == *name);
    }
    let software = devices.as_ref().is_ok_and(|devices| devices.iter().any(kernels::counts_on));
    run_suite(&runner, &built, devices, reruns::second_adapter(), &args.require, &mut table);
    if software && !args.all && args.filter.is_none() {
        kernels::check(&mut table);
    }

    report(&table)
}

/// `cargo xtask quick`: what finds most faults within a minute of the build, which is that of all tests.
pub(crate) fn quick() -> Result<()> {
    succeed(cargo().args(["fmt", "--all", "--check"]), "cargo fmt --all formats it")?;
    check_layers::run()?;
    check_prose::run(&check_prose::Args::default())?;
    let workspace = Workspace::read()?;
    let runner = Runner::new(&workspace, &Args::default())?;
    let mut table = Table::default();
    let built = build(&workspace, false)?;
    record_missing(&built, &workspace, false, &mut table);
    for test in built.tests.iter().filter(|test| test.package == SUITE) {
        table.add("cpu", SUITE, runner.test(test, Some("cpu"), Part::Except(reruns::GRADIENTS)));
    }
    report(&table)
}

/// Targets that were not built, for they or what they need did not compile, are failures of their crates.
fn record_missing(built: &Built, workspace: &Workspace, tools: bool, table: &mut Table) {
    if built.whole {
        return;
    }
    let missing = built.missing(workspace, tools);
    for (package, target) in &missing {
        table.add(own_backend(package), package, failure(format!("{target} was not built, see above")));
    }
    if missing.is_empty() {
        table.add("-", "build", failure("the workspace does not compile"));
    }
}

/// The behaviour suite, once per device, and a row for what should be there and is not.
fn run_suite(
    runner: &Runner,
    built: &Built,
    devices: Result<Vec<devices::Device>>,
    second_adapter: Option<reruns::Second>,
    required: &[String],
    table: &mut Table,
) {
    let devices = devices.unwrap_or_else(|message| {
        table.add("-", "devices", failure(message));
        Vec::new()
    });
    let mut suite_size = 0;
    for device in &devices {
        println!("\n==== {}: {}", device.name, device.description);
        for rerun in reruns::of(device, runner.seed, runner.all) {
            let tally = run_form(runner, built, device, &rerun);
            suite_size = suite_size.max(tally.total());
            add_run(device, &rerun, tally, table);
        }
    }
    let mut missing = None;
    // It needs the Vulkan loader, without which there is no first one either.
    if let Some(device) = devices.iter().find(|device| device.is("wgpu")) {
        match second_adapter {
            Some(Ok(variables)) => {
                let rerun = reruns::second(variables, runner.seed, runner.all);
                add_run(device, &rerun, run_form(runner, built, device, &rerun), table);
            }
            Some(Err(why)) => missing = Some(why),
            None => {}
        }
    }
    if let Some(why) = missing {
        let reasons = BTreeMap::from([(why.to_string(), suite_size)]);
        table.add(
            "wgpu:0 (SwiftShader)",
            SUITE,
            Tally { skipped: suite_size, reasons, ..Default::default() },
        );
    }
    let mut wanted = required.to_vec();
    if !devices.is_empty() && !wanted.iter().any(|asked| asked.starts_with("wgpu")) {
        wanted.push("wgpu".to_string());
    }
    for asked in wanted.iter().filter(|asked| !devices.iter().any(|device| device.is(asked))) {
        let why = if asked.starts_with("wgpu") { no_adapter() } else { "no such device" };
        if required.contains(asked) {
            table.add(asked, SUITE, failure(why));
        } else {
            let reasons = BTreeMap::from([(why.to_string(), suite_size)]);
            table.add(asked, SUITE, Tally { skipped: suite_size, reasons, ..Default::default() });
        }
    }
}

/// A run of the suite on a device.
fn run_form(runner: &Runner, built: &Built, device: &devices::Device, rerun: &Rerun) -> Tally {
    let mut settings = rerun.variables.clone();
    let deal = rerun.deal();
    settings.extend(deal.iter().map(|deal| (SETTINGS, deal.as_str())));
    if !rerun.label.is_empty() {
        let dealt = deal.as_ref().map_or(String::new(), |deal| format!(", {deal} (--seed {})", runner.seed));
        println!("\n==== {} with {}{dealt}", device.name, rerun.label);
    }
    let runner = runner.with(&settings);
    let mut tally = Tally::default();
    for test in &built.tests {
        tally.add(runner.test(test, Some(&device.name), rerun.part_of(test)));
    }
    if tally.total() == 0 && runner.filter.is_none() {
        tally.fail("no test ran");
    }
    tally
}

fn add_run(device: &devices::Device, rerun: &Rerun, tally: Tally, table: &mut Table) {
    let name = match rerun.label {
        "" => device.name.clone(),
        label => format!("{} ({label})", device.name),
    };
    table.add(&name, rerun.crates, tally);
}

/// The backend that a crate tests by itself.
fn own_backend(package: &str) -> &'static str {
    match package {
        "taper-backend-cpu" | "taper-backend-cpu-inside" => "cpu",
        "taper-backend-wgpu" => "wgpu",
        _ => "-",
    }
}

fn failure(what: impl Into<String>) -> Tally {
    let mut tally = Tally::default();
    tally.fail(what);
    tally
}

/// Prints the failures, the table and the last line.
fn report(table: &Table) -> Result<()> {
    let failures: Vec<String> = table.failures().collect();
    if !failures.is_empty() {
        println!("\nfailures:\n  {}", failures.join("\n  "));
    }
    let Tally { passed, failed, skipped, .. } = table.total();
    println!("\n{table}\n{passed} passed, {failed} failed, {skipped} skipped");
    match (failed, passed) {
        (0, 0) => Err("no test ran".to_string()),
        (0, _) => Ok(()),
        _ => Err(format!("{failed} failed")),
    }
}

/// Runs test programs in one environment.
#[derive(Clone)]
struct Runner {
    environment: Vec<(&'static str, OsString)>,
    /// The settings of tests, which one variable holds.
    settings: Vec<String>,
    filter: Option<String>,
    skip_log: PathBuf,
    /// The file to which tests append a line for each kernel that they compile for a GPU.
    kernel_log: PathBuf,
    directories: BTreeMap<String, PathBuf>,
    /// Deals tests and cases to the forms of a GPU's kernels.
    seed: u64,
    /// Whether each form takes everything.
    all: bool,
    /// The number of slow tests that are named after a run.
    slowest: usize,
    /// Whether the programs' output is passed on.
    echo: bool,
}

impl Runner {
    fn new(workspace: &Workspace, args: &Args) -> Result<Self> {
        let target = &workspace.target;
        let mut environment = vec![(LIBRARY_PATH, library_path()?)];
        if std::env::var_os("XDG_RUNTIME_DIR").is_none() {
            environment.push(("XDG_RUNTIME_DIR", private_directory(&target.join("xdg-runtime"))?.into()));
        }
        if std::env::var_os("MESA_SHADER_CACHE_DIR").is_none() {
            environment.push(("MESA_SHADER_CACHE_DIR", private_directory(&target.join("mesa"))?.into()));
        }
        // Kernels of tests run once or twice: Mesa's software GPU makes them in two thirds of the time
        // without its optimizer.
        if std::env::var_os("GALLIVM_PERF").is_none() {
            environment.push(("GALLIVM_PERF", "nopt".into()));
        }
        let mut settings: Vec<String> = std::env::var(SETTINGS).into_iter().collect();
        if args.require.iter().any(|asked| asked.starts_with("wgpu")) {
            settings.push("require=wgpu".to_string());
        }
        let directories = workspace.packages.iter().map(|p| (p.name.clone(), p.dir.clone())).collect();
        let skip_log = target.join("taper-skips.log");
        let kernel_log = target.join("taper-kernels.log");
        settings.push(format!("skip_log={},wgpu.pipelines={}", skip_log.display(), kernel_log.display()));
        let (seed, slowest) = (args.seed.unwrap_or_else(day), args.slowest);
        Ok(Self {
            environment,
            settings,
            filter: args.filter.clone(),
            skip_log,
            kernel_log,
            directories,
            seed,
            all: args.all,
            slowest,
            echo: true,
        })
    }

    /// The same with more variables in the tests' environment.
    fn with(&self, variables: &[(&'static str, &str)]) -> Self {
        let mut runner = self.clone();
        for &(name, value) in variables {
            match name {
                SETTINGS => runner.settings.push(value.to_string()),
                _ => runner.environment.push((name, value.into())),
            }
        }
        runner
    }

    fn prepare(&self, command: &mut Command) {
        command.envs(self.environment.iter().map(|(name, value)| (name, value))).stdin(Stdio::null());
        command.env(SETTINGS, self.settings.join(","));
    }

    /// Runs one test program or a part of it, on a device if it is of the suite.
    fn test(&self, test: &Executable, device: Option<&str>, part: Part) -> Tally {
        let on = device.map(|device| format!(" on {device}")).unwrap_or_default();
        let whole = part == Part::Whole;
        if part == Part::Nothing {
            return Tally::default();
        }
        println!(
            "\n     Running {}{} of {}{on}",
            if whole { "" } else { "a part of " },
            test.target,
            test.package
        );
        let spread = in_processes(&test.package, device);
        if whole && !spread {
            let mut command = self.program(test, device);
            command.args(&self.filter);
            return self.run(vec![command], 1, &test.target);
        }
        let names = match self.names(&test.path, part) {
            Ok(names) if names.is_empty() => return Tally::default(),
            Ok(names) => names,
            Err(message) => return failure(message),
        };
        let (of_each, at_once) = match spread {
            true => (TESTS_OF_A_PROCESS, thread::available_parallelism().map_or(1, usize::from)),
            false => (names.len(), 1),
        };
        let command = |names: Vec<&String>| {
            let mut command = self.program(test, device);
            command.arg("--exact").args(names);
            command
        };
        let commands = dealt(&names, of_each).into_iter().map(command).collect();
        self.run(commands, at_once.min(MOST_PROCESSES), &test.target)
    }

    /// A test program as cargo would start it.
    fn program(&self, test: &Executable, device: Option<&str>) -> Command {
        let mut command = Command::new(&test.path);
        self.prepare(&mut command);
        if let Some(device) = device {
            command.env(SETTINGS, [&self.settings[..], &[format!("device={device}")]].concat().join(","));
        }
        if let Some(directory) = self.directories.get(&test.package) {
            command.current_dir(directory).env("CARGO_MANIFEST_DIR", directory);
        }
        if self.slowest > 0 {
            // Only the nightly harness tells times, unless this permits it. Cargo must not see it: it would
            // build what has build scripts that read it once more.
            command.args(["-Z", "unstable-options", "--report-time"]).env("RUSTC_BOOTSTRAP", "1");
        }
        command
    }

    /// The tests of a part of a program that the filter lets through.
    fn names(&self, program: &Path, part: Part) -> Result<Vec<String>> {
        let mut command = Command::new(program);
        self.prepare(&mut command);
        let listed = output(command.args(["--list", "--format", "terse"]))?;
        let names: Vec<&str> = listed.lines().filter_map(|line| line.strip_suffix(": test")).collect();
        let wanted = |name: &&&str| self.filter.as_ref().is_none_or(|filter| name.contains(filter));
        Ok(part.of(&names).iter().filter(wanted).map(|name| name.to_string()).collect())
    }

    fn doctests(&self, selection: &[&str]) -> Tally {
        println!();
        let mut command = cargo();
        self.prepare(&mut command);
        // Its sources are those of the backend.
        let twice = ["--exclude", "taper-backend-cpu-inside"];
        command.arg("test").args(selection).args(twice).args(["--doc", "--no-fail-fast"]);
        if let Some(filter) = &self.filter {
            command.args(["--", filter]);
        }
        self.run(vec![command], 1, "doctests")
    }

    /// Runs commands that are test harnesses, at most `at_once` at a time, and streams their output.
    fn run(&self, commands: Vec<Command>, at_once: usize, name: &str) -> Tally {
        let _ = fs::remove_file(&self.skip_log);
        let _ = fs::remove_file(&self.kernel_log);
        let (parts, began) = (commands.len(), Instant::now());
        let left = Mutex::new(commands.into_iter());
        let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            let mut tally = Tally::default();
            while let Some(command) = next() {
                tally.add(self.run_one(command, name, parts > 1));
            }
            tally
        };
        let mut tally = Tally::default();
        thread::scope(|scope| {
            let workers: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
            for worker in workers {
                tally.add(worker.join().unwrap_or_else(|_| failure(format!("{name}: a thread panicked"))));
            }
        });
        if let Ok(log) = fs::read_to_string(&self.skip_log) {
            tally.skip(&log);
        }
        tally.kernels = kernels::different(&fs::read_to_string(&self.kernel_log).unwrap_or_default());
        tally.seconds = began.elapsed().as_secs_f64();
        if self.slowest > 0 {
            println!("{}", tally.slowest(self.slowest));
        }
        tally
    }

    /// Runs one command. If it is one of several parts, the lines that a harness prints around its tests are
    /// left out.
    fn run_one(&self, mut command: Command, name: &str, part: bool) -> Tally {
        let mut tally = Tally::default();
        let each_line = |line: &[u8]| {
            let text = String::from_utf8_lossy(line);
            tally.read(&text);
            if self.echo && !(part && libtest::is_frame(&text)) {
                let mut terminal = std::io::stdout().lock();
                // A terminal that went away does not change the outcome.
                let _ = terminal.write_all(line).and_then(|()| terminal.flush());
            }
        };
        match stream(&mut command, each_line) {
            Ok(status) if status.success() => {
                // A program of its own making, with no harness.
                if tally.results == 0 && name != "doctests" {
                    tally.passed += 1;
                }
            }
            // The harness has counted what failed.
            Ok(_) if tally.failed > 0 => {}
            Ok(status) => tally.fail(format!("{name}: {status}")),
            Err(message) => tally.fail(message),
        }
        tally
    }
}

/// Tests dealt out to processes, of which each takes at most `of_each`. Neighbours, which are of one topic,
/// go to different ones: where a topic takes long, its tests run at the same time.
fn dealt(names: &[String], of_each: usize) -> Vec<Vec<&String>> {
    let processes = names.len().div_ceil(of_each);
    (0..processes).map(|first| names.iter().skip(first).step_by(processes).collect()).collect()
}

/// Packages whose tests open a GPU by themselves, and compile many kernels.
const ON_GPU: &[&str] = &["taper-backend-wgpu", "taper-linalg", "taper-models", "taper-onnx"];

/// Whether the tests of a program run in several processes at once: those of a GPU.
fn in_processes(package: &str, device: Option<&str>) -> bool {
    device.map_or(ON_GPU.contains(&package), |device| device.starts_with("wgpu"))
}

/// Runs a command with its output and its errors in one pipe, so that their order is kept, and hands on each
/// line as it comes.
fn stream(command: &mut Command, mut each_line: impl FnMut(&[u8])) -> Result<std::process::ExitStatus> {
    let words = in_words(command);
    let failed = |e: std::io::Error| format!("{words} cannot be run: {e}");
    let (reader, writer): (PipeReader, _) = std::io::pipe().map_err(failed)?;
    command.stdout(writer.try_clone().map_err(failed)?).stderr(writer);
    let mut child = command.spawn().map_err(failed)?;
    // The command holds the writing ends; the pipe would never end.
    command.stdout(Stdio::null()).stderr(Stdio::null());

    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).map_err(failed)? > 0 {
        each_line(&line);
        line.clear();
    }
    child.wait().map_err(failed)
}

/// Where the system looks for shared libraries; tests of procedural macros link the compiler's.
const LIBRARY_PATH: &str = if cfg!(windows) {
    "PATH"
} else if cfg!(target_os = "macos") {
    "DYLD_FALLBACK_LIBRARY_PATH"
} else {
    "LD_LIBRARY_PATH"
};

fn library_path() -> Result<OsString> {
    let libraries = sysroot()?.join(if cfg!(windows) { "bin" } else { "lib" });
    let present = std::env::var_os(LIBRARY_PATH).unwrap_or_default();
    let present = std::env::split_paths(&present).filter(|path| !path.as_os_str().is_empty());
    std::env::join_paths(present.chain([libraries]))
        .map_err(|e| format!("{LIBRARY_PATH} cannot be extended: {e}"))
}

/// Makes a directory for the user alone, as the XDG specification asks.
fn private_directory(path: &Path) -> Result<&Path> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path).map_err(|e| format!("{} cannot be made: {e}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner(filter: Option<&str>) -> Runner {
        Runner {
            environment: Vec::new(),
            settings: Vec::new(),
            filter: filter.map(str::to_string),
            skip_log: std::env::temp_dir().join(format!("taper-skips-{}", std::process::id())),
            kernel_log: std::env::temp_dir().join(format!("taper-kernels-{}", std::process::id())),
            directories: BTreeMap::new(),
            seed: 0,
            all: false,
            slowest: 0,
            echo: false,
        }
    }

    fn device(name: &str) -> devices::Device {
        devices::Device { name: name.to_string(), description: String::new() }
    }

    #[test]
    fn a_missing_adapter_is_said_or_is_a_failure() {
        for (required, failed, skipped) in [(vec![], 1, 1), (vec!["wgpu".to_string()], 2, 0)] {
            let mut table = Table::default();
            run_suite(&runner(None), &Built::default(), Ok(vec![device("cpu")]), None, &required, &mut table);
            // On the CPU, "no test ran"; on wgpu, "no adapter".
            assert_eq!((table.total().failed, table.total().skipped), (failed, skipped));
            assert!(table.to_string().contains(no_adapter()));
            assert!(report(&table).is_err());
        }
    }

    #[test]
    fn a_missing_second_adapter_is_said_where_there_is_a_first() {
        for (first, said) in [("wgpu:0", true), ("cpu", false)] {
            let mut table = Table::default();
            let why = Some(Err("no second adapter"));
            run_suite(&runner(None), &Built::default(), Ok(vec![device(first)]), why, &[], &mut table);
            assert_eq!(table.to_string().contains("no second adapter"), said);
        }
    }

    #[test]
    fn devices_that_are_not_known_are_a_failure() {
        let mut table = Table::default();
        run_suite(&runner(None), &Built::default(), Err("no example".to_string()), None, &[], &mut table);
        assert_eq!(table.failures().collect::<Vec<_>>(), ["devices: no example"]);
    }

    #[test]
    fn no_test_at_all_is_a_failure() {
        assert_eq!(report(&Table::default()), Err("no test ran".to_string()));
        let mut table = Table::default();
        table.add("-", "taper-nn", Tally { passed: 1, ..Default::default() });
        assert_eq!(report(&table), Ok(()));
    }

    #[test]
    fn every_test_is_dealt_out_once_and_neighbours_apart() {
        let names: Vec<String> = (0..10).map(|n| n.to_string()).collect();
        assert_eq!(dealt(&names, 4), [vec!["0", "3", "6", "9"], vec!["1", "4", "7"], vec!["2", "5", "8"]]);
        assert_eq!(dealt(&names, 10), [names.iter().collect::<Vec<_>>()]);
        assert!(dealt(&[], 4).is_empty());
    }

    #[test]
    #[cfg(unix)]
    fn programs_are_streamed_counted_and_caught_when_they_crash() {
        let shell = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            runner(None).run(vec![command], 1, "script")
        };
        let tally = shell(
            "echo 'test a ... FAILED' >&2; echo 'test result: FAILED. 2 passed; 1 failed; 0 ignored'; exit 101",
        );
        assert_eq!((tally.passed, tally.failed, tally.failures), (2, 1, vec!["a".to_string()]));
        let tally = shell("echo running 3 tests; kill -SEGV $$");
        assert_eq!((tally.passed, tally.failed), (0, 1));
        assert!(tally.failures[0].contains("signal: 11"), "{:?}", tally.failures);
        // No harness, and no complaint.
        assert_eq!(shell("true").passed, 1);
    }

    #[test]
    #[cfg(unix)]
    fn what_runs_in_several_processes_is_counted_as_one() {
        let script = |text: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", text]);
            command
        };
        let commands = || {
            vec![
                script("echo 'test result: ok. 2 passed; 0 failed; 0 ignored'"),
                script(
                    "echo 'test b ... FAILED'; echo 'test result: FAILED. 1 passed; 1 failed; 0 ignored'; exit 101",
                ),
                script("echo 'test result: ok. 4 passed; 0 failed; 1 ignored'"),
                script("kill -SEGV $$"),
            ]
        };
        for at_once in [1, 2, 9] {
            let mut tally = runner(None).run(commands(), at_once, "script");
            assert_eq!((tally.passed, tally.failed, tally.skipped), (7, 2, 1));
            tally.failures.sort();
            assert!(tally.failures[0] == "b" && tally.failures[1].contains("signal: 11"), "{tally:?}");
        }
        for (package, device, several) in [
            ("taper", Some("wgpu:0"), true),
            ("taper-backend-wgpu", None, true),
            ("taper-models", None, true),
            ("taper", Some("cpu"), false),
            ("taper-nn", None, false),
        ] {
            assert_eq!(in_processes(package, device), several, "{package} on {device:?}");
        }
    }
}
