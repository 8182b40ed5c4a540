//! [`Cursor`]: a text that is read from its start.

use serde_json::Value as Json;

/// A text that is read from its start.
pub(super) struct Cursor<'a> {
    pub(super) rest: &'a str,
}

impl<'a> Cursor<'a> {
    pub(super) fn space(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Skips what stands between calls.
    pub(super) fn separators(&mut self) {
        self.rest = self.rest.trim_start_matches(|c: char| c.is_whitespace() || c == ';' || c == ',');
    }

    /// Skips a mark if it comes next, whatever white space is around and inside.
    pub(super) fn eat(&mut self, mark: &str) -> bool {
        let start = self.rest;
        for word in mark.split_whitespace() {
            self.space();
            match self.rest.strip_prefix(word) {
                Some(rest) => self.rest = rest,
                None => {
                    self.rest = start;
                    return false;
                }
            }
        }
        true
    }

    /// Skips a closing mark, whose first word must be there.
    pub(super) fn close(&mut self, mark: &str) -> Option<()> {
        let mut words = mark.split_whitespace();
        let is_closed = words.next().is_none_or(|word| self.eat(word));
        for word in words {
            self.eat(word);
        }
        is_closed.then_some(())
    }

    /// The text before a word, which is skipped.
    pub(super) fn until(&mut self, word: &str) -> Option<&'a str> {
        let (text, rest) = self.rest.split_once(word)?;
        self.rest = rest;
        Some(text)
    }

    /// A name of letters, digits, `_`, `-` and `.`.
    pub(super) fn name(&mut self) -> Option<&'a str> {
        self.space();
        let is_other = |c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
        let (name, rest) = self.rest.split_at(self.rest.find(is_other).unwrap_or(self.rest.len()));
        self.rest = rest;
        Some(name).filter(|name| !name.is_empty())
    }

    pub(super) fn json(&mut self) -> Option<Json> {
        let mut values = serde_json::Deserializer::from_str(self.rest).into_iter::<Json>();
        let value = values.next()?.ok()?;
        self.rest = &self.rest[values.byte_offset()..];
        Some(value)
    }
}
