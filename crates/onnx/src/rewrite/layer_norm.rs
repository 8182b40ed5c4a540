//! Layer normalization written out: (x − mean)/√(mean of (x − mean)² + ε), perhaps with a weight and a bias.

use nn::functional;
use tensor_core::Result;

use super::{
    Rewrite,
    editor::{Editor, Found, Step, attributes},
    with_rank,
};
use crate::{
    context::Context,
    graph::{Attribute, Node},
    ops::one,
    value::Value,
};

pub(super) const REWRITE: Rewrite = Rewrite {
    name: "layer_norm",
    patterns: &[
        "Add(Mul(Div(d:Sub(x, mean:ReduceMean(x, a?)), Sqrt(Add(variance:ReduceMean(Pow(d, 2) | Mul(d, d), b?), #eps))), weight), bias)",
        "Div(d:Sub(x, mean:ReduceMean(x, a?)), Sqrt(Add(variance:ReduceMean(Pow(d, 2) | Mul(d, d), b?), #eps)))",
        "Mul(d:Sub(x, mean:ReduceMean(x, a?)), Reciprocal(Sqrt(Add(variance:ReduceMean(Pow(d, 2) | Mul(d, d), b?), #eps))))",
    ],
    apply,
};

const AXES: &str = "axes";
const EPSILON: &str = "epsilon";

fn apply(editor: &mut Editor<'_, '_>, found: &Found) -> bool {
    let of = |name: &str, axes: &str| {
        editor.node(found, name).and_then(|node| axes_of(editor, node, found.value(axes)))
    };
    let (Some(axes), Some(eps)) = (of("mean", "a"), found.number("eps")) else { return false };
    // The weight and the bias must not add elements: both are constants of few axes.
    let affine = [found.value("weight"), found.value("bias")];
    let fits = |slot: &usize| editor.shape(*slot).is_some_and(|shape| shape.len() <= axes.len());
    if of("variance", "b").as_ref() != Some(&axes) || !affine.iter().flatten().all(fits) {
        return false;
    }
    let step = Step {
        op_type: "LayerNormalization",
        inputs: [found.value("x")].into_iter().chain(affine).collect(),
        attributes: attributes([(AXES, Attribute::Ints(axes)), (EPSILON, Attribute::Float(eps as f32))]),
        function: normalized,
    };
    editor.replace(found, vec![(step, Vec::new())]);
    true
}

/// The axes of a mean that keeps them, from its attribute or its second input.
fn axes_of(editor: &Editor<'_, '_>, node: &Node, input: Option<usize>) -> Option<Vec<i64>> {
    if let Some(Attribute::Int(0)) = node.attributes.get("keepdims") {
        return None;
    }
    let axes = match (node.attributes.get("axes"), input) {
        (Some(Attribute::Ints(list)), None) => list.clone(),
        (Some(Attribute::Int(axis)), None) => vec![*axis],
        (None, Some(slot)) => editor.host(slot)?.to_i64s().ok()?,
        _ => return None,
    };
    (!axes.is_empty()).then_some(axes)
}

fn normalized(c: &Context<'_>) -> Result<Vec<Value>> {
    let (x, weight, bias) = (c.tensor(0)?, c.optional_tensor(1)?, c.optional_tensor(2)?);
    let eps = c.number_or(EPSILON, 1e-5)?;
    let list = c.ints(AXES)?.unwrap_or_default();
    let mut axes = list.iter().map(|&axis| c.axis(axis, x.rank())).collect::<Result<Vec<usize>>>()?;
    axes.sort_unstable();
    let first = x.rank() - axes.len();
    let y = if axes.iter().copied().eq(first..x.rank()) && x.dtype().is_float() {
        let sizes = &x.dims()[first..];
        let fits = |t: &tensor_core::Tensor| t.dims() == sizes && t.dtype() == x.dtype();
        if let (Some(weight), Some(bias)) = (&weight, &bias)
            && fits(weight)
            && fits(bias)
        {
            return one(with_rank(c, functional::layer_norm(&x, sizes, Some(weight), Some(bias), eps)?)?);
        }
        functional::layer_norm(&x, sizes, None, None, eps)?
    } else {
        let centred = x.sub(&x.mean_axis(axes.as_slice(), true)?)?;
        centred.div(&centred.square().mean_axis(axes, true)?.add_scalar(eps).sqrt())?
    };
    let y = match (weight, bias) {
        (Some(weight), Some(bias)) => y.mul(&weight)?.add(&bias)?,
        (Some(weight), None) => y.mul(&weight)?,
        (None, Some(bias)) => y.add(&bias)?,
        (None, None) => y,
    };
    one(with_rank(c, y)?)
}
