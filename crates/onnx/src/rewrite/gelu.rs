//! GELU written out, by the error function and by tanh.

use tensor_core::{Result, Tensor};

use super::{
    Rewrite,
    editor::{Editor, Found, Step, attributes},
    with_rank,
};
use crate::{context::Context, ops::one, value::Value};

/// x·½·(1 + erf(x/√2)), in each order of the factors.
pub(super) const BY_ERF: Rewrite = Rewrite {
    name: "gelu",
    patterns: &[
        "Mul(x, Mul(0.5, Add(1, Erf(Div(x, 1.4142135624) | Mul(x, 0.7071067812)))))",
        "Mul(0.5, Mul(x, Add(1, Erf(Div(x, 1.4142135624) | Mul(x, 0.7071067812)))))",
        "Mul(Mul(x, 0.5), Add(1, Erf(Div(x, 1.4142135624) | Mul(x, 0.7071067812))))",
    ],
    apply: |editor, found| replace(editor, found, "Gelu", |c| computed(c, Tensor::gelu)),
};

/// x·½·(1 + tanh(√(2/π)·(x + 0.044715·x³))), with the cube as a power or as products.
pub(super) const BY_TANH: Rewrite = Rewrite {
    name: "gelu_tanh",
    patterns: &[
        "Mul(x, Mul(0.5, Add(1, Tanh(Mul(0.7978845608, Add(x, Mul(0.044715, Pow(x, 3)) | Mul(x, Mul(x, Mul(x, 0.044715)))))))))",
        "Mul(0.5, Mul(x, Add(1, Tanh(Mul(0.7978845608, Add(x, Mul(0.044715, Pow(x, 3)) | Mul(x, Mul(x, Mul(x, 0.044715)))))))))",
        "Mul(Mul(x, 0.5), Add(1, Tanh(Mul(0.7978845608, Add(x, Mul(0.044715, Pow(x, 3)) | Mul(x, Mul(x, Mul(x, 0.044715))))))))",
    ],
    apply: |editor, found| replace(editor, found, "GeluTanh", |c| computed(c, Tensor::gelu_tanh)),
};

fn replace(
    editor: &mut Editor<'_, '_>,
    found: &Found,
    op_type: &'static str,
    function: fn(&Context<'_>) -> Result<Vec<Value>>,
) -> bool {
    let inputs = vec![found.value("x")];
    editor.replace(found, vec![(Step { op_type, inputs, attributes: attributes([]), function }, Vec::new())]);
    true
}

fn computed(c: &Context<'_>, function: fn(&Tensor) -> Tensor) -> Result<Vec<Value>> {
    one(with_rank(c, function(&c.tensor(0)?))?)
}
