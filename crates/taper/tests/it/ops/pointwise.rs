//! Properties of elementwise functions that the table of operations cannot express: signs of zeros, numbers
//! to the last bit, promotion of dtypes.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{device, has, of};
use taper::{DType, Tensor};

/// The elements with the bits of their dtype, as f64: signs of zeros are in them.
fn bits(x: &Tensor) -> Vec<u64> {
    x.to_f64_vec().unwrap().iter().map(|v| v.to_bits()).collect()
}

#[track_caller]
fn assert_same(found: &Tensor, expected: &[f64]) {
    let expected: Vec<u64> = expected.iter().map(|v| v.to_bits()).collect();
    assert_eq!(bits(found), expected, "{:?}", found.to_f64_vec().unwrap());
}

#[test]
fn zeros_keep_the_signs_that_pytorch_gives_them() {
    let d = device();
    let x = of(&[-4.0, 4.0, -0.0, 0.0], &[4], DType::F32, &d).unwrap();
    assert_same(&x.fmod(2).unwrap(), &[-0.0, 0.0, -0.0, 0.0]);
    assert_same(&x.fmod(-2.0).unwrap(), &[-0.0, 0.0, -0.0, 0.0]);
    assert_same(&x.frac(), &[0.0, 0.0, 0.0, 0.0]);
    assert_same(&x.mul_scalar(0.125).copysign(-0.0).unwrap(), &[-0.5, -0.5, -0.0, -0.0]);
    assert_same(&x.mul_scalar(0.1).trunc_divide(1).unwrap(), &[-0.0, 0.0, -0.0, 0.0]);
    assert_same(&x.nan_to_num(0.0, None, None), &[-4.0, 4.0, -0.0, 0.0]);
    assert_same(&x.signbit().to_dtype(DType::F32).unwrap(), &[1.0, 0.0, 1.0, 0.0]);
    assert_same(&x.frexp().unwrap().0, &[-0.5, 0.5, -0.0, 0.0]);
}

/// Neighbours are Rust's, to the last bit. Denormal numbers only where a device keeps them.
#[test]
fn the_next_number_is_the_neighbour() {
    let d = device();
    let mut values =
        vec![1.0f32, -1.0, 0.99999994, 2.0, 3.0, -4096.0, 1e30, 1.5e-38, f32::MAX, f32::MIN, f32::INFINITY];
    let exact = of(&[1e-45], &[1], DType::F32, &d).unwrap().add_scalar(0.0).item_f64().unwrap() > 0.0;
    if exact {
        values.extend([0.0, -0.0, 1e-45, -1e-45, f32::MIN_POSITIVE, 1e-40]);
    }
    let x = Tensor::from_vec(values.clone(), [values.len()], &d).unwrap();
    let up = x.nextafter(&x.full_like(f32::INFINITY)).unwrap().to_vec::<f32>().unwrap();
    let down = x.nextafter(&x.full_like(f32::NEG_INFINITY)).unwrap().to_vec::<f32>().unwrap();
    for (i, v) in values.iter().enumerate() {
        assert_eq!(up[i].to_bits(), v.next_up().to_bits(), "above {v:e}: {:e}", up[i]);
        assert_eq!(down[i].to_bits(), v.next_down().to_bits(), "below {v:e}: {:e}", down[i]);
    }
    if has(&d, DType::F64) {
        let values = [1.0f64, -1.0, 0.1, 1e300, f64::MAX, 5e-324, 0.0, 2.5e-308, 1e-310];
        let x = Tensor::from_vec(values.to_vec(), [values.len()], &d).unwrap();
        let up = x.nextafter(&x.full_like(f64::INFINITY)).unwrap().to_vec::<f64>().unwrap();
        let down = x.nextafter(&x.full_like(f64::NEG_INFINITY)).unwrap().to_vec::<f64>().unwrap();
        for (i, v) in values.iter().enumerate() {
            assert_eq!(up[i].to_bits(), v.next_up().to_bits(), "above {v:e}: {:e}", up[i]);
            assert_eq!(down[i].to_bits(), v.next_down().to_bits(), "below {v:e}: {:e}", down[i]);
        }
    }
    for (dtype, next, greatest) in [
        (DType::F16, 1.0 + 2f64.powi(-10), 65504.0),
        (DType::BF16, 1.0 + 2f64.powi(-7), 3.3895313892515355e38),
    ] {
        if has(&d, dtype) {
            let x = of(&[1.0, greatest, f64::INFINITY], &[3], dtype, &d).unwrap();
            let toward = of(&[2.0, f64::INFINITY, 0.0], &[3], dtype, &d).unwrap();
            assert_same(&x.nextafter(&toward).unwrap(), &[next, f64::INFINITY, greatest]);
        }
    }
}

/// Fractions and exponents are exact, over all that f32 has.
#[test]
fn fractions_and_exponents_make_the_number_again() {
    let d = device();
    let values: Vec<f64> = (-125..=127)
        .flat_map(|e| {
            [1.0, 1.0 + f64::from(f32::EPSILON), 1.9999998807907104].map(|m| m * f64::from(e).exp2())
        })
        .collect();
    let x = of(&values, &[values.len()], DType::F32, &d).unwrap();
    let (fraction, exponent) = x.frexp().unwrap();
    let (fraction, exponent) = (fraction.to_f64_vec().unwrap(), exponent.to_vec::<i32>().unwrap());
    for (i, v) in values.iter().enumerate() {
        assert!((0.5..1.0).contains(&fraction[i]), "{v:e}: {}", fraction[i]);
        assert_eq!(fraction[i] * f64::from(exponent[i]).exp2(), *v);
    }
}

#[test]
fn dtypes_are_promoted_as_pytorch_does() {
    let d = device();
    let ints = Tensor::from_vec(vec![7i32, -7, 4], [3], &d).unwrap();
    let floats = of(&[2.0, 2.0, -3.0], &[3], DType::F32, &d).unwrap();
    assert_eq!(ints.fmod(4).unwrap().dtype(), DType::I32);
    assert_eq!(ints.fmod(4).unwrap().to_vec::<i32>().unwrap(), [3, -3, 0]);
    assert_eq!(ints.fmod(&floats).unwrap().dtype(), DType::F32);
    assert_eq!(ints.fmod(2.5).unwrap().to_f64_vec().unwrap(), [2.0, -2.0, 1.5]);
    assert_eq!(ints.copysign(&floats).unwrap().dtype(), DType::F32);
    assert_eq!(ints.hypot(1).unwrap().dtype(), taper::default_dtype());
    assert_eq!(ints.fmax(&floats).unwrap().dtype(), DType::F32);
    assert_eq!(ints.square().dtype(), DType::I32);
    assert_eq!(ints.logit(None).dtype(), taper::default_dtype());
    assert_eq!(ints.bitwise_left_shift(2).unwrap().to_vec::<i32>().unwrap(), [28, -28, 16]);
    assert_eq!(ints.bitwise_right_shift(1).unwrap().to_vec::<i32>().unwrap(), [3, -4, 2]);
    assert_eq!(ints.median().unwrap().dtype(), DType::I32);
    if has(&d, DType::F16) {
        let halves = of(&[1.0, 2.0, 3.0], &[3], DType::F16, &d).unwrap();
        for y in [
            halves.lerp(&halves, 0.25).unwrap(),
            halves.hypot(2).unwrap(),
            halves.addcmul(&halves, &halves, 0.5).unwrap(),
            halves.vector_norm(2, .., false).unwrap(),
            halves.quantile(0.5, .., false).unwrap(),
            halves.nanmean(.., false).unwrap(),
        ] {
            assert_eq!(y.dtype(), DType::F16);
        }
        // Squares of 300 pass the greatest half, their root does not.
        assert_eq!(halves.full_like(300.0).vector_norm(2, .., false).unwrap().item_f64().unwrap(), 519.5);
        assert_eq!(halves.lerp(&floats, 0.5).unwrap().dtype(), DType::F32);
    }
}

/// The errors of bad inputs are distinguishable, and name the fix.
#[test]
fn errors_name_the_operation_and_the_mend() {
    let d = device();
    let x = of(&[1.0, 2.0, 3.0], &[3], DType::F32, &d).unwrap();
    let says = |result: taper::Result<Tensor>, words: &[&str]| {
        let error = result.unwrap_err().to_string();
        for word in words {
            assert!(error.contains(word), "{error} does not say {word}");
        }
    };
    says(x.hypot(x.narrow(0, 0, 2).unwrap()), &["hypot", "[3]", "[2]"]);
    says(x.gcd(2), &["gcd", "f32", "to_dtype"]);
    says(x.clamp_tensor(None, None), &["clamp_tensor", "bound"]);
    says(x.quantile(1.5, .., false), &["quantile", "1.5", "0 to 1"]);
    says(x.kthvalue(4, 0, false).map(|r| r.0), &["kthvalue", "4", "[3]"]);
    says(x.renorm(0, 0, 1.0), &["renorm", "above 0"]);
    says(x.bincount(None), &["bincount", "f32", "integers"]);
    says(x.histc(0, 0.0, 1.0), &["histc", "at least one"]);
    says(x.trapezoid_at(&x.narrow(0, 0, 2).unwrap(), 0), &["trapezoid_at", "[2]", "[3]"]);
    says(x.trace(), &["trace", "[3]"]);
    says(x.to_dtype(DType::Bool).unwrap().fmod(true), &["fmod", "to_dtype"]);
    // A negative number has no bin, and a number beyond the given length is found when the result is
    // computed.
    let places = Tensor::new([1i32, -1], &d).unwrap();
    let error = places.bincount(3).and_then(|c| c.to_f64_vec()).unwrap_err();
    assert!(error.to_string().contains("-1"), "{error}");
}
