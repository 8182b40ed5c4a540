//! Validates generated shaders of every kind with naga; needs no device.

use std::sync::Arc;

use naga::valid::{ValidationFlags, Validator};
use tensor_core::{
    ArgReduceOp, BinaryOp, BlockFormat, Codebook4, CodebookScales, CompareOp, CumulativeOp, DType,
    DeviceInfo, DeviceKind, GgmlType, Kernel, Layout, Limits, RandomKind, ReduceOp, ScatterOp, Shape,
    UnaryOp,
    kernel::{Instr, Operand, Program},
};

use crate::{
    codegen::capabilities::{Capabilities, Form, MatrixUnits},
    kernels::cut::Aliases,
};

#[path = "../../../shaders/tests/compilers/mod.rs"]
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "naga's enum of expressions may grow; few are of interest"
)]
mod compilers;

/// The bytes of workgroup memory that every adapter has.
const LEAST_WORKGROUP_BYTES: usize = 16 << 10;

/// The capabilities of a device that supports everything, with kernels of one form.
pub(crate) fn capabilities(direct: bool) -> Capabilities {
    let info = DeviceInfo {
        name: "wgpu:0".into(),
        description: String::new(),
        driver: String::new(),
        kind: DeviceKind::Other,
        memory: None,
        dtypes: DType::ALL.to_vec(),
        limits: Limits {
            max_buffer_bytes: 1 << 30,
            max_indexed_bytes: 1 << 30,
            gathers_in_maps: true,
            max_inputs: 16,
            max_outputs: 12,
            max_instrs: 128,
            max_row: 1 << 14,
            max_epilogue: 16,
            min_framed_bytes: 4,
        },
    };
    Capabilities {
        info,
        direct,
        subgroups: true,
        dots: true,
        invocations: 1024,
        workgroup_bytes: if direct { LEAST_WORKGROUP_BYTES } else { 48 << 10 },
        binding_bytes: 1 << 30,
        rounds: 1 << 15,
        immediate_bytes: 128,
        uniform_alignment: 256,
        max_workgroups: 65_535,
        dispatch_work: 1 << 33,
        matrix_units: None,
        variant: None,
    }
}

/// Validates all shaders of a kernel, in both forms and with both kinds of parameters; returns their
/// number. A kernel that is `Unsupported` counts as zero. If the tiled form is another one with the least
/// workgroup memory, that is validated too.
fn validate(kernel: &Kernel, aliases: &Aliases) -> usize {
    let tiled = capabilities(false);
    let least = Capabilities { workgroup_bytes: LEAST_WORKGROUP_BYTES, ..tiled.clone() };
    let texts = |capabilities| {
        crate::kernels::body::dispatches(kernel, aliases, capabilities)
            .map_or_else(|_| Vec::new(), |made| made.list.iter().map(|d| d.text(true)).collect())
    };
    let mut all = vec![capabilities(true), tiled];
    if texts(&all[1]) != texts(&least) {
        all.push(least);
    }
    all.iter().map(|capabilities| validate_for(kernel, aliases, capabilities)).sum()
}

/// The bytes of a module's variables in workgroup memory.
fn workgroup_bytes(module: &naga::Module) -> usize {
    let mut layouter = naga::proc::Layouter::default();
    layouter.update(module.to_ctx()).unwrap_or_else(|e| panic!("{e}"));
    let variables = module.global_variables.iter().map(|(_, variable)| variable);
    let shared = variables.filter(|variable| variable.space == naga::AddressSpace::WorkGroup);
    shared.map(|variable| layouter[variable.ty].to_stride() as usize).sum()
}

fn validate_for(kernel: &Kernel, aliases: &Aliases, capabilities: &Capabilities) -> usize {
    let mut count = 0;
    let Ok(made) = crate::kernels::body::dispatches(kernel, aliases, capabilities) else { return 0 };
    for one in made.list {
        for immediates in [true, false] {
            let source = one.text(immediates);
            let module = naga::front::wgsl::parse_str(&source)
                .unwrap_or_else(|e| panic!("{kernel:?}: {}\n{source}", e.emit_to_string(&source)));
            let mut validator = Validator::new(ValidationFlags::all(), naga::valid::Capabilities::all());
            if let Err(e) = validator.validate(&module) {
                panic!("{kernel:?}: {}\n{source}", e.emit_to_string(&source));
            }
            if let Some(constant) = compilers::refused(&module) {
                panic!("{kernel:?}: {constant}\n{source}");
            }
            if let Some(sum) = compilers::parts_in_a_sum(&module) {
                panic!("{kernel:?}: {sum}\n{source}");
            }
            if let Some(array) = compilers::shared_bool(&module) {
                panic!("{kernel:?}: bool in workgroup memory, {array}\n{source}");
            }
            if let Some(function) = compilers::uncounted(&module, one.label) {
                panic!("{kernel:?}: a loop of {function} may not end\n{source}");
            }
            let bytes = workgroup_bytes(&module);
            assert!(bytes <= capabilities.workgroup_bytes, "{kernel:?}: {bytes} bytes\n{source}");
            count += 1;
        }
    }
    count
}

/// Validates every variant of a product, not only the one that the table or autotuning would choose.
fn validate_variants(kernel: &Kernel) -> usize {
    let capabilities = Capabilities { direct: true, ..capabilities(false) };
    let variants = crate::kernels::product::contract::variants(kernel, Form::Auto, &capabilities);
    let several = kernel.outputs[0].shape.iter().all(|&n| n > 1) && kernel.outputs[0].dtype != DType::Bool;
    assert_eq!(variants.len() >= 2, several, "{kernel:?}: {variants:?}");
    variants
        .iter()
        .map(|&variant| {
            let made = validate_for(kernel, &Aliases::new(), &capabilities.with(variant));
            assert!(made > 0, "{variant:?} of {kernel:?}");
            made
        })
        .sum()
}

fn map(inputs: &[DType], rest: &[(Instr, DType)], scalars: &[DType], layouts: &[Layout]) -> Kernel {
    let mut program = Program { inputs: inputs.to_vec(), scalars: scalars.to_vec(), ..Program::default() };
    for (k, &d) in inputs.iter().enumerate() {
        program.instrs.push(Instr::Load(k as u16));
        program.dtypes.push(d);
    }
    for &(instr, dtype) in rest {
        program.instrs.push(instr);
        program.dtypes.push(dtype);
        program.outputs.push(program.instrs.len() as u16 - 1);
    }
    let shape = layouts.first().map_or(Shape::from([6, 8]), |l| l.shape().clone());
    Kernel::map(shape, layouts.iter().cloned(), program)
}

fn layouts() -> Vec<Layout> {
    let whole = Layout::contiguous([6, 8]);
    vec![
        whole.clone(),
        Layout::contiguous([8, 6]).permute(&[1, 0]),
        Layout::new([6, 8], &[0, 1], 4),
        Layout::new([6, 8], &[1, 0], 3),
        Layout::new([6, 8], &[0, 0], 3),
        whole.flip(1),
    ]
}

#[test]
fn maps_of_every_function_and_dtype() {
    let none = Aliases::from_elem(None, 3);
    let mut count = 0;
    for dtype in DType::ALL {
        let plain = [Layout::contiguous([6, 8]), Layout::contiguous([6, 8])];
        for &op in UnaryOp::ALL {
            let out = if matches!(op, UnaryOp::IsNan | UnaryOp::IsInf) { DType::Bool } else { dtype };
            count += validate(&map(&[dtype], &[(Instr::Unary(op, 0), out)], &[], &plain[..1]), &none);
        }
        for &op in BinaryOp::ALL {
            count += validate(&map(&[dtype; 2], &[(Instr::Binary(op, 0, 1), dtype)], &[], &plain), &none);
        }
        for &op in CompareOp::ALL {
            count +=
                validate(&map(&[dtype; 2], &[(Instr::Compare(op, 0, 1), DType::Bool)], &[], &plain), &none);
        }
        for to in DType::ALL {
            count += validate(&map(&[dtype], &[(Instr::Cast(0), to)], &[], &plain[..1]), &none);
        }
        for n in [i32::MIN, -3, -1, 0, 1, 2, 3, 1000, i32::MAX] {
            count += validate(&map(&[dtype], &[(Instr::Powi(n, 0), dtype)], &[], &plain[..1]), &none);
        }
        let scalar = [(Instr::Scalar(0), dtype), (Instr::Arange { start: 0, step: 1 }, dtype)];
        count += validate(&map(&[], &scalar[..1], &[dtype; 2], &[]), &none);
        if dtype != DType::Bool {
            count += validate(&map(&[], &scalar, &[dtype; 2], &[]), &none);
        }
        for kind in [RandomKind::Uniform, RandomKind::Normal, RandomKind::Bits] {
            let random = [(Instr::Random { kind, seed: 0, offset: 1 }, dtype)];
            count += validate(&map(&[], &random, &[DType::I64; 2], &[]), &none);
        }
    }
    assert!(count > 1500, "{count}");
}

#[test]
fn maps_of_every_layout_and_overlap() {
    let mut count = 0;
    for dtype in [DType::F32, DType::Bool, DType::F64] {
        for a in layouts() {
            for b in layouts() {
                let select = [
                    (Instr::Compare(CompareOp::Lt, 0, 1), DType::Bool),
                    (Instr::Select(2, 0, 1), dtype),
                    (Instr::Unary(UnaryOp::IsNan, 0), DType::Bool),
                ];
                let kernel = map(&[dtype; 2], &select, &[], &[a.clone(), b.clone()]);
                count += validate(&kernel, &Aliases::from_elem(None, 2));
                if a.is_contiguous() && a.offset() == 0 {
                    count += validate(&kernel, &Aliases::from_slice(&[Some(1), None]));
                }
            }
        }
    }
    let large = [Layout::contiguous([150, 120]), Layout::new([150, 120], &[0, 1], 4)];
    let angles =
        [(Instr::Unary(UnaryOp::Sin, 0), DType::F32), (Instr::Binary(BinaryOp::Mul, 1, 2), DType::F32)];
    for overlap in [[None, None], [Some(1), None]] {
        count += validate(&map(&[DType::F32; 2], &angles, &[], &large), &Aliases::from_slice(&overlap));
    }
    assert!(count > 400, "{count}");
}

#[test]
fn reductions_of_every_kind() {
    let mut count = 0;
    for dtype in DType::ALL {
        let program = Program {
            instrs: vec![Instr::Load(0)],
            dtypes: vec![dtype],
            inputs: vec![dtype],
            scalars: vec![],
            outputs: vec![0],
        };
        for &op in ReduceOp::ALL {
            for (shape, axes) in
                [([6, 8], vec![0]), ([6, 8000], vec![1]), ([600, 800], vec![0, 1]), ([3, 0], vec![1])]
            {
                for layout in
                    [Layout::contiguous(shape), Layout::contiguous([shape[1], shape[0]]).permute(&[1, 0])]
                {
                    count += validate(
                        &Kernel::reduce(op, shape.into(), &axes.clone(), vec![layout], program.clone()),
                        &Aliases::new(),
                    );
                }
            }
        }
        for op in [ArgReduceOp::ArgMax, ArgReduceOp::ArgMin] {
            for shape in [[6, 8], [2, 100_000]] {
                let kernel = Kernel::arg_reduce(op, 1, Operand::new(dtype, Layout::contiguous(shape)));
                count += validate(&kernel, &Aliases::new());
            }
        }
    }
    assert!(count > 1000, "{count}");
}

#[test]
fn cumulative_operations_and_sorts_of_every_dtype() {
    let none = Aliases::new();
    let mut count = 0;
    for dtype in DType::ALL {
        for (shape, axis) in [([600, 8], 0), ([6, 80_000], 1), ([3, 1], 1)] {
            for input in
                [Layout::contiguous(shape), Layout::contiguous([shape[1], shape[0]]).permute(&[1, 0])]
            {
                for &op in CumulativeOp::ALL {
                    for reverse in [false, true] {
                        let kernel =
                            Kernel::cumulative(op, axis, reverse, Operand::new(dtype, input.clone()));
                        count += validate(&kernel, &none);
                    }
                }
                for k in [1, 3, shape[axis]] {
                    let k = k.min(shape[axis]);
                    let kernel = Kernel::arg_sort(axis, k == 3, k, Operand::new(dtype, input.clone()));
                    count += validate(&kernel, &none);
                }
            }
        }
    }
    assert!(count > 2000, "{count}");
}

#[test]
fn products_indexing_and_copies_of_every_dtype() {
    let none = Aliases::new();
    let mut count = 0;
    for dtype in DType::ALL {
        for (m, n, k) in
            [(1, 8, 8), (8, 1, 8), (12, 12, 8), (100, 100, 8), (301, 300, 20), (300, 300, 20), (5, 7, 3)]
        {
            let left = [Layout::contiguous([m, k]), Layout::contiguous([k, m]).permute(&[1, 0])];
            let right = [Layout::contiguous([k, n]), Layout::contiguous([n, k]).permute(&[1, 0])];
            for lhs in &left {
                for rhs in &right {
                    let (lhs, rhs) = (lhs.clone(), rhs.clone());
                    let kernel = Kernel::matmul(dtype, &lhs, &rhs);
                    count += validate_variants(&kernel);
                    count += validate(&kernel, &none);
                    let plain = lhs.is_contiguous() && rhs.is_contiguous();
                    if dtype == DType::Bool || !plain || m > 100 {
                        continue;
                    }
                    for case in taper_testing::epilogues::epilogues(&kernel) {
                        count += validate_variants(&case.kernel);
                        count += validate(&case.kernel, &none);
                    }
                }
            }
        }
        for index_dtype in [DType::I32, DType::U32, DType::U8, DType::I64, DType::U64] {
            let (input, index) = (Layout::contiguous([9, 8]), Layout::contiguous([4, 5]));
            count += validate(
                &Kernel::gather(1, Operand::new(dtype, input), Operand::new(index_dtype, index.clone())),
                &none,
            );
            for base in [Layout::contiguous([9, 8]), Layout::new([9000, 800], &[0, 0], 0)] {
                for op in [ScatterOp::Add, ScatterOp::Max, ScatterOp::Min, ScatterOp::Replace] {
                    let (index, src) = (index.clone(), index.clone());
                    let kernel = Kernel::scatter(
                        op,
                        0,
                        Operand::new(dtype, base.clone()),
                        Operand::new(index_dtype, index),
                        Operand::new(dtype, src),
                    );
                    count += validate(&kernel, &none);
                }
            }
        }
        let src = Layout::contiguous([8, 6]);
        let regions =
            [src.clone(), src.permute(&[1, 0]).reshape(&Shape::from([6, 8])).unwrap_or(src.clone())];
        for src in regions {
            let dst = Layout::contiguous(src.shape().clone());
            let shape = dst.shape().clone();
            let regions = vec![(dst.flip(0), src.clone()), (dst, src)];
            count += validate(&Kernel::copy(dtype, shape, true, regions), &none);
        }
    }
    assert!(count > 500, "{count}");
}

/// Products of f16 on matrix units, for the subgroups of known adapters: NVIDIA's, AMD's, lavapipe's,
/// Intel's.
#[test]
fn products_on_matrix_units() {
    let cooperative = |size, subgroup_sizes| MatrixUnits::Cooperative { size, subgroup_sizes };
    let all = [
        cooperative(16, [32, 32]),
        cooperative(16, [32, 64]),
        cooperative(8, [8, 8]),
        cooperative(8, [16, 32]),
        MatrixUnits::Plain,
    ];
    let mut count = 0;
    for units in all {
        let capabilities = Capabilities { matrix_units: Some(units), ..capabilities(false) };
        for (m, n, k) in [(64, 64, 32), (70, 301, 45), (9, 12, 8)] {
            for lhs in [Layout::contiguous([m, k]), Layout::contiguous([k, m]).permute(&[1, 0])] {
                for rhs in [Layout::contiguous([k, n]), Layout::contiguous([n, k]).permute(&[1, 0])] {
                    let kernel = Kernel::matmul(DType::F16, &lhs, &rhs);
                    let mut kernels = vec![kernel.clone()];
                    if lhs.is_contiguous() && rhs.is_contiguous() {
                        kernels.extend(
                            taper_testing::epilogues::epilogues(&kernel).into_iter().map(|c| c.kernel),
                        );
                    }
                    for kernel in &kernels {
                        let made = crate::kernels::body::dispatches(kernel, &Aliases::new(), &capabilities);
                        let text: String =
                            made.iter().flat_map(|made| &made.list).map(|d| d.text(true)).collect();
                        assert!(text.contains("multiply_add("), "{units:?}: {text}");
                        assert_eq!(text.contains("coopMultiplyAdd"), units != MatrixUnits::Plain);
                        // naga does not declare the scope of atomics beside cooperative matrices.
                        let cooperative =
                            made.iter().flat_map(|made| &made.list).filter(|d| !d.extensions.is_empty());
                        assert!(cooperative.into_iter().all(|d| !d.text(true).contains("atomic")), "{text}");
                        count += validate_for(kernel, &Aliases::new(), &capabilities);
                    }
                }
            }
        }
        // Other dtypes, few rows and vectors have other kernels.
        for (dtype, m) in [(DType::F32, 64), (DType::BF16, 64), (DType::F16, 8), (DType::F16, 1)] {
            let kernel = Kernel::matmul(dtype, &Layout::contiguous([m, 32]), &Layout::contiguous([32, 64]));
            let made = crate::kernels::body::dispatches(&kernel, &Aliases::new(), &capabilities);
            let text: String = made.iter().flat_map(|made| &made.list).map(|d| d.text(true)).collect();
            assert!(!text.is_empty() && !text.contains("multiply_add("), "{text}");
        }
    }
    assert!(count > 200, "{count}");
    // Subgroups that cannot share a tile, and too little workgroup memory.
    for (units, bytes) in [(cooperative(16, [4, 4]), 48 << 10), (cooperative(16, [32, 32]), 8 << 10)] {
        assert!(crate::kernels::product::matrix::Grid::new(units, bytes).is_none());
    }
}

/// Softmax, its logarithm and the row's extreme: folds of folds, and outputs at several depths.
fn softmax(shape: &[usize], row_axes: usize, layout: &Layout, dtype: DType) -> Kernel {
    let program = Program {
        instrs: vec![
            Instr::Load(0),
            Instr::Load(1),
            Instr::Binary(BinaryOp::Add, 0, 1),
            Instr::Fold(ReduceOp::Max, 2),
            Instr::Fold(ReduceOp::Mean, 2),
            Instr::Binary(BinaryOp::Sub, 2, 3),
            Instr::Unary(UnaryOp::Exp, 5),
            Instr::Fold(ReduceOp::Sum, 6),
            Instr::Binary(BinaryOp::Div, 6, 7),
            Instr::Binary(BinaryOp::Add, 8, 4),
            Instr::Unary(UnaryOp::Log, 9),
        ],
        dtypes: vec![dtype; 11],
        inputs: vec![dtype; 2],
        scalars: vec![],
        outputs: vec![8, 3, 10, 6],
    };
    let steady = Layout::new(shape, &vec![0; shape.len()], 3);
    Kernel::rows(shape.into(), row_axes, [layout.clone(), steady], program, &[false, true, false, false])
}

#[test]
fn row_kernels_of_every_kind() {
    let none = Aliases::from_elem(None, 2);
    let mut count = 0;
    for dtype in DType::ALL {
        for row_axes in 1..=3 {
            for shape in [[6, 8, 5], [1, 1, 1], [1, 70, 3000]] {
                let whole = Layout::contiguous(shape);
                let turned = Layout::contiguous([shape[2], shape[0], shape[1]]).permute(&[1, 2, 0]);
                for layout in [&whole, &turned, &whole.flip(1), &whole.flip(2)] {
                    count += validate(&softmax(&shape, row_axes, layout, dtype), &none);
                }
            }
        }
        // A fold of the sum of two inputs, of each kind that the dtype supports, beside a random number and
        // a count.
        for &op in ReduceOp::ALL {
            for out in [DType::U32, DType::F32] {
                let counted =
                    if dtype == DType::Bool { Instr::Load(0) } else { Instr::Arange { start: 0, step: 0 } };
                let random = Instr::Random {
                    kind: if out == DType::U32 { RandomKind::Bits } else { RandomKind::Normal },
                    seed: 1,
                    offset: 1,
                };
                let program = Program {
                    instrs: vec![
                        Instr::Load(0),
                        counted,
                        Instr::Binary(BinaryOp::Maximum, 0, 1),
                        Instr::Fold(op, 2),
                        Instr::Fold(op, 3),
                        Instr::Fold(op, 0),
                        random,
                        Instr::Binary(BinaryOp::Maximum, 5, 4),
                    ],
                    dtypes: vec![dtype, dtype, dtype, dtype, dtype, dtype, out, dtype],
                    inputs: vec![dtype],
                    scalars: vec![dtype, DType::I64],
                    outputs: vec![6, 7, 2],
                };
                count += validate(
                    &Kernel::rows(
                        Shape::from([6, 80]),
                        1,
                        [Layout::contiguous([6, 80])],
                        program,
                        &[false, true, false],
                    ),
                    &none,
                );
            }
        }
    }
    assert!(count > 700, "{count}");
}

#[test]
fn row_kernels_of_other_shapes_are_few_texts() {
    for direct in [true, false] {
        let text = |shape: [usize; 2]| {
            let kernel = softmax(&shape, 1, &Layout::contiguous(shape), DType::F32);
            let made = crate::kernels::body::dispatches(
                &kernel,
                &Aliases::from_elem(None, 2),
                &capabilities(direct),
            );
            made.map(|made| made.list.iter().map(|d| d.text(true)).collect::<Vec<_>>()).ok()
        };
        assert!(text([6, 8]).is_some());
        let same = |shapes: &[[usize; 2]]| shapes.iter().all(|&shape| text(shape) == text(shapes[0]));
        if direct {
            assert!(same(&[[6, 8], [100_000, 68], [2, 3000], [7, 3], [512, 32]]));
        } else {
            // Rows in registers: whole vectors or not, with one, two and four groups of an invocation; and
            // longer rows.
            let texts: &[&[[usize; 2]]] = &[
                &[[6, 8], [100_000, 68], [512, 32], [3, 1024]],
                &[[7, 3], [9, 1023]],
                &[[2, 1028], [5, 2048]],
                &[[2, 3000], [5, 4096]],
                &[[2, 4100], [5, 16_384], [5, 4097]],
            ];
            assert!(texts.iter().all(|shapes| same(shapes)));
            assert!(texts.iter().skip(1).all(|shapes| text(shapes[0]) != text([6, 8])));
        }
    }
}

/// A scatter-add may round in a separate dispatch, and so may a copy fill its output.
#[test]
fn packed_elements_take_no_more_dispatches() {
    let count = |kernel: &Kernel, direct: bool| {
        let aliases = Aliases::from_elem(None, kernel.operands.len());
        let made = crate::kernels::body::dispatches(kernel, &aliases, &capabilities(direct));
        made.map(|made| made.list.iter().filter(|d| d.workgroups > 0).count()).ok()
    };
    let kernels = |dtype: DType| {
        let whole = Layout::contiguous([33, 700]);
        let operand = || Operand::new(dtype, whole.clone());
        let index = |shape: [usize; 2]| Operand::new(DType::I32, Layout::contiguous(shape));
        let source = || Operand::new(dtype, Layout::contiguous([4, 700]));
        let both = [whole.clone(), whole.clone()];
        let program = map(&[dtype; 2], &[(Instr::Binary(BinaryOp::Maximum, 0, 1), dtype)], &[], &both);
        let Some(program) = program.body.program().cloned() else { panic!("a map has a program") };
        let regions = vec![(whole.slice(1, 0, 350, 1), Layout::contiguous([33, 350]))];
        vec![
            Kernel::map(whole.shape().clone(), both.clone(), program.clone()),
            softmax(&[33, 7, 100], 1, &Layout::contiguous([33, 7, 100]), dtype),
            Kernel::reduce(ReduceOp::Max, whole.shape().clone(), &[1], both.to_vec(), program.clone()),
            Kernel::reduce(ReduceOp::Max, whole.shape().clone(), &[0, 1], both.to_vec(), program),
            Kernel::arg_reduce(ArgReduceOp::ArgMax, 1, operand()),
            Kernel::cumulative(CumulativeOp::ArgMax, 1, false, operand()),
            Kernel::arg_sort(1, false, 700, operand()),
            Kernel::gather(0, operand(), index([5, 700])),
            Kernel::scatter(ScatterOp::Replace, 0, operand(), index([4, 700]), source()),
            Kernel::scatter(ScatterOp::Max, 0, operand(), index([4, 700]), source()),
            Kernel::scatter(ScatterOp::Add, 0, operand(), index([4, 700]), source()),
            Kernel::copy(dtype, whole.shape().clone(), true, regions),
            Kernel::matmul(dtype, &whole, &Layout::contiguous([700, 9])),
        ]
    };
    let mut counted = 0;
    for dtype in [DType::Bool, DType::U8, DType::F16, DType::BF16] {
        for (packed, plain) in kernels(dtype).iter().zip(&kernels(DType::F32)) {
            for direct in [true, false] {
                let (Some(found), Some(most)) = (count(packed, direct), count(plain, direct)) else {
                    continue;
                };
                let adds =
                    matches!(packed.body, tensor_core::kernel::Body::Scatter { op: ScatterOp::Add, .. });
                let fills = matches!(packed.body, tensor_core::kernel::Body::Copy { fill: true, .. });
                let most = most + usize::from(adds && dtype.is_reduced_float() || fills);
                assert!(found <= most, "{found} dispatches, {most} of f32: {packed:?}");
                counted += 1;
            }
        }
    }
    assert!(counted > 80, "{counted}");
}

#[test]
fn operands_in_blocks() {
    let mut count = 0;
    let none = Aliases::from_elem(None, 2);
    let (x, weight) = (Layout::contiguous([6, 256]), Layout::contiguous([8, 256]));
    let codebook = |scales| Codebook4::pack(weight.shape(), &[0; 4 * 256], &[0.0; 16], scales).unwrap().0;
    let double = CodebookScales::Double { codes: &[0; 32], scales: &[1.0], table: &[0.0; 256], offset: 1.0 };
    let codebooks = [codebook(CodebookScales::Plain(&[1.0; 32])), codebook(double)];
    let ggml = GgmlType::ALL.into_iter().map(|format| Arc::new(format) as Arc<dyn BlockFormat>);
    for format in ggml.chain(codebooks.map(|format| Arc::new(format) as Arc<dyn BlockFormat>)) {
        for dtype in [DType::F32, DType::BF16, DType::F16, DType::F8E4M3FN, DType::F64] {
            let blocks = |operand: &mut Operand| operand.format = Some(format.clone());
            for (rhs, rows) in [(weight.permute(&[1, 0]), 6), (weight.permute(&[1, 0]), 1)] {
                let mut product = Kernel::matmul(dtype, &x.slice(0, 0, rows, 1), &rhs);
                blocks(&mut product.operands[1]);
                count += validate(&product, &none);
            }
            let mut left = Kernel::matmul(dtype, &weight, &x.permute(&[1, 0]));
            blocks(&mut left.operands[0]);
            count += validate_variants(&left);
            let index = Operand::new(DType::I32, Layout::new([3, 256], &[1, 0], 0));
            let table = Operand::new(dtype, weight.clone()).in_blocks(Some(format.clone()));
            count += validate(&Kernel::gather(0, table, index), &none);
            let load = Program {
                instrs: vec![Instr::Load(0)],
                dtypes: vec![dtype],
                inputs: vec![dtype],
                outputs: vec![0],
                ..Program::default()
            };
            let mut copy = Kernel::map(weight.shape().clone(), [weight.clone()], load);
            blocks(&mut copy.operands[0]);
            assert!(copy.is_copy());
            count += validate(&copy, &none);
        }
    }
    assert!(count > 500, "{count}");
}

#[test]
fn programs_that_read_at_indices() {
    let none = Aliases::from_elem(None, 3);
    let mut count = 0;
    for table in DType::ALL {
        for index in [DType::I32, DType::I64, DType::U32, DType::U8] {
            for case in taper_testing::load_at::load_at_cases(table, index).iter().step_by(11) {
                count += validate(&case.kernel, &none);
            }
        }
    }
    assert!(count > 1000, "{count}");
}

/// The shaders of a native operation in the form with workgroup memory, or in either form.
fn validate_native(custom: impl tensor_core::CustomKernel, inputs: &[(Layout, DType)]) -> usize {
    let specs: Vec<(Shape, DType)> =
        inputs.iter().map(|(layout, dtype)| (layout.shape().clone(), *dtype)).collect();
    let results = custom.results(&specs).unwrap_or_else(|e| panic!("{e}"));
    let operands: Vec<Operand> =
        inputs.iter().map(|(layout, dtype)| Operand::new(*dtype, layout.clone())).collect();
    validate(&Kernel::custom(Arc::new(custom), operands, &results), &Aliases::new())
}

#[test]
fn attention_of_every_kind() {
    use tensor_core::{Attention, AttentionPass};
    let mut count = 0;
    for (rows, keys, width, features) in
        [(20, 33, 8, 12), (70, 40, 65, 130), (3, 500, 5, 7), (1, 1200, 64, 64)]
    {
        for dtype in [DType::F32, DType::F16] {
            for (mask, causal, dropout) in [
                (None, None, None),
                (None, Some(2), Some(0.1)),
                (Some(DType::Bool), None, Some(0.1)),
                (Some(dtype), None, None),
            ] {
                for pass in [AttentionPass::Forward, AttentionPass::Backward] {
                    let heads = |length, features| {
                        Layout::contiguous([2, length, 3, features]).permute(&[0, 2, 1, 3])
                    };
                    let mut inputs = vec![
                        (heads(rows, width), dtype),
                        (heads(keys, width), dtype),
                        (Layout::contiguous([2, 3, keys, features]), dtype),
                    ];
                    if pass == AttentionPass::Backward {
                        inputs.push((heads(rows, features), dtype));
                        inputs.push((Layout::contiguous([2, 3, rows]), DType::F32));
                        inputs.push((heads(rows, features), dtype));
                    }
                    inputs.extend(mask.map(|mask| (Layout::contiguous([2, 3, rows, keys]), mask)));
                    inputs.extend(dropout.map(|_| (Layout::contiguous([4]), DType::U32)));
                    let attention = Attention { pass, scale: 0.5, causal, mask: mask.is_some(), dropout };
                    count += validate_native(attention, &inputs);
                }
            }
        }
    }
    assert!(count >= 4 * 2 * 4 * 2 * (1 + 3), "{count}");
}

#[test]
fn other_native_operations() {
    use tensor_core::{
        Distances, Fourier, FourierKind, MaxPool, Measure, Recurrence, RecurrencePass, RecurrentCell,
        SearchSorted,
    };
    let rows = Layout::contiguous([3, 64]);
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::I32, DType::I64, DType::U8] {
        for right in [false, true] {
            let inputs = [(rows.clone(), dtype), (Layout::contiguous([3, 5]), dtype)];
            assert_eq!(validate_native(SearchSorted { right }, &inputs), 4, "{dtype}");
        }
        if dtype.is_float() {
            let pool = MaxPool {
                window: [1, 2, 3],
                stride: [1, 2, 1],
                dilation: [1, 1, 2],
                padding: [0, 1, 0],
                outputs: [1, 2, 3],
            };
            assert_eq!(validate_native(pool, &[(Layout::contiguous([5, 1, 4, 7]), dtype)]), 4, "{dtype}");
        }
    }
    for measure in [Measure::Unequal, Measure::Sum, Measure::Euclidean, Measure::Greatest] {
        let points = (Layout::contiguous([2, 5, 7]), DType::F32);
        assert_eq!(validate_native(Distances { measure }, std::slice::from_ref(&points)), 4);
        let two = validate_native(Distances { measure }, &[points.clone(), points]);
        assert_eq!(two, if measure == Measure::Euclidean { 0 } else { 4 });
    }
    for kind in [FourierKind::Forward, FourierKind::Inverse, FourierKind::RealToHalf, FourierKind::HalfToReal]
    {
        for length in [64, 128, 2048, 4096] {
            let shape = match kind {
                FourierKind::Forward | FourierKind::Inverse => Shape::from([2, 3, length, 2]),
                FourierKind::RealToHalf => Shape::from([2, 3, length]),
                FourierKind::HalfToReal => Shape::from([2, 3, length / 2 + 1, 2]),
            };
            let inputs = [(Layout::contiguous(shape), DType::F32)];
            assert_eq!(validate_native(Fourier::new(kind, length, 0.5), &inputs), 2);
        }
    }
    for cell in [RecurrentCell::Tanh, RecurrentCell::Relu, RecurrentCell::Lstm, RecurrentCell::Gru] {
        for reverse in [false, true] {
            let (steps, batch, size, gates) = (4, 3, 9, cell.gates());
            let f32s = |shape: &[usize]| (Layout::contiguous(Shape::from(shape)), DType::F32);
            let (all, state) = (f32s(&[steps, batch, size]), f32s(&[batch, size]));
            let is_lstm = cell == RecurrentCell::Lstm;
            let weight = f32s(&[gates * size, size]);
            let mut forward = vec![f32s(&[steps, batch, gates * size]), weight.clone(), state.clone()];
            forward.extend(is_lstm.then(|| state.clone()));
            forward.extend((cell == RecurrentCell::Gru).then(|| f32s(&[gates * size])));
            let mut backward = vec![weight, state.clone(), all.clone()];
            backward.extend((cell.kept() > 0).then(|| f32s(&[steps, batch, cell.kept() * size])));
            if is_lstm {
                backward.extend([state.clone(), all.clone()]);
            }
            backward.extend([all, state.clone()]);
            backward.extend(is_lstm.then_some(state));
            for (pass, inputs) in [
                (RecurrencePass::Forward, &forward),
                (RecurrencePass::Kept, &forward),
                (RecurrencePass::Backward, &backward),
            ] {
                assert_eq!(validate_native(Recurrence { pass, cell, reverse }, inputs), 2);
            }
        }
    }
}
