//! The fuzzer finds bugs that are put in on purpose, and reports them in a few lines.
#![allow(clippy::unwrap_used, clippy::panic)]

use taper::{
    Device, Layout, Result,
    tensor_core::{
        BinaryOp, CompareOp, Kernel, Launch,
        kernel::{Body, Instr},
    },
};
use taper_fuzz::{Report, gradient_case, product_case, program_case, threads_case};
use taper_testing::{hooked, reference, reference_backend};

/// The plain reference, with some kernels replaced by `change`.
fn broken(change: fn(&mut Kernel)) -> Device {
    hooked(reference_backend().1, move |plain, launch| {
        let mut kernel = launch.kernel.clone();
        change(&mut kernel);
        plain.run(&Launch { kernel: &kernel, ..*launch })
    })
}

/// Changes the instructions of maps.
fn instructions(kernel: &mut Kernel, change: impl Fn(&mut Instr)) {
    if let Body::Map(program) = &mut kernel.body {
        program.instrs.iter_mut().for_each(change);
    }
}

/// The first case that fails, of 300.
fn first(device: &Device, case: fn(u64, u64, &Device) -> Result<(), Report>) -> Report {
    (0..300).find_map(|k| case(1, k, device).err()).expect("the fault is found")
}

/// Whether a report names one of these, or a row of the table, which is built of them.
fn names(report: &Report, operations: &[&str]) -> bool {
    operations.iter().chain(&["taper_operations::apply"]).any(|name| report.code.contains(name))
}

#[test]
fn a_comparison_that_takes_equals_for_less_is_found() {
    let device = broken(|kernel| {
        instructions(kernel, |instr| {
            if let Instr::Compare(op @ CompareOp::Lt, ..) = instr {
                *op = CompareOp::Le;
            }
        });
    });
    let report = first(&device, program_case);
    assert!(names(&report, &[".lt", "clamp"]), "{}", report.code);
    assert!(report.code.lines().count() <= 6, "{}", report.code);
}

#[test]
fn a_running_operation_that_runs_the_other_way_is_found() {
    let device = broken(|kernel| {
        if let Body::Cumulative { reverse, .. } = &mut kernel.body {
            *reverse = !*reverse;
        }
    });
    let report = first(&device, program_case);
    assert!(names(&report, &["cum"]), "{}", report.code);
    assert!(report.code.lines().count() <= 4, "{}", report.code);
}

#[test]
fn an_operand_whose_strides_are_not_looked_at_is_found() {
    let device = broken(|kernel| {
        if let Body::Contract(_) = kernel.body
            && kernel.outputs[0].shape.numel() == 1
        {
            let rhs = &mut kernel.operands[1].layout;
            if rhs.strides().iter().zip(rhs.shape().iter()).all(|(&stride, &size)| stride > 0 || size == 1) {
                *rhs = Layout::contiguous(rhs.shape().clone());
            }
        }
    });
    let report = first(&device, product_case);
    assert!(report.code.lines().count() <= 5, "{}", report.code);
    assert!(report.what.starts_with("element 0 is"), "{}", report.what);
}

#[test]
fn a_gradient_that_differs_from_the_reference_is_found() {
    // A division by the standard deviation is a product with it, in a kernel of gradients as in any other.
    let device = broken(|kernel| {
        instructions(kernel, |instr| {
            if let Instr::Binary(op @ BinaryOp::Div, ..) = instr {
                *op = BinaryOp::Mul;
            }
        });
    });
    let report = first(&device, gradient_case);
    assert!(report.what.contains("derivative"), "{}", report.what);
}

/// Two axes that step alike through memory: windows that overlap.
fn overlapping(layout: &Layout) -> Option<usize> {
    let axes: Vec<usize> = (0..layout.strides().len()).filter(|&axis| layout.shape()[axis] > 1).collect();
    let alike = |&a: &usize| axes.iter().any(|&b| b < a && layout.strides()[a] == layout.strides()[b]);
    axes.iter().copied().filter(|&a| layout.strides()[a] != 0).find(alike)
}

/// Only rows of the table of operations have windows.
#[test]
fn windows_that_hold_their_first_element_alone_are_found() {
    let device = broken(|kernel| {
        for operand in &mut kernel.operands {
            if let Some(axis) = overlapping(&operand.layout) {
                let mut strides = operand.layout.strides().to_vec();
                strides[axis] = 0;
                operand.layout =
                    Layout::new(operand.layout.shape().clone(), &strides, operand.layout.offset());
            }
        }
    });
    let report = first(&device, program_case);
    assert!(report.code.contains("taper_operations::apply"), "{}", report.code);
}

#[test]
fn nothing_is_found_in_the_reference_itself() {
    let device = reference();
    for case in 0..60 {
        for family in [program_case, gradient_case, product_case] {
            family(2, case, &device).unwrap_or_else(|r| panic!("case {case}: {}\n{}", r.what, r.code));
        }
    }
    threads_case(2, 0, &device).unwrap_or_else(|r| panic!("{}\n{}", r.what, r.code));
}
