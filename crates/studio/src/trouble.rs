//! Troubles in words, each with something to try: reported once per run and name.

use std::collections::BTreeMap;

use inspect::{Anomaly, TensorStatistics};
use serde_json::json;
use tensor_core::few;

use crate::record::{Kind, MAX_NAMES, MAX_TROUBLES, Record};

/// A gradient's norm above this multiple of its running mean counts as exploding.
const EXPLODING_RATIO: f64 = 100.0;
/// The number of steps after which parameters that had no gradient are reported.
const STEPS_WATCHED: u32 = 10;
/// The norms that the running mean needs before it is compared with.
const MIN_NORMS: u32 = 5;

impl Record {
    /// Reports a trouble, unless `key` was reported before.
    pub(crate) fn trouble(&mut self, key: String, step: u64, title: &str, detail: &str, hint: &str) {
        if self.reported.contains(&key) || self.reported.len() >= MAX_TROUBLES {
            return;
        }
        self.reported.push(key);
        let event = json!({"kind": "trouble", "step": step, "title": title, "detail": detail, "try": hint});
        self.push(Kind::Report, &event);
    }

    /// Shows the operation that made the first NaN or infinity, its inputs, and the operations before it.
    pub(crate) fn anomaly(&mut self, anomaly: &Anomaly, step: u64) {
        let Anomaly { op, gradient_of, location, output, inputs, before, .. } = anomaly;
        let row = |of: &TensorStatistics| {
            json!({"shape": of.shape.to_string(), "dtype": of.dtype.to_string(), "min": of.min, "max": of.max,
                   "nans": of.nans, "infinities": of.infinities})
        };
        let steps: Vec<_> = before
            .iter()
            .map(
                |step| json!({"op": step.op, "line": step.location.to_string(), "output": row(&step.output)}),
            )
            .collect();
        let inputs: Vec<_> = inputs.iter().map(row).collect();
        let event = json!({
            "kind": "trouble", "step": step,
            "title": format!("{} makes the first value that is not finite", anomaly.subject()),
            "detail": format!("It is built at {location}, and its inputs are finite."),
            // The gradient of a root divides, but what helps is advice on roots.
            "try": advice(gradient_of.as_ref().unwrap_or(op)),
            "anomaly": {"op": op, "line": location.to_string(), "output": row(output), "inputs": inputs, "before": steps},
        });
        self.push(Kind::Report, &event);
    }

    /// Looks at the gradients after a step, and after some steps reports the parameters that had none in
    /// any of them: the page shows them as without a gradient, and not as trained.
    pub(crate) fn look_at_gradients(&mut self, step: u64) {
        if self.watched.parameters.is_empty() {
            return;
        }
        let before = self.watched.parameters.len();
        self.watched.parameters.retain(|(_, _, parameter)| parameter.grad().is_none());
        // Gradients that are cleared at the end of each step cannot be seen here.
        if before == self.watched.parameters.len() && self.watched.steps == 0 {
            return;
        }
        self.watched.steps += 1;
        if self.watched.steps < STEPS_WATCHED {
            return;
        }
        let mut models: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (model, path, parameter) in std::mem::take(&mut self.watched.parameters) {
            if parameter.is_tracked() {
                models.entry(model).or_default().push(path);
            }
        }
        for (model, paths) in models {
            self.push(Kind::Report, &json!({"kind": "idle", "model": model, "paths": paths}));
            self.trouble(
                format!("idle {model}"),
                step,
                &format!("{} parameters of {model} have no gradient", paths.len()),
                &format!("In {STEPS_WATCHED} steps these had none: {}.", few(&paths)),
                "The loss does not depend on them: look for a detach or no_grad before the loss. If that is meant, freeze \
                 them.",
            );
        }
    }

    /// Says that a search found nothing.
    pub(crate) fn note_search(&mut self, step: u64) {
        let text = format!("No operation of step {step} makes a NaN or an infinity from finite inputs.");
        let run = self.current_run();
        let run = self.run(&run);
        let event = json!({"kind": "text", "run": run, "tag": "search for NaN", "step": step, "text": text});
        self.push(Kind::Report, &event);
    }

    pub(crate) fn look_at_scalar(&mut self, run: usize, tag: &str, value: f64, step: u64) {
        if !value.is_finite() {
            self.trouble(
                format!("finite {run} {tag}"),
                step,
                &format!("{tag} is {value}"),
                &format!("The first value that is not finite, at step {step}."),
                "Press \"Find the first NaN\", or wrap the step in taper::detect_anomaly: the error names the \
                 operation and line. A lower learning rate and clip_grad_norm often prevent it.",
            );
        }
    }

    /// Compares a gradient's norm with those before it.
    pub(crate) fn look_at_gradient(&mut self, run: usize, name: &str, norm: f64, step: u64) {
        if !norm.is_finite() {
            return;
        }
        if self.norms.len() >= MAX_NAMES && !self.norms.contains_key(&(run, name.into())) {
            return;
        }
        let norms = self.norms.entry((run, name.into())).or_default();
        let mean = norms.mean;
        if norms.count >= MIN_NORMS && mean > 0.0 && norm > EXPLODING_RATIO * mean {
            self.trouble(
                format!("exploding {run} {name}"),
                step,
                &format!("The gradient of {name} explodes"),
                &format!("Its norm is {norm:.3e} at step {step}; the mean before was {mean:.3e}."),
                "Clip gradients (clip_grad_norm), lower the learning rate or warm it up, or normalize the layer.",
            );
            return;
        }
        norms.count += 1;
        norms.mean += (norm - mean) / f64::from(norms.count.min(20));
    }
}

/// Advice against an operation that makes values that are not finite.
fn advice(op: &str) -> &'static str {
    match op {
        "Log" | "Log2" | "Log10" | "Log1p" => {
            "A logarithm needs positive inputs: clamp them, or use log_softmax or a loss with logits."
        }
        "Sqrt" | "Rsqrt" | "Pow" => {
            "A root or power of 0 or of negative numbers: add a small number first, or clamp the input."
        }
        "Div" | "Reciprocal" => "The divisor reaches 0: add a small number to it, or clamp it.",
        "Exp" | "Exp2" | "Expm1" | "Cosh" | "Sinh" => {
            "Its input is too great: subtract the maximum first, as softmax and logsumexp do, or clamp it."
        }
        _ => {
            "The steps before show where values grow. Clip gradients, lower the learning rate, normalize the layer, \
             or use f32 or bf16 in place of f16."
        }
    }
}
