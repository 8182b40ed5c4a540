//! [`Program`]: the operations of a compiled function as a plan, with the sources of its leaves and the
//! destinations of its results. A call sets the leaves, runs the plan, and hands the results over; it builds
//! no graph.

use std::{
    cell::RefCell,
    sync::{Arc, Mutex, MutexGuard, atomic::Ordering},
};

use crate::{
    base::{
        error::{Error, ErrorKind, Result},
        shape::Shape,
        sync::lock,
    },
    devices::{defaults::default_dtype, device::Device},
    elements::{dtype::DType, scalar::Scalar},
    graph::{
        grad_mode::is_grad_enabled,
        handle::Tensor,
        node::{Inputs, Node, Value, View},
        op::Op,
    },
    kernels::blocks::{self, BlockFormat},
    schedule::{
        UNWATCHED,
        capture::{Guard, HostState, HostValues, RandomStream},
        computed,
        execute::{Bound, Constants, execute, scalar},
        plan::{Part, Plan, ScalarRef},
        plans,
    },
};

/// The source of a tensor that a call reads, returns or assigns.
#[derive(Clone)]
pub(super) enum Source {
    /// The argument with this number.
    Input(u32),
    /// The present value of a cell.
    Cell(Arc<Node>),
    /// The present gradient of a cell.
    Gradient(Arc<Node>),
    /// The tensor with the second number of a state of the host.
    State(u32, u32),
    /// A value that is the same at each call.
    Fixed(Value),
    /// The value that the plan gives to this item.
    Made(u32),
}

/// Everything of a value that a plan depends on.
struct Form {
    shape: Shape,
    dtype: DType,
    device: Device,
    view: View,
    format: Vec<u64>,
}

impl Form {
    fn of(node: &Node, value: &Value) -> Form {
        Form {
            shape: node.shape.clone(),
            dtype: node.dtype,
            device: node.device.clone(),
            view: value.view.clone(),
            format: format_key(value.format.as_deref()),
        }
    }

    fn fits(&self, node: &Node, value: &Value) -> bool {
        self.dtype == node.dtype
            && self.shape == node.shape
            && self.device == node.device
            && self.view == value.view
            && (self.format.is_empty() && value.format.is_none()
                || self.format == format_key(value.format.as_deref()))
    }
}

fn format_key(format: Option<&dyn BlockFormat>) -> Vec<u64> {
    let mut key = Vec::new();
    if let Some(format) = format {
        key.push(0);
        blocks::write_key(&mut key, format);
    }
    key
}

/// A leaf of the plan.
pub(super) struct Leaf {
    pub(super) source: Source,
    form: Form,
    /// Whether it is a cell that requires gradients.
    is_tracked: bool,
    /// Whether the plan may overwrite its buffer, because the call replaces the value.
    dies: bool,
}

/// A number that differs from call to call.
#[derive(Clone, Copy)]
pub(super) enum Varying {
    /// A draw, and the distance of the operation's first block from the draw's.
    Draw(u32, u64),
    /// A number of a state of the host.
    State(u32, u32),
}

/// A result of a call.
pub(super) struct Made {
    pub(super) source: Source,
    pub(super) node: Arc<Node>,
}

/// A cell that a call assigns.
pub(super) struct AssignedCell {
    pub(super) cell: Arc<Node>,
    pub(super) made: Made,
    /// The leaf that has its old value, if the call reads that.
    pub(super) leaf: Option<usize>,
}

/// A state of the host.
pub(super) struct StateOf {
    pub(super) state: Arc<Mutex<dyn HostState>>,
    pub(super) step: usize,
    pub(super) form: u64,
    pub(super) tensors: usize,
    pub(super) numbers: usize,
    pub(super) made: Vec<Made>,
}

/// The settings of a thread that operations depend on.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Settings {
    grad: bool,
    dtype: DType,
    autocast: Option<DType>,
}

impl Settings {
    fn present(autocast: Option<DType>) -> Settings {
        Settings { grad: is_grad_enabled(), dtype: default_dtype(), autocast }
    }
}

/// The form of a call: that of its arguments, and the settings of the thread.
pub(super) struct Arguments {
    settings: Settings,
    forms: Vec<Form>,
    /// Whether each is recorded for gradients.
    tracked: Vec<bool>,
}

impl Arguments {
    pub(super) fn of(inputs: &[Tensor], autocast: Option<DType>) -> Result<Arguments> {
        let form = |input: &Tensor| {
            let node = input.node();
            Ok(Form::of(&node, &computed(&node)?))
        };
        Ok(Arguments {
            settings: Settings::present(autocast),
            forms: inputs.iter().map(form).collect::<Result<_>>()?,
            tracked: inputs.iter().map(Tensor::is_tracked).collect(),
        })
    }

    /// The shape and the dtype of each.
    pub(super) fn shapes(&self) -> impl Iterator<Item = (&Shape, DType)> {
        self.forms.iter().map(|form| (&form.shape, form.dtype))
    }

    /// Whether the elements of an argument are not its buffer in row-major order.
    pub(super) fn is_view(&self, k: usize) -> bool {
        self.forms[k].view.is_some() || !self.forms[k].format.is_empty()
    }

    /// Whether these arguments have the form, under the present settings.
    pub(super) fn fit(&self, inputs: &[Tensor], autocast: Option<DType>) -> Result<bool> {
        if inputs.len() != self.forms.len() || self.settings != Settings::present(autocast) {
            return Ok(false);
        }
        for ((form, tracked), input) in self.forms.iter().zip(&self.tracked).zip(inputs) {
            let node = input.node();
            if *tracked != input.is_tracked() || !form.fits(&node, &computed(&node)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A captured function.
pub(super) struct Program {
    pub(super) arguments: Arguments,
    pub(super) guards: Vec<Guard>,
    /// The plan and its device, unless nothing is computed.
    pub(super) plan: Option<(Arc<Plan>, Device)>,
    /// The nodes of the plan's items, without inputs and values.
    pub(super) nodes: Vec<Arc<Node>>,
    /// The leaves of the plan, in order, and then further tensors from before the call that it returns.
    pub(super) leaves: Vec<Leaf>,
    /// For each item, its leaf; `u32::MAX` for none.
    pub(super) leaf_of: Vec<u32>,
    /// For each item, the number that varies.
    pub(super) varying: Vec<Option<Varying>>,
    /// The plan's values that are made of constants, computed once for all calls.
    pub(super) constants: Constants,
    pub(super) draws: Vec<(Arc<dyn RandomStream>, u64)>,
    pub(super) outputs: Vec<Made>,
    pub(super) assigned: Vec<AssignedCell>,
    pub(super) gradients: Vec<(Arc<Node>, Option<Made>)>,
    /// Cells that had no gradient when the function looked for one.
    pub(super) without_gradient: Vec<Arc<Node>>,
    pub(super) states: Vec<StateOf>,
}

/// A tensor that a leaf or a result reads, held while the plan runs.
pub(super) struct Held {
    tensor: Option<Tensor>,
    pub(super) value: Value,
}

/// A call of a program.
struct Call<'a> {
    program: &'a Program,
    leaves: Vec<Held>,
    /// For each leaf, its cell, if nothing else may read that while its buffer is overwritten.
    cells: Vec<Option<MutexGuard<'a, Tensor>>>,
    draws: Vec<(u64, u64)>,
    states: Vec<HostValues>,
    made: RefCell<Vec<Option<Value>>>,
}

impl Program {
    /// Calls the function; none if the program does not fit the arguments, the cells or the settings.
    pub(super) fn call(&self, inputs: &[Tensor], autocast: Option<DType>) -> Result<Option<Vec<Tensor>>> {
        if !self.arguments.fit(inputs, autocast)? || !self.fits() {
            return Ok(None);
        }
        let mut hosts: Vec<_> = self.states.iter().map(|known| lock(&known.state)).collect();
        let mut states = Vec::with_capacity(self.states.len());
        for (known, host) in self.states.iter().zip(&mut hosts) {
            let values = host.present(known.step)?;
            let is_known = values.form == known.form
                && values.tensors.len() == known.tensors
                && values.numbers.len() == known.numbers;
            if !is_known {
                return Ok(None);
            }
            states.push(values);
        }
        let mut leaves = Vec::with_capacity(self.leaves.len());
        for leaf in &self.leaves {
            let Some(held) = hold(&leaf.source, inputs, &states)? else { return Ok(None) };
            if !held.tensor.as_ref().is_none_or(|tensor| leaf.form.fits(&tensor.0, &held.value)) {
                return Ok(None);
            }
            leaves.push(held);
        }
        states.iter_mut().for_each(|state| state.tensors.clear());
        let draws = self.draws.iter().map(|(stream, count)| stream.take(*count)).collect();
        let made = RefCell::new(vec![None; self.nodes.len()]);
        let device = self.plan.as_ref().map(|(_, device)| device);
        // As in an evaluation, two threads never compute or overwrite the same buffer. Cells are locked after
        // the device, by all programs.
        let alone = device.map(|device| lock(plans(device)));
        let cells = self.leaves.iter().zip(&leaves).map(|(leaf, held)| leaf.alone(held)).collect();
        let mut call = Call { program: self, leaves, cells, draws, states, made };
        if let Err(error) = call.run() {
            call.save_overwritten();
            return Err(error);
        }
        let results = call.hand_over(&mut hosts)?;
        drop((call, alone, hosts));
        Ok(Some(results))
    }

    /// The bytes of what was computed of constants.
    pub(super) fn constant_bytes(&self) -> usize {
        self.constants.bytes()
    }

    /// Whether what the program depends on beside its arguments is as it was captured.
    fn fits(&self) -> bool {
        let has_gradient = |cell: &Arc<Node>| cell.variable().is_some_and(|v| lock(&v.grad).is_some());
        let is_tracked = |leaf: &Leaf| leaf.source.is_tracked() == leaf.is_tracked;
        self.guards.iter().all(|holds| holds())
            && !self.without_gradient.iter().any(has_gradient)
            && self.leaves.iter().all(is_tracked)
    }
}

impl Leaf {
    pub(super) fn new(source: Source, node: &Node, value: &Value, dies: bool) -> Leaf {
        Leaf { is_tracked: source.is_tracked(), source, form: Form::of(node, value), dies }
    }

    /// The lock of the cell whose value this is, if the plan may overwrite that.
    fn alone<'a>(&'a self, held: &Held) -> Option<MutexGuard<'a, Tensor>> {
        let Source::Cell(cell) = &self.source else { return None };
        let present = self.dies.then(|| cell.variable()).flatten().map(|variable| lock(&variable.current))?;
        held.tensor.as_ref().is_some_and(|tensor| Arc::ptr_eq(&tensor.0, &present.0)).then_some(present)
    }
}

/// The tensor of a source that exists before the call, with its value; none if it has no tensor now.
pub(super) fn hold(source: &Source, inputs: &[Tensor], states: &[HostValues]) -> Result<Option<Held>> {
    let tensor = match source {
        Source::Input(k) => inputs.get(*k as usize).map(Tensor::resolve),
        Source::Cell(cell) => cell.variable().map(|variable| lock(&variable.current).clone()),
        Source::Gradient(cell) => cell.variable().and_then(|variable| lock(&variable.grad).clone()),
        Source::State(state, k) => {
            states.get(*state as usize).and_then(|state| state.tensors.get(*k as usize)).map(Tensor::resolve)
        }
        Source::Fixed(value) => return Ok(Some(Held { tensor: None, value: value.clone() })),
        Source::Made(_) => None,
    };
    let Some(tensor) = tensor else { return Ok(None) };
    let value = computed(&tensor.0)?;
    Ok(Some(Held { tensor: Some(tensor), value }))
}

impl Bound for Call<'_> {
    fn node(&self, item: u32) -> &Arc<Node> {
        &self.program.nodes[item as usize]
    }

    fn value(&self, item: u32) -> Option<&Value> {
        self.leaves.get(self.program.leaf_of[item as usize] as usize).map(|held| &held.value)
    }

    fn is_shared(&self, item: u32, is_unsure: bool) -> bool {
        /// The references to a value that is about to be replaced: its owner's and the call's.
        const NODE: usize = 2;
        /// Its node's, the call's, and that of the plan's slot.
        const BUFFER: usize = 3;
        let at = self.program.leaf_of[item as usize] as usize;
        let (Some(leaf), Some(held)) = (self.program.leaves.get(at), self.leaves.get(at)) else {
            return false;
        };
        if !leaf.dies {
            return false;
        }
        // The states of the host are locked as a whole.
        let is_locked = matches!(leaf.source, Source::State(..)) || self.cells[at].is_some();
        let is_alone = held.tensor.as_ref().is_some_and(|tensor| {
            Arc::strong_count(&tensor.0) == NODE && Arc::strong_count(&held.value.storage) == BUFFER
        });
        is_unsure || !is_locked || !is_alone
    }

    fn scalar(&self, wanted: &ScalarRef) -> Scalar {
        let fixed = || scalar(wanted, &self.program.nodes[wanted.item as usize].op);
        let varied = match self.program.varying[wanted.item as usize] {
            None => return fixed(),
            Some(Varying::Draw(draw, distance)) => {
                let (seed, first) = self.draws[draw as usize];
                match wanted.part {
                    Part::Seed => Scalar::Int(seed as i64),
                    Part::Offset => Scalar::Int(first.wrapping_add(distance) as i64),
                    Part::Value | Part::Start | Part::Step | Part::Constant(_) => return fixed(),
                }
            }
            Some(Varying::State(state, k)) => match wanted.part {
                Part::Value => self.states[state as usize].numbers[k as usize],
                Part::Start | Part::Step | Part::Seed | Part::Offset | Part::Constant(_) => return fixed(),
            },
        };
        varied.cast(wanted.dtype)
    }

    fn attach(&self, item: u32, value: Value) {
        self.made.borrow_mut()[item as usize].get_or_insert(value);
    }

    fn constants(&self) -> Option<&Constants> {
        Some(&self.program.constants)
    }
}

impl Call<'_> {
    fn run(&self) -> Result<()> {
        match &self.program.plan {
            Some((plan, device)) => execute(plan, self, device.backend().as_ref(), UNWATCHED),
            None => Ok(()),
        }
    }

    /// The value of a result.
    fn result(&self, source: &Source) -> Result<Value> {
        let value = match source {
            Source::Made(item) => self.made.borrow().get(*item as usize).and_then(Option::clone),
            Source::Fixed(value) => Some(value.clone()),
            // A value from before the call, which is a leaf also if the plan does not read it.
            Source::Input(_) | Source::Cell(_) | Source::Gradient(_) | Source::State(..) => {
                let at = self.program.leaves.iter().position(|leaf| leaf.source.is(source));
                at.map(|at| self.leaves[at].value.clone())
            }
        };
        value.ok_or_else(|| {
            let message = "a result of a compiled function was not computed".into();
            Error::new(ErrorKind::Capture { op: "compile", message })
        })
    }

    fn tensor(&self, Made { source, node }: &Made) -> Result<Tensor> {
        if node.variable().is_some() {
            return Ok(Tensor::from_node(node.clone()));
        }
        Ok(with_value(node, self.result(source)?, false))
    }

    fn cell_value(&self, AssignedCell { cell, made, .. }: &AssignedCell) -> Result<Tensor> {
        let Made { source, node } = made;
        let tracked = cell.variable().is_some_and(|cell| cell.requires_grad.load(Ordering::Relaxed));
        let next = with_value(node, self.result(source)?, tracked);
        let _ = next.0.leaf.set(Arc::downgrade(cell));
        Ok(next)
    }

    /// Assigns the cells, the gradients and the states; returns the function's results.
    fn hand_over(&mut self, hosts: &mut [MutexGuard<'_, dyn HostState + 'static>]) -> Result<Vec<Tensor>> {
        let program = self.program;
        // Nothing is assigned before the device has checked all indices.
        let assigns = !(program.assigned.is_empty() && program.gradients.is_empty())
            || hosts.iter().any(|host| host.waits_for_checks());
        if let (true, Some((_, device))) = (assigns, &program.plan) {
            let made = self.made.borrow();
            let mut unsure = made.iter().flatten().filter(|value| value.facts.is_open());
            unsure.try_for_each(|value| value.facts.settle(device.backend().as_ref()))?;
        }
        let all = |made: &[Made]| made.iter().map(|made| self.tensor(made)).collect::<Result<Vec<_>>>();
        let outputs = all(&program.outputs)?;
        let states = program.states.iter().map(|state| all(&state.made)).collect::<Result<Vec<_>>>()?;
        let cells = program.assigned.iter().map(|assigned| self.cell_value(assigned));
        let cells = cells.collect::<Result<Vec<_>>>()?;
        let gradient = |made: &Option<Made>| made.as_ref().map(|made| self.tensor(made)).transpose();
        let gradients = program.gradients.iter().map(|(_, made)| gradient(made));
        let gradients = gradients.collect::<Result<Vec<_>>>()?;
        for (assigned, next) in program.assigned.iter().zip(cells) {
            self.replace(assigned, next);
        }
        for ((cell, _), next) in program.gradients.iter().zip(gradients) {
            let old = cell.variable().map(|cell| std::mem::replace(&mut *lock(&cell.grad), next));
            drop(old);
        }
        hosts.iter_mut().zip(states).for_each(|(host, tensors)| host.advance(tensors));
        Ok(outputs)
    }

    /// After a failure: cells whose old buffers were overwritten get the new values that these hold.
    fn save_overwritten(&mut self) {
        for assigned in &self.program.assigned {
            let Ok(new) = self.result(&assigned.made.source) else { continue };
            let is_overwritten =
                self.leaves.iter().any(|held| Arc::ptr_eq(&held.value.storage, &new.storage));
            if is_overwritten && let Ok(next) = self.cell_value(assigned) {
                self.replace(assigned, next);
            }
        }
    }

    /// Replaces the value of a cell.
    fn replace(&mut self, AssignedCell { cell, leaf, .. }: &AssignedCell, next: Tensor) {
        let locked = leaf.and_then(|leaf| self.cells[leaf].as_mut());
        let old = match (locked, cell.variable()) {
            (Some(present), _) => Some(std::mem::replace(&mut **present, next)),
            (None, Some(variable)) => Some(std::mem::replace(&mut *lock(&variable.current), next)),
            (None, None) => None,
        };
        drop(old);
    }
}

impl Source {
    /// Whether it is a cell that requires gradients.
    fn is_tracked(&self) -> bool {
        let Source::Cell(cell) = self else { return false };
        cell.variable().is_some_and(|cell| cell.requires_grad.load(Ordering::Relaxed))
    }

    /// Whether both are the same tensor.
    pub(super) fn is(&self, other: &Source) -> bool {
        match self {
            Source::Input(a) => matches!(other, Source::Input(b) if a == b),
            Source::Cell(a) => matches!(other, Source::Cell(b) if Arc::ptr_eq(a, b)),
            Source::Gradient(a) => matches!(other, Source::Gradient(b) if Arc::ptr_eq(a, b)),
            Source::State(a, i) => matches!(other, Source::State(b, j) if (a, i) == (b, j)),
            Source::Fixed(_) | Source::Made(_) => false,
        }
    }
}

/// A tensor with a value, in the form of a captured node.
pub(super) fn with_value(like: &Node, value: Value, tracked: bool) -> Tensor {
    let (shape, device, line) = (like.shape.clone(), like.device.clone(), like.location);
    Tensor::first(Node::new(Op::Leaf, shape, like.dtype, device, Inputs::new(), Some(value), tracked, line))
}
