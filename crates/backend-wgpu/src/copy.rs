//! Strided copies and fills. Elements move as words, whatever their dtype. Where one side is dense along another axis than
//! the other, a workgroup moves a square of 32 × 32, so that both sides use all of the memory that they touch.

use std::fmt::Write;

use smallvec::SmallVec;
use tensor_core::{DType, Layout, collapse, kernel::CopyKernel};

use crate::{
    draft::{Draft, Drafts, Slot},
    dtypes::lane_size,
    index,
};

/// The draft of a copy kernel: a fill if asked for, then each region.
pub(crate) fn draft(kernel: &CopyKernel) -> Drafts {
    let mut steps = Vec::new();
    let numel = kernel.shape.numel();
    if kernel.fill && numel > 0 {
        steps.push(fill(numel, kernel.dtype));
    }
    for (k, region) in kernel.regions.iter().enumerate() {
        steps.extend(copy("copy", &region.src, &region.dst, kernel.dtype, k));
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

/// Input `k`, through its layout, to the whole output.
pub(crate) fn whole(label: &'static str, src: &Layout, dtype: DType, k: usize) -> Option<Draft> {
    copy(label, src, &Layout::contiguous(src.shape().clone()), dtype, k)
}

/// Input 0, through its layout, to the whole output, if that lies crosswise to it.
pub(crate) fn transposed(label: &'static str, src: &Layout, dtype: DType) -> Option<Draft> {
    let dst = Layout::contiguous(src.shape().clone());
    Transpose::of(src, &dst).map(|transpose| transpose.draft(label, dtype, 0))
}

/// Input `k` through `src` to the output through `dst`.
pub(crate) fn copy(label: &'static str, src: &Layout, dst: &Layout, dtype: DType, k: usize) -> Option<Draft> {
    let numel = src.numel();
    if numel == 0 {
        return None;
    }
    if let Some(d) = Transpose::of(src, dst) {
        return Some(d.draft(label, dtype, k));
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
    let total = numel / unit;
    let mut d = Draft::new(label);
    d.params.size("total", total);
    d.bind("input", vector(read), false, Slot::Input(k));
    d.bind("output", vector(unit), true, Slot::Output(0));
    let value = match (vectors, read, last[0]) {
        (false, ..) | (true, 4, _) => "input[source]".into(),
        (true, _, 0) => "vec4<u32>(input[source])".into(),
        _ => {
            d.params.stride("src_step", last[0]);
            let four = [0, 1, 2, 3].map(|j| format!("input[source + {j}u * params.src_step]"));
            format!("vec4<u32>({})", four.join(", "))
        }
    };
    let mut shape = merged.shape;
    if let Some(n) = shape.last_mut() {
        *n /= unit;
    }
    for ((strides, each), last) in strides.iter_mut().zip([read, unit]).zip(last) {
        strides.iter_mut().for_each(|s| *s /= each as isize);
        if let Some(s) = strides.last_mut() {
            *s = last * (unit / each) as isize;
        }
    }
    let mut functions = String::new();
    for (name, strides, offset) in
        [("src_at", &strides[0], src.offset() / read), ("dst_at", &strides[1], dst.offset() / unit)]
    {
        functions += &index::function(name, &shape, strides, offset, &mut d.params);
    }
    d.body = format!(
        "{functions}\n@compute @workgroup_size(256)\n{}    let i = group * 256u + lane;\n    if (i < params.total) {{\n        let source = src_at(i);\n        output[dst_at(i)] = {value};\n    }}\n}}\n",
        taper_shaders::ENTRY
    );
    d.groups = total.div_ceil(256);
    d.work = 256 * unit;
    Some(d)
}

/// Elements along each side of the square that a workgroup moves; each of its threads moves 4 × 4.
const SQUARE: usize = 32;

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

    fn draft(&self, label: &'static str, dtype: DType, k: usize) -> Draft {
        let vectors = lane_size(dtype) == 4 && self.vectors();
        let word = if vectors { "vec4<u32>" } else { word(dtype) };
        let tiles = [self.read.0, self.write.0].map(|n| n.div_ceil(SQUARE));
        let mut d = Draft::new(label);
        d.groups = tiles[0] * tiles[1] * self.batch.iter().product::<usize>();
        d.work = SQUARE * SQUARE;
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
            "\n@compute @workgroup_size(64)\n{}    if (group >= params.groups) {{\n        return;\n    }}\n    let tile = group / params.tiles_w;\n    let batch = tile / params.tiles_r;\n    let r = (tile - batch * params.tiles_r) * {SQUARE}u + (lane >> 3u) * 4u;\n    let w = (group - tile * params.tiles_w) * {SQUARE}u + (lane & 7u) * 4u;\n    if (r >= params.size_r || w >= params.size_w) {{\n        return;\n    }}\n    let source = src_at(batch) + r + w * params.src_step;\n    let goal = dst_at(batch) + w + r * params.dst_step;\n",
            taper_shaders::ENTRY
        );
        if vectors {
            for i in 0..4 {
                let _ = writeln!(body, "    let v{i} = input[(source + {i}u * params.src_step) >> 2u];");
            }
            for (j, x) in ["x", "y", "z", "w"].into_iter().enumerate() {
                let _ = writeln!(
                    body,
                    "    output[(goal + {j}u * params.dst_step) >> 2u] = vec4<u32>(v0.{x}, v1.{x}, v2.{x}, v3.{x});"
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
