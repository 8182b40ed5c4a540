//! The forms of the products of a contraction of floats: which of them fits, what it costs, and how it
//! runs.
#![allow(unsafe_code)]

use std::ops::Range;

use tensor_core::{
    Result,
    contraction::{Contraction, Loop, count},
};

use super::{
    dots,
    epilogue::Finish,
    gemm::Product,
    gemv::VectorProduct,
    kernel_table::HasMicroKernels,
    operands::{Distances, Strided},
    thin,
};
use crate::{
    forms::Special,
    simd::isa::Isa,
    tuning::{DOTS_MAX_EVEN_ROWS, DOTS_MAX_ROWS, MIN_LOOP_ELEMENTS, THIN_MAX_RESULTS},
};

/// How the products of a contraction are formed.
pub(super) enum Form {
    /// A few results, each summed by itself: this many terms at a time are contiguous in both operands.
    FewResults(usize),
    /// One row, whose columns are contiguous in runs: where each begins, and the end of the last.
    OneRow(Vec<usize>),
    /// Sums over windows, in registers of terms that are contiguous in both operands.
    AlongTerms(dots::Terms),
    /// A vector times a matrix.
    Vector,
    /// Micro-tiles of rows and panels of columns.
    Gemm,
}

/// A contraction whose form is to be found.
pub(super) struct Case<'a> {
    pub(super) contraction: &'a Contraction,
    /// The left operand's rows and terms, the right one's terms and columns.
    pub(super) lhs: &'a [Distances; 2],
    pub(super) rhs: &'a [Distances; 2],
    /// Numbers in a register; 0 if the dtype has no micro-kernels.
    pub(super) width: usize,
}

impl Case<'_> {
    fn has_few_results(&self) -> bool {
        let Contraction { m, n, k, .. } = self.contraction;
        count(m) * count(n) <= THIN_MAX_RESULTS && k.len() > 1
    }

    /// The innermost axis of the terms, if it is long and contiguous in both operands.
    fn contiguous_terms(&self) -> Option<&Loop> {
        let inner = self.contraction.k.last();
        inner.filter(|axis| axis.lhs == 1 && axis.rhs == 1 && axis.size >= MIN_LOOP_ELEMENTS)
    }
}

impl Form {
    /// The form of a contraction: the first that fits, and [`Form::Gemm`] if none of these does.
    pub(super) fn of(case: &Case<'_>) -> Form {
        type Fits = fn(&Case<'_>) -> Option<Form>;
        const SPECIAL: [(Special, Fits); 4] = [
            (Special::FewResults, Form::few_results),
            (Special::OneRow, Form::one_row),
            (Special::AlongTerms, Form::along_terms),
            (Special::Vector, Form::vector),
        ];
        let mut all = SPECIAL.iter().filter(|(special, _)| special.is_on());
        all.find_map(|(_, fits)| fits(case)).unwrap_or(Form::Gemm)
    }

    fn few_results(case: &Case<'_>) -> Option<Form> {
        case.contiguous_terms().filter(|_| case.has_few_results()).map(|axis| Form::FewResults(axis.size))
    }

    fn one_row(case: &Case<'_>) -> Option<Form> {
        let Distances::Table(table) = &case.rhs[1] else { return None };
        if !case.contraction.m.is_empty() {
            return None;
        }
        let starts = (0..table.len()).filter(|&j| j == 0 || table[j] != table[j - 1] + 1);
        let runs: Vec<usize> = starts.chain([table.len()]).collect();
        ((runs.len() - 1) * MIN_LOOP_ELEMENTS <= table.len()).then_some(Form::OneRow(runs))
    }

    fn along_terms(case: &Case<'_>) -> Option<Form> {
        let Contraction { m, n, k, .. } = case.contraction;
        case.contiguous_terms()?;
        // Columns at even distances are packed fast, which is worth it for more rows.
        let rows = if n.len() > 1 { 1..=DOTS_MAX_ROWS } else { 2..=DOTS_MAX_EVEN_ROWS };
        if case.width == 0 || case.has_few_results() || count(n) == 1 || !rows.contains(&count(m)) {
            return None;
        }
        let terms = dots::Terms::of(case.width, count(k), case.lhs[1].steps(), case.rhs[0].steps());
        terms.map(Form::AlongTerms)
    }

    fn vector<'a>(case: &Case<'a>) -> Option<Form> {
        let Contraction { m, n, .. } = case.contraction;
        let strided = |[row, column]: &'a [Distances; 2]| {
            let at: *const u8 = std::ptr::null();
            Strided { at, row: row.steps(), column: column.steps() }
        };
        let vector = VectorProduct::of(count(m), count(n), &strided(case.lhs), &strided(case.rhs));
        vector.map(|_| Form::Vector)
    }

    /// Whether threads share the rectangles of a product, which are finished tile by tile.
    pub(super) fn is_cut(&self) -> bool {
        match self {
            Form::AlongTerms(_) | Form::Gemm => true,
            Form::FewResults(_) | Form::OneRow(_) | Form::Vector => false,
        }
    }

    /// An estimate of the time that a rectangle takes, in products of a row with a register of columns.
    pub(super) fn cost<T: HasMicroKernels>(&self, of: &Product<'_, T>, rows: usize, columns: usize) -> usize {
        match self {
            Form::AlongTerms(_) => rows * columns,
            Form::FewResults(_) | Form::OneRow(_) | Form::Vector | Form::Gemm => of.cost(rows, columns),
        }
    }

    /// Forms a rectangle of a product; a whole one of `m` rows, unless it [is cut](Form::is_cut).
    ///
    /// # Errors
    /// The errors of `finish`.
    ///
    /// # Safety
    /// As [`Product::run`]. The form is the product's; unless it [is cut](Form::is_cut), the rectangle is the
    /// whole product, whose results are contiguous.
    pub(super) unsafe fn run<T: HasMicroKernels>(
        &self,
        isa: Isa,
        product: Product<'_, T>,
        rows: Range<usize>,
        columns: Range<usize>,
        finish: Option<Finish<'_>>,
    ) -> Result<()> {
        let m = rows.len();
        // SAFETY: the product is as `# Safety` asks. The terms, runs and strides are as the form found them,
        // which is what `dots`, `thin` and `VectorProduct` ask; forms that are not cut get a whole product.
        unsafe {
            match self {
                Form::AlongTerms(terms) if terms.are_for::<T>(isa) => {
                    return dots::run(isa, &product, terms, rows, columns, finish);
                }
                Form::AlongTerms(_) | Form::Gemm => {
                    return product.run(isa, rows, columns, finish);
                }
                Form::FewResults(run) => thin::dots(isa, product, m, *run),
                Form::OneRow(runs) => thin::row(isa, product, runs),
                Form::Vector => match VectorProduct::of(m, product.n, &product.a, &product.b) {
                    Some(vector) => vector.run(isa, product.k, product.to, m * product.n),
                    None => return product.run(isa, rows, columns, finish),
                },
            }
        }
        Ok(())
    }
}
