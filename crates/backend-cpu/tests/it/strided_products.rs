//! Products of operands that are views of every kind, against a plain loop. Elements of the buffer outside
//! the view are NaN (or a number that no product gives), so that reads outside the view are detected.
#![allow(clippy::unwrap_used)]

use tensor_core::{DType, Element, Result, Tensor, bf16, f16};

/// Pseudo-random whole numbers.
struct Dice {
    seed: u64,
    at: u64,
}

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.at += 1;
        tensor_core::philox(self.seed, self.at)[0] as usize % n
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

/// Element `[b, i, j]` of an operand of `shape`.
struct Operand {
    shape: [usize; 3],
    values: Vec<i32>,
    view: Tensor,
}

/// The mapping of one axis of an operand to an axis of its buffer.
struct Along {
    size: usize,
    /// Whether one element of the buffer is expanded along the axis.
    expanded: bool,
    flipped: bool,
    step: usize,
    before: usize,
    stored: usize,
}

impl Along {
    fn new(size: usize, dice: &mut Dice) -> Along {
        let expanded = size > 0 && dice.chance(6);
        let count = if expanded { 1 } else { size };
        let step = 1 + if dice.chance(3) { dice.below(3) } else { 0 };
        let before = if dice.chance(3) { dice.below(3) } else { 0 };
        let after = if dice.chance(3) { dice.below(3) } else { 0 };
        let reach = if count == 0 { 0 } else { (count - 1) * step + 1 };
        Along { size, expanded, flipped: dice.chance(4), step, before, stored: before + reach + after }
    }

    /// The index along the buffer's axis for index `i` of the operand.
    fn place(&self, i: usize) -> usize {
        let i = if self.expanded {
            0
        } else if self.flipped {
            self.size - 1 - i
        } else {
            i
        };
        self.before + i * self.step
    }
}

/// A view of `shape`, made by select, permute, slice, flip and expand.
fn operand<T: Element>(
    shape: [usize; 3],
    number: impl Fn(i32) -> T,
    hole: T,
    dice: &mut Dice,
) -> Result<Operand> {
    let axes = shape.map(|n| Along::new(n, dice));
    // A fourth axis, of which one index is selected.
    let (extra, picked) = match dice.below(3) {
        0 => (1, 0),
        1 => (2, dice.below(2)),
        _ => (3, dice.below(3)),
    };
    let mut order = [0, 1, 2, 3];
    for i in (1..4).rev() {
        order.swap(i, dice.below(i + 1));
    }
    let sizes = [axes[0].stored, axes[1].stored, axes[2].stored, extra];
    let stored = order.map(|axis| sizes[axis]);
    let mut buffer = vec![hole; stored.iter().product()];
    let mut seen = vec![0; buffer.len()];
    let mut values = Vec::new();
    for b in 0..shape[0] {
        for i in 0..shape[1] {
            for j in 0..shape[2] {
                let place = [axes[0].place(b), axes[1].place(i), axes[2].place(j), picked];
                let at = order.iter().zip(&stored).fold(0, |at, (&axis, &size)| at * size + place[axis]);
                if seen[at] == 0 {
                    seen[at] = dice.below(5) as i32 + 1;
                    buffer[at] = number(seen[at] - 3);
                }
                values.push(seen[at] - 3);
            }
        }
    }
    let mut view = Tensor::from_vec(buffer, stored, &backend_cpu::cpu())?;
    let mut back = [0isize; 4];
    (0..4).for_each(|i| back[order[i]] = i as isize);
    view = view.permute(back)?.select(3, picked as isize)?;
    for (axis, along) in axes.iter().enumerate() {
        let count = if along.expanded { 1 } else { along.size };
        let end = along.before + if count == 0 { 0 } else { (count - 1) * along.step + 1 };
        view = view.slice_step(axis, along.before..end, along.step as isize)?;
        if along.flipped {
            view = view.flip([axis as isize])?;
        }
    }
    let dims: Vec<isize> = shape.iter().map(|&n| n as isize).collect();
    Ok(Operand { shape, values, view: view.expand(dims)? })
}

/// Checks one product of dtype `T`; the numbers are so small that every dtype can hold all sums.
fn check<T: Element>(
    [batch, m, n, k]: [usize; 4],
    number: impl Fn(i32) -> T + Copy,
    hole: T,
    dice: &mut Dice,
    what: &str,
) -> Result<()> {
    let left = operand([batch, m, k], number, hole, dice)?;
    let right = operand([batch, k, n], number, hole, dice)?;
    let mut expected = Vec::new();
    for b in 0..batch {
        for i in 0..m {
            for j in 0..n {
                let term =
                    |x| left.values[(b * m + i) * k + x] as i64 * right.values[(b * k + x) * n + j] as i64;
                expected.push((0..k).map(term).sum::<i64>() as f64);
            }
        }
    }
    let (mut lhs, mut rhs) = (left.view.clone(), right.view.clone());
    if batch == 1 && dice.chance(2) {
        // Matrices; vectors if there is one row or column.
        lhs = lhs.select(0, 0)?;
        rhs = rhs.select(0, 0)?;
        if m == 1 && dice.chance(2) {
            lhs = lhs.select(0, 0)?;
        }
        if n == 1 && dice.chance(2) {
            rhs = rhs.select(1, 0)?;
        }
    }
    let found = lhs.matmul(&rhs)?.to_f64_vec()?;
    assert_eq!(found, expected, "{what}: {:?} times {:?}, {}", left.shape, right.shape, T::DTYPE);
    Ok(())
}

fn product(sizes: [usize; 4], dtype: DType, dice: &mut Dice, what: &str) -> Result<()> {
    match dtype {
        DType::F32 => check(sizes, |v| v as f32, f32::NAN, dice, what),
        DType::F64 => check(sizes, f64::from, f64::NAN, dice, what),
        DType::F16 => check(sizes, |v| f16::from_f32(v as f32), f16::NAN, dice, what),
        DType::BF16 => check(sizes, |v| bf16::from_f32(v as f32), bf16::NAN, dice, what),
        DType::I64 => check(sizes, i64::from, 1 << 40, dice, what),
        _ => check(sizes, |v| v, 1 << 20, dice, what),
    }
}

#[test]
fn a_row_times_a_strided_column_is_read_by_the_columns_strides() -> Result<()> {
    let device = backend_cpu::cpu();
    let ones = Tensor::ones([3], &device)?;
    let m = Tensor::from_vec(vec![1f32, 10.0, 2.0, 20.0, 3.0, 30.0], [3, 2], &device)?;
    assert_eq!(ones.matmul(&m.select(1, 0)?)?.to_vec::<f32>()?, [6.0]);
    assert_eq!(ones.matmul(&m.select(1, 1)?)?.to_vec::<f32>()?, [60.0]);
    let v = Tensor::from_vec(vec![1f32, 2.0, 3.0], [3], &device)?;
    let weights = Tensor::from_vec(vec![1f32, 10.0, 100.0], [3], &device)?;
    assert_eq!(weights.matmul(&v.flip([0])?)?.to_vec::<f32>()?, [123.0]);
    assert_eq!(weights.matmul(&v.select(0, 1)?.expand([3])?)?.to_vec::<f32>()?, [222.0]);
    Ok(())
}

#[test]
fn ten_thousand_products_of_views() -> Result<()> {
    let dtypes = [DType::F32, DType::F32, DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32];
    for seed in 0..10_000 {
        let mut dice = Dice { seed, at: 0 };
        let batch = if dice.chance(4) { 1 + dice.below(3) } else { 1 };
        let size = |dice: &mut Dice| if dice.chance(4) { 1 } else { dice.below(10) };
        let sizes = [batch, size(&mut dice), size(&mut dice), size(&mut dice)];
        let dtype = dtypes[dice.below(dtypes.len())];
        product(sizes, dtype, &mut dice, &format!("seed {seed}"))?;
    }
    Ok(())
}

#[test]
fn larger_products_of_views() -> Result<()> {
    for seed in 0..600 {
        let mut dice = Dice { seed: seed + 1_000_000, at: 0 };
        let size = |dice: &mut Dice| match dice.below(4) {
            0 => 1,
            1 => dice.below(40),
            2 => dice.below(140),
            _ => dice.below(420),
        };
        let sizes = [1 + dice.below(2), size(&mut dice), size(&mut dice), size(&mut dice)];
        if sizes.iter().product::<usize>() > 3_000_000 {
            continue;
        }
        let dtype = [DType::F32, DType::F32, DType::F64, DType::I64][dice.below(4)];
        product(sizes, dtype, &mut dice, &format!("seed {seed}"))?;
    }
    Ok(())
}
