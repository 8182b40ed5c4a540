//! Launches that break their kernel's contract are refused before anything is read or written. In builds
//! without debug assertions a caller has to call [`Launch::check`] itself.
#![allow(clippy::unwrap_used)]

use tensor_core::{
    ArgReduceOp, Backend, BinaryOp, CumulativeOp, DType, Kernel, Launch, Layout, ReduceOp, Result, Scalar,
    ScatterOp, Storage, UnaryOp,
    kernel::{Body, Compiled, Instr, Operand, Program},
};

const F32: DType = DType::F32;

/// A launch whose parts can be changed before it runs.
struct Try {
    kernel: Kernel,
    scalars: Vec<Scalar>,
    inputs: Vec<Storage>,
    outputs: Vec<Storage>,
}

impl Try {
    fn new(kernel: Kernel, inputs: &[(DType, usize)]) -> Try {
        let outputs: Vec<(DType, usize)> =
            kernel.outputs.iter().map(|output| (output.dtype, output.shape.numel())).collect();
        Try { kernel, scalars: vec![], inputs: buffers(inputs), outputs: buffers(&outputs) }
    }

    fn launch<R>(&self, f: impl FnOnce(&Launch<'_>) -> R) -> R {
        f(&Launch {
            kernel: &self.kernel,
            compiled: &Compiled::default(),
            scalars: &self.scalars,
            inputs: &self.inputs,
            outputs: &self.outputs,
            tickets: &[],
        })
    }

    fn run(&self) -> Result<()> {
        self.launch(|launch| {
            launch.check()?;
            backend().run(launch)
        })
    }

    fn with(mut self, change: impl FnOnce(&mut Try)) -> Try {
        change(&mut self);
        self
    }

    /// Checks that the launch passes.
    #[track_caller]
    fn good(self) -> Try {
        self.run().unwrap();
        self
    }

    /// Checks that the launch fails with an error that contains these words.
    #[track_caller]
    fn bad(self, words: &str) {
        let error = self.run().unwrap_err().to_string();
        assert!(error.contains(words) && error.contains(self.kernel.name()), "{error}");
        if cfg!(debug_assertions) {
            let again = self.launch(|launch| backend().run(launch)).unwrap_err();
            assert_eq!(again.to_string(), error);
        }
    }
}

fn backend() -> &'static backend_cpu::CpuBackend {
    static BACKEND: std::sync::OnceLock<backend_cpu::CpuBackend> = std::sync::OnceLock::new();
    BACKEND.get_or_init(backend_cpu::CpuBackend::new)
}

fn buffers(all: &[(DType, usize)]) -> Vec<Storage> {
    all.iter()
        .map(|&(dtype, numel)| backend().upload(dtype, &vec![0; numel * dtype.size()]).unwrap())
        .collect()
}

fn rows(n: usize, m: usize) -> Layout {
    Layout::contiguous([n, m])
}

fn sum_of_two() -> Program {
    Program {
        instrs: vec![Instr::Load(0), Instr::Load(1), Instr::Binary(BinaryOp::Add, 0, 1)],
        dtypes: vec![F32; 3],
        inputs: vec![F32; 2],
        scalars: vec![],
        outputs: vec![2],
    }
}

fn map(shape: [usize; 2], layouts: [Layout; 2], program: Program) -> Try {
    Try::new(Kernel::map(shape.into(), layouts, program), &[(F32, 12), (F32, 12)])
}

fn plain_map() -> Try {
    map([3, 4], [rows(3, 4), rows(3, 4)], sum_of_two())
}

#[test]
fn layouts_that_leave_their_buffers_are_refused() {
    plain_map().good();
    map([3, 4], [rows(3, 4), rows(3, 4).flip(0).flip(1)], sum_of_two()).good();
    map([3, 4], [rows(3, 4), Layout::new([3, 4], &[4, 1], 1)], sum_of_two()).bad("input 1 reaches");
    map([3, 4], [rows(3, 4), Layout::new([3, 4], &[-4, 1], 4)], sum_of_two()).bad("from element -4 to");
    map([3, 4], [rows(3, 4), Layout::new([3, 4], &[isize::MAX, 1], 0)], sum_of_two()).bad("reaches");
    map([3, 4], [rows(3, 4), rows(4, 3)], sum_of_two()).bad("input 1 is of shape [4, 3]");
    map([3, 4], [rows(3, 4), rows(3, 4)], sum_of_two())
        .with(|t| t.outputs = buffers(&[(F32, 11)]))
        .bad("its buffer has 11 elements");
    map([3, 0], [rows(3, 0), Layout::new([3, 0], &[99, 99], 99)], sum_of_two()).good();
}

#[test]
fn buffers_and_scalars_of_another_kind_are_refused() {
    plain_map().with(|t| t.inputs = buffers(&[(F32, 12), (DType::I32, 12)])).bad("input 1 is read as f32");
    plain_map().with(|t| t.outputs = buffers(&[(DType::U32, 12)])).bad("output 0 is written as f32");
    plain_map().with(|t| drop(t.inputs.pop())).bad("1 input buffers were given for 2");
    plain_map().with(|t| t.outputs.clear()).bad("0 output buffers were given for 1");
    plain_map().with(|t| t.scalars.push(Scalar::Int(1))).bad("1 scalars were given for 0");
    let scaled = Program {
        instrs: vec![Instr::Load(0), Instr::Scalar(0), Instr::Binary(BinaryOp::Mul, 0, 1)],
        scalars: vec![F32],
        ..sum_of_two()
    };
    let scaled =
        |value| map([3, 4], [rows(3, 4), rows(3, 4)], scaled.clone()).with(|t| t.scalars = vec![value]);
    scaled(Scalar::Float(0.5)).good();
    scaled(Scalar::Float(0.1)).bad("scalar 0, 0.1, is not of f32");
    scaled(Scalar::Int(1)).bad("scalar 0, 1, is not of f32");
}

#[test]
fn programs_that_do_not_hold_together_are_refused() {
    let wrong = |change: fn(&mut Program)| {
        let mut program = sum_of_two();
        change(&mut program);
        map([3, 4], [rows(3, 4), rows(3, 4)], program)
    };
    wrong(|p| p.instrs[2] = Instr::Binary(BinaryOp::Add, 0, 2)).bad("reads register 2, which comes later");
    wrong(|p| p.instrs[1] = Instr::Load(7)).bad("instruction 1, Load(7)");
    wrong(|p| p.instrs[1] = Instr::Scalar(0)).bad("instruction 1, Scalar(0)");
    wrong(|p| p.instrs[1] = Instr::Fold(ReduceOp::Sum, 0)).bad("instruction 1, Fold");
    wrong(|p| p.dtypes[2] = DType::Bool).bad("instruction 2");
    wrong(|p| p.instrs[2] = Instr::Select(0, 0, 1)).bad("instruction 2, Select");
    plain_map()
        .with(|t| {
            if let Body::Map(program) = &mut t.kernel.body {
                program.outputs = vec![3];
            }
        })
        .bad("register 3 is a result, of 3 there are");
    let mut positional = sum_of_two();
    positional.instrs[1] = Instr::Arange { start: 0, step: 0 };
    positional.scalars = vec![F32];
    let over = |program: Program| {
        let kernel = Kernel::reduce(ReduceOp::Sum, [3, 4].into(), &[1], [rows(3, 4), rows(3, 4)], program);
        Try::new(kernel, &[(F32, 12), (F32, 12)])
    };
    over(sum_of_two()).good();
    over(positional).with(|t| t.scalars = vec![Scalar::Float(1.0)]).bad("instruction 1, Arange");
}

#[test]
fn only_a_map_works_in_place_and_only_where_it_reads_in_order() {
    let in_place = |layouts: [Layout; 2], twice: bool| {
        map([3, 4], layouts, sum_of_two()).with(|t| {
            t.outputs = vec![t.inputs[0].clone()];
            if twice {
                t.inputs[1] = t.inputs[0].clone();
            }
        })
    };
    in_place([rows(3, 4), rows(3, 4).flip(0)], false).good();
    in_place([rows(3, 4), rows(3, 4)], true).good();
    in_place([rows(3, 4), rows(3, 4).flip(0)], true).bad("overwrites an input");
    in_place([rows(3, 4).flip(1), rows(3, 4)], false).bad("overwrites an input");
    let two = Program { outputs: vec![2, 0], ..sum_of_two() };
    map([3, 4], [rows(3, 4), rows(3, 4)], two)
        .good()
        .with(|t| t.outputs[1] = t.outputs[0].clone())
        .bad("one buffer was given for two outputs");
    let sorted = Kernel::arg_sort(1, false, 4, Operand::new(DType::I32, rows(3, 4)));
    Try::new(sorted, &[(DType::I32, 12)])
        .good()
        .with(|t| t.outputs = t.inputs.clone())
        .bad("only a map works in place");
}

#[test]
fn every_other_kernel_is_held_to_its_shapes() {
    let (lhs, rhs) = (Layout::contiguous([2, 3, 4]), Layout::new([2, 4, 5], &[0, 5, 1], 0));
    let matmul = |lhs: &Layout| Kernel::matmul(F32, lhs, &rhs);
    Try::new(matmul(&lhs), &[(F32, 24), (F32, 20)]).good();
    Try::new(matmul(&lhs), &[(F32, 23), (F32, 20)]).bad("input 0 reaches");
    Try::new(matmul(&lhs), &[(F32, 24), (F32, 20)])
        .with(|t| t.kernel.operands[1].layout = rhs.clone())
        .bad("input 1 is of shape [2, 4, 5], and the kernel of [2, 3, 5, 4]");
    Try::new(matmul(&lhs), &[(F32, 24), (F32, 20)])
        .with(|t| t.kernel.outputs[0].shape = [2, 3, 6].into())
        .with(|t| t.outputs = buffers(&[(F32, 36)]))
        .bad("6 elements are wanted of an axis of 5");

    let reduce = |axes: &[usize]| {
        Kernel::reduce(ReduceOp::Max, [3, 4].into(), axes, [rows(3, 4), rows(3, 4)], sum_of_two())
    };
    Try::new(reduce(&[0, 1]), &[(F32, 12), (F32, 12)]).good();
    Try::new(reduce(&[1]), &[(F32, 12), (F32, 12)])
        .with(|t| t.kernel.outputs[0].axes = [7].into_iter().collect())
        .bad("are not ascending");

    let rows_kernel = |fold: bool| {
        let mut program = Program {
            instrs: vec![Instr::Load(0), Instr::Unary(UnaryOp::Neg, 0)],
            dtypes: vec![F32; 2],
            inputs: vec![F32],
            scalars: vec![],
            outputs: vec![1],
        };
        if fold {
            program.instrs[1] = Instr::Fold(ReduceOp::Sum, 0);
        }
        Kernel::rows([3, 4].into(), 1, [rows(3, 4)], program, &[true])
    };
    Try::new(rows_kernel(true), &[(F32, 12)]).good();
    Try::new(rows_kernel(false), &[(F32, 12)]).bad("its register differs along the row");

    let of = Operand::new;
    let extreme = || Kernel::arg_reduce(ArgReduceOp::ArgMax, 1, of(F32, rows(3, 4)));
    Try::new(extreme(), &[(F32, 12)]).good();
    Try::new(extreme(), &[(F32, 12)]).with(|t| t.inputs = buffers(&[(F32, 8)])).bad("reaches");
    let late = of(F32, Layout::new([3, 4], &[4, 1], 3));
    let running = Kernel::cumulative(CumulativeOp::Sum, 0, true, late);
    Try::new(running, &[(F32, 14)]).bad("from element 3 to 14 of a buffer of 14");

    let gather = |index: Layout, dtype: DType| {
        let kernel = Kernel::gather(1, of(F32, rows(3, 4)), of(dtype, index));
        Try::new(kernel, &[(F32, 12), (dtype, 40)])
    };
    gather(rows(3, 9), DType::I32).good();
    gather(rows(4, 2), DType::I32).bad("input 0 reaches");
    gather(Layout::contiguous([3]), DType::I32).bad("input 0 is of shape [3, 4], and the kernel of [3]");
    gather(rows(3, 9), F32).bad("an index of f32");
    let scatter = |src: Layout| {
        let kernel =
            Kernel::scatter(ScatterOp::Add, 0, of(F32, rows(3, 4)), of(DType::U8, rows(5, 4)), of(F32, src));
        Try::new(kernel, &[(F32, 12), (DType::U8, 20), (F32, 20)])
    };
    scatter(rows(5, 4)).good();
    scatter(rows(4, 4)).bad("the source is of shape [4, 4]");
    scatter(rows(4, 5)).bad("input 2 is of shape [4, 5]");
}

#[test]
fn regions_of_a_copy_cover_the_output_once() {
    let whole = rows(4, 4);
    let copy = |parts: &[Layout], fill: bool| {
        let regions = parts.iter().map(|to| (to.clone(), Layout::contiguous(to.shape().clone())));
        let kernel = Kernel::copy(F32, [4, 4].into(), fill, regions);
        let inputs: Vec<(DType, usize)> = parts.iter().map(|part| (F32, part.numel())).collect();
        Try::new(kernel, &inputs).with(|t| t.scalars.extend(fill.then_some(Scalar::Float(2.0))))
    };
    let (top, rest) = (whole.slice(0, 0, 1, 1), whole.slice(0, 1, 3, 1));
    copy(&[top.clone(), rest.clone()], false).good();
    copy(&[whole.flip(1)], false).good();
    copy(&[whole.slice(0, 0, 2, 2)], true).good();
    copy(std::slice::from_ref(&rest), false).bad("the regions have 12 elements, the output 16");
    copy(&[rest.clone(), rest.clone()], true).bad("the regions have 24 elements");
    copy(&[top.clone(), whole.slice(1, 0, 1, 1)], true).bad("written twice");
    copy(&[Layout::new([4, 4], &[4, 1], 1)], false).bad("region 0 of the output reaches");
    copy(&[top], true).with(|t| t.scalars.clear()).bad("0 scalars for one to fill with");
}
