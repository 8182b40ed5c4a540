//! A backend from outside the house: it wraps the CPU's, passes everything on, and counts kernels. What it counts also says what
//! the scheduler fuses.
#![allow(clippy::unwrap_used)]

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use taper::prelude::*;
use taper::tensor_core::{Backend, DeviceInfo, Launch, MemoryStats, Storage};

#[derive(Debug)]
struct Counting {
    info: DeviceInfo,
    inner: Arc<dyn Backend>,
    counts: Mutex<BTreeMap<&'static str, usize>>,
}

impl Backend for Counting {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }
    fn allocate(&self, dtype: DType, numel: usize) -> Result<Storage> {
        self.inner.allocate(dtype, numel)
    }
    fn upload(&self, dtype: DType, bytes: &[u8]) -> Result<Storage> {
        self.inner.upload(dtype, bytes)
    }
    fn download(&self, storage: &Storage, start: usize, out: &mut [u8]) -> Result<()> {
        self.inner.download(storage, start, out)
    }
    fn run(&self, launch: &Launch<'_>) -> Result<()> {
        *self.counts.lock().unwrap().entry(launch.kernel.name()).or_default() += 1;
        self.inner.run(launch)
    }
    fn synchronize(&self) -> Result<()> {
        self.inner.synchronize()
    }
    fn memory(&self) -> MemoryStats {
        self.inner.memory()
    }
    fn reset_peak(&self) {
        self.inner.reset_peak();
    }
    fn empty_cache(&self) {
        self.inner.empty_cache();
    }
}

fn counting() -> (Device, Arc<Counting>) {
    let inner = taper::cpu().backend().clone();
    let info = DeviceInfo { name: "counting".into(), ..inner.info().clone() };
    let backend = Arc::new(Counting { info, inner, counts: Mutex::default() });
    (Device::new(backend.clone()), backend)
}

#[test]
fn it_computes_what_the_cpu_does() -> Result<()> {
    let (device, backend) = counting();
    let run = |d: &Device| -> Result<Vec<f32>> {
        let rng = Generator::seed(3, d);
        let x = Tensor::randn([20, 10], &rng)?;
        let w = Tensor::randn([10, 5], &rng)?.requires_grad();
        x.matmul(&w)?.relu().softmax(1)?.log().mean().backward()?;
        w.grad().unwrap().to_vec::<f32>()
    };
    assert_eq!(run(&device)?, run(&taper::cpu())?);
    assert!(backend.counts.lock().unwrap()["matmul"] >= 2);
    assert_eq!(format!("{}", Tensor::ones([1], &device)?), "tensor([1.], device=counting)");
    Ok(())
}

#[test]
fn a_chain_is_one_kernel_and_an_update_of_many_parameters_is_few() -> Result<()> {
    let (device, backend) = counting();
    let total = || backend.counts.lock().unwrap().values().sum::<usize>();
    let x = Tensor::from_vec(vec![1f32; 100], [100], &device)?;
    ((&x * 2.0 + 1.0).tanh().exp() - &x).sqrt().eval()?;
    assert_eq!(total(), 1);
    backend.counts.lock().unwrap().clear();
    let weights: Vec<Tensor> = (0..6)
        .map(|_| Tensor::from_vec(vec![1f32; 50], [50], &device)?.into_cell(true))
        .collect::<Result<_>>()?;
    for w in &weights {
        w.set_grad(Some(Tensor::from_vec(vec![0.5f32; 50], [50], &device)?));
    }
    let mut sgd = Sgd::new(weights.clone(), SgdConfig { lr: 0.1, momentum: 0.9, ..Default::default() });
    sgd.step()?;
    sgd.step()?;
    assert!(total() <= 4, "{:?}", backend.counts.lock().unwrap());
    assert!((weights[5].to_vec::<f32>()?[0] - (1.0 - 0.05 - 0.095)).abs() < 1e-6);
    Ok(())
}

#[test]
fn a_training_step_is_a_short_list_of_kernels() -> Result<()> {
    let (device, backend) = counting();
    let rng = Generator::seed(3, &device);
    let (fc1, fc2) = (Linear::new(16, 8, &rng)?, Linear::new(8, 4, &rng)?);
    let parameters = [fc1.parameters(), fc2.parameters()].concat();
    let mut sgd = Sgd::new(parameters, SgdConfig { lr: 0.1, ..Default::default() });
    let x = Tensor::randn([10, 16], &rng)?;
    let labels = Tensor::from_vec(vec![1i32; 10], [10], &device)?;
    for _ in 0..3 {
        backend.counts.lock().unwrap().clear();
        sgd.zero_grad();
        cross_entropy(&fc2.forward(&fc1.forward(&x)?.relu())?, &labels)?.backward()?;
        sgd.step()?;
    }
    let counts = backend.counts.lock().unwrap();
    // Two products forward, three backward.
    assert_eq!(counts["matmul"], 5, "{counts:?}");
    assert!(counts.values().sum::<usize>() <= 30, "{counts:?}");
    Ok(())
}
