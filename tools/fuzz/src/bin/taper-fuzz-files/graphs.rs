//! Random ONNX graphs: each node is an operator of the registry with inputs and attributes that may or may
//! not fit it. Also faults of structure: names, cycles, depths, types, other files.

use onnx::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, SparseTensorProto,
    StringStringEntryProto, TensorProto, ValueInfoProto,
};
use taper_fuzz::rng::Rng;

use crate::operators::Operator;

/// Words that operators know.
const WORDS: &[&str] = &[
    "LEFT",
    "RIGHT",
    "SAME_UPPER",
    "SAME_LOWER",
    "VALID",
    "NOTSET",
    "none",
    "add",
    "mul",
    "max",
    "min",
    "tanh",
    "linear",
    "cubic",
    "nearest",
    "reflect",
    "edge",
    "wrap",
    "constant",
    "DCR",
    "CRD",
    "bidirectional",
    "reverse",
    "forward",
    "mean",
    "sum",
    "avg",
    "zeros",
    "border",
    "reflection",
    "ij,jk->ik",
    "...ij->...ji",
    "ii->i",
    "i,i",
    "ij->",
    "half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
    "floor",
    "round_prefer_ceil",
    "circular",
    "gated",
    "delta",
    "silu",
    "TF",
    "IDF",
    "UPPER",
    "Relu",
    "Sigmoid",
    "",
    ",",
];

/// Numbers that are often sizes, axes or types, and those at which sums overflow.
const WHOLE: &[i64] = &[
    0,
    0,
    1,
    1,
    1,
    2,
    2,
    3,
    3,
    4,
    5,
    7,
    8,
    11,
    16,
    -1,
    -1,
    -2,
    -3,
    64,
    127,
    255,
    1 << 20,
    1 << 31,
    -(1 << 31),
    1 << 40,
    i64::MAX,
    i64::MIN,
    i64::MAX - 1,
];
const REAL: &[f32] =
    &[0.0, 1.0, -1.0, 0.5, 2.0, 3.0, 1e-5, -0.0, 1e30, -1e30, f32::INFINITY, f32::NAN, f32::NEG_INFINITY];

/// Shapes of values, most of them as operators want them.
const SHAPES: &[&[i64]] = &[
    &[],
    &[1],
    &[2],
    &[3],
    &[4],
    &[8],
    &[0],
    &[2, 3],
    &[3, 2],
    &[3, 3],
    &[1, 4],
    &[2, 0],
    &[1, 2, 5],
    &[2, 3, 4],
    &[1, 2, 4, 4],
    &[1, 3, 5, 4],
    &[2, 2, 3, 3],
    &[1, 1, 2, 2],
    &[1, 2, 3, 4, 2],
    &[1, 1, 1, 2, 1, 2],
];

/// Numbers of element types by the kind of an input.
fn types(kind: u8) -> &'static [i32] {
    match kind {
        b'f' => &[1, 1, 1, 1, 10, 11, 16],
        b'i' => &[7, 7, 7, 6],
        b'b' => &[9],
        b's' => &[8],
        b'q' => &[2, 3, 4, 5, 21, 22, 25, 26],
        _ => &[1, 1, 1, 1, 1, 7, 7, 6, 9, 10, 11, 2, 3, 4, 5, 8, 12, 13, 16, 17, 20, 21, 22, 23, 24, 25, 26],
    }
}

/// A tensor with random elements.
fn tensor(rng: &mut Rng, name: &str, kind: u8, shape: &[i64]) -> TensorProto {
    let data_type = if rng.one_in(300) { 99 } else { *rng.pick(types(kind)) };
    let count = shape.iter().product::<i64>().unsigned_abs() as usize;
    let mut tensor = TensorProto {
        name: Some(name.into()),
        dims: shape.to_vec(),
        data_type: Some(data_type),
        ..Default::default()
    };
    let tame = !rng.one_in(4);
    let whole = |rng: &mut Rng| if tame { rng.between(0, 3) } else { *rng.pick(WHOLE) };
    let real = |rng: &mut Rng| if tame { rng.unit() as f32 * 4.0 - 2.0 } else { *rng.pick(REAL) };
    match data_type {
        1 => tensor.float_data = (0..count).map(|_| real(rng)).collect(),
        7 => tensor.int64_data = (0..count).map(|_| whole(rng)).collect(),
        8 => tensor.string_data = (0..count).map(|_| rng.pick(WORDS).as_bytes().to_vec().into()).collect(),
        11 => tensor.double_data = (0..count).map(|_| f64::from(real(rng))).collect(),
        12 | 13 => tensor.uint64_data = (0..count).map(|_| whole(rng) as u64).collect(),
        9 => tensor.int32_data = (0..count).map(|_| rng.below(2) as i32).collect(),
        _ => tensor.int32_data = (0..count).map(|_| whole(rng) as i32).collect(),
    }
    tensor
}

/// An attribute of a node whose first input has this shape; its type letter is that of the table.
fn attribute(rng: &mut Rng, name: &str, letter: u8, shape: &[i64], depth: usize) -> AttributeProto {
    let mut made = AttributeProto { name: Some(name.into()), ..Default::default() };
    let rank = shape.len() as i64;
    let space = shape.len().saturating_sub(2);
    let wild = rng.one_in(8);
    let text = |rng: &mut Rng| rng.pick(WORDS).as_bytes().to_vec().into();
    let (count, low, high) = match name {
        "kernel_shape" | "strides" | "dilations" => (space, 1, 3),
        "output_padding" | "output_shape" => (space, 0, 4),
        "pads" => (2 * space, 0, 2),
        "axes" => (1 + rng.below(2), -rank, rank - 1),
        "scan_input_axes" | "scan_output_axes" => (rng.below(3), 0, 1),
        _ => (rng.below(5), -1, 3),
    };
    let (number, count) = if wild { (None, rng.below(7)) } else { (Some((low, high.max(low))), count) };
    let listed = |rng: &mut Rng| match number {
        Some((low, high)) => rng.between(low, high),
        None => *rng.pick(WHOLE),
    };
    let r#type = match letter {
        b'i' => {
            made.i = Some(match name {
                _ if wild => *rng.pick(WHOLE),
                "axis" | "batch_axis" | "time_axis" => rng.between(-rank, (rank - 1).max(-rank)),
                "to" | "dtype" | "output_dtype" | "output_datatype" => i64::from(*rng.pick(types(b'*'))),
                _ => rng.between(0, 3),
            });
            2
        }
        b'I' => {
            made.ints = (0..count).map(|_| listed(rng)).collect();
            if name == "perm" && !wild {
                made.ints = (0..rank).collect();
                rng.shuffle(&mut made.ints);
            }
            7
        }
        b'f' => {
            made.f = Some(if wild { *rng.pick(REAL) } else { rng.unit() as f32 });
            1
        }
        b'F' => {
            made.floats = (0..count).map(|_| *rng.pick(REAL)).collect();
            6
        }
        b's' => {
            made.s = Some(text(rng));
            3
        }
        b'S' => {
            made.strings = (0..count).map(|_| text(rng)).collect();
            8
        }
        b't' => {
            made.t = Some(Box::new(tensor(rng, "t", b'*', &[1])));
            4
        }
        _ => {
            made.g = Some(Box::new(graph(rng, &[], depth.saturating_sub(1))));
            5
        }
    };
    made.r#type = Some(r#type);
    made
}

/// The operator of graphs within nodes.
fn plain() -> Operator {
    Operator {
        domain: String::new(),
        name: "Identity".into(),
        least: 1,
        inputs: vec![b'*'],
        outputs: 1,
        attributes: Vec::new(),
    }
}

/// A node, whose inputs are earlier values or new initializers of the graph.
fn node(
    rng: &mut Rng,
    graph: &mut GraphProto,
    known: &[String],
    operator: &Operator,
    depth: usize,
) -> NodeProto {
    let number = graph.node.len();
    let shape = *rng.pick(SHAPES);
    let most = operator.inputs.len();
    let count = if rng.one_in(20) {
        rng.below(most + 2)
    } else {
        rng.between(operator.least.min(most) as i64, most as i64) as usize
    };
    let mut input = Vec::new();
    for at in 0..count {
        let kind = if rng.one_in(25) { b'*' } else { operator.inputs.get(at).copied().unwrap_or(b'*') };
        input.push(match rng.below(20) {
            0 if at >= operator.least => String::new(),
            0..6 if !known.is_empty() => rng.pick(known).clone(),
            choice => {
                let own = match choice {
                    6..15 => shape,
                    15..18 => rng.pick(SHAPES),
                    _ => rng.pick(&SHAPES[..6]),
                };
                let name = format!("w{depth}.{number}.{at}");
                graph.initializer.push(tensor(rng, &name, kind, own));
                name
            }
        });
    }
    // A loop without a bound is a valid program that never ends.
    if operator.name == "Loop" {
        input.splice(..input.len().min(1), ["trips".to_string()]);
    }
    let attributes = operator.attributes.iter().filter(|(_, letter)| *letter == b'g' || !rng.one_in(3));
    let attributes: Vec<(&str, u8)> = attributes.copied().collect();
    let attribute = attributes.into_iter().map(|(name, letter)| attribute(rng, name, letter, shape, depth));
    let attribute = attribute.collect();
    let outputs = if rng.one_in(20) { rng.below(5) } else { 1 + rng.below(operator.outputs) };
    NodeProto {
        input,
        output: (0..outputs.max(1)).map(|k| format!("n{depth}.{number}.{k}")).collect(),
        op_type: Some(operator.name.clone()),
        domain: Some(operator.domain.clone()),
        attribute,
        ..Default::default()
    }
}

fn named(name: &str) -> ValueInfoProto {
    ValueInfoProto { name: Some(name.into()), ..Default::default() }
}

/// A graph of one to three nodes, with initializers.
fn graph(rng: &mut Rng, operators: &[Operator], depth: usize) -> GraphProto {
    let mut graph = GraphProto::default();
    if depth == 2 {
        graph.initializer.push(TensorProto {
            name: Some("trips".into()),
            data_type: Some(7),
            int64_data: vec![rng.between(0, 3)],
            ..Default::default()
        });
    }
    graph.input = (0..rng.below(3)).map(|k| named(&format!("x{depth}.{k}"))).collect();
    let mut known: Vec<String> = graph.input.iter().filter_map(|input| input.name.clone()).collect();
    for _ in 0..=rng.below(3) {
        let operator = if operators.is_empty() { plain() } else { rng.pick(operators).clone() };
        let made = node(rng, &mut graph, &known, &operator, depth);
        known.extend(made.output.iter().cloned());
        graph.node.push(made);
    }
    let made: Vec<String> = graph.node.iter().flat_map(|node| node.output.clone()).collect();
    graph.output = made.iter().map(|name| named(name)).collect();
    graph
}

/// A model of random nodes.
pub(crate) fn model(rng: &mut Rng, operators: &[Operator]) -> ModelProto {
    // Old versions read attributes where new ones read inputs.
    let version = if rng.one_in(4) { rng.between(1, 28) } else { 28 };
    let mut domains: Vec<&str> = operators.iter().map(|operator| operator.domain.as_str()).collect();
    domains.sort_unstable();
    domains.dedup();
    let opset_import = domains
        .iter()
        .map(|&domain| OperatorSetIdProto {
            domain: Some(domain.into()),
            version: Some(if domain.is_empty() { version } else { 5 }),
        })
        .collect();
    let graph = Some(graph(rng, operators, 2));
    ModelProto { ir_version: Some(10), opset_import, graph, ..Default::default() }
}

/// The model with one to three faults of structure.
pub(crate) fn faulty(rng: &mut Rng, mut model: ModelProto) -> ModelProto {
    for _ in 0..=rng.below(3) {
        fault(rng, &mut model);
    }
    model
}

fn fault(rng: &mut Rng, model: &mut ModelProto) {
    let kind = rng.below(20);
    if kind == 0 {
        let version = *rng.pick(WHOLE);
        model.opset_import.iter_mut().for_each(|import| import.version = Some(version));
        return;
    }
    if kind == 1 {
        model.functions.push(function(rng));
    }
    let Some(graph) = model.graph.as_mut() else { return };
    let (nodes, tensors) = (graph.node.len(), graph.initializer.len());
    if nodes == 0 || tensors == 0 {
        return;
    }
    let (node, tensor) = (rng.below(nodes), rng.below(tensors));
    match kind {
        1 => graph.node[node].op_type = Some("Recursive".into()),
        2 => {
            // An output of a later node, or its own: a cycle.
            let later = graph.node[nodes - 1].output[0].clone();
            graph.node[node].input.push(later);
        }
        3 => {
            let copy = graph.node[node].clone();
            graph.node.push(copy);
        }
        4 => {
            let copy = graph.initializer[tensor].clone();
            graph.initializer.push(copy);
        }
        5 => drop(graph.initializer.remove(tensor)),
        6 => graph.initializer[tensor].data_type = Some(*rng.pick(WHOLE) as i32),
        7 => graph.initializer[tensor].dims = (0..rng.below(5)).map(|_| *rng.pick(WHOLE)).collect(),
        8 => {
            let bytes = vec![7; rng.below(64)];
            graph.initializer[tensor].raw_data = Some(bytes.into());
        }
        9 => {
            let places = ["../../etc/passwd", "/etc/passwd", "a/../../b", "", "weights.bin", "C:\\x", "a\0b"];
            let place = *rng.pick(&places);
            let number = rng.pick(WHOLE).to_string();
            let entry = |key: &str, value: &str| StringStringEntryProto {
                key: Some(key.into()),
                value: Some(value.into()),
            };
            let tensor = &mut graph.initializer[tensor];
            tensor.data_location = Some(1);
            tensor.external_data =
                vec![entry("location", place), entry("offset", &number), entry("length", "9")];
        }
        10 => graph.output.push(named("nothing makes this")),
        11 => graph.node[node].output.push(String::new()),
        12 => graph.node[node].op_type = Some("Unheard".into()),
        13 => {
            // Graphs in graphs.
            let mut inner = self::graph(rng, &[], 0);
            for _ in 0..rng.below(120) {
                let made = AttributeProto {
                    name: Some("then_branch".into()),
                    r#type: Some(5),
                    g: Some(Box::new(inner)),
                    ..Default::default()
                };
                let outer = NodeProto {
                    op_type: Some("If".into()),
                    input: vec!["trips".into()],
                    output: vec!["deep".into()],
                    attribute: vec![made],
                    ..Default::default()
                };
                inner = GraphProto { node: vec![outer], output: vec![named("deep")], ..Default::default() };
            }
            graph.node.extend(inner.node);
        }
        16 => {
            graph.node[node].op_type = Some("Double0".into());
            graph.node[node].domain = None;
            graph.node[node].input.truncate(1);
            graph.node[node].output.truncate(1);
            model.functions.extend(doubling(*rng.pick(&[2, 6, 10, 30])));
        }
        17 => graph.sparse_initializer.push(SparseTensorProto {
            values: Some(one_integer("sparse", 1)),
            indices: Some(one_integer("places", 0)),
            dims: (0..=rng.below(3)).map(|_| *rng.pick(WHOLE)).collect(),
        }),
        18 => {
            let count = *rng.pick(&[10, 1000, 300_000]);
            graph.node[node].attribute.extend(vec![AttributeProto::default(); count]);
        }
        19 => {
            let text = TensorProto {
                name: Some("text0".into()),
                data_type: Some(8),
                string_data: vec![b"text".to_vec().into()],
                ..Default::default()
            };
            graph.initializer.push(text);
            let name = |at: usize| format!("text{at}");
            graph.node.extend((0..*rng.pick(&[3, 40])).map(|at| NodeProto {
                op_type: Some("StringConcat".into()),
                input: vec![name(at); 2],
                output: vec![name(at + 1)],
                ..Default::default()
            }));
        }
        14 => {
            if let Some(attribute) = graph.node[node].attribute.first_mut() {
                attribute.r#type = Some(*rng.pick(WHOLE) as i32);
            }
        }
        _ => {
            let twice = graph.node[node].output[0].clone();
            graph.node[rng.below(nodes)].output.push(twice);
        }
    }
}

/// A tensor of one integer.
fn one_integer(name: &str, value: i64) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: vec![1],
        data_type: Some(7),
        int64_data: vec![value],
        ..Default::default()
    }
}

/// Functions that each call the next one twice, with a constant in the last one.
fn doubling(levels: usize) -> Vec<FunctionProto> {
    let level = |level: usize| {
        let call = |input: &str, output: &str| NodeProto {
            op_type: Some(if level + 1 == levels { "Neg".into() } else { format!("Double{}", level + 1) }),
            input: vec![input.into()],
            output: vec![output.into()],
            ..Default::default()
        };
        FunctionProto {
            name: Some(format!("Double{level}")),
            domain: Some(String::new()),
            input: vec!["x".into()],
            output: vec!["y".into()],
            node: vec![call("x", "a"), call("a", "y")],
            ..Default::default()
        }
    };
    (0..levels).map(level).collect()
}

/// A function that calls itself, twice.
fn function(rng: &mut Rng) -> FunctionProto {
    let call = |input: &str, output: &str| NodeProto {
        op_type: Some("Recursive".into()),
        input: vec![input.into()],
        output: vec![output.into()],
        ..Default::default()
    };
    let mut node = vec![call("x", "a"), call("a", "y")];
    if rng.one_in(4) {
        node.truncate(0);
    }
    FunctionProto {
        name: Some("Recursive".into()),
        domain: Some(String::new()),
        input: vec!["x".into()],
        output: vec!["y".into()],
        node,
        ..Default::default()
    }
}
