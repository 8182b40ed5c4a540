//! Runs a plan: allocates, launches, gives values to their nodes, and releases buffers after their last
//! use.

use std::sync::{Arc, atomic::Ordering};

use smallvec::SmallVec;

use super::{
    Progress,
    bounds::{self, Given},
    collect::Item,
    failure::{blame, refusal},
    interrupt::goes_on,
    pending,
    plan::{Output, Part, Plan, ScalarRef, Step, Store, Target},
};
use crate::{
    base::error::Result,
    devices::backend::{Backend, Upcoming},
    elements::scalar::Scalar,
    graph::{
        facts::{Tickets, ValueInfo},
        memory_log,
        node::{Node, Value},
        op::Op,
    },
    kernels::{kernel::Body, launch::Launch, storage::Storage, ticket::Ticket},
    schedule::watch,
};

/// A buffer, and what is known about its contents.
pub(super) type Content = (Storage, ValueInfo);

/// The nodes and values that a plan runs on, by their positions in the order: those of an evaluation, or
/// those of a call of a compiled function.
pub(super) trait Bound {
    /// The node: its operation, for errors and records.
    fn node(&self, item: u32) -> &Arc<Node>;
    /// The value that the node had before the run.
    fn value(&self, item: u32) -> Option<&Value>;
    /// Whether the buffer of a value must not be overwritten, although the plan would reuse it. `is_unsure`
    /// holds after a launch whose indices the device has not checked yet.
    fn is_shared(&self, item: u32, is_unsure: bool) -> bool;
    /// A number of the node's operation.
    fn scalar(&self, wanted: &ScalarRef) -> Scalar;
    /// Gives the node its value.
    fn attach(&self, item: u32, value: Value);
    /// The steps that need not run.
    fn constants(&self) -> Option<&Constants> {
        None
    }
}

/// Steps of a plan that compute the same at each run, and what the other steps read of them, by slots.
#[derive(Default)]
pub(super) struct Constants {
    /// Whether each step is one of them; empty if none is.
    pub(super) steps: Vec<bool>,
    pub(super) slots: Vec<(u32, Content)>,
}

impl Constants {
    fn has(&self, step: usize) -> bool {
        self.steps.get(step) == Some(&true)
    }

    pub(super) fn bytes(&self) -> usize {
        let size = |(_, (storage, _)): &(u32, Content)| storage.numel() * storage.dtype().size();
        self.slots.iter().map(size).sum()
    }
}

impl Bound for [Item] {
    fn node(&self, item: u32) -> &Arc<Node> {
        &self[item as usize].node
    }

    fn value(&self, item: u32) -> Option<&Value> {
        self[item as usize].value.as_ref()
    }

    fn is_shared(&self, _: u32, _: bool) -> bool {
        // The plan was made for these nodes.
        false
    }

    fn scalar(&self, wanted: &ScalarRef) -> Scalar {
        scalar(wanted, &self[wanted.item as usize].node.op)
    }

    /// Gives a node its value. One that only pending nodes hold counts towards the bytes at which these are
    /// computed.
    fn attach(&self, item: u32, value: Value) {
        let item = &self[item as usize];
        if item.elsewhere {
            pending::note_bytes(value.storage.numel() * value.storage.dtype().size());
        }
        item.node.attach(value);
    }
}

/// The state of a run.
struct Run<'a, B: ?Sized> {
    plan: &'a Plan,
    bound: &'a B,
    backend: &'a dyn Backend,
    slots: Vec<Option<Content>>,
    /// Slots whose buffers must not be overwritten.
    shared: SmallVec<[u32; 2]>,
    /// Slots whose buffers must not be overwritten once a launch's indices may turn out to be bad.
    shared_if_unsure: SmallVec<[u32; 2]>,
}

pub(super) fn execute<B: Bound + ?Sized>(
    plan: &Plan,
    bound: &B,
    backend: &dyn Backend,
    progress: Progress<'_>,
) -> Result<()> {
    prepare(plan, backend);
    let mut slots = with_leaves(plan, bound);
    let (mut shared, mut shared_if_unsure) = (SmallVec::new(), SmallVec::new());
    for &(item, slot) in &plan.leaves {
        if bound.is_shared(item, false) {
            shared.push(slot);
        } else if bound.is_shared(item, true) {
            shared_if_unsure.push(slot);
        }
    }
    for store in &plan.views {
        // The leaves have the first slots, in order.
        let leaf = plan.leaves.get(store.slot as usize).and_then(|&(item, _)| bound.value(item));
        let format = leaf.and_then(|leaf| leaf.format.clone());
        if let Some((storage, facts)) = slots[store.slot as usize].clone() {
            let value = Value { storage, facts, view: store.view.clone(), format };
            bound.attach(store.item, value);
        }
    }
    let constants = bound.constants();
    for (slot, content) in constants.iter().flat_map(|constants| &constants.slots) {
        slots[*slot as usize] = Some(content.clone());
        shared.push(*slot);
    }
    let mut run = Run { plan, bound, backend, slots, shared, shared_if_unsure };
    for (at, step) in plan.steps.iter().enumerate() {
        if constants.is_some_and(|constants| constants.has(at)) {
            continue;
        }
        if let Err(error) = goes_on().and_then(|()| run.step(step)) {
            // Computed outputs that still exist are kept, so that another attempt resumes from here. A
            // buffer that the failing kernel was to overwrite may be partly overwritten.
            for output in &step.outputs {
                if let Output::Reused { input } = *output {
                    run.slots[step.inputs[input as usize] as usize] = None;
                }
            }
            for done in &plan.steps[..at] {
                done.made.iter().for_each(|store| run.hand_over(store));
            }
            return Err(blame(bound.node(step.origin), error));
        }
        progress();
    }
    Ok(())
}

/// The slots of a plan, with the buffers of its leaves.
fn with_leaves<B: Bound + ?Sized>(plan: &Plan, bound: &B) -> Vec<Option<Content>> {
    let mut slots: Vec<Option<Content>> = vec![None; plan.slots];
    for &(item, slot) in &plan.leaves {
        slots[slot as usize] = bound.value(item).map(|v| (v.storage.clone(), v.facts.clone()));
    }
    slots
}

/// Runs the steps for which `steps` says so, which read nothing that another one makes, and returns them with
/// the outputs that are `wanted`, by slots. Neither these nor a leaf is overwritten.
pub(super) fn constants<B: Bound + ?Sized>(
    plan: &Plan,
    bound: &B,
    backend: &dyn Backend,
    steps: Vec<bool>,
    wanted: &[bool],
) -> Result<Constants> {
    if !steps.contains(&true) {
        return Ok(Constants::default());
    }
    // One of these steps may be the last reader of what another step reads as well, before it in order.
    let outputs = (0..).zip(wanted).filter(|(_, is_wanted)| **is_wanted).map(|(slot, _)| slot);
    let shared = plan.leaves.iter().map(|(_, slot)| *slot).chain(outputs).collect();
    let slots = with_leaves(plan, bound);
    let mut run = Run { plan, bound, backend, slots, shared, shared_if_unsure: SmallVec::new() };
    let mut slots = Vec::new();
    for (step, _) in plan.steps.iter().zip(&steps).filter(|(_, is_chosen)| **is_chosen) {
        goes_on().and_then(|()| run.step(step)).map_err(|error| blame(bound.node(step.origin), error))?;
        let kept = |target: &Target| match target {
            Target::Slot(slot) if wanted[*slot as usize] => Some((*slot, run.slots[*slot as usize].clone()?)),
            Target::Slot(_) | Target::Node { .. } => None,
        };
        slots.extend(step.targets.iter().filter_map(kept));
    }
    Ok(Constants { steps, slots })
}

/// Gives the kernels of a new plan to the backend before the first one runs, except those that may report
/// bad indices: only their launches know whether they have to.
fn prepare(plan: &Plan, backend: &dyn Backend) {
    if plan.steps.len() < 2 || plan.prepared.swap(true, Ordering::Relaxed) {
        return;
    }
    let steps = plan.steps.iter().filter(|step| !step.empty && !step.shared.may_fail);
    let upcoming = steps.map(|step| {
        let output = |slot: &u32| {
            let reuses = |output: &Output| match *output {
                Output::Reused { input } => step.inputs[input as usize] == *slot,
                Output::Fresh { .. } => false,
            };
            step.outputs.iter().position(reuses)
        };
        let shared = step.inputs.iter().map(output).collect();
        Upcoming { kernel: &step.shared.kernel, compiled: &step.shared.compiled, shared }
    });
    backend.prepare(&upcoming.collect::<Vec<_>>());
}

/// The tickets of a launch's own operands, each with the operand's number.
type OwnTickets = SmallVec<[(usize, Arc<Ticket>); 1]>;

/// The tickets of a launch. `gather` gives the gather node that an operand read at indices implements.
fn tickets<'a>(
    step: &Step,
    given: Given<'_>,
    node: &'a Node,
    gather: impl Fn(usize) -> &'a Node,
) -> Result<OwnTickets> {
    let kernel = &step.shared.kernel;
    let mut tickets = SmallVec::new();
    if step.empty || !step.shared.may_fail {
        return Ok(tickets);
    }
    for indexed in kernel.indexed_operands() {
        let node = gather(indexed.operand);
        let ticket = Ticket::of_indices(kernel, indexed, node.op.name(), node.location);
        let ticket = ticket.refusing(refusal(node));
        if !bounds::are_in_range(kernel, indexed, given, |index| ticket.error(index))? {
            tickets.push((indexed.operand, Arc::new(ticket)));
        }
    }
    let custom = Ticket::of_custom(kernel, node.op.name(), node.location);
    tickets.extend(custom.map(|ticket| (0, Arc::new(ticket))));
    Ok(tickets)
}

/// The inputs of a launch, with what is known about each, and its numbers.
pub(super) struct LaunchInputs<'a> {
    pub(super) inputs: &'a [Storage],
    pub(super) facts: &'a [ValueInfo],
    pub(super) scalars: &'a [Scalar],
}

/// Allocates a kernel's outputs and launches it on behalf of `node`. An input for which `is_shared` holds is
/// not overwritten. `gather` is as in [`tickets`].
pub(super) fn launch<'a>(
    step: &Step,
    LaunchInputs { inputs, facts, scalars }: LaunchInputs<'_>,
    is_shared: impl Fn(u32) -> bool,
    (node, gather): (&'a Node, impl Fn(usize) -> &'a Node),
    backend: &dyn Backend,
) -> Result<SmallVec<[Content; 2]>> {
    let kernel = &step.shared.kernel;
    let numels: SmallVec<[usize; 4]> = inputs.iter().map(|input| input.numel()).collect();
    let given = Given { facts, numels: &numels, scalars };
    let own = tickets(step, given, node, gather)?;
    let mut outputs: SmallVec<[Storage; 2]> = SmallVec::with_capacity(step.outputs.len());
    for (output, made) in step.outputs.iter().zip(&kernel.outputs) {
        outputs.push(match *output {
            Output::Fresh { dtype, numel } => backend.allocate(dtype, numel)?,
            Output::Reused { input } if is_shared(input) => backend.allocate(made.dtype, made.stored())?,
            Output::Reused { input } => inputs[input as usize].clone(),
        });
    }
    if !step.empty {
        let compiled = &step.shared.compiled;
        let launch = Launch { kernel, compiled, scalars, inputs, outputs: &outputs, tickets: &own };
        if cfg!(debug_assertions) {
            launch.check()?;
        }
        watch::run(&launch, node, backend)?;
    }
    let known = !own.is_empty() || facts.iter().any(|facts| !facts.is_nothing());
    let all = || own.iter().map(|(_, ticket)| Arc::clone(ticket));
    let tickets = if known { Tickets::of_launch(facts, all()) } else { Tickets::default() };
    let mut made: SmallVec<[Content; 2]> = SmallVec::with_capacity(outputs.len());
    for (o, storage) in outputs.into_iter().enumerate() {
        if tickets.is_empty() && !storage.dtype().is_int() {
            // As for nearly all values, nothing is known about it.
            made.push((storage, ValueInfo::default()));
            continue;
        }
        let bounds = bounds::of_output(kernel, o, storage.dtype(), given);
        // Each of several results that are computed together carries only the tickets that it depends on.
        let has_program = matches!(kernel.body, Body::Map(_) | Body::Rows { .. } | Body::Contract(Some(_)));
        let tickets = if has_program && !tickets.is_empty() && kernel.outputs.len() > 1 {
            let read = kernel.operands_of(o);
            let own = own.iter().filter(|(operand, _)| read[*operand]);
            Tickets::of_launch(
                facts.iter().zip(&read).filter(|(_, read)| **read).map(|(f, _)| f),
                own.map(|(_, ticket)| Arc::clone(ticket)),
            )
        } else {
            tickets.clone()
        };
        made.push((storage, ValueInfo::new(bounds, tickets)));
    }
    Ok(made)
}

impl<B: Bound + ?Sized> Run<'_, B> {
    fn step(&mut self, step: &Step) -> Result<()> {
        let mut inputs: SmallVec<[Storage; 4]> = SmallVec::with_capacity(step.inputs.len());
        let mut facts: SmallVec<[ValueInfo; 4]> = SmallVec::with_capacity(step.inputs.len());
        for &slot in &step.inputs {
            if let Some((storage, known)) = &self.slots[slot as usize] {
                inputs.push(storage.clone());
                facts.push(known.clone());
            }
        }
        debug_assert_eq!(inputs.len(), step.inputs.len());
        let scalars: SmallVec<[Scalar; 4]> = step.scalars.iter().map(|s| self.bound.scalar(s)).collect();
        let node = self.bound.node(step.origin);
        let gather = |operand: usize| {
            let found = step.gathers.iter().find(|(of, _)| usize::from(*of) == operand);
            found.map_or(&**node, |&(_, item)| &**self.bound.node(item))
        };
        let is_shared = |input: u32| self.shared.contains(&step.inputs[input as usize]);
        let given = LaunchInputs { inputs: &inputs, facts: &facts, scalars: &scalars };
        let outputs = launch(step, given, is_shared, (node, gather), self.backend)?;
        memory_log::look_at_peak(&node.device, || self.held(step, &outputs));
        if !self.shared_if_unsure.is_empty() && outputs.iter().any(|(_, facts)| facts.is_open()) {
            self.shared.append(&mut self.shared_if_unsure);
        }
        drop(inputs);
        for &slot in &step.last_uses {
            self.slots[slot as usize] = None;
        }
        for (target, (storage, facts)) in step.targets.iter().zip(outputs) {
            match target {
                Target::Slot(slot) => self.slots[*slot as usize] = Some((storage, facts)),
                Target::Node { item, view } => {
                    self.bound.attach(*item, Value { storage, facts, view: view.clone(), format: None });
                }
            }
        }
        step.stores.iter().for_each(|store| self.hand_over(store));
        for &slot in &step.unread {
            self.slots[slot as usize] = None;
        }
        Ok(())
    }

    fn hand_over(&self, store: &Store) {
        if let Some((storage, facts)) = self.slots[store.slot as usize].clone() {
            self.bound.attach(store.item, Value { storage, facts, view: store.view.clone(), format: None });
        }
    }

    /// The buffers that the run holds after a step, each with the node that it is the value of.
    fn held(&self, step: &Step, outputs: &[Content]) -> Vec<(&Arc<Node>, Storage)> {
        let held = |slot: u32| self.slots[slot as usize].as_ref().map(|(storage, _)| storage.clone());
        let before = self.plan.steps.iter().flat_map(|step| &step.made);
        let before = before.filter_map(|store| Some((self.bound.node(store.item), held(store.slot)?)));
        let item = |target: &Target| match *target {
            Target::Slot(slot) => {
                step.made.iter().find(|made| made.slot == slot).map_or(step.origin, |m| m.item)
            }
            Target::Node { item, .. } => item,
        };
        let made = step.targets.iter().zip(outputs);
        let made = made.map(|(target, (storage, _))| (self.bound.node(item(target)), storage.clone()));
        before.chain(made).collect()
    }
}

/// The scalar in a node's operation.
pub(super) fn scalar(wanted: &ScalarRef, op: &Op) -> Scalar {
    let value = match (op, wanted.part) {
        (_, Part::Constant(bits)) => Scalar::Float(f64::from_bits(bits)),
        (Op::Full(value), _) => *value,
        (Op::Pad(padding), _) => padding.value,
        (Op::Arange(range), Part::Start) => range.start,
        (Op::Arange(range), _) => range.step,
        (Op::Random { seed, .. }, Part::Seed) => Scalar::Int(*seed as i64),
        (Op::Random { offset, .. }, _) => Scalar::Int(*offset as i64),
        _ => Scalar::Int(0),
    };
    value.cast(wanted.dtype)
}
