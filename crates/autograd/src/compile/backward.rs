//! The backward pass of a compiled function. While the function is captured, the operations of its gradients
//! are built too, from placeholders for the gradients of its results. The forward program then also returns
//! the tensors that these operations read, and the backward pass is a second compiled function, of those
//! tensors and of the results' gradients.

use std::{fmt, sync::Arc, sync::Mutex};

use rustc_hash::{FxHashMap, FxHashSet};
use tensor_core::{
    CallMode, CustomOp, DType, Error, ErrorKind, Op, Recorder, Recording, Replay, Result, Shape, Tensor,
    as_leaf, is_grad_enabled, lock,
};

use crate::tape;

const OP: &str = "compile";

/// A tensor of which a compiled function has gradients.
enum Leaf {
    /// The argument with this number.
    Argument(usize),
    /// A parameter that the function reads.
    Cell(Tensor),
}

/// A tensor that the backward pass reads.
#[derive(Clone, Copy)]
enum Source {
    /// The gradient of the result with this number among the recorded ones.
    Gradient(usize),
    /// A tensor that the forward pass returns, by its number among those.
    Saved(usize),
}

/// The backward pass of a compiled function, which is the same for all calls of one form.
pub(super) struct Backward {
    /// The results that are recorded, by their numbers.
    results: Vec<usize>,
    forms: Vec<(Shape, DType)>,
    leaves: Vec<Leaf>,
    sources: Vec<Source>,
    recording: Recording,
    replay: Mutex<Replay<()>>,
}

impl fmt::Debug for Backward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the backward pass of a compiled function: {:?}", self.recording)
    }
}

/// The argument that a captured function sees in place of one that is recorded for gradients: the same value,
/// recorded from the original, where the function's part of the graph ends.
pub(super) fn linked(given: &Tensor, original: &Tensor) -> Tensor {
    let mut results = Tensor::custom(Arc::new(Link), &[original], std::slice::from_ref(given));
    results.pop().unwrap_or_else(|| given.clone())
}

#[derive(Debug)]
struct Link;

impl CustomOp for Link {
    fn name(&self) -> &'static str {
        OP
    }

    fn reads_results(&self) -> bool {
        false
    }

    fn backward(
        &self,
        _: &[Tensor],
        _: &[Tensor],
        gradients: &[Option<Tensor>],
    ) -> Result<Vec<Option<Tensor>>> {
        Ok(gradients.to_vec())
    }
}

impl Backward {
    /// The backward pass of a function that `recorder` has watched, and the tensors that the forward pass
    /// must return beside the function's `results`; none if no result is recorded. The results' graph is
    /// used up. `given` are the function's arguments.
    pub(super) fn of(
        recorder: Recorder,
        results: &[Tensor],
        given: &[Tensor],
    ) -> Result<Option<(Backward, Vec<Tensor>)>> {
        let is_recorded = |result: &Tensor| result.is_tracked() && !result.is_cell() && !result.is_released();
        let places: Vec<usize> = (0..results.len()).filter(|&k| is_recorded(&results[k])).collect();
        if places.is_empty() {
            return Ok(None);
        }
        let recorded: Vec<Tensor> = places.iter().map(|&k| results[k].resolve()).collect();
        let Found { nodes, leaves, tensors } = Found::search(&recorder, &recorded, given)?;
        let pairs = recorded.iter().map(|result| Ok((result.clone(), placeholder(result)?)));
        let pairs = pairs.collect::<Result<Vec<(Tensor, Tensor)>>>()?;
        let wanted: Vec<&Tensor> = tensors.iter().collect();
        let (gradients, backward) = Recorder::run(|| tape::play(&pairs, &wanted, false));
        // The forward pass stores nothing for its rules any more. A function with a gradient of its own keeps
        // its value until the search has seen it.
        let (functions, nodes): (Vec<Tensor>, Vec<Tensor>) =
            nodes.into_iter().filter(tape::is_used_up).partition(|node| matches!(node.op(), Op::Custom(_)));
        nodes.iter().for_each(Tensor::release_graph);
        drop(nodes);
        let with_gradient =
            leaves.into_iter().zip(gradients?).filter_map(|(leaf, gradient)| Some((leaf, gradient?)));
        let (leaves, gradients): (Vec<Leaf>, Vec<Tensor>) = with_gradient.unzip();
        let (recording, outside) = recorder.finish_backward(backward, results, &gradients)?;
        functions.iter().for_each(Tensor::release_graph);
        let seed_of: FxHashMap<u64, usize> =
            pairs.iter().enumerate().map(|(k, (_, seed))| (seed.resolve().id(), k)).collect();
        let mut saved = Vec::new();
        let mut sources = Vec::with_capacity(outside.len());
        for tensor in outside {
            sources.push(match seed_of.get(&tensor.id()) {
                Some(&k) => Source::Gradient(k),
                None => {
                    saved.push(tensor.detach());
                    Source::Saved(saved.len() - 1)
                }
            });
        }
        let forms = recorded.iter().map(|result| (result.shape().clone(), result.dtype())).collect();
        let replay = Mutex::new(Replay::default());
        Ok(Some((Backward { results: places, forms, leaves, sources, recording, replay }, saved)))
    }

    /// Takes the recorded results from the graph, which is used up.
    pub(super) fn detach(&self, results: &mut [Tensor]) {
        self.results.iter().for_each(|&k| results[k] = results[k].detach());
    }

    /// The results of a call, recorded for gradients. `tensors` are the results without a recording and then
    /// the tensors that the backward pass reads.
    pub(super) fn record(self: &Arc<Self>, arguments: &[Tensor], mut tensors: Vec<Tensor>) -> Vec<Tensor> {
        let saved = self.sources.iter().filter(|source| matches!(source, Source::Saved(_))).count();
        let saved = tensors.split_off(tensors.len() - saved);
        let leaf = |leaf: &Leaf| match leaf {
            Leaf::Argument(k) => arguments[*k].clone(),
            Leaf::Cell(cell) => cell.clone(),
        };
        let inputs: Vec<Tensor> = self.leaves.iter().map(leaf).chain(saved).collect();
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        let values: Vec<Tensor> = self.results.iter().map(|&k| tensors[k].detach()).collect();
        let recorded = Tensor::custom(self.clone(), &inputs, &values);
        self.results.iter().zip(recorded).for_each(|(&k, result)| tensors[k] = result);
        tensors
    }
}

impl CustomOp for Backward {
    fn name(&self) -> &'static str {
        OP
    }

    fn reads_results(&self) -> bool {
        false
    }

    fn backward(
        &self,
        inputs: &[Tensor],
        _: &[Tensor],
        gradients: &[Option<Tensor>],
    ) -> Result<Vec<Option<Tensor>>> {
        if is_grad_enabled() {
            return Err(Error::new(ErrorKind::Autograd {
                op: OP,
                message:
                    "the gradients of a compiled function cannot be differentiated again: compile a function \
                          that computes them, or do not compile this one"
                        .into(),
            }));
        }
        let source = |source: &Source| match *source {
            Source::Saved(k) => Ok(inputs[self.leaves.len() + k].clone()),
            Source::Gradient(k) => match gradients.get(k).and_then(Option::as_ref) {
                Some(gradient) => Ok(gradient.clone()),
                None => {
                    let (shape, dtype) = &self.forms[k];
                    Tensor::zeros(shape.clone(), &inputs[0].device())?.to_dtype(*dtype)
                }
            },
        };
        let outside = self.sources.iter().map(source).collect::<Result<Vec<_>>>()?;
        let mode = CallMode { strict: false, autocast: None, records: false };
        let mut build = |outside: &[Tensor]| Ok((self.recording.build(outside), ()));
        let (found, _) = lock(&self.replay).call(&outside, mode, &mut build)?;
        Ok(found.into_iter().map(Some).chain(inputs[self.leaves.len()..].iter().map(|_| None)).collect())
    }
}

/// A tensor in memory in place of the gradient of a result, of which only shape and dtype matter: rules of
/// gradients must not see that all elements are one.
fn placeholder(result: &Tensor) -> Result<Tensor> {
    let one = Tensor::new(0.0f32, &result.device())?.to_dtype(result.dtype())?;
    as_leaf(&one.expand(result.shape().clone())?)
}

/// The recorded part of a function's graph.
struct Found {
    nodes: Vec<Tensor>,
    leaves: Vec<Leaf>,
    /// The leaves as tensors.
    tensors: Vec<Tensor>,
}

impl Found {
    /// Everything from the results down to parameters and arguments.
    fn search(recorder: &Recorder, results: &[Tensor], given: &[Tensor]) -> Result<Found> {
        let argument = |id: u64, of: &dyn Fn(&Tensor) -> u64| given.iter().position(|given| of(given) == id);
        let mut found = Found { nodes: Vec::new(), leaves: Vec::new(), tensors: Vec::new() };
        let mut seen: FxHashSet<u64> = FxHashSet::default();
        let mut known_leaves: FxHashSet<u64> = FxHashSet::default();
        let mut stack: Vec<Tensor> = results.to_vec();
        while let Some(node) = stack.pop() {
            if !node.is_tracked() || !seen.insert(node.id()) {
                continue;
            }
            if let Some(k) = argument(node.id(), &|given| given.resolve().id()) {
                found.leaves.push(Leaf::Argument(k));
                found.tensors.push(given[k].clone());
            } else if node.is_leaf_value() {
                // Without its cell nothing asks for the gradient.
                let Some(cell) = node.leaf().filter(|cell| known_leaves.insert(cell.id())) else { continue };
                found.leaves.push(match argument(cell.id(), &Tensor::id) {
                    Some(k) => Leaf::Argument(k),
                    None => Leaf::Cell(cell.clone()),
                });
                found.tensors.push(cell);
            } else if recorder.built(&node) {
                stack.extend(node.recorded_inputs());
                found.nodes.push(node);
            } else {
                let message = format!(
                    "a compiled function reads a tensor that is recorded for gradients ({} at {}), which a later call \
                     would not see change: pass it as an argument, or detach it",
                    node.op().name(),
                    node.location()
                );
                return Err(Error::new(ErrorKind::Capture { op: OP, message }));
            }
        }
        Ok(found)
    }
}
