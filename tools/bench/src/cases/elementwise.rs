//! Elementwise work, which the memory limits: each input is read once and the result written once, at least.

use taper::{Tensor, nn, prelude::TensorGrad};

use super::{one, pair, with_gradients};
use crate::{
    Result,
    case::{Case, Inputs},
    check::{elements, host},
    reference::normal_cdf,
};

const N: usize = 10_000_000;

type Function = fn(&Tensor) -> Tensor;
type Reference = fn(f64) -> f64;

pub(super) fn listed() -> Vec<Case> {
    let mut cases = vec![
        chain("elementwise_chain"),
        chain("elementwise_chain_compiled"),
        unary_chain("unary_chain"),
        unary_chain("unary_chain_compiled"),
    ];
    let functions: [(&str, Function, Reference); 7] = [
        ("exp", Tensor::exp, f64::exp),
        ("tanh", Tensor::tanh, f64::tanh),
        ("sqrt", Tensor::sqrt, f64::sqrt),
        ("relu", Tensor::relu, |x| x.max(0.0)),
        ("sigmoid", Tensor::sigmoid, |x| 1.0 / (1.0 + (-x).exp())),
        ("log", Tensor::log, f64::ln),
        ("sin", Tensor::sin, f64::sin),
    ];
    for (name, function, reference) in functions {
        cases.push(unary(&format!("unary_{name}_10M"), function, reference));
    }
    cases.push(add());
    cases
}

pub(super) fn more() -> Vec<Case> {
    vec![
        branches(),
        concat(),
        centred("gelu_10M", Tensor::gelu, |x| x * normal_cdf(x)),
        dropout(),
        silu_mul(),
    ]
}

/// Twenty times `r = r + a * b`.
fn chain(name: &str) -> Case {
    const SHAPE: [usize; 3] = [10, 1000, 1000];
    Case::new(name, |inputs| {
        let (a, b) = (inputs.rand(SHAPE)?, inputs.rand(SHAPE)?);
        let (x, y, device) = (a.clone(), b.clone(), inputs.device.clone());
        let build = move || {
            let mut r = Tensor::zeros(SHAPE, &device)?;
            for _ in 0..20 {
                r = r.add(&x.mul(&y)?)?;
            }
            Ok(r)
        };
        one(build, move |result| {
            let (a, b) = (host(&a)?, host(&b)?);
            elements(result, &SHAPE, 1e-5, |i| 20.0 * f64::from(a[i]) * f64::from(b[i]))
        })
    })
    .elements(3 * N)
}

fn unary(name: &str, function: Function, reference: Reference) -> Case {
    unary_of(name, |inputs| inputs.rand([N]), function, reference)
}

/// On numbers of both signs.
fn centred(name: &str, function: Function, reference: Reference) -> Case {
    unary_of(name, |inputs| inputs.centred([N]), function, reference)
}

fn unary_of(
    name: &str,
    make: fn(&Inputs) -> Result<Tensor>,
    function: Function,
    reference: Reference,
) -> Case {
    Case::new(name, move |inputs| {
        let x = make(inputs)?;
        let input = x.clone();
        one(
            move || Ok(function(&input)),
            move |result| {
                let x = host(&x)?;
                elements(result, &[N], 1e-6, |i| reference(f64::from(x[i])))
            },
        )
    })
    .elements(2 * N)
}

fn unary_chain(name: &str) -> Case {
    unary(
        name,
        |x| x.mul_scalar(2.0).add_scalar(1.0).tanh().exp().sqrt(),
        |x| (x * 2.0 + 1.0).tanh().exp().sqrt(),
    )
}

fn add() -> Case {
    Case::new("add_10M", |inputs| {
        let (a, b) = (inputs.rand([N])?, inputs.rand([N])?);
        let (x, y) = (a.clone(), b.clone());
        one(
            move || x.add(&y),
            move |result| {
                let (a, b) = (host(&a)?, host(&b)?);
                elements(result, &[N], 1e-6, |i| f64::from(a[i]) + f64::from(b[i]))
            },
        )
    })
    .elements(3 * N)
}

/// A longer chain with a choice in it: `where(a > 0.5, clamp(a b, 0.1, 0.8), exp(-a)) b + sqrt(a)`.
fn branches() -> Case {
    Case::new("more_chain_where_10M", |inputs| {
        let (a, b) = (inputs.rand([N])?, inputs.rand([N])?);
        let (x, y) = (a.clone(), b.clone());
        let build = move || {
            let within = x.mul(&y)?.clamp(0.1, 0.8);
            let chosen = x.gt_scalar(0.5).where_cond(&within, &x.neg().exp())?;
            chosen.mul(&y)?.add(&x.sqrt())
        };
        one(build, move |result| {
            let (a, b) = (host(&a)?, host(&b)?);
            elements(result, &[N], 1e-6, |i| {
                let (a, b) = (f64::from(a[i]), f64::from(b[i]));
                let chosen = if a > 0.5 { (a * b).clamp(0.1, 0.8) } else { (-a).exp() };
                chosen * b + a.sqrt()
            })
        })
    })
    .elements(3 * N)
}

/// Four arrays put side by side along their middle axis.
fn concat() -> Case {
    const SHAPE: [usize; 3] = [64, 128, 512];
    const WHOLE: [usize; 3] = [64, 4 * 128, 512];
    Case::new("more_concat_4x64x128x512", |inputs| {
        let mut parts = Vec::new();
        for _ in 0..4 {
            parts.push(inputs.rand(SHAPE)?);
        }
        let given = parts.clone();
        let build = move || Tensor::concat(&given.iter().collect::<Vec<_>>(), 1);
        one(build, move |result| {
            let parts = parts.iter().map(host).collect::<crate::Result<Vec<_>>>()?;
            elements(result, &WHOLE, 0.0, |at| {
                let (outer, row, column) = (at / (512 * 512), at / 512 % 512, at % 512);
                f64::from(parts[row / 128][(outer * 128 + row % 128) * 512 + column])
            })
        })
    })
    .elements(2 * WHOLE.iter().product::<usize>())
}

/// One element in two is dropped, with new random numbers each time, and the others are doubled.
fn dropout() -> Case {
    Case::new("dropout_10M", |inputs| {
        let x = inputs.centred([N])?;
        let (input, rng) = (x.clone(), inputs.rng.clone());
        one(
            move || nn::functional::dropout(&input, 0.5, true, &rng),
            move |result| {
                let (x, result) = (host(&x)?, host(result)?);
                let mut kept = 0_usize;
                for (at, (x, y)) in x.iter().zip(&result).enumerate() {
                    kept += usize::from(*y != 0.0);
                    if *y != 0.0 && *y != 2.0 * x {
                        return Err(format!("wrong result: element {at} is {y}, made of {x}").into());
                    }
                }
                // Five standard deviations.
                let (found, allowed) = (kept as f64 / N as f64, 2.5 / (N as f64).sqrt());
                if result.len() != N || (found - 0.5).abs() > allowed {
                    return Err(format!("wrong result: a share of {found} of the elements is kept").into());
                }
                Ok(())
            },
        )
    })
    .elements(2 * N)
}

/// `silu(a) b`, the gate of many a transformer, with the gradients of its sum weighted at random.
fn silu_mul() -> Case {
    const SHAPE: [usize; 2] = [4096, 2048];
    Case::new("silu_mul_4096x2048_fwd_bwd", |inputs| {
        let [a, b, w] = [inputs.centred(SHAPE)?, inputs.centred(SHAPE)?, inputs.rand(SHAPE)?];
        let leaves = [a.clone().requires_grad(), b.clone().requires_grad()];
        let factors = w.clone();
        let call = move || with_gradients(leaves[0].silu().mul(&leaves[1])?, &factors, &leaves);
        pair(call, move |results, _| {
            let [a, b, w] = [host(&a)?, host(&b)?, host(&w)?];
            let at = |i: usize| (f64::from(a[i]), f64::from(b[i]), f64::from(w[i]));
            let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
            let [of_a, of_b, sum, result] = results else { return Err("no results".into()) };
            elements(result, &SHAPE, 1e-6, |i| at(i).0 * sigmoid(at(i).0) * at(i).1)?;
            elements(of_a, &SHAPE, 2e-6, |i| {
                let (a, b, w) = at(i);
                w * b * sigmoid(a) * (1.0 + a * (1.0 - sigmoid(a)))
            })?;
            elements(of_b, &SHAPE, 1e-6, |i| at(i).2 * at(i).0 * sigmoid(at(i).0))?;
            let total: f64 = (0..a.len()).map(|i| at(i).2 * at(i).0 * sigmoid(at(i).0) * at(i).1).sum();
            elements(sum, &[], 1e-4, |_| total)
        })
    })
    // Forward reads a, b and w; backward reads them again, and writes two gradients. The result itself is
    // written, too.
    .elements(9 * SHAPE[0] * SHAPE[1])
}
