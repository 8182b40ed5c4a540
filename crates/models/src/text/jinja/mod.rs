//! Jinja templates with the values of Python, as `transformers` renders chat templates: its sandbox, its
//! settings of white space, its functions and blocks. A template comes from strangers, so each step and each
//! byte that it makes is counted.
//!
//! It is a module of its own because the crates for Jinja know neither Python's values (`True`, `%`, the text
//! of a list) nor a limit of what an operator makes; docs/decisions/0067 has the reasons.
//!
//! A source becomes tokens (`lexer`), then statements (`parser`, `syntax`), which `render` runs by the
//! operators of `renderer`. `value` has the values and the budget; `filters`, `checks`, `methods` and
//! `printf` are tables of what Jinja and Python define.

mod arguments;
mod checks;
mod clock;
mod filters;
mod floats;
mod json;
mod lexer;
mod methods;
mod parser;
mod printf;
mod render;
mod renderer;
mod syntax;
mod value;

use serde::Serialize;

use self::value::{Budget, Value};

/// How much a rendering of a chat template may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The number of steps: one for each statement, operation, and element of a list that is looked at.
    pub steps: u64,
    /// The bytes of all texts and lists that it makes, those that it drops again included.
    pub bytes: u64,
}

impl Limits {
    /// The limits for a template and variables of this many bytes: 10 million steps and 100 for each byte,
    /// 256 MiB and 1,000 bytes for each.
    fn of_input(bytes: usize) -> Limits {
        let each = bytes as u64;
        Limits { steps: 10_000_000 + 100 * each, bytes: (256 << 20) + 1000 * each }
    }
}

/// Why a template is refused, and the line if it is known.
#[derive(Debug)]
pub(super) struct Fault {
    message: String,
    line: Option<usize>,
}

impl Fault {
    fn new(message: impl Into<String>) -> Fault {
        Fault { message: message.into(), line: None }
    }

    /// The fault of something with a name.
    fn within(self, name: &str) -> Fault {
        Fault { message: format!("{name}: {}", self.message), ..self }
    }

    /// The fault in a line, unless one is known.
    fn at(self, line: usize) -> Fault {
        Fault { line: self.line.or(Some(line)), ..self }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// A template.
#[derive(Debug)]
pub(super) struct Template {
    statements: Vec<syntax::Statement>,
    /// The bytes of its source.
    size: usize,
}

/// Variables for a template: names with values, and the bytes that they take as JSON.
pub(super) struct Variables {
    pairs: Vec<(Value, Value)>,
    size: usize,
}

impl Variables {
    /// The fields of a structure or the pairs of a map, in their order.
    pub(super) fn new(variables: &impl Serialize) -> Result<Variables, Fault> {
        let fault = |error: serde_json::Error| Fault::new(error.to_string());
        let json = serde_json::to_string(variables).map_err(fault)?;
        match serde_json::from_str(&json).map_err(fault)? {
            Value::Dict(dict) => Ok(Variables { pairs: dict.pairs.clone(), size: json.len() }),
            other => Err(Fault::new(format!("variables have names, which a {} has not", other.kind()))),
        }
    }

    /// Adds variables, which replace those of the same name.
    pub(super) fn extend(&mut self, others: Variables) {
        self.pairs.extend(others.pairs);
        self.size += others.size;
    }

    /// Whether a variable is there and is something.
    pub(super) fn has(&self, name: &str) -> bool {
        let last = self.pairs.iter().rev().find(|(key, _)| key.as_text() == Some(name));
        last.is_some_and(|(_, value)| value.is_true())
    }
}

impl Template {
    pub(super) fn new(source: &str) -> Result<Template, Fault> {
        Ok(Template { statements: parser::parse(source)?, size: source.len() })
    }

    /// The text with some variables.
    pub(super) fn render(&self, variables: &Variables, limits: Option<Limits>) -> Result<String, Fault> {
        let limits = limits.unwrap_or_else(|| Limits::of_input(self.size.saturating_add(variables.size)));
        render::render(&self.statements, &variables.pairs, Budget::new(limits))
    }
}
