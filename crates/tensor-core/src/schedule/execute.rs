//! Runs a plan: allocates, launches, gives values to their nodes, and releases buffers after their last
//! use.

use std::sync::{Arc, atomic::Ordering};

use smallvec::SmallVec;

use super::{
    Progress,
    bounds::{self, Given},
    collect::Item,
    failure::{blame, refusal},
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
    kernels::{
        kernel::{Body, Kernel},
        launch::Launch,
        storage::Storage,
        ticket::Ticket,
    },
    schedule::watch,
};

/// A buffer, and what is known about its contents.
pub(super) type Content = (Storage, ValueInfo);

pub(crate) fn execute(
    plan: &Plan,
    items: &[Item],
    backend: &dyn Backend,
    progress: Progress<'_>,
) -> Result<()> {
    prepare(plan, backend);
    let mut slots: Vec<Option<Content>> = Vec::with_capacity(plan.slots);
    slots.resize(plan.slots, None);
    for &(item, slot) in &plan.leaves {
        slots[slot as usize] =
            items[item as usize].value.as_ref().map(|v| (v.storage.clone(), v.facts.clone()));
    }
    for store in &plan.views {
        // The leaves have the first slots, in order.
        let leaf = plan.leaves.get(store.slot as usize).map(|&(item, _)| &items[item as usize]);
        let format = leaf.and_then(|leaf| leaf.value.as_ref()?.format.clone());
        if let Some((storage, facts)) = slots[store.slot as usize].clone() {
            let value = Value { storage, facts, view: store.view.clone(), format };
            items[store.item as usize].node.attach(value);
        }
    }
    for (at, step) in plan.steps.iter().enumerate() {
        if let Err(error) = run(plan, step, items, &mut slots, backend) {
            // Computed outputs that still exist are kept, so that another attempt resumes from here. A
            // buffer that the failing kernel was to overwrite may be partly overwritten.
            for output in &step.outputs {
                if let Output::Reused { input } = *output {
                    slots[step.inputs[input as usize] as usize] = None;
                }
            }
            for done in &plan.steps[..at] {
                done.made.iter().for_each(|store| hand_over(items, &slots, store));
            }
            return Err(blame(&items[step.origin as usize].node, error));
        }
        progress();
    }
    Ok(())
}

/// Gives the kernels of a new plan to the backend before the first one runs, except those that may report
/// bad indices: only their launches know whether they have to.
fn prepare(plan: &Plan, backend: &dyn Backend) {
    if plan.steps.len() < 2 || plan.prepared.swap(true, Ordering::Relaxed) {
        return;
    }
    let has_tickets = |kernel: &Kernel| {
        let may_fail = matches!(&kernel.body, Body::Custom(custom) if custom.may_fail());
        may_fail || !kernel.indexed_operands().is_empty()
    };
    let steps = plan.steps.iter().filter(|step| !step.empty && !has_tickets(&step.shared.kernel));
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
    if step.empty {
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

/// Allocates a kernel's outputs and launches it on behalf of `node`. `facts` describes the inputs;
/// `gather` is as in [`tickets`].
pub(super) fn launch<'a>(
    step: &Step,
    inputs: &[Storage],
    facts: &[ValueInfo],
    scalars: &[Scalar],
    (node, gather): (&'a Node, impl Fn(usize) -> &'a Node),
    backend: &dyn Backend,
) -> Result<SmallVec<[Content; 2]>> {
    let kernel = &step.shared.kernel;
    let numels: SmallVec<[usize; 4]> = inputs.iter().map(|input| input.numel()).collect();
    let given = Given { facts, numels: &numels, scalars };
    let own = tickets(step, given, node, gather)?;
    let mut outputs: SmallVec<[Storage; 2]> = SmallVec::with_capacity(step.outputs.len());
    for output in &step.outputs {
        outputs.push(match *output {
            Output::Fresh { dtype, numel } => backend.allocate(dtype, numel)?,
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

fn run(
    plan: &Plan,
    step: &Step,
    items: &[Item],
    slots: &mut [Option<Content>],
    backend: &dyn Backend,
) -> Result<()> {
    let mut inputs: SmallVec<[Storage; 4]> = SmallVec::with_capacity(step.inputs.len());
    let mut facts: SmallVec<[ValueInfo; 4]> = SmallVec::with_capacity(step.inputs.len());
    for &slot in &step.inputs {
        if let Some((storage, known)) = &slots[slot as usize] {
            inputs.push(storage.clone());
            facts.push(known.clone());
        }
    }
    debug_assert_eq!(inputs.len(), step.inputs.len());
    let scalars: SmallVec<[Scalar; 4]> =
        step.scalars.iter().map(|s| scalar(s, &items[s.item as usize].node.op)).collect();
    let node = &items[step.origin as usize].node;
    let gather = |operand: usize| {
        let found = step.gathers.iter().find(|(of, _)| usize::from(*of) == operand);
        found.map_or(&**node, |&(_, item)| &*items[item as usize].node)
    };
    let outputs = launch(step, &inputs, &facts, &scalars, (node, gather), backend)?;
    memory_log::look_at_peak(&node.device, || {
        let held = |slot: u32| slots[slot as usize].as_ref().map(|(storage, _)| storage.clone());
        let before = plan.steps.iter().flat_map(|step| &step.made);
        let before = before.filter_map(|store| Some((&items[store.item as usize].node, held(store.slot)?)));
        let item = |target: &Target| match *target {
            Target::Slot(slot) => {
                step.made.iter().find(|made| made.slot == slot).map_or(step.origin, |m| m.item)
            }
            Target::Node { item, .. } => item,
        };
        let made = step.targets.iter().zip(&outputs);
        let made = made.map(|(target, (storage, _))| (&items[item(target) as usize].node, storage.clone()));
        before.chain(made).collect()
    });
    drop(inputs);
    for &slot in &step.last_uses {
        slots[slot as usize] = None;
    }
    for (target, (storage, facts)) in step.targets.iter().zip(outputs) {
        match target {
            Target::Slot(slot) => slots[*slot as usize] = Some((storage, facts)),
            Target::Node { item, view } => {
                let value = Value { storage, facts, view: view.clone(), format: None };
                attach(&items[*item as usize], value);
            }
        }
    }
    step.stores.iter().for_each(|store| hand_over(items, slots, store));
    for &slot in &step.unread {
        slots[slot as usize] = None;
    }
    Ok(())
}

fn hand_over(items: &[Item], slots: &[Option<Content>], store: &Store) {
    if let Some((storage, facts)) = &slots[store.slot as usize] {
        let (storage, facts, view) = (storage.clone(), facts.clone(), store.view.clone());
        let value = Value { storage, facts, view, format: None };
        attach(&items[store.item as usize], value);
    }
}

/// Gives a node its value. One that only pending nodes hold counts towards the bytes at which these are
/// computed.
fn attach(item: &Item, value: Value) {
    if item.elsewhere {
        pending::note_bytes(value.storage.numel() * value.storage.dtype().size());
    }
    item.node.attach(value);
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
