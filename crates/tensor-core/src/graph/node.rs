//! The graph's nodes. A node knows how it was made (an [`Op`] and its inputs) and, once computed, its value.
//! Users hold [`Tensor`](crate::Tensor)s, which are counted handles on nodes; the scheduler and autograd work
//! on nodes.

use std::{
    cell::{Cell, RefCell},
    panic::Location,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence},
    },
};

use smallvec::SmallVec;

use crate::{
    base::{error::Result, shape::Shape, sync::lock},
    devices::{backend::Fill, device::Device},
    elements::dtype::DType,
    graph::{
        facts::{Bounds, Facts, Tickets},
        handle::Tensor,
        memory_log,
        op::{CustomOp, Op},
    },
    kernels::{blocks::BlockFormat, layout::Layout, storage::Storage},
};

/// The inputs of a node.
pub(crate) type Inputs = SmallVec<[Arc<Node>; 2]>;

/// How a buffer is read: `None` for row-major from its first element on, as nearly all are.
pub(crate) type View = Option<Arc<Layout>>;

/// Elements in memory: a buffer, what is known of its contents, and how its node's shape lies in it.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) storage: Storage,
    pub(crate) facts: Facts,
    pub(crate) view: View,
    /// How the buffer's bytes hold the elements, where they are in blocks.
    pub(crate) format: Option<Arc<dyn BlockFormat>>,
}

impl Value {
    /// The elements in `bytes`, uploaded in row-major order.
    pub(crate) fn upload(device: &Device, dtype: DType, bytes: &[u8]) -> Result<Value> {
        let storage = device.backend().upload(dtype, bytes)?;
        Ok(Value { storage, facts: Facts::of_bytes(dtype, bytes), view: None, format: None })
    }

    /// Elements whose bytes `fill` brings, with the bounds that integers are known to have. See
    /// [`crate::Backend::upload_with`].
    pub(crate) fn upload_with(
        device: &Device,
        dtype: DType,
        numel: usize,
        bounds: Option<Bounds>,
        fill: &Fill<'_>,
    ) -> Result<Value> {
        let storage = device.backend().upload_with(dtype, numel, fill)?;
        Ok(Value { storage, facts: Facts::new(bounds, Tickets::default()), view: None, format: None })
    }

    /// The layout, of a node of this shape.
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

/// What changes in a node's life: it gains a value, and then (unless a tape needs them) forgets its inputs.
pub(crate) struct State {
    pub(crate) inputs: Inputs,
    pub(crate) value: Option<Value>,
}

pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) op: Op,
    pub(crate) dtype: DType,
    flags: AtomicU8,
    /// How many `Tensor`s a user holds on this node, apart from the graph's own references: one when it is
    /// made.
    pub(crate) handles: AtomicU32,
    pub(crate) shape: Shape,
    pub(crate) device: Device,
    pub(crate) location: &'static Location<'static>,
    pub(crate) state: Mutex<State>,
    /// Whether `state` has its value, which never goes again: to be asked without the lock.
    computed: AtomicBool,
    /// Scratch of the evaluation under way on this node's device: its number, and the node's place in its
    /// order.
    pub(crate) epoch: AtomicU64,
    pub(crate) place: AtomicU32,
    /// The variable whose value this node is or was; gradients that arrive here accumulate there.
    pub(crate) leaf: OnceLock<Weak<Node>>,
    /// What few nodes have.
    pub(crate) extra: Option<Box<Extra>>,
}

/// What few nodes have: neither kind is ever computed itself.
pub(crate) enum Extra {
    /// The outer node of a variable.
    Variable(Variable),
    /// An operation with several results.
    Tuple(Tuple),
}

/// The results of an operation with several. Its elements hold the node, so that they are known here by weak
/// references.
pub(crate) struct Tuple {
    pub(crate) elements: Box<[Element]>,
}

/// One result of an operation with several.
pub(crate) struct Element {
    pub(crate) shape: Shape,
    pub(crate) dtype: DType,
    state: Mutex<ElementState>,
}

#[derive(Default)]
struct ElementState {
    /// The one node of this result, while there is one.
    node: Weak<Node>,
    /// The value, where the tuple's gradient rule reads it: it outlives the node.
    kept: Option<Value>,
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

    /// Whether no node of a result still waits.
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
    /// Whether gradients are or were wanted: a parameter stays one while it is frozen.
    pub(crate) parameter: AtomicBool,
    pub(crate) grad: Mutex<Option<Tensor>>,
}

const TRACKED: u8 = 1;
const RELEASED: u8 = 2;

/// A number that no other node has. Threads take them in blocks: an atomic for each would cost as much as the
/// rest.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut id = OWN.get();
    if id.is_multiple_of(BLOCK) {
        id = NEXT.fetch_add(1, Ordering::Relaxed) * BLOCK;
        note_block(id / BLOCK);
    }
    OWN.set(id + 1);
    id
}

const BLOCK: u64 = 1 << 10;
thread_local! {
    /// The next number of the thread's block; a multiple of the block's size where it needs a new one.
    static OWN: Cell<u64> = const { Cell::new(0) };
    /// Calls of [`built_in`] under way on this thread, and the blocks taken since the outermost began.
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
    /// The blocks that their numbers are of, ascending.
    blocks: Vec<u64>,
}

impl BuiltNodes {
    pub(crate) fn has(&self, id: u64) -> bool {
        self.blocks.binary_search(&(id / BLOCK)).is_ok()
    }
}

/// Runs `f`, and tells which nodes this thread built in it.
pub(crate) fn built_in<R>(f: impl FnOnce() -> R) -> (R, BuiltNodes) {
    struct Running;
    impl Drop for Running {
        fn drop(&mut self) {
            // What is built from here on is in a block of its own.
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

/// Whether [`built_in`] runs a function on this thread.
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
        location: &'static Location<'static>,
    ) -> Node {
        // What a kernel may rely on. Operations that make a shape larger have asked before, with an error for
        // the user.
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

    /// How many results the operation has.
    pub(crate) fn results(&self) -> usize {
        self.tuple().map_or(1, |tuple| tuple.elements.len())
    }

    /// The node of result `k` of this tuple; a new one, which no user holds yet, where the last is gone. Any
    /// other node is its own only result.
    pub(crate) fn element(self: &Arc<Node>, k: usize) -> Arc<Node> {
        let Some(tuple) = self.tuple() else { return self.clone() };
        let element = &tuple.elements[k];
        let mut state = lock(&element.state);
        state.node.upgrade().unwrap_or_else(|| {
            let node = Arc::new(self.new_element(element, k, state.kept.clone()));
            memory_log::note(&node);
            state.node = Arc::downgrade(&node);
            node
        })
    }

    /// The node that result `k` of this tuple's kernel goes to: that of the result, if it waits, or one that
    /// nobody will find.
    pub(crate) fn waiting_element(self: &Arc<Node>, k: usize) -> Arc<Node> {
        let node = self.element(k);
        match self.tuple() {
            Some(tuple) if node.has_value() => Arc::new(self.new_element(&tuple.elements[k], k, None)),
            _ => node,
        }
    }

    fn new_element(self: &Arc<Node>, element: &Element, k: usize, value: Option<Value>) -> Node {
        let mut inputs = Inputs::from_iter([self.clone()]);
        let mut device = self.device.clone();
        if let Op::Custom(_) = self.op {
            // Gone once a backward pass used the function up; nobody asks for elements then.
            let own = lock(&self.state).inputs.clone();
            let results = self.tuple().map_or(0, |tuple| tuple.elements.len());
            if let Some(result) = own.get((own.len() + k).saturating_sub(results)) {
                device = result.device.clone();
                inputs.push(result.clone());
            }
        }
        let op = Op::TupleElement { of: self.op.name(), index: k };
        let tracked = self.is_tracked() && element.dtype.is_float();
        let (shape, dtype) = (element.shape.clone(), element.dtype);
        let node = Node::new(op, shape, dtype, device, inputs, value, tracked, self.location);
        node.handles.store(0, Ordering::Relaxed);
        node
    }

    /// Keeps the value of result `k` for the gradient rule, if that reads it.
    fn keep(&self, k: usize, value: &Value) {
        let Some(element) = self.tuple().and_then(|tuple| tuple.elements.get(k)) else { return };
        if self.keeps_inputs() && self.op.saved(u32::MAX).results >> k.min(31) & 1 == 1 {
            lock(&element.state).kept = Some(value.clone());
        }
    }

    pub(crate) fn is_tracked(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & TRACKED != 0
    }

    /// Whether a backward pass used this node up: its inputs go as soon as its value is there.
    pub(crate) fn is_released(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & RELEASED != 0
    }

    /// Whether the node keeps its inputs once computed.
    pub(crate) fn keeps_inputs(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & (TRACKED | RELEASED) == TRACKED
    }

    /// Marks the node as used up by a backward pass.
    pub(crate) fn claim(&self) {
        self.flags.fetch_or(RELEASED, Ordering::Relaxed);
    }

    /// Gives up the tape at this node.
    pub(crate) fn release(&self) {
        self.claim();
        let gone = match self.tuple() {
            None => {
                let mut state = lock(&self.state);
                if state.value.is_some() { std::mem::take(&mut state.inputs) } else { Inputs::new() }
            }
            Some(tuple) => {
                // Either this sees the last element's value, or `attach` there sees that this was released.
                fence(Ordering::SeqCst);
                // Elements of a user's function have their values from elsewhere.
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

    /// Gives the node its value, unless another thread was first, and forgets the inputs where no tape needs
    /// them.
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
                // It may have waited for this one.
                tuple.release();
            }
        }
    }
}

/// A long chain is dropped in a loop: the default would recurse once a node and overflow the stack.
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

/// What holds further tensors, and is dropped by code that is not a node's.
#[expect(dead_code, reason = "held only to be dropped")]
enum Deferred {
    /// Of a variable, with its value and its gradient; or of a tuple, with values that were kept.
    Extra(Box<Extra>),
    /// With whatever a user's function holds.
    Function(Arc<dyn CustomOp>),
}

thread_local! {
    static DEFERRED: RefCell<Vec<Deferred>> = const { RefCell::new(Vec::new()) };
    /// Whether a call further down the stack is dropping them.
    static DROPPING: Cell<bool> = const { Cell::new(false) };
}

impl Node {
    /// Moves the inputs to `inputs`, and what else leads on to other nodes to the thread's list; says whether
    /// there was any.
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
        // Where the thread is at its end the list is gone already, and they are dropped here.
        found.fold(false, |_, part| DEFERRED.try_with(|list| list.borrow_mut().push(part)).is_ok())
    }
}

/// Drops what the list holds, one after the other, in the outermost call: a chain through gradients or
/// through the fields of functions may be as long as any other.
fn drop_deferred() {
    struct Outermost;
    impl Drop for Outermost {
        fn drop(&mut self) {
            DROPPING.set(false);
        }
    }
    if DROPPING.replace(true) {
        return;
    }
    let _outermost = Outermost;
    while let Ok(Some(part)) = DEFERRED.try_with(|list| list.borrow_mut().pop()) {
        drop(part);
    }
}
