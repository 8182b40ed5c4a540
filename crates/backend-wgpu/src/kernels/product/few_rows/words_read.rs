//! Counts the words of weights in blocks that a product of few rows reads.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use tensor_core::{BlockFormat, DType, GgmlType, Layout, Shape};
use wgpu::util::DeviceExt;

use super::*;
use crate::{
    codegen::{capabilities::Form, dispatch::Dispatch},
    device::gpu::Gpu,
    kernels::product::contract,
};

/// The words of the buffer of weights that a dispatch reads, counted once for each workgroup.
fn words_read(gpu: &Gpu, d: &Dispatch, sizes: [usize; 3], weights: &str) -> usize {
    assert!(d.workgroups <= 32, "a bit for each workgroup");
    let mut text = d.text(false);
    for index in ["j >> 2u", "(j >> 2u) + 1u", "k"] {
        text = text.replace(&format!("{weights}[{index}]"), &format!("{weights}[seen({index})]"));
    }
    let end = text.find("workgroup_id.x;").unwrap() + "workgroup_id.x;".len();
    text.insert_str(end, " group = workgroup_index;");
    text.push_str(
        "var<private> group: u32;\n@group(0) @binding(9) var<storage, read_write> marks: array<atomic<u32>>;\n\
         fn seen(i: u32) -> u32 { atomicOr(&marks[i], 1u << group); return i; }\n",
    );
    let device = &gpu.device;
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(text.into()),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    let mut words = Vec::new();
    d.params.fill(&[], |_| 0, 0, &mut words);
    let buffer = |bytes: &[u8]| {
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_SRC;
        device.create_buffer_init(&wgpu::util::BufferInitDescriptor { label: None, contents: bytes, usage })
    };
    let zeros = |bytes: usize| buffer(&vec![0; bytes.next_multiple_of(16)]);
    let mut bound: Vec<wgpu::Buffer> = sizes.into_iter().map(zeros).collect();
    bound.push(buffer(bytemuck::cast_slice(&words)));
    let marks = zeros(sizes[1]);
    let mut entries: Vec<_> = bound.iter().zip(0..).map(|(b, k)| (k, b.as_entire_binding())).collect();
    entries.push((9, marks.as_entire_binding()));
    let entries: Vec<_> =
        entries.into_iter().map(|(binding, resource)| wgpu::BindGroupEntry { binding, resource }).collect();
    let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &entries,
    });
    let read = device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: marks.size(),
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    {
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&pipeline);
        pass.set_bind_group(0, &group, &[]);
        pass.dispatch_workgroups(d.workgroups as u32, 1, 1);
    }
    encoder.copy_buffer_to_buffer(&marks, 0, &read, 0, marks.size());
    gpu.queue.submit([encoder.finish()]);
    read.map_async(wgpu::MapMode::Read, .., |mapped| mapped.unwrap());
    device.poll(wgpu::PollType::wait_indefinitely()).unwrap();
    let view = read.get_mapped_range(..).unwrap();
    bytemuck::cast_slice::<u8, u32>(&view).iter().map(|word| word.count_ones() as usize).sum()
}

#[test]
fn weights_in_blocks_are_read_once() {
    let found = pollster::block_on(crate::device::adapter::find(0));
    let Some(found) = taper_testing::settings::opened(found) else { return };
    let gpu = pollster::block_on(Gpu::open(&found, &crate::Options::default())).unwrap();
    let capabilities = Capabilities { direct: false, invocations: 1 << 16, ..gpu.capabilities.clone() };
    let (n, k) = (64, 1024);
    for format in GgmlType::ALL {
        for m in [1, 3] {
            let weight = Layout::contiguous([n, k]).permute(&[1, 0]);
            let mut kernel = Kernel::matmul(DType::F32, &Layout::contiguous([m, k]), &weight);
            kernel.operands[1].format = Some(Arc::new(format));
            let variants = contract::variants(&kernel, Form::Tiled, &capabilities);
            assert!(m == 1 || variants.contains(&crate::codegen::capabilities::ProductVariant::FewRows));
            let made = contract::dispatches(&kernel, &capabilities).unwrap();
            assert_eq!(made.list.len(), 1);
            let packed = format.bytes(&Shape::from([n, k])).unwrap();
            // Operand 1 is the right one, and the second binding.
            let words = words_read(&gpu, &made.list[0], [4 * m * k, packed, 4 * m * n], "rhs");
            let moved = 4 * words;
            let name = format.name();
            assert!(moved >= packed && moved * 100 <= packed * 105, "{name}: {moved} bytes of {packed}");
        }
    }
}
