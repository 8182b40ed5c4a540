//! Tensors from nested arrays and vectors, like `torch.tensor([[1, 2], [3, 4]])`.

use half::{bf16, f16};

use crate::tensor::{Tensor, TensorOptions};
use crate::{
    base::{
        error::{Error, Result},
        shape::Shape,
    },
    devices::defaults::default_dtype,
    elements::{
        dtype::{
            DType,
            float8::{F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ},
        },
        element::Element,
        scalar::Scalar,
    },
};

/// The argument of [`Tensor::new`]: a number, or a nested array, slice or vector of numbers.
pub trait Nested {
    /// The type of the numbers.
    type Elem: Element;

    /// The sizes of this level and of those below it.
    ///
    /// # Errors
    /// Rows of different lengths.
    #[track_caller]
    fn shape(&self) -> Result<Vec<usize>>;

    /// Appends the numbers in row-major order.
    fn flatten(&self, out: &mut Vec<Self::Elem>);
}

/// Implements [`Nested`] for Rust element types.
macro_rules! nested_number {
    ($($t:ty),*) => {$(
        impl Nested for $t {
            type Elem = $t;
            #[track_caller]
            fn shape(&self) -> Result<Vec<usize>> {
                Ok(Vec::new())
            }
            fn flatten(&self, out: &mut Vec<$t>) {
                out.push(*self);
            }
        }
    )*};
}
nested_number!(u8, i8, u16, i16, u32, i32, u64, i64, f16, bf16, f32, f64, bool);
nested_number!(F8E4M3FN, F8E5M2, F8E4M3FNUZ, F8E5M2FNUZ);

/// Implements [`Nested`] for `usize` and `isize`, which are converted to i64.
macro_rules! word {
    ($($t:ty),*) => {$(
        impl Nested for $t {
            type Elem = i64;
            fn shape(&self) -> Result<Vec<usize>> { Ok(Vec::new()) }
            fn flatten(&self, out: &mut Vec<i64>) { out.push(*self as i64); }
        }
    )*};
}
word!(usize, isize);

impl<N: Nested> Nested for [N] {
    type Elem = N::Elem;
    #[track_caller]
    fn shape(&self) -> Result<Vec<usize>> {
        let mut inner = Vec::new();
        for (i, row) in self.iter().enumerate() {
            let shape = row.shape()?;
            if i == 0 {
                inner = shape;
            } else if shape != inner {
                return Err(Error::invalid(
                    "tensor",
                    format!(
                        "rows differ: item 0 has shape {inner:?}, item {i} has {shape:?}; make all rows equal"
                    ),
                ));
            }
        }
        inner.insert(0, self.len());
        Ok(inner)
    }
    fn flatten(&self, out: &mut Vec<N::Elem>) {
        self.iter().for_each(|row| row.flatten(out));
    }
}

macro_rules! through_slice {
    ($([$($g:tt)*] $t:ty),*) => {$(
        impl<N: Nested, $($g)*> Nested for $t {
            type Elem = N::Elem;
            #[track_caller]
            fn shape(&self) -> Result<Vec<usize>> { <[N] as Nested>::shape(self) }
            fn flatten(&self, out: &mut Vec<N::Elem>) { <[N] as Nested>::flatten(self, out) }
        }
    )*};
}
through_slice!([const S: usize] [N; S], [] Vec<N>);

impl<N: Nested + ?Sized> Nested for &N {
    type Elem = N::Elem;
    #[track_caller]
    fn shape(&self) -> Result<Vec<usize>> {
        (**self).shape()
    }
    fn flatten(&self, out: &mut Vec<N::Elem>) {
        (**self).flatten(out);
    }
}

impl Tensor {
    /// A tensor from a number, or from nested arrays, slices or vectors of numbers. `torch.tensor`.
    ///
    /// `options` is a device or `(dtype, &device)`. Without a dtype, one rule applies: plain Rust floats
    /// (f64: `1.0`) have the default dtype, f32 unless [`set_default_dtype`](crate::set_default_dtype)
    /// changed it; integers (`1`, whether i32, i64, usize or isize) are i64, or i32 on a device without
    /// i64; bools are bool; and `1.0f32`, `7u8`, `7u32`, and half types keep their type. See
    /// [`default_dtype`]. [`Tensor::from_slice`] keeps every type.
    ///
    /// # Errors
    /// Rows of different lengths, an integer outside the dtype's range, a dtype that the device lacks,
    /// or out of memory.
    ///
    /// ```
    /// # use tensor_core::{Device, DType, Tensor, Result};
    /// # fn f(device: &Device) -> Result<()> {
    /// assert_eq!(Tensor::new([[1.0, 2.0], [3.0, 4.0]], device)?.dtype(), DType::F32);
    /// assert_eq!(Tensor::new(vec![1, 2, 3], device)?.dtype(), device.int_dtype());
    /// assert_eq!(Tensor::new([1, 2], (DType::F64, device))?.dtype(), DType::F64);
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    #[doc(alias("tensor", "as_tensor"))]
    pub fn new<N: Nested>(data: N, options: impl Into<TensorOptions>) -> Result<Tensor> {
        let shape = Shape::from(data.shape()?).checked("tensor")?;
        let mut flat = Vec::with_capacity(shape.numel());
        data.flatten(&mut flat);
        Tensor::from_literal(N::Elem::DTYPE, N::Elem::as_bytes(&flat), shape, options.into())
    }

    /// A tensor of numbers of a Rust type, in the dtype of `options` or by the rule of [`Tensor::new`].
    #[track_caller]
    fn from_literal(given: DType, bytes: &[u8], shape: Shape, options: TensorOptions) -> Result<Tensor> {
        let device = &options.device;
        // Rust's types of plain literals follow the defaults; an explicit type is kept.
        let is_literal = matches!(given, DType::F64 | DType::I32 | DType::I64);
        let own = || if given.is_float() { default_dtype() } else { device.int_dtype() };
        let dtype = options.dtype.unwrap_or_else(|| if is_literal { own() } else { given });
        if dtype == given {
            return Tensor::from_bytes("tensor", dtype, bytes, shape, device);
        }
        let numbers = Scalar::from_bytes(given, bytes);
        if given.is_int()
            && dtype.is_int()
            && let Some(wrong) = numbers.iter().find(|n| n.cast(dtype) != **n)
        {
            return Err(Error::invalid(
                "tensor",
                format!(
                    "{wrong} does not fit {dtype}, the dtype that was asked for or that {device} has for integers"
                ),
            ));
        }
        Tensor::from_bytes("tensor", dtype, &Scalar::to_bytes(dtype, &numbers), shape, device)
    }
}
