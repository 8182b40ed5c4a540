//! Strided copies and fills. Elements are moved as bits, for every dtype; as whole words if both sides
//! allow it. If the two sides are dense along different axes, an invocation moves a block of 4 × 4 and a
//! workgroup 8 × 8 blocks, so that both sides use all of each memory transaction.

use smallvec::SmallVec;
use tensor_core::{DType, Layout, collapse};

use crate::codegen::{
    capabilities::Capabilities,
    dispatch::{Dispatch, Resource},
    dtypes::{FIELDS, element_or_last, is_packed, per_word, storage_size, stored},
    formulas, index,
    storage::Elements,
    wgsl::Code,
};

/// Fills `numel` elements of the output with scalar 0 of the launch, in whole words.
pub(crate) fn fill(numel: usize, dtype: DType) -> Dispatch {
    let words = numel.div_ceil(per_word(dtype));
    let mut d = Dispatch::new("fill");
    d.params.size("total", words);
    d.params.scalar(0, dtype);
    let word = if storage_size(dtype) == 8 { "vec2<u32>" } else { "u32" };
    d.bind("output", word, true, Resource::Output(0));
    d.code.entry(256, |c| {
        c.bind("i", "workgroup_index * 256u + local_index");
        c.return_if("i >= params.total");
        match stored(dtype).packing {
            Some(packing) => {
                let element = formulas::store(dtype, &formulas::scalar(dtype, 0));
                c.bind("bits", format_args!("{}({element})", packing.pack));
                let all = (0..per_word(dtype)).map(|e| format!("(bits << {}u)", e * stored(dtype).bits));
                c.set("output[i]", all.collect::<Vec<_>>().join(" | "));
            }
            None if storage_size(dtype) == 8 => c.set("output[i]", "vec2<u32>(params.s0, params.s0h)"),
            None => c.set("output[i]", "params.s0"),
        }
    });
    d.workgroups = words.div_ceil(256);
    d.work = 256;
    d
}

/// Two layouts of packed elements as layouts of their words, if all runs of both begin and end at word
/// boundaries.
fn in_words(src: &Layout, dst: &Layout, dtype: DType) -> Option<[Layout; 2]> {
    let per_word = per_word(dtype);
    let merged = collapse(src.shape(), &[src.strides(), dst.strides()]);
    let mut shape = merged.shape;
    let n = shape.last_mut().filter(|n| per_word > 1 && n.is_multiple_of(per_word))?;
    *n /= per_word;
    let layout = |whole: &Layout, strides: &[isize]| {
        let words = |&s: &isize| (s % per_word as isize == 0).then_some(s / per_word as isize);
        let (1, rest) = strides.split_last()? else { return None };
        let mut strides: SmallVec<[isize; 8]> = rest.iter().map(words).collect::<Option<_>>()?;
        strides.push(1);
        let fits = whole.offset().is_multiple_of(per_word);
        fits.then(|| Layout::new(&shape[..], &strides, whole.offset() / per_word))
    };
    Some([layout(src, &merged.strides[0])?, layout(dst, &merged.strides[1])?])
}

/// Copies input 0, through its layout, to the whole output, if the input is dense along another axis.
pub(crate) fn transposed(label: &'static str, src: &Layout, dtype: DType) -> Option<Dispatch> {
    let dst = Layout::contiguous(src.shape().clone());
    Transpose::of(src, &dst).map(|transpose| transpose.dispatch(label, dtype, 0))
}

/// Copies input `k` through `src` to the output through `dst`.
pub(crate) fn copy(
    label: &'static str,
    src: &Layout,
    dst: &Layout,
    dtype: DType,
    k: usize,
    capabilities: &Capabilities,
) -> Option<Dispatch> {
    if src.numel() == 0 {
        return None;
    }
    if let Some([src, dst]) = in_words(src, dst, dtype) {
        return copy(label, &src, &dst, DType::U32, k, capabilities);
    }
    if let Some(transpose) = Transpose::of(src, dst) {
        return Some(transpose.dispatch(label, dtype, k));
    }
    let merged = collapse(src.shape(), &[src.strides(), dst.strides()]);
    let mut strides = merged.strides;
    let last = [0, 1].map(|k| strides[k].last().copied().unwrap_or(0));
    // A side that is dense along the last axis, with all other strides and offsets multiples of four, moves
    // four elements at once.
    let fours = |k: usize, offset: usize| {
        last[k] == 1 && offset.is_multiple_of(4) && strides[k].iter().rev().skip(1).all(|s| s % 4 == 0)
    };
    let vectors =
        storage_size(dtype) <= 4 && merged.shape.last().is_some_and(|n| n % 4 == 0) && fours(1, dst.offset());
    let read_fours = vectors && fours(0, src.offset());
    // Neighbours in the destination that share words, to which other invocations may also write.
    let neighbours = !vectors && is_packed(dtype) && last[1] == 1;
    let mut d = Dispatch::new(label);
    d.bind("input", Elements::bits(dtype).in_fours(read_fours), false, Resource::Input(k));
    d.bind("output", Elements::bits(dtype).in_fours(vectors), true, Resource::Output(0));
    strides.iter_mut().for_each(|strides| {
        strides.pop();
    });
    let mut shape = merged.shape;
    let elements = shape.pop().unwrap_or(1);
    let run = match () {
        () if vectors => elements / 4,
        // In steps of four aligned elements, whatever the start of the run.
        () if neighbours => (elements + 6) / 4,
        () => elements,
    };
    in_runs(shape.iter().product(), run, MAX_COPY_WORDS, &mut d, capabilities);
    d.params.stride("src_step", last[0]);
    d.params.stride("dst_step", last[1]);
    if neighbours {
        d.params.size("elements", elements);
    }
    let operands = [(&strides[0][..], src.offset()), (&strides[1][..], dst.offset())];
    d.code.append(&index::places(&shape, &operands, &mut d.params));
    // Four elements, of which those from `count` on repeat the last one.
    let four = |at: &str, count: Option<&str>| {
        let one = |j: usize| {
            let j = element_or_last(j, count);
            format!("load_input(place.x + ({at} + {j}) * params.src_step)")
        };
        format!("vec4<u32>({})", [0, 1, 2, 3].map(one).join(", "))
    };
    d.code.entry(256, |c| {
        c.bind("i", "workgroup_index * 256u + local_index");
        c.return_if("i >= params.total");
        c.bind("run", "i / params.parts");
        c.bind("begin", "(i - run * params.parts) * params.step");
        c.bind("end", "min(begin + params.step, params.run)");
        c.bind("place", "places(run)");
        c.count("k", ["begin", "end", "1u"], |c| {
            if neighbours {
                c.bind("before", "place.y & 3u");
                c.bind("at", "select(4u * k - before, 0u, k == 0u)");
                c.when("at < params.elements", |c| {
                    c.bind("count", "min(4u - ((place.y + at) & 3u), params.elements - at)");
                    c.line(format_args!(
                        "store_some_output(place.y + at, {}, count);",
                        four("at", Some("count"))
                    ));
                });
            } else if !vectors {
                let element = "load_input(place.x + k * params.src_step)";
                c.line(format_args!("store_output(place.y + k * params.dst_step, {element});"));
            } else {
                let element = match (read_fours, last[0]) {
                    (true, _) => "load4_input(place.x + 4u * k)".into(),
                    (_, 0) => "vec4<u32>(load_input(place.x))".into(),
                    _ => four("4u * k", None),
                };
                c.line(format_args!("store4_output(place.y + 4u * k, {element});"));
            }
        });
    });
    Some(d)
}

/// The most words that one invocation of a software adapter copies: two cache lines of the host.
const MAX_COPY_WORDS: usize = 8;

/// Sets the number of invocations for `runs` runs of `run` words each, with the parameters `total`
/// (invocations), `run`, `parts` (invocations for each run) and `step` (words for each invocation).
/// Neighbouring invocations move neighbouring words; on software adapters one invocation moves up to `most`
/// words instead.
pub(crate) fn in_runs(runs: usize, run: usize, most: usize, d: &mut Dispatch, capabilities: &Capabilities) {
    let spare = runs * run / capabilities.invocations;
    let step = if capabilities.direct { spare.clamp(1, most).min(run.max(1)) } else { 1 };
    let parts = run.div_ceil(step);
    let total = runs * parts;
    for (name, size) in [("total", total), ("run", run), ("parts", parts.max(1)), ("step", step)] {
        d.params.size(name, size);
    }
    d.workgroups = total.div_ceil(256);
    d.work = 256 * step;
}

/// A copy whose source and destination are dense along different axes.
struct Transpose {
    /// The size of the source's dense axis, and the destination's stride along it.
    read: (usize, isize),
    /// The size of the destination's dense axis, and the source's stride along it.
    write: (usize, isize),
    /// The other axes, and the strides of both sides.
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

    fn dispatch(&self, label: &'static str, dtype: DType, k: usize) -> Dispatch {
        let vectors = storage_size(dtype) <= 4 && self.vectors();
        let elements = || Elements::bits(dtype).in_fours(vectors);
        let tiles = [self.read.0.div_ceil(32), self.write.0.div_ceil(32)];
        let mut d = Dispatch::new(label);
        d.workgroups = tiles[0] * tiles[1] * self.batch.iter().product::<usize>();
        d.work = 64 * 16;
        let sizes = [
            ("workgroups", d.workgroups),
            ("tiles_r", tiles[0]),
            ("tiles_w", tiles[1]),
            ("size_r", self.read.0),
            ("size_w", self.write.0),
        ];
        sizes.into_iter().for_each(|(name, size)| d.params.size(name, size));
        d.params.stride("dst_step", self.read.1);
        d.params.stride("src_step", self.write.1);
        d.bind("input", elements(), false, Resource::Input(k));
        d.bind("output", elements(), true, Resource::Output(0));
        for (i, name) in ["src_at", "dst_at"].into_iter().enumerate() {
            let at = index::function(name, &self.batch, &self.strides[i], self.offsets[i], &mut d.params);
            d.code.append(&at);
        }
        d.code.entry(64, |c| {
            c.return_if("workgroup_index >= params.workgroups");
            c.bind("tile", "workgroup_index / params.tiles_w");
            c.bind("batch", "tile / params.tiles_r");
            c.bind("r", "((tile - batch * params.tiles_r) * 8u + (local_index >> 3u)) * 4u");
            c.bind("w", "((workgroup_index - tile * params.tiles_w) * 8u + (local_index & 7u)) * 4u");
            c.return_if("r >= params.size_r || w >= params.size_w");
            c.bind("source", "src_at(batch) + r + w * params.src_step");
            c.bind("goal", "dst_at(batch) + w + r * params.dst_step");
            match (vectors, is_packed(dtype)) {
                (true, _) => block(c),
                (_, true) => lines(c),
                _ => each(c),
            }
        });
        d
    }
}

/// Moves 4 × 4 elements in vectors.
fn block(c: &mut Code) {
    for i in 0..4 {
        c.bind(format_args!("v{i}"), format_args!("load4_input(source + {i}u * params.src_step)"));
    }
    for (i, field) in FIELDS.iter().enumerate() {
        let four = format!("vec4<u32>(v0.{field}, v1.{field}, v2.{field}, v3.{field})");
        c.line(format_args!("store4_output(goal + {i}u * params.dst_step, {four});"));
    }
}

/// Moves up to 4 × 4 elements one by one.
fn each(c: &mut Code) {
    c.bind("rows", "min(params.size_r - r, 4u)");
    c.bind("columns", "min(params.size_w - w, 4u)");
    c.count("i", ["0u", "rows", "1u"], |c| {
        c.count("j", ["0u", "columns", "1u"], |c| {
            c.line(
                "store_output(goal + i * params.dst_step + j, load_input(source + i + j * params.src_step));",
            );
        });
    });
}

/// Moves up to 4 × 4 elements as up to four rows of the destination.
fn lines(c: &mut Code) {
    c.bind("rows", "min(params.size_r - r, 4u)");
    c.bind("columns", "min(params.size_w - w, 4u)");
    c.count("i", ["0u", "rows", "1u"], |c| {
        // Elements beyond the row repeat its last one.
        let one = |j: usize| {
            let j = element_or_last(j, Some("columns"));
            format!("load_input(source + i + {j} * params.src_step)")
        };
        let four = [0, 1, 2, 3].map(one).join(", ");
        c.line(format_args!("store_some_output(goal + i * params.dst_step, vec4<u32>({four}), columns);"));
    });
}
