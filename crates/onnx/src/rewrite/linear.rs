//! A product with a weight and the addition of a bias, as one step.

use super::{
    Rewrite,
    editor::{Step, attributes},
};
use crate::{graph::Constant, ops::one};

pub(super) const REWRITE: Rewrite = Rewrite {
    name: "linear",
    patterns: &["Add(MatMul(x, weight), bias)"],
    apply: |editor, found| {
        let (weight, bias) = (found.value("weight"), found.value("bias"));
        // A residual is no bias: it would be read later than it must.
        let is_weight = |slot: Option<usize>| {
            slot.is_some_and(|slot| matches!(editor.constant(slot), Some(Constant::Weight(_))))
        };
        if !is_weight(weight) || !is_weight(bias) {
            return false;
        }
        let step = Step {
            op_type: "Linear",
            inputs: vec![found.value("x"), weight, bias],
            attributes: attributes([]),
            // The addition is the product's epilogue.
            function: |c| one(c.tensor(0)?.matmul(&c.tensor(1)?)?.add(&c.tensor(2)?)?),
        };
        editor.replace(found, vec![(step, Vec::new())]);
        true
    },
};
