//! Creates shader modules: the WGSL of this backend without run-time checks, the WGSL of other crates with
//! them.
#![allow(unsafe_code)]

use crate::codegen::dispatch::Dispatch;

/// The checks in shaders that this backend generates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checks {
    /// Only those of integer divisions.
    Trusted,
    /// All.
    Checked,
    /// All, and kernels report indices out of range: see `codegen/trace.rs`.
    Traced,
}

/// The module of a dispatch with this text. In a browser page, all checks are always on.
pub(crate) fn create(
    device: &wgpu::Device,
    dispatch: &Dispatch,
    text: &str,
    checks: Checks,
) -> wgpu::ShaderModule {
    let descriptor = wgpu::ShaderModuleDescriptor {
        label: Some(dispatch.label),
        source: wgpu::ShaderSource::Wgsl(text.into()),
    };
    if dispatch.foreign || checks != Checks::Trusted {
        return device.create_shader_module(descriptor);
    }
    let mut trusted = wgpu::ShaderRuntimeChecks::checked();
    trusted.bounds_checks = false;
    trusted.force_loop_bounding = false;
    // SAFETY: the text is this crate's own. Each index is within its buffer or array: kernels clamp
    // positions or leave surplus invocations out, and tests run on a device that reports every index out of
    // range (`TAPER_TEST=wgpu.trace=on`). Each loop ends: `validate.rs` lists those that are not counted,
    // and the reason why they end.
    unsafe { device.create_shader_module_trusted(descriptor, trusted) }
}
