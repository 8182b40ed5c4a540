//! Messages of a conversation as chat templates expect them, and the pictures in them.

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value as Json, json};
use taper::{
    data::{Image, ReadBudget},
    models::pictures::PreparedPicture,
};

use super::{failure::Failure, tools::AnswerFormat};
use crate::pictures::PictureReader;

/// The greatest number of pictures of a conversation.
const MAX_PICTURES: usize = 64;
/// The memory that the pixels of a picture may take.
const PICTURE_BUDGET: ReadBudget = ReadBudget { least: 128 << 20, per_byte: 0 };

/// A conversation whose pictures are tiles.
pub(super) struct Conversation<'a> {
    pub(super) messages: Vec<Json>,
    /// The pictures in the order of the messages.
    pub(super) pictures: Vec<PreparedPicture>,
    reader: Option<&'a PictureReader>,
    written: AnswerFormat,
}

fn wrong(message: impl Into<String>) -> Failure {
    Failure::field("messages", message)
}

impl<'a> Conversation<'a> {
    /// The messages of a request to a model that writes its answers so, and that may read pictures.
    pub(super) fn new(
        messages: Vec<Json>,
        written: AnswerFormat,
        reader: Option<&'a PictureReader>,
    ) -> Result<Conversation<'a>, Failure> {
        if messages.is_empty() {
            return Err(wrong("there are no messages"));
        }
        let mut whole = Conversation { messages: Vec::new(), pictures: Vec::new(), reader, written };
        for message in messages {
            let message = whole.prepared(message)?;
            whole.messages.push(message);
        }
        Ok(whole)
    }

    /// A message whose content is a text, or a list of parts if the model reads pictures, and whose reasoning
    /// has all its names.
    fn prepared(&mut self, mut message: Json) -> Result<Json, Failure> {
        let fields = message.as_object_mut().ok_or_else(|| wrong("a message must be an object"))?;
        let role =
            fields.get("role").and_then(Json::as_str).ok_or_else(|| wrong("a message must have a role"))?;
        if role == "developer" {
            fields.insert("role".to_string(), json!("system"));
        }
        let content = match fields.remove("content") {
            None | Some(Json::Null) => vec![text_part("")],
            Some(Json::String(text)) => vec![text_part(&text)],
            Some(Json::Array(parts)) => {
                parts.iter().map(|part| self.part(part)).collect::<Result<Vec<_>, _>>()?
            }
            Some(_) => return Err(wrong("the content of a message must be a text, or a list of parts")),
        };
        let content = match self.reader {
            Some(_) => content.into(),
            None => content.iter().filter_map(|part| part["text"].as_str()).collect::<String>().into(),
        };
        fields.insert("content".to_string(), content);
        if let Some(reasoning) = fields.get("reasoning_content").filter(|text| text.is_string()).cloned() {
            fields.entry("thinking").or_insert(reasoning);
        }
        for call in fields.get_mut("tool_calls").and_then(Json::as_array_mut).into_iter().flatten() {
            if let Some(arguments) = call.pointer_mut("/function/arguments") {
                self.written.earlier_arguments(arguments);
            }
        }
        Ok(message)
    }

    /// A part of a message; a picture is read.
    fn part(&mut self, part: &Json) -> Result<Json, Failure> {
        if let Some(text) = part.get("text").and_then(Json::as_str) {
            return Ok(text_part(text));
        }
        let url = part.pointer("/image_url/url").or_else(|| part.get("image_url")).and_then(Json::as_str);
        let Some(url) = url else {
            return Err(wrong("this server reads only parts of the types \"text\" and \"image_url\""));
        };
        let Some(reader) = self.reader else { return Err(wrong("this model reads no pictures")) };
        if self.pictures.len() == MAX_PICTURES {
            return Err(wrong(format!("more than {MAX_PICTURES} pictures")));
        }
        let read = Image::decode(&bytes(url)?, PICTURE_BUDGET).and_then(|image| reader.prepare(&image));
        self.pictures.push(read.map_err(|error| wrong(error.kind().to_string()))?);
        Ok(json!({"type": "image"}))
    }
}

fn text_part(text: &str) -> Json {
    json!({"type": "text", "text": text})
}

/// The bytes of a `data:` URL in base64. Other URLs are refused, because a server that fetches what clients
/// name can be made to read addresses that only it reaches.
fn bytes(url: &str) -> Result<Vec<u8>, Failure> {
    let data = url.strip_prefix("data:").and_then(|rest| rest.split_once(','));
    let Some((_, data)) = data.filter(|(kind, _)| kind.ends_with(";base64")) else {
        return Err(wrong(
            "a picture must be a URL such as data:image/png;base64,…; this server fetches none",
        ));
    };
    BASE64_STANDARD.decode(data.trim()).map_err(|error| wrong(format!("a picture is not base64: {error}")))
}
