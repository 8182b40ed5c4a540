//! The program on the command line: its output, and its messages about bad input.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    process::{Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::Value;

fn bench(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_taper-bench")).args(args).output().unwrap()
}

/// The stderr output of a run that must fail.
fn failure(args: &[&str]) -> String {
    let output = bench(args);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{args:?} should fail; it said {said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{args:?}");
    said
}

/// The lines of a run that must succeed.
fn success(args: &[&str]) -> String {
    let output = bench(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn assert_says(args: &[&str], part: &str) {
    let said = failure(args);
    assert!(said.contains(part), "{args:?} said\n{said}\nwithout {part}");
}

#[test]
fn no_threads() {
    assert_says(&["--threads", "0"], "error: --threads 0: at least one thread is needed");
    assert_says(&["--threads", "-1"], "invalid value '-1' for '--threads <THREADS>'");
    assert_says(&["--threads", "two"], "invalid value 'two' for '--threads <THREADS>'");
}

/// Taper has its own thread pool, which once ignored the flag.
#[cfg(target_os = "linux")]
#[test]
fn one_thread_has_no_helpers() {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_taper-bench"));
    bench.args(["--threads", "1", "--budget", "0.3", "--filter", "matmul_256", "--filter", "softmax"]);
    let mut bench = bench.stdout(Stdio::null()).spawn().unwrap();
    let folder = format!("/proc/{}/task", bench.id());
    let mut helpers = Vec::new();
    while bench.try_wait().unwrap().is_none() {
        let threads = fs::read_dir(&folder).into_iter().flatten().flatten();
        let names = threads.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
        helpers.extend(names.filter(|name| name.starts_with("taper-cpu")));
        sleep(Duration::from_millis(5));
    }
    assert!(bench.wait().unwrap().success());
    assert!(helpers.is_empty(), "{helpers:?}");
}

#[test]
fn more_threads_than_cores() {
    let cores = std::thread::available_parallelism().unwrap().get();
    let asked = (cores + 1).to_string();
    assert_says(
        &["--threads", &asked],
        &format!("error: --threads {asked}: there are only {cores} cores here, give at most {cores}"),
    );
}

#[test]
fn no_budget() {
    for budget in ["0", "-1", "nan", "inf", "1e300"] {
        assert_says(&["--budget", budget], "give a number of seconds above 0");
    }
    assert_says(&["--budget", "long"], "invalid value 'long' for '--budget <SECONDS>'");
}

#[test]
fn an_unknown_device() {
    assert_says(&["--device", "abacus"], "abacus");
    assert_says(&["--device", "abacus"], "there are cpu");
}

#[test]
fn a_filter_that_matches_nothing() {
    let said = failure(&["--filter", "matmul_64", "--filter", "abacus"]);
    assert!(said.contains("error: --filter abacus: no such case; there are"), "{said}");
    for case in ["machine_peak_fma", "matmul_64", "svd_1000", "more_bmm_16x65x77x33"] {
        assert!(said.lines().any(|line| line.trim() == case), "{case} is not in {said}");
    }
}

#[test]
fn a_python_that_is_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let python = dir.path().join("python");
    let python = python.to_str().unwrap();
    assert_says(&["--vs-torch", "--python", python], &format!("error: --python {python}: cannot be run: "));
    assert_says(&["--python", python], "--vs-torch");
}

/// Programs that replace Python; their output is the answer.
#[cfg(unix)]
fn script(dir: &std::path::Path, text: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = dir.join("python");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_string()
}

#[cfg(unix)]
#[test]
fn a_python_without_torch() {
    let dir = tempfile::tempdir().unwrap();
    let python = script(dir.path(), r#"echo "{\"error\": \"No module named 'torch'\"}"; exit 2"#);
    assert_says(
        &["--vs-torch", "--python", &python],
        &format!(
            "error: --python {python}: No module named 'torch'; name a Python that has torch, or `pip install"
        ),
    );
    // The real script, if Python is installed: without site-packages it finds no torch.
    if Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        let python = script(dir.path(), r#"exec python3 -I -S "$@""#);
        assert_says(&["--vs-torch", "--python", &python], "No module named 'torch'; name a Python");
    }
}

#[cfg(unix)]
#[test]
fn a_python_that_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let python = script(dir.path(), "exit 0");
    assert_says(&["--vs-torch", "--python", &python], "it ended at once; name a Python that has torch");
}

#[test]
fn burn_is_for_gpus() {
    assert_says(&["--vs-burn"], "error: --vs-burn compares with burn on Vulkan: give --device wgpu");
    assert_says(&["--vs-burn", "--vs-torch"], "cannot be used with");
}

#[test]
fn a_report_without_marks() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.md");
    fs::write(&path, "# Mine\n").unwrap();
    assert_says(&["--report", path.to_str().unwrap()], "it has no lines <!-- bench:begin -->");
    assert_eq!(fs::read_to_string(path).unwrap(), "# Mine\n");
}

#[test]
fn json_lines() {
    let said = success(&[
        "--json",
        "--threads",
        "1",
        "--budget",
        "0.01",
        "--filter",
        "machine_",
        "--filter",
        "matmul_64",
        "--filter",
        "more_bmm",
        "--filter",
        "chain1000",
    ]);
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = lines.iter().map(|line| line["case"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "machine_peak_fma",
            "machine_copy",
            "matmul_64",
            "chain1000_forward",
            "chain1000_forward_backward",
            "more_bmm_16x65x77x33"
        ]
    );
    for line in &lines {
        assert_eq!(line["peer"], "taper", "{line}");
        assert!(line.get("wrong").is_none(), "{line}");
        assert_eq!((&line["device"], &line["threads"]), (&"cpu".into(), &1.into()), "{line}");
        assert!(line["median_ms"].as_f64().unwrap() >= line["min_ms"].as_f64().unwrap(), "{line}");
        assert!(line["reps"].as_u64().unwrap() >= 10, "{line}");
    }
    let matmul = &lines[2];
    let [gflops, share] = ["gflops", "limit_share"].map(|key| matmul[key].as_f64().unwrap());
    assert!(gflops > 0.0 && share > 0.0, "{matmul}");
    assert!(lines[3]["ns_per_op"].as_f64().unwrap() > 0.0);
}

/// Each operation at full size; the page lists those that are not measured.
#[test]
fn operations_of_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report.md");
    let args =
        ["--json", "--budget", "0.01", "--filter", "ops_abs", "--filter", "ops_index_copy", "--report"];
    let said = success(&[&args[..], &[report.to_str().unwrap()]].concat());
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<[&str; 3]> =
        lines.iter().map(|line| ["case", "torch", "shapes"].map(|key| line[key].as_str().unwrap())).collect();
    assert_eq!(
        told,
        [
            ["ops_abs", "torch.abs(x)", "10000000"],
            ["ops_index_copy", "torch.index_copy(x, 1, y, z)", "4096 x 1000, 500, 4096 x 500"]
        ]
    );
    for line in &lines {
        assert!(line.get("wrong").is_none() && line["median_ms"].as_f64().unwrap() > 0.0, "{line}");
    }
    let text = fs::read_to_string(&report).unwrap();
    for part in ["| `abs` | `torch.abs(x)` | 10000000 |", "- a view: nothing is computed: `contiguous`"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(!report.with_extension("svg").exists());
    // Others' filters do not meet them.
    assert!(failure(&["--filter", "leaky_relu"]).contains("--filter leaky_relu: no such case; there are"));
    assert!(failure(&["--filter", "ops_leaky_abacus"]).contains("ops_leaky_relu"));
}

#[test]
fn a_process_to_its_first_result() {
    let line: Value =
        serde_json::from_str(&success(&["--json", "--budget", "0.01", "--filter", "import"])).unwrap();
    assert!(line.get("wrong").is_none() && line["median_ms"].as_f64().unwrap() > 0.0, "{line}");
}

/// Waits until something holds, which must not take longer than this machine needs when it has much else to
/// do.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < Duration::from_secs(60), "{what}");
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_busy_process_ends_with_its_input() {
    let mut busy = Command::new(env!("CARGO_BIN_EXE_taper-bench"));
    let mut busy = busy.arg("--spin").stdin(Stdio::piped()).spawn().unwrap();
    sleep(Duration::from_millis(100));
    assert!(busy.try_wait().unwrap().is_none(), "it ended before its input did");
    drop(busy.stdin.take());
    eventually("it spins on without its parent", || busy.try_wait().unwrap().is_some());
    assert!(busy.wait().unwrap().success());
}

#[test]
fn cases_beside_a_busy_process_are_checked_as_others() {
    let said = success(&["--json", "--budget", "0.01", "--filter", "_busy"]);
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = lines.iter().map(|line| line["case"].as_str().unwrap()).collect();
    assert_eq!(names, ["matmul_1024_busy", "softmax_4096x1000_busy", "simplenet_step_64_busy"]);
    for line in &lines {
        assert!(line.get("wrong").is_none() && line["median_ms"].as_f64().unwrap() > 0.0, "{line}");
    }
}

/// Its parent has no time to end it, and it ends all the same.
#[cfg(target_os = "linux")]
#[test]
fn a_busy_process_does_not_outlive_a_killed_benchmark() {
    let mut bench = Command::new(env!("CARGO_BIN_EXE_taper-bench"));
    bench.args(["--budget", "600", "--filter", "matmul_1024_busy"]);
    let mut bench = bench.stdout(Stdio::null()).spawn().unwrap();
    let folder = format!("/proc/{0}/task/{0}/children", bench.id());
    let mut busy = String::new();
    eventually("there is no busy process", || {
        busy = fs::read_to_string(&folder).unwrap().trim().to_string();
        !busy.is_empty()
    });
    bench.kill().unwrap();
    bench.wait().unwrap();
    // A zombie has ended too; its exit status may not have been read yet.
    let runs = || {
        let stat = fs::read_to_string(format!("/proc/{busy}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
    };
    eventually("it spins on without its parent", || !runs());
}

/// A program in place of PyTorch answers every case with the same time; the report has both sides and a
/// chart.
#[cfg(unix)]
#[test]
fn a_report_beside_torch() {
    let dir = tempfile::tempdir().unwrap();
    let python = script(
        dir.path(),
        r#"echo noise; echo "{\"version\": \"0.0\", \"device\": \"cpu\"}"
           while read question; do
               name=$(echo "$question" | sed 's/.*"case":"\([^"]*\)".*/\1/')
               echo "{\"peer\": \"torch\", \"case\": \"$name\", \"median_ms\": 1000.0, \"min_ms\": 999.0}"
           done"#,
    );
    let report = dir.path().join("report.md");
    fs::write(&report, "before\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nafter\n").unwrap();
    let args = ["--vs-torch", "--python", &python, "--budget", "0.01", "--filter", "matmul_64"];
    let report_path = report.to_str().unwrap();
    let said = success(&[&args[..], &["--report", report_path]].concat());
    assert!(said.contains("Taper is faster in 1 of 1 cases"), "{said}");
    let text = fs::read_to_string(&report).unwrap();
    assert!(
        text.starts_with("before\n<!-- bench:begin -->") && text.ends_with("<!-- bench:end -->\nafter\n")
    );
    for part in [
        "| matmul_64 |",
        "| PyTorch | 0.0 on cpu |",
        "--python python --budget 0.01 --filter matmul_64",
        "--report report.md`",
        "(report.svg)",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(!text.contains("old") && !text.contains(dir.path().to_str().unwrap()), "{text}");
    assert!(fs::read_to_string(report.with_extension("svg")).unwrap().contains("matmul_64"));
    // The same as JSON: each of our lines is followed by the other's.
    let said = success(&[&args[..], &["--json"]].concat());
    let peers: Vec<Value> = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect();
    let peers: Vec<&str> = peers.iter().map(|line| line["peer"].as_str().unwrap()).collect();
    assert_eq!(peers, ["taper", "torch"]);
}
