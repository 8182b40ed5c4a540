//! The cases, a file for each kind of work, in the order of the table.

mod alone;
mod files;
mod language;
mod laws;
mod networks;
mod overhead;
mod recurrent;
mod rows;

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
    cases.extend(rows::listed());
    cases.extend(networks::listed());
    cases.extend(alone::training_starts());
    cases.extend(overhead::listed());
    cases.push(alone::dropped_graphs());
    cases.extend(rows::linalg_listed());
    let beside_busy = ["matmul_1024", "softmax_4096x1000", "simplenet_step_64"];
    let listed = rows::listed().into_iter().chain(networks::listed());
    cases.extend(listed.filter(|case| beside_busy.contains(&case.name.as_str())).map(Case::busy));
    cases.extend(rows::more());
    cases.extend(recurrent::more());
    cases.extend(networks::more());
    cases.push(language::token());
    cases.extend(files::more());
    cases.push(alone::new_sizes());
    cases.extend(onnx::listed().map(|(name, network)| Case::compared(name, network)));
    cases.extend(models::listed().map(|(name, model)| Case::compared(name, model)));
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
