//! [`Stacked`]: the matrices of all adapters of a layer, of which each row of a batch has its own.
//!
//! They stand in one tensor, and a step gathers the matrices of its rows. Sheng et al.: S-LoRA, serving
//! thousands of concurrent LoRA adapters (2023).

use std::cell::RefCell;

use tensor_core::{Error, OnDrop, Result, Tensor, set_grad_enabled};

use super::OP;

thread_local! {
    /// The numbers of the adapters of rows, while [`with_rows`] runs.
    static ROWS: RefCell<Option<Tensor>> = const { RefCell::new(None) };
}

/// Calls `f`, in which the first axis of the input of each layer has rows with the adapters `rows`:
/// integers `[N]` on the model's device, 0 for none and k + 1 for adapter k of the model's
/// [`RowAdapters`](super::lora::RowAdapters). With `None` all rows are the model's own.
pub fn with_rows<R>(rows: Option<&Tensor>, f: impl FnOnce() -> R) -> R {
    let before = ROWS.replace(rows.cloned());
    // Also after a panic.
    let _restored = OnDrop::new(move || ROWS.set(before));
    f()
}

/// The numbers of the rows' adapters that [`with_rows`] has set: a network that changes the rows between its
/// layers passes those of the new rows.
pub fn rows() -> Option<Tensor> {
    ROWS.with_borrow(Clone::clone)
}

/// The matrices of all adapters of a layer. Number 0 is zeros, for rows without an adapter.
#[derive(Clone, Debug)]
pub(super) struct Stacked {
    /// A of each, `[adapters + 1, r, in]`, with rows of zeros up to the greatest rank.
    pub(super) down: Tensor,
    /// The transposes of s · B, `[adapters + 1, r, out]`.
    pub(super) up: Tensor,
    /// The rank of each adapter; 0 if it has no part in the layer.
    ranks: Vec<usize>,
}

/// A and the transpose of s · B of an adapter, if it has a part in a layer.
pub(super) type Matrices = Option<(Tensor, Tensor)>;

impl Stacked {
    /// The matrices of these adapters as one; none if no adapter has a part in the layer.
    #[track_caller]
    pub(super) fn new(all: &[Matrices]) -> Result<Option<Stacked>> {
        let ranks: Vec<usize> =
            all.iter().map(|part| part.as_ref().map_or(0, |(down, _)| down.dims()[0])).collect();
        let rank = ranks.iter().copied().max().unwrap_or(0);
        let Some((down, up)) = all.iter().flatten().next() else { return Ok(None) };
        let stacked = |like: &Tensor, of: fn(&(Tensor, Tensor)) -> &Tensor| {
            let zeros = Tensor::zeros([rank, like.dims()[1]], (like.dtype(), &like.device()))?;
            let parts = all.iter().map(|part| match part.as_ref().map(of) {
                Some(part) => part.pad(&[(0, rank - part.dims()[0]), (0, 0)], 0.0),
                None => Ok(zeros.clone()),
            });
            Tensor::stack(&[Ok(zeros.clone())].into_iter().chain(parts).collect::<Result<Vec<_>>>()?, 0)
        };
        set_grad_enabled(false, || {
            let (down, up) = (stacked(down, |part| &part.0)?, stacked(up, |part| &part.1)?);
            Ok(Some(Stacked { down, up, ranks }))
        })
    }

    /// The matrices of each adapter.
    #[track_caller]
    pub(super) fn parts(&self) -> Result<Vec<Matrices>> {
        let part = |(at, &rank): (usize, &usize)| -> Result<Matrices> {
            let of = |all: &Tensor| all.select(0, at + 1)?.narrow(0, 0, rank);
            Ok(if rank == 0 { None } else { Some((of(&self.down)?, of(&self.up)?)) })
        };
        self.ranks.iter().enumerate().map(part).collect()
    }

    /// The layer's output `plain` for an input, with the adapters of the rows. Sums along the axes of one row
    /// have an order that does not depend on the others, which products do not promise.
    #[track_caller]
    pub(super) fn add(&self, rows: &Tensor, input: &Tensor, plain: &Tensor) -> Result<Tensor> {
        let (count, dims) = (rows.numel(), input.dims());
        if dims.len() < 2 || dims[0] != count {
            let message = format!("{count} rows have adapters, and a layer's input is {}", input.shape());
            return Err(Error::invalid(OP, message));
        }
        let inputs = self.down.dims()[2];
        let input = input.to_dtype(self.down.dtype())?.reshape([count as isize, -1, 1, inputs as isize])?;
        let down = self.down.index_select(0, rows)?.unsqueeze(1)?;
        let up = self.up.index_select(0, rows)?.unsqueeze(1)?;
        let inner = input.mul(&down)?.sum_axis(-1, true)?;
        let product = inner.mul(&up)?.sum_axis(-2, false)?;
        plain.add(&product.reshape(plain.dims())?.to_dtype(plain.dtype())?)
    }
}
