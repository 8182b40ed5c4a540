//! A kernel before it reaches the device: a list of dispatches, each with its WGSL, parameters and
//! bindings; no device is needed. Each kernel module makes [`Dispatches`]; `pipeline.rs` compiles them into
//! pipelines. Tests validate them with naga alone.

use std::fmt::Write;

use tensor_core::DType;

use crate::codegen::{
    dtypes::{scalar_words, storage_size},
    storage::{Elements, accessors},
    wgsl::Code,
};

pub(crate) use crate::codegen::storage::{Binding, Resource};

/// The run-time numbers of a kernel: the words of `params`, and which of them are scalars of the launch.
/// The first word is always `first_workgroup`, the number of a dispatch's first workgroup, which is set for
/// every dispatch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params {
    names: Vec<String>,
    words: Vec<u32>,
    scalars: Vec<(usize, usize, DType)>,
    /// The words that receive the launch's slots in the fault table, with the operand whose indices each
    /// slot is for.
    faults: Vec<(usize, usize)>,
    /// The word that receives the number of the loop round.
    round: Option<usize>,
}

impl Params {
    /// Adds a word, `params.name` in WGSL.
    pub(crate) fn word(&mut self, name: impl Into<String>, value: u32) {
        self.names.push(name.into());
        self.words.push(value);
    }

    /// Adds a size or offset.
    pub(crate) fn size(&mut self, name: impl Into<String>, value: usize) {
        self.word(name, value as u32);
    }

    /// Adds a stride; index arithmetic is modulo 2^32, so a negative one needs no sign.
    pub(crate) fn stride(&mut self, name: impl Into<String>, value: isize) {
        self.word(name, value as u32);
    }

    /// Adds scalar `slot` of the launch: `params.s<slot>`; for 8-byte types the high word is
    /// `params.s<slot>h`.
    pub(crate) fn scalar(&mut self, slot: usize, dtype: DType) {
        self.scalars.push((self.words.len(), slot, dtype));
        self.word(format!("s{slot}"), 0);
        if storage_size(dtype) == 8 {
            self.word(format!("s{slot}h"), 0);
        }
    }

    /// Adds the first word of the launch's fault-table slot for indices into an operand.
    pub(crate) fn fault(&mut self, name: impl Into<String>, operand: usize) {
        self.faults.push((self.words.len(), operand));
        self.word(name, 0);
    }

    /// Adds the number of the loop round, `params.round`.
    pub(crate) fn round(&mut self) {
        self.round = Some(self.words.len());
        self.word("round", 0);
    }

    /// The words for one round of a launch; `fault` returns the first word of an operand's slot.
    pub(crate) fn fill(
        &self,
        scalars: &[tensor_core::Scalar],
        fault: impl Fn(usize) -> u32,
        round: u32,
        out: &mut Vec<u32>,
    ) {
        out.clear();
        out.push(0);
        out.extend_from_slice(&self.words);
        if let Some(at) = self.round {
            out[at + 1] = round;
        }
        for &(at, operand) in &self.faults {
            out[at + 1] = fault(operand);
        }
        for &(at, slot, dtype) in &self.scalars {
            if let Some(&scalar) = scalars.get(slot) {
                let [low, high] = scalar_words(scalar, dtype);
                out[at + 1] = low;
                if storage_size(dtype) == 8 {
                    out[at + 2] = high;
                }
            }
        }
    }

    /// The number of words.
    pub(crate) fn len(&self) -> usize {
        1 + self.words.len()
    }
}

/// A function `report<name>(word)` that records a bad index in the launch's slot of the fault table.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) name: String,
    /// The WGSL type of the index.
    pub(crate) index: &'static str,
    /// The low and the high word of the index `word`.
    pub(crate) words: [&'static str; 2],
}

impl Report {
    /// Its WGSL; a silent one does nothing.
    fn text(&self, silent: bool) -> String {
        let Report { name, index, words: [low, high] } = self;
        let body = if silent {
            String::new()
        } else {
            format!(
                "    if (atomicExchange(&faults[params.fault{name}], 1u) == 0u) {{\n        \
                 atomicStore(&faults[params.fault{name} + 1u], {low});\n        \
                 atomicStore(&faults[params.fault{name} + 2u], {high});\n    }}\n"
            )
        };
        format!("fn report{name}(word: {index}) {{\n{body}}}\n")
    }
}

/// One dispatch: its WGSL, its parameters and bindings, and its number of workgroups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dispatch {
    pub(crate) label: &'static str,
    /// The extensions of WGSL that it enables.
    pub(crate) extensions: &'static [&'static str],
    pub(crate) params: Params,
    pub(crate) bindings: Vec<Binding>,
    /// Everything except the declarations of params and bindings; library functions are linked later.
    pub(crate) code: Code,
    /// The functions that report a bad index.
    pub(crate) reports: Vec<Report>,
    /// Whether these functions do nothing.
    silent: bool,
    /// Whether the code is a user's. Its functions may have the names of library functions, so no library
    /// function is linked.
    pub(crate) foreign: bool,
    /// The total number of workgroups.
    pub(crate) workgroups: usize,
    /// The number of the loop that it belongs to, and the rounds of that loop. Neighbouring dispatches with
    /// the same number form the loop.
    pub(crate) repeated: Option<(usize, usize)>,
    /// The approximate work of a workgroup, in program instructions or additions.
    pub(crate) work: usize,
}

impl Dispatch {
    pub(crate) fn new(label: &'static str) -> Dispatch {
        Dispatch { label, ..Dispatch::default() }
    }

    /// Adds a storage buffer `name` with these elements; `storage.rs` lists the functions that access it.
    pub(crate) fn bind(
        &mut self,
        name: impl Into<String>,
        elements: impl Into<Elements>,
        write: bool,
        resource: Resource,
    ) {
        let (name, elements) = (name.into(), elements.into());
        self.bindings.push(Binding { name, elements, write, resource, start: 0 });
    }

    /// The complete WGSL. Parameters are immediates, or else a uniform buffer after the last binding.
    pub(crate) fn text(&self, immediates: bool) -> String {
        let mut out: String = self.extensions.iter().map(|name| format!("enable {name};\n")).collect();
        out.push_str("struct Params {\n    first_workgroup: u32,\n");
        for name in &self.params.names {
            let _ = writeln!(out, "    {name}: u32,");
        }
        out.push_str("}\n");
        if immediates {
            out.push_str("var<immediate> params: Params;\n");
        } else {
            let _ = writeln!(out, "@group(0) @binding({}) var<uniform> params: Params;", self.bindings.len());
        }
        let mut functions: String = self.reports.iter().map(|report| report.text(self.silent)).collect();
        for (i, b) in self.bindings.iter().enumerate() {
            let access = if b.write { "read_write" } else { "read" };
            let (element, own) = accessors(b, self.code.text(), self.foreign);
            functions.push_str(&own);
            let _ =
                writeln!(out, "@group(0) @binding({i}) var<storage, {access}> {}: array<{element}>;", b.name);
        }
        out.push('\n');
        if self.foreign {
            out.push_str(&taper_shaders::link(&functions));
            out.push_str(self.code.text());
        } else {
            functions.push_str(self.code.text());
            out.push_str(&taper_shaders::link(&functions));
        }
        out
    }
}

/// All dispatches of one kernel, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dispatches {
    pub(crate) list: Vec<Dispatch>,
    /// Temporaries, by dtype and number of elements.
    pub(crate) temporaries: Vec<(DType, usize)>,
}

impl Dispatches {
    /// Appends later dispatches. Temporaries with the same number share a buffer.
    pub(crate) fn append(&mut self, next: Dispatches) {
        self.list.extend(next.list);
        for (k, (dtype, numel)) in next.temporaries.into_iter().enumerate() {
            match self.temporaries.get_mut(k) {
                Some(temp) if temp.1 * storage_size(temp.0) >= numel * storage_size(dtype) => {}
                Some(temp) => *temp = (dtype, numel),
                None => self.temporaries.push((dtype, numel)),
            }
        }
    }

    /// Renumbers the temporaries from 1 on, to leave the first to another kernel.
    pub(crate) fn shift_temporaries(&mut self) {
        self.temporaries.insert(0, (DType::U32, 0));
        for binding in self.bindings() {
            if let Resource::Temporary(t) = binding.resource {
                binding.resource = Resource::Temporary(t + 1);
            }
        }
    }

    /// Removes the fault table from kernels that only report bad indices to it, for a launch whose indices
    /// are known to be good: dispatches that write to the table wait for each other.
    pub(crate) fn silence(&mut self) {
        for d in self.list.iter_mut().filter(|d| !d.reports.is_empty()) {
            d.silent = true;
            d.bindings.retain(|binding| binding.resource != Resource::Faults);
        }
    }

    /// Replaces one resource by another in all bindings.
    pub(crate) fn redirect(&mut self, from: Resource, to: Resource) {
        self.bindings().filter(|b| b.resource == from).for_each(|b| b.resource = to);
    }

    /// All bindings.
    pub(crate) fn bindings(&mut self) -> impl Iterator<Item = &mut Binding> {
        self.list.iter_mut().flat_map(|d| &mut d.bindings)
    }
}

impl From<Dispatch> for Dispatches {
    fn from(one: Dispatch) -> Dispatches {
        Dispatches { list: vec![one], temporaries: Vec::new() }
    }
}
