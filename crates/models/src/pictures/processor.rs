//! [`PictureProcessor`]: pictures as tiles, and the text that stands for them.

use std::{fmt::Write, path::Path};

use serde_json::Value;
use tensor_core::{Device, Error, Result, Tensor, file::file_error};

use super::resample::{Filter, resized};
use crate::read_config;

const OP: &str = "PictureProcessor";
/// The greatest height and width of a picture that is cut into tiles.
const MAX_SIDE: usize = 4096;
/// The tokens around a picture's own, with the names of SmolVLM's tokenizer.
const AROUND: &str = "<fake_token_around_image>";
const GLOBAL: &str = "<global-img>";
/// The token in whose place the vectors of a picture stand.
pub const PICTURE_TOKEN: &str = "<image>";

/// Cuts pictures into tiles as SmolVLM and Idefics 3 read them: the picture is resized, cut into squares, and
/// also shown as a whole in one square. transformers' `SmolVLMImageProcessorPil`, with equal bytes (those of
/// the variant with torchvision differ by one or two), and `SmolVLMProcessor`.
///
/// ```no_run
/// use models::pictures::{PICTURE_TOKEN, PictureProcessor};
/// # fn main() -> tensor_core::Result<()> {
/// # let (height, width, bytes) = (480, 640, vec![0; 480 * 640 * 3]);
/// let processor = PictureProcessor::from_folder("SmolVLM-256M-Instruct")?;
/// let picture = processor.prepare([height, width], &bytes)?; // RGB bytes [height, width, 3]
/// let text = "User:<image>What is this?".replacen(PICTURE_TOKEN, &picture.text(), 1);
/// let tiles = picture.tiles(&backend_cpu::cpu())?; // [17, 3, 512, 512]
/// # let _ = (text, tiles);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct PictureProcessor {
    /// The greater side of a picture after the first resizing; none leaves its size.
    longest_side: Option<usize>,
    /// The height and width of a tile.
    tile: usize,
    /// Whether pictures are cut into tiles beside the whole.
    splits: bool,
    filter: Filter,
    mean: [f32; 3],
    deviation: [f32; 3],
    /// The tokens of a tile.
    tile_tokens: usize,
}

/// A picture as bytes of tiles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedPicture {
    /// The tiles from the left to the right and from the top down, and then the whole picture, as RGB bytes
    /// `[tile, tile, 3]`.
    tiles: Vec<Vec<u8>>,
    rows: usize,
    columns: usize,
    tile: usize,
    tile_tokens: usize,
    /// The bits of the colours' means and deviations.
    colours: [[u32; 3]; 2],
}

/// The first of these fields that is there.
fn field<'a>(sources: &'a [&'a Value], name: &str) -> Option<&'a Value> {
    sources.iter().find_map(|source| source.get(name)).filter(|value| !value.is_null())
}

impl PictureProcessor {
    /// The processor of a folder: its `preprocessor_config.json`, or `processor_config.json`, and the sizes
    /// of the model in `config.json`.
    ///
    /// # Errors
    /// A `File` error for files that are not there, or settings of another processor.
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>) -> Result<PictureProcessor> {
        let folder = path.as_ref();
        let read = |name: &str| match folder.join(name) {
            path if path.exists() => read_config(&path),
            _ => Ok(Value::Null),
        };
        let (pictures, both) = (read("preprocessor_config.json")?, read("processor_config.json")?);
        if pictures.is_null() && both.is_null() {
            return Err(file_error(&folder.join("preprocessor_config.json"), "is not there"));
        }
        let model: Value = read_config(folder)?;
        let inner = both.get("image_processor").unwrap_or(&Value::Null);
        PictureProcessor::of(&[&pictures, inner, &both], &model)
            .map_err(|error| file_error(&folder.join("preprocessor_config.json"), error.kind().to_string()))
    }

    fn of(sources: &[&Value], model: &Value) -> Result<PictureProcessor> {
        let wrong = |message: String| Error::invalid(OP, message);
        let number = |value: Option<&Value>| value.and_then(Value::as_u64).map(|number| number as usize);
        let flag = |name: &str| field(sources, name).and_then(Value::as_bool).unwrap_or(true);
        let side = |name: &str| number(field(sources, name).and_then(|size| size.get("longest_edge")));
        let tile = side("max_image_size").unwrap_or(364);
        let colours = |name: &str| -> Result<[f32; 3]> {
            let Some(values) = field(sources, name).and_then(Value::as_array) else { return Ok([0.5; 3]) };
            let values: Vec<f32> = values.iter().filter_map(|value| Some(value.as_f64()? as f32)).collect();
            values.try_into().map_err(|_| wrong(format!("{name} is not three numbers")))
        };
        let (mean, deviation) = (colours("image_mean")?, colours("image_std")?);
        let resample = field(sources, "resample").and_then(Value::as_u64).unwrap_or(1);
        let filter = Filter::of_number(resample);
        let filter = filter.ok_or_else(|| wrong(format!("resample is {resample}: 1, 2 and 3 are known")))?;
        let part = |name: &str| number(model.pointer(&format!("/vision_config/{name}")));
        let scale = number(model.get("scale_factor")).unwrap_or(2);
        let patches = part("image_size").unwrap_or(224) / part("patch_size").unwrap_or(32).max(1);
        let computed = (patches * patches).checked_div(scale * scale).unwrap_or(0);
        let tile_tokens = number(field(sources, "image_seq_len")).unwrap_or(computed);
        let unknown = [("do_rescale", true), ("do_normalize", true)].iter().find(|(name, _)| !flag(name));
        if let Some((name, _)) = unknown {
            return Err(wrong(format!("{name} is false, which is not known")));
        }
        if tile == 0 || tile > MAX_SIDE || tile_tokens == 0 || deviation.contains(&0.0) {
            let message =
                format!("tiles of {tile} pixels and {tile_tokens} tokens, deviations {deviation:?}");
            return Err(wrong(message));
        }
        if tile_tokens != computed {
            let message =
                format!("image_seq_len is {tile_tokens}; the model has {computed} tokens of a tile");
            return Err(wrong(message));
        }
        let longest_side = flag("do_resize").then(|| side("size").unwrap_or(4 * 364));
        let splits = flag("do_image_splitting");
        Ok(PictureProcessor { longest_side, tile, splits, filter, mean, deviation, tile_tokens })
    }

    /// The number of tokens of a tile.
    pub fn tile_tokens(&self) -> usize {
        self.tile_tokens
    }

    /// A picture of RGB bytes `[height, width, 3]` as tiles.
    ///
    /// # Errors
    /// No pixels, another number of bytes, or a picture so long and thin that it has too many tiles.
    #[track_caller]
    pub fn prepare(&self, [height, width]: [usize; 2], bytes: &[u8]) -> Result<PreparedPicture> {
        let count = height.checked_mul(width).and_then(|pixels| pixels.checked_mul(3));
        if height == 0 || width == 0 || count != Some(bytes.len()) {
            let message = format!("{} bytes for {height} × {width} pixels of 3", bytes.len());
            return Err(Error::invalid(OP, message));
        }
        let mut size = [height, width];
        let mut bytes = bytes.to_vec();
        let mut resize = |size: &mut [usize; 2], new: [usize; 2]| {
            bytes = resized(std::mem::take(&mut bytes), *size, new, self.filter);
            *size = new;
        };
        if let Some(longest) = self.longest_side {
            let [high, wide] = size;
            resize(&mut size, limited(with_longest([high, wide], longest, true)));
        }
        let tile = self.tile;
        let (mut rows, mut columns, mut tiles) = (0, 0, Vec::new());
        if self.splits {
            let new = multiples(size, tile);
            if new.iter().any(|side| *side > MAX_SIDE.max(tile)) {
                let message = format!("a picture of {height} × {width} pixels has too many tiles");
                return Err(Error::invalid(OP, message));
            }
            resize(&mut size, new);
            if size != [tile, tile] {
                (rows, columns) = (size[0] / tile, size[1] / tile);
            }
        }
        let line = 3 * size[1];
        for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
            let lines = bytes.chunks_exact(line).skip(row * tile).take(tile);
            let parts = lines.map(|line| &line[column * tile * 3..(column + 1) * tile * 3]);
            tiles.push(parts.collect::<Vec<_>>().concat());
        }
        tiles.push(resized(bytes, size, [tile, tile], self.filter));
        let colours = [self.mean, self.deviation].map(|values| values.map(f32::to_bits));
        Ok(PreparedPicture { tiles, rows, columns, tile, tile_tokens: self.tile_tokens, colours })
    }
}

/// A size with this greater side. The smaller one is even if asked for, and at least 1.
fn with_longest([height, width]: [usize; 2], longest: usize, even: bool) -> [usize; 2] {
    let ratio = width as f64 / height as f64;
    let rounded = |side: f64| {
        let side = side as usize;
        (side + usize::from(even && !side.is_multiple_of(2))).max(1)
    };
    match width >= height {
        true => [rounded(longest as f64 / ratio), longest],
        false => [longest, rounded(longest as f64 * ratio)],
    }
}

/// A size below the greatest one.
fn limited(size: [usize; 2]) -> [usize; 2] {
    if size.iter().any(|side| *side > MAX_SIDE) { with_longest(size, MAX_SIDE, false) } else { size }
}

/// A size of whole tiles.
fn multiples([height, width]: [usize; 2], tile: usize) -> [usize; 2] {
    let whole = |side: usize| side.div_ceil(tile) * tile;
    let ratio = width as f64 / height as f64;
    match width >= height {
        true => {
            let width = whole(width);
            [whole((width as f64 / ratio) as usize), width]
        }
        false => {
            let height = whole(height);
            [height, whole((height as f64 * ratio) as usize)]
        }
    }
}

impl PreparedPicture {
    /// The number of tiles.
    pub fn count(&self) -> usize {
        self.tiles.len()
    }

    /// The bytes of the tiles.
    pub(super) fn bytes(&self) -> impl Iterator<Item = &[u8]> {
        self.tiles.iter().map(Vec::as_slice)
    }

    /// The tiles `[T, 3, tile, tile]`, with colours relative to those of the training.
    ///
    /// # Errors
    /// Too little memory.
    #[track_caller]
    pub fn tiles(&self, device: &Device) -> Result<Tensor> {
        let tiles = (0..self.count()).map(|k| self.tile(k, device)).collect::<Result<Vec<_>>>()?;
        Tensor::concat(&tiles, 0)
    }

    /// The tile of this number, `[1, 3, tile, tile]`.
    #[track_caller]
    pub(super) fn tile(&self, k: usize, device: &Device) -> Result<Tensor> {
        let [mean, deviation] = self.colours.map(|values| values.map(|bits| f32::from_bits(bits) * 255.0));
        let colour = |c: usize| {
            let pixels = self.tiles[k].iter().skip(c).step_by(3);
            pixels.map(move |byte| (f32::from(*byte) - mean[c]) / deviation[c])
        };
        let values: Vec<f32> = (0..3).flat_map(colour).collect();
        Tensor::from_vec(values, [1, 3, self.tile, self.tile], device)
    }

    /// The text that stands for the picture, with a [`PICTURE_TOKEN`] for each of its vectors.
    pub fn text(&self) -> String {
        let tokens = PICTURE_TOKEN.repeat(self.tile_tokens);
        let mut text = String::new();
        for row in 1..=self.rows {
            for column in 1..=self.columns {
                let _ = write!(text, "{AROUND}<row_{row}_col_{column}>{tokens}");
            }
            text.push('\n');
        }
        let line = if self.rows > 0 { "\n" } else { "" };
        let _ = write!(text, "{line}{AROUND}{GLOBAL}{tokens}{AROUND}");
        text
    }
}
