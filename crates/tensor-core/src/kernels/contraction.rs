//! [`Contraction`]: the matrices of a [`Body::Contract`]. Any sum of products over two strided operands is a
//! batch of matrix products whose rows, columns and terms each run over a list of axes; this finds the lists.

use smallvec::SmallVec;

use crate::kernels::{
    kernel::{Body, Kernel},
    layout::collapse,
};

/// An axis of a contraction, and the distance between its neighbours in each buffer, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loop {
    /// The number of positions, never 1.
    pub size: usize,
    /// In the left operand.
    pub lhs: isize,
    /// In the right operand.
    pub rhs: isize,
    /// In the output; 0 along the terms.
    pub out: isize,
}

/// A list of axes, outermost first.
pub type Loops = SmallVec<[Loop; 4]>;

/// `out[batch, m, n] = Σₖ lhs[batch, m, k] · rhs[batch, k, n]`, where batch, m, n and k are each a list of
/// axes: empty for one position.
///
/// The left operand does not move along n, nor the right one along m. The columns n are the innermost axes of
/// the output and the rows m those before them, so that the result of one batch position is one row-major
/// matrix of the output. Axes that all three buffers step through evenly are merged: the lists of a plain
/// product have one axis each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Contraction {
    /// Whether operand 1 of the kernel is the left one.
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
    /// The matrices of a kernel, where its body is [`Body::Contract`].
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
        // A batch that one operand does not have is more rows of the other.
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
        // weight [out, in, kh, kw] over images [batch, in, h, w], in the order batch, out, oh, ow, in, kh,
        // kw.
        let space = Shape::from([2, 8, 4, 4, 3, 3, 3]);
        let weight = Layout::new(space.clone(), &[0, 27, 0, 0, 9, 3, 1], 0);
        let images = Layout::new(space, &[3 * 36, 0, 6, 1, 36, 6, 1], 0);
        let kernel = Kernel::contract(DType::F32, images, weight, &[4, 5, 6]);
        assert_eq!(lists(&kernel), (true, [vec![2], vec![8], vec![4, 4], vec![3, 3, 3]]));
        let part = kernel.narrow(1, 2, 5).unwrap();
        assert_eq!((part.outputs[0].shape.dims(), part.operands[1].layout.offset()), (&[2, 5, 4, 4][..], 54));
    }
}
