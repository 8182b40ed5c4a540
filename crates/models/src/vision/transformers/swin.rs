//! Swin transformers of both versions, with torchvision's parameter names.
//!
//! Liu et al.: Swin transformer: hierarchical vision transformer using shifted windows (2021); Swin
//! transformer V2: scaling up capacity and resolution (2022).

use nn::{
    Dropout, LayerNorm, Linear, LinearConfig, Module, Parameter, Sequential, StochasticDepth,
    functional::normalize, init,
};
use tensor_core::{DType, Device, Error, Generator, Result, Tensor};

use super::vit::truncated;
use crate::{
    WeightSource,
    attention::check_heads,
    vision::blocks::{Activation, Permute, check_image, layer, layer_norm, mlp, patches, positive},
};

/// The configuration of a [`SwinTransformer`], with torchvision's names.
#[derive(Clone, Debug, PartialEq)]
pub struct SwinConfig {
    /// Whether this is the second version: cosine attention, positions from a perceptron, norms after the
    /// branches.
    pub v2: bool,
    /// The height and width of a patch.
    pub patch_size: usize,
    /// The width of the first stage; each further stage doubles it.
    pub embed_dim: usize,
    /// The number of blocks in each stage.
    pub depths: Vec<usize>,
    /// The number of attention heads in each stage.
    pub num_heads: Vec<usize>,
    /// The height and width of a window.
    pub window_size: usize,
    /// The width inside perceptrons, as a multiple of the stage's width.
    pub mlp_ratio: f64,
    /// The dropout probability of the results of attention and perceptrons.
    pub dropout: f64,
    /// The dropout probability of attention weights.
    pub attention_dropout: f64,
    /// The probability to skip the last block in training; those before it are skipped less often.
    pub stochastic_depth_prob: f64,
    /// The number of outputs.
    pub num_classes: usize,
}

/// Presets: version 2, width, depths, heads, window, probability to skip the last block.
macro_rules! presets {
    ($($name:ident: $v2:literal $width:literal $depths:tt $heads:tt $window:literal $drop:literal;)*) => {
        impl SwinConfig {$(
            #[doc = concat!("torchvision's `", stringify!($name), "`.")]
            pub fn $name() -> SwinConfig {
                SwinConfig {
                    v2: $v2,
                    patch_size: 4,
                    embed_dim: $width,
                    depths: $depths.to_vec(),
                    num_heads: $heads.to_vec(),
                    window_size: $window,
                    mlp_ratio: 4.0,
                    dropout: 0.0,
                    attention_dropout: 0.0,
                    stochastic_depth_prob: $drop,
                    num_classes: 1000,
                }
            }
        )*}
    };
}

presets! {
    swin_t: false 96 [2, 2, 6, 2] [3, 6, 12, 24] 7 0.2;
    swin_s: false 96 [2, 2, 18, 2] [3, 6, 12, 24] 7 0.3;
    swin_b: false 128 [2, 2, 18, 2] [4, 8, 16, 32] 7 0.5;
    swin_v2_t: true 96 [2, 2, 6, 2] [3, 6, 12, 24] 8 0.2;
    swin_v2_s: true 96 [2, 2, 18, 2] [3, 6, 12, 24] 8 0.3;
    swin_v2_b: true 128 [2, 2, 18, 2] [4, 8, 16, 32] 8 0.5;
}

/// The eps of every norm.
const EPS: f64 = 1e-5;

/// The width of the perceptron that gives the biases of relative positions in version 2.
const POSITION_HIDDEN: usize = 512;

/// Windows of `size` × `size` that begin at multiples of the size, shifted by `shift`.
#[derive(Clone, Copy, Debug, Module)]
pub(crate) struct Windows {
    pub(crate) size: usize,
    pub(crate) shift: usize,
}

impl Windows {
    /// The index in the table of relative positions, for each pair of a window's elements.
    fn relative_index(self) -> Vec<i64> {
        let (size, pixels) = (self.size as i64, (self.size * self.size) as i64);
        let pairs = (0..pixels).flat_map(|query| (0..pixels).map(move |key| (query, key)));
        let index = |(query, key): (i64, i64)| {
            let rows = query / size - key / size + size - 1;
            let columns = query % size - key % size + size - 1;
            rows * (2 * size - 1) + columns
        };
        pairs.map(index).collect()
    }

    /// The offsets of relative positions on a logarithmic scale, `[1, 2 size − 1, 2 size − 1, 2]`.
    fn log_offsets(self) -> Vec<f32> {
        let size = self.size as i64;
        let scaled = |offset: i64| {
            let x = offset as f32 / (size - 1) as f32 * 8.0;
            x.signum() * (x.abs() + 1.0).log2() / 3.0 * f32::from(u8::from(offset != 0))
        };
        let offsets = || 1 - size..size;
        offsets().flat_map(|row| offsets().flat_map(move |column| [scaled(row), scaled(column)])).collect()
    }

    /// The mask `[windows, 1, pixels, pixels]` that hides pairs from different regions of a shifted image of
    /// `height` × `width`: −100 for these, and 0 otherwise.
    fn mask(self, [height, width]: [usize; 2], like: &Tensor) -> Result<Tensor> {
        let Windows { size, shift } = self;
        let region = |position: usize, length: usize| match position {
            _ if position < length - size => 0usize,
            _ if position < length - shift => 1,
            _ => 2,
        };
        let mut values = Vec::with_capacity(height * width * size * size);
        for (top, left) in (0..height / size)
            .flat_map(|row| (0..width / size).map(move |column| (row * size, column * size)))
        {
            let pixels = (0..size).flat_map(|row| (0..size).map(move |column| (row, column)));
            let regions: Vec<usize> = pixels
                .map(|(row, column)| 3 * region(top + row, height) + region(left + column, width))
                .collect();
            for query in &regions {
                values.extend(regions.iter().map(|key| if key == query { 0f32 } else { -100.0 }));
            }
        }
        let pixels = size * size;
        let count = height * width / pixels;
        Tensor::from_vec(values, [count, 1, pixels, pixels], &like.device())?.to_dtype(like.dtype())
    }

    /// `[N, H, W, C]` as windows `[N · windows, pixels, C]`, for sizes that windows divide.
    pub(crate) fn partition(self, x: &Tensor) -> Result<Tensor> {
        let size = self.size;
        let &[n, height, width, channels] = x.dims() else { return Err(no_grid(x)) };
        let x = x.reshape([n, height / size, size, width / size, size, channels])?;
        let count = n * (height / size) * (width / size);
        x.permute([0, 1, 3, 2, 4, 5])?.reshape([count, size * size, channels])
    }

    /// The inverse of [`Windows::partition`].
    pub(crate) fn reverse(self, x: &Tensor, [n, height, width, channels]: [usize; 4]) -> Result<Tensor> {
        let size = self.size;
        let x = x.reshape([n, height / size, width / size, size, size, channels])?;
        x.permute([0, 1, 3, 2, 4, 5])?.reshape([n, height, width, channels])
    }
}

/// Whole numbers as i64, or as i32 on a device without i64.
pub(crate) fn integers(values: Vec<i64>, device: &Device) -> Result<Tensor> {
    let length = values.len();
    match device.supports(DType::I64) {
        true => Tensor::from_vec(values, [length], device),
        false => Tensor::from_vec(values.into_iter().map(|value| value as i32).collect(), [length], device),
    }
}

fn no_grid(x: &Tensor) -> Error {
    Error::invalid("SwinTransformer", format!("a grid of tokens is [N, H, W, C], not {}", x.shape()))
}

/// Attention within windows. torchvision's `ShiftedWindowAttention` and `ShiftedWindowAttentionV2`.
#[derive(Module, Debug)]
struct WindowAttention {
    qkv: Linear,
    proj: Linear,
    relative_position_bias_table: Option<Parameter>,
    relative_position_index: Tensor,
    relative_coords_table: Option<Tensor>,
    logit_scale: Option<Parameter>,
    cpb_mlp: Option<Sequential>,
    attention_dropout: Dropout,
    dropout: Dropout,
    windows: Windows,
    num_heads: usize,
}

impl WindowAttention {
    fn new(config: &SwinConfig, stage: usize, shift: usize, rng: &Generator) -> Result<WindowAttention> {
        let (width, num_heads) = (config.embed_dim << stage, config.num_heads[stage]);
        let (windows, device) = (Windows { size: config.window_size, shift }, rng.device());
        let side = 2 * windows.size - 1;
        let index = integers(windows.relative_index(), device)?;
        let mut layer = WindowAttention {
            qkv: Linear::new(width, 3 * width, rng)?,
            proj: Linear::new(width, width, rng)?,
            relative_position_bias_table: None,
            relative_position_index: index.into_cell(false)?,
            relative_coords_table: None,
            logit_scale: None,
            cpb_mlp: None,
            attention_dropout: Dropout::new(config.attention_dropout, rng)?,
            dropout: Dropout::new(config.dropout, rng)?,
            windows,
            num_heads,
        };
        if !config.v2 {
            let table = init::trunc_normal([side * side, num_heads], 0.0, 0.02, -2.0, 2.0, rng)?;
            layer.relative_position_bias_table = Some(Parameter::new(table)?);
            return Ok(layer);
        }
        let offsets = Tensor::from_vec(windows.log_offsets(), [1, side, side, 2], device)?;
        layer.relative_coords_table = Some(offsets.into_cell(false)?);
        let scale = Tensor::full([num_heads, 1, 1], 10f64.ln(), device)?;
        layer.logit_scale = Some(Parameter::new(scale)?);
        let last = LinearConfig { bias: false, ..Default::default() };
        layer.cpb_mlp = Some(
            Sequential::new()
                .add(Linear::new(2, POSITION_HIDDEN, rng)?)
                .add(Activation::Relu)
                .add(Linear::with_config(POSITION_HIDDEN, num_heads, last, rng)?),
        );
        Ok(layer)
    }

    /// The bias of each head for each pair of a window's elements, `[1, heads, pixels, pixels]`.
    fn position_bias(&self) -> Result<Tensor> {
        let pixels = self.windows.size * self.windows.size;
        let pick = |table: &Tensor| {
            let picked = table.index_select(0, &self.relative_position_index)?;
            picked.reshape([pixels, pixels, self.num_heads])?.permute([2, 0, 1])?.unsqueeze(0)
        };
        match (&self.relative_position_bias_table, &self.cpb_mlp, &self.relative_coords_table) {
            (Some(table), _, _) => pick(table),
            (None, Some(mlp), Some(offsets)) => {
                let table = mlp.forward(offsets)?.flatten(0, 2)?;
                Ok(pick(&table)?.sigmoid().mul_scalar(16.0))
            }
            _ => Err(Error::invalid("SwinTransformer", "the attention has no biases of positions")),
        }
    }

    /// Queries, keys and values of windows `[B, pixels, C]`, each `[B, heads, pixels, C / heads]`. In
    /// version 2 keys have no bias.
    fn project(&self, x: &Tensor) -> Result<[Tensor; 3]> {
        let &[count, pixels, channels] = x.dims() else { return Err(no_grid(x)) };
        let qkv = match (&self.logit_scale, &self.qkv.bias) {
            (Some(_), Some(bias)) => {
                let [query, value] = [bias.narrow(0, 0, channels)?, bias.narrow(0, 2 * channels, channels)?];
                let bias = Tensor::concat(&[query.clone(), query.zeros_like(), value], 0)?;
                self.qkv.adapters.linear(x, &self.qkv.weight, Some(&bias))?
            }
            _ => self.qkv.forward(x)?,
        };
        let qkv = qkv.reshape([count, pixels, 3, self.num_heads, channels / self.num_heads])?;
        let qkv = qkv.permute([2, 0, 3, 1, 4])?;
        Ok([qkv.select(0, 0)?, qkv.select(0, 1)?, qkv.select(0, 2)?])
    }

    /// The scores of windows `[B, heads, pixels, pixels]` before positions and mask.
    fn scores(&self, query: &Tensor, key: &Tensor) -> Result<Tensor> {
        let Some(scale) = &self.logit_scale else {
            let width = query.dims()[3] as f64;
            return query.mul_scalar(1.0 / width.sqrt()).matmul(&key.transpose(-2, -1)?);
        };
        let unit = |x: &Tensor| normalize(x, 2.0, -1, 1e-12);
        let cosine = unit(query)?.matmul(&unit(key)?.transpose(-2, -1)?)?;
        cosine.mul(&scale.clamp(f64::NEG_INFINITY, 100f64.ln()).exp())
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let Windows { size, shift } = self.windows;
        let &[n, height, width, channels] = x.dims() else { return Err(no_grid(x)) };
        let [padded_height, padded_width] = [height, width].map(|length| length.next_multiple_of(size));
        let padding = [(0, 0), (0, padded_height - height), (0, padded_width - width), (0, 0)];
        let padded = x.pad(&padding, 0.0)?;
        // A window that covers the image is not shifted.
        let shifts =
            [padded_height, padded_width].map(|length| if size >= length { 0 } else { shift as isize });
        let shifted = shifts != [0, 0];
        let mut x = if shifted { padded.roll(shifts.map(|s| -s), [1, 2])? } else { padded };
        x = self.windows.partition(&x)?;
        let [query, key, value] = self.project(&x)?;
        let mut scores = self.scores(&query, &key)?.add(&self.position_bias()?)?;
        if shifted {
            scores = self.add_mask(&scores, [padded_height, padded_width])?;
        }
        let weights = self.attention_dropout.forward(&scores.softmax(-1)?)?;
        let out = self.proj.forward(&weights.matmul(&value)?.transpose(1, 2)?.flatten(2, 3)?)?;
        let out = self.dropout.forward(&out)?;
        let mut out = self.windows.reverse(&out, [n, padded_height, padded_width, channels])?;
        if shifted {
            out = out.roll(shifts, [1, 2])?;
        }
        out.narrow(1, 0, height)?.narrow(2, 0, width)
    }
}

impl WindowAttention {
    /// Hides pairs of pixels that are neighbours only because the image was shifted cyclically.
    fn add_mask(&self, scores: &Tensor, size: [usize; 2]) -> Result<Tensor> {
        let mask = self.windows.mask(size, scores)?;
        let &[count, heads, pixels, _] = scores.dims() else { return Err(no_grid(scores)) };
        let windows = mask.dims()[0];
        let scores = scores.reshape([count / windows, windows, heads, pixels, pixels])?.add(&mask)?;
        scores.reshape([count, heads, pixels, pixels])
    }
}

/// Attention and a perceptron, with norms before them or, in version 2, after them.
#[derive(Module, Debug)]
struct Block {
    norm1: LayerNorm,
    attn: WindowAttention,
    stochastic_depth: StochasticDepth,
    norm2: LayerNorm,
    mlp: Sequential,
    v2: bool,
}

impl Block {
    fn new(config: &SwinConfig, stage: usize, shift: usize, drop: f64, rng: &Generator) -> Result<Block> {
        let width = config.embed_dim << stage;
        let hidden = (width as f64 * config.mlp_ratio) as usize;
        Ok(Block {
            norm1: layer_norm(width, EPS, rng)?,
            attn: WindowAttention::new(config, stage, shift, rng)?,
            stochastic_depth: StochasticDepth::new(drop, rng)?,
            norm2: layer_norm(width, EPS, rng)?,
            mlp: mlp(width, hidden, Activation::Gelu, config.dropout, rng)?,
            v2: config.v2,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        if self.v2 {
            let y = self.norm1.forward(&self.attn.forward(x)?)?;
            let x = x.add(&self.stochastic_depth.forward(&y)?)?;
            let y = self.norm2.forward(&self.mlp.forward(&x)?)?;
            return x.add(&self.stochastic_depth.forward(&y)?);
        }
        let y = self.attn.forward(&self.norm1.forward(x)?)?;
        let x = x.add(&self.stochastic_depth.forward(&y)?)?;
        let y = self.mlp.forward(&self.norm2.forward(&x)?)?;
        x.add(&self.stochastic_depth.forward(&y)?)
    }
}

/// Merges each 2 × 2 tokens of `[N, H, W, C]` to one of twice the width. torchvision's `PatchMerging` and
/// `PatchMergingV2`.
#[derive(Module, Debug)]
struct PatchMerging {
    reduction: Linear,
    norm: LayerNorm,
    v2: bool,
}

impl PatchMerging {
    fn new(width: usize, v2: bool, rng: &Generator) -> Result<PatchMerging> {
        let config = LinearConfig { bias: false, ..Default::default() };
        let reduction = Linear::with_config(4 * width, 2 * width, config, rng)?;
        let norm = layer_norm(if v2 { 2 * width } else { 4 * width }, EPS, rng)?;
        Ok(PatchMerging { reduction, norm, v2 })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let &[_, height, width, _] = x.dims() else { return Err(no_grid(x)) };
        let x = x.pad(&[(0, 0), (0, height % 2), (0, width % 2), (0, 0)], 0.0)?;
        let part = |row: usize, column: usize| x.slice_step(1, row.., 2)?.slice_step(2, column.., 2);
        let x = Tensor::concat(&[part(0, 0)?, part(1, 0)?, part(0, 1)?, part(1, 1)?], -1)?;
        match self.v2 {
            true => self.norm.forward(&self.reduction.forward(&x)?),
            false => self.reduction.forward(&self.norm.forward(&x)?),
        }
    }
}

/// A transformer whose attention is within windows, which are shifted in every second block, for images `[N,
/// 3, H, W]`: logits `[N, classes]`. torchvision's `SwinTransformer`.
#[derive(Module, Debug)]
pub struct SwinTransformer {
    features: Sequential,
    norm: LayerNorm,
    head: Linear,
}

impl SwinTransformer {
    /// A network with the parameters of a source; with a generator, they have torchvision's initial values.
    ///
    /// # Errors
    /// No stages, lists of different lengths, counts of 0, heads that do not divide a width, a window of 1 in
    /// version 2, probabilities outside [0, 1], parameters that do not match, or too little memory.
    pub fn new(config: &SwinConfig, weights: impl Into<WeightSource>) -> Result<SwinTransformer> {
        weights.into().network(|rng| SwinTransformer::initial(config, rng))
    }

    fn initial(config: &SwinConfig, rng: &Generator) -> Result<SwinTransformer> {
        const MODEL: &str = "SwinTransformer";
        let SwinConfig { depths, num_heads, patch_size, embed_dim, window_size, .. } = config;
        let counts = [
            ("patch_size", *patch_size),
            ("embed_dim", *embed_dim),
            ("window_size", *window_size),
            ("num_classes", config.num_classes),
            ("the number of stages", depths.len()),
        ];
        positive(MODEL, &counts)?;
        if depths.len() != num_heads.len() || depths.contains(&0) {
            let message =
                format!("depths {depths:?} and num_heads {num_heads:?}: give as many of each, above 0");
            return Err(Error::invalid(MODEL, message));
        }
        if config.v2 && *window_size < 2 {
            return Err(Error::invalid(MODEL, "a window_size of 1: version 2 needs at least 2"));
        }
        let stem = Sequential::new()
            .add(patches(3, *embed_dim, *patch_size, true, rng)?)
            .add(Permute([0, 2, 3, 1]))
            .add(layer_norm(*embed_dim, EPS, rng)?);
        let mut features = Sequential::new().add(stem);
        let (blocks, mut index) = (depths.iter().sum::<usize>(), 0);
        for (stage, &depth) in depths.iter().enumerate() {
            check_heads(MODEL, embed_dim << stage, num_heads[stage])?;
            if let Some(before) = stage.checked_sub(1) {
                features.push(PatchMerging::new(embed_dim << before, config.v2, rng)?);
            }
            let mut layers = Sequential::new();
            for block in 0..depth {
                let drop = config.stochastic_depth_prob * index as f64 / (blocks - 1).max(1) as f64;
                let shift = if block % 2 == 0 { 0 } else { window_size / 2 };
                layers.push(Block::new(config, stage, shift, drop, rng)?);
                index += 1;
            }
            features.push(layers);
        }
        let width = embed_dim << (depths.len() - 1);
        let head = Linear::new(width, config.num_classes, rng)?;
        let model = SwinTransformer { features, norm: layer_norm(width, EPS, rng)?, head };
        model.apply(&mut |name, parameter| match parameter.rank() {
            2 if name.ends_with("weight") => truncated(parameter, 0.02, rng),
            1 if name.ends_with("bias") && !name.starts_with("features.0") => {
                parameter.assign(&parameter.zeros_like())
            }
            _ => Ok(()),
        })?;
        Ok(model)
    }

    /// The logits `[N, classes]` of images `[N, 3, H, W]`.
    ///
    /// # Errors
    /// An input that is no image of three channels, or smaller than a patch.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        check_image("SwinTransformer", x, 3)?;
        let x = self.norm.forward(&self.features.forward(x)?)?;
        self.head.forward(&x.mean_axis([1, 2], false)?)
    }
}

layer!(Block, PatchMerging, SwinTransformer);
