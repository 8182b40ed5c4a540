//! Autocast: within a region, matrix products run in a half type, and operations that need range or
//! precision run in f32, whatever dtype their inputs have. One table, [`rule`], says which operation
//! does what. A region is a property of the thread, like the recording of gradients.
//!
//! A listed operation casts its inputs on entry ([`cast`]) and then runs without autocast, so that the
//! operations it is composed of keep their dtypes.

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
    /// The number of nested regions that this thread is in.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static CASTS: RefCell<HashMap<u64, Kept>> = RefCell::new(HashMap::new());
}

/// The cast of a cell's value, kept until the outermost region ends.
struct Kept {
    /// The value that was cast.
    value: u64,
    recorded: bool,
    cast: Tensor,
}

/// The cast that autocast applies to an operation's floating-point inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// All are cast to the region's half type.
    Lower,
    /// Half types are cast to f32.
    Wide,
    /// All are cast to the widest dtype among them.
    Widest,
}

/// The rule of an operation by its name, if it has one: the lists of PyTorch's autocast for CUDA, which
/// Taper follows on every device.
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

/// The half type of the current thread's region, if it is in one.
pub fn autocast_dtype() -> Option<DType> {
    DTYPE.get()
}

/// Runs `f` with matrix products in `dtype` (bf16 or f16), and with range-sensitive operations in f32.
/// `torch.autocast`.
///
/// Parameters keep their dtype, and their gradients have that dtype. Matrix products, linear layers,
/// convolutions, attention and recurrent layers cast their inputs to `dtype`; sums, exponentials,
/// logarithms, powers, softmax, norms and losses cast half types to f32; operations that join several
/// tensors cast them to the widest dtype among them; every other operation runs in the dtype of its
/// inputs. f64 and integers are never cast. These are PyTorch's lists for CUDA, on every device. A
/// parameter that is used several times in a region is cast once.
///
/// As in PyTorch, call `backward` and the optimizer outside the region; gradients are computed in the
/// dtypes of the forward pass in any case. bf16 has the range of f32; with f16, scale the loss against
/// underflow of small gradients (`GradScaler`).
///
/// The region holds for this thread and ends with `f`, also if `f` fails or panics. Regions may be
/// nested; the innermost one applies.
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
/// `Invalid` for a dtype other than f16 and bf16 (`f` is not run), and any error of `f`. An operation on
/// a device without the dtype is an error of that operation.
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

/// Runs `f` with autocast off, within a region: `torch.autocast(enabled=False)`. Tensors made outside of
/// `f` may be of a half type; cast them where f32 is needed.
pub fn no_autocast<R>(f: impl FnOnce() -> R) -> R {
    let _region = Region::new(None);
    f()
}

/// A region on this thread. It ends when this is dropped.
struct Region {
    before: Option<DType>,
    /// Makes the region `!Send`: it belongs to its thread.
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
            // Taken first and dropped outside of the borrow: dropping a tensor may run other code.
            let casts = CASTS.take();
            drop(casts);
        }
    }
}

/// An operation's inputs after autocast. While this lives, autocast is off on this thread.
#[doc(hidden)]
pub struct Inputs<'a, const N: usize, const M: usize> {
    given: ([&'a Tensor; N], [Option<&'a Tensor>; M]),
    cast: Option<([Tensor; N], [Option<Tensor>; M])>,
    _off: Option<Region>,
}

impl<const N: usize, const M: usize> Inputs<'_, N, M> {
    /// Whether this thread is in a region and the operation has a rule.
    pub fn is_cast(&self) -> bool {
        self.cast.is_some()
    }

    /// The tensors to compute with.
    pub fn tensors(&self) -> ([&Tensor; N], [Option<&Tensor>; M]) {
        match &self.cast {
            None => self.given,
            Some((needed, optional)) => (needed.each_ref(), optional.each_ref().map(Option::as_ref)),
        }
    }
}

/// Casts the inputs of the operation called `op` by its [`rule`], if this thread is in a region. An
/// operation without a rule keeps its inputs, and also runs without autocast.
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

/// [`cast`] for any number of tensors; `None` outside of regions. Compute with the tensors while the
/// second value lives: it keeps autocast off.
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

/// Fails if a device lacks the dtype that its tensor is cast to.
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

/// The tensor after its cast.
#[track_caller]
fn by(tensor: &Tensor, to: DType) -> Tensor {
    if changes(tensor, to) { kept(tensor, to) } else { tensor.clone() }
}

/// The single input of an operation with [`Rule::Wide`], cast to f32; `None` if no cast is needed.
#[track_caller]
pub(crate) fn widened(op: &'static str, tensor: &Tensor) -> Option<Tensor> {
    DTYPE.get()?;
    let is_reduced = tensor.dtype().is_reduced_float();
    (is_reduced && rule(op) == Some(Rule::Wide)).then(|| tensor.cast_unchecked(DType::F32))
}

/// Turns autocast off on this thread while the result lives: for an unlisted operation that is composed
/// of listed ones.
#[doc(hidden)]
#[must_use]
pub fn as_one() -> Option<impl Drop> {
    DTYPE.get().is_some().then(|| Region::new(None))
}

/// An input that autocast left alone, in the dtype of one that it cast: for example an additive mask
/// beside queries.
#[doc(hidden)]
#[track_caller]
pub fn like(tensor: Option<&Tensor>, cast: &Tensor) -> Option<Tensor> {
    let follows = |tensor: &Tensor| is_within() && tensor.dtype().is_float();
    tensor.map(|tensor| if follows(tensor) { tensor.cast_unchecked(cast.dtype()) } else { tensor.clone() })
}

/// Whether this thread is in a region, also one in which autocast is off at the moment.
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

/// Whether the tensor is cast. f64 is cast to nothing but f64.
fn changes(tensor: &Tensor, to: DType) -> bool {
    let dtype = tensor.dtype();
    dtype.is_float() && dtype != DType::F64 && dtype != to
}

/// The cast of a tensor. A cell's cast is kept until the outermost region ends or the cell gets another
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
