//! The cases, a file for each kind of work, in the order of the table.

mod alone;
mod along;
mod attention;
mod elementwise;
mod files;
mod indexing;
mod linalg;
mod matmul;
mod networks;
mod norms;
mod overhead;
mod recurrent;
mod reduce;
mod rows;
mod training;
mod windows;

use taper::Tensor;

use crate::{
    Result,
    case::{Call, Case, Check, Work},
    machine::Machine,
    models, onnx, operations,
};

pub(crate) use alone::{first_result, first_steps};

/// All cases.
pub(crate) fn all() -> Vec<Case> {
    let mut cases: Vec<Case> =
        Machine::CASES.iter().enumerate().map(|(i, name)| Case::of(*name, Work::Machine(i))).collect();
    cases.push(alone::import());
    cases.extend(matmul::listed());
    cases.extend(elementwise::listed());
    cases.extend(reduce::listed());
    cases.extend(rows::listed());
    cases.extend(windows::listed());
    cases.extend(training::listed());
    cases.extend(alone::training_starts());
    cases.extend(overhead::listed());
    cases.push(alone::dropped_graphs());
    cases.extend(linalg::listed());
    let beside_busy = ["matmul_1024", "softmax_4096x1000", "simplenet_step_64"];
    let listed = [matmul::listed(), rows::listed(), training::listed()].into_iter().flatten();
    cases.extend(listed.filter(|case| beside_busy.contains(&case.name.as_str())).map(Case::busy));
    cases.extend(matmul::more());
    cases.extend(elementwise::more());
    cases.extend(reduce::more());
    cases.extend(rows::more());
    cases.extend(training::more());
    cases.extend(indexing::more());
    cases.extend(along::more());
    cases.extend(windows::more());
    cases.extend(norms::more());
    cases.extend(attention::more());
    cases.extend(recurrent::more());
    cases.extend(networks::more());
    cases.extend(linalg::more());
    cases.extend(files::more());
    cases.push(alone::new_sizes());
    cases.extend(onnx::listed().map(|(name, network)| Case::of(name, Work::Compared(Box::new(network)))));
    cases.extend(models::listed().map(|(name, model)| Case::of(name, Work::Compared(Box::new(model)))));
    cases.extend(operations::listed());
    cases
}

/// A call and its check, boxed.
fn pair(
    call: impl FnMut() -> taper::Result<Vec<Tensor>> + 'static,
    check: impl FnOnce(&[Tensor], &mut Call) -> Result<()> + 'static,
) -> Result<(Call, Check)> {
    Ok((Box::new(call), Box::new(check)))
}

/// A call that gives one tensor, which is evaluated within it, and the check of that tensor.
fn one(
    build: impl Fn() -> taper::Result<Tensor> + 'static,
    check: impl FnOnce(&Tensor) -> Result<()> + 'static,
) -> Result<(Call, Check)> {
    let call = move || {
        let result = build()?;
        result.eval()?;
        Ok(vec![result])
    };
    pair(call, |results, _| check(&results[0]))
}

/// The gradients of the sum of `result` weighted by `factors` with respect to `leaves`, then that sum, then
/// the result; all evaluated. The graph is not kept for a second pass, as with PyTorch's `grad`.
fn with_gradients(result: Tensor, factors: &Tensor, leaves: &[Tensor]) -> taper::Result<Vec<Tensor>> {
    let missing = || taper::Error::invalid("bench", "an input without a gradient");
    let sum = result.mul(factors)?.sum();
    let gradients: Option<Vec<Tensor>> = taper::grad(&[&sum], leaves, false)?.into_iter().collect();
    let mut all = gradients.ok_or_else(missing)?;
    all.extend([sum.detach(), result.detach()]);
    drop((sum, result));
    taper::eval_all(&all.iter().collect::<Vec<_>>())?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique() {
        let cases = all();
        let names: HashSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len());
        for case in cases.iter().filter(|case| case.beside_busy) {
            let quiet = case.name.strip_suffix(crate::case::BUSY_SUFFIX);
            assert!(quiet.is_some_and(|quiet| names.contains(quiet)), "{}", case.name);
        }
        assert_eq!(cases.iter().filter(|case| case.beside_busy).count(), 3);
    }
}
