//! Data parallelism: one model on several devices, with each batch split over them.

use std::{fmt, ops::Deref, thread};

use autograd::{grad, no_grad};
use tensor_core::{Device, Error, Generator, Result, Tensor, eval_all};

use crate::{Module, Reduction, Visitor, visitor::Entry};

const OP: &str = "DataParallel";

/// A module on several devices. Each device gets a part of the batch and computes its loss and gradients in
/// a separate thread; the gradients are added on the first device, in the order of the devices, and an
/// optimizer updates the module there. Results equal those of one device up to rounding.
/// `torch.nn.DataParallel`.
///
/// ```
/// use nn::{DataParallel, Linear, Module, mse_loss};
/// use tensor_core::{Generator, Tensor};
/// # fn main() -> tensor_core::Result<()> {
/// // Or taper::device("wgpu:0") and taper::device("wgpu:1"):
/// let devices = [backend_cpu::logical(0)?, backend_cpu::logical(1)?];
/// let model = DataParallel::new(&devices, 42, |rng| Linear::new(3, 1, rng))?;
/// let batch = (Tensor::ones([8, 3], &devices[0])?, Tensor::zeros([8, 1], &devices[0])?);
/// // Use an optimizer of model.parameters() as usual: zero_grad() before, step() after.
/// let loss = model.backward(&batch, |linear, (x, y)| mse_loss(&linear.forward(&x)?, &y))?;
/// assert_eq!(loss.device(), devices[0]);
/// assert_eq!(model.weight.grad().unwrap().dims(), [1, 3]);
/// # Ok(()) }
/// ```
///
/// It derefs to the module on the first device, whose parameters, state dict, training flags and frozen
/// parts are the model's. The other modules get parameters, buffers and flags from it before each pass.
/// Running means are those of the first device's part, as in PyTorch. Each replica draws its own random
/// numbers.
pub struct DataParallel<M> {
    devices: Vec<Device>,
    /// The module of each device.
    replicas: Vec<M>,
    reduction: Reduction,
}

impl<M> Deref for DataParallel<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.replicas[0]
    }
}

impl<M: fmt::Debug> fmt::Debug for DataParallel<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices: Vec<&str> = self.devices.iter().map(Device::name).collect();
        write!(f, "DataParallel on {}: {:?}", devices.join(", "), self.replicas[0])
    }
}

impl<M: Module + Send + Sync> DataParallel<M> {
    /// A module on each of `devices`, built by `build` with a generator on that device. All get the values
    /// of the first one, whose generator has `seed`; the random streams of the others, as of dropout,
    /// differ.
    ///
    /// Losses are means over their part of the batch, and are weighted by its size;
    /// [`DataParallel::reduction`] changes that.
    ///
    /// # Errors
    /// No devices, a device that is given twice, modules that differ in names or shapes, a module that is
    /// not on its generator's device, or the errors of `build`.
    #[track_caller]
    pub fn new(
        devices: &[Device],
        seed: u64,
        build: impl Fn(&Generator) -> Result<M>,
    ) -> Result<DataParallel<M>> {
        if devices.is_empty() {
            return Err(Error::invalid(OP, "no devices; give at least one"));
        }
        for (k, device) in devices.iter().enumerate() {
            if devices[..k].contains(device) {
                let message = format!(
                    "{device} is given twice, where two parts would wait for each other; a second device on the same processor or adapter \
                     has a # in its name, as cpu#1 or wgpu:0#1"
                );
                return Err(Error::invalid(OP, message));
            }
        }
        let own_seed = |k: u64| seed ^ k.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let replicas = (0u64..).zip(devices).map(|(k, device)| build(&Generator::seed(own_seed(k), device)));
        let replicas = replicas.collect::<Result<Vec<M>>>()?;
        let form = |module: &M| -> Vec<String> {
            let of = |e: &Entry| format!("{} {} {}", e.name, e.tensor.dtype(), e.tensor.shape());
            module.state().iter().map(of).collect()
        };
        let first = form(&replicas[0]);
        for (replica, device) in replicas.iter().zip(devices) {
            let own = form(replica);
            if let Some(entry) = replica.state().iter().find(|entry| entry.tensor.device() != *device) {
                let message = format!(
                    "{} is on {}: build the module on the generator's device, {device}",
                    entry.name,
                    entry.tensor.device()
                );
                return Err(Error::invalid(OP, message));
            }
            if own != first {
                let differs = own.iter().zip(&first).find(|(own, first)| own != first);
                let words = differs.map_or_else(
                    || format!("{} tensors and {}", own.len(), first.len()),
                    |(own, first)| format!("{own} and {first}"),
                );
                return Err(Error::invalid(OP, format!("the modules that were built differ: {words}")));
            }
        }
        Ok(DataParallel { devices: devices.to_vec(), replicas, reduction: Reduction::Mean })
    }

    /// Sets how a loss is reduced over its part's examples: by the mean, which is then weighted by the
    /// part's size, or by the sum.
    ///
    /// # Errors
    /// [`Reduction::None`]: a loss must be one number.
    #[track_caller]
    pub fn reduction(mut self, reduction: Reduction) -> Result<DataParallel<M>> {
        if reduction == Reduction::None {
            return Err(Error::invalid(OP, "a loss is one number; give Reduction::Mean or Reduction::Sum"));
        }
        self.reduction = reduction;
        Ok(self)
    }

    /// The module on the first device, whose parameters an optimizer updates.
    pub fn module(&self) -> &M {
        &self.replicas[0]
    }

    /// The devices, in the order in which gradients are added.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Computes `loss` for each part of the batch on its device, and adds the gradients of the whole batch's
    /// loss to those of the module's parameters. Returns that loss, on the first device, without a graph.
    ///
    /// The batch is split along the first axis of its tensors into parts that differ by at most one example,
    /// the larger ones first. If there are fewer examples than devices, the last devices get none. `loss` is
    /// called with a part that was moved to the module's device, from several threads at once.
    ///
    /// # Errors
    /// The first error of `loss`, in the order of the devices; a loss that is not one number; a batch
    /// without examples, or whose tensors differ in their number or require gradients; a module that was
    /// moved. No gradient has changed then.
    #[track_caller]
    pub fn backward<B: Scatter>(
        &self,
        batch: &B,
        loss: impl Fn(&M, B) -> Result<Tensor> + Sync,
    ) -> Result<Tensor> {
        let size = size_of(batch)?;
        let found = self.on_each(batch, size, |module, part, len| {
            let loss = loss(module, part)?;
            let share = match self.reduction {
                Reduction::Mean => loss.mul_scalar(len as f64 / size as f64),
                Reduction::Sum | Reduction::None => loss,
            };
            let wanted: Vec<Tensor> = module.parameters().into_iter().filter(Tensor::is_tracked).collect();
            let gradients = grad(&[&share], &wanted, false)?;
            let share = share.detach();
            eval_all(&gradients.iter().flatten().chain([&share]).collect::<Vec<_>>())?;
            Ok((gradients, share))
        })?;
        let parameters: Vec<Tensor> = self.parameters().into_iter().filter(Tensor::is_tracked).collect();
        no_grad(|| {
            let first = &self.devices[0];
            let mut sums: Vec<Option<Tensor>> = vec![None; parameters.len()];
            let mut total: Option<Tensor> = None;
            for (gradients, share) in &found {
                add(&mut total, &share.to(first)?)?;
                for (sum, gradient) in sums.iter_mut().zip(gradients) {
                    if let Some(gradient) = gradient {
                        add(sum, &gradient.to(first)?)?;
                    }
                }
            }
            // Existing gradients are added last, as in a backward pass over the whole batch.
            for (sum, parameter) in sums.iter_mut().zip(&parameters) {
                if let (Some(sum), Some(before)) = (sum, parameter.grad()) {
                    *sum = before.add(sum)?;
                }
            }
            let total = total.ok_or_else(|| Error::invalid(OP, "no part was computed"))?;
            eval_all(&sums.iter().flatten().chain([&total]).collect::<Vec<_>>())?;
            for (parameter, sum) in parameters.iter().zip(sums) {
                if let Some(sum) = sum {
                    parameter.set_grad(Some(sum));
                }
            }
            Ok(total)
        })
    }

    /// The concatenated results of `forward` for the parts of the batch, along the first axis, on the first
    /// device. Without gradients: for evaluation.
    ///
    /// # Errors
    /// The errors of [`DataParallel::backward`], and results that cannot be concatenated.
    #[track_caller]
    pub fn predict<B: Scatter>(
        &self,
        batch: &B,
        forward: impl Fn(&M, B) -> Result<Tensor> + Sync,
    ) -> Result<Tensor> {
        let size = size_of(batch)?;
        let found = self.on_each(batch, size, |module, part, _| {
            let result = no_grad(|| forward(module, part))?;
            result.eval()?;
            Ok(result)
        })?;
        let first = &self.devices[0];
        let found = found.iter().map(|result| result.to(first)).collect::<Result<Vec<_>>>()?;
        Tensor::concat(&found, 0)
    }

    /// Calls `f` with each module and its part of the batch, each in a separate thread, and returns the
    /// results in the order of the devices.
    #[track_caller]
    fn on_each<B: Scatter, R: Send>(
        &self,
        batch: &B,
        size: usize,
        f: impl Fn(&M, B, usize) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let source = self.replicas[0].state();
        if let Some(entry) = source.iter().find(|entry| entry.tensor.device() != self.devices[0]) {
            let message = format!(
                "{} is on {} now; the module stays on the first device, {}",
                entry.name,
                entry.tensor.device(),
                self.devices[0]
            );
            return Err(Error::invalid(OP, message));
        }
        let mut visitor = Visitor::new();
        self.replicas[0].visit(&mut visitor);
        let flags = visitor.flags();
        // Read before any part changes a buffer.
        let values: Vec<(Tensor, bool)> =
            source.iter().map(|entry| (entry.tensor.detach(), entry.tensor.is_tracked())).collect();
        let count = self.devices.len().min(size);
        let mut start = 0;
        let parts: Vec<(usize, usize)> = (0..count)
            .map(|k| {
                let len = size / count + usize::from(k < size % count);
                start += len;
                (start - len, len)
            })
            .collect();
        let work = |k: usize| -> Result<R> {
            let (module, device, (start, len)) = (&self.replicas[k], &self.devices[k], parts[k]);
            if k > 0 {
                follow(module, &values, &flags, device)?;
            }
            f(module, batch.part(start, len, device)?, len)
        };
        thread::scope(|scope| {
            let others: Vec<_> = (1..count)
                .map(|k| {
                    let work = &work;
                    thread::Builder::new().spawn_scoped(scope, move || work(k))
                })
                .collect();
            let first = work(0);
            // All threads are joined, and the first error in the order of the devices is reported.
            let joined: Vec<Result<R>> = others
                .into_iter()
                .map(|other| match other {
                    Ok(other) => other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                    Err(error) => Err(Error::invalid(OP, format!("no thread for a device: {error}"))),
                })
                .collect();
            std::iter::once(first).chain(joined).collect()
        })
    }
}

/// Copies the values and flags of the first module to another one. Each value comes with whether it requires
/// gradients.
fn follow<M: Module>(module: &M, values: &[(Tensor, bool)], flags: &[bool], device: &Device) -> Result<()> {
    module.visit(&mut Visitor::setting_each(flags));
    no_grad(|| {
        let copies = values.iter().map(|(value, _)| value.to(device)).collect::<Result<Vec<_>>>()?;
        eval_all(&copies.iter().collect::<Vec<_>>())?;
        for ((own, (_, tracked)), copy) in module.state().iter().zip(values).zip(&copies) {
            own.tensor.assign(copy)?;
            if own.tensor.is_tracked() != *tracked {
                own.tensor.set_requires_grad(*tracked)?;
            }
        }
        Ok(())
    })
}

fn add(sum: &mut Option<Tensor>, term: &Tensor) -> Result<()> {
    *sum = Some(match sum.take() {
        Some(sum) => sum.add(term)?,
        None => term.clone(),
    });
    Ok(())
}

/// The number of examples in a batch.
#[track_caller]
fn size_of<B: Scatter>(batch: &B) -> Result<usize> {
    match batch.examples()? {
        None => Err(Error::invalid(OP, "the batch has no tensors to split")),
        Some(0) => Err(Error::invalid(OP, "the batch has no examples")),
        Some(size) => Ok(size),
    }
}

/// A batch that can be split over devices: a tensor along its first axis, and tuples, arrays, `Vec` and
/// `Option` of these.
pub trait Scatter: Sized + Sync {
    /// The number of examples; `None` without tensors.
    ///
    /// # Errors
    /// Tensors with different numbers of examples or without axes.
    #[track_caller]
    fn examples(&self) -> Result<Option<usize>>;

    /// The `len` examples from `start` on, on a device.
    ///
    /// # Errors
    /// Too little memory on the device, or a dtype that it lacks.
    #[track_caller]
    fn part(&self, start: usize, len: usize, device: &Device) -> Result<Self>;
}

impl Scatter for Tensor {
    fn examples(&self) -> Result<Option<usize>> {
        if self.is_tracked() {
            let message =
                "a tensor of the batch wants gradients, which only parameters get; give it .detach()ed";
            return Err(Error::invalid(OP, message));
        }
        match self.dims() {
            [] => Err(Error::invalid(OP, "a 0-d tensor has no axis of examples; reshape it, or capture it")),
            [examples, ..] => Ok(Some(*examples)),
        }
    }

    fn part(&self, start: usize, len: usize, device: &Device) -> Result<Tensor> {
        self.narrow(0, start, len)?.to(device)
    }
}

/// The number of examples of two parts of a batch, which must agree.
#[track_caller]
fn agreed(one: Option<usize>, other: Option<usize>) -> Result<Option<usize>> {
    match (one, other) {
        (Some(one), Some(other)) if one != other => {
            let message =
                format!("tensors of the batch have {one} and {other} examples; give all the same number");
            Err(Error::invalid(OP, message))
        }
        (one, other) => Ok(one.or(other)),
    }
}

impl<T: Scatter> Scatter for Vec<T> {
    fn examples(&self) -> Result<Option<usize>> {
        self.iter().try_fold(None, |known, part| agreed(known, part.examples()?))
    }
    fn part(&self, start: usize, len: usize, device: &Device) -> Result<Vec<T>> {
        self.iter().map(|part| part.part(start, len, device)).collect()
    }
}

impl<T: Scatter> Scatter for Option<T> {
    fn examples(&self) -> Result<Option<usize>> {
        self.as_ref().map_or(Ok(None), T::examples)
    }
    fn part(&self, start: usize, len: usize, device: &Device) -> Result<Option<T>> {
        self.as_ref().map(|part| part.part(start, len, device)).transpose()
    }
}

impl<T: Scatter, const N: usize> Scatter for [T; N] {
    fn examples(&self) -> Result<Option<usize>> {
        self.iter().try_fold(None, |known, part| agreed(known, part.examples()?))
    }
    fn part(&self, start: usize, len: usize, device: &Device) -> Result<[T; N]> {
        let parts = self.iter().map(|part| part.part(start, len, device)).collect::<Result<Vec<T>>>()?;
        parts.try_into().map_err(|_| Error::invalid(OP, "the parts of an array differ from it in number"))
    }
}

macro_rules! tuples {
    ($(($($name:ident)*))*) => {$(
        impl<$($name: Scatter),*> Scatter for ($($name,)*) {
            #[allow(non_snake_case)]
            fn examples(&self) -> Result<Option<usize>> {
                let ($($name,)*) = self;
                let mut known = None;
                $(known = agreed(known, $name.examples()?)?;)*
                Ok(known)
            }
            #[allow(non_snake_case)]
            fn part(&self, start: usize, len: usize, device: &Device) -> Result<Self> {
                let ($($name,)*) = self;
                Ok(($($name.part(start, len, device)?,)*))
            }
        }
    )*};
}
tuples!((A) (A B) (A B C) (A B C D));
