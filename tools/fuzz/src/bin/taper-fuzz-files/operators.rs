//! The operators that graphs are drawn from: those of the registry, with the inputs and attributes that
//! ONNX's schemas give them.

use std::collections::HashMap;

use onnx::Registry;

/// The schemas, as `scripts/onnx_fuzz_operators.py` writes them.
const TABLE: &str = include_str!("operators.tsv");

/// An operator to draw.
#[derive(Clone, Debug)]
pub(crate) struct Operator {
    pub(crate) domain: String,
    pub(crate) name: String,
    /// The number of inputs that must be there.
    pub(crate) least: usize,
    /// Kinds of inputs: `f` floats, `i` integers, `b` booleans, `s` texts, `q` narrow integers, `*` any.
    pub(crate) inputs: Vec<u8>,
    pub(crate) outputs: usize,
    /// Names of attributes with the letters of their types.
    pub(crate) attributes: Vec<(&'static str, u8)>,
}

/// All operators of the default registry. Those without a schema have inputs of any kind, and no attributes.
pub(crate) fn all() -> Vec<Operator> {
    let mut schemas = HashMap::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&'static str> = line.split('\t').collect();
        if let &[domain, name, least, inputs, outputs, attributes] = fields.as_slice() {
            schemas.insert((domain, name), (least, inputs, outputs, attributes));
        }
    }
    let mut operators: Vec<Operator> = Vec::new();
    for (domain, name, _) in Registry::default().operators() {
        if operators.iter().any(|known| (&known.domain, &known.name) == (&domain, &name)) {
            continue;
        }
        let schema = schemas.get(&(domain.as_str(), name.as_str())).copied();
        let (least, inputs, outputs, attributes) = schema.unwrap_or(("1", "******", "4", "-"));
        let mut kinds: Vec<u8> = inputs.bytes().filter(|&kind| kind != b'-' && kind != b'+').collect();
        if let (true, Some(&last)) = (inputs.ends_with('+'), kinds.last()) {
            kinds.extend([last; 3]);
        }
        let attributes = attributes.split(',').filter_map(|entry| {
            let (name, letter) = entry.split_once(':')?;
            Some((name, letter.bytes().next()?))
        });
        operators.push(Operator {
            domain,
            name,
            least: least.parse().unwrap_or(0),
            inputs: kinds,
            outputs: outputs.parse().unwrap_or(1),
            attributes: attributes.collect(),
        });
    }
    operators
}
