//! Programs that read at indices, against the reference backend.
#![allow(clippy::unwrap_used, clippy::panic)]

use taper_testing::{
    assert_close,
    load_at::{LoadAtCase, bad_load_at_cases, load_at_cases},
};
use tensor_core::{
    DType, Device, Error, ErrorKind, Launch, Location, Result, Scalar, Storage, Ticket, kernel::Compiled,
};

/// The dtypes that indices may be of.
const INDEX_DTYPES: [DType; 4] = [DType::I32, DType::I64, DType::U32, DType::U8];

fn upload(device: &Device, (dtype, values): &(DType, Vec<f64>)) -> Storage {
    // Whole numbers beyond the range of i64 become the ends of its range.
    let scalar = |&x: &f64| match dtype {
        dtype if dtype.is_int() => Scalar::Int(x as i64).cast(*dtype),
        _ => Scalar::Float(x).cast(*dtype),
    };
    let scalars: Vec<Scalar> = values.iter().map(scalar).collect();
    device.backend().upload(*dtype, &Scalar::to_bytes(*dtype, &scalars)).unwrap()
}

fn run(device: &Device, case: &LoadAtCase, with_tickets: bool) -> Result<Vec<Vec<f64>>> {
    let LoadAtCase { kernel, scalars, inputs, .. } = case;
    let backend = device.backend();
    let inputs: Vec<Storage> = inputs.iter().map(|input| upload(device, input)).collect();
    let fresh = |output: &tensor_core::kernel::Output| backend.allocate(output.dtype, output.shape.numel());
    let outputs: Vec<Storage> = kernel.outputs.iter().map(fresh).collect::<Result<_>>()?;
    let tickets = Ticket::all(kernel, "take", Location::caller());
    let launch = Launch {
        kernel,
        compiled: &Compiled::default(),
        scalars,
        inputs: &inputs,
        outputs: &outputs,
        tickets: if with_tickets { &tickets } else { &[] },
    };
    launch.check()?;
    backend.run(&launch)?;
    let read = |storage: &Storage| {
        let mut bytes = vec![0; storage.numel() * storage.dtype().size()];
        backend.download(storage, 0, &mut bytes)?;
        Ok(Scalar::from_bytes(storage.dtype(), &bytes).iter().map(|scalar| scalar.as_f64()).collect())
    };
    outputs.iter().map(read).collect()
}

#[expect(clippy::panic, reason = "to fail is to panic")]
fn agree(case: &LoadAtCase) {
    let reference = taper_testing::reference();
    let expected = run(&reference, case, false).unwrap_or_else(|error| panic!("{}: {error}", case.what));
    let found =
        run(&backend_cpu::cpu(), case, false).unwrap_or_else(|error| panic!("{}: {error}", case.what));
    let within = match case.inputs[1].0 {
        DType::F16 => (2e-3, 4e-3),
        DType::BF16 => (1e-2, 3e-2),
        dtype if dtype.is_float() => (1e-5, 1e-5),
        _ => (0.0, 0.0),
    };
    for (o, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_close(found, expected, within, &format!("{}: output {o}", case.what));
    }
}

#[test]
fn tables_of_every_dtype() {
    for table in DType::ALL {
        load_at_cases(table, DType::I32).iter().for_each(agree);
    }
}

#[test]
fn indices_of_every_dtype() {
    for index in INDEX_DTYPES {
        load_at_cases(DType::F32, index).iter().for_each(agree);
    }
}

#[test]
fn a_kernel_cut_along_an_axis_is_two() {
    // Integers, whose sums do not depend on their order.
    for case in load_at_cases(DType::I32, DType::I32) {
        let whole = run(&backend_cpu::cpu(), &case, false).unwrap();
        for axis in 0..2 {
            let n = case.kernel.space[axis];
            let kept = case.kernel.outputs.iter().all(|output| output.axes.contains(&axis));
            let (Some(first), Some(second)) =
                (case.kernel.narrow(axis, 0, n / 2), case.kernel.narrow(axis, n / 2, n - n / 2))
            else {
                continue;
            };
            if !kept || n == 0 {
                continue;
            }
            let part = |kernel| LoadAtCase { kernel, ..case.clone() };
            let parts = [first, second].map(|kernel| run(&backend_cpu::cpu(), &part(kernel), false).unwrap());
            for (o, whole) in whole.iter().enumerate() {
                let own = case.kernel.outputs[o].axes.iter().position(|&a| a == axis).unwrap();
                let shape = &case.kernel.outputs[o].shape;
                let inner: usize = shape[own + 1..].iter().product();
                for (i, &value) in whole.iter().enumerate() {
                    let (outer, along, within) = (i / inner / n, i / inner % n, i % inner);
                    let (part, at, size) =
                        if along < n / 2 { (0, along, n / 2) } else { (1, along - n / 2, n - n / 2) };
                    let found = parts[part][o][(outer * size + at) * inner + within];
                    assert_eq!(found.to_bits(), value.to_bits(), "{}, axis {axis}: output {o}", case.what);
                }
            }
        }
    }
}

#[test]
fn a_bad_index_is_an_error_that_names_it() {
    for dtype in INDEX_DTYPES {
        for (case, bad) in bad_load_at_cases(dtype) {
            for with_tickets in [true, false] {
                let error = run(&backend_cpu::cpu(), &case, with_tickets).unwrap_err();
                let ErrorKind::IndexOutOfRange { index, axis, size, op } = *error.kind() else {
                    panic!("{}: {error}", case.what)
                };
                let axis_of = case.kernel.operands[1].indexed.unwrap();
                assert_eq!((axis, size), (axis_of.axis, axis_of.size), "{}", case.what);
                assert!(is_one_of(index, &case, bad), "{}: {error}", case.what);
                assert!(!with_tickets || op == "gather" && error.to_string().contains("in take"), "{error}");
            }
        }
    }
}

/// Whether an index is the bad one, or the one that a program computes from it.
fn is_one_of(index: i64, case: &LoadAtCase, bad: i64) -> bool {
    index == bad || case.what.starts_with("Computed") && index == (10i64).wrapping_sub(bad)
}

#[test]
fn what_does_not_fit_is_refused() {
    let case = load_at_cases(DType::F32, DType::I32).swap_remove(0);
    let refused = |change: &dyn Fn(&mut LoadAtCase)| -> Error {
        let mut case = case.clone();
        change(&mut case);
        run(&backend_cpu::cpu(), &case, false).unwrap_err()
    };
    let program = |case: &mut LoadAtCase, f: &dyn Fn(&mut tensor_core::kernel::Program)| {
        let tensor_core::kernel::Body::Map(program) = &mut case.kernel.body else { panic!("no map") };
        f(program);
    };
    // A table smaller than the axis states; a plain load of it; an index that is not an integer; a missing
    // axis.
    let errors = [
        refused(&|case| case.kernel.operands[1].indexed.as_mut().unwrap().size = 1000),
        refused(&|case| program(case, &|p| p.instrs[1] = tensor_core::kernel::Instr::Load(1))),
        refused(&|case| {
            program(case, &|p| p.instrs[1] = tensor_core::kernel::Instr::LoadAt { input: 1, index: 1 })
        }),
        refused(&|case| case.kernel.operands[1].indexed = None),
    ];
    for error in errors {
        assert!(matches!(error.kind(), ErrorKind::Invalid { .. }), "{error}");
    }
}
