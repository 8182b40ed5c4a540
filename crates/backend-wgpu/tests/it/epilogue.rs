//! Contractions with epilogues: every form, dtype and access to additional operands, also if a kernel is
//! cut into pieces and parts.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::OnceLock;

use crate::common::{agree_on, device, devices, families};
use backend_wgpu::{Forced, Form, Options};
use taper_testing::epilogues::{contractions, epilogues, operands};
use tensor_core::{DType, Device, Kernel, Layout};

fn agree(on: &[(&'static str, Device)], kernel: &Kernel) {
    let dtype = kernel.operands[0].dtype;
    let terms: usize = kernel.reduced_axes().iter().map(|&axis| kernel.space[axis]).product();
    for case in epilogues(kernel) {
        let inputs: Vec<_> = operands(kernel).into_iter().chain(case.inputs).collect();
        let within = match dtype {
            DType::F32 => 4e-3_f64.max(1e-6 * terms as f64),
            DType::F16 => 1e-2,
            DType::BF16 => 6e-2,
            _ => 1e-6,
        };
        let what = format!("{} after {dtype} over {}", case.what, kernel.space);
        agree_on(on, &what, &case.kernel, &case.scalars, &inputs, within);
    }
}

#[test]
fn every_contraction_in_every_form() {
    // Each case is a pipeline of its own, so all contractions run in one dtype, and in the others only some,
    // each in one family.
    contractions(DType::F32).iter().for_each(|kernel| agree(devices(), kernel));
    let others = DType::ALL.into_iter().filter(|dtype| ![DType::Bool, DType::F32].contains(dtype));
    for (number, dtype) in others.enumerate() {
        // Narrow types share kernels with their compute types, except for loads and stores.
        let step = if dtype.is_narrow() { 16 } else { 4 };
        for (i, kernel) in contractions(dtype).iter().skip(1).step_by(step).enumerate() {
            let family = (i + number) % families().len().max(1);
            agree(families().get(family..=family).unwrap_or_default(), kernel);
        }
    }
}

/// Bindings of 16 KiB: results larger than a binding, and more terms than one holds, whose sums are
/// combined first.
#[test]
fn in_pieces_and_in_parts() {
    static SMALL: OnceLock<Vec<(&'static str, Device)>> = OnceLock::new();
    let small = SMALL.get_or_init(|| {
        if device().is_none() {
            return Vec::new();
        }
        let open = |form| {
            let forced = Forced { form, binding_bytes: Some(16 << 10), ..Forced::default() };
            backend_wgpu::open(0, &Options { forced, ..Options::default() }).unwrap()
        };
        vec![("direct", open(Form::Direct)), ("tiled", open(Form::Tiled))]
    });
    // How a product is cut does not depend on the dtype: two shapes show that its loads and stores are cut
    // too.
    let cut = [(90, 20, 110), (3, 4500, 5), (1, 4500, 3), (70, 100, 80), (3, 40, 1500)];
    let halves = [(90, 20, 110), (3, 9000, 5)];
    for (dtype, shapes) in [(DType::F32, &cut[..]), (DType::F16, &halves), (DType::I32, &cut[..2])] {
        for &(m, k, n) in shapes {
            let plain = [Layout::contiguous([m, k]), Layout::contiguous([k, n])];
            agree(small, &Kernel::matmul(dtype, &plain[0], &plain[1]));
        }
    }
}

/// More loop iterations than an invocation of a software adapter may run.
#[test]
fn over_many_terms() {
    let (a, b) = (Layout::contiguous([2, 140_000]), Layout::contiguous([3, 140_000]).permute(&[1, 0]));
    agree(devices(), &Kernel::matmul(DType::F32, &a, &b));
}
