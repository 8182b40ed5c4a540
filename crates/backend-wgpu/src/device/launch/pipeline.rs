//! Pipelines, cached by their complete source, which contains everything that affects the code.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use rustc_hash::FxHashSet;
use tensor_core::{Result, lock};

use crate::{
    codegen::{
        dispatch::{Dispatch, Dispatches},
        trace,
    },
    device::{
        compiled::{Bound, Compiled, CompiledKernel, Pipeline},
        disk_cache::DiskCache,
        gpu::Gpu,
        shader_module::{self, Checks},
    },
    platform::Instant,
};

/// Compiles pipelines for all dispatches of a kernel; dispatches without work are left out.
pub(crate) fn assemble(gpu: &Gpu, mut made: Dispatches) -> Result<CompiledKernel> {
    let of = &gpu.capabilities;
    bind_trace(gpu, &mut made);
    let dispatches = made
        .list
        .into_iter()
        .filter(|d| d.workgroups > 0)
        .map(|d| {
            Ok(Compiled {
                label: d.label,
                pipeline: pipeline(gpu, &d)?,
                resources: (d.bindings.iter())
                    .map(|b| Bound { resource: b.resource, start: b.start, writes: b.write })
                    .collect(),
                workgroups: d.workgroups,
                repeated: d.repeated,
                most: most_workgroups(of.max_workgroups, of.dispatch_work, d.work),
                work: d.work,
                params: d.params,
            })
        })
        .collect::<Result<_>>()?;
    Ok(CompiledKernel { dispatches, temporaries: made.temporaries })
}

/// The number of workgroups, of `work` each, in one dispatch: whole rows of the greatest length, so that
/// dispatches meet without gaps or overlaps, and few enough to avoid the system's hang detection.
fn most_workgroups(row: u32, dispatch_work: u64, work: usize) -> usize {
    // In 64 bits, because `usize` has only 32 bits in a browser page.
    let row = u64::from(row);
    let most = (dispatch_work / work.max(1) as u64).max(1);
    let most = if most <= row { most } else { row * (most / row).min(row) };
    most as usize // below 2³²
}

/// Binds the table that traced kernels report to.
fn bind_trace(gpu: &Gpu, made: &mut Dispatches) {
    if gpu.checks == Checks::Traced {
        made.list.iter_mut().for_each(trace::bind);
    }
}

/// Creates the pipelines of several kernels, each distinct one once, on several threads. A pipeline that
/// cannot be created is left out: [`assemble`] reports why.
pub(crate) fn create_together<'a>(gpu: &Gpu, kernels: impl Iterator<Item = &'a mut Dispatches>) {
    let mut new: Vec<(Source, &Dispatch)> = Vec::new();
    let mut seen = FxHashSet::default();
    for made in kernels {
        bind_trace(gpu, made);
        for d in made.list.iter().filter(|d| d.workgroups > 0) {
            let source = Source::of(gpu, d);
            if !lock(&gpu.pipelines.made).contains_key(&source.text) && seen.insert(source.text.clone()) {
                new.push((source, d));
            }
        }
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(new.len());
    if threads < 2 {
        return;
    }
    let (start, next) = (Instant::now(), AtomicUsize::new(0));
    let work = || {
        while let Some((source, d)) = new.get(next.fetch_add(1, Ordering::Relaxed)) {
            let _ = source.pipeline(gpu, d);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            // Without another thread, this one does all.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    gpu.first_use.made(new.len(), start, gpu.name());
}

/// The pipeline of a dispatch: a kept one, or a new one.
pub(crate) fn pipeline(gpu: &Gpu, d: &Dispatch) -> Result<Arc<Pipeline>> {
    let source = Source::of(gpu, d);
    if let Some(made) = lock(&gpu.pipelines.made).get(&source.text) {
        return Ok(Arc::clone(made));
    }
    let start = Instant::now();
    let made = source.pipeline(gpu, d)?;
    gpu.first_use.made(1, start, gpu.name());
    Ok(made)
}

/// The complete source of a pipeline.
struct Source {
    text: String,
    immediates: bool,
}

impl Source {
    fn of(gpu: &Gpu, d: &Dispatch) -> Source {
        let immediates = d.params.len() * 4 <= gpu.capabilities.immediate_bytes as usize;
        let mut text = d.text(immediates);
        if gpu.checks == Checks::Traced && !d.foreign {
            text = trace::traced(&text, &d.bindings);
        }
        Source { text, immediates }
    }

    /// Creates the pipeline, outside the lock: if two threads create the same one, the first is kept.
    fn pipeline(&self, gpu: &Gpu, d: &Dispatch) -> Result<Arc<Pipeline>> {
        let made = gpu.scoped(d.label, || create(gpu, d, &self.text, self.immediates))?;
        Ok(gpu.pipelines.keep(&self.text, d.label, made))
    }
}

fn create(gpu: &Gpu, d: &Dispatch, text: &str, immediates: bool) -> Pipeline {
    let device = &gpu.device;
    let module = shader_module::create(device, d, text, gpu.checks);
    let writes = d.bindings.iter().map(|b| b.write);
    let layout = gpu.pipelines.layouts.layout(device, writes, !immediates);
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(d.label),
        bind_group_layouts: &[Some(&layout.raw)],
        immediate_size: if immediates { d.params.len() as u32 * 4 } else { 0 },
    });
    let raw = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(d.label),
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some("main"),
        // Every kernel writes its workgroup memory before it reads it.
        compilation_options: wgpu::PipelineCompilationOptions {
            zero_initialize_workgroup_memory: false,
            ..Default::default()
        },
        cache: gpu.disk_cache.as_ref().map(DiskCache::raw),
    });
    Pipeline { raw, layout, immediates }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tensor_core::ErrorKind;

    use super::*;

    #[test]
    fn a_shader_that_does_not_compile_names_itself_and_its_source() {
        let Some(found) =
            taper_testing::settings::opened(pollster::block_on(crate::device::adapter::find(0)))
        else {
            return;
        };
        let gpu = pollster::block_on(Gpu::open(&found, &crate::Options::default())).unwrap();
        let mut crooked = Dispatch::new("crooked");
        crooked.code.entry(1, |c| c.bind("seven", "no_such_function(6)"));
        let Err(error) = pipeline(&gpu, &crooked) else { panic!("a pipeline of a crooked shader") };
        let ErrorKind::Backend { device, message } = error.kind() else { panic!("{error}") };
        assert_eq!(device, "wgpu:0");
        assert!(message.contains("crooked") && message.contains("no_such_function"), "{message}");
        // The failed pipeline is not kept, and the device stays usable.
        assert_eq!(gpu.pipelines.len(), 0);
        let mut straight = Dispatch::new("straight");
        straight.code.entry(1, |_| {});
        assert!(pipeline(&gpu, &straight).is_ok());
        gpu.finish().unwrap();
    }

    #[test]
    fn dispatches_hold_whole_rows_and_bounded_work() {
        for row in [1, 5, 65_535] {
            for dispatch_work in [1, 1000, 1 << 20, 1 << 33, 1 << 37, u64::MAX] {
                for work in [0, 1, 256, 1 << 20, 1 << 40] {
                    let groups = most_workgroups(row, dispatch_work, work);
                    let row = row as usize;
                    assert!(groups >= 1 && (groups <= row || groups.is_multiple_of(row)));
                    assert!(groups.div_ceil(row) <= row);
                    assert!(groups == 1 || groups as u128 * work as u128 <= dispatch_work.into());
                }
            }
        }
    }
}
