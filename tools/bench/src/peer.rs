//! Another library to compare with: one long-lived process that reads the name of a case and answers with
//! its line.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::Value;

use crate::{Result, line::Line};

const TORCH: &str = include_str!("../../../scripts/bench_torch.py");
const ONNX_RUNTIME: &str = include_str!("../../../scripts/bench_onnxruntime.py");
/// A separate package, outside the workspace, so that other builds do not compile it.
const BURN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/bench_burn/Cargo.toml");

/// The running process.
pub(crate) struct Peer {
    pub(crate) name: String,
    /// Whether it knows cases by their names alone, and no descriptions of them.
    pub(crate) by_name: bool,
    pub(crate) version: String,
    /// The library's name of the device that it runs on.
    pub(crate) device: String,
    child: Child,
    /// Closed to end the process.
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Peer {
    /// Starts PyTorch's script and waits until torch is there. `device` is "cpu" or "gpu".
    pub(crate) fn torch(python: &Path, threads: usize, device: &str, budget: f64) -> Result<Peer> {
        Peer::script(("PyTorch", "torch", TORCH), python, threads, device, budget)
    }

    /// Starts ONNX Runtime's script and waits until onnxruntime is there.
    pub(crate) fn onnxruntime(python: &Path, threads: usize, budget: f64) -> Result<Peer> {
        Peer::script(("ONNX Runtime", "onnxruntime", ONNX_RUNTIME), python, threads, "cpu", budget)
    }

    /// Starts a script, which needs a package.
    fn script(
        (name, package, script): (&str, &str, &str),
        python: &Path,
        threads: usize,
        device: &str,
        budget: f64,
    ) -> Result<Peer> {
        let mut command = Command::new(python);
        command.args(["-u", "-c", script]);
        let shown = python.display();
        Peer::start(name, command, threads, device, budget).map_err(|error| {
            format!(
                "--python {shown}: {error}; name a Python that has {package}, or `pip install {package} numpy` there"
            )
            .into()
        })
    }

    /// Builds burn's program, which takes minutes the first time, and starts it.
    pub(crate) fn burn(threads: usize, budget: f64) -> Result<Peer> {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(["run", "--release", "--locked", "--manifest-path", BURN, "--"]);
        let mut peer = Peer::start("burn", command, threads, "gpu", budget)
            .map_err(|error| format!("--vs-burn: {error}"))?;
        peer.by_name = true;
        Ok(peer)
    }

    /// Starts this program again without a special form of the CPU's kernels.
    pub(crate) fn without(form: &str, threads: usize, budget: f64, models: Option<&Path>) -> Result<Peer> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env("TAPER_CPU_FORMS", format!("-{form}"));
        if let Some(models) = models {
            command.arg("--models").arg(models);
        }
        let mut peer = Peer::start(&format!("without {form}"), command, threads, "cpu", budget)
            .map_err(|error| format!("--without {form}: {error}"))?;
        peer.by_name = true;
        Ok(peer)
    }

    fn start(name: &str, mut command: Command, threads: usize, device: &str, budget: f64) -> Result<Peer> {
        let mut child = command
            .args(["--serve", "--device", device])
            .args(["--threads", &threads.to_string(), "--budget", &budget.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot be run: {error}"))?;
        let (Some(ask), Some(out)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a child process without its pipes".into());
        };
        let mut peer = Peer {
            name: name.into(),
            by_name: false,
            version: String::new(),
            device: String::new(),
            child,
            ask: Some(ask),
            answers: BufReader::new(out),
        };
        let hello: Value = match peer.answer() {
            Some(line) => serde_json::from_str(&line)?,
            None => return Err("it ended at once".into()),
        };
        match (&hello["version"], &hello["device"], &hello["error"]) {
            (Value::String(version), Value::String(device), _) => {
                peer.version.clone_from(version);
                peer.device.clone_from(device);
            }
            (.., Value::String(error)) => return Err(error.clone().into()),
            _ => return Err(format!("it answers {hello}, not as expected").into()),
        }
        Ok(peer)
    }

    /// Runs a case there.
    pub(crate) fn ask(&mut self, case: &str) -> Result<Line> {
        self.ask_question(case, case)
    }

    /// Runs a case that is described in a line of JSON.
    pub(crate) fn ask_question(&mut self, case: &str, question: &str) -> Result<Line> {
        if let Some(ask) = &mut self.ask {
            writeln!(ask, "{question}").map_err(|_| ended(&self.name, case))?;
            ask.flush().map_err(|_| ended(&self.name, case))?;
        }
        let line: Line = serde_json::from_str(&self.answer().ok_or_else(|| ended(&self.name, case))?)?;
        if line.case == case {
            return Ok(line);
        }
        Err(format!("{} was asked for {case} and answered {}", self.name, line.case).into())
    }

    /// The next line that is JSON; other output is ignored.
    fn answer(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.answers.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if line.starts_with('{') {
                return Some(line);
            }
        }
    }
}

fn ended(name: &str, case: &str) -> String {
    format!("{name}'s process ended at case {case}; it said why above, if it could")
}

impl Drop for Peer {
    fn drop(&mut self) {
        // At the end of its input the process ends too; an error cannot be reported here.
        self.ask = None;
        let _ = self.child.wait();
    }
}
