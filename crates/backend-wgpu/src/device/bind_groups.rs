//! Layouts and bind groups, kept for reuse. In the steady state of a training loop the pool gives each kernel
//! the same buffers in every step, so that no bind group is made.

use std::sync::Mutex;

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use tensor_core::lock;

/// Bind groups of a generation: when as many are kept, those that were not used since the last generation
/// began are dropped.
const GENERATION: usize = 4096;

/// A layout of bindings with its number.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) raw: wgpu::BindGroupLayout,
    id: u64,
}

/// Whether each storage buffer is written, and whether a uniform buffer follows them.
type Form = (SmallVec<[bool; 8]>, bool);

/// The layouts of a device by their form; pipelines of one form share a layout, and so their bind groups.
#[derive(Default)]
pub(crate) struct Layouts(Mutex<FxHashMap<Form, Layout>>);

impl Layouts {
    /// The layout of these storage buffers, in binding order, each given by whether it is written. A uniform
    /// buffer is bound at a dynamic offset.
    pub(crate) fn layout(
        &self,
        device: &wgpu::Device,
        writes: impl Iterator<Item = bool>,
        uniform: bool,
    ) -> Layout {
        let form: Form = (writes.collect(), uniform);
        let mut kept = lock(&self.0);
        if let Some(layout) = kept.get(&form) {
            return layout.clone();
        }
        let entry = |binding: usize, ty, has_dynamic_offset| wgpu::BindGroupLayoutEntry {
            binding: binding as u32,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset, min_binding_size: None },
            count: None,
        };
        let storage = |(i, &writes): (usize, &bool)| {
            entry(i, wgpu::BufferBindingType::Storage { read_only: !writes }, false)
        };
        let mut entries: Vec<wgpu::BindGroupLayoutEntry> = form.0.iter().enumerate().map(storage).collect();
        if uniform {
            entries.push(entry(entries.len(), wgpu::BufferBindingType::Uniform, true));
        }
        let descriptor = wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries };
        let layout = Layout { raw: device.create_bind_group_layout(&descriptor), id: kept.len() as u64 };
        kept.insert(form, layout.clone());
        layout
    }
}

/// Everything that a bind group depends on: the layout's number, the bytes of the uniform binding (0 if
/// there is none), then the number and the first byte of each buffer.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key(SmallVec<[u64; 14]>);

impl Key {
    pub(crate) fn new(layout: &Layout, uniform_bytes: u64, buffers: impl Iterator<Item = (u64, u64)>) -> Key {
        let mut words: SmallVec<[u64; 14]> = smallvec::smallvec![layout.id, uniform_bytes];
        buffers.for_each(|(id, start)| words.extend([id, start]));
        Key(words)
    }

    /// The numbers of its buffers.
    fn buffers(&self) -> impl Iterator<Item = u64> {
        self.0.iter().copied().skip(2).step_by(2)
    }
}

/// The bind groups of a device. A kept one holds its buffers, so [`BindGroups::forget`] must be called for
/// buffers that return to the driver.
#[derive(Default)]
pub(crate) struct BindGroups {
    recent: FxHashMap<Key, wgpu::BindGroup>,
    /// The groups of the last generation that were not used since.
    older: FxHashMap<Key, wgpu::BindGroup>,
}

impl BindGroups {
    /// The bind group of a key, if it is kept.
    pub(crate) fn get(&mut self, key: &Key) -> Option<&wgpu::BindGroup> {
        if let Some(group) = self.older.remove(key) {
            self.keep(key.clone(), group);
        }
        self.recent.get(key)
    }

    /// Keeps a bind group.
    pub(crate) fn keep(&mut self, key: Key, group: wgpu::BindGroup) {
        if self.recent.len() >= GENERATION {
            self.older = std::mem::take(&mut self.recent);
        }
        self.recent.insert(key, group);
    }

    /// Drops the bind groups of these buffers.
    pub(crate) fn forget(&mut self, buffers: &FxHashSet<u64>) {
        if buffers.is_empty() {
            return;
        }
        for kept in [&mut self.recent, &mut self.older] {
            kept.retain(|key, _| !key.buffers().any(|id| buffers.contains(&id)));
        }
    }
}
