//! [`Contraction`]: a [`Body::Contract`] as matrix products. Any sum of products of two strided operands
//! is a batch of matrix products whose batch, rows, columns and terms each run over a list of axes; this
//! module finds the lists.

use smallvec::SmallVec;

use crate::kernels::{
    kernel::{Body, Kernel},
    layout::collapse,
};

/// An axis of a contraction, with its stride in each buffer, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loop {
    /// The size, never 1.
    pub size: usize,
    /// The stride in the left operand.
    pub lhs: isize,
    /// The stride in the right operand.
    pub rhs: isize,
    /// The stride in the output; 0 along k.
    pub out: isize,
}

/// A list of axes, outermost first.
pub type Loops = SmallVec<[Loop; 4]>;

/// `out[batch, m, n] = Σₖ lhs[batch, m, k] · rhs[batch, k, n]`, where batch, m, n and k are each a list
/// of axes; an empty list is one position.
///
/// The left operand has stride 0 along n, and the right one along m. The columns n are the innermost
/// axes of the output and the rows m precede them, so the result of one batch position is one row-major
/// matrix of the output. Axes that are contiguous with each other in all three buffers are merged: each
/// list of a plain product has one axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Contraction {
    /// Whether operand 1 of the kernel is the left operand.
    pub swapped: bool,
    /// Independent products.
    pub batch: Loops,
    /// Rows of the result.
    pub m: Loops,
    /// Columns of the result.
    pub n: Loops,
    /// Terms of each sum.
    pub k: Loops,
}

/// The number of positions of a list of axes.
pub fn count(loops: &[Loop]) -> usize {
    loops.iter().map(|axis| axis.size).product()
}

impl Contraction {
    /// The matrix products of a kernel, if its body is [`Body::Contract`].
    pub fn of(kernel: &Kernel) -> Option<Contraction> {
        let (Body::Contract(_), [lhs, rhs, ..], [output, ..]) =
            (&kernel.body, &kernel.operands[..], &kernel.outputs[..])
        else {
            return None;
        };
        let out = output.strides_over(kernel.space.rank());
        let strides = [lhs.layout.strides(), rhs.layout.strides(), &out];
        let merged = |axes: &[usize]| -> Loops {
            let sizes: SmallVec<[usize; 5]> = axes.iter().map(|&a| kernel.space[a]).collect();
            let over = strides.map(|s| axes.iter().map(|&a| s[a]).collect::<SmallVec<[isize; 5]>>());
            let merged = collapse(&sizes, &[&over[0], &over[1], &over[2]]);
            let [lhs, rhs, out] = [0, 1, 2].map(|o| &merged.strides[o]);
            let axes = merged.shape.iter().enumerate();
            axes.map(|(a, &size)| Loop { size, lhs: lhs[a], rhs: rhs[a], out: out[a] }).collect()
        };
        let mut batch = merged(&output.axes);
        let mut k = merged(&kernel.reduced_axes());
        let swapped = batch.last().is_some_and(|inner| inner.lhs != 0 && inner.rhs == 0);
        if swapped {
            batch.iter_mut().chain(&mut k).for_each(|axis| std::mem::swap(&mut axis.lhs, &mut axis.rhs));
        }
        let columns = batch.iter().rev().take_while(|axis| axis.lhs == 0).count();
        let n: Loops = batch.drain(batch.len() - columns..).collect();
        let rows = batch.iter().rev().take_while(|axis| axis.rhs == 0).count();
        let m: Loops = batch.drain(batch.len() - rows..).collect();
        Some(Contraction { swapped, batch, m, n, k })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{base::shape::Shape, elements::dtype::DType, kernels::layout::Layout};

    fn sizes(loops: &[Loop]) -> Vec<usize> {
        loops.iter().map(|axis| axis.size).collect()
    }

    fn lists(kernel: &Kernel) -> (bool, [Vec<usize>; 4]) {
        let c = Contraction::of(kernel).unwrap();
        (c.swapped, [sizes(&c.batch), sizes(&c.m), sizes(&c.n), sizes(&c.k)])
    }

    #[test]
    fn products_have_one_axis_of_each_kind() {
        let matmul = |lhs: Layout, rhs: Layout| lists(&Kernel::matmul(DType::F32, &lhs, &rhs));
        let plain = |shape: &[usize]| Layout::contiguous(Shape::from(shape));
        assert_eq!(
            matmul(plain(&[2, 3, 4]), plain(&[2, 4, 5])),
            (false, [vec![2], vec![3], vec![5], vec![4]])
        );
        // A batch axis that one operand lacks becomes rows of the other.
        let wide = plain(&[4, 5]).expand(&Shape::from([2, 4, 5]));
        assert_eq!(matmul(plain(&[2, 3, 4]), wide.clone()), (false, [vec![], vec![6], vec![5], vec![4]]));
        let across = plain(&[3, 2, 4]).permute(&[1, 0, 2]);
        assert_eq!(matmul(across, wide), (false, [vec![], vec![2, 3], vec![5], vec![4]]));
        // A matrix and a vector.
        assert_eq!(matmul(plain(&[3, 4]), plain(&[4, 1])), (true, [vec![], vec![], vec![3], vec![4]]));
        assert_eq!(matmul(plain(&[1, 4]), plain(&[4, 1])), (false, [vec![], vec![], vec![], vec![4]]));
    }

    #[test]
    fn a_convolution_is_a_product_over_windows() {
        // A convolution: weight [out, in, kh, kw] over images [batch, in, h, w], with the axes in the
        // order batch, out, oh, ow, in, kh, kw.
        let space = Shape::from([2, 8, 4, 4, 3, 3, 3]);
        let weight = Layout::new(space.clone(), &[0, 27, 0, 0, 9, 3, 1], 0);
        let images = Layout::new(space, &[3 * 36, 0, 6, 1, 36, 6, 1], 0);
        let kernel = Kernel::contract(DType::F32, images, weight, &[4, 5, 6]);
        assert_eq!(lists(&kernel), (true, [vec![2], vec![8], vec![4, 4], vec![3, 3, 3]]));
        let part = kernel.narrow(1, 2, 5).unwrap();
        assert_eq!((part.outputs[0].shape.dims(), part.operands[1].layout.offset()), (&[2, 5, 4, 4][..], 54));
    }
}
