//! The commands that read and write text.

pub(crate) mod bench;
pub(crate) mod chat;
pub(crate) mod complete;
mod conversations;
pub(crate) mod embed;
pub(crate) mod fine_tune;
pub(crate) mod perplexity;
mod spoken;
pub(crate) mod training;
