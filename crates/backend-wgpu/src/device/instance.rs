//! The process-wide wgpu instance, with the APIs that are compiled in.
#![allow(unsafe_code)]

use std::sync::OnceLock;

/// The instance; None if no API of this platform is compiled in, because wgpu would panic.
pub(crate) fn instance() -> Option<&'static wgpu::Instance> {
    static INSTANCE: OnceLock<Option<wgpu::Instance>> = OnceLock::new();
    INSTANCE
        .get_or_init(|| {
            let backends = wgpu::Instance::enabled_backend_features();
            (!backends.is_empty()).then(|| {
                without_windows().unwrap_or_else(|| {
                    wgpu::Instance::new(wgpu::InstanceDescriptor {
                        backends,
                        flags: wgpu::InstanceFlags::empty(),
                        ..wgpu::InstanceDescriptor::new_without_display_handle()
                    })
                })
            })
        })
        .as_ref()
}

/// A Vulkan instance without Wayland surfaces, for environments without `XDG_RUNTIME_DIR` and so without
/// Wayland: containers, cron jobs, services. wgpu requests every surface extension. A Mesa layer then opens
/// Wayland, whose library writes "error: XDG_RUNTIME_DIR is invalid or not set in the environment" to the
/// terminal. None in all other environments.
#[cfg(all(feature = "vulkan", unix, not(target_os = "android"), not(target_vendor = "apple")))]
fn without_windows() -> Option<wgpu::Instance> {
    use wgpu::hal::vulkan;

    if std::env::var_os("XDG_RUNTIME_DIR").is_some_and(|dir| dir.as_encoded_bytes().starts_with(b"/")) {
        return None;
    }
    let descriptor = wgpu::hal::InstanceDescriptor {
        name: "taper",
        flags: wgpu::InstanceFlags::empty(),
        memory_budget_thresholds: wgpu::MemoryBudgetThresholds::default(),
        backend_options: wgpu::BackendOptions::default(),
        telemetry: None,
        display: None,
    };
    let leave_out: Box<vulkan::CreateInstanceCallback<'_>> = Box::new(|arguments| {
        arguments.extensions.retain(|&name| name != c"VK_KHR_wayland_surface");
    });
    // SAFETY: wgpu requires that the callback removes no extension, because it assumes that it has every
    // available one. It uses this one only to create a Wayland surface, after it has looked it up in the
    // resulting list, since some systems lack it; and no surface is created here.
    let made = unsafe { vulkan::Instance::init_with_callback(&descriptor, Some(leave_out)) }.ok()?;
    // SAFETY: the instance was created on the line above and has no other owner.
    Some(unsafe { wgpu::Instance::from_hal::<wgpu::hal::api::Vulkan>(made) })
}

/// On other platforms nothing is printed.
#[cfg(not(all(feature = "vulkan", unix, not(target_os = "android"), not(target_vendor = "apple"))))]
fn without_windows() -> Option<wgpu::Instance> {
    None
}
