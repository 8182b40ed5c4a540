//! Strided copies and fills. Elements move as words, whatever their dtype. Where one side is dense along another axis than
//! the other, a workgroup moves 8 × 8 blocks, one a thread, so that both sides use all of the memory that they touch.

use std::fmt::Write;

use smallvec::SmallVec;
use tensor_core::{DType, Layout, collapse, kernel::CopyKernel};

use crate::{
    draft::{Draft, Drafts, Facts, Slot},
    dtypes::{FIELDS, lane_size},
    index,
};

/// The draft of a copy kernel: a fill if asked for, then each region.
pub(crate) fn draft(kernel: &CopyKernel, facts: &Facts<'_>) -> Drafts {
    let mut steps = Vec::new();
    let numel = kernel.shape.numel();
    if kernel.fill && numel > 0 {
        steps.push(fill(numel, kernel.dtype));
    }
    for (k, region) in kernel.regions.iter().enumerate() {
        steps.extend(copy("copy", &region.src, &region.dst, kernel.dtype, k, facts));
    }
    Drafts { steps, temps: Vec::new() }
}

/// Scalar 0 of the launch into `numel` elements of the output.
pub(crate) fn fill(numel: usize, dtype: DType) -> Draft {
    let word = word(dtype);
    let mut d = Draft::new("fill");
    d.params.size("total", numel);
    d.params.scalar(0, dtype);
    d.bind("output", word, true, Slot::Output(0));
    let value = if word == "u32" { "params.s0" } else { "vec2<u32>(params.s0, params.s0h)" };
    d.body = format!(
        "@compute @workgroup_size(256)\n{}    let i = group * 256u + lane;\n    if (i < params.total) {{\n        output[i] = {value};\n    }}\n}}\n",
        taper_shaders::ENTRY
    );
    d.groups = numel.div_ceil(256);
    d.work = 256;
    d
}

/// The words that elements move as.
fn word(dtype: DType) -> &'static str {
    if lane_size(dtype) == 8 { "vec2<u32>" } else { "u32" }
}

/// Input 0, through its layout, to the whole output, if that lies crosswise to it.
pub(crate) fn transposed(
    label: &'static str,
    src: &Layout,
    dtype: DType,
    facts: &Facts<'_>,
) -> Option<Draft> {
    let dst = Layout::contiguous(src.shape().clone());
    Transpose::of(src, &dst).map(|transpose| transpose.draft(label, dtype, 0, facts))
}

/// Input `k` through `src` to the output through `dst`.
pub(crate) fn copy(
    label: &'static str,
    src: &Layout,
    dst: &Layout,
    dtype: DType,
    k: usize,
    facts: &Facts<'_>,
) -> Option<Draft> {
    if src.numel() == 0 {
        return None;
    }
    if let Some(d) = Transpose::of(src, dst) {
        return Some(d.draft(label, dtype, k, facts));
    }
    let merged = collapse(src.shape(), &[src.strides(), dst.strides()]);
    let mut strides = merged.strides;
    let last = [0, 1].map(|k| strides[k].last().copied().unwrap_or(0));
    // A side that is dense along the last axis, with everything else in multiples of four, has four elements at once.
    let fours = |k: usize, offset: usize| {
        last[k] == 1 && offset.is_multiple_of(4) && strides[k].iter().rev().skip(1).all(|s| s % 4 == 0)
    };
    let vectors =
        lane_size(dtype) == 4 && merged.shape.last().is_some_and(|n| n % 4 == 0) && fours(1, dst.offset());
    let unit = if vectors { 4 } else { 1 };
    // Elements of the source that a position of `src_at` stands for.
    let read = if vectors && fours(0, src.offset()) { 4 } else { 1 };
    let word = word(dtype);
    let vector = |n: usize| if n == 4 { "vec4<u32>" } else { word };
    let mut d = Draft::new(label);
    d.bind("input", vector(read), false, Slot::Input(k));
    d.bind("output", vector(unit), true, Slot::Output(0));
    for (strides, each) in strides.iter_mut().zip([read, unit]) {
        strides.pop();
        strides.iter_mut().for_each(|s| *s /= each as isize);
    }
    let mut shape = merged.shape;
    let run = shape.pop().unwrap_or(1) / unit;
    in_runs(shape.iter().product(), run, STEP, &mut d, facts);
    d.params.stride("src_step", last[0]);
    d.params.stride("dst_step", last[1]);
    let (element, goal) = match (vectors, read, last[0]) {
        (false, ..) => ("input[place.x + k * params.src_step]".into(), "place.y + k * params.dst_step"),
        (true, 4, _) => ("input[place.x + k]".into(), "place.y + k"),
        (true, _, 0) => ("vec4<u32>(input[place.x])".into(), "place.y + k"),
        _ => {
            let four = [0, 1, 2, 3].map(|j| format!("input[place.x + (4u * k + {j}u) * params.src_step]"));
            (format!("vec4<u32>({})", four.join(", ")), "place.y + k")
        }
    };
    let operands = [(&strides[0][..], src.offset() / read), (&strides[1][..], dst.offset() / unit)];
    d.body = format!(
        "{}\n@compute @workgroup_size(256)\n{}    let i = group * 256u + lane;\n    if (i >= params.total) {{\n        return;\n    }}\n    let run = i / params.parts;\n    let begin = (i - run * params.parts) * params.step;\n    let end = min(begin + params.step, params.run);\n    let place = places(run);\n    for (var k = begin; k < end; k += 1u) {{\n        output[{goal}] = {element};\n    }}\n}}\n",
        index::places(&shape, &operands, &mut d.params),
        taper_shaders::ENTRY
    );
    Some(d)
}

/// The most words that one thread of a processor copies: two lines of its cache.
const STEP: usize = 8;

/// Gives a draft the threads that move so many runs of `run` words each: parameters `total` (threads), `run`, `parts` (threads
/// of a run) and `step` (words of a thread). Neighbouring threads move neighbouring words, but on processors, where one moves
/// up to `most`.
pub(crate) fn in_runs(runs: usize, run: usize, most: usize, d: &mut Draft, facts: &Facts<'_>) {
    let step = if facts.direct { (runs * run / facts.threads).clamp(1, most).min(run.max(1)) } else { 1 };
    let parts = run.div_ceil(step);
    let total = runs * parts;
    d.params.size("total", total);
    d.params.size("run", run);
    d.params.size("parts", parts.max(1));
    d.params.size("step", step);
    d.groups = total.div_ceil(256);
    d.work = 256 * step;
}

/// A copy whose source is dense along one axis, and whose destination is along another.
struct Transpose {
    /// Elements along the source's dense axis, and the destination's stride there.
    read: (usize, isize),
    /// Elements along the destination's dense axis, and the source's stride there.
    write: (usize, isize),
    /// The other axes, and both sides' strides.
    batch: SmallVec<[usize; 8]>,
    strides: [SmallVec<[isize; 8]>; 2],
    offsets: [usize; 2],
}

impl Transpose {
    fn of(src: &Layout, dst: &Layout) -> Option<Transpose> {
        let merged = collapse(src.shape(), &[src.strides(), dst.strides()]);
        let [from, to] = [&merged.strides[0], &merged.strides[1]];
        let read = from.iter().position(|&s| s == 1)?;
        let write = to.iter().position(|&s| s == 1)?;
        if read == write || merged.shape[read] < 4 || merged.shape[write] < 4 {
            return None;
        }
        let others: SmallVec<[usize; 8]> =
            (0..merged.shape.len()).filter(|&a| a != read && a != write).collect();
        Some(Transpose {
            read: (merged.shape[read], to[read]),
            write: (merged.shape[write], from[write]),
            batch: others.iter().map(|&a| merged.shape[a]).collect(),
            strides: [from, to].map(|strides| others.iter().map(|&a| strides[a]).collect()),
            offsets: [src.offset(), dst.offset()],
        })
    }

    /// Whether both sides can be moved four elements at a time.
    fn vectors(&self) -> bool {
        let sizes = [self.read.0, self.write.0].iter().chain(&self.offsets).all(|n| n % 4 == 0);
        let mut strides = self.strides.iter().flatten().chain([&self.read.1, &self.write.1]);
        sizes && strides.all(|s| s % 4 == 0)
    }

    /// Statements that move a block of `deep` elements along what is dense in the source, and 4 along what is in the
    /// destination, in vectors.
    fn block(deep: usize) -> String {
        let mut text = String::new();
        for i in 0..4 {
            for j in 0..deep / 4 {
                let _ = writeln!(
                    text,
                    "        let v{i}_{j} = input[((source + {i}u * params.src_step) >> 2u) + {j}u];"
                );
            }
        }
        for i in 0..deep {
            let four = [0, 1, 2, 3].map(|k| format!("v{k}_{}.{}", i / 4, FIELDS[i % 4]));
            let _ = writeln!(
                text,
                "        output[(goal + {i}u * params.dst_step) >> 2u] = vec4<u32>({});",
                four.join(", ")
            );
        }
        text
    }

    fn draft(&self, label: &'static str, dtype: DType, k: usize, facts: &Facts<'_>) -> Draft {
        let vectors = lane_size(dtype) == 4 && self.vectors();
        let word = if vectors { "vec4<u32>" } else { word(dtype) };
        // Threads of processors move whole lines of the cache out of the source.
        let deep = if vectors && facts.direct { 16 } else { 4 };
        let tiles = [self.read.0.div_ceil(8 * deep), self.write.0.div_ceil(8 * 4)];
        let mut d = Draft::new(label);
        d.groups = tiles[0] * tiles[1] * self.batch.iter().product::<usize>();
        d.work = 64 * deep * 4;
        d.params.size("groups", d.groups);
        d.params.size("tiles_r", tiles[0]);
        d.params.size("tiles_w", tiles[1]);
        d.params.size("size_r", self.read.0);
        d.params.size("size_w", self.write.0);
        d.params.stride("dst_step", self.read.1);
        d.params.stride("src_step", self.write.1);
        d.bind("input", word, false, Slot::Input(k));
        d.bind("output", word, true, Slot::Output(0));
        let mut body = String::new();
        for (i, name) in ["src_at", "dst_at"].into_iter().enumerate() {
            body += &index::function(name, &self.batch, &self.strides[i], self.offsets[i], &mut d.params);
        }
        let _ = write!(
            body,
            "\n@compute @workgroup_size(64)\n{}    if (group >= params.groups) {{\n        return;\n    }}\n    let tile = group / params.tiles_w;\n    let batch = tile / params.tiles_r;\n    let r = ((tile - batch * params.tiles_r) * 8u + (lane >> 3u)) * {deep}u;\n    let w = ((group - tile * params.tiles_w) * 8u + (lane & 7u)) * 4u;\n    if (r >= params.size_r || w >= params.size_w) {{\n        return;\n    }}\n    var source = src_at(batch) + r + w * params.src_step;\n    var goal = dst_at(batch) + w + r * params.dst_step;\n",
            taper_shaders::ENTRY
        );
        if vectors {
            let four = Transpose::block(4);
            if deep == 4 {
                body += &four;
            } else {
                let _ = write!(
                    body,
                    "    if (r + {deep}u <= params.size_r) {{\n{}        return;\n    }}\n    for (var i = r; i < params.size_r; i += 4u) {{\n{four}        source += 4u;\n        goal += 4u * params.dst_step;\n    }}\n",
                    Transpose::block(deep)
                );
            }
        } else {
            body.push_str(
                "    let rows = min(params.size_r - r, 4u);\n    let columns = min(params.size_w - w, 4u);\n    for (var i = 0u; i < rows; i += 1u) {\n        for (var j = 0u; j < columns; j += 1u) {\n            output[goal + i * params.dst_step + j] = input[source + i + j * params.src_step];\n        }\n    }\n",
            );
        }
        body.push_str("}\n");
        d.body = body;
        d
    }
}
