//! Choosing a device at run time.

#[cfg(feature = "cpu")]
use tensor_core::Tensor;
use tensor_core::{Device, DeviceInfo, DeviceKind, Error, ErrorKind, Result};

#[cfg(feature = "cpu")]
use std::{
    io::Write,
    sync::{PoisonError, RwLock},
};

#[cfg(any(feature = "cpu", feature = "gpu"))]
use crate::registry::prepare;
use crate::registry::{AUTO, Provider, provider, providers};

/// The host's processor.
///
/// If an environment variable of the CPU has an invalid value, every function that makes a tensor on it
/// returns an error; [`device`]`("cpu")` returns it at once.
#[cfg(feature = "cpu")]
pub fn cpu() -> Device {
    prepare();
    backend_cpu::cpu()
}

/// The `index`-th GPU adapter, hardware first. A second call returns the same device, unless it was lost in
/// between.
///
/// # Errors
/// There is no such adapter (the message lists those that exist), or it cannot be opened.
#[cfg(feature = "gpu")]
#[track_caller]
pub fn wgpu(index: usize) -> Result<Device> {
    prepare();
    opened(backend_wgpu::wgpu(index))
}

/// The async form of [`wgpu()`]. A page in a browser must use it, because it cannot block.
///
/// # Errors
/// The same as for [`wgpu()`].
#[cfg(feature = "gpu")]
pub async fn wgpu_async(index: usize) -> Result<Device> {
    prepare();
    backend_wgpu::wgpu_async(index).await
}

/// The device that a backend opened; an error gets the line of the caller.
#[track_caller]
fn opened(device: Result<Device>) -> Result<Device> {
    match device {
        Ok(device) => Ok(device),
        Err(error) => Err(error.here()),
    }
}

/// The device with this name, in upper or lower case: `cpu`, `wgpu` (the first adapter; also `gpu`),
/// `wgpu:1`, `auto`, or a device of a [registered](crate::register_backend) backend.
///
/// `auto` is the device that the environment variable `TAPER_DEVICE` names, or else the first hardware GPU,
/// or else the CPU. GPUs of every vendor are called `wgpu`: there is no `cuda` and no `mps`.
///
/// `cpu#1` and `wgpu:0#1` are additional devices on the same processor or adapter, each with its own memory,
/// plans and (on a GPU) queue, so that a program for several devices can be tried on one. `#0` is the same
/// as no number.
///
/// # Errors
/// An unknown name, an adapter that does not exist, or an environment variable with an invalid value.
///
/// ```
/// let device = taper::device("CPU")?;
/// assert_eq!(device.name(), "cpu");
/// assert!(taper::device("cpu#1")? != device && taper::device("cpu#1")? == taper::device("cpu#1")?);
/// let error = taper::device("cuda:0").unwrap_err().to_string();
/// assert!(error.contains("wgpu"), "{error}");
/// # Ok::<(), taper::Error>(())
/// ```
#[doc(alias("cuda", "mps", "torch.device"))]
#[track_caller]
pub fn device(name: &str) -> Result<Device> {
    match named(name)? {
        Named::Automatic => match best(providers().into_iter().map(|p| (p.devices(), p))) {
            Some((provider, index)) => open(&provider, index, 0),
            None => Err(without_backend()),
        },
        Named::At { provider, index, logical } => open(&provider, index, logical),
    }
}

/// The async form of [`device`]. A page in a browser must use it to open a GPU, because it cannot block.
/// There `auto` is the GPU that the browser offers, or else the CPU.
///
/// # Errors
/// The same as for [`device`].
///
/// ```
/// # pollster::block_on(async {
/// let device = taper::device_async("auto").await?;
/// assert_eq!(device, taper::device("auto")?);
/// # Ok::<(), taper::Error>(()) }).unwrap();
/// ```
pub async fn device_async(name: &str) -> Result<Device> {
    let (provider, index, logical) = match named(name)? {
        Named::Automatic => {
            let mut there = Vec::new();
            for provider in providers() {
                there.push((provider.devices_async().await, provider));
            }
            let (provider, index) = best(there).ok_or_else(without_backend)?;
            (provider, index, 0)
        }
        Named::At { provider, index, logical } => (provider, index, logical),
    };
    let device = provider.open_async(index, logical).await?;
    expected(&provider, index, logical, device)
}

/// A parsed device name.
enum Named {
    Automatic,
    /// The backend, the number of its device, and the number after `#`.
    At {
        provider: Provider,
        index: usize,
        logical: usize,
    },
}

#[track_caller]
fn named(name: &str) -> Result<Named> {
    let Name { kind, index, logical } = Name::of(name);
    if kind == AUTO && index.is_none() {
        if logical.is_some() {
            let hint = "auto is a choice among devices; name one, as in cpu#1 or wgpu:0#1".into();
            return Err(unknown(name, hint));
        }
        let chosen = std::env::var_os("TAPER_DEVICE").map(|name| name.to_string_lossy().trim().to_string());
        return match chosen {
            Some(chosen) if !chosen.is_empty() && !chosen.eq_ignore_ascii_case(AUTO) => named(&chosen),
            _ => Ok(Named::Automatic),
        };
    }
    let Some(provider) = provider(&kind) else { return Err(unknown(name, hint(&kind))) };
    let number = |part: Option<String>| part.map_or(Ok(0), |text| text.parse::<usize>().map_err(|_| ()));
    let hint = match (number(index), number(logical)) {
        (Ok(index), Ok(logical)) => return at(name, provider, index, logical),
        (Err(()), _) => format!("the part after {kind}: must be a number, as in {kind}:0"),
        (Ok(_), Err(())) => format!("the part after # must be a number, as in {kind}#1"),
    };
    Err(unknown(name, hint))
}

/// The device of a name with these numbers.
#[track_caller]
fn at(name: &str, provider: Provider, index: usize, logical: usize) -> Result<Named> {
    let most = provider.logical_devices();
    if logical >= most {
        return Err(unknown(name, format!("the number after # is below {most}")));
    }
    Ok(Named::At { provider, index, logical })
}

#[track_caller]
fn open(provider: &Provider, index: usize, logical: usize) -> Result<Device> {
    opened(provider.open(index, logical).and_then(|device| expected(provider, index, logical, device)))
}

/// The device, if its own name selects it again; a backend of another crate may get this wrong.
fn expected(provider: &Provider, index: usize, logical: usize, device: Device) -> Result<Device> {
    let name = Name::of(device.name());
    let number = |part: &Option<String>| part.as_ref().map_or(Some(0), |text| text.parse::<usize>().ok());
    if (name.kind.as_str(), number(&name.index), number(&name.logical))
        == (provider.name(), Some(index), Some(logical))
    {
        return Ok(device);
    }
    let kind = provider.name();
    let after = if logical > 0 { format!("#{logical}") } else { String::new() };
    let message = format!(
        "the backend {kind:?} opened a device called {:?}; its DeviceInfo must have the name {kind}:{index}{after}",
        device.name()
    );
    Err(Error::new(ErrorKind::Backend { device: format!("{kind}:{index}{after}"), message }))
}

/// The parts of a device's name, in lower case: `wgpu:0#1`.
struct Name {
    kind: String,
    /// The text after the colon.
    index: Option<String>,
    /// The text after the hash.
    logical: Option<String>,
}

impl Name {
    fn of(name: &str) -> Name {
        let lower = name.trim().to_ascii_lowercase();
        let (device, logical) = match lower.split_once('#') {
            Some((device, logical)) => (device.trim_end(), Some(logical.trim_start().to_string())),
            None => (lower.as_str(), None),
        };
        let (kind, index) = match device.split_once(':') {
            Some((kind, index)) => (kind.trim_end(), Some(index.trim_start().to_string())),
            None => (device, None),
        };
        Name { kind: kind.to_string(), index, logical }
    }
}

#[track_caller]
fn unknown(name: &str, hint: String) -> Error {
    Error::new(ErrorKind::UnknownDevice { asked: name.into(), hint })
}

/// The hint of the error for a device name of this kind.
fn hint(kind: &str) -> String {
    let names: Vec<String> = devices().into_iter().map(|d| d.name).collect();
    let there_are = format!("there are {}, and auto", names.join(", "));
    // Names of GPUs in other libraries.
    const GPUS: [&str; 12] =
        ["cuda", "gpu", "wgpu", "mps", "rocm", "hip", "xpu", "vulkan", "metal", "dx12", "opencl", "directml"];
    match kind {
        kind if GPUS.contains(&kind) && cfg!(feature = "gpu") => {
            format!("GPUs of every maker are called wgpu here, as in taper::device(\"wgpu:0\"); {there_are}")
        }
        kind if GPUS.contains(&kind) => format!(
            "GPUs are called wgpu here, and this program was built without them; turn on the feature wgpu of taper; {there_are}"
        ),
        _ => format!(
            "{there_are}; a backend that is missing may be a feature of taper that is turned off, or not be registered (taper::register_backend)"
        ),
    }
}

/// Whether [`device`] knows this name: `cpu`, `wgpu` (any adapter, including software adapters), `wgpu:1`,
/// `auto`. No device is opened. `torch.cuda.is_available`.
///
/// ```
/// assert!(taper::is_available("cpu") && taper::is_available("auto"));
/// assert!(!taper::is_available("wgpu:99") && !taper::is_available("cuda"));
/// assert!(taper::is_available("cpu#1") && !taper::is_available("cpu#x"));
/// ```
#[doc(alias("torch.cuda.is_available", "torch.backends.mps.is_available"))]
pub fn is_available(name: &str) -> bool {
    let Name { kind, index, logical } = Name::of(name);
    if kind == AUTO {
        return index.is_none() && logical.is_none() && !devices().is_empty();
    }
    let number = |text: Option<String>| text.map_or(Some(0), |text| text.parse::<usize>().ok());
    provider(&kind).is_some_and(|provider| {
        number(index).is_some_and(|index| index < provider.devices().len())
            && number(logical).is_some_and(|logical| logical < provider.logical_devices())
    })
}

/// The number of devices of a kind: `cpu`, `wgpu` (adapters, including software adapters; also `gpu`), or
/// the name of a [registered](crate::register_backend) backend. It is 0 for any other name.
/// `torch.cuda.device_count`.
///
/// ```
/// assert_eq!(taper::device_count("cpu"), 1);
/// for index in 0..taper::device_count("wgpu") {
///     println!("{}", taper::device(&format!("wgpu:{index}"))?.info());
/// }
/// # Ok::<(), taper::Error>(())
/// ```
#[doc(alias = "torch.cuda.device_count")]
pub fn device_count(kind: &str) -> usize {
    provider(&kind.trim().to_ascii_lowercase()).map_or(0, |provider| provider.devices().len())
}

/// The device of [`set_default_device`].
#[cfg(feature = "cpu")]
static DEFAULT: RwLock<Option<Device>> = RwLock::new(None);

/// The default device: the one that was given to [`set_default_device`], or else [`best_device`]. Functions
/// that make tensors always take a device and do not use it; it is for programs that do not want to pass a
/// device around. `torch.get_default_device`.
///
/// ```
/// use taper::prelude::*;
///
/// taper::set_default_device(&taper::device("cpu")?);
/// let x = Tensor::zeros([2, 2], &taper::default_device())?;
/// assert_eq!(x.device(), taper::cpu());
/// taper::set_default_device(None);
/// assert_eq!(taper::default_device(), taper::best_device());
/// # Ok::<(), taper::Error>(())
/// ```
#[cfg(feature = "cpu")]
#[doc(alias("torch.get_default_device", "torch.cuda.current_device", "current_device"))]
pub fn default_device() -> Device {
    let set = DEFAULT.read().unwrap_or_else(PoisonError::into_inner).clone();
    set.unwrap_or_else(best_device)
}

/// Sets the result of [`default_device`] for the whole process; `None` resets it to [`best_device`].
/// `torch.set_default_device`, `torch.cuda.set_device`.
#[cfg(feature = "cpu")]
#[doc(alias("torch.set_default_device", "torch.cuda.set_device"))]
pub fn set_default_device<'a>(device: impl Into<Option<&'a Device>>) {
    *DEFAULT.write().unwrap_or_else(PoisonError::into_inner) = device.into().cloned();
}

/// Methods of [`Tensor`] that need a backend; part of the [prelude](crate::prelude).
#[cfg(feature = "cpu")]
pub trait TensorExt {
    /// This tensor on the CPU; the tensor itself if it is already there. Gradients flow back to the original
    /// device.
    ///
    /// # Errors
    /// The tensor cannot be computed on its device, or memory is exhausted.
    ///
    /// ```
    /// use taper::prelude::*;
    ///
    /// let x = Tensor::ones([2], &taper::best_device())?;
    /// assert_eq!(x.cpu()?.device(), taper::cpu());
    /// # Ok::<(), taper::Error>(())
    /// ```
    #[track_caller]
    fn cpu(&self) -> Result<Tensor>;
}

#[cfg(feature = "cpu")]
impl TensorExt for Tensor {
    fn cpu(&self) -> Result<Tensor> {
        self.to(&backend_cpu::open()?)
    }
}

/// All devices, the CPU first and those of [registered](crate::register_backend) backends last, with their
/// names (as [`device`] takes them), the vendors' names, and memory.
pub fn devices() -> Vec<DeviceInfo> {
    providers().iter().flat_map(|provider| provider.devices()).collect()
}

/// The best device: the one that `TAPER_DEVICE` names, or else the first hardware GPU, or else the CPU.
///
/// If the device of `TAPER_DEVICE` cannot be opened, a message on stderr says so and the variable is
/// ignored; with [`device`]`("auto")` it is an error.
#[cfg(feature = "cpu")]
pub fn best_device() -> Device {
    device("auto").unwrap_or_else(|error| {
        // A closed stderr is not an error.
        let _ = std::io::stderr().write_fmt(format_args!("taper: {error}; using the cpu\n"));
        cpu()
    })
}

/// The device that `auto` chooses among those of all backends: the first hardware GPU, because a software
/// GPU is slower than the CPU's backend on the same processor; or else the CPU; or else the first device. A
/// browser does not report the kind of its GPU.
fn best(backends: impl IntoIterator<Item = (Vec<DeviceInfo>, Provider)>) -> Option<(Provider, usize)> {
    let is_hardware = |kind: DeviceKind| {
        kind.is_hardware_gpu() || (cfg!(target_arch = "wasm32") && kind != DeviceKind::Cpu)
    };
    let rank = |info: &DeviceInfo| match info.kind {
        kind if is_hardware(kind) => 0,
        DeviceKind::Cpu => 1,
        _ => 2,
    };
    let devices = backends.into_iter().flat_map(|(devices, provider)| {
        let ranks: Vec<(usize, i32)> = devices.iter().map(rank).enumerate().collect();
        ranks.into_iter().map(move |(index, rank)| (rank, provider.clone(), index))
    });
    devices.min_by_key(|&(rank, ..)| rank).map(|(_, provider, index)| (provider, index))
}

fn without_backend() -> Error {
    Error::new(ErrorKind::UnknownDevice {
        asked: AUTO.into(),
        hint: "taper was built without a backend; turn on one of its features cpu, wgpu, vulkan, metal, dx12"
            .into(),
    })
}
