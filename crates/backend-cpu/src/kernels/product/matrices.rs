//! A contraction as a batch of matrix products: sizes, positions of elements, and the form of the products.
#![allow(unsafe_code)]

use tensor_core::{
    Layout,
    contraction::{Contraction, Loop, Loops, count},
};

use super::{
    epilogue::Epilogue,
    form::{Case, Form},
    gemm::Product,
    operands::{Distances, Strided, Update, offset},
};
use crate::{
    memory::{blocks::Blocks, buffer::Memory},
    simd::isa::Isa,
    tuning::PACK_LHS_MIN_REUSE,
};

/// A contraction as a batch of matrix products.
pub(super) struct Matrices {
    /// Whether the kernel's second operand is the left one.
    pub(super) swapped: bool,
    pub(super) batch: Loops,
    pub(super) batches: usize,
    pub(super) m: usize,
    pub(super) n: usize,
    pub(super) k: usize,
    /// The left operand's rows and terms, the right one's terms and columns.
    pub(super) lhs: [Distances; 2],
    pub(super) rhs: [Distances; 2],
    /// How the products are formed, if their elements are floats.
    pub(super) form: Form,
}

impl Matrices {
    /// The matrices of a contraction, in registers of `width` numbers; 0 if the dtype has no micro-kernels.
    pub(super) fn of(contraction: Contraction, width: usize) -> Matrices {
        let Contraction { batch, m, n, k, .. } = &contraction;
        let lhs = [Distances::of(m, |axis| axis.lhs), Distances::of(k, |axis| axis.lhs)];
        let rhs = [Distances::of(k, |axis| axis.rhs), Distances::of(n, |axis| axis.rhs)];
        Matrices {
            form: Form::of(&Case { contraction: &contraction, lhs: &lhs, rhs: &rhs, width }),
            swapped: contraction.swapped,
            batches: count(batch),
            m: count(m),
            n: count(n),
            k: count(k),
            lhs,
            rhs,
            batch: contraction.batch,
        }
    }

    /// Whether all products read one left operand, often enough that it pays to pack it once for all of
    /// them. An operand with contiguous terms is only packed for windows.
    pub(super) fn packs_left(&self) -> bool {
        let is_contiguous = matches!(self.lhs, [Distances::Even(_), Distances::Even(1)]);
        let windows = matches!(self.rhs[0], Distances::Table(_));
        let shared = self.batches > 1 && self.batch.iter().all(|axis| axis.lhs == 0);
        (windows || !is_contiguous) && shared && self.batches * self.n >= PACK_LHS_MIN_REUSE
    }

    /// Whether these are products of two matrices, no vectors among them, and not over windows that are thin.
    pub(super) fn are_large(&self) -> bool {
        self.m > 1 && self.n > 1 && !matches!(self.form, Form::FewResults(_) | Form::OneRow(_))
    }

    /// The multiplications of all products.
    pub(super) fn multiplications(&self) -> usize {
        self.batches * self.m * self.n * self.k
    }
}

/// An operand: its buffer, and the layout of its elements there.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) memory: Memory,
    pub(super) layout: &'a Layout,
    /// How its elements are read, where they are in blocks.
    pub(super) blocks: Option<Blocks<'a>>,
}

/// The operands of the products, and where their sums go.
#[derive(Clone, Copy)]
pub(super) struct Parts<'a> {
    pub(super) isa: Isa,
    pub(super) of: &'a Matrices,
    pub(super) lhs: Source<'a>,
    pub(super) rhs: Source<'a>,
    pub(super) sums: Memory,
    pub(super) epilogue: Option<&'a Epilogue<'a>>,
}

/// Product `b` of a batch.
///
/// # Safety
/// The operands' layouts and the output's size were checked against their buffers, of elements of type `T`;
/// `b` is below the number of products. The address of an operand in blocks is not read.
pub(super) unsafe fn product<'a, T>(
    of: &'a Matrices,
    lhs: Source<'_>,
    rhs: Source<'_>,
    out: Memory,
    b: usize,
) -> Product<'a, T> {
    let first = |from: Source<'_>, stride: fn(&Loop) -> isize| {
        let start = from.memory.at::<T>(0).cast_const();
        start.wrapping_offset(from.layout.offset() as isize + offset(&of.batch, b, stride))
    };
    let ([row, left_term], [right_term, column]) = (&of.lhs, &of.rhs);
    Product {
        n: of.n,
        k: of.k,
        a: Strided { at: first(lhs, |axis| axis.lhs), row: row.steps(), column: left_term.steps() },
        b: Strided { at: first(rhs, |axis| axis.rhs), row: right_term.steps(), column: column.steps() },
        to: out.at::<T>(0).wrapping_offset(offset(&of.batch, b, |axis| axis.out)),
        to_row: of.n,
        update: Update::Set,
        prepared: None,
    }
}
