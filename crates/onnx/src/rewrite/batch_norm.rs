//! A batch norm after a convolution becomes part of the convolution's weight and bias.
//!
//! The new weight and bias are steps of their own, which read the file's parameters. They depend on weights
//! alone, so that inference computes them once (`static_values`); while gradients are recorded they are
//! computed in each run, and gradients reach every parameter. So one graph serves inference and training.

use tensor_core::{Result, Tensor};

use super::{
    Rewrite,
    editor::{Editor, Found, Step, attributes},
};
use crate::{
    context::Context,
    graph::Attribute,
    ops::{all, layers::conv},
    value::Value,
};

pub(super) const REWRITE: Rewrite = Rewrite {
    name: "batch_norm",
    patterns: &[
        "norm:BatchNormalization(conv:Conv(x, weight, bias?), scale, shift, mean, variance)",
        "norm:BatchNormalization(conv:ConvTranspose(x, weight, bias?), scale, shift, mean, variance)",
    ],
    apply,
};

/// The attribute with the weight's axis of output channels.
const CHANNELS: &str = "channels";
const EPSILON: &str = "epsilon";

fn apply(editor: &mut Editor<'_, '_>, found: &Found) -> bool {
    let names = ["weight", "scale", "shift", "mean", "variance", "bias"];
    let inputs: Vec<Option<usize>> = names.iter().map(|name| found.value(name)).collect();
    let (Some(norm), Some(conv)) = (editor.node(found, "norm"), editor.node(found, "conv")) else {
        return false;
    };
    let is_transposed = conv.op_type == "ConvTranspose";
    let training = norm.int("training_mode", 0) != Some(0);
    let groups = conv.int("group", 1);
    // Groups of a transposed convolution share positions of the weight's channel axis.
    let folds = !training
        && norm.outputs.len() == 1
        && !(is_transposed && groups != Some(1))
        && inputs.iter().flatten().all(|&slot| editor.is_static(slot));
    if !folds {
        return false;
    }
    let epsilon = match norm.attributes.get(EPSILON) {
        Some(Attribute::Float(number)) => *number,
        _ => 1e-5,
    };
    let fold = Step {
        op_type: "FoldBatchNorm",
        inputs,
        attributes: attributes([
            (EPSILON, Attribute::Float(epsilon)),
            (CHANNELS, Attribute::Int(i64::from(is_transposed))),
        ]),
        function: fold,
    };
    let of_conv = conv.attributes.clone();
    let slots = vec![editor.new_slot(), editor.new_slot()];
    let conv = Step {
        op_type: if is_transposed { "ConvTranspose" } else { "Conv" },
        inputs: vec![found.value("x"), Some(slots[0]), Some(slots[1])],
        attributes: of_conv,
        function: if is_transposed { conv::transposed } else { conv::conv },
    };
    editor.replace(found, vec![(fold, slots), (conv, Vec::new())]);
    true
}

/// weight·factor and (bias − mean)·factor + shift, where factor = scale/√(variance + ε).
fn fold(c: &Context<'_>) -> Result<Vec<Value>> {
    let weight = c.tensor(0)?;
    let numbers = |index: usize| c.tensor(index)?.to_dtype(weight.dtype());
    let (scale, shift, mean, variance) = (numbers(1)?, numbers(2)?, numbers(3)?, numbers(4)?);
    let factor = scale.div(&variance.add_scalar(c.number_or(EPSILON, 1e-5)?).sqrt())?;
    let centre = match c.optional_tensor(5)? {
        Some(bias) => bias.sub(&mean)?,
        None => mean.neg(),
    };
    let bias = centre.mul(&factor)?.add(&shift)?;
    let channels = usize::try_from(c.int_or(CHANNELS, 0)?).unwrap_or(0);
    all([weight.mul(&along(&factor, weight.rank(), channels)?)?, bias])
}

/// `[C]` along one axis of a tensor with this many axes.
fn along(factor: &Tensor, rank: usize, axis: usize) -> Result<Tensor> {
    let mut shape = vec![1; rank];
    if let Some(size) = shape.get_mut(axis) {
        *size = factor.numel();
    }
    factor.reshape(shape)
}
