//! Gradients are sent while others are computed: shown by the order of events, not by clocks.

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
use taper_testing::hooked;
use tensor_core::{Generator, Result, Tensor};

use crate::on_ranks;

/// The kernel to wait before, and the number of communicator calls that must have begun.
#[derive(Debug)]
struct Wait {
    kernel: usize,
    comm: Communicator,
    calls: u64,
    found: Option<u64>,
}

impl Wait {
    fn wait(&mut self) {
        let began = Instant::now();
        while self.comm.traffic().collectives < self.calls && began.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(1));
        }
        self.found = Some(self.comm.traffic().collectives);
    }
}

/// Four gradients in separate buckets. The kernel of the last waits until the first has been reduced and the
/// second is being sent: if buckets were sent only after all are computed, it would wait forever.
#[test]
fn the_first_bucket_is_reduced_before_the_last_gradient_is_computed() {
    let found = on_ranks(3, |comm| -> Result<(u64, u64)> {
        let (kernels, wait) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None::<Wait>)));
        // A CPU that counts its kernels, and can be made to wait before one of them.
        let (count, told) = (Arc::clone(&kernels), Arc::clone(&wait));
        let device = hooked(Arc::new(CpuBackend::new()), move |cpu, launch| {
            let kernel = count.fetch_add(1, Ordering::Relaxed);
            if let Some(wait) = told.lock().unwrap().as_mut().filter(|wait| wait.kernel == kernel) {
                wait.wait();
            }
            cpu.run(launch)
        });
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
        kernels.store(0, Ordering::Relaxed);
        model.backward(&loss()?)?;
        let all = kernels.load(Ordering::Relaxed);
        let alone = autograd::grad(&[loss()?], &model.parameters(), false)?;

        // The flags come first, then the buckets.
        let calls = comm.traffic().collectives + 3;
        model.parameters().iter().for_each(|parameter| parameter.set_grad(None));
        *wait.lock().unwrap() = Some(Wait { kernel: all - 1, comm: comm.clone(), calls, found: None });
        kernels.store(0, Ordering::Relaxed);
        model.backward(&loss()?)?;
        assert_eq!(kernels.load(Ordering::Relaxed), all, "one plan, as before");
        let begun = wait.lock().unwrap().take().and_then(|wait| wait.found).unwrap();

        // The reduced values are the gradients, bit by bit.
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
