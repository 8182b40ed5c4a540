//! PyTorch beside us: one long-lived Python that is told the name of a case and answers with its line.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::Value;

use crate::{Result, line::Line};

const SCRIPT: &str = include_str!("../../../scripts/bench_torch.py");

/// The running script.
pub(crate) struct Torch {
    pub(crate) version: String,
    child: Child,
    /// Closed to end the script.
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Torch {
    /// Starts the script and waits until torch is there.
    pub(crate) fn start(python: &Path, threads: usize, device: &str, budget: f64) -> Result<Torch> {
        let shown = python.display();
        let mut child = Command::new(python)
            .args(["-u", "-c", SCRIPT, "--serve", "--device", device])
            .args(["--threads", &threads.to_string(), "--budget", &budget.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| {
                format!("--python {shown} cannot be run: {error}; name a Python that has torch")
            })?;
        let (Some(ask), Some(out)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("a child process without its pipes".into());
        };
        let mut torch = Torch { version: String::new(), child, ask: Some(ask), answers: BufReader::new(out) };
        let hello: Value = match torch.answer() {
            Some(line) => serde_json::from_str(&line)?,
            None => return Err(format!("--python {shown} ended at once: is it a Python?").into()),
        };
        match (&hello["version"], &hello["error"]) {
            (Value::String(version), _) => torch.version.clone_from(version),
            (_, Value::String(error)) => {
                return Err(format!(
                    "--python {shown} has no torch ({error}); install it there with `pip install torch numpy`, or \
                     name another Python"
                )
                .into());
            }
            _ => return Err(format!("--python {shown} answers {hello}, not as expected").into()),
        }
        Ok(torch)
    }

    /// Runs a case there.
    pub(crate) fn ask(&mut self, case: &str) -> Result<Line> {
        if let Some(ask) = &mut self.ask {
            writeln!(ask, "{case}").map_err(|_| ended(case))?;
            ask.flush().map_err(|_| ended(case))?;
        }
        let line: Line = serde_json::from_str(&self.answer().ok_or_else(|| ended(case))?)?;
        if line.case == case {
            return Ok(line);
        }
        Err(format!("PyTorch's script was asked for {case} and answered {}", line.case).into())
    }

    /// The next line that is JSON: what else is said there is not for us.
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

fn ended(case: &str) -> String {
    format!("PyTorch's script ended at case {case}; it said why above, if it could")
}

impl Drop for Torch {
    fn drop(&mut self) {
        // At the end of its input the script ends, too. No one is left to tell if it does not.
        self.ask = None;
        let _ = self.child.wait();
    }
}
