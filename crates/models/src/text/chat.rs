//! Chat templates: Jinja, as `transformers` renders it.

use std::fmt;

use minijinja::{Environment, ErrorKind, context};
use serde::{Deserialize, Serialize};
use tensor_core::{Error, Result};

const OP: &str = "ChatTemplate";
const NAME: &str = "chat";

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

/// A template that turns a conversation into text.
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
pub struct ChatTemplate {
    environment: Environment<'static>,
}

impl ChatTemplate {
    /// A template from its source.
    ///
    /// # Errors
    /// A source that is not valid.
    #[track_caller]
    pub fn new(source: &str) -> Result<ChatTemplate> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> std::result::Result<String, _> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message))
        });
        if let Err(error) = environment.add_template_owned(NAME, source.to_string()) {
            return Err(Error::invalid(OP, format!("this is no template: {error:#}")));
        }
        Ok(ChatTemplate { environment })
    }

    /// The text of a conversation; see [`Tokenizer::chat`](super::Tokenizer::chat).
    ///
    /// # Errors
    /// Messages that the template refuses, for instance in another order than it expects.
    #[track_caller]
    pub fn render(
        &self,
        messages: &[Message],
        add_generation_prompt: bool,
        bos_token: Option<&str>,
        eos_token: Option<&str>,
    ) -> Result<String> {
        let values = context! { messages, add_generation_prompt, bos_token, eos_token };
        let rendered = self.environment.get_template(NAME).and_then(|template| template.render(values));
        match rendered {
            Ok(text) => Ok(text),
            Err(error) => Err(Error::invalid(OP, format!("the template refuses these messages: {error:#}"))),
        }
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatTemplate").finish_non_exhaustive()
    }
}
