//! The tape: the recorded graph in topological order, run backward with one rule per operation.

use std::collections::hash_map::Entry;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use tensor_core::{
    DType, Error, ErrorKind, Location, Op, Result, Tensor, autocast, set_grad_enabled, with_location,
};

use crate::{
    rules,
    sum::{Sum, add},
};

/// The gradient methods of a tensor: marking leaves, running the backward pass.
pub trait TensorGrad: Sized {
    /// This tensor as a leaf in which gradients accumulate. Existing graphs that read it are not changed.
    ///
    /// # Panics
    /// If the dtype is not floating-point. [`Tensor::into_cell`] returns an error instead.
    #[track_caller]
    fn requires_grad(self) -> Tensor;

    /// Computes the gradient of this scalar with respect to every leaf that it depends on, and adds it to
    /// the leaves' [`Tensor::grad`]. It frees the graph; [`TensorGrad::backward_retain`] keeps it.
    ///
    /// # Errors
    /// More than one element (give a gradient to [`TensorGrad::backward_with`]), nothing recorded, a graph
    /// that was freed already, or an operation without a gradient.
    #[track_caller]
    fn backward(&self) -> Result<()>;

    /// Like [`TensorGrad::backward`], for any shape: `gradient` is the gradient of some scalar with respect
    /// to this tensor.
    ///
    /// # Errors
    /// Also a gradient of another shape, dtype or device.
    #[track_caller]
    fn backward_with(&self, gradient: &Tensor) -> Result<()>;

    /// Like [`TensorGrad::backward`], but the graph can be used again. `retain_graph=True`.
    ///
    /// # Errors
    /// As [`TensorGrad::backward`].
    #[track_caller]
    fn backward_retain(&self) -> Result<()>;

    /// Clears the gradient of this leaf.
    fn zero_grad(&self);

    /// This tensor with a hook, which is called with its gradient when that is computed, and may return
    /// another one in its place; `None` leaves it unchanged. Tensors are immutable, so the hook is on the
    /// returned tensor: compute with that. `torch.Tensor.register_hook`.
    ///
    /// ```
    /// use autograd::TensorGrad;
    /// use tensor_core::Tensor;
    ///
    /// let x = Tensor::new([1.0f32, 2.0], &backend_cpu::cpu())?.requires_grad();
    /// let hidden = x.powi(2).register_hook(|gradient| Ok(Some(gradient.mul_scalar(10.0))))?;
    /// hidden.sum().backward()?;
    /// assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [20.0, 40.0]);
    /// # Ok::<(), tensor_core::Error>(())
    /// ```
    ///
    /// An error of the hook, or a gradient of another shape, dtype or device, is an error of the backward
    /// pass, which then changes nothing. With `create_graph` the hook's computation is recorded.
    ///
    /// # Errors
    /// A tensor that is not tracked, and so gets no gradient.
    #[track_caller]
    fn register_hook(
        &self,
        hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> Result<Tensor>;
}

impl TensorGrad for Tensor {
    #[track_caller]
    #[allow(clippy::panic)] // like an operator's misfit; `into_cell` is the checked twin
    fn requires_grad(self) -> Tensor {
        if self.is_tracked() {
            return self;
        }
        match self.into_cell(true) {
            Ok(leaf) => leaf,
            Err(error) => panic!("{error}"),
        }
    }

    #[track_caller]
    fn backward(&self) -> Result<()> {
        accumulate(self, &scalar_seed(self, "backward")?, false)
    }

    #[track_caller]
    fn backward_with(&self, gradient: &Tensor) -> Result<()> {
        check_seed("backward", self, gradient)?;
        accumulate(self, gradient, false)
    }

    #[track_caller]
    fn backward_retain(&self) -> Result<()> {
        accumulate(self, &scalar_seed(self, "backward")?, true)
    }

    fn zero_grad(&self) {
        self.set_grad(None);
    }

    #[track_caller]
    fn register_hook(
        &self,
        hook: impl Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static,
    ) -> Result<Tensor> {
        if !self.is_tracked() {
            return Err(Error::new(ErrorKind::Autograd {
                op: "register_hook",
                message: "the tensor is not tracked and gets no gradient: mark it or what it is made of with .requires_grad()"
                    .into(),
            }));
        }
        crate::hook::hooked(self, std::sync::Arc::new(hook))
    }
}

/// The gradients of `Σ outputs` (each a scalar) with respect to each of `inputs`: `None` for an input that
/// no output depends on.
///
/// Leaves' own gradients are not touched, and the graph stays. With `create_graph` the gradients are
/// recorded in turn, so that they can be differentiated again. `torch.autograd.grad`. [`grad_of`] is the
/// form for one output and one input.
///
/// # Errors
/// An output with more than one element or nothing recorded, an input that is not tracked, a graph that was
/// freed already, or an operation without a gradient.
#[track_caller]
pub fn grad<Y: AsRef<Tensor>, X: AsRef<Tensor>>(
    outputs: &[Y],
    inputs: &[X],
    create_graph: bool,
) -> Result<Vec<Option<Tensor>>> {
    let outputs: Vec<&Tensor> = outputs.iter().map(AsRef::as_ref).collect();
    let inputs: Vec<&Tensor> = inputs.iter().map(AsRef::as_ref).collect();
    gradients_of(&outputs, &inputs, create_graph)
}

/// The gradient of one scalar with respect to one tensor: [`grad`] for the most common case.
///
/// # Errors
/// The errors of [`grad`], and an output that does not depend on the input.
///
/// ```
/// use autograd::{TensorGrad, grad_of};
/// use tensor_core::Tensor;
///
/// let x = Tensor::new([2.0, 3.0], &backend_cpu::cpu())?.requires_grad();
/// let slope = grad_of(&x.powi(3).sum(), &x, true)?; // 3x²
/// let curvature = grad_of(&slope.sum(), &x, false)?; // 6x
/// assert_eq!(curvature.to_vec::<f32>()?, [12.0, 18.0]);
/// # Ok::<(), tensor_core::Error>(())
/// ```
#[track_caller]
pub fn grad_of(output: &Tensor, input: &Tensor, create_graph: bool) -> Result<Tensor> {
    match gradients_of(&[output], &[input], create_graph)?.pop().flatten() {
        Some(gradient) => Ok(gradient),
        None => Err(Error::new(ErrorKind::Autograd {
            op: "grad_of",
            message: "the output does not depend on the input; grad(&[y], &[x], ..) gives None there".into(),
        })),
    }
}

#[track_caller]
fn gradients_of(outputs: &[&Tensor], inputs: &[&Tensor], create_graph: bool) -> Result<Vec<Option<Tensor>>> {
    const OP: &str = "grad";
    for input in inputs {
        if !input.is_tracked() {
            return Err(Error::new(ErrorKind::Autograd {
                op: OP,
                message: "an input is not tracked: mark it with .requires_grad() before it is used".into(),
            }));
        }
    }
    let seeds =
        outputs.iter().map(|y| Ok(((*y).clone(), scalar_seed(y, OP)?))).collect::<Result<Vec<_>>>()?;
    play(&seeds, inputs, create_graph)
}

/// The gradients of Σ `seed`·`output` with respect to tracked tensors, for a seed of the output's shape,
/// dtype and device.
#[track_caller]
pub(crate) fn pull(
    output: &Tensor,
    seed: &Tensor,
    inputs: &[&Tensor],
    create_graph: bool,
) -> Result<Vec<Option<Tensor>>> {
    play(&[(output.clone(), seed.clone())], inputs, create_graph)
}

/// The gradients with respect to `leaves`, for outputs with the given gradients; the graph is freed.
#[track_caller]
pub(crate) fn use_up(seeds: &[(Tensor, Tensor)], leaves: &[&Tensor]) -> Result<Vec<Option<Tensor>>> {
    let tape = Tape::record(&seeds.iter().map(|(output, _)| output).collect::<Vec<_>>())?;
    let found = tape.play_to(seeds, leaves, false)?;
    tape.nodes.iter().filter(|node| is_used_up(node)).for_each(Tensor::release_graph);
    Ok(found)
}

/// Runs the backward pass from outputs with their gradients, to tracked tensors.
#[track_caller]
pub(crate) fn play(
    seeds: &[(Tensor, Tensor)],
    inputs: &[&Tensor],
    create_graph: bool,
) -> Result<Vec<Option<Tensor>>> {
    let tape = Tape::record(&seeds.iter().map(|(output, _)| output).collect::<Vec<_>>())?;
    tape.play_to(seeds, inputs, create_graph)
}

#[track_caller]
fn accumulate(output: &Tensor, seed: &Tensor, retain: bool) -> Result<()> {
    // Sums with the leaves' earlier gradients are ascribed to the line that runs the backward pass.
    let caller = Location::caller();
    let tape = Tape::record(&[output])?;
    // The visited leaves, each with its whole gradient. A leaf that took several values in the graph is
    // visited several times.
    let mut gradients: Vec<(Tensor, Tensor)> = Vec::new();
    let mut place: FxHashMap<u64, usize> = FxHashMap::default();
    let recorded = || tape.nodes.iter().filter(|node| is_used_up(node));
    let summed = |leaf: &Tensor, gradient: &Tensor| -> Result<(Option<Tensor>, Tensor)> {
        let seen = leaf.grad();
        let sum = match &seen {
            Some(sum) if sum.device() == gradient.device() => with_location(caller, || sum.add(gradient))?,
            _ => gradient.clone(),
        };
        Ok((seen, sum))
    };
    let sums = set_grad_enabled(false, || {
        tape.play(&[(output.clone(), seed.clone())], None, |node, gradient| {
            let Some(leaf) = node.leaf() else { return Ok(()) };
            match place.entry(leaf.id()) {
                Entry::Occupied(at) => {
                    let sum = &mut gradients[*at.get()].1;
                    *sum = with_location(caller, || sum.add(gradient))?;
                }
                Entry::Vacant(free) => {
                    free.insert(gradients.len());
                    gradients.push((leaf, gradient.clone()));
                }
            }
            Ok(())
        })?;
        gradients.iter().map(|(leaf, gradient)| summed(leaf, gradient)).collect::<Result<Vec<_>>>()
    })?;
    // The graph is freed and the leaves are changed only now, when nothing can fail any more.
    if !retain && let Err(node) = Tensor::claim_graph(recorded()) {
        return Err(used_up(node));
    }
    set_grad_enabled(false, || -> Result<()> {
        for ((leaf, gradient), (mut seen, mut sum)) in gradients.iter().zip(sums) {
            while !leaf.exchange_grad(seen.as_ref(), &sum) {
                // Another thread added to it, or cleared it, in between.
                (seen, sum) = summed(leaf, gradient)?;
            }
        }
        Ok(())
    })?;
    if !retain {
        recorded().for_each(Tensor::release_graph);
    }
    Ok(())
}

/// Whether a backward pass frees a node. Leaves and casts of leaves hold nothing worth freeing, so graphs
/// may share them, as those of one autocast region do.
pub(crate) fn is_used_up(node: &Tensor) -> bool {
    let of_leaf = || node.recorded_inputs().iter().all(Tensor::is_leaf_value);
    let casts_leaf = matches!(node.op(), Op::Cast) && of_leaf();
    !casts_leaf && !node.is_leaf_value()
}

#[track_caller]
fn used_up(node: &Tensor) -> Error {
    Error::new(ErrorKind::Autograd {
        op: "backward",
        message: format!(
            "the graph was used up by an earlier backward ({} built at {}); use backward_retain for all but the last, or \
             build the graph again. What a checkpointed function built is used up too: have the function return it",
            node.op().name(),
            node.location()
        ),
    })
}

#[track_caller]
fn not_recorded(output: &Tensor) -> Error {
    let reason = match cut(output) {
        Some(node) if matches!(node.op(), Op::Reshape) => format!(
            "the tensor was cut off from its inputs by detach at {}, so no gradient flows to them; call backward on the \
             tensor before it is detached",
            node.location()
        ),
        Some(node) => format!(
            "nothing was recorded for this tensor: {} at {} was built under no_grad, from inputs that require gradients",
            node.op().name(),
            node.location()
        ),
        None => "nothing was recorded for this tensor: no input required a gradient, or it was made under no_grad or \
                 cut off by detach; mark a leaf with .requires_grad() before computing"
            .into(),
    };
    Error::new(ErrorKind::Autograd { op: "backward", message: reason })
}

/// The node at which the recording of an untracked tensor ends: the last one that has a tracked input. A
/// computed node has forgotten its inputs, so it may not be found.
fn cut(output: &Tensor) -> Option<Tensor> {
    /// The number of nodes that are looked at.
    const NODES_SEARCHED: usize = 10_000;
    let mut queue = vec![output.resolve()];
    let mut seen = FxHashSet::default();
    while let Some(node) = queue.pop() {
        let inputs = node.recorded_inputs();
        if inputs.iter().any(Tensor::is_tracked) {
            return Some(node);
        }
        if seen.len() < NODES_SEARCHED {
            queue.extend(inputs.into_iter().filter(|input| seen.insert(input.id())));
        }
    }
    None
}

#[track_caller]
fn scalar_seed(output: &Tensor, op: &'static str) -> Result<Tensor> {
    if output.numel() != 1 {
        return Err(Error::new(ErrorKind::Autograd {
            op,
            message: format!(
                "shape {} has {} elements; reduce it to one, as with .mean(), or give a gradient to backward_with",
                output.shape(),
                output.numel()
            ),
        }));
    }
    Ok(output.ones_like())
}

#[track_caller]
pub(crate) fn check_seed(op: &'static str, output: &Tensor, gradient: &Tensor) -> Result<()> {
    if gradient.shape() != output.shape() {
        return Err(Error::new(ErrorKind::ShapeMismatch {
            op,
            lhs: output.shape().clone(),
            rhs: gradient.shape().clone(),
            hint: "the gradient must have the output's shape".into(),
        }));
    }
    if gradient.dtype() != output.dtype() {
        let cast = format!("cast the gradient with .to_dtype(DType::{:?})?", output.dtype());
        return Err(Error::new(ErrorKind::DTypeMismatch {
            op,
            lhs: output.dtype(),
            rhs: gradient.dtype(),
            hint: cast,
        }));
    }
    if gradient.device() != output.device() {
        return Err(output.on_another_device(op, gradient));
    }
    Ok(())
}

/// The tracked nodes that some outputs depend on, inputs before the nodes that read them.
struct Tape {
    nodes: Vec<Tensor>,
    /// The recorded inputs of each node, and the positions of those that are tracked.
    inputs: Vec<(Inputs, SmallVec<[Option<usize>; 2]>)>,
    place: FxHashMap<u64, usize>,
    /// Whether a rule may evaluate: the tape's handles must not count as a user's then, or every value would
    /// be stored.
    evaluates: bool,
}

type Inputs = SmallVec<[Tensor; 2]>;

impl Drop for Tape {
    fn drop(&mut self) {
        if self.evaluates {
            self.handles().for_each(|handle| handle.count_handle(true));
        }
    }
}

impl Tape {
    /// Depth first, in a loop: chains may have millions of nodes.
    #[track_caller]
    fn record(outputs: &[&Tensor]) -> Result<Tape> {
        let mut tape =
            Tape { nodes: Vec::new(), inputs: Vec::new(), place: FxHashMap::default(), evaluates: false };
        let mut stack: Vec<(Tensor, Inputs, usize)> = Vec::new();
        for output in outputs {
            if !output.is_tracked() {
                return Err(not_recorded(output));
            }
            let root = output.resolve();
            if !tape.place.contains_key(&root.id()) {
                let inputs = Tape::open(&root)?;
                stack.push((root, inputs, 0));
            }
            while let Some((node, inputs, next)) = stack.last_mut() {
                if let Some(input) = inputs.get(*next) {
                    *next += 1;
                    if input.is_tracked() && !tape.place.contains_key(&input.id()) {
                        let input = input.clone();
                        let below = Tape::open(&input)?;
                        stack.push((input, below, 0));
                    }
                } else {
                    tape.place.insert(node.id(), tape.nodes.len());
                    if let Some((node, inputs, _)) = stack.pop() {
                        let places = inputs.iter().map(|i| tape.place.get(&i.id()).copied()).collect();
                        tape.nodes.push(node);
                        tape.inputs.push((inputs, places));
                    }
                }
            }
        }
        if tape.nodes.iter().any(|node| matches!(node.op(), Op::Custom(op) if !op.reads_results())) {
            tape.handles().for_each(|handle| handle.count_handle(false));
            tape.evaluates = true;
        }
        Ok(tape)
    }

    fn handles(&self) -> impl Iterator<Item = &Tensor> {
        self.nodes.iter().chain(self.inputs.iter().flat_map(|(inputs, _)| inputs))
    }

    /// A node's inputs; none for a leaf, where the graph ends.
    #[track_caller]
    fn open(node: &Tensor) -> Result<Inputs> {
        if node.is_leaf_value() {
            return Ok(Inputs::new());
        }
        let inputs = node.recorded_inputs();
        // Checked last: a thread that frees the node marks it before it takes the inputs away.
        if node.is_released() {
            return Err(used_up(node));
        }
        Ok(inputs)
    }

    /// The gradients with respect to some of the tape's tensors.
    #[track_caller]
    fn play_to(
        &self,
        seeds: &[(Tensor, Tensor)],
        inputs: &[&Tensor],
        create_graph: bool,
    ) -> Result<Vec<Option<Tensor>>> {
        // A leaf is identified by itself, any other tensor by its node.
        let wanted: Vec<u64> = inputs.iter().map(|t| t.resolve().id()).collect();
        let leaves: Vec<Option<u64>> = inputs.iter().map(|t| t.leaf().map(|l| l.id())).collect();
        let mut found: Vec<Option<Tensor>> = vec![None; inputs.len()];
        let wants = |node: &Tensor, k: usize| {
            node.id() == wanted[k] || (leaves[k].is_some() && node.leaf().map(|l| l.id()) == leaves[k])
        };
        let ends: Vec<bool> = self.nodes.iter().map(|n| (0..inputs.len()).any(|k| wants(n, k))).collect();
        set_grad_enabled(create_graph, || {
            self.play(seeds, Some(&ends), |node, gradient| {
                for (k, slot) in found.iter_mut().enumerate() {
                    if wants(node, k) {
                        node.in_gradient_rule(|| add(slot, gradient.clone()))?;
                    }
                }
                Ok(())
            })
        })?;
        Ok(found)
    }

    /// Runs the tape backward. `visit` is called with the gradient of every leaf, or with `ends` of every
    /// node marked there.
    #[track_caller]
    fn play(
        &self,
        seeds: &[(Tensor, Tensor)],
        ends: Option<&[bool]>,
        mut visit: impl FnMut(&Tensor, &Tensor) -> Result<()>,
    ) -> Result<()> {
        // Gradients have the dtypes of their tensors.
        let _as_one = autocast::as_one();
        let n = self.nodes.len();
        // With chosen ends, only nodes between them and the outputs need a gradient.
        let mut useful = vec![ends.is_none(); n];
        if let Some(ends) = ends {
            for i in 0..n {
                useful[i] = ends[i] || self.inputs[i].1.iter().flatten().any(|&j| useful[j]);
            }
        }
        let mut gradients: Vec<Sum> = (0..n).map(|_| Sum::default()).collect();
        // The gradients of the results of operations with several results, until all readers are done.
        let mut of_results: FxHashMap<usize, SmallVec<[Option<Tensor>; 2]>> = FxHashMap::default();
        for (output, seed) in seeds {
            if let Some(&i) = self.place.get(&output.resolve().id()) {
                output.in_gradient_rule(|| gradients[i].add(seed.clone()))?;
            }
        }
        for i in (0..n).rev() {
            // Freeing each gradient at once keeps one per node alive, not all of them.
            let node = &self.nodes[i];
            let (inputs, places) = &self.inputs[i];
            let needs = || -> SmallVec<[bool; 8]> {
                let wanted =
                    |(t, p): (&Tensor, &Option<usize>)| p.is_some_and(|j| useful[j]) && t.dtype().is_float();
                inputs.iter().zip(places).map(wanted).collect()
            };
            let found = if let Some(mut given) = of_results.remove(&i) {
                let needs = needs();
                if !needs.contains(&true) {
                    continue;
                }
                given.resize(node.result_count(), None);
                let reads_results = !matches!(node.op(), Op::Custom(op) if !op.reads_results());
                let results = if reads_results { node.elements() } else { Vec::new() };
                let gradients = &given;
                let step = rules::TupleStep { node, inputs, results: &results, gradients, needs: &needs };
                node.in_gradient_rule(|| rules::tuple_gradients(&step))?
            } else {
                let Some(gradient) = std::mem::take(&mut gradients[i]).finish(node)? else { continue };
                let ended = match ends {
                    Some(ends) => ends[i],
                    None => node.is_leaf_value(),
                };
                if ended {
                    visit(node, &gradient)?;
                }
                if let (Op::TupleElement { index, .. }, Some(Some(tuple))) = (node.op(), places.first()) {
                    if useful[*tuple] {
                        let given = of_results.entry(*tuple).or_default();
                        given.resize(given.len().max(index + 1), None);
                        node.in_gradient_rule(|| add(&mut given[*index], gradient))?;
                    }
                    continue;
                }
                let needs = needs();
                if !needs.contains(&true) {
                    continue;
                }
                if let Op::Contract(_) | Op::Slice { .. } = node.op() {
                    for (k, place) in places.iter().enumerate() {
                        if let (true, Some(j)) = (needs[k], *place) {
                            gradients[j].expect(node, inputs, k, gradient.clone());
                        }
                    }
                    continue;
                }
                let step = rules::Step { node, inputs, gradient: &gradient, needs: &needs };
                node.in_gradient_rule(|| rules::gradients(&step))?
            };
            for ((gradient, input), place) in found.into_iter().zip(inputs).zip(places) {
                if let (Some(gradient), Some(j)) = (gradient, *place)
                    && useful[j]
                {
                    node.in_gradient_rule(|| -> Result<()> {
                        let fitted = rules::sum_to(&gradient, input.shape())?;
                        debug_assert!(fitted.dtype() == input.dtype() || input.dtype() == DType::Bool);
                        gradients[j].add(fitted)
                    })?;
                }
            }
        }
        Ok(())
    }
}
