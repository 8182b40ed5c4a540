//! [`InputStatistics`]: sums over the inputs that a layer is given, while they are measured.

use tensor_core::{DType, Result, Tensor, eval_all};

/// Statistics of the inputs of a layer, over all rows that it was given.
#[derive(Clone, Debug)]
pub struct InputStatistics {
    /// The mean of the square of each input: `[in]`.
    pub mean_square: Tensor,
    /// The mean of the magnitude of each input: `[in]`.
    pub mean_magnitude: Tensor,
    /// The mean of the product of each two inputs, Xᵀ·X divided by the rows: `[in, in]`. Half the Hessian
    /// of the mean squared change of an output, by the weights of its row.
    pub mean_products: Option<Tensor>,
    /// The number of rows.
    pub rows: usize,
}

/// Sums over the rows of a layer's inputs so far.
pub(super) struct Measured {
    wants_products: bool,
    /// The sums of squares, of magnitudes and, if they are wanted, of products.
    sums: Option<Vec<Tensor>>,
    rows: usize,
}

impl Measured {
    pub(super) fn new(wants_products: bool) -> Measured {
        Measured { wants_products, sums: None, rows: 0 }
    }

    /// Adds the rows of an input `[…, in]`.
    #[track_caller]
    pub(super) fn add(&mut self, input: &Tensor) -> Result<()> {
        if input.numel() == 0 {
            return Ok(());
        }
        let features = input.dims().last().copied().unwrap_or(1);
        let rows = input.numel() / features;
        let x = input.detach().to_dtype(DType::F32)?.reshape([rows, features])?;
        let mut sums = vec![x.square().sum_axis(0, false)?, x.abs().sum_axis(0, false)?];
        if self.wants_products {
            sums.push(x.t()?.matmul(&x)?);
        }
        if let Some(before) = &self.sums {
            sums = before.iter().zip(&sums).map(|(a, b)| a.add(b)).collect::<Result<_>>()?;
        }
        eval_all(&sums.iter().collect::<Vec<_>>())?;
        (self.sums, self.rows) = (Some(sums), self.rows + rows);
        Ok(())
    }

    /// The means, if there were any rows.
    pub(super) fn means(&self) -> Option<InputStatistics> {
        let (sums, rows) = (self.sums.as_ref()?, self.rows);
        let mean = |k: usize| sums.get(k).map(|sum| sum.mul_scalar(1.0 / rows as f64));
        Some(InputStatistics {
            mean_square: mean(0)?,
            mean_magnitude: mean(1)?,
            mean_products: mean(2),
            rows,
        })
    }
}
