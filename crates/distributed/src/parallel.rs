//! [`DistributedDataParallel`]: data-parallel training on many machines, each with a part of the batch.

use std::{
    fmt,
    ops::Deref,
    sync::atomic::{AtomicBool, Ordering},
};

use autograd::{TensorGrad, no_grad};
use nn::{Module, Role, Visitor};
use tensor_core::{DType, OnDrop, Result, Tensor, eval_all};

use crate::{Communicator, ReduceOp, agreement, buckets};

const OP: &str = "DistributedDataParallel";

/// Options of a [`DistributedDataParallel`].
#[derive(Clone, Copy, Debug)]
pub struct DistributedConfig {
    /// The size of a bucket of gradients, in bytes; 25 MiB by default. PyTorch's `bucket_cap_mb`.
    pub bucket_bytes: usize,
    /// Whether buffers (running means) are copied from rank 0 after each backward pass; they are by default,
    /// so that all ranks have the same model. PyTorch does so before each forward pass.
    pub broadcast_buffers: bool,
}

impl Default for DistributedConfig {
    fn default() -> DistributedConfig {
        DistributedConfig { bucket_bytes: 25 << 20, broadcast_buffers: true }
    }
}

/// A module that each rank has a copy of, on its own device. Each rank computes the loss of its part of the
/// batch; [`DistributedDataParallel::backward`] gives every rank the mean of all ranks' gradients, so that
/// optimizers with the same settings keep the copies bitwise equal.
/// `torch.nn.parallel.DistributedDataParallel`.
///
/// ```
/// use distributed::{Communicator, DistributedDataParallel};
/// use nn::{Linear, Module, mse_loss};
/// use optim::{Optimizer, Sgd, SgdConfig};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// let device = backend_cpu::cpu();
/// let comm = Communicator::world()?; // mpirun -n 4 PROGRAM, or a single process
/// // All ranks get rank 0's values.
/// let model = DistributedDataParallel::new(Linear::new(3, 1, &Generator::seed(42, &device))?, &comm)?;
/// let mut sgd = Sgd::new(model.parameters(), SgdConfig { lr: 0.1, ..Default::default() });
/// // This rank's part of the batch.
/// let (x, y) = (Tensor::full([8, 3], comm.rank() as f32, &device)?, Tensor::ones([8, 1], &device)?);
/// let loss = mse_loss(&model.forward(&x)?, &y)?;
/// model.backward(&loss)?;
/// sgd.step()?;
/// # Ok(()) }
/// ```
///
/// The mean of the ranks' gradients is that of the whole batch if parts have one size and losses are means.
/// It is summed in the order of the ranks: it equals a single process's gradient of the whole batch up to
/// rounding, and for a given world size the bits are the same in each run. Ranks on different kinds of
/// devices, or on processors with other instruction sets, round differently in their parts and in the
/// optimizer's step: their copies can drift apart by rounding errors.
///
/// Gradients are sent in buckets, those of the last parameters first, while the others are still computed.
///
/// A parameter that no rank's loss depends on has no gradient; if only some ranks' losses do, the others
/// count as zeros. Clip after `backward`, as in `clip_grad_norm(&model.parameters(), 1.0)`: each rank has
/// all gradients, and computes the same norm.
///
/// It derefs to the module. A failure of one rank in its backward pass, such as a label that is no class, is
/// an error on all ranks, and no gradient has changed; training can continue with the next batch. A rank
/// that does not call `backward` is named after [`Communicator::set_timeout`].
pub struct DistributedDataParallel<M> {
    module: M,
    comm: Communicator,
    config: DistributedConfig,
    /// Whether `backward` reduces gradients over ranks.
    reduces: AtomicBool,
}

impl<M> Deref for DistributedDataParallel<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.module
    }
}

impl<M: fmt::Debug> fmt::Debug for DistributedDataParallel<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DistributedDataParallel, rank {} of {}: {:?}",
            self.comm.rank(),
            self.comm.size(),
            self.module
        )
    }
}

/// A line for each parameter and buffer.
fn described(module: &impl Module) -> Vec<String> {
    let mut visitor = Visitor::new();
    module.visit(&mut visitor);
    let kept = visitor.entries().into_iter().filter(|entry| entry.role != Role::Constant);
    kept.map(|entry| {
        let role = match entry.role {
            Role::Parameter => "parameter",
            _ => "buffer",
        };
        format!("{role} {} {} {}", entry.name, entry.tensor.dtype(), entry.tensor.shape())
    })
    .collect()
}

impl<M: Module> DistributedDataParallel<M> {
    /// Wraps the module, and copies the parameters and buffers of rank 0 to all ranks.
    ///
    /// # Errors
    /// Modules that differ between ranks in the names, shapes, dtypes or order of their parameters and
    /// buffers: the error on every rank names the ranks that differ and the first difference. Ranks that are
    /// missing or have ended. The module is unchanged then.
    #[track_caller]
    pub fn new(module: M, comm: &Communicator) -> Result<DistributedDataParallel<M>> {
        DistributedDataParallel::with_config(module, comm, DistributedConfig::default())
    }

    /// As [`DistributedDataParallel::new`], with another bucket size, or with separate buffers on each rank.
    ///
    /// # Errors
    /// The errors of [`DistributedDataParallel::new`].
    #[track_caller]
    pub fn with_config(
        module: M,
        comm: &Communicator,
        config: DistributedConfig,
    ) -> Result<DistributedDataParallel<M>> {
        agreement::check(comm, OP, "parameters and buffers", &described(&module))?;
        let mut state = module.parameters();
        state.extend(module.buffers());
        assign_from_root(comm, &state, config.bucket_bytes)?;
        Ok(DistributedDataParallel { module, comm: comm.clone(), config, reduces: AtomicBool::new(true) })
    }

    /// The module.
    pub fn module(&self) -> &M {
        &self.module
    }

    /// The communicator of the ranks.
    pub fn communicator(&self) -> &Communicator {
        &self.comm
    }

    /// The module, with its gradients.
    pub fn into_inner(self) -> M {
        self.module
    }

    /// Computes the gradients of a loss, adds them to those of the module's parameters, and replaces the
    /// sums by their mean over all ranks. The graph is freed. All ranks call it together, except in
    /// [`DistributedDataParallel::no_sync`]. In a world of one it is [`TensorGrad::backward`].
    ///
    /// # Errors
    /// The errors of [`TensorGrad::backward`], here or on another rank; ranks that are missing or have
    /// ended. No gradient has changed then, on any rank that reports the error.
    #[track_caller]
    pub fn backward(&self, loss: &Tensor) -> Result<()> {
        let parameters = self.module.parameters();
        let before: Vec<Option<Tensor>> = parameters.iter().map(Tensor::grad).collect();
        let exchanges = self.comm.size() > 1 && self.reduces.load(Ordering::Relaxed);
        let done = match loss.backward() {
            Ok(()) if exchanges => self.reduce(&parameters),
            Err(error) if exchanges => {
                // This informs the other ranks immediately. Their absence is not an error of this rank.
                let _ = self.comm.abandon();
                Err(error)
            }
            done => done,
        };
        if done.is_err() {
            for (parameter, gradient) in parameters.iter().zip(before) {
                parameter.set_grad(gradient);
            }
        }
        done
    }

    /// Calls `f`, in which [`DistributedDataParallel::backward`] accumulates gradients on each rank
    /// separately. The next `backward` outside reduces the accumulated gradients: for batches larger than
    /// memory, with one exchange.
    ///
    /// ```
    /// # use distributed::{Communicator, DistributedDataParallel};
    /// # use nn::{Linear, Module};
    /// # use tensor_core::{Generator, Tensor};
    /// # fn main() -> tensor_core::Result<()> {
    /// # let device = backend_cpu::cpu();
    /// # let linear = Linear::new(3, 1, &Generator::seed(42, &device))?;
    /// # let model = DistributedDataParallel::new(linear, &Communicator::solo())?;
    /// # let parts = [Tensor::ones([2, 3], &device)?, Tensor::ones([2, 3], &device)?];
    /// model.no_sync(|| model.backward(&model.forward(&parts[0])?.mean()))?;
    /// model.backward(&model.forward(&parts[1])?.mean())?;
    /// # Ok(()) }
    /// ```
    pub fn no_sync<R>(&self, f: impl FnOnce() -> R) -> R {
        let before = self.reduces.swap(false, Ordering::Relaxed);
        let _restore = OnDrop::new(|| self.reduces.store(before, Ordering::Relaxed));
        f()
    }

    /// Replaces the parameters' gradients by their mean over all ranks, as
    /// [`DistributedDataParallel::backward`] does at its end, for gradients that were computed in another
    /// way.
    ///
    /// # Errors
    /// Ranks that are missing or have ended, or an error of the device. No gradient has changed then.
    #[track_caller]
    pub fn reduce_gradients(&self) -> Result<()> {
        self.reduce(&self.module.parameters())
    }

    #[track_caller]
    fn reduce(&self, parameters: &[Tensor]) -> Result<()> {
        if self.comm.size() == 1 {
            return Ok(());
        }
        no_grad(|| {
            let own: Vec<Option<Tensor>> = parameters.iter().map(Tensor::grad).collect();
            let used = self.used(&own)?;
            let mut chosen = Vec::new();
            let mut gradients = Vec::new();
            for ((parameter, own), _) in parameters.iter().zip(own).zip(used).filter(|(_, used)| *used) {
                gradients.push(own.unwrap_or_else(|| parameter.zeros_like()));
                chosen.push(parameter);
            }
            let means =
                buckets::all_reduce_all(&self.comm, &gradients, ReduceOp::Mean, self.config.bucket_bytes)?;
            if self.config.broadcast_buffers {
                assign_from_root(&self.comm, &self.module.buffers(), self.config.bucket_bytes)?;
            }
            for (parameter, mean) in chosen.into_iter().zip(means) {
                parameter.set_grad(Some(mean));
            }
            Ok(())
        })
    }

    /// Whether each parameter has a gradient on any rank.
    #[track_caller]
    fn used(&self, own: &[Option<Tensor>]) -> Result<Vec<bool>> {
        let Some(device) = self.module.parameters().first().map(Tensor::device) else {
            return Ok(Vec::new());
        };
        let flags: Vec<u32> = own.iter().map(|gradient| u32::from(gradient.is_some())).collect();
        let flags = Tensor::from_slice(&flags, [own.len()], &device)?;
        let any = self.comm.all_reduce(&flags, ReduceOp::Max)?;
        Ok(any.to_vec::<u32>()?.into_iter().map(|flag| flag != 0).collect())
    }
}

/// Assigns the values of rank 0 to cells, to all or none.
#[track_caller]
fn assign_from_root(comm: &Communicator, cells: &[Tensor], limit: usize) -> Result<()> {
    if comm.size() == 1 {
        return Ok(());
    }
    no_grad(|| {
        let sizes: Vec<(usize, DType)> =
            cells.iter().map(|t| (t.numel() * t.dtype().size(), t.dtype())).collect();
        let mut values = Vec::with_capacity(cells.len());
        for bucket in buckets::buckets(&sizes, limit) {
            let members: Vec<Tensor> = bucket.iter().map(|&k| cells[k].detach()).collect();
            let row = buckets::flat(&members, &members[0].device())?;
            let parts = comm.start_broadcast(&row, 0)?.wait_for_parts(&members)?;
            values.extend(bucket.into_iter().zip(parts));
        }
        eval_all(&values.iter().map(|(_, value)| value).collect::<Vec<_>>())?;
        values.into_iter().try_for_each(|(k, value)| cells[k].assign(&value))
    })
}
