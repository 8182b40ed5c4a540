//! Views and other movements of elements.

use pyo3::{prelude::*, types::PyTuple};
use taper::Tensor;

use super::methods;
use crate::{
    args::{Ints, axis, built, values},
    errors::runtime,
    tensor::{PyTensor, made, run},
    view::{Part, Recipe},
};

/// Sizes with at most one -1, which takes what is left.
fn sizes(asked: &[isize], x: &Tensor) -> PyResult<Vec<usize>> {
    let known: isize = asked.iter().filter(|&&size| size != -1).product();
    let open = asked.iter().filter(|&&size| size == -1).count();
    let numel = x.numel() as isize;
    let fits = match open {
        0 => known == numel,
        1 => known > 0 && numel % known == 0,
        _ => return Err(runtime("only one dimension can be inferred")),
    };
    if open == 1 && known == 0 {
        return Err(runtime(format!(
            "cannot reshape tensor of 0 elements into shape {asked:?} because the unspecified dimension size -1 can be \
             any value and is ambiguous"
        )));
    }
    if !fits || asked.iter().any(|&size| size < -1) {
        return Err(runtime(format!("shape '{asked:?}' is invalid for input of size {numel}")));
    }
    Ok(asked.iter().map(|&size| if size == -1 { numel / known } else { size } as usize).collect())
}

impl PyTensor {
    fn permuted(&self, order: Vec<usize>, name: &'static str) -> PyResult<PyTensor> {
        self.view_by(Recipe::Permute(order), name)
    }

    /// A view with other sizes.
    pub(crate) fn reshaped(&self, dims: Vec<usize>, name: &'static str) -> PyResult<PyTensor> {
        self.view_by(Recipe::Reshape(dims), name)
    }

    /// A part along one axis.
    fn part(&self, dim: usize, part: Part, name: &'static str) -> PyResult<PyTensor> {
        let x = self.read()?;
        let whole = |&len: &usize| Part::Slice { start: 0, len, step: 1 };
        let mut parts: Vec<Part> = x.dims()[..dim].iter().map(whole).collect();
        parts.push(part);
        self.view_by(Recipe::Index(parts), name)
    }

    /// Parts of these sizes along an axis.
    fn parts(&self, lengths: &[usize], dim: usize, name: &'static str) -> PyResult<Vec<PyTensor>> {
        let mut start = 0;
        let mut parts = Vec::with_capacity(lengths.len());
        for &len in lengths {
            parts.push(self.part(dim, Part::Slice { start, len, step: 1 }, name)?);
            start += len;
        }
        Ok(parts)
    }

    fn swapped(&self, dim0: isize, dim1: isize, name: &'static str) -> PyResult<PyTensor> {
        let rank = self.read()?.rank();
        let (a, b) = (axis(dim0, rank, 0)?, axis(dim1, rank, 0)?);
        let mut order: Vec<usize> = (0..rank).collect();
        if rank > 0 {
            order.swap(a, b);
        }
        self.permuted(order, name)
    }
}

#[pymethods]
impl PyTensor {
    /// The same elements in order with other sizes, as a view or not at all.
    #[pyo3(signature = (*size))]
    fn _view(&self, size: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let x = self.read()?;
        let dims = sizes(&Ints::of(size)?.0, &x)?;
        if self.place().strided(x.dims()).reshaped(x.dims(), &dims).is_none() {
            return Err(runtime(
                "view size is not compatible with input tensor's size and stride (at least one dimension spans across two \
                 contiguous subspaces). Use .reshape(...) instead.",
            ));
        }
        self.reshaped(dims, "ViewBackward0")
    }

    /// As `view`; a copy where a view cannot be.
    #[pyo3(signature = (*shape))]
    fn _reshape(&self, py: Python<'_>, shape: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let x = self.read()?;
        let dims = sizes(&Ints::of(shape)?.0, &x)?;
        match self.place().strided(x.dims()).reshaped(x.dims(), &dims) {
            Some(_) => self.reshaped(dims, "ViewBackward0"),
            None => made(py, "UnsafeViewBackward0", move || x.reshape(dims)),
        }
    }

    #[pyo3(signature = (*dims))]
    fn permute(&self, dims: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let rank = self.read()?.rank();
        let asked = Ints::of(dims)?.0;
        if asked.len() != rank {
            return Err(runtime(format!(
                "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired \
                 ordering of dimensions i.e. input.dim() = {rank} is not equal to len(dims) = {}",
                asked.len()
            )));
        }
        let order = asked.iter().map(|&dim| axis(dim, rank, 0)).collect::<PyResult<Vec<_>>>()?;
        if (0..rank).any(|axis| !order.contains(&axis)) {
            return Err(runtime("permute(): duplicate dims are not allowed."));
        }
        self.permuted(order, "PermuteBackward0")
    }

    fn transpose(&self, dim0: isize, dim1: isize) -> PyResult<PyTensor> {
        self.swapped(dim0, dim1, "TransposeBackward0")
    }

    fn t(&self) -> PyResult<PyTensor> {
        match self.read()?.rank() {
            2 => self.swapped(0, 1, "TBackward0"),
            rank if rank < 2 => self.permuted((0..rank).collect(), "TBackward0"),
            rank => Err(runtime(format!("t() expects a tensor with <= 2 dimensions, but self is {rank}D"))),
        }
    }

    #[getter]
    #[pyo3(name = "T")]
    fn reversed(&self) -> PyResult<PyTensor> {
        let rank = self.read()?.rank();
        self.permuted((0..rank).rev().collect(), "PermuteBackward0")
    }

    #[getter]
    #[pyo3(name = "mT")]
    fn matrix_transposed(&self) -> PyResult<PyTensor> {
        if self.read()?.rank() < 2 {
            return Err(runtime("tensor.mT is only supported on matrices or batches of matrices."));
        }
        self.swapped(-2, -1, "TransposeBackward0")
    }

    fn movedim(&self, source: Ints, destination: Ints) -> PyResult<PyTensor> {
        let rank = self.read()?.rank();
        let all = |dims: &Ints| dims.0.iter().map(|&dim| axis(dim, rank, 0)).collect::<PyResult<Vec<_>>>();
        let (from, to) = (all(&source)?, all(&destination)?);
        if from.len() != to.len() {
            return Err(runtime(
                "movedim: Invalid source or destination dims: source and destination must have the same number of elements",
            ));
        }
        let repeated = |dims: &[usize]| dims.iter().enumerate().any(|(k, dim)| dims[..k].contains(dim));
        if repeated(&from) || repeated(&to) {
            return Err(runtime("movedim: repeated dim in `source` or `destination`"));
        }
        let mut others = (0..rank).filter(|axis| !from.contains(axis));
        let order = (0..rank)
            .filter_map(|at| match to.iter().position(|&axis| axis == at) {
                Some(k) => Some(from[k]),
                None => others.next(),
            })
            .collect::<Vec<_>>();
        if order.len() != rank || (0..rank).any(|axis| !order.contains(&axis)) {
            return Err(runtime("movedim: repeated dim in `source` or `destination`"));
        }
        self.permuted(order, "PermuteBackward0")
    }

    #[pyo3(signature = (dim = None))]
    fn squeeze(&self, dim: Option<Ints>) -> PyResult<PyTensor> {
        let x = self.read()?;
        let among = match dim {
            Some(dims) => dims.0.iter().map(|&dim| axis(dim, x.rank(), 0)).collect::<PyResult<Vec<_>>>()?,
            None => (0..x.rank()).collect(),
        };
        let kept = x.dims().iter().enumerate().filter(|(axis, size)| **size != 1 || !among.contains(axis));
        self.reshaped(kept.map(|(_, &size)| size).collect(), "SqueezeBackward0")
    }

    fn unsqueeze(&self, dim: isize) -> PyResult<PyTensor> {
        let x = self.read()?;
        let mut dims = x.dims().to_vec();
        dims.insert(axis(dim, x.rank(), 1)?, 1);
        self.reshaped(dims, "UnsqueezeBackward0")
    }

    #[pyo3(signature = (start_dim = 0, end_dim = -1))]
    fn flatten(&self, py: Python<'_>, start_dim: isize, end_dim: isize) -> PyResult<PyTensor> {
        let x = self.read()?;
        if x.rank() == 0 {
            return self.reshaped(vec![1], "ViewBackward0");
        }
        let (start, end) = (axis(start_dim, x.rank(), 0)?, axis(end_dim, x.rank(), 0)?);
        if start > end {
            return Err(runtime("flatten() has invalid args: start_dim cannot come after end_dim"));
        }
        let mut dims = x.dims().to_vec();
        dims.splice(start..=end, [x.dims()[start..=end].iter().product()]);
        match self.place().strided(x.dims()).reshaped(x.dims(), &dims) {
            Some(_) => self.reshaped(dims, "ViewBackward0"),
            None => made(py, "UnsafeViewBackward0", move || x.reshape(dims)),
        }
    }

    fn unflatten(&self, dim: isize, sizes: Ints) -> PyResult<PyTensor> {
        let x = self.read()?;
        let at = axis(dim, x.rank(), 0)?;
        let size = x.dims()[at];
        let known: isize = sizes.0.iter().filter(|&&size| size != -1).product();
        let parts: Vec<usize> = sizes
            .0
            .iter()
            .map(|&part| if part == -1 { size / (known.max(1) as usize) } else { part.max(0) as usize })
            .collect();
        if parts.iter().product::<usize>() != size {
            return Err(runtime(format!(
                "unflatten: Provided sizes {:?} don't multiply up to the size of dim {at} ({size}) in the input tensor",
                sizes.0
            )));
        }
        let mut dims = x.dims().to_vec();
        dims.splice(at..=at, parts);
        self.reshaped(dims, "ViewBackward0")
    }

    #[pyo3(signature = (*size))]
    fn expand(&self, size: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let x = self.read()?;
        let asked = Ints::of(size)?.0;
        if asked.len() < x.rank() {
            return Err(runtime(format!(
                "expand: the number of sizes provided ({}) must be greater or equal to the number of dimensions in the \
                 tensor ({})",
                asked.len(),
                x.rank()
            )));
        }
        let new = asked.len() - x.rank();
        let mut dims = Vec::with_capacity(asked.len());
        for (at, &size) in asked.iter().enumerate() {
            let own = at.checked_sub(new).map(|axis| x.dims()[axis]);
            dims.push(match (own, size) {
                (Some(own), -1) => own,
                (Some(own), size) if own != 1 && size != own as isize => {
                    return Err(runtime(format!(
                        "The expanded size of the tensor ({size}) must match the existing size ({own}) at non-singleton \
                         dimension {at}.  Target sizes: {asked:?}.  Tensor sizes: {:?}",
                        x.dims()
                    )));
                }
                (_, size) => usize::try_from(size).map_err(|_| {
                    runtime(format!("The expanded size of the tensor ({size}) isn't allowed in a leading, non-existing dimension {at}"))
                })?,
            });
        }
        self.view_by(Recipe::Expand(dims), "ExpandBackward0")
    }

    fn narrow(
        &self,
        py: Python<'_>,
        dim: isize,
        start: &Bound<'_, PyAny>,
        length: isize,
    ) -> PyResult<PyTensor> {
        let x = self.read()?;
        if x.rank() == 0 {
            return Err(runtime("narrow() cannot be applied to a 0-dim tensor."));
        }
        let Ok(length) = usize::try_from(length) else {
            return Err(runtime("narrow(): length must be non-negative."));
        };
        let start = match start.cast::<PyTensor>() {
            Ok(tensor) => {
                let value = tensor.get().read()?;
                if value.rank() > 0 || !value.dtype().is_int() {
                    return Err(runtime("start must be an 0-dim integral Tensor."));
                }
                tensor.get().scalar(py)?.as_i64() as isize
            }
            Err(_) => start.extract::<isize>()?,
        };
        let at = axis(dim, x.rank(), 0)?;
        let size = x.dims()[at];
        if !(-(size as isize)..=size as isize).contains(&start) {
            return Err(crate::errors::index(format!(
                "Dimension out of range (expected to be in range of [-{size}, {size}], but got {start})"
            )));
        }
        let first = if start < 0 { start + size as isize } else { start };
        if first < 0 || first as usize + length > size {
            return Err(runtime(format!(
                "start ({start}) + length ({length}) exceeds dimension size ({size})."
            )));
        }
        self.part(at, Part::Slice { start: first as usize, len: length, step: 1 }, "SliceBackward0")
    }

    fn select(&self, dim: isize, index: isize) -> PyResult<PyTensor> {
        let x = self.read()?;
        let at = axis(dim, x.rank(), 0)?;
        let place = super::select::place(index, x.dims()[at], at)?;
        self.part(at, Part::At(place), "SelectBackward0")
    }

    #[pyo3(signature = (dim = 0))]
    fn unbind(&self, dim: isize) -> PyResult<Vec<PyTensor>> {
        let x = self.read()?;
        let at = axis(dim, x.rank(), 0)?;
        if x.rank() == 0 {
            return Err(crate::errors::index("Dimension specified as 0 but tensor has no dimensions"));
        }
        (0..x.dims()[at]).map(|place| self.part(at, Part::At(place), "UnbindBackward0")).collect()
    }

    #[pyo3(signature = (chunks, dim = 0))]
    fn chunk(&self, chunks: usize, dim: isize) -> PyResult<Vec<PyTensor>> {
        let x = self.read()?;
        let at = axis(dim, x.rank(), 0)?;
        if chunks == 0 {
            return Err(runtime("chunk expects `chunks` to be greater than 0, got: 0"));
        }
        let size = x.dims()[at];
        self.parts(&lengths(size, size.div_ceil(chunks).max(1)), at, "SplitBackward0")
    }

    #[pyo3(signature = (split_size, dim = 0))]
    fn split(&self, split_size: Ints, dim: isize) -> PyResult<Vec<PyTensor>> {
        let x = self.read()?;
        let at = axis(dim, x.rank(), 0)?;
        let size = x.dims()[at];
        let asked = split_size.sizes()?;
        match asked[..] {
            [one] if one > 0 && one != size => self.parts(&lengths(size, one), at, "SplitBackward0"),
            _ if asked.iter().sum::<usize>() == size => self.parts(&asked, at, "SplitWithSizesBackward0"),
            _ => Err(runtime(format!(
                "split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size at dimension {at}), but \
                 got split_sizes={asked:?}"
            ))),
        }
    }

    #[pyo3(signature = (indices_or_sections, dim = 0))]
    fn tensor_split(&self, indices_or_sections: &Bound<'_, PyAny>, dim: isize) -> PyResult<Vec<PyTensor>> {
        let x = self.read()?;
        let at = axis(dim, x.rank(), 0)?;
        let size = x.dims()[at];
        let lengths: Vec<usize> = match indices_or_sections.extract::<usize>() {
            Ok(0) => return Err(runtime("number of sections must be larger than 0, got 0")),
            Ok(sections) => {
                (0..sections).map(|k| size / sections + usize::from(k < size % sections)).collect()
            }
            Err(_) => {
                let bounds = indices_or_sections.extract::<Ints>()?.0;
                let hold = |bound: isize| {
                    (if bound < 0 { bound + size as isize } else { bound }).clamp(0, size as isize) as usize
                };
                let ends: Vec<usize> = bounds.into_iter().map(hold).chain([size]).collect();
                let starts = [0].into_iter().chain(ends.iter().copied());
                starts.zip(&ends).map(|(start, &end)| end.saturating_sub(start)).collect()
            }
        };
        self.parts(&lengths, at, "SliceBackward0")
    }

    #[pyo3(signature = (offset = 0, dim1 = 0, dim2 = 1))]
    fn diagonal(&self, offset: isize, dim1: isize, dim2: isize) -> PyResult<PyTensor> {
        let rank = self.read()?.rank();
        let (first, second) = (axis(dim1, rank, 0)?, axis(dim2, rank, 0)?);
        if first == second {
            return Err(runtime(format!("diagonal dimensions cannot be identical {dim1}, {dim2}")));
        }
        self.view_by(Recipe::Diagonal(offset, first, second), "DiagonalBackward0")
    }

    fn unfold(&self, dimension: isize, size: usize, step: usize) -> PyResult<PyTensor> {
        let rank = self.read()?.rank();
        if rank == 0 {
            axis(dimension, rank, 0)?;
            if size > 1 || step == 0 {
                return Err(runtime(format!(
                    "maximum size for tensor at dimension 0 is 1 but size is {size}"
                )));
            }
            return self.unsqueeze(0)?.part(
                0,
                Part::Slice { start: 0, len: size, step: 1 },
                "SliceBackward0",
            );
        }
        self.view_by(Recipe::Unfold(axis(dimension, rank, 0)?, size, step), "UnfoldBackward0")
    }

    /// Windows of a tensor of contiguous memory, as new values.
    #[pyo3(signature = (size, stride, storage_offset = 0))]
    fn as_strided(
        &self,
        py: Python<'_>,
        size: Vec<usize>,
        stride: Vec<usize>,
        storage_offset: usize,
    ) -> PyResult<PyTensor> {
        let x = self.read()?;
        made(py, "AsStridedBackward0", move || x.as_strided(size, &stride, storage_offset))
    }

    #[pyo3(signature = (*repeats))]
    fn repeat(&self, py: Python<'_>, repeats: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let (x, counts) = (self.read()?, Ints::of(repeats)?.sizes()?);
        if counts.len() < x.rank() {
            return Err(runtime(
                "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor",
            ));
        }
        made(py, "RepeatBackward0", move || x.repeat(counts))
    }

    #[pyo3(signature = (*dims))]
    fn tile(&self, py: Python<'_>, dims: &Bound<'_, PyTuple>) -> PyResult<PyTensor> {
        let (x, counts) = (self.read()?, Ints::of(dims)?.sizes()?);
        made(py, "RepeatBackward0", move || x.tile(counts))
    }

    fn _flip(&self, py: Python<'_>, dims: Vec<isize>) -> PyResult<PyTensor> {
        let x = self.read()?;
        made(py, "FlipBackward0", move || x.flip(dims))
    }

    #[pyo3(signature = (shifts, dims = None))]
    fn roll(&self, py: Python<'_>, shifts: Ints, dims: Option<Ints>) -> PyResult<PyTensor> {
        let x = self.read()?;
        made(py, "RollBackward0", move || match dims {
            Some(Ints(dims)) if !dims.is_empty() => x.roll(shifts.0, dims),
            _ => x.flatten_all().roll(shifts.0, 0)?.reshape(x.dims()),
        })
    }

    #[pyo3(signature = (repeats, dim = None, output_size = None))]
    fn repeat_interleave(
        &self,
        py: Python<'_>,
        repeats: crate::args::Operand,
        dim: Option<isize>,
        output_size: Option<usize>,
    ) -> PyResult<PyTensor> {
        let x = self.read()?;
        // The size is known from the numbers, which are read anyway.
        let _ = output_size;
        made(py, "IndexSelectBackward0", move || {
            let (x, dim) = dim.map_or_else(|| (x.flatten_all(), 0), |dim| (x.clone(), dim));
            match repeats {
                crate::args::Operand::Tensor(counts) if counts.numel() > 1 => {
                    x.repeat_interleave_counts(&counts, dim)
                }
                crate::args::Operand::Tensor(counts) => {
                    x.repeat_interleave(counts.item::<i64>()?.max(0) as usize, dim)
                }
                crate::args::Operand::Number(count) => {
                    x.repeat_interleave(count.as_i64().max(0) as usize, dim)
                }
            }
        })
    }

    /// Grids of some axes.
    #[staticmethod]
    fn _meshgrid(py: Python<'_>, tensors: &Bound<'_, PyAny>, xy: bool) -> PyResult<Vec<PyTensor>> {
        let tensors = values(tensors)?;
        let how = if xy { taper::MeshIndexing::Xy } else { taper::MeshIndexing::Ij };
        let grids = run(py, move || Tensor::meshgrid(&tensors, how))?;
        Ok(grids.into_iter().map(|grid| PyTensor::new(grid, "ViewBackward0")).collect())
    }

    /// Tensors expanded to their common sizes.
    #[staticmethod]
    fn _broadcast(tensors: Vec<PyRef<'_, PyTensor>>) -> PyResult<Vec<PyTensor>> {
        let values = tensors.iter().map(|tensor| tensor.read()).collect::<PyResult<Vec<_>>>()?;
        let all = built(Tensor::broadcast_tensors(&values))?;
        let pairs = tensors.iter().zip(&all);
        pairs
            .map(|(tensor, all)| tensor.view_by(Recipe::Expand(all.dims().to_vec()), "ExpandBackward0"))
            .collect()
    }
}

/// The lengths of parts of one length, the last of which may be shorter.
fn lengths(size: usize, each: usize) -> Vec<usize> {
    let count = size.div_ceil(each).max(1);
    (0..count).map(|k| each.min(size - k * each)).collect()
}

methods! {
    rot90(x, k: i32 = 1, dims: Vec<isize> = vec![0, 1]) "Rot90Backward0" => {
        if x.rank() < 2 {
            let message = format!("expected total dims >= 2, but got total dims = {}", x.rank());
            return Err(taper::Error::invalid("rot90", message));
        }
        x.rot90(k, dims)
    };
    tril(x, diagonal: i32 = 0) "TrilBackward0" => x.tril(diagonal);
    triu(x, diagonal: i32 = 0) "TriuBackward0" => x.triu(diagonal);
    diag(x, diagonal: isize = 0) "DiagBackward0" => x.diag(diagonal);
    diag_embed(x, offset: isize = 0, dim1: isize = -2, dim2: isize = -1) "DiagEmbedBackward0" => {
        x.diag_embed(offset, dim1, dim2)
    };
    diagflat(x, offset: isize = 0) "DiagEmbedBackward0" => x.diagflat(offset);
    trace(x) "TraceBackward0" => x.trace();
}
