//! The keys of a sort along an axis: unsigned integers in the elements' order, from `order.wgsl`.

use tensor_core::{DType, kernel::Operand};

use crate::codegen::{
    dispatch::{Dispatch, Resource},
    dtypes::{storage_size, stored},
    index::Lines,
    storage::Elements,
    wgsl::Code,
};

/// The elements that a workgroup sorts in its memory.
pub(crate) const BLOCK: usize = 1024;

/// The bits in which keys of a dtype may differ.
pub(crate) fn key_bits(dtype: DType) -> usize {
    if dtype == DType::Bool { 1 } else { stored(dtype).bits }
}

/// The key of an element, in WGSL, from its bits.
fn key(dtype: DType, bits: &str) -> String {
    match dtype {
        DType::Bool | DType::U8 | DType::U16 | DType::U32 => bits.into(),
        DType::I8 => format!("{bits} ^ 0x80u"),
        DType::I16 => format!("{bits} ^ 0x8000u"),
        DType::F16 => format!("order_narrow({bits}, 0x8000u, 0x7c00u)"),
        DType::BF16 => format!("order_narrow({bits}, 0x8000u, 0x7f80u)"),
        DType::F8E4M3FN => format!("order_narrow({bits}, 0x80u, 0x7eu)"),
        DType::F8E5M2 => format!("order_narrow({bits}, 0x80u, 0x7cu)"),
        DType::F8E4M3FNUZ | DType::F8E5M2FNUZ => format!("order_unsigned_zero({bits})"),
        DType::I32 | DType::F32 | DType::U64 | DType::I64 | DType::F64 => {
            format!("order_{}({bits})", stored(dtype).loaded)
        }
    }
}

/// Adds the start of a workgroup that has a tile of a line: `line`, `tile`, `begin` and `count`, the tile's
/// place and elements, and `base`, the place of the line, from the function `line_at`.
///
/// Every invocation stays to the end because of the barriers; surplus workgroups repeat the last tile.
pub(crate) fn begin_tile(line_at: &str, c: &mut Code) {
    c.bind("g", "min(workgroup_index, params.total - 1u)");
    c.bind("line", "g / params.tiles");
    c.bind("tile", "g - line * params.tiles");
    c.bind("begin", "tile * TILE");
    c.bind("count", "min(TILE, params.length - begin)");
    c.bind("base", format_args!("{line_at}(line)"));
}

/// A sort of lines; an output that is shorter than the input gets the first elements.
pub(crate) struct Sort<'a> {
    pub(crate) operand: &'a Operand,
    pub(crate) descending: bool,
    pub(crate) lines: &'a Lines<'a>,
}

impl Sort<'_> {
    /// Whether a key has two words.
    pub(crate) fn wide(&self) -> bool {
        storage_size(self.operand.dtype) == 8
    }

    /// The WGSL type of a key.
    pub(crate) fn key(&self) -> &'static str {
        if self.wide() { "vec2<u32>" } else { "u32" }
    }

    /// A dtype of temporaries that hold keys.
    pub(crate) fn key_dtype(&self) -> DType {
        if self.wide() { self.operand.dtype } else { DType::U32 }
    }

    /// The number of elements of each line that are wanted.
    pub(crate) fn kept(&self) -> usize {
        self.lines.output[self.lines.axis]
    }

    /// Adds the type of keys, and the function that tells which of two comes first.
    pub(crate) fn keys(&self, c: &mut Code) {
        let less = if self.wide() { "a.x < b.x || (a.x == b.x && a.y < b.y)" } else { "a < b" };
        c.line(format_args!("alias Key = {};", self.key()));
        c.expression("less", &[("a", "Key"), ("b", "Key")], "bool", less);
        c.expression("last_key", &[], "Key", "~Key()");
    }

    /// Adds the keys of the input's elements, inverted for a descending order: the functions input_at(line)
    /// and element(base, r).
    pub(crate) fn elements(&self, d: &mut Dispatch) {
        let dtype = self.operand.dtype;
        let all = u32::MAX >> (32 - key_bits(dtype).min(32));
        d.params.stride("stride", self.lines.stride());
        d.params.word("flip", if self.descending { all } else { 0 });
        d.bind("input", Elements::bits(dtype), false, Resource::Input(0));
        self.keys(&mut d.code);
        d.code.append(&self.lines.input_at(0, &mut d.params));
        let element = key(dtype, "load_input(base + r * params.stride)");
        let flipped = format!("({element}) ^ Key(params.flip)");
        d.code.expression("element", &[("base", "u32"), ("r", "u32")], "Key", flipped);
    }

    /// Adds the output of indices: element `place` of a line is `output[output_at(line) + place *
    /// params.output_stride]`.
    pub(crate) fn output(&self, d: &mut Dispatch) {
        d.params.stride("output_stride", self.lines.output_stride());
        d.bind("output", "i32", true, Resource::Output(0));
        d.code.append(&self.lines.output_at(0, &mut d.params));
    }
}
