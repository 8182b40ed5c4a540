//! Weights of 8 bits that become floats before a product: they stay in 8 bits, as a tensor in blocks
//! (decision 51), which products and gathers decode where they read it.

use tensor_core::DType;

use super::{
    Rewrite,
    editor::{Editor, Found},
};
use crate::{
    graph::Constant,
    value::{DataType, HostTensor},
    weights::Scales,
};

pub(super) const REWRITE: Rewrite = Rewrite {
    name: "weights_in_blocks",
    patterns: &["Mul(cast:Cast(values), scale)", "dequantize:DequantizeLinear(values, scale, zero?)"],
    apply,
};

/// The operators that read blocks, and the positions of their inputs that may be in blocks.
const READERS: &[(&str, &[usize])] = &[("MatMul", &[0, 1]), ("Gemm", &[0, 1]), ("Gather", &[0])];

fn apply(editor: &mut Editor<'_, '_>, found: &Found) -> bool {
    let Some((index, scales)) = scales(editor, found) else { return false };
    editor.weights.store_in_blocks(index, scales);
    if editor.replace_by_weight(found, index).is_none() {
        return false;
    }
    for name in ["scale", "zero"] {
        if let Some(slot) = found.value(name) {
            editor.drop_if_unused(slot);
        }
    }
    true
}

/// The weight and its scales, if all conditions hold.
fn scales(editor: &Editor<'_, '_>, found: &Found) -> Option<(usize, Scales)> {
    let values = found.value("values")?;
    let Some(&Constant::Weight(index)) = editor.constant(values) else { return None };
    let is_small = matches!(editor.weights.data_type(index), Some(DataType::Tensor(DType::I8 | DType::U8)));
    if !is_small {
        return None;
    }
    let shape = editor.weights.shape(index);
    // The integers are read only here, and the floats only by operators that decode.
    let alone = editor.readers(values).is_some_and(|readers| readers.len() == 1);
    let decoded = editor.result(found).and_then(|slot| editor.readers(slot)).is_some_and(|readers| {
        readers.iter().all(|(step, at)| {
            step.domain.is_empty()
                && READERS.iter().any(|(name, inputs)| *name == step.op_type && inputs.contains(at))
        })
    });
    if !alone || !decoded {
        return None;
    }
    let scale = editor.host(found.value("scale")?)?;
    let zero = match found.value("zero") {
        Some(slot) => Some(editor.host(slot)?),
        None => None,
    };
    if scale.data_type() != DataType::Tensor(DType::F32) {
        return None;
    }
    if let Some(cast) = editor.node(found, "cast") {
        // The scale has one element, or one for each position of one axis and sizes of 1 elsewhere.
        let to_f32 = cast.int("to", 0) == Some(1);
        let axis = spread_axis(shape, scale.dims())?;
        let scale = HostTensor::new(scale.data_type(), [scale.data().len()], scale.data().clone()).ok()?;
        return to_f32.then_some((index, Scales { scale, zero: None, axis }));
    }
    let dequantize = editor.node(found, "dequantize")?;
    if dequantize.int("block_size", 0)? != 0 || scale.dims().len() > 1 {
        return None;
    }
    let rank = shape.len() as i64;
    let axis = dequantize.int("axis", 1)?;
    let axis = usize::try_from(if axis < 0 { axis + rank } else { axis }).ok()?;
    let fits = scale.data().len() == 1 || shape.get(axis) == Some(&scale.data().len());
    let zero_fits = zero.as_ref().is_none_or(|zero| zero.dims() == scale.dims());
    (fits && zero_fits).then_some((index, Scales { scale, zero, axis: axis.min(shape.len().max(1) - 1) }))
}

/// The axis along which a scale that broadcasts to `shape` differs; 0 for a scale of one element. `None` if
/// it differs along several, or adds axes.
fn spread_axis(shape: &[usize], scale: &[usize]) -> Option<usize> {
    let lead = shape.len().checked_sub(scale.len())?;
    let mut own = scale.iter().enumerate().filter(|(_, size)| **size != 1);
    let Some((axis, &size)) = own.next() else { return Some(0) };
    let axis = axis + lead;
    (own.next().is_none() && shape[axis] == size).then_some(axis)
}
