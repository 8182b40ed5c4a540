//! The pending part of a graph in topological order, with the nodes that must keep their values, and the
//! key of its form.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering, fence},
    },
};

use smallvec::SmallVec;

use crate::{
    base::{location::Location, sync::lock},
    graph::{
        node::{Inputs, Node, Value},
        op::{Expression, Op, OpClass, OtherOp, Subscripts, TupleOp, ViewOp},
    },
    kernels::{blocks, custom, layout::Layout, operators::Refusal},
    schedule::recompute::{RECOMPUTE_LIMIT_IN_MAPS, own_cost},
};

/// Positions of nodes in the order.
type SearchSorted = SmallVec<[u32; 3]>;

/// A node in the current evaluation: a pending one, or a computed one that it reads.
pub(crate) struct Item {
    pub(crate) node: Arc<Node>,
    /// Positions of the inputs in the order; empty for a computed node.
    pub(crate) inputs: SearchSorted,
    /// The value, if the node has one.
    pub(crate) value: Option<Value>,
    /// Whether the node must have its value afterwards.
    pub(crate) store: bool,
    /// Whether a pending node outside of the evaluation reads the node, which is then kept if it gets a
    /// buffer.
    pub(crate) elsewhere: bool,
    /// Whether the node is unreachable afterwards: a computed node's buffer may then be overwritten by
    /// its last reader.
    pub(crate) dies: bool,
}

#[derive(Default)]
pub(crate) struct Collector {
    items: Vec<Item>,
    key: Vec<u64>,
    frames: Vec<Frame>,
    /// Pending copies from other devices.
    copies: Vec<Arc<Node>>,
    epoch: u64,
    /// Scratch space of `decide_what_stays`, kept to reuse its memory. For each item: the references that
    /// this evaluation knows, and the cost of computing it again from values that stay.
    edges: Vec<u32>,
    costs: Vec<u32>,
    let_go: Vec<bool>,
    asked: Vec<bool>,
    /// Whether each item is a pending constant, or a view of one.
    constant: Vec<bool>,
}

thread_local! {
    /// The memory of the last evaluation's items, for reuse.
    static SPARE: RefCell<Vec<Item>> = const { RefCell::new(Vec::new()) };
}

/// Drops the items of a finished evaluation, and keeps their vector's memory.
pub(crate) fn discard(mut items: Vec<Item>) {
    items.clear();
    if items.capacity() <= 1 << 14 {
        SPARE.set(items);
    }
}

/// A node whose inputs are being visited.
struct Frame {
    node: Arc<Node>,
    /// The inputs not yet visited.
    inputs: smallvec::IntoIter<[Arc<Node>; 2]>,
    places: SearchSorted,
}

enum Entry {
    Placed(u32),
    Waiting(Frame),
}

impl Collector {
    pub(crate) fn items(&self) -> &[Item] {
        &self.items
    }

    pub(crate) fn key(&self) -> &[u64] {
        &self.key
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Takes the items, so that they can be dropped outside of the device's lock.
    pub(crate) fn take(&mut self) -> Vec<Item> {
        std::mem::replace(&mut self.items, SPARE.take())
    }

    /// Puts all pending nodes that the targets depend on in order. Returns the copies from other devices
    /// that must be made before the evaluation can be planned.
    pub(crate) fn collect(&mut self, targets: &[Arc<Node>]) -> Vec<Arc<Node>> {
        // An epoch is never reused: even 32 bits would last for hours.
        static EPOCH: AtomicU64 = AtomicU64::new(1);
        self.epoch = EPOCH.fetch_add(1, Ordering::Relaxed);
        self.items.clear();
        for target in targets {
            let place = match self.place(target) {
                Some(place) => place,
                None if target.has_value() => continue,
                None => self.visit(target.clone()),
            };
            self.items[place as usize].store = true;
        }
        let copies = std::mem::take(&mut self.copies);
        if !self.items.is_empty() && copies.is_empty() {
            self.decide_what_stays();
            self.see_through_functions();
            self.write_key();
        }
        copies
    }

    /// The node's position in the order, if this evaluation has visited it.
    fn place(&self, node: &Node) -> Option<u32> {
        (node.epoch.load(Ordering::Relaxed) == self.epoch).then(|| node.place.load(Ordering::Relaxed))
    }

    /// Appends a node to the order.
    fn push(&mut self, node: Arc<Node>, inputs: SearchSorted, value: Option<Value>) -> u32 {
        let place = self.items.len() as u32;
        node.epoch.store(self.epoch, Ordering::Relaxed);
        node.place.store(place, Ordering::Relaxed);
        self.items.push(Item { node, inputs, value, store: false, elsewhere: false, dies: false });
        place
    }

    /// Depth first, with an explicit stack: a chain may be millions of nodes long. Returns the root's
    /// position.
    fn visit(&mut self, root: Arc<Node>) -> u32 {
        let mut top = match self.enter(root) {
            Entry::Placed(place) => return place,
            Entry::Waiting(frame) => frame,
        };
        loop {
            let placed = match top.inputs.next() {
                Some(input) => match self.place(&input) {
                    Some(place) => place,
                    None => match self.enter(input) {
                        Entry::Placed(place) => place,
                        Entry::Waiting(frame) => {
                            self.frames.push(std::mem::replace(&mut top, frame));
                            continue;
                        }
                    },
                },
                None => {
                    let place = self.finish(top.node, top.places);
                    match self.frames.pop() {
                        Some(reader) => top = reader,
                        None => return place,
                    }
                    place
                }
            };
            top.places.push(placed);
        }
    }

    /// Pushes a frame for a node with pending inputs; any other node is appended to the order at once.
    fn enter(&mut self, node: Arc<Node>) -> Entry {
        let state = lock(&node.state);
        if let Some(value) = state.value.clone() {
            drop(state);
            return Entry::Placed(self.push(node, SearchSorted::new(), Some(value)));
        }
        if let Op::ToDevice = node.op {
            drop(state);
            self.copies.push(node.clone());
            return Entry::Placed(self.push(node, SearchSorted::new(), None));
        }
        let inputs = if let Op::TupleElement { .. } = node.op {
            // If other operations computed the result, only the tape needs the tuple.
            &state.inputs[state.inputs.len().saturating_sub(1)..]
        } else {
            &state.inputs[..]
        };
        let mut places = SearchSorted::new();
        for (k, input) in inputs.iter().enumerate() {
            match self.place(input).or_else(|| self.enter_source(input)) {
                Some(place) => places.push(place),
                None => {
                    let inputs = Inputs::from(&inputs[k..]).into_iter();
                    drop(state);
                    return Entry::Waiting(Frame { node, inputs, places });
                }
            }
        }
        drop(state);
        Entry::Placed(self.finish(node, places))
    }

    /// Appends a pending node to the order, after its inputs. All results of a tuple follow it, because
    /// one kernel makes them.
    fn finish(&mut self, node: Arc<Node>, inputs: SearchSorted) -> u32 {
        if let Some(place) = self.place(&node) {
            // A result, which was appended with its tuple.
            return place;
        }
        let tuple = node.tuple().map(|tuple| (node.clone(), tuple.elements.len()));
        let place = self.push(node, inputs, None);
        if let Some((node, results)) = tuple {
            for k in 0..results {
                self.push(node.waiting_element(k), SearchSorted::from_iter([place]), None);
            }
        }
        place
    }

    /// The position of a node that has its value or has no inputs; `None` for a node whose inputs must
    /// be visited first.
    fn enter_source(&mut self, node: &Arc<Node>) -> Option<u32> {
        let value = match node.has_value() {
            true => lock(&node.state).value.clone(),
            false if node.op.is_source() => None,
            false => return None,
        };
        Some(self.push(node.clone(), SearchSorted::new(), value))
    }

    /// Decides which nodes must keep a value and which ones die.
    fn decide_what_stays(&mut self) {
        self.count_references();
        if self.decide_by_readers() && self.keep_for_others() {
            // More values stay, so that fewer inputs are needed afterwards.
            self.decide_by_readers();
        }
    }

    /// Counts the references from within this evaluation to each item, and finds the constants.
    fn count_references(&mut self) {
        let n = self.items.len();
        let (edges, constant) = (&mut self.edges, &mut self.constant);
        // Handles to pending constants, and to views of them, take no memory until their values are
        // requested.
        constant.clear();
        for item in &self.items {
            let op = &item.node.op;
            let is_constant = matches!(op, Op::Full(_))
                || op.is_view() && item.inputs.first().is_some_and(|&j| constant[j as usize]);
            constant.push(is_constant && item.value.is_none());
        }
        edges.clear();
        edges.resize(n, 0);
        for item in &self.items {
            for &input in &item.inputs {
                edges[input as usize] += 1;
            }
        }
    }

    /// Decides, from the consumers to the producers, which nodes must keep a value for a handle or a gradient
    /// rule, and which ones die. Returns whether nodes that get no value are referenced from outside.
    fn decide_by_readers(&mut self) -> bool {
        let n = self.items.len();
        let (edges, let_go, asked, constant) =
            (&self.edges, &mut self.let_go, &mut self.asked, &self.constant);
        // Whether every reader of a node releases it, and whether a gradient rule will read it.
        let_go.clear();
        let_go.resize(n, true);
        asked.clear();
        asked.resize(n, false);
        let mut needed_elsewhere = false;
        for i in (0..n).rev() {
            let item = &self.items[i];
            let held = item.node.held();
            let elsewhere = Arc::strong_count(&item.node) > 1 + edges[i] as usize;
            // The caller's own reference to a target counts as held elsewhere.
            let dies = !item.store && !held && !elsewhere && let_go[i];
            if let Some(value) = &item.value {
                // Another thread that reads the value holds the node, then the buffer, and releases them
                // in that order. The fences ensure that if this thread sees the node released, it also
                // sees the buffer held or the reads completed.
                fence(Ordering::Acquire);
                let dies = dies
                    && Arc::strong_count(&value.storage) == 2
                    && value.storage.numel() == item.node.shape.numel()
                    && value.view.is_none()
                    && value.format.is_none();
                fence(Ordering::Acquire);
                self.items[i].dies = dies;
                continue;
            }
            let keeps_inputs = item.node.keeps_inputs();
            let saved = item.node.op.saved(if keeps_inputs { wanted_inputs(&self.items, item) } else { 0 });
            let read_later = if let Op::TupleElement { index, .. } = item.node.op {
                let tuple = &self.items[item.inputs[0] as usize].node;
                if tuple.op.is_tuple() {
                    tuple.keeps_inputs() && tuple.op.saved(u32::MAX).results >> index.min(31) & 1 == 1
                } else {
                    ask_for_tuple_inputs(&item.node, self.epoch, asked);
                    false
                }
            } else {
                keeps_inputs && !dies && saved.results & 1 == 1
            };
            let wanted = held || asked[i] || read_later;
            let stored_nowhere = constant[i] || item.node.op.is_tuple();
            let store = item.store || (wanted && !stored_nowhere);
            let lets_go = dies || (store && !keeps_inputs);
            for (k, &input) in item.inputs.iter().enumerate() {
                let input = input as usize;
                let_go[input] &= lets_go;
                asked[input] |= keeps_inputs && !dies && saved.inputs >> k.min(31) & 1 == 1;
            }
            needed_elsewhere |= elsewhere && !store && !stored_nowhere;
            let item = &mut self.items[i];
            item.store = store;
            item.dies = dies;
        }
        needed_elsewhere
    }

    /// Marks values that pending nodes outside of this evaluation read, and stores those that are costly to
    /// compute again; returns whether there are any. They live until those readers have their values or are
    /// dropped.
    fn keep_for_others(&mut self) -> bool {
        let of_tapes = self.references_of_tapes();
        let Collector { items, edges, constant, costs, .. } = self;
        costs.clear();
        let mut kept_any = false;
        for i in 0..items.len() {
            let item = &items[i];
            let node = &item.node;
            if item.value.is_some() || item.store || constant[i] {
                costs.push(0);
                continue;
            }
            let cost = cost_again(item, items, costs);
            costs.push(cost);
            let known = 1 + edges[i] as usize + of_tapes[i] as usize;
            let elsewhere = !node.held() && Arc::strong_count(node) > known;
            if !elsewhere || node.op.is_tuple() {
                continue;
            }
            items[i].elsewhere = true;
            if cost <= RECOMPUTE_LIMIT_IN_MAPS {
                continue;
            }
            let kept = kept_for(i, items, costs);
            for k in kept {
                let item = &mut items[k as usize];
                kept_any |= !item.store;
                (item.store, item.elsewhere) = (true, true);
                costs[k as usize] = 0;
            }
            costs[i] = 0;
        }
        // A cheap expression that is not stored is computed again from its inputs.
        for i in (0..items.len()).rev() {
            if !items[i].elsewhere || items[i].store {
                continue;
            }
            for j in items[i].inputs.clone() {
                let input = &mut items[j as usize];
                input.elsewhere |=
                    input.value.is_none() && !constant[j as usize] && !input.node.op.is_tuple();
            }
        }
        kept_any
    }

    /// The references from functions with gradients of their own to each item: they keep their inputs and
    /// results for their gradient rules and are never computed themselves.
    fn references_of_tapes(&self) -> Vec<u32> {
        let mut references = vec![0; self.items.len()];
        let mut seen: SmallVec<[Arc<Node>; 4]> = SmallVec::new();
        for item in &self.items {
            let Op::TupleElement { .. } = item.node.op else { continue };
            let tuple = lock(&item.node.state).inputs.first().cloned();
            let Some(tuple) = tuple.filter(|tuple| matches!(tuple.op, Op::Custom(_))) else { continue };
            if seen.iter().any(|other| Arc::ptr_eq(other, &tuple)) {
                continue;
            }
            for input in &lock(&tuple.state).inputs {
                if let Some(place) = self.place(input) {
                    references[place as usize] += 1;
                }
            }
            seen.push(tuple);
        }
        references
    }

    /// Makes the readers of a function's result read the node that computes it, so that a function with a
    /// gradient of its own does not divide the kernels around it.
    fn see_through_functions(&mut self) {
        for i in 0..self.items.len() {
            let (before, rest) = self.items.split_at_mut(i);
            for input in rest[0].inputs.iter_mut() {
                let read = &before[*input as usize];
                if let (Op::TupleElement { .. }, None, &[computed]) =
                    (&read.node.op, &read.value, &read.inputs[..])
                    && !before[computed as usize].node.op.is_tuple()
                {
                    *input = computed;
                }
            }
        }
    }

    /// Writes everything that a plan depends on, and nothing else: scalars, seeds and buffers are left
    /// out.
    fn write_key(&mut self) {
        let key = &mut self.key;
        key.clear();
        // The source lines of gathers and their operations, in order of first occurrence: gathers of one line
        // share an input.
        let mut lines: SmallVec<[(Location, Option<&'static Refusal>); 4]> = SmallVec::new();
        for item in &self.items {
            let node = &item.node;
            let view = item.value.as_ref().and_then(|value| value.view.as_deref());
            let flags = u64::from(item.store)
                | u64::from(item.dies) << 1
                | u64::from(item.value.is_some()) << 2
                | u64::from(view.is_some()) << 3;
            let counts = (item.inputs.len() as u64) << 28
                | (node.shape.rank() as u64) << 48
                | u64::from(item.elsewhere) << 56;
            // It does not matter how a node that has its value was computed.
            let op = if item.value.is_some() { &Op::Leaf } else { &node.op };
            write_op(key, op, (node.dtype as u64) << 16 | flags << 24 | counts);
            key.extend(node.shape.iter().map(|&d| d as u64));
            if let Some(format) = item.value.as_ref().and_then(|value| value.format.as_deref()) {
                key.push(u64::MAX);
                blocks::write_key(key, format);
            }
            let pairs = item.inputs.chunks(2);
            key.extend(pairs.map(|p| u64::from(p[0]) | p.get(1).map_or(0, |&i| u64::from(i) << 32)));
            if let Some(layout) = view {
                write_layout(key, layout);
            }
            if let (Op::Gather { refusal, .. }, None) = (&node.op, &item.value) {
                let line = lines.iter().position(|&line| line == (node.location, *refusal));
                key.push(line.unwrap_or(lines.len()) as u64);
                if line.is_none() {
                    lines.push((node.location, *refusal));
                }
            }
        }
    }
}

/// The cost of computing an item again from values that stay, in additions; `u32::MAX` if that takes a kernel
/// which is no expression.
fn cost_again(item: &Item, items: &[Item], costs: &[u32]) -> u32 {
    let op = &item.node.op;
    if !op.is_view() && !op.is_elementwise() || may_copy(item, items) {
        return u32::MAX;
    }
    item.inputs.iter().fold(own_cost(op), |sum, &j| sum.saturating_add(costs[j as usize]))
}

/// The items to store for readers of item `i` outside of the evaluation: a view is computed again from its
/// costly input, and a cheap expression from smaller ones; all others are stored themselves.
fn kept_for(i: usize, items: &[Item], costs: &[u32]) -> SmallVec<[u32; 3]> {
    let item = &items[i];
    let (node, is_costly) = (&item.node, |&j: &u32| costs[j as usize] > RECOMPUTE_LIMIT_IN_MAPS);
    let costly: SmallVec<[u32; 3]> = item.inputs.iter().copied().filter(is_costly).collect();
    let is_smaller = |&j: &u32| items[j as usize].node.shape.numel() < node.shape.numel();
    let is_cheap = node.op.is_elementwise() && own_cost(&node.op) <= RECOMPUTE_LIMIT_IN_MAPS;
    let from_inputs = !costly.is_empty()
        && !costly.iter().any(|&j| items[j as usize].node.op.is_tuple())
        && (node.op.is_view() && !may_copy(item, items) || is_cheap && costly.iter().all(is_smaller));
    if from_inputs { costly } else { SmallVec::from_elem(i as u32, 1) }
}

/// Whether a view may turn out to be a copy: its input is a view whose strides the shape may not fit.
fn may_copy(item: &Item, items: &[Item]) -> bool {
    if !matches!(item.node.op, Op::Contiguous | Op::Reshape) {
        return false;
    }
    let input = &items[item.inputs[0] as usize];
    match &input.value {
        Some(value) => !value.is_contiguous(),
        None => input.node.op.is_view() && !matches!(input.node.op, Op::Reshape | Op::Contiguous),
    }
}

/// Marks the nodes of this evaluation that the gradient rule of a user's function will read, given one
/// of its results.
fn ask_for_tuple_inputs(result: &Node, epoch: u64, asked: &mut [bool]) {
    let tuple = lock(&result.state).inputs.first().cloned();
    let Some(tuple) = tuple.filter(|tuple| tuple.keeps_inputs()) else { return };
    let inputs = lock(&tuple.state).inputs.clone();
    let reads_results = !matches!(&tuple.op, Op::Custom(op) if !op.reads_results());
    let read = if reads_results { inputs.len() } else { inputs.len().saturating_sub(tuple.results()) };
    for input in &inputs[..read] {
        if input.epoch.load(Ordering::Relaxed) == epoch {
            asked[input.place.load(Ordering::Relaxed) as usize] = true;
        }
    }
}

/// The inputs of a tracked item that need gradients, a bit each.
fn wanted_inputs(items: &[Item], item: &Item) -> u32 {
    let tracked = |i: u32| items[i as usize].node.is_tracked();
    item.inputs.iter().enumerate().fold(0, |bits, (k, &i)| bits | u32::from(tracked(i)) << k.min(31))
}

/// Appends a layout to a key.
pub(super) fn write_layout(key: &mut Vec<u64>, layout: &Layout) {
    key.push(layout.offset() as u64);
    key.extend(layout.strides().iter().map(|&s| s as u64));
}

/// Appends an operation to a key, with those parameters that affect the plan. The upper six bytes of its
/// first word are `rest`.
pub(super) fn write_op(key: &mut Vec<u64>, op: &Op, rest: u64) {
    use Expression as E;
    use OtherOp as O;
    let first = key.len();
    key.push(0);
    let mut put = |numbers: &[usize]| key.extend(numbers.iter().map(|&n| n as u64));
    // The function of an operation that has several, and its flag.
    let kind = match op.class() {
        OpClass::Leaf => 0,
        OpClass::Expression(expression) => match expression {
            E::Random(kind) => kind as u64,
            E::Unary(op) => op as u64,
            E::Binary(op) => op as u64,
            E::Compare(op) => op as u64,
            E::Powi(n) => {
                key.push(n as u64);
                0
            }
            E::Formula(formula) => {
                key.push(formula.number());
                0
            }
            E::Full(_) | E::Arange(_) | E::Where | E::Cast => 0,
        },
        OpClass::View(view) => {
            match view {
                ViewOp::Permute(axes) => put(axes),
                ViewOp::Slice { axis, start, step } => put(&[axis, start, step as usize]),
                ViewOp::Unfold { axis, step, dilation } => put(&[axis, step, dilation]),
                ViewOp::TupleElement { index } => put(&[index]),
                ViewOp::Reshape | ViewOp::Expand | ViewOp::Contiguous => {}
            }
            0
        }
        OpClass::Tuple(TupleOp::Sort { axis, descending }) => {
            put(&[axis]);
            u64::from(descending)
        }
        OpClass::Tuple(TupleOp::Custom(_)) => 0,
        OpClass::Tuple(TupleOp::CustomKernel(kernel)) => {
            custom::write_key(key, kernel.as_ref());
            0
        }
        OpClass::Other(other) => match other {
            O::Reduce { op, axes, keepdim } => {
                put(&[axes.len()]);
                put(axes);
                op as u64 | u64::from(keepdim) << 7
            }
            O::ArgReduce { op, axis, keepdim } => {
                put(&[axis]);
                op as u64 | u64::from(keepdim) << 7
            }
            O::Cumulative { op, axis, reverse } => {
                put(&[axis]);
                op as u64 | u64::from(reverse) << 7
            }
            O::Scatter { op, axis } => {
                put(&[axis]);
                op as u64
            }
            O::Concat { axis } | O::Gather { axis } => {
                put(&[axis]);
                0
            }
            O::Pad(padding) => {
                put(&padding.before);
                put(&padding.interior);
                0
            }
            O::Contract(Subscripts { lhs, rhs, out }) => {
                put(&[lhs.len(), rhs.len(), out.len()]);
                key.extend([lhs, rhs, out].into_iter().flatten().map(|&label| u64::from(label)));
                0
            }
            O::ToDevice => 0,
        },
    };
    key[first] = op.number() | kind << 8 | rest;
}
