//! Every library function and every kernel file, parsed and validated by naga with no device.
#![allow(clippy::panic)]

use naga::valid::{Capabilities, ValidationFlags, Validator};

fn validate(what: &str, source: &str) {
    let module = naga::front::wgsl::parse_str(source)
        .unwrap_or_else(|e| panic!("{what}: {}\n{source}", e.emit_to_string(source)));
    if let Err(e) = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module) {
        panic!("{what}: {}\n{source}", e.emit_to_string(source));
    }
}

#[test]
fn every_function_links_and_validates() {
    let names = taper_shaders::functions();
    assert!(names.len() > 60, "{names:?}");
    let calls: String = names.iter().map(|n| format!("// {n}()\n")).collect();
    validate("all functions", &taper_shaders::link(&calls));
    for name in names {
        validate(name, &taper_shaders::link(&format!("// {name}()\n")));
    }
}

#[test]
fn linking_takes_what_is_needed_and_no_more() {
    let linked = taper_shaders::link("fn f(x: f32) -> f32 { return sigmoid_f32(x); }");
    assert!(linked.contains("fn exp_f32(") && !linked.contains("fn tanh_f32("), "{linked}");
    assert_eq!(taper_shaders::link("fn f() {}"), "fn f() {}");
}

/// The header that a backend would put in front of the files, at its simplest.
fn kernel(source: &str, params: &str, bindings: &str, functions: &str) -> String {
    taper_shaders::link(&format!(
        "struct Params {{ {params} }}\n@group(0) @binding(9) var<uniform> params: Params;\n{bindings}\n{functions}\n{source}"
    ))
}

#[test]
fn every_kernel_validates_in_every_element_type() {
    let binding = |n: usize, name: &str, ty: &str, access: &str| {
        format!("@group(0) @binding({n}) var<storage, {access}> {name}: array<{ty}>;\n")
    };
    for t in ["f32", "i32", "u32", "i64", "f64"] {
        let params = "first_group: u32, total: u32, size: u32, length: u32, index_stride: u32, src_stride: u32, output_stride: u32, axis_stride: u32";
        let functions = format!(
            "alias T = {t};\nalias Word = {};\nalias IndexWord = i32;\n{}\nfn inside(i: u32) -> bool {{ return true; }}\nfn index_value(w: i32) -> vec2<u32> {{ return vec2<u32>(u32(w), 0u); }}\nfn report(w: i32) {{}}\nfn store(x: T) -> T {{ return x; }}\nfn add(a: T, b: T) -> T {{ return a + b; }}",
            if t.ends_with("64") { "vec2<u32>" } else { "u32" },
            ["input_at", "index_at", "src_at", "base_at", "output_at", "along"]
                .map(|f| format!("fn {f}(i: u32) -> u32 {{ return i; }}\n"))
                .concat(),
        );
        let word = if t.ends_with("64") { "vec2<u32>" } else { "u32" };
        validate(
            "gather",
            &kernel(
                taper_shaders::GATHER,
                params,
                &(binding(0, "input", word, "read")
                    + &binding(1, "index", "i32", "read")
                    + &binding(2, "output", word, "read_write")),
                &functions,
            ),
        );
        for (name, source) in
            [("element", taper_shaders::SCATTER_ELEMENT), ("line", taper_shaders::SCATTER_LINE)]
        {
            validate(
                name,
                &kernel(
                    source,
                    params,
                    &(binding(0, "base", t, "read")
                        + &binding(1, "index", "i32", "read")
                        + &binding(2, "src", t, "read")
                        + &binding(3, "output", t, "read_write")),
                    &functions,
                ),
            );
        }
    }
}
