//! The epilogue of a contraction: a kernel stores its results unchanged or through an elementwise program.
//!
//! The program is called for each result that an invocation holds in registers. If that is not possible,
//! the program runs as a map over the sums.

use smallvec::SmallVec;
use tensor_core::{
    DType, Result, collapse,
    kernel::{Body, Kernel, Program},
};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatch, Dispatches, Resource},
        dtypes::{FIELDS, element_or_last, is_packed, loaded, storage_size},
        formulas,
        index::Space,
        storage::Elements,
        wgsl::Code,
    },
    kernels::{cut::Aliases, map::elementwise},
};

/// The name of output `o`.
fn output_name(o: usize) -> String {
    if o == 0 { "output".into() } else { format!("output{o}") }
}

/// Generates the stores of results to their outputs.
pub(crate) struct Store {
    /// The dtypes of the outputs.
    outputs: SmallVec<[DType; 2]>,
    has_program: bool,
    /// Whether results are sums of parts, which go to a temporary.
    of_parts: bool,
}

impl Store {
    /// Adds the functions, parameters and operands needed for storing to a dispatch of `kernel`. Its code
    /// has an alias `T` for the type of sums.
    pub(crate) fn new(kernel: &Kernel, d: &mut Dispatch, capabilities: &Capabilities) -> Result<Store> {
        let outputs = kernel.outputs.iter().map(|output| output.dtype).collect();
        let sums = kernel.operands[0].dtype;
        match (&kernel.body, kernel.epilogue_map()) {
            (Body::Contract(Some(program)), Some(map)) => {
                d.code.append(&formulas::function(program, false, &mut d.params, capabilities)?);
                finish(&map, sums, program, d);
                Ok(Store { outputs, has_program: true, of_parts: false })
            }
            _ => Ok(Store { outputs, has_program: false, of_parts: false }),
        }
    }

    /// Stores sums of parts, each in words of its own, to the first temporary.
    pub(crate) fn of_parts(dtype: DType) -> Store {
        Store { outputs: SmallVec::from_slice(&[dtype]), has_program: false, of_parts: true }
    }

    /// Binds the outputs, in vectors of four if `vectors` is set.
    pub(crate) fn bind(&self, vectors: bool, d: &mut Dispatch) {
        if self.of_parts {
            return d.bind(
                output_name(0),
                Elements::words("T").in_fours(vectors),
                true,
                Resource::Temporary(0),
            );
        }
        for (o, &dtype) in self.outputs.iter().enumerate() {
            d.bind(output_name(o), Elements::of(dtype).in_fours(vectors), true, Resource::Output(o));
        }
    }

    /// Whether outputs can be written in vectors of four.
    pub(crate) fn takes_vectors(&self) -> bool {
        self.outputs.iter().all(|&dtype| storage_size(dtype) <= 4)
    }

    /// Stores the results in vector `x` at flat positions `at` to `at + 3`, limited to the columns that
    /// exist from `column` on.
    pub(crate) fn up_to_four(&self, at: &str, column: &str, x: &str, c: &mut Code) {
        if !self.outputs.iter().any(|&dtype| is_packed(dtype)) {
            for (e, field) in FIELDS.iter().enumerate() {
                c.when(format_args!("{column} + {e}u < params.n"), |c| {
                    self.one(&format!("{at} + {e}u"), &format!("{x}.{field}"), c);
                });
            }
            return;
        }
        c.when(format_args!("{column} < params.n"), |c| {
            let count = format!("(params.n - ({column}))");
            self.stored(at, x, Some(&count), c, |name, four| {
                format!("store_some_{name}({at}, {four}, {count});")
            });
        });
    }

    /// Stores the result `x` at flat position `at`, which is a name or a constant expression.
    pub(crate) fn one(&self, at: &str, x: &str, c: &mut Code) {
        if !self.has_program {
            return c.line(format_args!("store_output({at}, {x});"));
        }
        c.block("", |c| {
            c.bind("y", format_args!("finish({at}, {x})"));
            for (name, field) in self.fields() {
                c.line(format_args!("store_{name}({at}, y{field});"));
            }
        });
    }

    /// Stores the results in vector `x` at flat positions `at` to `at + 3`, which form a whole vector of
    /// each output.
    pub(crate) fn four(&self, at: &str, x: &str, c: &mut Code) {
        self.stored(at, x, None, c, |name, four| format!("store4_{name}({at}, {four});"));
    }

    /// Stores the results in vector `x` at flat positions `at` to `at + 3`, with a statement made from the
    /// name and the elements of each output. If only `count` positions exist, no operand is read beyond.
    fn stored(
        &self,
        at: &str,
        x: &str,
        count: Option<&str>,
        c: &mut Code,
        statement: impl Fn(&str, &str) -> String,
    ) {
        if !self.has_program {
            return c.line(statement("output", x));
        }
        c.block("", |c| {
            for (e, field) in FIELDS.iter().enumerate() {
                let e_or_last = element_or_last(e, count);
                c.bind(format_args!("y{e}"), format_args!("finish({at} + {e_or_last}, {x}.{field})"));
            }
            for ((name, field), &dtype) in self.fields().zip(&self.outputs) {
                let four = [0, 1, 2, 3].map(|e| format!("y{e}{field}")).join(", ");
                c.line(statement(&name, &format!("vec4<{}>({four})", loaded(dtype))));
            }
        });
    }

    /// Each output's name, and the field of the program's result that holds its value.
    fn fields(&self) -> impl Iterator<Item = (String, String)> {
        let several = self.outputs.len() > 1;
        let field = move |o: usize| if several { format!(".o{o}") } else { String::new() };
        (0..self.outputs.len()).map(move |o| (output_name(o), field(o)))
    }
}

/// Writes the function `finish(i, x)`: the program's results for the sum `x` at flat position `i`. Binds
/// the operands that it reads.
fn finish(map: &Kernel, sums: DType, program: &Program, d: &mut Dispatch) {
    let layouts: SmallVec<[_; 4]> = map.operands.iter().skip(1).map(|operand| &operand.layout).collect();
    let strides: SmallVec<[&[isize]; 4]> = layouts.iter().map(|layout| layout.strides()).collect();
    let merged = collapse(&map.space, &strides);
    let space = Space::new("e", &merged.shape, &mut d.params);
    let flat = tensor_core::Shape::from(merged.shape.as_slice()).contiguous_strides();
    let mut coordinates = false;
    // The sum is hidden from the compiler, so that it cannot rearrange the sum together with the epilogue.
    let mut list = formulas::opaque(sums, "x");
    for (k, (layout, strides)) in layouts.iter().zip(&merged.strides).enumerate() {
        d.params.size(format!("eo{k}"), layout.offset());
        let at = if strides.iter().all(|&s| s == 0) {
            format!("params.eo{k}")
        } else if strides[..] == flat[..] {
            format!("params.eo{k} + i")
        } else {
            coordinates = true;
            format!("params.eo{k}{}", space.offset(&format!("t{k}"), strides, &mut d.params))
        };
        d.bind(format!("more{k}"), Elements::of(program.inputs[k + 1]), false, Resource::Input(k + 2));
        list.push_str(&format!(", load_more{k}({at})"));
    }
    let result = match program.outputs[..] {
        [_] => loaded(program.output_dtype(0)),
        _ => "Results",
    };
    d.code.function("finish", &[("i", "u32"), ("x", "T")], result, |c| {
        if coordinates {
            c.append(&space.unravel("i"));
        }
        c.line(format_args!("return program(i, {list});"));
    });
}

/// Whether several invocations store parts of one word, if each stores up to four of the `n` results of
/// a row.
pub(crate) fn shares_words(kernel: &Kernel, n: usize) -> bool {
    let wide = kernel.outputs.iter().any(|output| storage_size(output.dtype) > 4);
    kernel.outputs.iter().any(|output| is_packed(output.dtype)) && (wide || !n.is_multiple_of(4))
}

/// The contraction without epilogue; sums of half types are stored as f32, which skips only the final
/// rounding.
pub(crate) fn sums(kernel: &Kernel) -> Kernel {
    let mut sums = kernel.without_epilogue();
    let stored = kernel.operands[0].dtype.register();
    sums.outputs.iter_mut().for_each(|output| output.dtype = stored);
    sums
}

/// The epilogue of a kernel as a map over its sums, which are stored in `from`.
pub(crate) fn apart(kernel: &Kernel, from: Resource, capabilities: &Capabilities) -> Result<Vec<Dispatch>> {
    let Some(map) = kernel.epilogue_map() else { return Ok(Vec::new()) };
    let Body::Map(program) = &map.body else { return Ok(Vec::new()) };
    let aliases = Aliases::from_elem(None, map.operands.len());
    // The sums of half types are f32, one to a word.
    let dtype = kernel.operands[0].dtype;
    let mut made: Dispatches = elementwise::dispatches(&map, program, &aliases, 0, capabilities)?;
    for binding in made.bindings() {
        if binding.resource == Resource::Input(0) && dtype.register() != dtype {
            binding.elements.unpack();
        }
        binding.resource = match binding.resource {
            Resource::Input(0) => from,
            Resource::Input(k) => Resource::Input(k + 1),
            other @ (Resource::Output(_) | Resource::Temporary(_) | Resource::Faults) => other,
        };
    }
    Ok(made.list)
}
