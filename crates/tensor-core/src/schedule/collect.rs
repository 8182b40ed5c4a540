//! The waiting part of a graph in topological order, what each node must leave behind, and a key of its form.

use std::{
    cell::RefCell,
    panic::Location,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering, fence},
    },
};

use smallvec::SmallVec;

use crate::{
    base::sync::lock,
    graph::{
        node::{Inputs, Node, Value},
        op::Op,
    },
    kernels::{blocks, custom, layout::Layout},
};

/// Places of nodes in the order.
type Places = SmallVec<[u32; 3]>;

/// A node of the evaluation under way: one that waits, or a computed one that it reads.
pub(crate) struct Item {
    pub(crate) node: Arc<Node>,
    /// Places of the inputs in the order; none for a computed node.
    pub(crate) inputs: Places,
    /// The value, of a node that has one.
    pub(crate) value: Option<Value>,
    /// Whether the node must have its value afterwards.
    pub(crate) store: bool,
    /// Whether nobody can reach the node afterwards: a computed one's buffer may be overwritten by its last
    /// reader.
    pub(crate) dies: bool,
}

#[derive(Default)]
pub(crate) struct Collector {
    items: Vec<Item>,
    key: Vec<u64>,
    frames: Vec<Frame>,
    /// Copies from other devices that are yet to be made.
    copies: Vec<Arc<Node>>,
    epoch: u64,
    /// Scratch of `decide_what_stays`, kept for its memory.
    edges: Vec<u32>,
    let_go: Vec<bool>,
    asked: Vec<bool>,
    /// Whether each item is a number that waits, or a view of one.
    constant: Vec<bool>,
}

thread_local! {
    /// The memory of the last evaluation's items, for the next.
    static SPARE: RefCell<Vec<Item>> = const { RefCell::new(Vec::new()) };
}

/// Drops the items of a finished evaluation, and keeps their list's memory.
pub(crate) fn discard(mut items: Vec<Item>) {
    items.clear();
    if items.capacity() <= 1 << 14 {
        SPARE.set(items);
    }
}

/// A node whose inputs are gone through.
struct Frame {
    node: Arc<Node>,
    /// Those still to come.
    inputs: smallvec::IntoIter<[Arc<Node>; 2]>,
    places: Places,
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

    /// The items, for dropping outside the device's lock.
    pub(crate) fn take(&mut self) -> Vec<Item> {
        std::mem::replace(&mut self.items, SPARE.take())
    }

    /// Brings into order what the targets wait for. Gives the copies from other devices that are to be made
    /// before it can be planned.
    pub(crate) fn collect(&mut self, targets: &[Arc<Node>]) -> Vec<Arc<Node>> {
        // None is ever used twice: 32 bits of them last for hours.
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
            self.write_key();
        }
        copies
    }

    /// The node's place in the order, if it was met in this evaluation.
    fn place(&self, node: &Node) -> Option<u32> {
        (node.epoch.load(Ordering::Relaxed) == self.epoch).then(|| node.place.load(Ordering::Relaxed))
    }

    /// Puts a node next in the order.
    fn push(&mut self, node: Arc<Node>, inputs: Places, value: Option<Value>) -> u32 {
        let place = self.items.len() as u32;
        node.epoch.store(self.epoch, Ordering::Relaxed);
        node.place.store(place, Ordering::Relaxed);
        self.items.push(Item { node, inputs, value, store: false, dies: false });
        place
    }

    /// Depth first, in a loop: a chain may be millions long. Gives the place of the root.
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

    /// A node with inputs that wait is entered with a frame; any other goes straight into the order.
    fn enter(&mut self, node: Arc<Node>) -> Entry {
        let state = lock(&node.state);
        if let Some(value) = state.value.clone() {
            drop(state);
            return Entry::Placed(self.push(node, Places::new(), Some(value)));
        }
        if let Op::ToDevice = node.op {
            drop(state);
            self.copies.push(node.clone());
            return Entry::Placed(self.push(node, Places::new(), None));
        }
        let inputs = if let Op::TupleElement { .. } = node.op {
            // Where the result was computed by other operations, the tuple is the tape's business.
            &state.inputs[state.inputs.len().saturating_sub(1)..]
        } else {
            &state.inputs[..]
        };
        let mut places = Places::new();
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

    /// Puts a node that waits in the order, after its inputs. All results of a tuple follow it: one kernel
    /// makes them.
    fn finish(&mut self, node: Arc<Node>, inputs: Places) -> u32 {
        if let Some(place) = self.place(&node) {
            // A result, which came with its tuple.
            return place;
        }
        let tuple = node.tuple().map(|tuple| (node.clone(), tuple.elements.len()));
        let place = self.push(node, inputs, None);
        if let Some((node, results)) = tuple {
            for k in 0..results {
                self.push(node.waiting_element(k), Places::from_iter([place]), None);
            }
        }
        place
    }

    /// The place of a node that has its value or is made from nothing; none for one with inputs to go through
    /// first.
    fn enter_source(&mut self, node: &Arc<Node>) -> Option<u32> {
        let value = match node.has_value() {
            true => lock(&node.state).value.clone(),
            false if node.op.is_source() => None,
            false => return None,
        };
        Some(self.push(node.clone(), Places::new(), value))
    }

    /// From the consumers down: who must keep a value, and who is gone afterwards.
    fn decide_what_stays(&mut self) {
        let n = self.items.len();
        let (edges, let_go, asked, constant) =
            (&mut self.edges, &mut self.let_go, &mut self.asked, &mut self.constant);
        // Numbers that wait, and views of them: handles on them take no memory until their value is asked
        // for.
        constant.clear();
        for item in &self.items {
            let op = &item.node.op;
            let is_constant = matches!(op, Op::Full(_))
                || op.is_view() && item.inputs.first().is_some_and(|&j| constant[j as usize]);
            constant.push(is_constant && item.value.is_none());
        }
        edges.clear();
        edges.resize(n, 0);
        // Whether every reader of a node lets go of it, and whether a gradient rule will ask for it.
        let_go.clear();
        let_go.resize(n, true);
        asked.clear();
        asked.resize(n, false);
        for item in &self.items {
            for &input in &item.inputs {
                edges[input as usize] += 1;
            }
        }
        for i in (0..n).rev() {
            let item = &self.items[i];
            let held = item.node.held();
            let elsewhere = Arc::strong_count(&item.node) > 1 + edges[i] as usize;
            // The caller's own reference to a target counts as one elsewhere.
            let dies = !item.store && !held && !elsewhere && let_go[i];
            if let Some(value) = &item.value {
                // Another thread that reads the value holds the node, then the buffer, and lets go of them in
                // that order: with the fences, who sees the first gone sees the second held, or its reads
                // done.
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
            let item = &mut self.items[i];
            item.store = store;
            item.dies = dies;
        }
    }

    /// Everything that a plan depends on, and nothing else: scalars, seeds and buffers stay out.
    fn write_key(&mut self) {
        let key = &mut self.key;
        key.clear();
        // Where gathers come from, in the order of their first: loads at indices of one line share an input.
        let mut lines: SmallVec<[&'static Location<'static>; 4]> = SmallVec::new();
        for item in &self.items {
            let node = &item.node;
            let view = item.value.as_ref().and_then(|value| value.view.as_deref());
            let flags = u64::from(item.store)
                | u64::from(item.dies) << 1
                | u64::from(item.value.is_some()) << 2
                | u64::from(view.is_some()) << 3;
            let counts = (item.inputs.len() as u64) << 28 | (node.shape.rank() as u64) << 48;
            // How something that has its value was computed is all the same.
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
                let line = lines.iter().position(|&line| line == node.location).unwrap_or_else(|| {
                    lines.push(node.location);
                    lines.len() - 1
                });
                key.push((line as u64) << 1 | u64::from(refusal.is_some()));
            }
        }
    }
}

/// What the rule of a user's function will ask for, of the nodes in this evaluation, given one of its
/// results.
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

/// Which inputs of a tracked item want gradients, a bit each.
fn wanted_inputs(items: &[Item], item: &Item) -> u32 {
    let tracked = |i: u32| items[i as usize].node.is_tracked();
    item.inputs.iter().enumerate().fold(0, |bits, (k, &i)| bits | u32::from(tracked(i)) << k.min(31))
}

/// How a buffer is read, in words.
pub(super) fn write_layout(key: &mut Vec<u64>, layout: &Layout) {
    key.push(layout.offset() as u64);
    key.extend(layout.strides().iter().map(|&s| s as u64));
}

/// The operation in words: which, with those parameters that shape the plan. The first word's upper six bytes
/// are `rest`.
pub(super) fn write_op(key: &mut Vec<u64>, op: &Op, rest: u64) {
    let mut word = |code: u64, kind: u64| key.push(code | kind << 8 | rest);
    match op {
        Op::Leaf => word(0, 0),
        Op::Full(_) => word(1, 0),
        Op::Arange(_) => word(2, 0),
        Op::Random { kind, .. } => word(3, *kind as u64),
        Op::Unary(op) => word(4, *op as u64),
        Op::Powi(n) => {
            word(5, 0);
            key.push(*n as u64);
        }
        Op::Formula(formula) => {
            word(29, 0);
            key.push(formula.code());
        }
        Op::Binary(op) => word(6, *op as u64),
        Op::Compare(op) => word(7, *op as u64),
        Op::Where => word(8, 0),
        Op::Cast => word(9, 0),
        Op::Reshape => word(10, 0),
        Op::Permute(axes) => {
            word(11, 0);
            key.extend(axes.iter().map(|&a| a as u64));
        }
        Op::Expand => word(12, 0),
        Op::Slice { axis, start, step } => {
            word(13, 0);
            key.extend([*axis as u64, *start as u64, *step as u64]);
        }
        Op::Concat { axis } => {
            word(14, 0);
            key.push(*axis as u64);
        }
        Op::Pad(padding) => {
            word(15, 0);
            key.extend(padding.before.iter().chain(&padding.interior).map(|&v| v as u64));
        }
        Op::Reduce { op, axes, keepdim } => {
            word(16, *op as u64 | u64::from(*keepdim) << 7);
            key.push(axes.len() as u64);
            key.extend(axes.iter().map(|&a| a as u64));
        }
        Op::ArgReduce { op, axis, keepdim } => {
            word(17, *op as u64 | u64::from(*keepdim) << 7);
            key.push(*axis as u64);
        }
        Op::Contract(subscripts) => {
            word(18, 0);
            let lists = [&subscripts.lhs, &subscripts.rhs, &subscripts.out];
            key.extend(lists.iter().map(|list| list.len() as u64));
            key.extend(lists.iter().flat_map(|list| list.iter().map(|&label| u64::from(label))));
        }
        Op::Unfold { axis, step, dilation } => {
            word(26, 0);
            key.extend([*axis as u64, *step as u64, *dilation as u64]);
        }
        Op::Gather { axis, .. } => {
            word(19, 0);
            key.push(*axis as u64);
        }
        Op::Scatter { op, axis } => {
            word(20, *op as u64);
            key.push(*axis as u64);
        }
        Op::ToDevice => word(21, 0),
        Op::Custom(_) => word(22, 0),
        Op::Contiguous => word(27, 0),
        Op::CustomKernel(kernel) => {
            word(28, 0);
            custom::write_key(key, kernel.as_ref());
        }
        Op::Cumulative { op, axis, reverse } => {
            word(23, *op as u64 | u64::from(*reverse) << 7);
            key.push(*axis as u64);
        }
        Op::Sort { axis, descending } => {
            word(24, u64::from(*descending));
            key.push(*axis as u64);
        }
        Op::TupleElement { index, .. } => word(25, *index as u64),
    }
}
