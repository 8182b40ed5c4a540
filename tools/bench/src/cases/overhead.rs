//! The overhead of an operation beyond its arithmetic: ten thousand tiny additions, chains of a thousand,
//! and training steps whose shapes are never the same.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use taper::{
    Error, Tensor, compile, eval_pending,
    nn::{Linear, Module, Sequential, Tanh, cross_entropy},
    optim::{Optimizer, Sgd, SgdConfig},
    prelude::TensorGrad,
};

use super::pair;
use crate::{
    case::Case,
    check::{all, elements, host, part},
};

const ADDITIONS: usize = 10_000;

pub(super) fn listed() -> Vec<Case> {
    vec![
        small_adds("small_add_nograd", false),
        small_adds("small_add_grad", true),
        batch(),
        chain_forward(),
        chain_backward(),
        steps("train_step_new_shape", Steps::NewShapes),
        steps("train_step_same_shape", Steps::SameShape),
        steps("train_step_compiled", Steps::Compiled),
    ]
}

/// Every result is computed before the next is built.
fn small_adds(name: &str, grad: bool) -> Case {
    Case::new(name, move |inputs| {
        let (a, b) = (inputs.rand([16])?, inputs.rand([16])?);
        let a = if grad { a.requires_grad() } else { a };
        let (x, y) = (a.clone(), b.clone());
        let call = move || {
            let mut last = None;
            for _ in 0..ADDITIONS {
                let sum = x.add(&y)?;
                sum.eval()?;
                last = Some(sum);
            }
            Ok(last.into_iter().collect())
        };
        pair(call, move |results, _| {
            if results[0].is_tracked() != grad {
                return Err(format!("wrong result: tracked is {}", !grad).into());
            }
            let (a, b) = (host(&a)?, host(&b)?);
            elements(&results[0], &[16], 1e-6, |i| f64::from(a[i]) + f64::from(b[i]))
        })
    })
    .ops(ADDITIONS)
    .reps(10..=50)
}

/// All sums of a hundred small arrays with a hundred others: built first, then computed together.
fn batch() -> Case {
    const SIDE: usize = 100;
    Case::new("small_add_batch", |inputs| {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for _ in 0..SIDE {
            left.push(inputs.rand([16])?);
            right.push(inputs.rand([16])?);
        }
        let (xs, ys) = (left.clone(), right.clone());
        let call = move || {
            let mut sums = Vec::with_capacity(ADDITIONS);
            for x in &xs {
                for y in &ys {
                    sums.push(x.add(y)?);
                }
            }
            eval_pending()?;
            Ok(sums)
        };
        pair(call, move |sums, _| {
            let left = left.iter().map(host).collect::<crate::Result<Vec<_>>>()?;
            let right = right.iter().map(host).collect::<crate::Result<Vec<_>>>()?;
            if sums.len() != ADDITIONS {
                return Err(format!("wrong result: {} sums", sums.len()).into());
            }
            for (i, sum) in sums.iter().enumerate() {
                let (a, b) = (&left[i / SIDE], &right[i % SIDE]);
                elements(sum, &[16], 1e-6, |j| f64::from(a[j]) + f64::from(b[j]))?;
            }
            Ok(())
        })
    })
    .ops(ADDITIONS)
    .reps(10..=50)
}

/// Five hundred times `r = r * 1.0001 + 0.1`.
fn chain(s: &Tensor) -> Tensor {
    let mut r = s.clone();
    for _ in 0..500 {
        r = r.mul_scalar(1.0001).add_scalar(0.1);
    }
    r
}

fn chain_forward() -> Case {
    Case::new("chain1000_forward", |inputs| {
        let s = inputs.rand([1])?.requires_grad();
        let start = s.clone();
        let call = move || {
            let end = chain(&start).detach();
            end.item::<f32>()?;
            Ok(vec![end])
        };
        pair(call, move |results, _| {
            let mut want = f64::from(s.item::<f32>()?);
            for _ in 0..500 {
                want = want * 1.0001 + 0.1;
            }
            elements(&results[0], &[1], 1e-4, |_| want)
        })
    })
    .ops(1000)
    .reps(10..=200)
}

/// The gradient adds up from call to call, as in PyTorch's script.
fn chain_backward() -> Case {
    Case::new("chain1000_forward_backward", |inputs| {
        let s = inputs.rand([1])?.requires_grad();
        let calls = Rc::new(Cell::new(0_u32));
        let counter = calls.clone();
        let call = move || {
            chain(&s).backward()?;
            let gradient = s.grad().ok_or_else(|| Error::invalid("bench", "no gradient"))?;
            gradient.eval()?;
            counter.set(counter.get() + 1);
            Ok(vec![gradient])
        };
        pair(call, move |results, _| {
            let want = 1.0001_f64.powi(500) * f64::from(calls.get());
            all("gradient", &host(&results[0])?, &[want], part(&results[0].device(), 1e-4))
        })
    })
    .ops(1000)
    .reps(10..=200)
}

/// The steps of [`steps`].
#[derive(Clone, Copy, PartialEq)]
enum Steps {
    /// Inputs of 10,648 shapes, none of which repeats before all others have been used.
    NewShapes,
    /// Inputs of one shape. The difference from the first is the time of planning.
    SameShape,
    /// The same, compiled. The difference is the time to build the graph and to find its plan.
    Compiled,
}

/// Training steps of a two-layer network, 8 to 16 to 4, on inputs of shape `[a, b, c, 8]`. The learning rate
/// is 0, so that the last step can be checked.
fn steps(name: &str, kind: Steps) -> Case {
    const SIDE: usize = 22;
    const STEPS: usize = 1000;
    const WIDTHS: [usize; 3] = [8, 16, 4];
    let shape = move |step: usize| {
        // All of a run's shapes have about as many elements as the one: far numbers follow each other.
        let new = kind == Steps::NewShapes;
        let at = if new { step * 4_637 % SIDE.pow(3) } else { 0 };
        let sizes = [at % SIDE + 1, at / SIDE % SIDE + 1, at / SIDE.pow(2) + 1];
        if new { sizes } else { [11, 11, 11] }
    };
    Case::new(name, move |inputs| {
        let [width, hidden, classes] = WIDTHS;
        let x = inputs.rand([SIDE.pow(3), width])?;
        let y = inputs.indices(classes, SIDE.pow(3))?;
        let net = Sequential::new().add(Linear::new(width, hidden, &inputs.rng)?).add(Tanh).add(Linear::new(
            hidden,
            classes,
            &inputs.rng,
        )?);
        let parameters = net.parameters();
        let mut sgd = Sgd::new(parameters.clone(), SgdConfig { lr: 0.0, ..Default::default() });
        let taken = Rc::new(RefCell::new(0));
        let (images, labels, last) = (x.clone(), y.clone(), taken.clone());
        let step = move |(x, y): (Tensor, Tensor)| {
            let logits = net.forward(&x)?.reshape([y.numel(), classes])?;
            sgd.zero_grad();
            let loss = cross_entropy(&logits, &y)?;
            loss.backward()?;
            sgd.step()?;
            Ok(loss.detach())
        };
        let mut step: Box<dyn FnMut((Tensor, Tensor)) -> taper::Result<Tensor>> = match kind {
            Steps::Compiled => {
                let compiled = compile(step);
                Box::new(move |batch| compiled.call(batch))
            }
            Steps::NewShapes | Steps::SameShape => Box::new(step),
        };
        let call = move || {
            let mut loss = None;
            for _ in 0..STEPS {
                let [a, b, c] = shape(*taken.borrow());
                *taken.borrow_mut() += 1;
                let rows = a * b * c;
                let x = images.narrow(0, 0, rows)?.reshape([a, b, c, width])?;
                let made = step((x, labels.narrow(0, 0, rows)?))?;
                made.eval()?;
                loss = Some(made);
            }
            Ok(loss.into_iter().collect())
        };
        pair(call, move |results, _| {
            let rows = shape(*last.borrow() - 1).iter().product();
            let [w1, b1, w2, b2] = [0, 1, 2, 3].map(|k| host(&parameters[k]));
            let (w1, b1, w2, b2) = (w1?, b1?, w2?, b2?);
            let (x, y) = (host(&x)?, y.to_vec::<i32>()?);
            let dot = |w: &[f32], x: &[f64]| w.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum::<f64>();
            let mut sum = 0.0;
            for row in 0..rows {
                let x: Vec<f64> = x[row * width..][..width].iter().map(|x| f64::from(*x)).collect();
                let h: Vec<f64> =
                    (0..hidden).map(|k| (dot(&w1[k * width..], &x) + f64::from(b1[k])).tanh()).collect();
                let z: Vec<f64> =
                    (0..classes).map(|k| dot(&w2[k * hidden..], &h) + f64::from(b2[k])).collect();
                sum += z.iter().map(|z| z.exp()).sum::<f64>().ln() - z[usize::try_from(y[row])?];
            }
            elements(&results[0], &[], 1e-5, |_| sum / rows as f64)
        })
    })
    .ops(STEPS)
    .reps(3..=10)
}
