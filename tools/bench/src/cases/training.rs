//! Whole training steps: forward, loss, backward, optimizer. Each is checked against one step in plain f64.

use std::{cell::RefCell, rc::Rc};

use taper::{
    Stateful, Tensor,
    nn::{Gelu, Linear, Module, Relu, Sequential, cross_entropy},
    optim::{Optimizer, Sgd, SgdConfig},
    prelude::TensorGrad,
};

use super::{pair, rows};
use crate::{
    Result,
    case::{Call, Case, Inputs},
    check::{all, host, part},
    reference::{Activation, Mlp},
};

const LR: f64 = 0.01;
/// How near to the kink of an activation rounding may decide on which side a value is.
const KINK: f64 = 2e-6;

pub(super) fn listed() -> Vec<Case> {
    [64, 1024]
        .into_iter()
        .map(|batch| step(&format!("simplenet_step_{batch}"), batch, &[784, 128, 10], Activation::Relu))
        .collect()
}

pub(super) fn more() -> Vec<Case> {
    vec![
        rows::cross_entropy(),
        step("more_mlp_step_gelu_256x512", 256, &[512, 512, 512, 512], Activation::Gelu),
        momentum(),
    ]
}

/// A network with its data, and the call that is one step of training it.
struct Training {
    parameters: Vec<Tensor>,
    x: Tensor,
    y: Tensor,
    call: Call,
}

impl Training {
    /// Layers of these widths with an activation between them, and SGD without momentum.
    fn new(inputs: &Inputs, batch: usize, widths: &[usize], activation: Activation) -> Result<Training> {
        let mut net = Sequential::new();
        for (i, w) in widths.windows(2).enumerate() {
            net = match activation {
                _ if i == 0 => net,
                Activation::Relu => net.add(Relu),
                Activation::Gelu => net.add(Gelu),
            };
            net.push(Linear::new(w[0], w[1], &inputs.rng)?);
        }
        let parameters = net.parameters();
        let mut sgd = Sgd::new(parameters.clone(), SgdConfig { lr: LR, ..Default::default() });
        let x = inputs.rand([batch, widths[0]])?;
        let y = inputs.indices(widths[widths.len() - 1], batch)?;
        let (images, labels, updated) = (x.clone(), y.clone(), parameters.clone());
        let call = move || {
            sgd.zero_grad();
            let loss = cross_entropy(&net.forward(&images)?, &labels)?;
            loss.backward()?;
            sgd.step()?;
            loss.eval()?;
            Ok(with_values(&loss, &updated))
        };
        Ok(Training { parameters, x, y, call: Box::new(call) })
    }
}

/// A step of the network of `simplenet_step_64`, for the cases that start with it.
pub(super) fn simplenet(inputs: &Inputs) -> Result<Call> {
    Ok(Training::new(inputs, 64, &[784, 128, 10], Activation::Relu)?.call)
}

fn step(name: &str, batch: usize, widths: &'static [usize], activation: Activation) -> Case {
    let forward: usize = widths.windows(2).map(|w| 2 * batch * w[0] * w[1]).sum();
    // The first layer's input needs no gradient.
    let flop = 3 * forward - 2 * batch * widths[0] * widths[1];
    Case::new(name, move |inputs| {
        let Training { parameters, x, y, call } = Training::new(inputs, batch, widths, activation)?;
        pair(call, move |results, again| {
            let last = f64::from(results[0].item::<f32>()?);
            let before = parameters.iter().map(host).collect::<Result<Vec<_>>>()?;
            let labels = y.to_vec::<i32>()?.into_iter().map(|label| label as usize).collect();
            let mut mlp = Mlp { widths, activation, x: host(&x)?, labels, kink: KINK };
            let results = again()?;
            let relative = part(&results[0].device(), 1e-5);
            let (_, beyond) = mlp.loss_and_gradients(&before);
            mlp.kink = -KINK;
            let (loss, gradients) = mlp.loss_and_gradients(&before);
            all("loss", &host(&results[0])?, &[loss], relative)?;
            // At rest, rounding may lift it a little.
            if loss > last * (1.0 + relative) {
                return Err(format!("wrong result: the loss grew from {last} to {loss}").into());
            }
            for (i, (after, gradient)) in results[1..].iter().zip(&gradients).enumerate() {
                let beyond = &beyond[i];
                // The change of a parameter, divided by the learning rate, is the gradient, up to the
                // rounding of the parameter.
                let rounding = before[i].iter().fold(0.0_f32, |most, p| most.max(p.abs()));
                let most = gradient.iter().fold(0.0_f64, |most, g| most.max(g.abs()));
                let allowed = 10.0 * relative * most * LR + 1e-7 * f64::from(rounding);
                for (j, after) in host(after)?.into_iter().enumerate() {
                    let want = f64::from(before[i][j]) - LR * gradient[j];
                    let apart = (f64::from(after) - want).abs();
                    // Which side of its kink a value near it is on is a matter of rounding.
                    if apart > allowed + LR * (gradient[j] - beyond[j]).abs() || apart.is_nan() {
                        return Err(
                            format!("wrong result: parameter {i} became {after}, expected {want}").into()
                        );
                    }
                }
            }
            Ok(())
        })
    })
    .flop(flop)
}

/// The loss, and what the parameters hold now.
fn with_values(loss: &Tensor, parameters: &[Tensor]) -> Vec<Tensor> {
    let mut results = Vec::with_capacity(1 + parameters.len());
    results.push(loss.detach());
    results.extend(parameters.iter().map(Tensor::detach));
    results
}

/// The optimizer alone: twenty parameters with fixed gradients.
fn momentum() -> Case {
    const COUNT: usize = 20;
    const SHAPE: [usize; 2] = [256, 256];
    Case::new("more_sgd_momentum_20x256x256", |inputs| {
        let (mut parameters, mut gradients) = (Vec::new(), Vec::new());
        for _ in 0..COUNT {
            let parameter = inputs.rand(SHAPE)?.requires_grad();
            let gradient = inputs.rand(SHAPE)?;
            parameter.set_grad(Some(gradient.clone()));
            parameters.push(parameter);
            gradients.push(gradient);
        }
        let config = SgdConfig { lr: 1e-3, momentum: 0.9, ..Default::default() };
        let sgd = Rc::new(RefCell::new(Sgd::new(parameters.clone(), config)));
        let (optimizer, updated) = (sgd.clone(), parameters.clone());
        let call = move || {
            optimizer.borrow_mut().step()?;
            Ok(updated.iter().map(Tensor::detach).collect())
        };
        pair(call, move |_, again: &mut Call| {
            let momenta = sgd.borrow().state_dict();
            let mut wants = Vec::new();
            for (i, (parameter, gradient)) in parameters.iter().zip(&gradients).enumerate() {
                let momentum = momenta.tensor(&format!("state.{i}.momentum_buffer")).ok_or("no momentum")?;
                let (p, g, b) = (host(parameter)?, host(gradient)?, host(momentum)?);
                let next = |j: usize| 0.9 * f64::from(b[j]) + f64::from(g[j]);
                wants.push((0..p.len()).map(|j| f64::from(p[j]) - 1e-3 * next(j)).collect::<Vec<_>>());
            }
            drop(momenta);
            for (i, (got, want)) in again()?.iter().zip(&wants).enumerate() {
                all(&format!("parameter {i}"), &host(got)?, want, 1e-6)?;
            }
            Ok(())
        })
    })
    // Gradient, momentum and parameter are read, the latter two written.
    .elements(5 * COUNT * SHAPE[0] * SHAPE[1])
}
