//! Element types other than the everyday ones: small integers that wrap, u64 beyond i64, 8-bit floats.
#![allow(clippy::unwrap_used)]

use crate::common::{device, has, needs};
use taper::{DType, F8E4M3FN, F8E5M2, Result, Scalar, Tensor, nn};

/// The integers of a tensor, exactly.
fn integers(t: &Tensor) -> Result<Vec<i128>> {
    if t.dtype() == DType::U64 {
        return Ok(t.to_vec::<u64>()?.into_iter().map(i128::from).collect());
    }
    if t.dtype() == DType::I64 {
        return Ok(t.to_vec::<i64>()?.into_iter().map(i128::from).collect());
    }
    Ok(t.to_f64_vec()?.into_iter().map(|v| v as i128).collect())
}

fn of(values: &[i128], dtype: DType) -> Result<Tensor> {
    let number = |&v: &i128| if v < 0 { Scalar::Int(v as i64) } else { Scalar::from_u64(v as u64) };
    let numbers: Vec<Scalar> = values.iter().map(number).collect();
    Tensor::from_bytes_of(dtype, &Scalar::to_bytes(dtype, &numbers), [values.len()], &device())
}

/// A whole number as a dtype holds it.
fn wrapped(value: i128, dtype: DType) -> i128 {
    let bits = dtype.info().bits;
    let low = value.rem_euclid(1 << bits);
    if dtype.is_signed() && low >= 1 << (bits - 1) { low - (1 << bits) } else { low }
}

/// Every operation on whole numbers gives the low bits of the exact result, whether a value is read between
/// two of them or not.
#[test]
fn integers_wrap_at_each_operation() -> Result<()> {
    for dtype in DType::ALL.into_iter().filter(|&d| d.is_int() && has(&device(), d)) {
        let ends = [dtype.least(), dtype.greatest()].map(|end| match end {
            Scalar::Unsigned(v) => i128::from(v),
            end => i128::from(end.as_i64()),
        });
        let x = [ends[0], ends[1], 0, 1, 7, 100, ends[1] - 2, ends[1] / 3, ends[0] + 5];
        let y = [ends[1], ends[1], 3, 1, 5, 9, 100, 11, ends[1] / 2];
        let (a, b) = (of(&x, dtype)?, of(&y, dtype)?);
        let hold = |name: &str, found: Tensor, f: &dyn Fn(i128, i128) -> i128| -> Result<()> {
            let expected: Vec<i128> = x.iter().zip(y).map(|(&x, y)| wrapped(f(x, y), dtype)).collect();
            assert_eq!((found.dtype(), integers(&found)?), (dtype, expected), "{name} of {dtype}");
            Ok(())
        };
        hold("add", a.add(&b)?, &|x, y| x + y)?;
        hold("sub", a.sub(&b)?, &|x, y| x - y)?;
        hold("mul", a.mul(&b)?, &|x, y| x.wrapping_mul(y))?;
        hold("neg", a.neg(), &|x, _| -x)?;
        hold("abs", a.abs(), &|x, _| x.abs())?;
        hold("not", a.bitwise_not()?, &|x, _| !x)?;
        hold("maximum", a.maximum(&b)?, &|x, y| x.max(y))?;
        hold("floor_divide", a.floor_divide(&b)?, &|x, y| x.div_euclid(y))?;
        hold("remainder", a.remainder(&b)?, &|x, y| x.rem_euclid(y))?;
        hold("powi", a.powi(3), &|x, _| x.wrapping_mul(x).wrapping_mul(x))?;
        hold("sign", a.sign(), &|x, _| x.signum())?;
        hold("xor", a.bitwise_xor(&b)?, &|x, y| x ^ y)?;
        // A sum that leaves the range comes back: as a chain in one kernel, and with a value read on the way.
        let sum = a.add(&b)?;
        let compared = sum.lt(&a)?.to_vec::<bool>()?;
        let wraps: Vec<bool> = x.iter().zip(y).map(|(&x, y)| wrapped(x + y, dtype) < x).collect();
        assert_eq!(compared, wraps, "{dtype}");
        sum.eval()?;
        assert_eq!(sum.lt(&a)?.to_vec::<bool>()?, wraps, "{dtype}");
        hold("add and shift", sum.bitwise_right_shift(&of(&[1; 9], dtype)?)?, &|x, y| {
            wrapped(x + y, dtype) >> 1
        })?;
        // Extremes, order, places.
        let least = x.iter().copied().min().unwrap();
        assert_eq!(integers(&a.min()?)?, [least], "{dtype}");
        let (sorted, order) = a.sort(0, true)?;
        let mut expected = x.to_vec();
        expected.sort_by(|a, b| b.cmp(a));
        assert_eq!(integers(&sorted)?, expected, "{dtype}");
        assert_eq!(integers(&a.gather(0, &order)?)?, expected, "{dtype}");
        assert_eq!(a.argmax()?.item::<i64>()?, 1, "{dtype}");
        let (best, _) = a.cummax(0)?;
        assert_eq!(integers(&best)?, [&x[..1], &[ends[1]; 8]].concat(), "{dtype}");
    }
    Ok(())
}

/// Products of small integers wrap, as PyTorch's do; `matmul_wide` gives the sums in i32.
#[test]
fn products_of_small_integers_add_in_i32() -> Result<()> {
    let types = [DType::I8, DType::U8, DType::I16, DType::U16];
    for (dtype, m) in types.into_iter().flat_map(|dtype| [(dtype, 5), (dtype, 1)]) {
        if !has(&device(), dtype) {
            continue;
        }
        let (k, n) = (70, 9);
        let value = |i: usize| wrapped((i * 37 % 251) as i128, dtype);
        let (x, y): (Vec<i128>, Vec<i128>) =
            ((0..m * k).map(value).collect(), (0..k * n).map(value).collect());
        let (a, b) = (of(&x, dtype)?.reshape([m, k])?, of(&y, dtype)?.reshape([k, n])?);
        let sum = |i: usize, j: usize| (0..k).map(|c| x[i * k + c] * y[c * n + j]).sum::<i128>();
        let sums: Vec<i128> = (0..m * n).map(|at| sum(at / n, at % n)).collect();
        let wide = a.matmul_wide(&b)?;
        assert_eq!((wide.dtype(), integers(&wide)?), (DType::I32, sums.clone()), "{dtype}");
        let narrow = a.matmul(&b)?;
        let expected: Vec<i128> = sums.iter().map(|&sum| wrapped(sum, dtype)).collect();
        assert_eq!((narrow.dtype(), integers(&narrow)?), (dtype, expected), "{dtype}");
        // A zero point and a scale are part of the product's kernel.
        let scaled = wide.sub_scalar(3).to_dtype(DType::F32)?.mul_scalar(0.5).to_f64_vec()?;
        assert_eq!(scaled, sums.iter().map(|&sum| (sum - 3) as f64 * 0.5).collect::<Vec<_>>(), "{dtype}");
    }
    Ok(())
}

#[test]
fn types_meet_as_in_pytorch() -> Result<()> {
    let d = device();
    let one = |dtype| Tensor::ones([2], (dtype, &d));
    for (a, b, both) in [
        (DType::U8, DType::I8, DType::I16),
        (DType::U8, DType::I16, DType::I16),
        (DType::I8, DType::I32, DType::I32),
        (DType::I16, DType::F16, DType::F16),
        (DType::Bool, DType::I8, DType::I8),
    ] {
        if [a, b, both].into_iter().all(|dtype| has(&d, dtype)) {
            assert_eq!(one(a)?.add(&one(b)?)?.dtype(), both);
        }
    }
    // Sums of small integers are those of i64, or i32 on a device without it.
    let x = Tensor::full([1000], 100, (DType::I8, &d))?;
    assert_eq!((x.sum().dtype(), x.sum().item::<i64>()?), (d.int_dtype(), 100_000));
    Ok(())
}

#[test]
fn u64_is_whole_beyond_i64() -> Result<()> {
    let d = device();
    if !needs(&d, DType::U64) {
        return Ok(());
    }
    let x = Tensor::new([u64::MAX, 1 << 63, 5], &d)?;
    assert_eq!(x.dtype(), DType::U64);
    assert_eq!(x.to_vec::<u64>()?, [u64::MAX, 1 << 63, 5]);
    assert_eq!(x.floor_divide_scalar(3).to_vec::<u64>()?, [u64::MAX / 3, (1 << 63) / 3, 1]);
    assert_eq!(x.max()?.item::<u64>()?, u64::MAX);
    assert!(x.to_string().contains("18446744073709551615"), "{x}");
    assert_eq!(x.gt_scalar(u64::MAX - 1).to_vec::<bool>()?, [true, false, false]);
    assert_eq!(Tensor::full([2], u64::MAX, (DType::U64, &d))?.to_vec::<u64>()?, [u64::MAX; 2]);
    // To floats: rounded once.
    assert_eq!(x.to_dtype(DType::F32)?.to_vec::<f32>()?, [u64::MAX as f32, 2f32.powi(63), 5.0]);
    let back = Tensor::new([-1.0f32, 3.9, 1e30, f32::NAN], &d)?.to_dtype(DType::U64)?;
    assert_eq!(back.to_vec::<u64>()?, [0, 3, u64::MAX, 0]);
    Ok(())
}

/// 8-bit floats are stored, moved, cast, and computed in f32 with each result rounded.
#[test]
fn floats_of_8_bits() -> Result<()> {
    let d = device();
    if !needs(&d, DType::F8E4M3FN) {
        return Ok(());
    }
    let numbers = [1.0f32, 0.3, -2.7, 447.0, 1000.0, f32::NAN, 1e-4, -0.0];
    let x = Tensor::new(numbers, &d)?;
    for dtype in [DType::F8E4M3FN, DType::F8E5M2, DType::F8E4M3FNUZ, DType::F8E5M2FNUZ] {
        let small = x.to_dtype(dtype)?;
        let expected: Vec<f64> = numbers.iter().map(|&v| Scalar::from(v).cast(dtype).as_f64()).collect();
        let same = |found: Vec<f64>, expected: &[f64], what: &str| {
            let near = |a: f64, b: f64| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            assert!(
                found.iter().zip(expected).all(|(&a, &b)| near(a, b)),
                "{what} of {dtype}: {found:?}, not {expected:?}"
            );
        };
        same(small.to_f64_vec()?, &expected, "a cast");
        same(small.flip(0)?.contiguous()?.flip(0)?.to_f64_vec()?, &expected, "a view");
        let twice = Tensor::concat(&[&small, &small], 0)?.narrow(0, 8, 8)?;
        same(twice.to_f64_vec()?, &expected, "a concatenation");
        let picked = small.index_select(0, &Tensor::new([2i32, 0], &d)?)?;
        same(picked.to_f64_vec()?, &[expected[2], expected[0]], "a selection");
        same(small.to_dtype(DType::F16)?.to_f64_vec()?, &expected, "a wider type");
        let sum = small.add(&small)?;
        let sums: Vec<f64> = expected.iter().map(|v| Scalar::Float(v + v).cast(dtype).as_f64()).collect();
        assert_eq!(sum.dtype(), dtype);
        same(sum.to_f64_vec()?, &sums, "a sum");
    }
    let held = [F8E5M2::from_f32(0.5), F8E5M2::from_f32(57344.0)];
    assert_eq!(Tensor::new(held, &d)?.to_vec::<F8E5M2>()?, held);
    assert_eq!(Tensor::new([F8E4M3FN::from_f32(3.0)], &d)?.dtype(), DType::F8E4M3FN);
    Ok(())
}

/// A file keeps every element type that the device has.
#[test]
fn files_keep_every_type() -> Result<()> {
    let d = device();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("types.safetensors");
    let mut dict = nn::StateDict::new();
    for dtype in DType::ALL.into_iter().filter(|&dtype| has(&d, dtype)) {
        let numbers: Vec<Scalar> = [0, 1, 2, 3, 1, 0, 1].map(Scalar::Int).to_vec();
        let tensor = Tensor::from_bytes_of(dtype, &Scalar::to_bytes(dtype, &numbers), [7], &d)?;
        dict.insert(dtype.name().to_string(), tensor);
    }
    nn::save_safetensors(&path, &dict)?;
    let read = nn::load_safetensors(&path, &d)?;
    for (name, tensor) in &dict {
        assert_eq!(read[name].dtype(), tensor.dtype());
        assert_eq!(read[name].to_f64_vec()?, tensor.to_f64_vec()?, "{name}");
    }
    Ok(())
}
