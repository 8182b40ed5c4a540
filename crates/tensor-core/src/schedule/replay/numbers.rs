//! [`GraphNumbers`]: the numbers that a part of a graph contains, in an order that depends on its form alone.
//! An optimizer that builds the same update at each step finds its present numbers so.

use std::{
    cell::Cell,
    hash::{Hash, Hasher},
    sync::Arc,
};

use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;

use crate::{
    base::{on_drop::OnDrop, sync::lock},
    elements::scalar::Scalar,
    graph::{
        handle::Tensor,
        node::{Inputs, Node},
        op::Op,
    },
    schedule::{capture::is_capturing, collect::write_op, pending},
};

/// The numbers of constants in a part of a graph.
#[derive(Debug, Default)]
pub struct GraphNumbers {
    /// A number of the form of the operations: equal for graphs that differ in their numbers only.
    pub form: u64,
    /// The ids of the constants.
    pub ids: Vec<u64>,
    /// Their values.
    pub numbers: Vec<Scalar>,
}

/// A node whose inputs are being visited.
struct Frame {
    node: Arc<Node>,
    inputs: Inputs,
    places: SmallVec<[u32; 3]>,
}

thread_local! {
    static OWN_CONSTANTS: Cell<bool> = const { Cell::new(false) };
}

/// Whether each constant of an operation is a node of its own on this thread, also if numbers are equal: its
/// number may differ at another call.
pub(crate) fn has_own_constants() -> bool {
    is_capturing() || OWN_CONSTANTS.get()
}

impl GraphNumbers {
    /// Runs `f`, which builds a graph as a captured function builds it: each constant is a node of its own,
    /// and nothing is computed.
    pub fn built<R>(f: impl FnOnce() -> R) -> R {
        let before = OWN_CONSTANTS.replace(true);
        let _restore = OnDrop::new(|| OWN_CONSTANTS.set(before));
        pending::without_bound(f)
    }

    /// The numbers in the operations that made `results` from `leaves`.
    pub fn of<'a>(results: &[Tensor], leaves: impl IntoIterator<Item = &'a Tensor>) -> GraphNumbers {
        /// The place of every leaf.
        const LEAF: u32 = u32::MAX;
        let mut places: FxHashMap<u64, u32> = leaves.into_iter().map(|leaf| (leaf.node().id, LEAF)).collect();
        let mut found = GraphNumbers::default();
        let mut hasher = FxHasher::default();
        let mut next = 0;
        let mut stack: Vec<Frame> = Vec::new();
        for result in results {
            stack.push(frame(result.node()));
            while let Some(mut top) = stack.pop() {
                match top.inputs.get(top.places.len()).map(|input| (places.get(&input.id).copied(), input)) {
                    Some((Some(place), _)) => {
                        top.places.push(place);
                        stack.push(top);
                    }
                    Some((None, input)) => {
                        let input = frame(input.clone());
                        stack.push(top);
                        stack.push(input);
                    }
                    None if places.contains_key(&top.node.id) => {}
                    None => {
                        found.visit(&top, &mut hasher);
                        places.insert(top.node.id, next);
                        next += 1;
                    }
                }
            }
            places.get(&result.node().id).hash(&mut hasher);
        }
        found.form = hasher.finish();
        found
    }

    fn visit(&mut self, Frame { node, places, .. }: &Frame, hasher: &mut FxHasher) {
        let mut key = Vec::new();
        write_op(&mut key, &node.op, (node.dtype as u64) << 16);
        (key, node.shape.dims(), places.as_slice()).hash(hasher);
        if let Op::Full(value) = node.op {
            self.ids.push(node.id);
            self.numbers.push(value);
        }
    }
}

fn frame(node: Arc<Node>) -> Frame {
    let inputs = lock(&node.state).inputs.clone();
    Frame { node, inputs, places: SmallVec::new() }
}
