//! WGSL to SPIR-V as wgpu's Vulkan backend writes it for this framework's own kernels: without bounds checks
//! and loop bounds, with checks of integer division, and with workgroup memory that is not cleared.

use naga::{
    back::spv,
    proc::{BoundsCheckPolicies, BoundsCheckPolicy},
    valid::{Capabilities, ValidationFlags, Validator},
};

use crate::Result;

/// A buffer that a shader binds.
#[derive(Clone, Copy)]
pub(crate) struct Buffer {
    pub(crate) group: u32,
    pub(crate) binding: u32,
    pub(crate) is_uniform: bool,
}

/// A compute shader.
pub(crate) struct Shader {
    pub(crate) words: Vec<u32>,
    pub(crate) entry: String,
    pub(crate) buffers: Vec<Buffer>,
}

impl Shader {
    pub(crate) fn compile(text: &str) -> Result<Shader> {
        let module = naga::front::wgsl::parse_str(text).map_err(|error| error.emit_to_string(text))?;
        let info = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module)?;
        let bindings = module
            .global_variables
            .iter()
            .filter_map(|(_, global)| Some((global.binding?, global.space == naga::AddressSpace::Uniform)));
        let buffers: Vec<Buffer> = bindings
            .map(|(at, is_uniform)| Buffer { group: at.group, binding: at.binding, is_uniform })
            .collect();
        let same = |buffer: &Buffer| {
            let at = naga::ResourceBinding { group: buffer.group, binding: buffer.binding };
            let to = spv::BindingInfo {
                descriptor_set: buffer.group,
                binding: buffer.binding,
                binding_array_size: None,
            };
            (at, to)
        };
        let options = spv::Options {
            lang_version: (1, 6),
            flags: spv::WriterFlags::LABEL_VARYINGS,
            binding_map: buffers.iter().map(same).collect(),
            bounds_check_policies: BoundsCheckPolicies {
                index: BoundsCheckPolicy::Unchecked,
                buffer: BoundsCheckPolicy::Unchecked,
                image_load: BoundsCheckPolicy::Unchecked,
                binding_array: BoundsCheckPolicy::Unchecked,
            },
            zero_initialize_workgroup_memory: spv::ZeroInitializeWorkgroupMemoryMode::None,
            force_loop_bounding: false,
            ..spv::Options::default()
        };
        let entry = module.entry_points.first().ok_or("no entry point")?.name.clone();
        let pipeline =
            spv::PipelineOptions { shader_stage: naga::ShaderStage::Compute, entry_point: entry.clone() };
        let words = spv::write_vec(&module, &info, &options, Some(&pipeline))?;
        Ok(Shader { words, entry, buffers })
    }
}
