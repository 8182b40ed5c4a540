//! Programs that read at indices, against the reference backend.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use taper_testing::load_at::{LoadAtCase, bad_load_at_cases, load_at_cases};
use tensor_core::{
    BinaryOp, DType, ErrorKind, Kernel, Launch, Layout, Location, Ticket,
    kernel::{Compiled, IndexedAxis, Instr, Program},
};

use crate::common::{INDEX_DTYPES, agree, devices, numbers, read, run, to_bytes};

fn check(case: &LoadAtCase) {
    let LoadAtCase { what, kernel, scalars, inputs } = case;
    let within = match inputs[1].0 {
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        dtype if dtype.is_float() => 1e-5,
        _ => 0.0,
    };
    agree(what, kernel, scalars, inputs, within);
}

#[test]
fn tables_of_f32() {
    load_at_cases(DType::F32, DType::I32).iter().for_each(check);
}

/// A subset of the cases, a different one for each dtype.
#[test]
fn tables_of_every_dtype() {
    for (first, table) in DType::ALL.into_iter().enumerate() {
        load_at_cases(table, DType::I32).iter().skip(first % 15).step_by(15).for_each(check);
    }
}

#[test]
fn indices_of_every_dtype() {
    for (first, index) in INDEX_DTYPES.into_iter().enumerate() {
        load_at_cases(DType::F32, index).iter().skip(first).step_by(5).for_each(check);
    }
}

#[test]
fn a_bad_index_is_told_by_its_ticket() {
    for (name, device) in devices() {
        for dtype in INDEX_DTYPES.into_iter().filter(|&dtype| device.supports(dtype)) {
            for (case, bad) in bad_load_at_cases(dtype) {
                let error = run(device, &case.kernel, &case.scalars, &case.inputs).unwrap_err();
                let ErrorKind::IndexOutOfRange { op: "gather", index, axis, size } = *error.kind() else {
                    panic!("{name}: {}: {error}", case.what)
                };
                let own = case.kernel.operands[1].indexed.unwrap();
                let computed = case.what.starts_with("Computed") && index == 10i64.wrapping_sub(bad);
                assert_eq!((axis, size), (own.axis, own.size), "{name}: {}", case.what);
                assert!(index == bad || computed, "{name}: {}: {error}", case.what);
            }
        }
    }
}

/// One kernel reads two tables, each at its own indices: the error names the table with the bad index, and
/// a bad index reads nothing.
#[test]
fn each_table_has_a_ticket_of_its_own() {
    let axis = |size| IndexedAxis { axis: 0, size, stride: 1 };
    let program = Program {
        instrs: vec![
            Instr::Load(0),
            Instr::Load(1),
            Instr::LoadAt { input: 2, index: 0 },
            Instr::LoadAt { input: 3, index: 1 },
            Instr::Binary(BinaryOp::Add, 2, 3),
        ],
        dtypes: vec![DType::I32, DType::I32, DType::F32, DType::F32, DType::F32],
        inputs: vec![DType::I32, DType::I32, DType::F32, DType::F32],
        scalars: vec![],
        outputs: vec![4],
    };
    let (here, start) = (Layout::contiguous([3]), Layout::new([3], &[0], 0));
    let kernel = Kernel::map([3].into(), [here.clone(), here, start.clone(), start], program).with_indexed([
        None,
        None,
        Some(axis(4)),
        Some(axis(6)),
    ]);
    for (name, device) in devices() {
        let backend = device.backend();
        for (first, second, bad) in
            [(9, 0, [Some(9), None]), (0, 8, [None, Some(8)]), (5, 7, [Some(5), Some(7)])]
        {
            let upload = |dtype, values: &[f64]| backend.upload(dtype, &to_bytes(dtype, values)).unwrap();
            let inputs = [
                upload(DType::I32, &[1.0, f64::from(first), 2.0]),
                upload(DType::I32, &[3.0, f64::from(second), 5.0]),
                upload(DType::F32, &[1.0, 2.0, 3.0, 4.0]),
                upload(DType::F32, &[10.0, 20.0, 30.0, 40.0, 50.0, 60.0]),
            ];
            let output = backend.allocate(DType::F32, 3).unwrap();
            let tickets = Ticket::all(&kernel, "add", Location::caller());
            assert_eq!(tickets.iter().map(|(operand, _)| *operand).collect::<Vec<_>>(), [2, 3]);
            let launch = Launch {
                kernel: &kernel,
                compiled: &Compiled::default(),
                scalars: &[],
                inputs: &inputs,
                outputs: std::slice::from_ref(&output),
                tickets: &tickets,
            };
            backend.run(&launch).unwrap();
            let found = read(device, &output).unwrap();
            assert_eq!((found[0], found[2]), (42.0, 63.0), "{name}");
            let told = |ticket: &Arc<Ticket>| {
                ticket.result().err().map(|error| match *error.kind() {
                    ErrorKind::IndexOutOfRange { index, .. } => index,
                    _ => panic!("{name}: {error}"),
                })
            };
            assert_eq!([told(&tickets[0].1), told(&tickets[1].1)], bad, "{name}");
        }
    }
}

/// Positions in vectors of four that read two tables along and across them.
#[test]
fn long_maps() {
    for n in [4096, 4099, 70_000] {
        let program = Program {
            instrs: vec![
                Instr::Load(0),
                Instr::Load(1),
                Instr::LoadAt { input: 2, index: 0 },
                Instr::Binary(BinaryOp::Mul, 1, 2),
            ],
            dtypes: vec![DType::I32, DType::F32, DType::F32, DType::F32],
            inputs: vec![DType::I32, DType::F32, DType::F32],
            scalars: vec![],
            outputs: vec![3],
        };
        // Element i of row index[i], with overlapping rows.
        let layouts =
            [[1, 0], [1, 0], [1, 3]].map(|[stride, offset]| Layout::new([n], &[stride], offset as usize));
        let axis = IndexedAxis { axis: 0, size: 5, stride: 7 };
        let kernel = Kernel::map([n].into(), layouts, program).with_indexed([None, None, Some(axis)]);
        let index: Vec<f64> = numbers(n, 5).iter().map(|x| ((x + 2.0) * 1.24).floor()).collect();
        let inputs = [(DType::I32, index), (DType::F32, numbers(n, 6)), (DType::F32, numbers(n + 40, 7))];
        agree("rows that overlap", &kernel, &[], &inputs, 1e-6);
    }
}
