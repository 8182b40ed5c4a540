//! Elements that share words: lengths, offsets and strides that are not multiples of a word's, neighbours
//! of stored elements, and the rounding of half types when they are packed.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{Input, agree, device, devices, numbers, run, scatter, to_bytes};
use tensor_core::{
    BinaryOp, CompareOp, CumulativeOp, DType, Device, Kernel, Launch, Layout, ReduceOp, Scalar, ScatterOp,
    Shape, Storage, bf16, f16,
    kernel::{Compiled, Instr, Operand, Program},
};

/// Dtypes of one byte, of two and of four.
const DTYPES: [DType; 8] =
    [DType::Bool, DType::U8, DType::I8, DType::F8E4M3FN, DType::I16, DType::F16, DType::BF16, DType::F32];

/// Small whole numbers, which every dtype can hold.
fn whole(n: usize, seed: u64) -> Vec<f64> {
    numbers(n, seed).iter().map(|x| (x * 20.0).round().abs()).collect()
}

/// Numbers that a dtype can hold.
fn held(dtype: DType, n: usize, seed: u64) -> Input {
    let values = whole(n, seed);
    (dtype, if dtype == DType::Bool { values.iter().map(|x| x % 2.0).collect() } else { values })
}

/// The greater of two inputs, and whether the first is less.
fn greater(dtype: DType) -> Program {
    Program {
        instrs: vec![
            Instr::Load(0),
            Instr::Load(1),
            Instr::Binary(BinaryOp::Maximum, 0, 1),
            Instr::Compare(CompareOp::Lt, 0, 1),
        ],
        dtypes: vec![dtype, dtype, dtype, DType::Bool],
        inputs: vec![dtype; 2],
        scalars: vec![],
        outputs: vec![2, 3],
    }
}

/// Two outputs of different widths, from inputs at every position in a word.
#[test]
fn odd_lengths_offsets_and_strides() {
    for dtype in DTYPES.into_iter().chain([DType::F64]) {
        for n in [1, 2, 3, 4, 5, 7, 8, 33, 1001] {
            for (offset, stride) in [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (3, 0), (1, 2), (2, 3)] {
                let views = [Layout::new([n], &[stride], offset), Layout::contiguous([n]).flip(0)];
                let kernel = Kernel::map(n.into(), views, greater(dtype));
                let inputs = [held(dtype, n * 3 + 5, 1), held(dtype, n, 2)];
                agree(&format!("{n} of {dtype} from {offset} by {stride}"), &kernel, &[], &inputs, 0.0);
            }
        }
        // Rows that are not whole words, and a transposed input.
        for (rows, columns) in [(3, 3), (5, 4), (17, 33), (18, 36), (2, 1001)] {
            let shape = [rows, columns];
            for view in [
                Layout::contiguous([columns, rows]).permute(&[1, 0]),
                Layout::contiguous([rows, columns + 3]).slice(1, 1, columns, 1),
                Layout::new(shape, &[1, 0], 1),
            ] {
                let kernel = Kernel::map(shape.into(), [Layout::contiguous(shape), view], greater(dtype));
                let inputs = [held(dtype, rows * columns, 1), held(dtype, rows * (columns + 3), 2)];
                agree(&format!("{shape:?} of {dtype}"), &kernel, &[], &inputs, 0.0);
            }
        }
    }
}

/// Runs a kernel into buffers that are [`BEYOND`] elements longer than its outputs; returns their contents.
fn run_in_longer(device: &Device, kernel: &Kernel, scalars: &[Scalar], inputs: &[Input]) -> Vec<Vec<u8>> {
    let backend = device.backend();
    let inputs: Vec<Storage> =
        inputs.iter().map(|(dtype, v)| backend.upload(*dtype, &to_bytes(*dtype, v)).unwrap()).collect();
    let outputs: Vec<Storage> = kernel
        .outputs
        .iter()
        .map(|o| backend.upload(o.dtype, &vec![1; (o.shape.numel() + BEYOND) * o.dtype.size()]).unwrap())
        .collect();
    let tickets = crate::common::tickets(kernel);
    let launch = Launch {
        kernel,
        compiled: &Compiled::default(),
        scalars,
        inputs: &inputs,
        outputs: &outputs,
        tickets: &tickets,
    };
    backend.run(&launch).unwrap();
    let read = |storage: &Storage| {
        let mut bytes = vec![0; storage.numel() * storage.dtype().size()];
        backend.download(storage, 0, &mut bytes).unwrap();
        bytes
    };
    outputs.iter().map(read).collect()
}

const BEYOND: usize = 37;

#[test]
fn neighbours_of_what_is_stored_are_untouched() {
    for dtype in [DType::Bool, DType::U8, DType::F16, DType::BF16] {
        let (rows, columns) = (5, 7);
        let shape = [rows, columns];
        let table = || Operand::new(dtype, Layout::contiguous(shape));
        let index = |layout| Operand::new(DType::I32, layout);
        let along_rows = Program {
            instrs: vec![
                Instr::Load(0),
                Instr::Fold(ReduceOp::Max, 0),
                Instr::Binary(BinaryOp::Maximum, 0, 1),
            ],
            dtypes: vec![dtype; 3],
            inputs: vec![dtype],
            scalars: vec![],
            outputs: vec![2, 1],
        };
        let load = Program {
            instrs: vec![Instr::Load(0)],
            dtypes: vec![dtype],
            inputs: vec![dtype],
            scalars: vec![],
            outputs: vec![0],
        };
        let whole = Layout::contiguous(shape);
        let mut kernels = vec![
            Kernel::map(shape.into(), [whole.clone(), whole.clone()], greater(dtype)),
            Kernel::map(shape.into(), [whole.clone()], load.clone()),
            Kernel::rows(shape.into(), 1, [whole.clone()], along_rows, &[false, true]),
            Kernel::reduce(ReduceOp::Max, shape.into(), &[0], vec![whole.clone()], load.clone()),
            Kernel::reduce(ReduceOp::Max, shape.into(), &[1], vec![whole.clone()], load),
            Kernel::gather(0, table(), index(Layout::new([3, columns], &[1, 0], 0))),
            Kernel::gather(1, table(), index(Layout::contiguous([rows, 3]))),
        ];
        let ops: &[ScatterOp] = match dtype {
            DType::Bool => &[ScatterOp::Replace],
            _ => &[ScatterOp::Replace, ScatterOp::Add, ScatterOp::Max],
        };
        for &op in ops {
            let source = Layout::contiguous([3, columns]);
            kernels.push(scatter(op, 0, dtype, DType::I32, whole.clone(), source.clone(), source));
        }
        if dtype != DType::Bool {
            kernels.push(Kernel::cumulative(CumulativeOp::Sum, 1, false, table()));
            let across = Layout::contiguous([columns, 3]).permute(&[1, 0]);
            kernels.push(Kernel::matmul(dtype, &whole, &Layout::contiguous([columns, 3])));
            kernels.push(Kernel::matmul(dtype, &across, &Layout::contiguous([columns, 9])));
        }
        for kernel in kernels {
            let inputs: Vec<Input> = kernel
                .operands
                .iter()
                .map(|operand| match operand.dtype {
                    DType::I32 => (DType::I32, (0..operand.layout.numel()).map(|i| (i % 3) as f64).collect()),
                    dtype => held(dtype, 63, 1),
                })
                .collect();
            let reference = run(&taper_testing::reference(), &kernel, &[], &inputs).unwrap();
            for (name, device) in devices() {
                let found = run_in_longer(device, &kernel, &[], &inputs);
                for ((output, found), expected) in kernel.outputs.iter().zip(found).zip(&reference) {
                    let (own, beyond) = found.split_at(found.len() - BEYOND * output.dtype.size());
                    let what = format!("{} of {dtype} on {name}", kernel.name());
                    assert_eq!(own, to_bytes(output.dtype, expected), "{what}");
                    assert!(beyond.iter().all(|&b| b == 1), "{what}: {beyond:?}");
                }
            }
        }
    }
}

/// Regions whose ends share words; one region is in the order of the output and one is transposed.
#[test]
fn regions_leave_their_neighbours() {
    for dtype in DTYPES.into_iter().chain([DType::F64]) {
        for (rows, columns) in [(6, 7), (40, 50), (33, 17), (32, 64)] {
            let out = Layout::contiguous([rows, columns]);
            let (left, right, even) = (columns / 2, columns - columns / 2 - 2, rows.div_ceil(2));
            let regions = vec![
                (
                    out.slice(0, 0, even, 2).slice(1, 0, left, 1),
                    Layout::contiguous([left, even]).permute(&[1, 0]),
                ),
                (out.slice(1, left + 1, right, 1), Layout::contiguous([rows, right]).flip(0)),
                (out.slice(1, left, 1, 1), Layout::new([rows, 1], &[0, 0], 3)),
                (
                    out.slice(0, 1, rows / 2, 2).slice(1, 1, left / 2, 2),
                    Layout::contiguous([rows / 2, left / 2]),
                ),
            ];
            let inputs: Vec<Input> = (0..4).map(|k| held(dtype, rows * columns, k)).collect();
            let kernel = Kernel::copy(dtype, Shape::from([rows, columns]), true, regions);
            let fill = Scalar::Int(1).cast(dtype);
            agree(&format!("{rows} x {columns} of {dtype}"), &kernel, &[fill], &inputs, 0.0);
        }
    }
}

/// Lengths that are not whole words are moved to the device and back, from any element on.
#[test]
fn any_length_is_moved() {
    for (name, device) in devices() {
        let backend = device.backend();
        for n in (0..10).chain([255, 1021]) {
            let bytes: Vec<u8> = (0..n).map(|i| (i * 7) as u8).collect();
            let bytes_on_device = backend.upload(DType::U8, &bytes).unwrap();
            for start in (0..=n).take(9) {
                let mut found = vec![0; n - start];
                backend.download(&bytes_on_device, start, &mut found).unwrap();
                assert_eq!(found, bytes[start..], "{name}: {n} from {start}");
                found.truncate(3);
                backend.download(&bytes_on_device, start, &mut found).unwrap();
                assert_eq!(found, bytes[start..start + found.len()], "{name}: some of {n} from {start}");
            }
            let halves = &bytes[..n / 2 * 2];
            let halves_on_device = backend.upload(DType::F16, halves).unwrap();
            for start in (0..=n / 2).take(5) {
                let mut found = vec![0; halves.len() - 2 * start];
                backend.download(&halves_on_device, start, &mut found).unwrap();
                assert_eq!(found, halves[2 * start..], "{name}: {n} from {start}");
            }
        }
    }
}

/// Buffers take exactly the bytes of their elements.
#[test]
fn memory_is_that_of_the_host() {
    let Some(device) = device() else { return };
    let device = backend_wgpu::open(0, &backend_wgpu::Options::default()).map_or(device.clone(), |own| own);
    let backend = device.backend();
    for dtype in DType::ALL.into_iter().filter(|&dtype| device.supports(dtype)) {
        let before = backend.memory().allocated;
        let buffer = backend.allocate(dtype, 1001).unwrap();
        assert_eq!(backend.memory().allocated - before, 1001 * dtype.size() as u64, "{dtype}");
        drop(buffer);
    }
}

fn cast(from: DType, to: DType, n: usize) -> Kernel {
    let program = Program {
        instrs: vec![Instr::Load(0), Instr::Cast(0)],
        dtypes: vec![from, to],
        inputs: vec![from],
        scalars: vec![],
        outputs: vec![1],
    };
    Kernel::map(n.into(), [Layout::contiguous([n])], program)
}

/// The product of n elements and one.
fn product(dtype: DType, n: usize) -> Kernel {
    let program = Program {
        instrs: vec![Instr::Load(0), Instr::Load(1), Instr::Binary(BinaryOp::Mul, 0, 1)],
        dtypes: vec![dtype; 3],
        inputs: vec![dtype; 2],
        scalars: vec![],
        outputs: vec![2],
    };
    Kernel::map(n.into(), [Layout::contiguous([n]), Layout::new([n], &[0], 0)], program)
}

/// Every value of a half type, and f32 at and next to every midpoint between two of them.
#[test]
fn half_types_are_unpacked_and_rounded_exactly() {
    for dtype in [DType::F16, DType::BF16] {
        let value = |bits: u16| match dtype {
            DType::F16 => f16::from_bits(bits).to_f32(),
            _ => bf16::from_bits(bits).to_f32(),
        };
        let rounded = |x: f32| match dtype {
            DType::F16 => f16::from_f32(x).to_bits(),
            _ => bf16::from_f32(x).to_bits(),
        };
        let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_ne_bytes).collect();
        let mut near = Vec::new();
        for bits in 0..=u16::MAX {
            let (x, next) = (value(bits), value(bits.wrapping_add(1)));
            if x.is_nan() || next.is_nan() || x.is_sign_positive() != next.is_sign_positive() {
                near.push(x);
                continue;
            }
            let next = if next.is_infinite() { x + (x - value(bits - 1)) } else { next };
            let middle = ((f64::from(x) + f64::from(next)) / 2.0) as f32;
            near.extend([x, middle, middle.next_down(), middle.next_up()]);
        }
        near.extend([f32::MAX, f32::MIN, f32::MIN_POSITIVE, 1e-40, -1e-45, f32::INFINITY]);
        for (name, device) in devices() {
            let backend = device.backend();
            let run = |kernel: &Kernel, inputs: &[(DType, &[u8])]| {
                let inputs: Vec<Storage> =
                    inputs.iter().map(|(dtype, bytes)| backend.upload(*dtype, bytes).unwrap()).collect();
                let output = backend.allocate(kernel.outputs[0].dtype, kernel.space.numel()).unwrap();
                let launch = Launch {
                    kernel,
                    compiled: &Compiled::default(),
                    scalars: &[],
                    inputs: &inputs,
                    outputs: std::slice::from_ref(&output),
                    tickets: &[],
                };
                backend.run(&launch).unwrap();
                let mut found = vec![0; output.numel() * output.dtype().size()];
                backend.download(&output, 0, &mut found).unwrap();
                found
            };
            let wide = run(&cast(dtype, DType::F32, 1 << 16), &[(dtype, &all)]);
            for (bits, found) in (0..=u16::MAX).zip(wide.as_chunks().0) {
                let (found, expected) = (f32::from_ne_bytes(*found), value(bits));
                let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
                assert!(same, "{dtype} {bits:#x} on {name}: {found:e}, expected {expected:e}");
            }
            let bytes: Vec<u8> = near.iter().flat_map(|x| x.to_ne_bytes()).collect();
            let narrow = run(&cast(DType::F32, dtype, near.len()), &[(DType::F32, &bytes)]);
            for (x, found) in near.iter().zip(narrow.as_chunks().0) {
                let (found, expected) = (u16::from_ne_bytes(*found), rounded(*x));
                let same = found == expected || value(found).is_nan() && x.is_nan();
                assert!(same, "{x:e} in {dtype} on {name}: {found:#x}, expected {expected:#x}");
            }
            // Products, whose only rounding happens when they are packed.
            for factor in [rounded(1.01), rounded(-1.5), rounded(7e-5), rounded(3e-7), rounded(6e4)] {
                let found = run(&product(dtype, 1 << 16), &[(dtype, &all), (dtype, &factor.to_ne_bytes())]);
                for (bits, found) in (0..=u16::MAX).zip(found.as_chunks().0) {
                    let (x, found) = (value(bits) * value(factor), u16::from_ne_bytes(*found));
                    let expected = rounded(x);
                    // A device may flush a denormal f32 to 0.
                    let flushed = [x, value(bits), value(factor)].iter().any(|x| x.is_subnormal());
                    let same = found == expected || x.is_nan() && value(found).is_nan() || flushed;
                    assert!(same, "{x:e} in {dtype} on {name}: {found:#x}, expected {expected:#x}");
                }
            }
        }
    }
}
