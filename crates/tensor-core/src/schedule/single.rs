//! The fast path for one operation on computed inputs: no graph to search, one kernel to look up and run.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    cache::{Cache, Limit},
    collect::{Item, write_layout, write_op},
    execute::{Content, LaunchInputs, launch, scalar},
    failure::blame,
    pending,
    plan::{Output, Plan, Target},
};
use crate::{
    base::{error::Result, sync::lock},
    devices::backend::Backend,
    elements::scalar::Scalar,
    graph::{
        facts::ValueInfo,
        memory_log,
        node::{Node, Value, View},
        op::Op,
    },
    kernels::storage::Storage,
};

/// The maximum number of inputs on the fast path: a condition and two branches.
const MAX_INPUTS: usize = 3;

/// The form of an operation and its inputs: everything that its kernel depends on.
type Key = Vec<u64>;

/// Kernels of single operations by their form.
pub(super) struct Singles {
    known: Cache<Single>,
    /// The form of the node that was last requested.
    key: Key,
}

/// The bounds of the cache.
const KERNELS: Limit = Limit { bytes: 4 << 20, entries: 1024 };

impl Default for Singles {
    fn default() -> Singles {
        Singles { known: Cache::new(KERNELS), key: Key::new() }
    }
}

/// The outcome of a request for a node.
pub(super) enum Outcome {
    /// It was computed, or failed.
    Done(Result<()>),
    /// A new operation, which [`Singles::learn`] may keep.
    New,
    /// More than one operation on computed inputs.
    Other,
}

struct Single {
    /// A plan of one step.
    plan: Arc<Plan>,
    /// For each input of the kernel, the operation's input that it reads.
    inputs: SmallVec<[u8; 4]>,
    /// For each scalar of the kernel, the input that holds it; numbers past the inputs mean the
    /// operation itself.
    scalars: SmallVec<[u8; 4]>,
    view: View,
}

impl Singles {
    /// Computes the node if it is a known operation on computed inputs and constants.
    pub(super) fn evaluate(&mut self, node: &Arc<Node>, backend: &dyn Backend) -> Outcome {
        if node.op.is_view() {
            return Outcome::Other;
        }
        let mut values: [Option<Content>; MAX_INPUTS] = [const { None }; MAX_INPUTS];
        let mut constants = [Scalar::Int(0); MAX_INPUTS];
        let key = &mut self.key;
        key.clear();
        let count;
        {
            let state = lock(&node.state);
            let inputs = &state.inputs;
            if state.value.is_some() {
                return Outcome::Done(Ok(()));
            }
            count = inputs.len();
            if count == 0 || count > MAX_INPUTS {
                return Outcome::Other;
            }
            write_op(key, &node.op, (node.dtype as u64) << 16 | (node.shape.rank() as u64) << 48);
            key.extend(node.shape.iter().map(|&d| d as u64));
            for (k, input) in inputs.iter().enumerate() {
                let same = |other: &Arc<Node>| Arc::ptr_eq(other, input);
                let first = inputs[..k].iter().position(same).unwrap_or(k);
                let state = lock(&input.state);
                let kind = match (&state.value, &input.op) {
                    (Some(Value { format: Some(_), .. }), _) => return Outcome::Other,
                    (Some(value), _) => {
                        // An input that only this operation still holds may be reused in place; leave it
                        // to the planner.
                        let holders = Arc::strong_count(input);
                        if holders <= count && !node.keeps_inputs() {
                            let edges = inputs.iter().filter(|other| same(other)).count();
                            if holders == edges {
                                return Outcome::Other;
                            }
                        }
                        values[k] = Some((value.storage.clone(), value.facts.clone()));
                        1
                    }
                    (None, Op::Full(value)) => {
                        constants[k] = *value;
                        2
                    }
                    _ => return Outcome::Other,
                };
                let view = state.value.as_ref().and_then(|value| value.view.as_deref());
                let rank = input.shape.rank() as u64;
                let head = kind | u64::from(view.is_some()) << 2;
                key.push(head | (input.dtype as u64) << 8 | rank << 16 | (first as u64) << 32);
                key.extend(input.shape.iter().map(|&d| d as u64));
                if let Some(layout) = view {
                    write_layout(key, layout);
                }
            }
        }
        let Some(single) = self.known.get(key.as_slice()) else { return Outcome::New };
        let step = &single.plan.steps[0];
        let mut inputs: SmallVec<[Storage; 4]> = SmallVec::new();
        let mut facts: SmallVec<[ValueInfo; 4]> = SmallVec::new();
        for &k in &single.inputs {
            if let Some((storage, known)) = values[k as usize].take() {
                inputs.push(storage);
                facts.push(known);
            }
        }
        let scalars: SmallVec<[Scalar; 4]> = step
            .scalars
            .iter()
            .zip(&single.scalars)
            .map(|(wanted, &k)| match constants[..count].get(k as usize) {
                Some(value) => value.cast(wanted.dtype),
                None => scalar(wanted, &node.op),
            })
            .collect();
        let given = LaunchInputs { inputs: &inputs, facts: &facts, scalars: &scalars };
        Outcome::Done(match launch(step, given, |_| false, (node, |_| &**node), backend) {
            Ok(mut outputs) => {
                memory_log::look_at_peak(&node.device, || {
                    outputs.iter().map(|(storage, _)| (node, storage.clone())).collect()
                });
                if let Some((storage, facts)) = outputs.pop() {
                    node.attach(Value { storage, facts, view: single.view.clone(), format: None });
                }
                pending::forget_last(node);
                Ok(())
            }
            Err(error) => Err(blame(node, error)),
        })
    }

    /// Keeps the plan of the node that was last requested, if its graph is a single kernel with one new
    /// buffer; returns whether it is.
    pub(super) fn learn(&mut self, plan: &Arc<Plan>, items: &[Item]) -> bool {
        let ([step], [Output::Fresh { .. }]) =
            (plan.steps.as_slice(), plan.steps.first().map_or(&[][..], |s| &s.outputs))
        else {
            return false;
        };
        let Some(target) = items.len().checked_sub(1) else { return false };
        let [Target::Node { item: stored, view }] = step.targets.as_slice() else { return false };
        if *stored as usize != target || !plan.views.is_empty() {
            return false;
        }
        // The target's inputs in its own order, by their positions among the items.
        let places = &items[target].inputs;
        let which = |item: u32| places.iter().position(|&p| p == item).map(|k| k as u8);
        // An input that occurs twice is read once for each occurrence.
        let mut free: SmallVec<[bool; 4]> = SmallVec::from_elem(true, places.len());
        let inputs: Option<_> = step
            .inputs
            .iter()
            .map(|&slot| {
                let (item, _) = plan.leaves.iter().find(|(_, s)| *s == slot)?;
                let k = (0..places.len()).find(|&k| places[k] == *item && free[k])?;
                free[k] = false;
                Some(k as u8)
            })
            .collect();
        let scalars: Option<_> = step
            .scalars
            .iter()
            .map(|s| if s.item as usize == target { Some(places.len() as u8) } else { which(s.item) })
            .collect();
        let (Some(inputs), Some(scalars)) = (inputs, scalars) else { return false };
        let single = Single { plan: plan.clone(), inputs, scalars, view: view.clone() };
        self.known.insert(&self.key, single, plan.bytes());
        true
    }
}
