//! Known models with the weights of their references: text, and sentences as vectors.

use std::path::{Path, PathBuf};

use pyo3::{prelude::*, types::PyDict};
use taper::{
    Device,
    models::{
        Bert, LanguageModel,
        generate::{GenerationConfig, SamplingConfig},
        load_language_model,
        text::{Message, TextOptions, Tokenizer, generate_text},
    },
    no_grad, weights,
};

use crate::{
    device::{At, open},
    errors::{keep, wrong_value},
    tensor::{PyTensor, run},
};

/// A decoder with its tokenizer.
#[pyclass(name = "_LanguageModel", module = "taper._taper", frozen)]
struct PyLanguageModel {
    model: Box<dyn LanguageModel + Send + Sync>,
    tokenizer: Tokenizer,
}

#[pymethods]
impl PyLanguageModel {
    /// A model from a folder with `config.json`, `tokenizer.json` and weights, or from a GGUF file.
    #[new]
    #[pyo3(signature = (path, device = None))]
    fn new(py: Python<'_>, path: PathBuf, device: Option<At>) -> PyResult<PyLanguageModel> {
        let device = open(device)?;
        run(py, move || {
            let tokenizer = tokenizer(&path)?;
            Ok(PyLanguageModel { model: load_language_model(&path, &device)?, tokenizer })
        })
    }

    /// The tokens of a text.
    fn encode(&self, py: Python<'_>, text: &str, special: bool) -> PyResult<Vec<u32>> {
        run(py, || Ok(self.tokenizer.encode(text, special)?.ids))
    }

    /// The text of tokens.
    fn decode(&self, py: Python<'_>, tokens: Vec<u32>, skip_special: bool) -> PyResult<String> {
        run(py, || self.tokenizer.decode(&tokens, skip_special))
    }

    /// A conversation as the text that the model was trained on.
    fn chat_text(&self, py: Python<'_>, messages: Vec<(String, String)>) -> PyResult<String> {
        let messages: Vec<Message> =
            messages.into_iter().map(|(role, content)| Message::new(role, content)).collect();
        run(py, || self.tokenizer.chat(&messages, true))
    }

    /// Continues tokens; each piece of text goes to `on_text`, which ends the text by `False`. It gives the
    /// whole text.
    fn generate(
        &self,
        py: Python<'_>,
        prompt: Vec<u32>,
        settings: &Bound<'_, PyDict>,
        stop: Vec<String>,
        on_text: Py<PyAny>,
    ) -> PyResult<String> {
        let mut config = configured(settings)?;
        config.stop_tokens = self.tokenizer.end_tokens().to_vec();
        let options = TextOptions { stop_words: stop, ..Default::default() };
        run(py, || {
            let model = &*self.model;
            no_grad(|| {
                let pieces =
                    generate_text(model, &self.tokenizer, model.new_cache(), &prompt, &config, &options)?;
                let mut text = String::new();
                for piece in pieces {
                    let piece = piece?;
                    text.push_str(&piece);
                    let goes_on = Python::attach(|py| on_text.call1(py, (piece,))?.is_truthy(py));
                    if !goes_on.map_err(|error| keep("generate", error))? {
                        break;
                    }
                }
                Ok(text)
            })
        })
    }
}

/// The settings of a generation, whose names are those of `transformers`.
fn configured(settings: &Bound<'_, PyDict>) -> PyResult<GenerationConfig> {
    let mut config = GenerationConfig::default();
    let sampling: &mut SamplingConfig = &mut config.sampling;
    for (name, value) in settings {
        match name.extract::<String>()?.as_str() {
            "max_new_tokens" => config.max_new_tokens = value.extract()?,
            "temperature" => sampling.temperature = value.extract()?,
            "top_k" => sampling.top_k = value.extract()?,
            "top_p" => sampling.top_p = value.extract()?,
            "min_p" => sampling.min_p = value.extract()?,
            "repetition_penalty" => sampling.repetition_penalty = value.extract()?,
            "seed" => sampling.seed = value.extract()?,
            other => {
                return Err(wrong_value(format!(
                    "generate has no setting {other:?}: it has max_new_tokens, temperature, top_k, top_p, min_p, \
                     repetition_penalty and seed"
                )));
            }
        }
    }
    Ok(config)
}

/// The tokenizer of a model: in its folder, or in its GGUF file.
fn tokenizer(path: &Path) -> taper::Result<Tokenizer> {
    if path.is_dir() { Tokenizer::from_folder(path) } else { Tokenizer::from_gguf(&weights::open(path)?) }
}

/// A BERT, RoBERTa or DistilBERT with its tokenizer, for vectors of sentences.
#[pyclass(name = "_SentenceModel", module = "taper._taper", frozen)]
struct PySentenceModel {
    model: Bert,
    tokenizer: Tokenizer,
    device: Device,
}

#[pymethods]
impl PySentenceModel {
    #[new]
    #[pyo3(signature = (path, device = None))]
    fn new(py: Python<'_>, path: PathBuf, device: Option<At>) -> PyResult<PySentenceModel> {
        let device = open(device)?;
        run(py, move || {
            let (model, tokenizer) = (Bert::from_folder(&path, &device)?, Tokenizer::from_folder(&path)?);
            Ok(PySentenceModel { model, tokenizer, device })
        })
    }

    /// The vectors `[N, features]` of a batch of sentences, of length 1: means of their tokens' states.
    fn encode(&self, py: Python<'_>, sentences: Vec<String>, max_length: usize) -> PyResult<PyTensor> {
        let vectors = run(py, || {
            let (ids, mask) = self.tokenizer.encode_batch(&sentences, max_length, &self.device)?;
            let vectors = no_grad(|| self.model.sentence_vectors(&ids, &mask))?;
            vectors.eval()?;
            Ok(vectors)
        })?;
        Ok(PyTensor::plain(vectors))
    }
}

/// Adds the classes of this file to the module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyLanguageModel>()?;
    module.add_class::<PySentenceModel>()
}
