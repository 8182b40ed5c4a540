//! Parses and validates every library function and every kernel file with naga; needs no device.
#![allow(clippy::panic, clippy::unwrap_used)]

mod compilers;

use compilers::{parts_in_a_sum, refused, shared_bool, uncounted};
use naga::{
    BinaryOperator, Expression,
    valid::{Capabilities, ValidationFlags, Validator},
};

fn validate(what: &str, source: &str) {
    let module = naga::front::wgsl::parse_str(source)
        .unwrap_or_else(|e| panic!("{what}: {}\n{source}", e.emit_to_string(source)));
    if let Err(e) = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module) {
        panic!("{what}: {}\n{source}", e.emit_to_string(source));
    }
    if let Some(constant) = refused(&module) {
        panic!("{what}: {constant}\n{source}");
    }
    if let Some(sum) = parts_in_a_sum(&module) {
        panic!("{what}: {sum}\n{source}");
    }
    assert_eq!(shared_bool(&module), None, "{what}: bool in workgroup memory\n{source}");
    assert_eq!(uncounted(&module, what), None, "{what}: a loop may not end\n{source}");
}

/// The smallest header of a kernel: library functions may read the parameters that every kernel has.
const PARAMS: &str =
    "struct Params { first_workgroup: u32 }\n@group(0) @binding(9) var<uniform> params: Params;\n";

#[test]
fn every_function_links_and_validates() {
    let names = taper_shaders::functions();
    assert!(names.len() > 60, "{names:?}");
    let calls: String = names.iter().map(|n| format!("// {n}()\n")).collect();
    validate("all functions", &taper_shaders::link(&format!("{PARAMS}{calls}")));
    for name in names {
        validate(name, &taper_shaders::link(&format!("{PARAMS}// {name}()\n")));
    }
}

#[test]
fn constants_that_chromium_refuses_are_found() {
    let f = |body: &str| format!("fn f(x: f32) -> f32 {{ {body} }}");
    for body in [
        "return bitcast<f32>(0x7f800000u);",
        "return -bitcast<f32>(0x7fc00000u) + x;",
        "return bitcast<f32>(vec2<u32>(0u, 0xff800000u)).x;",
        "const bits = 0x7f800000u; return bitcast<f32>(bits);",
    ] {
        let module = naga::front::wgsl::parse_str(&f(body)).unwrap();
        assert!(refused(&module).is_some(), "{body}");
    }
    for body in ["return bitcast<f32>(0x7f7fffffu);", "var bits = 0x7f800000u; return bitcast<f32>(bits);"] {
        let module = naga::front::wgsl::parse_str(&f(body)).unwrap();
        assert_eq!(refused(&module), None, "{body}");
    }
}

#[test]
fn sums_of_two_parts_of_a_constant_are_found() {
    let found = |body: &str| {
        let opaque = "fn opaque_f32(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x)); }";
        let text = format!("{opaque}\nfn f(x: f32, y: f32) -> f32 {{ {body} }}");
        parts_in_a_sum(&naga::front::wgsl::parse_str(&text).unwrap()).is_some()
    };
    for body in [
        "let k = round(x); return (x - k * 1.5703125) - k * 4.8375e-4;",
        "var k = round(x); k += 1.0; let high = 1.5703125 * k; return x + (y - (high + bitcast<f32>(0x3a000000u) * k));",
        "return -(x * 2.0) + (y * 3.0 - x * -0.5);",
    ] {
        assert!(found(body), "{body}");
    }
    for body in [
        "let k = round(x); return opaque_f32(x - k * 1.5703125) - k * 4.8375e-4;",
        "return (x * 2.0 + y * 3.0) * x - y * x;",
        "let p = x * 0.25 + 0.5; return p * x + 1.0;",
    ] {
        assert!(!found(body), "{body}");
    }
}

/// A fused kernel hides a value twice where a compiler could find two operands equal. The two ways differ,
/// because `x ^ z ^ z` is x but `x | z | z` is `x | z`.
#[test]
fn two_ways_to_hide_a_value_do_not_undo_each_other() {
    let way = |name: &str| {
        let text = taper_shaders::link(&format!("{PARAMS}// {name}()\n"));
        let module = naga::front::wgsl::parse_str(&text).unwrap();
        let (_, function) =
            module.functions.iter().find(|(_, function)| function.name.as_deref() == Some(name)).unwrap();
        let ways = function.expressions.iter().filter_map(|(_, e)| match e {
            Expression::Binary { op: BinaryOperator::ShiftRight, .. } => None,
            Expression::Binary { op, .. } => Some(*op),
            _ => None,
        });
        ways.collect::<Vec<_>>()
    };
    for t in ["f32", "f64"] {
        assert_eq!(way(&format!("opaque_{t}")), [BinaryOperator::ExclusiveOr]);
        assert_eq!(way(&format!("distinct_{t}")), [BinaryOperator::InclusiveOr]);
    }
}

#[test]
fn bools_in_workgroup_memory_are_found() {
    let of = |ty: &str| {
        let text = format!("struct S {{ x: u32, y: bool }}\nvar<workgroup> parts: array<{ty}, 4>;");
        shared_bool(&naga::front::wgsl::parse_str(&text).unwrap()).map(str::to_string)
    };
    for ty in ["bool", "S", "vec2<bool>"] {
        assert_eq!(of(ty).as_deref(), Some("parts"), "{ty}");
    }
    assert_eq!(of("u32"), None);
}

#[test]
fn linking_takes_what_is_needed_and_no_more() {
    let linked = taper_shaders::link("fn f(x: f32) -> f32 { return sigmoid_f32(x); }");
    assert!(linked.contains("fn exp_within_f32(") && !linked.contains("fn tanh_f32("), "{linked}");
    assert_eq!(taper_shaders::link("fn f() {}"), "fn f() {}");
}

/// The simplest header that a backend would put in front of the files.
fn kernel(source: &str, params: &str, bindings: &str, functions: &str) -> String {
    taper_shaders::link(&format!(
        "struct Params {{ {params} }}\n@group(0) @binding(9) var<uniform> params: Params;\n{bindings}\n{functions}\n{source}"
    ))
}

#[test]
fn every_block_format_validates() {
    use taper_shaders::blocks as b;
    let ggml = [
        b::Q4_0,
        b::Q4_1,
        b::Q5_0,
        b::Q5_1,
        b::Q8_0,
        b::Q2_K,
        b::Q3_K,
        b::Q4_K,
        b::Q5_K,
        b::Q6_K,
        b::IQ4_NL,
        b::IQ4_XS,
        b::TQ2_0,
        b::MXFP4,
    ];
    let affine = [b::AFFINE_I8, b::AFFINE_U8, b::AFFINE_I4, b::AFFINE_U4];
    let texts = ggml
        .map(|format| format.to_string() + b::ELEMENT)
        .into_iter()
        .chain(affine.map(|integer| format!("{integer}{}", b::AFFINE)));
    let texts = texts.chain([b::CODEBOOK4.to_string()]);
    for text in texts {
        let buffer = "@group(0) @binding(0) var<storage, read> x: array<u32>;";
        validate("blocks", &taper_shaders::link(&format!("{buffer}\n{}{text}", b::BYTES)));
    }
}

#[test]
fn every_sorting_kernel_validates() {
    for (key, less) in [("u32", "a < b"), ("vec2<u32>", "a.x < b.x || (a.x == b.x && a.y < b.y)")] {
        let functions = format!(
            "alias Key = {key};\nfn input_at(i: u32) -> u32 {{ return i; }}\nfn element(base: u32, r: u32) -> Key {{ return keys_in[base + r]; }}\nfn last_key() -> Key {{ return ~Key(); }}\nfn less(a: Key, b: Key) -> bool {{ return {less}; }}\nfn put(line: u32, place: u32, key: Key, index: u32) {{ indices_out[line + place] = index; }}"
        );
        let params = "first_workgroup: u32, total: u32, length: u32, blocks: u32, width: u32, count: u32, pairs: u32, kept: u32, parts: u32";
        let bindings = format!(
            "@group(0) @binding(0) var<storage, read> keys_in: array<{key}>;\n@group(0) @binding(1) var<storage, read> indices_in: array<u32>;\n@group(0) @binding(2) var<storage, read_write> indices_out: array<u32>;"
        );
        for (name, source) in [
            ("sort", taper_shaders::SORT_BLOCK),
            ("sort", taper_shaders::SORT_TILE),
            ("sort_merge", taper_shaders::SORT_MERGE),
        ] {
            validate(name, &kernel(source, params, &bindings, &functions));
        }
    }
    let params = "first_workgroup: u32, total: u32, length: u32, tiles: u32, shift: u32, sums: u32";
    let bindings = "@group(0) @binding(0) var<storage, read> keys: array<u32>;\n@group(0) @binding(1) var<storage, read_write> counts: array<u32>;";
    let functions = "const TILE = 3072u;\nfn line_at(line: u32) -> u32 { return line; }\nfn word(base: u32, r: u32) -> u32 { return keys[base + r]; }";
    for (name, source) in
        [("radix_count", taper_shaders::RADIX_COUNT), ("radix_offsets", taper_shaders::RADIX_OFFSETS)]
    {
        validate(name, &kernel(source, params, bindings, functions));
    }
}

#[test]
fn every_kernel_validates_in_every_element_type() {
    let binding = |n: usize, name: &str, ty: &str, access: &str| {
        format!("@group(0) @binding({n}) var<storage, {access}> {name}: array<{ty}>;\n")
    };
    // The load and store functions of a binding that the kernel calls.
    let access = |name: &str, t: &str, stored: &str| {
        let load = format!("fn load_{name}(i: u32) -> {t} {{ return {name}[i]; }}\n");
        if stored.is_empty() {
            return load;
        }
        let four = if t.starts_with("vec") {
            ""
        } else {
            "\nfn store_first_output(i: u32, x: vec4<T>, n: u32) { output[i] = x.x; }"
        };
        let four = four.replace("vec4<T>", &format!("vec4<{stored}>"));
        load + &format!("fn store_{name}(i: u32, x: {t}) {{ {name}[i] = x; }}{four}\n")
    };
    for t in ["f32", "i32", "u32", "i64", "f64"] {
        let params = "first_workgroup: u32, total: u32, run: u32, parts: u32, step: u32, run_stride: u32, start: u32, count: u32, size: u32, length: u32, index_stride: u32, src_stride: u32, output_stride: u32, axis_stride: u32";
        let by_index = |element: &str, word: &str, places: usize| {
            format!(
                "alias T = {element};\nalias Word = {word};\nconst GROUP = 8u;\nfn places(i: u32) -> vec{places}<u32> {{ return vec{places}<u32>(i); }}\nfn along(i: u32) -> u32 {{ return i; }}\nfn inside(i: u32) -> bool {{ return true; }}\nfn load_index(i: u32) -> i32 {{ return index[i]; }}\nfn index_value(w: i32) -> vec2<u32> {{ return vec2<u32>(u32(w), 0u); }}\nfn report(w: i32) {{}}\nfn one_of(a: T, b: T) -> T {{ return a + b; }}",
            )
        };
        let word = if t.ends_with("64") { "vec2<u32>" } else { "u32" };
        let forms = [("gather", taper_shaders::GATHER, word), ("gather", taper_shaders::GATHER, "vec4<u32>")];
        for (name, source, word) in
            forms.into_iter().chain([("gather_four", taper_shaders::GATHER_FOUR, "u32")])
        {
            validate(
                name,
                &kernel(
                    source,
                    params,
                    &(binding(0, "input", word, "read")
                        + &binding(1, "index", "i32", "read")
                        + &binding(2, "output", word, "read_write")),
                    &(by_index(t, word, 2) + &access("input", word, "") + &access("output", word, word)),
                ),
            );
        }
        let states = format!(
            "alias T = {t};\nalias State = T;\nfn is_carried(part: u32) -> bool {{ return part > 0u; }}\nconst ROUNDS = true;\nfn input_at(i: u32) -> u32 {{ return i; }}\nfn output_at(i: u32) -> u32 {{ return i; }}\nfn element(line: u32, base: u32, r: u32) -> T {{ return input[base + r]; }}\nfn combine(a: T, b: T) -> T {{ return a + b; }}\nfn identity() -> T {{ return T(); }}\nfn before(g: u32, base: u32) -> T {{ return input[g]; }}\nfn keep(g: u32, base: u32, r: u32, last: u32, x: T) {{ output[base + r] = x; }}"
        );
        for (name, source) in
            [("line", taper_shaders::CUMULATIVE_LINE), ("tile", taper_shaders::CUMULATIVE_TILE)]
        {
            let params = "first_workgroup: u32, total: u32, lines: u32, length: u32, splits: u32, chunk: u32";
            let bindings = binding(0, "input", t, "read") + &binding(1, "output", t, "read_write");
            validate(name, &kernel(source, params, &bindings, &states));
        }
        validate(
            "replace",
            &kernel(
                taper_shaders::SCATTER_REPLACE,
                "first_workgroup: u32, total: u32, start: u32, count: u32, size: u32, length: u32, axis_step: u32, turn_stride: u32",
                &(binding(0, "index", "i32", "read") + &binding(1, "turns", "atomic<u32>", "read_write")),
                &(by_index(t, word, 2)
                    + "fn visit(i: u32, along: u32, place: u32, turn: u32) { atomicMax(&turns[place], turn); }\n"),
            ),
        );
        let vector = format!("vec4<{t}>");
        validate(
            "keys",
            &kernel(
                taper_shaders::SCATTER_KEYS,
                "first_workgroup: u32, total: u32, start: u32, count: u32, size: u32",
                &(binding(0, "index", "i32", "read") + &binding(1, "keys", "u32", "read_write")),
                &(by_index(t, word, 2)
                    + "const NO_KEY = 0xffffffffu;\nfn index_at(i: u32) -> u32 { return i; }\n"),
            ),
        );
        for (last, element) in [("true", t), ("false", &vector)] {
            let entries = format!(
                "const CHUNK = 64u;\nconst NO_KEY = 0xffffffffu;\nconst LAST = {last};\nfn entry(e: u32) -> vec2<u32> {{ return vec2<u32>(index[e], e); }}\nfn value(i: u32, place: u32, column: u32) -> T {{ return src[i]; }}\nfn push(e: u32, column: u32, key: u32, x: T) {{ output[e] = x; }}\n"
            );
            let indices = by_index(element, word, 2).replace("-> i32", "-> u32");
            validate(
                "segments",
                &kernel(
                    taper_shaders::SCATTER_SEGMENTS,
                    "first_workgroup: u32, total: u32, columns: u32, chunks: u32, length: u32, output_stride: u32",
                    &(binding(0, "index", "u32", "read")
                        + &binding(1, "src", element, "read")
                        + &binding(2, "output", element, "read_write")),
                    &(indices + &entries + &access("output", element, element)),
                ),
            );
        }
        let put = "const EACH = 1u;\nfn put(first: u32) { store_output(first, element(first)); }\n";
        for (name, source, element, places) in [
            ("element", taper_shaders::SCATTER_ELEMENT, t, 2),
            ("line", taper_shaders::SCATTER_LINE, t, 3),
            ("line", taper_shaders::SCATTER_LINE, &vector, 3),
        ] {
            validate(
                name,
                &kernel(
                    source,
                    params,
                    &(binding(0, "index", "i32", "read")
                        + &binding(1, "src", element, "read")
                        + &binding(2, "output", element, "read_write")),
                    &(by_index(element, word, places)
                        + &access("src", element, "")
                        + &access("output", element, element)
                        + if name == "element" { put } else { "" }),
                ),
            );
        }
    }
}

/// Validates each kernel with the header that the crate `linalg` gives it.
#[test]
fn every_kernel_of_linear_algebra_validates() {
    use taper_shaders::linalg as files;
    let triangle = "const UPPER = true;\nconst UNIT = false;\nfn triangle(b: u32, i: u32, j: u32) -> T { return x[b + i * j]; }\n";
    let product = "fn left(b: u32, i: u32, k: u32) -> T { return c[b + i * k]; }\nfn right(b: u32, k: u32, j: u32) -> T { return c[b + k * j]; }\n";
    let reflector = "fn reflector(b: u32, r: u32, j: u32) -> T { return c[b + r * j]; }\n";
    let element = "fn element(b: u32, r: u32, c: u32) -> T { return infinity(); }\n";
    let keep = "fn keep(b: u32, mantissa: T, exponent: i32) { log[b] = raised(mantissa, exponent) + logarithm(mantissa); }\n";
    let pairs = files::PAIRS;
    // A kernel's source, its header, its parameters, and its buffers: numbers that are read, numbers that
    // are written, and counts.
    type Kernel<'a> = (&'a str, &'a str, &'a str, &'a [&'a str], &'a [&'a str], &'a [&'a str]);
    let kernels: &[Kernel<'_>] = &[
        (files::EACH, element, "total rows columns", &[], &["to"], &[]),
        (files::LU_PANEL, "", "rows columns start width", &[], &["w"], &["rows_of", "swaps", "codes"]),
        (files::TRIANGLE, triangle, "strips right width batch_stride offset along across", &[], &["x"], &[]),
        (
            files::UPDATE,
            product,
            "down across rows columns depth batch_stride offset ld lower",
            &[],
            &["c"],
            &[],
        ),
        (files::CHOLESKY_BLOCK, "", "size start width", &[], &["w"], &["codes"]),
        (files::REFLECT, "", "rows columns start width panel panels", &[], &["w", "factors"], &[]),
        (
            files::REFLECTED,
            reflector,
            "strips rows ld start width first right panel panels transposed",
            &["factors"],
            &["c"],
            &[],
        ),
        (files::ROW_MOST, "", "total columns", &["w"], &["mosts"], &[]),
        (files::SCALE, "", "rows", &["mosts"], &["scales"], &["codes"]),
        (files::ROTATE, pairs, "pairs columns length with_v round", &[], &["w", "v"], &["done", "moved"]),
        (files::ANGLES, pairs, "pairs size round", &["w"], &["turns"], &["done", "moved"]),
        (files::TURN, pairs, "pairs size blocks of_v round", &["turns"], &["w", "v"], &["done"]),
        (files::SETTLE, "", "last", &[], &[], &["moved", "done", "codes"]),
        (files::NORMS, "", "total length", &["w"], &["lengths"], &[]),
        (files::ORDER, "", "total count descending", &["numbers"], &[], &["at_place"]),
        (files::DETERMINANT, keep, "size", &["w"], &["log"], &["swaps"]),
    ];
    for (numbers, t) in [(files::F32, "f32"), (files::F64, "f64")] {
        for (source, header, params, read, written, counts) in kernels {
            let params: String = params.split(' ').map(|name| format!(", {name}: u32")).collect();
            let buffers = [(*read, t, "read"), (*written, t, "read_write"), (*counts, "u32", "read_write")];
            let buffers = buffers
                .iter()
                .flat_map(|(names, element, access)| names.iter().map(move |name| (name, element, access)));
            let bindings: String = buffers
                .enumerate()
                .map(|(n, (name, element, access))| {
                    format!("@group(0) @binding({n}) var<storage, {access}> {name}: array<{element}>;\n")
                })
                .collect();
            let text = format!("{numbers}\nconst BLOCK = 16u;\n{header}\n{source}");
            let params = format!("first_workgroup: u32, batch: u32{params}");
            validate(source.lines().next().unwrap_or_default(), &kernel(&text, &params, &bindings, ""));
        }
    }
}
