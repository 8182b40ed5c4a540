//! `--max-memory`: models that are loaded by requests, and make room for others.

use std::{
    fs,
    net::Shutdown,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::{Answer, Server, long_request};
use crate::common::{llama, refused, tiny_bert};

/// A server with two language models of which one fits into its memory, and a small encoder.
fn server(options: &[&str]) -> Server {
    // Each has weights of 0.9 MiB.
    let models = vec![("first", llama(3, 512)), ("second", llama(4, 512)), ("bert", tiny_bert())];
    Server::named(models, options)
}

const ONE: &[&str] = &["--max-memory", "1"];

impl Server {
    fn ask(&self, model: &str) -> Answer {
        self.complete(json!({"model": model, "temperature": 1.5, "seed": 1}))
    }

    fn text(&self, model: &str) -> String {
        self.ask(model).ok()["choices"][0]["text"].as_str().unwrap().to_string()
    }

    fn vector(&self) -> Value {
        let answer = self.post("/v1/embeddings", &json!({"model": "bert", "input": "w9 w10"})).ok();
        answer["data"][0]["embedding"].clone()
    }

    /// The number of a metric of a model.
    pub(super) fn count(&self, metric: &str, model: &str) -> u64 {
        let (text, name) = (self.get("/metrics").body, format!("{metric}{{model=\"{model}\"}} "));
        text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
    }

    fn loaded(&self, model: &str) -> bool {
        self.count("taper_model_loaded", model) == 1
    }
}

/// The texts of both models, and the vector, by a server that has all of them in memory.
fn expected() -> (String, String, Value) {
    let all = server(&[]);
    assert!(["first", "second", "bert"].iter().all(|model| all.loaded(model)));
    let (first, second) = (all.text("first"), all.text("second"));
    assert_ne!(first, second);
    (first, second, all.vector())
}

/// The threads of a process that own a language model.
#[cfg(target_os = "linux")]
pub(super) fn model_threads(process: u32) -> usize {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|name| name.starts_with("model ")).count()
}

#[test]
fn models_take_turns_in_memory() {
    let (first, second, vector) = expected();
    let server = server(ONE);
    let listed = server.get("/v1/models").ok();
    assert_eq!(listed["data"].as_array().unwrap().len(), 3);
    assert!(!["first", "second", "bert"].iter().any(|model| server.loaded(model)));
    for turn in 1..=3 {
        for (model, other, text) in [("first", "second", &first), ("second", "first", &second)] {
            assert_eq!(server.text(model), *text);
            // A model that is in memory is not loaded again.
            assert_eq!(server.text(model), *text);
            assert!(server.loaded(model) && !server.loaded(other));
            assert_eq!(server.count("taper_model_loads_total", model), turn);
            assert!(server.count("taper_model_bytes", model) > 900_000);
            assert_eq!(server.count("taper_model_bytes", other), 0);
            #[cfg(target_os = "linux")]
            assert_eq!(model_threads(server.child.id()), 1);
        }
    }
    // The encoder fits beside a language model. It is used after that, and must go as well.
    assert_eq!(server.vector(), vector);
    assert!(server.loaded("second") && server.loaded("bert"));
    assert_eq!(server.text("second"), second);
    assert_eq!(server.text("first"), first);
    assert!(!server.loaded("second") && !server.loaded("bert"));
    assert_eq!(server.ask("absent").error().0, 404);
    // A request of the wrong kind loads nothing.
    let (status, _, param, ..) =
        server.post("/v1/embeddings", &json!({"model": "second", "input": "w9"})).error();
    assert_eq!((status, param), (400, json!("model")));
    assert!(server.loaded("first") && !server.loaded("second"));
}

#[test]
fn requests_at_the_same_time_load_a_model_once() {
    let (first, second, vector) = expected();
    let server = server(ONE);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| assert_eq!(server.text("first"), first));
        }
    });
    assert_eq!(server.count("taper_model_loads_total", "first"), 1);
    // Now for all models.
    thread::scope(|scope| {
        for k in 0..9 {
            let (server, first, second, vector) = (&server, &first, &second, &vector);
            scope.spawn(move || {
                for turn in 0..4 {
                    match (k + turn) % 3 {
                        0 => assert_eq!(server.text("first"), *first),
                        1 => assert_eq!(server.text("second"), *second),
                        _ => assert_eq!(server.vector(), *vector),
                    }
                }
            });
        }
    });
    for model in ["first", "second", "bert"] {
        assert_eq!(server.count("taper_requests_in_flight", model), 0);
    }
    assert!(!(server.loaded("first") && server.loaded("second")));
    #[cfg(target_os = "linux")]
    assert!(model_threads(server.child.id()) <= 1);
}

/// A request that would take minutes, for the first model.
fn long_text() -> String {
    let request: Value = serde_json::from_str(&long_request(true)).unwrap();
    super::joined(request, json!({"model": "first"})).to_string()
}

#[test]
fn a_model_in_use_stays_until_its_texts_end() {
    let server = server(&[ONE, &["--max-tokens", "110000"]].concat());
    let kind = &["Content-Type: application/json"];
    let client = server.send("POST", "/v1/completions", kind, long_text());
    server.await_metric("taper_model_loaded{model=\"first\"} 1");
    thread::scope(|scope| {
        let second = scope.spawn(|| server.ask("second"));
        server.await_metric("taper_requests_in_flight{model=\"second\"} 1");
        thread::sleep(Duration::from_millis(300));
        assert!(server.loaded("first") && !second.is_finished());
        // The small one has room beside it.
        server.vector();
        assert!(server.loaded("first") && server.loaded("bert"));
        client.shutdown(Shutdown::Both).unwrap();
        second.join().unwrap().ok();
    });
    assert!(server.loaded("second") && !server.loaded("first"));
}

#[test]
fn a_request_that_gets_no_room_is_given_up() {
    let server = server(&[ONE, &["--max-tokens", "110000", "--timeout", "3"]].concat());
    let kind = &["Content-Type: application/json"];
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Each text ends after three seconds, and others go on then.
        for k in 0..3 {
            let (server, is_over) = (&server, &is_over);
            scope.spawn(move || {
                thread::sleep(Duration::from_secs(k));
                while !is_over.load(Ordering::Relaxed) {
                    server.request("POST", "/v1/completions", kind, long_text());
                }
            });
        }
        server.await_metric("taper_requests_in_flight{model=\"first\"} 3");
        let (status, kind, _, code, message) = server.ask("second").error();
        is_over.store(true, Ordering::Relaxed);
        assert_eq!((status, kind.as_str(), code), (503, "server_error", json!("model_not_loaded")));
        assert!(message.contains("3 seconds"), "{message}");
    });
    server.ask("second").ok();
}

#[test]
fn a_failed_load_is_tried_again() {
    let server = server(ONE);
    let weights = server.folders[0].path().join("model.safetensors");
    let whole = fs::read(&weights).unwrap();
    // A file of its own, because a model in memory may be pages of the file before.
    let write = |bytes: &[u8]| {
        fs::remove_file(&weights).unwrap();
        fs::write(&weights, bytes).unwrap();
    };
    for _ in 0..2 {
        server.ask("second").ok();
        write(&whole[..1000]);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let (status, kind, _, _, message) = server.ask("first").error();
                    assert_eq!((status, kind.as_str()), (500, "server_error"));
                    assert!(message.contains("\"first\" could not be loaded"), "{message}");
                    assert!(!message.contains("safetensors"), "{message}");
                });
            }
        });
        write(&whole);
        server.ask("first").ok();
    }
    for model in ["first", "second"] {
        assert_eq!(server.count("taper_requests_in_flight", model), 0);
    }
}

#[test]
fn a_model_that_never_fits_is_refused() {
    let folder = llama(3, 512);
    let path = format!("big={}", folder.path().display());
    let message = refused(&["serve", &path, "--port", "0", "--max-memory", "0"]);
    assert!(message.contains("\"big\"") && message.contains("--max-memory"), "{message}");
    let message = refused(&["serve", &path, &path, "--port", "0"]);
    assert!(message.contains("two models have the name \"big\""), "{message}");
}
