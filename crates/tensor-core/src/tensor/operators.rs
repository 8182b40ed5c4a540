//! `+ - * /`, their assigning forms and unary `-` for tensors, references to them, and scalars on either
//! side. They panic on incompatible operands, like slice indexing, with the messages of their checked forms.

use std::ops;

use crate::tensor::Tensor;
use crate::{base::error::Error, elements::scalar::Scalar, kernels::operators::BinaryOp};

/// A number as the right operand of an operator: a Rust number, or a [`Scalar`].
pub trait Number: Into<Scalar> {}
macro_rules! number {
    ($($t:ty),*) => {$( impl Number for $t {} )*};
}
number!(f64, f32, half::f16, half::bf16, i64, i32, u32, u8, usize, Scalar);

macro_rules! operator {
    ($($trait:ident, $method:ident, $op:ident;)*) => {$(
        impl ops::$trait<&Tensor> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            #[allow(clippy::panic)] // an operator cannot return an error; `Tensor::add` and its relatives do
            fn $method(self, rhs: &Tensor) -> Tensor {
                match self.binary(BinaryOp::$op, rhs) {
                    Ok(out) => out,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        impl ops::$trait<Tensor> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: Tensor) -> Tensor { ops::$trait::$method(self, &rhs) }
        }
        impl ops::$trait<&Tensor> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: &Tensor) -> Tensor { ops::$trait::$method(&self, rhs) }
        }
        impl ops::$trait<Tensor> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: Tensor) -> Tensor { ops::$trait::$method(&self, &rhs) }
        }
        impl<S: Number> ops::$trait<S> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: S) -> Tensor { self.with_scalar(BinaryOp::$op, rhs.into(), false) }
        }
        impl<S: Number> ops::$trait<S> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: S) -> Tensor { self.with_scalar(BinaryOp::$op, rhs.into(), false) }
        }
        left_scalar!($trait, $method, $op: f64, i32);
    )*};
}

/// Only one type for each kind of literal, because `(1.0 - &x).mean()` would be ambiguous otherwise. A number
/// of another type stands on the right, or is converted: `&x * 2f32`, `f64::from(2f32) * &x`.
macro_rules! left_scalar {
    ($trait:ident, $method:ident, $op:ident: $($s:ty),*) => {$(
        impl ops::$trait<&Tensor> for $s {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: &Tensor) -> Tensor { rhs.with_scalar(BinaryOp::$op, Scalar::from(self), true) }
        }
        impl ops::$trait<Tensor> for $s {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, rhs: Tensor) -> Tensor { rhs.with_scalar(BinaryOp::$op, Scalar::from(self), true) }
        }
    )*};
}

/// `x += y` makes a new tensor and assigns it to the variable `x`; other handles to the old tensor keep it,
/// and the sum is recorded for gradients. A parameter or another cell would no longer be one: this panics,
/// and `assign` is the method to use.
macro_rules! assigning {
    ($($trait:ident, $method:ident, $operator:ident, $plain:ident;)*) => {$(
        impl ops::$trait<&Tensor> for Tensor {
            #[track_caller]
            fn $method(&mut self, rhs: &Tensor) {
                require_no_cell(self);
                *self = ops::$operator::$plain(&*self, rhs);
            }
        }
        impl ops::$trait<Tensor> for Tensor {
            #[track_caller]
            fn $method(&mut self, rhs: Tensor) { ops::$trait::$method(self, &rhs) }
        }
        impl<S: Number> ops::$trait<S> for Tensor {
            #[track_caller]
            fn $method(&mut self, rhs: S) {
                require_no_cell(self);
                *self = ops::$operator::$plain(&*self, rhs);
            }
        }
    )*};
}

#[track_caller]
#[allow(clippy::panic)] // an operator cannot return an error; `Tensor::assign` does
fn require_no_cell(tensor: &Tensor) {
    if tensor.is_cell() {
        let message =
            "a parameter or another cell would be replaced by a constant: use x.assign(&(&x + 1.0))?";
        panic!("{}", Error::invalid("assign", message));
    }
}

assigning! {
    AddAssign, add_assign, Add, add;
    SubAssign, sub_assign, Sub, sub;
    MulAssign, mul_assign, Mul, mul;
    DivAssign, div_assign, Div, div;
}

operator! {
    Add, add, Add;
    Sub, sub, Sub;
    Mul, mul, Mul;
    Div, div, Div;
}

impl ops::Neg for &Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        Tensor::neg(self)
    }
}
impl ops::Neg for Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        Tensor::neg(&self)
    }
}
