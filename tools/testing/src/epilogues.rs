//! Contractions with epilogues of every kind, for the tests of each backend.

use tensor_core::{
    BinaryOp, CompareOp, DType, Kernel, Layout, Scalar, Strides, UnaryOp,
    kernel::{Instr, Program},
};

use crate::numbers;

/// A contraction with an epilogue, and the inputs of its launch.
#[derive(Clone, Debug)]
pub struct EpilogueCase {
    /// A description of the epilogue.
    pub what: &'static str,
    /// The kernel.
    pub kernel: Kernel,
    /// The scalars of its launch.
    pub scalars: Vec<Scalar>,
    /// The buffers of the operands after the first two.
    pub inputs: Vec<(DType, Vec<f64>)>,
}

/// Numbers in the range of a dtype.
fn elements(dtype: DType, n: usize, seed: u64) -> Vec<f64> {
    let all = numbers(n, seed);
    match dtype {
        DType::Bool => all.iter().map(|&x| f64::from(u8::from(x > 0.0))).collect(),
        _ if dtype.is_float() => all,
        _ => all.iter().map(|x| (x * 20.0).round()).collect(),
    }
}

fn case(
    kernel: &Kernel,
    what: &'static str,
    instrs: &[(Instr, DType)],
    outputs: &[u16],
    scalars: Vec<Scalar>,
    layouts: &[(DType, Layout)],
) -> EpilogueCase {
    let dtype = kernel.operands[0].dtype;
    let mut program = Program {
        inputs: std::iter::once(dtype).chain(layouts.iter().map(|&(dtype, _)| dtype)).collect(),
        scalars: scalars.iter().map(|_| dtype).collect(),
        ..Program::default()
    };
    let mut places = Vec::new();
    for &(instr, dtype) in instrs {
        let mut push = |instr, dtype| {
            program.instrs.push(instr);
            program.dtypes.push(dtype);
            (program.instrs.len() - 1) as u16
        };
        let mut place = push(instr.map_operands(|r| places[usize::from(r)]), dtype);
        // Numbers of small integer types are wrapped before they are used, as the planner does.
        let computed = matches!(instr, Instr::Load(0) | Instr::Unary(..) | Instr::Binary(..));
        if computed && dtype.is_int() && dtype.is_narrow() {
            place = push(Instr::Cast(place), dtype);
        }
        places.push(place);
    }
    program.outputs = outputs.iter().map(|&o| places[usize::from(o)]).collect();
    let inputs = layouts.iter().zip(91..).map(|((dtype, layout), seed)| {
        let numel = if layout.numel() == 0 { 1 } else { layout.span().1 };
        (*dtype, elements(*dtype, numel, seed))
    });
    let inputs = inputs.collect();
    let over = layouts.iter().map(|(_, layout)| layout.clone());
    EpilogueCase { what, kernel: kernel.clone().with_epilogue(program, over), scalars, inputs }
}

/// Several epilogues for a contraction without one, of a dtype other than bool: a bias and an
/// activation; a scale and a residual, with the sums stored too; a mask, a comparison and a cast.
pub fn epilogues(kernel: &Kernel) -> Vec<EpilogueCase> {
    let dtype = kernel.operands[0].dtype;
    let shape = kernel.outputs[0].shape.clone();
    let rank = shape.rank();
    let along = |axis: Option<usize>, offset: usize| {
        let strides: Strides = (0..rank).map(|a| isize::from(Some(a) == axis)).collect();
        Layout::new(shape.clone(), &strides, offset)
    };
    let scalar = |x: f64, n: i64| {
        let number = if dtype.is_float() { Scalar::Float(x) } else { Scalar::Int(n) };
        number.cast(dtype)
    };
    let (load, d) = (|k: u16| (Instr::Load(k), dtype), dtype);
    let reversed: Vec<usize> = (0..rank).rev().collect();
    let transposed = Layout::contiguous(shape.iter().rev().copied().collect::<Vec<_>>()).permute(&reversed);
    let to = if dtype == DType::F32 { DType::F16 } else { DType::F32 };
    vec![
        case(
            kernel,
            "bias and relu",
            &[load(0), load(1), (Instr::Binary(BinaryOp::Add, 0, 1), d), (Instr::Unary(UnaryOp::Relu, 2), d)],
            &[3],
            vec![],
            &[(dtype, along(rank.checked_sub(1), 3))],
        ),
        case(
            kernel,
            "scale, residual, and the sums",
            &[
                load(1),
                load(0),
                (Instr::Scalar(0), d),
                (Instr::Binary(BinaryOp::Mul, 1, 2), d),
                (Instr::Binary(BinaryOp::Add, 3, 0), d),
            ],
            &[4, 1],
            vec![scalar(0.37, 3)],
            &[(dtype, transposed)],
        ),
        case(
            kernel,
            "residual in order",
            &[load(0), load(1), (Instr::Binary(BinaryOp::Sub, 0, 1), d)],
            &[2],
            vec![],
            &[(dtype, Layout::contiguous(shape.clone()))],
        ),
        case(
            kernel,
            "mask, comparison and cast",
            &[
                load(0),
                (Instr::Load(1), DType::Bool),
                (Instr::Scalar(0), d),
                (Instr::Select(1, 0, 2), d),
                (Instr::Compare(CompareOp::Le, 2, 0), DType::Bool),
                (Instr::Cast(3), to),
            ],
            &[5, 4],
            vec![scalar(0.377, 2)],
            &[(DType::Bool, along((rank > 0).then_some(0), 0))],
        ),
    ]
}

/// Contractions of a dtype to test epilogues on: products of every form, batches, and convolutions over
/// windows.
pub fn contractions(dtype: DType) -> Vec<Kernel> {
    let plain = |m: usize, k: usize, n: usize| {
        Kernel::matmul(dtype, &Layout::contiguous([m, k]), &Layout::contiguous([k, n]))
    };
    let mut all: Vec<Kernel> = [
        (1, 1, 1),
        (1, 7, 5),
        (5, 9, 1),
        (4, 8, 12),
        (13, 11, 9),
        (3, 0, 4),
        (0, 3, 4),
        (4, 3, 0),
        (65, 17, 63),
    ]
    .into_iter()
    .map(|(m, k, n)| plain(m, k, n))
    .collect();
    // The right operand is stored by columns.
    let across = Layout::contiguous([20, 9]).permute(&[1, 0]);
    all.push(Kernel::matmul(dtype, &Layout::contiguous([6, 9]), &across));
    all.push(Kernel::matmul(dtype, &Layout::contiguous([3, 5, 4]), &Layout::contiguous([3, 4, 6])));
    // One vector for each matrix of a batch, and a single dot product.
    all.push(Kernel::matmul(dtype, &Layout::contiguous([4, 1, 5]), &Layout::contiguous([4, 5, 3])));
    // A convolution: weight [out, in, kh, kw] over images [batch, in, h, w], with the axes in the order
    // batch, out, oh, ow, in, kh, kw.
    let over = |space: [usize; 7], weight: [isize; 7], images: [isize; 7], reduced: &[usize]| {
        let layout = |strides: &[isize]| Layout::new(space, strides, 0);
        Kernel::contract(dtype, layout(&weight), layout(&images), reduced)
    };
    all.push(over([2, 5, 4, 6, 3, 3, 2], [0, 18, 0, 0, 6, 2, 1], [3 * 42, 0, 7, 1, 42, 7, 1], &[4, 5, 6]));
    // A depthwise convolution: one row per batch position.
    all.push(over([2, 3, 9, 16, 1, 3, 3], [0, 9, 0, 0, 0, 3, 1], [594, 198, 18, 1, 0, 18, 1], &[4, 5, 6]));
    // A few results of many terms: the gradient of a depthwise convolution's weight.
    let few = Layout::new([3, 2, 2, 2, 8, 16], &[0, 0, 0, 128, 16, 1], 0);
    let images = Layout::new([3, 2, 2, 2, 8, 16], &[153, 17, 1, 459, 17, 1], 0);
    all.push(Kernel::contract(dtype, few, images, &[3, 4, 5]));
    all
}

/// The buffers of a contraction's first two operands.
pub fn operands(kernel: &Kernel) -> Vec<(DType, Vec<f64>)> {
    let first = kernel.operands.iter().take(2).zip(71..);
    first
        .map(|(operand, seed)| {
            let numel = operand.layout.span().1.max(1);
            (operand.dtype, elements(operand.dtype, numel, seed))
        })
        .collect()
}
