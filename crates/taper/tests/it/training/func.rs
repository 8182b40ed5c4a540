//! Functions of functions: products with Jacobians, Jacobians, Hessians, `vmap`. Every operation under
//! `vmap`: `operations.rs`.
#![allow(clippy::unwrap_used, clippy::panic)]

use taper::{
    Device, ErrorKind, Generator, Result, Tensor,
    custom::{Function, apply},
    func::{hessian, hvp, jacobian, jvp, vjp, vmap},
    grad_of, nn,
    prelude::TensorGrad,
};
use taper_testing::assert_elements;

use crate::common::device;

fn tensor(values: &[f32], shape: &[usize], device: &Device) -> Tensor {
    Tensor::from_vec(values.to_vec(), shape, device).unwrap()
}

/// (x·y, x + y²), of known derivatives.
fn two(x: &[Tensor]) -> Result<Tensor> {
    Tensor::stack(&[x[0].mul(&x[1])?, x[0].add(&x[1].powi(2))?], 0)
}

#[test]
fn products_and_jacobians_of_two_inputs() {
    let on = &device();
    let inputs = [tensor(&[2.0, 3.0], &[2], on), tensor(&[5.0, 7.0], &[2], on)];
    let j = jacobian(two, &inputs).unwrap();
    assert_eq!(j[0].dims(), [2, 2, 2]);
    // ∂(xy)/∂x = y, ∂(x + y²)/∂x = 1, each for its own element.
    assert_eq!(j[0].to_vec::<f32>().unwrap(), [5.0, 0.0, 0.0, 7.0, 1.0, 0.0, 0.0, 1.0]);
    assert_eq!(j[1].to_vec::<f32>().unwrap(), [2.0, 0.0, 0.0, 3.0, 10.0, 0.0, 0.0, 14.0]);
    let v = tensor(&[1.0, 2.0, 3.0, 4.0], &[2, 2], on);
    let (y, g) = vjp(two, &inputs, &v).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [10.0, 21.0, 27.0, 52.0]);
    assert_eq!(g[0].to_vec::<f32>().unwrap(), [8.0, 18.0]);
    assert_eq!(g[1].to_vec::<f32>().unwrap(), [32.0, 62.0]);
    let tangents = [tensor(&[1.0, 0.5], &[2], on), tensor(&[-1.0, 2.0], &[2], on)];
    let (_, t) = jvp(two, &inputs, &tangents).unwrap();
    assert_eq!(t.to_vec::<f32>().unwrap(), [3.0, 9.5, -9.0, 28.5]);
    assert!(!y.is_tracked() && !g[0].is_tracked() && !t.is_tracked() && !j[0].is_tracked());
}

#[test]
fn hessians_and_their_products() {
    let on = &device();
    let (x, y) = (tensor(&[2.0, 3.0], &[2], on), tensor(&[5.0], &[1], on));
    // Σx³·y
    let f = |x: &[Tensor]| x[0].powi(3).mul(&x[1]).map(|t| t.sum());
    let h = hessian(f, &[x.clone(), y.clone()]).unwrap();
    assert_eq!(h[0][0].to_vec::<f32>().unwrap(), [60.0, 0.0, 0.0, 90.0]);
    assert_eq!((h[0][1].dims(), h[1][0].dims()), (&[2, 1][..], &[1, 2][..]));
    assert_eq!(h[0][1].to_vec::<f32>().unwrap(), [12.0, 27.0]);
    assert_eq!(h[1][0].to_vec::<f32>().unwrap(), [12.0, 27.0]);
    assert_eq!(h[1][1].to_vec::<f32>().unwrap(), [0.0]);
    let v = [tensor(&[1.0, -1.0], &[2], on), tensor(&[2.0], &[1], on)];
    let (value, product) = hvp(f, &[x, y], &v).unwrap();
    assert_eq!(value.item::<f32>().unwrap(), 175.0);
    assert_eq!(product[0].to_vec::<f32>().unwrap(), [84.0, -36.0]);
    assert_eq!(product[1].to_vec::<f32>().unwrap(), [-15.0]);
}

/// An input may be computed from another input: each derivative holds the other inputs constant. An input
/// that is given twice counts as two inputs.
#[test]
fn an_input_that_is_made_of_another_is_one_by_itself() {
    let on = &device();
    let x = tensor(&[2.0, 3.0], &[2], on).requires_grad();
    let y = x.mul_scalar(5.0);
    let f = |x: &[Tensor]| x[0].powi(2).mul(&x[1]);
    let v = tensor(&[1.0, 1.0], &[2], on);
    let (_, g) = vjp(f, &[x.clone(), y], &v).unwrap();
    assert_eq!(g[0].to_vec::<f32>().unwrap(), [40.0, 90.0], "2xy");
    assert_eq!(g[1].to_vec::<f32>().unwrap(), [4.0, 9.0], "x²");
    // d/dx of x² where x² was found as ∂f/∂y, and of 2x·5x.
    g[0].add(&g[1]).unwrap().sum().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f32>().unwrap(), [44.0, 66.0], "20x + 2x");
    let j = jacobian(|x| x[0].powi(2).mul(&x[1]), &[x.clone(), x]).unwrap();
    assert_eq!(j[0].to_vec::<f32>().unwrap(), [8.0, 0.0, 0.0, 18.0]);
    assert_eq!(j[1].to_vec::<f32>().unwrap(), [4.0, 0.0, 0.0, 9.0]);
}

#[test]
fn what_is_found_of_tracked_inputs_can_be_differentiated() {
    let on = &device();
    let x = tensor(&[2.0, 3.0], &[2], on).requires_grad();
    // The Jacobian of x³ is diag(3x²); the sum of its elements has the gradient 6x.
    let j = jacobian(|x| Ok(x[0].powi(3)), std::slice::from_ref(&x)).unwrap();
    j[0].sum().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f32>().unwrap(), [12.0, 18.0]);
    // A Hessian as the Jacobian of a Jacobian.
    let x = x.detach();
    let h = jacobian(|x| Ok(jacobian(|x| Ok(x[0].powi(3).sum()), x)?.swap_remove(0)), &[x]).unwrap();
    assert_eq!(h[0].to_vec::<f32>().unwrap(), [12.0, 0.0, 0.0, 18.0]);
}

#[test]
fn a_rule_that_looks_at_values_is_played_element_by_element() {
    let on = &device();
    let x = tensor(&[2.0, 0.0, 3.0], &[3], on).requires_grad();
    let j = jacobian(|x| x[0].cumprod(0), &[x]).unwrap();
    assert_eq!(j[0].to_vec::<f32>().unwrap(), [1.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 6.0, 0.0]);
}

#[test]
fn nothing_depends_and_nothing_is_there() {
    let on = &device();
    let x = tensor(&[1.0, 2.0], &[2], on);
    let constant = |_: &[Tensor]| Tensor::ones([3], &device());
    let j = jacobian(constant, std::slice::from_ref(&x)).unwrap();
    assert_eq!((j[0].dims(), j[0].to_vec::<f32>().unwrap()), (&[3, 2][..], vec![0.0; 6]));
    let (_, t) = jvp(constant, std::slice::from_ref(&x), std::slice::from_ref(&x)).unwrap();
    assert_eq!(t.to_vec::<f32>().unwrap(), [0.0; 3]);
    let j = jacobian(|x| x[0].narrow(0, 0, 0), std::slice::from_ref(&x)).unwrap();
    assert_eq!(j[0].dims(), [0, 2]);
    let none = Tensor::zeros([0, 2], on).unwrap();
    let y = vmap(|x: &[Tensor]| x[0].matmul(&x[1]), &[none, x], &[Some(0), None]).unwrap();
    assert_eq!(y.dims(), [0]);
}

#[test]
fn gradients_of_each_example_of_a_network() {
    let on = &device();
    let rng = Generator::seed(3, on);
    let (w, b) = (Tensor::randn([4, 3], &rng).unwrap(), Tensor::randn([3], &rng).unwrap());
    let x = Tensor::randn([5, 4], &rng).unwrap();
    let labels = Tensor::new([0i32, 2, 1, 1, 0], on).unwrap();
    let gradients = |x: &[Tensor]| -> Result<(Tensor, Tensor)> {
        let (w, b) = (x[0].detach().requires_grad(), x[1].detach().requires_grad());
        let logits = x[2].unsqueeze(0)?.matmul(&w)?.add(&b)?.tanh();
        let loss = nn::cross_entropy(&logits, &x[3].unsqueeze(0)?)?;
        Ok((grad_of(&loss, &w, false)?, grad_of(&loss, &b, false)?))
    };
    let inputs = [w.clone(), b.clone(), x.clone(), labels.clone()];
    let (dw, db) = vmap(gradients, &inputs, &[None, None, Some(0), Some(0)]).unwrap();
    assert_eq!((dw.dims(), db.dims()), (&[5, 4, 3][..], &[5, 3][..]));
    for k in 0..5 {
        let inputs = [w.clone(), b.clone(), x.select(0, k).unwrap(), labels.select(0, k).unwrap()];
        let (one_w, one_b) = gradients(&inputs).unwrap();
        assert_elements(&dw.select(0, k).unwrap(), &one_w.to_f64_vec().unwrap());
        assert_elements(&db.select(0, k).unwrap(), &one_b.to_f64_vec().unwrap());
    }
}

#[test]
fn nested_over_two_axes_and_along_others() {
    let on = &device();
    let (x, y) = (tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3], on), tensor(&[1.0, 10.0], &[2], on));
    // An outer product, from a product of two numbers.
    let outer =
        |x: &[Tensor]| vmap(|x: &[Tensor]| x[0].mul(&x[1]), &[x[0].clone(), x[1].clone()], &[None, Some(0)]);
    let row = x.select(0, 0).unwrap();
    let found = vmap(outer, &[row, y.clone()], &[Some(0), None]).unwrap();
    assert_eq!(found.to_vec::<f32>().unwrap(), [1.0, 10.0, 2.0, 20.0, 3.0, 30.0]);
    // Columns, from the last axis.
    let found = vmap(|x: &[Tensor]| x[0].matmul(&x[1]), &[x, y], &[Some(-1), None]).unwrap();
    assert_eq!(found.to_vec::<f32>().unwrap(), [41.0, 52.0, 63.0]);
}

/// x² with a gradient of its own: 3·x·g.
#[derive(Debug)]
struct Odd;
impl Function for Odd {
    type Output = Tensor;
    fn name(&self) -> &'static str {
        "Odd"
    }
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        inputs[0].mul(inputs[1])
    }
    fn backward(&self, inputs: &[Tensor], _: &Tensor, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(gradient.mul(&inputs[1])?.mul_scalar(3.0)), Some(gradient.mul(&inputs[0])?)])
    }
}

#[test]
fn functions_with_gradients_of_their_own_and_what_is_detached() {
    let on = &device();
    let x = tensor(&[1.0, 2.0, 3.0, 4.0], &[2, 2], on).requires_grad();
    let w = tensor(&[10.0, 100.0], &[2], on).requires_grad();
    let f = |x: &[Tensor]| apply(Odd, &[&x[0], &x[1]]);
    vmap(f, &[x.clone(), w.clone()], &[Some(0), None]).unwrap().sum().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f32>().unwrap(), [30.0, 300.0, 30.0, 300.0]);
    assert_eq!(w.grad().unwrap().to_vec::<f32>().unwrap(), [4.0, 6.0]);
    x.zero_grad();
    let f = |x: &[Tensor]| x[0].mul(&x[0].detach());
    vmap(f, std::slice::from_ref(&x), &[Some(0)]).unwrap().sum().backward().unwrap();
    assert_eq!(x.grad().unwrap().to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn long_functions_and_draws() {
    let on = &device();
    let x = tensor(&[1.0, 2.0, 3.0], &[3], on);
    // More operations than the bound on pending operations.
    let long = |x: &[Tensor]| Ok((0..5000).fold(x[0].clone(), |y, _| y.add_scalar(1.0)));
    let y = vmap(long, std::slice::from_ref(&x), &[Some(0)]).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [5001.0, 5002.0, 5003.0]);
    let rng = Generator::seed(1, on);
    let y = vmap(|x: &[Tensor]| Tensor::rand([], &rng)?.add(&x[0]), std::slice::from_ref(&x), &[Some(0)])
        .unwrap();
    let y = y.sub(&x).unwrap().to_vec::<f32>().unwrap();
    assert!((y[0] - y[1]).abs() < 1e-6 && (y[0] - y[2]).abs() < 1e-6, "{y:?}");
}

#[test]
fn bad_input() {
    let on = &device();
    let x = tensor(&[1.0, 2.0], &[2], on);
    let xs = std::slice::from_ref(&x);
    let same = |x: &[Tensor]| Ok(x[0].clone());
    let said = |result: Result<Tensor>, what: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    };
    said(vmap(same, xs, &[None]), "no input is mapped");
    said(vmap(same, xs, &[]), "0 axes for 1 inputs");
    said(vmap(same, xs, &[Some(1)]), "out of range");
    let three = tensor(&[1.0, 2.0, 3.0], &[3], on);
    said(vmap(same, &[x.clone(), three.clone()], &[Some(0), Some(0)]), "input 1 has 3 slices");
    let reads = |x: &[Tensor]| {
        if x[0].item::<f32>()? > 1.0 { Ok(x[0].clone()) } else { Ok(x[0].neg()) }
    };
    let error = vmap(reads, xs, &[Some(0)]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported { op: "vmap", .. }), "{error}");
    assert!(error.to_string().contains(".item()"), "{error}");
    said(jacobian(same, &[]).map(|mut j| j.remove(0)), "no inputs");
    said(jvp(same, xs, &[]).map(|(y, _)| y), "0 directions for 1 inputs");
    said(jvp(same, xs, std::slice::from_ref(&three)).map(|(y, _)| y), "[3]");
    said(vjp(same, xs, &three).map(|(y, _)| y), "[3]");
    said(hessian(same, xs).map(|mut h| h.remove(0).remove(0)), "must give one number");
    said(hvp(same, xs, xs).map(|(y, _)| y), "must give one number");
    let whole = Tensor::new([1i32, 2], on).unwrap();
    said(jacobian(same, &[whole]).map(|mut j| j.remove(0)), "floating-point");
}
