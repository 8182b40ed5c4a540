//! Several devices on one processor or adapter.
#![allow(clippy::unwrap_used)]

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};

use crate::common::{device, logical_device};
use taper::{
    ErrorKind, Shape,
    custom::{CustomKernel, Request},
    prelude::*,
};

#[test]
fn a_number_after_a_hash_is_a_device_of_its_own() -> Result<()> {
    let base = device();
    if base.name() == "reference" {
        return Ok(()); // It has no name to ask for.
    }
    let named = |number: &str| taper::device(&format!(" {} # {number} ", base.name().to_uppercase()));
    let (one, two) = (named("1")?, named("2")?);
    assert_eq!(one.name(), format!("{}#1", base.name()));
    assert!(one != base && one != two && one == named("1")? && base == named("0")?);
    assert!(taper::is_available(one.name()) && taper::is_available(&format!("{}#63", base.name())));
    for bad in ["x", "", "-1", "1#1", "64", "1:0"] {
        let name = format!("{}#{bad}", base.name());
        let error = taper::device(&name).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::UnknownDevice { .. }), "{error}");
        assert!(error.to_string().contains("after #"), "{error}");
        assert!(!taper::is_available(&name), "{name}");
    }
    for (name, word) in [("auto#1", "auto is a choice"), ("cuda#1", "wgpu"), ("#1", "there are")] {
        let error = taper::device(name).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
        assert!(!taper::is_available(name), "{name}");
    }
    assert!(taper::devices().iter().all(|info| !info.name.contains('#')));

    // Memory and budgets are its own.
    let before = (base.memory().allocated, two.memory().allocated);
    let x = Tensor::ones([1000, 1000], &two)?;
    x.eval()?;
    assert_eq!(two.memory().allocated, before.1 + 4_000_000);
    two.set_memory_limit(two.memory().reserved)?;
    let error = Tensor::ones([3000, 1000], &two)?.eval().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::OutOfMemory { .. }) && error.to_string().contains(two.name()));
    two.set_memory_limit(None)?;
    // Tensors of the two do not mix, and move.
    let y = Tensor::full([1000, 1000], 2.0, &one)?;
    let error = x.add(&y).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DeviceMismatch { .. }), "{error}");
    let sum = x.to(&one)?.add(&y)?.to(&base)?.mean();
    assert_eq!((sum.device(), sum.item::<f32>()?), (base, 3.0));
    Ok(())
}

/// A kernel of no backend. When a backend asks for one, while it holds its device, this says so and waits
/// until it may go on.
#[derive(Debug)]
struct Blocks {
    /// One of its own for each, as a kernel is run in place of any with the same key.
    key: u64,
    arrived: mpsc::Sender<()>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl CustomKernel for Blocks {
    fn name(&self) -> &'static str {
        "blocks"
    }
    fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>> {
        Ok(inputs.to_vec())
    }
    fn key(&self) -> Vec<u64> {
        vec![self.key]
    }
    fn implement(&self, _: &mut Request<'_>) {
        let _ = self.arrived.send(());
        // So that a failure ends, and does not hang.
        let _ = self.go_on.lock().unwrap().recv_timeout(Duration::from_secs(60));
    }
}

/// While `held` is busy in a kernel, evaluates on `free`, and says whether that was done before the kernel
/// ended.
fn finishes_meanwhile(held: &Device, free: &Device, patience: Duration) -> Result<bool> {
    // The queue has no bound, because a backend asks for each kind of implementation that it has.
    let (arrived, arrivals) = mpsc::channel();
    let (release, go_on) = mpsc::sync_channel::<()>(0);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let kernel =
        Arc::new(Blocks { key: NEXT.fetch_add(1, Ordering::Relaxed), arrived, go_on: Mutex::new(go_on) });
    let x = Tensor::ones([64, 64], held)?;
    x.eval()?;
    let blocked = Tensor::custom_kernel(kernel, &[&x])?.remove(0);
    let thread = std::thread::spawn(move || blocked.eval());
    arrivals.recv_timeout(Duration::from_secs(60)).unwrap();
    let (done, is_done) = mpsc::channel();
    let free = free.clone();
    let other = std::thread::spawn(move || -> Result<()> {
        let y = Tensor::full([64, 64], 2.0, &free)?;
        let sum = y.matmul(&y)?.sum().item::<f32>()?;
        assert_eq!(sum, 64.0 * 64.0 * 256.0);
        done.send(()).unwrap();
        Ok(())
    });
    let meanwhile = is_done.recv_timeout(patience).is_ok();
    drop(release);
    other.join().unwrap()?;
    let error = thread.join().unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    Ok(meanwhile)
}

#[test]
fn two_devices_work_at_the_same_time_and_one_does_one_thing_at_a_time() -> Result<()> {
    // Devices that no other test uses.
    let (one, two) = (logical_device(11), logical_device(12));
    assert!(finishes_meanwhile(&one, &two, Duration::from_secs(60))?);
    assert!(finishes_meanwhile(&two, &one, Duration::from_secs(60))?);
    // The test can fail: on one device the second evaluation waits for the first.
    assert!(!finishes_meanwhile(&two, &two, Duration::from_millis(200))?);
    Ok(())
}
