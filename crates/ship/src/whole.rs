//! The registers of a program that hold whole numbers, with their bounds: what rounding, limits and
//! conversions say about them, and the numbers of constants.

use tensor_core::{
    BinaryOp, CompareOp, DType, Scalar, UnaryOp,
    kernel::{Instr, Program, Reg},
};

/// The bounds of whole numbers; they may be infinite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bounds {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Bounds {
    const ANY: Bounds = Bounds { low: f64::NEG_INFINITY, high: f64::INFINITY };

    /// The bounds of these numbers, if all are whole.
    pub(crate) fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Bounds> {
        let mut bounds: Option<Bounds> = None;
        for x in numbers {
            if x.fract() != 0.0 {
                return None;
            }
            bounds =
                Some(bounds.map_or(Bounds { low: x, high: x }, |b| b.joined(Bounds { low: x, high: x })));
        }
        bounds
    }

    /// The bounds of a dtype of integers or of bool.
    pub(crate) fn of_dtype(dtype: DType) -> Option<Bounds> {
        match dtype {
            DType::Bool => Some(Bounds { low: 0.0, high: 1.0 }),
            _ if dtype.is_int() => {
                Some(Bounds { low: dtype.least().as_f64(), high: dtype.greatest().as_f64() })
            }
            _ => None,
        }
    }

    fn joined(self, other: Bounds) -> Bounds {
        Bounds { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    pub(crate) fn within(self, other: Bounds) -> bool {
        other.low <= self.low && self.high <= other.high
    }

    fn over_pairs(self, other: Bounds, f: fn(f64, f64) -> f64) -> Option<Bounds> {
        let ends = [self.low, self.high].map(|a| [f(a, other.low), f(a, other.high)]);
        let ends = ends.concat();
        let is_known = ends.iter().all(|end| !end.is_nan());
        is_known.then(|| {
            ends.iter().fold(Bounds { low: ends[0], high: ends[0] }, |bounds, &end| {
                bounds.joined(Bounds { low: end, high: end })
            })
        })
    }

    pub(crate) fn greatest_size(self) -> f64 {
        self.low.abs().max(self.high.abs())
    }
}

/// For each register, the bounds of its whole numbers; none if they may have fractions. `loaded` gives those
/// of an input.
pub(crate) fn registers(
    program: &Program,
    scalars: &[Scalar],
    loaded: &dyn Fn(u16) -> Option<Bounds>,
) -> Vec<Option<Bounds>> {
    let mut known: Vec<Option<Bounds>> = Vec::with_capacity(program.instrs.len());
    for (r, &instr) in program.instrs.iter().enumerate() {
        let of_dtype = Bounds::of_dtype(program.dtypes[r]);
        let bounds = of_instr(program, instr, &known, scalars, loaded);
        // An integer that leaves its range wraps.
        known.push(match (bounds, of_dtype) {
            (Some(bounds), Some(range)) if !bounds.within(range) => Some(range),
            (Some(bounds), _) => Some(bounds),
            (None, range) => range,
        });
    }
    known
}

fn of_instr(
    program: &Program,
    instr: Instr,
    known: &[Option<Bounds>],
    scalars: &[Scalar],
    loaded: &dyn Fn(u16) -> Option<Bounds>,
) -> Option<Bounds> {
    let of = |reg: Reg| known[usize::from(reg)];
    match instr {
        Instr::Load(k) | Instr::LoadAt { input: k, .. } => loaded(k),
        Instr::Scalar(k) => Bounds::of([scalars[usize::from(k)].as_f64()]),
        Instr::Unary(op, a) => match op {
            UnaryOp::Round | UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc => {
                Some(of(a).unwrap_or(Bounds::ANY))
            }
            UnaryOp::Neg => of(a).map(|Bounds { low, high }| Bounds { low: -high, high: -low }),
            UnaryOp::Relu => {
                of(a).map(|Bounds { low, high }| Bounds { low: low.max(0.0), high: high.max(0.0) })
            }
            _ => None,
        },
        Instr::Binary(op, a, b) => {
            let (a, b) = (of(a)?, of(b)?);
            match op {
                BinaryOp::Add => a.over_pairs(b, |a, b| a + b),
                BinaryOp::Sub => a.over_pairs(b, |a, b| a - b),
                BinaryOp::Mul => a.over_pairs(b, |a, b| a * b),
                BinaryOp::Maximum => a.over_pairs(b, f64::max),
                BinaryOp::Minimum => a.over_pairs(b, f64::min),
                _ => None,
            }
        }
        Instr::Select(condition, a, b) => {
            let (mut chosen, other) = (of(a)?, of(b)?);
            // `a` is chosen where it is on one side of a number.
            if let Instr::Compare(op, x, limit) = program.instrs[usize::from(condition)]
                && x == a
                && let Some(limit) = of(limit)
            {
                match op {
                    CompareOp::Gt | CompareOp::Ge => chosen.low = chosen.low.max(limit.low),
                    CompareOp::Lt | CompareOp::Le => chosen.high = chosen.high.min(limit.high),
                    CompareOp::Eq | CompareOp::Ne => {}
                }
            }
            Some(chosen.joined(other))
        }
        Instr::Cast(a) => of(a),
        Instr::Arange { .. } | Instr::Random { .. } | Instr::Powi(..) => None,
        Instr::Compare(..) | Instr::Fold(..) => None,
    }
}
