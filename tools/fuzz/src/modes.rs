//! Ways to evaluate one program: lazily, step by step, half and half, tracked or not, with handles let go
//! early or late, results read in any order, and compiled. All must give what the oracle knows.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, PoisonError},
};

use taper::{Device, Error, Generator, Scalar, Tensor, compile_or_run, prelude::TensorGrad};
use taper_testing::to_scalars;

use crate::{
    oracle::Oracle,
    program::{Action, DRAWS, Program},
    rng::Rng,
};

/// When steps are evaluated, let go and read.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Which steps are evaluated as soon as they are built.
    pub eval: Vec<bool>,
    /// Which handles are dropped after their last use, not at the end.
    pub drop: Vec<bool>,
    /// The steps that are read in the end, in this order.
    pub reads: Vec<usize>,
    /// Whether leaves of floats want gradients.
    pub tracked: bool,
    /// Whether everything is read a second time: it must give the same bits.
    pub twice: bool,
    /// Whether the program is a compiled function of its leaves, which is called several times.
    pub compiled: bool,
}

impl Plan {
    /// The plans of a case: lazy, eager, half evaluated, tracked.
    pub fn all(program: &Program, rng: &mut Rng) -> Vec<Plan> {
        let n = program.steps.len();
        let reads = |rng: &mut Rng| {
            let often = 1 + rng.below(6);
            let mut reads: Vec<usize> =
                (0..n).filter(|&i| !program.is_used(i) || rng.one_in(often)).collect();
            rng.shuffle(&mut reads);
            reads
        };
        let some = |rng: &mut Rng| -> Vec<bool> { (0..n).map(|_| rng.one_in(2)).collect() };
        let (never, always) = (vec![false; n], vec![true; n]);
        let plan = |eval: &[bool], drop: Vec<bool>, reads, tracked, twice| Plan {
            eval: eval.to_vec(),
            drop,
            reads,
            tracked,
            twice,
            compiled: false,
        };
        let half: Vec<bool> = (0..n).map(|_| rng.one_in(3)).collect();
        vec![
            plan(&never, always.clone(), reads(rng), false, false),
            plan(&never, some(rng), reads(rng), rng.one_in(2), true),
            plan(&always, some(rng), (0..n).collect(), rng.one_in(4), false),
            plan(&half, some(rng), reads(rng), false, false),
            plan(&some(rng), some(rng), reads(rng), true, true),
            Plan { compiled: true, ..plan(&never, always, reads(rng), false, false) },
        ]
    }

    /// Whether every step is evaluated before the next is built.
    pub fn is_eager(&self) -> bool {
        self.eval.iter().all(|&e| e)
    }

    /// Without one step.
    pub(crate) fn without(&self, place: usize) -> Plan {
        let mut plan = self.clone();
        plan.eval.remove(place);
        plan.drop.remove(place);
        plan.reads.retain(|&r| r != place);
        plan.reads.iter_mut().filter(|r| **r > place).for_each(|r| *r -= 1);
        plan
    }
}

/// Builds and evaluates a program as planned, and compares the values that it reads with the expected ones.
///
/// # Errors
/// Runs a program by a plan and compares it with the oracle; an error describes the difference.
pub fn check(program: &Program, plan: &Plan, oracle: &Oracle, device: &Device) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(|| run(program, plan, oracle, device))) {
        Ok(result) => result,
        Err(panic) => Err(format!("panicked: {}", message(panic.as_ref()))),
    }
}

static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

/// Panics are findings: from now on they are kept in place of being printed. One that ends the process, as a
/// broken contract of unsafe code does, is printed with the case that `current` names.
pub fn keep_panics(current: fn() -> String) {
    std::panic::set_hook(Box::new(move |info| {
        let text = info.to_string();
        let in_std = info.location().is_some_and(|l| l.file().starts_with("/rustc/"));
        if in_std || text.contains("unsafe precondition") || text.contains("cannot unwind") {
            eprintln!("{}: {text}\n{}", current(), std::backtrace::Backtrace::force_capture());
        }
        *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = info.to_string();
    }));
}

/// The message of a panic, with its location if [`keep_panics`] was called.
pub fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let kept = std::mem::take(&mut *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner));
    if !kept.is_empty() {
        return kept;
    }
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default()
}

/// The tensors of a program, those that the plan lets go of gone again.
pub(crate) fn build(program: &Program, plan: &Plan, device: &Device) -> Result<Vec<Option<Tensor>>, String> {
    build_from(program, plan, &Generator::seed(DRAWS, device), None)
}

/// [`build`] with the leaves, if these exist already.
fn build_from(
    program: &Program,
    plan: &Plan,
    rng: &Generator,
    leaves: Option<&[Tensor]>,
) -> Result<Vec<Option<Tensor>>, String> {
    let mut leaves = leaves.map(<[Tensor]>::iter);
    let mut last = vec![0; program.steps.len()];
    for (i, step) in program.steps.iter().enumerate() {
        last[i] = i;
        step.inputs.iter().for_each(|&j| last[j] = i);
    }
    let mut made: Vec<Option<Tensor>> = Vec::with_capacity(program.steps.len());
    for (i, step) in program.steps.iter().enumerate() {
        let inputs: Vec<&Tensor> = step.inputs.iter().filter_map(|&j| made[j].as_ref()).collect();
        let given = leaves.as_mut().filter(|_| matches!(step.action, Action::Leaf { .. }));
        let mut tensor = match given.and_then(Iterator::next) {
            Some(leaf) => leaf.clone(),
            None => step.action.apply(&inputs, rng).map_err(|e| format!("building step {i}: {e}"))?,
        };
        if plan.tracked && matches!(step.action, Action::Leaf { .. }) && tensor.dtype().is_float() {
            tensor = tensor.requires_grad();
        }
        if plan.eval[i] {
            tensor.eval().map_err(|e| format!("evaluating step {i}: {e}"))?;
        }
        made.push(Some(tensor));
        for j in 0..=i {
            if plan.drop[j] && last[j] == i && !plan.reads.contains(&j) {
                made[j] = None;
            }
        }
    }
    Ok(made)
}

/// Calls the program as a compiled function: the second call repeats what the first one did, with the same
/// leaves and draws.
fn run_compiled(program: &Program, plan: &Plan, oracle: &Oracle, device: &Device) -> Result<(), String> {
    let rng = Generator::seed(DRAWS, device);
    let mut leaves = Vec::new();
    for step in program.steps.iter().filter(|step| matches!(step.action, Action::Leaf { .. })) {
        leaves.push(step.action.apply(&[], &rng).map_err(|e| format!("building a leaf: {e}"))?);
    }
    let compiled = compile_or_run(|leaves: Vec<Tensor>| {
        let made = build_from(program, plan, &rng, Some(&leaves)).map_err(|e| Error::invalid("fuzz", e))?;
        Ok(plan.reads.iter().filter_map(|&read| made[read].clone()).collect::<Vec<_>>())
    });
    for call in 0..3 {
        rng.set_seed_and_offset(DRAWS, 0);
        let results = compiled.call(leaves.clone()).map_err(|e| format!("call {call}: {e}"))?;
        for (&read, result) in plan.reads.iter().zip(&results) {
            let known = &oracle.known[read];
            let found = to_scalars(result).map_err(|e| format!("reading step {read} of call {call}: {e}"))?;
            compare(&found, &known.values, &known.within)
                .map_err(|e| format!("step {read} of call {call} of a compiled function: {e}"))?;
        }
    }
    Ok(())
}

fn run(program: &Program, plan: &Plan, oracle: &Oracle, device: &Device) -> Result<(), String> {
    if plan.compiled {
        return run_compiled(program, plan, oracle, device);
    }
    let made = build(program, plan, device)?;
    let mut first: Vec<Vec<Scalar>> = Vec::new();
    for &read in &plan.reads {
        let Some(tensor) = &made[read] else { continue };
        let known = &oracle.known[read];
        if (tensor.dims(), tensor.dtype()) != (known.shape.as_slice(), known.dtype) {
            return Err(format!(
                "step {read} is {} {}, expected {:?} {}",
                tensor.shape(),
                tensor.dtype(),
                known.shape,
                known.dtype
            ));
        }
        let found = to_scalars(tensor).map_err(|e| format!("reading step {read}: {e}"))?;
        compare(&found, &known.values, &known.within).map_err(|e| format!("step {read}: {e}"))?;
        first.push(found);
    }
    if plan.twice {
        for (&read, first) in plan.reads.iter().zip(&first) {
            let Some(tensor) = &made[read] else { continue };
            let again = to_scalars(tensor).map_err(|e| format!("reading step {read} again: {e}"))?;
            if !again.iter().zip(first).all(|(a, b)| same(*a, *b)) {
                return Err(format!("step {read} gives other values when it is read again"));
            }
        }
    }
    Ok(())
}

fn same(a: Scalar, b: Scalar) -> bool {
    match (a, b) {
        (Scalar::Float(a), Scalar::Float(b)) => a == b || a.is_nan() && b.is_nan(),
        _ => a == b,
    }
}

/// The first element that is further off than it may.
pub(crate) fn compare(found: &[Scalar], expected: &[Scalar], within: &[f64]) -> Result<(), String> {
    if found.len() != expected.len() {
        return Err(format!("{} elements, expected {}", found.len(), expected.len()));
    }
    for (i, (&f, &e)) in found.iter().zip(expected).enumerate() {
        let close =
            same(f, e) || within.get(i).is_some_and(|within| (f.as_f64() - e.as_f64()).abs() <= *within);
        if !close {
            let within = within.get(i).copied().unwrap_or(0.0);
            return Err(format!("element {i} is {f}, expected {e} within {within:.1e}"));
        }
    }
    Ok(())
}
