//! Combining several tensors: stacking, broadcasting, grids, and products of sets.

use crate::base::{
    error::{Error, Result},
    shape::Shape,
};
use crate::tensor::{Tensor, creation::create::host_index, shape::movement::references};

/// The order of the first two axes in [`Tensor::meshgrid`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MeshIndexing {
    /// Matrix indexing, by row and column: the first tensor varies along axis 0. PyTorch's default.
    #[default]
    Ij,
    /// Cartesian indexing, by x and y, as in NumPy: the first tensor varies along axis 1.
    Xy,
}

/// The first tensor of a list, which must not be empty and must be on one device.
#[track_caller]
pub(in crate::tensor) fn first_of<'a>(op: &'static str, tensors: &[&'a Tensor]) -> Result<&'a Tensor> {
    let Some(first) = tensors.first() else {
        return Err(Error::invalid(op, "no tensors are given; give at least one"));
    };
    Tensor::same_device(op, tensors)?;
    Ok(first)
}

impl Tensor {
    /// The tensor with leading axes of size 1 added until the rank is at least `rank`.
    #[track_caller]
    pub(in crate::tensor) fn with_lead(&self, rank: usize) -> Tensor {
        let missing = rank.saturating_sub(self.rank());
        self.reshape_unchecked(std::iter::repeat_n(1, missing).chain(self.dims().iter().copied()).collect())
    }

    /// Tensors concatenated along axis 1, or along axis 0 if they have fewer than two axes.
    /// `torch.hstack`.
    ///
    /// # Errors
    /// As [`Tensor::concat`].
    #[track_caller]
    pub fn hstack<T: AsRef<Tensor>>(tensors: &[T]) -> Result<Tensor> {
        let tensors = references(tensors);
        let rank = first_of("hstack", &tensors)?.rank();
        let wide: Vec<Tensor> = tensors.iter().map(|tensor| tensor.with_lead(1)).collect();
        Tensor::concat(&wide, usize::from(rank > 1))
    }

    /// Tensors concatenated along axis 0, with vectors as rows. `torch.vstack`.
    ///
    /// # Errors
    /// As [`Tensor::concat`].
    #[track_caller]
    #[doc(alias = "row_stack")]
    pub fn vstack<T: AsRef<Tensor>>(tensors: &[T]) -> Result<Tensor> {
        let tensors = references(tensors);
        first_of("vstack", &tensors)?;
        let wide: Vec<Tensor> = tensors.iter().map(|tensor| tensor.with_lead(2)).collect();
        Tensor::concat(&wide, 0)
    }

    /// Tensors concatenated along axis 2, with `[n]` as `[1, n, 1]` and `[m, n]` as `[m, n, 1]`.
    /// `torch.dstack`.
    ///
    /// # Errors
    /// As [`Tensor::concat`].
    #[track_caller]
    pub fn dstack<T: AsRef<Tensor>>(tensors: &[T]) -> Result<Tensor> {
        let tensors = references(tensors);
        first_of("dstack", &tensors)?;
        let mut deep = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let matrix = tensor.with_lead(2);
            deep.push(if matrix.rank() == 2 { matrix.unsqueeze(-1)? } else { matrix });
        }
        Tensor::concat(&deep, 2)
    }

    /// [`Tensor::hstack`] with vectors and scalars as columns. `torch.column_stack`.
    ///
    /// # Errors
    /// As [`Tensor::concat`].
    #[track_caller]
    pub fn column_stack<T: AsRef<Tensor>>(tensors: &[T]) -> Result<Tensor> {
        let tensors = references(tensors);
        first_of("column_stack", &tensors)?;
        let column = |t: &&Tensor| {
            if t.rank() < 2 { t.reshape_unchecked([t.numel(), 1].into()) } else { (*t).clone() }
        };
        let columns: Vec<Tensor> = tensors.iter().map(column).collect();
        Tensor::concat(&columns, 1)
    }

    /// The tensors broadcast to one shape, as views. `torch.broadcast_tensors`.
    ///
    /// # Errors
    /// Shapes that do not broadcast.
    #[track_caller]
    pub fn broadcast_tensors<T: AsRef<Tensor>>(tensors: &[T]) -> Result<Vec<Tensor>> {
        let tensors = references(tensors);
        let mut shape = Shape::scalar();
        for tensor in &tensors {
            shape = shape.broadcast(tensor.shape(), "broadcast_tensors")?;
        }
        Ok(tensors.iter().map(|tensor| tensor.expand_unchecked(shape.clone())).collect())
    }

    /// The coordinates of a grid: vectors of sizes n₁, n₂, … are each broadcast to `[n₁, n₂, …]` along
    /// their own axes, as views. `torch.meshgrid`. With [`MeshIndexing::Xy`] the first two axes are
    /// exchanged.
    ///
    /// # Errors
    /// An empty list, tensors of more than one axis, several dtypes or devices.
    #[track_caller]
    pub fn meshgrid<T: AsRef<Tensor>>(tensors: &[T], indexing: MeshIndexing) -> Result<Vec<Tensor>> {
        Tensor::meshgrid_by("meshgrid", &references(tensors), indexing)
    }

    #[track_caller]
    fn meshgrid_by(op: &'static str, tensors: &[&Tensor], indexing: MeshIndexing) -> Result<Vec<Tensor>> {
        let first = first_of(op, tensors)?;
        for (i, tensor) in tensors.iter().enumerate() {
            if tensor.rank() > 1 {
                let message = format!("tensor {i} has the shape {}: give vectors", tensor.shape());
                return Err(Error::invalid(op, message));
            }
            if tensor.dtype() != first.dtype() {
                let hint = format!("tensor {i} is of another dtype than tensor 0: cast it with .to_dtype");
                return Err(crate::tensor::dtype_misfit(op, first.dtype(), tensor.dtype(), hint));
            }
        }
        let whole = tensors.iter().map(|tensor| tensor.numel()).collect::<Shape>().checked(op)?;
        let mut grid = Vec::with_capacity(tensors.len());
        for (axis, tensor) in tensors.iter().enumerate() {
            let line = (0..tensors.len()).map(|a| if a == axis { tensor.numel() } else { 1 }).collect();
            let spread = tensor.reshape_unchecked(line).expand_unchecked(whole.clone());
            grid.push(match indexing {
                MeshIndexing::Xy if tensors.len() > 1 => spread.transpose(0, 1)?,
                MeshIndexing::Ij | MeshIndexing::Xy => spread,
            });
        }
        Ok(grid)
    }

    /// Every choice of one element from each vector, one per row, the last element varying fastest:
    /// `[n₁·n₂·…, k]` for k vectors. A single vector is returned as it is. `torch.cartesian_prod`.
    ///
    /// # Errors
    /// As [`Tensor::meshgrid`].
    #[track_caller]
    pub fn cartesian_prod<T: AsRef<Tensor>>(tensors: &[T]) -> Result<Tensor> {
        let grid = Tensor::meshgrid_by("cartesian_prod", &references(tensors), MeshIndexing::Ij)?;
        let flat: Vec<Tensor> = grid.iter().map(Tensor::flatten_all).collect();
        match flat.as_slice() {
            [alone] => Ok(alone.clone()),
            several => Tensor::stack(several, 1),
        }
    }

    /// Every choice of `r` elements of a vector, in their order, one choice per row: `[C(n, r), r]`.
    /// With `with_replacement`, an element may occur several times. `torch.combinations`; its defaults
    /// are 2 without replacement.
    ///
    /// # Errors
    /// A tensor that is not a vector, or too many choices to index.
    #[track_caller]
    pub fn combinations(&self, r: usize, with_replacement: bool) -> Result<Tensor> {
        const OP: &str = "combinations";
        let &[n] = self.dims() else {
            return Err(Error::invalid(OP, format!("shape {} is no vector; flatten it", self.shape())));
        };
        if r == 0 {
            return Ok(self.slice_unchecked(0, 0, 0, 1));
        }
        // The number is C(n + r − 1, r) with replacement, C(n, r) without.
        let of = if with_replacement { (n + r).saturating_sub(1) } else { n };
        let mut count = 1u128;
        for k in 0..r as u128 {
            count = count.saturating_mul((of as u128).saturating_sub(k)) / (k + 1);
            if count.saturating_mul(r as u128) > i32::MAX as u128 {
                return Err(Error::invalid(
                    OP,
                    format!("{r} of {n} elements: more choices than indices reach"),
                ));
            }
        }
        let mut places = Vec::with_capacity(count as usize * r);
        let mut choice: Vec<usize> = (0..r).map(|k| if with_replacement { 0 } else { k }).collect();
        for _ in 0..count {
            places.extend(&choice);
            // Increments the last position that can grow; the later ones follow from it.
            let limit = |k: usize| if with_replacement { n } else { n - (r - 1 - k) };
            let Some(k) = (0..r).rev().find(|&k| choice[k] + 1 < limit(k)) else { break };
            let next = choice[k] + 1;
            for (after, place) in choice[k..].iter_mut().enumerate() {
                *place = if with_replacement { next } else { next + after };
            }
        }
        let index = host_index(&places, Shape::from([places.len()]), &self.device())?;
        Ok(self.index_select(0, &index)?.reshape_unchecked([count as usize, r].into()))
    }
}
