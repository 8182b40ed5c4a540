//! Shapes: the sizes along each dimension. The axes and sizes that a user writes, and the checks of shapes,
//! are in `axes.rs`; the positions of elements in memory are in `layout.rs`.

use std::{fmt, ops::Deref};

use smallvec::SmallVec;

/// The maximum number of elements of a tensor or view: their bytes fit in an `isize` for every dtype,
/// and so does every stride.
pub const MAX_ELEMENTS: usize = isize::MAX as usize / 8;

/// The sizes of a tensor along its axes, outermost first; `[]` is a scalar with one element.
///
/// A `Shape` may have any sizes. A tensor's shape has passed [`Shape::checked`]: their products do not
/// overflow.
#[derive(PartialEq, Eq, Hash, Default)]
pub struct Shape(pub(super) SmallVec<[usize; 5]>);

impl Shape {
    /// The shape of a scalar.
    pub fn scalar() -> Shape {
        Shape::default()
    }

    /// The sizes as a slice.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The number of elements: the product of the sizes. It saturates at `usize::MAX`, which no tensor
    /// has.
    pub fn numel(&self) -> usize {
        self.0.iter().fold(1, |n: usize, &d| n.saturating_mul(d))
    }

    /// The number of elements, or `None` for sizes that no tensor can have.
    pub fn checked_numel(&self) -> Option<usize> {
        self.fits().then(|| self.numel())
    }

    /// Whether a tensor may have these sizes: the product of the nonzero ones is at most
    /// [`MAX_ELEMENTS`]. An empty tensor's nonzero sizes count too, since its strides are products of
    /// them.
    pub fn fits(&self) -> bool {
        self.0.iter().fold(1, |n: usize, &d| n.saturating_mul(d.max(1))) <= MAX_ELEMENTS
    }

    /// Row-major strides, in elements.
    pub fn contiguous_strides(&self) -> SmallVec<[isize; 5]> {
        let mut strides: SmallVec<[isize; 5]> = SmallVec::from_elem(1, self.rank());
        for axis in (1..self.rank()).rev() {
            strides[axis - 1] = strides[axis].saturating_mul(self.0[axis].max(1) as isize);
        }
        strides
    }

    /// This shape with `axes` (ascending) reduced: removed, or set to 1 when `keepdim`.
    pub fn reduced(&self, axes: &[usize], keepdim: bool) -> Shape {
        let kept = |axis: usize| !axes.contains(&axis);
        let dims = self.0.iter().enumerate();
        if keepdim {
            dims.map(|(i, &d)| if kept(i) { d } else { 1 }).collect()
        } else {
            dims.filter(|(i, _)| kept(*i)).map(|(_, &d)| d).collect()
        }
    }
}

/// Copies the inline sizes as a block, because shapes are cloned with every node.
impl Clone for Shape {
    #[inline]
    fn clone(&self) -> Shape {
        Shape(SmallVec::from_slice(&self.0))
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(iter: I) -> Shape {
        Shape(iter.into_iter().collect())
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.as_slice(), f)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.as_slice(), f)
    }
}

impl From<()> for Shape {
    fn from(_: ()) -> Shape {
        Shape::scalar()
    }
}
impl From<usize> for Shape {
    fn from(n: usize) -> Shape {
        Shape(SmallVec::from_elem(n, 1))
    }
}
impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Shape {
        Shape(SmallVec::from_slice(&dims))
    }
}
impl<const N: usize> From<&[usize; N]> for Shape {
    fn from(dims: &[usize; N]) -> Shape {
        Shape(SmallVec::from_slice(dims))
    }
}
impl From<&Vec<usize>> for Shape {
    fn from(dims: &Vec<usize>) -> Shape {
        Shape(SmallVec::from_slice(dims))
    }
}
impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Shape {
        Shape(SmallVec::from_slice(dims))
    }
}
impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Shape {
        Shape(SmallVec::from_vec(dims))
    }
}
impl From<&Shape> for Shape {
    fn from(shape: &Shape) -> Shape {
        shape.clone()
    }
}

impl PartialEq<[usize]> for Shape {
    fn eq(&self, other: &[usize]) -> bool {
        self.dims() == other
    }
}
impl<const N: usize> PartialEq<[usize; N]> for Shape {
    fn eq(&self, other: &[usize; N]) -> bool {
        self.dims() == other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_of_empty_axes_stay_positive() {
        assert_eq!(Shape::from([2, 0, 3]).contiguous_strides().as_slice(), [3, 3, 1]);
    }
}
