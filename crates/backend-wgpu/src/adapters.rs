//! Finding adapters, opening devices, and keeping one device for each adapter of the process.

use std::sync::{Arc, Mutex, OnceLock};

use tensor_core::{DType, Device, DeviceInfo, DeviceKind, Error, Limits, Result};

use crate::{backend::WgpuBackend, pool::lock};

const PACKAGE_HINT: &str = "no GPU adapter was found; install a driver, or a software Vulkan with \
     `apt-get install libvulkan1 mesa-vulkan-drivers` (Debian, Ubuntu)";

struct Found {
    adapters: Vec<(wgpu::Adapter, DeviceInfo)>,
    // Adapters live on their instance.
    _instance: wgpu::Instance,
}

fn found() -> &'static Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    FOUND.get_or_init(|| {
        let mut wanted = wgpu::InstanceDescriptor::new_without_display_handle();
        wanted.backends = wgpu::Backends::VULKAN | wgpu::Backends::METAL | wgpu::Backends::DX12;
        let instance = wgpu::Instance::new(wanted);
        let mut adapters = pollster::block_on(instance.enumerate_adapters(wgpu::Backends::all()));
        // Hardware first; the sort is stable, so that numbers stay what the driver's order makes them.
        adapters.sort_by_key(|a| match a.get_info().device_type {
            wgpu::DeviceType::DiscreteGpu => 0,
            wgpu::DeviceType::IntegratedGpu => 1,
            wgpu::DeviceType::VirtualGpu => 2,
            wgpu::DeviceType::Other => 3,
            wgpu::DeviceType::Cpu => 4,
        });
        let adapters = adapters
            .into_iter()
            .enumerate()
            .map(|(i, adapter)| (describe(i, &adapter), adapter))
            .map(|(d, a)| (a, d));
        Found { adapters: adapters.collect(), _instance: instance }
    })
}

/// What the adapter is, and what it takes at once.
fn describe(index: usize, adapter: &wgpu::Adapter) -> DeviceInfo {
    let info = adapter.get_info();
    let limits = adapter.limits();
    let kind = match info.device_type {
        wgpu::DeviceType::DiscreteGpu => DeviceKind::DiscreteGpu,
        wgpu::DeviceType::IntegratedGpu => DeviceKind::IntegratedGpu,
        wgpu::DeviceType::VirtualGpu => DeviceKind::VirtualGpu,
        wgpu::DeviceType::Cpu => DeviceKind::SoftwareGpu,
        wgpu::DeviceType::Other => DeviceKind::Other,
    };
    let mut dtypes =
        vec![DType::Bool, DType::U8, DType::U32, DType::I32, DType::F16, DType::BF16, DType::F32];
    if adapter.features().contains(wgpu::Features::SHADER_INT64) {
        dtypes.push(DType::I64);
    }
    // One binding is for the parameters.
    let bindings = (limits.max_storage_buffers_per_shader_stage as usize).saturating_sub(1).clamp(3, 15);
    let outputs = if bindings >= 12 { 4 } else { 2 };
    let driver = [format!("{:?}", info.backend), info.driver, info.driver_info];
    DeviceInfo {
        name: format!("wgpu:{index}"),
        description: info.name,
        driver: driver.iter().filter(|part| !part.is_empty()).cloned().collect::<Vec<_>>().join(", "),
        kind,
        memory: if kind == DeviceKind::SoftwareGpu { host_memory() } else { None },
        dtypes,
        limits: Limits {
            // Shaders index with i32.
            max_buffer_bytes: limits
                .max_buffer_size
                .min(limits.max_storage_buffer_binding_size)
                .min(i32::MAX as u64),
            max_inputs: bindings - outputs,
            max_outputs: outputs,
            max_instrs: 64,
        },
    }
}

/// A software adapter's memory is the host's.
fn host_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Every adapter there is, hardware first, under the names that `taper::device` takes.
pub fn adapters() -> Vec<DeviceInfo> {
    found().adapters.iter().map(|(_, info)| info.clone()).collect()
}

/// The `index`-th adapter's device. Asking again gives the same device, unless it was lost: then a new one.
///
/// With `TAPER_ADAPTER` set, index 0 is the first adapter whose name contains it, in any case of letters.
///
/// # Errors
/// No adapter, no such index or name (which lists those there are), or one that refuses to open.
pub fn wgpu(index: usize) -> Result<Device> {
    type Open = Vec<(usize, Device, Arc<WgpuBackend>)>;
    static OPEN: OnceLock<Mutex<Open>> = OnceLock::new();
    let found = found();
    let asked = format!("wgpu:{index}");
    if found.adapters.is_empty() {
        return Err(Error::UnknownDevice { asked, hint: PACKAGE_HINT.into() });
    }
    let there_are = || {
        let names: Vec<String> =
            found.adapters.iter().map(|(_, i)| format!("{} ({})", i.name, i.description)).collect();
        format!("the adapters are {}", names.join(", "))
    };
    let mut chosen = index;
    if index == 0
        && let Ok(wanted) = std::env::var("TAPER_ADAPTER")
        && !wanted.is_empty()
    {
        let matches = |info: &DeviceInfo| info.description.to_lowercase().contains(&wanted.to_lowercase());
        chosen = found.adapters.iter().position(|(_, info)| matches(info)).ok_or_else(|| {
            Error::UnknownDevice { asked: format!("TAPER_ADAPTER={wanted}"), hint: there_are() }
        })?;
    }
    let Some((adapter, info)) = found.adapters.get(chosen) else {
        return Err(Error::UnknownDevice { asked, hint: there_are() });
    };
    let mut open = lock(OPEN.get_or_init(Mutex::default));
    open.retain(|(_, _, backend)| !backend.is_lost());
    if let Some((_, device, _)) = open.iter().find(|(i, _, _)| *i == chosen) {
        return Ok(device.clone());
    }
    let backend = Arc::new(WgpuBackend::open(adapter, info.clone())?);
    let device = Device::new(backend.clone());
    open.push((chosen, device.clone(), backend));
    Ok(device)
}
