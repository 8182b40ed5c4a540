//! Graphs as data, pictures and files; the explanation of a tensor.
#![allow(clippy::unwrap_used, clippy::panic)]

use autograd::TensorGrad;
use inspect::{Graph, NodeKind, Separation, StoreReason, explain};
use tensor_core::{DType, Result, Tensor};

/// mean((x + 2)² + 3), and its x.
fn example() -> Result<(Tensor, Tensor)> {
    let x = Tensor::arange(1.0, 4.0, 1.0, &backend_cpu::cpu())?.requires_grad();
    let y = ((&x + 2.0).powi(2) + 3.0).mean();
    Ok((x, y))
}

#[test]
fn a_graph_is_data_with_names_and_lines() -> Result<()> {
    let (x, y) = example()?;
    let graph = Graph::of(&[&y], &[("x", x.clone())]);
    let titles: Vec<String> = graph.nodes.iter().map(|node| node.title()).collect();
    let at =
        |title: &str| titles.iter().position(|t| t == title).unwrap_or_else(|| panic!("{title}: {titles:?}"));
    let (leaf, power, mean) = (at("x"), at("Pow"), titles.len() - 1);
    assert_eq!((graph.nodes[leaf].kind, graph.nodes[power].kind), (NodeKind::Leaf, NodeKind::Operation));
    assert_eq!((graph.nodes[leaf].id, graph.nodes[mean].id), (x.id(), y.id()));
    assert!(graph.nodes[mean].is_output && !graph.nodes[power].is_output && !graph.nodes[mean].is_evaluated);
    let ours =
        |node: &inspect::GraphNode| node.kind == NodeKind::Constant || node.location.0.ends_with("graphs.rs");
    assert!(graph.nodes.iter().all(|node| node.device == "cpu" && ours(node)));
    assert!(graph.edges().all(|(from, to)| from < to));

    // The JSON has the same contents.
    let json: serde_json::Value = serde_json::from_str(&graph.json()).unwrap();
    let nodes = json["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), graph.nodes.len());
    assert_eq!(nodes[leaf]["name"], "x");
    assert_eq!(nodes[leaf]["shape"], serde_json::json!([3]));
    assert_eq!(nodes[mean]["inputs"], serde_json::json!(graph.nodes[mean].inputs));

    // And so has the picture.
    let svg = graph.svg();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert_eq!(svg.matches("<rect").count(), graph.nodes.len() + 1);
    assert_eq!(svg.matches("marker-end").count(), graph.edges().count());
    assert!(svg.contains(">Pow<") && svg.contains(">[3] f32<"), "{svg}");
    let odd = Graph::of(&[&y], &[("a<b>&\"c\"", x)]).svg();
    assert!(odd.contains("a&lt;b&gt;&amp;&quot;c&quot;"), "{odd}");
    Ok(())
}

/// The reasons for which the operations of this name are stored.
fn stored(y: &Tensor, name: &str) -> Result<Vec<Option<StoreReason>>> {
    let plan = explain(y)?.plan;
    let operations = plan.kernels.iter().flat_map(|kernel| &kernel.operations);
    Ok(operations
        .filter(|operation| operation.name == name)
        .map(|operation| operation.stored_because)
        .collect())
}

#[test]
fn an_explanation_says_why_results_are_stored() -> Result<()> {
    let x = Tensor::ones([8, 8], &backend_cpu::cpu())?;
    x.eval()?;
    // Inlined into its reader, so not stored. Within one statement the program would hold it.
    let root = |x: &Tensor| x.exp().sqrt();
    assert_eq!(stored(&root(&x), "Exp")?, [None]);
    let held = x.exp();
    assert_eq!(stored(&held.sqrt(), "Exp")?, [Some(StoreReason::Kept)]);
    let sums = |x: &Tensor| x.exp().cumsum(0);
    assert_eq!(stored(&sums(&x)?, "Exp")?, [Some(StoreReason::ReadInMemory("cumsum"))]);
    let twice = {
        let dear = x.exp().sin();
        dear.sum_axis(0, false)?.add(&dear.sort(1, false)?.0.sum_axis(1, false)?)?
    };
    let reasons = stored(&twice, "Sin")?;
    assert!(
        matches!(reasons[0], Some(StoreReason::ReadInMemory(_) | StoreReason::ReadBySeveral(_))),
        "{reasons:?}"
    );
    let sorted = |x: &Tensor| Ok::<_, tensor_core::Error>(x.matmul(x)?.sort(0, false)?.0);
    assert_eq!(stored(&sorted(&x)?, "MatMul")?, [Some(StoreReason::OwnKernel)]);
    let text = explain(&sums(&x)?)?.to_string();
    assert!(text.contains("stored: cumsum reads it from memory"), "{text}");
    Ok(())
}

#[test]
fn an_explanation_says_why_kernels_are_separate() -> Result<()> {
    let x = Tensor::ones([8, 8], &backend_cpu::cpu())?;
    x.eval()?;
    let last = |y: &Tensor| -> Result<Option<Separation>> {
        Ok(explain(y)?.plan.kernels.last().and_then(|kernel| kernel.separation))
    };
    // Functions, because within one statement the program would hold the results in between.
    let active = || Ok(x.matmul(&x)?.relu());
    let products = || x.matmul(&x)?.matmul(&x);
    let part = || Ok::<_, tensor_core::Error>(x.matmul(&x)?.i((.., ..4))?.exp());
    let after_sums = || Ok(x.cumsum(0)?.exp());
    let reduced = || x.cumsum(0)?.sum_axis(0, false);
    // One kernel: the activation is computed on the results of the product.
    assert_eq!(last(&active()?)?, None);
    assert_eq!(last(&products()?)?, Some(Separation::OwnKernel));
    assert_eq!(last(&part()?)?, Some(Separation::OtherOrder));
    assert_eq!(last(&after_sums()?)?, Some(Separation::OtherPositions));
    assert_eq!(last(&reduced()?)?, Some(Separation::Reduction));
    let text = explain(&part()?)?.to_string();
    assert!(text.contains("a kernel of its own: it reads in another order"), "{text}");
    Ok(())
}

#[test]
fn a_graph_of_a_million_operations_needs_no_stack() -> Result<()> {
    let mut x = Tensor::ones([1], &backend_cpu::cpu())?.requires_grad();
    for _ in 0..100_000 {
        x = &x + 1.0;
    }
    let graph = Graph::of(&[&x], &[] as &[(&str, Tensor)]);
    assert!(graph.nodes.len() > 100_000, "{}", graph.nodes.len());
    Ok(())
}

/// The fields of a message: number, and a number or bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (&byte, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let field = match tag & 7 {
            0 => Field::Int(varint(&mut bytes)),
            wire @ (1 | 2) => {
                let length = if wire == 1 { 8 } else { varint(&mut bytes) as usize };
                let (own, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(own)
            }
            wire => panic!("wire type {wire}"),
        };
        found.push((tag >> 3, field));
    }
    found
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Field<'a> {
    Int(u64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    fn bytes(self) -> &'a [u8] {
        match self {
            Field::Bytes(bytes) => bytes,
            Field::Int(n) => panic!("{n}"),
        }
    }

    fn text(self) -> &'a str {
        std::str::from_utf8(self.bytes()).unwrap()
    }
}

/// CRC-32C bit by bit, with the mask that records have.
fn masked_crc(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    (!crc).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[test]
fn an_event_file_has_the_documented_framing() -> Result<()> {
    let (x, y) = example()?;
    let folder = tempfile::tempdir().unwrap();
    let graph = Graph::of(&[&y], &[("layer.x", x)]);
    let path = graph.write_event_file(folder.path().join("runs/first"))?;
    assert!(path.file_name().unwrap().to_str().unwrap().contains("tfevents"));
    let file = std::fs::read(&path).unwrap();
    let mut events = Vec::new();
    let mut rest = file.as_slice();
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        assert_eq!(u32::from_le_bytes(rest[8..12].try_into().unwrap()), masked_crc(&rest[..8]));
        let data = &rest[12..12 + length];
        assert_eq!(u32::from_le_bytes(rest[12 + length..16 + length].try_into().unwrap()), masked_crc(data));
        events.push(fields(data));
        rest = &rest[16 + length..];
    }
    let [version, event] = events.as_slice() else { panic!("{} events", events.len()) };
    assert_eq!(version[1], (3, Field::Bytes(b"brain.Event:2")));
    assert!((event[0].0, event[1].0) == (1, 4));
    let definition = fields(event[1].1.bytes());
    let nodes: Vec<_> = definition.iter().filter(|(n, _)| *n == 1).map(|(_, f)| fields(f.bytes())).collect();
    assert_eq!(nodes.len(), graph.nodes.len());
    let name = |node: &[(u64, Field<'_>)]| node[0].1.text().to_string();
    let names: Vec<String> = nodes.iter().map(|node| name(node)).collect();
    assert!(names.contains(&"layer/x".to_string()), "{names:?}");
    for (node, known) in nodes.iter().zip(&graph.nodes) {
        let inputs: Vec<&str> = node.iter().filter(|(n, _)| *n == 3).map(|(_, f)| f.text()).collect();
        let expected: Vec<&str> = known.inputs.iter().map(|&input| names[input].as_str()).collect();
        assert_eq!(inputs, expected);
        let attributes: Vec<_> =
            node.iter().filter(|(n, _)| *n == 5).map(|(_, f)| fields(f.bytes())).collect();
        assert!(attributes.iter().any(|entry| entry[0].1.text() == "_output_shapes"));
        assert!(attributes.iter().any(|entry| entry[0].1.text() == "source"));
    }

    // A folder that is a file is an error that names it.
    let error = graph.write_event_file(&path).unwrap_err().to_string();
    assert!(error.contains("tfevents") && error.contains("cannot be written"), "{error}");
    Ok(())
}

#[test]
fn explained_before_it_runs_and_after() -> Result<()> {
    let device = backend_cpu::cpu();
    let data = Tensor::ones([64, 100], &device)?;
    data.eval()?;
    let y = ((&data + 2.0).powi(2) + 3.0).sum_axis(1, false)?;
    let line = line!() - 1;
    let before = explain(&y)?;
    assert!(!y.is_evaluated());
    let [kernel] = before.plan.kernels.as_slice() else { panic!("{before}") };
    let names: Vec<&str> = kernel.operations.iter().map(|op| op.name.as_str()).collect();
    assert_eq!(names, ["Add", "Pow", "Add", "Sum"]);
    assert!(kernel.operations.iter().all(|op| op.location.line() == line), "{before}");
    assert_eq!((before.bytes_read(), before.bytes_written(), before.allocates()), (25_600, 256, 256));
    // An addition, a square (2), an addition, and the sum.
    assert_eq!(before.flops(), 6400 * 5);
    let text = before.to_string();
    for part in
        ["not computed yet", "kernel 1: sum over [64, 100] on cpu", "reads 25.0 KiB", "pow r", "graphs.rs:"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }

    // The gradient of the square needs x + 2, so it is stored as well.
    let x = data.detach().requires_grad();
    let y = ((&x + 2.0).powi(2) + 3.0).sum_axis(1, false)?;
    assert_eq!(explain(&y)?.bytes_written(), 25_600 + 256);
    // A tracked tensor keeps its inputs.
    y.eval()?;
    let after = explain(&y)?;
    assert!(after.to_string().contains("computing it again"), "{after}");
    assert_eq!(after.bytes_written(), 256);
    // Any other tensor loses them.
    let z = x.detach().exp();
    z.eval()?;
    let forgotten = explain(&z)?;
    assert!(
        forgotten.plan.kernels.is_empty() && forgotten.to_string().contains("no longer known"),
        "{forgotten}"
    );
    assert!(explain(&x)?.to_string().contains("leaf"));
    Ok(())
}

#[test]
fn a_chain_in_place_allocates_nothing_and_a_product_takes_its_bias_in() -> Result<()> {
    let device = backend_cpu::cpu();
    let (a, b) = (Tensor::ones([32, 48], &device)?, Tensor::ones([48, 16], &device)?);
    let bias = Tensor::ones([16], &device)?;
    tensor_core::eval_all(&[&a, &b, &bias])?;
    let y = a.matmul(&b)?.add(&bias)?.relu();
    let explanation = explain(&y)?;
    let [kernel] = explanation.plan.kernels.as_slice() else { panic!("{explanation}") };
    assert_eq!((kernel.kernel.name(), kernel.inputs.len()), ("matmul", 3));
    assert!(explanation.flops() >= 2 * 32 * 48 * 16);
    assert_eq!(explanation.bytes_read(), 4 * (32 * 48 + 48 * 16 + 16));

    let x = Tensor::ones([1000], &device)?;
    x.eval()?;
    let y = &x + 1.0;
    drop(x);
    assert_eq!(explain(&y)?.allocates(), 0);
    assert_eq!(y.to_vec::<f32>()?[999], 2.0);
    Ok(())
}

#[test]
fn copies_between_devices_are_told() -> Result<()> {
    let (here, there) =
        (backend_cpu::cpu(), tensor_core::Device::new(std::sync::Arc::new(backend_cpu::CpuBackend::new())));
    let x = Tensor::ones([256], &here)?.to_dtype(DType::F32)? * 2.0;
    let y = x.to(&there)? + 1.0;
    let explanation = explain(&y)?;
    assert!(explanation.plan.waits_for_copies, "{explanation}");
    assert_eq!(explanation.plan.copies.iter().map(|copy| copy.bytes).collect::<Vec<_>>(), [1024]);
    assert_eq!(explanation.plan.kernels.len(), 1);
    assert!(!x.is_evaluated() && !y.is_evaluated());
    assert_eq!(y.to_vec::<f32>()?, [3.0; 256]);
    Ok(())
}

/// A small network: four layers with parameters, activations, and a residual connection.
#[test]
fn a_folded_graph_has_a_node_for_each_layer() -> Result<()> {
    use nn::{Conv2d, Linear, Lstm, MaxPool2d, Module, Relu, Sequential};

    let rng = tensor_core::Generator::seed(0, &backend_cpu::cpu());
    let body = Sequential::new()
        .add(Conv2d::new(1, 4, 3, &rng)?)
        .add(Relu)
        .add(MaxPool2d::new(2))
        .add(Conv2d::new(4, 4, 1, &rng)?)
        .add(Relu);
    let (inner, head) = (Linear::new(36, 36, &rng)?, Linear::new(36, 10, &rng)?);
    let lstm = Lstm::new(10, 3, &rng)?;
    let named: Vec<(String, Tensor)> =
        [("body", &body as &dyn Module), ("inner", &inner), ("head", &head), ("lstm", &lstm)]
            .into_iter()
            .flat_map(|(name, part)| {
                let named = part.named_parameters();
                named.into_iter().map(move |(own, tensor)| (format!("{name}.{own}"), tensor))
            })
            .collect();
    inspect::record_layer_calls(true);
    let x = Tensor::randn([2, 1, 8, 8], &rng)?;
    let flat = body.forward(&x)?.flatten(1, 3)?;
    let sum = (inner.forward(&flat)? + &flat) * 0.5;
    let y = head.forward(&sum)?;
    let (out, (hidden, _)) = lstm.forward(&y.unsqueeze(0)?, None)?;
    // The last state is read after the outputs of all places.
    let loss = out.sum() + hidden.sum();
    let graph = Graph::of(&[&loss], &named);
    inspect::record_layer_calls(false);

    let folded = graph.folded();
    let titles: Vec<String> = folded.nodes.iter().map(|node| node.title()).collect();
    for title in
        ["body.0 = Conv2d", "body.3 = Conv2d", "inner = Linear", "head = Linear", "lstm = Lstm", "MaxPool2d"]
    {
        assert_eq!(titles.iter().filter(|other| *other == title).count(), 1, "{title}: {titles:?}");
    }
    assert_eq!(titles.iter().filter(|title| *title == "Relu").count(), 2, "{titles:?}");
    assert!(titles.iter().any(|title| title.starts_with("Mul") && title.contains("0.5")), "{titles:?}");
    assert!(
        folded.nodes.len() <= 18 && graph.nodes.len() > 40,
        "{} of {}",
        folded.nodes.len(),
        graph.nodes.len()
    );
    assert!(folded.edges().all(|(from, to)| from < to));
    let at =
        |title: &str| titles.iter().position(|other| other == title).unwrap_or_else(|| panic!("{titles:?}"));
    let (pool, second) = (at("MaxPool2d"), at("body.3 = Conv2d"));
    assert_eq!(folded.nodes[second].inputs, [pool]);
    assert_eq!(folded.nodes[pool].form(), "[2, 4, 3, 3] f32");
    assert!(folded.nodes.last().is_some_and(|node| node.is_output));
    assert_eq!(folded.svg().matches("<rect").count(), folded.nodes.len() + 1);
    // Every node but the inputs is reached.
    let sources = folded.nodes.iter().filter(|node| node.inputs.is_empty()).count();
    assert!(sources <= 3, "{titles:?}");
    // Without noted calls there is nothing to fold but constants.
    let plain = Graph::of(&[&(&x.detach() * 2.0).sum()], &[("x", x)]);
    assert_eq!(
        plain.folded().nodes.iter().map(|node| node.title()).collect::<Vec<_>>()[1..],
        ["Mul(2)", "Sum"]
    );
    Ok(())
}
