//! Tensors from nested arrays and vectors, as `torch.tensor([[1, 2], [3, 4]])`.

use super::Tensor;
use crate::{Device, Element, Error, Result, Shape};

/// A number, or an array, slice or vector of nested ones: what [`Tensor::new`] takes.
pub trait Nested {
    /// The type of the numbers.
    type Elem: Element;

    /// The sizes of this level and those below.
    ///
    /// # Errors
    /// Rows of different lengths.
    #[track_caller]
    fn shape(&self) -> Result<Vec<usize>>;

    /// Appends the numbers in row-major order.
    fn flatten(&self, out: &mut Vec<Self::Elem>);
}

macro_rules! number {
    ($($t:ty),*) => {$(
        impl Nested for $t {
            type Elem = $t;
            #[track_caller]
            fn shape(&self) -> Result<Vec<usize>> { Ok(Vec::new()) }
            fn flatten(&self, out: &mut Vec<$t>) { out.push(*self); }
        }
    )*};
}
number!(f32, f64, half::f16, half::bf16, i64, i32, u32, u8, bool);

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
    /// A tensor of a number, or of nested arrays or vectors of numbers; the dtype is that of the numbers.
    ///
    /// Rust reads a bare `1.0` as f64: write `1.0f32` for the usual dtype.
    ///
    /// # Errors
    /// Rows of different lengths, a dtype that the device lacks, or no memory.
    #[track_caller]
    pub fn new(data: impl Nested, device: &Device) -> Result<Tensor> {
        let shape = Shape::from(data.shape()?).checked("tensor")?;
        let mut flat = Vec::with_capacity(shape.numel());
        data.flatten(&mut flat);
        Tensor::from_slice(&flat, shape, device)
    }
}
