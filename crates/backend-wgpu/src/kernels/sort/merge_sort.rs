//! Sorting by merges: sorted blocks first, then merges of neighbouring runs until one is left; only the
//! elements that are wanted are kept of each run. Blocks have 16 elements and are sorted by one invocation
//! each, or they have 1024 and are sorted by a workgroup in workgroup memory.

use tensor_core::DType;

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatch, Dispatches, Resource},
    },
    kernels::sort::sort_keys::{BLOCK, Sort},
};

/// Elements of a merge that one invocation produces.
const MERGE_ELEMENTS: usize = 8;

/// The dispatches of a sort.
pub(crate) fn dispatches(sort: &Sort<'_>, capabilities: &Capabilities) -> Dispatches {
    let (count, length, k) = (sort.lines.count(), sort.lines.length(), sort.kept());
    let tile = !capabilities.direct && length > 64;
    let block = if tile { BLOCK } else { 16 };
    let mut runs = Runs { number: length.div_ceil(block), width: block.min(k), count: 0 };
    runs.count = (runs.number - 1) * runs.width + (length - (runs.number - 1) * block).min(runs.width);

    let mut d = Dispatch::new("sort");
    d.params.size("total", count * runs.number);
    d.params.size("length", length);
    d.params.size("blocks", runs.number);
    d.params.size("width", runs.width);
    sort.elements(&mut d);
    put(sort, &mut d, runs, 0);
    match tile {
        true => d.code.kernel(256, taper_shaders::SORT_TILE),
        false => d.code.kernel(64, taper_shaders::SORT_BLOCK),
    }
    d.workgroups = if tile { count * runs.number } else { (count * runs.number).div_ceil(64) };
    d.work = if tile { BLOCK * 60 } else { 64 * 16 * 8 };

    let most = count * runs.count;
    let mut list = vec![d];
    while runs.number > 1 {
        let mut d = Dispatch::new("sort_merge");
        let pairs = runs.number.div_ceil(2);
        let kept = (2 * runs.width).min(k);
        let parts = kept.div_ceil(MERGE_ELEMENTS);
        let total = count * pairs * parts;
        d.params.size("total", total);
        d.params.size("count", runs.count);
        d.params.size("width", runs.width);
        d.params.size("pairs", pairs);
        d.params.size("kept", kept);
        d.params.size("parts", parts);
        let from = (list.len() - 1) % 2;
        d.bind("keys_in", sort.key(), false, Resource::Temporary(2 * from));
        d.bind("indices_in", "u32", false, Resource::Temporary(2 * from + 1));
        let rest = runs.count - (pairs - 1) * 2 * runs.width;
        runs = Runs { number: pairs, width: kept, count: (pairs - 1) * kept + rest.min(kept) };
        sort.keys(&mut d.code);
        put(sort, &mut d, runs, list.len() % 2);
        d.code.kernel(64, taper_shaders::SORT_MERGE);
        d.workgroups = total.div_ceil(64);
        d.work = 64 * (MERGE_ELEMENTS + runs.width.ilog2() as usize) * 4;
        list.push(d);
    }
    let temporaries = if list.len() == 1 {
        Vec::new()
    } else {
        // No step needs more memory than the first.
        [(sort.key_dtype(), most), (DType::U32, most)].repeat(if list.len() == 2 { 1 } else { 2 })
    };
    Dispatches { list, temporaries }
}

/// The sorted runs of a line: their number, the elements of each but the last, and the elements of all.
#[derive(Clone, Copy)]
struct Runs {
    number: usize,
    width: usize,
    count: usize,
}

/// Adds the destination of a dispatch's results: pair `to` of the temporaries, or, if one run is left, only
/// the indices to the output.
fn put(sort: &Sort<'_>, d: &mut Dispatch, runs: Runs, to: usize) {
    let parameters = [("line", "u32"), ("place", "u32"), ("key", "Key"), ("index", "u32")];
    if runs.number == 1 {
        sort.output(d);
        d.code.function("put", &parameters, "", |c| {
            c.set("output[output_at(line) + place * params.output_stride]", "bitcast<i32>(index)");
        });
        return;
    }
    d.params.size("line_out", runs.count);
    d.bind("keys_out", sort.key(), true, Resource::Temporary(2 * to));
    d.bind("indices_out", "u32", true, Resource::Temporary(2 * to + 1));
    d.code.function("put", &parameters, "", |c| {
        c.bind("at", "line * params.line_out + place");
        c.set("keys_out[at]", "key");
        c.set("indices_out[at]", "index");
    });
}
