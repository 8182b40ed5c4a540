//! DETR, which finds objects by a transformer over the features of a ResNet, with the parameter names of
//! transformers' files.
//!
//! Carion et al.: End-to-end object detection with transformers (2020).

use std::{collections::BTreeMap, path::Path};

use nn::{Conv2d, Embedding, LayerNorm, Linear, Module};
use serde::Deserialize;
use tensor_core::{Device, Error, Generator, Result, Tensor};

use super::{
    blocks::{check_image, layer_norm, positive, tokens},
    boxes::Detection,
    resnet::{Backbone, ResNetConfig},
};
use crate::{WeightSource, projected_attention::ProjectedAttention, read_config};

/// The configuration of a [`Detr`], with transformers' names, and read from its `config.json`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "DetrFile")]
pub struct DetrConfig {
    /// The network whose last stage is read; its norms are frozen.
    pub backbone: ResNetConfig,
    /// The width of tokens.
    pub d_model: usize,
    /// The number of encoder layers.
    pub encoder_layers: usize,
    /// The number of attention heads of the encoder.
    pub encoder_attention_heads: usize,
    /// The width inside the encoder's perceptrons.
    pub encoder_ffn_dim: usize,
    /// The number of decoder layers.
    pub decoder_layers: usize,
    /// The number of attention heads of the decoder.
    pub decoder_attention_heads: usize,
    /// The width inside the decoder's perceptrons.
    pub decoder_ffn_dim: usize,
    /// The largest number of objects in an image.
    pub num_queries: usize,
    /// The number of classes, without that for no object.
    pub num_labels: usize,
}

impl DetrConfig {
    fn with_backbone(backbone: ResNetConfig) -> DetrConfig {
        DetrConfig {
            backbone,
            d_model: 256,
            encoder_layers: 6,
            encoder_attention_heads: 8,
            encoder_ffn_dim: 2048,
            decoder_layers: 6,
            decoder_attention_heads: 8,
            decoder_ffn_dim: 2048,
            num_queries: 100,
            num_labels: 91,
        }
    }

    /// `facebook/detr-resnet-50`.
    pub fn detr_resnet_50() -> DetrConfig {
        DetrConfig::with_backbone(ResNetConfig::resnet50())
    }

    /// `facebook/detr-resnet-101`.
    pub fn detr_resnet_101() -> DetrConfig {
        DetrConfig::with_backbone(ResNetConfig::resnet101())
    }
}

/// The fields of transformers' `config.json`, with its defaults.
#[derive(Deserialize)]
#[serde(default)]
struct DetrFile {
    backbone: Option<String>,
    backbone_config: Option<BackboneFile>,
    d_model: usize,
    encoder_layers: usize,
    encoder_attention_heads: usize,
    encoder_ffn_dim: usize,
    decoder_layers: usize,
    decoder_attention_heads: usize,
    decoder_ffn_dim: usize,
    num_queries: usize,
    id2label: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct BackboneFile {
    backbone: Option<String>,
}

impl Default for DetrFile {
    fn default() -> DetrFile {
        let preset = DetrConfig::detr_resnet_50();
        DetrFile {
            backbone: Some("resnet50".into()),
            backbone_config: None,
            d_model: preset.d_model,
            encoder_layers: preset.encoder_layers,
            encoder_attention_heads: preset.encoder_attention_heads,
            encoder_ffn_dim: preset.encoder_ffn_dim,
            decoder_layers: preset.decoder_layers,
            decoder_attention_heads: preset.decoder_attention_heads,
            decoder_ffn_dim: preset.decoder_ffn_dim,
            num_queries: preset.num_queries,
            id2label: BTreeMap::new(),
        }
    }
}

impl TryFrom<DetrFile> for DetrConfig {
    type Error = String;

    fn try_from(file: DetrFile) -> std::result::Result<DetrConfig, String> {
        let name = match file.backbone_config {
            Some(config) => config.backbone,
            None => file.backbone,
        };
        let backbone = match name.as_deref() {
            Some("resnet18") => ResNetConfig::resnet18(),
            Some("resnet34") => ResNetConfig::resnet34(),
            Some("resnet50") => ResNetConfig::resnet50(),
            Some("resnet101") => ResNetConfig::resnet101(),
            other => {
                let other = other.unwrap_or("none");
                return Err(format!("the backbone is {other}; known are timm's resnet18, 34, 50 and 101"));
            }
        };
        let labels = file.id2label.len();
        Ok(DetrConfig {
            d_model: file.d_model,
            encoder_layers: file.encoder_layers,
            encoder_attention_heads: file.encoder_attention_heads,
            encoder_ffn_dim: file.encoder_ffn_dim,
            decoder_layers: file.decoder_layers,
            decoder_attention_heads: file.decoder_attention_heads,
            decoder_ffn_dim: file.decoder_ffn_dim,
            num_queries: file.num_queries,
            num_labels: if labels > 0 { labels } else { DetrConfig::detr_resnet_50().num_labels },
            ..DetrConfig::with_backbone(backbone)
        })
    }
}

const MODEL: &str = "Detr";
/// The eps of every norm.
const EPS: f64 = 1e-5;

#[derive(Module, Debug)]
struct ConvEncoder {
    model: Backbone,
}

#[derive(Module, Debug)]
struct BackboneModel {
    conv_encoder: ConvEncoder,
}

/// Attention and a perceptron, each added to its input and followed by a norm.
#[derive(Module, Debug)]
struct EncoderLayer {
    self_attn: ProjectedAttention,
    self_attn_layer_norm: LayerNorm,
    fc1: Linear,
    fc2: Linear,
    final_layer_norm: LayerNorm,
}

impl EncoderLayer {
    fn new(config: &DetrConfig, rng: &Generator) -> Result<EncoderLayer> {
        let (width, hidden) = (config.d_model, config.encoder_ffn_dim);
        Ok(EncoderLayer {
            self_attn: ProjectedAttention::new(MODEL, width, config.encoder_attention_heads, rng)?,
            self_attn_layer_norm: layer_norm(width, EPS, rng)?,
            fc1: Linear::new(width, hidden, rng)?,
            fc2: Linear::new(hidden, width, rng)?,
            final_layer_norm: layer_norm(width, EPS, rng)?,
        })
    }

    fn forward(&self, x: &Tensor, positions: &Tensor) -> Result<Tensor> {
        let placed = x.add(positions)?;
        let y = self.self_attn.forward_with(&placed, &placed, x)?;
        let x = self.self_attn_layer_norm.forward(&x.add(&y)?)?;
        let y = self.fc2.forward(&self.fc1.forward(&x)?.relu())?;
        self.final_layer_norm.forward(&x.add(&y)?)
    }
}

/// As an encoder layer, and attention to the encoder's tokens.
#[derive(Module, Debug)]
struct DecoderLayer {
    self_attn: ProjectedAttention,
    self_attn_layer_norm: LayerNorm,
    encoder_attn: ProjectedAttention,
    encoder_attn_layer_norm: LayerNorm,
    fc1: Linear,
    fc2: Linear,
    final_layer_norm: LayerNorm,
}

impl DecoderLayer {
    fn new(config: &DetrConfig, rng: &Generator) -> Result<DecoderLayer> {
        let (width, hidden, heads) = (config.d_model, config.decoder_ffn_dim, config.decoder_attention_heads);
        Ok(DecoderLayer {
            self_attn: ProjectedAttention::new(MODEL, width, heads, rng)?,
            self_attn_layer_norm: layer_norm(width, EPS, rng)?,
            encoder_attn: ProjectedAttention::new(MODEL, width, heads, rng)?,
            encoder_attn_layer_norm: layer_norm(width, EPS, rng)?,
            fc1: Linear::new(width, hidden, rng)?,
            fc2: Linear::new(hidden, width, rng)?,
            final_layer_norm: layer_norm(width, EPS, rng)?,
        })
    }

    /// The next state of the objects' queries, with the encoder's tokens and their positions.
    fn forward(&self, x: &Tensor, queries: &Tensor, memory: &Tensor, positions: &Tensor) -> Result<Tensor> {
        let placed = x.add(queries)?;
        let y = self.self_attn.forward_with(&placed, &placed, x)?;
        let x = self.self_attn_layer_norm.forward(&x.add(&y)?)?;
        let (query, key) = (x.add(queries)?, memory.add(positions)?);
        let y = self.encoder_attn.forward_with(&query, &key, memory)?;
        let x = self.encoder_attn_layer_norm.forward(&x.add(&y)?)?;
        let y = self.fc2.forward(&self.fc1.forward(&x)?.relu())?;
        self.final_layer_norm.forward(&x.add(&y)?)
    }
}

#[derive(Module, Debug)]
struct Encoder {
    layers: Vec<EncoderLayer>,
}

#[derive(Module, Debug)]
struct Decoder {
    layers: Vec<DecoderLayer>,
    layernorm: LayerNorm,
}

#[derive(Module, Debug)]
struct Model {
    backbone: BackboneModel,
    query_position_embeddings: Embedding,
    input_projection: Conv2d,
    encoder: Encoder,
    decoder: Decoder,
}

#[derive(Module, Debug)]
struct BoxPredictor {
    layers: Vec<Linear>,
}

/// The objects that a [`Detr`] finds.
#[derive(Clone, Debug)]
pub struct Detections {
    /// The logits of each query's class; the last class means no object, `[N, queries, classes + 1]`.
    pub logits: Tensor,
    /// The boxes, as center x, center y, width and height in fractions of the image, `[N, queries, 4]`.
    pub boxes: Tensor,
}

impl Detections {
    /// The objects in each image of a batch, the most probable first: queries whose best class other than
    /// "no object" has a probability above `threshold`. `sizes` are the heights and widths of the images in
    /// pixels. transformers' `post_process_object_detection`.
    ///
    /// # Errors
    /// Another number of sizes than images, or a value that cannot be computed.
    #[track_caller]
    pub fn objects(&self, threshold: f32, sizes: &[(usize, usize)]) -> Result<Vec<Vec<Detection>>> {
        let &[images, queries, classes] = self.logits.dims() else {
            let message = format!("logits are [N, queries, classes], not {}", self.logits.shape());
            return Err(Error::invalid(MODEL, message));
        };
        if images != sizes.len() || self.boxes.dims() != [images, queries, 4] {
            let (sizes, boxes) = (sizes.len(), self.boxes.shape());
            let message = format!("{sizes} sizes and boxes {boxes} for {images} images of {queries} queries");
            return Err(Error::invalid(MODEL, message));
        }
        let (shares, boxes) = (self.logits.softmax(-1)?.to_vec::<f32>()?, self.boxes.to_vec::<f32>()?);
        let mut rows = shares.chunks_exact(classes.max(1)).zip(boxes.chunks_exact(4));
        let image = |&(height, width): &(usize, usize)| {
            let object = |(shares, place): (&[f32], &[f32])| {
                let known = shares.split_last().map_or(shares, |(_, known)| known).iter();
                let (class, &score) = known.enumerate().max_by(|a, b| a.1.total_cmp(b.1))?;
                let [x, y] = [place[0] * width as f32, place[1] * height as f32];
                let [half_width, half_height] =
                    [place[2] * width as f32 / 2.0, place[3] * height as f32 / 2.0];
                let corners = [x - half_width, y - half_height, x + half_width, y + half_height];
                (score > threshold).then_some(Detection { corners, class, score })
            };
            let mut found: Vec<Detection> = rows.by_ref().take(queries).filter_map(object).collect();
            found.sort_by(|a, b| b.score.total_cmp(&a.score));
            found
        };
        Ok(sizes.iter().map(image).collect())
    }
}

/// A ResNet, a transformer, and a class and a box for each of its queries. transformers'
/// `DetrForObjectDetection`.
#[derive(Module, Debug)]
pub struct Detr {
    model: Model,
    class_labels_classifier: Linear,
    bbox_predictor: BoxPredictor,
}

impl Detr {
    /// A network with the parameters of a source; with a generator, they have initial values.
    ///
    /// # Errors
    /// A bad configuration of the backbone, counts of 0, heads that do not divide the width, a width that is
    /// no multiple of 4, parameters that do not match, or too little memory.
    pub fn new(config: &DetrConfig, weights: impl Into<WeightSource>) -> Result<Detr> {
        weights.into().network(|rng| Detr::initial(config, rng))
    }

    fn initial(config: &DetrConfig, rng: &Generator) -> Result<Detr> {
        let width = config.d_model;
        let counts = [
            ("d_model", width),
            ("encoder_ffn_dim", config.encoder_ffn_dim),
            ("decoder_ffn_dim", config.decoder_ffn_dim),
            ("num_queries", config.num_queries),
        ];
        positive(MODEL, &counts)?;
        if !width.is_multiple_of(4) {
            return Err(Error::invalid(MODEL, format!("d_model {width}: give a multiple of 4")));
        }
        let channels = 512 * config.backbone.block.expansion();
        let (encoder, decoder) = (|_| EncoderLayer::new(config, rng), |_| DecoderLayer::new(config, rng));
        let model = Model {
            backbone: BackboneModel {
                conv_encoder: ConvEncoder { model: Backbone::new(&config.backbone, true, rng)? },
            },
            query_position_embeddings: Embedding::new(config.num_queries, width, rng)?,
            input_projection: Conv2d::new(channels, width, 1, rng)?,
            encoder: Encoder { layers: (0..config.encoder_layers).map(encoder).collect::<Result<_>>()? },
            decoder: Decoder {
                layers: (0..config.decoder_layers).map(decoder).collect::<Result<_>>()?,
                layernorm: layer_norm(width, EPS, rng)?,
            },
        };
        let layers = [width, width, 4].map(|to| Linear::new(width, to, rng));
        Ok(Detr {
            model,
            class_labels_classifier: Linear::new(width, config.num_labels + 1, rng)?,
            bbox_predictor: BoxPredictor { layers: layers.into_iter().collect::<Result<_>>()? },
        })
    }

    /// A network from a folder with transformers' `config.json` and weights, such as
    /// `facebook/detr-resnet-50`.
    ///
    /// # Errors
    /// A `File` error for a configuration of another network or other weights, and those of [`Detr::new`].
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>, device: &Device) -> Result<Detr> {
        let model = Detr::new(&read_config(path.as_ref())?, WeightSource::open(path, device)?)?;
        model.eval();
        Ok(model)
    }

    /// The detections in images `[N, 3, H, W]` of one size, without padding.
    ///
    /// # Errors
    /// An input that is no image of three channels.
    pub fn forward(&self, x: &Tensor) -> Result<Detections> {
        check_image(MODEL, x, 3)?;
        let Model { backbone, query_position_embeddings, input_projection, encoder, decoder } = &self.model;
        let [.., features] = backbone.conv_encoder.model.forward(x)?;
        let features = input_projection.forward(&features)?;
        let positions = sine_positions(&features)?;
        let mut memory = tokens(&features)?;
        for layer in &encoder.layers {
            memory = layer.forward(&memory, &positions)?;
        }
        let queries = &query_position_embeddings.weight;
        let mut x = Tensor::zeros(
            [features.dims()[0], queries.dims()[0], queries.dims()[1]],
            (features.dtype(), &features.device()),
        )?;
        for layer in &decoder.layers {
            x = layer.forward(&x, queries, &memory, &positions)?;
        }
        let x = decoder.layernorm.forward(&x)?;
        let mut boxes = x.clone();
        for (index, layer) in self.bbox_predictor.layers.iter().enumerate() {
            boxes = layer.forward(&if index > 0 { boxes.relu() } else { boxes })?;
        }
        Ok(Detections { logits: self.class_labels_classifier.forward(&x)?, boxes: boxes.sigmoid() })
    }
}

/// The sines and cosines of positions in features `[N, C, H, W]`, `[1, H · W, C]`: the first half of the
/// channels for rows, the second for columns, both scaled to 2π.
fn sine_positions(features: &Tensor) -> Result<Tensor> {
    let &[_, channels, height, width] = features.dims() else {
        return Err(Error::invalid(MODEL, format!("features are [N, C, H, W], not {}", features.shape())));
    };
    let half = channels / 2;
    let encoded = |position: usize, length: usize, channel: usize| {
        let scaled = (position + 1) as f64 / (length as f64 + 1e-6) * std::f64::consts::TAU;
        let angle = scaled / 10000f64.powf((channel / 2 * 2) as f64 / half as f64);
        (if channel.is_multiple_of(2) { angle.sin() } else { angle.cos() }) as f32
    };
    let mut values = Vec::with_capacity(height * width * channels);
    for (row, column) in (0..height).flat_map(|row| (0..width).map(move |column| (row, column))) {
        values.extend((0..half).map(|channel| encoded(row, height, channel)));
        values.extend((0..half).map(|channel| encoded(column, width, channel)));
    }
    let positions = Tensor::from_vec(values, [1, height * width, channels], &features.device())?;
    positions.to_dtype(features.dtype())
}
