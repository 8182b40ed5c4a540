//! A kernel on its way to the device: WGSL with its parameters and bindings, before any device is asked.
//! Each kernel module makes [`Drafts`]; `pipeline.rs` turns them into pipelines. Tests validate drafts with naga alone.

use std::fmt::Write;

use tensor_core::{DType, DeviceInfo, Error, ErrorKind};

use crate::{
    dtypes::{lane_size, scalar_words},
    matmul::Way,
};

/// Which family of kernels to use where there are two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// Barrier-free kernels on adapters that are processors, shared memory on the others.
    #[default]
    Auto,
    /// One thread for each result or block of results, no shared memory and no barriers.
    Direct,
    /// Shared memory and barriers.
    Tiled,
}

/// What a kernel module may know of the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    /// For error messages.
    pub(crate) info: &'a DeviceInfo,
    /// Whether to avoid shared memory and barriers.
    pub(crate) direct: bool,
    /// How many threads it takes to keep the device busy.
    pub(crate) threads: usize,
    /// Bytes of shared memory of a workgroup.
    pub(crate) shared_bytes: usize,
    /// Lanes of a subgroup; 0 where kernels have no subgroups or their size varies.
    pub(crate) subgroup: usize,
    /// Bytes of a buffer that a kernel sees at once.
    pub(crate) binding_bytes: u64,
    /// How many times a thread may go round its loops, all together.
    pub(crate) rounds: usize,
    /// How a matrix product is to be computed, where that was measured.
    pub(crate) way: Option<Way>,
}

impl Facts<'_> {
    /// An `Unsupported` error.
    pub(crate) fn unsupported(&self, op: &'static str, dtype: DType, hint: &str) -> Error {
        Error::new(ErrorKind::Unsupported { op, device: self.info.name.clone(), dtype, hint: hint.into() })
    }
}

/// Where the buffer of a binding comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// An input of the launch.
    Input(usize),
    /// An output of the launch.
    Output(usize),
    /// A temporary of this kernel.
    Temp(usize),
    /// The device's record of bad indices: see `fault_table.rs`.
    Faults,
}

/// One storage buffer of a draft.
#[derive(Clone, Debug)]
pub(crate) struct Binding {
    pub(crate) name: String,
    /// The WGSL type of an element.
    pub(crate) element: String,
    pub(crate) write: bool,
    pub(crate) slot: Slot,
    /// The byte of the buffer where the binding starts.
    pub(crate) start: u64,
}

/// The run-time numbers of a kernel: the words of `params`, and which of them are scalars of the launch. Before all others
/// comes `first_group`, the number of a dispatch's first workgroup, which is set at every dispatch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Params {
    names: Vec<String>,
    words: Vec<u32>,
    scalars: Vec<(usize, usize, DType)>,
    /// Where the launch's place in the fault table goes.
    fault: Option<usize>,
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

    /// Adds scalar `slot` of the launch: `params.s<slot>`, with an `h` after it for the high word of 8 bytes.
    pub(crate) fn scalar(&mut self, slot: usize, dtype: DType) {
        self.scalars.push((self.words.len(), slot, dtype));
        self.word(format!("s{slot}"), 0);
        if lane_size(dtype) == 8 {
            self.word(format!("s{slot}h"), 0);
        }
    }

    /// Adds the first word of the launch's slot in the fault table, `params.fault`.
    pub(crate) fn fault(&mut self) {
        self.fault = Some(self.words.len());
        self.word("fault", 0);
    }

    /// The words for one launch.
    pub(crate) fn fill(&self, scalars: &[tensor_core::Scalar], fault: u32, out: &mut Vec<u32>) {
        out.clear();
        out.push(0);
        out.extend_from_slice(&self.words);
        if let Some(at) = self.fault {
            out[at + 1] = fault;
        }
        for &(at, slot, dtype) in &self.scalars {
            if let Some(&scalar) = scalars.get(slot) {
                let [low, high] = scalar_words(scalar, dtype);
                out[at + 1] = low;
                if lane_size(dtype) == 8 {
                    out[at + 2] = high;
                }
            }
        }
    }

    /// How many words there are.
    pub(crate) fn len(&self) -> usize {
        1 + self.words.len()
    }
}

/// One dispatch: a text, what it is given, and how many workgroups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draft {
    pub(crate) label: &'static str,
    pub(crate) params: Params,
    pub(crate) bindings: Vec<Binding>,
    /// Everything but the declarations of params and bindings; library functions are linked in later.
    pub(crate) body: String,
    /// Workgroups, in all.
    pub(crate) groups: usize,
    /// About how many instructions of the program, or additions, a workgroup carries out.
    pub(crate) work: usize,
}

impl Draft {
    pub(crate) fn new(label: &'static str) -> Draft {
        Draft { label, ..Draft::default() }
    }

    /// Adds a storage buffer `name: array<element>`.
    pub(crate) fn bind(
        &mut self,
        name: impl Into<String>,
        element: impl Into<String>,
        write: bool,
        slot: Slot,
    ) {
        self.bindings.push(Binding { name: name.into(), element: element.into(), write, slot, start: 0 });
    }

    /// The whole WGSL. Parameters are immediates, or else a uniform buffer at the binding after the last.
    pub(crate) fn text(&self, immediates: bool) -> String {
        let mut out = String::from("struct Params {\n    first_group: u32,\n");
        for name in &self.params.names {
            let _ = writeln!(out, "    {name}: u32,");
        }
        out.push_str("}\n");
        if immediates {
            out.push_str("var<immediate> params: Params;\n");
        } else {
            let _ = writeln!(out, "@group(0) @binding({}) var<uniform> params: Params;", self.bindings.len());
        }
        for (i, b) in self.bindings.iter().enumerate() {
            let access = if b.write { "read_write" } else { "read" };
            let _ = writeln!(
                out,
                "@group(0) @binding({i}) var<storage, {access}> {}: array<{}>;",
                b.name, b.element
            );
        }
        out.push('\n');
        out.push_str(&taper_shaders::link(&self.body));
        out
    }
}

/// Everything one kernel does, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drafts {
    pub(crate) steps: Vec<Draft>,
    /// Temporaries, by dtype and number of elements.
    pub(crate) temps: Vec<(DType, usize)>,
}

impl Drafts {
    /// Adds what comes after. Temporaries of one number are one buffer, used in turn.
    pub(crate) fn append(&mut self, next: Drafts) {
        self.steps.extend(next.steps);
        for (k, (dtype, numel)) in next.temps.into_iter().enumerate() {
            match self.temps.get_mut(k) {
                Some(temp) if temp.1 * lane_size(temp.0) >= numel * lane_size(dtype) => {}
                Some(temp) => *temp = (dtype, numel),
                None => self.temps.push((dtype, numel)),
            }
        }
    }
}

impl From<Draft> for Drafts {
    fn from(step: Draft) -> Drafts {
        Drafts { steps: vec![step], temps: Vec::new() }
    }
}
