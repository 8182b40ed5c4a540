//! The short forms of functions with settings, nested reads, rows of a tensor, and hooks by path.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{cell::RefCell, rc::Rc};

use taper::{
    func,
    nn::{functional as f, with_hook_at, with_layer_hook},
    prelude::*,
};

use crate::common::device;

fn same(short: &Tensor, long: &Tensor) {
    assert_eq!((short.dims(), short.to_f64_vec().unwrap()), (long.dims(), long.to_f64_vec().unwrap()));
}

#[test]
fn short_forms_have_the_defaults_of_the_long_ones() -> Result<()> {
    let rng = Generator::seed(0, &device());
    let x = Tensor::randn([2, 3, 8, 8], &rng)?;
    same(&f::max_pool2d(&x, 2)?, &f::max_pool2d_with(&x, [2, 2], f::PoolOptions::default())?);
    same(&f::avg_pool2d(&x, [2, 4])?, &f::avg_pool2d_with(&x, [2, 4], f::PoolOptions::default())?);
    same(&f::interpolate(&x, 2.0)?, &f::interpolate_with(&x, 2.0, f::InterpolateOptions::default())?);
    let line = x.reshape([2, 3, 64])?;
    same(&f::max_pool1d(&line, 4)?, &f::max_pool1d_with(&line, [4], f::PoolOptions::default())?);
    same(&f::avg_pool1d(&line, 4)?, &f::avg_pool1d_with(&line, [4], f::PoolOptions::default())?);
    let solid = x.reshape([2, 3, 4, 4, 4])?;
    same(&f::max_pool3d(&solid, 2)?, &f::max_pool3d_with(&solid, [2; 3], f::PoolOptions::default())?);
    same(&f::avg_pool3d(&solid, 2)?, &f::avg_pool3d_with(&solid, [2; 3], f::PoolOptions::default())?);
    let wide = x.mul_scalar(20.0);
    same(&wide.softplus(), &wide.softplus_with(1.0, 20.0));
    assert_ne!(wide.softplus().to_vec::<f32>()?, wide.softplus_with(2.0, 20.0).to_vec::<f32>()?);
    Ok(())
}

#[test]
fn nested_reads_have_the_axes_of_the_tensor() -> Result<()> {
    let d = device();
    let x = Tensor::arange(0, 12, 1, &d)?.reshape((2, 3, 2))?;
    assert_eq!(x.to_vec3::<i32>()?, [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]]]);
    assert_eq!(x.i(1)?.t()?.to_vec2::<i64>()?, [[6, 8, 10], [7, 9, 11]]);
    assert_eq!(Tensor::zeros((2, 0), &d)?.to_vec2::<f32>()?, [[0.0; 0]; 2]);
    let message = x.to_vec2::<i64>().unwrap_err().to_string();
    assert!(message.contains("[2, 3, 2] has 3 axes") && message.contains("to_vec3"), "{message}");
    let message = x.i((0, 0))?.to_vec3::<i64>().unwrap_err().to_string();
    assert!(message.contains("to_vec3") && message.contains("read it with to_vec"), "{message}");
    assert!(x.to_vec3::<f32>().is_err(), "integers are not read as floats");
    Ok(())
}

#[test]
fn a_tensor_iterates_over_its_first_axis() -> Result<()> {
    let x = Tensor::new([[1.0, 2.0], [3.0, 4.0]], &device())?.requires_grad();
    let mut sums = Vec::new();
    for row in &x {
        assert_eq!(row.dims(), [2]);
        sums.push(row.powi(2).sum());
    }
    sums[1].backward()?;
    assert_eq!(x.grad().unwrap().to_vec2::<f32>()?, [[0.0, 0.0], [6.0, 8.0]]);
    let message = x.sum().iter().unwrap_err().to_string();
    assert!(message.contains("no rows") && message.contains("short_forms.rs"), "{message}");
    Ok(())
}

#[test]
fn gradients_of_functions_compose() -> Result<()> {
    let d = device();
    let cubes = |t: &[Tensor]| -> Result<Tensor> { Ok(t[0].powi(3).mul(&t[1])?.sum()) };
    let inputs = [Tensor::new([1.0, 2.0], &d)?, Tensor::new([[1.0, 1.0], [2.0, 3.0]], &d)?];
    let each = func::vmap(func::grad(cubes), &inputs, &[None, Some(0)])?;
    assert_eq!(each.to_vec2::<f32>()?, [[3.0, 12.0], [6.0, 36.0]]);
    // The sum of the second derivatives 6x·y of one example.
    let slope = |t: &[Tensor]| -> Result<Tensor> { Ok(func::grad(cubes)(t)?.sum()) };
    let curvature = func::grad(slope)(&[inputs[0].clone(), inputs[1].i(1)?])?;
    assert_eq!(curvature.to_vec::<f32>()?, [12.0, 36.0]);
    assert!(!curvature.is_tracked());
    let vector = func::grad(|t: &[Tensor]| -> Result<Tensor> { Ok(t[0].exp()) })(&inputs[..1]).unwrap_err();
    assert!(vector.to_string().contains("one number"), "{vector}");
    assert!(func::grad(cubes)(&[]).is_err());
    Ok(())
}

#[derive(Debug, Module)]
struct Body {
    first: Linear,
    second: Linear,
}

#[derive(Debug, Module)]
struct Net {
    body: Body,
    head: Linear,
}

impl Net {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.head.forward(&self.body.second.forward(&self.body.first.forward(x)?.relu())?)
    }
}

#[test]
fn hooks_reach_layers_by_their_path() -> Result<()> {
    let rng = Generator::seed(0, &device());
    let body = Body { first: Linear::new(2, 3, &rng)?, second: Linear::new(3, 3, &rng)? };
    let net = Net { body, head: Linear::new(3, 1, &rng)? };
    let x = Tensor::randn([4, 2], &rng)?;
    let seen = Rc::new(RefCell::new(Vec::new()));
    let notes = seen.clone();
    let plain = net.forward(&x)?;
    let hooked = with_layer_hook(
        &net,
        move |path, output| {
            notes.borrow_mut().push(format!("{path} {:?}", output.dims()));
            Ok(None)
        },
        |net| net.forward(&x),
    )?;
    assert_eq!(*seen.borrow(), ["body.first [4, 3]", "body.second [4, 3]", "head [4, 1]"]);
    same(&hooked, &plain);
    // Without features the head gives its bias.
    let ablated =
        with_hook_at(&net, "body.second", |output| Ok(Some(output.zeros_like())), |net| net.forward(&x))?;
    let bias = net.head.bias.as_ref().unwrap().to_vec::<f32>()?[0];
    assert_eq!(ablated.to_vec::<f32>()?, [bias; 4]);
    same(&net.forward(&x)?, &plain);
    // A hook on the gradient, and an error of a hook.
    with_hook_at(
        &net,
        "body.second",
        |output| output.register_hook(|gradient| Ok(Some(gradient.zeros_like()))).map(Some),
        |net| net.forward(&x)?.sum().backward(),
    )?;
    assert_eq!(net.body.first.weight.grad().unwrap().to_vec::<f32>()?, [0.0; 6]);
    let refused = |_: &Tensor| Err(taper::Error::invalid("hook", "refused"));
    let error = with_hook_at(&net, "head", refused, |net| net.forward(&x)).unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    let error = with_hook_at(&net, "body.secnd", |_| Ok(None), |net| net.forward(&x)).unwrap_err();
    assert!(error.to_string().contains("[\"body.second\""), "{error}");
    Ok(())
}

/// Backward of a tensor that was cut off names the line that cut it.
#[test]
fn backward_of_a_detached_loss_names_the_detach() -> Result<()> {
    let x = Tensor::new([1.0, 2.0], &device())?.requires_grad();
    let detach_line = line!() + 1;
    let cut = x.powi(2).detach();
    let message = cut.sum().backward().unwrap_err().to_string();
    let place = format!("short_forms.rs:{detach_line}:");
    assert!(
        message.contains("cut off") && message.contains("detach at") && message.contains(&place),
        "{message}"
    );
    let message = no_grad(|| x.exp()).sum().backward().unwrap_err().to_string();
    assert!(message.contains("exp") && message.contains("no_grad"), "{message}");
    let message = Tensor::ones([], &device())?.backward().unwrap_err().to_string();
    assert!(message.contains("requires_grad"), "{message}");
    Ok(())
}

#[test]
fn channels_that_do_not_fit_are_named_with_what_the_layer_takes() -> Result<()> {
    let rng = Generator::seed(0, &device());
    let conv = Conv2d::new(1, 8, 3, &rng)?;
    let message = conv.forward(&Tensor::ones([2, 3, 8, 8], rng.device())?).unwrap_err().to_string();
    assert!(message.contains("has 3 channels") && message.contains("from 1 channels to 8"), "{message}");
    Ok(())
}
