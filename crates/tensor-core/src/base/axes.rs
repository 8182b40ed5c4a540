//! Axes and sizes as a user writes them, and the operations on shapes that can fail: limits, broadcasting,
//! and axis numbers.

use smallvec::SmallVec;

use crate::base::{
    error::{Error, ErrorKind, Result},
    shape::{MAX_ELEMENTS, Shape},
};

impl Shape {
    /// These sizes, if a tensor may have them. Every operation that makes a shape larger than its
    /// inputs' checks it here. `op` names the operation in the error.
    ///
    /// # Errors
    /// A product of the nonzero sizes above [`MAX_ELEMENTS`].
    #[track_caller]
    pub fn checked(self, op: &'static str) -> Result<Shape> {
        if self.fits() {
            return Ok(self);
        }
        Err(Error::invalid(
            op,
            format!(
                "shape {self} has too many elements to count; the sizes other than 0 may multiply to {MAX_ELEMENTS} at most"
            ),
        ))
    }

    /// The shape to which `self` and `other` broadcast by NumPy's rule: they are aligned at the last
    /// axis, and the two sizes of each axis are equal or one of them is 1. `op` names the operation in
    /// the error.
    #[track_caller]
    pub fn broadcast(&self, other: &Shape, op: &'static str) -> Result<Shape> {
        if self == other {
            return Ok(self.clone());
        }
        let rank = self.rank().max(other.rank());
        let mut dims = SmallVec::from_elem(1, rank);
        for i in 0..rank {
            let a = if i < self.rank() { self.0[self.rank() - 1 - i] } else { 1 };
            let b = if i < other.rank() { other.0[other.rank() - 1 - i] } else { 1 };
            dims[rank - 1 - i] = match (a, b) {
                _ if a == b => a,
                (1, _) => b,
                (_, 1) => a,
                _ => {
                    return Err(Error::new(ErrorKind::ShapeMismatch {
                        op,
                        lhs: self.clone(),
                        rhs: other.clone(),
                        hint: format!(
                            "sizes {a} and {b} at axis -{} differ and neither is 1; reshape or expand one of them",
                            i + 1
                        ),
                    }));
                }
            };
        }
        Shape(dims).checked(op)
    }

    /// The axis number of `axis`, which may count from the end.
    ///
    /// # Errors
    /// An axis out of range; `op` names the operation.
    #[track_caller]
    pub fn axis(&self, axis: impl Into<Axis>, op: &'static str) -> Result<usize> {
        let Axis(axis) = axis.into();
        let rank = self.rank() as isize;
        let resolved = if axis < 0 { axis + rank } else { axis };
        if (0..rank).contains(&resolved) {
            Ok(resolved as usize)
        } else {
            Err(Error::new(ErrorKind::AxisOutOfRange { op, axis, shape: self.clone() }))
        }
    }

    /// The axis numbers of `axes` in ascending order; `..` means all axes. A repeated axis is an error.
    /// Axis 0 or −1 of a scalar means no axis, as in PyTorch.
    #[track_caller]
    pub fn axes(&self, axes: &Axes, op: &'static str) -> Result<SmallVec<[usize; 5]>> {
        let mut out = self.axes_in_order(axes, op)?;
        out.sort_unstable();
        Ok(out)
    }

    /// [`Shape::axes`] in the order in which they are given.
    #[track_caller]
    pub(crate) fn axes_in_order(&self, axes: &Axes, op: &'static str) -> Result<SmallVec<[usize; 5]>> {
        let Some(list) = &axes.0 else { return Ok((0..self.rank()).collect()) };
        // As in PyTorch, a scalar accepts axis 0 or -1, which it does not have.
        if self.rank() == 0 && matches!(list[..], [0 | -1]) {
            return Ok(SmallVec::new());
        }
        let mut out: SmallVec<[usize; 5]> = SmallVec::new();
        for &axis in list {
            let resolved = self.axis(axis, op)?;
            if out.contains(&resolved) {
                return Err(Error::invalid(
                    op,
                    format!("axis {resolved} is given twice for shape {self}; name each axis once"),
                ));
            }
            out.push(resolved);
        }
        Ok(out)
    }
}

/// One axis as a user gives it: any integer; negative ones count from the end (`-1` is the last).
///
/// Functions take `impl Into<Axis>`, so that `1`, `-1` and an index from a loop can be passed as they
/// are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis(pub(crate) isize);

/// Axes as a user gives them: one (`1`, `-1`), several (`[0, -1]`), or all of them (`..`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes(pub(crate) Option<SmallVec<[isize; 4]>>);

impl Axes {
    /// All axes, as `..` means.
    pub fn all() -> Axes {
        Axes(None)
    }

    /// The axes as given, or `None` for all of them.
    pub fn given(&self) -> Option<&[isize]> {
        self.0.as_deref()
    }
}

impl From<std::ops::RangeFull> for Axes {
    fn from(_: std::ops::RangeFull) -> Axes {
        Axes(None)
    }
}

/// The sizes given to `reshape` and `expand`, where -1 leaves one open: one size, an array, a slice, a
/// vector, a shape, or a tuple whose parts may be of different types, as in `(n, -1)` with `n` of type
/// usize.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dims(pub(crate) SmallVec<[isize; 5]>);

impl Dims {
    /// The shape that these sizes give to the elements of a tensor of shape `from`.
    ///
    /// # Errors
    /// Sizes with another number of elements, or more than one -1.
    #[track_caller]
    pub fn resolve(&self, from: &Shape) -> Result<Shape> {
        let bad =
            |why: String| Error::invalid("reshape", format!("{from} to {:?}: {why}", self.0.as_slice()));
        let numel = from.numel();
        // Without an open size the product is the number of elements; beside an open size, 0 leaves it
        // ambiguous.
        let mut known = 1usize;
        let mut open = None;
        for (i, &d) in self.0.iter().enumerate() {
            match d {
                -1 if open.is_some() => return Err(bad("only one size may be -1".into()).here()),
                -1 => open = Some(i),
                d if d < 0 => return Err(bad(format!("{d} is not a size")).here()),
                d => known = known.saturating_mul(d as usize),
            }
        }
        let mut dims: SmallVec<[usize; 5]> = self.0.iter().map(|&d| d.max(0) as usize).collect();
        match open {
            Some(i) if known > 0 && numel.is_multiple_of(known) => dims[i] = numel / known,
            Some(_) if known == 0 => return Err(bad("-1 beside a size of 0 could be anything".into()).here()),
            Some(_) => return Err(bad(format!("{numel} elements do not divide by {known}")).here()),
            None if known != numel => {
                return Err(bad(format!(
                    "{numel} elements are not {known}; -1 for one size takes what is left"
                ))
                .here());
            }
            None => {}
        }
        Shape(dims).checked("reshape")
    }
}

mod sealed {
    pub trait Sealed {}
}

/// An integer type of axes and sizes: `i32`, `i64`, `isize`, `u32`, `usize`.
pub trait Int: sealed::Sealed + Copy {
    /// The number as `isize`; it saturates, and no shape has the extreme values.
    fn as_isize(self) -> isize;
}

macro_rules! ints {
    ($($t:ty),*) => {$(
        impl sealed::Sealed for $t {}
        impl Int for $t {
            fn as_isize(self) -> isize {
                #[allow(unused_comparisons)] // one formula for signed and unsigned ones
                isize::try_from(self).unwrap_or(if self < 0 { isize::MIN } else { isize::MAX })
            }
        }
    )*};
}
ints!(i32, i64, isize, u32, usize);

impl<I: Int> From<I> for Axis {
    fn from(axis: I) -> Axis {
        Axis(axis.as_isize())
    }
}
impl From<Axis> for Axes {
    fn from(axis: Axis) -> Axes {
        Axes(Some(SmallVec::from_elem(axis.0, 1)))
    }
}

/// Conversions from one or several integers.
macro_rules! from_ints {
    ($($to:ident => $make:expr;)*) => {$(
        impl<I: Int> From<I> for $to {
            fn from(one: I) -> $to { $make([one].iter().map(|&i| i.as_isize()).collect()) }
        }
        impl<I: Int, const N: usize> From<[I; N]> for $to {
            fn from(list: [I; N]) -> $to { $to::from(list.as_slice()) }
        }
        impl<I: Int, const N: usize> From<&[I; N]> for $to {
            fn from(list: &[I; N]) -> $to { $to::from(list.as_slice()) }
        }
        impl<I: Int> From<&[I]> for $to {
            fn from(list: &[I]) -> $to { $make(list.iter().map(|&i| i.as_isize()).collect()) }
        }
        impl<I: Int> From<Vec<I>> for $to {
            fn from(list: Vec<I>) -> $to { $to::from(list.as_slice()) }
        }
        impl<I: Int> From<&Vec<I>> for $to {
            fn from(list: &Vec<I>) -> $to { $to::from(list.as_slice()) }
        }
    )*};
}
from_ints! {
    Axes => |list| Axes(Some(list));
    Dims => Dims;
}

/// Conversions from tuples: of sizes for a shape, of integers of any types for dims, which may be
/// negative.
macro_rules! from_tuples {
    ($($($t:ident $v:ident)*;)*) => {$(
        impl<$($t: Int),*> From<($($t,)*)> for Dims {
            fn from(($($v,)*): ($($t,)*)) -> Dims { Dims::from([$($v.as_isize()),*]) }
        }
        impl<$($t: Int),*> From<($($t,)*)> for Axes {
            fn from(($($v,)*): ($($t,)*)) -> Axes { Axes::from([$($v.as_isize()),*]) }
        }
        impl From<($(size!($t),)*)> for Shape {
            fn from(($($v,)*): ($(size!($t),)*)) -> Shape { Shape::from([$($v),*]) }
        }
    )*};
}
macro_rules! size {
    ($t:ident) => {
        usize
    };
}
from_tuples! {
    A a;
    A a B b;
    A a B b C c;
    A a B b C c D d;
    A a B b C c D d E e;
    A a B b C c D d E e F f;
}

impl From<()> for Dims {
    fn from(_: ()) -> Dims {
        Dims(SmallVec::new())
    }
}
impl From<&Shape> for Dims {
    fn from(shape: &Shape) -> Dims {
        Dims::from(shape.dims())
    }
}
impl From<Shape> for Dims {
    fn from(shape: Shape) -> Dims {
        Dims::from(shape.dims())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcast_follows_numpy() {
        let b = |a: &[usize], c: &[usize]| Shape::from(a).broadcast(&Shape::from(c), "add");
        assert_eq!(b(&[3, 1], &[4]).unwrap(), [3, 4]);
        assert_eq!(b(&[], &[2, 2]).unwrap(), [2, 2]);
        assert_eq!(b(&[0], &[1]).unwrap(), [0]);
        let err = b(&[3], &[4]).unwrap_err().to_string();
        assert!(err.contains("[3]") && err.contains("[4]") && err.contains("add"), "{err}");
    }

    #[test]
    fn reshape_resolves_one_open_size() {
        let from = Shape::from([2, 6]);
        assert_eq!(Dims::from([3, -1]).resolve(&from).unwrap(), [3, 4]);
        assert_eq!(Dims::from([12]).resolve(&from).unwrap(), [12]);
        for bad in [vec![-1, -1], vec![5, -1], vec![-2, 6], vec![0, -1], vec![13]] {
            assert!(Dims::from(bad).resolve(&from).is_err());
        }
        assert!(Dims::from([i64::MAX, 8]).resolve(&from).is_err());
    }

    #[test]
    fn shapes_and_sizes_are_written_in_many_ways() {
        let shape = |s: Shape| s;
        for from in [
            shape([2, 3].into()),
            shape((&[2, 3]).into()),
            shape((2, 3).into()),
            shape(vec![2, 3].into()),
            shape((&vec![2, 3]).into()),
        ] {
            assert_eq!(from, [2, 3]);
        }
        assert_eq!(shape((4,).into()), [4]);
        let n: usize = 2;
        for dims in [Dims::from((n, -1)), (n, -1i64).into(), [2, -1].into(), (&[2i64, -1]).into()] {
            assert_eq!(dims.resolve(&Shape::from([3, 2])).unwrap(), [2, 3]);
        }
        // An axis beyond isize stays out of range: it does not wrap to -1.
        assert!(Shape::from([2]).axis(usize::MAX, "test").is_err());
        assert!(Shape::from([2]).axes(&[u32::MAX].into(), "test").is_err());
        assert_eq!(Shape::from([2, 3]).axis(1u32, "test").unwrap(), 1);
        assert_eq!(Shape::from([2, 3]).axis(-1i64, "test").unwrap(), 1);
    }

    #[test]
    fn sizes_that_multiply_past_what_fits_are_no_shape_of_a_tensor() {
        for bad in [
            vec![usize::MAX],
            vec![1 << 32, 1 << 32],
            vec![usize::MAX, 2, 0],
            vec![0, 1 << 32, 1 << 32],
            vec![MAX_ELEMENTS + 1],
        ] {
            let shape = Shape::from(bad);
            let _ = (shape.numel(), shape.contiguous_strides());
            assert_eq!(shape.checked_numel(), None);
            let error = shape.clone().checked("zeros").unwrap_err().to_string();
            assert!(error.contains(&shape.to_string()) && error.contains("zeros"), "{error}");
        }
        assert_eq!(Shape::from([MAX_ELEMENTS, 0]).checked_numel(), Some(0));
        assert!(Shape::from([1 << 31, 1]).broadcast(&Shape::from([1, 1 << 31]), "add").is_err());
        assert!(Shape::from([1, usize::MAX]).broadcast(&Shape::from([2, 1]), "add").is_err());
        for bad in [Dims::from([usize::MAX]), Dims::from([2, usize::MAX]), Dims::from([i64::MAX, 0])] {
            assert!(bad.resolve(&Shape::from([2, 6])).is_err());
        }
        assert_eq!(Axes::from([usize::MAX]).given(), Some(&[isize::MAX][..]));
    }
}
