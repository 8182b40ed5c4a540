//! [`Listed`]: a model of the command line, by its name; [`Served`]: the same in memory.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock},
    time::{SystemTime, UNIX_EPOCH},
};

use taper::{
    Device,
    models::{
        Bert, BertClassifier, BertConfig,
        generate::LogitsRule,
        guidance::{Grammar, Guide},
        read_config,
        serving::EngineConfig,
        text::Tokenizer,
    },
    weights,
};

use super::{adapters::Adapter, failure::Failure, tools::AnswerFormat, worker::Worker};
use crate::{error::Outcome, model, pictures::PictureReader, speech::Speech};

/// The requests that a model answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Language,
    Sentences,
    Reranker,
    Speech,
}

impl Kind {
    /// The kind of the model in a file or a folder, by its configuration.
    fn of(path: &Path) -> Outcome<Kind> {
        if !path.is_dir() {
            return Ok(Kind::Language);
        }
        let config: serde_json::Value = read_config(path)?;
        Ok(match config.get("model_type").and_then(|kind| kind.as_str()) {
            Some("bert" | "roberta" | "xlm-roberta" | "distilbert") => {
                let names = config.get("architectures").and_then(|names| names.as_array());
                let is_classifier = names.into_iter().flatten().any(|name| {
                    name.as_str().is_some_and(|name| name.ends_with("ForSequenceClassification"))
                });
                let encoder: BertConfig = read_config(path)?;
                if is_classifier && encoder.classes() == 1 { Kind::Reranker } else { Kind::Sentences }
            }
            Some("whisper") => Kind::Speech,
            _ => Kind::Language,
        })
    }

    fn what_it_does(self) -> &'static str {
        match self {
            Kind::Language => "writes text",
            Kind::Sentences => "makes vectors of texts",
            Kind::Reranker => "ranks documents",
            Kind::Speech => "writes down speech",
        }
    }
}

/// A model that requests may name, in memory or not.
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) path: PathBuf,
    /// The adapter beside the weights of another model, if it is one.
    pub(super) adapter: Option<Arc<Adapter>>,
    /// The bytes of its weights as the files have them.
    pub(super) bytes: u64,
    /// When the server found it, in seconds since 1970.
    pub(super) created: u64,
}

impl Listed {
    /// Finds a model: `PATH`, a name of the hub, or `NAME=PATH`. It is downloaded if need be, but not loaded.
    pub(super) fn find(argument: &str) -> Outcome<Listed> {
        let (name, path) = match argument.split_once('=') {
            Some((name, path)) => (name.to_string(), path),
            None => (default_name(argument), argument),
        };
        let path = model::find(Path::new(path))?;
        let bytes = weights::open(&path)?.tensors().filter_map(|(_, tensor)| tensor.bytes()).sum();
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Ok(Listed { name, kind: Kind::of(&path)?, path, adapter: None, bytes, created })
    }

    /// The same model with an adapter.
    pub(super) fn with_adapter(&self, name: &str, folder: PathBuf, created: u64) -> Listed {
        let (name, base) = (name.to_string(), self.name.clone());
        let adapter = Adapter { name: name.clone(), base, folder, ..Default::default() };
        let (path, adapter) = (self.path.clone(), Some(Arc::new(adapter)));
        Listed { name, kind: self.kind, path, adapter, bytes: self.bytes, created }
    }

    /// An error for a request of another kind.
    pub(super) fn check(&self, wanted: Kind) -> Result<(), Failure> {
        match self.kind == wanted {
            true => Ok(()),
            false => Err(wrong_kind(&self.name, self.kind, wanted)),
        }
    }
}

fn wrong_kind(name: &str, kind: Kind, wanted: Kind) -> Failure {
    let (does, needed) = (kind.what_it_does(), wanted.what_it_does());
    Failure::field("model", format!("{name:?} {does}; this path needs a model that {needed}"))
}

/// A model in memory, which answers requests.
pub(super) struct Served {
    name: String,
    model: Model,
}

enum Model {
    Language(Language),
    Sentences(Sentences),
    Reranker(Reranker),
    /// One part of a sound at a time.
    Speech(Mutex<Speech>),
}

/// A model that writes text.
pub(super) struct Language {
    pub(super) tokenizer: Tokenizer,
    pub(super) worker: Worker,
    /// How it reads pictures, if it does.
    pub(super) pictures: Option<PictureReader>,
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

/// A model that says how well a document fits a query: a classifier of pairs with one class.
pub(super) struct Reranker {
    pub(super) tokenizer: Tokenizer,
    /// One batch at a time.
    pub(super) classifier: Mutex<BertClassifier>,
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

impl Served {
    /// Loads a model.
    pub(super) fn load(
        listed: &Listed,
        device: &Device,
        config: &EngineConfig,
        max_adapters: usize,
    ) -> Outcome<Served> {
        let Listed { name, path, .. } = listed;
        let model = match listed.kind {
            Kind::Language => {
                let model::Loaded { model, tokenizer, pictures } = model::load(path, device)?;
                let written = AnswerFormat::of(&tokenizer, true);
                eprintln!("[{name} writes calls as {}]", written.name());
                let worker = Worker::start(name, model, config.clone(), max_adapters)?;
                Model::Language(Language {
                    tokenizer,
                    worker,
                    pictures,
                    guide: OnceLock::new(),
                    bytes: OnceLock::new(),
                })
            }
            Kind::Sentences => {
                let encoder = Mutex::new(Bert::from_folder(path, device)?);
                Model::Sentences(Sentences { tokenizer: Tokenizer::from_folder(path)?, encoder })
            }
            Kind::Reranker => {
                let classifier = Mutex::new(BertClassifier::from_folder(path, device)?);
                Model::Reranker(Reranker { tokenizer: Tokenizer::from_folder(path)?, classifier })
            }
            Kind::Speech => Model::Speech(Mutex::new(Speech::from_folder(path, device)?)),
        };
        Ok(Served { name: name.clone(), model })
    }

    fn kind(&self) -> Kind {
        match &self.model {
            Model::Language(_) => Kind::Language,
            Model::Sentences(_) => Kind::Sentences,
            Model::Reranker(_) => Kind::Reranker,
            Model::Speech(_) => Kind::Speech,
        }
    }

    fn wrong_kind(&self, wanted: Kind) -> Failure {
        wrong_kind(&self.name, self.kind(), wanted)
    }

    pub(super) fn language(&self) -> Result<&Language, Failure> {
        let Model::Language(language) = &self.model else { return Err(self.wrong_kind(Kind::Language)) };
        Ok(language)
    }

    pub(super) fn sentences(&self) -> Result<&Sentences, Failure> {
        let Model::Sentences(sentences) = &self.model else { return Err(self.wrong_kind(Kind::Sentences)) };
        Ok(sentences)
    }

    pub(super) fn reranker(&self) -> Result<&Reranker, Failure> {
        let Model::Reranker(reranker) = &self.model else { return Err(self.wrong_kind(Kind::Reranker)) };
        Ok(reranker)
    }

    pub(super) fn speech(&self) -> Result<&Mutex<Speech>, Failure> {
        let Model::Speech(speech) = &self.model else { return Err(self.wrong_kind(Kind::Speech)) };
        Ok(speech)
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
