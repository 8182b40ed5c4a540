//! The records of files and jobs, which are kept as JSON beside what they describe.

use std::{fs, io::Write, path::Path};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value as Json, json};
use taper::tensor_core::file::write_whole;

use super::super::since_1970;
use crate::error::{Outcome, at};

/// A file of conversations that a client sent.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct FileRecord {
    pub(super) id: String,
    pub(super) filename: String,
    pub(super) bytes: usize,
    pub(super) created_at: u64,
}

impl FileRecord {
    /// The object for clients.
    pub(super) fn object(&self) -> Json {
        json!({
            "id": self.id, "object": "file", "bytes": self.bytes, "created_at": self.created_at,
            "filename": self.filename, "purpose": "fine-tune", "status": "processed",
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    Queued,
    Running,
    Succeeded,
    Failed,
    Cancelled,
}

impl Status {
    /// Whether the job is over.
    pub(super) fn is_last(self) -> bool {
        match self {
            Status::Queued | Status::Running => false,
            Status::Succeeded | Status::Failed | Status::Cancelled => true,
        }
    }
}

#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Hyperparameters {
    pub(super) n_epochs: usize,
    pub(super) batch_size: usize,
    pub(super) learning_rate_multiplier: f64,
}

#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Event {
    created_at: u64,
    level: String,
    message: String,
    #[serde(rename = "type")]
    kind: String,
    data: Json,
}

/// A training of an adapter, with the news of it.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct JobRecord {
    pub(super) id: String,
    pub(super) created_at: u64,
    pub(super) finished_at: Option<u64>,
    /// The model whose weights stay as they are.
    pub(super) model: String,
    pub(super) suffix: Option<String>,
    pub(super) training_file: String,
    pub(super) hyperparameters: Hyperparameters,
    pub(super) seed: u64,
    pub(super) status: Status,
    pub(super) trained_tokens: Option<usize>,
    /// Why the job has failed: the field of the request that is wrong, if one is, and a message.
    pub(super) error: Option<(Option<String>, String)>,
    pub(super) events: Vec<Event>,
    /// Whether a client has deleted the adapter.
    #[serde(default)]
    pub(super) is_deleted: bool,
}

impl JobRecord {
    /// The name under which the adapter answers.
    pub(super) fn fine_tuned_model(&self) -> String {
        let suffix = self.suffix.as_deref().unwrap_or("taper");
        let number = self.id.trim_start_matches("ftjob-");
        format!("ft:{}:{suffix}:{number}", self.model)
    }

    pub(super) fn add_event(&mut self, message: impl Into<String>, data: Option<Json>) {
        let kind = if data.is_some() { "metrics" } else { "message" };
        self.events.push(Event {
            created_at: since_1970().as_secs(),
            level: if self.error.is_some() { "error".into() } else { "info".into() },
            message: message.into(),
            kind: kind.into(),
            data: data.unwrap_or_default(),
        });
    }

    /// Ends the job.
    pub(super) fn finish(&mut self, status: Status, message: impl Into<String>) {
        self.status = status;
        self.finished_at = Some(since_1970().as_secs());
        self.add_event(message, None);
    }

    /// The object for clients.
    pub(super) fn object(&self) -> Json {
        let succeeded = self.status == Status::Succeeded;
        let error = self.error.as_ref().map(|(param, message)| {
            let code = if param.is_some() { "invalid_training_file" } else { "server_error" };
            json!({"code": code, "message": message, "param": param})
        });
        json!({
            "id": self.id, "object": "fine_tuning.job", "created_at": self.created_at,
            "finished_at": self.finished_at, "model": self.model,
            "fine_tuned_model": succeeded.then(|| self.fine_tuned_model()), "organization_id": "taper",
            "status": self.status, "hyperparameters": self.hyperparameters,
            "method": {"type": "supervised", "supervised": {"hyperparameters": self.hyperparameters}},
            "training_file": self.training_file, "validation_file": null, "result_files": [],
            "trained_tokens": self.trained_tokens, "seed": self.seed, "error": error,
            "user_provided_suffix": self.suffix, "integrations": [],
        })
    }

    /// The objects of the events for clients, the newest first.
    pub(super) fn event_objects(&self) -> Vec<Json> {
        let events = self.events.iter().enumerate().rev().map(|(number, event)| {
            json!({
                "id": format!("ftevent-{}-{number}", self.id), "object": "fine_tuning.job.event",
                "created_at": event.created_at, "level": event.level, "message": event.message,
                "type": event.kind, "data": event.data,
            })
        });
        events.collect()
    }
}

/// Writes a record completely or not at all.
pub(super) fn save<T: Serialize>(path: &Path, record: &T) -> Outcome {
    let bytes = serde_json::to_vec_pretty(record)?;
    Ok(write_whole(path, at(path), |file| file.write_all(&bytes).map_err(at(path)))?)
}

/// The record of a file.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Outcome<T> {
    let bytes = fs::read(path).map_err(at(path))?;
    Ok(serde_json::from_slice(&bytes).map_err(at(path))?)
}
