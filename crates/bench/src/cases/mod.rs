//! The cases, a file for each kind of work, in the order of the table.

mod alone;
mod along;
mod elementwise;
mod indexing;
mod matmul;
mod overhead;
mod reduce;
mod rows;
mod training;
mod windows;

use taper::Tensor;

use crate::{
    Result,
    case::{Call, Case, Check, Work},
    machine::Machine,
};

pub(crate) use alone::{first_result, first_steps};

const NO_LINEAR_ALGEBRA: &str = "taper has no matrix decompositions yet";

/// Every case there is.
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
    cases.extend(
        ["pinv_500", "pinv_1000", "svd_1000", "solve_1000"].map(|n| Case::absent(n, NO_LINEAR_ALGEBRA)),
    );
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
    cases.push(alone::new_sizes());
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
            let quiet = case.name.strip_suffix(crate::case::BUSY);
            assert!(quiet.is_some_and(|quiet| names.contains(quiet)), "{}", case.name);
        }
        assert_eq!(cases.iter().filter(|case| case.beside_busy).count(), 3);
    }
}
