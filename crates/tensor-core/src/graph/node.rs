//! The graph's nodes. A node has an [`Op`] with its inputs and, once computed, its value. Users hold
//! [`Tensor`]s, which are counted handles to nodes; the scheduler and autograd work on
//! nodes.

use std::{
    cell::{Cell, RefCell},
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
    },
};

use smallvec::SmallVec;

use crate::{
    base::{error::Result, location::Location, on_drop::OnDrop, shape::Shape, sync::lock},
    devices::{backend::Fill, device::Device},
    elements::dtype::DType,
    graph::{
        facts::{Bounds, Tickets, ValueInfo},
        handle::Tensor,
        op::{CustomOp, Op},
    },
    kernels::{blocks::BlockFormat, layout::Layout, storage::Storage},
};

/// The inputs of a node.
pub(crate) type Inputs = SmallVec<[Arc<Node>; 2]>;

/// The layout of a value in its buffer: `None` if row-major from the first element on, the usual case.
pub(crate) type View = Option<Arc<Layout>>;

/// Elements in memory: a buffer, what is known about its contents, and its layout for the node's shape.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) storage: Storage,
    pub(crate) facts: ValueInfo,
    pub(crate) view: View,
    /// The block format of the buffer, if its elements are in blocks.
    pub(crate) format: Option<Arc<dyn BlockFormat>>,
}

impl Value {
    /// The elements in `bytes`, uploaded in row-major order.
    pub(crate) fn upload(device: &Device, dtype: DType, bytes: &[u8]) -> Result<Value> {
        let storage = device.backend().upload(dtype, bytes)?;
        Ok(Value { storage, facts: ValueInfo::of_bytes(dtype, bytes), view: None, format: None })
    }

    /// Elements whose bytes `fill` writes, with known bounds of integers. See
    /// [`crate::Backend::upload_with`].
    pub(crate) fn upload_with(
        device: &Device,
        dtype: DType,
        numel: usize,
        bounds: Option<Bounds>,
        fill: &Fill<'_>,
    ) -> Result<Value> {
        let storage = device.backend().upload_with(dtype, numel, fill)?;
        Ok(Value { storage, facts: ValueInfo::new(bounds, Tickets::default()), view: None, format: None })
    }

    /// The layout for a node of this shape.
    pub(crate) fn layout(&self, shape: &Shape) -> Layout {
        self.view.as_deref().cloned().unwrap_or_else(|| Layout::contiguous(shape.clone()))
    }

    /// The buffer index of the first element.
    pub(crate) fn offset(&self) -> usize {
        self.view.as_ref().map_or(0, |layout| layout.offset())
    }

    /// Whether the buffer holds the elements themselves, in row-major order without gaps.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.format.is_none() && self.view.as_ref().is_none_or(|layout| layout.is_contiguous())
    }
}

/// The mutable part of a node: it gains a value, and then drops its inputs unless a tape needs them.
pub(crate) struct State {
    pub(crate) inputs: Inputs,
    pub(crate) value: Option<Value>,
}

pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) op: Op,
    pub(crate) dtype: DType,
    flags: AtomicU8,
    /// The number of `Tensor`s that users hold on this node, without the graph's own references; a new
    /// node has one.
    pub(crate) handles: AtomicU32,
    pub(crate) shape: Shape,
    pub(crate) device: Device,
    pub(crate) location: Location,
    pub(crate) state: Mutex<State>,
    /// Lock-free flag: `state` has its value. Never cleared.
    computed: AtomicBool,
    /// Scratch space of the current evaluation on this node's device: the evaluation's number, and the
    /// node's position in its order.
    pub(crate) epoch: AtomicU64,
    pub(crate) place: AtomicU32,
    /// The variable whose value this node is or was; gradients that reach this node accumulate there.
    pub(crate) leaf: OnceLock<Weak<Node>>,
    /// Data that only few nodes have.
    pub(crate) extra: Option<Box<Extra>>,
}

/// Data of the two kinds of nodes that have no value of their own.
pub(crate) enum Extra {
    /// The outer node of a variable.
    Variable(Variable),
    /// An operation with several results.
    Tuple(Tuple),
}

/// The results of an operation with several. The elements hold this node, so it refers to them weakly.
pub(crate) struct Tuple {
    pub(crate) elements: Box<[Element]>,
}

/// One result of an operation with several.
pub(crate) struct Element {
    pub(crate) shape: Shape,
    pub(crate) dtype: DType,
    pub(super) state: Mutex<ElementState>,
}

#[derive(Default)]
pub(super) struct ElementState {
    /// The result's node, while it lives.
    pub(super) node: Weak<Node>,
    /// The value, if the tuple's gradient rule reads it; it outlives the node.
    pub(super) kept: Option<Value>,
}

impl Tuple {
    pub(crate) fn new(results: &[(Shape, DType)]) -> Tuple {
        let element = |(shape, dtype): &(Shape, DType)| Element {
            shape: shape.clone(),
            dtype: *dtype,
            state: Mutex::default(),
        };
        Tuple { elements: results.iter().map(element).collect() }
    }

    /// Whether no result's node is still without a value.
    fn is_settled(&self) -> bool {
        self.elements.iter().all(|element| {
            let node = lock(&element.state).node.upgrade();
            node.is_none_or(|node| node.has_value())
        })
    }
}

/// A cell whose value can be replaced: a parameter, or a buffer of a module.
pub(crate) struct Variable {
    pub(crate) current: Mutex<Tensor>,
    pub(crate) requires_grad: AtomicBool,
    /// Whether gradients are or were requested: a frozen parameter stays a parameter.
    pub(crate) parameter: AtomicBool,
    pub(crate) grad: Mutex<Option<Tensor>>,
}

const TRACKED: u8 = 1;
const RELEASED: u8 = 2;

/// A number that no other node has. Threads take numbers in blocks, because an atomic operation per node
/// would cost as much as the rest of its construction.
fn next_id() -> u64 {
    let mut id = OWN.get();
    if id.is_multiple_of(BLOCK) {
        id = NEXT.fetch_add(1, Ordering::Relaxed) * BLOCK;
        note_block(id / BLOCK);
    }
    OWN.set(id + 1);
    id
}

/// A lower bound of the numbers of all nodes that this thread builds from now on.
pub(crate) fn next_number() -> u64 {
    match OWN.get() {
        own if own.is_multiple_of(BLOCK) => NEXT.load(Ordering::Relaxed) * BLOCK,
        own => own,
    }
}

const BLOCK: u64 = 1 << 10;
static NEXT: AtomicU64 = AtomicU64::new(1);
thread_local! {
    /// The next number of the thread's block; a multiple of the block size means that a new block is
    /// needed.
    static OWN: Cell<u64> = const { Cell::new(0) };
    /// The nesting depth of [`built_in`] on this thread, and the blocks taken since the outermost call
    /// began.
    static BUILT_IN: Cell<u32> = const { Cell::new(0) };
    static BLOCKS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

#[cold]
fn note_block(block: u64) {
    if BUILT_IN.get() > 0 {
        BLOCKS.with_borrow_mut(|blocks| blocks.push(block));
    }
}

/// The nodes that one thread built while a function ran.
pub(crate) struct BuiltNodes {
    /// The blocks of their numbers, ascending.
    blocks: Vec<u64>,
}

impl BuiltNodes {
    pub(crate) fn has(&self, id: u64) -> bool {
        self.blocks.binary_search(&(id / BLOCK)).is_ok()
    }
}

/// Runs `f`, and returns the nodes that this thread built in it.
pub(crate) fn built_in<R>(f: impl FnOnce() -> R) -> (R, BuiltNodes) {
    struct Running;
    impl Drop for Running {
        fn drop(&mut self) {
            // Nodes built from here on get numbers of a new block.
            OWN.set(0);
            BUILT_IN.set(BUILT_IN.get() - 1);
            if BUILT_IN.get() == 0 {
                BLOCKS.take();
            }
        }
    }
    let first = BLOCKS.with_borrow(Vec::len);
    OWN.set(0);
    BUILT_IN.set(BUILT_IN.get() + 1);
    let running = Running;
    let result = f();
    let blocks = BLOCKS.with_borrow(|blocks| blocks[first..].to_vec());
    drop(running);
    (result, BuiltNodes { blocks })
}

/// Whether this thread is inside [`built_in`].
pub(crate) fn is_built_in() -> bool {
    BUILT_IN.get() > 0
}

impl Node {
    #[allow(clippy::too_many_arguments)] // one constructor, called from two places
    pub(crate) fn new(
        op: Op,
        shape: Shape,
        dtype: DType,
        device: Device,
        inputs: Inputs,
        value: Option<Value>,
        tracked: bool,
        location: Location,
    ) -> Node {
        // Kernels rely on this. Operations that enlarge a shape have checked it before, with an error
        // for the user.
        assert!(shape.fits(), "{}: shape {shape} was not checked", op.name());
        Node {
            id: next_id(),
            op,
            dtype,
            flags: AtomicU8::new(if tracked { TRACKED } else { 0 }),
            handles: AtomicU32::new(1),
            shape,
            device,
            location,
            computed: AtomicBool::new(value.is_some()),
            state: Mutex::new(State { inputs, value }),
            epoch: AtomicU64::new(0),
            place: AtomicU32::new(0),
            leaf: OnceLock::new(),
            extra: None,
        }
    }

    pub(crate) fn variable(&self) -> Option<&Variable> {
        match self.extra.as_deref()? {
            Extra::Variable(variable) => Some(variable),
            Extra::Tuple(_) => None,
        }
    }

    pub(crate) fn tuple(&self) -> Option<&Tuple> {
        match self.extra.as_deref()? {
            Extra::Variable(_) => None,
            Extra::Tuple(tuple) => Some(tuple),
        }
    }

    /// The number of results of the operation.
    pub(crate) fn results(&self) -> usize {
        self.tuple().map_or(1, |tuple| tuple.elements.len())
    }

    /// Keeps the value of result `k`, if the gradient rule reads it.
    fn keep(&self, k: usize, value: &Value) {
        let Some(element) = self.tuple().and_then(|tuple| tuple.elements.get(k)) else { return };
        if self.keeps_inputs() && self.op.saved(u32::MAX).results >> k.min(31) & 1 == 1 {
            lock(&element.state).kept = Some(value.clone());
        }
    }

    pub(crate) fn is_tracked(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & TRACKED != 0
    }

    /// Whether a backward pass consumed this node: its inputs are dropped as soon as it has its value.
    pub(crate) fn is_released(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & RELEASED != 0
    }

    /// Whether the node keeps its inputs after it is computed.
    pub(crate) fn keeps_inputs(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & (TRACKED | RELEASED) == TRACKED
    }

    /// Marks the node as consumed by a backward pass.
    pub(crate) fn claim(&self) {
        self.flags.fetch_or(RELEASED, Ordering::Relaxed);
    }

    /// Drops the tape at this node.
    pub(crate) fn release(&self) {
        self.claim();
        let gone = match self.tuple() {
            None => {
                let mut state = lock(&self.state);
                if state.value.is_some() { std::mem::take(&mut state.inputs) } else { Inputs::new() }
            }
            Some(tuple) => {
                // Either this sees the last element's value, or the `attach` there sees that this was
                // released.
                fence(Ordering::SeqCst);
                // The elements of a user's function get their values independently.
                let settled = matches!(self.op, Op::Custom(_)) || tuple.is_settled();
                if settled { std::mem::take(&mut lock(&self.state).inputs) } else { Inputs::new() }
            }
        };
        let kept: SmallVec<[Option<Value>; 2]> = match self.tuple() {
            Some(tuple) => tuple.elements.iter().map(|e| lock(&e.state).kept.take()).collect(),
            None => SmallVec::new(),
        };
        drop((gone, kept));
    }

    pub(crate) fn has_value(&self) -> bool {
        self.computed.load(Ordering::Acquire)
    }

    pub(crate) fn held(&self) -> bool {
        self.handles.load(Ordering::Relaxed) > 0
    }

    /// Gives the node its value, unless another thread did so first, and drops the inputs if no tape
    /// needs them.
    pub(crate) fn attach(&self, value: Value) {
        let tuple = if let Op::TupleElement { index, .. } = self.op {
            let tuple = lock(&self.state).inputs.first().cloned();
            if let Some(tuple) = &tuple {
                tuple.keep(index, &value);
            }
            tuple
        } else {
            None
        };
        let gone = {
            let mut state = lock(&self.state);
            if state.value.is_none() {
                state.value = Some(value);
                self.computed.store(true, Ordering::Release);
            }
            if self.keeps_inputs() { Inputs::new() } else { std::mem::take(&mut state.inputs) }
        };
        drop(gone);
        if let Some(tuple) = tuple {
            fence(Ordering::SeqCst);
            if tuple.is_released() {
                // The tuple may have waited only for this value.
                tuple.release();
            }
        }
    }
}

/// A long chain is dropped in a loop: the default recursion would overflow the stack.
impl Drop for Node {
    fn drop(&mut self) {
        let mut stack = Inputs::new();
        let mut deferred = self.dismantle(&mut stack);
        while let Some(next) = stack.pop() {
            if let Some(mut last) = Arc::into_inner(next) {
                deferred |= last.dismantle(&mut stack);
            }
        }
        if deferred {
            drop_deferred();
        }
    }
}

/// Parts of a node that hold further tensors and whose drop is not a node's own.
#[expect(dead_code, reason = "held only to be dropped")]
enum Deferred {
    /// A variable with its value and its gradient, or a tuple with kept values.
    Extra(Box<Extra>),
    /// A user's function, with everything that it holds.
    Function(Arc<dyn CustomOp>),
}

thread_local! {
    static DEFERRED: RefCell<Vec<Deferred>> = const { RefCell::new(Vec::new()) };
    /// Whether a call further up the stack is already dropping them.
    static DROPPING: Cell<bool> = const { Cell::new(false) };
}

impl Node {
    /// Moves the inputs to `inputs`, and other parts that lead to further nodes to the thread's list;
    /// returns whether there were any.
    fn dismantle(&mut self, inputs: &mut Inputs) -> bool {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        inputs.append(&mut state.inputs);
        let function = if matches!(self.op, Op::Custom(_))
            && let Op::Custom(function) = std::mem::replace(&mut self.op, Op::Leaf)
        {
            Some(Deferred::Function(function))
        } else {
            None
        };
        let found = self.extra.take().map(Deferred::Extra).into_iter().chain(function);
        // While the thread exits, the list may already be destroyed; the parts are then dropped here.
        found.fold(false, |_, part| DEFERRED.try_with(|list| list.borrow_mut().push(part)).is_ok())
    }
}

/// Drops the parts in the list, one after the other, in the outermost call: a chain through gradients or
/// through the fields of functions may be as long as any other.
fn drop_deferred() {
    if DROPPING.replace(true) {
        return;
    }
    let _outermost = OnDrop::new(|| DROPPING.set(false));
    while let Ok(Some(part)) = DEFERRED.try_with(|list| list.borrow_mut().pop()) {
        drop(part);
    }
}
