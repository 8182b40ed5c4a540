//! Random programs. Each new step is first tried on the oracle, so that a program only has steps with a
//! known result.

use taper::{
    DType, Device, Scalar,
    tensor_core::{ArgReduceOp, BinaryOp, CompareOp, CumulativeOp, DeviceKind, ReduceOp, UnaryOp},
};

use crate::{
    oracle::{Known, Oracle},
    program::{Action, Composite, Draw, Program, Step},
    rng::Rng,
    table,
};

/// The operations, dtypes and values that programs may use.
#[derive(Clone, Debug)]
pub struct Taste {
    /// The dtypes of the device.
    pub dtypes: Vec<DType>,
    /// NaN, infinities, extremes.
    pub special: bool,
    /// Whether subnormal numbers are kept: GPUs may flush them to 0.
    pub subnormals: bool,
    /// Whether to choose only float dtypes and operations with gradients.
    pub smooth: bool,
    /// The number of steps.
    pub steps: usize,
}

impl Taste {
    /// Draws the settings of one case on a device.
    pub fn of(device: &Device, rng: &mut Rng) -> Taste {
        Taste {
            dtypes: device.info().dtypes.clone(),
            special: rng.one_in(4),
            subnormals: device.info().kind == DeviceKind::Cpu && rng.one_in(2),
            smooth: rng.one_in(3),
            steps: 4 + rng.below(24),
        }
    }
}

/// A random program and its expected results.
pub fn program(rng: &mut Rng, taste: &Taste) -> (Program, Oracle) {
    let mut writer = Writer {
        program: Program::default(),
        oracle: Oracle::new(&taste.dtypes, taste.subnormals),
        rng,
        taste,
        favourite: DType::F32,
    };
    let floats: Vec<DType> = writer.dtypes(DType::is_float);
    let any = *writer.rng.pick(&floats);
    writer.favourite = if writer.rng.one_in(3) { any } else { DType::F32 };
    while writer.source().is_none() {}
    let mut tries = 0;
    while writer.program.steps.len() < taste.steps && tries < 200 {
        tries += 1;
        if writer.rng.one_in(16) {
            writer.source();
        } else {
            writer.operation();
        }
    }
    (writer.program, writer.oracle)
}

struct Writer<'a> {
    program: Program,
    oracle: Oracle,
    rng: &'a mut Rng,
    taste: &'a Taste,
    favourite: DType,
}

impl Writer<'_> {
    fn push(&mut self, action: Action, inputs: &[usize]) -> Option<usize> {
        let step = Step { action, inputs: inputs.to_vec() };
        self.oracle.push(&step).ok()?;
        self.program.steps.push(step);
        Some(self.program.steps.len() - 1)
    }

    fn known(&self, place: usize) -> &Known {
        &self.oracle.known[place]
    }

    fn dtypes(&self, like: impl Fn(DType) -> bool) -> Vec<DType> {
        self.taste.dtypes.iter().copied().filter(|&d| like(d)).collect()
    }

    fn dtype(&mut self) -> DType {
        if self.taste.smooth || self.rng.below(3) > 0 {
            return self.favourite;
        }
        let all = self.taste.dtypes.clone();
        *self.rng.pick(&all)
    }

    fn shape(&mut self) -> Vec<usize> {
        match self.rng.below(24) {
            0 => vec![],
            1 => vec![*self.rng.pick(&[0, 1, 2, 65, 130, 300])],
            2 => {
                let rows = *self.rng.pick(&[3, 70]);
                vec![rows, *self.rng.pick(&[1, 9, 65])]
            }
            3 => {
                let rank = 5 + self.rng.below(4);
                (0..rank).map(|_| *self.rng.pick(&[1, 1, 2, 2, 3])).collect()
            }
            4 => {
                let mut shape = vec![2, 3, 2];
                let axis = self.rng.below(3);
                shape[axis] = 0;
                shape
            }
            _ => {
                let rank = 1 + self.rng.below(3);
                (0..rank).map(|_| *self.rng.pick(&[1, 2, 3, 3, 4, 5, 7])).collect()
            }
        }
    }

    /// Numbers for a leaf.
    fn values(&mut self, n: usize, dtype: DType) -> Vec<Scalar> {
        let rng = &mut *self.rng;
        if dtype == DType::Bool {
            return (0..n).map(|_| Scalar::Bool(rng.one_in(2))).collect();
        }
        if dtype.is_int() {
            let extreme = self.taste.special && rng.one_in(2);
            let value = |rng: &mut Rng| match rng.below(4) {
                0 if extreme => *rng.pick(&[i64::MIN, i64::MAX, 255, 0x7fff_ffff, -0x8000_0000, 0xffff_ffff]),
                _ => rng.between(-4, 9),
            };
            return (0..n).map(|_| Scalar::Int(value(rng)).cast(dtype)).collect();
        }
        let kind = if self.taste.special { rng.below(8) } else { 1 + rng.below(6) };
        let subnormals = self.taste.subnormals;
        let value = |rng: &mut Rng, i: usize| -> f64 {
            match kind {
                1 => rng.between(-4, 4) as f64,
                2 => rng.between(1, 32) as f64 / 8.0,
                3 => rng.unit() * 4.0 - 2.0,
                4 => (i as f64 * 7.0 % 11.0 - 5.0) / 4.0,
                0 | 7 if rng.one_in(2) => match rng.below(if subnormals { 12 } else { 9 }) {
                    0 => f64::NAN,
                    1 => f64::INFINITY,
                    2 => f64::NEG_INFINITY,
                    3 => 0.0,
                    4 => -0.0,
                    5 => 3e38,
                    6 => -3e38,
                    7 => 1e-30,
                    8 => 65504.0,
                    9 => 1e-40,
                    10 => -3e-42,
                    _ => 6e-8,
                },
                _ => rng.between(-16, 16) as f64 / 8.0,
            }
        };
        (0..n).map(|i| Scalar::Float(value(rng, i)).cast(dtype)).collect()
    }

    fn leaf(&mut self, shape: Vec<usize>, dtype: DType) -> Option<usize> {
        let values = self.values(shape.iter().product(), dtype);
        self.push(Action::Leaf { shape, dtype, values }, &[])
    }

    fn source(&mut self) -> Option<usize> {
        let (shape, dtype) = (self.shape(), self.dtype());
        match self.rng.below(12) {
            0 => {
                let value = *self.rng.pick(&[Scalar::Float(1.5), Scalar::Float(0.0), Scalar::Int(3)]);
                self.push(Action::Full { shape, dtype, value: value.cast(dtype) }, &[])
            }
            1 if dtype != DType::Bool => {
                let (start, step) = (self.rng.between(-3, 5), *self.rng.pick(&[1, 2, -1]));
                let n = self.rng.below(20);
                self.push(Action::Arange { start, step, n, dtype }, &[])
            }
            2 => {
                let n = self.rng.below(6);
                self.push(Action::Eye { n, dtype }, &[])
            }
            3..6 => {
                let kind = match self.rng.below(3) {
                    0 => Draw::Uniform,
                    1 => Draw::Normal,
                    _ => Draw::Integers(-3, 9),
                };
                self.push(Action::Draw { kind, shape, dtype }, &[])
            }
            _ => self.leaf(shape, dtype),
        }
    }

    /// An earlier step, a late one rather.
    fn any(&mut self) -> usize {
        for _ in 0..4 {
            let found = self.one();
            if self.known(found).numel() > 0 {
                return found;
            }
        }
        self.one()
    }

    fn one(&mut self) -> usize {
        let n = self.program.steps.len();
        let back = self.rng.below(n.min(4)) * (1 + self.rng.below(2));
        if self.rng.one_in(4) { self.rng.below(n) } else { n - 1 - back.min(n - 1) }
    }

    fn some(&mut self, like: impl Fn(&Known) -> bool) -> Option<usize> {
        for _ in 0..8 {
            let found = self.any();
            if like(self.known(found)) {
                return Some(found);
            }
        }
        None
    }

    /// Something that broadcasts with a shape: an earlier step, or a leaf.
    fn partner(&mut self, shape: &[usize], dtype: Option<DType>) -> Option<usize> {
        if self.rng.one_in(2) {
            let fits = |k: &Known| {
                let broadcasts =
                    k.shape.iter().rev().zip(shape.iter().rev()).all(|(a, b)| a == b || *a == 1 || *b == 1);
                broadcasts && dtype.is_none_or(|d| d == k.dtype)
            };
            if let Some(found) = self.some(fits) {
                return Some(found);
            }
        }
        let mut other: Vec<usize> = shape.to_vec();
        for size in &mut other {
            if self.rng.one_in(3) {
                *size = 1;
            }
        }
        let skip = if self.rng.one_in(4) { self.rng.below(other.len() + 1) } else { 0 };
        let dtype = dtype.unwrap_or_else(|| self.dtype());
        self.leaf(other[skip..].to_vec(), dtype)
    }

    fn axes(&mut self, rank: usize) -> Vec<usize> {
        if self.rng.one_in(3) {
            return (0..rank).collect();
        }
        let often = 1 + self.rng.below(3);
        (0..rank).filter(|_| self.rng.one_in(often)).collect()
    }

    fn scalar(&mut self, dtype: DType) -> Scalar {
        let float = |rng: &mut Rng| Scalar::Float(*rng.pick(&[0.5, -1.25, 2.0, 0.0, 1.0, 3.0, 0.1]));
        if dtype.is_float() || self.rng.one_in(4) {
            float(self.rng)
        } else {
            Scalar::Int(self.rng.between(-3, 7))
        }
    }

    /// An index for an axis of a size: a leaf, of any dtype that reaches.
    fn index(&mut self, shape: Vec<usize>, size: usize) -> Option<usize> {
        let mut dtypes = self.dtypes(|d| d.is_int());
        dtypes.retain(|d| size as u64 <= d.greatest().as_i64() as u64);
        let dtype = *self.rng.pick(&dtypes);
        let n = shape.iter().product();
        if size == 0 && n > 0 {
            return None;
        }
        let values = (0..n).map(|_| Scalar::Int(self.rng.below(size) as i64)).collect();
        self.push(Action::Leaf { shape, dtype, values }, &[])
    }

    fn operation(&mut self) -> Option<usize> {
        match self.rng.below(24) {
            0..=3 => self.elementwise_one(),
            4..=8 => self.elementwise_two(),
            9..=11 => self.view(),
            12 => self.join(),
            13..=15 => self.reduction(),
            16 => self.along(),
            17 => self.rows(),
            18 => self.product(),
            19 => self.by_index(),
            _ => self.row_of_table(),
        }
    }

    /// A row of the table of operations, of what earlier steps give where its inputs may be anything.
    fn row_of_table(&mut self) -> Option<usize> {
        let places = table::places(self.taste.smooth);
        let place = *self.rng.pick(places);
        let row = table::row(place)?;
        let like = |k: &Known| row.dtypes.list().contains(&k.dtype);
        let first = self.some(like)?;
        let dtype = self.known(first).dtype;
        let mut inputs: Vec<usize> = Vec::new();
        for (k, input) in row.inputs.iter().enumerate() {
            let found = match (table::is_free(input), row.pointwise, inputs.first()) {
                (true, true, None) => Some(first),
                (true, true, Some(&one)) => {
                    let shape = self.known(one).shape.clone();
                    self.partner(&shape, Some(dtype))
                }
                (true, false, _) => self.in_shape(&input.shape, dtype),
                (false, ..) => {
                    let to = input.dtype(dtype);
                    let shape = match inputs.first().filter(|_| row.pointwise) {
                        Some(&one) => self.known(one).shape.clone(),
                        None => input.shape.clone(),
                    };
                    let values = input.elements(&shape, k, dtype);
                    let values = values.into_iter().map(|v| Scalar::Float(v).cast(to)).collect();
                    self.push(Action::Leaf { shape, dtype: to, values }, &[])
                }
            };
            inputs.push(found?);
        }
        let which = if self.rng.one_in(4) { 1 } else { 0 };
        self.push(Action::Row { row: place, which }, &inputs)
            .or_else(|| self.push(Action::Row { row: place, which: 0 }, &inputs))
    }

    /// The first elements of an earlier step in another shape, or a leaf.
    fn in_shape(&mut self, shape: &[usize], dtype: DType) -> Option<usize> {
        let n: usize = shape.iter().product();
        let found = self.some(|k| k.dtype == dtype && k.numel() >= n);
        let Some(found) = found.filter(|_| self.rng.below(4) > 0) else {
            return self.leaf(shape.to_vec(), dtype);
        };
        if self.known(found).shape == shape {
            return Some(found);
        }
        let flat = self.push(Action::Flatten, &[found])?;
        let start = self.rng.below(self.known(flat).numel() - n + 1);
        let part = self.push(Action::Narrow { axis: 0, start, len: n }, &[flat])?;
        self.push(Action::Reshape(shape.to_vec()), &[part])
    }

    fn elementwise_one(&mut self) -> Option<usize> {
        use UnaryOp as U;
        let x = self.any();
        let dtype = self.known(x).dtype;
        let action = match self.rng.below(12) {
            0..=5 => {
                let smooth =
                    [U::Exp, U::Sigmoid, U::Tanh, U::Sin, U::Cos, U::Neg, U::Erf, U::Abs, U::Relu, U::Sqrt];
                if self.taste.smooth {
                    Action::Unary(*self.rng.pick(&smooth))
                } else {
                    Action::Unary(*self.rng.pick(U::ALL))
                }
            }
            6 => Action::Composite(*self.rng.pick(&[
                Composite::Gelu,
                Composite::Silu,
                Composite::Log2,
                Composite::Log10,
            ])),
            7 => Action::Powi(self.rng.between(-3, 5) as i32),
            8 => Action::Powf(*self.rng.pick(&[0.5, 2.0, -1.0, 3.0, 2.5])),
            9 => {
                let (a, b) = (self.scalar(dtype), self.scalar(dtype));
                if a.as_f64() <= b.as_f64() { Action::Clamp(a, b) } else { Action::Clamp(b, a) }
            }
            10 if self.rng.one_in(2) => Action::Dropout,
            10 => Action::Detach,
            _ => {
                let to = if self.taste.smooth { self.favourite } else { self.dtype() };
                Action::Cast(to)
            }
        };
        self.push(action, &[x])
    }

    fn elementwise_two(&mut self) -> Option<usize> {
        use BinaryOp as B;
        let x = self.any();
        let (shape, dtype) = (self.known(x).shape.clone(), self.known(x).dtype);
        let common = [B::Add, B::Sub, B::Mul, B::Mul, B::Add, B::Maximum, B::Minimum, B::Div];
        let op = |rng: &mut Rng| if rng.one_in(3) { *rng.pick(B::ALL) } else { *rng.pick(&common) };
        match self.rng.below(12) {
            0..=5 => {
                let op = op(self.rng);
                let same = self.taste.smooth || self.rng.one_in(2);
                let y = self.partner(&shape, same.then_some(dtype))?;
                let inputs = if self.rng.one_in(2) { [x, y] } else { [y, x] };
                self.push(Action::Binary(op), &inputs)
            }
            6 | 7 => {
                let op = op(self.rng);
                if op.is_integral() {
                    return None;
                }
                let s = self.scalar(dtype);
                self.push(Action::BinaryScalar(op, s), &[x])
            }
            8 => {
                let op = *self.rng.pick(&[B::Add, B::Sub, B::Mul, B::Div]);
                self.push(Action::ScalarBinary(op, 1.5), &[x])
            }
            9 => {
                let op = *self.rng.pick(CompareOp::ALL);
                if self.rng.one_in(2) {
                    let s = self.scalar(dtype);
                    return self.push(Action::CompareScalar(op, s), &[x]);
                }
                let y = self.partner(&shape, None)?;
                self.push(Action::Compare(op), &[x, y])
            }
            10 => {
                let mask = self.partner(&shape, Some(DType::Bool))?;
                let y = self.partner(&shape, None)?;
                let inputs = if self.rng.one_in(2) { [mask, x, y] } else { [mask, y, x] };
                self.push(Action::Where, &inputs)
            }
            _ => {
                let mask = self.partner(&shape, Some(DType::Bool))?;
                let s = self.scalar(dtype);
                self.push(Action::MaskedFill(s), &[x, mask])
            }
        }
    }

    fn view(&mut self) -> Option<usize> {
        let x = self.any();
        let shape = self.known(x).shape.clone();
        let (rank, n) = (shape.len(), shape.iter().product::<usize>());
        let axis = self.rng.below(rank);
        let action = match self.rng.below(14) {
            0 | 1 if rank > 1 => {
                let mut axes: Vec<usize> = (0..rank).collect();
                self.rng.shuffle(&mut axes);
                Action::Permute(axes)
            }
            2 | 3 => {
                // Factors in another order, and some of them split or joined.
                let mut sizes = shape.clone();
                self.rng.shuffle(&mut sizes);
                let mut out: Vec<usize> = Vec::new();
                for size in sizes {
                    match out.last_mut() {
                        Some(last) if self.rng.one_in(3) => *last *= size,
                        _ if size % 2 == 0 && size > 0 && self.rng.one_in(2) => out.extend([2, size / 2]),
                        _ => out.push(size),
                    }
                }
                if out.is_empty() {
                    out.push(n);
                }
                Action::Reshape(out)
            }
            4 if rank < 7 => {
                let mut wide = shape.clone();
                for size in wide.iter_mut().filter(|s| **s == 1) {
                    *size = 1 + self.rng.below(4);
                }
                if self.rng.one_in(2) {
                    wide.insert(0, self.rng.below(4));
                }
                if wide.iter().product::<usize>() > 600 {
                    return None;
                }
                Action::Expand(wide)
            }
            5 | 6 if rank > 0 => {
                let size = shape[axis];
                let (a, b) = (self.rng.below(size + 1), self.rng.below(size + 1));
                let step = 1 + self.rng.below(3);
                Action::Slice { axis, start: a.min(b), end: a.max(b).max(size.min(1)), step }
            }
            7 if rank > 0 => {
                let start = self.rng.below(shape[axis] + 1);
                Action::Narrow { axis, start, len: self.rng.below(shape[axis] - start + 1) }
            }
            8 if rank > 0 && shape[axis] > 0 => Action::Select { axis, index: self.rng.below(shape[axis]) },
            9 | 10 if rank > 0 => Action::Flip(self.axes(rank)),
            11 => Action::Squeeze,
            12 if rank < 8 => Action::Unsqueeze(self.rng.below(rank + 1)),
            _ if self.rng.one_in(2) => Action::Contiguous,
            _ => Action::Flatten,
        };
        self.push(action, &[x])
    }

    fn join(&mut self) -> Option<usize> {
        let x = self.any();
        let (shape, dtype) = (self.known(x).shape.clone(), self.known(x).dtype);
        let rank = shape.len();
        match self.rng.below(5) {
            0 if rank > 0 => {
                let axis = self.rng.below(rank);
                let mut other = shape.clone();
                other[axis] = self.rng.below(4);
                let dtype = if self.rng.one_in(3) { self.dtype() } else { dtype };
                let y = self.leaf(other, dtype)?;
                let inputs = if self.rng.one_in(2) { vec![x, y, x] } else { vec![y, x] };
                self.push(Action::Concat(axis), &inputs)
            }
            1 if rank < 8 => {
                let y = self.some(|k| k.shape == shape).unwrap_or(x);
                let axis = self.rng.below(rank + 1);
                self.push(Action::Stack(axis), &[x, y])
            }
            2 if rank > 0 => {
                let axis = self.rng.below(rank);
                let size = 1 + self.rng.below(shape[axis]);
                let which = self.rng.below(shape[axis].div_ceil(size));
                self.push(Action::Split { size, axis, which }, &[x])
            }
            3 => {
                let padding = shape.iter().map(|_| (self.rng.below(3), self.rng.below(3))).collect();
                let value = self.scalar(dtype);
                self.push(Action::Pad { padding, value }, &[x])
            }
            _ => {
                let diagonal = self.rng.between(-2, 2) as i32;
                let action = if self.rng.one_in(2) { Action::Tril(diagonal) } else { Action::Triu(diagonal) };
                self.push(action, &[x])
            }
        }
    }

    fn reduction(&mut self) -> Option<usize> {
        let x = self.any();
        let rank = self.known(x).shape.len();
        let axes = self.axes(rank);
        let keepdim = self.rng.one_in(2);
        let action = match self.rng.below(10) {
            0..=3 => Action::Reduce { op: ReduceOp::Sum, axes, keepdim },
            4..=6 => {
                let smooth = [ReduceOp::Mean, ReduceOp::Prod, ReduceOp::Max];
                let op = *self.rng.pick(if self.taste.smooth { &smooth[..] } else { ReduceOp::ALL });
                Action::Reduce { op, axes, keepdim }
            }
            7 if rank > 0 => Action::ArgReduce {
                op: *self.rng.pick(ArgReduceOp::ALL),
                axis: self.rng.below(rank),
                keepdim,
            },
            8 => Action::LogSumExp { axes, keepdim },
            _ => {
                let correction = *self.rng.pick(&[0.0, 1.0]);
                if self.rng.one_in(2) {
                    Action::Var { axes, correction, keepdim }
                } else {
                    Action::Std { axes, correction, keepdim }
                }
            }
        };
        self.push(action, &[x])
    }

    /// Cumulative operations and sorting.
    fn along(&mut self) -> Option<usize> {
        let x = self.some(|k| !k.shape.is_empty())?;
        let shape = self.known(x).shape.clone();
        let axis = self.rng.below(shape.len());
        let (flag, indices) = (self.rng.one_in(2), self.rng.one_in(3));
        let action = match self.rng.below(8) {
            0..=2 => {
                let smooth = [CumulativeOp::Sum, CumulativeOp::Prod, CumulativeOp::LogSumExp];
                let op = *self.rng.pick(if self.taste.smooth { &smooth[..] } else { CumulativeOp::ALL });
                Action::Cumulative { op, axis, reverse: flag }
            }
            3 => Action::CumExtreme { max: flag, axis },
            4 => Action::Sort { axis, descending: flag },
            5 => Action::ArgSort { axis, descending: flag },
            _ => Action::TopK { k: self.rng.below(shape[axis] + 1), axis, largest: flag, indices },
        };
        self.push(action, &[x])
    }

    fn rows(&mut self) -> Option<usize> {
        let x = self.some(|k| k.dtype.is_float() && !k.shape.is_empty())?;
        let shape = self.known(x).shape.clone();
        let axis = self.rng.below(shape.len());
        match self.rng.below(7) {
            0 | 1 => self.push(Action::Softmax(axis), &[x]),
            2 | 3 => self.push(Action::LogSoftmax(axis), &[x]),
            4 if shape.len() == 2 => {
                let labels = self.index(vec![shape[0]], shape[1])?;
                self.push(Action::CrossEntropy, &[x, labels])
            }
            5 => {
                // One number a row, often a random one, back in a mix with the rows.
                let kept =
                    self.push(Action::Reduce { op: ReduceOp::Sum, axes: vec![axis], keepdim: true }, &[x])?;
                let sizes = self.known(kept).shape.clone();
                let draw = Action::Draw { kind: Draw::Uniform, shape: sizes, dtype: self.known(x).dtype };
                let other = self.push(draw, &[])?;
                let mixed = self.push(Action::Binary(BinaryOp::Mul), &[kept, other])?;
                self.push(Action::Binary(BinaryOp::Mul), &[x, mixed])
            }
            _ => self.push(Action::LayerNorm, &[x]),
        }
    }

    fn product(&mut self) -> Option<usize> {
        let x = self.some(|k| !k.shape.is_empty() && k.dtype != DType::Bool)?;
        let (shape, dtype) = (self.known(x).shape.clone(), self.known(x).dtype);
        if self.rng.one_in(2) {
            let (inner, rows) = (|s: &[usize]| s.last().copied(), shape.clone());
            let fits = |k: &Known| {
                k.dtype == dtype
                    && !k.shape.is_empty()
                    && inner(&rows)
                        == Some(if k.shape.len() == 1 { k.shape[0] } else { k.shape[k.shape.len() - 2] })
            };
            if let Some(y) = self.some(fits)
                && let Some(found) = self.push(Action::MatMul, &[x, y])
            {
                return Some(found);
            }
        }
        let inner = *shape.last()?;
        let mut other = vec![inner];
        if self.rng.below(4) > 0 {
            other.push(self.rng.below(6));
        }
        if shape.len() > 2 && other.len() == 2 && self.rng.one_in(2) {
            let batch: Vec<usize> =
                shape[..shape.len() - 2].iter().map(|&s| if self.rng.one_in(2) { 1 } else { s }).collect();
            other = [batch, other].concat();
        }
        let y = self.leaf(other, dtype)?;
        self.push(Action::MatMul, &[x, y])
    }

    fn by_index(&mut self) -> Option<usize> {
        let x = self.some(|k| !k.shape.is_empty())?;
        let (shape, dtype) = (self.known(x).shape.clone(), self.known(x).dtype);
        let axis = self.rng.below(shape.len());
        let mut places = shape.clone();
        places[axis] = *self.rng.pick(&[0, 1, 1, 2, 5]);
        // GPUs do not add bools by index.
        let adds = dtype != DType::Bool;
        match self.rng.below(5) {
            0 | 1 => {
                for (other, size) in places.iter_mut().enumerate() {
                    if other != axis && *size > 1 && self.rng.one_in(4) {
                        *size -= 1;
                    }
                }
                let index = self.index(places, shape[axis])?;
                self.push(Action::Gather(axis), &[x, index])
            }
            2 if adds => {
                let index = self.index(places.clone(), shape[axis])?;
                let src = self.leaf(places, dtype)?;
                self.push(Action::ScatterAdd(axis), &[x, index, src])
            }
            3 if adds => {
                let index = self.index(vec![places[axis]], shape[axis])?;
                let src = self.leaf(places, dtype)?;
                self.push(Action::IndexAdd(axis), &[x, index, src])
            }
            _ => {
                let index = self.index(vec![places[axis]], shape[axis])?;
                self.push(Action::IndexSelect(axis), &[x, index])
            }
        }
    }
}
