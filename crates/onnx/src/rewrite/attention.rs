//! Attention written out: softmax(query·keyᵀ·scale + mask)·value becomes `scaled_dot_product_attention`,
//! which stores no scores.

use nn::functional::{AttentionOptions, scaled_dot_product_attention};
use tensor_core::{Result, Shape, Tensor};

use super::{
    Rewrite,
    editor::{Editor, Found, Step, attributes},
    with_rank,
};
use crate::{context::Context, graph::Attribute, ops::one, value::Value};

/// Exporters write zeros for queries that see no key, which a softmax makes NaN; attention gives zeros there.
pub(super) const REWRITE: Rewrite = Rewrite {
    name: "attention",
    patterns: &[
        "MatMul(Where(IsNaN(s), #zero, s:Softmax(Add(MatMul(Mul(query, #a), Mul(key, #b)), mask))), value)",
        "MatMul(Where(IsNaN(s), #zero, s:Softmax(MatMul(Mul(query, #a), Mul(key, #b)))), value)",
        "MatMul(s:Softmax(Add(MatMul(Mul(query, #a), Mul(key, #b)), mask)), value)",
        "MatMul(s:Softmax(MatMul(Mul(query, #a), Mul(key, #b))), value)",
        "MatMul(s:Softmax(Add(Mul(MatMul(query, key), #a) | Div(MatMul(query, key), #root) | MatMul(Mul(query, #a) | Div(query, #root), key), mask)), value)",
        "MatMul(s:Softmax(Mul(MatMul(query, key), #a) | Div(MatMul(query, key), #root) | MatMul(Mul(query, #a) | Div(query, #root), key)), value)",
        "MatMul(s:Softmax(Add(MatMul(query, key), mask)), value)",
        "MatMul(s:Softmax(MatMul(query, key)), value)",
    ],
    apply,
};

const SCALE: &str = "scale";
const AXIS: &str = "axis";
const TOGETHER_ATTRIBUTE: &str = "together";

fn apply(editor: &mut Editor<'_, '_>, found: &Found) -> bool {
    let Some(softmax) = editor.node(found, "s") else { return false };
    let axis = match (softmax.attributes.get("axis"), softmax.version) {
        (Some(Attribute::Int(axis)), _) => *axis,
        (None, 13..) => -1,
        _ => return false,
    };
    // Before version 13, softmax took all axes from one on together.
    let together = softmax.version < 13;
    if found.number("zero").is_some_and(|zero| zero != 0.0) {
        return false;
    }
    let factor = |name: &str| found.number(name).unwrap_or(1.0);
    let scale = factor("a") * factor("b") / factor("root");
    let step = Step {
        op_type: "ScaledDotProductAttention",
        inputs: ["query", "key", "value", "mask"].iter().map(|name| found.value(name)).collect(),
        attributes: attributes([
            (SCALE, Attribute::Float(scale as f32)),
            (AXIS, Attribute::Int(axis)),
            (TOGETHER_ATTRIBUTE, Attribute::Int(i64::from(together))),
        ]),
        function: attention,
    };
    editor.replace(found, vec![(step, Vec::new())]);
    true
}

fn attention(c: &Context<'_>) -> Result<Vec<Value>> {
    let (query, key, value) = (c.tensor(0)?, c.tensor(1)?, c.tensor(2)?);
    let (mask, scale) = (c.optional_tensor(3)?, c.number_or(SCALE, 1.0)?);
    // The scores' axes.
    let rank = query.rank().max(key.rank()).max(mask.as_ref().map_or(0, Tensor::rank));
    let axis = c.axis(c.int_or(AXIS, -1)?, rank)?;
    let batch = rank.saturating_sub(2);
    let alike = |t: &Tensor| {
        t.rank() == rank && t.dims()[..batch] == query.dims()[..batch] && t.dtype() == query.dtype()
    };
    // The mask adds no elements to the scores.
    let masks = |mask: &Tensor| {
        let mut scores = query.dims().to_vec();
        scores[rank - 1] = key.dims()[rank - 1];
        let scores = Shape::from(scores);
        mask.dtype() == query.dtype() && scores.broadcast(mask.shape(), "onnx").is_ok_and(|all| all == scores)
    };
    let fused = rank > 2
        && axis == rank - 1
        && query.dtype().is_float()
        && [&query, &key, &value].into_iter().all(alike)
        && mask.as_ref().is_none_or(masks);
    if fused {
        let options = AttentionOptions { mask: mask.as_ref(), scale: Some(scale), ..Default::default() };
        let y = scaled_dot_product_attention(&query, &key.transpose(-1, -2)?, &value, options)?;
        return one(with_rank(c, y)?);
    }
    let mut scores = query.matmul(&key)?.mul_scalar(scale);
    if let Some(mask) = mask {
        scores = scores.add(&mask)?;
    }
    let weights = if c.flag(TOGETHER_ATTRIBUTE, false)? {
        let rows: usize = scores.dims()[..axis].iter().product();
        let shape = scores.dims().to_vec();
        let all: usize = shape[axis..].iter().product();
        scores.reshape([rows, all])?.softmax(-1)?.reshape(shape)?
    } else {
        scores.softmax(axis)?
    };
    one(with_rank(c, weights.matmul(&value)?)?)
}
