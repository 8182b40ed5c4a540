//! Operations with several results: each has a value, a gradient and a life of its own.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{device, of, reference_device};
use taper::autograd::{Function, TensorGrad, apply, grad};
use taper::{DType, Device, ErrorKind, Result, Tensor, dot, eval_pending, no_grad};
use taper_testing::reference_backend;

/// Polar coordinates of points (x, y): radius, angle and x² + y², the last of which has no gradient.
#[derive(Debug)]
struct Polar;
impl Function for Polar {
    type Output = (Tensor, Tensor, Tensor);
    fn name(&self) -> &'static str {
        "Polar"
    }
    fn forward(&self, inputs: &[&Tensor]) -> Result<(Tensor, Tensor, Tensor)> {
        let square = inputs[0].powi(2).add(&inputs[1].powi(2))?;
        Ok((square.sqrt(), inputs[1].atan2(inputs[0])?, square))
    }
    fn backward(
        &self,
        inputs: &[Tensor],
        (radius, _, square): &(Tensor, Tensor, Tensor),
        (of_radius, of_angle, of_square): &(Option<Tensor>, Option<Tensor>, Option<Tensor>),
    ) -> Result<Vec<Option<Tensor>>> {
        let (x, y) = (&inputs[0], &inputs[1]);
        let (mut dx, mut dy) = (x.zeros_like(), y.zeros_like());
        if let Some(g) = of_radius {
            let g = g.div(radius)?;
            (dx, dy) = (dx.add(&g.mul(x)?)?, dy.add(&g.mul(y)?)?);
        }
        if let Some(g) = of_angle {
            let g = g.div(square)?;
            (dx, dy) = (dx.sub(&g.mul(y)?)?, dy.add(&g.mul(x)?)?);
        }
        assert!(of_square.is_none(), "nothing was computed from it");
        Ok(vec![Some(dx), Some(dy)])
    }
}

fn points(d: &Device) -> Result<(Tensor, Tensor)> {
    Ok((
        of(&[3.0, -1.0, 0.5], &[3], DType::F32, d)?.requires_grad(),
        of(&[4.0, 2.0, -0.25], &[3], DType::F32, d)?.requires_grad(),
    ))
}

#[track_caller]
fn near(tensor: &Tensor, wanted: impl IntoIterator<Item = f64>) {
    let found = tensor.to_f64_vec().unwrap();
    let wanted: Vec<f64> = wanted.into_iter().collect();
    assert_eq!(found.len(), wanted.len());
    for (f, w) in found.iter().zip(&wanted) {
        assert!((f - w).abs() <= 1e-4 * (1.0 + w.abs()), "{found:?} is not {wanted:?}");
    }
}

#[test]
fn each_result_has_its_value() -> Result<()> {
    let (x, y) = points(&device())?;
    let (radius, angle, square) = apply(Polar, &[&x, &y])?;
    assert!(!radius.is_evaluated() && !angle.is_evaluated());
    near(&angle, [4f64.atan2(3.0), 2f64.atan2(-1.0), (-0.25f64).atan2(0.5)]);
    near(&radius, [5.0, 5f64.sqrt(), 0.3125f64.sqrt()]);
    near(&square, [25.0, 5.0, 0.3125]);
    assert!(radius.to_string().contains("grad_fn=Polar"), "{radius}");
    // A view of one, and one used with another.
    near(&radius.slice(0, 1..3)?.mul(&angle.slice(0, 1..3)?.zeros_like())?, [0.0, 0.0]);
    let (radius, _, _) = no_grad(|| apply(Polar, &[&x, &y]))?;
    assert!(!radius.is_tracked());
    near(&radius, [5.0, 5f64.sqrt(), 0.3125f64.sqrt()]);
    assert!(radius.inputs().is_empty());
    Ok(())
}

#[test]
fn gradients_with_some_of_the_results_used() -> Result<()> {
    let (xs, ys) = ([3.0, -1.0, 0.5], [4.0, 2.0, -0.25]);
    let squares = [25.0, 5.0, 0.3125];
    for early in [false, true] {
        let (x, y) = points(&device())?;
        let (radius, angle, square) = apply(Polar, &[&x, &y])?;
        drop(square);
        if early {
            // A value that was computed before is kept.
            radius.eval()?;
        }
        radius.sum().backward_retain()?;
        near(&x.grad().unwrap(), (0..3).map(|i| xs[i] / f64::sqrt(squares[i])));
        x.zero_grad();
        drop(radius);
        angle.sum().backward()?;
        near(&x.grad().unwrap(), (0..3).map(|i| -ys[i] / squares[i]));
        let error = angle.sum().backward().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Autograd { .. }), "{error}");

        let (x, y) = points(&device())?;
        let (radius, angle, _) = apply(Polar, &[&x, &y])?;
        radius.add(&(angle * 2.0))?.sum().backward()?;
        near(&y.grad().unwrap(), (0..3).map(|i| ys[i] / f64::sqrt(squares[i]) + 2.0 * xs[i] / squares[i]));
    }
    Ok(())
}

/// d²r/dx² = y² / r³, and the mixed one −xy / r³; the rule reads results that the user has dropped.
#[test]
fn second_gradients() -> Result<()> {
    let (x, y) = points(&device())?;
    let radius = apply(Polar, &[&x, &y])?.0;
    let first = grad(&[&radius.sum()], &[&x], true)?.remove(0).unwrap();
    drop(radius);
    let second = grad(&[&first.sum()], &[&x, &y], false)?;
    let (xs, ys, cubes) = ([3.0, -1.0, 0.5], [4.0, 2.0, -0.25], [125.0, 5f64.powf(1.5), 0.3125f64.powf(1.5)]);
    near(second[0].as_ref().unwrap(), (0..3).map(|i| ys[i] * ys[i] / cubes[i]));
    near(second[1].as_ref().unwrap(), (0..3).map(|i| -xs[i] * ys[i] / cubes[i]));
    Ok(())
}

/// Halves of a tensor, in an array or a `Vec`.
#[derive(Debug)]
struct Halves(usize);
impl Function for Halves {
    type Output = Vec<Tensor>;
    fn name(&self) -> &'static str {
        "Halves"
    }
    fn forward(&self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        (0..self.0).map(|k| inputs[0].narrow(0, k, 1)).collect()
    }
    fn backward(
        &self,
        _: &[Tensor],
        parts: &Vec<Tensor>,
        of: &Vec<Option<Tensor>>,
    ) -> Result<Vec<Option<Tensor>>> {
        let parts: Vec<Tensor> =
            parts.iter().zip(of).map(|(part, g)| g.clone().unwrap_or_else(|| part.zeros_like())).collect();
        Ok(vec![Some(Tensor::concat(&parts, 0)?)])
    }
}

#[test]
fn as_many_results_as_there_are() -> Result<()> {
    let x = of(&[1.0, 2.0, 3.0], &[3], DType::F32, &device())?.requires_grad();
    let parts = apply(Halves(3), &[&x])?;
    assert_eq!(parts.len(), 3);
    (&parts[2] * 5.0).add(&parts[0])?.sum().backward()?;
    near(&x.grad().unwrap(), [1.0, 0.0, 5.0]);
    assert!(apply(Halves(0), &[&x])?.is_empty());
    Ok(())
}

#[test]
fn sorting_gives_values_and_indices() -> Result<()> {
    let d = device();
    let x = of(&[2.0, 9.0, 4.0, 7.0, 7.0, 1.0], &[2, 3], DType::F32, &d)?.requires_grad();
    let (values, indices) = x.powi(1).sort(1, true)?;
    assert!(values.is_tracked() && !indices.is_tracked());
    assert!(values.to_string().contains("grad_fn=Sort"), "{values}");
    // The gradient reads indices that nothing else holds.
    drop(indices);
    near(&values, [9.0, 4.0, 2.0, 7.0, 7.0, 1.0]);
    let weights = of(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3], DType::F32, &d)?;
    values.mul(&weights)?.sum().backward()?;
    near(&x.grad().unwrap(), [3.0, 1.0, 2.0, 4.0, 5.0, 6.0]);

    // Σ values² weights: second gradients run through both.
    let (values, _) = x.topk(2, 1, false)?;
    let first = grad(&[&values.powi(3).sum()], &[&x], true)?.remove(0).unwrap();
    near(&first, [12.0, 0.0, 48.0, 147.0, 0.0, 3.0]);
    let second = grad(&[&first.sum()], &[&x], false)?.remove(0).unwrap();
    near(&second, [12.0, 0.0, 24.0, 42.0, 0.0, 6.0]);
    Ok(())
}

/// One kernel gives the indices; the values take a second kernel, which runs only if they are read.
#[test]
fn results_that_nobody_reads_cost_nothing() -> Result<()> {
    let (d, backend) = reference_backend();
    let count = |name: &str| backend.kernels.lock().unwrap().get(name).copied().unwrap_or(0);
    let live = || taper::tensor_core::Backend::memory(backend.as_ref()).allocated;
    let x = of(&[2.0, 9.0, 4.0], &[3], DType::F32, &d)?;
    let indices = x.argsort(0, false)?;
    indices.eval()?;
    assert_eq!((count("argsort"), count("gather")), (1, 0));
    drop(indices);
    let before = live();
    let (values, _) = x.sort(0, false)?;
    values.eval()?;
    assert_eq!((count("argsort"), count("gather")), (2, 1));
    assert_eq!(live() - before, 12, "the values alone");
    // Both from one run, whichever is looked at first.
    let (values, indices) = x.sort(0, true)?;
    assert_eq!(indices.to_vec::<i32>()?, [1, 2, 0]);
    assert_eq!(values.to_vec::<f32>()?, [9.0, 4.0, 2.0]);
    assert_eq!((count("argsort"), count("gather")), (3, 2));
    drop((values, indices));
    // A value that the gradient reads is kept as long as the tape, and no longer.
    let x = x.requires_grad();
    let before = live();
    let (values, indices) = x.sort(0, true)?;
    values.eval()?;
    drop(indices);
    values.sum().backward()?;
    eval_pending()?;
    assert_eq!((count("argsort"), count("gather")), (4, 3));
    assert_eq!(live() - before, 24, "the values and the gradient");
    Ok(())
}

#[test]
fn the_tuple_is_drawn() -> Result<()> {
    let (x, y) = points(&device())?;
    let (radius, angle, _) = apply(Polar, &[&x, &y])?;
    let text = dot(&[&radius, &angle]);
    for part in ["Polar\\ntuple", "Polar[0]\\n[3] f32", "Polar[1]\\n[3] f32"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    assert!(!text.contains("Polar[2]"), "{text}");
    assert_eq!(text.matches("Polar\\ntuple").count(), 1, "{text}");
    // A user sees the inputs of the operation, not the tuple.
    assert_eq!(radius.inputs()[0].id(), x.id());
    assert_eq!(radius.inputs()[1].id(), y.id());
    Ok(())
}

/// The first result leads on, the second is dropped.
#[derive(Debug)]
struct Pair;
impl Function for Pair {
    type Output = [Tensor; 2];
    fn name(&self) -> &'static str {
        "Pair"
    }
    fn forward(&self, inputs: &[&Tensor]) -> Result<[Tensor; 2]> {
        Ok([inputs[0] + 1.0, inputs[0] * 2.0])
    }
    fn backward(
        &self,
        _: &[Tensor],
        _: &[Tensor; 2],
        of: &[Option<Tensor>; 2],
    ) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![of[0].clone()])
    }
}

#[test]
fn long_chains_of_tuples_need_no_stack() {
    const LONG: usize = 100_000;
    let run = || -> Result<()> {
        let d = reference_device();
        let start = Tensor::zeros([1], (DType::F64, &d))?.requires_grad();
        let mut x = start.clone();
        for _ in 0..LONG {
            let [next, _] = apply(Pair, &[&x])?;
            x = next;
        }
        assert_eq!(x.item::<f64>()?, LONG as f64);
        x.sum().backward()?;
        assert_eq!(start.grad().unwrap().item::<f64>()?, 1.0);
        drop(x);
        // Kernels with several results, never evaluated; and dropped.
        let mut x = start;
        for _ in 0..LONG {
            x = x.sort(0, false)?.0;
        }
        drop(x);
        let mut x = Tensor::zeros([1], (DType::F64, &d))?;
        for _ in 0..3_000 {
            x = x.sort(0, false)?.0;
        }
        assert_eq!(x.item::<f64>()?, 0.0);
        Ok(())
    };
    std::thread::Builder::new().stack_size(256 << 10).spawn(run).unwrap().join().unwrap().unwrap();
}

#[test]
fn two_threads_read_two_results() -> Result<()> {
    let d = device();
    let x = Tensor::arange(0.0, 500.0, 1.0, &d)?;
    for _ in 0..50 {
        let (values, indices) = x.sort(0, true)?;
        std::thread::scope(|s| {
            let other = s.spawn(move || indices.to_vec::<i32>().unwrap());
            assert_eq!(values.to_vec::<f32>().unwrap()[..2], [499.0, 498.0]);
            assert_eq!(other.join().unwrap()[..2], [499, 498]);
        });
    }
    Ok(())
}
