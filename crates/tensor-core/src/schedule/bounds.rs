//! Interval analysis: bounds of the integers that a launch produces. They follow from its inputs, by
//! interval arithmetic over its program. An index that is in range by these bounds needs no check on the
//! device.

use smallvec::SmallVec;

use crate::{
    base::error::{Error, Result},
    elements::{dtype::DType, scalar::Scalar},
    graph::facts::{Bounds, ValueInfo},
    kernels::{
        kernel::{Body, IndexedOperand, Instr, Kernel, Operand, Program, Reg},
        layout::Layout,
        operators::{BinaryOp, CompareOp, UnaryOp},
    },
};

/// An integer interval; intermediate ends may exceed i64.
#[derive(Clone, Copy)]
struct Range {
    low: i128,
    high: i128,
    attained: bool,
    above: Option<i128>,
}

impl Range {
    fn new(low: i128, high: i128) -> Range {
        Range { low, high, attained: false, above: None }
    }

    /// The interval between two ends in either order.
    fn between(a: i128, b: i128) -> Range {
        Range::new(a.min(b), a.max(b))
    }

    fn joined(self, other: Range) -> Range {
        Range::new(self.low.min(other.low), self.high.max(other.high))
    }

    /// The bounds, clamped to i64, of elements of a dtype.
    fn bounds(self) -> Bounds {
        let Range { low, high, attained, above } = self;
        Bounds { low: low as i64, high: high as i64, attained, above: above.map(|n| n as i64) }
    }

    /// The interval as elements of `dtype`: the dtype's full range if the numbers would wrap.
    fn within(self, dtype: DType) -> Option<Range> {
        let all = Range::from(Bounds::of(dtype)?);
        Some(if self.low < all.low || self.high > all.high { all } else { self })
    }
}

impl From<Bounds> for Range {
    fn from(bounds: Bounds) -> Range {
        let Bounds { low, high, attained, above } = bounds;
        Range { low: low.into(), high: high.into(), attained, above: above.map(i128::from) }
    }
}

/// The known bounds of a buffer's elements, or else those of its dtype.
fn of_buffer(facts: &ValueInfo, dtype: DType) -> Option<Bounds> {
    facts.bounds().or_else(|| Bounds::of(dtype))
}

/// Whether a layout covers each of the first `numel` elements of a buffer.
fn covers(layout: &Layout, numel: usize) -> bool {
    let mut axes: SmallVec<[(usize, usize); 5]> = layout
        .shape()
        .iter()
        .zip(layout.strides())
        .filter(|&(&n, &stride)| n != 1 && stride != 0)
        .map(|(&n, &stride)| (stride.unsigned_abs(), n))
        .collect();
    axes.sort_unstable();
    let dense = axes.iter().try_fold(1, |next, &(stride, n)| (stride == next).then_some(next * n));
    dense == Some(numel) && layout.span() == (0, numel)
}

/// The facts about the inputs of a launch.
#[derive(Clone, Copy)]
pub(super) struct Given<'a> {
    pub(super) facts: &'a [ValueInfo],
    /// The numbers of elements of the buffers.
    pub(super) numels: &'a [usize],
    pub(super) scalars: &'a [Scalar],
}

/// Whether the indices into one operand of a launch are known to be in range.
///
/// # Errors
/// An index that is known to be out of range; `error` makes the error.
pub(super) fn are_in_range(
    kernel: &Kernel,
    indexed: IndexedOperand,
    given: Given<'_>,
    error: impl Fn(i64) -> Error,
) -> Result<bool> {
    let check = |range: Option<Range>| match range.map(Range::bounds) {
        Some(bounds) if bounds.are_within(indexed.size) => Ok(true),
        Some(bounds) if bounds.low == bounds.high || bounds.attained => {
            Err(error(if bounds.low < 0 { bounds.low } else { bounds.high }))
        }
        Some(_) | None => Ok(false),
    };
    if let Some(program) = kernel.body.program() {
        if kernel.space.numel() == 0 {
            return Ok(true);
        }
        let ranges = of_registers(program, &kernel.operands, given, kernel.space.numel());
        let mut certain = true;
        for instr in &program.instrs {
            if let Instr::LoadAt { input, index } = *instr
                && usize::from(input) == indexed.operand
            {
                certain &= check(ranges[usize::from(index)])?;
            }
        }
        return Ok(certain);
    }
    let Some(index) = kernel.operands.get(1) else { return Ok(true) };
    if index.layout.numel() == 0 {
        return Ok(true);
    }
    // A view may leave out the bad elements.
    let attained = |bounds: Bounds| bounds.attained && covers(&index.layout, given.numels[1]);
    let range = of_buffer(&given.facts[1], index.dtype);
    check(range.map(|bounds| Range { attained: attained(bounds), ..Range::from(bounds) }))
}

/// The bounds of output `o` of a launch, if they are tighter than those of its dtype.
pub(super) fn of_output(kernel: &Kernel, o: usize, dtype: DType, given: Given<'_>) -> Option<Bounds> {
    let Given { facts: inputs, numels, scalars } = given;
    if !dtype.is_int() {
        return None;
    }
    let below = |size: usize| Some(Range::new(0, size as i128 - 1));
    let copied = |k: usize| inputs.get(k).and_then(|facts| facts.bounds()).map(Range::from);
    let positions = kernel.space.numel();
    let range = match &kernel.body {
        Body::Map(program) | Body::Rows { program, .. } => {
            let register = *program.outputs.get(o)?;
            of_registers(program, &kernel.operands, given, positions)[usize::from(register)]
        }
        Body::Contract(Some(program)) => {
            // The bounds of the sums are unknown.
            let inputs: SmallVec<[ValueInfo; 4]> =
                std::iter::once(ValueInfo::default()).chain(inputs.iter().skip(2).cloned()).collect();
            let operands = kernel.operands.get(1..).unwrap_or_default();
            let given = Given { facts: &inputs, numels: numels.get(1..).unwrap_or_default(), scalars };
            let register = *program.outputs.get(o)?;
            of_registers(program, operands, given, positions)[usize::from(register)]
        }
        Body::ArgReduce { axis, .. } | Body::ArgSort { axis, .. } => below(kernel.space[*axis]),
        Body::Cumulative { op, axis, .. } if op.is_arg() => below(kernel.space[*axis]),
        // The result has elements of the input, provided that the launch's own indices are good.
        Body::Gather { .. } => copied(0).map(|range| Range { attained: false, ..range }),
        Body::Copy { fill, regions } => {
            let fill = if *fill { vec![of_scalar(*scalars.first()?)] } else { Vec::new() };
            let regions =
                (0..regions.len()).map(|r| copied(r).or_else(|| Bounds::of(dtype).map(Range::from)));
            let mut all = fill.into_iter().chain(regions).collect::<Option<Vec<Range>>>()?.into_iter();
            let first = all.next()?;
            Some(all.fold(Range { attained: false, ..first }, Range::joined))
        }
        Body::Reduce { .. } | Body::Cumulative { .. } | Body::Contract(None) => None,
        Body::Scatter { .. } | Body::Custom(_) => None,
    }?
    .within(dtype)?;
    let bounds = range.bounds();
    let all = Bounds::of(dtype)?;
    (bounds.attained || bounds.low > all.low || bounds.high < all.high).then_some(bounds)
}

fn of_scalar(scalar: Scalar) -> Option<Range> {
    match scalar {
        Scalar::Float(_) | Scalar::Unsigned(_) => None,
        Scalar::Int(_) | Scalar::Bool(_) => {
            let value = i128::from(scalar.as_i64());
            Some(Range { low: value, high: value, attained: true, above: None })
        }
    }
}

/// The intervals of a program's registers; `None` for one that is not an integer.
fn of_registers(
    program: &Program,
    operands: &[Operand],
    Given { facts: inputs, numels, scalars }: Given<'_>,
    positions: usize,
) -> SmallVec<[Option<Range>; 16]> {
    let mut ranges: SmallVec<[Option<Range>; 16]> = SmallVec::with_capacity(program.instrs.len());
    for (instr, &dtype) in program.instrs.iter().zip(&program.dtypes) {
        let range = match *instr {
            Instr::Load(k) => {
                let k = usize::from(k);
                let whole = |bounds: Bounds| bounds.attained && covers(&operands[k].layout, numels[k]);
                // A view may lack the least element; `above` is then only a weaker bound.
                of_buffer(&inputs[k], dtype)
                    .map(|bounds| Range { attained: whole(bounds), ..Range::from(bounds) })
            }
            // The result has elements of the input, provided that the indices are good.
            Instr::LoadAt { input, .. } => of_buffer(&inputs[usize::from(input)], dtype)
                .map(|bounds| Range { attained: false, ..Range::from(bounds) }),
            Instr::Scalar(slot) => scalars.get(usize::from(slot)).and_then(|&scalar| of_scalar(scalar)),
            Instr::Arange { start, step } => {
                let of = |slot: u16| scalars.get(usize::from(slot)).and_then(|&scalar| of_scalar(scalar));
                of(start).zip(of(step)).map(|(start, step)| {
                    let last = start.low + step.low * positions.saturating_sub(1) as i128;
                    Range::between(start.low, last)
                })
            }
            Instr::Unary(op, a) => of_unary(op, ranges[usize::from(a)]),
            Instr::Binary(op, a, b) => ranges[usize::from(a)]
                .zip(ranges[usize::from(b)])
                .and_then(|(a, b)| of_binary(op, dtype, a, b)),
            Instr::Select(c, a, b) => {
                let rest = where_not(program, &ranges, c, b);
                ranges[usize::from(a)].map(|held| rest.map_or(held, |rest| held.joined(rest)))
            }
            // Bool keeps 0 and 1, and a cast of integers that fit changes nothing.
            Instr::Cast(a) if dtype != DType::Bool => ranges[usize::from(a)],
            Instr::Cast(_) | Instr::Powi(..) | Instr::Compare(..) | Instr::Fold(..) => None,
            Instr::Random { .. } => None,
        };
        let all = Bounds::of(dtype).map(Range::from);
        ranges.push(range.and_then(|range| range.within(dtype)).or(all));
    }
    ranges
}

/// The interval of `b` where condition `c` is false: narrower, if the condition compares `b` with one
/// number.
fn where_not(program: &Program, ranges: &[Option<Range>], c: Reg, b: Reg) -> Option<Range> {
    let range = ranges[usize::from(b)]?;
    let Instr::Compare(op, x, with) = program.instrs[usize::from(c)] else { return Some(range) };
    if x != b {
        return Some(range);
    }
    let Some(bound) = ranges[usize::from(with)].filter(|with| with.low == with.high).map(|with| with.low)
    else {
        return Some(range);
    };
    let Range { low, high, above, .. } = range;
    let (low, high) = match op {
        CompareOp::Lt => (low.max(bound), high),
        CompareOp::Le => (low.max(bound + 1), high),
        CompareOp::Gt => (low, high.min(bound)),
        CompareOp::Ge => (low, high.min(bound - 1)),
        CompareOp::Eq if bound == low => (above.unwrap_or(low), high),
        CompareOp::Ne => (bound, bound),
        CompareOp::Eq => (low, high),
    };
    // The interval is empty if the condition always holds.
    (low <= high).then(|| Range::new(low, high))
}

fn of_unary(op: UnaryOp, a: Option<Range>) -> Option<Range> {
    let a = a?;
    // The others are functions of floats, or tell nothing about an integer's bounds.
    if op == UnaryOp::Neg {
        Some(Range::new(-a.high, -a.low))
    } else if op == UnaryOp::Abs {
        Some(if a.low >= 0 { a } else { Range::new(0, a.high.max(-a.low)) })
    } else if op == UnaryOp::Sign {
        Some(Range::new(-1, 1))
    } else if op == UnaryOp::Relu {
        Some(Range::new(a.low.max(0), a.high.max(0)))
    } else {
        None
    }
}

fn of_binary(op: BinaryOp, dtype: DType, a: Range, b: Range) -> Option<Range> {
    if dtype == DType::Bool {
        return None;
    }
    match op {
        BinaryOp::Add => Some(Range::new(a.low + b.low, a.high + b.high)),
        BinaryOp::Sub => Some(Range::new(a.low - b.high, a.high - b.low)),
        BinaryOp::Mul => {
            // Each product of two i64 fits in i128.
            let ends = [a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high];
            Some(Range::new(ends.into_iter().min()?, ends.into_iter().max()?))
        }
        BinaryOp::Maximum => Some(Range::new(a.low.max(b.low), a.high.max(b.high))),
        BinaryOp::Minimum => Some(Range::new(a.low.min(b.low), a.high.min(b.high))),
        // The quotient ⌊a / b⌋ for a positive divisor.
        BinaryOp::FloorDiv if b.low > 0 => {
            let ends = [
                a.low.div_euclid(b.low),
                a.low.div_euclid(b.high),
                a.high.div_euclid(b.low),
                a.high.div_euclid(b.high),
            ];
            Some(Range::new(ends.into_iter().min()?, ends.into_iter().max()?))
        }
        // The result has the divisor's sign, and is 0 for a divisor of 0.
        BinaryOp::Remainder if b.low >= 0 => Some(Range::new(0, (b.high - 1).max(0))),
        BinaryOp::And if a.low >= 0 || b.low >= 0 => {
            let most = if a.low >= 0 && b.low >= 0 {
                a.high.min(b.high)
            } else if a.low >= 0 {
                a.high
            } else {
                b.high
            };
            Some(Range::new(0, most))
        }
        BinaryOp::Div | BinaryOp::FloorDiv | BinaryOp::Remainder | BinaryOp::Pow | BinaryOp::Atan2 => None,
        BinaryOp::And | BinaryOp::Or | BinaryOp::Xor | BinaryOp::Gcd => None,
        BinaryOp::LeftShift | BinaryOp::RightShift => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_layout_that_leaves_nothing_out_covers_a_buffer() {
        let whole = Layout::contiguous([4, 6]);
        for layout in [
            whole.clone(),
            whole.permute(&[1, 0]),
            whole.flip(1),
            whole.expand(&[3, 4, 6].into()),
            Layout::contiguous([2, 1, 12]),
        ] {
            assert!(covers(&layout, 24), "{layout:?}");
        }
        for layout in [
            whole.slice(0, 0, 3, 1),
            whole.slice(0, 1, 3, 1),
            whole.slice(1, 0, 3, 2),
            Layout::new([4], &[0], 5),
            // As many positions as elements, but some elements twice.
            Layout::new([6, 4], &[1, 1], 0),
            Layout::new([12, 2], &[2, 3], 0),
        ] {
            assert!(!covers(&layout, 24), "{layout:?}");
        }
    }
}
