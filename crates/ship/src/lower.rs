//! Steps of a plan as plain kernels: the native operations of the CPU backend are lowered to kernels that
//! every writer has.

use std::any::Any;

use tensor_core::{
    Attention, AttentionPass, BinaryOp, CompareOp, DType, Kernel, Layout, ListedStep, ListedValue, MaxPool,
    Recurrence, RecurrencePass, RecurrentCell, ReduceOp, Result, Scalar, Shape, UnaryOp,
    custom::CustomKernel,
    kernel::{Body, Instr, Program, Reg},
};

use crate::description::{BufferId, Description, Role, load};

/// Adds a step of the plan to the description.
///
/// # Errors
/// A native operation that cannot be lowered.
pub(crate) fn step(
    plan: &mut Description,
    step: &ListedStep,
    all: &[ListedStep],
    results: &[ListedValue],
) -> Result<()> {
    let from_start = |buffers: &[usize]| buffers.iter().map(|&buffer| (buffer, 0)).collect::<Vec<_>>();
    let Body::Custom(custom) = &step.kernel.body else {
        let (inputs, outputs) = (from_start(&step.inputs), from_start(&step.outputs));
        plan.step(step.kernel.clone(), inputs, outputs, step.scalars.clone(), step);
        return Ok(());
    };
    let is_read = |o: usize| {
        let buffer = step.outputs[o];
        all.iter().any(|other| other.inputs.contains(&buffer))
            || results.iter().any(|value| value.buffer == buffer)
    };
    let custom: &dyn CustomKernel = custom.as_ref();
    let any: &dyn Any = custom;
    if let Some(pool) = any.downcast_ref::<MaxPool>() {
        if is_read(1) {
            return Err(
                step.refuse("the positions of a max pooling cannot be shipped: return the values only")
            );
        }
        max_pool(plan, step, pool);
        return Ok(());
    }
    if let Some(attention) = any.downcast_ref::<Attention>()
        && attention.pass == AttentionPass::Forward
    {
        if attention.dropout.is_some() || is_read(1) {
            let message = "attention with dropout or recorded for gradients cannot be shipped: call .eval() on \
                           the model, and compile it within no_grad";
            return Err(step.refuse(message));
        }
        attend(plan, step, attention);
        return Ok(());
    }
    if let Some(recurrence) = any.downcast_ref::<Recurrence>() {
        if recurrence.pass != RecurrencePass::Forward {
            let message = "a recurrent layer that is recorded for gradients cannot be shipped: compile it within \
                           no_grad";
            return Err(step.refuse(message));
        }
        recur(plan, step, recurrence);
        return Ok(());
    }
    Err(step.refuse(format!("the native operation {} cannot be shipped", custom.name())))
}

/// A program under construction.
struct Draft(Program);

impl Draft {
    fn new(inputs: &[DType]) -> Draft {
        Draft(Program { inputs: inputs.to_vec(), ..Default::default() })
    }

    fn add(&mut self, dtype: DType, instr: Instr) -> Reg {
        self.0.instrs.push(instr);
        self.0.dtypes.push(dtype);
        (self.0.instrs.len() - 1) as Reg
    }

    fn load(&mut self, input: u16) -> Reg {
        self.add(self.0.inputs[usize::from(input)], Instr::Load(input))
    }

    fn number(&mut self, dtype: DType) -> Reg {
        self.0.scalars.push(dtype);
        self.add(dtype, Instr::Scalar(self.0.scalars.len() as u16 - 1))
    }

    fn unary(&mut self, op: UnaryOp, a: Reg) -> Reg {
        self.add(self.0.dtypes[usize::from(a)], Instr::Unary(op, a))
    }

    fn binary(&mut self, op: BinaryOp, a: Reg, b: Reg) -> Reg {
        self.add(self.0.dtypes[usize::from(a)], Instr::Binary(op, a, b))
    }

    fn done(mut self, outputs: &[Reg]) -> Program {
        self.0.outputs = outputs.to_vec();
        self.0
    }
}

/// The greatest element of each window is a reduction over the windows, of planes with −∞ around them.
fn max_pool(plan: &mut Description, step: &ListedStep, pool: &MaxPool) {
    let operand = &step.kernel.operands[0];
    let (dtype, planes) = (operand.dtype, operand.layout.shape());
    let (count, sizes) = (planes[0], [planes[1], planes[2], planes[3]]);
    let reach =
        |a: usize| (pool.outputs[a] - 1) * pool.stride[a] + (pool.window[a] - 1) * pool.dilation[a] + 1;
    let padded: [usize; 3] = std::array::from_fn(|a| reach(a).max(pool.padding[a] + sizes[a]));
    let mut source = step.inputs[0];
    if padded != sizes {
        let whole = Shape::from([count, padded[0], padded[1], padded[2]]);
        let inside = (0..3).fold(Layout::contiguous(whole.clone()), |layout, a| {
            layout.slice(a + 1, pool.padding[a], sizes[a], 1)
        });
        let buffer = plan.buffer(dtype, whole.numel(), Role::Arena);
        let kernel = Kernel::copy(dtype, whole, true, [(inside, operand.layout.clone())]);
        let fill = vec![Scalar::Float(f64::NEG_INFINITY)];
        plan.step(kernel, vec![(source, 0)], vec![(buffer, 0)], fill, step);
        source = buffer;
    }
    let [plane, row] = [padded[0] * padded[1] * padded[2], padded[2]].map(|n| n as isize);
    let level = (padded[1] * padded[2]) as isize;
    let along = |steps: [usize; 3]| [steps[0] as isize * level, steps[1] as isize * row, steps[2] as isize];
    let strides: Vec<isize> =
        [plane].into_iter().chain(along(pool.stride)).chain(along(pool.dilation)).collect();
    let space: Shape = [count].into_iter().chain(pool.outputs).chain(pool.window).collect();
    let layout = Layout::new(space.clone(), &strides, 0);
    let kernel = Kernel::reduce(ReduceOp::Max, space, &[4, 5, 6], [layout], load(dtype));
    plan.step(kernel, vec![(source, 0)], vec![(step.outputs[0], 0)], Vec::new(), step);
}

/// The layout of an operand over a space with one more axis: `axes` gives, for each axis of the space, the
/// operand's.
fn over(layout: &Layout, space: &Shape, axes: &[Option<usize>]) -> Layout {
    let strides: Vec<isize> = axes.iter().map(|axis| axis.map_or(0, |a| layout.strides()[a])).collect();
    Layout::new(space.clone(), &strides, layout.offset())
}

/// Attention is a product, a softmax of its rows, and another product.
fn attend(plan: &mut Description, step: &ListedStep, attention: &Attention) {
    let operands = &step.kernel.operands;
    let [query, key, value] = [0, 1, 2].map(|k| &operands[k].layout);
    let dtype = operands[0].dtype;
    let lead = query.shape().rank() - 2;
    let batch: Vec<usize> = query.shape()[..lead].to_vec();
    let (rows, width) = (query.shape()[lead], query.shape()[lead + 1]);
    let (keys, features) = (value.shape()[lead], value.shape()[lead + 1]);
    let shape = |last: &[usize]| -> Shape { batch.iter().chain(last).copied().collect() };
    let axes = |last: [Option<usize>; 3]| -> Vec<Option<usize>> {
        (0..lead).map(Some).chain(last.map(|a| a.map(|a| lead + a))).collect()
    };
    // The scores.
    let space = shape(&[rows, keys, width]);
    let of_query = over(query, &space, &axes([Some(0), None, Some(1)]));
    let of_key = over(key, &space, &axes([None, Some(0), Some(1)]));
    let scores = shape(&[rows, keys]);
    let buffer = plan.buffer(dtype, scores.numel(), Role::Arena);
    let kernel = Kernel::contract(dtype, of_query, of_key, &[lead + 2]);
    plan.step(kernel, vec![(step.inputs[0], 0), (step.inputs[1], 0)], vec![(buffer, 0)], Vec::new(), step);
    // Their softmax.
    let mut inputs = vec![(buffer, 0)];
    let mut layouts = vec![Layout::contiguous(scores.clone())];
    let mut dtypes = vec![dtype];
    if attention.mask {
        inputs.push((step.inputs[3], 0));
        layouts.push(operands[3].layout.clone());
        dtypes.push(operands[3].dtype);
    }
    if let Some(first) = attention.causal {
        let seen = |at: usize| u8::from(at % keys <= first + at / keys);
        let bytes = (0..rows * keys).map(seen).collect();
        inputs.push((plan.buffer(DType::Bool, rows * keys, Role::Constant(bytes)), 0));
        layouts.push(Layout::contiguous([rows, keys]).expand(&scores));
        dtypes.push(DType::Bool);
    }
    let mut draft = Draft::new(&dtypes);
    let (score, scale) = (draft.load(0), draft.number(dtype));
    let mut seen = draft.binary(BinaryOp::Mul, score, scale);
    let hidden = draft.number(dtype);
    for (k, &of) in dtypes.iter().enumerate().skip(1) {
        let mask = draft.load(k as u16);
        seen = if of == DType::Bool {
            draft.add(dtype, Instr::Select(mask, seen, hidden))
        } else {
            draft.binary(BinaryOp::Add, seen, mask)
        };
    }
    let greatest = draft.add(dtype, Instr::Fold(ReduceOp::Max, seen));
    let below = draft.binary(BinaryOp::Sub, seen, greatest);
    let power = draft.unary(UnaryOp::Exp, below);
    let total = draft.add(dtype, Instr::Fold(ReduceOp::Sum, power));
    let share = draft.binary(BinaryOp::Div, power, total);
    // A query that sees no key.
    let blind = draft.add(DType::Bool, Instr::Compare(CompareOp::Eq, greatest, hidden));
    let zero = draft.number(dtype);
    let weight = draft.add(dtype, Instr::Select(blind, zero, share));
    let kernel = Kernel::rows(scores.clone(), 1, layouts, draft.done(&[weight]), &[false]);
    let numbers = [attention.scale, f64::NEG_INFINITY, 0.0].map(|n| Scalar::Float(n).cast(dtype)).to_vec();
    let weights = plan.buffer(dtype, scores.numel(), Role::Arena);
    plan.step(kernel, inputs, vec![(weights, 0)], numbers, step);
    // The weighted sums of the values.
    let space = shape(&[rows, features, keys]);
    let of_weights = over(&Layout::contiguous(scores), &space, &axes([Some(0), None, Some(1)]));
    let of_value = over(value, &space, &axes([None, Some(1), Some(0)]));
    let kernel = Kernel::contract(dtype, of_weights, of_value, &[lead + 2]);
    let outputs = vec![(step.outputs[0], 0)];
    plan.step(kernel, vec![(weights, 0), (step.inputs[2], 0)], outputs, Vec::new(), step);
}

/// A recurrent layer is a product and a map for each step of the sequence; equal kernels become one function.
fn recur(plan: &mut Description, step: &ListedStep, recurrence: &Recurrence) {
    let Recurrence { cell, reverse, .. } = *recurrence;
    let operands = &step.kernel.operands;
    let dtype = operands[0].dtype;
    let gates = operands[0].layout.shape();
    let (steps, batch, wide) = (gates[0], gates[1], gates[2]);
    let size = wide / cell.gates();
    let of_state = plan.buffer(dtype, batch * wide, Role::Arena);
    let space = Shape::from([batch, wide, size]);
    let state = Layout::new(space.clone(), &[size as isize, 0, 1], 0);
    let weight = Layout::new(space, &[0, size as isize, 1], 0);
    let product = Kernel::contract(dtype, state, weight, &[2]);
    let product = match cell {
        RecurrentCell::Gru => {
            let mut draft = Draft::new(&[dtype, dtype]);
            let (sum, bias) = (draft.load(0), draft.load(1));
            let total = draft.binary(BinaryOp::Add, sum, bias);
            let bias = Layout::new(Shape::from([batch, wide]), &[0, 1], 0);
            product.with_epilogue(draft.done(&[total]), [bias])
        }
        RecurrentCell::Tanh | RecurrentCell::Relu | RecurrentCell::Lstm => product,
    };
    let update = update(dtype, cell, batch, size);
    let (hidden, last_cell) = (step.outputs[0], step.outputs.get(1).copied());
    let mut before: (BufferId, usize) = (step.inputs[2], 0);
    for k in 0..steps {
        let t = if reverse { steps - 1 - k } else { k };
        let mut inputs = vec![before, (step.inputs[1], 0)];
        if cell == RecurrentCell::Gru {
            inputs.push((step.inputs[3], 0));
        }
        plan.step(product.clone(), inputs, vec![(of_state, 0)], Vec::new(), step);
        let after = (hidden, t * batch * size);
        let (mut inputs, mut outputs) =
            (vec![(step.inputs[0], t * batch * wide), (of_state, 0)], vec![after]);
        match (cell, last_cell) {
            (RecurrentCell::Lstm, Some(last)) => {
                inputs.push((if k == 0 { step.inputs[3] } else { last }, 0));
                outputs.push((last, 0));
            }
            (RecurrentCell::Gru, _) => inputs.push(before),
            (RecurrentCell::Tanh | RecurrentCell::Relu | RecurrentCell::Lstm, _) => {}
        }
        // Each part of the gates is an operand of its own.
        let mut parts: Vec<(BufferId, usize)> = Vec::new();
        for &(buffer, start) in &inputs[..2] {
            parts.extend((0..cell.gates()).map(|part| (buffer, start + part * size)));
        }
        parts.extend(&inputs[2..]);
        plan.step(update.clone(), parts, outputs, Vec::new(), step);
        before = after;
    }
}

/// The new state from the parts of the gates, first the input's and then the state's, and from the state that
/// the cell needs.
fn update(dtype: DType, cell: RecurrentCell, batch: usize, size: usize) -> Kernel {
    let parts = cell.gates();
    let has_state = matches!(cell, RecurrentCell::Lstm | RecurrentCell::Gru);
    let count = 2 * parts + usize::from(has_state);
    let space = Shape::from([batch, size]);
    let part = Layout::new(space.clone(), &[(parts * size) as isize, 1], 0);
    let mut layouts = vec![part; 2 * parts];
    layouts.extend(has_state.then(|| Layout::contiguous(space.clone())));
    let mut draft = Draft::new(&vec![dtype; count]);
    let of_input: Vec<Reg> = (0..parts).map(|k| draft.load(k as u16)).collect();
    let of_state: Vec<Reg> = (0..parts).map(|k| draft.load((parts + k) as u16)).collect();
    let state = has_state.then(|| draft.load(2 * parts as u16));
    let sum = |draft: &mut Draft, k: usize| draft.binary(BinaryOp::Add, of_input[k], of_state[k]);
    let outputs = match (cell, state) {
        (RecurrentCell::Lstm, Some(before)) => {
            let [enter, keep, fresh, show] = [0, 1, 2, 3].map(|k| sum(&mut draft, k));
            let [enter, keep] = [enter, keep].map(|gate| draft.unary(UnaryOp::Sigmoid, gate));
            let fresh = draft.unary(UnaryOp::Tanh, fresh);
            let show = draft.unary(UnaryOp::Sigmoid, show);
            let kept = draft.binary(BinaryOp::Mul, keep, before);
            let new = draft.binary(BinaryOp::Mul, enter, fresh);
            let cell = draft.binary(BinaryOp::Add, kept, new);
            let seen = draft.unary(UnaryOp::Tanh, cell);
            vec![draft.binary(BinaryOp::Mul, show, seen), cell]
        }
        (RecurrentCell::Gru, Some(before)) => {
            let [reset, update] = [0, 1].map(|k| sum(&mut draft, k));
            let [reset, update] = [reset, update].map(|gate| draft.unary(UnaryOp::Sigmoid, gate));
            let remembered = draft.binary(BinaryOp::Mul, reset, of_state[2]);
            let fresh = draft.binary(BinaryOp::Add, of_input[2], remembered);
            let fresh = draft.unary(UnaryOp::Tanh, fresh);
            let change = draft.binary(BinaryOp::Sub, before, fresh);
            let change = draft.binary(BinaryOp::Mul, update, change);
            vec![draft.binary(BinaryOp::Add, fresh, change)]
        }
        (RecurrentCell::Relu, _) => {
            let sum = sum(&mut draft, 0);
            vec![draft.unary(UnaryOp::Relu, sum)]
        }
        (RecurrentCell::Tanh | RecurrentCell::Lstm | RecurrentCell::Gru, _) => {
            let sum = sum(&mut draft, 0);
            vec![draft.unary(UnaryOp::Tanh, sum)]
        }
    };
    Kernel::map(space, layouts, draft.done(&outputs))
}
