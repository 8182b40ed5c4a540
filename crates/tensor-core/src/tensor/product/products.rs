//! Products of vectors and blocks: the Kronecker product, the cross product, and dot products along an
//! axis.

use crate::tensor::{Tensor, pointwise::elementwise::promoted, shape_misfit};
use crate::{
    base::{
        axes::Axis,
        error::{Error, Result},
        shape::Shape,
    },
    tensor::autocast,
};

/// The line length below which an inner loop is too short, provided that the rest of each factor has at
/// least this many elements.
const SHORT_LINE: usize = 64;
const REST_MIN_ELEMENTS: usize = 4;

impl Tensor {
    /// The Kronecker product: each element of this tensor times all of the other. `[a₁, …]` and `[b₁,
    /// …]` give `[a₁·b₁, …]`, aligned at the last axis, in the promoted dtype. `torch.kron`.
    ///
    /// # Errors
    /// Two devices, or a result that is too large.
    #[track_caller]
    pub fn kron(&self, rhs: &Tensor) -> Result<Tensor> {
        const OP: &str = "kron";
        Tensor::same_device(OP, &[self, rhs])?;
        let rank = self.rank().max(rhs.rank());
        let (mut a, mut b) = (self.with_lead(rank), rhs.with_lead(rank));
        let out = a
            .dims()
            .iter()
            .zip(b.dims())
            .map(|(&m, &n)| m.saturating_mul(n))
            .collect::<Shape>()
            .checked(OP)?;
        if let (&[.., m], &[.., n]) = (a.dims(), b.dims())
            && n < SHORT_LINE
            && a.numel() >= REST_MIN_ELEMENTS * m
            && b.numel() >= REST_MIN_ELEMENTS * n
        {
            // The innermost lines are short. Both factors are first expanded along whole output lines,
            // which are then multiplied.
            let spread = |t: &Tensor, line: [usize; 2], wide: [usize; 2]| {
                let of =
                    |last: [usize; 2]| t.dims()[..rank - 1].iter().copied().chain(last).collect::<Shape>();
                let lines = t.dims()[..rank - 1].iter().copied().chain([m * n]).collect();
                t.reshape_unchecked(of(line)).expand_unchecked(of(wide)).reshape_unchecked(lines)
            };
            (a, b) = (spread(&a, [m, 1], [m, n]), spread(&b, [1, n], [m, n]));
            let pairs = a.dims()[..rank - 1].iter().zip(b.dims());
            let outer: Shape = pairs.clone().flat_map(|(&m, _)| [m, 1]).chain([m * n]).collect();
            let inner: Shape = pairs.flat_map(|(_, &n)| [1, n]).chain([m * n]).collect();
            return Ok(a.reshape_unchecked(outer).mul(&b.reshape_unchecked(inner))?.reshape_unchecked(out));
        }
        let pairs = a.dims().iter().zip(b.dims());
        let outer: Shape = pairs.clone().flat_map(|(&m, _)| [m, 1]).collect();
        let inner: Shape = pairs.flat_map(|(_, &n)| [1, n]).collect();
        Ok(a.reshape_unchecked(outer).mul(&b.reshape_unchecked(inner))?.reshape_unchecked(out))
    }

    /// The cross product of 3-vectors along an axis: (a₁b₂ − a₂b₁, a₂b₀ − a₀b₂, a₀b₁ − a₁b₀). The
    /// tensors broadcast. `torch.linalg.cross`, whose default axis is −1; `torch.cross` takes the axis
    /// too.
    ///
    /// # Errors
    /// Shapes that do not broadcast, an axis whose size is not three, bools, two devices.
    #[track_caller]
    pub fn cross(&self, rhs: &Tensor, axis: impl Into<Axis>) -> Result<Tensor> {
        const OP: &str = "cross";
        Tensor::same_device(OP, &[self, rhs])?;
        let shape = self.shape().broadcast(rhs.shape(), OP)?;
        let axis = shape.axis(axis, OP)?;
        let three = |t: &Tensor| (axis + t.rank()).checked_sub(shape.rank()).map(|a| t.dims()[a]) == Some(3);
        if !three(self) || !three(rhs) {
            let hint = format!("vectors along axis {axis} have three elements each");
            return Err(shape_misfit(OP, self.shape(), rhs.shape(), hint));
        }
        let dtype = promoted(self, rhs);
        let half = dtype.is_reduced_float();
        let wide = |t: &Tensor| if half { t.cast_unchecked(dtype.compute()) } else { t.clone() };
        let (a, b) = (wide(self).expand_unchecked(shape.clone()), wide(rhs).expand_unchecked(shape));
        let mut parts = Vec::with_capacity(3);
        for (i, j) in [(1, 2), (2, 0), (0, 1)] {
            let at = |t: &Tensor, k: usize| t.slice_unchecked(axis, k, 1, 1);
            parts.push(at(&a, i).mul(&at(&b, j))?.sub(&at(&a, j).mul(&at(&b, i))?)?);
        }
        let product = Tensor::concat(&parts, axis)?;
        Ok(if half { product.cast_unchecked(dtype) } else { product })
    }

    /// Σ a·b along an axis, which is removed. The tensors broadcast; the result is in their promoted
    /// dtype. `torch.linalg.vecdot`, whose default axis is −1. [`Tensor::matmul`] is faster for one
    /// vector with many.
    ///
    /// # Errors
    /// Shapes that do not broadcast, no such axis, bools, two devices.
    #[track_caller]
    pub fn vecdot(&self, rhs: &Tensor, axis: impl Into<Axis>) -> Result<Tensor> {
        const OP: &str = "vecdot";
        let shape = self.shape().broadcast(rhs.shape(), OP)?;
        let axis: Axis = axis.into();
        let axes = shape.axes(&axis.into(), OP)?;
        let cast = autocast::cast(OP, [self, rhs], [])?;
        let ([lhs, rhs], []) = cast.tensors();
        let products = lhs.mul(rhs)?;
        if !products.dtype().is_float() && !products.dtype().is_int() {
            return Err(Error::invalid(OP, "bools have no sums; cast with .to_dtype(DType::I32)?"));
        }
        products.sum_axis(axes.to_vec(), false)?.to_dtype(products.dtype())
    }
}
