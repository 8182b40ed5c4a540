//! Strided copies and fills. Elements move as words, whatever their dtype.

use tensor_core::{DType, Layout, kernel::CopyKernel};

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

/// Input `k` through `src` to the output through `dst`.
pub(crate) fn copy(label: &'static str, src: &Layout, dst: &Layout, dtype: DType, k: usize) -> Option<Draft> {
    let numel = src.numel();
    if numel == 0 {
        return None;
    }
    let dense = src.is_contiguous() && dst.is_contiguous();
    let aligned = [numel, src.offset(), dst.offset()].iter().all(|n| n % 4 == 0);
    let vectors = dense && aligned && lane_size(dtype) == 4;
    let unit = if vectors { 4 } else { 1 };
    let word = if vectors { "vec4<u32>" } else { word(dtype) };
    let total = numel / unit;
    let mut d = Draft::new(label);
    d.params.size("total", total);
    d.bind("input", word, false, Slot::Input(k));
    d.bind("output", word, true, Slot::Output(0));
    let mut functions = String::new();
    for (name, layout) in [("src_at", src), ("dst_at", dst)] {
        functions.push_str(&if dense {
            index::function(name, &[total], &[1], layout.offset() / unit, &mut d.params)
        } else {
            index::function(name, layout.shape(), layout.strides(), layout.offset(), &mut d.params)
        });
    }
    d.body = format!(
        "{functions}\n@compute @workgroup_size(256)\n{}    let i = group * 256u + lane;\n    if (i < params.total) {{\n        output[dst_at(i)] = input[src_at(i)];\n    }}\n}}\n",
        taper_shaders::ENTRY
    );
    d.groups = total.div_ceil(256);
    d.work = 256 * unit;
    Some(d)
}
