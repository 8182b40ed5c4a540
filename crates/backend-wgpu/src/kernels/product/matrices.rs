//! The operands of a contraction as two matrices, with the functions that address them. Each is addressed by
//! functions of the batch, of its outer position (row or column) and of k; their sizes and strides are
//! parameters. A plain product has one axis in each, a convolution several.

use smallvec::SmallVec;
use tensor_core::{
    DType,
    contraction::{Contraction, Loop, Loops, count},
    kernel::Kernel,
};

use crate::codegen::{
    blocks::Slices,
    dispatch::{Dispatch, Params, Resource},
    dtypes::{loaded, storage_size},
    index,
    storage::Elements,
    wgsl::Code,
};

/// The axis of an operand along which four elements are read at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Dense {
    /// None: one element at a time.
    Neither,
    /// Along the result's rows or columns.
    Outer,
    /// Along k.
    Inner,
}

/// Sizes and strides of one operand along one list of axes, merged.
pub(crate) struct Axes {
    pub(crate) sizes: SmallVec<[usize; 5]>,
    strides: SmallVec<[isize; 5]>,
}

impl Axes {
    fn of(loops: &[Loop], stride: impl Fn(&Loop) -> isize) -> Axes {
        let sizes: SmallVec<[usize; 5]> = loops.iter().map(|axis| axis.size).collect();
        let strides: SmallVec<[isize; 5]> = loops.iter().map(stride).collect();
        let merged = tensor_core::collapse(&sizes, &[&strides]);
        Axes { sizes: merged.shape, strides: merged.strides[0].iter().copied().collect() }
    }

    /// Whether neighbours are contiguous, in whole vectors of four.
    fn dense(&self) -> bool {
        let fours = |(&last, rest): (&isize, &[isize])| last == 1 && rest.iter().all(|s| s % 4 == 0);
        self.strides.split_last().is_some_and(fours) && self.sizes.last().is_some_and(|n| n % 4 == 0)
    }

    /// Whether all strides are multiples of a number.
    fn steps_by(&self, unit: usize) -> bool {
        self.strides.iter().all(|s| s.unsigned_abs().is_multiple_of(unit))
    }

    /// The length of the contiguous runs of neighbours.
    fn run(&self) -> usize {
        match (self.sizes.last(), self.strides.last()) {
            (Some(&size), Some(1)) => size,
            _ => 1,
        }
    }
}

/// One operand of a contraction.
pub(crate) struct Side {
    pub(crate) name: &'static str,
    offset: usize,
    batch: Axes,
    pub(crate) outer: Axes,
    pub(crate) inner: Axes,
    pub(crate) dense: Dense,
    elements: Elements,
    /// The slices of its blocks, if its format has them.
    pub(crate) slices: Option<Slices>,
}

impl Side {
    fn new(
        name: &'static str,
        kernel: &Kernel,
        operand: usize,
        [batch, outer, inner]: [&Loops; 3],
        stride: impl Fn(&Loop) -> isize,
    ) -> Side {
        let offset = kernel.operands[operand].layout.offset();
        let [batch, outer, inner] = [batch, outer, inner].map(|loops| Axes::of(loops, &stride));
        let vectors = storage_size(kernel.operands[operand].dtype) <= 4
            && offset.is_multiple_of(4)
            && batch.steps_by(4);
        let dense = match () {
            () if vectors && inner.dense() && outer.steps_by(4) => Dense::Inner,
            () if vectors && outer.dense() && inner.steps_by(4) => Dense::Outer,
            () => Dense::Neither,
        };
        let elements = Elements::of_operand(&kernel.operands[operand]).in_fours(dense != Dense::Neither);
        // Slices are decoded in f32.
        let format = kernel.operands[operand].format.as_deref();
        let slices = format.filter(|_| elements.loads("f32")).and_then(Slices::of);
        Side { name, offset, batch, outer, inner, dense, elements, slices }
    }

    /// Whether the elements of each position along batch and outer axes are one run along k that begins at a
    /// multiple of `unit`.
    pub(crate) fn begins_at(&self, unit: usize) -> bool {
        self.inner.sizes.len() == 1
            && self.offset.is_multiple_of(unit)
            && self.batch.steps_by(unit)
            && self.outer.steps_by(unit)
    }

    /// Whether it is stored in blocks of a format.
    pub(crate) fn is_in_blocks(&self) -> bool {
        matches!(self.elements, Elements::Blocks { .. })
    }

    /// Whether its longest runs are along its outer axes.
    pub(crate) fn runs_along_outer(&self) -> bool {
        self.outer.run() > self.inner.run()
    }

    /// The functions `<name>_batch`, `<name>_outer` and `<name>_inner` from positions to offsets in the
    /// buffer; the offset of an element is their sum.
    fn functions(&self, params: &mut Params, c: &mut Code) {
        const NAMES: [[&str; 3]; 2] =
            [["lhs_batch", "lhs_outer", "lhs_inner"], ["rhs_batch", "rhs_outer", "rhs_inner"]];
        let [batch, outer, inner] = NAMES[usize::from(self.name == "rhs")];
        let mut function = |name, axes: &Axes, offset| {
            c.append(&index::function(name, &axes.sizes, &axes.strides, offset, params));
        };
        function(batch, &self.batch, self.offset);
        function(outer, &self.outer, 0);
        function(inner, &self.inner, 0);
    }
}

/// A contraction, with the sizes of its matrices.
pub(crate) struct Product {
    pub(crate) dtype: DType,
    swapped: bool,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) batch: usize,
    pub(crate) lhs: Side,
    pub(crate) rhs: Side,
}

impl Product {
    /// The product of a kernel, if it is a contraction.
    pub(crate) fn of(kernel: &Kernel) -> Option<Product> {
        let Contraction { swapped, batch, m, n, k } = Contraction::of(kernel)?;
        let left = usize::from(swapped);
        Some(Product {
            dtype: kernel.operands[0].dtype,
            swapped,
            m: count(&m),
            n: count(&n),
            k: count(&k),
            batch: count(&batch),
            lhs: Side::new("lhs", kernel, left, [&batch, &m, &k], |axis| axis.lhs),
            rhs: Side::new("rhs", kernel, 1 - left, [&batch, &n, &k], |axis| axis.rhs),
        })
    }

    /// A dispatch with the parameters that every variant needs, its operands bound, and the addressing
    /// functions.
    pub(crate) fn dispatch(&self) -> Dispatch {
        self.dispatch_with(|side| side.elements.clone())
    }

    /// The same for operands of f16 that are loaded as such.
    pub(crate) fn dispatch_in_f16(&self) -> Dispatch {
        self.dispatch_with(|side| Elements::words("f16").in_fours(side.dense != Dense::Neither))
    }

    fn dispatch_with(&self, elements: impl Fn(&Side) -> Elements) -> Dispatch {
        let mut d = Dispatch::new("matmul");
        for (name, size) in [("m", self.m), ("n", self.n), ("k", self.k)] {
            d.params.size(name, size);
        }
        d.code.line(format_args!("alias T = {};", loaded(self.dtype)));
        let left = usize::from(self.swapped);
        for (side, input) in [(&self.lhs, left), (&self.rhs, 1 - left)] {
            side.functions(&mut d.params, &mut d.code);
            d.bind(side.name, elements(side), false, Resource::Input(input));
        }
        d
    }
}
