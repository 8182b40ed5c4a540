//! Every row of the table of operations (`tools/operations`): exported, read again and compared. Rows that
//! are not in this way are listed in `rows_without_form.tsv` with the reason; a row that could be exported
//! must not be in the list.

use std::collections::BTreeMap;

use taper_operations::{
    Row,
    row::{Given, Placement},
    rows,
};
use tensor_core::{DType, Device, Tensor};

use crate::{export::Nothing, round_trip::RoundTrip};

/// The labels of rows that are not exported, with the reasons.
fn listed() -> BTreeMap<String, String> {
    let list = include_str!("rows_without_form.tsv");
    let line = |line: &str| line.split_once('\t').map(|(row, why)| (row.to_string(), why.to_string()));
    list.lines().filter_map(line).collect()
}

/// Exports a row with its first type, and compares its results.
fn round_trip(row: &Row, number: usize, device: &Device) -> Result<(), String> {
    let in_words = |error: tensor_core::Error| error.to_string();
    let Some(dtype) = row.dtypes_on(device).into_iter().next() else { return Ok(()) };
    let given = row.given(device, dtype, dtype, Placement::Contiguous).map_err(in_words)?;
    let forward =
        |_: &Nothing, x: &[Tensor]| row.run(&Given { tensors: x.to_vec(), dtype, device: device.clone() });
    let precise = if matches!(dtype, DType::F32 | DType::F64) { 2e-4 } else { 1e-2 };
    let name = format!("row{number}_{}", row.name.replace("::", "_"));
    let trip = RoundTrip {
        name: &name,
        inputs: given.tensors.clone(),
        tolerance: precise * row.loose,
        ..Default::default()
    };
    trip.run(&Nothing, forward).map(|_| ())
}

#[test]
fn every_row_is_exported_or_listed_with_a_reason() {
    let wanted = taper_testing::settings::setting("operation").unwrap_or_default();
    let listed = listed();
    // Traces are the same on every device.
    let device = backend_cpu::cpu();
    let (mut wrong, mut exported, mut left, mut by_value) = (Vec::new(), 0, 0, 0);
    for (number, row) in rows().iter().enumerate().filter(|(_, row)| row.name.contains(&wanted)) {
        let label = row.label();
        // A trace fixes the values that a row reads.
        if row.by_value && row.name != "contiguous" {
            by_value += 1;
            continue;
        }
        let found = round_trip(row, number, &device);
        match (found, listed.get(&label)) {
            (Ok(()), None) => exported += 1,
            (Ok(()), Some(_)) => wrong.push(format!("{label}\tis exported: take it out of the list")),
            (Err(_), Some(_)) => left += 1,
            (Err(why), None) => wrong.push(format!("{label}\t{why}")),
        }
    }
    eprintln!("{}: {exported} rows exported, {left} without a form, {by_value} read values", device.name());
    assert!(wrong.is_empty(), "{}: {} rows:\n{}", device.name(), wrong.len(), wrong.join("\n"));
}
