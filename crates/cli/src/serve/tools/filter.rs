//! [`AnswerFilter`]: the parts of an answer while it is generated.

use taper::models::text::TextSearch;

use super::{Call, Function, Tools, cursor::Cursor, format::AnswerFormat, reader::calls};

/// Where the header of a message ends, in the format with channels.
const MESSAGE: &str = "<|message|>";
/// Where its text ends.
const MESSAGE_ENDS: [&str; 4] = ["<|end|>", "<|call|>", "<|return|>", "<|start|>"];
/// How the header begins; the prompt may have its first part.
const HEADERS: [&str; 3] = ["<|start|>", "<|channel|>", "to="];
/// The recipient of a message that is a call, before the function's name.
const RECIPIENT: &str = "to=functions.";

/// The parts that a piece adds to an answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::serve) struct Parts {
    pub(in crate::serve) reasoning: String,
    pub(in crate::serve) content: String,
    pub(in crate::serve) calls: Vec<Call>,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Only white space so far, at the start or after the reasoning.
    Start { is_reasoned: bool },
    /// Reasoning up to its closing mark.
    Reasoning,
    /// Text for the reader.
    Content,
    /// The rest may be calls, and is held to the end.
    Calls,
    /// The header of a message in a channel.
    Header,
    /// The text of a message.
    Message(Channel),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    Reasoning,
    Content,
}

/// Separates the reasoning and the calls of a text from the rest, while it is generated. How the text is cut
/// into pieces makes no difference.
pub(in crate::serve) struct AnswerFilter {
    format: AnswerFormat,
    functions: Vec<Function>,
    search: TextSearch,
    state: State,
    /// White space at the end of the reasoning, which is part of it if more follows.
    space: String,
    /// Whether the reasoning has begun with something else than white space.
    has_reasoning: bool,
    /// The calls of messages in channels.
    calls: Vec<Call>,
}

impl AnswerFilter {
    /// A filter for one text. The prompt may have begun its reasoning.
    pub(in crate::serve) fn new(
        format: AnswerFormat,
        tools: Option<&Tools>,
        is_reasoning_open: bool,
    ) -> AnswerFilter {
        let state = match (format.is_channels(), is_reasoning_open) {
            (true, _) => State::Header,
            (false, true) => State::Reasoning,
            (false, false) => State::Start { is_reasoned: false },
        };
        AnswerFilter {
            format,
            functions: tools.map_or_else(Vec::new, |tools| tools.functions.clone()),
            search: TextSearch::default(),
            state,
            space: String::new(),
            has_reasoning: false,
            calls: Vec::new(),
        }
    }

    /// The parts that a further piece makes certain.
    pub(in crate::serve) fn push(&mut self, text: &str) -> Parts {
        self.search.push(text);
        let mut parts = Parts::default();
        while self.advance(&mut parts, false) {}
        parts
    }

    /// The rest of the parts, with all calls.
    pub(in crate::serve) fn finish(&mut self) -> Parts {
        let mut parts = Parts::default();
        while self.advance(&mut parts, true) {}
        let rest = self.search.rest();
        match self.state {
            State::Calls => {
                let (calls, rest) = calls(self.format.calls, &self.functions, &rest);
                parts.calls = calls;
                if !rest.trim().is_empty() || parts.calls.is_empty() {
                    parts.content.push_str(rest);
                }
            }
            // The header of a message that never came.
            State::Header if HEADERS.iter().any(|header| rest.trim_start().starts_with(header)) => {}
            State::Header | State::Message(_) | State::Start { .. } | State::Reasoning | State::Content => {
                parts.content.push_str(&rest)
            }
        }
        parts.calls.append(&mut self.calls);
        parts
    }

    /// Takes what the state allows, and says whether there is another state that may allow more.
    fn advance(&mut self, parts: &mut Parts, is_end: bool) -> bool {
        match self.state {
            State::Start { is_reasoned } => self.start(is_reasoned, is_end),
            State::Reasoning => {
                let marks = self.format.reasoning.map_or("", |marks| marks.close);
                let (text, found) = self.until(&[marks], is_end);
                self.reason(&text, parts);
                if found.is_some() {
                    self.search.take(marks.len());
                    self.space.clear();
                    self.state = State::Start { is_reasoned: true };
                }
                found.is_some()
            }
            State::Content => {
                let begin = if self.functions.is_empty() { &[] } else { self.format.calls.begin };
                let (text, found) = self.until(begin, is_end);
                parts.content.push_str(&text);
                if found.is_some() {
                    self.state = State::Calls;
                }
                false
            }
            State::Calls => false,
            State::Header => self.header(is_end),
            State::Message(channel) => {
                let (text, found) = self.until(&MESSAGE_ENDS, is_end);
                match channel {
                    Channel::Reasoning => self.reason(&text, parts),
                    Channel::Content => parts.content.push_str(&text),
                }
                if let Some(end) = found {
                    self.end_message(end);
                }
                found.is_some()
            }
        }
    }

    fn until(&mut self, words: &[&str], is_end: bool) -> (String, Option<usize>) {
        match is_end {
            true => self.search.before_end(words),
            false => self.search.before(words),
        }
    }

    /// Adds to the reasoning, without white space at its ends.
    fn reason(&mut self, text: &str, parts: &mut Parts) {
        let text = if self.has_reasoning { text } else { text.trim_start() };
        let trimmed = text.trim_end();
        if !trimmed.is_empty() {
            parts.reasoning.push_str(&std::mem::take(&mut self.space));
            parts.reasoning.push_str(trimmed);
            self.has_reasoning = true;
        }
        self.space.push_str(&text[trimmed.len()..]);
    }

    /// Decides what the text begins with.
    fn start(&mut self, is_reasoned: bool, is_end: bool) -> bool {
        let text = self.search.held().trim_start();
        let space = self.search.held().len() - text.len();
        let open = self.format.reasoning.filter(|_| !is_reasoned).map_or("", |marks| marks.open.trim_end());
        if !open.is_empty() && text.starts_with(open) {
            self.search.take(space + open.len());
            self.state = State::Reasoning;
            return true;
        }
        let is_undecided = text.is_empty() || (open.starts_with(text) && !is_end);
        let is_bare = self.format.calls.is_bare && !self.functions.is_empty() && text.starts_with(['{', '[']);
        // White space behind the reasoning is no part of the text.
        if is_reasoned {
            self.search.take(space);
        }
        if !is_undecided {
            self.state = if is_bare { State::Calls } else { State::Content };
        }
        !is_undecided
    }

    /// Reads the header of a message, if it is complete.
    fn header(&mut self, is_end: bool) -> bool {
        let text = self.search.held().trim_start();
        let begins = |header: &&str| text.starts_with(*header) || header.starts_with(text);
        if !HEADERS.iter().any(begins) {
            self.state = State::Message(Channel::Content);
            return true;
        }
        let Some(at) = self.search.held().find(MESSAGE) else { return false };
        let header = &self.search.held()[..at];
        let channel = header.split_once("<|channel|>").map_or("", |(_, channel)| channel.trim_start());
        if let Some((_, name)) = header.split_once(RECIPIENT) {
            let name = Cursor { rest: name }.name().unwrap_or_default();
            let known = self.functions.iter().any(|function| function.name == name);
            let name = name.to_string();
            let body = at + MESSAGE.len();
            let ends = MESSAGE_ENDS.iter().filter_map(|end| self.search.held()[body..].find(end)).min();
            let Some(length) = ends.or(is_end.then(|| self.search.held().len() - body)) else { return false };
            let mut cursor = Cursor { rest: &self.search.held()[body..body + length] };
            let arguments = cursor.json().filter(|value| value.is_object() && cursor.rest.trim().is_empty());
            return match arguments.filter(|_| known) {
                Some(arguments) => {
                    self.calls.push(Call { name, arguments: arguments.to_string() });
                    self.search.take(body + length);
                    self.state = State::Message(Channel::Content);
                    true
                }
                None => {
                    self.state = State::Content;
                    true
                }
            };
        }
        let is_reasoning = channel.starts_with("analysis");
        self.search.take(at + MESSAGE.len());
        self.state = State::Message(if is_reasoning { Channel::Reasoning } else { Channel::Content });
        true
    }

    /// Goes on with the header of the next message.
    fn end_message(&mut self, end: usize) {
        self.space.clear();
        if MESSAGE_ENDS[end] != HEADERS[0] {
            self.search.take(MESSAGE_ENDS[end].len());
        }
        self.state = State::Header;
    }
}
