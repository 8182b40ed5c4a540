//! Prints text while a model generates it.

use std::{
    io::{self, Write},
    time::Instant,
};

use taper::models::{LanguageModel, text::TextGeneration};

use crate::error::Outcome;

/// Prints each piece of a text as it comes, and then on standard error how many tokens were read and written
/// in a second, of which the first were read from `begin` on. Returns the whole text.
pub(crate) fn print<M: LanguageModel + ?Sized>(
    pieces: &mut TextGeneration<'_, M>,
    tokens_read: usize,
    begin: Instant,
) -> Outcome<String> {
    let mut out = io::stdout().lock();
    let mut text = String::new();
    let mut first = None;
    for piece in pieces.by_ref() {
        let piece = piece?;
        first.get_or_insert_with(|| begin.elapsed().as_secs_f64());
        write!(out, "{piece}")?;
        out.flush()?;
        text.push_str(&piece);
    }
    writeln!(out)?;
    let whole = begin.elapsed().as_secs_f64();
    let first = first.unwrap_or(whole);
    let written = pieces.tokens().len();
    let rate = |count: usize, seconds: f64| count as f64 / seconds.max(1e-9);
    eprintln!(
        "[{tokens_read} tokens read, {:.1} a second; {written} written, {:.1} a second]",
        rate(tokens_read, first),
        rate(written.saturating_sub(1), whole - first),
    );
    Ok(text)
}
