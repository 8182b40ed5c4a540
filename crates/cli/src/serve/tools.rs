//! Functions that a model may call: the grammar of a call that is demanded, and calls found in a text.

use serde::Deserialize;
use serde_json::{Map, Value as Json, json};
use taper::models::guidance::Grammar;

use super::failure::Failure;

/// The marks around a call in the format of Hermes and Qwen.
const CALL_BEGIN: &str = "<tool_call>";
const CALL_END: &str = "</tool_call>";
/// The fields in which schemas keep their definitions, to which `$ref` refers from the root.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];

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

    /// The grammar of a text that is a call, if one is required: JSON with the name and the arguments.
    pub(super) fn grammar(&self) -> Result<Option<Grammar>, Failure> {
        match self.choice {
            Choice::Auto => return Ok(None),
            Choice::Required => {}
        }
        let mut root = Map::new();
        let mut calls = Vec::new();
        for function in &self.functions {
            let mut parameters = function.parameters.clone().unwrap_or_else(|| json!({"type": "object"}));
            // References start at the root, so the definitions go there.
            for field in DEFINITIONS {
                let Some(Json::Object(own)) = parameters.as_object_mut().and_then(|all| all.remove(field))
                else {
                    continue;
                };
                let shared = root.entry(field).or_insert_with(|| json!({}));
                for (name, definition) in own {
                    if shared.get(&name).is_some_and(|other| *other != definition) {
                        let message = format!("two tools define {field}/{name} differently");
                        return Err(Failure::field("tools", message));
                    }
                    shared[name] = definition;
                }
            }
            calls.push(json!({
                "type": "object",
                "properties": {"name": {"const": function.name}, "arguments": parameters},
                "required": ["name", "arguments"],
                "additionalProperties": false,
            }));
        }
        root.insert("anyOf".to_string(), calls.into());
        let grammar = Grammar::json_schema(&Json::Object(root).to_string());
        grammar.map(Some).map_err(|error| Failure::field("tools", error.kind().to_string()))
    }

    /// A filter for one text.
    pub(super) fn filter(&self) -> CallFilter {
        CallFilter {
            names: self.functions.iter().map(|function| function.name.clone()).collect(),
            held: String::new(),
            state: FilterState::Start,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FilterState {
    /// Only white space so far.
    Start,
    /// Text for the reader.
    Text,
    /// The rest may be calls, and is held to the end.
    Calls,
}

/// Separates the calls of a text from the text before them, while it is generated.
pub(super) struct CallFilter {
    names: Vec<String>,
    held: String,
    state: FilterState,
}

impl CallFilter {
    /// The text that a further piece makes certain to be no call.
    pub(super) fn push(&mut self, text: &str) -> String {
        self.held.push_str(text);
        if self.state == FilterState::Start {
            match self.held.trim_start().chars().next() {
                None => return String::new(),
                // A call in the format of Llama 3 begins at once.
                Some('{' | '[') => self.state = FilterState::Calls,
                Some(_) => self.state = FilterState::Text,
            }
        }
        if self.state == FilterState::Calls {
            return String::new();
        }
        let cut = match self.held.find(CALL_BEGIN) {
            Some(at) => {
                self.state = FilterState::Calls;
                at
            }
            None => {
                let begins = |at: &usize| CALL_BEGIN.starts_with(&self.held[*at..]);
                self.held.char_indices().map(|(at, _)| at).find(begins).unwrap_or(self.held.len())
            }
        };
        let rest = self.held.split_off(cut);
        std::mem::replace(&mut self.held, rest)
    }

    /// The calls at the end of the text, or else the rest of the text.
    pub(super) fn finish(&mut self) -> (String, Vec<Call>) {
        let rest = std::mem::take(&mut self.held);
        match self.calls(&rest) {
            Some(calls) if !calls.is_empty() => (String::new(), calls),
            _ => (rest, Vec::new()),
        }
    }

    /// The calls that a text consists of; none if it has anything else.
    fn calls(&self, text: &str) -> Option<Vec<Call>> {
        let mut calls = Vec::new();
        let separates = |c: char| c.is_whitespace() || c == ';' || c == ',';
        let mut rest = text.trim();
        while !rest.is_empty() {
            let inner = rest.strip_prefix(CALL_BEGIN).unwrap_or(rest);
            let mut values = serde_json::Deserializer::from_str(inner).into_iter::<Json>();
            let value = values.next()?.ok()?;
            rest = inner[values.byte_offset()..].trim_start();
            rest = rest.strip_prefix(CALL_END).unwrap_or(rest).trim_start_matches(separates);
            match value {
                Json::Array(all) => {
                    calls.extend(all.iter().map(|value| self.call(value)).collect::<Option<Vec<_>>>()?);
                }
                value => calls.push(self.call(&value)?),
            }
        }
        Some(calls)
    }

    /// A call as Hermes (`arguments`) or Llama 3 (`parameters`) writes it.
    fn call(&self, value: &Json) -> Option<Call> {
        let name = value.get("name")?.as_str()?.to_string();
        if !self.names.contains(&name) {
            return None;
        }
        let arguments = match value.get("arguments").or_else(|| value.get("parameters")) {
            Some(Json::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => "{}".to_string(),
        };
        Some(Call { name, arguments })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tools(choice: Json) -> Tools {
        let tool = |name: &str| {
            let parameters = json!({"type": "object", "properties": {"city": {"$ref": "#/$defs/city"}},
                "$defs": {"city": {"type": "string"}}});
            json!({"type": "function", "function": {"name": name, "parameters": parameters}})
        };
        let found = Tools::parse(Some(vec![tool("weather"), tool("time")]), Some(choice));
        found.unwrap_or_else(|failure| panic!("{:?}", failure.body())).unwrap()
    }

    /// The text and the calls, whatever the pieces are.
    fn split(text: &str) -> (String, Vec<(String, String)>) {
        let mut results = Vec::new();
        for size in [1, 3, 1000] {
            let mut filter = tools(json!("auto")).filter();
            let characters: Vec<char> = text.chars().collect();
            let pieces = characters.chunks(size).map(|piece| piece.iter().collect::<String>());
            let mut shown: String = pieces.map(|piece| filter.push(&piece)).collect();
            let (rest, calls) = filter.finish();
            shown.push_str(&rest);
            results.push((shown, calls.into_iter().map(|call| (call.name, call.arguments)).collect()));
        }
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]), "{results:?}");
        results.remove(0)
    }

    #[test]
    fn calls_of_the_known_formats_are_found() {
        let call = |name: &str, city: &str| (name.to_string(), format!("{{\"city\":\"{city}\"}}"));
        let hermes = "I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>\n\
                      <tool_call>{\"name\": \"time\", \"arguments\": {\"city\": \"Rome\"}}</tool_call>";
        let expected = vec![call("weather", "Oslo"), call("time", "Rome")];
        assert_eq!(split(hermes), ("I look.\n".to_string(), expected.clone()));
        let llama = "{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\"}}; \
                     {\"name\": \"time\", \"parameters\": \"{\\\"city\\\":\\\"Rome\\\"}\"};";
        assert_eq!(split(llama), (String::new(), expected));
    }

    #[test]
    fn other_texts_stay_texts() {
        for text in [
            "a < b, and <tool> is no call",
            "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>",
            "<tool_call>{\"name\": \"weather\", \"argu",
            "{\"city\": \"Oslo\"}",
            "[1, 2]",
            "  ",
            "",
        ] {
            assert_eq!(split(text), (text.to_string(), Vec::new()));
        }
    }

    #[test]
    fn a_choice_must_be_possible() {
        let parse = |choice: Json| Tools::parse(None, Some(choice));
        assert!(parse(json!("auto")).is_ok_and(|tools| tools.is_none()));
        assert!(parse(json!("required")).is_err());
        assert!(parse(json!("maybe")).is_err());
        assert!(tools(json!("auto")).grammar().is_ok_and(|grammar| grammar.is_none()));
        assert!(tools(json!("required")).grammar().is_ok_and(|grammar| grammar.is_some()));
        let named = tools(json!({"type": "function", "function": {"name": "time"}}));
        assert_eq!(named.functions.len(), 1);
        assert_eq!(named.definitions().len(), 2);
    }
}
