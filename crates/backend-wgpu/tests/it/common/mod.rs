//! Shared test support: the devices under test, and functions that run a kernel on them and on the
//! reference backend.
#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::panic)]

use std::sync::{Arc, OnceLock};

use backend_wgpu::{Forced, Form, Options};
pub(crate) use taper_testing::numbers;
use taper_testing::settings::{has_turn, opened, turn};
use tensor_core::{
    DType, Device, Kernel, Launch, Layout, Location, ReduceOp, Result, Scalar, ScatterOp, Storage, Ticket,
    bf16, f16,
    kernel::{Compiled, Instr, Program},
};

/// The one of these devices whose turn it is in the running test, or all of them.
pub(crate) fn today(all: &'static [(&'static str, Device)]) -> &'static [(&'static str, Device)] {
    turn(all.len()).and_then(|turn| all.get(turn..=turn)).unwrap_or(all)
}

/// The devices of the running test, of [`all_devices`].
pub(crate) fn devices() -> &'static [(&'static str, Device)] {
    today(all_devices())
}

/// The device with kernels in workgroup memory, as users' GPUs run them.
pub(crate) fn tiled() -> Option<&'static Device> {
    all_devices().iter().find(|(name, _)| name.starts_with("tiled")).map(|(_, device)| device)
}

/// The devices under test, each opened once: the default one; one with parameters in uniform buffers,
/// barrier-free kernels, the fewest bindings, and dispatches of at most 5 × 5 workgroups; and one with
/// kernels in workgroup memory, split into short dispatches. Empty if there is no adapter; the running
/// test is then reported as skipped, or fails with `TAPER_TEST=require=wgpu`.
pub(crate) fn all_devices() -> &'static [(&'static str, Device)] {
    static DEVICES: OnceLock<Vec<(&'static str, Device)>> = OnceLock::new();
    let devices = DEVICES.get_or_init(|| {
        let Ok(plain) = backend_wgpu::wgpu(0) else { return Vec::new() };
        // `TAPER_TEST=wgpu.trace=on` traces the other devices too, and `wgpu.pipelines` logs theirs.
        let Forced { trace, pipeline_log, .. } = Options::from_env().unwrap().forced;
        let other = |forced| {
            let forced = Forced { trace, pipeline_log: pipeline_log.clone(), ..forced };
            backend_wgpu::open(0, &Options { forced, ..Options::default() }).unwrap()
        };
        let few = Forced {
            form: Form::Direct,
            no_immediates: true,
            workgroups: Some(5),
            storage_buffers: Some(8),
            ..Forced::default()
        };
        let short = Forced {
            form: Form::Tiled,
            dispatch_work: Some(1 << 16),
            no_subgroups: true,
            ..Forced::default()
        };
        vec![
            ("default", plain),
            ("uniforms, direct, few workgroups and bindings", other(few)),
            ("tiled, short dispatches", other(short)),
        ]
    });
    if devices.is_empty() {
        opened(backend_wgpu::wgpu(0));
    }
    devices
}

/// The devices under test without the default one: one for each family of kernels.
pub(crate) fn families() -> &'static [(&'static str, Device)] {
    all_devices().get(1..).unwrap_or_default()
}

/// The first of the devices under test.
pub(crate) fn device() -> Option<&'static Device> {
    all_devices().first().map(|(_, d)| d)
}

/// Numbers as elements of `dtype`, in bytes: floats are rounded, integers are truncated.
pub(crate) fn to_bytes(dtype: DType, values: &[f64]) -> Vec<u8> {
    // Negative numbers wrap in unsigned types.
    let number = |&v: &f64| if dtype.is_int() { Scalar::Int(v as i64) } else { Scalar::Float(v) };
    Scalar::to_bytes(dtype, &values.iter().map(number).collect::<Vec<_>>())
}

/// Elements in bytes as numbers.
pub(crate) fn to_numbers(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    Scalar::from_bytes(dtype, bytes).into_iter().map(Scalar::as_f64).collect()
}

/// One input: its dtype and the numbers in its buffer.
pub(crate) type Input = (DType, Vec<f64>);

/// Runs a kernel and reads all its outputs.
pub(crate) fn run(
    device: &Device,
    kernel: &Kernel,
    scalars: &[Scalar],
    inputs: &[Input],
) -> Result<Vec<Vec<f64>>> {
    let backend = device.backend();
    let inputs: Vec<Storage> =
        inputs.iter().map(|(d, v)| backend.upload(*d, &to_bytes(*d, v))).collect::<Result<_>>()?;
    let outputs: Vec<Storage> =
        kernel.outputs.iter().map(|o| backend.allocate(o.dtype, o.shape.numel())).collect::<Result<_>>()?;
    let tickets = tickets(kernel);
    backend.run(&Launch {
        kernel,
        compiled: &Compiled::default(),
        scalars,
        inputs: &inputs,
        outputs: &outputs,
        tickets: &tickets,
    })?;
    let found = outputs.iter().map(|o| read(device, o)).collect();
    backend.settle()?;
    tickets.iter().try_for_each(|(_, ticket)| ticket.result())?;
    found
}

/// Tickets for a launch that reads indices.
#[track_caller]
pub(crate) fn tickets(kernel: &Kernel) -> Vec<(usize, Arc<Ticket>)> {
    Ticket::all(kernel, kernel.name(), Location::caller())
}

/// All elements of a buffer.
pub(crate) fn read(device: &Device, storage: &Storage) -> Result<Vec<f64>> {
    let mut bytes = vec![0; storage.numel() * storage.dtype().size()];
    device.backend().download(storage, 0, &mut bytes)?;
    Ok(to_numbers(storage.dtype(), &bytes))
}

/// The program that loads its input.
pub(crate) fn load(dtype: DType) -> Program {
    Program {
        instrs: vec![Instr::Load(0)],
        dtypes: vec![dtype],
        inputs: vec![dtype],
        scalars: vec![],
        outputs: vec![0],
    }
}

/// The reduction of a layout along some axes.
pub(crate) fn reduce(op: ReduceOp, axes: &[usize], layout: &Layout, dtype: DType) -> Kernel {
    Kernel::reduce(op, layout.shape().clone(), axes, vec![layout.clone()], load(dtype))
}

/// Whether two numbers agree to `tolerance`, relative to the expected one or (below 1) absolute. NaN agrees
/// with NaN.
pub(crate) fn close(found: f64, expected: f64, tolerance: f64) -> bool {
    found == expected
        || found.is_nan() && expected.is_nan()
        || (found - expected).abs() <= tolerance * expected.abs().max(1.0)
}

/// Runs a kernel on every device and on the reference, and compares. Devices that lack a dtype are skipped.
pub(crate) fn agree(what: &str, kernel: &Kernel, scalars: &[Scalar], inputs: &[Input], tolerance: f64) {
    agree_on(devices(), what, kernel, scalars, inputs, tolerance);
}

/// [`agree`] on one of the given devices: the next number takes the next.
pub(crate) fn agree_in_turn(
    number: usize,
    devices: &[(&'static str, Device)],
    what: &str,
    kernel: &Kernel,
    scalars: &[Scalar],
    inputs: &[Input],
    tolerance: f64,
) {
    if !devices.is_empty() {
        let one = std::slice::from_ref(&devices[number % devices.len()]);
        agree_on(one, what, kernel, scalars, inputs, tolerance);
    }
}

/// [`agree`] on the given devices. Where tests take turns, a case is tried on one of eight days.
pub(crate) fn agree_on(
    devices: &[(&'static str, Device)],
    what: &str,
    kernel: &Kernel,
    scalars: &[Scalar],
    inputs: &[Input],
    tolerance: f64,
) {
    if devices.is_empty() || !has_turn(8) {
        return;
    }
    let expected = run(&taper_testing::reference(), kernel, scalars, inputs).unwrap();
    for (name, device) in devices {
        if inputs
            .iter()
            .map(|i| i.0)
            .chain(kernel.outputs.iter().map(|o| o.dtype))
            .any(|d| !device.supports(d))
        {
            continue;
        }
        let found = run(device, kernel, scalars, inputs).unwrap_or_else(|e| panic!("{what} on {name}: {e}"));
        for (o, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(found.len(), expected.len(), "{what} on {name}: output {o}");
            for (i, (&f, &e)) in found.iter().zip(expected).enumerate() {
                assert!(
                    close(f, e, tolerance),
                    "{what} on {name}: element {i} of output {o} is {f}, expected {e}"
                );
            }
        }
    }
}

/// The allowed error of results of a dtype, relative to f64.
pub(crate) fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        DType::F32 => 2e-6,
        DType::F64 => 1e-14,
        _ => 0.0,
    }
}

/// Every dtype that indices may have.
pub(crate) const INDEX_DTYPES: [DType; 6] =
    [DType::I32, DType::U32, DType::U8, DType::I16, DType::I64, DType::U64];

/// A scatter kernel, from its parts.
pub(crate) fn scatter(
    op: ScatterOp,
    axis: usize,
    dtype: DType,
    index_dtype: DType,
    base: tensor_core::Layout,
    index: tensor_core::Layout,
    src: tensor_core::Layout,
) -> Kernel {
    use tensor_core::kernel::Operand;
    Kernel::scatter(
        op,
        axis,
        Operand::new(dtype, base),
        Operand::new(index_dtype, index),
        Operand::new(dtype, src),
    )
}
