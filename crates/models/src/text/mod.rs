//! Text to tokens and back, chat templates, and text as it is generated (feature `text`).

mod chat;
mod chat_examples;
mod document;
mod from_gguf;
mod jinja;
mod search;
mod spelling;
mod stream;
mod tokenizer;

pub use chat::{ChatTemplate, Message};
pub use chat_examples::{ChatBatch, ChatExample, ChatExamples};
pub use jinja::Limits as TemplateLimits;
pub use search::TextSearch;
pub use stream::{TextDecoder, TextGeneration, TextOptions, TextPieces, generate_text};
pub use tokenizer::{Encoded, Tokenizer};
