//! Conversions to the half types round once, to nearest, ties to even. Tested for every target value, for
//! the midpoints between neighbours and for the numbers beside those, from f32 and f64, by the kernels and
//! on the host.
#![allow(clippy::unwrap_used)]

use tensor_core::{DType, Element, Result, Scalar, Tensor, bf16, f16};

/// A half type: the number for given bits, and the bits of infinity.
struct Half {
    dtype: DType,
    infinity: u16,
    /// The number that would follow the greatest one.
    end: f64,
    wide: fn(u16) -> f64,
}

const HALVES: [Half; 2] = [
    Half { dtype: DType::F16, infinity: 0x7c00, end: 65536.0, wide: |bits| f16::from_bits(bits).to_f64() },
    Half {
        dtype: DType::BF16,
        infinity: 0x7f80,
        end: 340_282_366_920_938_463_463_374_607_431_768_211_456.0,
        wide: |bits| bf16::from_bits(bits).to_f64(),
    },
];

/// Numbers, and the bits that each rounds to. `below` and `above` give the neighbours of a number in its
/// own type.
fn cases<T: Copy>(
    half: &Half,
    number: impl Fn(f64) -> T,
    below: impl Fn(T) -> T,
    above: impl Fn(T) -> T,
    negative: impl Fn(T) -> T,
) -> Vec<(T, u16)> {
    let mut cases = vec![(number(f64::INFINITY), half.infinity)];
    for bits in 0..half.infinity {
        let low = (half.wide)(bits);
        let high = if bits + 1 == half.infinity { half.end } else { (half.wide)(bits + 1) };
        let even = if bits % 2 == 0 { bits } else { bits + 1 };
        let middle = number(low + (high - low) / 2.0);
        cases.push((number(low), bits));
        cases.push((above(number(low)), bits));
        cases.push((below(middle), bits));
        cases.push((middle, even));
        cases.push((above(middle), bits + 1));
        cases.push((below(number(high)), bits + 1));
    }
    let mirrored: Vec<(T, u16)> = cases.iter().map(|&(x, bits)| (negative(x), bits | 0x8000)).collect();
    cases.extend(mirrored);
    cases
}

fn bits_of(halves: &Tensor) -> Result<Vec<u16>> {
    Ok(match halves.dtype() {
        DType::F16 => halves.to_vec::<f16>()?.into_iter().map(f16::to_bits).collect(),
        _ => halves.to_vec::<bf16>()?.into_iter().map(bf16::to_bits).collect(),
    })
}

#[track_caller]
fn same<T: Element>(cases: &[(T, u16)], found: &[u16], what: &str) {
    assert_eq!(cases.len(), found.len());
    for (&(x, bits), &found) in cases.iter().zip(found) {
        assert!(bits == found, "{what}: {x:?} is {bits:#06x}, not {found:#06x}");
    }
}

fn check<T: Element + Into<Scalar>>(half: &Half, cases: &[(T, u16)]) -> Result<()> {
    let device = backend_cpu::cpu();
    let all: Vec<T> = cases.iter().map(|c| c.0).collect();
    let x = Tensor::from_vec(all, [cases.len()], &device)?;
    let what = |how: &str| format!("{} to {} by {how}", T::DTYPE, half.dtype);
    same(cases, &bits_of(&x.to_dtype(half.dtype)?)?, &what("a cast"));
    // A computed value stays f32 or f64 until it is stored.
    same(cases, &bits_of(&x.mul(&x.ones_like())?.to_dtype(half.dtype)?)?, &what("a cast of a result"));
    let exact = |bits: u16| (half.wide)(bits);
    for &(x, bits) in cases {
        let scalar = x.to_scalar().cast(half.dtype);
        let value = if bits & 0x7fff == half.infinity { f64::INFINITY } else { exact(bits & 0x7fff) };
        let value = if bits & 0x8000 == 0 { value } else { -value };
        assert!(scalar.as_f64().to_bits() == value.to_bits(), "{}: {x:?} is {value}", what("a scalar"));
    }
    Ok(())
}

#[test]
fn every_target_and_midpoint() -> Result<()> {
    for half in &HALVES {
        check(half, &cases(half, |x| x as f32, f32::next_down, f32::next_up, |x| -x))?;
        check(half, &cases(half, |x| x, f64::next_down, f64::next_up, |x| -x))?;
    }
    // A NaN stays NaN.
    let device = backend_cpu::cpu();
    for bits in [0x7ff0_0000_0000_0001u64, 0xfff8_0000_0000_0000, 0x7ff0_0000_0000_1000] {
        let x = Tensor::from_vec(vec![f64::from_bits(bits)], [1], &device)?;
        for half in &HALVES {
            assert!(x.to_dtype(half.dtype)?.to_f64_vec()?[0].is_nan());
        }
    }
    Ok(())
}

/// The instruction set is selected once in a process, so each runs in its own process.
#[test]
fn every_target_and_midpoint_on_every_instruction_set() {
    for isa in ["baseline", "avx2", "avx512"] {
        let child = taper_testing::test_process(every_target_and_midpoint)
            .env("TAPER_CPU_ISA", isa)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
        let lacking = isa != "baseline" && told.contains("an instruction set of this processor");
        assert!(lacking || (child.status.success() && told.contains("1 passed")), "{isa}: {told}");
    }
}

/// Without hardware support for f16, `half` computes the conversion.
#[test]
fn conversions_without_hardware() {
    let half = &HALVES[0];
    for (x, bits) in cases(half, |x| x as f32, f32::next_down, f32::next_up, |x| -x) {
        assert_eq!(f16::from_f32_const(x).to_bits(), bits, "{x}");
        assert_eq!(f16::from_f32(x).to_bits(), bits, "{x}");
    }
}

#[test]
fn numbers_that_are_not_read_from_tensors() -> Result<()> {
    let device = backend_cpu::cpu();
    for dtype in [DType::F16, DType::BF16] {
        // Half a step of the type above 1, and a little more.
        let step = if dtype == DType::F16 { 2f64.powi(-10) } else { 2f64.powi(-7) };
        let value = 1.0 + step / 2.0 + 2f64.powi(-40);
        let options = (dtype, &device);
        assert_eq!(Tensor::full([2], value, options)?.to_f64_vec()?, [1.0 + step; 2]);
        let zero = Tensor::zeros([1], options)?;
        zero.eval()?;
        let padded = zero.pad(&[(0, 1)], value)?;
        assert_eq!(padded.to_f64_vec()?, [0.0, 1.0 + step]);
        assert_eq!(Tensor::linspace(value, 2.0, 2, options)?.to_f64_vec()?, [1.0 + step, 2.0]);
        assert_eq!(Tensor::linspace(2.0, value, 2, options)?.to_f64_vec()?, [2.0, 1.0 + step]);
        // ln(e^a + e^b) is a if e^b is far below the precision of f64.
        let terms = Tensor::from_vec(vec![1.0 + step, -900.0], [2], &device)?.to_dtype(dtype)?;
        assert_eq!(
            terms.cumulative(tensor_core::CumulativeOp::LogSumExp, 0, false)?.to_f64_vec()?,
            [1.0 + step; 2]
        );
    }
    let integers = Tensor::from_vec(vec![(1i32 << 24) + (1 << 16) + 1, 257, -257, i32::MIN], [4], &device)?;
    let rounded = [16_777_216.0 + 131_072.0, 256.0, -256.0, -2_147_483_648.0];
    assert_eq!(integers.to_dtype(DType::BF16)?.to_f64_vec()?, rounded);
    assert_eq!(integers.to_dtype(DType::I64)?.to_dtype(DType::BF16)?.to_f64_vec()?, rounded);
    Ok(())
}
