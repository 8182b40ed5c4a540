//! `/v1/files` and `/v1/fine_tuning/jobs`: adapters that are trained beside the frozen weights of a language
//! model of the server, and then answer under names of their own.
//!
//! The folder of `--jobs` has a file and a record for each upload, and a folder for each job: its record, the
//! state of its training after each epoch, and the adapter, until a client deletes the model. A server that
//! is started again with the folder offers the adapters, and goes on with jobs that were not over.
//! [`trainer`] runs one job at a time.

mod record;
mod trainer;

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, mpsc},
};

use axum::{
    extract::{FromRequestParts, Path as Segment, Query, Request, State},
    http::request::Parts,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use taper::tensor_core::{file::write_whole, lock};

use self::record::{FileRecord, Hyperparameters, JobRecord, Status};
use super::{
    Server,
    failure::{Failure, json_response},
    form::Form,
    pool::Pool,
    served::Kind,
    since_1970,
};
use crate::error::{Outcome, at, line};

/// The hyperparameters that a request leaves to the server.
const DEFAULTS: Hyperparameters =
    Hyperparameters { n_epochs: 3, batch_size: 4, learning_rate_multiplier: 1.0 };
/// The greatest length of a suffix, which is OpenAI's.
const MAX_SUFFIX: usize = 64;
/// The file in the folder of a job that has its record.
const JOB_RECORD: &str = "job.json";
/// The number of objects of a list, if the request does not say it.
const LIST_LENGTH: usize = 20;

/// The files and jobs of a server.
pub(super) struct FineTuning {
    folder: PathBuf,
    records: Mutex<Records>,
    /// The ids of jobs, for the thread that runs them.
    queue: mpsc::Sender<String>,
}

#[derive(Default)]
struct Records {
    files: BTreeMap<String, FileRecord>,
    jobs: BTreeMap<String, JobRecord>,
}

impl FineTuning {
    /// Reads the records of a folder, offers its adapters, and starts the thread that trains.
    pub(super) fn start(folder: &Path, pool: &Arc<Pool>) -> Outcome<Arc<FineTuning>> {
        let mut records = Records::default();
        for path in entries(&folder.join("files"))?.into_iter().filter(|path| ends_with(path, "json")) {
            let file: FileRecord = record::read(&path)?;
            records.files.insert(file.id.clone(), file);
        }
        for path in entries(&folder.join("jobs"))? {
            // A server that was killed may have made a folder and not yet its record.
            let path = path.join(JOB_RECORD);
            if path.exists() {
                let job: JobRecord = record::read(&path)?;
                records.jobs.insert(job.id.clone(), job);
            }
        }
        let (queue, received) = mpsc::channel();
        let tuning = FineTuning { folder: folder.to_path_buf(), records: Mutex::new(records), queue };
        let tuning = Arc::new(tuning);
        let jobs: Vec<JobRecord> = lock(&tuning.records).jobs.values().cloned().collect();
        for job in jobs {
            match job.status {
                // The server before may have been killed while it deleted the files.
                Status::Succeeded if job.is_deleted => tuning.remove_adapter(&job.id)?,
                Status::Succeeded => tuning.offer(&job, pool),
                Status::Queued | Status::Running if pool.find(&job.model).is_some() => {
                    tuning.queue.send(job.id)?;
                }
                Status::Queued | Status::Running => {
                    eprintln!("[{} does not go on: there is no model {:?}]", job.id, job.model);
                }
                Status::Failed | Status::Cancelled => {}
            }
        }
        trainer::start(&tuning, pool, received)?;
        Ok(tuning)
    }

    fn job_folder(&self, id: &str) -> PathBuf {
        self.folder.join("jobs").join(id)
    }

    /// Writes the record of a job.
    fn save(&self, job: &JobRecord) -> Outcome {
        record::save(&self.job_folder(&job.id).join(JOB_RECORD), job)
    }

    fn adapter_folder(&self, id: &str) -> PathBuf {
        self.job_folder(id).join("adapter")
    }

    /// Removes the files of a job's adapter, if they are there.
    fn remove_adapter(&self, id: &str) -> Outcome {
        let folder = self.adapter_folder(id);
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(&folder)(error).into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn data_path(&self, file: &str) -> PathBuf {
        self.folder.join("files").join(format!("{file}.jsonl"))
    }

    /// Makes the adapter of a job a model of the server.
    fn offer(&self, job: &JobRecord, pool: &Pool) {
        match pool.find(&job.model) {
            Some(base) => {
                let folder = self.adapter_folder(&job.id);
                pool.add(base.with_adapter(&job.fine_tuned_model(), folder, job.created_at));
            }
            None => {
                eprintln!("[{} is not offered: there is no model {:?}]", job.fine_tuned_model(), job.model)
            }
        }
    }

    /// Changes the record of a job, and writes it if `is_kept`; none if there is no such job.
    fn change<R>(
        &self,
        id: &str,
        is_kept: bool,
        change: impl FnOnce(&mut JobRecord) -> R,
    ) -> Option<Outcome<R>> {
        let mut records = lock(&self.records);
        let job = records.jobs.get_mut(id)?;
        let result = change(job);
        let written = if is_kept { self.save(job) } else { Ok(()) };
        Some(written.map(|()| result))
    }
}

/// The paths in a folder, which is made if it is missing, in the order of their names.
fn entries(folder: &Path) -> Outcome<Vec<PathBuf>> {
    fs::create_dir_all(folder).map_err(at(folder))?;
    let found = fs::read_dir(folder).map_err(at(folder))?;
    let mut paths = found.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, std::io::Error>>()?;
    paths.sort();
    Ok(paths)
}

fn ends_with(path: &Path, ending: &str) -> bool {
    path.extension().is_some_and(|found| found == ending)
}

/// A part of a list, from the query of a path.
#[derive(Deserialize)]
pub(super) struct Page {
    limit: Option<usize>,
    /// The id of the object before the first one.
    after: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for Page {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Page, Failure> {
        let page = Query::from_request_parts(parts, state).await;
        page.map(|Query(page)| page).map_err(|error| Failure::request(error.body_text()))
    }
}

/// The answer with a part of a list of objects.
fn list(objects: Vec<Json>, page: &Page) -> Response {
    let first = page.after.as_ref().map_or(0, |after| {
        objects.iter().position(|object| object["id"] == after.as_str()).map_or(objects.len(), |at| at + 1)
    });
    let rest = &objects[first..];
    let part = &rest[..rest.len().min(page.limit.unwrap_or(LIST_LENGTH))];
    let id = |object: Option<&Json>| object.map(|object| object["id"].clone());
    json_response(&json!({
        "object": "list", "data": part, "has_more": part.len() < rest.len(),
        "first_id": id(part.first()), "last_id": id(part.last()),
    }))
}

impl Server {
    fn fine_tuning(&self) -> Result<&FineTuning, Failure> {
        self.fine_tuning.as_deref().ok_or_else(Failure::no_jobs)
    }
}

/// A fault of the server's files, which its log names.
fn not_kept(error: Box<dyn std::error::Error + Send + Sync>) -> Failure {
    eprintln!("error: {}", line(&*error));
    Failure::server("a file could not be written; the server's log says why")
}

/// `POST /v1/files`: keeps a file of conversations, one a line.
pub(super) async fn upload(State(server): State<Arc<Server>>, request: Request) -> Result<Response, Failure> {
    let tuning = server.fine_tuning()?;
    let mut form = Form::read(server.limits.max_file, request).await?;
    if form.text("purpose")? != Some("fine-tune") {
        return Err(Failure::field("purpose", "this server keeps files of the purpose \"fine-tune\""));
    }
    let file = form.take("file")?;
    let id = format!("file-{:x}", server.random_seed());
    let record = FileRecord {
        id: id.clone(),
        filename: file.file_name.unwrap_or_else(|| "data.jsonl".into()),
        bytes: file.bytes.len(),
        created_at: since_1970().as_secs(),
    };
    let path = tuning.data_path(&id);
    // The record is written last: a file without one was never there.
    write_whole(&path, at(&path), |to| to.write_all(&file.bytes).map_err(at(&path)))
        .map_err(|error| not_kept(error.into()))?;
    record::save(&path.with_extension("json"), &record).map_err(not_kept)?;
    let object = record.object();
    lock(&tuning.records).files.insert(id, record);
    Ok(json_response(&object))
}

/// `GET /v1/files`.
pub(super) async fn files(State(server): State<Arc<Server>>, page: Page) -> Result<Response, Failure> {
    let records = lock(&server.fine_tuning()?.records);
    Ok(list(records.files.values().rev().map(FileRecord::object).collect(), &page))
}

/// `GET /v1/files/{id}`.
pub(super) async fn file(
    State(server): State<Arc<Server>>,
    Segment(id): Segment<String>,
) -> Result<Response, Failure> {
    let records = lock(&server.fine_tuning()?.records);
    let file = records.files.get(&id).ok_or_else(|| Failure::no_object("file", &id))?;
    Ok(json_response(&file.object()))
}

/// `GET /v1/files/{id}/content`.
pub(super) async fn content(
    State(server): State<Arc<Server>>,
    Segment(id): Segment<String>,
) -> Result<Response, Failure> {
    let tuning = server.fine_tuning()?;
    if !lock(&tuning.records).files.contains_key(&id) {
        return Err(Failure::no_object("file", &id));
    }
    let bytes = fs::read(tuning.data_path(&id)).map_err(|error| not_kept(error.into()))?;
    Ok(bytes.into_response())
}

/// `DELETE /v1/files/{id}`. A job that has read the file goes on.
pub(super) async fn delete(
    State(server): State<Arc<Server>>,
    Segment(id): Segment<String>,
) -> Result<Response, Failure> {
    let tuning = server.fine_tuning()?;
    lock(&tuning.records).files.remove(&id).ok_or_else(|| Failure::no_object("file", &id))?;
    let path = tuning.data_path(&id);
    for path in [path.with_extension("json"), path] {
        fs::remove_file(&path).map_err(|error| not_kept(at(&path)(error).into()))?;
    }
    Ok(json_response(&json!({"id": id, "object": "file", "deleted": true})))
}

/// `DELETE /v1/models/{model}`: removes an adapter and its files. Texts that it is writing go on.
pub(super) async fn delete_model(
    State(server): State<Arc<Server>>,
    Segment(name): Segment<String>,
) -> Result<Response, Failure> {
    if server.pool.find(&name).is_some_and(|model| model.adapter.is_none()) {
        let message = format!("{name:?} is a model of the server's command line: only adapters are deleted");
        return Err(Failure::not_deleted(message));
    }
    let tuning = server.fine_tuning.as_deref().ok_or_else(|| Failure::no_model(&name))?;
    let mut records = lock(&tuning.records);
    let job = records.jobs.values_mut().find(|job| job.fine_tuned_model() == name && !job.is_deleted);
    let job = job.ok_or_else(|| Failure::no_model(&name))?;
    match job.status {
        Status::Succeeded => {}
        Status::Queued | Status::Running => {
            let message = format!("the job {} that trains {name:?} is not over: cancel it", job.id);
            return Err(Failure::not_deleted(message));
        }
        Status::Failed | Status::Cancelled => return Err(Failure::no_model(&name)),
    }
    // A server that is killed after the record is written removes the files when it is started again.
    let deleted = JobRecord { is_deleted: true, ..job.clone() };
    tuning.save(&deleted).map_err(not_kept)?;
    *job = deleted;
    server.pool.remove(&name);
    tuning.remove_adapter(&job.id).map_err(not_kept)?;
    Ok(json_response(&json!({"id": name, "object": "model", "deleted": true})))
}

/// A number, or "auto" for the server's choice.
#[derive(Deserialize)]
#[serde(untagged)]
enum Auto<T> {
    Number(T),
    Word(String),
}

fn chosen<T>(field: &'static str, given: Option<Auto<T>>, default: T) -> Result<T, Failure> {
    match given {
        None => Ok(default),
        Some(Auto::Number(number)) => Ok(number),
        Some(Auto::Word(word)) if word == "auto" => Ok(default),
        Some(Auto::Word(word)) => Err(Failure::field(field, format!("{word:?}: give a number, or \"auto\""))),
    }
}

#[derive(Default, Deserialize)]
struct Wishes {
    n_epochs: Option<Auto<usize>>,
    batch_size: Option<Auto<usize>>,
    learning_rate_multiplier: Option<Auto<f64>>,
}

impl Wishes {
    fn hyperparameters(self) -> Result<Hyperparameters, Failure> {
        let wished = Hyperparameters {
            n_epochs: chosen("n_epochs", self.n_epochs, DEFAULTS.n_epochs)?,
            batch_size: chosen("batch_size", self.batch_size, DEFAULTS.batch_size)?,
            learning_rate_multiplier: chosen(
                "learning_rate_multiplier",
                self.learning_rate_multiplier,
                DEFAULTS.learning_rate_multiplier,
            )?,
        };
        let rate = wished.learning_rate_multiplier;
        if !(1..=1000).contains(&wished.n_epochs) {
            return Err(Failure::field("n_epochs", "give a number from 1 to 1000"));
        }
        if !(1..=256).contains(&wished.batch_size) {
            return Err(Failure::field("batch_size", "give a number from 1 to 256"));
        }
        if !(rate.is_finite() && rate > 0.0) {
            return Err(Failure::field("learning_rate_multiplier", "give a finite number above 0"));
        }
        Ok(wished)
    }
}

#[derive(Deserialize)]
struct Supervised {
    hyperparameters: Option<Wishes>,
}

#[derive(Deserialize)]
struct Method {
    #[serde(rename = "type")]
    kind: String,
    supervised: Option<Supervised>,
}

#[derive(Deserialize)]
pub(super) struct JobRequest {
    model: String,
    training_file: String,
    validation_file: Option<String>,
    suffix: Option<String>,
    seed: Option<u64>,
    hyperparameters: Option<Wishes>,
    method: Option<Method>,
}

impl JobRequest {
    /// The hyperparameters, which stand in the method or, in older requests, beside it.
    fn hyperparameters(&mut self) -> Result<Hyperparameters, Failure> {
        let wishes = match self.method.take() {
            Some(method) if method.kind != "supervised" => {
                return Err(Failure::field("method", "this server trains by the method \"supervised\""));
            }
            Some(method) => method.supervised.and_then(|supervised| supervised.hyperparameters),
            None => None,
        };
        wishes.or(self.hyperparameters.take()).unwrap_or_default().hyperparameters()
    }
}

/// Checks the parts of a model's name that a client chose.
fn check_suffix(suffix: &str) -> Result<(), Failure> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match (1..=MAX_SUFFIX).contains(&suffix.len()) && suffix.chars().all(is_plain) {
        true => Ok(()),
        false => {
            let message = format!("give 1 to {MAX_SUFFIX} letters, digits, and - _ .");
            Err(Failure::field("suffix", message))
        }
    }
}

/// `POST /v1/fine_tuning/jobs`.
pub(super) fn create(server: &Server, mut request: JobRequest) -> Result<Response, Failure> {
    let tuning = server.fine_tuning()?;
    let base = server.pool.find(&request.model).ok_or_else(|| Failure::no_model(&request.model))?;
    base.check(Kind::Language)?;
    if base.adapter.is_some() {
        let message = format!("{:?} has an adapter already: train one beside its base", request.model);
        return Err(Failure::field("model", message));
    }
    if !lock(&tuning.records).files.contains_key(&request.training_file) {
        let message = format!("there is no file {:?}; send one to /v1/files", request.training_file);
        return Err(Failure::field("training_file", message));
    }
    if request.validation_file.is_some() {
        return Err(Failure::field("validation_file", "this server has no validation of jobs"));
    }
    if let Some(suffix) = &request.suffix {
        check_suffix(suffix)?;
    }
    let hyperparameters = request.hyperparameters()?;
    let mut job = JobRecord {
        id: format!("ftjob-{:x}", server.random_seed()),
        created_at: since_1970().as_secs(),
        finished_at: None,
        model: request.model,
        suffix: request.suffix,
        training_file: request.training_file,
        hyperparameters,
        seed: request.seed.unwrap_or_else(|| server.random_seed()),
        status: Status::Queued,
        trained_tokens: None,
        error: None,
        events: Vec::new(),
        is_deleted: false,
    };
    job.add_event("The job is queued", None);
    let folder = tuning.job_folder(&job.id);
    fs::create_dir_all(&folder).map_err(|error| not_kept(at(&folder)(error).into()))?;
    tuning.save(&job).map_err(not_kept)?;
    let (id, object) = (job.id.clone(), job.object());
    lock(&tuning.records).jobs.insert(id.clone(), job);
    tuning.queue.send(id).map_err(|_| Failure::server("the thread of the jobs has ended"))?;
    Ok(json_response(&object))
}

/// `GET /v1/fine_tuning/jobs`.
pub(super) async fn jobs(State(server): State<Arc<Server>>, page: Page) -> Result<Response, Failure> {
    let records = lock(&server.fine_tuning()?.records);
    Ok(list(records.jobs.values().rev().map(JobRecord::object).collect(), &page))
}

/// `GET /v1/fine_tuning/jobs/{id}`.
pub(super) async fn job(
    State(server): State<Arc<Server>>,
    Segment(id): Segment<String>,
) -> Result<Response, Failure> {
    let records = lock(&server.fine_tuning()?.records);
    let job = records.jobs.get(&id).ok_or_else(|| Failure::no_object("job", &id))?;
    Ok(json_response(&job.object()))
}

/// `GET /v1/fine_tuning/jobs/{id}/events`.
pub(super) async fn events(
    State(server): State<Arc<Server>>,
    Segment(id): Segment<String>,
    page: Page,
) -> Result<Response, Failure> {
    let records = lock(&server.fine_tuning()?.records);
    let job = records.jobs.get(&id).ok_or_else(|| Failure::no_object("job", &id))?;
    Ok(list(job.event_objects(), &page))
}

/// `POST /v1/fine_tuning/jobs/{id}/cancel`. A training ends after its present step.
pub(super) async fn cancel(
    State(server): State<Arc<Server>>,
    Segment(id): Segment<String>,
) -> Result<Response, Failure> {
    let changed = server.fine_tuning()?.change(&id, true, |job| match job.status.is_last() {
        true => Err(Failure::field("id", "the job is over already")),
        false => {
            job.finish(Status::Cancelled, "The job is cancelled");
            Ok(job.object())
        }
    });
    let object = changed.ok_or_else(|| Failure::no_object("job", &id))?.map_err(not_kept)??;
    Ok(json_response(&object))
}
