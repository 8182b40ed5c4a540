//! SmolVLM and Idefics 3, which read pictures and texts: `transformers`'
//! `SmolVLMForConditionalGeneration` and `Idefics3ForConditionalGeneration`.
//!
//! A SigLIP makes vectors of the patches of a tile, squares of neighbours become one vector, and these stand
//! in the place of tokens before a Llama.
//!
//! Laurençon et al.: Building and better understanding vision-language models (2024). Marafioti et al.:
//! SmolVLM, redefining small and efficient multimodal models (2025).

mod config;

use std::path::Path;

use autograd::no_grad;
use nn::{Linear, Module};
use tensor_core::{Device, Error, Result, Tensor};

pub use self::config::SmolVlmConfig;
use crate::{KvCache, LanguageModel, Llama, WeightSource, pictures::Pictures, vision::SiglipVisionModel};

const OP: &str = "SmolVlm";

/// A language model that reads pictures.
///
/// ```no_run
/// use models::{LanguageModel, SmolVlm, pictures::PictureProcessor};
/// # fn main() -> tensor_core::Result<()> {
/// # let (size, bytes) = ([480, 640], vec![0; 480 * 640 * 3]);
/// # let tokens = vec![1, 2, 3];
/// let device = backend_cpu::cpu();
/// let model = SmolVlm::from_folder("SmolVLM-256M-Instruct", &device)?;
/// let processor = PictureProcessor::from_folder("SmolVLM-256M-Instruct")?;
/// // The text of the prompt has `prepared.text()` in the place of the picture, and `tokens` are its tokens.
/// let prepared = processor.prepare(size, &bytes)?;
/// let pictures = model.pictures().expect("it reads pictures");
/// let picture = pictures.add(prepared)?; // as long as it is there, the model reads it
/// let prompt = pictures.prompt(tokens, &[picture.clone()])?;
/// # let _ = prompt;
/// # Ok(()) }
/// ```
pub struct SmolVlm {
    vision: SiglipVisionModel,
    /// The projection of a square of patches.
    projection: Linear,
    text: Llama,
    config: SmolVlmConfig,
    pictures: Pictures,
}

impl Module for SmolVlm {
    fn visit(&self, visitor: &mut nn::Visitor) {
        visitor.field("model.vision_model", &self.vision);
        visitor.field("model.connector.modality_projection.proj", &self.projection);
        self.text.visit_as("model.text_model", visitor);
    }
    fn visit_mut(&mut self, visitor: &mut nn::VisitorMut) {
        visitor.field("model.vision_model", &mut self.vision);
        visitor.field("model.connector.modality_projection.proj", &mut self.projection);
        self.text.visit_mut_as("model.text_model", visitor);
    }
}

impl SmolVlm {
    /// A model with the parameters of a source.
    ///
    /// # Errors
    /// A configuration that contradicts itself; parameters that are missing, have another shape, or are left
    /// over.
    #[track_caller]
    pub fn new(config: &SmolVlmConfig, weights: impl Into<WeightSource>) -> Result<SmolVlm> {
        config.check()?;
        let source = weights.into();
        let model = source.at("model");
        let vision = SiglipVisionModel::new(&config.vision_config, model.at("vision_model"))?;
        let square = config.vision_config.hidden_size * config.scale_factor.pow(2);
        let at = model.at("connector.modality_projection");
        let projection = at.linear("proj", square, config.text_config.hidden_size, false)?;
        let text = Llama::build(&config.text_config, &source, "model.text_model")?;
        let tokens = (config.text_config.vocab_size, config.image_token_id, config.tile_tokens());
        let pictures = Pictures::new(tokens.0, tokens.1, tokens.2);
        Ok(SmolVlm { vision, projection, text, config: config.clone(), pictures })
    }

    /// A model from a folder with `config.json` and weights.
    ///
    /// # Errors
    /// A `File` error if one cannot be read, and those of [`SmolVlm::new`].
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>, device: &Device) -> Result<SmolVlm> {
        let path = path.as_ref();
        let config = SmolVlmConfig::from_folder(path)?;
        SmolVlm::new(&config, WeightSource::open(path, device)?)
    }

    /// The configuration.
    pub fn config(&self) -> &SmolVlmConfig {
        &self.config
    }

    /// The vectors `[T, tokens, width]` of tiles `[T, 3, size, size]`.
    ///
    /// # Errors
    /// Tiles of another size.
    #[track_caller]
    pub fn features(&self, tiles: &Tensor) -> Result<Tensor> {
        let patches = self.vision.tokens(&tiles.to_dtype(self.projection.weight.dtype())?)?;
        let (side, scale, width) = (self.config.side(), self.config.scale_factor, patches.dims()[2]);
        let (count, squares) = (patches.dims()[0], side / scale);
        let shape = [count, squares, scale, squares, scale, width];
        let squares = patches.reshape(shape)?.permute([0, 1, 3, 2, 4, 5])?;
        let squares = squares.reshape([count, self.config.tile_tokens(), scale * scale * width])?;
        self.projection.forward(&squares)
    }

    /// The logits `[N, L, vocabulary]` for tokens `[N, L]` whose tokens of pictures stand for the vectors of
    /// these tiles `[T, 3, size, size]`, in their order: for training.
    ///
    /// # Errors
    /// Another number of tokens of pictures than the tiles have vectors, and those of the parts.
    #[track_caller]
    pub fn forward_with(&self, ids: &Tensor, tiles: &Tensor) -> Result<Tensor> {
        let token = self.config.image_token_id;
        let numbers = numbers(ids)?;
        let places = numbers.iter().enumerate().filter(|(_, number)| **number == token);
        let places: Vec<(usize, usize)> = places.enumerate().map(|(row, (at, _))| (at, row)).collect();
        let features = self.features(tiles)?;
        let features = features.reshape([features.dims()[0] * features.dims()[1], features.dims()[2]])?;
        if places.len() != features.dims()[0] {
            let message = format!("{} tokens of pictures for {} vectors", places.len(), features.dims()[0]);
            return Err(Error::invalid(OP, message));
        }
        let hidden = self.text.hidden_of(ids, None, &|ids| self.replaced(ids, &places, &features))?;
        self.text.logits(&hidden)
    }

    /// The vectors of tokens `[N, L]`, with rows of a table at these places.
    #[track_caller]
    fn replaced(&self, ids: &Tensor, places: &[(usize, usize)], table: &Tensor) -> Result<Tensor> {
        let embedded = self.text.embedded(ids)?;
        let &[rows, length, width] = embedded.dims() else {
            return Err(Error::invalid(OP, format!("tokens have the axes [N, L], not {}", ids.shape())));
        };
        let count = rows * length;
        let mut order: Vec<i32> = (0..count as i32).collect();
        for &(at, row) in places {
            order[at] = (count + row) as i32;
        }
        let all = Tensor::concat(&[embedded.reshape([count, width])?, table.to_dtype(embedded.dtype())?], 0)?;
        let order = Tensor::from_vec(order, [count], &ids.device())?;
        all.index_select(0, &order)?.reshape([rows, length, width])
    }

    /// The vectors of tokens and of pictures in use.
    #[track_caller]
    fn embedded(&self, ids: &Tensor) -> Result<Tensor> {
        if self.pictures.is_empty() {
            return self.text.embedded(ids);
        }
        let mut numbers = numbers(ids)?;
        let (vocabulary, device) = (self.text.vocab_size(), ids.device());
        let encode = |tile: &Tensor| no_grad(|| self.features(tile));
        let Some((places, table)) = self.pictures.rows(&numbers, vocabulary, &device, encode)? else {
            return self.text.embedded(ids);
        };
        places.iter().for_each(|(at, _)| numbers[*at] = self.config.image_token_id);
        let numbers: Vec<i32> = numbers.into_iter().map(|number| number as i32).collect();
        let ids = Tensor::from_vec(numbers, ids.shape().clone(), &device)?;
        self.replaced(&ids, &places, &table)
    }
}

/// The numbers of tokens on the host.
#[track_caller]
fn numbers(ids: &Tensor) -> Result<Vec<u32>> {
    let ids = ids.to_dtype(tensor_core::DType::I32)?.to_vec::<i32>()?;
    Ok(ids.into_iter().map(|id| id as u32).collect())
}

impl LanguageModel for SmolVlm {
    fn device(&self) -> Device {
        self.text.device()
    }

    fn vocab_size(&self) -> usize {
        self.text.vocab_size()
    }

    fn pictures(&self) -> Option<&Pictures> {
        Some(&self.pictures)
    }

    fn new_cache(&self) -> KvCache {
        self.text.new_cache()
    }

    fn repeats_steps(&self) -> bool {
        // With pictures, the host looks for their numbers.
        self.pictures.is_empty() && self.text.repeats_steps()
    }

    #[track_caller]
    fn hidden(&self, ids: &Tensor, cache: Option<&mut KvCache>) -> Result<Tensor> {
        self.text.hidden_of(ids, cache, &|ids| self.embedded(ids))
    }

    #[track_caller]
    fn logits(&self, hidden: &Tensor) -> Result<Tensor> {
        self.text.logits(hidden)
    }
}
