//! Vulkan as far as pipelines need it. wgpu cannot open a device that has no fences, as the driver's null
//! device has none, so these are calls of Vulkan itself. Nothing is run.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char};

use ash::{
    Entry,
    khr::{cooperative_matrix, pipeline_executable_properties as executable},
    vk,
};

use crate::{Result, spirv::Shader};

/// The bytes of push constants that every kernel may use; wgpu asks for as many.
const IMMEDIATE_BYTES: u32 = 128;

/// A statistic of the compiler: its name and value.
pub(crate) type Statistic = (String, u64);

/// The driver's first device.
pub(crate) struct Gpu {
    name: String,
    driver: String,
    device: ash::Device,
    executable: executable::Device,
    has_matrix_units: bool,
    /// The library must outlive the device.
    _entry: Entry,
}

/// The text of an array of characters that a driver filled.
fn text(characters: &[c_char]) -> String {
    let bytes: Vec<u8> = characters.iter().map(|&c| c as u8).collect();
    let text = CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().into_owned());
    text.unwrap_or_default()
}

impl Gpu {
    /// Opens the first device of the driver that the environment selects, with the features that wgpu asks
    /// for.
    pub(crate) fn open() -> Result<Gpu> {
        // SAFETY: the loader's library is trusted, as wgpu trusts it; every structure that is passed outlives
        // its call, and the handles come from the calls before.
        unsafe {
            let entry = Entry::load()?;
            let application = vk::ApplicationInfo::default().api_version(vk::API_VERSION_1_3);
            let info = vk::InstanceCreateInfo::default().application_info(&application);
            let instance = entry.create_instance(&info, None)?;
            let physical =
                *instance.enumerate_physical_devices()?.first().ok_or("the driver has no device")?;
            let mut driver = vk::PhysicalDeviceDriverProperties::default();
            let mut properties = vk::PhysicalDeviceProperties2::default().push_next(&mut driver);
            instance.get_physical_device_properties2(physical, &mut properties);
            let name = text(&properties.properties.device_name);
            let driver = text(&driver.driver_info);
            let has_extension = |name: &CStr| -> Result<bool> {
                let all = instance.enumerate_device_extension_properties(physical)?;
                Ok(all.iter().any(|extension| extension.extension_name_as_c_str() == Ok(name)))
            };
            let has_matrix_units = has_extension(cooperative_matrix::NAME)?;
            let mut has12 = vk::PhysicalDeviceVulkan12Features::default();
            let mut has = vk::PhysicalDeviceFeatures2::default().push_next(&mut has12);
            instance.get_physical_device_features2(physical, &mut has);
            let core = vk::PhysicalDeviceFeatures {
                robust_buffer_access: vk::TRUE,
                shader_int64: has.features.shader_int64,
                shader_float64: has.features.shader_float64,
                ..Default::default()
            };
            let mut features12 = vk::PhysicalDeviceVulkan12Features::default()
                .shader_float16(has12.shader_float16 == vk::TRUE)
                .vulkan_memory_model(true)
                .vulkan_memory_model_device_scope(true);
            let mut robustness =
                vk::PhysicalDeviceRobustness2FeaturesEXT::default().robust_buffer_access2(true);
            let mut statistics = vk::PhysicalDevicePipelineExecutablePropertiesFeaturesKHR::default()
                .pipeline_executable_info(true);
            let queues =
                [vk::DeviceQueueCreateInfo::default().queue_family_index(0).queue_priorities(&[1.0])];
            let mut extensions = vec![executable::NAME.as_ptr(), ash::ext::robustness2::NAME.as_ptr()];
            let mut features11 =
                vk::PhysicalDeviceVulkan11Features::default().storage_buffer16_bit_access(has_matrix_units);
            let mut matrices = vk::PhysicalDeviceCooperativeMatrixFeaturesKHR::default();
            if has_matrix_units {
                extensions.push(cooperative_matrix::NAME.as_ptr());
                matrices = matrices.cooperative_matrix(true);
            }
            let mut info = vk::DeviceCreateInfo::default()
                .queue_create_infos(&queues)
                .enabled_extension_names(&extensions)
                .enabled_features(&core)
                .push_next(&mut features11)
                .push_next(&mut features12)
                .push_next(&mut robustness)
                .push_next(&mut statistics);
            if has_matrix_units {
                info = info.push_next(&mut matrices);
            }
            let device = instance.create_device(physical, &info, None)?;
            let executable = executable::Device::new(&instance, &device);
            Ok(Gpu { name, driver, device, executable, has_matrix_units, _entry: entry })
        }
    }

    /// The device's name: that of the GPU which the driver pretends to have.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The driver's version.
    pub(crate) fn driver(&self) -> &str {
        &self.driver
    }

    /// Whether the driver compiles cooperative matrices.
    pub(crate) fn has_matrix_units(&self) -> bool {
        self.has_matrix_units
    }

    /// The compiler's statistics of a shader. The process ends soon, so what is made here is not destroyed.
    pub(crate) fn statistics(&self, shader: &Shader) -> Result<Vec<Statistic>> {
        let (device, stages) = (&self.device, vk::ShaderStageFlags::COMPUTE);
        let binding = |buffer: &crate::spirv::Buffer| {
            let kind = if buffer.is_uniform {
                vk::DescriptorType::UNIFORM_BUFFER
            } else {
                vk::DescriptorType::STORAGE_BUFFER
            };
            vk::DescriptorSetLayoutBinding::default()
                .binding(buffer.binding)
                .descriptor_type(kind)
                .descriptor_count(1)
                .stage_flags(stages)
        };
        if shader.buffers.iter().any(|buffer| buffer.group > 0) {
            return Err("a buffer outside group 0".into());
        }
        let bindings: Vec<_> = shader.buffers.iter().map(binding).collect();
        let name = CString::new(shader.entry.as_str())?;
        // SAFETY: naga wrote the SPIR-V and validated its source; every structure that is passed outlives its
        // call, and the handles come from the calls before.
        unsafe {
            let module = device
                .create_shader_module(&vk::ShaderModuleCreateInfo::default().code(&shader.words), None)?;
            let sets = [device.create_descriptor_set_layout(
                &vk::DescriptorSetLayoutCreateInfo::default().bindings(&bindings),
                None,
            )?];
            let constants = [vk::PushConstantRange { stage_flags: stages, offset: 0, size: IMMEDIATE_BYTES }];
            let info =
                vk::PipelineLayoutCreateInfo::default().set_layouts(&sets).push_constant_ranges(&constants);
            let layout = device.create_pipeline_layout(&info, None)?;
            let stage = vk::PipelineShaderStageCreateInfo::default().stage(stages).module(module).name(&name);
            let info = vk::ComputePipelineCreateInfo::default()
                .stage(stage)
                .layout(layout)
                .flags(vk::PipelineCreateFlags::CAPTURE_STATISTICS_KHR);
            let made = device.create_compute_pipelines(vk::PipelineCache::null(), &[info], None);
            let pipeline = *made.map_err(|(_, error)| error)?.first().ok_or("no pipeline")?;
            let which = vk::PipelineExecutableInfoKHR::default().pipeline(pipeline).executable_index(0);
            let found = self.executable.get_pipeline_executable_statistics(&which)?;
            let value = |s: &vk::PipelineExecutableStatisticKHR<'_>| match s.format {
                vk::PipelineExecutableStatisticFormatKHR::FLOAT64 => s.value.f64 as u64,
                _ => s.value.u64,
            };
            Ok(found.iter().map(|statistic| (text(&statistic.name), value(statistic))).collect())
        }
    }
}
