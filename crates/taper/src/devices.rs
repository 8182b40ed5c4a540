//! Choosing a device at run time.

use tensor_core::{Device, DeviceInfo, Error, ErrorKind, Result};

/// The host's processor.
///
/// A variable of the environment that sets it up and cannot be read is an error of whatever makes a tensor on it;
/// [`device`]`("cpu")` tells at once.
#[cfg(feature = "cpu")]
pub fn cpu() -> Device {
    backend_cpu::cpu()
}

/// The `index`-th GPU adapter, hardware first. Asking again gives the same device, unless it was lost in between.
///
/// # Errors
/// No such adapter, which names those there are, or one that cannot be opened.
#[cfg(feature = "gpu")]
#[track_caller]
pub fn wgpu(index: usize) -> Result<Device> {
    opened(backend_wgpu::wgpu(index))
}

/// What a backend gave, a failure with the line of the caller.
#[track_caller]
fn opened(device: Result<Device>) -> Result<Device> {
    match device {
        Ok(device) => Ok(device),
        Err(error) => Err(error.here()),
    }
}

/// The device of a name: `cpu`, `wgpu` (the first adapter), `wgpu:1`, or `auto`.
///
/// `auto` is what the environment variable `TAPER_DEVICE` names, or else the first GPU of hardware, or else the CPU.
///
/// # Errors
/// A name that means nothing here, an adapter that does not exist, or a variable of the environment that cannot be read.
#[track_caller]
pub fn device(name: &str) -> Result<Device> {
    let unknown = |hint: String| Error::new(ErrorKind::UnknownDevice { asked: name.into(), hint });
    match name.trim() {
        "auto" => {
            match std::env::var_os("TAPER_DEVICE").map(|name| name.to_string_lossy().trim().to_string()) {
                Some(chosen) if !chosen.is_empty() && chosen != "auto" => device(&chosen),
                _ => automatic(),
            }
        }
        #[cfg(feature = "cpu")]
        "cpu" => opened(backend_cpu::open()),
        #[cfg(feature = "gpu")]
        "wgpu" | "gpu" => wgpu(0),
        #[cfg(feature = "gpu")]
        other if other.starts_with("wgpu:") => match other["wgpu:".len()..].parse() {
            Ok(index) => wgpu(index),
            Err(_) => Err(unknown("the part after wgpu: must be a number, as in wgpu:0".into()).here()),
        },
        _ => {
            let names: Vec<String> = devices().into_iter().map(|d| d.name).collect();
            Err(unknown(format!(
                "there are {}, and auto; a backend that is missing may be a feature of taper that is turned off",
                names.join(", ")
            ))
            .here())
        }
    }
}

/// Every device there is, the CPU first: names (as [`device`] takes them), makers' names, memory.
pub fn devices() -> Vec<DeviceInfo> {
    let all = std::iter::empty();
    #[cfg(feature = "cpu")]
    let all = all.chain([cpu().info().clone()]);
    #[cfg(feature = "gpu")]
    let all = all.chain(backend_wgpu::adapters());
    all.collect()
}

/// The best device: what `TAPER_DEVICE` names, or else the first GPU of hardware, or else the CPU.
///
/// A `TAPER_DEVICE` that cannot be had is said on stderr and passed over; [`device`]`("auto")` makes it an error.
#[cfg(feature = "cpu")]
pub fn best_device() -> Device {
    device("auto").unwrap_or_else(|error| {
        eprintln!("taper: {error}; using the cpu");
        cpu()
    })
}

#[track_caller]
fn automatic() -> Result<Device> {
    #[cfg(feature = "gpu")]
    {
        use tensor_core::DeviceKind;
        // A software adapter is slower than the CPU backend on the same processor.
        let hardware =
            |d: &DeviceInfo| !matches!(d.kind, DeviceKind::Cpu | DeviceKind::SoftwareGpu | DeviceKind::Other);
        let adapters = backend_wgpu::adapters();
        let chosen = adapters.iter().position(hardware);
        let chosen = if cfg!(feature = "cpu") { chosen } else { chosen.or(Some(0)) };
        if let Some(index) = chosen {
            return wgpu(index);
        }
    }
    #[cfg(feature = "cpu")]
    return backend_cpu::open();
    #[cfg(not(feature = "cpu"))]
    Err(Error::new(ErrorKind::UnknownDevice {
        asked: "auto".into(),
        hint: "taper was built without a backend; turn on one of its features cpu, wgpu, vulkan, metal, dx12"
            .into(),
    }))
}
