//! [`Tokenizer`]: Hugging Face's tokenizers from `tokenizer.json`, or from the metadata of a GGUF file.

use std::{
    collections::BTreeMap,
    fmt, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::OnceLock,
};

use serde::Serialize;
use serde_json::Value as Json;
use tensor_core::{
    Device, Error, Result, Tensor,
    file::{file_error, read_regular, read_regular_text},
};
use tokenizers::{PostProcessor, TruncationParams, TruncationStrategy, truncate_encodings};
use weights::WeightFile;

use super::{
    ChatTemplate, Message,
    chat::{self, DEFAULT_TEMPLATE},
    document::check,
    from_gguf::{self, Pieces},
    spelling::Spelling,
};

const OP: &str = "Tokenizer";
/// The name of the template for conversations with tools, where there is one.
const TOOLS_TEMPLATE: &str = "tool_use";
/// The greatest number of a token whose bytes are listed: the list has an entry for each smaller number too.
const MAX_TOKEN_ID: u32 = (1 << 24) - 2;
/// The special tokens that a chat template may name.
const SPECIAL_TOKENS: &[&str] =
    &["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

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
    /// The chat templates by their names. A source that is not valid is an error when it is used, since all
    /// but conversations work without it.
    templates: BTreeMap<String, Result<ChatTemplate>>,
    /// Special tokens by the names that chat templates use.
    special: Vec<(&'static str, String)>,
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

impl Tokenizer {
    /// A tokenizer from the text of a `tokenizer.json`. Padding and truncation that the file asks for are
    /// turned off.
    ///
    /// # Errors
    /// A document that is no tokenizer, or one with a part that is not supported.
    #[track_caller]
    pub fn from_json(document: &[u8]) -> Result<Tokenizer> {
        if let Err(fault) = check(document) {
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
        let (templates, special) = (BTreeMap::new(), Vec::new());
        Ok(Tokenizer { inner, plain, templates, special, end_tokens, pieces: None })
    }

    /// The tokenizer of a folder: `tokenizer.json`, and, where they are there, the special tokens of
    /// `tokenizer_config.json`, the end tokens of `generation_config.json`, and the chat template of the
    /// first of `chat_template.jinja`, `tokenizer_config.json` (one, or a list with names) and
    /// `chat_template.json`; further ones are in the folder `additional_chat_templates`. A path of a GGUF
    /// file works too.
    ///
    /// # Errors
    /// A `File` error that names the file. A chat template that is not valid is an error of
    /// [`Tokenizer::chat`].
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
        let token = |name: &&'static str| Some((*name, token_text(config.get(*name))?));
        tokenizer.special = SPECIAL_TOKENS.iter().filter_map(token).collect();
        for (name, source) in folder_templates(folder, &config)? {
            tokenizer.templates.insert(name, ChatTemplate::new(&source));
        }
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
    /// A `File` error for a file without a tokenizer, or with one of a kind that is not known. A chat
    /// template that is not valid is an error of [`Tokenizer::chat`].
    #[track_caller]
    pub fn from_gguf(file: &WeightFile) -> Result<Tokenizer> {
        let found = from_gguf::read(file)?;
        let made = Tokenizer::from_json(found.document.to_string().as_bytes());
        let mut tokenizer = made.map_err(|error| file_error(file.path(), error.to_string()))?;
        tokenizer.pieces = found.pieces;
        tokenizer.special = found.special;
        let made = |(name, source): (String, String)| (name, ChatTemplate::new(&source));
        tokenizer.templates = found.templates.into_iter().map(made).collect();
        tokenizer.add_end_token();
        Ok(tokenizer)
    }

    fn add_end_token(&mut self) {
        let eos = self.special.iter().find(|(name, _)| *name == "eos_token");
        let end = eos.and_then(|(_, eos)| self.inner.token_to_id(eos));
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
    /// true where there is a token. Longer texts are cut to `max_length` tokens, with the tokens around them
    /// that the model expects.
    ///
    /// # Errors
    /// No texts, a `max_length` of 0 or below the number of tokens around a text, or as
    /// [`Tokenizer::encode`].
    #[track_caller]
    pub fn encode_batch(
        &self,
        texts: &[impl AsRef<str>],
        max_length: usize,
        device: &Device,
    ) -> Result<(Tensor, Tensor)> {
        let mut rows = Vec::with_capacity(texts.len());
        for text in texts {
            rows.push(self.encode_cut(text.as_ref(), None, max_length)?);
        }
        let [ids, _, mask] = self.batch(&rows, device)?;
        Ok((ids, mask))
    }

    /// The tokens of pairs of texts, such as a question and its context, as a batch `[N, L]` with padding on
    /// the right; the sequence of each token `[N, L]`, 0 or 1; and the mask `[N, L]`, true where there is a
    /// token. Longer pairs are cut to `max_length` tokens, with those around the texts that the model
    /// expects; the longer text is cut first: `truncation="longest_first"` of transformers.
    ///
    /// ```no_run
    /// use models::{BertClassifier, text::Tokenizer};
    /// # fn main() -> tensor_core::Result<()> {
    /// let device = backend_cpu::cpu();
    /// let tokenizer = Tokenizer::from_folder("ms-marco-MiniLM-L6-v2")?;
    /// let model = BertClassifier::from_folder("ms-marco-MiniLM-L6-v2", &device)?;
    /// let pairs = [("capital of Norway", "Oslo is a city."), ("capital of Norway", "Fish swim.")];
    /// let (ids, types, mask) = tokenizer.encode_pairs_batch(&pairs, model.max_tokens(), &device)?;
    /// let logits = model.forward(&ids, Some(&mask), Some(&types))?; // [2, 1]
    /// # let _ = logits;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// No pairs, a `max_length` of 0 or below the number of tokens around the texts, or as
    /// [`Tokenizer::encode`].
    #[track_caller]
    pub fn encode_pairs_batch(
        &self,
        pairs: &[(impl AsRef<str>, impl AsRef<str>)],
        max_length: usize,
        device: &Device,
    ) -> Result<(Tensor, Tensor, Tensor)> {
        let mut rows = Vec::with_capacity(pairs.len());
        for (first, second) in pairs {
            rows.push(self.encode_cut(first.as_ref(), Some(second.as_ref()), max_length)?);
        }
        let [ids, types, mask] = self.batch(&rows, device)?;
        Ok((ids, types, mask))
    }

    /// The tokens of a text or of a pair, of which there are at most `max_length` with those around them.
    #[track_caller]
    fn encode_cut(&self, first: &str, second: Option<&str>, max_length: usize) -> Result<Encoded> {
        let around =
            self.inner.get_post_processor().map_or(0, |processor| processor.added_tokens(second.is_some()));
        let Some(room) = max_length.checked_sub(around).filter(|_| max_length > 0) else {
            let message =
                format!("{max_length} tokens of a text, of which {around} are those around it: give more");
            return Err(Error::invalid(OP, message));
        };
        let cut = TruncationParams {
            max_length: room,
            strategy: TruncationStrategy::LongestFirst,
            ..Default::default()
        };
        encoded(|| {
            let first = self.inner.encode_char_offsets(first, false)?;
            let second = match second {
                Some(second) => {
                    let mut encoding = self.inner.encode_char_offsets(second, false)?;
                    // A tokenizer that adds no tokens leaves the sequences as they are.
                    encoding.set_type_ids(vec![1; encoding.len()]);
                    Some(encoding)
                }
                None => None,
            };
            let (mut first, mut second) = truncate_encodings(first, second, &cut)?;
            // The crate keeps the parts that were cut off, and would combine those of both texts.
            first.take_overflowing();
            if let Some(second) = &mut second {
                second.take_overflowing();
            }
            self.inner.post_process(first, second, true)
        })
    }

    /// Texts of different lengths as tokens, sequences and mask `[N, L]`, with padding on the right.
    #[track_caller]
    fn batch(&self, rows: &[Encoded], device: &Device) -> Result<[Tensor; 3]> {
        if rows.is_empty() {
            return Err(Error::invalid(OP, "there are no texts"));
        }
        let longest = rows.iter().map(|row| row.ids.len()).max().unwrap_or(0).max(1);
        let padding =
            ["[PAD]", "<pad>", "<|endoftext|>"].iter().find_map(|name| self.inner.token_to_id(name));
        let (mut ids, mut types, mut mask) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            let (tokens, pads) = (row.ids.len(), longest - row.ids.len());
            ids.extend(row.ids.iter().map(|&id| id as i32));
            ids.extend(std::iter::repeat_n(padding.unwrap_or(0) as i32, pads));
            types.extend(row.type_ids.iter().map(|&sequence| sequence as i32));
            types.extend(std::iter::repeat_n(0, pads));
            mask.extend(std::iter::repeat_n(true, tokens).chain(std::iter::repeat_n(false, pads)));
        }
        let shape = [rows.len(), longest];
        let of = |numbers: Vec<i32>| Tensor::from_vec(numbers, shape, device);
        Ok([of(ids)?, of(types)?, Tensor::from_vec(mask, shape, device)?])
    }

    /// The text of tokens, with or without the special ones.
    ///
    /// # Errors
    /// Tokens that the tokenizer cannot join.
    #[track_caller]
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        if let Some(pieces) = self.pieces {
            let kept = ids.iter().filter(|id| !skip_special || !self.is_special(**id));
            let tokens: Vec<String> = kept.filter_map(|&id| self.inner.id_to_token(id)).collect();
            return Ok(pieces.join(tokens.iter().map(String::as_str)));
        }
        match guarded(|| self.inner.decode(ids, skip_special)) {
            Ok(text) => Ok(text),
            Err(error) => Err(Error::invalid(OP, format!("these tokens have no text: {error}"))),
        }
    }

    /// The bytes that each token adds to a text, by its number, and the names of special tokens; empty where
    /// there is no token.
    ///
    /// # Errors
    /// Tokens whose text depends on those around them, such as WordPiece's, and numbers above `MAX_TOKEN_ID`.
    #[track_caller]
    pub fn token_bytes(&self) -> Result<Vec<Vec<u8>>> {
        let spelling = match self.pieces {
            Some(_) => Some(Spelling::Pieces),
            None => self.inner.get_decoder().and_then(Spelling::of),
        };
        let Some(spelling) = spelling else {
            return Err(Error::invalid(
                OP,
                "the text of a token depends on those around it: it has no bytes",
            ));
        };
        let vocabulary = self.inner.get_vocab(true);
        let greatest = vocabulary.values().copied().max().unwrap_or(0);
        if greatest > MAX_TOKEN_ID {
            return Err(Error::invalid(OP, format!("the token {greatest}: at most {MAX_TOKEN_ID} is known")));
        }
        let added = self.inner.get_added_vocabulary().get_added_tokens_decoder();
        let mut all = vec![Vec::new(); greatest as usize + 1];
        for (token, id) in vocabulary {
            let is_text = added.contains_key(&id);
            all[id as usize] = if is_text { token.into_bytes() } else { spelling.bytes(&token) };
        }
        Ok(all)
    }

    /// Whether a token is special, so that it has no text.
    pub fn is_special(&self, id: u32) -> bool {
        self.inner
            .get_added_vocabulary()
            .get_added_tokens_decoder()
            .get(&id)
            .is_some_and(|token| token.special)
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

    /// The model's chat template, if it has one that is valid.
    pub fn template(&self) -> Option<&ChatTemplate> {
        self.template_named(DEFAULT_TEMPLATE)
    }

    /// The model's chat template of some name, such as `tool_use` or `rag`, if it has one that is valid.
    pub fn template_named(&self, name: &str) -> Option<&ChatTemplate> {
        self.templates.get(name)?.as_ref().ok()
    }

    /// Replaces the chat template.
    pub fn set_template(&mut self, template: ChatTemplate) {
        self.templates.insert(DEFAULT_TEMPLATE.into(), Ok(template));
    }

    /// A conversation as the text that the model was trained on. With `add_generation_prompt` it ends where
    /// the answer begins. Encode it without special tokens.
    ///
    /// # Errors
    /// No chat template, one that is not valid, or one that refuses the messages.
    #[track_caller]
    pub fn chat(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String> {
        self.chat_with(messages, add_generation_prompt, &BTreeMap::<String, Json>::new())
    }

    /// As [`Tokenizer::chat`], with further variables of the template (a map or a structure): `tools`,
    /// `documents`, or what the template of a model knows, such as `enable_thinking`. With tools, the
    /// template `tool_use` is taken if there is one.
    ///
    /// # Errors
    /// As [`Tokenizer::chat`], and variables that are no map.
    #[track_caller]
    pub fn chat_with(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        variables: &impl Serialize,
    ) -> Result<String> {
        let special: Vec<(&str, &str)> =
            self.special.iter().map(|(name, token)| (*name, token.as_str())).collect();
        let mut all = chat::conversation(messages, add_generation_prompt, &special)?;
        all.extend(chat::given(variables)?);
        let for_tools = self.templates.get(TOOLS_TEMPLATE).filter(|_| all.has("tools"));
        match for_tools.or_else(|| self.templates.get(DEFAULT_TEMPLATE)) {
            Some(Ok(template)) => template.rendered(&all),
            Some(Err(error)) => Err(Error::invalid(OP, format!("the chat template cannot be used: {error}"))),
            None => {
                let names: Vec<&str> = self.templates.keys().map(String::as_str).collect();
                let others =
                    if names.is_empty() { String::new() } else { format!(", only {}", names.join(", ")) };
                let message =
                    format!("this tokenizer has no chat template{others}; give one by set_template");
                Err(Error::invalid(OP, message))
            }
        }
    }
}

/// The chat templates of a folder: names and sources.
#[track_caller]
fn folder_templates(folder: &Path, config: &Json) -> Result<BTreeMap<String, String>> {
    let mut templates = BTreeMap::new();
    let older = json(&folder.join("chat_template.json"))?.unwrap_or_default();
    for field in [older.get("chat_template"), config.get("chat_template")].into_iter().flatten() {
        if let Some(source) = field.as_str() {
            templates.insert(DEFAULT_TEMPLATE.to_string(), source.to_string());
        }
        for entry in field.as_array().into_iter().flatten() {
            let text = |key: &str| entry.get(key).and_then(Json::as_str).map(str::to_string);
            templates.extend(text("name").zip(text("template")));
        }
    }
    let read = |path: &Path| match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) => Err(file_error(path, format!("cannot be read: {error}"))),
    };
    for entry in fs::read_dir(folder.join("additional_chat_templates")).into_iter().flatten().flatten() {
        let path = entry.path();
        if let (Some(name), Some("jinja")) =
            (path.file_stem().and_then(|name| name.to_str()), path.extension().and_then(|end| end.to_str()))
        {
            templates.insert(name.to_string(), read(&path)?);
        }
    }
    let path = folder.join("chat_template.jinja");
    if path.exists() {
        templates.insert(DEFAULT_TEMPLATE.to_string(), read(&path)?);
    }
    Ok(templates)
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
