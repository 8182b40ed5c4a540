//! Counters in the text format of Prometheus.

use std::{
    collections::BTreeMap,
    fmt::Write,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use taper::tensor_core::{MemoryStats, lock};

/// The upper bounds of a histogram's buckets, in seconds.
const BUCKET_SECONDS: [f64; 10] = [0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0];

/// Durations, counted in buckets.
#[derive(Default)]
struct Histogram {
    /// The number of durations up to each bound of `BUCKET_SECONDS`.
    buckets: [u64; BUCKET_SECONDS.len()],
    count: u64,
    sum: f64,
}

impl Histogram {
    fn add(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let reached = self.buckets.iter_mut().zip(BUCKET_SECONDS).filter(|(_, bound)| seconds <= *bound);
        reached.for_each(|(count, _)| *count += 1);
        self.count += 1;
        self.sum += seconds;
    }

    fn write(&self, text: &mut String, name: &str, label: &str) {
        for (count, bound) in self.buckets.iter().zip(BUCKET_SECONDS) {
            let _ = writeln!(text, "{name}_bucket{{{label},le=\"{bound}\"}} {count}");
        }
        let _ = writeln!(text, "{name}_bucket{{{label},le=\"+Inf\"}} {}", self.count);
        let _ = writeln!(text, "{name}_sum{{{label}}} {}", self.sum);
        let _ = writeln!(text, "{name}_count{{{label}}} {}", self.count);
    }
}

/// Counters of one model.
#[derive(Default)]
struct OfModel {
    prompt_tokens: u64,
    generated_tokens: u64,
    cancelled: u64,
    seconds: Histogram,
    first_token_seconds: Histogram,
}

#[derive(Default)]
struct Counts {
    /// Answers by path and status.
    requests: BTreeMap<(String, u16), u64>,
    models: BTreeMap<String, OfModel>,
}

/// All counters of a server.
#[derive(Default)]
pub(super) struct Metrics(Mutex<Counts>);

/// The present state of a model.
pub(super) struct ModelState {
    pub(super) name: String,
    /// The requests that wait or run.
    pub(super) in_flight: usize,
    /// The loads that have begun.
    pub(super) loads: u64,
    /// The bytes of its weights, if it is in memory.
    pub(super) loaded_bytes: Option<u64>,
}

/// A generation that has ended.
pub(super) struct Ended {
    pub(super) prompt_tokens: usize,
    pub(super) generated_tokens: usize,
    /// Whether the client went away, or the time was over.
    pub(super) cancelled: bool,
    pub(super) duration: Duration,
    pub(super) first_token: Option<Duration>,
}

impl Metrics {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        lock(&self.0)
    }

    /// Counts an answer.
    pub(super) fn answered(&self, path: &str, status: u16) {
        *self.counts().requests.entry((path.to_string(), status)).or_default() += 1;
    }

    /// Counts a generation, or other work with a model.
    pub(super) fn ended(&self, model: &str, ended: &Ended) {
        let mut counts = self.counts();
        let of_model = counts.models.entry(model.to_string()).or_default();
        of_model.prompt_tokens += ended.prompt_tokens as u64;
        of_model.generated_tokens += ended.generated_tokens as u64;
        of_model.cancelled += u64::from(ended.cancelled);
        of_model.seconds.add(ended.duration);
        if let Some(first) = ended.first_token {
            of_model.first_token_seconds.add(first);
        }
    }

    /// The text that Prometheus reads.
    pub(super) fn text(&self, models: &[ModelState], memory: &MemoryStats) -> String {
        let counts = self.counts();
        let mut text = String::new();
        let head = |text: &mut String, name: &str, kind: &str, help: &str| {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        };
        head(&mut text, "taper_requests_total", "counter", "Answers by path and status.");
        for ((path, status), count) in &counts.requests {
            let _ = writeln!(text, "taper_requests_total{{path={path:?},status=\"{status}\"}} {count}");
        }
        type Present = fn(&ModelState) -> u64;
        let present: [(&str, &str, &str, Present); 4] = [
            ("taper_requests_in_flight", "gauge", "Requests that wait or run.", |model| {
                model.in_flight as u64
            }),
            ("taper_model_loaded", "gauge", "Whether a model is in memory.", |model| {
                u64::from(model.loaded_bytes.is_some())
            }),
            ("taper_model_bytes", "gauge", "Bytes of the weights that are in memory.", |model| {
                model.loaded_bytes.unwrap_or(0)
            }),
            ("taper_model_loads_total", "counter", "Loads of a model.", |model| model.loads),
        ];
        for (name, kind, help, value) in present {
            head(&mut text, name, kind, help);
            for model in models {
                let _ = writeln!(text, "{name}{{model={:?}}} {}", model.name, value(model));
            }
        }
        let help = "Bytes of the device's memory that tensors have, without mapped weights.";
        head(&mut text, "taper_memory_allocated_bytes", "gauge", help);
        let _ = writeln!(text, "taper_memory_allocated_bytes {}", memory.allocated);
        let help = "The same with free memory that is kept for tensors to come.";
        head(&mut text, "taper_memory_reserved_bytes", "gauge", help);
        let _ = writeln!(text, "taper_memory_reserved_bytes {}", memory.reserved);
        type Count = fn(&OfModel) -> u64;
        let counters: [(&str, &str, Count); 3] = [
            ("taper_prompt_tokens_total", "Tokens that were read.", |model| model.prompt_tokens),
            ("taper_generated_tokens_total", "Tokens that were generated.", |model| model.generated_tokens),
            ("taper_cancelled_total", "Requests that ended before their text.", |model| model.cancelled),
        ];
        for (name, help, count) in counters {
            head(&mut text, name, "counter", help);
            for (model, of_model) in &counts.models {
                let _ = writeln!(text, "{name}{{model={model:?}}} {}", count(of_model));
            }
        }
        type Times = fn(&OfModel) -> &Histogram;
        let histograms: [(&str, &str, Times); 2] = [
            ("taper_request_seconds", "Time of a whole request.", |model| &model.seconds),
            ("taper_first_token_seconds", "Time to the first token.", |model| &model.first_token_seconds),
        ];
        for (name, help, times) in histograms {
            head(&mut text, name, "histogram", help);
            for (model, of_model) in &counts.models {
                times(of_model).write(&mut text, name, &format!("model={model:?}"));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_the_format_of_prometheus() {
        let metrics = Metrics::default();
        metrics.answered("/v1/models", 200);
        metrics.answered("/v1/models", 200);
        let duration = Duration::from_millis(70);
        let ended =
            Ended { prompt_tokens: 3, generated_tokens: 5, cancelled: true, duration, first_token: None };
        metrics.ended("tiny", &ended);
        let state = ModelState { name: "tiny".into(), in_flight: 2, loads: 3, loaded_bytes: Some(700) };
        let memory = MemoryStats { allocated: 11, reserved: 12, ..MemoryStats::default() };
        let text = metrics.text(&[state], &memory);
        for line in [
            "# TYPE taper_requests_total counter",
            "taper_requests_total{path=\"/v1/models\",status=\"200\"} 2",
            "taper_requests_in_flight{model=\"tiny\"} 2",
            "taper_model_loaded{model=\"tiny\"} 1",
            "taper_model_bytes{model=\"tiny\"} 700",
            "taper_memory_allocated_bytes 11",
            "taper_memory_reserved_bytes 12",
            "# TYPE taper_model_loads_total counter",
            "taper_model_loads_total{model=\"tiny\"} 3",
            "taper_generated_tokens_total{model=\"tiny\"} 5",
            "taper_cancelled_total{model=\"tiny\"} 1",
            "taper_request_seconds_bucket{model=\"tiny\",le=\"0.05\"} 0",
            "taper_request_seconds_bucket{model=\"tiny\",le=\"0.1\"} 1",
            "taper_request_seconds_bucket{model=\"tiny\",le=\"+Inf\"} 1",
            "taper_first_token_seconds_count{model=\"tiny\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
