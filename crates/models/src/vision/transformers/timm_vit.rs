//! The vision transformer and DeiT, with timm's parameter names. [`crate::vision::VisionTransformer`] has
//! torchvision's names.
//!
//! Dosovitskiy et al.: An image is worth 16×16 words (2021). Touvron et al.: Training data-efficient image
//! transformers and distillation through attention (2021).

use nn::{Conv2d, Dropout, LayerNorm, Linear, LinearConfig, Module, Parameter, StochasticDepth};
use tensor_core::{Error, Generator, Result, Tensor};

use super::vit::truncated;
use crate::{
    WeightSource,
    attention::check_heads,
    attention::multi_head_attention,
    vision::blocks::{check_image_of_size, layer, layer_norm, patches, positive, tokens},
};

/// The tokens that a [`TimmVit`] classifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VitPool {
    /// The class token, after a norm of all tokens.
    Token,
    /// The mean of the patches, followed by a norm.
    Avg,
}

/// The configuration of a [`TimmVit`], with timm's names.
#[derive(Clone, Debug, PartialEq)]
pub struct TimmVitConfig {
    /// The height and width of images.
    pub img_size: usize,
    /// The height and width of a patch.
    pub patch_size: usize,
    /// The width of tokens.
    pub embed_dim: usize,
    /// The number of blocks.
    pub depth: usize,
    /// The number of attention heads.
    pub num_heads: usize,
    /// The width inside perceptrons, as a multiple of `embed_dim`.
    pub mlp_ratio: f64,
    /// Whether queries, keys and values have a bias.
    pub qkv_bias: bool,
    /// The initial factor of each branch, if branches are scaled.
    pub init_values: Option<f64>,
    /// Whether there is a distillation token with its own classifier, as in DeiT; the result is the mean of
    /// both classifiers.
    pub distilled: bool,
    /// The tokens that are classified.
    pub global_pool: VitPool,
    /// The number of outputs.
    pub num_classes: usize,
    /// The dropout probability before the classifier.
    pub drop_rate: f64,
    /// The probability to skip the last block in training; those before it are skipped less often.
    pub drop_path_rate: f64,
}

/// Presets: patch size, width, depth, heads, distillation.
macro_rules! presets {
    ($($name:ident: $patch:literal $width:literal $depth:literal $heads:literal $distilled:literal;)*) => {
        impl TimmVitConfig {$(
            #[doc = concat!("timm's `", stringify!($name), "`.")]
            pub fn $name() -> TimmVitConfig {
                TimmVitConfig {
                    img_size: 224,
                    patch_size: $patch,
                    embed_dim: $width,
                    depth: $depth,
                    num_heads: $heads,
                    mlp_ratio: 4.0,
                    qkv_bias: true,
                    init_values: None,
                    distilled: $distilled,
                    global_pool: VitPool::Token,
                    num_classes: 1000,
                    drop_rate: 0.0,
                    drop_path_rate: 0.0,
                }
            }
        )*}
    };
}

presets! {
    vit_tiny_patch16_224: 16 192 12 3 false;
    vit_small_patch32_224: 32 384 12 6 false;
    vit_small_patch16_224: 16 384 12 6 false;
    vit_base_patch32_224: 32 768 12 12 false;
    vit_base_patch16_224: 16 768 12 12 false;
    vit_base_patch8_224: 8 768 12 12 false;
    vit_large_patch32_224: 32 1024 24 16 false;
    vit_large_patch16_224: 16 1024 24 16 false;
    deit_tiny_patch16_224: 16 192 12 3 false;
    deit_small_patch16_224: 16 384 12 6 false;
    deit_base_patch16_224: 16 768 12 12 false;
    deit_tiny_distilled_patch16_224: 16 192 12 3 true;
    deit_small_distilled_patch16_224: 16 384 12 6 true;
    deit_base_distilled_patch16_224: 16 768 12 12 true;
}

/// The eps of every norm.
const EPS: f64 = 1e-6;

#[derive(Module, Debug)]
struct TimmVitAttention {
    qkv: Linear,
    proj: Linear,
    num_heads: usize,
}

impl TimmVitAttention {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let qkv = self.qkv.forward(x)?.chunk(3, 2)?;
        let [query, key, value] = [&qkv[0], &qkv[1], &qkv[2]];
        self.proj.forward(&multi_head_attention([query, key, value], self.num_heads)?)
    }
}

#[derive(Module, Debug)]
struct Mlp {
    fc1: Linear,
    fc2: Linear,
}

/// A factor for each feature. timm's `LayerScale`.
#[derive(Module, Debug)]
struct LayerScale {
    gamma: Parameter,
}

#[derive(Module, Debug)]
struct Block {
    norm1: LayerNorm,
    attn: TimmVitAttention,
    ls1: Option<LayerScale>,
    drop_path1: StochasticDepth,
    norm2: LayerNorm,
    mlp: Mlp,
    ls2: Option<LayerScale>,
    drop_path2: StochasticDepth,
}

impl Block {
    fn new(config: &TimmVitConfig, drop: f64, rng: &Generator) -> Result<Block> {
        let (width, bias) = (config.embed_dim, config.qkv_bias);
        let hidden = (width as f64 * config.mlp_ratio) as usize;
        let scale = || match config.init_values {
            Some(value) => {
                let gamma = Parameter::new(Tensor::full([width], value, rng.device())?)?;
                Ok(Some(LayerScale { gamma }))
            }
            None => Ok(None),
        };
        let qkv = LinearConfig { bias, ..Default::default() };
        Ok(Block {
            norm1: layer_norm(width, EPS, rng)?,
            attn: TimmVitAttention {
                qkv: Linear::with_config(width, 3 * width, qkv, rng)?,
                proj: Linear::new(width, width, rng)?,
                num_heads: config.num_heads,
            },
            ls1: scale()?,
            drop_path1: StochasticDepth::new(drop, rng)?,
            norm2: layer_norm(width, EPS, rng)?,
            mlp: Mlp { fc1: Linear::new(width, hidden, rng)?, fc2: Linear::new(hidden, width, rng)? },
            ls2: scale()?,
            drop_path2: StochasticDepth::new(drop, rng)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let scaled = |scale: &Option<LayerScale>, y: Tensor| match scale {
            Some(LayerScale { gamma }) => y.mul(gamma),
            None => Ok(y),
        };
        let y = scaled(&self.ls1, self.attn.forward(&self.norm1.forward(x)?)?)?;
        let x = x.add(&self.drop_path1.forward(&y)?)?;
        let y = self.mlp.fc2.forward(&self.mlp.fc1.forward(&self.norm2.forward(&x)?)?.gelu())?;
        x.add(&self.drop_path2.forward(&scaled(&self.ls2, y)?)?)
    }
}

#[derive(Module, Debug)]
struct PatchEmbed {
    proj: Conv2d,
}

/// A transformer over the patches of an image, for images `[N, 3, size, size]`: logits `[N, classes]`.
/// timm's `VisionTransformer` and `VisionTransformerDistilled`.
#[derive(Module, Debug)]
pub struct TimmVit {
    cls_token: Parameter,
    dist_token: Option<Parameter>,
    pos_embed: Parameter,
    patch_embed: PatchEmbed,
    blocks: Vec<Block>,
    norm: Option<LayerNorm>,
    fc_norm: Option<LayerNorm>,
    head_drop: Dropout,
    head: Linear,
    head_dist: Option<Linear>,
    img_size: usize,
}

impl TimmVit {
    /// A network with the parameters of a source; with a generator, they have timm's initial values.
    ///
    /// # Errors
    /// Counts of 0, patches that do not divide the image, heads that do not divide the width, distillation
    /// with a pool of patches, probabilities outside [0, 1], parameters that do not match, or too little
    /// memory.
    pub fn new(config: &TimmVitConfig, weights: impl Into<WeightSource>) -> Result<TimmVit> {
        weights.into().network(|rng| TimmVit::initial(config, rng))
    }

    fn initial(config: &TimmVitConfig, rng: &Generator) -> Result<TimmVit> {
        const MODEL: &str = "TimmVit";
        let &TimmVitConfig { img_size, patch_size, embed_dim, depth, num_classes, distilled, .. } = config;
        positive(MODEL, &[("img_size", img_size), ("patch_size", patch_size), ("num_classes", num_classes)])?;
        check_heads(MODEL, embed_dim, config.num_heads)?;
        if !img_size.is_multiple_of(patch_size) {
            let message = format!("patches of {patch_size} do not divide an image of {img_size}");
            return Err(Error::invalid(MODEL, message));
        }
        let mean = config.global_pool == VitPool::Avg;
        if mean && distilled {
            return Err(Error::invalid(MODEL, "distillation needs VitPool::Token"));
        }
        let parameter = |shape: [usize; 3]| {
            let parameter = Parameter::new(Tensor::zeros(shape, rng.device())?)?;
            truncated(&parameter, 0.02, rng)?;
            Ok::<_, Error>(parameter)
        };
        let positions = (img_size / patch_size).pow(2) + 1 + usize::from(distilled);
        let drop = |block: usize| config.drop_path_rate * block as f64 / (depth - 1).max(1) as f64;
        let head = || Linear::new(embed_dim, num_classes, rng);
        let norm = |there: bool| there.then(|| layer_norm(embed_dim, EPS, rng)).transpose();
        let model = TimmVit {
            cls_token: parameter([1, 1, embed_dim])?,
            dist_token: distilled.then(|| parameter([1, 1, embed_dim])).transpose()?,
            pos_embed: parameter([1, positions, embed_dim])?,
            patch_embed: PatchEmbed { proj: patches(3, embed_dim, patch_size, true, rng)? },
            blocks: (0..depth).map(|block| Block::new(config, drop(block), rng)).collect::<Result<_>>()?,
            norm: norm(!mean)?,
            fc_norm: norm(mean)?,
            head_drop: Dropout::new(config.drop_rate, rng)?,
            head: head()?,
            head_dist: distilled.then(head).transpose()?,
            img_size,
        };
        model.apply(&mut |name, parameter| match (name.ends_with("bias"), parameter.rank()) {
            (true, _) if name != "patch_embed.proj.bias" => parameter.assign(&parameter.zeros_like()),
            (false, 2) => truncated(parameter, 0.02, rng),
            _ => Ok(()),
        })?;
        Ok(model)
    }

    /// The tokens after the blocks (and the norm, if it comes before the pool): the class token, the
    /// distillation token if there is one, and the patches, `[N, tokens, width]`.
    ///
    /// # Errors
    /// An input that is no image of three channels of the configured size.
    pub fn features(&self, x: &Tensor) -> Result<Tensor> {
        check_image_of_size("TimmVit", x, 3, self.img_size)?;
        let patches = tokens(&self.patch_embed.proj.forward(x)?)?;
        let (n, width) = (patches.dims()[0], patches.dims()[2]);
        let mut all = vec![self.cls_token.expand([n, 1, width])?];
        if let Some(token) = &self.dist_token {
            all.push(token.expand([n, 1, width])?);
        }
        all.push(patches);
        let mut x = Tensor::concat(&all, 1)?.add(&self.pos_embed)?;
        for block in &self.blocks {
            x = block.forward(&x)?;
        }
        match &self.norm {
            Some(norm) => norm.forward(&x),
            None => Ok(x),
        }
    }

    /// The logits `[N, classes]` of images `[N, 3, size, size]`.
    ///
    /// # Errors
    /// As [`TimmVit::features`].
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.features(x)?;
        let pooled = match &self.fc_norm {
            Some(norm) => norm.forward(&x.narrow(1, 1, x.dims()[1] - 1)?.mean_axis(1, false)?)?,
            None => x.select(1, 0)?,
        };
        let logits = self.head.forward(&self.head_drop.forward(&pooled)?)?;
        match &self.head_dist {
            Some(head) => {
                let other = head.forward(&self.head_drop.forward(&x.select(1, 1)?)?)?;
                Ok(logits.add(&other)?.div_scalar(2.0))
            }
            None => Ok(logits),
        }
    }
}

layer!(TimmVit);
