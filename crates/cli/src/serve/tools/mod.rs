//! The parts of an answer: reasoning, text, and calls of functions that a request offers.
//!
//! [`format`] has the table of the formats in which families of models write them, [`filter`] separates the
//! parts while a text is generated, [`reader`] reads calls with their [`values`], and [`grammar`] describes a
//! text that is a call.

mod cursor;
mod filter;
mod format;
mod grammar;
mod reader;
mod values;

use serde::Deserialize;
use serde_json::{Value as Json, json};

use self::format::Earlier;
pub(super) use self::{
    filter::{AnswerFilter, Parts},
    format::AnswerFormat,
    grammar::Rules,
};
use super::{Identity, failure::Failure};

static NO_SCHEMA: Json = Json::Null;
/// The number of letters and digits of a call's number in the formats that have short ones.
const SHORT_ID_LENGTH: usize = 9;

/// Whether the model may or must call a function.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Choice {
    Auto,
    Required,
}

/// The functions of a request.
pub(super) struct Tools {
    /// The definitions as they came, for the chat template.
    definitions: Vec<Json>,
    functions: Vec<Function>,
    choice: Choice,
}

#[derive(Clone, Deserialize)]
struct Function {
    name: String,
    parameters: Option<Json>,
}

/// A call of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) name: String,
    /// JSON, as a text.
    pub(super) arguments: String,
}

impl Tools {
    /// The functions that the model gets; none if there are none, or if `tool_choice` is `none`.
    pub(super) fn parse(tools: Option<Vec<Json>>, choice: Option<Json>) -> Result<Option<Tools>, Failure> {
        let wrong = |message: &str| Failure::field("tools", message);
        let definitions = tools.unwrap_or_default();
        let mut functions = Vec::new();
        for tool in &definitions {
            let function = tool.get("function").filter(|_| tool.get("type") == Some(&json!("function")));
            let function = function.ok_or_else(|| wrong("a tool must have the type \"function\""))?;
            let function = Function::deserialize(function).map_err(|error| wrong(&error.to_string()))?;
            functions.push(function);
        }
        let choice = choice.unwrap_or_else(|| json!("auto"));
        let wrong = |message: String| Err(Failure::field("tool_choice", message));
        let choice = match (choice.as_str(), choice.pointer("/function/name").and_then(Json::as_str)) {
            (Some("none"), _) => return Ok(None),
            (Some("auto"), _) => Choice::Auto,
            (Some("required"), _) => Choice::Required,
            (_, Some(name)) => {
                functions.retain(|function| function.name == name);
                if functions.is_empty() {
                    return wrong(format!("{name:?} is none of the tools"));
                }
                Choice::Required
            }
            _ => return wrong("give \"none\", \"auto\", \"required\", or a function's name".to_string()),
        };
        match (functions.is_empty(), choice) {
            (true, Choice::Required) => wrong("a call is required, but there are no tools".to_string()),
            (true, Choice::Auto) => Ok(None),
            (false, choice) => Ok(Some(Tools { definitions, functions, choice })),
        }
    }

    /// The variable `tools` of a chat template.
    pub(super) fn definitions(&self) -> &[Json] {
        &self.definitions
    }

    /// Whether the answer must be a call.
    pub(super) fn is_required(&self) -> bool {
        self.choice == Choice::Required
    }
}

impl Function {
    /// The schema of its arguments; null if there is none.
    fn schema(&self) -> &Json {
        self.parameters.as_ref().unwrap_or(&NO_SCHEMA)
    }

    /// The schema of an argument, if it is known.
    fn parameter(&self, key: &str) -> Option<&Json> {
        self.schema().get("properties")?.get(key)
    }
}

impl AnswerFormat {
    /// The arguments of an earlier call as the chat template expects them.
    pub(super) fn earlier_arguments(&self, arguments: &mut Json) {
        match (self.calls.earlier, &arguments) {
            (Earlier::Text, Json::Object(_)) => *arguments = json!(arguments.to_string()),
            (Earlier::Object | Earlier::ShortIds, Json::String(text)) => {
                if let Ok(parsed) = serde_json::from_str(text) {
                    *arguments = parsed;
                }
            }
            _ => {}
        }
    }

    /// The number of a call, which the chat template may get back.
    pub(super) fn call_id(&self, identity: &Identity, text: usize, call: usize) -> String {
        match self.calls.earlier {
            Earlier::Object | Earlier::Text => format!("call_{}_{text}_{call}", identity.number()),
            Earlier::ShortIds => {
                // Numbers of answers are counted from the time of the start in nanoseconds.
                let number = identity.number.wrapping_mul(1024).wrapping_add((text * 64 + call) as u64);
                let digits = format!("{number:0SHORT_ID_LENGTH$x}");
                digits[digits.len() - SHORT_ID_LENGTH..].to_string()
            }
        }
    }
}

#[cfg(test)]
mod tests;
