//! The header that ranks exchange before any data is sent, so that ranks that disagree are found and named.

use std::fmt;

use tensor_core::{DType, Shape};

/// The reduction of the elements of all ranks. `torch.distributed.ReduceOp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// The sum.
    Sum,
    /// The sum divided by the number of ranks, for floating-point dtypes.
    Mean,
    /// The minimum; NaN if there is one.
    Min,
    /// The maximum; NaN if there is one.
    Max,
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Mean => "mean",
            ReduceOp::Min => "minimum",
            ReduceOp::Max => "maximum",
        })
    }
}

const REDUCE_OPS: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Min, ReduceOp::Max];

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    AllReduce(ReduceOp),
    ReduceScatter(ReduceOp),
    AllGather,
    Broadcast {
        root: usize,
    },
    Barrier,
    Send,
    Receive,
    /// Replaces a collective: this rank failed and makes no call.
    Abandon,
    /// This rank ends.
    Leave,
}

impl Kind {
    /// The method's name, which begins error messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::AllReduce(_) => "all_reduce",
            Kind::ReduceScatter(_) => "reduce_scatter",
            Kind::AllGather => "all_gather",
            Kind::Broadcast { .. } => "broadcast",
            Kind::Barrier => "barrier",
            Kind::Send => "send",
            Kind::Receive => "receive",
            Kind::Abandon => "abandon",
            Kind::Leave => "leave",
        }
    }

    fn words(self) -> [u64; 2] {
        match self {
            Kind::AllReduce(op) => [0, op as u64],
            Kind::ReduceScatter(op) => [1, op as u64],
            Kind::AllGather => [2, 0],
            Kind::Broadcast { root } => [3, root as u64],
            Kind::Barrier => [4, 0],
            Kind::Send => [5, 0],
            Kind::Abandon => [6, 0],
            Kind::Leave => [7, 0],
            Kind::Receive => [8, 0],
        }
    }

    fn from_words([kind, parameter]: [u64; 2]) -> Option<Kind> {
        let op = || REDUCE_OPS.get(parameter as usize).copied();
        Some(match kind {
            0 => Kind::AllReduce(op()?),
            1 => Kind::ReduceScatter(op()?),
            2 => Kind::AllGather,
            3 => Kind::Broadcast { root: parameter as usize },
            4 => Kind::Barrier,
            5 => Kind::Send,
            6 => Kind::Abandon,
            7 => Kind::Leave,
            8 => Kind::Receive,
            _ => return None,
        })
    }
}

/// The number of axes in a header; further axes are merged into the last.
const AXES: usize = 11;

/// The length of a header, in words.
pub(crate) const HEADER: usize = 5 + AXES;

/// A call of a rank: its kind, and the dtype and shape of its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) kind: Kind,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    /// The number of collectives that this rank called before.
    pub(crate) number: u64,
}

impl Call {
    pub(crate) fn new(kind: Kind, dtype: DType, dims: &[usize]) -> Call {
        let mut shape = dims.to_vec();
        if shape.len() > AXES {
            let rest = shape.split_off(AXES - 1);
            shape.push(rest.iter().product());
        }
        Call { kind, dtype, shape, number: 0 }
    }

    /// A call without elements.
    pub(crate) fn bare(kind: Kind) -> Call {
        Call::new(kind, DType::U8, &[0])
    }

    pub(crate) fn numel(&self) -> usize {
        self.shape.iter().product()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.numel() * self.dtype.size()
    }

    pub(crate) fn write(&self, out: &mut [u64]) {
        out.fill(0);
        let [kind, parameter] = self.kind.words();
        out[..5].copy_from_slice(&[kind, parameter, self.dtype as u64, self.number, self.shape.len() as u64]);
        for (word, &size) in out[5..].iter_mut().zip(&self.shape) {
            *word = size as u64;
        }
    }

    /// Parses a header; `None` for words that no rank of this version sends.
    pub(crate) fn read(words: &[u64]) -> Option<Call> {
        let &[kind, parameter, dtype, number, axes, ref sizes @ ..] = words else { return None };
        let kind = Kind::from_words([kind, parameter])?;
        let dtype = DType::ALL.into_iter().find(|d| *d as u64 == dtype)?;
        let shape = sizes.get(..usize::try_from(axes).ok()?)?.iter().map(|&size| size as usize).collect();
        Some(Call { kind, dtype, shape, number })
    }
}

/// Formats a call, as in `all_reduce (sum) of f32 [3, 4]`.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = self.shape.iter().copied().collect::<Shape>();
        let of = format!("of {} {shape}", self.dtype);
        match self.kind {
            Kind::AllReduce(op) | Kind::ReduceScatter(op) => {
                write!(f, "{} ({op}) {of}", self.kind.name())
            }
            Kind::AllGather | Kind::Send | Kind::Receive => write!(f, "{} {of}", self.kind.name()),
            Kind::Broadcast { root } => write!(f, "broadcast (root {root}) {of}"),
            Kind::Barrier => f.write_str("barrier"),
            Kind::Abandon => f.write_str("nothing, as it failed before"),
            Kind::Leave => f.write_str("nothing, as it has ended"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_all_of_a_call() {
        let ops = REDUCE_OPS.into_iter().flat_map(|op| [Kind::AllReduce(op), Kind::ReduceScatter(op)]);
        let others = [
            Kind::AllGather,
            Kind::Broadcast { root: 3 },
            Kind::Barrier,
            Kind::Send,
            Kind::Receive,
            Kind::Abandon,
            Kind::Leave,
        ];
        for kind in ops.chain(others) {
            for dtype in DType::ALL {
                let mut call = Call::new(kind, dtype, &[2, 0, 5]);
                call.number = 77;
                let mut words = [1; HEADER];
                call.write(&mut words);
                assert_eq!(Call::read(&words), Some(call));
            }
        }
        assert_eq!(Call::read(&[9; HEADER]), None);
        assert_eq!(Call::read(&[0; 3]), None);
    }

    #[test]
    fn many_axes_are_folded() {
        let call = Call::new(Kind::AllGather, DType::F32, &[2; 13]);
        assert_eq!((call.shape.len(), call.numel()), (11, 1 << 13));
    }
}
