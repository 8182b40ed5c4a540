//! Chat templates: Jinja, as `transformers` renders it.

use serde::{Deserialize, Serialize};
use serde_json::json;
use tensor_core::{Error, Result};

use super::jinja::{Fault, Limits, Template, Variables};

const OP: &str = "ChatTemplate";

/// A message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, or another role that the template knows.
    pub role: String,
    /// The text.
    pub content: String,
}

impl Message {
    /// A message of any role.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: content.into() }
    }

    /// A message of the user.
    pub fn user(content: impl Into<String>) -> Message {
        Message::new("user", content)
    }

    /// An answer of the model.
    pub fn assistant(content: impl Into<String>) -> Message {
        Message::new("assistant", content)
    }

    /// How the model should behave.
    pub fn system(content: impl Into<String>) -> Message {
        Message::new("system", content)
    }
}

/// The name of the chat template that is used unless another is chosen.
pub(super) const DEFAULT_TEMPLATE: &str = "default";

/// A template that turns a conversation into text: Jinja with the values and methods of Python, the filters
/// and tests of Jinja, and the functions and blocks that `transformers` adds (`raise_exception`,
/// `strftime_now`, `tojson`, `{% generation %}`, `{% break %}`). `strftime_now` gives the time in UTC.
///
/// A template is a program of a stranger. Each rendering may take 10 million steps and make texts and lists
/// of 256 MiB, and 100 steps and 1,000 bytes more for each byte of template and variables; see
/// [`ChatTemplate::set_limits`].
///
/// ```
/// use models::text::{ChatTemplate, Message};
/// # fn main() -> tensor_core::Result<()> {
/// let template = ChatTemplate::new(
///     "{% for m in messages %}<{{ m['role'] }}>{{ m['content'].strip() }}\n{% endfor %}\
///      {% if add_generation_prompt %}<assistant>{% endif %}",
/// )?;
/// let text = template.render(&[Message::user(" Hello ")], true, None, None)?;
/// assert_eq!(text, "<user>Hello\n<assistant>");
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct ChatTemplate {
    source: String,
    template: Template,
    limits: Option<Limits>,
}

impl ChatTemplate {
    /// A template from its source.
    ///
    /// # Errors
    /// A source that is not valid, with the line.
    #[track_caller]
    pub fn new(source: &str) -> Result<ChatTemplate> {
        match Template::new(source) {
            Ok(template) => Ok(ChatTemplate { source: source.to_string(), template, limits: None }),
            Err(fault) => Err(Error::invalid(OP, format!("this is no template: {fault}"))),
        }
    }

    /// The source. Its marks show how the model writes: its reasoning, its calls.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Replaces what a rendering may do at most.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = Some(limits);
    }

    /// The text of a conversation; see [`Tokenizer::chat`](super::Tokenizer::chat). A token that is none is
    /// not defined in the template; `tools` and `documents` are none.
    ///
    /// # Errors
    /// Messages that the template refuses, for instance in another order than it expects, and a template that
    /// takes more than its limits.
    #[track_caller]
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        bos_token: Option<&str>,
        eos_token: Option<&str>,
    ) -> Result<String> {
        let tokens = [("bos_token", bos_token), ("eos_token", eos_token)];
        let tokens: Vec<(&str, &str)> =
            tokens.iter().filter_map(|(name, token)| Some((*name, (*token)?))).collect();
        self.rendered(&conversation(messages, add_generation_prompt, &tokens)?)
    }

    /// The text with these variables: a map or a structure, whose fields keep their order. `transformers`
    /// gives `messages`, `tools`, `documents`, `add_generation_prompt` and the special tokens, such as
    /// `bos_token`; `tools` and `documents` are none if they are not given.
    ///
    /// ```
    /// # use models::text::ChatTemplate;
    /// # fn main() -> tensor_core::Result<()> {
    /// let source = "{% if tools %}{{ tools | tojson }}{% endif %}{{ messages[0].content }}";
    /// let template = ChatTemplate::new(source)?;
    /// let messages = serde_json::json!([{"role": "user", "content": "Hello"}]);
    /// let tools = serde_json::json!([{"name": "clock"}]);
    /// let text = template.render_with(&serde_json::json!({"messages": messages, "tools": tools}))?;
    /// assert_eq!(text, r#"[{"name": "clock"}]Hello"#);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`ChatTemplate::render`], and variables that are no map.
    #[track_caller]
    pub fn render_with(&self, variables: &impl Serialize) -> Result<String> {
        let mut all = conversation(&[], false, &[])?;
        all.extend(given(variables)?);
        self.rendered(&all)
    }

    #[track_caller]
    pub(super) fn rendered(&self, variables: &Variables) -> Result<String> {
        match self.template.render(variables, self.limits) {
            Ok(text) => Ok(text),
            Err(fault) => Err(Error::invalid(OP, format!("the template refuses these messages: {fault}"))),
        }
    }
}

fn refused(fault: Fault) -> Error {
    Error::invalid(OP, format!("these are no variables of a template: {fault}"))
}

/// Variables of a caller.
#[track_caller]
pub(super) fn given(variables: &impl Serialize) -> Result<Variables> {
    Variables::new(variables).map_err(refused)
}

/// The variables that each template has, and special tokens by their names.
#[track_caller]
pub(super) fn conversation(
    messages: &[Message],
    add_generation_prompt: bool,
    tokens: &[(&str, &str)],
) -> Result<Variables> {
    let none = serde_json::Value::Null;
    let mut variables = given(&json!({"tools": none, "documents": none}))?;
    let tokens: std::collections::BTreeMap<_, _> = tokens.iter().copied().collect();
    variables.extend(given(&tokens)?);

    #[derive(Serialize)]
    struct Conversation<'m> {
        messages: &'m [Message],
        add_generation_prompt: bool,
    }
    variables.extend(given(&Conversation { messages, add_generation_prompt })?);
    Ok(variables)
}
