//! The WGSL of Taper's wgpu backend.
//!
//! Two kinds of source live in `wgsl/`. *Libraries* ([`LIBRARIES`]) are collections of functions; [`link`]
//! puts in front of a kernel the library functions that it mentions, so a kernel carries no text it does
//! not use. *Kernels* are functions `kernel(workgroup_index, local_index)`. Each expects a short header of
//! aliases, constants and bindings, listed at the top of its file, and an entry point; the backend writes
//! both, and generates all other kernels itself. Nothing here needs a device: the tests validate every
//! function and every specialised kernel with naga.

use std::{collections::HashMap, sync::LazyLock};

/// The libraries of functions, by file name.
pub const LIBRARIES: &[(&str, &str)] = &[
    ("integer", include_str!("../wgsl/integer.wgsl")),
    ("float32", include_str!("../wgsl/float32.wgsl")),
    ("order", include_str!("../wgsl/order.wgsl")),
    ("half", include_str!("../wgsl/half.wgsl")),
    ("packed", include_str!("../wgsl/packed.wgsl")),
    ("float8", include_str!("../wgsl/float8.wgsl")),
    ("philox", include_str!("../wgsl/philox.wgsl")),
    ("integer64", include_str!("../wgsl/integer64.wgsl")),
    ("unsigned64", include_str!("../wgsl/unsigned64.wgsl")),
    ("float64", include_str!("../wgsl/float64.wgsl")),
];

/// Gather along an axis.
pub const GATHER: &str = include_str!("../wgsl/gather.wgsl");
/// Gather along an axis, for elements smaller than a word.
pub const GATHER_FOUR: &str = include_str!("../wgsl/gather_four.wgsl");
/// Scatter-add, one invocation for each element of the output or for four of them.
pub const SCATTER_ELEMENT: &str = include_str!("../wgsl/scatter_element.wgsl");
/// Scatter-add, one invocation for each line along the axis.
pub const SCATTER_LINE: &str = include_str!("../wgsl/scatter_line.wgsl");
/// Scatter-add by sorted segments: the pass that reads the index.
pub const SCATTER_KEYS: &str = include_str!("../wgsl/scatter_keys.wgsl");
/// Scatter-add by sorted segments: one invocation for each chunk of sorted positions in one column.
pub const SCATTER_SEGMENTS: &str = include_str!("../wgsl/scatter_segments.wgsl");
/// Scatter that replaces: one pass over the index or over the source.
pub const SCATTER_REPLACE: &str = include_str!("../wgsl/scatter_replace.wgsl");

/// A cumulative operation, one invocation for each chunk of a line.
pub const CUMULATIVE_LINE: &str = include_str!("../wgsl/cumulative_line.wgsl");
/// A cumulative operation, one workgroup for each chunk of a line.
pub const CUMULATIVE_TILE: &str = include_str!("../wgsl/cumulative_tile.wgsl");
/// The first step of a sort, one invocation for each block.
pub const SORT_BLOCK: &str = include_str!("../wgsl/sort_block.wgsl");
/// The first step of a sort, one workgroup for each block.
pub const SORT_TILE: &str = include_str!("../wgsl/sort_tile.wgsl");
/// The later steps of a sort.
pub const SORT_MERGE: &str = include_str!("../wgsl/sort_merge.wgsl");
/// The first step of a pass of a radix sort.
pub const RADIX_COUNT: &str = include_str!("../wgsl/radix_count.wgsl");
/// The second step of a pass of a radix sort, for lines of many tiles.
pub const RADIX_OFFSETS: &str = include_str!("../wgsl/radix_offsets.wgsl");

/// The kernels of operations that `tensor_core` describes as data.
pub mod native {
    /// Attention to the rows in use of a cache.
    pub const CACHED_ATTENTION: &str = include_str!("../wgsl/native/cached_attention.wgsl");
    /// Max pooling with positions.
    pub const MAX_POOL: &str = include_str!("../wgsl/native/max_pool.wgsl");
    /// Insertion points in sorted numbers.
    pub const SEARCH_SORTED: &str = include_str!("../wgsl/native/search_sorted.wgsl");
    /// Distances between points.
    pub const DISTANCES: &str = include_str!("../wgsl/native/distances.wgsl");
    /// The function `pair_of(i)`, the two points of a pair, for [`DISTANCES`].
    pub const PAIR_OF: &str = include_str!("../wgsl/native/pair_of.wgsl");
}

/// The kernels of `torch.linalg`, which the crate `linalg` assembles. All of them expect [`linalg::F32`] or
/// [`linalg::F64`] before them.
pub mod linalg {
    /// Arithmetic of f32: the type `T` and its helper functions.
    pub const F32: &str = include_str!("../wgsl/linalg/f32.wgsl");
    /// Arithmetic of f64: the type `T` and its helper functions.
    pub const F64: &str = include_str!("../wgsl/linalg/f64.wgsl");
    /// Sets each element of a batch of matrices from its indices alone.
    pub const EACH: &str = include_str!("../wgsl/linalg/each.wgsl");
    /// LU factorization with partial pivoting of a panel of columns.
    pub const LU_PANEL: &str = include_str!("../wgsl/linalg/lu_panel.wgsl");
    /// LDLᵀ factorization of symmetric matrices.
    pub const LDL: &str = include_str!("../wgsl/linalg/ldl.wgsl");
    /// Solves systems with the factors of LDLᵀ.
    pub const LDL_SOLVE: &str = include_str!("../wgsl/linalg/ldl_solve.wgsl");
    /// Solves a triangular system of one block.
    pub const TRIANGLE: &str = include_str!("../wgsl/linalg/triangle.wgsl");
    /// The update of the trailing matrix: C −= A·B.
    pub const UPDATE: &str = include_str!("../wgsl/linalg/update.wgsl");
    /// The Cholesky factor of one block.
    pub const CHOLESKY_BLOCK: &str = include_str!("../wgsl/linalg/cholesky_block.wgsl");
    /// Householder reflections of a panel of columns.
    pub const REFLECT: &str = include_str!("../wgsl/linalg/reflect.wgsl");
    /// The reflections of a panel, applied to other columns.
    pub const REFLECTED: &str = include_str!("../wgsl/linalg/reflected.wgsl");
    /// The greatest magnitude of each row.
    pub const ROW_MOST: &str = include_str!("../wgsl/linalg/row_most.wgsl");
    /// A power of two for each matrix.
    pub const SCALE: &str = include_str!("../wgsl/linalg/scale.wgsl");
    /// Functions of the Jacobi methods: which rows a round pairs, and the rotation of a pair.
    pub const PAIRS: &str = include_str!("../wgsl/linalg/pairs.wgsl");
    /// A round of one-sided rotations.
    pub const ROTATE: &str = include_str!("../wgsl/linalg/rotate.wgsl");
    /// The rotations of a two-sided round.
    pub const ANGLES: &str = include_str!("../wgsl/linalg/angles.wgsl");
    /// Applies the rotations of a two-sided round.
    pub const TURN: &str = include_str!("../wgsl/linalg/turn.wgsl");
    /// The end of a sweep of rotations.
    pub const SETTLE: &str = include_str!("../wgsl/linalg/settle.wgsl");
    /// The length of each row.
    pub const NORMS: &str = include_str!("../wgsl/linalg/norms.wgsl");
    /// The order of numbers.
    pub const ORDER: &str = include_str!("../wgsl/linalg/order.wgsl");
    /// The product of pivots, which is the determinant.
    pub const DETERMINANT: &str = include_str!("../wgsl/linalg/determinant.wgsl");
}

/// Block formats: `decode_x(i)` returns element i of a buffer `x` as a float, and `four_x(i)` the four from a
/// multiple of four on. `slice_x(i)` returns the vectors of a slice whose first element is i: a slice is the
/// part of a block that one invocation decodes, so that it reads each word of numbers once. All of them
/// expect [`BYTES`](blocks::BYTES).
pub mod blocks {
    /// Blocks of Q4_0 of GGUF files.
    pub const Q4_0: &str = include_str!("../wgsl/blocks/q4_0.wgsl");
    /// Blocks of Q4_1 of GGUF files.
    pub const Q4_1: &str = include_str!("../wgsl/blocks/q4_1.wgsl");
    /// Blocks of Q5_0 of GGUF files.
    pub const Q5_0: &str = include_str!("../wgsl/blocks/q5_0.wgsl");
    /// Blocks of Q5_1 of GGUF files.
    pub const Q5_1: &str = include_str!("../wgsl/blocks/q5_1.wgsl");
    /// Blocks of Q8_0 of GGUF files.
    pub const Q8_0: &str = include_str!("../wgsl/blocks/q8_0.wgsl");
    /// Blocks of Q2_K of GGUF files.
    pub const Q2_K: &str = include_str!("../wgsl/blocks/q2_k.wgsl");
    /// Blocks of Q3_K of GGUF files.
    pub const Q3_K: &str = include_str!("../wgsl/blocks/q3_k.wgsl");
    /// Blocks of Q4_K of GGUF files.
    pub const Q4_K: &str =
        concat!(include_str!("../wgsl/blocks/q4_k.wgsl"), include_str!("../wgsl/blocks/six_bits.wgsl"));
    /// Blocks of Q5_K of GGUF files.
    pub const Q5_K: &str =
        concat!(include_str!("../wgsl/blocks/q5_k.wgsl"), include_str!("../wgsl/blocks/six_bits.wgsl"));
    /// Blocks of Q6_K of GGUF files.
    pub const Q6_K: &str = include_str!("../wgsl/blocks/q6_k.wgsl");
    /// Blocks of IQ4_NL of GGUF files.
    pub const IQ4_NL: &str = concat!(
        include_str!("../wgsl/blocks/iq4_nl.wgsl"),
        include_str!("../wgsl/blocks/iq4_numbers.wgsl"),
        include_str!("../wgsl/blocks/four_numbers.wgsl")
    );
    /// Blocks of IQ4_XS of GGUF files.
    pub const IQ4_XS: &str = concat!(
        include_str!("../wgsl/blocks/iq4_xs.wgsl"),
        include_str!("../wgsl/blocks/iq4_numbers.wgsl"),
        include_str!("../wgsl/blocks/four_numbers.wgsl")
    );
    /// Blocks of TQ2_0 of GGUF files.
    pub const TQ2_0: &str = include_str!("../wgsl/blocks/tq2_0.wgsl");
    /// Blocks of MXFP4 of GGUF files.
    pub const MXFP4: &str =
        concat!(include_str!("../wgsl/blocks/mxfp4.wgsl"), include_str!("../wgsl/blocks/four_numbers.wgsl"));
    /// Groups of small integers; one of the functions below unpacks them.
    pub const AFFINE: &str = include_str!("../wgsl/blocks/affine.wgsl");
    /// A signed integer of 8 bits.
    pub const AFFINE_I8: &str = include_str!("../wgsl/blocks/affine_i8.wgsl");
    /// An unsigned integer of 8 bits.
    pub const AFFINE_U8: &str = include_str!("../wgsl/blocks/affine_u8.wgsl");
    /// A signed integer of 4 bits.
    pub const AFFINE_I4: &str = include_str!("../wgsl/blocks/affine_i4.wgsl");
    /// An unsigned integer of 4 bits.
    pub const AFFINE_U4: &str = include_str!("../wgsl/blocks/affine_u4.wgsl");
    /// Codes of four bits into a table, with scales of blocks.
    pub const CODEBOOK4: &str = include_str!("../wgsl/blocks/codebook4.wgsl");

    /// `decode_x` by `four_x`, for the formats of GGUF files.
    pub const ELEMENT: &str = include_str!("../wgsl/blocks/element.wgsl");
    /// The readers of a buffer `x` of words: `byte_x`, `pair_x` and `word_x` read one, two and four bytes at
    /// a byte offset, and `aligned_x` a word by its number.
    pub const BYTES: &str = include_str!("../wgsl/blocks/bytes.wgsl");
}

struct Function {
    text: &'static str,
    calls: Vec<&'static str>,
}

static FUNCTIONS: LazyLock<HashMap<&'static str, Function>> = LazyLock::new(|| {
    let mut all = HashMap::new();
    for (_, library) in LIBRARIES {
        for (start, _) in library.match_indices("\nfn ") {
            let text = &library[start + 1..];
            let Some(end) = text.find("\n}\n") else { continue };
            let text = &text[..end + 3];
            let name = text[3..].split('(').next().unwrap_or_default();
            all.insert(name, Function { text, calls: calls(text).filter(|&c| c != name).collect() });
        }
    }
    all
});

/// Every identifier in `text` that is followed by an opening parenthesis.
fn calls(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('(').filter_map(|(at, _)| {
        let head = &text[..at];
        let start = head.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |i| i + 1);
        (start < at).then(|| &head[start..])
    })
}

/// The names of all library functions, sorted.
pub fn functions() -> Vec<&'static str> {
    let mut names: Vec<&str> = FUNCTIONS.keys().copied().collect();
    names.sort_unstable();
    names
}

/// `body` with every library function that it calls, directly or through others, in front.
pub fn link(body: &str) -> String {
    let mut wanted: Vec<&'static str> = Vec::new();
    let add = |name: &str, wanted: &mut Vec<&'static str>| {
        if let Some((&name, _)) = FUNCTIONS.get_key_value(name)
            && !wanted.contains(&name)
        {
            wanted.push(name);
        }
    };
    for name in calls(body) {
        add(name, &mut wanted);
    }
    let mut next = 0;
    while next < wanted.len() {
        if let Some(function) = FUNCTIONS.get(wanted[next]) {
            for name in &function.calls {
                add(name, &mut wanted);
            }
        }
        next += 1;
    }
    wanted.sort_unstable();
    let mut out = String::new();
    for name in wanted {
        if let Some(function) = FUNCTIONS.get(name) {
            out.push_str(function.text);
            out.push('\n');
        }
    }
    out.push_str(body);
    out
}
