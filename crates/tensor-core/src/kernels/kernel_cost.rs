//! The cost of a kernel, derived from its structure: arithmetic, and bytes read and written. For
//! reports; no plan depends on it.

use crate::kernels::{
    kernel::{Body, Instr, Kernel, Operand, Program},
    layout::Layout,
};

impl Kernel {
    /// The arithmetic cost in additions, with a function such as `exp` weighted by
    /// [`crate::kernel::Instr::cost`]; a multiply-add is two. `None` for a custom kernel, whose cost is
    /// unknown.
    #[must_use]
    pub fn flops(&self) -> Option<u64> {
        let (space, output) =
            (self.space.numel() as u64, self.outputs.first().map_or(0, |o| o.shape.numel()) as u64);
        Some(match &self.body {
            Body::Map(program) | Body::Rows { program, .. } => space.saturating_mul(cost(program)),
            Body::Reduce { program, .. } => space.saturating_mul(cost(program) + 1),
            Body::Contract(epilogue) => {
                let after = epilogue.as_ref().map_or(0, cost);
                space.saturating_mul(2).saturating_add(output.saturating_mul(after))
            }
            Body::ArgReduce { .. } | Body::Cumulative { .. } => space,
            Body::ArgSort { axis, .. } => {
                let comparisons = self.space[*axis].max(1).next_power_of_two().ilog2();
                space.saturating_mul(u64::from(comparisons))
            }
            Body::Scatter { .. } => self.operands.get(2).map_or(0, |added| added.layout.numel() as u64),
            Body::Gather { .. } | Body::Copy { .. } => 0,
            Body::Custom(_) => return None,
        })
    }

    /// The bytes of the elements that it reads, each counted once even if it is read several times.
    /// Reads at computed indices count as distinct elements, up to the number of elements.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        let bytes = |(k, operand): (usize, &Operand)| {
            let all = distinct(&operand.reach());
            let read = self.reads_at_indices(k).map_or(all, |reads| all.min(reads));
            match &operand.format {
                Some(format) => (read as f64 * format.bits_per_element() / 8.0).ceil() as u64,
                None => read * operand.dtype.size() as u64,
            }
        };
        self.operands.iter().enumerate().map(bytes).sum()
    }

    /// The number of reads of an operand at computed indices; `None` if it is read directly.
    fn reads_at_indices(&self, operand: usize) -> Option<u64> {
        let space = self.space.numel() as u64;
        if let Body::Gather { .. } = self.body {
            return (operand == 0).then_some(space);
        }
        self.operands[operand].indexed?;
        let program = self.body.program()?;
        let reads =
            |instr: &&Instr| matches!(instr, Instr::LoadAt { input, .. } if usize::from(*input) == operand);
        Some(space.saturating_mul(program.instrs.iter().filter(reads).count() as u64))
    }

    /// The bytes of its outputs.
    #[must_use]
    pub fn bytes_written(&self) -> u64 {
        self.outputs.iter().map(|output| (output.stored() * output.dtype.size()) as u64).sum()
    }
}

/// The cost of a program at one position.
fn cost(program: &Program) -> u64 {
    program.instrs.iter().map(|instr| u64::from(instr.cost())).sum()
}

/// An upper bound of the distinct elements of a layout: repeated axes count once, and overlapping
/// windows at most as much as their span.
fn distinct(layout: &Layout) -> u64 {
    let (low, high) = layout.span();
    let moving = layout.shape().iter().zip(layout.strides()).filter(|(_, stride)| **stride != 0);
    let positions = moving.fold(1u64, |n, (&size, _)| n.saturating_mul(size as u64));
    positions.min((high - low) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{base::shape::Shape, elements::dtype::DType};

    #[test]
    fn a_product_reads_its_matrices_once_and_adds_as_often_as_it_multiplies() {
        let (lhs, rhs) = (Layout::contiguous([3, 4]), Layout::contiguous([4, 5]));
        let product = Kernel::matmul(DType::F32, &lhs, &rhs);
        assert_eq!(product.flops(), Some(2 * 3 * 4 * 5));
        assert_eq!((product.bytes_read(), product.bytes_written()), (4 * (12 + 20), 4 * 15));
    }

    #[test]
    fn repeated_elements_and_overlapping_windows_count_once() {
        assert_eq!(distinct(&Layout::contiguous([1, 6]).expand(&Shape::from([100, 6]))), 6);
        assert_eq!(distinct(&Layout::contiguous([10]).unfold(0, 8, 3, 1, 1)), 10);
        assert_eq!(distinct(&Layout::contiguous([0, 5])), 0);
        let sort = Kernel::arg_sort(0, false, 2, Operand::new(DType::F32, Layout::contiguous([8])));
        assert_eq!((sort.flops(), sort.bytes_written()), (Some(8 * 3), 2 * 4));
    }
}
