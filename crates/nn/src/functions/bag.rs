//! Sums, means and maxima over bags of embedding rows; and rows limited to a maximum norm.

use std::sync::Arc;

use autograd::{Function, apply, is_grad_enabled};
use tensor_core::{
    BagKind, DType, EmbeddingBag, Error, ErrorKind, Result, Shape, Tensor, caller_line, set_grad_enabled,
};

use super::embedding;

/// The reduction of [`embedding_bag`] over the rows of a bag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BagMode {
    /// The sum of the rows, each times its weight if there are weights.
    Sum,
    /// The mean of the rows. The default.
    #[default]
    Mean,
    /// The elementwise maximum of the rows.
    Max,
}

impl BagMode {
    /// PyTorch's name.
    pub fn name(self) -> &'static str {
        match self {
            BagMode::Sum => "sum",
            BagMode::Mean => "mean",
            BagMode::Max => "max",
        }
    }
}

/// Options of [`embedding_bag`], with PyTorch's names and defaults.
#[derive(Clone, Copy, Debug, Default)]
pub struct BagOptions<'a> {
    /// The reduction over a bag: the mean by default.
    pub mode: BagMode,
    /// For indices `[N]`, the start of each bag: `[B]` integers, ascending from 0. They are read on the
    /// host.
    pub offsets: Option<&'a Tensor>,
    /// Whether `offsets` ends with N, the end of the last bag: `[B + 1]`. Off by default.
    pub include_last_offset: bool,
    /// For sums, a factor for the row of each index, of the indices' shape and the table's dtype. 1 by
    /// default.
    pub per_sample_weights: Option<&'a Tensor>,
    /// An index that is ignored. None by default.
    pub padding_idx: Option<usize>,
}

/// The sum, mean or maximum of the rows of `weight` `[rows, features]` in each bag: indices `[B, N]` are B
/// bags of N, indices `[N]` are bags that begin at `offsets` `[B]`. The result is `[B, features]`; an empty
/// bag gives zeros. `torch.nn.functional.embedding_bag`.
///
/// ```
/// use nn::functional::{BagMode, BagOptions, embedding_bag};
/// use tensor_core::Tensor;
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let table = Tensor::new([[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]], &device)?;
/// let (indices, offsets) = (Tensor::new([0i32, 2, 1], &device)?, Tensor::new([0i32, 2], &device)?);
/// let options = BagOptions { mode: BagMode::Sum, offsets: Some(&offsets), ..Default::default() };
/// assert_eq!(embedding_bag(&indices, &table, options)?.to_vec::<f32>()?, [6.0, 8.0, 3.0, 4.0]);
/// # Ok(()) }
/// ```
///
/// # Errors
/// Indices of neither one axis nor two or of no integer dtype; offsets with two axes of indices, or missing
/// with one; offsets that do not have one axis, do not ascend from 0, or exceed the number of indices;
/// sample weights of another shape or dtype, or with another mode than the sum; a `padding_idx` that is no
/// row; a weight that is no matrix; several devices. An index out of range is an error when the result is
/// computed.
#[track_caller]
pub fn embedding_bag(indices: &Tensor, weight: &Tensor, options: BagOptions<'_>) -> Result<Tensor> {
    let _line = caller_line();
    const OP: &str = "embedding_bag";
    let BagOptions { mode, offsets, include_last_offset, per_sample_weights, padding_idx } = options;
    let wrong = |message: String| Err(Error::invalid(OP, message).here());
    if let Some(weights) = per_sample_weights {
        if mode != BagMode::Sum {
            return wrong(format!(
                "per_sample_weights with the mode {:?}: they need the mode \"sum\"",
                mode.name()
            ));
        }
        if weights.shape() != indices.shape() || weights.dtype() != weight.dtype() {
            return wrong(format!(
                "per_sample_weights {} {} for indices {} and a table of {}: give one of the table's dtype for each index",
                weights.dtype(),
                weights.shape(),
                indices.shape(),
                weight.dtype()
            ));
        }
    }
    let rows = match *weight.dims() {
        [rows, _] => rows,
        _ => {
            return wrong(format!("the weight must have the shape [rows, features], not {}", weight.shape()));
        }
    };
    if let Some(row) = padding_idx.filter(|&row| row >= rows) {
        return wrong(format!("padding_idx {row} is no row of a weight {}", weight.shape()));
    }
    // The start and end of each bag of a list.
    let bags: Option<Vec<(usize, usize)>> = match (indices.rank(), offsets) {
        (2, None) => None,
        (1, Some(offsets)) => Some(bounds(OP, indices, offsets, include_last_offset)?),
        (2, Some(_)) => return wrong("indices [B, N] are bags already: leave the offsets out".into()),
        (1, None) => {
            return wrong("indices [N] without offsets: say where each bag begins, or give [B, N]".into());
        }
        _ => return wrong(format!("indices are [B, N], or [N] with offsets, not {}", indices.shape())),
    };
    let bags = Bags { mode, bounds: bags, padding_idx };
    match bags.by_kernel(indices, weight, per_sample_weights)? {
        Some(found) => Ok(found),
        None => bags.composed(indices, weight, per_sample_weights),
    }
}

/// The function that [`embedding_bag`] computes.
#[derive(Clone, Debug)]
struct Bags {
    mode: BagMode,
    /// The start and end of each bag of a list.
    bounds: Option<Vec<(usize, usize)>>,
    padding_idx: Option<usize>,
}

impl Bags {
    /// All bags at once, if the device has a kernel that adds rows in place.
    #[track_caller]
    fn by_kernel(
        &self,
        indices: &Tensor,
        weight: &Tensor,
        per_sample_weights: Option<&Tensor>,
    ) -> Result<Option<Tensor>> {
        let _line = caller_line();
        let kernel = self.kernel(per_sample_weights.is_some());
        // Without bags there are no bounds.
        let bounds = match &self.bounds {
            Some(bounds) if bounds.is_empty() => return Ok(None),
            Some(bounds) => {
                let ends = bounds.iter().map(|&(_, end)| end as i64);
                let bounds: Vec<i64> = std::iter::once(0).chain(ends).collect();
                let kernel_takes = if weight.device().supports(DType::I64) { DType::I64 } else { DType::I32 };
                Some(Tensor::new(bounds, (kernel_takes, &weight.device()))?)
            }
            None => None,
        };
        let detached = [weight.detach(), indices.detach()];
        let mut given: Vec<&Tensor> = detached.iter().collect();
        given.extend(&bounds);
        given.extend(per_sample_weights);
        if !indices.dtype().is_int() || !Tensor::has_custom_kernel(kernel.clone(), &given)? {
            return Ok(None);
        }
        if self.mode == BagMode::Max {
            // The first of equal elements, as in PyTorch; an empty bag gives zeros.
            let rows = Tensor::custom_kernel(kernel, &given)?.swap_remove(0);
            if weight.dims()[0] == 0 {
                return Tensor::zeros(rows.shape().clone(), (weight.dtype(), &weight.device())).map(Some);
            }
            let found = weight.gather(0, &rows.maximum_scalar(0))?;
            return rows.ge_scalar(0).where_cond(&found, &found.full_like(0.0)).map(Some);
        }
        let tracked = weight.is_tracked() || per_sample_weights.is_some_and(Tensor::is_tracked);
        if !(is_grad_enabled() && tracked) {
            return Ok(Some(Tensor::custom_kernel(kernel, &given)?.swap_remove(0)));
        }
        let inputs: Vec<Tensor> =
            [weight, indices].into_iter().chain(&bounds).chain(per_sample_weights).cloned().collect();
        apply(self.clone(), &inputs).map(Some)
    }

    fn kernel(&self, weighted: bool) -> Arc<EmbeddingBag> {
        let kind = match self.mode {
            BagMode::Sum => BagKind::Sum,
            BagMode::Mean => BagKind::Mean,
            BagMode::Max => BagKind::ArgMax,
        };
        Arc::new(EmbeddingBag { kind, padding: self.padding_idx, weighted })
    }

    /// The bag of each index that is in one, i32, in one axis.
    #[track_caller]
    fn owners(&self, indices: &Tensor) -> Result<Tensor> {
        let device = indices.device();
        if let Some(bounds) = &self.bounds {
            let owners = bounds.iter().enumerate();
            let owners = owners.flat_map(|(bag, &(start, end))| (start..end).map(move |_| bag as i32));
            return Tensor::new(owners.collect::<Vec<i32>>(), (DType::I32, &device));
        }
        let (bags, count) = (indices.dims()[0], indices.dims()[1]);
        let owners = Tensor::arange(0, bags, 1, (DType::I32, &device))?.unsqueeze(1)?;
        owners.expand([bags, count])?.reshape([bags * count])
    }

    /// The position of the sample weights among the kernel's inputs.
    fn weights_of<T>(&self, inputs: &[T]) -> Option<usize> {
        let before = 2 + usize::from(self.bounds.is_some());
        (inputs.len() > before).then_some(before)
    }

    /// The same composed of other operations: rows are gathered, and then reduced.
    #[track_caller]
    fn composed(
        &self,
        indices: &Tensor,
        weight: &Tensor,
        per_sample_weights: Option<&Tensor>,
    ) -> Result<Tensor> {
        let _line = caller_line();
        let Bags { mode, bounds: ref bags, padding_idx } = *self;
        let features = weight.dims()[1];
        let (count, dtype, device) = (indices.numel(), weight.dtype(), weight.device());
        // Bags of a list: unchanged for sums and means, padded to the longest for maxima.
        let (indices, inside, table) = match (bags, mode) {
            (None, _) => (indices.clone(), None, true),
            (Some(_), BagMode::Sum | BagMode::Mean) => (indices.clone(), None, false),
            (Some(bags), BagMode::Max) => {
                let longest = bags.iter().map(|(start, end)| end - start).max().unwrap_or(0);
                if longest == 0 {
                    return Tensor::zeros([bags.len(), features], (dtype, &device));
                }
                let places = bags.iter().flat_map(|&(start, end)| {
                    (0..longest).map(move |k| if start + k < end { (start + k) as i32 } else { -1 })
                });
                let places = Tensor::new(places.collect::<Vec<i32>>(), (DType::I32, &indices.device()))?;
                let inside = places.ge_scalar(0).reshape([bags.len(), longest])?;
                let laid =
                    indices.index_select(0, &places.maximum_scalar(0))?.reshape([bags.len(), longest])?;
                (laid, Some(inside), true)
            }
        };
        let counts = padding_idx.map(|row| indices.ne_scalar(row as i64));
        let counts = match (counts, inside) {
            (Some(a), Some(b)) => Some(a.bitwise_and(&b)?),
            (a, b) => a.or(b),
        };
        let found = embedding(&indices, weight)?;
        let zeros = Tensor::zeros(Shape::scalar(), (dtype, &device))?;
        if mode == BagMode::Max {
            // The first of equal elements, as in PyTorch; an empty bag gives zeros.
            if found.dims()[1] == 0 {
                return Tensor::zeros([found.dims()[0], features], (dtype, &device));
            }
            let Some(counts) = counts else {
                let greatest = found.detach().argmax_axis(1, true)?;
                return found.gather(1, &greatest)?.squeeze(1);
            };
            let counted = counts.unsqueeze(2)?.where_cond(&found, &zeros.full_like(f64::NEG_INFINITY))?;
            let greatest = counted.detach().argmax_axis(1, true)?;
            let full = counts.to_dtype(DType::I32)?.sum_axis(1, true)?.gt_scalar(0);
            return full.where_cond(&found.gather(1, &greatest)?.squeeze(1)?, &zeros);
        }
        // Half types are added and divided in f32.
        let wide = dtype.compute();
        let (mut found, zeros) = (found.to_dtype(wide)?, zeros.to_dtype(wide)?);
        if let Some(weights) = per_sample_weights {
            found = found.mul(&weights.to_dtype(wide)?.unsqueeze(-1)?)?;
        }
        if let Some(counts) = &counts {
            found = counts.unsqueeze(-1)?.where_cond(&found, &zeros)?;
        }
        let counts = match counts {
            Some(counts) => counts.to_dtype(wide)?,
            None => Tensor::ones(indices.shape().clone(), (wide, &device))?,
        };
        let (sums, counts) = match bags {
            _ if table => (found.sum_axis(1, false)?, counts.sum_axis(1, false)?),
            Some(bags) => {
                let owners = self.owners(&indices)?;
                // Indices after the end of the last bag belong to no bag.
                let (found, counts) = match owners.numel() == count {
                    true => (found, counts),
                    false => (found.narrow(0, 0, owners.numel())?, counts.narrow(0, 0, owners.numel())?),
                };
                (
                    Tensor::zeros([bags.len(), features], (wide, &device))?.index_add(0, &owners, &found)?,
                    Tensor::zeros([bags.len()], (wide, &device))?.index_add(0, &owners, &counts)?,
                )
            }
            None => (found.sum_axis(1, false)?, counts.sum_axis(1, false)?),
        };
        match mode {
            BagMode::Mean => sums.div(&counts.maximum_scalar(1.0).unsqueeze(1)?)?.to_dtype(dtype),
            BagMode::Sum | BagMode::Max => sums.to_dtype(dtype),
        }
    }
}

impl Function for Bags {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "EmbeddingBag"
    }

    #[track_caller]
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let kernel = self.kernel(self.weights_of(inputs).is_some());
        Ok(Tensor::custom_kernel(kernel, inputs)?.swap_remove(0))
    }

    /// Each row gets the gradient of its bag, times its weight, divided by the bag's size for a mean; a
    /// weight gets that gradient's dot product with the row. Gradients that are not needed are not computed.
    #[track_caller]
    fn backward(&self, inputs: &[Tensor], _: &Tensor, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (weight, indices) = (&inputs[0], &inputs[1]);
        let (features, dtype, device) = (weight.dims()[1], weight.dtype(), weight.device());
        let owners = self.owners(indices)?;
        let taken = owners.numel();
        let flat = indices.flatten_all().narrow(0, 0, taken)?;
        let counts = self.padding_idx.map(|row| flat.ne_scalar(row as i64));
        let zeros = Tensor::zeros(Shape::scalar(), (dtype, &device))?;
        let of_bags = match self.mode {
            BagMode::Sum | BagMode::Max => gradient.clone(),
            BagMode::Mean => {
                let ones = match &counts {
                    Some(counts) => counts.to_dtype(dtype)?,
                    None => Tensor::ones([taken], (dtype, &device))?,
                };
                let none = Tensor::zeros([gradient.dims()[0]], (dtype, &device))?;
                gradient.div(&none.index_add(0, &owners, &ones)?.maximum_scalar(1.0).unsqueeze(1)?)?
            }
        };
        let mut of_rows = of_bags.index_select(0, &owners)?;
        if let Some(counts) = &counts {
            of_rows = counts.unsqueeze(1)?.where_cond(&of_rows, &zeros)?;
        }
        let mut found = vec![None; inputs.len()];
        let mut scaled = of_rows.clone();
        if let Some(at) = self.weights_of(inputs) {
            let weights = inputs[at].flatten_all().narrow(0, 0, taken)?;
            scaled = scaled.mul(&weights.unsqueeze(1)?)?;
            let shares = of_rows.mul(&embedding(&flat, weight)?)?.sum_axis(1, false)?;
            let rest = indices.numel() - taken;
            found[at] = Some(shares.pad(&[(0, rest)], 0.0)?.reshape(inputs[at].shape())?);
        }
        let none = Tensor::zeros([weight.dims()[0], features], (dtype, &device))?;
        found[0] = Some(none.index_add(0, &flat, &scaled)?);
        Ok(found)
    }
}

/// The start and end of each bag.
#[track_caller]
fn bounds(
    op: &'static str,
    indices: &Tensor,
    offsets: &Tensor,
    include_last: bool,
) -> Result<Vec<(usize, usize)>> {
    let count = indices.numel();
    if offsets.rank() != 1 || !offsets.dtype().is_int() {
        let message = format!("offsets {} {}: give integers in one axis", offsets.dtype(), offsets.shape());
        return Err(Error::invalid(op, message));
    }
    let mut starts = offsets.detach().to_vec::<i64>()?;
    if include_last {
        if starts.is_empty() {
            return Err(Error::invalid(op, "the offsets are empty, but include_last_offset needs the end"));
        }
    } else {
        starts.push(count as i64);
    }
    let ordered = starts.windows(2).all(|pair| pair[0] <= pair[1]);
    if starts.len() > 1 && starts[0] != 0 || !ordered || starts.iter().any(|&s| s < 0 || s > count as i64) {
        let message =
            format!("offsets into {count} indices must begin with 0, ascend, and not exceed {count}");
        return Err(Error::invalid(op, message));
    }
    Ok(starts.windows(2).map(|pair| (pair[0] as usize, pair[1] as usize)).collect())
}

/// Scales down those rows of a table, which must be a cell, that `indices` name and whose norm of power
/// `norm_type` exceeds `max_norm`, as PyTorch does before the lookup.
#[track_caller]
pub(crate) fn renormalize(indices: &Tensor, weight: &Tensor, max_norm: f64, norm_type: f64) -> Result<()> {
    let _line = caller_line();
    if !indices.dtype().is_int() {
        let hint = "indices are whole numbers: make them of an integer dtype".into();
        return Err(Error::new(ErrorKind::DTypeMismatch {
            op: "embedding",
            lhs: indices.dtype(),
            rhs: DType::I64,
            hint,
        }));
    }
    set_grad_enabled(false, || {
        let rows = weight.dims()[0];
        let indices = indices.flatten_all();
        let ones = Tensor::ones(indices.shape().clone(), (DType::I32, &weight.device()))?;
        let named = Tensor::zeros([rows], (DType::I32, &weight.device()))?.scatter_add(0, &indices, &ones)?;
        let value = weight.detach();
        let next =
            named.gt_scalar(0).unsqueeze(1)?.where_cond(&value.renorm(norm_type, 0, max_norm)?, &value)?;
        // Computed before anything changes, since an index may be out of range.
        next.eval()?;
        weight.assign(&next)
    })
}
