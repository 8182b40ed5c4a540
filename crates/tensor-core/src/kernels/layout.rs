//! [`Layout`]: the positions of a tensor's elements in its buffer, as a shape, signed strides and an
//! offset, all in elements. Views (transpose, slice, flip, expand) are new layouts over the same buffer;
//! nothing is copied.

use smallvec::SmallVec;

use crate::base::shape::Shape;

/// Strides in elements, outermost axis first. A stride of 0 repeats an element, a negative one goes
/// backwards.
pub type Strides = SmallVec<[isize; 5]>;

/// A strided window of a buffer: element `[i, j, …]` is at `offset + i·strides[0] + j·strides[1] + …`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: Shape,
    strides: Strides,
    offset: usize,
}

/// Copies the inline strides as a block, because layouts are cloned with every value.
impl Clone for Layout {
    #[inline]
    fn clone(&self) -> Layout {
        Layout {
            shape: self.shape.clone(),
            strides: SmallVec::from_slice(&self.strides),
            offset: self.offset,
        }
    }
}

impl Layout {
    /// A row-major layout that starts at the buffer's first element.
    pub fn contiguous(shape: impl Into<Shape>) -> Layout {
        let shape = shape.into();
        Layout { strides: shape.contiguous_strides(), shape, offset: 0 }
    }

    /// A layout from its parts.
    pub fn new(shape: impl Into<Shape>, strides: &[isize], offset: usize) -> Layout {
        let shape = shape.into();
        debug_assert_eq!(shape.rank(), strides.len());
        Layout { shape, strides: SmallVec::from_slice(strides), offset }
    }

    /// Sizes along each axis.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Strides, in elements.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// The buffer index of the first element.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The number of elements.
    pub fn numel(&self) -> usize {
        self.shape.numel()
    }

    /// Whether this equals [`Layout::contiguous`] of its shape.
    pub(crate) fn is_plain(&self) -> bool {
        let mut stride = 1;
        self.offset == 0
            && self.shape.iter().zip(&self.strides).rev().all(|(&size, &own)| {
                let plain = own == stride as isize;
                stride *= size.max(1);
                plain
            })
    }

    /// Whether the elements are in row-major order without gaps, at any offset.
    pub fn is_contiguous(&self) -> bool {
        if self.shape.contains(&0) {
            return true;
        }
        let mut expected = 1isize;
        for (&d, &s) in self.shape.iter().zip(&self.strides).rev() {
            if d != 1 && s != expected {
                return false;
            }
            expected *= d as isize;
        }
        true
    }

    /// The smallest buffer index of this layout, and one past the greatest; `(0, 0)` if it is empty.
    pub fn span(&self) -> (usize, usize) {
        if self.shape.contains(&0) {
            return (0, 0);
        }
        let (mut low, mut high) = (self.offset as isize, self.offset as isize);
        for (&d, &s) in self.shape.iter().zip(&self.strides) {
            let reach = (d as isize - 1) * s;
            if reach < 0 { low += reach } else { high += reach }
        }
        (low as usize, high as usize + 1)
    }

    /// Axes reordered: axis `i` of the result is axis `axes[i]` of this one.
    pub fn permute(&self, axes: &[usize]) -> Layout {
        Layout {
            shape: axes.iter().map(|&a| self.shape[a]).collect(),
            strides: axes.iter().map(|&a| self.strides[a]).collect(),
            offset: self.offset,
        }
    }

    /// Broadcast to `shape`, to which this layout's shape must be broadcastable: new and widened axes have
    /// stride 0.
    pub fn expand(&self, shape: &Shape) -> Layout {
        if *shape == self.shape {
            return self.clone();
        }
        let lead = shape.rank() - self.shape.rank();
        let strides = (0..shape.rank())
            .map(|i| {
                if i < lead || (self.shape[i - lead] == 1 && shape[i] != 1) {
                    0
                } else {
                    self.strides[i - lead]
                }
            })
            .collect();
        Layout { shape: shape.clone(), strides, offset: self.offset }
    }

    /// Every `step`-th element of `axis` from `start`, `len` of them; a negative step goes backwards.
    pub fn slice(&self, axis: usize, start: usize, len: usize, step: isize) -> Layout {
        let mut out = self.clone();
        // An empty layout keeps its offset: a step along one axis could leave a buffer that another axis
        // makes empty.
        if len > 0 && !self.shape.contains(&0) {
            out.offset = (self.offset as isize + start as isize * self.strides[axis]) as usize;
        }
        // The stride of a single element is never used, and a step beyond the axis could overflow it.
        if len > 1 {
            out.strides[axis] = self.strides[axis] * step;
        }
        out.shape = self.shape.iter().enumerate().map(|(i, &d)| if i == axis { len } else { d }).collect();
        out
    }

    /// `count` windows of `size` elements along `axis`, `step` elements apart, with their elements
    /// `dilation` apart. The windows take the axis's place, and the elements of each are along a new
    /// last axis.
    pub fn unfold(&self, axis: usize, count: usize, size: usize, step: usize, dilation: usize) -> Layout {
        let along = self.strides[axis];
        let sizes = self.shape.iter().enumerate().map(|(a, &n)| if a == axis { count } else { n });
        let shape = sizes.chain([size]).collect();
        // The stride of a single window or element is never used, and could overflow.
        let by = |n: usize, stride: usize| if n > 1 { along * stride as isize } else { 0 };
        let mut strides = self.strides.clone();
        strides[axis] = by(count, step);
        strides.push(by(size, dilation));
        Layout { shape, strides, offset: self.offset }
    }

    /// The order of `axis` reversed.
    pub fn flip(&self, axis: usize) -> Layout {
        match self.shape[axis] {
            0 => self.clone(),
            n => self.slice(axis, n - 1, n, -1),
        }
    }

    /// The same elements in the same order under another shape of equal size, if strides can express it.
    pub fn reshape(&self, shape: &Shape) -> Option<Layout> {
        if *shape == self.shape {
            return Some(self.clone());
        }
        if self.is_contiguous() {
            return Some(Layout {
                shape: shape.clone(),
                strides: shape.contiguous_strides(),
                offset: self.offset,
            });
        }
        // Walk both shapes from the right in groups of equal size; each group must have one uniform
        // stride here.
        let mut strides: Strides = SmallVec::from_elem(0, shape.rank());
        let old: SmallVec<[(usize, isize); 5]> =
            self.shape.iter().copied().zip(self.strides.iter().copied()).filter(|&(d, _)| d != 1).collect();
        let mut new_axis = shape.rank();
        let mut old_axis = old.len();
        while old_axis > 0 {
            old_axis -= 1;
            let (mut have, run_stride) = old[old_axis];
            let mut want = 1usize;
            let first_new = new_axis;
            while want != have {
                if want < have {
                    if new_axis == 0 {
                        return None;
                    }
                    new_axis -= 1;
                    want *= shape[new_axis];
                } else {
                    if old_axis == 0 || old[old_axis - 1].1 != run_stride * have as isize {
                        return None;
                    }
                    old_axis -= 1;
                    have *= old[old_axis].0;
                }
            }
            let mut stride = run_stride;
            for axis in (new_axis..first_new).rev() {
                strides[axis] = stride;
                stride *= shape[axis] as isize;
            }
        }
        Some(Layout { shape: shape.clone(), strides, offset: self.offset })
    }
}

/// Several layouts over one index space, with axes merged where every layout allows it, and without axes
/// of size 1: the form in which a backend iterates. The innermost axis comes last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collapsed {
    /// Sizes of the merged axes; empty for a single element.
    pub shape: SmallVec<[usize; 5]>,
    /// For each layout, its strides along the merged axes.
    pub strides: SmallVec<[Strides; 4]>,
}

/// Merges the axes of one index space over several layouts, all of shape `shape`.
pub fn collapse(shape: &[usize], strides: &[&[isize]]) -> Collapsed {
    let mut dims: SmallVec<[usize; 5]> = SmallVec::new();
    let mut out: SmallVec<[Strides; 4]> = strides.iter().map(|_| Strides::new()).collect();
    for axis in 0..shape.len() {
        if shape[axis] == 1 {
            continue;
        }
        let merges = !dims.is_empty()
            && out
                .iter()
                .zip(strides)
                .all(|(done, s)| done.last().copied().unwrap_or(0) == s[axis] * shape[axis] as isize);
        if merges {
            if let Some(last) = dims.last_mut() {
                *last *= shape[axis];
            }
            for (done, s) in out.iter_mut().zip(strides) {
                if let Some(last) = done.last_mut() {
                    *last = s[axis];
                }
            }
        } else {
            dims.push(shape[axis]);
            for (done, s) in out.iter_mut().zip(strides) {
                done.push(s[axis]);
            }
        }
    }
    Collapsed { shape: dims, strides: out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reshape_of_views() {
        let t = Layout::contiguous([2, 3, 4]).permute(&[1, 0, 2]);
        assert!(t.reshape(&Shape::from([6, 4])).is_none());
        let split = t.reshape(&Shape::from([3, 2, 2, 2])).unwrap();
        assert_eq!(split.strides(), [4, 12, 2, 1]);
        let columns = Layout::contiguous([4, 6]).slice(1, 0, 3, 2);
        assert_eq!(columns.strides(), [6, 2]);
        assert_eq!(columns.reshape(&Shape::from([12])).unwrap().strides(), [2]);
        let some = Layout::contiguous([4, 6]).slice(1, 0, 2, 1);
        assert!(some.reshape(&Shape::from([8])).is_none());
        assert_eq!(some.reshape(&Shape::from([2, 2, 1, 2])).unwrap().strides(), [12, 6, 6, 1]);
        let spread = Layout::contiguous([3, 1]).expand(&Shape::from([3, 4]));
        assert!(spread.reshape(&Shape::from([12])).is_none());
        assert_eq!(spread.reshape(&Shape::from([3, 2, 2])).unwrap().strides(), [1, 0, 0]);
    }

    #[test]
    fn flips_and_spans() {
        let l = Layout::contiguous([2, 3]).flip(0).flip(1);
        assert_eq!((l.offset(), l.strides()), (5, &[-3isize, -1][..]));
        assert_eq!(l.span(), (0, 6));
        assert_eq!(Layout::contiguous([0, 3]).flip(0).span(), (0, 0));
        assert_eq!(Layout::contiguous([7, 0]).slice(0, 2, 1, 1).offset(), 0);
        assert_eq!(l.slice(0, 1, 1, isize::MAX).strides(), [-3, -1]);
    }

    #[test]
    fn collapse_merges_what_all_allow() {
        let c = collapse(&[2, 1, 3, 4], &[&[12, 12, 4, 1], &[12, 0, 4, 1]]);
        assert_eq!(c.shape.as_slice(), [24]);
        let c = collapse(&[2, 3, 4], &[&[12, 4, 1], &[0, 4, 1]]);
        assert_eq!(c.shape.as_slice(), [2, 12]);
        let c = collapse(&[2, 3], &[&[0, 0]]);
        assert_eq!(c.shape.as_slice(), [6]);
        assert!(collapse(&[1, 1], &[&[1, 1]]).shape.is_empty());
    }
}
