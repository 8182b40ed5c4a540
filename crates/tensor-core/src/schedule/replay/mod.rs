//! Compiled functions: a function runs once while everything that it does is captured, and later calls run
//! the plan of its operations again, without a graph.
//!
//! [`Replay::call`] tries the programs that it has, and captures the function if none fits. `program` runs a
//! captured function; `numbers` finds the constants of a part of a graph; `listing` gives a program as data.

mod constants;
mod listing;
mod numbers;
mod program;

use std::sync::{Arc, Weak};

use rustc_hash::{FxHashMap, FxHashSet};

use self::constants::MAX_CONSTANT_BYTES;
pub(crate) use self::numbers::has_own_constants;
use self::program::{Arguments, AssignedCell, Leaf, Made, Program, Source, StateOf, Varying, with_value};
pub use self::{
    listing::{BufferSource, ListedBuffer, ListedStep, ListedValue, PlanListing},
    numbers::GraphNumbers,
};
use super::{
    PlanCache, UNWATCHED, by_device,
    capture::{
        Assigned, Capture, Draw, Gradient, Guard, NotedState, RandomStream, UndoState, capture, is_capturing,
    },
    collect::{self, Item},
    computed, evaluate,
    execute::{self, Bound, Constants},
    pending,
    plan::{Plan, ScalarRef, Step, Target},
    plans, watch_flags,
};
use crate::{
    base::{
        error::{Error, ErrorKind, Result},
        sync::lock,
    },
    devices::device::Device,
    elements::{dtype::DType, scalar::Scalar},
    graph::{
        handle::Tensor,
        node::{BuiltNodes, Inputs, Node, Value, built_in, is_built_in, next_number},
        op::Op,
        trace::is_tracing,
    },
};

/// A function that is captured at its first call for arguments of one form, and run without a graph
/// afterwards. A `T` is kept with each form.
pub struct Replay<T> {
    /// The one that was used last is the last.
    programs: Vec<(Program, T)>,
    /// The forms of arguments for which the function cannot be compiled and runs as usual.
    refused: Vec<Arguments>,
    counts: ReplayCounts,
}

impl<T> Default for Replay<T> {
    fn default() -> Replay<T> {
        Replay { programs: Vec::new(), refused: Vec::new(), counts: ReplayCounts::default() }
    }
}

/// The kind of a call of a [`Replay`].
#[derive(Debug)]
pub enum Call<'a, T> {
    /// The function ran, and was captured.
    Captured,
    /// A program ran; what is kept with it.
    Replayed(&'a T),
    /// The function ran as usual; the reason, where it was about to be captured.
    Ran(Option<Error>),
}

/// The numbers of calls of a [`Replay`], by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayCounts {
    /// Calls that captured the function.
    pub captured: usize,
    /// Calls that ran a program.
    pub replayed: usize,
    /// Calls that ran the function itself.
    pub ran: usize,
}

/// The number of programs of one function, for arguments of various forms. The oldest goes first.
const MAX_PROGRAMS: usize = 64;

impl<T> std::fmt::Debug for Replay<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} programs, {:?}", self.programs.len(), self.counts)
    }
}

/// How a function is called.
#[derive(Clone, Copy, Debug)]
pub struct CallMode {
    /// Whether a function that cannot be compiled is an error; otherwise it runs as usual.
    pub strict: bool,
    /// The dtype to which operations cast their inputs.
    pub autocast: Option<DType>,
    /// Whether the caller records the results for gradients, if arguments are recorded.
    pub records: bool,
}

/// A function of tensors, which also makes what is kept with its program.
pub(crate) type Function<'a, T> = dyn FnMut(&[Tensor]) -> Result<(Vec<Tensor>, T)> + 'a;

/// The outcome of a capture.
enum Captured {
    /// The function was captured.
    Program(Box<Program>),
    /// It ran as usual, for this reason.
    Refused(Error),
}

impl<T> Replay<T> {
    /// The calls so far.
    #[must_use]
    pub fn counts(&self) -> ReplayCounts {
        self.counts
    }

    /// The program that ran last, as data, and what is kept with it.
    ///
    /// # Errors
    /// There is none yet; effects beside the results; numbers that differ from call to call.
    pub fn listing(&self) -> Result<(PlanListing, &T)> {
        match self.programs.last() {
            Some((program, kept)) => Ok((program.listing()?, kept)),
            None => Err(Error::invalid("ship", "the function has not been captured: call it once first")),
        }
    }

    /// Calls `f` with `inputs`, or repeats what it did. `f` also makes what is kept with its program.
    ///
    /// # Errors
    /// The errors of `f` and of the device, and what cannot be compiled. Nothing is changed then.
    pub fn call(
        &mut self,
        inputs: &[Tensor],
        mode: CallMode,
        f: &mut Function<'_, T>,
    ) -> Result<(Vec<Tensor>, Call<'_, T>)> {
        let mut kept = None;
        let mut run = |inputs: &[Tensor]| {
            let (results, keep) = f(inputs)?;
            kept = Some(keep);
            Ok(results)
        };
        // A part of another compiled function, of a checkpoint, of a function that is mapped or of an export;
        // or each operation is watched by itself.
        if is_capturing() || is_built_in() || is_tracing() || watch_flags::computes_each_operation() {
            self.counts.ran += 1;
            return Ok((run(inputs)?, Call::Ran(None)));
        }
        for refused in self.refused.iter().filter(|_| !mode.strict) {
            if refused.fit(inputs, mode.autocast)? {
                self.counts.ran += 1;
                return Ok((run(inputs)?, Call::Ran(None)));
            }
        }
        for at in (0..self.programs.len()).rev() {
            if let Some(results) = self.programs[at].0.call(inputs, mode.autocast)? {
                self.counts.replayed += 1;
                self.programs[at..].rotate_left(1);
                let (_, kept) = &self.programs[self.programs.len() - 1];
                return Ok((results, Call::Replayed(kept)));
            }
        }
        let kept_bytes: usize = self.programs.iter().map(|(program, _)| program.constant_bytes()).sum();
        let budget = MAX_CONSTANT_BYTES.saturating_sub(kept_bytes);
        let (results, captured) = capture_call(inputs, mode, budget, &mut run)?;
        match (captured, kept) {
            (Captured::Program(program), Some(kept)) => {
                if self.programs.len() >= MAX_PROGRAMS {
                    self.programs.remove(0);
                }
                self.programs.push((*program, kept));
                self.counts.captured += 1;
                Ok((results, Call::Captured))
            }
            (Captured::Refused(reason), _) => {
                if self.refused.len() >= MAX_PROGRAMS {
                    self.refused.remove(0);
                }
                self.refused.push(Arguments::of(inputs, mode.autocast)?);
                self.counts.ran += 1;
                Ok((results, Call::Ran(Some(reason))))
            }
            (Captured::Program(_), None) => Ok((results, Call::Ran(None))),
        }
    }
}

/// Runs the function once, as usual, and makes a program of what it did.
fn capture_call(
    inputs: &[Tensor],
    mode: CallMode,
    constant_bytes: usize,
    f: &mut dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>>,
) -> Result<(Vec<Tensor>, Captured)> {
    // Tensors that are pending from before the call are not a part of the function.
    pending::flush()?;
    let given = inputs.iter().map(as_leaf).collect::<Result<Vec<Tensor>>>()?;
    let (((results, mut capture), start), built) = built_in(|| {
        let start = next_number();
        (capture(mode.strict, || f(&given)), start)
    });
    let results = match results {
        Ok(results) => results,
        Err(error) => {
            Undo::new(capture).run(true);
            return Err(error);
        }
    };
    let refused = capture.refused.take();
    let function = Finished { inputs, given: &given, results: &results, built, start, mode, constant_bytes };
    let mut undo = None;
    let stopped = match refused.or_else(|| function.refuse(&capture)) {
        Some(reason) => {
            undo = Some(Undo::new(capture));
            Stopped::Refused(reason)
        }
        None => match function.program(capture, &mut undo) {
            Ok(program) => return Ok((results, Captured::Program(Box::new(program)))),
            Err(stopped) => stopped,
        },
    };
    match stopped {
        Stopped::Refused(reason) if !mode.strict => Ok((results, Captured::Refused(reason))),
        Stopped::Refused(error) | Stopped::Failed(error) => {
            undo.into_iter().for_each(|undo| undo.run(false));
            Err(error)
        }
        Stopped::BadIndex(error) => {
            undo.into_iter().for_each(|undo| undo.run(true));
            Err(error)
        }
    }
}

/// The reason for which there is no program.
enum Stopped {
    /// The function cannot be compiled; nothing was computed.
    Refused(Error),
    /// The computation failed.
    Failed(Error),
    /// The device has found a bad index after everything was computed.
    BadIndex(Error),
}

impl From<Error> for Stopped {
    fn from(error: Error) -> Stopped {
        Stopped::Failed(error)
    }
}

/// A tensor as a captured function sees an argument, or a tensor that it reads of a state of the host: a
/// computed leaf of its own, which is known by its node. A cell stays as it is.
///
/// # Errors
/// The errors of computing it.
pub fn as_leaf(input: &Tensor) -> Result<Tensor> {
    let value = computed(&input.node())?;
    if input.0.variable().is_some() {
        return Ok(input.clone());
    }
    Ok(with_value(&input.0, value, false))
}

/// The effects of a capture, to be undone if it fails.
struct Undo {
    cells: Vec<(Arc<Node>, Before)>,
    gradients: Vec<(Arc<Node>, Option<Tensor>)>,
    draws: Vec<Draw>,
    states: Vec<(Vec<Before>, UndoState)>,
}

/// A tensor from before the call.
enum Before {
    Held(Tensor),
    /// It is held by the graph alone, so that its last reader may overwrite its buffer.
    Released(Weak<Node>),
}

impl Before {
    fn get(&self) -> Option<Tensor> {
        match self {
            Before::Held(tensor) => Some(tensor.clone()),
            Before::Released(node) => node.upgrade().map(Tensor::from_node),
        }
    }

    /// Releases the tensor if `is_read` holds for its node.
    fn release(&mut self, is_read: &impl Fn(&Node) -> bool) {
        if let Before::Held(tensor) = self {
            let node = tensor.node();
            if is_read(&node) {
                *self = Before::Released(Arc::downgrade(&node));
            }
        }
    }
}

impl Undo {
    fn new(capture: Capture) -> Undo {
        let Capture { assigned, gradients, draws, states, .. } = capture;
        let cells = assigned.into_iter().map(|known| (known.cell, Before::Held(known.before)));
        let gradients = gradients.into_iter().filter(|known| known.replaced);
        let states = states.into_iter();
        Undo {
            cells: cells.collect(),
            gradients: gradients.map(|known| (known.cell, known.before)).collect(),
            draws,
            states: states.map(|s| (s.read.into_iter().map(Before::Held).collect(), s.undo)).collect(),
        }
    }

    /// Leaves the values that the graph reads to the graph.
    fn release(&mut self, is_read: impl Fn(&Node) -> bool) {
        let states = self.states.iter_mut().flat_map(|(tensors, _)| tensors);
        self.cells.iter_mut().map(|(_, before)| before).chain(states).for_each(|b| b.release(&is_read));
    }

    /// Gives cells, gradients, random numbers and states of the host back what they had before. Unless `all`,
    /// a cell that has a new value keeps it: the old one may have been overwritten.
    fn run(self, all: bool) {
        for (tensors, undo) in self.states {
            undo(tensors.iter().map(Before::get).collect(), all);
        }
        for (cell, before) in self.cells {
            let (Some(variable), Some(before)) = (cell.variable(), before.get()) else { continue };
            let mut present = lock(&variable.current);
            let old = (all || !present.0.has_value()).then(|| std::mem::replace(&mut *present, before));
            drop(present);
            drop(old);
        }
        for (cell, before) in self.gradients {
            let old = cell.variable().map(|v| std::mem::replace(&mut *lock(&v.grad), before));
            drop(old);
        }
        for draw in self.draws.iter().rev() {
            draw.stream.rewind(draw.first);
        }
    }
}

/// A function that was captured, before it is planned.
struct Finished<'a> {
    inputs: &'a [Tensor],
    /// The arguments that the function saw.
    given: &'a [Tensor],
    results: &'a [Tensor],
    built: BuiltNodes,
    /// All nodes that other threads began to build in the meantime have this number or a higher one.
    start: u64,
    mode: CallMode,
    /// The most bytes of constants that its program may keep.
    constant_bytes: usize,
}

/// The error of something that cannot be compiled, at a line.
fn refusal(node: &Node, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Capture { op: "compile", message: message.into() })
        .computing(node.op.name(), node.location)
}

impl Finished<'_> {
    /// Why the function cannot be compiled, if so.
    fn refuse(&self, capture: &Capture) -> Option<Error> {
        let is_recorded = |result: &&Tensor| {
            result.0.variable().is_none() && result.0.is_tracked() && !result.0.is_released()
        };
        if let Some(result) = self.results.iter().find(is_recorded) {
            return Some(refusal(
                &result.0,
                "a compiled function returns a tensor that is recorded for gradients, which later calls do not \
                 record: return it detached, compute the gradients inside of the function, or call it within no_grad",
            ));
        }
        let is_recorded = |input: &&Tensor| input.is_tracked() && !input.is_cell();
        if !self.mode.records
            && let Some(given) = self.inputs.iter().find(is_recorded)
        {
            return Some(refusal(
                &given.0,
                "an argument of a compiled function is recorded for gradients, which later calls do not record: \
                 detach it, or compute what it is made of inside of the function",
            ));
        }
        self.escaped(capture)
    }

    /// The error of a tensor that outlives the function in another way than as a result, the value of a cell,
    /// a gradient or a state.
    fn escaped(&self, capture: &Capture) -> Option<Error> {
        let known: FxHashSet<u64> = self.kept(capture).iter().map(|node| node.id).collect();
        let escaped = pending::find(|node| self.built.has(node.id) && !known.contains(&node.id));
        escaped.map(|node| {
            refusal(
                &node,
                "a tensor that a compiled function makes is held after it, and later calls would not change it: \
                 return it, or assign it to a cell (Tensor::into_cell)",
            )
        })
    }

    /// The nodes of everything that the function hands over.
    fn kept(&self, capture: &Capture) -> Vec<Arc<Node>> {
        let mut kept: Vec<Arc<Node>> = self.results.iter().map(Tensor::node).collect();
        for variable in capture.assigned.iter().filter_map(|known| known.cell.variable()) {
            kept.push(lock(&variable.current).0.clone());
        }
        for variable in capture.gradients.iter().filter_map(|known| known.cell.variable()) {
            kept.extend(lock(&variable.grad).as_ref().map(Tensor::node));
        }
        kept.extend(capture.states.iter().flat_map(|noted| &noted.made).map(Tensor::node));
        kept
    }

    /// Plans the function, computes its results, and makes the program of later calls. `undo` gets the
    /// effects.
    fn program(&self, mut capture: Capture, undo: &mut Option<Undo>) -> Result<Program, Stopped> {
        // Programs that run at the same time lock their states in one order.
        capture.states.sort_by_key(|noted| Arc::as_ptr(&noted.state).cast::<()>() as usize);
        let targets: Vec<Arc<Node>> =
            self.kept(&capture).into_iter().filter(|node| !node.has_value()).collect();
        let sources = Sources::new(self.given, &capture);
        let ends = Ends::new(self.results, &mut capture);
        let undo = undo.insert(Undo::new(capture));
        let groups = by_device(targets);
        if let Some(node) = groups.get(1).and_then(|group| group.first()) {
            let message = "a compiled function computes on one device, and this is on another one";
            return Err(Stopped::Refused(refusal(node, message)));
        }
        let mut bindings = match groups.first() {
            Some(targets) => self.plan_and_run(targets, &sources, undo)?,
            None => Bindings::default(),
        };
        let Ends { results, assigned, gradients, without_gradient, states: ends_of_states, draws, guards } =
            ends;
        let mut made = |node: &Arc<Node>| bindings.made(node, &sources);
        let outputs = self.results.iter().zip(&results).map(|(result, node)| match result.0.variable() {
            // A cell is returned as itself.
            Some(_) => Made { source: Source::Cell(result.0.clone()), node: result.0.clone() },
            None => made(node),
        });
        let outputs = outputs.collect();
        let assigned: Vec<_> = assigned.into_iter().map(|(cell, node)| (cell, made(&node))).collect();
        let gradients = gradients.iter().map(|(cell, node)| (cell.clone(), node.as_ref().map(&mut made)));
        let gradients = gradients.collect();
        let mut states = Vec::new();
        for EndState { noted, made: nodes } in ends_of_states {
            states.push(StateOf { made: nodes.iter().map(&mut made).collect(), ..noted });
        }
        let assigned = assigned.into_iter().map(|(cell, made)| {
            let value = Source::Cell(cell.clone());
            let leaf = bindings.leaves.iter().position(|leaf| leaf.source.is(&value));
            AssignedCell { cell, made, leaf }
        });
        let assigned = assigned.collect();
        let arguments = Arguments::of(self.inputs, self.mode.autocast)?;
        let Bindings { plan, nodes, leaves, leaf_of, varying, constants, .. } = bindings;
        Ok(Program {
            arguments,
            guards,
            plan,
            nodes,
            leaves,
            leaf_of,
            varying,
            constants,
            draws,
            outputs,
            assigned,
            gradients,
            without_gradient,
            states,
        })
    }

    /// Plans the pending results, and computes them.
    fn plan_and_run(
        &self,
        targets: &[Arc<Node>],
        sources: &Sources,
        undo: &mut Undo,
    ) -> Result<Bindings, Stopped> {
        let Some(device) = targets.first().map(|target| target.device.clone()) else {
            return Ok(Bindings::default());
        };
        // Constants that only the graph holds would be overwritten by their last readers.
        let mut constants: Vec<Arc<Node>> = Vec::new();
        // Tensors that other code built before the function, such as the first value of a parameter.
        let mut outside: Vec<Arc<Node>> = Vec::new();
        let mut read: FxHashSet<u64> = FxHashSet::default();
        look(&device, targets, |cache| {
            for Item { node, value, .. } in cache.collector.items() {
                let is_own = self.built.has(node.id);
                // A value that the function makes for a cell is not the one from before the call.
                let is_known = (value.is_some() || !is_own) && sources.find(node).is_some();
                let is_of_others = node.id >= self.start && !is_own;
                // The collector adds elements of a tuple that nothing reads; their tuple is looked at too.
                if is_of_others && value.is_none() && matches!(node.op, Op::TupleElement { .. }) {
                    continue;
                }
                if is_of_others && !is_known {
                    let message = "a compiled function reads a tensor that another thread made while it ran, and \
                                   later calls would not make it again: compute on one thread";
                    return Err(Stopped::Refused(refusal(node, message)));
                }
                if is_known {
                    read.insert(node.id);
                }
                match value {
                    Some(_) if is_known => {}
                    Some(_) => constants.push(node.clone()),
                    // Another call has another value, though this one is a constant, such as zeros.
                    None if is_known => outside.push(node.clone()),
                    // In place of a tuple, the elements that are read are evaluated.
                    None if !is_own && !node.op.is_source() && !node.op.is_tuple() => {
                        outside.push(node.clone())
                    }
                    None => {}
                }
            }
            Ok(())
        })?;
        evaluate(outside)?;
        undo.release(|node| read.contains(&node.id));
        let is_open = |node: &Arc<Node>| lock(&node.state).value.as_ref().is_some_and(|v| v.facts.is_open());
        let (bindings, replaced) = look(&device, targets, |cache| {
            let plan = cache.plan(&device, false)?;
            let items = cache.collector.items();
            let mut bindings = Bindings::new(&plan, &device, items, sources);
            let backend = device.backend().as_ref();
            let (leaves, varying, bytes) = (&bindings.leaves, &bindings.varying, self.constant_bytes);
            bindings.constants = constants::compute(&plan, leaves, varying, items, backend, bytes)?;
            execute::execute(&plan, &FirstRun(items, &bindings.constants), backend, UNWATCHED)?;
            // The values from before are kept until the device has checked all indices.
            let mut replaced: Vec<Arc<Node>> = Vec::new();
            if targets.iter().any(is_open) {
                replaced.extend(items.iter().filter(|item| item.dies).map(|item| item.node.clone()));
            }
            Ok((bindings, replaced))
        })?;
        if !replaced.is_empty() {
            for node in targets {
                let facts = lock(&node.state).value.as_ref().map(|value| value.facts.clone());
                let settled = facts.map_or(Ok(()), |facts| facts.settle(device.backend().as_ref()));
                settled.map_err(Stopped::BadIndex)?;
            }
        }
        drop((constants, replaced));
        Ok(bindings)
    }
}

/// The items of a captured function at its first run.
struct FirstRun<'a>(&'a [Item], &'a Constants);

impl Bound for FirstRun<'_> {
    fn node(&self, item: u32) -> &Arc<Node> {
        self.0.node(item)
    }

    fn value(&self, item: u32) -> Option<&Value> {
        self.0.value(item)
    }

    fn is_shared(&self, item: u32, is_unsure: bool) -> bool {
        // A bad index would leave nothing to go back to.
        is_unsure && self.0[item as usize].dies
    }

    fn scalar(&self, wanted: &ScalarRef) -> Scalar {
        self.0.scalar(wanted)
    }

    fn attach(&self, item: u32, value: Value) {
        self.0.attach(item, value);
    }

    fn constants(&self) -> Option<&Constants> {
        Some(self.1)
    }
}

/// The sources of the leaves of a captured function, by the ids of their nodes.
struct Sources {
    known: FxHashMap<u64, Source>,
    /// The draws: seed, first block, number of blocks.
    draws: Vec<(u64, u64, u64)>,
    /// The numbers of states, by the ids of the nodes that hold them.
    numbers: FxHashMap<u64, (u32, u32)>,
}

impl Sources {
    fn new(given: &[Tensor], capture: &Capture) -> Sources {
        let mut known = FxHashMap::default();
        let mut numbers = FxHashMap::default();
        for (s, noted) in capture.states.iter().enumerate() {
            for (k, tensor) in noted.read.iter().enumerate() {
                known.insert(tensor.node().id, Source::State(s as u32, k as u32));
            }
            numbers.extend(noted.numbers.iter().enumerate().map(|(k, &id)| (id, (s as u32, k as u32))));
        }
        for Gradient { cell, before, .. } in &capture.gradients {
            known.extend(before.as_ref().map(|before| (before.node().id, Source::Gradient(cell.clone()))));
        }
        for Assigned { cell, before } in &capture.assigned {
            known.insert(before.node().id, Source::Cell(cell.clone()));
        }
        for (k, input) in given.iter().enumerate() {
            known.insert(input.node().id, Source::Input(k as u32));
        }
        let draws = capture.draws.iter().map(|draw| (draw.seed, draw.first, draw.count)).collect();
        Sources { known, draws, numbers }
    }

    /// The source of a node with a value; none for a constant.
    fn find(&self, node: &Arc<Node>) -> Option<Source> {
        if let Some(source) = self.known.get(&node.id) {
            return Some(source.clone());
        }
        // The present value of a cell that the function does not assign.
        let cell = node.leaf.get().and_then(Weak::upgrade)?;
        let is_present = cell.variable().is_some_and(|v| Arc::ptr_eq(&lock(&v.current).0, node));
        is_present.then_some(Source::Cell(cell))
    }

    /// The number of a node that varies from call to call.
    fn varying(&self, node: &Node) -> Option<Varying> {
        if let Op::Random { seed, offset, .. } = node.op {
            let draws = |&(of, first, count): &(u64, u64, u64)| {
                of == seed && offset.wrapping_sub(first) < count.max(1)
            };
            let at = self.draws.iter().position(draws)?;
            return Some(Varying::Draw(at as u32, offset.wrapping_sub(self.draws[at].1)));
        }
        self.numbers.get(&node.id).map(|&(state, k)| Varying::State(state, k))
    }
}

/// The results and effects of a captured function, by nodes, without the values from before.
struct Ends {
    results: Vec<Arc<Node>>,
    assigned: Vec<(Arc<Node>, Arc<Node>)>,
    gradients: Vec<(Arc<Node>, Option<Arc<Node>>)>,
    without_gradient: Vec<Arc<Node>>,
    states: Vec<EndState>,
    draws: Vec<(Arc<dyn RandomStream>, u64)>,
    guards: Vec<Guard>,
}

struct EndState {
    /// The state, without what is made of it.
    noted: StateOf,
    made: Vec<Arc<Node>>,
}

impl Ends {
    fn new(results: &[Tensor], capture: &mut Capture) -> Ends {
        let Capture { assigned, gradients, draws, states, guards, .. } = capture;
        let assigned = assigned.iter().filter_map(|Assigned { cell, .. }| {
            let present = lock(&cell.variable()?.current).0.clone();
            Some((cell.clone(), present))
        });
        let without = gradients.iter().filter(|known| known.read && known.before.is_none());
        let without_gradient = without.map(|known| known.cell.clone()).collect();
        let gradients = gradients.iter().filter(|known| known.replaced).filter_map(|known| {
            let present = lock(&known.cell.variable()?.grad).as_ref().map(Tensor::node);
            Some((known.cell.clone(), present))
        });
        let states = states.iter().map(|NotedState { state, step, form, read, numbers, made, .. }| {
            let (tensors, numbers) = (read.len(), numbers.len());
            let (state, step, form) = (state.clone(), *step, *form);
            let noted = StateOf { state, step, form, tensors, numbers, made: Vec::new() };
            EndState { noted, made: made.iter().map(Tensor::node).collect() }
        });
        Ends {
            results: results.iter().map(Tensor::node).collect(),
            assigned: assigned.collect(),
            gradients: gradients.collect(),
            without_gradient,
            states: states.collect(),
            draws: draws.iter().map(|draw| (draw.stream.clone(), draw.count)).collect(),
            guards: std::mem::take(guards),
        }
    }
}

/// A plan with the sources of its leaves and numbers.
#[derive(Default)]
struct Bindings {
    plan: Option<(Arc<Plan>, Device)>,
    nodes: Vec<Arc<Node>>,
    leaves: Vec<Leaf>,
    leaf_of: Vec<u32>,
    varying: Vec<Option<Varying>>,
    constants: Constants,
    /// The items that the plan computes, by the ids of the captured nodes.
    items: FxHashMap<u64, u32>,
}

impl Bindings {
    fn new(plan: &Arc<Plan>, device: &Device, items: &[Item], sources: &Sources) -> Bindings {
        let mut leaf_of = vec![u32::MAX; items.len()];
        let mut leaves = Vec::with_capacity(plan.leaves.len());
        for &(at, _) in &plan.leaves {
            let item = &items[at as usize];
            let Some(value) = &item.value else { continue };
            leaf_of[at as usize] = leaves.len() as u32;
            let source = sources.find(&item.node).unwrap_or_else(|| Source::Fixed(value.clone()));
            leaves.push(Leaf::new(source, &item.node, value, item.dies));
        }
        let computed = items.iter().enumerate().filter(|(_, item)| item.value.is_none());
        Bindings {
            plan: Some((plan.clone(), device.clone())),
            nodes: items.iter().map(|item| outline(&item.node, item.value.is_some())).collect(),
            leaves,
            leaf_of,
            varying: items.iter().map(|item| sources.varying(&item.node)).collect(),
            constants: Constants::default(),
            items: computed.map(|(at, item)| (item.node.id, at as u32)).collect(),
        }
    }

    /// A result of the function: one that the plan computes, or a tensor from before the call.
    fn made(&mut self, node: &Arc<Node>, sources: &Sources) -> Made {
        let made = |source| Made { source, node: outline(node, false) };
        if let Some(&item) = self.items.get(&node.id) {
            return made(Source::Made(item));
        }
        // It was there before the call, or it has no elements that depend on the call.
        let Ok(value) = computed(node) else { return made(Source::Made(u32::MAX)) };
        let Some(source) = sources.find(node) else { return made(Source::Fixed(value)) };
        if !self.leaves.iter().any(|leaf| leaf.source.is(&source)) {
            self.leaves.push(Leaf::new(source.clone(), node, &value, false));
        }
        made(source)
    }
}

/// The node without its inputs and its value: its operation and line, for errors and records.
fn outline(node: &Node, is_leaf: bool) -> Arc<Node> {
    // A function with a gradient of its own is not computed, and may hold tensors.
    let op = if is_leaf || matches!(node.op, Op::Custom(_)) { Op::Leaf } else { node.op.clone() };
    let (shape, device) = (node.shape.clone(), node.device.clone());
    Arc::new(Node::new(op, shape, node.dtype, device, Inputs::new(), None, false, node.location))
}

/// The ids of the nodes that get buffers if the targets are computed together, on the first one's device.
pub(crate) fn stored(targets: &[Arc<Node>]) -> Result<FxHashSet<u64>> {
    let pending = targets.iter().filter(|node| !node.has_value()).cloned().collect();
    let mut stored = FxHashSet::default();
    let groups = by_device(pending);
    let Some(first) = groups.first() else { return Ok(stored) };
    let Some(device) = first.first().map(|node| node.device.clone()) else { return Ok(stored) };
    let looked = look(&device, first, |cache| {
        let plan = cache.plan(&device, false)?;
        let items = cache.collector.items();
        let targets = |step: &Step| {
            let node = |target: &Target| match target {
                Target::Node { item, .. } => Some(*item),
                Target::Slot(_) => None,
            };
            step.targets.iter().filter_map(node).collect::<Vec<u32>>()
        };
        for step in &plan.steps {
            let made = step.made.iter().chain(&step.stores).map(|store| store.item);
            stored.extend(made.chain(targets(step)).map(|item| items[item as usize].node.id));
        }
        stored.extend(plan.views.iter().map(|store| items[store.item as usize].node.id));
        Ok(())
    });
    match looked {
        Ok(()) => Ok(stored),
        Err(Stopped::Refused(error) | Stopped::Failed(error) | Stopped::BadIndex(error)) => Err(error),
    }
}

/// Calls `f` with the collected items of the targets, while the device is locked.
fn look<R>(
    device: &Device,
    targets: &[Arc<Node>],
    f: impl FnOnce(&mut PlanCache) -> Result<R, Stopped>,
) -> Result<R, Stopped> {
    let mut cache = lock(plans(device));
    let copies = cache.collector.collect(targets);
    let result = match copies.first() {
        Some(copy) => {
            let message = "a compiled function computes on one device, and this copies from another one: move \
                           tensors before they are passed to it";
            Err(Stopped::Refused(refusal(copy, message)))
        }
        None => f(&mut cache),
    };
    let spent = cache.collector.take();
    drop(cache);
    collect::discard(spent);
    pending::after_evaluation();
    result
}
