//! Fused elementwise kernels. p: 0 positions; the sizes of the merged axes; for each input its offset and strides; the scalars.

use std::fmt::Write;

use tensor_core::{Launch, Layout, Result, collapse, kernel::MapKernel};

use super::{Bindings, Prepared, Variants, head};
use crate::{
    backend::WgpuBackend,
    expression::{library, statements},
    lanes::{scalar_words, word},
    queue::Dispatch,
};

const WORKGROUP: u32 = 256;

pub(crate) fn run(backend: &WgpuBackend, kernel: &MapKernel, launch: &Launch<'_>) -> Result<()> {
    let bindings = Bindings::new(launch)?;
    let prepared = Variants::of(launch)?.get(0, &bindings, || prepare(backend, kernel, &bindings))?;
    let mut words = prepared.words.clone();
    for (&dtype, &value) in kernel.program.scalars.iter().zip(launch.scalars) {
        scalar_words(dtype, value, &mut words);
    }
    backend.queue.dispatch(&Dispatch {
        pipeline: &prepared.pipeline.pipeline,
        layout: &prepared.pipeline.layout,
        buffers: &bindings.buffers,
        params: &words,
        threads: kernel.shape.numel() as u64,
        workgroup: WORKGROUP,
        status: false,
    })
}

fn prepare(backend: &WgpuBackend, kernel: &MapKernel, bindings: &Bindings<'_>) -> Result<Prepared> {
    let strides: Vec<&[isize]> = kernel.inputs.iter().map(Layout::strides).collect();
    let collapsed = collapse(&kernel.shape, &strides);
    let rank = collapsed.shape.len();
    let mut words = vec![word("map", kernel.shape.numel() as isize)?];
    for &size in &collapsed.shape {
        words.push(size as u32);
    }
    let mut text = String::from("    let i = thread;\n    var rest = i;\n");
    for axis in (0..rank).rev() {
        // Writing to a string cannot fail.
        let _ = match axis {
            0 => writeln!(text, "    let i0 = i32(rest);"),
            _ => writeln!(text, "    let i{axis} = i32(rest % p[{0}]);\n    rest = rest / p[{0}];", axis + 1),
        };
    }
    let mut loads = Vec::new();
    for (k, (layout, strides)) in kernel.inputs.iter().zip(&collapsed.strides).enumerate() {
        let at = words.len();
        words.push(word("map", layout.offset() as isize)?);
        let _ = write!(text, "    let a{k} = i32(p[{at}])");
        for (axis, &stride) in strides.iter().enumerate() {
            words.push(word("map", stride)?);
            let _ = write!(text, " + i{axis} * i32(p[{}])", at + 1 + axis);
        }
        text += ";\n";
        loads.push(format!("b{}[a{k}]", bindings.inputs[k]));
    }
    let (body, results) = statements(&backend.info.name, &kernel.program, &loads, words.len())?;
    text += &body;
    for (o, result) in results.iter().enumerate() {
        let _ = writeln!(text, "    b{}[thread] = {result};", bindings.outputs[o]);
    }
    let source = bindings.declare() + &library(&kernel.program) + &head(WORKGROUP) + &text + "}\n";
    let pipeline = backend.pipelines.get(
        &backend.device,
        &backend.health,
        "map",
        source,
        bindings.buffers.len(),
        bindings.written,
        false,
    )?;
    Ok(Prepared { pipeline, words })
}
