//! A failing program made small: steps left out or replaced by their values, evaluations and reads left out,
//! sizes shrunk and values made plain, as long as it still fails.

use std::time::{Duration, Instant};

use taper::{Device, Scalar};

use crate::{
    modes::{self, Plan},
    oracle::Oracle,
    program::{Action, Program, Step},
};

/// A program that fails under a plan, and how.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The program.
    pub program: Program,
    /// How it was evaluated.
    pub plan: Plan,
    /// A description of the failure.
    pub what: String,
}

/// Tries to keep a program failing while it gets smaller.
struct Shrinker<'a, F> {
    best: Failure,
    fails: F,
    subnormals: bool,
    device: &'a Device,
    until: Instant,
}

/// The smallest failing program found, in ten seconds at most.
pub fn minimise(failure: Failure, device: &Device, subnormals: bool) -> Failure {
    let fails =
        |program: &Program, plan: &Plan, oracle: &Oracle| modes::check(program, plan, oracle, device).err();
    minimise_with(failure, device, subnormals, fails)
}

/// The same for a failure of any kind.
pub(crate) fn minimise_with(
    failure: Failure,
    device: &Device,
    subnormals: bool,
    fails: impl Fn(&Program, &Plan, &Oracle) -> Option<String>,
) -> Failure {
    let until = Instant::now() + Duration::from_secs(10);
    let mut shrinker = Shrinker { best: failure, fails, subnormals, device, until };
    while shrinker.round() && Instant::now() < shrinker.until {}
    shrinker.best
}

impl<F: Fn(&Program, &Plan, &Oracle) -> Option<String>> Shrinker<'_, F> {
    fn oracle(&self, program: &Program) -> Option<Oracle> {
        Oracle::of(program, &self.device.info().dtypes, self.subnormals).ok()
    }

    /// Takes a candidate if it fails too.
    fn take(&mut self, program: Program, plan: Plan) -> bool {
        if Instant::now() > self.until || program.steps.is_empty() {
            return false;
        }
        let Some(oracle) = self.oracle(&program) else { return false };
        let Some(what) = (self.fails)(&program, &plan, &oracle) else { return false };
        self.best = Failure { program, plan, what };
        true
    }

    /// One pass over everything that may be left out. Whether anything was.
    fn round(&mut self) -> bool {
        let mut smaller = self.one_read();
        smaller |= self.leave_out();
        smaller |= self.replace_by_values();
        smaller |= self.bypass();
        smaller |= self.plainer_plan();
        smaller |= self.shrink_sizes();
        smaller |= self.plainer_values();
        smaller
    }

    /// Reads only one step, the earliest that still fails, or else as few steps as possible.
    fn one_read(&mut self) -> bool {
        for place in 0..self.best.program.steps.len() {
            if self.best.plan.reads == [place] {
                return false;
            }
            let plan = Plan { reads: vec![place], ..self.best.plan.clone() };
            if self.take(self.best.program.clone(), plan) {
                return true;
            }
        }
        let mut smaller = false;
        for read in self.best.plan.reads.clone() {
            let mut plan = self.best.plan.clone();
            plan.reads.retain(|&r| r != read);
            smaller |= !plan.reads.is_empty() && self.take(self.best.program.clone(), plan);
        }
        smaller
    }

    /// Steps that nothing uses.
    fn leave_out(&mut self) -> bool {
        let mut smaller = false;
        for place in (0..self.best.program.steps.len()).rev() {
            if self.best.program.is_used(place) {
                continue;
            }
            let (program, plan) = (without(&self.best.program, place), self.best.plan.without(place));
            smaller |= self.take(program, plan);
        }
        smaller
    }

    /// Steps that can as well be leaves of their values.
    fn replace_by_values(&mut self) -> bool {
        let mut smaller = false;
        for place in (0..self.best.program.steps.len()).rev() {
            let step = &self.best.program.steps[place];
            if matches!(step.action, Action::Leaf { .. }) {
                continue;
            }
            let Some(oracle) = self.oracle(&self.best.program) else { continue };
            let known = &oracle.known[place];
            let mut program = self.best.program.clone();
            program.steps[place] = Step {
                action: Action::Leaf {
                    shape: known.shape.clone(),
                    dtype: known.dtype,
                    values: known.values.clone(),
                },
                inputs: Vec::new(),
            };
            smaller |= self.take(program, self.best.plan.clone());
        }
        smaller
    }

    /// Replaces steps by their input.
    fn bypass(&mut self) -> bool {
        let mut smaller = false;
        for place in (0..self.best.program.steps.len()).rev() {
            for input in self.best.program.steps[place].inputs.clone() {
                let mut program = self.best.program.clone();
                if !program.is_used(place) {
                    continue;
                }
                let uses = program.steps.iter_mut().flat_map(|s| &mut s.inputs);
                uses.filter(|i| **i == place).for_each(|i| *i = input);
                let (program, plan) = (without(&program, place), self.best.plan.without(place));
                if self.take(program, plan) {
                    smaller = true;
                    break;
                }
            }
        }
        smaller
    }

    fn plainer_plan(&mut self) -> bool {
        let mut smaller = false;
        let n = self.best.program.steps.len();
        for change in 0..2 * n + 3 {
            let mut plan = self.best.plan.clone();
            match change {
                c if c < n => plan.eval[c] = false,
                c if c < 2 * n => plan.drop[c - n] = false,
                c if c == 2 * n => plan.twice = false,
                c if c == 2 * n + 1 => plan.compiled = false,
                _ => plan.tracked = false,
            }
            if plan != self.best.plan {
                smaller |= self.take(self.best.program.clone(), plan);
            }
        }
        smaller
    }

    /// Replaces one size by another everywhere.
    fn shrink_sizes(&mut self) -> bool {
        let mut sizes: Vec<usize> =
            self.best.program.steps.iter().flat_map(|s| sizes(&s.action)).filter(|&n| n > 1).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let mut smaller = false;
        for size in sizes.into_iter().rev() {
            for less in [1, 2, size / 2, size - 1] {
                if less == 0 || less >= size {
                    continue;
                }
                let mut program = self.best.program.clone();
                program.steps.iter_mut().for_each(|s| resize(&mut s.action, size, less));
                if self.take(program, self.best.plan.clone()) {
                    smaller = true;
                    break;
                }
            }
        }
        smaller
    }

    /// Leaves with small whole numbers, or with as few of their original numbers as possible.
    fn plainer_values(&mut self) -> bool {
        let mut smaller = false;
        for place in 0..self.best.program.steps.len() {
            for way in 0..4 {
                let mut program = self.best.program.clone();
                let Action::Leaf { values, dtype, .. } = &mut program.steps[place].action else { break };
                let before = values.clone();
                for (i, v) in values.iter_mut().enumerate() {
                    *v = match way {
                        0 => Scalar::Int(0),
                        1 => Scalar::Int(1),
                        2 => Scalar::Int(i as i64 + 1),
                        _ if v.as_f64().is_finite() => Scalar::Float(v.as_f64().round()),
                        _ => *v,
                    }
                    .cast(*dtype);
                }
                // Each way is plainer than those after it.
                let rank = |values: &[Scalar]| {
                    let ints = |f: &dyn Fn(usize) -> i64| {
                        values.iter().enumerate().all(|(i, v)| *v == Scalar::Int(f(i)).cast(*dtype))
                    };
                    match () {
                        () if ints(&|_| 0) => 0,
                        () if ints(&|_| 1) => 1,
                        () if ints(&|i| i as i64 + 1) => 2,
                        () => 3,
                    }
                };
                if rank(&before) <= way && way < 3 || *values == before {
                    continue;
                }
                if self.take(program, self.best.plan.clone()) {
                    smaller = true;
                    break;
                }
            }
        }
        smaller
    }
}

fn without(program: &Program, place: usize) -> Program {
    let mut program = program.clone();
    program.steps.remove(place);
    let uses = program.steps.iter_mut().flat_map(|s| &mut s.inputs);
    uses.filter(|i| **i > place).for_each(|i| *i -= 1);
    program
}

/// The sizes in an action.
fn sizes(action: &Action) -> Vec<usize> {
    use Action as A;
    match action {
        A::Leaf { shape, .. } | A::Full { shape, .. } | A::Draw { shape, .. } => shape.clone(),
        A::Reshape(shape) | A::Expand(shape) => shape.clone(),
        A::Arange { n, .. } | A::Eye { n, .. } => vec![*n],
        _ => Vec::new(),
    }
}

/// The action with one size replaced by another; larger bounds are clamped to it.
fn resize(action: &mut Action, from: usize, to: usize) {
    use Action as A;
    let swap = |shape: &mut Vec<usize>| shape.iter_mut().filter(|s| **s == from).for_each(|s| *s = to);
    match action {
        A::Leaf { shape, values, .. } => {
            let before = shape.clone();
            swap(shape);
            if before != *shape {
                let n = shape.iter().product();
                let mut all = values.iter().copied().cycle();
                *values = (0..n).filter_map(|_| all.next()).collect();
            }
        }
        A::Full { shape, .. } | A::Draw { shape, .. } | A::Reshape(shape) | A::Expand(shape) => swap(shape),
        A::Arange { n, .. } | A::Eye { n, .. } if *n == from => *n = to,
        A::Narrow { start, len, .. } if *start + *len >= from => {
            *start = (*start).min(to);
            *len = (*len).min(to - *start);
        }
        A::Slice { end, .. } if *end >= from => *end = to,
        _ => {}
    }
}
