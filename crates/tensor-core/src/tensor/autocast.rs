//! Autocast: within a region, products are computed in a half type and what needs range or precision in f32,
//! whatever dtype their inputs have. Which is which says one table, [`rule`]. A property of the thread, as
//! the recording of gradients is.
//!
//! A listed operation casts its inputs where it begins ([`cast`]) and is computed without autocast then, so
//! that what it is made of keeps its dtypes.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    marker::PhantomData,
};

use crate::{
    base::{
        error::{Error, ErrorKind, Result},
        origin::{here, with_location},
    },
    elements::dtype::DType,
    graph::{grad_mode::is_grad_enabled, handle::Tensor},
};

thread_local! {
    static DTYPE: Cell<Option<DType>> = const { Cell::new(None) };
    /// How many regions there are round what runs now.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static CASTS: RefCell<HashMap<u64, Kept>> = RefCell::new(HashMap::new());
}

/// The cast of a cell, kept while regions last.
struct Kept {
    /// The value that was cast.
    value: u64,
    recorded: bool,
    cast: Tensor,
}

/// What becomes of an operation's floating-point inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Cast to the region's half type.
    Lower,
    /// Half types are cast to f32.
    Wide,
    /// Cast to the widest among them.
    Widest,
}

/// The rule of an operation by its name, if it has one: the lists of PyTorch's autocast for CUDA, which Taper
/// follows on every device.
#[must_use]
pub fn rule(op: &str) -> Option<Rule> {
    Some(match op {
        "matmul"
        | "einsum"
        | "linear"
        | "addmm"
        | "addmv"
        | "addr"
        | "addbmm"
        | "baddbmm"
        | "vecdot"
        | "conv1d"
        | "conv2d"
        | "conv3d"
        | "conv_transpose1d"
        | "conv_transpose2d"
        | "conv_transpose3d"
        | "prelu"
        | "RNN"
        | "LSTM"
        | "GRU"
        | "scaled_dot_product_attention" => Rule::Lower,
        "acos" | "asin" | "cosh" | "erfinv" | "exp" | "expm1" | "log" | "log10" | "log2" | "log1p"
        | "reciprocal" | "rsqrt" | "sinh" | "tan" | "pow" | "softplus" | "layer_norm" | "rms_norm"
        | "group_norm" | "cosine_similarity" | "dist" | "pdist" | "cdist" | "renorm" | "logsumexp"
        | "prod" | "softmax" | "log_softmax" | "cumprod" | "cumsum" | "vector_norm" | "sum"
        | "interpolate" => Rule::Wide,
        "binary_cross_entropy"
        | "binary_cross_entropy_with_logits"
        | "cosine_embedding_loss"
        | "cross_entropy"
        | "ctc_loss"
        | "gaussian_nll_loss"
        | "hinge_embedding_loss"
        | "huber_loss"
        | "kl_div"
        | "l1_loss"
        | "margin_ranking_loss"
        | "mse_loss"
        | "multi_margin_loss"
        | "multilabel_margin_loss"
        | "multilabel_soft_margin_loss"
        | "nll_loss"
        | "poisson_nll_loss"
        | "smooth_l1_loss"
        | "soft_margin_loss"
        | "triplet_margin_loss" => Rule::Wide,
        "addcdiv" | "addcmul" | "atan2" | "bilinear" | "cross" | "dot" | "grid_sample" | "index_put"
        | "scatter_add" | "tensordot" => Rule::Widest,
        _ => return None,
    })
}

/// The half type of the region that this thread is in, if it is in one.
pub fn autocast_dtype() -> Option<DType> {
    DTYPE.get()
}

/// Runs `f` with products in `dtype`, bf16 or f16, and with what needs it in f32. `torch.autocast`.
///
/// Parameters keep their dtype, and gradients have it. Matrix products, linear layers, convolutions,
/// attention and recurrent layers cast their inputs to `dtype`; sums, exponentials, logarithms, powers,
/// softmax, norms and losses cast half types to f32; what takes several tensors casts them to the widest; all
/// else runs in the dtype it is given. f64 and integers stay. These are PyTorch's lists for CUDA, on every
/// device. A parameter that is used several times in a region is cast once.
///
/// Call `backward` and the optimizer outside, as in PyTorch; gradients are computed in the dtypes of the
/// forward pass in any case. bf16 has the range of f32; for f16 small gradients need a scale (`GradScaler`).
///
/// It holds for this thread and ends with `f`, also where that fails or panics. Regions may be nested: the
/// inner one counts.
///
/// ```
/// use tensor_core::{DType, Tensor, autocast, no_autocast};
/// # fn f(x: &Tensor, w: &Tensor) -> tensor_core::Result<()> {
/// let y = autocast(DType::BF16, || {
///     let y = x.matmul(w)?; // bf16
///     let z = no_autocast(|| x.matmul(w))?; // f32
///     y.softmax(-1)?.add(&z) // f32
/// })?;
/// # Ok(()) }
/// ```
///
/// # Errors
/// A dtype other than f16 and bf16, with `f` not run; what `f` fails with. An operation on a device without
/// the dtype is an error of that operation.
#[track_caller]
pub fn autocast<R>(dtype: DType, f: impl FnOnce() -> Result<R>) -> Result<R> {
    if !matches!(dtype, DType::F16 | DType::BF16) {
        let message = format!(
            "{dtype} is no half type: give DType::BF16 or DType::F16; to compute in f32 within a region, use no_autocast"
        );
        return Err(Error::invalid("autocast", message).here());
    }
    let _region = Region::new(Some(dtype));
    f()
}

/// Runs `f` without autocast within a region: `torch.autocast(enabled=False)`. What comes from outside may be
/// of a half type; cast it where f32 is needed.
pub fn no_autocast<R>(f: impl FnOnce() -> R) -> R {
    let _region = Region::new(None);
    f()
}

/// A region on this thread, until it is dropped.
struct Region {
    before: Option<DType>,
    /// It belongs to its thread.
    _here: PhantomData<*const ()>,
}

impl Region {
    fn new(dtype: Option<DType>) -> Region {
        DEPTH.set(DEPTH.get() + 1);
        Region { before: DTYPE.replace(dtype), _here: PhantomData }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        DTYPE.set(self.before);
        DEPTH.set(DEPTH.get() - 1);
        if DEPTH.get() == 0 {
            // Not dropped within the borrow: a tensor's end may run other code.
            let casts = CASTS.take();
            drop(casts);
        }
    }
}

/// The inputs of an operation as autocast has them. While this lives, autocast is off on this thread where it
/// was on.
#[doc(hidden)]
pub struct Inputs<'a, const N: usize, const M: usize> {
    given: ([&'a Tensor; N], [Option<&'a Tensor>; M]),
    cast: Option<([Tensor; N], [Option<Tensor>; M])>,
    _off: Option<Region>,
}

impl<const N: usize, const M: usize> Inputs<'_, N, M> {
    /// Whether this thread is in a region, and the operation has a rule.
    pub fn is_cast(&self) -> bool {
        self.cast.is_some()
    }

    /// What the operation is to be computed of.
    pub fn tensors(&self) -> ([&Tensor; N], [Option<&Tensor>; M]) {
        match &self.cast {
            None => self.given,
            Some((needed, optional)) => (needed.each_ref(), optional.each_ref().map(Option::as_ref)),
        }
    }
}

/// Casts the inputs of the operation called `op` by its [`rule`], if this thread is in a region. An operation
/// without a rule keeps them, and is computed without autocast as well.
///
/// # Errors
/// A device that lacks the region's dtype.
#[doc(hidden)]
#[track_caller]
pub fn cast<'a, const N: usize, const M: usize>(
    op: &'static str,
    needed: [&'a Tensor; N],
    optional: [Option<&'a Tensor>; M],
) -> Result<Inputs<'a, N, M>> {
    let given = (needed, optional);
    let Some(half) = DTYPE.get() else { return Ok(Inputs { given, cast: None, _off: None }) };
    let Some(rule) = rule(op) else {
        return Ok(Inputs { given, cast: None, _off: Some(Region::new(None)) });
    };
    let all = || needed.into_iter().chain(optional.into_iter().flatten());
    let to = target(rule, half, all());
    check(op, rule, to, all())?;
    let user = here();
    let of = |tensor: &Tensor| with_location(user, || by(tensor, to));
    let cast = (needed.map(of), optional.map(|tensor| tensor.map(of)));
    Ok(Inputs { given, cast: Some(cast), _off: Some(Region::new(None)) })
}

/// As [`cast`], of any number of tensors; `None` outside of regions. What is made of the tensors is to be
/// made while the second lives.
///
/// # Errors
/// As [`cast`].
#[doc(hidden)]
#[track_caller]
pub fn cast_all(op: &'static str, tensors: &[&Tensor]) -> Result<Option<(Vec<Tensor>, impl Drop)>> {
    let Some(half) = DTYPE.get() else { return Ok(None) };
    let Some(rule) = rule(op) else { return Ok(None) };
    let to = target(rule, half, tensors.iter().copied());
    check(op, rule, to, tensors.iter().copied())?;
    let user = here();
    let each = tensors.iter().map(|tensor| with_location(user, || by(tensor, to)));
    Ok(Some((each.collect(), Region::new(None))))
}

/// An error where a device lacks the dtype that is cast to.
#[track_caller]
fn check<'a>(
    op: &'static str,
    rule: Rule,
    to: DType,
    mut all: impl Iterator<Item = &'a Tensor>,
) -> Result<()> {
    let lacks = |tensor: &&Tensor| changes(tensor, to) && !tensor.device().supports(to);
    let Some(tensor) = all.find(lacks).filter(|_| rule == Rule::Lower) else { return Ok(()) };
    let device = tensor.device();
    let other = [DType::BF16, DType::F16].into_iter().find(|&dtype| dtype != to && device.supports(dtype));
    let hint = match other {
        Some(other) => format!("use autocast(DType::{other:?}, …), which the device has"),
        None => "run it without autocast, or on a device that has a half type".into(),
    };
    let device = device.name().into();
    Err(Error::new(ErrorKind::Unsupported { op, device, dtype: to, hint }))
}

/// A tensor as it is after a cast.
#[track_caller]
fn by(tensor: &Tensor, to: DType) -> Tensor {
    if changes(tensor, to) { kept(tensor, to) } else { tensor.clone() }
}

/// The one input of an operation that [`Rule::Wide`] holds for, in f32; `None` where it stays as it is.
#[track_caller]
pub(crate) fn widened(op: &'static str, tensor: &Tensor) -> Option<Tensor> {
    DTYPE.get()?;
    let is_reduced = tensor.dtype().is_reduced_float();
    (is_reduced && rule(op) == Some(Rule::Wide)).then(|| tensor.cast_unchecked(DType::F32))
}

/// Turns autocast off on this thread, while the result lives: for what is made of listed operations and is
/// not listed itself.
#[doc(hidden)]
#[must_use]
pub fn as_one() -> Option<impl Drop> {
    DTYPE.get().is_some().then(|| Region::new(None))
}

/// An input that autocast left alone, in the dtype of one that it cast: a mask of numbers beside queries.
#[doc(hidden)]
#[track_caller]
pub fn like(tensor: Option<&Tensor>, cast: &Tensor) -> Option<Tensor> {
    let follows = |tensor: &Tensor| is_within() && tensor.dtype().is_float();
    tensor.map(|tensor| if follows(tensor) { tensor.cast_unchecked(cast.dtype()) } else { tensor.clone() })
}

/// Whether this thread is in a region, also where autocast is off in it.
#[doc(hidden)]
#[must_use]
pub fn is_within() -> bool {
    DEPTH.get() > 0
}

/// The dtype that a rule casts to.
fn target<'a>(rule: Rule, half: DType, tensors: impl Iterator<Item = &'a Tensor>) -> DType {
    match rule {
        Rule::Lower => half,
        Rule::Wide => DType::F32,
        Rule::Widest => {
            let floats = tensors.map(Tensor::dtype).filter(|dtype| dtype.is_float());
            floats.reduce(DType::promote).unwrap_or(half)
        }
    }
}

/// Whether a tensor is cast: f64 alone to f64.
fn changes(tensor: &Tensor, to: DType) -> bool {
    let dtype = tensor.dtype();
    dtype.is_float() && dtype != DType::F64 && dtype != to
}

/// The cast of a tensor. That of a cell is kept until the outermost region ends, or the cell has another
/// value.
#[track_caller]
fn kept(tensor: &Tensor, to: DType) -> Tensor {
    if !tensor.is_cell() {
        return tensor.cast_unchecked(to);
    }
    let (value, recorded) = (tensor.resolve().id(), is_grad_enabled() && tensor.is_tracked());
    let found = CASTS.with_borrow(|casts| {
        let kept = casts.get(&tensor.id())?;
        let fits = kept.value == value && kept.recorded == recorded && kept.cast.dtype() == to;
        (fits && !kept.cast.is_released()).then(|| kept.cast.clone())
    });
    if let Some(cast) = found {
        return cast;
    }
    let cast = tensor.cast_unchecked(to);
    let entry = Kept { value, recorded, cast: cast.clone() };
    let old = CASTS.with_borrow_mut(|casts| casts.insert(tensor.id(), entry));
    drop(old);
    cast
}
