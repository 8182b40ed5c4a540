//! First and second derivatives of random programs: the device's are compared with the plain reference's.
//! Since both use the same rules, those of the CPU in f64 are also compared with finite differences.

use std::panic::{AssertUnwindSafe, catch_unwind};

use taper::{
    DType, Device, Result, Scalar, Tensor, compile_or_run, grad,
    prelude::TensorGrad,
    tensor_core::{BinaryOp, ReduceOp, UnaryOp},
};
use taper_testing::{of_scalars, reference_with};

use crate::{
    Report, code,
    generate::{self, Taste},
    minimise::{Failure, minimise_with},
    modes::{self, Plan},
    oracle::unit,
    program::{Action, DRAWS, Program, Step},
    rng::Rng,
};

/// A weighted sum of a program's outputs, its gradients, a weighted sum of these, and its gradients: by float
/// leaf.
struct Derivatives {
    loss: f64,
    first: Vec<Option<Vec<f64>>>,
    slope: f64,
    second: Vec<Option<Vec<f64>>>,
}

/// The derivatives of one random program.
///
/// # Errors
/// Runs one case; an error reports the smallest failing program.
pub fn gradient_case(seed: u64, case: u64, device: &Device) -> std::result::Result<(), Report> {
    let mut rng = Rng::new(seed ^ 0x6ad, case);
    let mut taste = Taste { special: false, subnormals: false, smooth: true, ..Taste::of(device, &mut rng) };
    taste.dtypes.retain(|d| !d.is_reduced_float());
    taste.steps = 2 + rng.below(9);
    let (program, _) = generate::program(&mut rng, &taste);
    let n = program.steps.len();
    let reads: Vec<usize> = (0..n).filter(|&i| !program.is_used(i) || rng.one_in(4)).collect();
    let compiled = rng.one_in(3);
    let plan = Plan {
        eval: (0..n).map(|_| !compiled && rng.one_in(4)).collect(),
        drop: vec![false; n],
        reads,
        tracked: true,
        twice: false,
        compiled,
    };
    let fails = |program: &Program, plan: &Plan| check(program, plan, device).err();
    let Some(what) = fails(&program, &plan) else { return Ok(()) };
    let found = Failure { program, plan, what };
    let small = minimise_with(found, device, false, |program, plan, _| fails(program, plan));
    let code = code::rust(&small.program, &small.plan)
        + "// the derivatives of the sum of what is printed, each element weighted, or of the sum of its gradients\n";
    Err(Report { what: small.what, code })
}

fn check(program: &Program, plan: &Plan, device: &Device) -> std::result::Result<(), String> {
    match catch_unwind(AssertUnwindSafe(|| agree_with_reference(program, plan, device))) {
        Ok(result) => result?,
        Err(panic) => return Err(format!("panicked: {}", modes::message(panic.as_ref()))),
    }
    // Finite differences ignore `detach`, so they do not apply to programs with it.
    let detached = program.steps.iter().any(|step| step.action == Action::Detach);
    if device.name() == "cpu" && !detached {
        let mut wide = in_f64(program);
        if program.steps.iter().any(|step| has_kinks(&step.action)) {
            // Away from where a rule must choose among several answers.
            let mut rng = Rng::new(5, 5);
            wide = with_leaves(&wide, |v, _| v + 0.03 * (rng.unit() - 0.5));
        }
        match catch_unwind(AssertUnwindSafe(|| agree_with_differences(&wide, plan, device))) {
            Ok(result) => result?,
            Err(panic) => return Err(format!("in f64, panicked: {}", modes::message(panic.as_ref()))),
        }
    }
    Ok(())
}

/// The gradients equal the reference's, up to the change that a small change of every leaf causes; if that
/// change is large, the case says nothing.
fn agree_with_reference(program: &Program, plan: &Plan, device: &Device) -> std::result::Result<(), String> {
    let (reference, _) = reference_with(&device.info().dtypes);
    let eager = Plan { eval: vec![true; program.steps.len()], compiled: false, ..plan.clone() };
    let Ok(Some(expected)) = derivatives(program, &eager, &reference) else { return Ok(()) };
    let found = match derivatives(program, plan, device) {
        Ok(Some(found)) => found,
        Ok(None) => return Err("nothing to differentiate, unlike on the reference".into()),
        Err(error) => return Err(format!("no gradient: {error}")),
    };
    let mut moved = Vec::new();
    for sample in 0..5 {
        let mut rng = Rng::new(sample, 1);
        let program = with_leaves(program, |v, dtype| {
            let by = if rng.one_in(2) { 1.0 } else { -1.0 };
            v + by * 32.0 * unit(dtype) * (v.abs() + 0.01)
        });
        let Ok(Some(sample)) = derivatives(&program, &eager, &reference) else { return Ok(()) };
        moved.push(sample);
    }
    // The terms of a gradient may cancel; it is a sum of at most as many terms as the largest leaf has
    // elements.
    let terms = leaf_sizes(program).into_iter().max().unwrap_or(1).max(1) as f64;
    for &second in orders(plan) {
        let of = |d: &Derivatives| if second { d.second.clone() } else { d.first.clone() };
        let (found, expected) = (of(&found), of(&expected));
        let moved: Vec<_> = moved.iter().map(of).collect();
        for (leaf, (f, e)) in found.iter().zip(&expected).enumerate() {
            let order = if second { "second" } else { "first" };
            let (f, e) = match (f, e) {
                (Some(f), Some(e)) => (f, e),
                (None, None) => continue,
                _ => {
                    return Err(format!(
                        "the {order} derivative by float leaf {leaf} is there on one device alone"
                    ));
                }
            };
            let greatest = e.iter().fold(0f64, |m, v| m.max(v.abs()));
            let mut within = vec![0f64; e.len()];
            for other in &moved {
                let Some(other) = &other[leaf] else { return Ok(()) };
                for ((w, o), e) in within.iter_mut().zip(other).zip(e) {
                    *w = w.max((o - e).abs());
                }
            }
            let spread =
                within.iter().fold(0f64, |m, v| if v.is_finite() { m.max(*v) } else { f64::INFINITY });
            if !greatest.is_finite() || greatest > 1e6 || spread > 1e-3 * greatest.max(1e-3) {
                continue;
            }
            for (i, ((f, e), w)) in f.iter().zip(e).zip(&within).enumerate() {
                let within = 8.0 * w + 1e-4 * greatest + 1e-6 * terms.sqrt();
                if (f - e).abs() > within || f.is_nan() {
                    return Err(format!(
                        "the {order} derivative by float leaf {leaf}: element {i} is {f}, expected {e} within {within:.1e}"
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Whether the second derivatives are looked at, after the first: compiled functions have none.
fn orders(plan: &Plan) -> &'static [bool] {
    if plan.compiled { &[false] } else { &[false, true] }
}

/// Along a direction, each derivative is the limit of the difference quotient, if it converges.
fn agree_with_differences(
    program: &Program,
    plan: &Plan,
    device: &Device,
) -> std::result::Result<(), String> {
    let moved = |h: f64| {
        let mut rng = Rng::new(3, 3);
        with_leaves(program, |v, _| v + h * (rng.unit() - 0.5))
    };
    let at = |h: f64| derivatives(&moved(h), plan, device).ok().flatten();
    const H: f64 = 1e-3;
    let (Some(here), Some(up), Some(down), Some(near_up), Some(near_down)) =
        (at(0.0), at(H), at(-H), at(H / 2.0), at(-H / 2.0))
    else {
        return Ok(());
    };
    // With a small divisor there are many jumps within a step, each too small to be visible in the values.
    let [unmoved, moved @ ..] = [0.0, H, -H, H / 2.0, -H / 2.0].map(|h| turns(&moved(h), plan, device).ok());
    if moved.iter().any(|turns| *turns != unmoved) {
        return Ok(());
    }
    for &second in orders(plan) {
        let value = |d: &Derivatives| if second { d.slope } else { d.loss };
        let derivative = if second { &here.second } else { &here.first };
        // The directions are drawn again in the order of the leaves' elements.
        let mut rng = Rng::new(3, 3);
        let (mut along, mut size) = (0.0, 0.0);
        for (leaf, n) in derivative.iter().zip(leaf_sizes(program)) {
            for i in 0..n {
                let v = rng.unit() - 0.5;
                let d = leaf.as_ref().map_or(0.0, |g| g[i]);
                along += d * v;
                size += (d * v).abs();
            }
        }
        let central = (value(&up) - value(&down)) / (2.0 * H);
        let near = (value(&near_up) - value(&near_down)) / H;
        let limit = (4.0 * near - central) / 3.0;
        let bend = (value(&up) - 2.0 * value(&here) + value(&down)) / H;
        let near_bend = (value(&near_up) - 2.0 * value(&here) + value(&near_down)) / (H / 2.0);
        let scale = size.max(limit.abs()).max(1e-3 * value(&here).abs()).max(1e-3);
        let smooth = (near - central).abs() < 1e-4 * scale && (near_bend - bend / 2.0).abs() < 1e-4 * scale;
        if !(scale < 1e6 && smooth) {
            continue;
        }
        if (limit - along).abs() > 2e-3 * scale || along.is_nan() {
            let order = if second { "second" } else { "first" };
            return Err(format!(
                "the {order} derivative along a direction is {along}, differences give {limit}"
            ));
        }
    }
    Ok(())
}

/// The bits of the integer quotient of each remainder of floats. Where the quotient changes, the remainder
/// jumps.
fn turns(program: &Program, plan: &Plan, device: &Device) -> Result<Vec<Vec<u64>>> {
    let is_remainder = |step: &Step| {
        matches!(
            step.action,
            Action::Binary(BinaryOp::Remainder) | Action::BinaryScalar(BinaryOp::Remainder, _)
        )
    };
    if !program.steps.iter().any(is_remainder) {
        return Ok(Vec::new());
    }
    let leaves = leaves(program, device)?;
    let made = forward(program, plan, &taper::Generator::seed(DRAWS, device), &leaves)?;
    let mut turns = Vec::new();
    for (step, result) in program.steps.iter().zip(&made) {
        if !is_remainder(step) || !result.dtype().is_float() {
            continue;
        }
        let of = |place: usize| &made[step.inputs[place]];
        let quotient = match step.action {
            Action::BinaryScalar(_, divisor) => of(0).div_scalar(divisor),
            _ => of(0).div(of(1))?,
        };
        turns.push(quotient.floor().to_f64_vec()?.into_iter().map(f64::to_bits).collect());
    }
    Ok(turns)
}

/// The leaves of floats, which require gradients.
fn leaves(program: &Program, device: &Device) -> Result<Vec<Tensor>> {
    let rng = taper::Generator::seed(DRAWS, device);
    let leaf = |action: &Action| match action {
        Action::Leaf { dtype, .. } if dtype.is_float() => Some(action.apply(&[], &rng)),
        _ => None,
    };
    let leaves = program.steps.iter().filter_map(|step| leaf(&step.action));
    leaves.map(|leaf| Ok(leaf?.requires_grad())).collect()
}

/// The results of all steps, from the leaves of floats.
fn forward(program: &Program, plan: &Plan, rng: &taper::Generator, leaves: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut leaves = leaves.iter();
    let mut made: Vec<Tensor> = Vec::new();
    for (i, step) in program.steps.iter().enumerate() {
        let inputs: Vec<&Tensor> = step.inputs.iter().map(|&j| &made[j]).collect();
        let is_leaf = matches!(step.action, Action::Leaf { dtype, .. } if dtype.is_float());
        let given = if is_leaf { leaves.next() } else { None };
        let t = match given {
            Some(leaf) => leaf.clone(),
            None => step.action.apply(&inputs, rng)?,
        };
        if plan.eval[i] {
            t.eval()?;
        }
        made.push(t);
    }
    Ok(made)
}

/// The results that are read, from the leaves of floats: those of the second call if the program is a
/// compiled function of its leaves.
fn read(program: &Program, plan: &Plan, device: &Device, leaves: &[Tensor]) -> Result<Vec<Tensor>> {
    let rng = taper::Generator::seed(DRAWS, device);
    let run = |leaves: Vec<Tensor>| {
        let made = forward(program, plan, &rng, &leaves)?;
        Ok(plan.reads.iter().map(|&i| made[i].clone()).collect::<Vec<_>>())
    };
    if !plan.compiled {
        return run(leaves.to_vec());
    }
    let compiled = compile_or_run(run);
    let all: Vec<Tensor> = compiled.call(leaves.to_vec())?;
    // The gradients of the first call are those that are captured; the second call's repeat them.
    if let Some(loss) = weighted_sum(&all, 2, device)? {
        grad(&[&loss], &leaves.iter().collect::<Vec<_>>(), false)?;
    }
    rng.set_seed_and_offset(DRAWS, 0);
    compiled.call(leaves.to_vec())
}

/// The sum of all elements of tracked tensors of floats, each weighted; none if there are no such tensors.
fn weighted_sum(of: &[Tensor], by: usize, device: &Device) -> Result<Option<Tensor>> {
    let mut total: Option<Tensor> = None;
    for t in of.iter().filter(|t| t.is_tracked() && t.dtype().is_float()) {
        let weights: Vec<Scalar> =
            (0..t.numel()).map(|i| Scalar::Float(((i * 5 + by) % 7) as f64 / 4.0 - 0.75)).collect();
        let one = t.mul(&of_scalars(&weights, t.dims(), t.dtype(), device)?)?.sum();
        total = Some(match total {
            Some(total) => total.add(&one)?,
            None => one,
        });
    }
    Ok(total)
}

/// `None` where nothing that is read depends on a leaf.
fn derivatives(program: &Program, plan: &Plan, device: &Device) -> Result<Option<Derivatives>> {
    let leaves = leaves(program, device)?;
    let Some(loss) = weighted_sum(&read(program, plan, device, &leaves)?, 2, device)? else {
        return Ok(None);
    };
    let wanted: Vec<&Tensor> = leaves.iter().collect();
    let first = grad(&[&loss], &wanted, !plan.compiled)?;
    let numbers = |of: &[Option<Tensor>]| -> Result<Vec<Option<Vec<f64>>>> {
        of.iter().map(|g| g.as_ref().map(Tensor::to_f64_vec).transpose()).collect()
    };
    let given: Vec<Tensor> = first.iter().flatten().cloned().collect();
    let slope = weighted_sum(&given, 4, device)?;
    let second = match &slope {
        Some(slope) => grad(&[slope], &wanted, false)?,
        None => vec![None; wanted.len()],
    };
    // A value that does not depend on the leaves does not contribute to any difference.
    let slope = slope.map_or(Ok(0.0), |s| s.to_f64_vec().map(|v| v[0]))?;
    let value = Derivatives {
        loss: loss.to_f64_vec()?[0],
        second: numbers(&second)?,
        first: numbers(&first)?,
        slope,
    };
    let all = value.first.iter().chain(&value.second).flatten().flatten();
    let finite = value.loss.is_finite() && value.slope.is_finite() && all.copied().all(f64::is_finite);
    Ok(finite.then_some(value))
}

/// The program with every element of its float leaves changed.
fn with_leaves(program: &Program, mut change: impl FnMut(f64, DType) -> f64) -> Program {
    let mut program = program.clone();
    for step in &mut program.steps {
        if let Action::Leaf { dtype, values, .. } = &mut step.action
            && dtype.is_float()
        {
            values.iter_mut().for_each(|v| *v = Scalar::Float(change(v.as_f64(), *dtype)));
        }
    }
    program
}

fn leaf_sizes(program: &Program) -> Vec<usize> {
    let size = |action: &Action| match action {
        Action::Leaf { dtype, values, .. } if dtype.is_float() => Some(values.len()),
        _ => None,
    };
    program.steps.iter().filter_map(|step| size(&step.action)).collect()
}

/// Whether there are places without a derivative, or where rules follow PyTorch in what they say of it.
fn has_kinks(action: &Action) -> bool {
    use Action as A;
    match action {
        A::Unary(op) => matches!(
            op,
            UnaryOp::Abs
                | UnaryOp::Relu
                | UnaryOp::Sign
                | UnaryOp::Sqrt
                | UnaryOp::Rsqrt
                | UnaryOp::Log
                | UnaryOp::Reciprocal
                | UnaryOp::Floor
                | UnaryOp::Ceil
                | UnaryOp::Round
                | UnaryOp::Trunc
        ),
        A::Reduce { op, .. } => matches!(op, ReduceOp::Max | ReduceOp::Min),
        A::Binary(op) | A::BinaryScalar(op, _) | A::ScalarBinary(op, _) => {
            !matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul)
        }
        A::Clamp(..) | A::Compare(_) | A::CompareScalar(..) | A::Powf(_) | A::Std { .. } => true,
        A::ArgReduce { .. } | A::CumExtreme { .. } | A::Sort { .. } | A::ArgSort { .. } => true,
        A::TopK { .. } | A::Cast(_) | A::Row { .. } => true,
        _ => false,
    }
}

/// The program with f64 for every float.
fn in_f64(program: &Program) -> Program {
    use Action as A;
    let mut program = program.clone();
    for step in &mut program.steps {
        if let A::Leaf { dtype, .. }
        | A::Full { dtype, .. }
        | A::Arange { dtype, .. }
        | A::Eye { dtype, .. }
        | A::Draw { dtype, .. }
        | A::Cast(dtype) = &mut step.action
            && dtype.is_float()
        {
            *dtype = DType::F64;
        }
    }
    program
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// By 1.6e-5 a step passes hundreds of jumps; what is between them slopes by hundreds.
    #[test]
    fn differences_say_nothing_of_a_remainder_that_jumps_within_a_step() {
        let leaf = |values: &[f64]| Step {
            action: Action::Leaf {
                shape: vec![values.len()],
                dtype: DType::F64,
                values: values.iter().map(|&v| Scalar::Float(v)).collect(),
            },
            inputs: Vec::new(),
        };
        let step = |action, inputs: &[usize]| Step { action, inputs: inputs.to_vec() };
        let factors = [0.4, -0.35, 0.2, 0.09, 0.33, 0.3, -0.2, 0.32];
        let prod = Action::Reduce { op: ReduceOp::Prod, axes: vec![0], keepdim: false };
        let program = Program {
            steps: vec![
                leaf(&factors),
                leaf(&[-3.0, -5.0, -1.0, 0.0, -2.0, 1.0]),
                step(prod, &[0]),
                step(Action::Binary(BinaryOp::Remainder), &[1, 2]),
            ],
        };
        let plan = Plan {
            eval: vec![false; 4],
            drop: vec![false; 4],
            reads: vec![3],
            tracked: true,
            twice: false,
            compiled: false,
        };
        agree_with_differences(&program, &plan, &taper::cpu()).unwrap();
    }
}
