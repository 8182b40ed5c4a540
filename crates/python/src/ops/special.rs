//! `torch.special`: functions beyond those of tensors. The package gives them their places.

use taper::{DType, Result, Tensor};

use super::functions;
use crate::{
    args::{Operand, Value},
    promote::{all, float},
};

/// Functions of one tensor by their names.
macro_rules! unary {
    ($($name:ident)*) => {
        /// A function of one tensor by its name.
        fn of_one(name: &str, x: &Tensor) -> Result<Tensor> {
            match name {
                $(stringify!($name) => Ok(x.$name()),)*
                _ => Err(taper::Error::invalid("special", format!("no function {name}"))),
            }
        }
    };
}

unary! {
    i1 i0e i1e erfcx ndtr log_ndtr ndtri entr bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_k0
    modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0 airy_ai
}

/// Polynomials by their names.
macro_rules! polynomials {
    ($($name:ident)*) => {
        /// A polynomial of a degree by its name.
        fn polynomial(name: &str, x: &Tensor, degree: u32) -> Result<Tensor> {
            match name {
                $(stringify!($name) => Ok(x.$name(degree)),)*
                _ => Err(taper::Error::invalid("special", format!("no polynomial {name}"))),
            }
        }
    };
}

polynomials! {
    chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w
    shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v
    shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l
    legendre_polynomial_p
}

functions! { register:
    _special(name: String, x: Value) "SpecialBackward0" => of_one(&name, &x.0);
    _special_xlog1py(x: Operand, other: Operand) "SpecialXlog1PyBackward0" => {
        let [a, b] = all([&x, &other], float)?;
        a.xlog1py(&b)
    };
    _special_zeta(x: Operand, other: Operand) "SpecialZetaBackward0" => {
        let [a, b] = all([&x, &other], float)?;
        // The sum has a pole at each whole number up to 0; Taper's own function ends at 0.
        let whole = b.le_scalar(0.0).bitwise_and(&b.eq(&b.floor())?)?.bitwise_and(&a.gt_scalar(1.0))?;
        a.zeta(&b)?.masked_fill(&whole, f64::INFINITY)
    };
    _special_polynomial(name: String, x: Operand, n: Operand) "" => {
        let [x, n] = all([&x, &n], float)?;
        let both = Tensor::broadcast_tensors(&[&x, &n])?;
        let (x, n) = (&both[0], &both[1]);
        // The degrees are few: each is computed for all elements and taken where it is asked for.
        let mut degrees: Vec<i64> = n.to_dtype(DType::F64)?.flatten_all().to_vec::<f64>()?
            .into_iter()
            .map(|degree| degree as i64)
            .collect();
        degrees.sort_unstable();
        degrees.dedup();
        let whole = n.trunc();
        let mut out = x.zeros_like();
        for degree in degrees.into_iter().filter(|&degree| degree >= 0) {
            let degree = u32::try_from(degree).unwrap_or(u32::MAX);
            out = whole.eq_scalar(f64::from(degree)).where_cond(&polynomial(&name, x, degree)?, &out)?;
        }
        Ok(out)
    };
}
