//! Structured output: a mask of the tokens that may follow, so that a text matches a grammar whatever the
//! model would write (feature `guidance`).
//!
//! ```no_run
//! use models::{
//!     generate::{GenerationConfig, generate},
//!     guidance::{Grammar, Guide},
//!     load_language_model,
//!     text::Tokenizer,
//! };
//! # fn main() -> tensor_core::Result<()> {
//! let model = load_language_model("SmolLM2-135M-Instruct", &backend_cpu::cpu())?;
//! let tokenizer = Tokenizer::from_folder("SmolLM2-135M-Instruct")?;
//! let guide = Guide::new(&tokenizer)?; // once for a tokenizer
//! let schema = r#"{"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}"#;
//! let config = GenerationConfig {
//!     stop_tokens: tokenizer.end_tokens().to_vec(),
//!     logits_rule: Some(guide.rule(&Grammar::json_schema(schema)?)?),
//!     ..Default::default()
//! };
//! let prompt = tokenizer.encode("Ada is 36 years old. As JSON: ", true)?.ids;
//! for token in generate(&*model, &prompt, &config)? {
//!     print!("{}", tokenizer.decode(&[token?.id], true)?);
//! }
//! # Ok(()) }
//! ```
//!
//! Grammars are those of the crate [llguidance](https://github.com/guidance-ai/llguidance): its documents say
//! which keywords of a JSON schema it knows, and describe its variant of Lark.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use llguidance::{
    Matcher, ParserFactory,
    api::TopLevelGrammar,
    toktrie::{ApproximateTokEnv, InferenceCapabilities, TokEnv, TokRxInfo, TokTrie},
};
use serde_json::{Value as Json, json};
use tensor_core::{Error, Result, lock};

use crate::{generate::LogitsRule, text::Tokenizer};

const OP: &str = "guidance";

/// White space between the parts of a JSON text: a space, or a line break with an indentation of at most 20
/// spaces. Without a bound, small models write line breaks until their limit.
const JSON_WHITE_SPACE: &str = r" |\n {0,20}";

/// The formats of strings that llguidance knows. Another one is a remark to readers, as the standard has it.
const KNOWN_FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];

/// The keywords of a schema whose values are values of the text, and no schemas.
const VALUE_KEYWORDS: [&str; 4] = ["const", "enum", "default", "examples"];
/// The keywords of a schema whose values have schemas by names of their own.
const NAMED_SCHEMAS: [&str; 5] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// The language that a text must belong to.
///
/// ```
/// use models::guidance::Grammar;
/// # fn main() -> tensor_core::Result<()> {
/// let date = Grammar::regex("[0-9]{4}-[0-9]{2}-[0-9]{2}");
/// let point = Grammar::json_schema(r#"{"type": "array", "items": {"type": "number"}, "maxItems": 2}"#)?;
/// let answer = Grammar::lark(r#"start: "yes" | "no""#);
/// # let _ = (date, point, answer);
/// assert!(Grammar::json_schema("{").is_err());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Grammar(TopLevelGrammar);

impl Grammar {
    /// JSON that a schema describes. Between its parts it has at most a space, or a line break with an
    /// indentation. A format that is not known is ignored. Where two alternatives of `oneOf` cannot be seen
    /// to exclude each other, the text matches one of them and perhaps another one too. llguidance's object
    /// `x-guidance` in the schema replaces these settings and its other ones.
    ///
    /// # Errors
    /// A text that is no JSON. [`Guide::rule`] refuses a schema with keywords that are not known.
    #[track_caller]
    pub fn json_schema(schema: &str) -> Result<Grammar> {
        match serde_json::from_str(schema) {
            Ok(schema) => Ok(Grammar::of_schema(schema)),
            Err(error) => Err(Error::invalid(OP, format!("this schema is no JSON: {error}"))),
        }
    }

    /// Any JSON object.
    pub fn json_object() -> Grammar {
        Grammar::of_schema(json!({"type": "object"}))
    }

    /// A text that matches a regular expression as a whole.
    pub fn regex(pattern: &str) -> Grammar {
        Grammar(TopLevelGrammar::from_regex(pattern))
    }

    /// A context-free grammar in llguidance's variant of Lark; its first rule is `start`.
    pub fn lark(grammar: &str) -> Grammar {
        Grammar(TopLevelGrammar::from_lark(grammar.to_string()))
    }

    /// The right side of a rule of [`Grammar::lark`] for JSON that a schema describes, as in
    /// [`Grammar::json_schema`].
    ///
    /// ```
    /// use models::guidance::Grammar;
    /// # fn main() -> tensor_core::Result<()> {
    /// let point = Grammar::json_rule(r#"{"type": "array", "items": {"type": "number"}}"#)?;
    /// let answer = Grammar::lark(&format!("start: \"The point is \" point\npoint: {point}"));
    /// # let _ = answer;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Grammar::json_schema`].
    #[track_caller]
    pub fn json_rule(schema: &str) -> Result<String> {
        match serde_json::from_str(schema) {
            Ok(schema) => Ok(format!("%json {}", with_settings(schema))),
            Err(error) => Err(Error::invalid(OP, format!("this schema is no JSON: {error}"))),
        }
    }

    fn of_schema(schema: Json) -> Grammar {
        Grammar(TopLevelGrammar::from_json_schema(with_settings(schema)))
    }
}

fn with_settings(mut schema: Json) -> Json {
    remove_unknown_formats(&mut schema);
    if let Json::Object(fields) = &mut schema {
        let settings = json!({"whitespace_pattern": JSON_WHITE_SPACE, "coerce_one_of": true});
        fields.entry("x-guidance").or_insert(settings);
    }
    schema
}

fn remove_unknown_formats(schema: &mut Json) {
    match schema {
        Json::Object(fields) => {
            let format = fields.get("format").and_then(Json::as_str);
            if format.is_some_and(|format| !KNOWN_FORMATS.contains(&format)) {
                fields.remove("format");
            }
            for (keyword, value) in fields {
                match value {
                    _ if VALUE_KEYWORDS.contains(&keyword.as_str()) => {}
                    Json::Object(schemas) if NAMED_SCHEMAS.contains(&keyword.as_str()) => {
                        schemas.values_mut().for_each(remove_unknown_formats);
                    }
                    schema => remove_unknown_formats(schema),
                }
            }
        }
        Json::Array(schemas) => schemas.iter_mut().for_each(remove_unknown_formats),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// The tokens of a tokenizer as a tree of their bytes, from which rules for its texts are made. A clone is
/// the same object.
#[derive(Clone)]
pub struct Guide {
    factory: Arc<ParserFactory>,
    end_tokens: Arc<[u32]>,
}

impl Guide {
    /// Makes the tree of a tokenizer's tokens; one serves all texts of this tokenizer.
    ///
    /// # Errors
    /// A tokenizer without end tokens, since a text could not end, and those of [`Tokenizer::token_bytes`].
    #[track_caller]
    pub fn new(tokenizer: &Tokenizer) -> Result<Guide> {
        let mut words = tokenizer.token_bytes()?;
        for (id, word) in (0..).zip(&mut words) {
            if tokenizer.is_special(id) {
                word.insert(0, TokTrie::SPECIAL_TOKEN_MARKER);
            }
        }
        let count = words.len() as u32;
        let ends = tokenizer.end_tokens().iter().copied().filter(|id| *id < count);
        let end_tokens: Vec<u32> = ends.collect();
        let Some(&end) = end_tokens.first() else {
            return Err(Error::invalid(OP, "the tokenizer names no end token, so that no text could end"));
        };
        let tree = TokTrie::from(&TokRxInfo::new(count, end), &words).with_eos_tokens(&end_tokens);
        let tokens: TokEnv = Arc::new(ApproximateTokEnv::new(tree));
        // The matcher is asked for masks only.
        let capabilities = InferenceCapabilities::default();
        let slices = llguidance::earley::SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&tokens, capabilities, &slices).map_err(refused)?;
        factory.quiet();
        factory.limits_mut().verbose_errors = false;
        Ok(Guide { factory: Arc::new(factory), end_tokens: end_tokens.into() })
    }

    /// A rule under which the generated tokens match a grammar. A text that is complete may end, and must
    /// where nothing can follow: then the tokenizer's end tokens are the only ones that the rule allows, so
    /// give them as [`stop_tokens`](crate::generate::GenerationConfig::stop_tokens). A text that reaches
    /// `max_new_tokens` may be incomplete.
    ///
    /// The rule keeps the state of one text. Texts that take turns, such as beams, are read again from the
    /// token at which they differ.
    ///
    /// # Errors
    /// A grammar or schema that llguidance refuses, with its reason.
    #[track_caller]
    pub fn rule(&self, grammar: &Grammar) -> Result<LogitsRule> {
        let state = Mutex::new(State { matcher: self.matcher(grammar)?, tokens: Vec::new() });
        let ends = self.end_tokens.clone();
        Ok(LogitsRule::of_generated(move |generated, logits| {
            let is_over = generated.iter().any(|token| ends.contains(token));
            let mut state = lock(&state);
            let allowed: &dyn Fn(u32) -> bool = if is_over {
                &|token| ends.contains(&token)
            } else {
                let mask = state.mask(generated)?;
                &move |token| (token as usize) < mask.len() && mask.is_allowed(token)
            };
            for (token, logit) in (0..).zip(logits.iter_mut()) {
                if !allowed(token) {
                    *logit = f32::NEG_INFINITY;
                }
            }
            Ok(())
        }))
    }

    /// Whether these tokens, without an end token, are a complete text of a grammar.
    ///
    /// # Errors
    /// As [`Guide::rule`].
    #[track_caller]
    pub fn accepts(&self, grammar: &Grammar, tokens: &[u32]) -> Result<bool> {
        let mut matcher = self.matcher(grammar)?;
        Ok(matcher.try_consume_tokens(tokens).map_err(refused)? == tokens.len()
            && matcher.is_accepting().map_err(refused)?)
    }

    #[track_caller]
    fn matcher(&self, grammar: &Grammar) -> Result<Matcher> {
        Ok(Matcher::new(Ok(self.factory.create_parser(grammar.0.clone()).map_err(refused)?)))
    }
}

impl fmt::Debug for Guide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guide").field("end_tokens", &self.end_tokens).finish_non_exhaustive()
    }
}

/// A matcher, and the tokens that it has read.
struct State {
    matcher: Matcher,
    tokens: Vec<u32>,
}

impl State {
    /// The tokens that may follow these.
    #[track_caller]
    fn mask(&mut self, text: &[u32]) -> Result<llguidance::toktrie::SimpleVob> {
        let same = self.tokens.iter().zip(text).take_while(|(a, b)| a == b).count();
        self.matcher.rollback(self.tokens.len() - same).map_err(refused)?;
        self.tokens.truncate(same);
        for &token in &text[same..] {
            if self.matcher.try_consume_tokens(&[token]).map_err(refused)? == 0 {
                return Err(Error::invalid(
                    OP,
                    format!("the token {token} of the text is against the grammar"),
                ));
            }
            self.tokens.push(token);
        }
        self.matcher.compute_mask_or_eos().map_err(refused)
    }
}

/// The reason that llguidance gives; it may have a backtrace or a dump of its state behind it.
#[track_caller]
fn refused(error: impl fmt::Display) -> Error {
    let message = error.to_string();
    let reason = message.split("\n<").next().unwrap_or_default();
    Error::invalid(OP, reason.replace('\n', " "))
}
