//! Troubles in words, each with something to try: reported once per run and name.

use serde_json::json;

use crate::record::Record;

/// A gradient's norm above this multiple of its running mean counts as exploding.
const EXPLODING_RATIO: f64 = 100.0;
/// The norms that the running mean needs before it is compared with.
const MIN_NORMS: u32 = 5;

impl Record {
    /// Reports a trouble, unless `key` was reported before.
    pub(crate) fn trouble(&mut self, key: String, step: u64, title: &str, detail: &str, hint: &str) {
        if self.reported.contains(&key) {
            return;
        }
        self.reported.push(key);
        let event = json!({"kind": "trouble", "step": step, "title": title, "detail": detail, "try": hint});
        self.push(false, &event);
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
