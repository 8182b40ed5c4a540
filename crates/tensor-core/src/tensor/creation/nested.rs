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

/// How [`Tensor::new`] chooses the dtype if its caller gives none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberOrigin {
    /// The numbers may be literals without a suffix, which Rust makes `f64` and `i32`: they get the default
    /// dtype of their kind.
    Literal,
    /// The program chose the type of the numbers, which is kept.
    Typed,
    /// The numbers are counts (`usize`, `isize`, `i64`): they get the integer dtype of the device, which is
    /// i64 where the device has it.
    Count,
}

impl NumberOrigin {
    /// The origin of numbers of this kind in a vector or slice, whose element type the program chose.
    const fn in_a_list(self) -> NumberOrigin {
        match self {
            NumberOrigin::Literal | NumberOrigin::Typed => NumberOrigin::Typed,
            NumberOrigin::Count => NumberOrigin::Count,
        }
    }
}

/// The argument of [`Tensor::new`]: a number, or a nested array, slice or vector of numbers.
pub trait Nested {
    /// The type of the numbers.
    type Elem: Element;

    /// How the dtype of a tensor of these numbers is chosen.
    const ORIGIN: NumberOrigin;

    /// The sizes of this level and of those below it.
    ///
    /// # Errors
    /// Rows of different lengths.
    #[track_caller]
    fn shape(&self) -> Result<Vec<usize>>;

    /// Appends the numbers in row-major order.
    fn flatten(&self, out: &mut Vec<Self::Elem>);
}

/// Implements [`Nested`] for Rust number types.
macro_rules! nested_number {
    ($($t:ty: $elem:ty, $origin:ident;)*) => {$(
        impl Nested for $t {
            type Elem = $elem;
            const ORIGIN: NumberOrigin = NumberOrigin::$origin;
            #[track_caller]
            fn shape(&self) -> Result<Vec<usize>> {
                Ok(Vec::new())
            }
            fn flatten(&self, out: &mut Vec<$elem>) {
                out.push(*self as $elem);
            }
        }
    )*};
}
nested_number! {
    f64: f64, Literal;
    i32: i32, Literal;
    usize: i64, Count;
    isize: i64, Count;
    // Not every GPU has 64-bit integers.
    i64: i64, Count;
    u8: u8, Typed;
    i8: i8, Typed;
    u16: u16, Typed;
    i16: i16, Typed;
    u32: u32, Typed;
    u64: u64, Typed;
    f16: f16, Typed;
    bf16: bf16, Typed;
    f32: f32, Typed;
    bool: bool, Typed;
    F8E4M3FN: F8E4M3FN, Typed;
    F8E5M2: F8E5M2, Typed;
    F8E4M3FNUZ: F8E4M3FNUZ, Typed;
    F8E5M2FNUZ: F8E5M2FNUZ, Typed;
}

impl<N: Nested> Nested for [N] {
    type Elem = N::Elem;
    const ORIGIN: NumberOrigin = N::ORIGIN.in_a_list();
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
    ($([$($g:tt)*] $t:ty, $origin:expr;)*) => {$(
        impl<N: Nested, $($g)*> Nested for $t {
            type Elem = N::Elem;
            const ORIGIN: NumberOrigin = $origin;
            #[track_caller]
            fn shape(&self) -> Result<Vec<usize>> { <[N] as Nested>::shape(self) }
            fn flatten(&self, out: &mut Vec<N::Elem>) { <[N] as Nested>::flatten(self, out) }
        }
    )*};
}
through_slice! {
    [const S: usize] [N; S], N::ORIGIN;
    [] Vec<N>, N::ORIGIN.in_a_list();
}

impl<N: Nested + ?Sized> Nested for &N {
    type Elem = N::Elem;
    const ORIGIN: NumberOrigin = N::ORIGIN;
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
    /// `options` is a device or `(dtype, &device)`. Without a dtype, the type of the numbers decides:
    ///
    /// - `f64` alone or in arrays (`1.0`, `[1.0]`, `[[1.0]]`) has the default dtype: f32, unless
    ///   [`set_default_dtype`](crate::set_default_dtype) changed it.
    /// - `i32` alone or in arrays (`1`, `[1]`, `[[1]]`) is i64, or i32 on a device without i64.
    /// - `f64` and `i32` in a vector or slice (`Vec<f64>`, `&[i32]`, `Vec<Vec<f64>>`, `Vec<[f64; 2]>`) keep
    ///   their type.
    /// - `i64`, `usize` and `isize` are i64, or i32 on a device without i64.
    /// - Every other type (`1f32`, `7u8`, `vec![true]`, half types) is kept everywhere.
    ///
    /// Arrays of `f64` and `i32` count as literals, as in `torch.tensor([0.1])`, because Rust gives literals
    /// without a suffix these types: `[0.1]` and `[0.1f64]` are one type. A vector or a slice has a type that
    /// the program chose. [`Tensor::from_slice`] keeps every type. See [`default_dtype`].
    ///
    /// # Errors
    /// Rows of different lengths, an integer outside the dtype's range, a dtype that the device lacks,
    /// or out of memory.
    ///
    /// ```
    /// # use tensor_core::{Device, DType, Tensor, Result};
    /// # fn f(device: &Device) -> Result<()> {
    /// assert_eq!(Tensor::new([[1.0, 2.0], [3.0, 4.0]], device)?.dtype(), DType::F32);
    /// assert_eq!(Tensor::new([1, 2, 3], device)?.dtype(), device.int_dtype());
    /// assert_eq!(Tensor::new(vec![1, 2, 3], device)?.dtype(), DType::I32); // a Vec<i32>
    /// let measured: Vec<f64> = vec![0.5, 1.5];
    /// assert_eq!(Tensor::new(&measured, device)?.dtype(), DType::F64);
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
        Tensor::from_numbers(N::ORIGIN, N::Elem::DTYPE, N::Elem::as_bytes(&flat), shape, options.into())
    }

    /// A tensor of numbers of a Rust type, in the dtype of `options` or by the rule of [`Tensor::new`].
    #[track_caller]
    fn from_numbers(
        origin: NumberOrigin,
        given: DType,
        bytes: &[u8],
        shape: Shape,
        options: TensorOptions,
    ) -> Result<Tensor> {
        let device = &options.device;
        let dtype = options.dtype.unwrap_or_else(|| match origin {
            NumberOrigin::Literal if given.is_float() => default_dtype(),
            NumberOrigin::Literal | NumberOrigin::Count => device.int_dtype(),
            NumberOrigin::Typed => given,
        });
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
