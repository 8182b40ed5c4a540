//! The thread that runs the jobs, one after the other.

use std::{
    fs,
    sync::{Arc, mpsc},
    thread,
};

use serde_json::json;
use taper::{
    Generator,
    models::text::ChatExamples,
    nn::{
        Module,
        lora::{self, LoraConfig, Targets},
    },
    optim::{AdamW, AdamWConfig},
    weights::save_peft,
};

use super::{FineTuning, Status, record::JobRecord};
use crate::{
    error::{Outcome, line, read_text},
    language::training::{Progress, Training},
    model,
    serve::pool::Pool,
};

/// The rank of adapters, and the number over it by which their products are multiplied, as `taper fine-tune`
/// has them; the learning rate too, which a job multiplies.
const RANK: usize = 8;
const ALPHA: f64 = 16.0;
const LEARNING_RATE: f64 = 2e-3;
/// Conversations whose gradients are computed together; a batch of more is computed in parts.
const CONVERSATIONS_AT_ONCE: usize = 2;
/// Events with the loss of a step that a job has at most.
const MAX_METRICS: usize = 200;

/// How a job has ended.
enum Ended {
    Trained {
        tokens: usize,
    },
    /// A client has cancelled it.
    Cancelled,
    /// The training file is wrong.
    BadFile(String),
}

/// Starts the thread, which ends with the process.
pub(super) fn start(tuning: &Arc<FineTuning>, pool: &Arc<Pool>, jobs: mpsc::Receiver<String>) -> Outcome {
    let (tuning, pool) = (tuning.clone(), pool.clone());
    let run = move || {
        for id in jobs {
            run(&tuning, &pool, &id);
        }
    };
    thread::Builder::new().name("fine-tuning".into()).spawn(run)?;
    Ok(())
}

/// Runs a job, and writes how it ended.
fn run(tuning: &FineTuning, pool: &Pool, id: &str) {
    let begun = tuning.change(id, true, |job| {
        (job.status == Status::Queued || job.status == Status::Running).then(|| {
            job.status = Status::Running;
            job.clone()
        })
    });
    let Some(Ok(Some(job))) = begun else { return };
    // On a thread of its own, so that a panic ends this job alone.
    let ended = thread::scope(|scope| scope.spawn(|| train(tuning, pool, &job)).join());
    let ended = ended.unwrap_or_else(|_| Err("the training has panicked".into()));
    let written = tuning.change(id, true, |job| match ended {
        // Also after the last step.
        _ if job.status == Status::Cancelled => {}
        Ok(Ended::Cancelled) => {}
        Ok(Ended::Trained { tokens }) => {
            job.trained_tokens = Some(tokens);
            job.finish(Status::Succeeded, format!("The adapter answers as {}", job.fine_tuned_model()));
            // A client that sees the end of the job finds the model.
            tuning.offer(job, pool);
        }
        Ok(Ended::BadFile(message)) => {
            job.error = Some((Some("training_file".into()), message.clone()));
            job.finish(Status::Failed, message);
        }
        Err(error) => {
            // The client does not get the paths of this machine.
            eprintln!("error: {id}: {}", line(&*error));
            job.error = Some((None, "the training has failed; the server's log says why".into()));
            job.finish(Status::Failed, "The training has failed");
        }
    });
    if let Some(Err(error)) = written {
        eprintln!("error: {id}: {}", line(&*error));
    }
}

/// Trains the adapter of a job and writes it. It begins with the last epoch of a server before.
fn train(tuning: &FineTuning, pool: &Pool, job: &JobRecord) -> Outcome<Ended> {
    let base = pool.find(&job.model).ok_or_else(|| format!("there is no model {:?}", job.model))?;
    let folder = tuning.job_folder(&job.id);
    let path = tuning.data_path(&job.training_file);
    if !path.exists() {
        return Ok(Ended::BadFile("the file was deleted before the job began".into()));
    }
    // A model of its own: requests read the frozen one at the same time. Weights of files are mapped, so
    // that both have the same memory on the CPU.
    let model::Loaded { model, tokenizer, .. } = model::load(&base.path, pool.device())?;
    let data = match ChatExamples::from_json_lines(&read_text(&path)?, &tokenizer) {
        Ok(data) => data,
        Err(error) => return Ok(Ended::BadFile(error.kind().to_string())),
    };
    let rng = Generator::seed(job.seed, &taper::cpu());
    let config = LoraConfig::new(RANK).alpha(ALPHA).dropout(0.05).targets(Targets::AllLinear);
    let adapter = lora::attach(&*model, &config, &rng)?;
    model.train();
    let hyper = job.hyperparameters;
    let checkpoint = folder.join("training.safetensors");
    let training = Training {
        model: &*model,
        adapter: &adapter,
        data: &data,
        epochs: hyper.n_epochs,
        group: hyper.batch_size,
        batch: CONVERSATIONS_AT_ONCE,
        seed: job.seed,
        checkpoint: Some(&checkpoint),
    };
    let config = AdamWConfig {
        lr: LEARNING_RATE * hyper.learning_rate_multiplier,
        weight_decay: 0.0,
        ..Default::default()
    };
    let mut report = |progress: &Progress| tell(tuning, &job.id, progress);
    if !training.run(AdamW::new(adapter.parameters(), config), &mut report)? {
        return Ok(Ended::Cancelled);
    }
    save_peft(&adapter, tuning.adapter_folder(&job.id), None)?;
    fs::remove_file(&checkpoint)?;
    let tokens: usize = data.iter().map(|example| example.ids().len()).sum();
    Ok(Ended::Trained { tokens: tokens * hyper.n_epochs })
}

/// Adds the news of a training to the job; false if it is cancelled.
fn tell(tuning: &FineTuning, id: &str, progress: &Progress) -> bool {
    let is_epoch = matches!(progress, Progress::Epoch { .. });
    let changed = tuning.change(id, is_epoch, |job| {
        match *progress {
            Progress::Continued { epochs } => {
                job.add_event(format!("The training goes on after epoch {epochs}"), None);
            }
            Progress::Step { number, of, loss, tokens } => {
                if number % of.div_ceil(MAX_METRICS) == 0 {
                    let data = json!({"step": number, "train_loss": loss, "tokens": tokens});
                    job.add_event(format!("Step {number}/{of}: training loss={loss:.4}"), Some(data));
                }
            }
            Progress::Epoch { number, loss, .. } => {
                job.add_event(format!("Epoch {number} is done: training loss={loss:.4}"), None);
            }
        }
        job.status == Status::Running
    });
    match changed {
        Some(Ok(goes_on)) => goes_on,
        Some(Err(error)) => {
            eprintln!("error: {id}: {}", line(&*error));
            true
        }
        None => false,
    }
}
