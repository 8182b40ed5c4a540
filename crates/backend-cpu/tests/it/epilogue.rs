//! Contractions with epilogues give the same bits as a contraction followed by a map, in every form and
//! dtype.
#![allow(clippy::unwrap_used)]

use taper_testing::{
    assert_close,
    epilogues::{EpilogueCase, contractions, epilogues, operands},
};
use tensor_core::{
    DType, Device, Kernel, Launch, Layout, Scalar, Storage,
    kernel::{Body, Compiled},
};

fn upload(device: &Device, (dtype, values): &(DType, Vec<f64>)) -> Storage {
    let scalars: Vec<Scalar> = values.iter().map(|&x| Scalar::Float(x).cast(*dtype)).collect();
    device.backend().upload(*dtype, &Scalar::to_bytes(*dtype, &scalars)).unwrap()
}

/// Runs a kernel on new output buffers.
fn launch(device: &Device, kernel: &Kernel, scalars: &[Scalar], inputs: &[Storage]) -> Vec<Storage> {
    let fresh = |output: &tensor_core::kernel::Output| {
        device.backend().allocate(output.dtype, output.shape.numel()).unwrap()
    };
    let outputs: Vec<Storage> = kernel.outputs.iter().map(fresh).collect();
    let compiled = Compiled::default();
    let launch = Launch { kernel, compiled: &compiled, scalars, inputs, outputs: &outputs, tickets: &[] };
    launch.check().unwrap();
    device.backend().run(&launch).unwrap();
    outputs
}

fn bytes(device: &Device, storage: &Storage) -> Vec<u8> {
    let mut bytes = vec![0; storage.numel() * storage.dtype().size()];
    device.backend().download(storage, 0, &mut bytes).unwrap();
    bytes
}

/// Compares an epilogue with a map over the sums, bit by bit. Half types are compared with the reference,
/// because the map would round their sums first.
fn check(case: &EpilogueCase, buffers: &[(DType, Vec<f64>)]) {
    let EpilogueCase { what, kernel, scalars, inputs } = case;
    let device = backend_cpu::cpu();
    let dtype = kernel.operands[0].dtype;
    let what = format!("{what} after {dtype} over {}", kernel.space);
    let all = |device: &Device| -> Vec<Storage> {
        buffers.iter().chain(inputs).map(|input| upload(device, input)).collect()
    };
    let own = all(&device);
    let found = launch(&device, kernel, scalars, &own);
    if dtype.compute() == dtype {
        let sums = launch(&device, &kernel.without_epilogue(), &[], &own[..2]);
        let map = kernel.epilogue_map().unwrap();
        let read: Vec<Storage> = sums.into_iter().chain(own[2..].iter().cloned()).collect();
        let expected = launch(&device, &map, scalars, &read);
        for (o, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(bytes(&device, found), bytes(&device, expected), "{what}: output {o}");
        }
        return;
    }
    let reference = taper_testing::reference();
    let expected = launch(&reference, kernel, scalars, &all(&reference));
    let numbers = |device: &Device, storage: &Storage| -> Vec<f64> {
        let scalars = Scalar::from_bytes(storage.dtype(), &bytes(device, storage));
        scalars.iter().map(|scalar| scalar.as_f64()).collect()
    };
    let within = if dtype == DType::BF16 { (1e-2, 2e-2) } else { (2e-3, 2e-3) };
    for (o, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let (found, expected) = (numbers(&device, found), numbers(&reference, expected));
        assert_close(&found, &expected, within, &format!("{what}: output {o}"));
    }
}

#[test]
fn every_contraction_of_every_dtype() {
    for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::Bool) {
        for kernel in contractions(dtype) {
            epilogues(&kernel).iter().for_each(|case| check(case, &operands(&kernel)));
        }
    }
}

/// Products that are finished tile by tile, with several blocks of terms, shared among threads; and long
/// batches of small products.
#[test]
fn large_products() {
    for dtype in [DType::F32, DType::F64, DType::I32, DType::F16] {
        let lay = |shape: &[usize]| Layout::contiguous(shape);
        for (m, k, n) in [(150, 900, 130), (700, 70, 24), (90, 70, 1300), (1, 300, 5000), (5000, 9, 1)] {
            // The reference is slow.
            if dtype == DType::F16 && m * k * n > 1 << 20 {
                continue;
            }
            let kernel = Kernel::matmul(dtype, &lay(&[m, k]), &lay(&[k, n]));
            epilogues(&kernel).iter().for_each(|case| check(case, &operands(&kernel)));
        }
        let kernel = Kernel::matmul(dtype, &lay(&[70, 9, 12]), &lay(&[70, 12, 10]));
        epilogues(&kernel).iter().for_each(|case| check(case, &operands(&kernel)));
    }
}

/// The bits of an element do not depend on the other elements that are computed.
#[test]
fn bits_do_not_depend_on_the_rest_of_the_shape() {
    let device = backend_cpu::cpu();
    let whole = Kernel::matmul(DType::F32, &Layout::contiguous([90, 500]), &Layout::contiguous([500, 200]));
    for case in epilogues(&whole) {
        let buffers: Vec<Storage> =
            operands(&whole).iter().chain(&case.inputs).map(|input| upload(&device, input)).collect();
        let all = launch(&device, &case.kernel, &case.scalars, &buffers);
        let part = case.kernel.narrow(0, 17, 3).unwrap();
        let some = launch(&device, &part, &case.scalars, &buffers);
        for (all, some) in all.iter().zip(&some) {
            let row = 200 * all.dtype().size();
            assert_eq!(bytes(&device, some), bytes(&device, all)[17 * row..20 * row], "{}", case.what);
        }
    }
}

/// A launch that breaks the contract of an epilogue is refused before anything is read.
#[test]
fn a_bad_launch_is_refused() {
    let device = backend_cpu::cpu();
    let kernel = Kernel::matmul(DType::F32, &Layout::contiguous([3, 4]), &Layout::contiguous([4, 5]));
    let case = &epilogues(&kernel)[0];
    let buffers: Vec<(DType, Vec<f64>)> = operands(&kernel).into_iter().chain(case.inputs.clone()).collect();
    let refusal = |change: &dyn Fn(&mut Kernel)| -> String {
        let mut kernel = case.kernel.clone();
        change(&mut kernel);
        let inputs: Vec<Storage> = buffers.iter().map(|input| upload(&device, input)).collect();
        let outputs: Vec<Storage> = vec![device.backend().allocate(DType::F32, 15).unwrap()];
        let compiled = Compiled::default();
        let scalars = &case.scalars;
        let launch = Launch {
            kernel: &kernel,
            compiled: &compiled,
            scalars,
            inputs: &inputs,
            outputs: &outputs,
            tickets: &[],
        };
        launch.check().unwrap_err().to_string()
    };
    let moved = refusal(&|kernel| {
        let space = kernel.space.clone();
        kernel.operands[2].layout = Layout::new(space, &[0, 1, 1], 0);
    });
    assert!(moved.contains("an axis that is summed"), "{moved}");
    let beyond = refusal(&|kernel| {
        let space = kernel.space.clone();
        kernel.operands[2].layout = Layout::new(space, &[0, 1, 0], 10);
    });
    assert!(beyond.contains("input 2"), "{beyond}");
    let crossed = refusal(&|kernel| {
        if let Body::Contract(Some(program)) = &mut kernel.body {
            program.inputs.reverse();
            program.inputs[0] = DType::I32;
        }
    });
    assert!(crossed.contains("reads"), "{crossed}");
}
