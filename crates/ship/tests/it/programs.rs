//! Programs of several functions, compiled by gcc, clang and rustc, and on a page. Their results are compared
//! with the interpreter's, and these with the CPU's.

use std::{fmt::Write, fs, path::Path, process::Command};

use autograd::{Compiled, compile, no_grad};
use ship::{Shipment, Sizes, Target, ship};
use tensor_core::{DType, Result, Scalar, Shape, Tensor};

use crate::{pages, qemu};

/// The sanitizers of the C compilers, and warnings as errors.
const C_FLAGS: &[&str] =
    &["-std=c99", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsanitize=address,undefined"];

/// A function with its arguments and with what the CPU gives for them.
pub(crate) struct Case {
    name: String,
    programs: [Shipment; 2],
    /// The program for pages, unless it has what those cannot compute.
    page: Option<Shipment>,
    arguments: Vec<Vec<u8>>,
    on_cpu: Vec<Vec<u8>>,
    /// The greatest difference from the CPU, relative to 1 and to the number.
    tolerance: f64,
}

impl Case {
    /// The same program for other arguments, for which no results are known.
    pub(crate) fn with_arguments(self, arguments: &[Tensor]) -> Case {
        Case { arguments: arguments.iter().map(bytes).collect(), ..self }
    }

    pub(crate) fn sizes(&self) -> &Sizes {
        self.programs[0].sizes()
    }

    /// The source of the program in C.
    pub(crate) fn c_text(&self) -> &str {
        &self.programs[0].files()[1].1
    }

    /// Leaves the program in C and Rust in a folder.
    pub(crate) fn write(&self, folder: &Path) {
        for (program, language) in self.programs.iter().zip(["c", "rust"]) {
            program.write(&folder.join(format!("{}_{language}", self.name))).unwrap();
        }
    }

    /// The only result, of f32, by the interpreter.
    pub(crate) fn interpreted(&self) -> Vec<f32> {
        let result = self.programs[0].interpret(&self.arguments).unwrap().remove(0);
        result.chunks_exact(4).map(|four| f32::from_ne_bytes(four.try_into().unwrap())).collect()
    }

    /// Compares the only result on a Cortex-M4, where there is QEMU, with the interpreter; gives the
    /// instructions.
    pub(crate) fn on_microcontroller(&self) -> Option<u64> {
        let (found, instructions) = qemu::run(&self.programs[0], &self.name, &self.arguments)?;
        assert_eq!(vec![found], self.programs[0].interpret(&self.arguments).unwrap(), "{}", self.name);
        Some(instructions)
    }

    pub(crate) fn interpreter_error(&self) -> String {
        self.programs[0].interpret(&self.arguments).unwrap_err().to_string()
    }
}

/// Ships a function in every language.
pub(crate) fn case(
    name: &str,
    tolerance: f64,
    arguments: Vec<Tensor>,
    function: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>,
) -> Case {
    shipped(name, tolerance, arguments, function, None)
}

/// Ships a function in Rust and C alone: a page refuses it, or has other bounds.
pub(crate) fn native_case(
    name: &str,
    tolerance: f64,
    arguments: Vec<Tensor>,
    function: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    refusal: &str,
) -> Case {
    shipped(name, tolerance, arguments, function, Some(refusal))
}

/// `refusal` is a part of the error of a page, or empty for a case that has none.
fn shipped(
    name: &str,
    tolerance: f64,
    arguments: Vec<Tensor>,
    function: impl Fn(&[Tensor]) -> Result<Vec<Tensor>>,
    refusal: Option<&str>,
) -> Case {
    let compiled: Compiled<Vec<Tensor>, Vec<Tensor>, _> = compile(|x: Vec<Tensor>| function(&x));
    let results = no_grad(|| compiled.call(arguments.clone())).unwrap();
    let on_cpu = results.iter().map(bytes).collect();
    let name = format!("case_{name}");
    let program = |target| ship(&compiled, target).unwrap().named(&name).unwrap();
    let programs = [program(Target::C), program(Target::Rust)];
    let page = match refusal {
        None => Some(program(Target::Wgsl)),
        Some("") => None,
        Some(refusal) => {
            let text = ship(&compiled, Target::Wgsl).unwrap_err().to_string();
            assert!(text.contains(refusal) && text.contains(".rs:"), "{name}: {text}");
            None
        }
    };
    Case { name, programs, page, arguments: arguments.iter().map(bytes).collect(), on_cpu, tolerance }
}

/// The elements of a tensor in the host's bytes.
pub(crate) fn bytes(tensor: &Tensor) -> Vec<u8> {
    let values = tensor.to_vec::<f64>();
    let scalars: Vec<tensor_core::Scalar> = match tensor.dtype() {
        DType::F32 | DType::F64 => values.unwrap().into_iter().map(Into::into).collect(),
        DType::Bool => tensor.to_vec::<bool>().unwrap().into_iter().map(Into::into).collect(),
        _ => tensor.to_vec::<i64>().unwrap().into_iter().map(Into::into).collect(),
    };
    tensor_core::Scalar::to_bytes(tensor.dtype(), &scalars)
}

/// Compiles and runs all cases in each language, and compares them with the interpreter and the CPU.
pub(crate) fn check(cases: &[Case]) {
    let expected: Vec<Vec<Vec<u8>>> = cases.iter().map(interpreted).collect();
    let folder = tempfile::tempdir().unwrap();
    let input: Vec<u8> = cases.iter().flat_map(|case| case.arguments.iter().flatten().copied()).collect();
    fs::write(folder.path().join("input"), input).unwrap();
    write_c(folder.path(), cases);
    let sources: Vec<String> = cases.iter().map(|case| format!("{}.c", case.name)).collect();
    for compiler in ["gcc", "clang"] {
        let mut command = Command::new(compiler);
        command.args(C_FLAGS).arg("main.c").args(&sources).args(["-o", compiler, "-lm"]);
        compare(cases, &expected, &built_and_run(folder.path(), command, compiler), compiler);
    }
    write_rust(folder.path(), cases);
    let mut command = Command::new("rustc");
    command.args(["--edition", "2021", "-O", "-C", "debug-assertions=on", "main.rs", "-o", "rust"]);
    compare(cases, &expected, &built_and_run(folder.path(), command, "rust"), "rustc");
    check_pages(cases, &expected);
}

/// The greatest difference of a page's floats from the interpreter's, relative to 1 and to the number: the
/// functions of pages have other polynomials, and WGSL lets compilers fuse products and sums.
const PAGE_TOLERANCE: f64 = 3e-5;

/// Compares the programs for pages with the interpreter: integers are the same.
fn check_pages(cases: &[Case], expected: &[Vec<Vec<u8>>]) {
    let folder = tempfile::tempdir().unwrap();
    let of_pages: Vec<(&Case, &Shipment, &Vec<Vec<u8>>)> = cases
        .iter()
        .zip(expected)
        .filter_map(|(case, expected)| Some((case, case.page.as_ref()?, expected)))
        .collect();
    if of_pages.is_empty() {
        return;
    }
    for (case, page, _) in &of_pages {
        let shader = &page.files()[0].1;
        validate(&case.name, shader);
        page.write(folder.path()).unwrap();
    }
    let input: Vec<u8> =
        of_pages.iter().flat_map(|(case, ..)| case.arguments.iter().flatten().copied()).collect();
    fs::write(folder.path().join("input"), input).unwrap();
    let names: Vec<&str> = of_pages.iter().map(|(case, ..)| case.name.as_str()).collect();
    let Some(output) = pages::results(folder.path(), &names) else { return };
    let mut output = output.unwrap().into_iter();
    for (case, page, expected) in of_pages {
        for (k, ((_, dtype), expected)) in page.results().zip(expected).enumerate() {
            let found: Vec<u8> = output.by_ref().take(expected.len()).collect();
            assert_eq!(found.len(), expected.len(), "{}", case.name);
            let [found, expected] = [&found, expected].map(|bytes| Scalar::from_bytes(dtype, bytes));
            for (at, (found, expected)) in found.into_iter().zip(expected).enumerate() {
                let (a, b) = (found.as_f64(), expected.as_f64());
                let bound = if dtype.is_float() { PAGE_TOLERANCE * b.abs().max(1.0) } else { 0.0 };
                let near = a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= bound;
                assert!(near, "{} on a page: element {at} of result {k} is {a:e}, not {b:e}", case.name);
            }
        }
    }
    assert_eq!(output.next(), None);
}

/// The error of a page for a case with wrong arguments.
pub(crate) fn page_error(case: &Case) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    case.page.as_ref().unwrap().write(folder.path()).unwrap();
    fs::write(folder.path().join("input"), case.arguments.concat()).unwrap();
    pages::results(folder.path(), &[&case.name]).map(Result::unwrap_err)
}

fn validate(name: &str, shader: &str) {
    let module = naga::front::wgsl::parse_str(shader);
    let module = module.unwrap_or_else(|error| panic!("{name}: {}", error.emit_to_string(shader)));
    let (flags, capabilities) = (naga::valid::ValidationFlags::all(), naga::valid::Capabilities::empty());
    let validated = naga::valid::Validator::new(flags, capabilities).validate(&module);
    validated.unwrap_or_else(|error| panic!("{name}: {}\n{shader}", error.emit_to_string(shader)));
}

/// The interpreter's results, which are close to the CPU's.
fn interpreted(case: &Case) -> Vec<Vec<u8>> {
    let c = &case.programs[0];
    let found = c.interpret(&case.arguments).unwrap();
    let sizes = c.sizes();
    assert!(sizes.arena * 10 <= sizes.peak * 11, "{}: {sizes:?} is not packed", case.name);
    for (k, ((_, dtype), (found, on_cpu))) in c.results().zip(found.iter().zip(&case.on_cpu)).enumerate() {
        let numbers = |bytes: &[u8]| tensor_core::Scalar::from_bytes(dtype, bytes);
        assert_eq!(found.len(), on_cpu.len(), "{}", case.name);
        for (at, (found, on_cpu)) in numbers(found).into_iter().zip(numbers(on_cpu)).enumerate() {
            let (a, b) = (found.as_f64(), on_cpu.as_f64());
            let near =
                a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= case.tolerance * b.abs().max(1.0);
            assert!(near, "{}: element {at} of result {k} is {a:e}, and {b:e} on the CPU", case.name);
        }
    }
    found
}

fn built_and_run(folder: &Path, mut command: Command, program: &str) -> Vec<u8> {
    let built = command.current_dir(folder).output();
    let built = built.unwrap_or_else(|e| panic!("{command:?} does not start, and this test needs it: {e}"));
    assert!(built.status.success(), "{command:?}: {}", String::from_utf8_lossy(&built.stderr));
    let run = Command::new(folder.join(program)).current_dir(folder).output().unwrap();
    assert!(run.status.success(), "{program}: {}", String::from_utf8_lossy(&run.stderr));
    fs::read(folder.join("output")).unwrap()
}

fn compare(cases: &[Case], expected: &[Vec<Vec<u8>>], output: &[u8], by: &str) {
    let mut output = output.iter().copied();
    for (case, expected) in cases.iter().zip(expected) {
        for (k, ((_, dtype), expected)) in case.programs[0].results().zip(expected).enumerate() {
            let found: Vec<u8> = output.by_ref().take(expected.len()).collect();
            let numbers = |bytes: &[u8]| tensor_core::Scalar::from_bytes(dtype, bytes);
            let size = dtype.size();
            for (at, (a, b)) in found.chunks(size).zip(expected.chunks(size)).enumerate() {
                let nan = |bytes: &[u8]| numbers(bytes)[0].as_f64().is_nan();
                assert!(
                    a == b || nan(a) && nan(b),
                    "{} by {by}: element {at} of result {k} is {:?}, not {:?}",
                    case.name,
                    numbers(a),
                    numbers(b)
                );
            }
        }
    }
    assert_eq!(output.next(), None);
}

/// The arguments and the results of a program: a name, a type and a number of elements for each.
fn arrays(case: &Case, c: bool) -> Vec<(String, &'static str, usize, bool)> {
    let ty = |dtype: DType| match dtype {
        DType::F32 => ["f32", "float"],
        DType::F64 => ["f64", "double"],
        DType::Bool | DType::U8 => ["u8", "uint8_t"],
        DType::I8 => ["i8", "int8_t"],
        DType::I16 => ["i16", "int16_t"],
        DType::I32 => ["i32", "int32_t"],
        DType::I64 => ["i64", "int64_t"],
        DType::U32 => ["u32", "uint32_t"],
        other => panic!("{other} in a test"),
    };
    let one = |prefix: &str, k: usize, (shape, dtype): (&Shape, DType), is_result| {
        (format!("{prefix}{k}"), ty(dtype)[usize::from(c)], shape.numel(), is_result)
    };
    let program = &case.programs[0];
    let arguments = program.arguments().enumerate().map(|(k, of)| one("x", k, of, false));
    arguments.chain(program.results().enumerate().map(|(k, of)| one("y", k, of, true))).collect()
}

fn write_c(folder: &Path, cases: &[Case]) {
    let mut main = "#include <stdio.h>\n".to_string();
    let mut calls = String::new();
    for case in cases {
        case.programs[0].write(folder).unwrap();
        let name = &case.name;
        writeln!(main, "#include \"{name}.h\"").unwrap();
        writeln!(calls, "  {{ static {name}_arena arena;").unwrap();
        let arrays = arrays(case, true);
        for (array, ty, numel, is_result) in &arrays {
            writeln!(calls, "    static {ty} {array}[{numel}];").unwrap();
            if !is_result {
                writeln!(calls, "    if (fread({array}, sizeof {array}, 1, in) != 1) return 2;").unwrap();
            }
        }
        let names: Vec<&str> = arrays.iter().map(|(array, ..)| array.as_str()).collect();
        writeln!(calls, "    if ({name}_run(&arena, {})) return 3;", names.join(", ")).unwrap();
        for (array, ..) in arrays.iter().filter(|(.., is_result)| *is_result) {
            writeln!(calls, "    fwrite({array}, sizeof {array}, 1, out);").unwrap();
        }
        writeln!(calls, "  }}").unwrap();
    }
    let open = "int main(void) {\n  FILE *in = fopen(\"input\", \"rb\"), *out = fopen(\"output\", \"wb\");\n";
    let text = format!(
        "{main}{open}  if (!in || !out) return 1;\n{calls}  fclose(in);\n  return fclose(out);\n}}\n"
    );
    fs::write(folder.join("main.c"), text).unwrap();
}

fn write_rust(folder: &Path, cases: &[Case]) {
    let mut main = "use std::{fs, io::Write};\n".to_string();
    let mut calls = String::new();
    for case in cases {
        let name = &case.name;
        let text = &case.programs[1].files()[1].1;
        assert!(text.contains("#![no_std]"));
        fs::write(folder.join(format!("{name}.rs")), text.replace("#![no_std]", "")).unwrap();
        writeln!(main, "mod {name};").unwrap();
        writeln!(calls, "  {{ let mut arena = Box::new({name}::Arena::new());").unwrap();
        let arrays = arrays(case, false);
        for (array, ty, numel, is_result) in &arrays {
            writeln!(calls, "    let mut {array} = Box::new([0 as {ty}; {numel}]);").unwrap();
            if !is_result {
                writeln!(
                    calls,
                    "    for x in {array}.iter_mut() {{ let (one, rest) = input.split_at(size_of::<{ty}>());
                     *x = {ty}::from_ne_bytes(one.try_into().unwrap()); input = rest; }}"
                )
                .unwrap();
            }
        }
        let reference = |is_result: bool| if is_result { "&mut " } else { "&" };
        let names: Vec<String> =
            arrays.iter().map(|(array, .., is_result)| format!("{}{array}", reference(*is_result))).collect();
        writeln!(calls, "    {name}::run(&mut arena, {}).unwrap();", names.join(", ")).unwrap();
        for (array, ..) in arrays.iter().filter(|(.., is_result)| *is_result) {
            writeln!(calls, "    for y in {array}.iter() {{ out.write_all(&y.to_ne_bytes()).unwrap(); }}")
                .unwrap();
        }
        writeln!(calls, "  }}").unwrap();
    }
    let open = "#[allow(unused_mut)]\nfn main() {\n  let input = fs::read(\"input\").unwrap();\n  let mut input = &input[..];\n  \
                let mut out = std::io::BufWriter::new(fs::File::create(\"output\").unwrap());\n";
    fs::write(folder.join("main.rs"), format!("{main}{open}{calls}}}\n")).unwrap();
}
