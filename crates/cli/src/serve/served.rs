//! The models of a server, by their names.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use taper::{
    Device,
    models::{
        Bert,
        generate::LogitsRule,
        guidance::{Grammar, Guide},
        read_config,
        serving::EngineConfig,
        text::Tokenizer,
    },
};

use super::{failure::Failure, worker::Worker};
use crate::{error::Outcome, model};

/// A model that answers requests.
pub(super) struct Served {
    pub(super) name: String,
    /// When it was loaded, in seconds since 1970.
    pub(super) created: u64,
    pub(super) kind: Kind,
    in_flight: AtomicUsize,
}

pub(super) enum Kind {
    Language(Language),
    Sentences(Sentences),
}

/// A model that writes text.
pub(super) struct Language {
    pub(super) tokenizer: Tokenizer,
    pub(super) worker: Worker,
    /// Made for the first request that asks for a grammar.
    guide: OnceLock<Result<Guide, String>>,
    /// The bytes of the tokens. Made for the first request that asks for log-probabilities.
    bytes: OnceLock<Vec<Vec<u8>>>,
}

/// A model that makes vectors of texts.
pub(super) struct Sentences {
    pub(super) tokenizer: Tokenizer,
    /// One batch at a time.
    pub(super) encoder: Mutex<Bert>,
}

impl Language {
    /// The text and the bytes of a token, for reports.
    pub(super) fn token(&self, id: u32) -> (String, Option<&[u8]>) {
        let all = self.bytes.get_or_init(|| self.tokenizer.token_bytes().unwrap_or_default());
        let text = || self.tokenizer.decode(&[id], false).unwrap_or_default();
        let bytes = all.get(id as usize).map(Vec::as_slice);
        (bytes.map_or_else(text, |bytes| String::from_utf8_lossy(bytes).into_owned()), bytes)
    }

    /// A rule under which a text matches a grammar.
    pub(super) fn rule(&self, param: &'static str, grammar: &Grammar) -> Result<LogitsRule, Failure> {
        let made = || Guide::new(&self.tokenizer).map_err(|error| error.kind().to_string());
        let guide = self.guide.get_or_init(made).as_ref().map_err(|error| Failure::field(param, error))?;
        guide.rule(grammar).map_err(|error| Failure::field(param, error.kind().to_string()))
    }
}

/// A place among the requests that wait or run, free again when it is dropped.
pub(super) struct Place(Arc<Served>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Served {
    /// Loads a model: `PATH`, a name of the hub, or `NAME=PATH`.
    pub(super) fn load(argument: &str, device: &Device, config: &EngineConfig) -> Outcome<Served> {
        let (name, path) = match argument.split_once('=') {
            Some((name, path)) => (name.to_string(), path),
            None => (default_name(argument), argument),
        };
        let found = model::find(Path::new(path))?;
        let kind = if is_encoder(&found)? {
            let encoder = Mutex::new(Bert::from_folder(&found, device)?);
            Kind::Sentences(Sentences { tokenizer: Tokenizer::from_folder(&found)?, encoder })
        } else {
            let model::Loaded { model, tokenizer } = model::load(&found, device)?;
            let worker = Worker::start(&name, model, config.clone())?;
            Kind::Language(Language { tokenizer, worker, guide: OnceLock::new(), bytes: OnceLock::new() })
        };
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Ok(Served { name, created, kind, in_flight: AtomicUsize::new(0) })
    }

    /// The number of requests that wait or run.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Takes a place if there are fewer than `limit`.
    pub(super) fn place(self: &Arc<Self>, limit: usize) -> Result<Place, Failure> {
        // The place is taken first, so that two requests cannot both get the last one.
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        let place = Place(self.clone());
        if before >= limit { Err(Failure::full(limit)) } else { Ok(place) }
    }

    pub(super) fn language(&self) -> Result<&Language, Failure> {
        match &self.kind {
            Kind::Language(language) => Ok(language),
            Kind::Sentences(_) => Err(Failure::field(
                "model",
                format!("{:?} makes vectors of texts, but writes none", self.name),
            )),
        }
    }

    pub(super) fn sentences(&self) -> Result<&Sentences, Failure> {
        match &self.kind {
            Kind::Sentences(sentences) => Ok(sentences),
            Kind::Language(_) => {
                Err(Failure::field("model", format!("{:?} writes text, but makes no vectors", self.name)))
            }
        }
    }
}

/// A name of the hub as it is; the last part of a path, without the ending of a file.
fn default_name(argument: &str) -> String {
    let path = Path::new(argument);
    if !path.exists() {
        return argument.to_string();
    }
    let last = if path.is_dir() { path.file_name() } else { path.file_stem() };
    last.map_or_else(|| argument.to_string(), |name| name.to_string_lossy().into_owned())
}

/// Whether a model is an encoder of the family of BERT.
fn is_encoder(path: &Path) -> Outcome<bool> {
    if !path.is_dir() {
        return Ok(false);
    }
    let config: serde_json::Value = read_config(path)?;
    let kind = config.get("model_type").and_then(|kind| kind.as_str());
    Ok(matches!(kind, Some("bert" | "roberta" | "xlm-roberta" | "distilbert")))
}
