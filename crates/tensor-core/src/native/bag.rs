//! [`EmbeddingBag`]: sums, means or maxima of a table's rows, as a native kernel that a backend may
//! implement. It does not materialize the rows that it reads.

use std::fmt;

use crate::{
    base::{error::Result, shape::Shape},
    elements::dtype::DType,
    kernels::custom::{CustomKernel, Request, misfit},
};

/// One vector for each bag of indices, reduced from the table rows that the indices name, as a
/// [`CustomKernel`] whose implementation is this value itself: a backend that asks a [`Request`] for an
/// `EmbeddingBag` computes it from these fields. Inputs are row-major:
///
/// - the table `[rows, features]`;
/// - integer indices, `[B, N]` for bags of N, or `[N]`;
/// - for indices `[N]`, i64 or i32 bounds `[B + 1]`: bag b has the indices from `bounds[b]` to before
///   `bounds[b + 1]`. They are known to ascend and to be within N;
/// - if `weighted`, a number for each index, of the table's dtype.
///
/// The result is `[B, features]`. An index outside the table is [`crate::ErrorKind::IndexOutOfRange`].
/// On a device without this kernel ([`crate::Tensor::has_custom_kernel`]), the caller composes the
/// operation from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EmbeddingBag {
    /// The reduction of a bag's rows.
    pub kind: BagKind,
    /// An index whose row is skipped.
    pub padding: Option<usize>,
    /// Whether each row is multiplied by its index's weight.
    pub weighted: bool,
}

/// The reduction that [`EmbeddingBag`] applies to a bag's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BagKind {
    /// The sum of the rows, in the table's dtype; zeros for an empty bag.
    Sum,
    /// The mean of the rows, in the table's dtype; zeros for an empty bag.
    Mean,
    /// For each feature the row of the first greatest element, as i32; NaN is the greatest. −1 for an
    /// empty bag.
    ArgMax,
}

impl CustomKernel for EmbeddingBag {
    fn name(&self) -> &'static str {
        "embedding_bag"
    }

    fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>> {
        let wrong = |what: &dyn fmt::Display| Err(misfit(self, inputs, what));
        let [(table, dtype), (indices, of_indices), rest @ ..] = inputs else {
            return wrong(&"a table and indices are needed");
        };
        let &[rows, features] = table.dims() else { return wrong(&"a table is [rows, features]") };
        if !dtype.is_float() || !of_indices.is_int() {
            return wrong(&"a table is of a floating-point dtype, and indices are integers");
        }
        let (bags, rest) = match (indices.dims(), rest) {
            (&[bags, _], rest) => (bags, rest),
            (&[_], [(bounds, DType::I64 | DType::I32), rest @ ..]) if bounds.rank() == 1 && bounds[0] > 0 => {
                (bounds[0] - 1, rest)
            }
            _ => return wrong(&"indices are [bags, count], or [count] with i64 or i32 bounds [bags + 1]"),
        };
        match (self.weighted, rest) {
            (false, []) => {}
            (true, [(weights, own)]) if weights == indices && own == dtype => {}
            _ => return wrong(&"weights are of the table's dtype, one for each index"),
        }
        if self.padding.is_some_and(|row| row >= rows) || rows > i32::MAX as usize {
            return wrong(&"padding is a row of the table, whose rows i32 counts");
        }
        let of_result = if self.kind == BagKind::ArgMax { DType::I32 } else { *dtype };
        Ok(vec![(Shape::from([bags, features]), of_result)])
    }

    fn key(&self) -> Vec<u64> {
        let kind = match self.kind {
            BagKind::Sum => 0,
            BagKind::Mean => 1,
            BagKind::ArgMax => 2,
        };
        vec![kind, self.padding.map_or(0, |row| row as u64 + 1), u64::from(self.weighted)]
    }

    fn implement(&self, request: &mut Request<'_>) {
        request.provide(|_| *self);
    }
}
