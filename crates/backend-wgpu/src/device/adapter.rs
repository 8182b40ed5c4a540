//! The adapters of this machine, in a stable order: hardware first, software adapters (lavapipe, WARP) last.
#![allow(unsafe_code)]

use tensor_core::{Arithmetic, DType, DeviceInfo, DeviceKind, Error, ErrorKind, Limits, Result};

use crate::{codegen::capabilities::MatrixUnits, device::instance::instance};

/// The hint if no adapter is found.
const HINT: &str = if cfg!(target_arch = "wasm32") {
    "no graphics adapter was found; the browser offers no WebGPU to this page: it may need https, or to be turned on"
} else {
    "no graphics adapter was found; on Linux install a driver, or the software one: \
    apt-get install libvulkan1 mesa-vulkan-drivers"
};

/// An adapter and its properties, before it is opened.
pub(crate) struct Found {
    pub(crate) adapter: wgpu::Adapter,
    pub(crate) info: DeviceInfo,
    pub(crate) software: bool,
    pub(crate) memory_limit: Option<u64>,
}

/// The preference among APIs if several expose the same card; the lowest is preferred.
fn api_rank(backend: wgpu::Backend) -> usize {
    match backend {
        wgpu::Backend::Vulkan | wgpu::Backend::Metal => 0,
        wgpu::Backend::Dx12 => 1,
        wgpu::Backend::Gl | wgpu::Backend::BrowserWebGpu | wgpu::Backend::Noop => 2,
    }
}

fn kind(ty: wgpu::DeviceType) -> DeviceKind {
    match ty {
        wgpu::DeviceType::DiscreteGpu => DeviceKind::DiscreteGpu,
        wgpu::DeviceType::IntegratedGpu => DeviceKind::IntegratedGpu,
        wgpu::DeviceType::VirtualGpu => DeviceKind::VirtualGpu,
        wgpu::DeviceType::Cpu => DeviceKind::SoftwareGpu,
        wgpu::DeviceType::Other => DeviceKind::Other,
    }
}

fn kind_rank(ty: wgpu::DeviceType) -> usize {
    match ty {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu => 2,
        wgpu::DeviceType::Other => 3,
        wgpu::DeviceType::Cpu => 4,
    }
}

/// Every adapter, each card only once, as `wgpu:0`, `wgpu:1`, ….
pub(crate) async fn all() -> Vec<Found> {
    let Some(instance) = instance() else { return Vec::new() };
    let adapters = instance.enumerate_adapters(wgpu::Backends::all()).await;
    let mut adapters: Vec<(wgpu::Adapter, wgpu::AdapterInfo)> = adapters
        .into_iter()
        // GL never exposes another card, and is too limited to be the only API.
        .filter(|a| a.limits().max_storage_buffers_per_shader_stage >= 8)
        .map(|a| {
            let info = a.get_info();
            (a, info)
        })
        .filter(|(_, i)| i.backend != wgpu::Backend::Gl && i.backend != wgpu::Backend::Noop)
        .collect();
    adapters.sort_by_key(|(_, i)| {
        (kind_rank(i.device_type), api_rank(i.backend), i.device_pci_bus_id.clone(), i.name.clone())
    });
    let seen: Vec<(u32, u32, usize)> =
        adapters.iter().map(|(_, i)| (i.vendor, i.device, api_rank(i.backend))).collect();
    adapters.retain(|(_, i)| {
        !seen.iter().any(|&(vendor, device, rank)| {
            vendor == i.vendor && device == i.device && rank < api_rank(i.backend)
        })
    });
    adapters.into_iter().enumerate().map(|(index, (adapter, info))| describe(index, adapter, &info)).collect()
}

fn describe(index: usize, adapter: wgpu::Adapter, info: &wgpu::AdapterInfo) -> Found {
    let limits = adapter.limits();
    let features = adapter.features();
    let wide = features.contains(wgpu::Features::SHADER_INT64);
    // The f64 functions split numbers with 64-bit integers.
    let double = wide && features.contains(wgpu::Features::SHADER_F64);
    let mut dtypes = DType::ALL.to_vec();
    dtypes.retain(|dtype| match dtype.arithmetic() {
        Arithmetic::Bool | Arithmetic::U32 | Arithmetic::I32 | Arithmetic::F32 => true,
        Arithmetic::U64 | Arithmetic::I64 => wide,
        Arithmetic::F64 => double,
    });
    let software = info.device_type == wgpu::DeviceType::Cpu;
    let memory = if software { system_memory() } else { None };
    let driver = [format!("{:?}", info.backend), info.driver.clone(), info.driver_info.clone()];
    let driver: Vec<String> = driver.into_iter().filter(|s| !s.is_empty()).collect();
    Found {
        adapter,
        info: DeviceInfo {
            name: format!("wgpu:{index}"),
            // A browser does not report a name.
            description: if info.name.is_empty() { format!("{:?}", info.backend) } else { info.name.clone() },
            driver: driver.join(", "),
            kind: kind(info.device_type),
            memory,
            dtypes,
            limits: self::limits(&limits),
        },
        software,
        memory_limit: memory.map(|bytes| bytes / 4 * 3),
    }
}

/// The bytes that a driver may add to a buffer for alignment.
const BUFFER_SLACK: u64 = 64 << 10;

/// The limits that the scheduler may use with this adapter.
pub(crate) fn limits(limits: &wgpu::Limits) -> Limits {
    // The fault table needs a binding beside inputs and outputs. The greatest numbers serve the updates of an
    // optimizer, of which one kernel computes several.
    let (max_inputs, max_outputs, max_instrs) = match limits.max_storage_buffers_per_shader_stage {
        29.. => (16, 12, 128),
        16.. => (10, 4, 64),
        _ => (5, 2, 64),
    };
    Limits {
        // Whole vectors of 16 bytes, and element indices that fit 31 bits. Tensors larger than one binding
        // are processed in windows. SwiftShader adds some bytes to each buffer and refuses more than the
        // buffer limit in total.
        max_buffer_bytes: limits.max_buffer_size.min(1 << 33).saturating_sub(BUFFER_SLACK) / 16 * 16,
        max_indexed_bytes: limits.max_storage_buffer_binding_size.max(512) / 256 * 256,
        gathers_in_maps: true,
        max_inputs,
        max_outputs,
        max_instrs,
        // Longer rows are evicted from the cache between a kernel's phases, so one kernel would read as
        // much memory as several. With few rows, split reductions also keep more of the device busy.
        max_row: 1 << 14,
        // The epilogue is repeated for each result that an invocation keeps in registers.
        max_epilogue: 16,
        min_framed_bytes: 4,
    }
}

/// The features that products on matrix units need.
pub(crate) const MATRIX_FEATURES: wgpu::Features = wgpu::Features::SHADER_F16
    .union(wgpu::Features::SUBGROUP)
    .union(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX);

/// The matrix units of an adapter that the kernel of `matrix.rs` can use: square matrices of f16 with sums in
/// f32.
pub(crate) fn matrix_units(adapter: &wgpu::Adapter) -> Option<MatrixUnits> {
    use wgpu::CooperativeScalarType::{F16, F32};
    if !adapter.features().contains(MATRIX_FEATURES) {
        return None;
    }
    let found = adapter.cooperative_matrix_properties();
    let has = |size: &u32| {
        found
            .iter()
            .any(|p| [p.m_size, p.n_size, p.k_size] == [*size; 3] && p.ab_type == F16 && p.cr_type == F32)
    };
    let size = [16, 8].into_iter().find(has)? as usize;
    let info = adapter.get_info();
    let subgroup_sizes = [info.subgroup_min_size, info.subgroup_max_size].map(|size| size as usize);
    Some(MatrixUnits::Cooperative { size, subgroup_sizes })
}

/// Whether the tests have passed on matrix units of this adapter's kind: NVIDIA's GPUs with its own driver,
/// which have run on an H200.
pub(crate) fn has_tested_units(adapter: &wgpu::Adapter) -> bool {
    const NVIDIA: u32 = 0x10de;
    let info = adapter.get_info();
    (info.vendor, info.driver.as_str()) == (NVIDIA, "NVIDIA")
}

/// The permission to use experimental features.
pub(crate) fn experimental() -> wgpu::ExperimentalFeatures {
    // SAFETY: wgpu warns that such features may have undefined behaviour. Only cooperative matrices are
    // requested, only if the user asks for them or the tests have passed on such an adapter, and only the
    // kernel of `matrix.rs` uses them: within its arrays in workgroup memory, which tests trace.
    unsafe { wgpu::ExperimentalFeatures::enabled() }
}

/// The machine's memory, if the system reports it.
fn system_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib: u64 = text
        .lines()
        .find_map(|l| l.strip_prefix("MemTotal:"))?
        .trim()
        .trim_end_matches("kB")
        .trim()
        .parse()
        .ok()?;
    Some(kib * 1024)
}

/// Finds the adapter with this index. `TAPER_ADAPTER` selects `wgpu:0` by a part of its name.
pub(crate) async fn find(index: usize) -> Result<Found> {
    let all = all().await;
    let list = || {
        all.iter().map(|f| format!("{} ({})", f.info.name, f.info.description)).collect::<Vec<_>>().join(", ")
    };
    let asked = format!("wgpu:{index}");
    if all.is_empty() {
        return Err(Error::new(ErrorKind::UnknownDevice { asked, hint: HINT.into() }));
    }
    let mut at = index;
    if index == 0
        && let Some(wanted) = std::env::var_os("TAPER_ADAPTER").filter(|wanted| !wanted.is_empty())
    {
        let wanted = wanted.to_string_lossy().to_string();
        let wanted_lower = wanted.to_lowercase();
        let found = all.iter().position(|f| f.info.description.to_lowercase().contains(&wanted_lower));
        at = found.ok_or_else(|| {
            Error::new(ErrorKind::UnknownDevice {
                asked: wanted.clone(),
                hint: format!("TAPER_ADAPTER names no adapter; there are {}", list()),
            })
        })?;
    }
    if at >= all.len() {
        return Err(Error::new(ErrorKind::UnknownDevice { asked, hint: format!("there are {}", list()) }));
    }
    let mut found = all
        .into_iter()
        .nth(at)
        .ok_or_else(|| Error::new(ErrorKind::UnknownDevice { asked: asked.clone(), hint: HINT.into() }))?;
    found.info.name = asked;
    Ok(found)
}
