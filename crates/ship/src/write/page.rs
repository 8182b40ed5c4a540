//! A program for a page: the kernels as WGSL, and a module of JavaScript that runs them through WebGPU.
//!
//! Every element takes a word of 32 bits on the device, except for those in blocks. The arena is followed by
//! the arguments and the results, and a uniform buffer has the places of each step's windows.

use std::{
    collections::BTreeMap,
    fmt::{Display, Write},
};

use tensor_core::DType;

use super::{File, KernelWriter, Language, decoders, windows};
use crate::{
    description::{Buffer, BufferId, Description, Role, Window},
    pack::Arena,
};

/// The bytes of an element on the device.
pub(crate) const WORD: usize = 4;
/// The greatest number of workgroups along an axis of a dispatch.
const MAX_WORKGROUPS: usize = 65_535;
const WORKGROUP: usize = 64;

const MODULE: &str = include_str!("page.js");
const INDEX: &str = include_str!("page.html");

/// The kernels of a program; equal ones are one.
struct Kernels {
    text: String,
    /// For each kernel, its entry points and their numbers of invocations.
    entries: Vec<Vec<(String, usize)>>,
    of_step: Vec<usize>,
    /// The greatest number of windows of a step.
    windows: usize,
}

/// The files of a program, and the bytes of those with code.
pub(super) fn files(plan: &Description, arena: &Arena, name: &str) -> (Vec<File>, usize) {
    let kernels = kernels(plan);
    let head = format!(
        "// Written by Taper: the kernels of {name}.js.\n\
         struct Params {{ first_workgroup: u32, at: array<vec4<u32>, {}> }}\n\
         @group(0) @binding(0) var<storage, read> weights: array<u32>;\n\
         @group(0) @binding(1) var<storage, read_write> arena: array<u32>;\n\
         @group(0) @binding(2) var<uniform> params: Params;\n\
         @group(0) @binding(3) var<storage, read_write> failed: atomic<u32>;\n\n",
        kernels.windows.div_ceil(4)
    );
    let shader =
        head + &taper_shaders::link(&(decoders(Language::Wgsl, plan, &kernels.text) + &kernels.text));
    let (table, weights) = (table(plan, arena, &kernels), weights(plan));
    let module = MODULE.replace("NAME", name).replace("const PLAN = {};", &format!("const PLAN = {table};"));
    let code = shader.len() + module.len();
    let files = vec![
        (format!("{name}.wgsl"), shader),
        (format!("{name}.js"), module),
        (format!("{name}_weights.js"), format!("export default '{weights}';\n")),
        ("index.html".into(), INDEX.replace("NAME", name)),
    ];
    (files, code)
}

fn kernels(plan: &Description) -> Kernels {
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let mut kernels = Kernels { text: String::new(), entries: Vec::new(), of_step: Vec::new(), windows: 1 };
    for step in &plan.steps {
        let writer = KernelWriter::write(Language::Wgsl, step, plan).1;
        let windows = windows(step);
        kernels.windows = kernels.windows.max(windows.len());
        let places = windows.iter().enumerate().map(|(k, (name, ..))| {
            format!("    let {name} = params.at[{}].{};\n", k / 4, ["x", "y", "z", "w"][k % 4])
        });
        let places: String = places.collect();
        let key = format!("{places}{:?}", writer.stages);
        let number = known.len();
        let found = *known.entry(key).or_insert_with(|| {
            let mut entries = Vec::with_capacity(writer.stages.len());
            for (stage, (invocations, body)) in writer.stages.iter().enumerate() {
                let entry = format!("kernel_{number}_{stage}");
                let file = step.location.file();
                let file = file.rsplit_once('/').map_or(file, |(_, file)| file);
                let _ = writeln!(
                    kernels.text,
                    "// {}, {file}:{}\n@compute @workgroup_size({WORKGROUP})\n\
                     fn {entry}(@builtin(global_invocation_id) id: vec3<u32>) {{\n    \
                     let g = id.x + id.y * {}u;\n    if (g >= {invocations}u) {{\n        return;\n    }}\n\
                     {places}{body}}}\n",
                    step.op,
                    step.location.line(),
                    MAX_WORKGROUPS * WORKGROUP,
                );
                entries.push((entry, *invocations));
            }
            kernels.entries.push(entries);
            number
        });
        kernels.of_step.push(found);
    }
    kernels
}

/// The elements of a buffer on the device: blocks are words of bytes.
fn on_device(buffer: &Buffer) -> (DType, usize) {
    match buffer.blocks {
        Some(_) => (DType::U32, buffer.bytes().div_ceil(WORD)),
        None => (buffer.dtype, buffer.numel),
    }
}

/// The first word of each buffer, in the weights or in the arena, and the number of words of both.
fn places(plan: &Description, arena: &Arena) -> (Vec<usize>, [usize; 2]) {
    let [mut constants, mut end] = [0, arena.bytes / WORD];
    let mut places = vec![0; plan.buffers.len()];
    let mut take = |ids: &mut dyn Iterator<Item = BufferId>, end: &mut usize| {
        for id in ids {
            places[id] = *end;
            *end += on_device(&plan.buffers[id]).1;
        }
    };
    let all = || plan.buffers.iter().enumerate();
    let is_constant = |role: &Role| matches!(role, Role::Constant(_));
    take(&mut all().filter(|(_, buffer)| is_constant(&buffer.role)).map(|(id, _)| id), &mut constants);
    take(&mut plan.arguments.iter().filter_map(|(.., buffer)| *buffer), &mut end);
    take(&mut plan.results.iter().map(|(_, buffer)| *buffer), &mut end);
    for (place, offset) in places.iter_mut().zip(&arena.offsets) {
        *place = offset.map_or(*place, |bytes| bytes / WORD);
    }
    (places, [constants, end])
}

fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    format!("[{}]", items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", "))
}

/// The table that the module reads.
fn table(plan: &Description, arena: &Arena, kernels: &Kernels) -> String {
    let (places, [weights, words]) = places(plan, arena);
    let value = |shape: &[usize], dtype: DType, at: Option<usize>| {
        let at = at.map_or("null".to_string(), |at| at.to_string());
        format!("{{ dtype: '{dtype}', shape: {}, at: {at} }}", list(shape))
    };
    let arguments = plan.arguments.iter();
    let arguments = arguments.map(|(shape, dtype, id)| value(shape, *dtype, id.map(|id| places[id])));
    let results = plan.results.iter();
    let results = results.map(|(shape, id)| value(shape, plan.buffers[*id].dtype, Some(places[*id])));
    let constants = plan.buffers.iter().filter(|buffer| matches!(buffer.role, Role::Constant(_)));
    let constants = constants.map(on_device).map(|(dtype, numel)| format!("['{dtype}', {numel}]"));
    let entries = kernels.entries.iter();
    let entries = entries.map(|stages| list(stages.iter().map(|(name, n)| format!("['{name}', {n}]"))));
    let steps = plan.steps.iter().zip(&kernels.of_step).map(|(step, kernel)| {
        let place = |Window { buffer, start, .. }: Window| {
            places[buffer] + if plan.buffers[buffer].blocks.is_some() { 0 } else { start }
        };
        list([*kernel].into_iter().chain(windows(step).into_iter().map(|(_, window, _)| place(window))))
    });
    format!(
        "{{\n  arguments: {},\n  results: {},\n  constants: {},\n  words: {{ weights: {weights}, arena: {words}, \
         windows: {} }},\n  kernels: {},\n  steps: {},\n}}",
        list(arguments),
        list(results),
        list(constants),
        4 * kernels.windows.div_ceil(4),
        list(entries),
        list(steps)
    )
}

/// The constants one after the other in their own dtypes, each from a multiple of 8 bytes on, in base64.
fn weights(plan: &Description) -> String {
    let mut bytes = Vec::new();
    for buffer in &plan.buffers {
        if let Role::Constant(contents) = &buffer.role {
            bytes.resize(bytes.len().next_multiple_of(8), 0);
            bytes.extend_from_slice(contents);
            if buffer.blocks.is_some() {
                bytes.resize(bytes.len().next_multiple_of(WORD), 0);
            }
        }
    }
    base64(&bytes)
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |k: usize| u32::from(group.get(k).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for k in 0..4 {
            let digit = char::from(DIGITS[(bits >> (18 - 6 * k)) as usize & 63]);
            text.push(if k <= group.len() { digit } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn groups_of_three_bytes_are_four_digits() {
        let found = ["", "f", "fo", "foo", "foob"].map(|text| base64(text.as_bytes()));
        assert_eq!(found, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="]);
        assert_eq!(base64(&[255, 255, 254, 0]), "///+AA==");
    }
}
