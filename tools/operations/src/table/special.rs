//! Special functions.

use taper::Tensor;

use crate::row::{
    DTypes::{self, Numbers},
    Outputs, Row, one, two,
};

/// A function of one tensor.
fn unary<T: Outputs + 'static>(name: &'static str, torch: &'static str, f: fn(&Tensor) -> T) -> Row {
    one(name, torch, f).pointwise()
}

/// A function that PyTorch gives no gradient of.
fn flat<T: Outputs + 'static>(name: &'static str, torch: &'static str, f: fn(&Tensor) -> T) -> Row {
    unary(name, torch, f)
}

#[rustfmt::skip] // a line a row
pub(super) fn rows() -> Vec<Row> {
    vec![
        unary("erfcx", "torch.special.erfcx(x)", Tensor::erfcx).of(Numbers),
        unary("erfcx", "torch.special.erfcx(x)", Tensor::erfcx).over(1.0, 30.0),
        unary("ndtr", "torch.special.ndtr(x)", Tensor::ndtr).of(Numbers),
        unary("ndtr", "torch.special.ndtr(x)", Tensor::ndtr).over(-6.0, -1.0),
        unary("log_ndtr", "torch.special.log_ndtr(x)", Tensor::log_ndtr),
        unary("log_ndtr", "torch.special.log_ndtr(x)", Tensor::log_ndtr).over(-30.0, -2.0),
        unary("ndtri", "torch.special.ndtri(x)", Tensor::ndtri).over(0.01, 0.99),
        unary("entr", "torch.special.entr(x)", Tensor::entr).over(0.1, 2.0),
        one("entr", "torch.special.entr(x)", Tensor::entr).shapes([&[5]]).exactly(0, &[0.0, -0.0, -1.0, f64::NAN, f64::INFINITY]).order(0),
        two("xlog1py", "torch.special.xlog1py(x, y)", |x, y| x.xlog1py(y)).pointwise().over(-0.7, 2.0).bad(|x| x[0].xlog1py(&x[1].narrow(0, 0, 3)?)),
        two("xlog1py", "torch.special.xlog1py(x, y)", |x, y| x.xlog1py(y)).shapes([&[5], &[5]]).exactly(0, &[0.0, 0.0, 0.0, 1.0, 2.0])
            .exactly(1, &[-1.0, f64::INFINITY, f64::NAN, -1.0, -2.0]).order(0),
        two("zeta", "torch.special.zeta(x.detach(), y)", |x, y| x.zeta(y)).pointwise().over(1.5, 4.0).order(0).bad(|x| x[0].zeta(&x[1].narrow(0, 0, 3)?)),
        two("zeta", "torch.special.zeta(2.5, y)", |_, y| y.mul_scalar(0.0).add_scalar(2.5).zeta(y)).shapes([&[1], &[6]]).exactly(1, &[0.25, 1.0, 3.5, 20.0, 0.0625, 500.0]),
        two("zeta", "torch.special.zeta(x, y)", |x, y| x.zeta(y)).shapes([&[7], &[7]]).exactly(0, &[1.0, 0.5, 2.0, 40.0, 100.0, 2.0, f64::NAN])
            .exactly(1, &[1.0, 1.0, 0.0, 2.0, 1.0, 1000.0, 1.0]).order(0).of(DTypes::F32F64),
        flat("bessel_j0", "", Tensor::bessel_j0).note("PyTorch's is wrong by 1e-7 near 5"),
        flat("bessel_j0", "torch.special.bessel_j0(x)", Tensor::bessel_j0).over(0.0, 3.0).order(0),
        flat("bessel_j0", "", Tensor::bessel_j0).over(-12.0, 30.0).order(0),
        flat("bessel_j1", "", Tensor::bessel_j1),
        flat("bessel_j1", "torch.special.bessel_j1(x)", Tensor::bessel_j1).over(-3.0, 3.0).order(0),
        flat("bessel_j1", "", Tensor::bessel_j1).over(-12.0, 30.0).order(0),
        flat("bessel_y0", "", Tensor::bessel_y0).over(0.3, 8.0),
        flat("bessel_y0", "torch.special.bessel_y0(x)", Tensor::bessel_y0).over(0.3, 2.0).order(0),
        flat("bessel_y1", "", Tensor::bessel_y1).over(0.3, 8.0),
        flat("bessel_y1", "torch.special.bessel_y1(x)", Tensor::bessel_y1).over(0.3, 2.0).order(0),
        flat("modified_bessel_k0", "", Tensor::modified_bessel_k0).over(0.3, 4.0),
        flat("modified_bessel_k0", "torch.special.modified_bessel_k0(x)", Tensor::modified_bessel_k0).over(0.1, 12.0).order(0),
        flat("modified_bessel_k1", "", Tensor::modified_bessel_k1).over(0.3, 4.0),
        flat("modified_bessel_k1", "torch.special.modified_bessel_k1(x)", Tensor::modified_bessel_k1).over(0.1, 12.0).order(0),
        flat("scaled_modified_bessel_k0", "", Tensor::scaled_modified_bessel_k0).over(0.3, 4.0),
        flat("scaled_modified_bessel_k0", "torch.special.scaled_modified_bessel_k0(x)", Tensor::scaled_modified_bessel_k0).over(0.1, 40.0).order(0),
        flat("scaled_modified_bessel_k1", "", Tensor::scaled_modified_bessel_k1).over(0.3, 4.0),
        flat("scaled_modified_bessel_k1", "torch.special.scaled_modified_bessel_k1(x)", Tensor::scaled_modified_bessel_k1).over(0.1, 40.0).order(0),
        flat("spherical_bessel_j0", "", Tensor::spherical_bessel_j0),
        flat("spherical_bessel_j0", "torch.special.spherical_bessel_j0(x)", Tensor::spherical_bessel_j0).over(-9.0, 12.0).order(0),
        flat("airy_ai", "torch.special.airy_ai(x)", Tensor::airy_ai).over(-2.0, 5.0).order(0),
        flat("airy_ai", "", Tensor::airy_ai).over(-12.0, 2.0).order(0),
        flat("chebyshev_polynomial_t", "torch.special.chebyshev_polynomial_t(x, 5)", |x| x.chebyshev_polynomial_t(5)).order(0),
        flat("chebyshev_polynomial_t", "", |x| x.chebyshev_polynomial_t(3)).over(-0.9, 0.9),
        flat("chebyshev_polynomial_t", "torch.special.chebyshev_polynomial_t(x, 0)", |x| x.chebyshev_polynomial_t(0)).order(0),
        flat("chebyshev_polynomial_u", "torch.special.chebyshev_polynomial_u(x, 4)", |x| x.chebyshev_polynomial_u(4)).over(-0.9, 0.9).order(0),
        flat("chebyshev_polynomial_v", "torch.special.chebyshev_polynomial_v(x, 4)", |x| x.chebyshev_polynomial_v(4)).over(-0.9, 0.9).order(0),
        flat("chebyshev_polynomial_w", "torch.special.chebyshev_polynomial_w(x, 4)", |x| x.chebyshev_polynomial_w(4)).over(-0.9, 0.9).order(0),
        flat("shifted_chebyshev_polynomial_t", "torch.special.shifted_chebyshev_polynomial_t(x, 4)", |x| x.shifted_chebyshev_polynomial_t(4)).over(0.05, 0.95).order(0),
        flat("shifted_chebyshev_polynomial_u", "torch.special.shifted_chebyshev_polynomial_u(x, 4)", |x| x.shifted_chebyshev_polynomial_u(4)).over(0.05, 0.95).order(0),
        flat("shifted_chebyshev_polynomial_v", "torch.special.shifted_chebyshev_polynomial_v(x, 4)", |x| x.shifted_chebyshev_polynomial_v(4)).over(0.05, 0.95).order(0),
        flat("shifted_chebyshev_polynomial_w", "torch.special.shifted_chebyshev_polynomial_w(x, 4)", |x| x.shifted_chebyshev_polynomial_w(4)).over(0.05, 0.95).order(0),
        flat("hermite_polynomial_h", "torch.special.hermite_polynomial_h(x, 4)", |x| x.hermite_polynomial_h(4)).order(0),
        flat("hermite_polynomial_he", "torch.special.hermite_polynomial_he(x, 4)", |x| x.hermite_polynomial_he(4)).order(0),
        flat("laguerre_polynomial_l", "torch.special.laguerre_polynomial_l(x, 4)", |x| x.laguerre_polynomial_l(4)).over(0.1, 4.0).order(0),
        flat("legendre_polynomial_p", "torch.special.legendre_polynomial_p(x, 4)", |x| x.legendre_polynomial_p(4)).order(0),
    ]
}
