//! `/v1/files` and `/v1/fine_tuning/jobs`: adapters that are trained by the server.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{FORM, PATIENCE, Server, content, form};
use crate::common::{tiny_bert, tiny_llama};

/// Two conversations, one a line.
const DATA: &str = r#"{"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Ahoy!"}]}
{"messages": [{"role": "user", "content": "Bye"}, {"role": "assistant", "content": "Fair winds."}]}
"#;

/// A server with a language model `tiny`, an encoder `bert`, and a folder of jobs.
fn server(models: &[String], jobs: &TempDir) -> Server {
    Server::of(models, &["--jobs", jobs.path().to_str().unwrap()], Vec::new())
}

/// The folders of the models, and the arguments that name them.
fn models() -> (Vec<TempDir>, Vec<String>) {
    let folders = vec![tiny_llama(), tiny_bert()];
    let names = ["tiny", "bert"].iter().zip(&folders);
    let arguments = names.map(|(name, folder)| format!("{name}={}", folder.path().display())).collect();
    (folders, arguments)
}

impl Server {
    /// Sends a file of conversations; its id.
    fn upload(&self, data: &str) -> String {
        let fields: [(&str, &[u8]); 2] = [("purpose", b"fine-tune"), ("file", data.as_bytes())];
        let file = self.request("POST", "/v1/files", &[FORM], form(&fields)).ok();
        assert_eq!((&file["object"], &file["bytes"]), (&json!("file"), &json!(data.len())));
        file["id"].as_str().unwrap().to_string()
    }

    /// Begins a job of some epochs; its id.
    fn begin(&self, file: &str, epochs: usize) -> String {
        let hyper = json!({"n_epochs": epochs, "batch_size": 2, "learning_rate_multiplier": 5.0});
        let method = json!({"type": "supervised", "supervised": {"hyperparameters": hyper}});
        let request = json!({
            "model": "tiny", "training_file": file, "suffix": "sea", "seed": 1, "method": method,
        });
        let job = self.post("/v1/fine_tuning/jobs", &request).ok();
        assert_eq!((&job["object"], &job["status"]), (&json!("fine_tuning.job"), &json!("queued")));
        assert_eq!((&job["hyperparameters"], &job["fine_tuned_model"]), (&hyper, &Value::Null));
        job["id"].as_str().unwrap().to_string()
    }

    fn job(&self, id: &str) -> Value {
        self.get(&format!("/v1/fine_tuning/jobs/{id}")).ok()
    }

    /// The job once it is over.
    fn end(&self, id: &str) -> Value {
        let begin = Instant::now();
        loop {
            let job = self.job(id);
            if !job["finished_at"].is_null() {
                return job;
            }
            assert!(begin.elapsed() < 2 * PATIENCE, "{job}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Messages of the events, the oldest first.
    fn messages(&self, id: &str) -> Vec<String> {
        let events = self.get(&format!("/v1/fine_tuning/jobs/{id}/events?limit=1000")).ok();
        let events = events["data"].as_array().unwrap().iter().rev();
        events.map(|event| event["message"].as_str().unwrap().to_string()).collect()
    }

    fn await_message(&self, id: &str, beginning: &str) {
        let begin = Instant::now();
        while !self.messages(id).iter().any(|message| message.starts_with(beginning)) {
            assert!(begin.elapsed() < PATIENCE, "{:?}", self.messages(id));
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The likeliest answer of a model to "Hello".
    fn hello(&self, model: &str) -> String {
        let answer = self.chat(json!({"model": model, "temperature": 0, "max_tokens": 12})).ok();
        content(&answer).to_string()
    }

    fn names(&self) -> Vec<String> {
        let models = self.get("/v1/models").ok();
        let models = models["data"].as_array().unwrap().iter();
        models.map(|model| model["id"].as_str().unwrap().to_string()).collect()
    }
}

#[test]
fn an_adapter_answers_under_its_name_also_after_a_restart() {
    let ((_folders, models), jobs) = (models(), tempfile::tempdir().unwrap());
    let first = server(&models, &jobs);
    let before = first.hello("tiny");
    assert!(!before.contains("Ahoy!"), "{before}");
    let id = {
        let file = first.upload(DATA);
        assert_eq!(first.get(&format!("/v1/files/{file}/content")).body, DATA);
        assert_eq!(first.get(&format!("/v1/files/{file}")).ok()["filename"], "a file");
        let id = first.begin(&file, 60);
        // The model goes on answering, with its own weights.
        assert_eq!(first.hello("tiny"), before);
        id
    };
    let job = first.end(&id);
    assert_eq!((&job["status"], &job["error"]), (&json!("succeeded"), &Value::Null), "{job}");
    assert!(job["trained_tokens"].as_u64().unwrap() > 60 * 20, "{job}");
    let name = job["fine_tuned_model"].as_str().unwrap();
    assert_eq!(name, format!("ft:tiny:sea:{}", id.trim_start_matches("ftjob-")));
    assert_eq!(first.names(), ["tiny", "bert", name]);
    assert!(first.hello(name).starts_with("Ahoy!"), "{}", first.hello(name));
    assert_eq!(first.hello("tiny"), before);

    // The losses fall; each step has its event.
    let events = first.get(&format!("/v1/fine_tuning/jobs/{id}/events?limit=1000")).ok();
    let metrics = events["data"].as_array().unwrap().iter().filter(|event| event["type"] == "metrics");
    let losses: Vec<f64> = metrics.map(|event| event["data"]["train_loss"].as_f64().unwrap()).collect();
    assert_eq!(losses.len(), 60);
    // The newest is the first. The small tables of a random model bound its logits.
    assert!(losses[0] < 0.8 * losses[59], "{losses:?}");
    let page = first.get(&format!("/v1/fine_tuning/jobs/{id}/events?limit=2")).ok();
    let after = page["last_id"].as_str().unwrap();
    let rest = first.get(&format!("/v1/fine_tuning/jobs/{id}/events?limit=1&after={after}")).ok();
    assert_eq!((&page["has_more"], &rest["data"][0]), (&json!(true), &events["data"][2]));
    assert_eq!(first.get("/v1/fine_tuning/jobs").ok()["data"][0], job);

    // A name of the base with a colon is another model; a base is not deleted.
    let delete =
        |server: &Server, name: &str| server.request("DELETE", &format!("/v1/models/{name}"), &[], "");
    let (status, kind, param, _, message) = delete(&first, "tiny").error();
    assert_eq!((status, &kind[..], param), (409, "invalid_request_error", json!("model")));
    assert!(message.contains("only adapters"), "{message}");
    let (status, _, _, code, _) = delete(&first, "ft:tiny:sea:0").error();
    assert_eq!((status, code), (404, json!("model_not_found")));

    let text = first.hello(name);
    drop(first);
    let second = server(&models, &jobs);
    assert_eq!(second.names(), ["tiny", "bert", name]);
    assert_eq!((second.hello(name), second.job(&id)), (text, job.clone()));
    drop(second);
    // Without the base, nothing is offered, and the job is there all the same.
    let third = server(&models[1..], &jobs);
    assert_eq!((third.names(), third.job(&id)), (vec!["bert".to_string()], job.clone()));
    // An adapter that is not offered is deleted all the same.
    assert_eq!(delete(&third, name).ok()["deleted"], true);
    assert!(!jobs.path().join("jobs").join(&id).join("adapter").exists());
}

#[test]
fn a_deleted_adapter_is_gone_with_its_files_alone() {
    let ((_folders, models), jobs) = (models(), tempfile::tempdir().unwrap());
    let first = server(&models, &jobs);
    let file = first.upload(DATA);
    let [gone, stays] = [1, 1].map(|epochs| {
        let id = first.begin(&file, epochs);
        (id.clone(), first.end(&id)["fine_tuned_model"].as_str().unwrap().to_string())
    });
    let running = first.begin(&file, 1000);
    first.await_message(&running, "Epoch 1 is done");
    let delete =
        |server: &Server, name: &str| server.request("DELETE", &format!("/v1/models/{name}"), &[], "");
    let trained = format!("ft:tiny:sea:{}", running.trim_start_matches("ftjob-"));
    let (status, _, param, _, message) = delete(&first, &trained).error();
    assert_eq!((status, param), (409, json!("model")));
    assert!(message.contains(&running) && message.contains("cancel"), "{message}");
    first.post(&format!("/v1/fine_tuning/jobs/{running}/cancel"), &json!({})).ok();
    assert_eq!(delete(&first, &trained).status, 404);

    // A text that is being written goes on.
    let request = json!({"model": gone.1, "prompt": "Hello", "max_tokens": 200, "stream": true});
    let headers = ["Content-Type: application/json"];
    let mut stream = BufReader::new(first.send("POST", "/v1/completions", &headers, request.to_string()));
    let mut line = String::new();
    while !line.starts_with("data: ") {
        line.clear();
        stream.read_line(&mut line).unwrap();
    }
    let folder = jobs.path().join("jobs").join(&gone.0);
    assert!(folder.join("adapter").exists());
    let answer = delete(&first, &gone.1);
    assert_eq!(answer.ok(), json!({"id": gone.1, "object": "model", "deleted": true}));
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("data: [DONE]") && !rest.contains("error"), "{rest}");

    assert!(!folder.join("adapter").exists() && folder.join("job.json").exists());
    assert!(jobs.path().join("jobs").join(&stays.0).join("adapter").exists());
    assert_eq!(first.get(&format!("/v1/files/{file}")).status, 200);
    assert_eq!(first.names(), ["tiny", "bert", &stays.1]);
    let (status, _, _, code, _) = first.chat(json!({"model": gone.1})).error();
    assert_eq!((status, code), (404, json!("model_not_found")));
    assert_eq!(
        (delete(&first, &gone.1).status, first.get(&format!("/v1/models/{}", gone.1)).status),
        (404, 404)
    );
    // The job is there, and the name of what it made.
    assert_eq!(first.job(&gone.0)["fine_tuned_model"], json!(gone.1));
    first.hello(&stays.1);
    drop(first);

    // A server that was killed between the record and the files removes them.
    fs::create_dir(folder.join("adapter")).unwrap();
    let second = server(&models, &jobs);
    assert_eq!(second.names(), ["tiny", "bert", &stays.1]);
    assert!(!folder.join("adapter").exists());
}

/// Two adapters that answer "Hello" in other words, by a server that ends then.
fn two_adapters(models: &[String], jobs: &TempDir) -> [String; 2] {
    let server = server(models, jobs);
    ["Ahoy!", "Land."].map(|word| {
        let id = server.begin(&server.upload(&DATA.replace("Ahoy!", word)), 60);
        server.end(&id)["fine_tuned_model"].as_str().unwrap().to_string()
    })
}

#[test]
fn a_model_and_its_adapters_have_one_thread() {
    let ((_folders, models), jobs) = (models(), tempfile::tempdir().unwrap());
    let [first, second] = two_adapters(&models, &jobs);
    let all = ["tiny", &first, &second];
    let server = server(&models, &jobs);
    assert_eq!(server.count("taper_model_loaded", &first), 0);
    let texts = all.map(|name| server.hello(name));
    assert!(texts[0] != texts[1] && texts[0] != texts[2] && texts[1] != texts[2], "{texts:?}");
    thread::scope(|scope| {
        for k in 0..9 {
            let (server, all, texts) = (&server, &all, &texts);
            scope.spawn(move || {
                for turn in 0..3 {
                    let at = (k + turn) % 3;
                    assert_eq!(server.hello(all[at]), texts[at]);
                }
            });
        }
    });
    #[cfg(target_os = "linux")]
    assert_eq!(super::memory::model_threads(server.child.id()), 1);
    for name in [&first, &second] {
        assert_eq!(server.count("taper_model_loads_total", name), 1);
        assert!((1000..1_000_000).contains(&server.count("taper_model_bytes", name)));
        assert_eq!(server.count("taper_requests_in_flight", name), 0);
    }
    // The name of an answer is that of the adapter.
    let answer = server.chat(json!({"model": first, "max_tokens": 1})).ok();
    assert_eq!(answer["model"], json!(first));
    // A deleted one leaves the memory, and the others answer as before.
    server.request("DELETE", &format!("/v1/models/{first}"), &[], "").ok();
    assert_eq!([0, 2].map(|k| server.hello(all[k])), [0, 2].map(|k: usize| texts[k].clone()));
}

#[test]
fn adapters_make_room_for_others() {
    let ((_folders, models), jobs) = (models(), tempfile::tempdir().unwrap());
    let [first, second] = two_adapters(&models, &jobs);
    let folder = jobs.path().to_str().unwrap();
    let expected = Server::of(&models, &["--jobs", folder], Vec::new());
    let texts = [&first, &second].map(|name| expected.hello(name));
    drop(expected);
    // One adapter, and one model, at a time.
    let options = ["--jobs", folder, "--max-adapters", "1", "--max-memory", "1"];
    let server = Server::of(&models, &options, Vec::new());
    for turn in 1..=3 {
        for (name, text) in [&first, &second].iter().zip(&texts) {
            assert_eq!(server.hello(name), *text);
            assert_eq!(server.hello(name), *text);
            assert_eq!(server.count("taper_model_loads_total", name), turn);
        }
        assert_eq!([&first, &second].map(|name| server.count("taper_model_loaded", name)), [0, 1]);
    }
    // A file that cannot be read is an error that does not name it, and leaves the others alone.
    let adapter = jobs.path().join("jobs").join(format!("ftjob-{}", first.rsplit(':').next().unwrap()));
    fs::write(adapter.join("adapter/adapter_config.json"), "{").unwrap();
    let (status, kind, .., message) = server.chat(json!({"model": first})).error();
    assert_eq!((status, &kind[..]), (500, "server_error"));
    assert!(message.contains("could not be loaded") && !message.contains("adapter_config"), "{message}");
    assert_eq!(server.hello(&second), texts[1]);
}

#[test]
fn a_job_goes_on_after_the_server_was_killed() {
    let ((_folders, models), jobs) = (models(), tempfile::tempdir().unwrap());
    let first = server(&models, &jobs);
    let id = first.begin(&first.upload(DATA), 1000);
    first.await_message(&id, "Epoch 2 is done");
    // Its process is killed.
    drop(first);
    let folder = jobs.path().join("jobs").join(&id);
    let record: Value = serde_json::from_slice(&fs::read(folder.join("job.json")).unwrap()).unwrap();
    assert_eq!(record["status"], "running");

    // A server without its model leaves the job alone.
    let other = server(&models[1..], &jobs);
    assert_eq!(other.job(&id)["status"], "running");
    drop(other);
    let second = server(&models, &jobs);
    second.await_message(&id, "The training goes on after epoch");
    let deleted = second.upload(DATA);
    let waiting = second.begin(&deleted, 1);
    second.request("DELETE", &format!("/v1/files/{deleted}"), &[], "").ok();
    assert_eq!(second.job(&id)["status"], "running");
    let job = second.post(&format!("/v1/fine_tuning/jobs/{id}/cancel"), &json!({})).ok();
    assert_eq!(job["status"], "cancelled");
    let again = second.post(&format!("/v1/fine_tuning/jobs/{id}/cancel"), &json!({}));
    assert_eq!((again.status, again.error().4), (400, "the job is over already".into()));
    // The thread is free for the next jobs.
    let job = second.end(&waiting);
    assert_eq!((&job["status"], &job["error"]["param"]), (&json!("failed"), &json!("training_file")));
    assert!(job["error"]["message"].as_str().unwrap().contains("deleted"), "{job}");
    let next = second.begin(&second.upload(DATA), 1);
    assert_eq!(second.end(&next)["status"], "succeeded");
    assert_eq!(second.job(&id)["status"], "cancelled");
    assert!(!folder.join("adapter").exists());
}

#[test]
fn jobs_that_cannot_be_are_refused() {
    let ((_folders, models), jobs) = (models(), tempfile::tempdir().unwrap());
    let server = server(&models, &jobs);
    let file = server.upload(DATA);
    let refused = |more: Value, param: &str, part: &str| {
        let request = super::joined(json!({"model": "tiny", "training_file": file}), more);
        let (status, _, found, _, message) = server.post("/v1/fine_tuning/jobs", &request).error();
        assert!((400..500).contains(&status) && message.contains(part), "{status}: {message}");
        assert_eq!(found, param);
    };
    refused(json!({"model": "large"}), "model", "no model \"large\"");
    refused(json!({"model": "bert"}), "model", "writes text");
    refused(json!({"training_file": "file-0"}), "training_file", "no file \"file-0\"");
    refused(json!({"validation_file": file}), "validation_file", "no validation");
    refused(json!({"suffix": "../up"}), "suffix", "letters");
    refused(json!({"method": {"type": "dpo"}}), "method", "supervised");
    refused(json!({"hyperparameters": {"n_epochs": 0}}), "n_epochs", "1 to 1000");
    refused(json!({"hyperparameters": {"batch_size": "many"}}), "batch_size", "auto");
    refused(
        json!({"hyperparameters": {"learning_rate_multiplier": -1}}),
        "learning_rate_multiplier",
        "above 0",
    );
    for path in ["/v1/files/file-0", "/v1/files/..%2f..%2fetc/content", "/v1/fine_tuning/jobs/ftjob-0"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
    assert_eq!(server.get("/v1/files?limit=many").status, 400);
    let fields: [(&str, &[u8]); 2] = [("purpose", b"batch"), ("file", b"{}")];
    let answer = server.request("POST", "/v1/files", &[FORM], form(&fields));
    assert_eq!((answer.status, answer.error().2), (400, json!("purpose")));

    // A file is read by the job.
    let junk = server.begin(&server.upload("{\"messages\": []}\n"), 1);
    let job = server.end(&junk);
    assert_eq!(job["status"], "failed");
    assert_eq!(job["error"]["param"], "training_file");
    assert_eq!(job["error"]["code"], "invalid_training_file");
    assert!(job["error"]["message"].as_str().unwrap().contains("line 1"), "{job}");

    let answer = server.request("DELETE", &format!("/v1/files/{file}"), &[], "");
    assert_eq!(answer.ok(), json!({"id": file, "object": "file", "deleted": true}));
    assert_eq!(server.get(&format!("/v1/files/{file}")).status, 404);
    assert!(!Path::new(jobs.path()).join("files").join(format!("{file}.jsonl")).exists());
    drop(server);

    let without = Server::of(&models, &[], Vec::new());
    let (status, .., message) = without.get("/v1/fine_tuning/jobs").error();
    assert_eq!((status, message.contains("--jobs FOLDER")), (404, true));
}
