//! The gradient of every operation, in one `match`. Rules are written in tensor operations, so gradients
//! have gradients. A rule may read the tensors that [`tensor_core::Op::saved`] names for free; other tensors
//! are recomputed.

mod cumulative;
mod elementwise;
mod movement;
mod reduce;

use std::any::Any;

use tensor_core::{
    BinaryOp, CustomKernel, DType, Error, ErrorKind, Expression, Fourier, Limits, Op, OpClass, OtherOp,
    ReduceOp, Result, ScatterOp, Shape, Subscripts, Tensor, TupleOp, UnaryOp,
};

/// One operation with a single result, as the backward pass visits it.
pub(crate) struct Step<'a> {
    /// The operation and its output.
    pub(crate) node: &'a Tensor,
    pub(crate) inputs: &'a [Tensor],
    /// The gradient with respect to the output, of its shape and dtype.
    pub(crate) gradient: &'a Tensor,
    /// Whether each input needs a gradient.
    pub(crate) needs: &'a [bool],
}

/// One operation with several results, as the backward pass visits it.
pub(crate) struct TupleStep<'a> {
    pub(crate) node: &'a Tensor,
    pub(crate) inputs: &'a [Tensor],
    pub(crate) results: &'a [Tensor],
    /// The gradient with respect to each result; none for a result that was not used.
    pub(crate) gradients: &'a [Option<Tensor>],
    /// Whether each input needs a gradient.
    pub(crate) needs: &'a [bool],
}

pub(crate) type Gradients = Result<Vec<Option<Tensor>>>;

impl Step<'_> {
    /// The result of `rule` if input `k` needs a gradient.
    pub(crate) fn when(&self, k: usize, rule: impl FnOnce() -> Result<Tensor>) -> Result<Option<Tensor>> {
        if self.needs.get(k).copied().unwrap_or(false) { rule().map(Some) } else { Ok(None) }
    }
}

/// The gradients with respect to each input. The gradient of a broadcast input may still have the output's
/// shape.
pub(crate) fn gradients(step: &Step<'_>) -> Gradients {
    if is_computed_wide(step) { in_f32(step) } else { rule(step.node.op(), step) }
}

/// Whether the rule of an operation on a reduced float takes several steps, or gives gradients of several
/// dtypes. Such a rule is computed in f32, and each gradient is rounded once, to the dtype of its input.
fn is_computed_wide(step: &Step<'_>) -> bool {
    use BinaryOp as B;
    let node = step.node;
    // An f32 number is an operand of a half-precision operation.
    let is_mixed = || step.inputs.iter().any(|input| input.dtype() != node.dtype());
    node.dtype().is_reduced_float()
        && match node.op().class() {
            OpClass::Expression(expression) => match expression {
                Expression::Unary(op) => !matches!(op, UnaryOp::Neg | UnaryOp::Relu | UnaryOp::Abs),
                Expression::Powi(_) | Expression::Formula(_) => true,
                Expression::Binary(op) => {
                    !matches!(op, B::Add | B::Sub | B::Maximum | B::Minimum) || is_mixed()
                }
                Expression::Compare(_) | Expression::Where | Expression::Cast => false,
                Expression::Full(_) | Expression::Arange(_) | Expression::Random(_) => false,
            },
            OpClass::Other(OtherOp::Cumulative { .. }) => true,
            OpClass::Other(OtherOp::Reduce { op, .. }) => op != ReduceOp::Sum,
            OpClass::Leaf | OpClass::View(_) | OpClass::Tuple(_) | OpClass::Other(_) => false,
        }
}

/// Applies a rule with all tensors cast to f32. A broadcast input's gradient is summed before it is rounded.
fn in_f32(step: &Step<'_>) -> Gradients {
    let wide = |t: &Tensor| t.to_dtype(t.dtype().compute());
    let inputs = step.inputs.iter().map(wide).collect::<Result<Vec<_>>>()?;
    let node = wide(step.node)?;
    let found = rule(
        step.node.op(),
        &Step { node: &node, inputs: &inputs, gradient: &wide(step.gradient)?, needs: step.needs },
    )?;
    let rounded = |(found, input): (Option<Tensor>, &Tensor)| {
        found.map(|found| sum_to(&found, input.shape())?.to_dtype(input.dtype())).transpose()
    };
    found.into_iter().zip(step.inputs).map(rounded).collect()
}

/// The rule of an operation: the node's own, or that of the node that this one is cast from.
fn rule(op: &Op, step: &Step<'_>) -> Gradients {
    let (g, inputs) = (step.gradient, step.inputs);
    match op {
        Op::Unary(op) => elementwise::unary(*op, &inputs[0], step.node, g).map(|d| vec![Some(d)]),
        Op::Powi(n) => elementwise::powi(*n, &inputs[0], g).map(|d| vec![Some(d)]),
        Op::Formula(formula) => {
            elementwise::formula(*formula, &inputs[0], step.node, g).map(|d| vec![Some(d)])
        }
        Op::Binary(op) => elementwise::binary(*op, step),
        Op::Where => elementwise::select(step),
        Op::Cast => Ok(vec![step.when(0, || g.to_dtype(inputs[0].dtype()))?]),
        Op::Reshape => Ok(vec![Some(g.reshape(inputs[0].shape())?)]),
        Op::Expand => Ok(vec![Some(g.clone())]),
        Op::Permute(axes) => movement::permute(axes, g),
        Op::Slice { axis, start, step } => movement::slice(*axis, *start, *step, &inputs[0], g),
        Op::Unfold { axis, step, dilation } => movement::unfold(*axis, *step, *dilation, &inputs[0], g),
        Op::Concat { axis } => movement::concat(*axis, step),
        Op::Pad(padding) => movement::pad(padding, &inputs[0], g),
        Op::Reduce { op, axes, .. } => reduce::reduce(*op, axes, step),
        Op::Cumulative { op, axis, reverse } => cumulative::cumulative(*op, *axis, *reverse, step),
        Op::Contract(subscripts) => contract(subscripts, step),
        Op::Gather { axis, .. } => {
            Ok(vec![step.when(0, || gathered(*axis, &inputs[0], &inputs[1], g))?, None])
        }
        Op::Scatter { op: ScatterOp::Add, axis } => {
            let axis = *axis as isize;
            Ok(vec![Some(g.clone()), None, step.when(2, || g.gather(axis, &inputs[1]))?])
        }
        Op::Scatter { op: ScatterOp::Replace, axis } => replaced(*axis, step),
        Op::Contiguous => Ok(vec![Some(g.clone())]),
        Op::ToDevice => Ok(vec![Some(g.to(&inputs[0].device())?)]),
        // Operations without inputs, with results that are no floats, or with several results
        // (`tuple_gradients`).
        op @ (Op::Leaf
        | Op::Full(_)
        | Op::Arange(_)
        | Op::Random { .. }
        | Op::Compare(_)
        | Op::ArgReduce { .. }
        | Op::Scatter { op: ScatterOp::Max | ScatterOp::Min, .. }
        | Op::Sort { .. }
        | Op::Custom(_)
        | Op::CustomKernel(_)
        | Op::TupleElement { .. }) => Err(no_gradient(op)),
    }
}

/// The gradients with respect to each input of an operation with several results.
pub(crate) fn tuple_gradients(step: &TupleStep<'_>) -> Gradients {
    match step.node.op().class() {
        OpClass::Tuple(TupleOp::Sort { axis, .. }) => {
            let rule = |g: &Tensor| gathered(axis, &step.inputs[0], &step.results[1], g);
            Ok(vec![step.gradients[0].as_ref().map(rule).transpose()?])
        }
        OpClass::Tuple(TupleOp::Custom(op)) => custom(op.as_ref(), step),
        OpClass::Tuple(TupleOp::CustomKernel(kernel)) => kernel_gradients(kernel.as_ref(), step),
        // Operations with one result (`gradients`).
        OpClass::Leaf | OpClass::Expression(_) | OpClass::View(_) | OpClass::Other(_) => {
            Err(no_gradient(step.node.op()))
        }
    }
}

/// The kernels that have a rule here are linear; other kernels are wrapped in an [`Op::Custom`].
fn kernel_gradients(kernel: &dyn CustomKernel, step: &TupleStep<'_>) -> Gradients {
    if let Some(fourier) = (kernel as &dyn Any).downcast_ref::<Fourier>() {
        return Ok(vec![step.gradients[0].as_ref().map(|g| fourier.adjoint().apply(g)).transpose()?]);
    }
    Err(Error::new(ErrorKind::Autograd {
        op: "backward",
        message: format!(
            "the kernel {} has no gradient; call it in the forward pass of an autograd::Function with a gradient, or under no_grad",
            kernel.name()
        ),
    }))
}

fn no_gradient(op: &Op) -> Error {
    Error::new(ErrorKind::Autograd {
        op: "backward",
        message: format!("{} has no gradient; detach its input, or compute it under no_grad", op.name()),
    })
}

/// A gradient summed over the axes along which its input was broadcast, to the input's shape.
pub(crate) fn sum_to(gradient: &Tensor, shape: &Shape) -> Result<Tensor> {
    if gradient.shape() == shape {
        return Ok(gradient.clone());
    }
    let lead = gradient.rank().saturating_sub(shape.rank());
    let axes: Vec<usize> = (0..gradient.rank())
        .filter(|&axis| axis < lead || (shape[axis - lead] == 1 && gradient.dims()[axis] != 1))
        .collect();
    if gradient.numel() < LARGE_GRADIENT || gradient.dtype().is_reduced_float() {
        return gradient.sum_axis(axes, true)?.reshape(shape);
    }
    sum_over(gradient, &axes)?.reshape(shape)
}

/// Row length from which `sum_over` sums the rows before the other axes, in elements.
const LONG_ROW: usize = 32;
/// Gradient size from which `sum_to` uses `sum_over`, in elements.
const LARGE_GRADIENT: usize = 1 << 16;

/// The sum of a large gradient over axes, which are kept with size 1. A factor that is constant along the
/// axes multiplies the sum instead, so that several gradients share one sum.
fn sum_over(gradient: &Tensor, axes: &[usize]) -> Result<Tensor> {
    if !gradient.is_evaluated() {
        match (gradient.op(), &gradient.node_inputs()[..]) {
            (Op::Unary(UnaryOp::Neg), [x]) => return Ok(sum_over(x, axes)?.neg()),
            (Op::Binary(BinaryOp::Mul), [a, b]) => {
                for (x, factor) in [(a, b), (b, a)] {
                    if let Some(factor) =
                        alike(factor, x.rank(), axes).filter(|_| x.shape() == gradient.shape())
                    {
                        return sum_over(x, axes)?.mul(&factor);
                    }
                }
            }
            _ => {}
        }
    }
    // The last axes are summed first: they are contiguous in memory, and one kernel can sum them together
    // with other sums of the same rows.
    let last: Vec<usize> = (0..gradient.rank()).rev().take_while(|axis| axes.contains(axis)).collect();
    let row: usize = last.iter().map(|&axis| gradient.dims()[axis]).product();
    if last.len() == axes.len() || row < LONG_ROW {
        return gradient.sum_axis(axes, true);
    }
    let rest: Vec<usize> = axes.iter().copied().filter(|axis| !last.contains(axis)).collect();
    let rows = gradient.sum_axis(last, true)?;
    if rows.numel() > Limits::SMALL_SPACE {
        return rows.sum_axis(rest, true);
    }
    // The axes that are left are made the last ones, for the same reason: reading a small tensor in another
    // order costs less than a kernel.
    let kept = (0..rows.rank()).filter(|axis| !axes.contains(axis));
    let order: Vec<usize> = kept.chain(axes.iter().copied()).collect();
    let summed: Vec<usize> = (rows.rank() - axes.len()..rows.rank()).collect();
    let sizes = rows.dims().iter().enumerate();
    let shape: Shape = sizes.map(|(axis, &size)| if rest.contains(&axis) { 1 } else { size }).collect();
    rows.permute(order)?.sum_axis(summed, false)?.reshape(shape)
}

/// The factor before it was broadcast, if it is constant along `axes`; `rank` is the rank of the product.
fn alike(factor: &Tensor, rank: usize, axes: &[usize]) -> Option<Tensor> {
    let small = before_expand(factor).unwrap_or_else(|| factor.clone());
    // A product with a 0-d tensor has a factor of a greater rank than the other one.
    let lead = rank.checked_sub(small.rank())?;
    axes.iter().all(|&axis| axis < lead || small.dims()[axis - lead] == 1).then_some(small)
}

/// The tensor that this one is a broadcast of, if it is one.
fn before_expand(tensor: &Tensor) -> Option<Tensor> {
    let is_expanded = !tensor.is_evaluated() && matches!(tensor.op(), Op::Expand);
    tensor.node_inputs().into_iter().next().filter(|_| is_expanded)
}

/// A gradient times a number; a broadcast gradient is multiplied before it is broadcast.
fn times(gradient: &Tensor, number: f64) -> Result<Tensor> {
    match before_expand(gradient) {
        Some(small) => small.mul_scalar(number).expand(gradient.shape()),
        None => Ok(gradient.mul_scalar(number)),
    }
}

/// The gradient of `gather`: elements are added at the positions that they were gathered from.
fn gathered(axis: usize, input: &Tensor, index: &Tensor, g: &Tensor) -> Result<Tensor> {
    let alone = index.dims()[axis] == 1
        && (0..input.rank()).all(|other| other == axis || index.dims()[other] == input.dims()[other]);
    if !alone {
        return input.zeros_like().scatter_add(axis as isize, index, g);
    }
    // One element is gathered from each line, such as the score of a class. The gradient is an expression
    // that can be fused with its readers. An index out of range would silently get no gradient: gathering
    // zeros by the index reports it.
    let n = input.dims()[axis];
    // Positions are counted in a dtype that reaches the end of the axis, which the index's own may not.
    let counts = [index.dtype(), DType::I32, DType::I64].into_iter();
    let Some(dtype) = counts.filter(|d| input.device().supports(*d)).find(|d| counts_to(*d, n)) else {
        return input.zeros_like().scatter_add(axis as isize, index, g);
    };
    let line: Shape = (0..input.rank()).map(|other| if other == axis { n } else { 1 }).collect();
    let places = Tensor::arange(0, n, 1, (dtype, &input.device()))?.reshape(line)?;
    let zero = Tensor::zeros(Shape::scalar(), (g.dtype(), &input.device()))?;
    // One line of zeros is enough: it is as long as each line of the input.
    let zeros = Tensor::zeros([n], (g.dtype(), &input.device()))?;
    let checked = g.add(&zeros.gather(0, &index.flatten_all())?.reshape(index.shape())?)?;
    index.to_dtype(dtype)?.eq(&places)?.where_cond(&checked, &zero)
}

/// The gradient of `scatter` by replacement: replaced elements get none, and if several elements are written
/// to one position, only the last gets one.
fn replaced(axis: usize, step: &Step<'_>) -> Gradients {
    let (g, base, index) = (step.gradient, &step.inputs[0], &step.inputs[1]);
    let along = axis as isize;
    let to_base = step.when(0, || {
        let zeros = Tensor::zeros(Shape::scalar(), (g.dtype(), &g.device()))?.expand(index.shape())?;
        g.scatter_with(ScatterOp::Replace, along, index, &zeros)
    })?;
    let to_source = step.when(2, || {
        // The number of the write that remains at each position, found as the values were.
        let n = index.dims()[axis];
        let line: Shape = (0..index.rank()).map(|a| if a == axis { n } else { 1 }).collect();
        let turn =
            Tensor::arange(0, n, 1, (DType::I32, &g.device()))?.reshape(line)?.expand(index.shape())?;
        let none = Tensor::zeros(Shape::scalar(), (DType::I32, &g.device()))?.expand(base.shape())?;
        let last = none.scatter_with(ScatterOp::Replace, along, index, &turn)?.gather(along, index)?;
        let shown = g.gather(along, index)?;
        last.eq(&turn)?.where_cond(&shown, &Tensor::zeros(Shape::scalar(), (g.dtype(), &g.device()))?)
    })?;
    Ok(vec![to_base, None, to_source])
}

/// Whether a dtype can represent the integers 0 to n − 1.
fn counts_to(dtype: DType, n: usize) -> bool {
    dtype.is_int() && n as u64 <= (dtype.greatest().as_i64() as u64).saturating_add(1)
}

/// The gradient of each operand is the output's gradient contracted with the other operand: for matrices dA
/// = dC·Bᵀ, dB = Aᵀ·dC.
fn contract(subscripts: &Subscripts, step: &Step<'_>) -> Gradients {
    let of = |k: usize| {
        step.when(k, || {
            let (left, right, subscripts) = factors(subscripts, step.inputs, k, step.gradient);
            left.contract(&right, subscripts)
        })
    };
    Ok(vec![of(0)?, of(1)?])
}

/// The contraction that gives the gradient of operand `k` of a contraction.
pub(crate) fn factors(
    subscripts: &Subscripts,
    operands: &[Tensor],
    k: usize,
    g: &Tensor,
) -> (Tensor, Tensor, Subscripts) {
    let Subscripts { lhs, rhs, out } = subscripts.clone();
    // If sums were not rounded, their gradient is f32.
    let g = g.to_dtype(operands[0].dtype()).unwrap_or_else(|_| g.clone());
    match k {
        0 => (g, operands[1].clone(), Subscripts { lhs: out, rhs, out: lhs }),
        _ => (operands[0].clone(), g, Subscripts { lhs, rhs: out, out: rhs }),
    }
}

fn custom(op: &dyn tensor_core::CustomOp, step: &TupleStep<'_>) -> Gradients {
    // The inputs of the operation are followed by its results.
    let inputs = &step.inputs[..step.inputs.len() - step.gradients.len()];
    let found = op.backward(inputs, step.results, step.gradients)?;
    if found.len() != inputs.len() {
        return Err(Error::new(ErrorKind::Autograd {
            op: op.name(),
            message: format!(
                "its backward returned {} gradients for {} inputs; return one for each, or None",
                found.len(),
                inputs.len()
            ),
        }));
    }
    for (k, (gradient, input)) in found.iter().zip(inputs).enumerate() {
        if let Some(gradient) = gradient {
            check_custom(op.name(), k, gradient, input)?;
        }
    }
    Ok(found.into_iter().zip(step.needs).map(|(gradient, needed)| gradient.filter(|_| *needed)).collect())
}

/// Checks a gradient that a user's function returned: a wrong shape or dtype would end up in a leaf.
#[track_caller]
fn check_custom(op: &'static str, k: usize, gradient: &Tensor, input: &Tensor) -> Result<()> {
    if gradient.shape() != input.shape() {
        return Err(Error::new(ErrorKind::ShapeMismatch {
            op,
            lhs: input.shape().clone(),
            rhs: gradient.shape().clone(),
            hint: format!("the gradient that its backward returns for input {k} must have the input's shape"),
        }));
    }
    // The gradient of an input that has none, such as an index, is ignored.
    if input.dtype().is_float() && gradient.dtype() != input.dtype() {
        return Err(Error::new(ErrorKind::DTypeMismatch {
            op,
            lhs: input.dtype(),
            rhs: gradient.dtype(),
            hint: format!(
                "the gradient that its backward returns for input {k} must have the input's dtype: cast it with \
                 .to_dtype(DType::{:?})?",
                input.dtype()
            ),
        }));
    }
    if gradient.device() != input.device() {
        return Err(input.on_another_device(op, gradient));
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{collections::HashSet, sync::Arc};

    use tensor_core::{
        BinaryOp, CumulativeOp, Device, FourierKind, ReduceOp, UnaryOp, custom::Request, set_grad_enabled,
    };

    use super::*;
    use crate::{Function, apply};

    /// The inputs and the results, as bit masks, that the rule behind `y` reads when the inputs in `wanted`
    /// need gradients.
    fn read(y: &Tensor, wanted: u32) -> (u32, u32) {
        let node = operation(y);
        let inputs = node.recorded_inputs();
        let needs: Vec<bool> =
            (0..inputs.len()).map(|k| wanted >> k & 1 == 1 && inputs[k].dtype().is_float()).collect();
        let ones = |t: &Tensor| Tensor::zeros(t.shape(), (t.dtype(), &t.device())).unwrap();
        let (found, results) = set_grad_enabled(false, || {
            if node.op().is_tuple() {
                let results = node.elements();
                let gradients: Vec<_> =
                    results.iter().map(|t| t.dtype().is_float().then(|| ones(t))).collect();
                let (node, inputs, gradients, needs) = (&node, &inputs, &gradients, &needs);
                let step = TupleStep { node, inputs, results: &results, gradients, needs };
                (tuple_gradients(&step).unwrap(), results)
            } else {
                let gradient = ones(&node);
                let step = Step { node: &node, inputs: &inputs, gradient: &gradient, needs: &needs };
                (gradients(&step).unwrap(), vec![node.clone()])
            }
        });
        let (mut read, mut read_results) = (0, 0);
        let mut seen = HashSet::new();
        let mut stack: Vec<Tensor> =
            found.into_iter().zip(&needs).filter_map(|(g, needed)| g.filter(|_| *needed)).collect();
        while let Some(node) = stack.pop() {
            if let Some(k) = inputs.iter().position(|input| input.id() == node.id()) {
                read |= 1 << k;
            } else if let Some(k) = results.iter().position(|result| result.id() == node.id()) {
                read_results |= 1 << k;
            } else if seen.insert(node.id()) {
                stack.extend(node.recorded_inputs());
            }
        }
        (read, read_results)
    }

    /// The node that has the rule: for one of several results, the operation's node.
    fn operation(y: &Tensor) -> Tensor {
        if let Op::TupleElement { .. } = y.op() { y.recorded_inputs()[0].clone() } else { y.clone() }
    }

    /// A kernel that no backend has.
    #[derive(Debug)]
    struct Same;
    impl CustomKernel for Same {
        fn name(&self) -> &'static str {
            "same"
        }
        fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>> {
            Ok(inputs.to_vec())
        }
        fn key(&self) -> Vec<u64> {
            Vec::new()
        }
        fn implement(&self, _: &mut Request<'_>) {}
    }

    /// A kernel that returns its input and twice its input.
    #[derive(Debug)]
    struct Doubled;
    impl Function for Doubled {
        type Output = [Tensor; 2];
        fn name(&self) -> &'static str {
            "Doubled"
        }
        fn forward(&self, inputs: &[&Tensor]) -> Result<[Tensor; 2]> {
            Ok([inputs[0] * 1.0, inputs[0] * 2.0])
        }
        fn backward(
            &self,
            inputs: &[Tensor],
            output: &[Tensor; 2],
            gradient: &[Option<Tensor>; 2],
        ) -> Result<Vec<Option<Tensor>>> {
            let sum = gradient.iter().flatten().try_fold(inputs[0].mul(&output[1])?, |sum, g| sum.add(g));
            Ok(vec![Some(sum?)])
        }
    }

    /// Every operation that has a rule, on inputs that are results themselves; and further forms of some.
    fn operations(device: &Device) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
        let made = |shape: &[usize]| -> Result<Tensor> {
            Ok(Tensor::full(shape, 0.5, device)?.into_cell(true)?.mul_scalar(2.0))
        };
        let (x, z) = (made(&[2, 3])?, made(&[2, 3])?);
        let index = Tensor::zeros([2, 3], (DType::I32, device))?.add_scalar(1);
        let mut all = Vec::new();
        let without = [UnaryOp::Not, UnaryOp::IsNan, UnaryOp::IsInf];
        all.extend(UnaryOp::ALL.iter().filter(|op| !without.contains(op)).map(|op| x.unary(*op)));
        for &op in BinaryOp::ALL.iter().filter(|op| !op.is_integral()) {
            all.push(x.binary(op, &z)?);
        }
        let flags = |op: &ReduceOp| matches!(op, ReduceOp::Any | ReduceOp::All);
        for &op in ReduceOp::ALL.iter().filter(|op| !flags(op)) {
            all.push(x.reduce(op, 1, false)?);
        }
        for &op in CumulativeOp::ALL.iter().filter(|op| !op.is_arg()) {
            all.push(x.cumulative(op, 1, false)?);
        }
        all.extend([
            x.powi(3),
            x.asin(),
            x.gt_scalar(0.0).where_cond(&x, &z)?,
            x.to_dtype(DType::F64)?,
            x.reshape([6])?,
            x.t()?,
            x.expand([4, 2, 3])?,
            x.slice(1, 0..2)?,
            Tensor::concat(&[&x, &z], 0)?,
            x.pad(&[(1, 0), (0, 2)], 0.0)?,
            x.matmul(&z.t()?)?,
            x.unfold(1, 2, 1)?,
            x.gather(1, &index)?,
            x.gather(1, &index.narrow(1, 0, 1)?)?,
            x.scatter_add(1, &index, &z)?,
            x.to(&Device::new(device.backend().clone()))?,
            x.sort(1, false)?.0,
            Fourier::new(FourierKind::RealToHalf, 3, 1.0).apply(&x)?,
        ]);
        // The tensors that a user's kernel reads.
        all.extend(Tensor::custom_kernel(Arc::new(Same), &[&x])?[0].inputs());
        // Rules may read less here than for the form above.
        let mut more = Vec::new();
        for n in [i32::MIN, -2, -1, 0, 1, 2, 17] {
            more.push(x.powi(n));
        }
        more.extend([
            x.acos(),
            x.atan(),
            x.sinh(),
            x.cosh(),
            x.asinh(),
            x.acosh(),
            x.atanh(),
            x.exp2(),
            x.log2(),
            x.log10(),
            x.sinc(),
            x.erfc(),
            x.erfinv(),
            x.lgamma(),
            x.digamma(),
            x.polygamma(1),
        ]);
        let row = made(&[3])?;
        for &op in BinaryOp::ALL.iter().filter(|op| !op.is_integral()) {
            more.extend([x.binary(op, &row)?, row.binary(op, &z)?]);
        }
        for &op in ReduceOp::ALL.iter().filter(|op| !flags(op)) {
            more.extend([x.reduce(op, [0, 1], true)?, made(&[])?.reduce(op, [0usize; 0], false)?]);
        }
        for &op in CumulativeOp::ALL.iter().filter(|op| !op.is_arg()) {
            more.push(x.cumulative(op, 0, true)?);
        }
        more.extend([
            made(&[4, 2, 3])?.matmul(&z.t()?)?,
            made(&[4, 2, 3])?.matmul(&made(&[1, 3, 2])?)?,
            x.topk(1, 1, true)?.0,
        ]);
        more.extend(apply(Doubled, &[&x])?);
        Ok((all, more))
    }

    /// A number for each kind of operation: a new operation does not compile until it is listed here and its
    /// rule is tested.
    fn kind(op: &Op) -> usize {
        match op {
            Op::Leaf => 0,
            Op::Full(_) => 1,
            Op::Arange(_) => 2,
            Op::Random { .. } => 3,
            Op::Compare(_) => 4,
            Op::ArgReduce { .. } => 5,
            Op::Unary(_) => 6,
            Op::Powi(_) => 7,
            Op::Binary(_) => 8,
            Op::Where => 9,
            Op::Cast => 10,
            Op::Reshape => 11,
            Op::Permute(_) => 12,
            Op::Expand => 13,
            Op::Slice { .. } => 14,
            Op::Concat { .. } => 15,
            Op::Pad(_) => 16,
            Op::Reduce { .. } => 17,
            Op::Cumulative { .. } => 18,
            Op::Sort { .. } => 19,
            Op::Contract(_) => 20,
            Op::Unfold { .. } => 26,
            Op::Contiguous => 27,
            Op::Formula(_) => 28,
            Op::CustomKernel(_) => 0,
            Op::Gather { .. } => 21,
            Op::Scatter { .. } => 22,
            Op::ToDevice => 23,
            Op::Custom(_) => 24,
            Op::TupleElement { .. } => 25,
        }
    }
    const KINDS: usize = 29;
    /// The number of kinds without a rule or without inputs.
    const WITHOUT_RULE: usize = 6;

    /// In a product with a 0-d tensor the other factor has the greater rank.
    #[test]
    fn the_factor_of_a_number_is_not_taken_for_one_that_was_broadcast() {
        let factor = Tensor::ones([2, 3], &backend_cpu::cpu()).unwrap();
        assert!(alike(&factor, 0, &[0]).is_none());
        assert!(alike(&factor.narrow(0, 0, 1).unwrap(), 2, &[0]).is_some());
    }

    /// A rule that reads a tensor that is not saved recomputes it; a tensor that is saved and not read
    /// wastes memory.
    #[test]
    fn what_is_kept_is_what_rules_read() {
        let (all, more) = operations(&backend_cpu::cpu()).unwrap();
        let mut met: HashSet<usize> = HashSet::new();
        for (y, exact) in all.iter().map(|y| (y, true)).chain(more.iter().map(|y| (y, false))) {
            let node = operation(y);
            met.extend([kind(y.op()), kind(node.op())]);
            let inputs = node.recorded_inputs();
            let float = (0..inputs.len()).filter(|k| inputs[*k].dtype().is_float());
            let every = float.fold(0u32, |bits, k| bits | 1 << k);
            for wanted in (1..=every).filter(|wanted| wanted & !every == 0) {
                let (saved, (reads, results)) = (node.op().saved(wanted), read(y, wanted));
                let kept = reads & !saved.inputs == 0 && results & !saved.results == 0;
                assert!(
                    kept,
                    "{:?} for inputs {wanted:b}: reads {reads:b}, {results:b}; keeps {saved:?}",
                    node.op()
                );
                if exact && wanted == every {
                    assert_eq!((reads, results), (saved.inputs, saved.results), "{:?}", node.op());
                }
            }
        }
        assert!((WITHOUT_RULE..KINDS).all(|kind| met.contains(&kind)), "{met:?}");
    }
}
