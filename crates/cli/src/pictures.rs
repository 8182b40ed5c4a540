//! [`PictureReader`]: prompts with pictures, for the models that read them.

use std::path::Path;

use serde_json::{Value as Json, json};
use taper::{
    data::Image,
    models::{
        LanguageModel,
        pictures::{PICTURE_TOKEN, Picture, PictureProcessor, Pictures, PreparedPicture},
        text::Tokenizer,
    },
};

use crate::error::Outcome;

/// The pictures that a model is reading, and how they are cut into tiles.
pub(crate) struct PictureReader {
    pictures: Pictures,
    processor: PictureProcessor,
}

impl PictureReader {
    /// The reader of a model in a folder, if it reads pictures.
    pub(crate) fn of(model: &dyn LanguageModel, path: &Path) -> Outcome<Option<PictureReader>> {
        let Some(pictures) = model.pictures() else { return Ok(None) };
        let processor = PictureProcessor::from_folder(path)?;
        Ok(Some(PictureReader { pictures: pictures.clone(), processor }))
    }

    /// A picture as tiles.
    pub(crate) fn prepare(&self, image: &Image) -> taper::Result<PreparedPicture> {
        self.processor.prepare([image.height(), image.width()], image.bytes())
    }

    /// The tokens of a prompt in which [`PICTURE_TOKEN`] stands for each picture, and handles by which the
    /// model reads the pictures.
    pub(crate) fn prompt(
        &self,
        tokenizer: &Tokenizer,
        text: &str,
        prepared: &[PreparedPicture],
    ) -> Outcome<(Vec<u32>, Vec<Picture>)> {
        let mut parts = text.split(PICTURE_TOKEN);
        let mut whole = parts.next().unwrap_or_default().to_string();
        let mut texts = prepared.iter().map(PreparedPicture::text);
        for part in parts {
            let picture =
                texts.next().ok_or_else(|| format!("a text has the mark {PICTURE_TOKEN} of a picture"))?;
            whole.push_str(&picture);
            whole.push_str(part);
        }
        if texts.next().is_some() {
            return Err("the chat template has no place for a picture".into());
        }
        let ids = tokenizer.encode(&whole, false)?.ids;
        let pictures = prepared.iter().map(|picture| self.pictures.add(picture.clone()));
        let pictures = pictures.collect::<taper::Result<Vec<_>>>()?;
        Ok((self.pictures.prompt(ids, &pictures)?, pictures))
    }
}

/// The content of a message with this text after some pictures, as templates of such models expect it.
pub(crate) fn content(pictures: usize, text: &str) -> Json {
    let pictures = std::iter::repeat_n(json!({"type": "image"}), pictures);
    pictures.chain([json!({"type": "text", "text": text})]).collect()
}
