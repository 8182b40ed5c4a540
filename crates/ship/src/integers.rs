//! Products of whole numbers become products of integers. Networks that `nn::qat` converted and quantized
//! files of ONNX multiply floats (q − z)·s by weights k·t, with small whole numbers q, z and k. The step that
//! makes the floats stores q − z as 8 or 16 bits, the weights are stored as k, sums are exact in i32, and s·t
//! is multiplied once, in the epilogue. Other steps that read the value multiply it by s themselves, as its
//! maker did.

use tensor_core::{
    BinaryOp, DType, Kernel, Layout, Scalar, Shape,
    kernel::{Body, Instr, Operand, Program, Reg},
};

use crate::{
    description::{BufferId, Description, Role, Step, Window},
    interpret::distances,
    whole::{Bounds, registers},
};

/// The greatest whole number for which a scale of a weight is looked for.
const MAX_LEVEL: u16 = 255;

/// A value that is whole numbers times a scale, with everything that reads it.
#[derive(Debug)]
struct Found {
    /// The step that makes it, its output, the register with the whole numbers, and their dtype.
    maker: (usize, usize, Reg, DType),
    /// Steps that copy it, with zeros around it.
    copies: Vec<usize>,
    products: Vec<Product>,
    /// Other steps, and the operands with which they read it.
    others: Vec<(usize, usize)>,
    /// The number that the whole numbers are multiplied by, and the dtype of the product.
    scale: (f64, DType),
}

/// A contraction of the value with a weight.
#[derive(Debug)]
struct Product {
    step: usize,
    /// The operand with the value; the other is the weight.
    value: usize,
    weight: Weight,
    /// The factor of each sum, by the weight's own axes that the sum keeps; none if all are 1.
    factors: Option<(Vec<f64>, Layout)>,
}

/// A constant as whole numbers and scales.
#[derive(Debug)]
struct Weight {
    dtype: DType,
    /// The elements of its window.
    integers: Vec<Scalar>,
}

/// Stores values of whole numbers with a scale as integers, and makes products of integers with them.
pub(crate) fn products(plan: &mut Description) {
    for maker in 0..plan.steps.len() {
        for output in 0..plan.steps[maker].outputs.len() {
            if let Some(found) = find(plan, maker, output) {
                apply(plan, &found);
            }
        }
    }
}

/// The smallest dtype for whole numbers within bounds.
fn smallest(bounds: Bounds) -> Option<DType> {
    let dtypes = [DType::U8, DType::I8, DType::I16];
    dtypes.into_iter().find(|&dtype| Bounds::of_dtype(dtype).is_some_and(|range| bounds.within(range)))
}

fn find(plan: &Description, maker: usize, output: usize) -> Option<Found> {
    let step = &plan.steps[maker];
    let of = step.kernel.outputs[output].dtype;
    if !is_all_of_its_buffer(plan, step, output) || !matches!(of, DType::F32 | DType::F64 | DType::I32) {
        return None;
    }
    let (integers, scale, bounds) = scaled(plan, step, output)?;
    let dtype = smallest(bounds)?;
    let mut found = Found {
        maker: (maker, output, integers, dtype),
        copies: Vec::new(),
        products: Vec::new(),
        others: Vec::new(),
        scale: (scale, of),
    };
    let mut values = vec![(maker, plan.steps[maker].outputs[output].buffer)];
    while let Some((from, buffer)) = values.pop() {
        for j in readers(plan, from, buffer) {
            let step = &plan.steps[j];
            if is_plain_copy(step) {
                if !is_all_of_its_buffer(plan, step, 0) {
                    return None;
                }
                found.copies.push(j);
                values.push((j, step.outputs[0].buffer));
            } else if let Some(product) = product(plan, j, buffer, scale, bounds) {
                found.products.push(product);
            } else {
                let operands = (0..step.inputs.len()).filter(|&n| step.inputs[n].buffer == buffer);
                for operand in operands {
                    found.others.push((j, loaded(step, operand)?));
                }
            }
        }
    }
    Some(found)
}

/// Whether an output is all of a buffer of the arena.
fn is_all_of_its_buffer(plan: &Description, step: &Step, output: usize) -> bool {
    let Window { buffer, start, len } = step.outputs[output];
    let own = &plan.buffers[buffer];
    own.role == Role::Arena && start == 0 && len == own.numel
}

/// An operand that the program of a step loads at each position.
fn loaded(step: &Step, operand: usize) -> Option<usize> {
    let (program, first) = match &step.kernel.body {
        Body::Reduce { program, .. } => (program, 0),
        _ => program(step)?,
    };
    let input = operand.checked_sub(first).filter(|&input| first == 0 || input > 0)?;
    (!program.is_indexed(input as u16)).then_some(operand)
}

/// The steps that read the contents of a buffer that a step made.
fn readers(plan: &Description, maker: usize, buffer: BufferId) -> Vec<usize> {
    let later = maker + 1..plan.steps.len();
    let writes = |j: &usize| plan.steps[*j].outputs.iter().any(|window| window.buffer == buffer);
    let last = later.clone().find(writes).map_or(plan.steps.len(), |j| j + 1);
    later.filter(|&j| j < last && plan.steps[j].reads(buffer)).collect()
}

/// Whether a step copies one operand, and leaves zeros elsewhere.
fn is_plain_copy(step: &Step) -> bool {
    let Body::Copy { fill, regions } = &step.kernel.body else { return false };
    regions.len() == 1 && !(*fill && step.scalars[0].as_f64() != 0.0)
}

/// The program of a step, and the operand of its input 0 or, in an epilogue, of the sum.
fn program(step: &Step) -> Option<(&Program, usize)> {
    match &step.kernel.body {
        Body::Map(program) | Body::Rows { program, .. } => Some((program, 0)),
        Body::Contract(Some(program)) => Some((program, 1)),
        _ => None,
    }
}

/// The constant number that an operand has everywhere.
fn constant(plan: &Description, step: &Step, operand: usize) -> Option<f64> {
    let (window, layout) = (step.inputs[operand], &step.kernel.operands[operand].layout);
    let is_one = layout.shape().iter().zip(layout.strides()).all(|(&size, &stride)| size == 1 || stride == 0);
    numbers(plan, window).filter(|_| is_one)?.get(layout.offset()).copied()
}

/// The numbers of a window of a constant.
fn numbers(plan: &Description, window: Window) -> Option<Vec<f64>> {
    let buffer = &plan.buffers[window.buffer];
    let Role::Constant(bytes) = &buffer.role else { return None };
    let size = buffer.dtype.size();
    let bytes = &bytes[window.start * size..(window.start + window.len) * size];
    Some(Scalar::from_bytes(buffer.dtype, bytes).into_iter().map(|scalar| scalar.as_f64()).collect())
}

/// An output as whole numbers times a scale: their register, the scale, and their bounds.
fn scaled(plan: &Description, step: &Step, output: usize) -> Option<(Reg, f64, Bounds)> {
    let (program, first) = program(step)?;
    let operand = |input: u16| usize::from(input) + first;
    let loaded = |input: u16| {
        if first == 1 && input == 0 {
            return Bounds::of_dtype(program.inputs[0]);
        }
        let window = step.inputs[operand(input)];
        match numbers(plan, window) {
            Some(numbers) => Bounds::of(numbers),
            None => Bounds::of_dtype(plan.buffers[window.buffer].dtype),
        }
    };
    let bounds = registers(program, &step.scalars, &loaded);
    let is_finite = |bounds: &Bounds| bounds.low.is_finite() && bounds.high.is_finite();
    let whole = |reg: Reg| bounds[usize::from(reg)].filter(is_finite);
    let out = program.outputs[output];
    if let Some(bounds) = whole(out) {
        return Some((out, 1.0, bounds));
    }
    let Instr::Binary(BinaryOp::Mul, a, b) = program.instrs[usize::from(out)] else { return None };
    let number = |reg: Reg| match program.instrs[usize::from(reg)] {
        Instr::Scalar(slot) => Some(step.scalars[usize::from(slot)].as_f64()),
        Instr::Load(input) if first == 0 || input > 0 => constant(plan, step, operand(input)),
        _ => None,
    };
    [(a, b), (b, a)].into_iter().find_map(|(a, b)| Some((a, number(b)?, whole(a)?)))
}

/// The contraction of a value with a constant, if the constant is whole numbers with scales.
fn product(plan: &Description, k: usize, buffer: BufferId, scale: f64, bounds: Bounds) -> Option<Product> {
    let step = &plan.steps[k];
    let Body::Contract(_) = step.kernel.body else { return None };
    let reads: Vec<usize> = (0..step.inputs.len()).filter(|&n| step.inputs[n].buffer == buffer).collect();
    let &[value @ 0..=1] = &reads[..] else { return None };
    let sum = step.sum_dtype();
    if !matches!(sum, DType::F32 | DType::F64 | DType::I32) || step.kernel.operands[0].dtype != sum {
        return None;
    }
    let (weight, scales, layout) = weight(plan, step, 1 - value)?;
    let greatest = weight.integers.iter().map(|k| k.as_f64().abs()).fold(0.0, f64::max);
    let terms: usize = step.kernel.reduced_axes().iter().map(|&axis| step.kernel.space[axis]).product();
    if bounds.greatest_size() * greatest * terms as f64 > f64::from(i32::MAX) {
        return None;
    }
    let factors: Vec<f64> = scales.iter().map(|t| scale * t).collect();
    let factors = factors.iter().any(|&factor| factor != 1.0).then_some((factors, layout));
    Some(Product { step: k, value, weight, factors })
}

/// A constant factor as whole numbers, and the scale for each position of its axes that the sum keeps.
fn weight(plan: &Description, step: &Step, operand: usize) -> Option<(Weight, Vec<f64>, Layout)> {
    let (window, of) = (step.inputs[operand], &step.kernel.operands[operand]);
    let numbers = numbers(plan, window)?;
    let layout = &of.layout;
    let reduced = step.kernel.reduced_axes();
    let is_own = |axis: &usize| layout.strides()[*axis] != 0 && layout.shape()[*axis] > 1;
    let (summed, kept): (Vec<usize>, Vec<usize>) =
        (0..layout.shape().rank()).filter(is_own).partition(|axis| reduced.contains(axis));
    let along = distances(layout, &summed);
    let mut integers = vec![0.0; window.len];
    let mut scales = Vec::new();
    for start in distances(layout, &kept) {
        let at = |by: &isize| layout.offset().wrapping_add_signed(start + by);
        let channel: Vec<f64> = along.iter().map(|by| numbers[at(by)]).collect();
        let scale = scale_of(&channel, of.dtype)?;
        scales.push(scale);
        along.iter().zip(channel).for_each(|(by, x)| integers[at(by)] = (x / scale).round());
    }
    if scales.iter().all(|scale| *scale == scales[0]) {
        scales.truncate(1);
    }
    let mut strides = vec![0; layout.shape().rank()];
    if scales.len() > 1 {
        let sizes: Shape = kept.iter().map(|&axis| layout.shape()[axis]).collect();
        kept.iter().zip(sizes.contiguous_strides()).for_each(|(&axis, stride)| strides[axis] = stride);
    }
    let dtype = smallest(Bounds::of(integers.iter().copied())?)?;
    let integers = integers.into_iter().map(|x| Scalar::Int(x as i64)).collect();
    Some((Weight { dtype, integers }, scales, Layout::new(layout.shape().clone(), &strides, 0)))
}

/// The greatest scale of which all numbers are small multiples, to the bit.
fn scale_of(numbers: &[f64], dtype: DType) -> Option<f64> {
    let greatest = numbers.iter().fold(0.0f64, |greatest, x| greatest.max(x.abs()));
    let is_small = |x: f64| x.fract() == 0.0 && x.abs() <= f64::from(MAX_LEVEL);
    if numbers.iter().all(|&x| is_small(x)) {
        return Some(1.0);
    }
    if dtype != DType::F32 || !greatest.is_finite() {
        return None;
    }
    let fits = |scale: f32| {
        numbers.iter().all(|&x| {
            let level = (x / f64::from(scale)).round();
            is_small(level) && level as f32 * scale == x as f32
        })
    };
    (1..=MAX_LEVEL).find_map(|level| {
        let near = greatest as f32 / f32::from(level);
        let all = [near, near.next_down(), near.next_up()];
        all.into_iter().find(|&scale| scale > 0.0 && fits(scale)).map(f64::from)
    })
}

fn apply(plan: &mut Description, found: &Found) {
    let (maker, output, integers, dtype) = found.maker;
    let mut renamed = vec![(plan.steps[maker].outputs[output].buffer, maker)];
    renamed.extend(found.copies.iter().map(|&copy| (plan.steps[copy].outputs[0].buffer, copy)));
    let new: Vec<BufferId> =
        renamed.iter().map(|&(old, _)| plan.buffer(dtype, plan.buffers[old].numel, Role::Arena)).collect();
    // A step reads the last value before it.
    let value_of = |buffer: BufferId, k: usize| {
        let all = renamed.iter().zip(&new).filter(|((old, maker), _)| *old == buffer && *maker < k);
        all.max_by_key(|((_, maker), _)| *maker).map_or(buffer, |(_, new)| *new)
    };
    let step = &mut plan.steps[maker];
    if let Body::Map(program) | Body::Rows { program, .. } | Body::Contract(Some(program)) =
        &mut step.kernel.body
    {
        program.instrs.push(Instr::Cast(integers));
        program.dtypes.push(dtype);
        program.outputs[output] = (program.instrs.len() - 1) as Reg;
    }
    step.kernel.outputs[output].dtype = dtype;
    step.outputs[output].buffer = new[0];
    prune(step);
    for (&copy, &to) in found.copies.iter().zip(&new[1..]) {
        let step = &mut plan.steps[copy];
        step.inputs[0].buffer = value_of(step.inputs[0].buffer, copy);
        step.outputs[0].buffer = to;
        step.kernel.operands[0].dtype = dtype;
        step.kernel.outputs[0].dtype = dtype;
        step.scalars.iter_mut().for_each(|fill| *fill = Scalar::Int(0));
    }
    for &(k, operand) in &found.others {
        let step = &mut plan.steps[k];
        step.inputs[operand].buffer = value_of(step.inputs[operand].buffer, k);
        step.kernel.operands[operand].dtype = dtype;
        load_scaled(step, operand, dtype, found.scale);
    }
    for product in &found.products {
        let Product { step: k, value, weight, factors } = product;
        let bytes = Scalar::to_bytes(weight.dtype, &weight.integers);
        let buffer = shared(plan, weight.dtype, weight.integers.len(), Role::Constant(bytes));
        let sum = plan.steps[*k].sum_dtype();
        let factors = factors.as_ref().map(|(factors, layout)| {
            let numbers: Vec<Scalar> =
                factors.iter().map(|&factor| Scalar::Float(factor).cast(sum)).collect();
            let role = Role::Constant(Scalar::to_bytes(sum, &numbers));
            (shared(plan, sum, factors.len(), role), layout.clone(), factors.len())
        });
        let step = &mut plan.steps[*k];
        step.inputs[*value].buffer = value_of(step.inputs[*value].buffer, *k);
        step.kernel.operands[*value].dtype = dtype;
        step.inputs[1 - value] = Window { buffer, start: 0, len: weight.integers.len() };
        step.kernel.operands[1 - value].dtype = weight.dtype;
        let has_factors = factors.is_some();
        rescale(&mut step.kernel, sum, has_factors);
        if let Some((buffer, layout, len)) = factors {
            step.kernel.operands.insert(2, Operand::new(sum, layout));
            step.inputs.insert(2, Window { buffer, start: 0, len });
        }
    }
}

/// Multiplies what the program of a step loads from an operand by the scale.
fn load_scaled(step: &mut Step, operand: usize, from: DType, (scale, to): (f64, DType)) {
    let first = if matches!(step.kernel.body, Body::Contract(_)) { 1 } else { 0 };
    let (Body::Map(program)
    | Body::Reduce { program, .. }
    | Body::Rows { program, .. }
    | Body::Contract(Some(program))) = &mut step.kernel.body
    else {
        return;
    };
    let input = (operand - first) as u16;
    let slot = program.scalars.len() as u16;
    program.inputs[usize::from(input)] = from;
    program.scalars.push(to);
    step.scalars.push(Scalar::Float(scale).cast(to));
    let mut new = Program { instrs: Vec::new(), dtypes: Vec::new(), outputs: Vec::new(), ..program.clone() };
    let mut places: Vec<Reg> = Vec::with_capacity(program.instrs.len());
    let mut add = |dtype: DType, instr: Instr| {
        new.instrs.push(instr);
        new.dtypes.push(dtype);
        (new.instrs.len() - 1) as Reg
    };
    for (&instr, &dtype) in program.instrs.iter().zip(&program.dtypes) {
        let place = match instr.map_operands(|reg| places[usize::from(reg)]) {
            Instr::Load(k) if k == input => {
                let whole = add(from, Instr::Load(k));
                let value = add(to, Instr::Cast(whole));
                if scale == 1.0 {
                    value
                } else {
                    let scale = add(to, Instr::Scalar(slot));
                    add(to, Instr::Binary(BinaryOp::Mul, value, scale))
                }
            }
            Instr::Fold(op, reg) => add(dtype, Instr::Fold(op, places[usize::from(reg)])),
            instr => add(dtype, instr),
        };
        places.push(place);
    }
    new.outputs = program.outputs.iter().map(|&reg| places[usize::from(reg)]).collect();
    *program = new;
}

/// A constant that is stored once.
fn shared(plan: &mut Description, dtype: DType, numel: usize, role: Role) -> BufferId {
    let known = plan.buffers.iter().position(|buffer| buffer.dtype == dtype && buffer.role == role);
    known.unwrap_or_else(|| plan.buffer(dtype, numel, role))
}

/// Begins the epilogue with the sum in i32, converted and multiplied by the factors, which are its input 1.
fn rescale(kernel: &mut Kernel, sum: DType, has_factors: bool) {
    let Body::Contract(epilogue) = &mut kernel.body else { return };
    let mut program = Program { inputs: vec![DType::I32], ..Program::default() };
    let mut add = |dtype: DType, instr: Instr| {
        program.instrs.push(instr);
        program.dtypes.push(dtype);
        (program.instrs.len() - 1) as Reg
    };
    let whole = add(DType::I32, Instr::Load(0));
    let mut value = add(sum, Instr::Cast(whole));
    if has_factors {
        let factor = add(sum, Instr::Load(1));
        value = add(sum, Instr::Binary(BinaryOp::Mul, value, factor));
        program.inputs.push(sum);
    }
    let Some(old) = epilogue.take() else {
        program.outputs = vec![value];
        *epilogue = Some(program);
        return;
    };
    let begin = program.instrs.len() as Reg;
    let moved = |reg: Reg| if old.instrs[usize::from(reg)] == Instr::Load(0) { value } else { reg + begin };
    for (&instr, &dtype) in old.instrs.iter().zip(&old.dtypes) {
        let instr = match instr.map_operands(moved) {
            Instr::Load(0) => Instr::Cast(value),
            Instr::Load(input) => Instr::Load(input + u16::from(has_factors)),
            Instr::LoadAt { input, index } => Instr::LoadAt { input: input + u16::from(has_factors), index },
            instr => instr,
        };
        program.instrs.push(instr);
        program.dtypes.push(dtype);
    }
    program.inputs.extend(&old.inputs[1..]);
    program.scalars.clone_from(&old.scalars);
    program.outputs = old.outputs.iter().map(|&reg| moved(reg)).collect();
    *epilogue = Some(program);
}

/// Drops the instructions and the operands that no output needs.
fn prune(step: &mut Step) {
    let first = if matches!(step.kernel.body, Body::Contract(_)) { 2 } else { 0 };
    let (Body::Map(program) | Body::Rows { program, .. } | Body::Contract(Some(program))) =
        &mut step.kernel.body
    else {
        return;
    };
    let mut needed = vec![false; program.instrs.len()];
    program.outputs.iter().for_each(|&reg| needed[usize::from(reg)] = true);
    for r in (0..needed.len()).rev() {
        if needed[r] {
            program.instrs[r].operands().iter().for_each(|&reg| needed[usize::from(reg)] = true);
        }
    }
    let is_read = |input: usize| {
        let reads =
            |r: usize| needed[r] && program.instrs[r].input().is_some_and(|k| usize::from(k) == input);
        (0..needed.len()).any(reads)
    };
    // The sum of an epilogue stays.
    let kept: Vec<bool> = (0..program.inputs.len()).map(|k| first == 2 && k == 0 || is_read(k)).collect();
    let place = |all: &[bool], at: usize| all[..at].iter().filter(|kept| **kept).count() as u16;
    let mut pruned = Program { scalars: program.scalars.clone(), ..Program::default() };
    for r in (0..needed.len()).filter(|&r| needed[r]) {
        let instr = match program.instrs[r].map_operands(|reg| place(&needed, usize::from(reg))) {
            Instr::Load(input) => Instr::Load(place(&kept, usize::from(input))),
            Instr::LoadAt { input, index } => {
                Instr::LoadAt { input: place(&kept, usize::from(input)), index }
            }
            Instr::Fold(op, reg) => Instr::Fold(op, place(&needed, usize::from(reg))),
            instr => instr,
        };
        pruned.instrs.push(instr);
        pruned.dtypes.push(program.dtypes[r]);
    }
    pruned.outputs = program.outputs.iter().map(|&reg| place(&needed, usize::from(reg))).collect();
    pruned.inputs =
        program.inputs.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(dtype, _)| *dtype).collect();
    *program = pruned;
    // Input k of an epilogue is operand k + 1.
    for k in (0..kept.len()).rev().filter(|&k| !kept[k]) {
        let operand = if first == 2 { k + 1 } else { k };
        step.kernel.operands.remove(operand);
        step.inputs.remove(operand);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_found_to_the_bit() {
        let of = |levels: &[i32], scale: f32| {
            let numbers: Vec<f64> = levels.iter().map(|&k| f64::from(k as f32 * scale)).collect();
            let found = scale_of(&numbers, DType::F32).unwrap();
            for (x, &level) in numbers.iter().zip(levels) {
                assert_eq!(*x as f32, (x / found).round() as f32 * found as f32);
                assert!((x / found).round().abs() <= f64::from(level.abs()));
            }
        };
        of(&[127, -3, 0, 50], 0.001_234_5);
        of(&[-128, 7, 11], 3.7e-6);
        of(&[0, 0], 0.5);
        of(&[255, -2, 17], 0.1);
        assert_eq!(scale_of(&[1.0, -3.0, 200.0], DType::F64), Some(1.0));
        assert_eq!(scale_of(&[0.1, 0.123_456_7, -0.031_234_5, 0.077_1], DType::F32), None);
    }
}
