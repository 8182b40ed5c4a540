//! The table of operations (`tools/operations`) on the device under test: one test for each check. With
//! `TAPER_TEST=operation=softmax` only the rows whose name contains that run; with
//! `TAPER_TEST=deal=tiled@20785` the cases that `cargo xtask test-all-backends` takes in that form of a GPU's
//! kernels on that day.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{device, needs};
use taper::DType;
use taper_operations::{
    Bench, Draw, Row,
    check::Verdict,
    different::DIFFERENT,
    fixtures::{Answers, IntegerFile, key},
    rows,
};

/// Runs a check for every row, and reports all failures.
fn hold(check: impl Fn(&Bench, &Row) -> Verdict) {
    let wanted = taper_testing::settings::setting("operation").unwrap_or_default();
    let draw = Draw::from_env();
    let bench = Bench::drawn(device(), draw);
    let rows: Vec<Row> = rows().into_iter().filter(|row| row.name.contains(&wanted)).collect();
    assert!(!rows.is_empty(), "no row has a name with {wanted}");
    let wrong: Vec<String> = rows
        .iter()
        .filter_map(|row| check(&bench, row).err().map(|wrong| format!("{}: {wrong}", row.label())))
        .collect();
    assert!(wrong.is_empty(), "{} of {} rows{draw}:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

#[test]
fn forward_in_every_dtype() {
    hold(Bench::forward);
}

#[test]
fn every_layout_and_shape() {
    hold(Bench::layouts);
}

#[test]
fn sizes_past_every_block() {
    hold(Bench::sizes);
}

#[test]
fn gradients_agree_with_the_reference() {
    hold(Bench::gradients);
}

#[test]
fn pytorch_gives_the_same() {
    let answers = Answers::of(crate::pytorch::fixture("operations"));
    hold(|bench, row| bench.torch(row, answers.get(&key(row))));
}

/// Integers and bools too, of rows that are for floats as well: what PyTorch takes is taken, and gives its
/// dtype.
#[test]
fn integers_and_bools_are_pytorchs() {
    let answers = crate::pytorch::fixture::<IntegerFile>("operations_integers").answers();
    hold(|bench, row| bench.integers(row, &answers));
}

/// A difference from PyTorch that is listed is still one.
#[test]
fn listed_differences_differ() {
    if device().name() != "cpu" {
        return;
    }
    let answers = crate::pytorch::fixture::<IntegerFile>("operations_integers").answers();
    let (bench, rows) = (Bench::new(device()), rows());
    for &(name, dtypes) in DIFFERENT.iter().flat_map(|(_, listed)| listed.iter()) {
        let named: Vec<&Row> = rows.iter().filter(|row| row.name == name).collect();
        assert!(!named.is_empty(), "no row is called {name}");
        for &dtype in dtypes {
            let differs = named.iter().any(|row| bench.integers_of(row, dtype, &answers).is_err());
            assert!(differs, "{name} of {dtype} is listed in tools/operations/src/different.rs, and agrees");
        }
    }
}

#[test]
fn bad_input_is_an_error() {
    hold(Bench::bad_input);
}

#[test]
fn vmap_is_slice_by_slice() {
    hold(Bench::mapped);
}

#[test]
fn jacobians_are_row_by_row() {
    hold(Bench::jacobians);
}

/// On the CPU alone: differences take f64, and the gradients of other devices are compared with these.
#[test]
fn derivatives_are_those_of_differences() {
    if device().name() == "cpu" && needs(&device(), DType::F64) {
        hold(Bench::derivatives);
    } else {
        eprintln!("note: differences are taken on the CPU alone: this part is not tested here");
    }
}
