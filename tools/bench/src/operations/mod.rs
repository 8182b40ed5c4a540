//! The table of operations at full size: every row for which a size is meaningful, compared with its PyTorch
//! expression on the same inputs.
//!
//! | look for | in |
//! |---|---|
//! | which rows, how large, and why others are left out | `sizes` |
//! | rows of this program alone: tensors made of nothing, random ones | `made` |

mod made;
mod sizes;

use std::{collections::BTreeMap, rc::Rc};

use taper::DType;
use taper_operations::{
    Row,
    row::{DTypes, Values},
    rows,
};

use sizes::{Draw, SIZES, Size};

use crate::{
    case::Case,
    expression::{Check, Expression, Fill, Large, PREFIX},
};

/// Number of elements of an elementwise operation.
const POINTWISE: usize = 10_000_000;

/// A case for each row that is measured.
pub(crate) fn listed() -> Vec<Case> {
    plan().0
}

/// The names of operations without a case, by reason.
pub(crate) fn left_out() -> BTreeMap<&'static str, Vec<&'static str>> {
    plan().1
}

fn plan() -> (Vec<Case>, BTreeMap<&'static str, Vec<&'static str>>) {
    let (mut cases, mut left) = (Vec::new(), BTreeMap::<_, Vec<_>>::new());
    let own = made::names();
    let mut by_name: Vec<(&'static str, Vec<Row>)> = Vec::new();
    for row in rows().into_iter().filter(|row| !own.contains(&row.name)) {
        match by_name.iter_mut().find(|(name, _)| *name == row.name) {
            Some((_, rows)) => rows.push(row),
            None => by_name.push((row.name, vec![row])),
        }
    }
    for (name, rows) in by_name {
        match measured(rows) {
            Ok(rows) => cases.extend(named(name, rows)),
            Err(reason) => left.entry(reason).or_default().push(name),
        }
    }
    for (row, random) in made::rows() {
        let (name, inputs) = (row.name, row.inputs.iter().map(|input| full(&row, input)).collect());
        let check = if random { Check::Nothing } else { Check::Peer(usize::MAX) };
        cases.extend(named(name, vec![expression(row, inputs, check)]));
    }
    (cases, left)
}

/// The rows of one name that are measured, or why none is: those that sizes are given for, else the first
/// that all sizes suit.
fn measured(rows: Vec<Row>) -> Result<Vec<Expression>, &'static str> {
    let name = rows[0].name;
    if let Some((reason, _)) = sizes::LEFT_OUT.iter().find(|(_, names)| names.contains(&name)) {
        return Err(reason);
    }
    let rows: Vec<Row> = rows.into_iter().filter(|row| !row.torch.is_empty()).collect();
    if rows.is_empty() {
        return Err("PyTorch has no such operation");
    }
    let given = |row: &Row| SIZES.iter().find(|(of, torch, _)| (*of, *torch) == (row.name, row.torch));
    let any_given = rows.iter().any(|row| given(row).is_some());
    let compared = if sizes::FIRST_ALONE.contains(&name) { 1 } else { usize::MAX };
    let mut chosen: Vec<Expression> = Vec::new();
    for row in rows {
        // The same expression with other numbers is the same operation.
        if chosen.iter().any(|other| other.torch == row.torch) {
            continue;
        }
        let inputs = match given(&row) {
            Some((.., sizes)) => {
                Some(row.inputs.iter().zip(*sizes).map(|(i, size)| large(i, size)).collect())
            }
            None if any_given || !chosen.is_empty() => None,
            // Matrices have their own sizes.
            None if name.starts_with("linalg::") => None,
            None => scaled(&row),
        };
        if let Some(inputs) = inputs {
            chosen.push(expression(row, inputs, Check::Peer(compared)));
        }
    }
    match chosen.is_empty() {
        true if name.starts_with("linalg::") => {
            Err("its matrices are those of the row; cpu.md has larger ones")
        }
        true => Err("no size is given for it (tools/bench/src/operations/sizes.rs)"),
        false => Ok(chosen),
    }
}

fn case_name(name: &str) -> String {
    format!("{PREFIX}{}", name.replace("::", "_"))
}

/// Cases of one name.
fn named(name: &str, expressions: Vec<Expression>) -> impl Iterator<Item = Case> {
    let name = case_name(name);
    expressions.into_iter().enumerate().map(move |(k, expression)| {
        let name = if k == 0 { name.clone() } else { format!("{name}_{}", k + 1) };
        Case::compared(name, expression).reps(3..=2000)
    })
}

/// A row at full size.
fn expression(row: Row, inputs: Vec<Large>, check: Check) -> Expression {
    Expression {
        torch: row.torch.into(),
        inputs,
        dtype: dtype(&row),
        gradients: false,
        compiled: false,
        check,
        loose: row.loose,
        pointwise: row.pointwise,
        run: Rc::new(move |given| row.run(given)),
    }
}

/// The dtype that a row is measured in.
fn dtype(row: &Row) -> DType {
    match row.dtypes {
        DTypes::Floats | DTypes::F32F64 | DTypes::Numbers | DTypes::All => DType::F32,
        DTypes::Ints | DTypes::IntsBool => DType::I32,
        DTypes::Bool => DType::Bool,
    }
}

/// An input of a given size.
fn large(input: &taper_operations::row::Input, size: &Size) -> Large {
    let Size(shape, draw) = size;
    let values = match *draw {
        Draw::Own => own(&input.values),
        Draw::Between(low, high) => Fill::Between(low, high),
        Draw::Whole(bound) => Fill::Whole(bound),
        Draw::Index(bound) => Fill::Index(bound),
        Draw::Distinct(bound) => Fill::Distinct(bound),
        Draw::Sorted => Fill::Sorted,
        Draw::Signs => Fill::Cycle(vec![1.0, -1.0, 1.0, 1.0, -1.0]),
    };
    Large { shape: shape.to_vec(), values }
}

fn own(values: &Values) -> Fill {
    match values {
        Values::Between(low, high) => Fill::Between(*low, *high),
        Values::Exactly(values) | Values::Index(values) => Fill::Cycle(values.clone()),
        Values::Mask => Fill::Mask,
    }
}

/// An input of an operation that works element by element.
fn full(_: &Row, input: &taper_operations::row::Input) -> Large {
    Large { shape: vec![POINTWISE], values: own(&input.values) }
}

/// The inputs of a row at full size, where its own shapes say which: all of ten million elements for what
/// works element by element, `[3, 4]` as `[4096, 1000]`, `[2, 3, 4]` as `[16, 256, 1000]`.
fn scaled(row: &Row) -> Option<Vec<Large>> {
    if row.inputs.is_empty() {
        return None;
    }
    if row.pointwise {
        return Some(row.inputs.iter().map(|input| full(row, input)).collect());
    }
    let deep = row.inputs.iter().all(|input| input.shape == [2, 3, 4]);
    let size = |&n: &usize| match n {
        1 => Some(1),
        2 if deep => Some(16),
        3 => Some(if deep { 256 } else { 4096 }),
        4 => Some(1000),
        _ => None,
    };
    row.inputs
        .iter()
        .map(|input| {
            let shape = input.shape.iter().map(size).collect::<Option<Vec<_>>>()?;
            let values = match &input.values {
                Values::Index(values) if values.iter().all(|&v| v >= 0.0) => {
                    Fill::Index(size(&(values.iter().fold(0.0, |a: f64, &b| a.max(b)) as usize + 1))?)
                }
                // The row's numbers are for the row's shape; large inputs get other numbers.
                Values::Index(_) | Values::Exactly(_) => return None,
                Values::Between(..) | Values::Mask => own(&input.values),
            };
            (input.shape.len() <= 2 || deep).then_some(Large { shape, values })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_operation_is_measured_or_left_out_with_a_reason() {
        let (cases, left) = plan();
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        let left: BTreeSet<&str> = left.values().flatten().copied().collect();
        for row in rows() {
            assert!(names.contains(&*case_name(row.name)) || left.contains(row.name), "{}", row.name);
        }
        assert!(cases.len() > 250, "{} cases", cases.len());
    }

    /// A size without a row would never be used.
    #[test]
    fn every_size_is_that_of_a_row() {
        let rows = rows();
        for (name, torch, sizes) in SIZES {
            let row = rows.iter().find(|row| (row.name, row.torch) == (*name, *torch));
            assert_eq!(row.map(|row| row.inputs.len()), Some(sizes.len()), "{name}: {torch}");
        }
        for name in sizes::LEFT_OUT.iter().flat_map(|(_, names)| *names) {
            assert!(rows.iter().any(|row| row.name == *name), "{name}");
        }
    }

    #[test]
    fn sizes_follow_from_shapes() {
        let shapes = |name: &str| -> Vec<Vec<usize>> {
            let row = rows().into_iter().find(|row| row.name == name).unwrap();
            scaled(&row).unwrap().into_iter().map(|large| large.shape).collect()
        };
        assert_eq!(shapes("exp"), [[POINTWISE]]);
        assert_eq!(shapes("softmax"), [[4096, 1000]]);
        assert_eq!(shapes("mean_axis"), [[16, 256, 1000]]);
        assert_eq!(shapes("functional::nll_loss"), [vec![4096, 1000], vec![4096]]);
        let row = rows().into_iter().find(|row| row.name == "functional::nll_loss").unwrap();
        assert!(matches!(scaled(&row).unwrap()[1].values, Fill::Index(1000)));
    }
}
