//! The kernels: how a launch becomes dispatches. Each says which words its shader finds in `p`.

pub(crate) mod fixed;
pub(crate) mod map;
pub(crate) mod reduce;

use std::sync::{Arc, Mutex};

use smallvec::SmallVec;
use taper_shaders::binding;
use tensor_core::{Error, Launch, Result};

use crate::{
    lanes::lane,
    pool::{WgpuBuffer, lock},
    queue::Pipeline,
};

/// The start of every kernel: its thread's number, unless it is past the last.
pub(crate) fn head(workgroup: u32) -> String {
    format!(
        "@compute @workgroup_size({workgroup})\n\
         fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {{\n    \
         let thread = id.x + id.y * (groups.x * {workgroup}u);\n    if (thread >= p[0]) {{ return; }}\n"
    )
}

/// A launch's buffers, each bound once: an output in place of an input shares its binding.
pub(crate) struct Bindings<'a> {
    pub(crate) buffers: SmallVec<[&'a WgpuBuffer; 8]>,
    /// The binding of each input.
    pub(crate) inputs: SmallVec<[u8; 8]>,
    /// The binding of each output.
    pub(crate) outputs: SmallVec<[u8; 4]>,
    /// Bit i is set when binding i is written.
    pub(crate) written: u32,
}

impl<'a> Bindings<'a> {
    pub(crate) fn new(launch: &'a Launch<'_>) -> Result<Bindings<'a>> {
        let mut bound = Bindings {
            buffers: SmallVec::new(),
            inputs: SmallVec::new(),
            outputs: SmallVec::new(),
            written: 0,
        };
        for storage in launch.inputs {
            let at = bound.bind(WgpuBuffer::of(storage)?);
            bound.inputs.push(at);
        }
        for storage in launch.outputs {
            let at = bound.bind(WgpuBuffer::of(storage)?);
            bound.outputs.push(at);
            bound.written |= 1 << at;
        }
        Ok(bound)
    }

    fn bind(&mut self, buffer: &'a WgpuBuffer) -> u8 {
        let known = self.buffers.iter().position(|b| std::ptr::eq(*b, buffer));
        known.unwrap_or_else(|| {
            self.buffers.push(buffer);
            self.buffers.len() - 1
        }) as u8
    }

    /// Their declarations, named `b0`, `b1` …, and the parameters after them.
    pub(crate) fn declare(&self) -> String {
        let mut text = String::new();
        for (i, buffer) in self.buffers.iter().enumerate() {
            text += &binding(i, &format!("b{i}"), lane(buffer.dtype), self.written >> i & 1 == 1);
        }
        text + &binding(self.buffers.len(), "p", "u32", false)
    }
}

/// What was made of a kernel, for each way in which its buffers may coincide.
#[derive(Default)]
pub(crate) struct Variants(Mutex<Vec<(Pattern, Arc<Prepared>)>>);

type Pattern = SmallVec<[u8; 12]>;

/// A pipeline, and the words that do not change from launch to launch.
pub(crate) struct Prepared {
    pub(crate) pipeline: Arc<Pipeline>,
    pub(crate) words: Vec<u32>,
}

impl Variants {
    /// The variants kept with the launch's kernel.
    pub(crate) fn of<'a>(launch: &Launch<'a>) -> Result<&'a Variants> {
        launch.compiled.get_or_try(|| Ok(Variants::default()))?.ok_or_else(|| {
            Error::invalid(
                "launch",
                "the kernel was compiled by another backend; use a fresh Compiled for each device",
            )
        })
    }

    /// The variant for these bindings and this `stage` of the kernel.
    pub(crate) fn get(
        &self,
        stage: u8,
        bindings: &Bindings<'_>,
        make: impl FnOnce() -> Result<Prepared>,
    ) -> Result<Arc<Prepared>> {
        let pattern: Pattern = [stage]
            .into_iter()
            .chain(bindings.inputs.iter().copied())
            .chain(bindings.outputs.iter().copied())
            .collect();
        if let Some((_, known)) = lock(&self.0).iter().find(|(p, _)| *p == pattern) {
            return Ok(known.clone());
        }
        let made = Arc::new(make()?);
        lock(&self.0).push((pattern, made.clone()));
        Ok(made)
    }
}
