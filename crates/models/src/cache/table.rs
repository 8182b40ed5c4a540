//! The keys, or the values, of many positions, packed if that was asked for.

use tensor_core::{DType, Error, PackedRows, Result, Tensor};

use super::{NO_ROWS, OP, padded, select_rows};

/// Rows `[N, heads, rows, E]` that keep their numbers for long.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// The rows, or the tensors that hold them packed.
    parts: Vec<Tensor>,
    packed: Option<PackedRows>,
    /// The dtype in which the rows came.
    dtype: DType,
}

impl Table {
    /// A table of rows as they are.
    pub(super) fn plain(rows: &Tensor) -> Table {
        Table { parts: vec![rows.detach()], packed: None, dtype: rows.dtype() }
    }

    /// This table in a form. Rows that are packed stay so.
    #[track_caller]
    fn in_form(&self, packed: Option<PackedRows>) -> Result<Table> {
        match (packed, self.packed) {
            (Some(form), None) => Ok(Table { parts: form.pack(&self.parts[0])?, packed, dtype: self.dtype }),
            (_, Some(_)) | (None, None) => Ok(self.clone()),
        }
    }

    /// As many rows that are not in use, for texts and heads of rows `[N, heads, L, E]`.
    #[track_caller]
    pub(super) fn unused(like: &Tensor, rows: usize, packed: Option<PackedRows>) -> Result<Table> {
        let &[batch, heads, _, width] = like.dims() else { return Err(Error::invalid(OP, NO_ROWS)) };
        let (dtype, device) = (like.dtype(), like.device());
        let parts = packed.map_or(Ok(vec![(dtype, width)]), |packed| packed.parts(width))?;
        let zeros = |(dtype, last)| Tensor::zeros([batch, heads, rows, last], (dtype, &device));
        Ok(Table { parts: parts.into_iter().map(zeros).collect::<Result<_>>()?, packed, dtype })
    }

    /// A tensor of rows that are not in use, for the same texts and heads.
    #[track_caller]
    pub(super) fn no_rows(&self, rows: usize) -> Result<Tensor> {
        let &[batch, heads, _, last] = self.parts[0].dims() else { return Err(Error::invalid(OP, NO_ROWS)) };
        let width = self.packed.map_or(last, |packed| packed.width(last));
        Tensor::zeros([batch, heads, rows, width], (self.dtype, &self.parts[0].device()))
    }

    /// The rows of all tables in a form.
    #[track_caller]
    pub(super) fn joined(tables: &[Table], axis: usize, packed: Option<PackedRows>) -> Result<Table> {
        let tables = tables.iter().map(|table| table.in_form(packed)).collect::<Result<Vec<_>>>()?;
        let Some(first) = tables.first() else { return Err(Error::invalid(OP, NO_ROWS)) };
        let part = |k: usize| {
            let all: Vec<&Tensor> = tables.iter().map(|table| &table.parts[k]).collect();
            Tensor::concat(&all, axis as isize)
        };
        let parts = (0..first.parts.len()).map(part).collect::<Result<_>>()?;
        Ok(Table { parts, packed: first.packed, dtype: first.dtype })
    }

    #[track_caller]
    fn each(&self, change: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Table> {
        Ok(Table { parts: self.parts.iter().map(change).collect::<Result<_>>()?, ..*self })
    }

    /// Some of the rows.
    #[track_caller]
    pub(super) fn narrow(&self, first: usize, count: usize) -> Result<Table> {
        self.each(|part| part.narrow(2, first, count))
    }

    /// The rows, and others that are not in use up to a capacity.
    #[track_caller]
    pub(super) fn padded(&self, capacity: usize) -> Result<Table> {
        self.each(|part| padded(part, capacity))
    }

    /// The rows after `count` zeros.
    #[track_caller]
    pub(super) fn after_zeros(&self, count: usize) -> Result<Table> {
        self.each(|part| part.pad(&[(0, 0), (0, 0), (count, 0), (0, 0)], 0.0))
    }

    /// The rows of these texts.
    #[track_caller]
    pub(super) fn select(&self, texts: &[usize]) -> Result<Table> {
        self.each(|part| select_rows(part, texts))
    }

    /// The numbers of the rows, `[N, heads, rows, E]`.
    #[track_caller]
    pub(super) fn numbers(&self) -> Result<Tensor> {
        match self.packed {
            Some(packed) => packed.unpack(&self.parts)?.to_dtype(self.dtype),
            None => Ok(self.parts[0].clone()),
        }
    }

    pub(super) fn parts(&self) -> &[Tensor] {
        &self.parts
    }

    pub(super) fn packed(&self) -> Option<PackedRows> {
        self.packed
    }

    pub(super) fn dtype(&self) -> DType {
        self.dtype
    }

    /// The number of texts.
    pub(super) fn texts(&self) -> usize {
        self.parts[0].dims()[0]
    }

    /// The number of rows, in use or not.
    pub(super) fn rows(&self) -> usize {
        self.parts[0].dims()[2]
    }
}
