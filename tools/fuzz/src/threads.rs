//! Threads that share leaves and graphs: gradients that all of them add to, values that one thread replaces
//! while others read them, graphs on which all call `backward`, handles that all drop. The numbers are
//! whole, so that every sum must be exact.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use taper::{Device, Result, Tensor, prelude::TensorGrad};

use crate::{Report, modes, rng::Rng};

const THREADS: usize = 4;

/// One kind of work that threads do together; an error describes a wrong result.
type Round = fn(&mut Rng, &Device) -> Result<(), String>;

/// One round of all of it.
///
/// # Errors
/// Runs one case. A failure of threads cannot be minimised, so the code in the report is only a sketch of
/// the round.
#[allow(clippy::type_complexity)] // a table of two columns
pub fn threads_case(seed: u64, case: u64, device: &Device) -> Result<(), Report> {
    let rounds: [(&str, Round); 4] = [
        ("leaf = ones([n]).requires_grad(); in each thread, many times: (&leaf * c).sum().backward()?", sums),
        ("loss = (&leaf * 3.0).sum(); in each thread: loss.backward()", used_once),
        ("one thread: leaf.assign(&full(i)); the others: (&leaf * 2.0 + 1.0).to_vec()", assigned),
        ("in each thread: clones of shared tensors evaluated, read and dropped", shared),
    ];
    for (round, (code, run)) in rounds.into_iter().enumerate() {
        let mut rng = Rng::new(seed ^ 0x7d, case * 8 + round as u64);
        let what = match catch_unwind(AssertUnwindSafe(|| run(&mut rng, device))) {
            Ok(Ok(())) => continue,
            Ok(Err(what)) => what,
            Err(panic) => format!("panicked: {}", modes::message(panic.as_ref())),
        };
        return Err(Report { what, code: format!("// {THREADS} threads: {code}\n") });
    }
    Ok(())
}

/// Runs `f` on all threads at once.
fn together(f: impl Fn(usize) -> Result<(), String> + Sync) -> Result<(), String> {
    let barrier = Barrier::new(THREADS);
    thread::scope(|scope| {
        let all: Vec<_> = (0..THREADS)
            .map(|i| {
                let (barrier, f) = (&barrier, &f);
                scope.spawn(move || {
                    barrier.wait();
                    f(i)
                })
            })
            .collect();
        all.into_iter().try_for_each(|t| match t.join() {
            Ok(result) => result,
            Err(panic) => Err(format!("panicked: {}", modes::message(panic.as_ref()))),
        })
    })
}

fn text(error: taper::Error) -> String {
    error.to_string()
}

/// That all elements are one number.
fn all_are(t: &Tensor, expected: f64, what: &str) -> Result<(), String> {
    let found = t.to_f64_vec().map_err(text)?;
    match found.iter().find(|v| **v != expected) {
        Some(other) => Err(format!("{what}: {other}, expected {expected}")),
        None => Ok(()),
    }
}

/// Many backward passes into one leaf lose nothing.
fn sums(rng: &mut Rng, device: &Device) -> Result<(), String> {
    let n = 1 + rng.below(40);
    let passes = 5 + rng.below(30);
    let leaf = Tensor::ones([n], device).map_err(text)?.requires_grad();
    let kept = (&leaf * 2.0).sum();
    together(|thread| {
        for pass in 0..passes {
            let factor = (1 + (thread + pass) % 3) as f64;
            match pass % 4 {
                0 => (&leaf * factor).sum().backward().map_err(text)?,
                1 => {
                    let loss = (&leaf * factor).sum();
                    loss.eval().map_err(text)?;
                    loss.backward().map_err(text)?;
                }
                2 => {
                    let wide = leaf.unsqueeze(0).and_then(|x| x.expand([2, n])).map_err(text)?;
                    (wide * factor * 0.5).sum().backward().map_err(text)?;
                }
                _ => {
                    kept.backward_retain().map_err(text)?;
                    if let Some(grad) = leaf.grad() {
                        grad.eval().map_err(text)?;
                    }
                }
            }
        }
        Ok(())
    })?;
    let expected: usize = (0..THREADS)
        .flat_map(|t| (0..passes).map(move |p| if p % 4 == 3 { 2 } else { 1 + (t + p) % 3 }))
        .sum();
    let grad = leaf.grad().ok_or("no gradient")?;
    all_are(&grad, expected as f64, "the sum of the gradients")
}

/// A graph that several threads play at once is used up by one of them.
fn used_once(rng: &mut Rng, device: &Device) -> Result<(), String> {
    for _ in 0..10 {
        let n = 1 + rng.below(20);
        let leaf = Tensor::ones([n], device).map_err(text)?.requires_grad();
        let loss = (&leaf * 3.0).sum();
        let successes = AtomicUsize::new(0);
        together(|_| {
            if loss.backward().is_ok() {
                successes.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })?;
        if successes.load(Ordering::Relaxed) != 1 {
            return Err(format!("a graph was used up {} times", successes.load(Ordering::Relaxed)));
        }
        all_are(&leaf.grad().ok_or("no gradient")?, 3.0, "the gradient of one pass")?;
    }
    Ok(())
}

/// A thread that reads a cell while another assigns it sees one of its values completely, never a mixture.
fn assigned(rng: &mut Rng, device: &Device) -> Result<(), String> {
    let n = 1 + rng.below(3000);
    let cell = Tensor::zeros([n], device).and_then(|t| t.into_cell(false)).map_err(text)?;
    together(|thread| {
        for i in 0..20 {
            if thread == 0 {
                let next = Tensor::full([n], f64::from(i), device).map_err(text)?;
                cell.assign(&next).map_err(text)?;
            } else {
                let seen = (&cell * 2.0 + 1.0).to_f64_vec().map_err(text)?;
                if seen.iter().any(|v| *v != seen[0]) {
                    return Err(format!("a value of a cell that was never assigned: {seen:?}"));
                }
            }
        }
        Ok(())
    })?;
    all_are(&cell, 19.0, "the last value of a cell")
}

/// Threads that evaluate, read and drop handles on the same nodes agree.
fn shared(rng: &mut Rng, device: &Device) -> Result<(), String> {
    let n = 1 + rng.below(50);
    let x = Tensor::arange(0, n as i64, 1, (taper::DType::F32, device)).map_err(text)?;
    let mut chain = vec![x];
    for i in 0..20 {
        let last = chain[chain.len() - 1].clone();
        let other = chain[rng.below(chain.len())].clone();
        chain.push(match i % 3 {
            0 => last + 1.0,
            1 => last.maximum(&other).map_err(text)?,
            _ => last.flip(0).map_err(text)?,
        });
    }
    let last = &chain[chain.len() - 1];
    let seen: Vec<std::sync::Mutex<Vec<f64>>> = (0..THREADS).map(|_| Default::default()).collect();
    together(|thread| {
        let mine: Vec<Tensor> = chain.iter().skip(thread).step_by(2).cloned().collect();
        for t in mine {
            t.eval().map_err(text)?;
        }
        *seen[thread].lock().map_err(|e| e.to_string())? = last.to_f64_vec().map_err(text)?;
        Ok(())
    })?;
    let first = seen[0].lock().map_err(|e| e.to_string())?.clone();
    for other in &seen[1..] {
        if *other.lock().map_err(|e| e.to_string())? != first {
            return Err("threads read different values of one tensor".into());
        }
    }
    Ok(())
}
