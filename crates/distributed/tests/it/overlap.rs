//! Gradients travel while others are computed: shown by what has happened, not by clocks.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use backend_cpu::CpuBackend;
use distributed::{Communicator, DistributedConfig, DistributedDataParallel, ReduceOp};
use nn::{Linear, Module, mse_loss};
use tensor_core::{
    Backend, DType, Device, DeviceInfo, Generator, Launch, MemoryStats, Result, Storage, Tensor,
};

use crate::on_ranks;

/// A CPU that counts its kernels, and can be told to wait before one of them.
#[derive(Debug)]
struct Waiting {
    inner: CpuBackend,
    kernels: AtomicUsize,
    wait: Mutex<Option<Wait>>,
}

/// Before which kernel, for how many calls of the communicator to have begun.
#[derive(Debug)]
struct Wait {
    kernel: usize,
    comm: Communicator,
    calls: u64,
    found: Option<u64>,
}

impl Backend for Waiting {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
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
        let kernel = self.kernels.fetch_add(1, Ordering::Relaxed);
        if let Some(wait) = &mut *self.wait.lock().unwrap()
            && wait.kernel == kernel
        {
            let began = Instant::now();
            while wait.comm.traffic().collectives < wait.calls && began.elapsed() < Duration::from_secs(20) {
                thread::sleep(Duration::from_millis(1));
            }
            wait.found = Some(wait.comm.traffic().collectives);
        }
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

/// Four gradients in buckets of their own. The kernel of the last waits until the first has been reduced and the second is on its way: if buckets
/// travelled only when all is computed, it would wait for good.
#[test]
fn the_first_bucket_is_reduced_before_the_last_gradient_is_computed() {
    let found = on_ranks(3, |comm| -> Result<(u64, u64)> {
        let backend = Arc::new(Waiting {
            inner: CpuBackend::new(),
            kernels: AtomicUsize::new(0),
            wait: Mutex::new(None),
        });
        let device = Device::new(Arc::clone(&backend) as Arc<dyn Backend>);
        let rng = Generator::seed(1, &device);
        let layers = vec![Linear::new(6, 5, &rng)?, Linear::new(5, 4, &rng)?];
        let config = DistributedConfig { bucket_bytes: 1, ..Default::default() };
        let model = DistributedDataParallel::with_config(layers, &comm, config)?;
        let x = Tensor::randn([7, 6], &Generator::seed(comm.rank() as u64, &device))?;
        x.eval()?;
        let loss = || -> Result<Tensor> {
            let hidden = model[0].forward(&x)?.tanh();
            let out = model[1].forward(&hidden)?;
            mse_loss(&out, &out.zeros_like())
        };
        backend.kernels.store(0, Ordering::Relaxed);
        model.backward(&loss()?)?;
        let kernels = backend.kernels.load(Ordering::Relaxed);
        let alone = autograd::grad(&[loss()?], &model.parameters(), false)?;

        // The flags come first, then the buckets.
        let calls = comm.traffic().collectives + 3;
        model.parameters().iter().for_each(|parameter| parameter.set_grad(None));
        let wait = Wait { kernel: kernels - 1, comm: comm.clone(), calls, found: None };
        *backend.wait.lock().unwrap() = Some(wait);
        backend.kernels.store(0, Ordering::Relaxed);
        model.backward(&loss()?)?;
        assert_eq!(backend.kernels.load(Ordering::Relaxed), kernels, "one plan, as before");
        let begun = backend.wait.lock().unwrap().take().and_then(|wait| wait.found).unwrap();

        // What is reduced are the gradients, bit by bit.
        for (parameter, alone) in model.parameters().iter().zip(alone) {
            let expected = comm.all_reduce(&alone.unwrap(), ReduceOp::Mean)?;
            assert_eq!(parameter.grad().unwrap().read_bytes()?, expected.read_bytes()?);
        }
        Ok((begun, calls))
    });
    for (rank, result) in found.into_iter().enumerate() {
        let (begun, calls) = result.unwrap();
        assert!(begun >= calls, "rank {rank}: {begun} calls had begun, not {calls}");
    }
}
