//! Encoders with heads: classes of texts, masked tokens.

use std::path::Path;

use nn::{LayerNorm, Linear, Module};
use tensor_core::{Device, Result, Tensor};

use super::{Bert, BertConfig, Style};
use crate::{Activation, Initial, WeightSource, read_config};

/// An encoder with a classifier of whole texts: `BertForSequenceClassification` and relatives.
pub struct BertClassifier {
    encoder: Bert,
    /// A layer before the last one (RoBERTa, DistilBERT), with its activation.
    dense: Option<(Linear, Activation)>,
    classifier: Linear,
}

impl BertClassifier {
    /// A classifier with the parameters of a source.
    ///
    /// # Errors
    /// As [`Bert::new`]; parameters that are left over.
    #[track_caller]
    pub fn new(config: &BertConfig, weights: impl Into<WeightSource>) -> Result<BertClassifier> {
        BertClassifier::build(config, &weights.into())
    }

    #[track_caller]
    fn build(config: &BertConfig, source: &WeightSource) -> Result<BertClassifier> {
        let style = config.style()?;
        let encoder = Bert::build(config, source)?;
        let (width, classes) = (config.hidden_size, config.classes());
        let square = |name: &str| source.linear(name, width, width, true);
        let (dense, name) = match (style.after_padding, style.has_types) {
            (true, _) => (Some((square("classifier.dense")?, Activation::Tanh)), "classifier.out_proj"),
            (false, true) => (None, "classifier"),
            (false, false) => (Some((square("pre_classifier")?, Activation::Relu)), "classifier"),
        };
        let classifier = source.linear(name, width, classes, true)?;
        source.finish(&["position_ids"])?;
        Ok(BertClassifier { encoder, dense, classifier })
    }

    /// A classifier from a folder with `config.json` and weights.
    ///
    /// # Errors
    /// A `File` error if one cannot be read, and those of [`BertClassifier::new`].
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>, device: &Device) -> Result<BertClassifier> {
        BertClassifier::new(&read_config(path.as_ref())?, WeightSource::open(path, device)?)
    }

    /// The logits `[N, classes]` for tokens, their mask and their types: see [`Bert::forward`].
    ///
    /// # Errors
    /// As [`Bert::forward`].
    #[track_caller]
    pub fn forward(&self, ids: &Tensor, mask: Option<&Tensor>, types: Option<&Tensor>) -> Result<Tensor> {
        let hidden = self.encoder.forward(ids, mask, types)?;
        let features = match &self.dense {
            Some((dense, activation)) => activation.activate(&dense.forward(&hidden.select(1, 0)?)?),
            None => self.encoder.pooled(&hidden)?,
        };
        self.classifier.forward(&features)
    }

    /// The configuration.
    pub fn config(&self) -> &BertConfig {
        self.encoder.config()
    }

    /// The greatest number of tokens of a text or a pair, those around it included.
    pub fn max_tokens(&self) -> usize {
        self.encoder.max_tokens()
    }

    /// The names of the classes, by number; empty if the configuration has none.
    pub fn labels(&self) -> Vec<String> {
        let labels = &self.encoder.config.id2label;
        (0..labels.len()).filter_map(|k| labels.get(&k.to_string()).cloned()).collect()
    }
}

impl Module for BertClassifier {
    fn visit(&self, visitor: &mut nn::Visitor) {
        let style = self.encoder.style;
        visitor.field(style.prefix, &self.encoder);
        match (&self.dense, style.after_padding) {
            (Some((dense, _)), true) => {
                visitor.field("classifier.dense", dense);
                visitor.field("classifier.out_proj", &self.classifier);
            }
            (Some((dense, _)), false) => {
                visitor.field("pre_classifier", dense);
                visitor.field("classifier", &self.classifier);
            }
            (None, _) => visitor.field("classifier", &self.classifier),
        }
    }
    fn visit_mut(&mut self, visitor: &mut nn::VisitorMut) {
        let style = self.encoder.style;
        visitor.field(style.prefix, &mut self.encoder);
        match (&mut self.dense, style.after_padding) {
            (Some((dense, _)), true) => {
                visitor.field("classifier.dense", dense);
                visitor.field("classifier.out_proj", &mut self.classifier);
            }
            (Some((dense, _)), false) => {
                visitor.field("pre_classifier", dense);
                visitor.field("classifier", &mut self.classifier);
            }
            (None, _) => visitor.field("classifier", &mut self.classifier),
        }
    }
}

/// An encoder that guesses masked tokens: `BertForMaskedLM` and relatives.
pub struct BertMaskedLm {
    encoder: Bert,
    transform: Linear,
    norm: LayerNorm,
    /// The output layer's weight is the table of embeddings.
    bias: Tensor,
}

/// The names of the parts of a masked language model's head.
fn head_names(style: Style) -> [&'static str; 3] {
    match (style.after_padding, style.has_types) {
        (true, _) => ["lm_head.dense", "lm_head.layer_norm", "lm_head.bias"],
        (false, true) => {
            ["cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.bias"]
        }
        (false, false) => ["vocab_transform", "vocab_layer_norm", "vocab_projector.bias"],
    }
}

impl BertMaskedLm {
    /// A model with the parameters of a source.
    ///
    /// # Errors
    /// As [`Bert::new`]; parameters that are left over.
    #[track_caller]
    pub fn new(config: &BertConfig, weights: impl Into<WeightSource>) -> Result<BertMaskedLm> {
        BertMaskedLm::build(config, &weights.into())
    }

    #[track_caller]
    fn build(config: &BertConfig, source: &WeightSource) -> Result<BertMaskedLm> {
        let encoder = Bert::build(config, source)?;
        let [transform, norm, bias] = head_names(encoder.style);
        let width = config.hidden_size;
        let model = BertMaskedLm {
            transform: source.linear(transform, width, width, true)?,
            norm: source.layer_norm(norm, width, config.layer_norm_eps, true)?,
            bias: source.parameter(bias, &[config.vocab_size], Initial::Zeros)?,
            encoder,
        };
        source.finish(&[
            "position_ids",
            "decoder.weight",
            "decoder.bias",
            "vocab_projector.weight",
            "cls.seq_relationship.weight",
            "cls.seq_relationship.bias",
        ])?;
        crate::weight_source::tie_output(&model.encoder.embeddings.word_embeddings);
        Ok(model)
    }

    /// A model from a folder with `config.json` and weights.
    ///
    /// # Errors
    /// A `File` error if one cannot be read, and those of [`BertMaskedLm::new`].
    #[track_caller]
    pub fn from_folder(path: impl AsRef<Path>, device: &Device) -> Result<BertMaskedLm> {
        BertMaskedLm::new(&read_config(path.as_ref())?, WeightSource::open(path, device)?)
    }

    /// The logits `[N, L, vocabulary]` for tokens, their mask and their types: see [`Bert::forward`].
    ///
    /// # Errors
    /// As [`Bert::forward`].
    #[track_caller]
    pub fn forward(&self, ids: &Tensor, mask: Option<&Tensor>, types: Option<&Tensor>) -> Result<Tensor> {
        let hidden = self.encoder.forward(ids, mask, types)?;
        let hidden = self.encoder.activation.activate(&self.transform.forward(&hidden)?);
        let table = &self.encoder.embeddings.word_embeddings.weight;
        nn::functional::linear(&self.norm.forward(&hidden)?, table, Some(&self.bias))
    }
}

impl Module for BertMaskedLm {
    fn visit(&self, visitor: &mut nn::Visitor) {
        let [transform, norm, bias] = head_names(self.encoder.style);
        visitor.field(self.encoder.style.prefix, &self.encoder);
        visitor.field(transform, &self.transform);
        visitor.field(norm, &self.norm);
        visitor.parameter(bias, &self.bias);
    }
    fn visit_mut(&mut self, visitor: &mut nn::VisitorMut) {
        let style = self.encoder.style;
        let [transform, norm, bias] = head_names(style);
        visitor.field(style.prefix, &mut self.encoder);
        visitor.field(transform, &mut self.transform);
        visitor.field(norm, &mut self.norm);
        visitor.parameter(bias, &mut self.bias);
    }
}
