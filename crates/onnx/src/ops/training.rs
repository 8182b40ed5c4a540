//! Steps of optimizers (`ai.onnx.preview.training`): for each parameter its value, gradient and states.

use autograd::TensorGrad;
use tensor_core::{Result, Tensor};

use super::{Row, all};
use crate::{context::Context, graph::DIFFERENTIATED, value::Value};

const DOMAIN: &str = "ai.onnx.preview.training";

pub(crate) const TABLE: &[Row] = &[
    (DOMAIN, "Adagrad", 1, adagrad),
    (DOMAIN, "Adam", 1, adam),
    (DOMAIN, "Gradient", 1, gradient),
    (DOMAIN, "Momentum", 1, momentum),
];

/// The derivatives of a value of the graph around the node by others, at the node's inputs.
fn gradient(c: &Context<'_>) -> Result<Vec<Value>> {
    let count = c.texts("xs")?.map_or(0, |list| list.len());
    let graph = c.graph(DIFFERENTIATED)?;
    let leaf = |at: usize| match c.tensor(at)? {
        x if x.dtype().is_float() => Ok(x.detach().requires_grad()),
        x => Err(c.error(format!("input {at} is {}, and gradients are of floats", x.dtype()))),
    };
    autograd::enable_grad(|| {
        let xs = (0..count).map(leaf).collect::<Result<Vec<_>>>()?;
        let rest = (count..c.input_count()).map(|at| c.input(at).cloned());
        let inputs = xs.iter().map(|x| Some(x.into())).chain(rest).collect();
        let y = c.run_graph(&graph, inputs)?.into_iter().next().ok_or_else(|| c.error("there is no y"))?;
        let y = y.to_tensor(c.device())?.sum();
        let by: Vec<&Tensor> = xs.iter().collect();
        let found = autograd::grad(&[&y], &by, false)?;
        all(found.into_iter().zip(&xs).map(|(gradient, x)| gradient.unwrap_or_else(|| x.zeros_like())))
    })
}

/// The learning rate, the step's number, and for each parameter its tensors: value, gradient, states.
fn groups(c: &Context<'_>, kinds: usize) -> Result<(f64, i64, Vec<Vec<Tensor>>)> {
    let rate = c.float(0)?.ok_or_else(|| c.error("the rate is missing"))?;
    let step = c.integer(1)?.unwrap_or(0);
    let count = c.input_count().saturating_sub(2) / kinds;
    let group = |k: usize| (0..kinds).map(|kind| c.tensor(2 + kind * count + k)).collect::<Result<Vec<_>>>();
    Ok((rate, step, (0..count).map(group).collect::<Result<_>>()?))
}

/// The results of all parameters: first all values, then each state.
fn in_order(results: Vec<Vec<Tensor>>) -> Result<Vec<Value>> {
    let kinds = results.first().map_or(0, Vec::len);
    all((0..kinds).flat_map(|kind| results.iter().map(move |group| group[kind].clone())))
}

/// The gradient of the loss and of half the squared norm of the value.
fn regularized(c: &Context<'_>, value: &Tensor, gradient: &Tensor) -> Result<Tensor> {
    gradient.add(&value.mul_scalar(c.number_or("norm_coefficient", 0.0)?))
}

fn adagrad(c: &Context<'_>) -> Result<Vec<Value>> {
    let (rate, step, groups) = groups(c, 3)?;
    let rate = rate / (1.0 + step as f64 * c.number_or("decay_factor", 0.0)?);
    let eps = c.number_or("epsilon", 1e-6)?;
    let step = |group: &Vec<Tensor>| -> Result<Vec<Tensor>> {
        let gradient = regularized(c, &group[0], &group[1])?;
        let squares = group[2].add(&gradient.square())?;
        let change = gradient.mul_scalar(rate).div(&squares.sqrt().add_scalar(eps))?;
        Ok(vec![group[0].sub(&change)?, squares])
    };
    in_order(groups.iter().map(step).collect::<Result<_>>()?)
}

fn adam(c: &Context<'_>) -> Result<Vec<Value>> {
    let (rate, step, groups) = groups(c, 4)?;
    let (alpha, beta) = (c.number_or("alpha", 0.9)?, c.number_or("beta", 0.999)?);
    let eps = c.number_or("epsilon", 1e-6)?;
    let rate = match step {
        0 => rate,
        step => rate * (1.0 - beta.powf(step as f64)).sqrt() / (1.0 - alpha.powf(step as f64)),
    };
    let after = 1.0 - c.number_or("norm_coefficient_post", 0.0)?;
    let step = |group: &Vec<Tensor>| -> Result<Vec<Tensor>> {
        let gradient = regularized(c, &group[0], &group[1])?;
        let mean = group[2].mul_scalar(alpha).add(&gradient.mul_scalar(1.0 - alpha))?;
        let square = group[3].mul_scalar(beta).add(&gradient.square().mul_scalar(1.0 - beta))?;
        let change = mean.mul_scalar(rate).div(&square.sqrt().add_scalar(eps))?;
        Ok(vec![group[0].sub(&change)?.mul_scalar(after), mean, square])
    };
    in_order(groups.iter().map(step).collect::<Result<_>>()?)
}

fn momentum(c: &Context<'_>) -> Result<Vec<Value>> {
    let (rate, step, groups) = groups(c, 3)?;
    let (alpha, beta) = (c.number_or("alpha", 0.0)?, c.number_or("beta", 0.0)?);
    let beta = if step > 0 { beta } else { 1.0 };
    let nesterov = match c.text_or("mode", "standard")? {
        "standard" => false,
        "nesterov" => true,
        other => return Err(c.error(format!("mode \"{other}\"; standard and nesterov are known"))),
    };
    let step = |group: &Vec<Tensor>| -> Result<Vec<Tensor>> {
        let gradient = regularized(c, &group[0], &group[1])?;
        let velocity = group[2].mul_scalar(alpha).add(&gradient.mul_scalar(beta))?;
        let change = if nesterov { gradient.add(&velocity.mul_scalar(alpha))? } else { velocity.clone() };
        Ok(vec![group[0].sub(&change.mul_scalar(rate))?, velocity])
    };
    in_order(groups.iter().map(step).collect::<Result<_>>()?)
}
