//! Reads that are awaited: the same elements and errors as those that block, on any executor.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use crate::common::{VIEWS, device, has, tensor};
use pollster::block_on;
use taper::prelude::*;

#[test]
fn elements_are_those_of_to_vec() -> Result<()> {
    let d = device();
    for (name, view) in VIEWS {
        let x = view(&d, DType::F32, 3)?;
        let y = (&x * 2.0).exp();
        for tensor in [&x, &y] {
            assert_eq!(block_on(tensor.to_vec_async::<f32>())?, tensor.to_vec::<f32>()?, "{name}");
        }
        assert_eq!(block_on(y.sum().item_async::<f32>())?, y.sum().item::<f32>()?, "{name}");
    }
    let bytes = tensor(&[5, 7], 1, DType::U8, &d)?.t()?;
    assert_eq!(block_on(bytes.to_vec_async::<u8>())?, bytes.to_vec::<u8>()?);
    let halves = tensor(&[5, 7], 1, DType::F16, &d)?;
    assert_eq!(block_on(halves.to_vec_async::<taper::f16>())?, halves.to_vec::<taper::f16>()?);
    if has(&d, DType::F64) {
        let doubles = tensor(&[5, 7], 1, DType::F64, &d)?;
        assert_eq!(block_on(doubles.to_vec_async::<f64>())?, doubles.to_vec::<f64>()?);
    }
    Ok(())
}

#[test]
fn misuse_is_the_error_of_the_blocking_read() -> Result<()> {
    let d = device();
    let x = tensor(&[2, 3], 1, DType::F32, &d)?;
    let text = |error: Error| {
        assert_eq!(error.location().map(|line| line.file()), Some(file!()), "{error}");
        error.kind().to_string()
    };
    assert_eq!(
        text(block_on(x.to_vec_async::<i32>()).unwrap_err()),
        text(x.to_vec::<i32>().unwrap_err()).replace("to_vec:", "to_vec_async:")
    );
    let error = text(block_on(x.item_async::<f32>()).unwrap_err());
    assert!(error.contains("item_async") && error.contains("6 elements"), "{error}");
    let error = text(block_on(x.sum().item_async::<i32>()).unwrap_err());
    assert!(error.contains("item_async") && error.contains("i32"), "{error}");
    Ok(())
}

/// Wakes the thread that sleeps on it, and counts.
struct Unpark(Thread, AtomicUsize);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.fetch_add(1, Ordering::SeqCst);
        self.0.unpark();
    }
}

/// Many reads at once on one thread: each is polled once to begin, and then only when something woke.
#[test]
fn one_thread_awaits_many_reads() -> Result<()> {
    let d = device();
    let x = Tensor::arange(0.0, 1000.0, 1.0, &d)?;
    let tensors: Vec<Tensor> = (0..200).map(|i| &x + f64::from(i)).collect();
    // Boxed as an executor would have them: they may go to another thread.
    type Read<'a> = Pin<Box<dyn Future<Output = Result<Vec<f32>>> + Send + 'a>>;
    let begin = |tensor| -> Read<'_> { Box::pin(Tensor::to_vec_async::<f32>(tensor)) };
    let mut reads: Vec<(usize, Read<'_>)> = tensors.iter().map(begin).enumerate().collect();
    let wakes = Arc::new(Unpark(thread::current(), AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&wakes));
    let mut context = Context::from_waker(&waker);
    let mut done = 0;
    while !reads.is_empty() {
        let before = wakes.1.load(Ordering::SeqCst);
        let mut waiting = Vec::new();
        for (i, mut read) in reads {
            match read.as_mut().poll(&mut context) {
                Poll::Ready(found) => {
                    let found = found?;
                    assert!(found.iter().enumerate().all(|(k, &v)| v == (k + i) as f32), "{i}");
                    done += 1;
                }
                Poll::Pending => waiting.push((i, read)),
            }
        }
        reads = waiting;
        while !reads.is_empty() && wakes.1.load(Ordering::SeqCst) == before {
            thread::park();
        }
    }
    assert_eq!(done, 200);
    Ok(())
}

#[test]
fn a_read_that_is_dropped_disturbs_nobody() -> Result<()> {
    let d = device();
    let x = Tensor::arange(0.0, 1000.0, 1.0, &d)?;
    let mut context = Context::from_waker(Waker::noop());
    for i in 0..50 {
        let y = &x + f64::from(i);
        let _ = pin!(y.to_vec_async::<f32>()).poll(&mut context);
        drop(y.to_vec_async::<f32>());
        assert_eq!(y.to_vec::<f32>()?[7], (7 + i) as f32);
    }
    d.synchronize()
}
