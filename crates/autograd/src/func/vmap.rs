//! `vmap`: a function of slices, applied to all slices at once. The function is called once with
//! placeholders for its slices, whose values cannot be read. The operations that it records are data, and
//! are then built again with an additional axis (`rules.rs`).

use std::{cell::RefCell, collections::hash_map::Entry, sync::Arc};

use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tensor_core::{
    CustomKernel, CustomOp, DType, Error, Op, Result, Shape, Tensor, custom::Request, is_grad_enabled,
    set_grad_enabled, with_location,
};

use super::rules::{self, OP, Operand, no_rule};
use crate::{Outputs, no_grad};

/// A placeholder for a slice: it has a shape and a dtype, and no value.
#[derive(Debug)]
struct Slice {
    shape: Shape,
    dtype: DType,
}

impl CustomKernel for Slice {
    fn name(&self) -> &'static str {
        OP
    }
    fn results(&self, _: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>> {
        Ok(vec![(self.shape.clone(), self.dtype)])
    }
    fn key(&self) -> Vec<u64> {
        self.shape.dims().iter().map(|&size| size as u64).collect()
    }
    fn implement(&self, _: &mut Request<'_>) {}
    fn hint(&self) -> Option<&'static str> {
        Some(
            "its function reads a value that depends on a mapped input, by .item(), .to_vec(), .eval() or a shape that follows from \
             values: there is one for each slice. Compute with tensors, as where_cond does, or loop over the slices",
        )
    }
}

/// Applies `f` to every slice of the inputs along the given axes, in one computation; the results are
/// stacked along a new first axis. `torch.func.vmap`, with `out_dims` 0 and `randomness` "same".
///
/// `axes` has the axis of each input that is mapped over, or `None` for an input that is passed whole. `f`
/// is called once, on the caller's thread, with slices that lack their mapped axis. Gradients flow as if `f`
/// had been called for each slice. Random draws in `f` are the same for every slice. Custom kernels
/// (attention, linear algebra) run slice by slice, except those that support batches
/// (`CustomKernel::is_batched`), such as Fourier transforms.
///
/// # Errors
/// Another number of axes than inputs, no mapped input, an axis out of range, mapped axes of different
/// lengths; a function that reads values of its slices; the errors of `f`.
///
/// ```
/// use autograd::{func::vmap, grad_of, TensorGrad};
/// use tensor_core::Tensor;
///
/// let cpu = backend_cpu::cpu();
/// let weights = Tensor::new([1.0f32, -1.0], &cpu)?;
/// let examples = Tensor::new([[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]], &cpu)?;
/// // The gradient of each example's own loss, by one backward pass.
/// let gradients = vmap(
///     |x| {
///         let w = x[0].detach().requires_grad();
///         let loss = w.mul(&x[1])?.sum().powi(2);
///         grad_of(&loss, &w, false)
///     },
///     &[weights, examples],
///     &[None, Some(0)],
/// )?;
/// assert_eq!(gradients.to_vec::<f32>()?, [-2.0, -4.0, -6.0, -8.0, -10.0, -12.0]);
/// # Ok::<(), tensor_core::Error>(())
/// ```
#[track_caller]
pub fn vmap<O: Outputs>(
    f: impl Fn(&[Tensor]) -> Result<O>,
    inputs: &[Tensor],
    axes: &[Option<isize>],
) -> Result<O> {
    if axes.len() != inputs.len() {
        let message = format!("{} axes for {} inputs; give one each, or None", axes.len(), inputs.len());
        return Err(Error::invalid(OP, message));
    }
    let mut n: Option<usize> = None;
    let mut moved = Vec::with_capacity(inputs.len());
    for (k, (x, axis)) in inputs.iter().zip(axes).enumerate() {
        let Some(axis) = *axis else {
            moved.push((x.clone(), false));
            continue;
        };
        let axis = x.shape().axis(axis, OP)?;
        let size = x.dims()[axis];
        if n.is_some_and(|n| n != size) {
            let message = format!("input {k} has {size} slices, those before it {}", n.unwrap_or(0));
            return Err(Error::invalid(OP, message));
        }
        n = Some(size);
        let first = std::iter::once(axis).chain((0..x.rank()).filter(|&other| other != axis));
        moved.push((x.permute(first.collect::<Vec<usize>>())?, true));
    }
    let n = n.ok_or_else(|| Error::invalid(OP, "no input is mapped: give one an axis, as Some(0)"))?;
    let results = map(&|x: &[Tensor]| Ok(f(x)?.into_tensors()), &moved, n)?;
    O::from_tensors(results).ok_or_else(|| Error::invalid(OP, "its function's results differ in number"))
}

/// Applies `f` to `n` slices along the first axis of the mapped inputs. The results have that axis first.
pub(super) fn map(
    f: &dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    inputs: &[(Tensor, bool)],
    n: usize,
) -> Result<Vec<Tensor>> {
    let mut values: FxHashMap<u64, Tensor> = FxHashMap::default();
    let mut slices = Vec::with_capacity(inputs.len());
    for (x, mapped) in inputs {
        if !*mapped {
            slices.push(x.clone());
            continue;
        }
        let tracked = x.is_tracked() && is_grad_enabled();
        let slice = no_grad(|| {
            let kernel = Slice { shape: x.dims()[1..].iter().copied().collect(), dtype: x.dtype() };
            let there = Tensor::zeros(Shape::scalar(), (x.dtype(), &x.device()))?;
            let slice = Tensor::custom_kernel(Arc::new(kernel), &[&there])?.swap_remove(0);
            if tracked { slice.into_cell(true) } else { Ok(slice) }
        })?;
        values.insert(slice.resolve().id(), x.clone());
        slices.push(slice);
    }
    let results: Vec<Tensor> = f(&slices)?.iter().map(Tensor::resolve).collect();
    let mut replay = Replay { n, values, tuples: FxHashMap::default(), seen: FxHashMap::default() };
    results.iter().map(|result| replay.batched(result)).collect()
}

/// The nodes of a function that was called with placeholders, as far as they were built again.
struct Replay {
    n: usize,
    /// Nodes that depend on a slice, by id, with all slices.
    values: FxHashMap<u64, Tensor>,
    /// The same for operations with several results.
    tuples: FxHashMap<u64, Vec<Tensor>>,
    /// All visited nodes. They are held so that their ids are not reused.
    seen: FxHashMap<u64, Tensor>,
}

type Inputs = SmallVec<[Tensor; 2]>;

impl Replay {
    /// A result with all slices; copies, if it depends on no slice.
    fn batched(&mut self, result: &Tensor) -> Result<Tensor> {
        self.visit(result)?;
        match self.values.get(&result.id()) {
            Some(value) => Ok(value.clone()),
            None => rules::expanded(result, self.n),
        }
    }

    /// Visits inputs before the nodes that read them, in a loop, because chains may be long.
    fn visit(&mut self, result: &Tensor) -> Result<()> {
        let mut stack: Vec<(Tensor, Inputs, usize)> = Vec::new();
        self.open(result, &mut stack);
        while let Some((node, inputs, next)) = stack.last_mut() {
            if let Some(input) = inputs.get(*next) {
                *next += 1;
                let input = input.clone();
                self.open(&input, &mut stack);
            } else {
                let (node, inputs) = (node.clone(), std::mem::take(inputs));
                stack.pop();
                self.replay(&node, &inputs)?;
            }
        }
        Ok(())
    }

    fn open(&mut self, node: &Tensor, stack: &mut Vec<(Tensor, Inputs, usize)>) {
        if self.values.contains_key(&node.id()) {
            return;
        }
        if let Entry::Vacant(new) = self.seen.entry(node.id()) {
            new.insert(node.clone());
            stack.push((node.clone(), node.recorded_inputs(), 0));
        }
    }

    /// Builds a node again with all slices, if it depends on one. Its inputs have been visited.
    fn replay(&mut self, node: &Tensor, inputs: &Inputs) -> Result<()> {
        let depends =
            |input: &Tensor| self.values.contains_key(&input.id()) || self.tuples.contains_key(&input.id());
        if !inputs.iter().any(depends) {
            return Ok(());
        }
        let operands: SmallVec<[Operand; 2]> = inputs
            .iter()
            .map(|input| match self.values.get(&input.id()) {
                Some(value) => Operand { tensor: value.clone(), mapped: true },
                None => Operand { tensor: input.clone(), mapped: false },
            })
            .collect();
        let recorded = is_grad_enabled() && node.is_tracked();
        set_grad_enabled(recorded, || {
            with_location(node.location(), || {
                if let Op::TupleElement { index, .. } = node.op() {
                    let results = inputs.first().and_then(|tuple| self.tuples.get(&tuple.id()));
                    if let Some(result) = results.and_then(|results| results.get(*index)) {
                        self.values.insert(node.id(), result.clone());
                    }
                } else if let Op::Custom(_) = node.op() {
                    // The elements of a custom function have its results as inputs.
                    let results = custom(node, &operands, self.n, recorded)?;
                    self.tuples.insert(node.id(), results);
                } else if node.op().is_tuple() {
                    let results = rules::several(node, &operands, self.n)?;
                    self.tuples.insert(node.id(), results);
                } else {
                    let value = rules::one(node, &operands, self.n)?;
                    // An operation that changes nothing may return its input itself, with the input's
                    // history.
                    self.values.insert(node.id(), if recorded { value } else { value.detach() });
                }
                Ok(())
            })
        })
    }
}

/// A custom function: its last inputs are its results, which are computed already, and its gradient is
/// mapped in turn.
fn custom(node: &Tensor, operands: &[Operand], n: usize, recorded: bool) -> Result<Vec<Tensor>> {
    let Op::Custom(op) = node.op() else { return Err(no_rule(node.op(), operands.len())) };
    let (inputs, results) = operands.split_at(operands.len() - node.elements().len());
    let results = results.iter().map(|result| result.whole(n)).collect::<Result<Vec<_>>>()?;
    if !recorded {
        return Ok(results);
    }
    let mapped = inputs.iter().map(|input| input.mapped).collect();
    let inputs: Vec<&Tensor> = inputs.iter().map(|input| &input.tensor).collect();
    Ok(Tensor::custom(Arc::new(Slices { op: Arc::clone(op), mapped, n }), &inputs, &results))
}

/// The backward function of a mapped custom function.
#[derive(Debug)]
struct Slices {
    op: Arc<dyn CustomOp>,
    /// Whether each input has slices.
    mapped: Vec<bool>,
    n: usize,
}

impl CustomOp for Slices {
    fn name(&self) -> &'static str {
        self.op.name()
    }

    fn backward(
        &self,
        inputs: &[Tensor],
        results: &[Tensor],
        gradients: &[Option<Tensor>],
    ) -> Result<Vec<Option<Tensor>>> {
        let used: Vec<usize> = (0..gradients.len()).filter(|&k| gradients[k].is_some()).collect();
        let slices = inputs.iter().cloned().zip(self.mapped.iter().copied());
        let given: Vec<(Tensor, bool)> = slices
            .chain(results.iter().cloned().map(|result| (result, true)))
            .chain(gradients.iter().flatten().cloned().map(|gradient| (gradient, true)))
            .collect();
        let there = RefCell::new(Vec::new());
        let of_slice = |given: &[Tensor]| -> Result<Vec<Tensor>> {
            let (inputs, rest) = given.split_at(self.mapped.len());
            let (results, given) = rest.split_at(results.len());
            let mut gradients: Vec<Option<Tensor>> = vec![None; gradients.len()];
            for (&k, gradient) in used.iter().zip(given) {
                gradients[k] = Some(gradient.clone());
            }
            let found = self.op.backward(inputs, results, &gradients)?;
            there.replace(found.iter().map(Option::is_some).collect());
            Ok(found.into_iter().flatten().collect())
        };
        let mut found = map(&of_slice, &given, self.n)?.into_iter();
        let there: Vec<bool> = there.into_inner();
        let of_input = |(k, there): (usize, bool)| -> Result<Option<Tensor>> {
            let Some(gradient) = there.then(|| found.next()).flatten() else { return Ok(None) };
            match self.mapped.get(k) {
                Some(false) => gradient.sum_axis(0, false).map(Some),
                _ => Ok(Some(gradient)),
            }
        };
        there.into_iter().enumerate().map(of_input).collect()
    }
}
