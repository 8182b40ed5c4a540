//! More workgroups than one dimension of a dispatch allows, with the adapter's own limits, for each kind of
//! kernel. Maps, reductions and products have such tests in their own files. With the limit forced to 5,
//! every test exercises this.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{device, scatter, to_bytes, to_numbers};
use backend_wgpu::{Forced, Options};
use tensor_core::{
    ArgReduceOp, DType, Device, Kernel, Launch, Layout, Scalar, ScatterOp, Storage, Tensor,
    kernel::{Compiled, Operand},
};

/// More workgroups of 256 invocations than one dimension allows.
const N: usize = 65_536 * 256 + 77;

/// Runs a kernel, and returns the elements at the output's ends and around the start of the 65,536th
/// workgroup.
fn run(device: &Device, kernel: &Kernel, scalars: &[Scalar], inputs: &[(DType, Vec<f64>)]) -> Vec<f64> {
    let backend = device.backend();
    let upload = |(d, v): &(DType, Vec<f64>)| backend.upload(*d, &to_bytes(*d, v)).unwrap();
    let inputs: Vec<Storage> = inputs.iter().map(upload).collect();
    let (shape, dtype) = (kernel.outputs[0].shape.clone(), kernel.outputs[0].dtype);
    let output = backend.allocate(dtype, shape.numel()).unwrap();
    let compiled = Compiled::default();
    let launch = Launch {
        kernel,
        compiled: &compiled,
        scalars,
        inputs: &inputs,
        outputs: std::slice::from_ref(&output),
        tickets: &[],
    };
    backend.run(&launch).unwrap();
    let mut found = Vec::new();
    for start in [0, 65_535 * 256 - 2, shape.numel() - 4] {
        let mut bytes = vec![0; 4 * dtype.size()];
        backend.download(&output, start, &mut bytes).unwrap();
        found.extend(to_numbers(dtype, &bytes));
    }
    found
}

#[test]
fn copies_and_fills() {
    let Some(device) = device() else { return };
    // An odd offset prevents vectors, which would need only a fourth of the workgroups.
    let region = (Layout::contiguous([N]), Layout::new([N], &[0], 1));
    let copy = |fill, regions: Vec<(Layout, Layout)>| Kernel::copy(DType::F32, N.into(), fill, regions);
    let inputs = [(DType::F32, vec![1.0, 3.0])];
    assert_eq!(run(device, &copy(false, vec![region]), &[], &inputs), [3.0; 12]);
    assert_eq!(run(device, &copy(true, vec![]), &[Scalar::Float(7.0)], &[]), [7.0; 12]);
}

#[test]
fn gathers_and_scatters() {
    let Some(device) = device() else { return };
    let gather = Kernel::gather(
        0,
        Operand::new(DType::F32, Layout::contiguous([4])),
        Operand::new(DType::I32, Layout::new([N], &[0], 0)),
    );
    let inputs = [(DType::F32, vec![5.0, 6.0, 7.0, 8.0]), (DType::I32, vec![2.0])];
    assert_eq!(run(device, &gather, &[], &inputs), [7.0; 12]);

    // Every line has one index: 1 is added at each second element.
    let lines = Layout::new([N.div_ceil(2), 1], &[0, 0], 0);
    let base = Layout::new([N.div_ceil(2), 2], &[0, 0], 0);
    let add = scatter(ScatterOp::Add, 1, DType::F32, DType::I32, base, lines.clone(), lines);
    let inputs = [(DType::F32, vec![4.0]), (DType::I32, vec![1.0]), (DType::F32, vec![1.0])];
    assert_eq!(run(device, &add, &[], &inputs), [4.0, 5.0].repeat(6));
}

#[test]
fn indices_of_extremes() {
    let Some(device) = device() else { return };
    let input = Layout::new([N, 2], &[0, 1], 0);
    let kernel = Kernel::arg_reduce(ArgReduceOp::ArgMax, 1, Operand::new(DType::F32, input));
    assert_eq!(run(device, &kernel, &[], &[(DType::F32, vec![4.0, 5.0])]), [1.0; 12]);
}

/// The scheduler stays within 8 bindings; wgpu would refuse more.
#[test]
fn more_inputs_in_one_expression_than_bindings() {
    if device().is_none() {
        return;
    }
    let forced = Forced { storage_buffers: Some(8), ..Forced::default() };
    let device = backend_wgpu::open(0, &Options { forced, ..Options::default() }).unwrap();
    let limits = device.info().limits;
    assert!(limits.max_inputs + limits.max_outputs < 8, "{limits:?}");
    let tensor = |i: usize| Tensor::from_vec(vec![i as f32; 100], [100], &device).unwrap();
    let sum = (1..20).fold(tensor(0), |sum, i| sum + tensor(i));
    let (mean, square) = (sum.mean(), &sum * &sum);
    assert_eq!(sum.to_vec::<f32>().unwrap(), [190.0; 100]);
    assert_eq!(mean.item::<f32>().unwrap(), 190.0);
    assert_eq!(square.to_vec::<f32>().unwrap(), [36_100.0; 100]);
}
