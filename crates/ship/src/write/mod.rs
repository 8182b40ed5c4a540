//! The files of a program: one printer with the words of three languages. `page` has the files for pages.

mod along;
mod decoders;
mod kernel;
mod language;
mod page;
mod sums;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
};

use self::kernel::KernelWriter;
pub(crate) use self::{language::Language, page::WORD};
use crate::{
    blocks::Decoder,
    description::{Description, Role, Step, Window},
    pack::Arena,
};

/// The functions of a program, and their calls.
struct Functions {
    text: String,
    /// For each step, its function, and whether that may fail.
    of_step: Vec<(usize, bool)>,
    calls: BTreeSet<&'static str>,
}

/// A file: its path and its text.
pub(crate) type File = (String, String);

/// Bytes of machine code for a statement of C or Rust, about the mean of the examples in
/// docs/benchmarks/ship.md on Cortex-M4 with `opt-level = "s"`.
const CODE_BYTES: usize = 12;

/// The files of a program, and the bytes of its code: an estimate for C and Rust.
pub(crate) fn files(language: Language, plan: &Description, arena: &Arena, name: &str) -> (Vec<File>, usize) {
    if language == Language::Wgsl {
        return page::files(plan, arena, name);
    }
    let mut functions = functions(language, plan);
    let constants = constants(language, plan, &mut functions.calls);
    let decoders = decoders(language, plan, &functions.text);
    if !decoders.is_empty() && language == Language::C {
        functions.calls.insert("bits_f32");
    }
    let helpers = language.functions(&functions.calls) + &decoders;
    let statements = [&functions.text, &helpers]
        .iter()
        .flat_map(|text| text.lines())
        .filter(|line| line.trim_end().ends_with([';', '{', ',']))
        .count();
    let files = match language {
        Language::C | Language::Wgsl => {
            let body = c_body(plan, arena, name, &functions);
            let math = if Language::needs_math(&functions.calls) { "#include <math.h>\n" } else { "" };
            let head = format!("{C_HEAD}#include \"{name}.h\"\n\n#include <stddef.h>\n{math}\n");
            let text = [head.as_str(), &helpers, "\n", &constants, &functions.text, &body].concat();
            vec![(format!("{name}.h"), c_header(plan, arena, name)), (format!("{name}.c"), text)]
        }
        Language::Rust => {
            let body = rust_body(plan, arena, &functions);
            let text = [RUST_HEAD, &helpers, &constants, &functions.text, &body].concat();
            let manifest = format!(
                "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[dependencies]\n"
            );
            vec![("Cargo.toml".into(), manifest), ("src/lib.rs".into(), text)]
        }
    };
    (files, statements * CODE_BYTES)
}

const C_HEAD: &str = "\
/* Written by Taper. Sums and products are not to be contracted: compile with -ffp-contract=off on processors
   with fused multiply-add. */
#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(__GNUC__)
#pragma GCC optimize(\"fp-contract=off\")
#endif

";

const RUST_HEAD: &str = "\
//! Written by Taper: a network as one function, without dependencies and without allocation.
#![no_std]
#![allow(dead_code, unused_comparisons, unused_parens, clippy::all)]

/// An index was outside of the axis that it selects from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadIndex;

#[repr(C, align(16))]
struct Aligned<T>(T);

";

/// The functions that decode constants in blocks for these kernels.
fn decoders(language: Language, plan: &Description, kernels: &str) -> String {
    let all: BTreeSet<&Decoder> = plan.all_blocks().map(|blocks| &blocks.decoder).collect();
    decoders::text(language, all.into_iter(), kernels)
}

/// The functions of the steps; equal kernels are one function.
fn functions(language: Language, plan: &Description) -> Functions {
    let mut known: BTreeMap<String, (usize, bool)> = BTreeMap::new();
    let mut functions = Functions { text: String::new(), of_step: Vec::new(), calls: BTreeSet::new() };
    for step in &plan.steps {
        let (body, writer) = KernelWriter::write(language, step, plan);
        let parameters = parameters(language, plan, step);
        let key = format!("{parameters}{body}");
        let number = known.len();
        let found = *known.entry(key).or_insert_with(|| {
            functions.calls.extend(&writer.calls);
            let text = &mut functions.text;
            let at = step.location.file();
            let at = at.rsplit_once('/').map_or(at, |(_, file)| file);
            let _ = writeln!(text, "/* {}, {at}:{} */", step.op, step.location.line());
            let _ = match (language, writer.may_fail) {
                (Language::C | Language::Wgsl, false) => {
                    writeln!(text, "static void kernel_{number}({parameters}) {{\n{body}}}\n")
                }
                (Language::C | Language::Wgsl, true) => {
                    writeln!(text, "static int kernel_{number}({parameters}) {{\n{body}    return 0;\n}}\n")
                }
                (Language::Rust, false) => writeln!(text, "fn kernel_{number}({parameters}) {{\n{body}}}\n"),
                (Language::Rust, true) => writeln!(
                    text,
                    "fn kernel_{number}({parameters}) -> Result<(), BadIndex> {{\n{body}    Ok(())\n}}\n"
                ),
            };
            (number, writer.may_fail)
        });
        functions.of_step.push(found);
    }
    functions
}

/// The windows of a step that are parameters of its function: outputs, and inputs that no output overwrites.
fn windows(step: &Step) -> Vec<(String, Window, bool)> {
    let outputs = step.outputs.iter().enumerate().map(|(o, &window)| (format!("y{o}"), window, true));
    let inputs = step.inputs.iter().enumerate().filter(|(k, _)| step.overwriting(*k).is_none());
    outputs.chain(inputs.map(|(k, &window)| (format!("x{k}"), window, false))).collect()
}

/// The type and the number of the elements of a window's array: blocks are bytes, and all of them.
fn array(language: Language, plan: &Description, window: Window) -> (&'static str, usize) {
    let buffer = &plan.buffers[window.buffer];
    let (dtype, all) = buffer.stored();
    (language.stored(dtype), if buffer.blocks.is_some() { all } else { window.len })
}

fn parameters(language: Language, plan: &Description, step: &Step) -> String {
    let parameter = |(name, window, is_output): (String, Window, bool)| {
        let (ty, len) = array(language, plan, window);
        match (language, is_output) {
            (Language::C | Language::Wgsl, true) => format!("{ty} *restrict {name}"),
            (Language::C | Language::Wgsl, false) => format!("const {ty} *restrict {name}"),
            (Language::Rust, true) => format!("{name}: &mut [{ty}; {len}]"),
            (Language::Rust, false) => format!("{name}: &[{ty}; {len}]"),
        }
    };
    windows(step).into_iter().map(parameter).collect::<Vec<_>>().join(", ")
}

/// The static data.
fn constants(language: Language, plan: &Description, calls: &mut BTreeSet<&'static str>) -> String {
    let mut text = String::new();
    for (id, buffer) in plan.buffers.iter().enumerate() {
        let Role::Constant(bytes) = &buffer.role else { continue };
        let (dtype, numel) = buffer.stored();
        let (ty, elements) = (language.stored(dtype), language.elements(dtype, bytes, calls));
        let _ = match language {
            Language::C | Language::Wgsl => {
                writeln!(text, "static const {ty} C{id}[{numel}] = {{\n{elements}\n}};\n")
            }
            Language::Rust => {
                writeln!(text, "static C{id}: Aligned<[{ty}; {numel}]> = Aligned([\n{elements}\n]);\n")
            }
        };
    }
    text
}

/// The arguments and the results as parameters of the program.
fn signature(language: Language, plan: &Description) -> String {
    let mut parts = Vec::new();
    for (k, (shape, dtype, _)) in plan.arguments.iter().enumerate() {
        let (ty, numel) = (language.stored(*dtype), shape.numel());
        parts.push(language.native(format!("const {ty} x{k}[{numel}]"), format!("x{k}: &[{ty}; {numel}]")));
    }
    for (k, (shape, buffer)) in plan.results.iter().enumerate() {
        let (ty, numel) = (language.stored(plan.buffers[*buffer].dtype), shape.numel());
        parts.push(language.native(format!("{ty} y{k}[{numel}]"), format!("y{k}: &mut [{ty}; {numel}]")));
    }
    parts.join(", ")
}

/// The shapes of the arguments and the results, for a comment.
fn shapes(plan: &Description) -> String {
    let arguments =
        plan.arguments.iter().enumerate().map(|(k, (shape, dtype, _))| format!("x{k} {dtype} {shape}"));
    let results = plan.results.iter().enumerate();
    let results = results.map(|(k, (shape, buffer))| format!("y{k} {} {shape}", plan.buffers[*buffer].dtype));
    arguments.chain(results).collect::<Vec<_>>().join(", ")
}

fn c_header(plan: &Description, arena: &Arena, name: &str) -> String {
    let upper = name.to_uppercase();
    let bytes = arena.bytes.max(8).next_multiple_of(8);
    format!(
        "/* Written by Taper: a network as one function, without allocation. */\n\
         #ifndef {upper}_H\n#define {upper}_H\n\n#include <stdint.h>\n\n\
         #ifdef __cplusplus\nextern \"C\" {{\n#endif\n\n\
         /* The working memory; its contents before a call do not matter. */\n\
         #define {upper}_ARENA_BYTES {bytes}\n\
         typedef union {{ uint64_t align; unsigned char bytes[{upper}_ARENA_BYTES]; }} {name}_arena;\n\n\
         /* {}. Returns 0, or 1 if an index is outside of the axis that it selects from. */\n\
         int {name}_run({name}_arena *arena, {});\n\n\
         #ifdef __cplusplus\n}}\n#endif\n\n#endif\n",
        shapes(plan),
        signature(Language::C, plan)
    )
}

/// The address of a window.
fn address(language: Language, plan: &Description, arena: &Arena, window: Window) -> String {
    let Window { buffer, start, .. } = window;
    let own = &plan.buffers[buffer];
    // A decoder counts from the first element of all blocks.
    let start = if own.blocks.is_some() { 0 } else { start };
    let ty = language.stored(own.dtype);
    let offset = arena.offsets[buffer].unwrap_or(0) + start * own.dtype.size();
    let plus = |base: String| {
        if start == 0 {
            base
        } else {
            language.native(format!("{base} + {start}"), format!("{base}.add({start})"))
        }
    };
    match &own.role {
        Role::Argument(k) => plus(language.native(format!("x{k}"), format!("x{k}.as_ptr()"))),
        Role::Result(k) => plus(language.native(format!("y{k}"), format!("y{k}.as_mut_ptr()"))),
        Role::Constant(_) => plus(language.native(format!("C{buffer}"), format!("C{buffer}.0.as_ptr()"))),
        Role::Arena => language.native(
            format!("({ty} *)(void *)(arena->bytes + {offset})"),
            format!("base.add({offset}).cast::<{ty}>()"),
        ),
    }
}

fn c_body(plan: &Description, arena: &Arena, name: &str, functions: &Functions) -> String {
    let mut text = format!("int {name}_run({name}_arena *arena, {}) {{\n", signature(Language::C, plan));
    text.push_str("    (void)arena;\n");
    for (k, _) in plan.arguments.iter().enumerate().filter(|(_, (_, _, buffer))| buffer.is_none()) {
        let _ = writeln!(text, "    (void)x{k};");
    }
    for (step, &(number, may_fail)) in plan.steps.iter().zip(&functions.of_step) {
        let windows = windows(step);
        let arguments: Vec<String> =
            windows.iter().map(|(_, window, _)| address(Language::C, plan, arena, *window)).collect();
        let call = format!("kernel_{number}({})", arguments.join(", "));
        let _ = match may_fail {
            true => writeln!(text, "    if ({call}) return 1;"),
            false => writeln!(text, "    {call};"),
        };
    }
    text.push_str("    return 0;\n}\n");
    text
}

fn rust_body(plan: &Description, arena: &Arena, functions: &Functions) -> String {
    let bytes = arena.bytes;
    let mut text = format!(
        "/// The bytes of [`Arena`].\npub const ARENA_BYTES: usize = {bytes};\n\n\
         /// The working memory; its contents before a call do not matter.\n\
         #[repr(C, align(16))]\npub struct Arena([u8; ARENA_BYTES]);\n\n\
         impl Arena {{\n    /// Working memory, for a `static` or the stack.\n    \
         pub const fn new() -> Arena {{\n        Arena([0; ARENA_BYTES])\n    }}\n}}\n\n\
         /// {}.\n///\n/// # Errors\n/// An index is outside of the axis that it selects from.\n\
         pub fn run(arena: &mut Arena, {}) -> Result<(), BadIndex> {{\n    \
         let base = arena.0.as_mut_ptr();\n    let _ = base;\n",
        shapes(plan),
        signature(Language::Rust, plan)
    );
    for (step, &(number, may_fail)) in plan.steps.iter().zip(&functions.of_step) {
        let arguments = windows(step).into_iter().map(|(_, window, is_output)| {
            let (ty, len) = array(Language::Rust, plan, window);
            let address = address(Language::Rust, plan, arena, window);
            let reference = if is_output { "&mut " } else { "&" };
            format!("{reference}*{address}.cast::<[{ty}; {len}]>()")
        });
        let arguments = arguments.collect::<Vec<_>>().join(", ");
        let mark = if may_fail { "?" } else { "" };
        let _ = writeln!(
            text,
            "    // SAFETY: the windows of a call are inside of their arrays, aligned, and apart from the one written."
        );
        let _ = writeln!(text, "    unsafe {{ kernel_{number}({arguments}) }}{mark};");
    }
    text.push_str("    Ok(())\n}\n");
    text
}
