//! What an operation costs beside its arithmetic: ten thousand tiny additions, and chains of a thousand.

use std::{cell::Cell, rc::Rc};

use taper::{Error, Tensor, eval_pending, prelude::TensorGrad};

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
    .max_reps(50)
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
    .max_reps(50)
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
    .max_reps(200)
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
    .max_reps(200)
}
