//! [`Exporter`]: the state of an export, and the operations on it that all families use.

use std::collections::{BTreeMap, HashMap, HashSet};

use tensor_core::{DType, Error, Op, Result, Scalar, Tensor};

use super::{
    builder::Builder,
    sample::{Origin, Samples, Size, Twin, fixed},
};

/// The reason why an operation is not in the file.
pub(super) enum Failure {
    /// ONNX has no operator for it, nor operators that compose it; the text says more.
    NoForm(String),
    /// It depends on a dynamic axis in a way that ONNX's shape arithmetic here does not follow.
    NotDynamic(String),
    /// Another error, of reading a value.
    Error(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(error)
    }
}

/// The name of the value that an operation's nodes compute.
pub(super) type Emitted = std::result::Result<String, Failure>;

/// An operation whose inputs are in the graph.
pub(super) struct Step {
    pub(super) out: Twin,
    pub(super) inputs: Vec<Twin>,
    /// The inputs' names.
    pub(super) names: Vec<String>,
}

impl Step {
    /// The operation in the first sample.
    pub(super) fn op(&self) -> &Op {
        self.out.first().op()
    }

    /// The operation in each sample.
    pub(super) fn ops(&self) -> impl Iterator<Item = &Op> {
        self.out.all().map(Tensor::op)
    }

    /// Fails if the operation's parameters differ between samples.
    pub(super) fn check_fixed(&self) -> std::result::Result<(), Failure> {
        let first = format!("{:?}", self.op());
        if self.ops().all(|op| format!("{op:?}") == first) {
            return Ok(());
        }
        Err(Failure::NotDynamic(format!("the parameters of {} depend on the size", self.op().name())))
    }

    pub(super) fn name(&self, k: usize) -> &str {
        &self.names[k]
    }
}

/// A size that a value in the graph has along an axis.
pub(super) struct KnownSize {
    pub(super) size: Size,
    pub(super) value: String,
    pub(super) axis: usize,
}

/// The state of an export.
pub(super) struct Exporter {
    pub(super) builder: Builder,
    pub(super) samples: Samples,
    /// The names of values in the graph, by id.
    pub(super) names: HashMap<u64, String>,
    /// The names of the results of operations with several, by the operation's id.
    pub(super) tuples: HashMap<u64, Vec<String>>,
    /// The names of parameters and buffers, by id.
    pub(super) weights: HashMap<u64, String>,
    /// The paths of layers, by the ids of their results.
    pub(super) paths: HashMap<u64, String>,
    /// The dynamic sizes of values in the graph, in the order of their nodes.
    pub(super) known: Vec<KnownSize>,
    /// The names of sizes that were computed before.
    pub(super) sizes: HashMap<Size, String>,
    /// Whether the present call is computed in f32 in place of bf16.
    pub(super) wide: bool,
    /// Operations without an ONNX form: their names with the reasons, and lines that use them.
    missing: BTreeMap<String, HashSet<String>>,
    /// Values that could not be made dynamic, with their lines.
    stuck: Vec<String>,
}

/// The number of sizes that are tried as divisors of a number.
const QUOTIENT_SOURCES: usize = 16;

/// The numbers as sizes, if all of them are whole.
fn whole(numbers: &[f64]) -> Option<Size> {
    numbers.iter().map(|&n| (n.fract() == 0.0 && (0.0..1e15).contains(&n)).then_some(n as usize)).collect()
}

impl Exporter {
    pub(super) fn new(
        opset: i64,
        samples: Samples,
        weights: HashMap<u64, String>,
        paths: HashMap<u64, String>,
    ) -> Exporter {
        let mut builder = Builder::new(opset);
        // Weights have their names before any node.
        weights.values().for_each(|name| {
            builder.take(name);
        });
        Exporter {
            builder,
            samples,
            names: HashMap::new(),
            tuples: HashMap::new(),
            weights,
            paths,
            known: Vec::new(),
            sizes: HashMap::new(),
            wide: false,
            missing: BTreeMap::new(),
            stuck: Vec::new(),
        }
    }

    /// Adds an input of the graph under a name that was taken for it.
    pub(super) fn input(&mut self, name: &str, value: &Twin) {
        self.put(value, name.into());
    }

    /// The name of a value that is in the graph.
    pub(super) fn name(&self, value: &Twin) -> String {
        self.names.get(&value.id()).cloned().unwrap_or_default()
    }

    /// Names a value, and notes its dynamic sizes.
    pub(super) fn put(&mut self, value: &Twin, name: String) {
        for axis in 0..value.rank() {
            let size = value.size(axis);
            if fixed(&size).is_none() {
                self.known.push(KnownSize { size, value: name.clone(), axis });
            }
        }
        self.names.insert(value.id(), name);
    }

    /// Notes a failure, and lets the walk go on, so that one error names all.
    pub(super) fn fail(&mut self, value: &Twin, failure: Failure) -> Result<()> {
        let location = value.first().location();
        let line = format!("{}:{}", location.file(), location.line());
        match failure {
            Failure::Error(error) => return Err(error),
            Failure::NoForm(reason) => {
                let op = value.first().op().name();
                let what = if reason.is_empty() { op.to_string() } else { format!("{op}, {reason}") };
                self.missing.entry(what).or_default().insert(line);
            }
            Failure::NotDynamic(what) => self.stuck.push(format!("{what} ({line})")),
        }
        self.put(value, "failed".into());
        Ok(())
    }

    /// The error that names all operations that are not in the graph.
    pub(super) fn verdict(&mut self) -> Result<()> {
        let mut parts = Vec::new();
        if !self.missing.is_empty() {
            let list = self.missing.iter().map(|(what, lines)| {
                let mut lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                lines.sort_unstable();
                lines.truncate(3);
                format!("{what} ({})", lines.join(", "))
            });
            let list: Vec<String> = list.collect();
            parts.push(format!("these operations have no form in ONNX: {}", list.join("; ")));
        }
        if !self.stuck.is_empty() {
            self.stuck.dedup();
            self.stuck.truncate(8);
            parts.push(format!(
                "this cannot follow a dynamic axis; leave the axis out of `dynamic_axes` to fix its size: {}",
                self.stuck.join("; ")
            ));
        }
        if parts.is_empty() { Ok(()) } else { Err(super::invalid(parts.join(". Also, "))) }
    }

    /// The operation whose result this is.
    pub(super) fn tuple_of(&self, element: &Twin) -> Option<Tensor> {
        match self.samples.origin(element) {
            Origin::Operation(inputs) => inputs.first().map(|tuple| tuple.first().clone()),
            Origin::Constant | Origin::Alias(_) | Origin::Differs => None,
        }
    }

    /// A value with another fixed shape.
    pub(super) fn as_shape(&mut self, value: &str, shape: &[i64]) -> String {
        let shape = self.builder.ints(shape);
        self.builder.node("Reshape", &[value, &shape], [])
    }

    /// A 0-d tensor of a number that may differ between samples: then it is a size or a quotient of sizes.
    pub(super) fn number(&mut self, numbers: &[f64], dtype: DType) -> Emitted {
        let first = numbers[0];
        if numbers.iter().all(|number| number.to_bits() == first.to_bits()) {
            return Ok(self.builder.number(first, dtype));
        }
        if let Some(size) = whole(numbers) {
            let name = self.size(&size, &[])?;
            return Ok(self.float_of(&name, dtype));
        }
        // A quotient of sizes, such as n / (n − 1) or 1 / n, which was rounded to the type.
        let precision = match dtype {
            DType::F64 => 1e-12,
            DType::F32 => 3e-7,
            _ => 4e-3,
        };
        let mut sources: Vec<Size> = Vec::new();
        for known in &self.known {
            if sources.len() < QUOTIENT_SOURCES && !sources.contains(&known.size) {
                sources.push(known.size.clone());
            }
        }
        for (source, shift) in sources.iter().flat_map(|source| [0, -1, 1].map(|shift| (source, shift))) {
            let below: Option<Size> = source.iter().map(|n| n.checked_add_signed(shift)).collect();
            let Some(below) = below.filter(|below| !below.contains(&0)) else { continue };
            let above: Vec<f64> = numbers.iter().zip(&below).map(|(number, n)| number * *n as f64).collect();
            let rounded: Vec<f64> = above.iter().map(|n| n.round()).collect();
            let is_whole =
                above.iter().zip(&rounded).all(|(n, whole)| (n - whole).abs() < precision * n.abs());
            let Some(above) = whole(&rounded).filter(|_| is_whole) else { continue };
            if let (Ok(above), Ok(below)) = (self.size(&above, &[]), self.size(&below, &[])) {
                let (above, below) = (self.float_of(&above, dtype), self.float_of(&below, dtype));
                return Ok(self.builder.node("Div", &[&above, &below], []));
            }
        }
        Err(Failure::NotDynamic(format!("the number {first} depends on the size")))
    }

    /// A size as a 0-d number.
    fn float_of(&mut self, size: &str, dtype: DType) -> String {
        let scalar = self.as_shape(size, &[]);
        self.builder.cast(&scalar, DType::I64, dtype)
    }

    /// The number of an operation in each sample.
    pub(super) fn scalar(&mut self, values: &[Scalar], dtype: DType) -> Emitted {
        match values.first() {
            Some(first) if values.iter().all(|value| format!("{value:?}") == format!("{first:?}")) => {
                Ok(self.builder.scalar(*first, dtype))
            }
            _ => self.number(&values.iter().map(|value| value.as_f64()).collect::<Vec<_>>(), dtype),
        }
    }
}
