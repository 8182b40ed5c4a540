//! Products of integers less their zero points, with a weight of 8 bits.
//!
//! They are computed in f32, whose products are several times faster than those of i32: every sum below 2²⁴
//! is exact, larger ones are rounded. The weight of a matrix product stays in 8 bits, as blocks with a scale
//! of 1; that of a convolution becomes f32 in a step of its own, computed once (`static_values`).

use tensor_core::{DType, Result};

use super::{
    Rewrite,
    editor::{Editor, Found, Step, attributes},
};
use crate::{
    context::Context,
    graph::Constant,
    ops::{
        layers::conv::convolution,
        one,
        quantized::{CHANNEL, CHANNEL_OF_WEIGHT, ROW, centred},
    },
    value::{DataType, HostData, HostTensor, Value},
    weights::Scales,
};

pub(super) const REWRITE: Rewrite = Rewrite {
    name: "integer_products",
    patterns: &["MatMulInteger(x, values, of_x?, zero?)", "conv:ConvInteger(x, values, of_x?, zero?)"],
    apply,
};

fn apply(editor: &mut Editor<'_, '_>, found: &Found) -> bool {
    let (Some(values), zero) = (found.value("values"), found.value("zero")) else { return false };
    let inputs = |weight: usize| vec![found.value("x"), Some(weight), found.value("of_x")];
    if let Some(conv) = editor.node(found, "conv") {
        let of_conv = conv.attributes.clone();
        if ![Some(values), zero].iter().flatten().all(|&slot| editor.is_static(slot)) {
            return false;
        }
        let centre = Step {
            op_type: "CentredWeight",
            inputs: vec![Some(values), zero],
            attributes: attributes([]),
            function: |c| one(centred(c, 0, 1, CHANNEL_OF_WEIGHT)?.to_dtype(DType::F32)?),
        };
        let slot = editor.new_slot();
        let conv = Step {
            op_type: "ConvInteger",
            inputs: inputs(slot),
            attributes: of_conv,
            function: |c| {
                let x = centred(c, 0, 2, CHANNEL)?.to_dtype(DType::F32)?;
                one(convolution(c, &x, &c.tensor(1)?, None)?.to_dtype(DType::I32)?)
            },
        };
        editor.replace(found, vec![(centre, vec![slot]), (conv, Vec::new())]);
        return true;
    }
    let Some(&Constant::Weight(index)) = editor.constant(values) else { return false };
    if !editor.weights.is_in_blocks(index) {
        let Some(scales) = scales(editor, index, (values, zero)) else { return false };
        editor.weights.store_in_blocks(index, scales);
    }
    let step = Step {
        op_type: "MatMulInteger",
        inputs: inputs(values),
        attributes: attributes([]),
        function: product,
    };
    editor.replace(found, vec![(step, Vec::new())]);
    if let Some(zero) = zero {
        editor.drop_if_unused(zero);
    }
    true
}

fn product(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = centred(c, 0, 2, ROW)?.to_dtype(DType::F32)?;
    one(x.matmul(&c.tensor(1)?)?.to_dtype(DType::I32)?)
}

/// A weight's zero points, with scales of 1, if the weight is a matrix that only products with these zero
/// points read. Layers may share it: then all of these products are replaced, one after the other.
fn scales(editor: &Editor<'_, '_>, index: usize, (values, zero): (usize, Option<usize>)) -> Option<Scales> {
    let is_small = matches!(editor.weights.data_type(index), Some(DataType::Tensor(DType::I8 | DType::U8)));
    if !is_small {
        return None;
    }
    let &[_, columns] = editor.weights.shape(index) else { return None };
    let alike = editor.readers(values)?.into_iter().all(|(step, at)| {
        let of_weight = step.inputs.get(3).copied().flatten();
        step.domain.is_empty() && step.op_type == "MatMulInteger" && at == 1 && of_weight == zero
    });
    let zero = match zero {
        Some(slot) => Some(editor.host(slot)?),
        None => None,
    };
    let count = zero.as_ref().map_or(1, |zero| zero.data().len());
    if !alike || !(count == 1 || count == columns) {
        return None;
    }
    let ones = HostData::Float(vec![1.0; count]);
    let scale = HostTensor::new(DataType::Tensor(DType::F32), [count], ones).ok()?;
    let flat = |zero: HostTensor| HostTensor::new(zero.data_type(), [count], zero.data().clone()).ok();
    let zero = match zero {
        Some(zero) => Some(flat(zero)?),
        None => None,
    };
    Some(Scales { scale, zero, axis: 1 })
}
