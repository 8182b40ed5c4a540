//! The outcome of a routine for one matrix: nothing, or a [`Fault`].

use tensor_core::{Error, ErrorKind};

/// A failure for one matrix, on any device.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The leading minor of this order is not positive.
    Minor(usize),
    /// This pivot, counted from 1, is 0.
    Pivot(usize),
    NotFinite,
    NotConverged,
    /// A kernel got inputs or outputs that do not fit together.
    Malformed(String),
}

impl Fault {
    /// The error for a matrix at this position in its batch, if there is a batch.
    #[track_caller]
    pub(crate) fn error(self, op: &'static str, batch: Option<usize>) -> Error {
        let message = match self {
            Fault::Minor(order) => {
                format!(
                    "the matrix is not positive-definite: its leading minor of order {order} is not positive"
                )
            }
            Fault::Pivot(pivot) => format!(
                "the matrix is singular: pivot {pivot} of its LU factorization is 0; linalg::lstsq or linalg::pinv has an answer for it"
            ),
            Fault::NotFinite => {
                "the matrix has elements that are not finite, so that the algorithm would not converge".into()
            }
            Fault::NotConverged => "the algorithm did not converge".into(),
            Fault::Malformed(message) => message,
        };
        Error::new(ErrorKind::LinAlg { op, batch, message })
    }
}

/// The outcome for one matrix.
pub(crate) type Outcome = std::result::Result<(), Fault>;
