//! Matrix products: the limit is the processor's multiply-adds.

use taper::{DType, Tensor};

use super::one;
use crate::{
    case::{Case, Inputs},
    check::{elements, host},
};

/// `[batch, m, k] x [batch, k, n]`; an operand may be stored with its last two axes swapped.
#[derive(Clone, Copy)]
struct Product {
    batch: usize,
    m: usize,
    k: usize,
    n: usize,
    lhs_transposed: bool,
    rhs_transposed: bool,
    dtype: DType,
}

impl Product {
    fn plain(batch: usize, m: usize, k: usize, n: usize) -> Product {
        Product { batch, m, k, n, lhs_transposed: false, rhs_transposed: false, dtype: DType::F32 }
    }

    fn case(self, name: &str) -> Case {
        let Product { batch, m, k, n, .. } = self;
        let shape = move |rows, columns, swapped| {
            let [rows, columns] = if swapped { [columns, rows] } else { [rows, columns] };
            if batch == 1 { vec![rows, columns] } else { vec![batch, rows, columns] }
        };
        Case::new(name, move |inputs| {
            let a = self.operand(inputs, shape(m, k, self.lhs_transposed))?;
            let b = self.operand(inputs, shape(k, n, self.rhs_transposed))?;
            let (x, y) = (a.clone(), b.clone());
            let build = move || {
                let lhs = if self.lhs_transposed { x.t()? } else { x.clone() };
                let rhs = if self.rhs_transposed { y.t()? } else { y.clone() };
                lhs.matmul(&rhs)
            };
            one(build, move |result| self.check(result, &a, &b, &shape(m, n, false)))
        })
        .flop(2 * batch * m * k * n)
    }

    /// As [`Product::case`], in a half type: accumulated in f32, rounded once.
    fn half(self, name: &str, dtype: DType) -> Case {
        Product { dtype, ..self }.case(name).unless(match dtype {
            DType::BF16 => |device| (!device.supports(DType::BF16)).then_some("the device has no bf16"),
            _ => |device| (!device.supports(DType::F16)).then_some("the device has no f16"),
        })
    }

    fn operand(self, inputs: &Inputs, shape: Vec<usize>) -> crate::Result<Tensor> {
        match self.dtype {
            DType::F32 => inputs.rand(shape),
            dtype => inputs.centred_of(dtype, shape),
        }
    }

    /// Sampled elements, each a sum over k.
    fn check(self, result: &Tensor, a: &Tensor, b: &Tensor, shape: &[usize]) -> crate::Result<()> {
        let Product { m, k, n, .. } = self;
        let wide = |x: &Tensor| host(&x.to_dtype(DType::F32)?);
        let (a, b) = (wide(a)?, wide(b)?);
        let rounding = match self.dtype {
            DType::BF16 => 2.0_f64.powi(-8),
            DType::F16 => 2.0_f64.powi(-11),
            _ => 0.0,
        };
        let relative = rounding + 1e-6 * (k as f64).sqrt().max(8.0);
        if result.dtype() != self.dtype {
            return Err(format!("wrong result: {}, expected {}", result.dtype(), self.dtype).into());
        }
        elements(&result.to_dtype(DType::F32)?, shape, relative, |at| {
            let (batch, row, column) = (at / (m * n), at / n % m, at % n);
            let lhs = |j| if self.lhs_transposed { j * m + row } else { row * k + j };
            let rhs = |j| if self.rhs_transposed { column * k + j } else { j * n + column };
            let product = |j| f64::from(a[batch * m * k + lhs(j)]) * f64::from(b[batch * k * n + rhs(j)]);
            (0..k).map(product).sum()
        })
    }
}

pub(super) fn listed() -> Vec<Case> {
    let layer = Product::plain(1, 64, 784, 128);
    let gradient = Product::plain(1, 784, 64, 128);
    [64, 256, 512, 1024, 2048]
        .into_iter()
        .map(|n| Product::plain(1, n, n, n).case(&format!("matmul_{n}")))
        .chain([
            layer.case("matmul_nn_64x784x128"),
            Product { rhs_transposed: true, ..layer }.case("matmul_nt_64x784x128"),
            Product { lhs_transposed: true, ..gradient }.case("matmul_tn_784x64x128"),
            Product::plain(32, 128, 128, 128).case("bmm_32x128"),
        ])
        .collect()
}

pub(super) fn more() -> Vec<Case> {
    let square = |n| Product::plain(1, n, n, n);
    let layer = Product { rhs_transposed: true, ..Product::plain(1, 512, 1024, 1024) };
    vec![
        Product::plain(1, 333, 517, 129).case("more_matmul_333x517x129"),
        Product::plain(1, 1, 1024, 1024).case("more_matmul_1x1024x1024"),
        Product::plain(1, 1024, 1024, 1).case("more_matmul_1024x1024x1"),
        Product::plain(16, 65, 77, 33).case("more_bmm_16x65x77x33"),
        square(256).half("matmul_bf16_256", DType::BF16),
        square(1024).half("matmul_bf16_1024", DType::BF16),
        square(2048).half("matmul_bf16_2048", DType::BF16),
        layer.half("linear_bf16_512x1024x1024", DType::BF16),
        square(1024).half("matmul_f16_1024", DType::F16),
    ]
}
