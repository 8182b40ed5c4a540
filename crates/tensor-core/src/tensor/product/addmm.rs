//! Products added to a tensor, with a factor for each of the two summands: BLAS's forms.

use crate::tensor::Tensor;
use crate::{
    base::error::{Error, ErrorKind, Result},
    elements::scalar::Scalar,
    tensor::autocast,
};

/// The operands of a method of this file: the factors' ranks, and their description in errors.
#[derive(Clone, Copy)]
struct Form {
    op: &'static str,
    ranks: [usize; 2],
    what: &'static str,
}

impl Form {
    /// β·`sum` + α·`product` of the factors, with the sum broadcast to the product, which is in the
    /// compute dtype.
    #[track_caller]
    fn apply(
        self,
        sum: &Tensor,
        factors: [&Tensor; 2],
        [beta, alpha]: [Scalar; 2],
        product: impl FnOnce(&Tensor, &Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let [a, b] = factors;
        if [a.rank(), b.rank()] != self.ranks {
            let message = format!("factors of shapes {} and {}: give {}", a.shape(), b.shape(), self.what);
            return Err(Error::invalid(self.op, message));
        }
        Tensor::same_device(self.op, &[sum, a, b])?;
        let cast = autocast::cast(self.op, [sum, a, b], [])?;
        let ([sum, a, b], []) = cast.tensors();
        if a.dtype() != b.dtype() || a.dtype() != sum.dtype() {
            let other = if a.dtype() != b.dtype() { b.dtype() } else { sum.dtype() };
            return Err(Error::new(ErrorKind::DTypeMismatch {
                op: self.op,
                lhs: a.dtype(),
                rhs: other,
                hint: "all three are of one dtype: cast with .to_dtype".into(),
            }));
        }
        for scalar in [beta, alpha] {
            if !a.dtype().is_float() && matches!(scalar, Scalar::Float(x) if x.fract() != 0.0) {
                let message = format!("the factor {} beside integers: give a whole number", scalar.as_f64());
                return Err(Error::invalid(self.op, message));
            }
        }
        // Half types are computed in f32 and rounded once.
        let (dtype, wide) = (a.dtype(), a.dtype().compute());
        let scaled = |t: Tensor, scalar: Scalar| match scalar.as_f64() {
            1.0 => t,
            _ => t.mul_scalar(scalar.cast(wide)),
        };
        let product = scaled(product(a, b)?, alpha);
        let fits =
            sum.shape().broadcast(product.shape(), self.op).is_ok_and(|shape| shape == *product.shape());
        if !fits {
            return Err(Error::new(ErrorKind::ShapeMismatch {
                op: self.op,
                lhs: sum.shape().clone(),
                rhs: product.shape().clone(),
                hint: "what is added to broadcasts to the product".into(),
            }));
        }
        // As in BLAS, an operand with a factor of 0 is not read, so that its NaN does not propagate.
        if beta.as_f64() == 0.0 {
            return product.to_dtype(dtype);
        }
        scaled(sum.cast_unchecked(wide), beta).add(&product)?.to_dtype(dtype)
    }
}

macro_rules! forms {
    ($($(#[$doc:meta])* $name:ident($a:ident, $b:ident) = $form:expr, $product:expr;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            ///
            /// PyTorch's defaults of β and α are 1. With β = 0 this tensor is not read.
            ///
            /// # Errors
            /// Factors of the wrong ranks or incompatible sizes, a tensor that does not broadcast to the
            /// product, several dtypes or devices, a fractional scalar for integers.
            #[track_caller]
            pub fn $name(&self, $a: &Tensor, $b: &Tensor, beta: impl Into<Scalar>, alpha: impl Into<Scalar>) -> Result<Tensor> {
                let (ranks, what) = $form;
                let form = Form { op: stringify!($name), ranks, what };
                form.apply(self, [$a, $b], [beta.into(), alpha.into()], $product)
            }
        )*}
    };
}

forms! {
    /// β·self + α·(mat1 · mat2) for matrices `[m, k]` and `[k, n]`. `torch.addmm`.
    addmm(mat1, mat2) = ([2, 2], "two matrices, [m, k] and [k, n]"), |a, b| a.matmul_wide(b);
    /// β·self + α·(mat · vec) for a matrix `[m, k]` and a vector `[k]`. `torch.addmv`.
    addmv(mat, vec) = ([2, 1], "a matrix [m, k] and a vector [k]"), |a, b| a.matmul_wide(b);
    /// β·self + α·(vec1 ⊗ vec2) for vectors `[m]` and `[n]`: their [`Tensor::outer`] product. `torch.addr`.
    addr(vec1, vec2) = ([1, 1], "two vectors, [m] and [n]"), |a, b| {
        let wide = a.dtype().compute();
        a.cast_unchecked(wide).outer(&b.cast_unchecked(wide))
    };
    /// β·self + α·(batch1 · batch2) for batches of matrices `[b, m, k]` and `[b, k, n]`. `torch.baddbmm`.
    baddbmm(batch1, batch2) = ([3, 3], "two batches of matrices, [b, m, k] and [b, k, n]"), of_batches;
    /// β·self + α·Σ (batch1 · batch2) over a batch of matrices `[b, m, k]` and `[b, k, n]`: `[m, n]`.
    /// `torch.addbmm`.
    addbmm(batch1, batch2) = ([3, 3], "two batches of matrices, [b, m, k] and [b, k, n]"), |a, b| {
        let products = of_batches(a, b)?;
        products.sum_axis(0, false)?.to_dtype(products.dtype())
    };
}

/// A batch of products without broadcasting; half types give f32.
#[track_caller]
fn of_batches(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    if a.dims()[0] != b.dims()[0] {
        let message = format!("batches of {} and of {} matrices", a.dims()[0], b.dims()[0]);
        return Err(Error::invalid("bmm", message));
    }
    a.matmul_wide(b)
}

impl Tensor {
    /// The sum of the products of two vectors' elements, 0-d. `torch.dot`. ([`Tensor::matmul`] takes
    /// vectors and matrices.)
    ///
    /// # Errors
    /// Operands that are not vectors, two lengths, two dtypes or two devices.
    #[track_caller]
    #[doc(alias("vdot", "inner"))]
    pub fn dot(&self, rhs: &Tensor) -> Result<Tensor> {
        if self.rank() != 1 || rhs.rank() != 1 || self.numel() != rhs.numel() {
            return Err(Error::new(ErrorKind::ShapeMismatch {
                op: "dot",
                lhs: self.shape().clone(),
                rhs: rhs.shape().clone(),
                hint: "give two vectors of one length; matmul takes matrices".into(),
            }));
        }
        let cast = autocast::cast("dot", [self, rhs], [])?;
        let ([lhs, rhs], []) = cast.tensors();
        lhs.matmul(rhs)
    }
}
