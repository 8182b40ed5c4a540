//! Creating tensors: from host data, and from constants, ranges and the identity.

use crate::tensor::Tensor;
use crate::{
    base::{
        error::{Error, ErrorKind, Result},
        file::Content,
        origin::here,
        shape::Shape,
    },
    devices::{backend::Fill, defaults::default_dtype, device::Device},
    elements::{dtype::DType, element::Element, scalar::Scalar},
    graph::{
        facts::{Bounds, ValueInfo},
        node::{Inputs, Node, Value},
        op::{Op, Progression},
    },
    schedule::pending,
    with_element,
};

/// The device of a new tensor, and its dtype: `&device` (for the dtype of [`default_dtype`]) or
/// `(DType::F64, &device)`.
#[derive(Clone, Debug)]
pub struct TensorOptions {
    pub(crate) dtype: Option<DType>,
    pub(crate) device: Device,
}

impl From<&Device> for TensorOptions {
    fn from(device: &Device) -> TensorOptions {
        TensorOptions { dtype: None, device: device.clone() }
    }
}
impl From<(DType, &Device)> for TensorOptions {
    fn from((dtype, device): (DType, &Device)) -> TensorOptions {
        TensorOptions { dtype: Some(dtype), device: device.clone() }
    }
}

/// Checks that the device has the dtype and can hold the shape in one buffer.
#[track_caller]
pub(crate) fn check(op: &'static str, shape: &Shape, dtype: DType, device: &Device) -> Result<()> {
    device.require(dtype, op)?;
    let limit = device.info().limits.max_buffer_bytes;
    match shape.iter().try_fold(dtype.size() as u64, |bytes, &d| bytes.checked_mul(d as u64)) {
        Some(asked) if asked > limit => {
            Err(Error::new(ErrorKind::TooLarge { device: device.name().into(), asked, limit }))
        }
        Some(_) if shape.fits() => Ok(()),
        _ => shape.clone().checked(op).map(|_| ()),
    }
}

impl Tensor {
    /// A source node: no inputs, no value yet.
    #[track_caller]
    pub(crate) fn source(op: Op, shape: Shape, dtype: DType, device: &Device) -> Result<Tensor> {
        check(op.name(), &shape, dtype, device)?;
        Ok(Tensor::source_unchecked(op, shape, dtype, device))
    }

    #[track_caller]
    pub(crate) fn source_unchecked(op: Op, shape: Shape, dtype: DType, device: &Device) -> Tensor {
        let node = Node::new(op, shape, dtype, device.clone(), Inputs::new(), None, false, here());
        Tensor::first(node)
    }

    /// A tensor with the elements of `data` in row-major order.
    ///
    /// # Errors
    /// `data` and `shape` of different sizes, a dtype that the device lacks, or out of memory.
    #[track_caller]
    #[doc(alias("from_numpy", "frombuffer"))]
    pub fn from_slice<T: Element>(data: &[T], shape: impl Into<Shape>, device: &Device) -> Result<Tensor> {
        Tensor::from_bytes("from_slice", T::DTYPE, T::as_bytes(data), shape.into(), device)
    }

    /// A tensor from `bytes`, which are elements of a dtype in host order at any alignment, such as
    /// [`Tensor::read_bytes`] gives. Nonzero bytes of a bool are true. `torch.frombuffer`.
    ///
    /// # Errors
    /// As [`Tensor::from_slice`].
    #[track_caller]
    pub fn from_bytes_of(
        dtype: DType,
        bytes: &[u8],
        shape: impl Into<Shape>,
        device: &Device,
    ) -> Result<Tensor> {
        const OP: &str = "from_bytes_of";
        if dtype.is_bool() {
            let bools = bool::from_bytes(bytes);
            return Tensor::from_bytes(OP, dtype, bool::as_bytes(&bools), shape.into(), device);
        }
        Tensor::from_bytes(OP, dtype, bytes, shape.into(), device)
    }

    /// [`Tensor::from_bytes_of`] with bytes that `fill` writes directly to the tensor's memory: it is
    /// called for pieces, each with its offset, in any order and perhaps on several threads.
    ///
    /// # Errors
    /// The first error of `fill`, and those of [`Tensor::from_slice`].
    #[doc(hidden)] // for writers of file formats
    #[track_caller]
    pub fn from_bytes_with(
        dtype: DType,
        shape: impl Into<Shape>,
        device: &Device,
        fill: &Fill<'_>,
    ) -> Result<Tensor> {
        let shape = shape.into().checked("from_bytes")?;
        check("from_bytes", &shape, dtype, device)?;
        let numel = shape.numel();
        if dtype.is_float() {
            return Tensor::filled(dtype, shape, device, None, fill);
        }
        // The range of integers is recorded, which needs all elements on the host.
        let mut bytes = vec![0; numel * dtype.size()];
        Error::here_in(fill(0, &mut bytes))?;
        Tensor::from_bytes_of(dtype, &bytes, shape, device)
    }

    /// [`Tensor::from_bytes_of`] with the bytes of a file from byte `at` on. Large tensors of floats on a
    /// device whose memory is the host's are pages of the file where [`Content::lend`] gives them. Callers
    /// call [`Content::check_unchanged`] afterwards.
    ///
    /// # Errors
    /// The errors of reading, and of [`Tensor::from_slice`].
    #[doc(hidden)] // for readers of file formats
    #[track_caller]
    pub fn from_content(
        content: &Content,
        at: u64,
        dtype: DType,
        shape: impl Into<Shape>,
        device: &Device,
    ) -> Result<Tensor> {
        let shape = shape.into().checked("from_bytes")?;
        check("from_bytes", &shape, dtype, device)?;
        if dtype.is_float()
            && let Some(bytes) = content.lend(at, shape.numel() * dtype.size())
            && let Some(storage) = Error::here_in(device.backend().adopt(dtype, bytes))?
        {
            let value = Value { storage, facts: ValueInfo::default(), view: None, format: None };
            return Ok(Tensor::ready(Op::Leaf, shape, dtype, device.clone(), value));
        }
        let read = |begin: usize, piece: &mut [u8]| content.read_at(piece, at + begin as u64);
        Tensor::from_bytes_with(dtype, shape, device, &read)
    }

    /// [`Tensor::from_bytes_with`] after the checks, with known bounds of integers.
    #[track_caller]
    fn filled(
        dtype: DType,
        shape: Shape,
        device: &Device,
        bounds: Option<Bounds>,
        fill: &Fill<'_>,
    ) -> Result<Tensor> {
        let numel = shape.numel();
        let value = Error::here_in(Value::upload_with(device, dtype, numel, bounds, fill))?;
        pending::note_bytes(numel * dtype.size());
        Ok(Tensor::ready(Op::Leaf, shape, dtype, device.clone(), value))
    }

    /// Indices from 0 to `greatest`, in the dtype of indices: `write` gives the indices from a position
    /// on, a block at a time.
    #[track_caller]
    pub(in crate::tensor) fn from_indices(
        op: &'static str,
        shape: Shape,
        device: &Device,
        greatest: usize,
        write: impl Fn(usize, &mut [usize]) + Sync,
    ) -> Result<Tensor> {
        const CHUNK_ELEMENTS: usize = 1024;
        let dtype = device.int_dtype();
        let shape = shape.checked(op)?;
        check(op, &shape, dtype, device)?;
        let bounds = Bounds { low: 0, high: greatest as i64, attained: false, above: None };
        Tensor::filled(dtype, shape, device, Some(bounds), &|begin, piece| {
            let mut indices = [0; CHUNK_ELEMENTS];
            macro_rules! fill {
                ($t:ty) => {{
                    let (elements, _) = piece.as_chunks_mut();
                    let first = begin / size_of::<$t>();
                    for (k, elements) in elements.chunks_mut(CHUNK_ELEMENTS).enumerate() {
                        let indices = &mut indices[..elements.len()];
                        write(first + k * CHUNK_ELEMENTS, indices);
                        let pairs = elements.iter_mut().zip(indices);
                        pairs.for_each(|(element, index)| *element = (*index as $t).to_ne_bytes());
                    }
                }};
            }
            if dtype == DType::I64 {
                fill!(i64)
            } else {
                fill!(i32)
            }
            Ok(())
        })
    }

    /// A tensor from `bytes`, which are elements in host order; those of bools are 0 or 1.
    #[track_caller]
    pub(in crate::tensor) fn from_bytes(
        op: &'static str,
        dtype: DType,
        bytes: &[u8],
        shape: Shape,
        device: &Device,
    ) -> Result<Tensor> {
        let shape = shape.checked(op)?;
        let count = bytes.len() / dtype.size();
        if shape.checked_numel() != Some(count) {
            return Err(Error::invalid(
                op,
                format!("{count} elements do not fill shape {shape}, which has {}", shape.numel()),
            ));
        }
        check(op, &shape, dtype, device)?;
        let value = Value::upload(device, dtype, bytes)?;
        pending::note_bytes(bytes.len());
        Ok(Tensor::ready(Op::Leaf, shape, dtype, device.clone(), value))
    }

    /// A tensor with the elements of `data` in row-major order. See [`Tensor::from_slice`].
    #[track_caller]
    #[doc(alias = "from_numpy")]
    pub fn from_vec<T: Element>(data: Vec<T>, shape: impl Into<Shape>, device: &Device) -> Result<Tensor> {
        Tensor::from_bytes("from_vec", T::DTYPE, T::as_bytes(&data), shape.into(), device)
    }

    /// `value` everywhere. Without a dtype in `options`: the default dtype (f32) for a float, i64 for an
    /// integer (i32 on a device without i64), bool for a bool. See [`default_dtype`].
    #[track_caller]
    #[doc(alias = "new_full")]
    pub fn full(
        shape: impl Into<Shape>,
        value: impl Into<Scalar>,
        options: impl Into<TensorOptions>,
    ) -> Result<Tensor> {
        Tensor::full_by(shape.into(), value.into(), options.into())
    }

    #[track_caller]
    fn full_by(shape: Shape, value: Scalar, options: TensorOptions) -> Result<Tensor> {
        let dtype = options.dtype.unwrap_or(value.default_dtype(&options.device));
        Tensor::source(Op::Full(value.cast(dtype)), shape, dtype, &options.device)
    }

    /// Zeros, in the default dtype (f32) unless `options` has another.
    #[track_caller]
    #[doc(alias = "new_zeros")]
    pub fn zeros(shape: impl Into<Shape>, options: impl Into<TensorOptions>) -> Result<Tensor> {
        Tensor::full(shape, 0.0, options)
    }

    /// Ones, in the default dtype (f32) unless `options` has another.
    #[track_caller]
    #[doc(alias = "new_ones")]
    pub fn ones(shape: impl Into<Shape>, options: impl Into<TensorOptions>) -> Result<Tensor> {
        Tensor::full(shape, 1.0, options)
    }

    /// `value` everywhere, with this tensor's shape, dtype and device.
    #[track_caller]
    pub fn full_like(&self, value: impl Into<Scalar>) -> Tensor {
        self.full_like_by(value.into())
    }

    #[track_caller]
    fn full_like_by(&self, value: Scalar) -> Tensor {
        let value = value.cast(self.dtype());
        Tensor::source_unchecked(Op::Full(value), self.shape().clone(), self.dtype(), &self.device())
    }

    /// Zeros with this tensor's shape, dtype and device.
    #[track_caller]
    pub fn zeros_like(&self) -> Tensor {
        self.full_like(0.0)
    }

    /// Ones with this tensor's shape, dtype and device.
    #[track_caller]
    pub fn ones_like(&self) -> Tensor {
        self.full_like(1.0)
    }

    /// `start, start + step, …` up to but excluding `end`: ⌈(end − start) / step⌉ values.
    ///
    /// Without a dtype in `options`: i64 if all three are integers (i32 on a device without i64), else
    /// the default dtype (f32). See [`default_dtype`].
    ///
    /// # Errors
    /// A step of zero, a step away from `end`, or numbers that are not finite.
    #[track_caller]
    #[doc(alias = "range")]
    pub fn arange(
        start: impl Into<Scalar>,
        end: impl Into<Scalar>,
        step: impl Into<Scalar>,
        options: impl Into<TensorOptions>,
    ) -> Result<Tensor> {
        Tensor::arange_by(start.into(), end.into(), step.into(), options.into())
    }

    #[track_caller]
    fn arange_by(start: Scalar, end: Scalar, step: Scalar, options: TensorOptions) -> Result<Tensor> {
        let all_int = [start, end, step].iter().all(|s| s.is_int());
        let dtype =
            options.dtype.unwrap_or(if all_int { options.device.int_dtype() } else { default_dtype() });
        let bad = |why: &str| Error::invalid("arange", format!("from {start} to {end} by {step}: {why}"));
        let (a, b, s) = (start.as_f64(), end.as_f64(), step.as_f64());
        if ![a, b, s].iter().all(|v| v.is_finite()) {
            return Err(bad("start, end and step must be finite").here());
        }
        if s == 0.0 {
            return Err(bad("the step must not be 0").here());
        }
        if (b - a) / s < 0.0 {
            return Err(bad("the step leads away from the end; change its sign").here());
        }
        if dtype.is_bool() {
            return Err(bad("bool has no ranges").here());
        }
        let n = match (all_int, start, end, step) {
            (true, Scalar::Int(a), Scalar::Int(b), Scalar::Int(s)) => {
                let span = (i128::from(b) - i128::from(a)).unsigned_abs();
                usize::try_from(span.div_ceil(i128::from(s).unsigned_abs())).unwrap_or(usize::MAX)
            }
            _ => ((b - a) / s).ceil() as usize,
        };
        let shape = Shape::from([n]);
        Tensor::source(
            Op::Arange(Box::new(Progression { start: start.cast(dtype), step: step.cast(dtype) })),
            shape,
            dtype,
            &options.device,
        )
    }

    /// `n` values evenly spaced from `start` to `end`, both included, in the default dtype (f32) unless
    /// `options` has another.
    ///
    /// # Errors
    /// An integer or bool dtype.
    #[track_caller]
    pub fn linspace(start: f64, end: f64, n: usize, options: impl Into<TensorOptions>) -> Result<Tensor> {
        Tensor::from_formula("linspace", n, evenly(start, end, n), options.into())
    }

    /// `n` powers of `base` whose exponents are evenly spaced from `start` to `end`, both included, in
    /// the default dtype (f32) unless `options` has another. PyTorch's default base is 10.
    /// `torch.logspace`.
    ///
    /// # Errors
    /// An integer or bool dtype.
    #[track_caller]
    pub fn logspace(
        start: f64,
        end: f64,
        n: usize,
        base: f64,
        options: impl Into<TensorOptions>,
    ) -> Result<Tensor> {
        let exponent = evenly(start, end, n);
        Tensor::from_formula("logspace", n, |i| base.powf(exponent(i)), options.into())
    }

    /// `at(0)`, …, `at(n − 1)`, computed on the host and rounded once, in a floating-point dtype.
    #[track_caller]
    pub(crate) fn from_formula(
        op: &'static str,
        n: usize,
        at: impl Fn(usize) -> f64 + Sync,
        options: TensorOptions,
    ) -> Result<Tensor> {
        let fill = |first: usize, values: &mut [f64]| {
            (first..).zip(values).for_each(|(i, value)| *value = at(i));
        };
        Tensor::from_runs(op, n, fill, options)
    }

    /// [`Tensor::from_formula`] with numbers that `fill` gives from a position on, a block at a time.
    #[track_caller]
    pub(crate) fn from_runs(
        op: &'static str,
        n: usize,
        fill: impl Fn(usize, &mut [f64]) + Sync,
        options: TensorOptions,
    ) -> Result<Tensor> {
        let dtype = options.dtype.unwrap_or_else(default_dtype);
        if !dtype.is_float() {
            return Err(Error::invalid(op, format!("a floating-point dtype is needed, not {dtype}")));
        }
        let device = &options.device;
        check(op, &Shape::from([n]), dtype, device)?;
        Tensor::from_bytes_with(dtype, [n], device, &|begin, piece| {
            with_element!(dtype, T => write_blocks::<T>(begin, piece, &fill));
            Ok(())
        })
    }

    /// The `n` by `n` identity matrix, in the default dtype (f32) unless `options` has another.
    #[track_caller]
    #[doc(alias = "identity")]
    pub fn eye(n: usize, options: impl Into<TensorOptions>) -> Result<Tensor> {
        Tensor::eye_by(n, options.into())
    }

    #[track_caller]
    fn eye_by(n: usize, options: TensorOptions) -> Result<Tensor> {
        let dtype = options.dtype.unwrap_or_else(default_dtype);
        check("eye", &Shape::from([n, n]), dtype, &options.device)?;
        Tensor::ones([n], (dtype, &options.device))?.diag(0)
    }
}

/// The number of elements computed on the host at a time.
const BLOCK: usize = 256;

/// Writes a piece of a tensor's bytes, which begins at byte `begin`, with the numbers that `fill` gives.
fn write_blocks<T: Element>(begin: usize, piece: &mut [u8], fill: &impl Fn(usize, &mut [f64])) {
    let size = size_of::<T>();
    let mut block = [0.0; BLOCK];
    for (k, elements) in piece.chunks_mut(BLOCK * size).enumerate() {
        let values = &mut block[..elements.len() / size];
        fill(begin / size + k * BLOCK, values);
        let elements = elements.chunks_exact_mut(size).zip(values);
        elements.for_each(|(element, value)| {
            element.copy_from_slice(T::as_bytes(&[T::from_scalar(Scalar::Float(*value))]));
        });
    }
}

/// `n` numbers from `start` to `end`, computed from both ends toward the middle, so that both ends are
/// exact.
fn evenly(start: f64, end: f64, n: usize) -> impl Fn(usize) -> f64 + Sync {
    let step = if n > 1 { (end - start) / (n - 1) as f64 } else { 0.0 };
    move |i| if i < n.div_ceil(2) { start + step * i as f64 } else { end - step * (n - 1 - i) as f64 }
}

/// An index tensor from positions on the host.
#[track_caller]
pub(in crate::tensor) fn host_index(places: &[usize], shape: Shape, device: &Device) -> Result<Tensor> {
    let greatest = places.iter().copied().max().unwrap_or(0);
    Tensor::from_indices("index", shape, device, greatest, |first, some| {
        some.copy_from_slice(&places[first..][..some.len()]);
    })
}
