//! Text as it is generated: whole characters, up to a stop word.

use tensor_core::Result;

use super::{TextSearch, Tokenizer};
use crate::{
    KvCache, LanguageModel,
    generate::{Generation, GenerationConfig, Token, generate_from},
};

/// Turns tokens into text one by one. A token may end inside a character, whose text then comes with a later
/// token.
#[derive(Debug)]
pub struct TextDecoder<'a> {
    tokenizer: &'a Tokenizer,
    /// The tokens since the last text that ended with a whole character, after the context before them.
    ids: Vec<u32>,
    /// The number of tokens of context: some tokenizers join words differently at the start of a text.
    context: usize,
    /// The text of the context.
    known: String,
    /// Special tokens that have a text all the same.
    shown: Vec<u32>,
}

/// The mark of bytes that are no whole character.
const INCOMPLETE: char = '\u{fffd}';
/// The number of tokens for which an incomplete character is awaited. A character has at most four bytes, and
/// a token at least one.
const MAX_CHARACTER_TOKENS: usize = 4;

impl<'a> TextDecoder<'a> {
    /// A decoder at the start of a text. Special tokens have no text.
    pub fn new(tokenizer: &'a Tokenizer) -> TextDecoder<'a> {
        TextDecoder { tokenizer, ids: Vec::new(), context: 0, known: String::new(), shown: Vec::new() }
    }

    /// The same, for which these special tokens are text. Names that are no special tokens of this tokenizer
    /// are ignored.
    pub fn showing(mut self, tokens: &[impl AsRef<str>]) -> TextDecoder<'a> {
        let ids = tokens.iter().filter_map(|token| self.tokenizer.token_to_id(token.as_ref()));
        self.shown = ids.filter(|id| self.tokenizer.is_special(*id)).collect();
        self
    }

    /// The text that a further token adds; empty while a character is incomplete.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    #[track_caller]
    pub fn push(&mut self, id: u32) -> Result<String> {
        // A special token has no text, and none of the tokens around it is the first of a text.
        if self.shown.contains(&id) {
            let mut text = self.end_character()?;
            text.push_str(&self.tokenizer.id_to_token(id).unwrap_or_default());
            return Ok(text);
        }
        if self.tokenizer.is_special(id) {
            return Ok(String::new());
        }
        self.ids.push(id);
        let text = self.tokenizer.decode(&self.ids, true)?;
        if text.ends_with(INCOMPLETE) && self.ids.len() - self.context <= MAX_CHARACTER_TOKENS {
            return Ok(String::new());
        }
        self.advance(&text)
    }

    /// The text of an incomplete character, which ends here.
    fn end_character(&mut self) -> Result<String> {
        if self.ids.len() == self.context {
            return Ok(String::new());
        }
        let text = self.tokenizer.decode(&self.ids, true)?;
        self.advance(&text)
    }

    /// The text of the new tokens, which become the context of the next ones.
    #[track_caller]
    fn advance(&mut self, text: &str) -> Result<String> {
        let added = self.added(text)?;
        self.ids.drain(..self.context);
        self.context = self.ids.len();
        self.known = self.tokenizer.decode(&self.ids, true)?;
        Ok(added)
    }

    /// The text of an incomplete character at the end.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    #[track_caller]
    pub fn finish(&mut self) -> Result<String> {
        let text = self.tokenizer.decode(&self.ids, true)?;
        let added = self.added(&text)?;
        (self.ids, self.context, self.known) = (Vec::new(), 0, String::new());
        Ok(added)
    }

    /// The part of a text behind that of the context. If broken bytes change the text of the bytes before
    /// them, which was given already, it is the text of the new tokens alone.
    #[track_caller]
    fn added(&self, text: &str) -> Result<String> {
        match text.strip_prefix(&self.known) {
            Some(added) => Ok(added.to_string()),
            None => self.tokenizer.decode(&self.ids[self.context..], true),
        }
    }
}

/// Settings of a text beside those of its tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextOptions {
    /// Words at which the text ends; they are not part of it.
    pub stop_words: Vec<String>,
    /// Special tokens that are text all the same, such as the marks of a call.
    pub shown_tokens: Vec<String>,
}

/// Turns tokens into pieces of a text that ends before a stop word. Text that may be the beginning of one is
/// held back until more tokens decide.
///
/// ```no_run
/// use models::text::{TextOptions, TextPieces, Tokenizer};
/// # fn main() -> tensor_core::Result<()> {
/// let tokenizer = Tokenizer::from_folder("SmolLM2-135M-Instruct")?;
/// let options = TextOptions { stop_words: vec!["\n".into()], ..Default::default() };
/// let mut pieces = TextPieces::new(&tokenizer, &options);
/// for id in tokenizer.encode("One line\nand another", false)?.ids {
///     print!("{}", pieces.push(id)?);
///     if pieces.is_finished() {
///         break;
///     }
/// }
/// print!("{}", pieces.finish()?);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct TextPieces<'a> {
    decoder: TextDecoder<'a>,
    stop_words: Vec<String>,
    search: TextSearch,
    finished: bool,
}

impl<'a> TextPieces<'a> {
    /// The pieces of a text from its start.
    pub fn new(tokenizer: &'a Tokenizer, options: &TextOptions) -> TextPieces<'a> {
        TextPieces {
            decoder: TextDecoder::new(tokenizer).showing(&options.shown_tokens),
            stop_words: options.stop_words.iter().filter(|word| !word.is_empty()).cloned().collect(),
            search: TextSearch::default(),
            finished: false,
        }
    }

    /// The text that a further token makes certain.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    #[track_caller]
    pub fn push(&mut self, id: u32) -> Result<String> {
        self.search.push(&self.decoder.push(id)?);
        let (text, found) = self.search.before(&self.stop_words);
        self.finished = found.is_some();
        Ok(text)
    }

    /// The rest of the text, after its last token.
    ///
    /// # Errors
    /// As [`Tokenizer::decode`].
    #[track_caller]
    pub fn finish(&mut self) -> Result<String> {
        if std::mem::replace(&mut self.finished, true) {
            return Ok(String::new());
        }
        self.search.push(&self.decoder.finish()?);
        Ok(self.search.before_end(&self.stop_words).0)
    }

    /// Whether the text is complete: a stop word came, or [`TextPieces::finish`] was called.
    pub fn is_finished(&self) -> bool {
        self.finished
    }
}

/// The text after a prompt, piece by piece. [`generate_text`] makes it.
pub struct TextGeneration<'a, M: LanguageModel + ?Sized> {
    tokens: Generation<'a, M>,
    pieces: TextPieces<'a>,
    finished: bool,
}

/// Continues a prompt of tokens as text: an iterator over pieces, for printing as they come. `cache` has the
/// positions before the prompt; give [`LanguageModel::new_cache`] for a new text.
///
/// # Errors
/// As [`generate_from`].
#[track_caller]
pub fn generate_text<'a, M: LanguageModel + ?Sized>(
    model: &'a M,
    tokenizer: &'a Tokenizer,
    cache: KvCache,
    prompt: &[u32],
    config: &GenerationConfig,
    options: &TextOptions,
) -> Result<TextGeneration<'a, M>> {
    let tokens = generate_from(model, cache, prompt, config)?;
    Ok(TextGeneration { tokens, pieces: TextPieces::new(tokenizer, options), finished: false })
}

impl<M: LanguageModel + ?Sized> TextGeneration<'_, M> {
    /// The tokens so far.
    pub fn tokens(&self) -> &[u32] {
        self.tokens.tokens()
    }

    /// See [`Generation::into_cache`].
    pub fn into_cache(self) -> (KvCache, Vec<u32>) {
        self.tokens.into_cache()
    }

    /// The text that a further token makes certain, or that the end of the tokens leaves.
    fn push(&mut self, token: Option<Result<Token>>) -> Result<String> {
        let piece = match token {
            Some(token) => self.pieces.push(token?.id)?,
            None => self.pieces.finish()?,
        };
        if self.pieces.is_finished() {
            self.finished = true;
            self.tokens.stop();
        }
        Ok(piece)
    }

    /// A piece that a token gave, unless it is empty.
    fn given(&mut self, piece: Result<String>) -> Option<Result<String>> {
        self.finished |= piece.is_err();
        piece.map(|piece| (!piece.is_empty()).then_some(piece)).transpose()
    }

    /// The next piece, as the iterator gives it, without blocking: for pages of a browser.
    pub async fn next_async(&mut self) -> Option<Result<String>> {
        while !self.finished {
            let token = self.tokens.next_async().await;
            let piece = self.push(token);
            if let Some(piece) = self.given(piece) {
                return Some(piece);
            }
        }
        None
    }
}

impl<M: LanguageModel + ?Sized> Iterator for TextGeneration<'_, M> {
    type Item = Result<String>;

    fn next(&mut self) -> Option<Result<String>> {
        while !self.finished {
            let token = self.tokens.next();
            let piece = self.push(token);
            if let Some(piece) = self.given(piece) {
                return Some(piece);
            }
        }
        None
    }
}
