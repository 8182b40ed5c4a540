//! Every kernel over random layouts: permuted, sliced, stepped, flipped, broadcast, empty, 0-d, alone and
//! combined. The seed is fixed; `TAPER_TEST=seed=2,rounds=9` changes it and runs
//! more rounds.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{Input, agree, numbers};
use smallvec::SmallVec;
use taper_testing::settings::number;
use tensor_core::{
    ArgReduceOp, BinaryOp, CumulativeOp, DType, Kernel, Layout, ReduceOp, ScatterOp, Shape,
    kernel::{Instr, Operand, Program},
    philox,
};

struct Draw {
    seed: u64,
    next: u64,
}

impl Draw {
    fn below(&mut self, n: usize) -> usize {
        self.next += 1;
        philox(self.seed, self.next)[0] as usize % n
    }

    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// A shape of up to four axes; occasionally one is empty.
    fn shape(&mut self) -> Vec<usize> {
        let rank = self.below(5);
        (0..rank).map(|_| if self.below(40) == 0 { 0 } else { self.of(&[1, 2, 3, 4, 5, 8, 12]) }).collect()
    }

    /// A layout of `shape`, and the numbers of a buffer that contains it.
    fn input(&mut self, shape: &[usize], dtype: DType) -> (Layout, Input) {
        // Axes in memory order; each may be wider, stepped over, reversed, or one element for all.
        let mut order: Vec<usize> = (0..shape.len()).collect();
        for i in 1..shape.len() {
            if self.below(3) == 0 {
                let j = self.below(i + 1);
                order.swap(i, j);
            }
        }
        let mut memory = Vec::new();
        let mut windows = Vec::new();
        for &axis in &order {
            let n = shape[axis];
            let (size, window) = match self.below(7) {
                0 => (1, None),
                1 => (n + 3, Some((2, 1))),
                2 => ((n * 2).max(1), Some((0, 2))),
                3 => (n, Some((n.saturating_sub(1), -1))),
                4 => (n + 4, Some((4, 1))),
                _ => (n, Some((0, 1))),
            };
            memory.push(size);
            windows.push(window);
        }
        let mut layout = Layout::contiguous(memory.as_slice());
        for (i, window) in windows.into_iter().enumerate() {
            if let Some((start, step)) = window {
                layout = layout.slice(i, start, shape[order[i]], step);
            }
        }
        let ordered: Shape = order.iter().map(|&axis| shape[axis]).collect();
        let mut back = vec![0; shape.len()];
        for (i, &axis) in order.iter().enumerate() {
            back[axis] = i;
        }
        let layout = layout.expand(&ordered).permute(&back);
        let numbers = numbers(memory.iter().product(), self.next);
        let whole = |x: f64| (x * 3.0).round().abs();
        let numbers = if dtype.is_float() { numbers } else { numbers.into_iter().map(whole).collect() };
        (layout, (dtype, numbers))
    }
}

#[test]
fn layouts_drawn_at_random() {
    let mut draw = Draw { seed: number("seed", 1), next: 0 };
    for round in 0..number("rounds", 3) {
        DType::ALL.into_iter().for_each(|dtype| one_round(&mut draw, round, dtype));
    }
}

fn one_round(draw: &mut Draw, round: u64, dtype: DType) {
    let tolerance = match dtype {
        DType::BF16 => 1e-1,
        DType::F16 => 3e-2,
        DType::F64 => 1e-12,
        _ => 2e-5,
    };
    let shape = draw.shape();
    elementwise(draw, round, &shape, dtype, tolerance);
    if !shape.is_empty() {
        let axis = draw.below(shape.len());
        if shape[axis] > 0 {
            by_index(draw, round, &shape, axis, dtype, tolerance);
        }
    }
    if dtype != DType::Bool {
        product(draw, round, dtype, tolerance);
    }
}

fn elementwise(draw: &mut Draw, round: u64, shape: &[usize], dtype: DType, tolerance: f64) {
    let (a, x) = draw.input(shape, dtype);
    let (b, y) = draw.input(shape, dtype);
    let what = format!("round {round}: {dtype} {a:?} and {b:?}");
    let program = Program {
        instrs: vec![
            Instr::Load(0),
            Instr::Load(1),
            Instr::Binary(BinaryOp::Mul, 0, 1),
            Instr::Binary(BinaryOp::Add, 2, 0),
        ],
        dtypes: vec![dtype; 4],
        inputs: vec![dtype; 2],
        scalars: vec![],
        outputs: vec![3],
    };
    let inputs: SmallVec<[Layout; 4]> = SmallVec::from_iter([a, b]);
    let both = Program { outputs: vec![3, 2], ..program.clone() };
    let map = Kernel::map(shape.into(), inputs.clone(), both);
    let buffers = [x, y];
    agree(&what, &map, &[], &buffers, tolerance);
    if dtype != DType::Bool {
        rows(draw, &what, shape, dtype, &inputs, &buffers, tolerance * 20.0);
    }
    let axes: SmallVec<[usize; 5]> = (0..shape.len()).filter(|_| draw.below(2) == 0).collect();
    let nothing = axes.iter().any(|&a| shape[a] == 0);
    let op = if dtype.is_float() && !nothing {
        draw.of(&[ReduceOp::Sum, ReduceOp::Max, ReduceOp::Mean])
    } else if dtype == DType::Bool {
        draw.of(&[ReduceOp::Any, ReduceOp::All])
    } else {
        ReduceOp::Sum
    };
    let what = format!("{op:?} over {axes:?}, {what}");
    let reduce = Kernel::reduce(op, shape.into(), &axes, inputs, program);
    agree(&what, &reduce, &[], &buffers, tolerance * 20.0);
}

/// The program above without its row's extreme, and the row's sum of the result. The reference limits the
/// length of a row.
fn rows(
    draw: &mut Draw,
    what: &str,
    shape: &[usize],
    dtype: DType,
    inputs: &[Layout],
    buffers: &[Input],
    tolerance: f64,
) {
    let most = (1..=shape.len())
        .take_while(|&k| (1..=64).contains(&shape[shape.len() - k..].iter().product::<usize>()));
    let most = most.count();
    if most == 0 {
        return;
    }
    let row_axes = 1 + draw.below(most);
    let op = draw.of(&[ReduceOp::Max, ReduceOp::Min]);
    let program = Program {
        instrs: vec![
            Instr::Load(0),
            Instr::Load(1),
            Instr::Binary(BinaryOp::Mul, 0, 1),
            Instr::Fold(op, 2),
            Instr::Binary(BinaryOp::Sub, 2, 3),
            Instr::Fold(ReduceOp::Sum, 4),
            Instr::Binary(BinaryOp::Add, 4, 0),
        ],
        dtypes: vec![dtype; 7],
        inputs: vec![dtype; 2],
        scalars: vec![],
        outputs: vec![6, 5],
    };
    let kernel = Kernel::rows(shape.into(), row_axes, inputs.iter().cloned(), program, &[false, true]);
    agree(&format!("{row_axes} axes, {what}"), &kernel, &[], buffers, tolerance);
}

fn by_index(draw: &mut Draw, round: u64, shape: &[usize], axis: usize, dtype: DType, tolerance: f64) {
    let (input, x) = draw.input(shape, dtype);
    let op = draw.of(&[ArgReduceOp::ArgMax, ArgReduceOp::ArgMin]);
    let arg = Kernel::arg_reduce(op, axis, Operand::new(dtype, input.clone()));
    let what = format!("round {round}: axis {axis} of {dtype} {input:?}");
    agree(&format!("{op:?}, {what}"), &arg, &[], std::slice::from_ref(&x), 0.0);
    let running = if dtype == DType::Bool { CumulativeOp::ArgMin } else { CumulativeOp::Sum };
    let (op, reverse) = (draw.of(&[running, CumulativeOp::ArgMax]), draw.below(2) == 0);
    let running = Kernel::cumulative(op, axis, reverse, Operand::new(dtype, input.clone()));
    agree(&format!("{op:?}, {what}"), &running, &[], std::slice::from_ref(&x), tolerance);
    let k = 1 + draw.below(shape[axis]);
    let sort = Kernel::arg_sort(axis, !reverse, k, Operand::new(dtype, input.clone()));
    agree(&format!("the first {k}, {what}"), &sort, &[], std::slice::from_ref(&x), 0.0);

    let mut reach: Vec<usize> = shape.iter().map(|&n| if n == 0 { 0 } else { 1 + draw.below(n) }).collect();
    reach[axis] = draw.below(7);
    let (index, (_, mut positions)) = draw.input(&reach, DType::I32);
    positions.iter_mut().for_each(|p| *p = draw.below(shape[axis]) as f64);
    let positions = (DType::I32, positions);
    let what = format!("{what} by {index:?}");
    let gather =
        Kernel::gather(axis, Operand::new(dtype, input.clone()), Operand::new(DType::I32, index.clone()));
    agree(&format!("gather, {what}"), &gather, &[], &[x.clone(), positions.clone()], 0.0);

    let (src, y) = draw.input(&reach, dtype);
    let op = if dtype == DType::Bool { ScatterOp::Replace } else { ScatterOp::Add };
    let scatter = Kernel::scatter(
        op,
        axis,
        Operand::new(dtype, input),
        Operand::new(DType::I32, index),
        Operand::new(dtype, src),
    );
    agree(&format!("scatter, {what}"), &scatter, &[], &[x, positions, y], tolerance);
}

fn product(draw: &mut Draw, round: u64, dtype: DType, tolerance: f64) {
    let batch: Vec<usize> = (0..draw.below(3)).map(|_| draw.of(&[1, 2, 3])).collect();
    let m = draw.of(&[1, 3, 8, 20, 36, 66, 130]);
    let n = draw.of(&[1, 4, 7, 32, 68]);
    let k = draw.of(&[1, 3, 4, 16, 20, 33]);
    let (lhs, x) = draw.input(&[&batch[..], &[m, k]].concat(), dtype);
    let (rhs, y) = draw.input(&[&batch[..], &[k, n]].concat(), dtype);
    let what = format!("round {round}: {dtype} {lhs:?} x {rhs:?}");
    let kernel = Kernel::matmul(dtype, &lhs, &rhs);
    agree(&what, &kernel, &[], &[x, y], tolerance * 10.0);
}
