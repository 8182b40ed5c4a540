//! Comparing results with plain loops in f64, outside the clock.

use taper::Tensor;

use crate::Result;

/// Elements that are looked at in a large result.
const SAMPLES: usize = 20_000;

/// A tensor's elements on the host.
pub(crate) fn host(tensor: &Tensor) -> Result<Vec<f32>> {
    Ok(tensor.to_vec::<f32>()?)
}

/// Positions below `n`: all of a few, else some spread unevenly, the first and the last among them.
pub(crate) fn positions(n: usize, samples: usize) -> impl Iterator<Item = usize> {
    let step = if n <= samples { 1 } else { (n / samples) | 1 };
    // The drift by one at each step visits every place of a block, a vector or a row.
    let drift = usize::from(step > 1);
    (0..n.min(samples)).map(move |i| (i * step + i * drift) % n).chain(n.checked_sub(1))
}

/// The allowed relative difference between a result and its reference. A GPU's functions are less exact than
/// the host's.
fn allowed(result: &Tensor, relative: f64) -> f64 {
    if result.device().name() == "cpu" { relative } else { relative * 100.0 }
}

/// An error unless `got` equals `want` up to a relative error `relative` of it or of `scale`, the size of
/// its terms.
fn close(got: f32, want: f64, relative: f64, scale: f64) -> bool {
    let got = f64::from(got);
    got == want || (got - want).abs() <= relative * (want.abs() + scale) || (got.is_nan() && want.is_nan())
}

/// Compares elements of a result with `want(position)`.
pub(crate) fn elements(
    result: &Tensor,
    shape: &[usize],
    relative: f64,
    want: impl Fn(usize) -> f64,
) -> Result<()> {
    shape_is(result, shape)?;
    let values = host(result)?;
    let relative = allowed(result, relative);
    for i in positions(values.len(), SAMPLES) {
        compare(values[i], want(i), relative, 0.1, || format!("element {i}"))?;
    }
    Ok(())
}

/// Compares all of two lists, with respect to the greatest of the reference.
pub(crate) fn all(what: &str, got: &[f32], want: &[f64], relative: f64) -> Result<()> {
    if got.len() != want.len() {
        return Err(format!("{what}: {} elements, expected {}", got.len(), want.len()).into());
    }
    let scale = want.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
    for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
        compare(got, want, relative, scale, || format!("{what}, element {i}"))?;
    }
    Ok(())
}

/// The part by which results of this device may differ in [`all`].
pub(crate) fn part(device: &taper::Device, relative: f64) -> f64 {
    if device.name() == "cpu" { relative } else { relative * 100.0 }
}

fn compare(got: f32, want: f64, relative: f64, scale: f64, what: impl Fn() -> String) -> Result<()> {
    if close(got, want, relative, scale) {
        return Ok(());
    }
    Err(format!("wrong result: {} is {got}, expected {want}", what()).into())
}

fn shape_is(result: &Tensor, shape: &[usize]) -> Result<()> {
    if result.dims() == shape {
        return Ok(());
    }
    Err(format!("wrong result: shape {}, expected {shape:?}", result.shape()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_lie_within_and_include_the_ends() {
        for n in [1, 7, 1000, 1001, 123_457] {
            let all: Vec<usize> = positions(n, 1000).collect();
            assert!(all.iter().all(|&i| i < n));
            assert!(all.contains(&0) && all.contains(&(n - 1)));
        }
    }

    #[test]
    fn wrong_results_are_named() {
        let cpu = taper::cpu();
        let x = Tensor::from_vec(vec![1.0_f32, 2.5], [2], &cpu).unwrap();
        assert!(elements(&x, &[2], 1e-5, |i| [1.0, 2.5][i]).is_ok());
        let error = elements(&x, &[2], 1e-5, |i| [1.0, 2.6][i]).unwrap_err();
        assert_eq!(error.to_string(), "wrong result: element 1 is 2.5, expected 2.6");
        assert!(elements(&x, &[2, 1], 1e-5, |_| 0.0).is_err());
    }
}
