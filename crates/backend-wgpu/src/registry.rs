//! The process's devices: each adapter is opened once, and again only if it was lost.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
};

use tensor_core::{Awaited, Device, DeviceInfo, DeviceProvider, Error, ErrorKind, Result, lock};

use crate::{
    Options, WgpuBackend,
    device::{adapter, gpu::Gpu, options::VARIABLES},
    platform::{CAN_WAIT, wait},
    tuning::Tuning,
};

type DevicesByKey = HashMap<DeviceKey, (Device, Weak<WgpuBackend>)>;

/// The devices by adapter and number.
static DEVICES: Mutex<Option<DevicesByKey>> = Mutex::new(None);
/// Every device open in this process.
static OPEN: Mutex<Vec<Weak<WgpuBackend>>> = Mutex::new(Vec::new());

/// The graphics adapters of this machine, best first, under the names of their devices: hardware before
/// software.
///
/// ```
/// for adapter in backend_wgpu::adapters() {
///     println!("{}: {}", adapter.name, adapter.description);
/// }
/// ```
///
/// In a browser page the list is empty, because a page cannot wait for the answer: await
/// [`adapters_async`].
pub fn adapters() -> Vec<DeviceInfo> {
    wait(adapters_async()).unwrap_or_default()
}

/// The async form of [`adapters`]. In a browser it is `navigator.gpu.requestAdapter`, which returns one.
pub async fn adapters_async() -> Vec<DeviceInfo> {
    adapter::all().await.into_iter().map(|f| f.info).collect()
}

/// The device on adapter `index` of [`adapters`]: the same one for every call, or a new one if that was
/// lost.
///
/// `TAPER_ADAPTER` selects the adapter of index 0 by a part of its name; [`Options::from_env`] lists the
/// variables for opening it. Compiled pipelines are kept in the user's cache directory if the driver
/// exports them. Drivers compile a kernel when it is created or first run, and most keep it themselves. If
/// that takes a second in all, one line is written to stderr, if that is a terminal.
///
/// # Errors
/// `Invalid` for an environment variable that cannot be parsed; `UnknownDevice` if the adapter does not
/// exist, with a list of those that do, or with a hint what to install; `Backend` if the driver refuses.
///
/// A browser page cannot wait for a device: await [`wgpu_async`].
pub fn wgpu(index: usize) -> Result<Device> {
    logical(index, 0)
}

/// The number of logical devices on one adapter.
pub const MOST_LOGICAL: usize = 64;

/// One of several logical devices on adapter `index`: 0 is that of [`wgpu()`], any other prints as
/// `wgpu:0#1` and so on, and has its own queue, memory, pipelines and budget; every call returns the same
/// device. Use them to test a program for several devices on one adapter.
///
/// # Errors
/// As [`wgpu()`], and `UnknownDevice` from [`MOST_LOGICAL`] on.
///
/// A browser page cannot wait for a device: await [`logical_async`].
pub fn logical(index: usize, number: usize) -> Result<Device> {
    let key = key(index, number)?;
    let mut devices = lock(&DEVICES);
    let devices = devices.get_or_insert_default();
    if let Some(device) = find_open(devices, key) {
        return Ok(device);
    }
    let options = Options::from_env()?;
    let opened = wait(open_backend(key, &options));
    Ok(keep(devices, key, opened.unwrap_or_else(|| Err(must_be_awaited(index, "wgpu_async")))?))
}

/// The async form of [`wgpu()`]: the only one that works in a browser page.
///
/// # Errors
/// As [`wgpu()`].
pub async fn wgpu_async(index: usize) -> Result<Device> {
    logical_async(index, 0).await
}

/// The async form of [`logical`].
///
/// # Errors
/// As [`logical`].
pub async fn logical_async(index: usize, number: usize) -> Result<Device> {
    let key = key(index, number)?;
    if let Some(device) = find_open(lock(&DEVICES).get_or_insert_default(), key) {
        return Ok(device);
    }
    let opened = open_backend(key, &Options::from_env()?).await?;
    let mut devices = lock(&DEVICES);
    let devices = devices.get_or_insert_default();
    // Another task may have opened it meanwhile.
    Ok(find_open(devices, key).unwrap_or_else(|| keep(devices, key, opened)))
}

/// This backend's devices by name: `wgpu:0` on the first adapter, and `wgpu:0#1` for another one on it.
/// `gpu` is a synonym of `wgpu`.
#[derive(Clone, Copy, Debug)]
pub struct WgpuDevices;

impl DeviceProvider for WgpuDevices {
    fn name(&self) -> &str {
        "wgpu"
    }

    fn aliases(&self) -> &[&str] {
        &["gpu"]
    }

    fn devices(&self) -> Vec<DeviceInfo> {
        adapters()
    }

    fn devices_async(&self) -> Awaited<'_, Vec<DeviceInfo>> {
        Box::pin(adapters_async())
    }

    fn logical_devices(&self) -> usize {
        MOST_LOGICAL
    }

    fn open(&self, index: usize, logical: usize) -> Result<Device> {
        crate::logical(index, logical)
    }

    fn open_async(&self, index: usize, logical: usize) -> Awaited<'_, Result<Device>> {
        Box::pin(logical_async(index, logical))
    }

    fn variables(&self) -> &[&'static str] {
        VARIABLES
    }
}

/// The numbers of an adapter and of a logical device on it.
type DeviceKey = (usize, usize);

fn key(index: usize, number: usize) -> Result<DeviceKey> {
    if number < MOST_LOGICAL {
        return Ok((index, number));
    }
    Err(Error::new(ErrorKind::UnknownDevice {
        asked: format!("wgpu:{index}#{number}"),
        hint: format!("the number after # is below {MOST_LOGICAL}"),
    }))
}

/// The device of a key, if it is open and not lost.
fn find_open(devices: &DevicesByKey, key: DeviceKey) -> Option<Device> {
    let (device, backend) = devices.get(&key)?;
    backend.upgrade().is_some_and(|b| !b.gpu.faults.is_lost()).then(|| device.clone())
}

fn keep(devices: &mut DevicesByKey, key: DeviceKey, opened: (Device, Weak<WgpuBackend>)) -> Device {
    let device = opened.0.clone();
    devices.insert(key, opened);
    device
}

fn must_be_awaited(index: usize, form: &str) -> Error {
    let hint = format!("a page cannot wait for its GPU: await {form}");
    Error::new(ErrorKind::UnknownDevice { asked: format!("wgpu:{index}"), hint })
}

/// Opens adapter `index` with its own options: another device than the one from [`wgpu()`].
///
/// # Errors
/// As [`wgpu()`].
pub fn open(index: usize, options: &Options) -> Result<Device> {
    wait(open_async(index, options)).unwrap_or_else(|| Err(must_be_awaited(index, "open_async")))
}

/// The async form of [`open`]: the only one that works in a browser page.
///
/// # Errors
/// As [`wgpu()`].
pub async fn open_async(index: usize, options: &Options) -> Result<Device> {
    Ok(open_backend((index, 0), options).await?.0)
}

async fn open_backend((index, number): DeviceKey, options: &Options) -> Result<(Device, Weak<WgpuBackend>)> {
    let mut found = adapter::find(index).await?;
    if number > 0 {
        found.info.name = format!("wgpu:{index}#{number}");
    }
    let gpu = Arc::new(Gpu::open(&found, options).await?);
    #[cfg(target_os = "linux")]
    if found.software {
        crate::at_exit::wait_at_exit(until_idle);
    }
    let dir = options.cache_dir.as_deref();
    // Measuring needs to wait.
    let tuning = (options.autotune && CAN_WAIT)
        .then(|| Tuning::open(options.forced.form, &found.adapter.get_info(), dir));
    let backend = Arc::new(WgpuBackend { gpu, tuning });
    let weak = Arc::downgrade(&backend);
    let mut open = lock(&OPEN);
    open.retain(|w| w.strong_count() > 0);
    open.push(Weak::clone(&weak));
    Ok((Device::new(backend), weak))
}

/// The backends of all open devices.
fn open_backends() -> Vec<Arc<WgpuBackend>> {
    lock(&OPEN).iter().filter_map(Weak::upgrade).collect()
}

/// Waits until every open device has done what was submitted to it.
#[cfg(target_os = "linux")]
fn until_idle() {
    for backend in open_backends() {
        let _ = backend.gpu.device.poll(wgpu::PollType::wait_indefinitely());
    }
}

/// The backend of a device, for `op`.
pub(crate) fn backend_of(device: &Device, op: &'static str) -> Result<Arc<WgpuBackend>> {
    let wanted = Arc::as_ptr(device.backend()).cast::<()>();
    let found = open_backends().into_iter().find(|b| Arc::as_ptr(b).cast::<()>() == wanted);
    found.ok_or_else(|| Error::invalid(op, format!("{device} is not a device of this backend")))
}

/// Destroys a device, as a driver reset would: from then on every use of it returns `DeviceLost`. The next
/// call of [`wgpu()`] opens a new one.
///
/// # Errors
/// `Invalid` for a device of another backend.
pub fn destroy(device: &Device) -> Result<()> {
    let backend = backend_of(device, "destroy")?;
    let gpu = &backend.gpu;
    // Marked first, so that a failing call finds the reason.
    gpu.faults.lose("it was destroyed".into());
    gpu.device.destroy();
    Ok(())
}
