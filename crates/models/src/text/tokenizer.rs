//! [`Tokenizer`]: Hugging Face's tokenizers from `tokenizer.json`, or from the metadata of a GGUF file.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::OnceLock,
};

use serde::Deserialize;
use serde_json::Value as Json;
use tensor_core::{
    Device, Error, Result, Tensor,
    file::{file_error, read_regular, read_regular_text},
};
use weights::WeightFile;

use super::{
    ChatTemplate, Message,
    from_gguf::{self, Pieces},
};

const OP: &str = "Tokenizer";

/// A text as tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Encoded {
    /// The numbers of the tokens.
    pub ids: Vec<u32>,
    /// The tokens as the vocabulary has them.
    pub tokens: Vec<String>,
    /// The characters of the text that each token stands for; `(0, 0)` for added tokens.
    pub offsets: Vec<(usize, usize)>,
    /// The sequence of each token: 0, or 1 in the second of a pair.
    pub type_ids: Vec<u32>,
}

/// Text to tokens and back, and the chat template of the model.
///
/// ```no_run
/// use models::text::{Message, Tokenizer};
/// # fn main() -> tensor_core::Result<()> {
/// let tokenizer = Tokenizer::from_folder("SmolLM2-135M-Instruct")?; // tokenizer.json, tokenizer_config.json
/// let ids = tokenizer.encode("Two words", true)?.ids;
/// assert_eq!(tokenizer.decode(&ids, true)?, "Two words");
/// let prompt = tokenizer.chat(&[Message::user("Count to three.")], true)?;
/// # let _ = prompt;
/// # Ok(()) }
/// ```
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    /// The same, for which special tokens in a text are ordinary words. Made when it is needed.
    plain: OnceLock<tokenizers::Tokenizer>,
    template: Option<ChatTemplate>,
    bos: Option<String>,
    eos: Option<String>,
    end_tokens: Vec<u32>,
    /// How SentencePiece's pieces are joined, if the tokens are pieces of a GGUF file.
    pieces: Option<Pieces>,
}

/// The token in a field of `tokenizer_config.json`: a text, or an object with the text in `content`.
fn token_text(field: Option<&Json>) -> Option<String> {
    let field = field?;
    field.as_str().or_else(|| field.get("content")?.as_str()).map(str::to_string)
}

/// A JSON file of a folder, if it is there.
#[track_caller]
fn json(path: &Path) -> Result<Option<Json>> {
    if !path.exists() {
        return Ok(None);
    }
    let text = read_regular_text(path)?;
    match serde_json::from_str(&text) {
        Ok(value) => Ok(Some(value)),
        Err(error) => Err(file_error(path, format!("is no JSON: {error}"))),
    }
}

/// Checks what the crate `tokenizers` takes for granted and would panic without: JSON, and templates whose
/// special tokens are listed.
fn check_document(document: &[u8]) -> std::result::Result<(), String> {
    #[derive(Deserialize)]
    struct Parts {
        #[serde(default)]
        post_processor: Json,
        /// It must be JSON to the last character.
        #[serde(default, rename = "decoder")]
        _decoder: Json,
    }
    let parts: Parts = serde_json::from_slice(document).map_err(|error| error.to_string())?;
    check_templates(&parts.post_processor)
}

fn check_templates(processor: &Json) -> std::result::Result<(), String> {
    let items = |field: &str| processor.get(field).and_then(Json::as_array).into_iter().flatten();
    items("processors").try_for_each(check_templates)?;
    for part in items("single").chain(items("pair")) {
        let Some(token) = part.pointer("/SpecialToken/id").and_then(Json::as_str) else { continue };
        if processor.get("special_tokens").and_then(|known| known.get(token)).is_none() {
            return Err(format!("the template has the token \"{token}\", which special_tokens lacks"));
        }
    }
    Ok(())
}

impl Tokenizer {
    /// A tokenizer from the text of a `tokenizer.json`. Padding and truncation that the file asks for are
    /// turned off.
    ///
    /// # Errors
    /// A document that is no tokenizer, or one with a part that is not supported.
    #[track_caller]
    pub fn from_json(document: &[u8]) -> Result<Tokenizer> {
        if let Err(fault) = check_document(document) {
            return Err(Error::invalid(OP, format!("is no tokenizer.json: {fault}")));
        }
        let mut inner = match guarded(|| tokenizers::Tokenizer::from_bytes(document)) {
            Ok(inner) => inner,
            Err(error) => return Err(Error::invalid(OP, format!("is no tokenizer.json: {error}"))),
        };
        inner.with_padding(None);
        if let Err(error) = inner.with_truncation(None) {
            return Err(Error::invalid(OP, error.to_string()));
        }
        let plain = OnceLock::new();
        let end_tokens = Vec::new();
        Ok(Tokenizer { inner, plain, template: None, bos: None, eos: None, end_tokens, pieces: None })
    }

    /// The tokenizer of a folder: `tokenizer.json`, and, where they are there, the special tokens of
    /// `tokenizer_config.json`, the end tokens of `generation_config.json`, and the chat template of either
    /// `chat_template.jinja` or `tokenizer_config.json`. A path of a GGUF file works too.
    ///
    /// # Errors
    /// A `File` error that names the file.
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>) -> Result<Tokenizer> {
        let folder = path.as_ref();
        if !folder.is_dir() {
            return Tokenizer::from_gguf(&weights::open(folder)?);
        }
        let path = folder.join("tokenizer.json");
        let document = read_regular(&path)?;
        let made = Tokenizer::from_json(&document);
        let mut tokenizer = made.map_err(|error| file_error(&path, error.to_string()))?;
        let config = json(&folder.join("tokenizer_config.json"))?.unwrap_or_default();
        tokenizer.bos = token_text(config.get("bos_token"));
        tokenizer.eos = token_text(config.get("eos_token"));
        let mut template = config.get("chat_template").and_then(Json::as_str).map(str::to_string);
        let path = folder.join("chat_template.jinja");
        if path.exists() {
            template = Some(read_regular_text(&path)?);
        }
        tokenizer.template = template.map(|text| ChatTemplate::new(&text)).transpose()?;
        let generation = json(&folder.join("generation_config.json"))?.unwrap_or_default();
        let ends = match generation.get("eos_token_id") {
            Some(Json::Array(all)) => all.iter().filter_map(Json::as_u64).collect(),
            Some(one) => one.as_u64().into_iter().collect(),
            None => Vec::new(),
        };
        tokenizer.end_tokens = ends.into_iter().filter_map(|id| u32::try_from(id).ok()).collect();
        tokenizer.add_end_token();
        Ok(tokenizer)
    }

    /// The tokenizer and the chat template in the metadata of a GGUF file.
    ///
    /// # Errors
    /// A `File` error for a file without a tokenizer, or with one of a kind that is not known.
    #[track_caller]
    pub fn from_gguf(file: &WeightFile) -> Result<Tokenizer> {
        let found = from_gguf::read(file)?;
        let made = Tokenizer::from_json(found.document.to_string().as_bytes());
        let mut tokenizer = made.map_err(|error| file_error(file.path(), error.to_string()))?;
        tokenizer.pieces = found.pieces;
        tokenizer.bos = found.bos;
        tokenizer.eos = found.eos;
        tokenizer.template = found.template.map(|text| ChatTemplate::new(&text)).transpose()?;
        tokenizer.add_end_token();
        Ok(tokenizer)
    }

    fn add_end_token(&mut self) {
        let end = self.eos.as_deref().and_then(|eos| self.inner.token_to_id(eos));
        if let Some(end) = end.filter(|end| !self.end_tokens.contains(end)) {
            self.end_tokens.push(end);
        }
    }

    /// The tokens of a text. With `special`, the tokens that the model expects around a text are added;
    /// special tokens that are written in the text are recognized in any case.
    ///
    /// # Errors
    /// A text that the tokenizer cannot split.
    #[track_caller]
    pub fn encode(&self, text: &str, special: bool) -> Result<Encoded> {
        encoded(|| self.inner.encode_char_offsets(text, special))
    }

    /// The tokens of a text of a stranger: special tokens that are written in it are ordinary words, so that
    /// it cannot end its part of a conversation. No tokens are added.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    #[track_caller]
    pub fn encode_plain(&self, text: &str) -> Result<Encoded> {
        let plain = self.plain.get_or_init(|| {
            let mut plain = self.inner.clone();
            plain.set_encode_special_tokens(true);
            plain
        });
        encoded(|| plain.encode_char_offsets(text, false))
    }

    /// The tokens of two texts that belong together, such as a question and its context.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    #[track_caller]
    pub fn encode_pair(&self, first: &str, second: &str, special: bool) -> Result<Encoded> {
        encoded(|| self.inner.encode_char_offsets((first, second), special))
    }

    /// The tokens of several texts as a batch `[N, L]`, with padding on the right, and its mask `[N, L]`:
    /// true where there is a token. Longer texts are cut to `max_length` tokens.
    ///
    /// # Errors
    /// No texts, or as [`Tokenizer::encode`].
    #[track_caller]
    pub fn encode_batch(
        &self,
        texts: &[impl AsRef<str>],
        max_length: usize,
        device: &Device,
    ) -> Result<(Tensor, Tensor)> {
        if texts.is_empty() || max_length == 0 {
            return Err(Error::invalid(OP, "no texts, or no tokens for each"));
        }
        let mut rows = Vec::with_capacity(texts.len());
        for text in texts {
            let mut ids = self.encode(text.as_ref(), true)?.ids;
            if ids.len() > max_length {
                // The token that ends a text stays.
                let last = ids[ids.len() - 1];
                ids.truncate(max_length);
                ids[max_length - 1] = last;
            }
            rows.push(ids);
        }
        let longest = rows.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let padding =
            ["[PAD]", "<pad>", "<|endoftext|>"].iter().find_map(|name| self.inner.token_to_id(name));
        let (mut ids, mut mask) = (Vec::new(), Vec::new());
        for row in &rows {
            let pads = longest - row.len();
            ids.extend(row.iter().map(|&id| id as i32));
            ids.extend(std::iter::repeat_n(padding.unwrap_or(0) as i32, pads));
            mask.extend(std::iter::repeat_n(true, row.len()).chain(std::iter::repeat_n(false, pads)));
        }
        let shape = [rows.len(), longest];
        Ok((Tensor::from_vec(ids, shape, device)?, Tensor::from_vec(mask, shape, device)?))
    }

    /// The text of tokens, with or without the special ones.
    ///
    /// # Errors
    /// Tokens that the tokenizer cannot join.
    #[track_caller]
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        if let Some(pieces) = self.pieces {
            let added = self.inner.get_added_tokens_decoder();
            let kept =
                ids.iter().filter(|id| !skip_special || !added.get(id).is_some_and(|token| token.special));
            let tokens: Vec<String> = kept.filter_map(|&id| self.inner.id_to_token(id)).collect();
            return Ok(pieces.join(tokens.iter().map(String::as_str)));
        }
        match guarded(|| self.inner.decode(ids, skip_special)) {
            Ok(text) => Ok(text),
            Err(error) => Err(Error::invalid(OP, format!("these tokens have no text: {error}"))),
        }
    }

    /// The number of a token.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// The token with a number.
    pub fn id_to_token(&self, id: u32) -> Option<String> {
        self.inner.id_to_token(id)
    }

    /// The number of tokens, added ones included.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// The tokens that end a text of this model, for
    /// [`GenerationConfig::stop_tokens`](crate::generate::GenerationConfig::stop_tokens).
    pub fn end_tokens(&self) -> &[u32] {
        &self.end_tokens
    }

    /// The model's chat template.
    pub fn template(&self) -> Option<&ChatTemplate> {
        self.template.as_ref()
    }

    /// Replaces the chat template.
    pub fn set_template(&mut self, template: ChatTemplate) {
        self.template = Some(template);
    }

    /// A conversation as the text that the model was trained on. With `add_generation_prompt` it ends where
    /// the answer begins. Encode it without special tokens.
    ///
    /// # Errors
    /// No chat template, or one that refuses the messages.
    #[track_caller]
    pub fn chat(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String> {
        let Some(template) = &self.template else {
            return Err(Error::invalid(OP, "this tokenizer has no chat template; give one by set_template"));
        };
        template.render(messages, add_generation_prompt, self.bos.as_deref(), self.eos.as_deref())
    }
}

/// The result of a call of the crate `tokenizers`. It panics at documents whose parts contradict themselves,
/// at some of them only when they are used.
fn guarded<T>(call: impl FnOnce() -> tokenizers::Result<T>) -> std::result::Result<T, String> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("a part of the tokenizer contradicts itself".into()),
    }
}

#[track_caller]
fn encoded(encode: impl FnOnce() -> tokenizers::Result<tokenizers::Encoding>) -> Result<Encoded> {
    match guarded(encode) {
        Ok(encoding) => Ok(Encoded {
            ids: encoding.get_ids().to_vec(),
            tokens: encoding.get_tokens().to_vec(),
            offsets: encoding.get_offsets().to_vec(),
            type_ids: encoding.get_type_ids().to_vec(),
        }),
        Err(error) => Err(Error::invalid(OP, format!("this text has no tokens: {error}"))),
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish_non_exhaustive()
    }
}
