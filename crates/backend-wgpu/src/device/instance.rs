//! The one instance of wgpu in a process: the APIs that are compiled in.
#![allow(unsafe_code)]

use std::sync::OnceLock;

/// The instance; none where no API of this platform is compiled in, which wgpu would panic about.
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

/// An instance of Vulkan without Wayland's windows, where there is no `XDG_RUNTIME_DIR` and so no Wayland: in
/// a container, a cron job, a service. wgpu asks for windows of every kind, whereupon a layer of Mesa's calls
/// Wayland up, whose library writes "error: XDG_RUNTIME_DIR is invalid or not set in the environment" on the
/// user's screen. None where things are otherwise.
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
    // SAFETY: wgpu asks that the callback take no extension away, as it believes that it has each that the
    // system offers. It uses this one to make a Wayland surface, for which it looks in the list that results,
    // as some systems have none; and nothing here makes a surface.
    let made = unsafe { vulkan::Instance::init_with_callback(&descriptor, Some(leave_out)) }.ok()?;
    // SAFETY: the instance was made a line above, and nobody else has it.
    Some(unsafe { wgpu::Instance::from_hal::<wgpu::hal::api::Vulkan>(made) })
}

/// Elsewhere nothing is written.
#[cfg(not(all(feature = "vulkan", unix, not(target_os = "android"), not(target_vendor = "apple"))))]
fn without_windows() -> Option<wgpu::Instance> {
    None
}
