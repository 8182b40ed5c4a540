//! Sorting along an axis: sorted blocks first, then merges of neighbouring runs until one is left; only the
//! elements that are wanted are kept of each run. Blocks have 16 elements and are sorted by one invocation
//! each, or they have 1024 and are sorted by a workgroup in workgroup memory. The sort is stable and exact,
//! so every device gives the same result.

use tensor_core::{
    DType, Result,
    kernel::{Kernel, Operand},
};

use crate::codegen::{
    capabilities::Capabilities,
    dispatch::{Dispatch, Dispatches, Resource},
    dtypes::{is_packed, loaded, storage_size},
    index::Lines,
    storage::Elements,
    wgsl::Code,
};

/// Elements of a merge that one invocation produces.
const MERGE_ELEMENTS: usize = 8;

/// The dispatches of a sort.
pub(crate) fn dispatches(
    kernel: &Kernel,
    axis: usize,
    descending: bool,
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    let (operand, shape) = (&kernel.operands[0], &kernel.outputs[0].shape);
    if shape.numel() == 0 {
        return Ok(Dispatches::default());
    }
    let lines = Lines { input: &operand.layout, output: shape, axis };
    let (count, length, k) = (lines.count(), lines.length(), shape[axis]);
    let tile = !capabilities.direct && length > 64;
    let block = if tile { 1024 } else { 16 };
    let mut runs = Runs { number: length.div_ceil(block), width: block.min(k), count: 0 };
    runs.count = (runs.number - 1) * runs.width + (length - (runs.number - 1) * block).min(runs.width);

    let sort = Sort { operand, descending, lines: &lines };
    let mut d = Dispatch::new("sort");
    d.params.size("total", count * runs.number);
    d.params.size("length", length);
    d.params.size("blocks", runs.number);
    d.params.size("width", runs.width);
    sort.elements(&mut d);
    sort.put(&mut d, runs, 0);
    match tile {
        true => d.code.kernel(256, taper_shaders::SORT_TILE),
        false => d.code.kernel(64, taper_shaders::SORT_BLOCK),
    }
    d.workgroups = if tile { count * runs.number } else { (count * runs.number).div_ceil(64) };
    d.work = if tile { 1024 * 60 } else { 64 * 16 * 8 };

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
        sort.put(&mut d, runs, list.len() % 2);
        d.code.kernel(64, taper_shaders::SORT_MERGE);
        d.workgroups = total.div_ceil(64);
        d.work = 64 * (MERGE_ELEMENTS + runs.width.ilog2() as usize) * 4;
        list.push(d);
    }
    let temporaries = if list.len() == 1 {
        Vec::new()
    } else {
        let keys = if storage_size(operand.dtype) == 8 { operand.dtype } else { DType::U32 };
        // No step needs more memory than the first.
        [(keys, most), (DType::U32, most)].repeat(if list.len() == 2 { 1 } else { 2 })
    };
    Ok(Dispatches { list, temporaries })
}

/// The sorted runs of a line: their number, the elements of each but the last, and the elements of all.
#[derive(Clone, Copy)]
struct Runs {
    number: usize,
    width: usize,
    count: usize,
}

struct Sort<'a> {
    operand: &'a Operand,
    descending: bool,
    lines: &'a Lines<'a>,
}

impl Sort<'_> {
    fn wide(&self) -> bool {
        storage_size(self.operand.dtype) == 8
    }

    /// The WGSL type of a key.
    fn key(&self) -> &'static str {
        if self.wide() { "vec2<u32>" } else { "u32" }
    }

    /// Adds the type of keys, and the function that tells which of two comes first.
    fn keys(&self, c: &mut Code) {
        let less = if self.wide() { "a.x < b.x || (a.x == b.x && a.y < b.y)" } else { "a < b" };
        c.line(format_args!("alias Key = {};", self.key()));
        c.expression("less", &[("a", "Key"), ("b", "Key")], "bool", less);
        c.expression("last_key", &[], "Key", "~Key()");
    }

    /// Adds the keys of the input's elements, inverted for a descending order.
    fn elements(&self, d: &mut Dispatch) {
        d.params.stride("stride", self.lines.stride());
        d.params.word("flip", if self.descending { u32::MAX } else { 0 });
        let dtype = self.operand.dtype;
        let elements = if is_packed(dtype) { Elements::of(dtype) } else { Elements::bits(dtype) };
        d.bind("input", elements, false, Resource::Input(0));
        self.keys(&mut d.code);
        d.code.append(&self.lines.input_at(0, &mut d.params));
        // Converted to the bits of the compute type.
        let element = "load_input(base + r * params.stride)";
        let bits = if is_packed(dtype) { format!("bitcast<u32>({element})") } else { element.into() };
        let key = format!("order_{}({bits}) ^ Key(params.flip)", loaded(dtype));
        d.code.expression("element", &[("base", "u32"), ("r", "u32")], "Key", key);
    }

    /// Adds the destination of a dispatch's results: pair `to` of the temporaries, or, if one run is left,
    /// only the indices to the output.
    fn put(&self, d: &mut Dispatch, runs: Runs, to: usize) {
        let parameters = [("line", "u32"), ("place", "u32"), ("key", "Key"), ("index", "u32")];
        if runs.number == 1 {
            d.params.stride("output_stride", self.lines.output_stride());
            d.bind("output", "i32", true, Resource::Output(0));
            d.code.append(&self.lines.output_at(0, &mut d.params));
            d.code.function("put", &parameters, "", |c| {
                c.set("output[output_at(line) + place * params.output_stride]", "bitcast<i32>(index)");
            });
            return;
        }
        d.params.size("line_out", runs.count);
        d.bind("keys_out", self.key(), true, Resource::Temporary(2 * to));
        d.bind("indices_out", "u32", true, Resource::Temporary(2 * to + 1));
        d.code.function("put", &parameters, "", |c| {
            c.bind("at", "line * params.line_out + place");
            c.set("keys_out[at]", "key");
            c.set("indices_out[at]", "index");
        });
    }
}
