//! [`Worker`]: the thread that owns a model and runs its generations. This is the only file that knows the
//! engine.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
};

use taper::models::{
    generate::{GenerationConfig, Token},
    serving::{Engine, EngineConfig, Event, FinishReason, OwnedModel, Request, RequestId},
};
use tokio::sync::{mpsc as channel, oneshot};

use super::{
    adapters::{Adapter, Loaded},
    failure::Failure,
};
use crate::error::Outcome;

/// A text to generate.
pub(super) struct Job {
    pub(super) prompt: Vec<u32>,
    pub(super) config: GenerationConfig,
    /// The number of most likely tokens that are reported at each token.
    pub(super) top_tokens: usize,
}

/// News of a text.
pub(super) enum Update {
    Token {
        token: Token,
        /// The most likely tokens in its place.
        top: Vec<Token>,
    },
    /// The text is complete: by an end token, or else by its limit of tokens.
    Finished {
        by_end_token: bool,
    },
    Failed(String),
}

/// Where the updates of several texts arrive, each with the number of its text.
pub(super) type Updates = channel::UnboundedReceiver<(usize, Update)>;

/// A message to the thread.
enum Message {
    Write(Submission),
    /// The adapter is not needed in memory any more.
    Forget(Arc<Adapter>),
}

struct Submission {
    job: Job,
    /// The adapter by which the text is written.
    adapter: Option<Arc<Adapter>>,
    index: usize,
    updates: channel::UnboundedSender<(usize, Update)>,
    cancelled: Arc<AtomicBool>,
    /// Gets the engine's answer: whether it accepts the job.
    accepted: oneshot::Sender<Result<(), Failure>>,
}

/// A running text, as the thread sees it.
struct Running {
    index: usize,
    updates: channel::UnboundedSender<(usize, Update)>,
    cancelled: Arc<AtomicBool>,
}

/// The handle of the thread. When it is dropped, it waits for the end of the thread, so that the memory of
/// the model is free.
pub(super) struct Worker {
    /// None once the thread should end.
    messages: Option<mpsc::Sender<Message>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.messages = None;
        // A thread that has panicked has ended too.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Cancels its text when it is dropped.
pub(super) struct Ticket(Arc<AtomicBool>);

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Worker {
    /// Starts the thread of a model, which has at most `max_adapters` in memory.
    pub(super) fn start(
        name: &str,
        model: OwnedModel,
        config: EngineConfig,
        max_adapters: usize,
    ) -> Outcome<Worker> {
        let (messages, received) = mpsc::channel();
        let (made, answer) = mpsc::channel();
        let run = move || match Engine::new(model, config) {
            Ok(mut engine) => {
                drop(made);
                run(&mut engine, Loaded::new(max_adapters), &received);
            }
            Err(error) => {
                let _ = made.send(error);
            }
        };
        let thread = thread::Builder::new().name(format!("model {name}")).spawn(run)?;
        match answer.recv() {
            Ok(error) => Err(error.into()),
            Err(mpsc::RecvError) => Ok(Worker { messages: Some(messages), thread: Some(thread) }),
        }
    }

    /// Gives jobs to the thread, for an adapter or for the model itself. The texts end early when their
    /// tickets or the updates are dropped.
    pub(super) async fn submit(
        &self,
        jobs: Vec<Job>,
        adapter: Option<&Arc<Adapter>>,
    ) -> Result<(Vec<Ticket>, Updates), Failure> {
        let gone = || Failure::server("the thread of the model has ended");
        let (sender, updates) = channel::unbounded_channel();
        let mut tickets = Vec::new();
        for (index, job) in jobs.into_iter().enumerate() {
            let cancelled = Arc::new(AtomicBool::new(false));
            tickets.push(Ticket(cancelled.clone()));
            let (accepted, answer) = oneshot::channel();
            let (adapter, updates) = (adapter.cloned(), sender.clone());
            let submission = Submission { job, adapter, index, updates, cancelled, accepted };
            let messages = self.messages.as_ref().ok_or_else(gone)?;
            messages.send(Message::Write(submission)).map_err(|_| gone())?;
            answer.await.map_err(|_| gone())??;
        }
        Ok((tickets, updates))
    }

    /// Lets the memory of an adapter go, once no text has it.
    pub(super) fn forget(&self, adapter: &Arc<Adapter>) {
        if let Some(messages) = &self.messages {
            // A thread that has ended has none.
            let _ = messages.send(Message::Forget(adapter.clone()));
        }
    }
}

/// Runs until the handle of the thread is dropped.
fn run(engine: &mut Engine, mut adapters: Loaded, messages: &mpsc::Receiver<Message>) {
    let mut running = BTreeMap::new();
    loop {
        // With nothing to do, the thread waits for the next message.
        let first = match engine.is_idle() {
            true => match messages.recv() {
                Ok(message) => Some(message),
                Err(mpsc::RecvError) => return,
            },
            false => None,
        };
        for message in first.into_iter().chain(messages.try_iter()) {
            match message {
                Message::Write(submission) => add(engine, &mut adapters, submission, &mut running),
                Message::Forget(adapter) => adapters.forget(engine, &adapter),
            }
        }
        running.retain(|id, text: &mut Running| {
            let is_wanted = !text.updates.is_closed() && !text.cancelled.load(Ordering::Relaxed);
            if !is_wanted {
                engine.cancel(*id);
            }
            is_wanted
        });
        for (id, event) in engine.step() {
            report(id, event, &mut running);
        }
    }
}

fn add(
    engine: &mut Engine,
    adapters: &mut Loaded,
    submission: Submission,
    running: &mut BTreeMap<RequestId, Running>,
) {
    let Submission { job, adapter, index, updates, cancelled, accepted } = submission;
    let Job { prompt, config, top_tokens } = job;
    let adapter = adapter.map(|adapter| adapters.id(engine, &adapter)).transpose();
    let added = adapter.and_then(|adapter| {
        let added = engine.add(Request { prompt, config, top_tokens, adapter });
        added.map_err(|error| Failure::request(error.kind().to_string()))
    });
    let answer = added.map(|id| {
        running.insert(id, Running { index, updates, cancelled });
    });
    // A client that has gone away is noticed by its updates.
    let _ = accepted.send(answer);
}

fn report(id: RequestId, event: Event, running: &mut BTreeMap<RequestId, Running>) {
    let Some(text) = running.get(&id) else { return };
    let (update, is_last) = match event {
        Event::Token { token, top } => (Update::Token { token, top }, false),
        Event::Finished(reason) => {
            let by_end_token = match reason {
                FinishReason::Stop => true,
                FinishReason::Length => false,
            };
            (Update::Finished { by_end_token }, true)
        }
        Event::Failed(error) => (Update::Failed(error.kind().to_string()), true),
    };
    let _ = text.updates.send((text.index, update));
    if is_last {
        running.remove(&id);
    }
}
