//! [`grammar`]: the grammar of a text that is a call, in the notation of Lark.

use std::fmt::Write;

use serde_json::{Map, Value as Json, json};
use taper::models::{guidance::Grammar, text::Tokenizer};

use super::{
    Function, Tools,
    format::{AnswerFormat, ArgumentMarks, Body},
    values::{MAX_REFERENCES, target, types},
};
use crate::serve::failure::Failure;

/// The fields in which schemas keep their definitions, to which `$ref` refers from the root.
const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];
/// A regular expression for any text.
const ANY_TEXT: &str = r"/(.|\n)*/";

/// The rules of a text that matches one of them, `start`.
pub(in crate::serve) struct Rules<'a> {
    tokenizer: &'a Tokenizer,
    format: AnswerFormat,
    text: String,
    next: usize,
}

impl<'a> Rules<'a> {
    pub(in crate::serve) fn new(tokenizer: &'a Tokenizer, format: AnswerFormat) -> Rules<'a> {
        Rules { tokenizer, format, text: String::new(), next: 0 }
    }

    /// The grammar of this part, after the rest of a reasoning that the prompt has begun.
    pub(in crate::serve) fn start(mut self, part: &str, is_reasoning_open: bool) -> Grammar {
        let reasoning = self.format.reasoning.filter(|_| is_reasoning_open);
        let before =
            reasoning.map_or_else(String::new, |marks| self.text_before("", marks.close) + r" /\s*/");
        Grammar::lark(&format!("start: {before} {part}\n{}", self.text))
    }

    /// A new rule with a right side; `kind` begins its name.
    fn rule(&mut self, kind: &str, right: &str) -> String {
        self.rule_with(kind, "", right)
    }

    fn rule_with(&mut self, kind: &str, attributes: &str, right: &str) -> String {
        let name = format!("{kind}_{}", self.next);
        self.next += 1;
        let _ = writeln!(self.text, "{name}{attributes}: {right}");
        name
    }

    /// A text as it is, in which marks that are special tokens of the tokenizer are those.
    fn literal(&self, text: &str) -> String {
        let special = |mark: &'static str| {
            let id = self.tokenizer.token_to_id(mark).filter(|id| self.tokenizer.is_special(*id));
            id.map(|id| (mark, id))
        };
        let special: Vec<(&str, u32)> = self.format.marks().filter_map(special).collect();
        let (mut rest, mut parts) = (text, Vec::new());
        while !rest.is_empty() {
            let first = special.iter().filter_map(|(mark, id)| Some((rest.find(mark)?, *mark, *id))).min();
            let (at, mark, id) = first.map_or((rest.len(), "", None), |(at, mark, id)| (at, mark, Some(id)));
            if at > 0 {
                parts.push(json!(rest[..at]).to_string());
            }
            parts.extend(id.map(|id| format!("<[{id}]>")));
            rest = &rest[at + mark.len()..];
        }
        parts.join(" ")
    }

    /// Any text before a mark, and the mark, which may stand in a line of its own.
    fn text_before(&mut self, line: &str, mark: &str) -> String {
        let special = self.literal(mark);
        match special.starts_with('<') {
            true => format!("{ANY_TEXT} {special}"),
            false => {
                let suffix = json!(line.to_string() + mark);
                self.rule_with("text", &format!("[suffix={suffix}]"), ANY_TEXT)
            }
        }
    }

    /// JSON that a schema describes.
    pub(in crate::serve) fn json(&mut self, param: &'static str, schema: &Json) -> Result<String, Failure> {
        let right = Grammar::json_rule(&schema.to_string());
        let right = right.map_err(|error| Failure::field(param, error.kind().to_string()))?;
        Ok(self.rule("json", &right))
    }

    /// A call of one of the functions.
    pub(in crate::serve) fn call(&mut self, tools: &Tools) -> Result<String, Failure> {
        let calls = tools.functions.iter().map(|function| self.call_of(function));
        let calls = calls.collect::<Result<Vec<_>, _>>()?;
        Ok(self.rule("call", &calls.join(" | ")))
    }

    fn call_of(&mut self, function: &Function) -> Result<String, Failure> {
        let format = self.format.calls;
        let (before, behind) = format.around;
        let head = match format.body {
            Body::Object(_) => format.open.to_string(),
            Body::Objects(_) => format!("{}[", format.open),
            Body::Gemma | Body::Json | Body::Marked(_) | Body::Python | Body::Channels => {
                format!("{}{}{}", format.open, function.name, format.after_name)
            }
        };
        let inner = match format.body {
            Body::Object(field) | Body::Objects(field) => {
                let name = json!({"const": function.name});
                let properties = json!({"name": name, field: function.schema_with_type()});
                let required = json!(["name", field]);
                let schema = json!({"type": "object", "properties": properties, "required": required,
                    "additionalProperties": false});
                self.json("tools", &function.with_definitions(schema))?
            }
            Body::Json | Body::Gemma | Body::Channels => {
                self.json("tools", &function.with_definitions(function.schema_with_type()))?
            }
            Body::Marked(marks) => {
                self.sequence(function, "", |rules, key, schema| rules.marked(function, &marks, key, schema))?
            }
            Body::Python => self.sequence(function, ", ", |rules, key, schema| {
                let value = rules.python(function, schema)?;
                Ok(format!("{} {value}", rules.literal(&format!("{key}="))))
            })?,
        };
        let tail = match format.body {
            Body::Objects(_) => format!("]{}", format.close),
            _ => format.close.to_string(),
        };
        let (head, tail) = (self.literal(&(before.to_string() + &head)), self.literal(&(tail + behind)));
        Ok(self.rule("one", &format!("{head} {inner} {tail}")))
    }

    /// The arguments of a function one after the other, in the order of its schema; those that are not
    /// required may be missing.
    fn sequence(
        &mut self,
        function: &Function,
        separator: &str,
        mut argument: impl FnMut(&mut Self, &str, &Json) -> Result<String, Failure>,
    ) -> Result<String, Failure> {
        let separator = self.literal(separator);
        // The rest of the arguments, as the first ones and after others.
        let (mut first, mut later) = (r#""""#.to_string(), r#""""#.to_string());
        let parameters = function.parameters_in_order();
        for (key, schema) in parameters.into_iter().rev() {
            let one = argument(self, key, schema)?;
            let alone = format!("{one} {later}");
            let joined = format!("{separator} {one} {later}");
            (first, later) = match function.is_required(key) {
                true => (self.rule("first", &alone), self.rule("later", &joined)),
                false => (
                    self.rule("first", &format!("{alone} | {first}")),
                    self.rule("later", &format!("{joined} | {later}")),
                ),
            };
        }
        Ok(first)
    }

    /// An argument between marks.
    fn marked(
        &mut self,
        function: &Function,
        marks: &ArgumentMarks,
        key: &str,
        schema: &Json,
    ) -> Result<String, Failure> {
        let before = self.literal(&format!("{}{key}{}{}", marks.key_open, marks.key_close, marks.value_open));
        let closing = marks.value_close.trim_end();
        let line = if marks.own_lines { "\n" } else { "" };
        let after = self.literal(&marks.value_close[closing.len()..]);
        let value = if types(schema, function.schema()).is_text() {
            match values_of(schema, function.schema(), MAX_REFERENCES) {
                Some(values) => {
                    let values = values.iter().map(|value| self.literal(value)).collect::<Vec<_>>();
                    let values = self.rule("value", &values.join(" | "));
                    format!("{values} {}", self.literal(&format!("{line}{closing}")))
                }
                None => self.text_before(line, closing),
            }
        } else {
            let value = self.json("tools", &function.with_definitions(schema.clone()))?;
            format!("{value} {}", self.literal(&format!("{line}{closing}")))
        };
        Ok(self.rule("argument", &format!("{before} {value} {after}")))
    }

    /// A value as Python writes it.
    fn python(&mut self, function: &Function, schema: &Json) -> Result<String, Failure> {
        let types = types(schema, function.schema());
        if types.boolean && !(types.text || types.null || types.other) {
            return Ok(self.rule("value", r#""True" | "False""#));
        }
        self.json("tools", &function.with_definitions(schema.clone()))
    }
}

/// The bare texts that the schema of a text enumerates; none if it allows others.
fn values_of<'a>(schema: &'a Json, root: &'a Json, depth: usize) -> Option<Vec<&'a str>> {
    let depth = depth.checked_sub(1)?;
    if let Some(target) = target(schema, root) {
        return values_of(target, root, depth);
    }
    let text = |value: &'a Json| if value.is_null() { Some("null") } else { value.as_str() };
    let values = schema.get("enum").and_then(Json::as_array).into_iter().flatten();
    let values: Option<Vec<&str>> = values.chain(schema.get("const")).map(text).collect();
    let alternatives = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Json::as_array);
    match (values, alternatives) {
        (Some(values), _) if !values.is_empty() => Some(values),
        (Some(_), Some(alternatives)) => {
            let all = alternatives.iter().map(|schema| values_of(schema, root, depth));
            Some(all.collect::<Option<Vec<_>>>()?.concat())
        }
        (Some(_), None) if schema.get("type") == Some(&json!("null")) => Some(vec!["null"]),
        _ => None,
    }
}

impl Function {
    /// The schema of the arguments, which are an object.
    fn schema_with_type(&self) -> Json {
        let mut schema = self.schema().clone();
        match schema.as_object_mut() {
            Some(fields) => {
                fields.entry("type").or_insert_with(|| json!("object"));
                DEFINITIONS.iter().for_each(|field| drop(fields.remove(*field)));
            }
            None => schema = json!({"type": "object"}),
        }
        schema
    }

    /// A schema with the definitions of this function, because references start at the root.
    fn with_definitions(&self, mut schema: Json) -> Json {
        let definitions = DEFINITIONS.iter().filter_map(|field| Some((*field, self.schema().get(field)?)));
        if let Some(fields) = schema.as_object_mut() {
            fields.extend(definitions.map(|(field, all)| (field.to_string(), all.clone())));
        }
        schema
    }

    fn parameters_in_order(&self) -> Vec<(&str, &Json)> {
        let properties = self.schema().get("properties").and_then(Json::as_object);
        properties.into_iter().flat_map(Map::iter).map(|(key, schema)| (key.as_str(), schema)).collect()
    }

    fn is_required(&self, key: &str) -> bool {
        let required = self.schema().get("required").and_then(Json::as_array);
        required.into_iter().flatten().any(|name| name == key)
    }
}
