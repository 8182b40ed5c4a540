//! Reductions of all elements or along axes, and sorting.

use pyo3::prelude::*;
use taper::{Axes, Bins, DType, HistogramOptions, Interpolation, Result, Tensor};

use super::methods;
use crate::{
    args::{Ints, Plain, Value, axes, optional, values},
    dtype::Kind,
    errors::runtime,
    promote::{float, sums},
    tensor::{PyTensor, made, run},
};

/// The tensor in the dtype that a call asks for, or in the one that the function chooses.
fn cast(x: &Tensor, dtype: Option<Kind>, usual: DType) -> Result<Tensor> {
    x.to_dtype(dtype.map_or(usual, |kind| kind.0))
}

/// Refuses integers without a dtype for the result.
fn float_only(op: &'static str, x: &Tensor, dtype: Option<Kind>) -> Result<Option<Kind>> {
    if dtype.is_none() && !x.dtype().is_float() {
        let hint = "the input dtype must be either a floating point or complex dtype";
        return Err(super::pointwise::refused(op, x, hint));
    }
    Ok(dtype)
}

/// The axes of a search for the greatest or least element, none of which may be empty.
fn searched(op: &str, x: &Tensor, dim: Option<Ints>) -> Result<Axes> {
    let rank = x.rank() as isize;
    for &dim in dim.iter().flat_map(|dim| &dim.0) {
        let at = if dim < 0 { dim + rank } else { dim };
        if (0..rank).contains(&at) && x.dims()[at as usize] == 0 {
            let message = format!("{op}(): Expected reduction dim {dim} to have non-zero size.");
            return Err(crate::errors::keep("reduce", crate::errors::index(message)));
        }
    }
    Ok(axes(dim))
}

/// The correction of a variance: `correction`, or `unbiased` as 1 or 0.
fn correction(unbiased: Option<bool>, correction: Option<Plain>) -> f64 {
    match (correction, unbiased) {
        (Some(Plain(number)), _) => number.as_f64(),
        (None, Some(false)) => 0.0,
        (None, _) => 1.0,
    }
}

methods! {
    sum(x, dim: Option<Ints> = None, keepdim: bool = false, dtype: Option<Kind> = None) "SumBackward1" => {
        let x = cast(&x, dtype, sums(x.dtype()))?;
        x.sum_axis(axes(dim), keepdim)?.to_dtype(x.dtype())
    };
    nansum(x, dim: Option<Ints> = None, keepdim: bool = false, dtype: Option<Kind> = None) "NansumBackward0" => {
        cast(&x, dtype, sums(x.dtype()))?.nansum(axes(dim), keepdim)
    };
    _mean(x, dim: Option<Ints> = None, keepdim: bool = false, dtype: Option<Kind> = None) "MeanBackward1" => {
        let dtype = float_only("mean", &x, dtype)?;
        if let Some(kind) = &dtype
            && !kind.0.is_float()
        {
            let message = format!(
                "mean(): could not infer output dtype. Optional dtype must be either a floating point or \
                 complex dtype. Got: {}",
                crate::print::type_name(kind.0)
            );
            return Err(taper::Error::invalid("mean", message));
        }
        cast(&x, dtype, x.dtype())?.mean_axis(axes(dim), keepdim)
    };
    nanmean(x, dim: Option<Ints> = None, keepdim: bool = false, dtype: Option<Kind> = None) "MeanBackward1" => {
        cast(&x, dtype, x.dtype())?.nanmean(axes(dim), keepdim)
    };
    _mean_all(x) "MeanBackward0" => {
        float_only("mean", &x, None)?;
        Ok(x.mean())
    };
    _sum_all(x) "SumBackward0" => x.to_dtype(sums(x.dtype()))?.sum_axis(.., false);
    prod(x, dim: Option<Ints> = None, keepdim: bool = false, dtype: Option<Kind> = None) "ProdBackward1" => {
        let x = cast(&x, dtype, sums(x.dtype()))?;
        x.prod_axis(axes(dim), keepdim)?.to_dtype(x.dtype())
    };
    any(x, dim: Option<Ints> = None, keepdim: bool = false) "" => x.any_axis(axes(dim), keepdim);
    all(x, dim: Option<Ints> = None, keepdim: bool = false) "" => x.all_axis(axes(dim), keepdim);
    amax(x, dim: Option<Ints> = None, keepdim: bool = false) "AmaxBackward0" => x.amax(searched("amax", &x, dim)?, keepdim);
    amin(x, dim: Option<Ints> = None, keepdim: bool = false) "AminBackward0" => x.amin(searched("amin", &x, dim)?, keepdim);
    _max_all(x) "MaxBackward1" => x.max();
    _min_all(x) "MinBackward1" => x.min();
    logsumexp(x, dim: Ints, keepdim: bool = false) "LogsumexpBackward0" => {
        x.to_dtype(float(x.dtype()))?.logsumexp(axes(Some(dim)), keepdim)
    };
    count_nonzero(x, dim: Option<Ints> = None) "" => x.count_nonzero(axes(dim));
    var(x, dim: Option<Ints> = None, unbiased: Option<bool> = None, keepdim: bool = false,
        correction: Option<Plain> = None) "VarBackward0" => {
        x.var_axis(axes(dim), self::correction(unbiased, correction), keepdim)
    };
    std(x, dim: Option<Ints> = None, unbiased: Option<bool> = None, keepdim: bool = false,
        correction: Option<Plain> = None) "StdBackward0" => {
        x.std_axis(axes(dim), self::correction(unbiased, correction), keepdim)
    };
    argmax(x, dim: Option<isize> = None, keepdim: bool = false) "" => match dim {
        Some(dim) => x.argmax_axis(dim, keepdim),
        None if keepdim => x.argmax()?.reshape(vec![1usize; x.rank()]),
        None => x.argmax(),
    };
    argmin(x, dim: Option<isize> = None, keepdim: bool = false) "" => match dim {
        Some(dim) => x.argmin_axis(dim, keepdim),
        None if keepdim => x.argmin()?.reshape(vec![1usize; x.rank()]),
        None => x.argmin(),
    };
    argsort(x, dim: isize = -1, descending: bool = false, stable: bool = false) "" => {
        let _ = stable;
        x.argsort(dim, descending)
    };
    logcumsumexp(x, dim: isize) "LogcumsumexpBackward0" => x.logcumsumexp(dim);
    _median_all(x) "MedianBackward0" => x.median();
    _nanmedian_all(x) "NanmedianBackward0" => x.nanmedian();
    _norm(x, p: f64, dim: Option<Ints>, keepdim: bool) "LinalgVectorNormBackward0" => {
        let x = x.to_dtype(float(x.dtype()))?;
        if p == 0.0 {
            // The number of elements, through functions that have the gradient 0.
            let counted = x.isnan().where_cond(&x.ones_like(), &x.sign().abs())?;
            return counted.sum_axis(axes(dim), keepdim);
        }
        x.vector_norm(p, axes(dim), keepdim)
    };
    dist(x, other: Value, p: f64 = 2.0) "DistBackward0" => x.dist(&other.0, p);
    renorm(x, p: f64, dim: isize, maxnorm: f64) "RenormBackward0" => {
        if x.rank() < 2 {
            let message = format!("renorm: input needs at least 2 dimensions, got {} dimensions", x.rank());
            return Err(taper::Error::invalid("renorm", message));
        }
        x.renorm(p, dim, maxnorm)
    };
    bincount(x, weights: Option<Value> = None, minlength: usize = 0) "" => {
        let counts = match weights {
            Some(Value(weights)) => x.bincount_weighted(&weights, None)?,
            None => x.bincount(None)?,
        };
        let missing = minlength.saturating_sub(counts.numel());
        if missing == 0 { Ok(counts) } else { counts.pad(&[(0, missing)], 0) }
    };
    histc(x, bins: usize = 100, min: f64 = 0.0, max: f64 = 0.0) "" => x.histc(bins, min, max);
    cov(x, correction: f64 = 1.0, fweights: Option<Value> = None, aweights: Option<Value> = None)
        "DivBackward0" => {
        let (x, frequencies, weights) = (x.to_dtype(float(x.dtype()))?, optional(fweights), optional(aweights));
        x.cov_weighted(correction, frequencies.as_ref(), weights.as_ref())
    };
    corrcoef(x) "DivBackward0" => x.corrcoef();
    _quantile(x, q: Value, dim: Option<isize>, keepdim: bool, interpolation: String, skip_nan: bool)
        "SqueezeBackward4" => {
        let (axes, between) = (dim.map_or_else(Axes::all, Axes::from), interpolated(&interpolation)?);
        let values = match skip_nan {
            false => x.quantiles_at(&q.0.flatten_all(), axes, between, keepdim)?,
            true => x.nanquantiles_at(&q.0.flatten_all(), axes, between, keepdim)?,
        };
        if q.0.rank() == 0 { values.squeeze(0) } else { Ok(values) }
    };
    _trapezoid(x, dx: f64, dim: isize, cumulative: bool) "MulBackward0" => match cumulative {
        false => x.trapezoid(dx, dim),
        true => x.cumulative_trapezoid(dx, dim),
    };
    _trapezoid_at(y, x: Value, dim: isize, cumulative: bool) "MulBackward0" => match cumulative {
        false => y.trapezoid_at(&x.0, dim),
        true => y.cumulative_trapezoid_at(&x.0, dim),
    };
    isin(x, test: Value) "" => x.isin(&test.0);
}

/// A way between two ranks by its name in PyTorch.
fn interpolated(name: &str) -> Result<Interpolation> {
    match name {
        "linear" => Ok(Interpolation::Linear),
        "lower" => Ok(Interpolation::Lower),
        "higher" => Ok(Interpolation::Higher),
        "nearest" => Ok(Interpolation::Nearest),
        "midpoint" => Ok(Interpolation::Midpoint),
        _ => {
            let message = format!(
                "interpolation must be one of linear, lower, higher, midpoint or nearest, but got {name}"
            );
            Err(taper::Error::invalid("quantile", message))
        }
    }
}

/// Two results of one operation, the second of which has no gradient: values and indices.
fn pair(
    py: Python<'_>,
    name: &'static str,
    f: impl FnOnce() -> Result<(Tensor, Tensor)> + Send,
) -> PyResult<(PyTensor, PyTensor)> {
    let (values, indices) = run(py, f)?;
    Ok((PyTensor::new(values, name), PyTensor::plain(indices)))
}

/// Methods with values and indices.
macro_rules! pairs {
    ($($name:ident($x:ident $(, $arg:ident: $ty:ty $(= $default:expr)?)*) $grad:literal => $body:expr;)*) => {
        #[pymethods]
        impl PyTensor {
            $(
                #[pyo3(signature = ($($arg $(= $default)?),*))]
                fn $name(&self, py: Python<'_>, $($arg: $ty),*) -> PyResult<(PyTensor, PyTensor)> {
                    let $x = self.read()?;
                    pair(py, $grad, move || $body)
                }
            )*
        }
    };
}

pairs! {
    _max_dim(x, dim: isize, keepdim: bool) "MaxBackward0" => x.max_axis(dim, keepdim);
    _min_dim(x, dim: isize, keepdim: bool) "MinBackward0" => x.min_axis(dim, keepdim);
    _median_dim(x, dim: isize, keepdim: bool) "MedianBackward1" => x.median_axis(dim, keepdim);
    _nanmedian_dim(x, dim: isize, keepdim: bool) "NanmedianBackward1" => x.nanmedian_axis(dim, keepdim);
    _mode(x, dim: isize, keepdim: bool) "ModeBackward0" => x.mode(dim, keepdim);
    _kthvalue(x, k: usize, dim: isize, keepdim: bool) "KthvalueBackward0" => x.kthvalue(k, dim, keepdim);
    _sort(x, dim: isize, descending: bool) "SortBackward0" => x.sort(dim, descending);
    _topk(x, k: usize, dim: isize, largest: bool) "TopkBackward0" => x.topk(k, dim, largest);
    _cummax(x, dim: isize) "CummaxBackward0" => x.cummax(dim);
    _cummin(x, dim: isize) "CumminBackward0" => x.cummin(dim);
}

#[pymethods]
impl PyTensor {
    /// Least and greatest elements.
    #[pyo3(signature = (dim = None, keepdim = false))]
    fn _aminmax(&self, py: Python<'_>, dim: Option<Ints>, keepdim: bool) -> PyResult<(PyTensor, PyTensor)> {
        let x = self.read()?;
        let (least, greatest) = run(py, move || x.aminmax(searched("aminmax", &x, dim)?, keepdim))?;
        Ok((PyTensor::new(least, "AminmaxBackward0"), PyTensor::new(greatest, "AminmaxBackward0")))
    }

    /// Derivatives along axes from differences: of points at one distance, or at these coordinates.
    fn _gradient(
        &self,
        py: Python<'_>,
        spacing: Vec<f64>,
        coordinates: &Bound<'_, PyAny>,
        axes: Vec<isize>,
        edge_order: usize,
    ) -> PyResult<Vec<PyTensor>> {
        let (x, coordinates) = (self.read()?, values(coordinates)?);
        let found = run(py, move || match coordinates.is_empty() {
            true => x.gradient(&spacing, axes, edge_order),
            false => x.gradient_at(&coordinates, axes, edge_order),
        })?;
        Ok(found.into_iter().map(|one| PyTensor::new(one, "GradientBackward0")).collect())
    }

    /// Numbers of elements in intervals, and the bounds of these along each axis. `bins` has a number for
    /// each axis, and `range` its two bounds; bounds that are tensors take the place of both.
    fn _histogram(
        &self,
        py: Python<'_>,
        bins: Vec<usize>,
        range: Option<Vec<f64>>,
        edges: &Bound<'_, PyAny>,
        weight: Option<Value>,
        density: bool,
    ) -> PyResult<(PyTensor, Vec<PyTensor>)> {
        let (x, edges, weight) = (self.read()?, values(edges)?, optional(weight));
        let (counts, bounds) = run(py, move || {
            let bins: Vec<Bins<'_>> = match (edges.is_empty(), range) {
                (false, _) => edges.iter().map(Bins::Edges).collect(),
                (true, None) => bins.into_iter().map(Bins::Count).collect(),
                (true, Some(range)) => bins
                    .into_iter()
                    .zip(range.chunks_exact(2))
                    .map(|(count, pair)| Bins::Between(count, pair[0], pair[1]))
                    .collect(),
            };
            x.histogramdd(&bins, HistogramOptions { weight: weight.as_ref(), density })
        })?;
        Ok((PyTensor::plain(counts), bounds.into_iter().map(PyTensor::plain).collect()))
    }

    /// Variance, or deviation, and mean.
    fn _moments(
        &self,
        py: Python<'_>,
        dim: Option<Ints>,
        correction: f64,
        keepdim: bool,
        deviation: bool,
    ) -> PyResult<(PyTensor, PyTensor)> {
        let x = self.read()?;
        let (spread, mean) = run(py, move || match deviation {
            true => x.std_mean(axes(dim), correction, keepdim),
            false => x.var_mean(axes(dim), correction, keepdim),
        })?;
        Ok((PyTensor::new(spread, "VarMeanBackward0"), PyTensor::new(mean, "VarMeanBackward0")))
    }

    /// The different elements, where each element is among them, and how often each is there.
    fn _unique(
        &self,
        py: Python<'_>,
        dim: Option<isize>,
        consecutive: bool,
    ) -> PyResult<(PyTensor, PyTensor, PyTensor)> {
        let x = self.read()?;
        let (elements, inverse, counts) = run(py, move || match (dim, consecutive) {
            (None, false) => x.unique_all(),
            (None, true) => x.unique_consecutive_all(),
            (Some(dim), false) => x.unique_axis(dim),
            (Some(dim), true) => x.unique_consecutive_axis(dim),
        })?;
        Ok((PyTensor::plain(elements), PyTensor::plain(inverse), PyTensor::plain(counts)))
    }

    /// The places of values in this sorted sequence.
    #[pyo3(signature = (values, right = false))]
    fn _searchsorted(&self, py: Python<'_>, values: Value, right: bool) -> PyResult<PyTensor> {
        let x = self.read()?;
        if x.rank() == 0 {
            return Err(runtime("searchsorted: the sorted sequence has no axis"));
        }
        made(py, "", move || x.searchsorted(&values.0, right))
    }

    /// Computes these tensors with this one, in one plan.
    fn _eval_with(&self, py: Python<'_>, others: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut all = values(others)?;
        all.push(self.read()?);
        run(py, move || taper::eval_all(&all.iter().collect::<Vec<_>>()))
    }
}
