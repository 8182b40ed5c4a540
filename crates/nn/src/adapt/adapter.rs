//! [`Adapter`]: the matrices of one layer's adapter, and how they change the layer's output and weight.

use std::sync::Arc;

use tensor_core::{DType, Error, Generator, Result, Tensor, caller_line, set_grad_enabled};

use super::{
    OP,
    config::{LoraConfig, LoraInit},
    kind::LayerKind,
    saved::Saved,
};
use crate::{
    Dropout, Visitor, VisitorMut,
    functions::{self, ConvOptions, convolution},
    init::{self, Fan, Nonlinearity},
};

/// The matrices of an adapter. A [`LayerKind::Linear`] has A `[r, in]` and B `[out, r]`, an embedding A `[r,
/// rows]` and B `[features, r]`, a convolution A `[r, in, kernel…]` and B `[out, r / groups, 1…]`.
#[derive(Clone, Debug)]
pub(super) struct Adapter {
    pub(super) config: Arc<LoraConfig>,
    pub(super) kind: LayerKind,
    pub(super) a: Tensor,
    pub(super) b: Tensor,
    /// The bias `[out]` of B.
    pub(super) bias: Option<Tensor>,
    /// DoRA's magnitude: `[out]`, in an embedding `[features]`, in a convolution `[1, out, 1…]`.
    pub(super) magnitude: Option<Tensor>,
    pub(super) scaling: f64,
    dropout: Option<Dropout>,
    /// The model's own tensors that are trained with the adapter, in one of its layers.
    pub(super) saved: Arc<Vec<Saved>>,
}

impl Adapter {
    /// An adapter for a weight, on its device. Its dtype is the weight's, but f32 for half precision.
    #[track_caller]
    pub(super) fn new(
        config: &Arc<LoraConfig>,
        path: &str,
        kind: LayerKind,
        weight: &Tensor,
        rng: &Generator,
    ) -> Result<Adapter> {
        let _line = caller_line();
        let r = config.rank_of(path);
        let (a, b) = shapes(path, kind, weight, r, config)?;
        let kaiming = |shape: &[usize]| {
            init::kaiming_uniform(shape, Fan::In, Nonlinearity::LeakyRelu(5f64.sqrt()), rng)
        };
        let b_rows = b[0];
        let (a, b) = match (kind, config.init_lora_weights) {
            (LayerKind::Embedding, _) => (Tensor::zeros(a, rng.device())?, Tensor::randn(b, rng)?),
            (_, LoraInit::Kaiming) => (kaiming(&a)?, Tensor::zeros(b, rng.device())?),
            (_, LoraInit::Gaussian) => {
                (Tensor::randn(a, rng)?.mul_scalar(1.0 / r as f64), Tensor::zeros(b, rng.device())?)
            }
        };
        let dtype = weight.dtype().compute();
        let cell = |value: Tensor| -> Result<Tensor> {
            let value = value.to_dtype(dtype)?.to(&weight.device())?;
            value.eval()?;
            value.into_cell(true)
        };
        let bias = match (config.lora_bias, kind) {
            (false, _) => None,
            (true, LayerKind::Embedding) => {
                return Err(Error::invalid(OP, format!("{path}: an embedding has no lora_bias")));
            }
            (true, LayerKind::Linear { .. } | LayerKind::Conv { .. }) => {
                Some(cell(Tensor::zeros([b_rows], rng.device())?)?)
            }
        };
        let dropout = match config.lora_dropout == 0.0 || kind == LayerKind::Embedding {
            true => None,
            false => Some(Dropout::new(config.lora_dropout, rng)?),
        };
        let scaling = config.scaling_of(path);
        let mut adapter = Adapter {
            config: config.clone(),
            kind,
            a: cell(a)?,
            b: cell(b)?,
            bias,
            magnitude: None,
            scaling,
            dropout,
            saved: Arc::default(),
        };
        if config.use_dora {
            adapter.magnitude = Some(cell(adapter.norm(weight)?)?);
        }
        Ok(adapter)
    }

    /// The adapter with other tensors in place of its own, for an independent copy of a model.
    pub(super) fn replaced(&self, visitor: &mut VisitorMut) -> Adapter {
        let mut copy = self.clone();
        visitor.parameter("", &mut copy.a);
        visitor.parameter("", &mut copy.b);
        for tensor in copy.bias.iter_mut().chain(&mut copy.magnitude) {
            visitor.parameter("", tensor);
        }
        copy.saved = Arc::new(self.saved.iter().map(|saved| saved.replaced(visitor)).collect());
        copy
    }

    /// Visits the tensors under PEFT's names; in a model the adapter's own name is among them, and the other
    /// values of the model's own tensors.
    pub(super) fn visit(&self, visitor: &mut Visitor, name: Option<&str>) {
        let in_model = name.is_some();
        let name = name.map(|name| format!(".{name}")).unwrap_or_default();
        let ([a, b], end) = match self.kind {
            LayerKind::Embedding => (["lora_embedding_A", "lora_embedding_B"], ""),
            LayerKind::Linear { .. } | LayerKind::Conv { .. } => (["lora_A", "lora_B"], ".weight"),
        };
        visitor.parameter(&format!("{a}{name}{end}"), &self.a);
        visitor.parameter(&format!("{b}{name}{end}"), &self.b);
        if let Some(bias) = &self.bias {
            visitor.parameter(&format!("{b}{name}.bias"), bias);
        }
        if let Some(magnitude) = &self.magnitude {
            visitor.parameter(&format!("lora_magnitude_vector{name}"), magnitude);
        }
        if in_model {
            self.saved.iter().for_each(|saved| saved.visit_other(&name, visitor));
        }
        if let Some(dropout) = &self.dropout {
            visitor.field(&format!("lora_dropout{name}"), dropout);
        }
    }

    /// s · Δ in the weight's shape: s · B·A.
    #[track_caller]
    pub(super) fn delta(&self, weight: &Tensor) -> Result<Tensor> {
        let r = self.a.dims()[0];
        let delta = match self.kind {
            LayerKind::Linear { transposed: false } => self.b.matmul(&self.a)?,
            LayerKind::Linear { transposed: true } => self.b.matmul(&self.a)?.t()?,
            LayerKind::Embedding => self.a.t()?.matmul(&self.b.t()?)?,
            LayerKind::Conv { .. } => {
                let rows = self.b.dims()[0];
                self.b.reshape([rows, r])?.matmul(&self.a.flatten(1, -1)?)?.reshape(weight.dims())?
            }
        };
        Ok(delta.mul_scalar(self.scaling))
    }

    /// ‖W + s·Δ‖ over the inputs of each output, in the shape of the magnitude, without recording.
    #[track_caller]
    fn norm(&self, weight: &Tensor) -> Result<Tensor> {
        let _line = caller_line();
        set_grad_enabled(false, || {
            let sum = self.wide(weight)?.add(&self.delta(weight)?)?;
            match self.kind {
                LayerKind::Linear { transposed: false } => sum.vector_norm(2.0, 1, false),
                LayerKind::Linear { transposed: true } | LayerKind::Embedding => {
                    sum.vector_norm(2.0, 0, false)
                }
                LayerKind::Conv { .. } => {
                    let axes: Vec<isize> = (1..sum.rank() as isize).collect();
                    sum.vector_norm(2.0, axes, true)?.transpose(0, 1)
                }
            }
        })
    }

    /// m / ‖W + s·Δ‖, in which the norm is a constant (section 4.3 of the paper).
    #[track_caller]
    fn direction_scale(&self, magnitude: &Tensor, weight: &Tensor) -> Result<Tensor> {
        magnitude.div(&self.norm(weight)?)
    }

    /// The weight in the adapter's dtype, without blocks.
    #[track_caller]
    fn wide(&self, weight: &Tensor) -> Result<Tensor> {
        weight.detach().dequantize().to_dtype(self.a.dtype())
    }

    /// The weight into which the adapter is merged: W + s·Δ or, for DoRA, m / ‖W + s·Δ‖ · (W + s·Δ).
    #[track_caller]
    pub(super) fn merged(&self, weight: &Tensor) -> Result<Tensor> {
        let mut sum = self.wide(weight)?.add(&self.delta(weight)?)?;
        if let Some(magnitude) = &self.magnitude {
            let scale = self.direction_scale(magnitude, weight)?;
            let scale = match self.kind {
                LayerKind::Linear { transposed: false } => scale.unsqueeze(1)?,
                LayerKind::Linear { transposed: true } | LayerKind::Embedding => scale,
                LayerKind::Conv { .. } => scale.transpose(0, 1)?,
            };
            sum = sum.mul(&scale)?;
        }
        sum.to_dtype(weight.dtype())
    }

    /// The bias of the layer into which the adapter is merged: b + s · bias of B. `None` without `lora_bias`.
    #[track_caller]
    pub(super) fn merged_bias(&self, path: &str, bias: Option<&Tensor>) -> Result<Option<Tensor>> {
        match (&self.bias, bias) {
            (None, _) => Ok(None),
            (Some(own), Some(bias)) => {
                let sum = bias.detach().to_dtype(own.dtype())?.add(&own.mul_scalar(self.scaling))?;
                Ok(Some(sum.to_dtype(bias.dtype())?))
            }
            (Some(_), None) => {
                let message = format!("merge: {path} has no bias, which the lora_bias could be added to");
                Err(Error::invalid(OP, message))
            }
        }
    }

    /// A layer's output with the adapter. `base` is the layer without its bias, `down` is A and `up` is B as
    /// functions. Without DoRA, y = base(x) + b + s · up(down(x)). With it, y = g · (base(x) + s ·
    /// up(down(x))) + b with g = m / ‖W + s·Δ‖; as in PEFT, dropout then also acts on the part (g − 1) ·
    /// base(x).
    #[track_caller]
    fn apply(
        &self,
        input: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
        base: impl Fn(&Tensor, Option<&Tensor>) -> Result<Tensor>,
        low_rank: impl FnOnce(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let dropped = match &self.dropout {
            Some(dropout) => Some(dropout.forward(input)?).filter(|dropped| dropped.id() != input.id()),
            None => None,
        };
        let taken = dropped.as_ref().unwrap_or(input);
        let product = low_rank(&taken.to_dtype(self.a.dtype())?)?.mul_scalar(self.scaling);
        let Some(magnitude) = &self.magnitude else {
            let plain = base(input, bias)?;
            return plain.add(&product.to_dtype(plain.dtype())?);
        };
        let scale = self.direction_scale(magnitude, weight)?;
        let plain = base(input, None)?;
        let (dtype, wide) = (plain.dtype(), plain.to_dtype(self.a.dtype())?);
        let out = match &dropped {
            None => wide.add(&product)?.mul(&scale)?,
            Some(dropped) => {
                let partial = base(dropped, None)?.to_dtype(self.a.dtype())?;
                wide.add(&partial.mul(&scale.sub_scalar(1.0))?)?.add(&product.mul(&scale)?)?
            }
        };
        let out = out.to_dtype(dtype)?;
        match bias {
            None => Ok(out),
            Some(bias) => out.add(&along_channels(bias, self.kind, out.rank(), input)?),
        }
    }

    /// `scaled` is the input as the weight takes it.
    #[track_caller]
    pub(super) fn linear(
        &self,
        input: &Tensor,
        scaled: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
    ) -> Result<Tensor> {
        let _line = caller_line();
        // DoRA alone calls the layer with another input, and is not attached to layers with a scale.
        let base = |x: &Tensor, bias: Option<&Tensor>| {
            functions::linear(if x.id() == input.id() { scaled } else { x }, weight, bias)
        };
        let low_rank = |x: &Tensor| {
            functions::linear(&functions::linear(x, &self.a, None)?, &self.b, self.bias.as_ref())
        };
        // The layer passes its weight as [out, in].
        let stored = match self.kind {
            LayerKind::Linear { transposed: true } => weight.t()?,
            LayerKind::Linear { transposed: false } | LayerKind::Embedding | LayerKind::Conv { .. } => {
                weight.clone()
            }
        };
        self.apply(input, &stored, bias, base, low_rank)
    }

    #[track_caller]
    pub(super) fn embedding(
        &self,
        indices: &Tensor,
        weight: &Tensor,
        padding: Option<usize>,
    ) -> Result<Tensor> {
        let plain = rows(indices, weight, padding)?;
        let product = rows(indices, &self.a.t()?, padding)?.matmul(&self.b.t()?)?.mul_scalar(self.scaling);
        let Some(magnitude) = &self.magnitude else { return plain.add(&product.to_dtype(plain.dtype())?) };
        let scale = self.direction_scale(magnitude, weight)?;
        plain.to_dtype(self.a.dtype())?.add(&product)?.mul(&scale)?.to_dtype(plain.dtype())
    }

    #[track_caller]
    pub(super) fn conv<const D: usize>(
        &self,
        op: &'static str,
        input: &Tensor,
        rounded: &Tensor,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: ConvOptions<D>,
    ) -> Result<Tensor> {
        let base = |x: &Tensor, bias: Option<&Tensor>| {
            convolution(op, if x.id() == input.id() { rounded } else { x }, weight, bias, options)
        };
        let down = ConvOptions { groups: 1, ..options };
        let up: ConvOptions<D> = ConvOptions { groups: options.groups, ..ConvOptions::default() };
        let low_rank = |x: &Tensor| {
            convolution(op, &convolution(op, x, &self.a, None, down)?, &self.b, self.bias.as_ref(), up)
        };
        self.apply(input, weight, bias, base, low_rank)
    }
}

/// The rows of a table, whose row `padding` gets no gradient.
#[track_caller]
pub(super) fn rows(indices: &Tensor, table: &Tensor, padding: Option<usize>) -> Result<Tensor> {
    match padding {
        Some(row) => functions::embedding_with_padding(indices, table, row),
        None => functions::embedding(indices, table),
    }
}

/// A bias `[out]` in a shape that broadcasts over a layer's output of `rank` axes.
#[track_caller]
fn along_channels(bias: &Tensor, kind: LayerKind, rank: usize, input: &Tensor) -> Result<Tensor> {
    match kind {
        LayerKind::Linear { .. } | LayerKind::Embedding => Ok(bias.clone()),
        LayerKind::Conv { .. } => {
            if input.rank() != rank {
                return Err(Error::invalid(OP, "an image without a batch: add one with .unsqueeze(0)?"));
            }
            let mut shape = vec![1; rank.saturating_sub(1)];
            shape[0] = bias.numel();
            bias.reshape(shape)
        }
    }
}

/// The shapes of A and B.
#[track_caller]
fn shapes(
    path: &str,
    kind: LayerKind,
    weight: &Tensor,
    r: usize,
    config: &LoraConfig,
) -> Result<(Vec<usize>, Vec<usize>)> {
    let wrong = |message: String| Err(Error::invalid(OP, format!("{path}: {message}")));
    if !weight.dtype().is_float() || weight.dtype() == DType::F8E4M3FN {
        return wrong(format!("a weight of dtype {}: adapters need a floating-point one", weight.dtype()));
    }
    let dims = weight.dims();
    match (kind, dims) {
        (LayerKind::Linear { transposed: false }, &[outputs, inputs])
        | (LayerKind::Linear { transposed: true }, &[inputs, outputs]) => {
            Ok((vec![r, inputs], vec![outputs, r]))
        }
        (LayerKind::Embedding, &[rows, features]) => Ok((vec![r, rows], vec![features, r])),
        (LayerKind::Conv { groups }, &[outputs, inputs, ref kernel @ ..]) => {
            if groups == 0 || !r.is_multiple_of(groups) {
                return wrong(format!("a rank of {r} for {groups} groups, which do not divide it"));
            }
            if groups > 1 && config.use_dora {
                return wrong(format!("DoRA of a convolution with {groups} groups is not defined"));
            }
            let a = [r, inputs * groups].into_iter().chain(kernel.iter().copied());
            let b = [outputs, r / groups].into_iter().chain(kernel.iter().map(|_| 1));
            Ok((a.collect(), b.collect()))
        }
        _ => wrong(format!("a weight of shape {} is not one of its layer", weight.shape())),
    }
}
