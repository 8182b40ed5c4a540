//! Rewrites of graphs: each fires where it may and gives the same result, with gradients.

use autograd::TensorGrad;
use nn::Module;
use onnx::{
    LoadOptions, Model, Registry, Rewrites,
    proto::{GraphProto, NodeProto, TensorProto},
};
use taper_testing::assert_close;
use tensor_core::{DType, Device, Tensor};

use crate::{
    build::{bytes, bytes_of, floats, graph, integers, node, with_graph, with_int},
    devices, model,
};

/// A model whose graph one rewrite changes.
struct Case {
    rewrite: &'static str,
    nodes: Vec<NodeProto>,
    initializers: Vec<TensorProto>,
    /// The shapes of the inputs x, k, v and m, as many as there are.
    shapes: Vec<Vec<usize>>,
    /// A value between the replaced nodes.
    inner: &'static str,
}

const INPUTS: [&str; 4] = ["x", "k", "v", "m"];

fn wave(n: usize, phase: f32) -> Vec<f32> {
    (0..n).map(|i| (i as f32 * 0.7 + phase).sin()).collect()
}

fn weight(name: &str, dims: &[i64], phase: f32) -> TensorProto {
    floats(name, dims, &wave(dims.iter().product::<i64>() as usize, phase))
}

fn scalar(name: &str, number: f32) -> TensorProto {
    floats(name, &[], &[number])
}

fn batch_norm() -> Case {
    let positive: Vec<f32> = wave(4, 0.3).iter().map(|x| x * x + 0.5).collect();
    Case {
        rewrite: "batch_norm",
        nodes: vec![
            node("Conv", &["x", "w", "b"], &["h"]),
            node("BatchNormalization", &["h", "scale", "shift", "mean", "variance"], &["y"]),
        ],
        initializers: vec![
            weight("w", &[4, 3, 2, 2], 0.1),
            weight("b", &[4], 0.2),
            weight("scale", &[4], 0.4),
            weight("shift", &[4], 0.5),
            weight("mean", &[4], 0.6),
            floats("variance", &[4], &positive),
        ],
        shapes: vec![vec![2, 3, 5, 4]],
        inner: "h",
    }
}

fn gelu() -> Case {
    Case {
        rewrite: "gelu",
        nodes: vec![
            node("Mul", &["x", "w"], &["s"]),
            node("Div", &["s", "root"], &["d"]),
            node("Erf", &["d"], &["e"]),
            node("Add", &["e", "one"], &["a"]),
            node("Mul", &["half", "a"], &["h"]),
            node("Mul", &["s", "h"], &["y"]),
        ],
        initializers: vec![
            weight("w", &[6], 0.1),
            scalar("root", std::f32::consts::SQRT_2),
            floats("one", &[1], &[1.0]),
            scalar("half", 0.5),
        ],
        shapes: vec![vec![3, 6]],
        inner: "e",
    }
}

fn gelu_tanh() -> Case {
    Case {
        rewrite: "gelu_tanh",
        nodes: vec![
            node("Mul", &["x", "w"], &["s"]),
            node("Pow", &["s", "three"], &["cube"]),
            node("Mul", &["cube", "small"], &["c"]),
            node("Add", &["s", "c"], &["sum"]),
            node("Mul", &["sum", "root"], &["u"]),
            node("Tanh", &["u"], &["t"]),
            node("Add", &["one", "t"], &["a"]),
            node("Mul", &["s", "half"], &["h"]),
            node("Mul", &["h", "a"], &["y"]),
        ],
        initializers: vec![
            weight("w", &[6], 0.1),
            scalar("three", 3.0),
            scalar("small", 0.044_715),
            scalar("root", 0.797_884_6),
            floats("one", &[1, 1, 1], &[1.0]),
            scalar("half", 0.5),
        ],
        shapes: vec![vec![3, 6]],
        inner: "t",
    }
}

fn layer_norm() -> Case {
    Case {
        rewrite: "layer_norm",
        nodes: vec![
            node("ReduceMean", &["x", "axes"], &["mean"]),
            node("Sub", &["x", "mean"], &["d"]),
            node("Pow", &["d", "two"], &["square"]),
            node("ReduceMean", &["square", "axes"], &["variance"]),
            node("Add", &["variance", "eps"], &["safe"]),
            node("Sqrt", &["safe"], &["root"]),
            node("Div", &["d", "root"], &["n"]),
            node("Mul", &["n", "w"], &["s"]),
            node("Add", &["s", "b"], &["y"]),
        ],
        initializers: vec![
            weight("w", &[6], 0.1),
            weight("b", &[6], 0.9),
            scalar("two", 2.0),
            scalar("eps", 1e-5),
            integers("axes", &[1], &[-1]),
        ],
        shapes: vec![vec![2, 3, 6]],
        inner: "d",
    }
}

fn attention() -> Case {
    Case {
        rewrite: "attention",
        nodes: vec![
            node("Mul", &["x", "w"], &["q"]),
            node("Mul", &["q", "root"], &["qs"]),
            node("Mul", &["k", "root"], &["ks"]),
            node("MatMul", &["qs", "ks"], &["scores"]),
            node("Add", &["scores", "m"], &["masked"]),
            with_int(node("Softmax", &["masked"], &["p"]), "axis", -1),
            node("IsNaN", &["p"], &["nan"]),
            node("Where", &["nan", "zero", "p"], &["safe"]),
            node("MatMul", &["safe", "v"], &["y"]),
        ],
        initializers: vec![weight("w", &[4], 0.1), scalar("root", 0.7), scalar("zero", 0.0)],
        shapes: vec![vec![2, 3, 12, 4], vec![2, 3, 4, 11], vec![2, 3, 11, 5], vec![2, 1, 1, 11]],
        inner: "scores",
    }
}

fn linear() -> Case {
    Case {
        rewrite: "linear",
        nodes: vec![node("MatMul", &["x", "w"], &["h"]), node("Add", &["b", "h"], &["y"])],
        initializers: vec![weight("w", &[6, 5], 0.1), weight("b", &[5], 0.2)],
        shapes: vec![vec![2, 3, 6]],
        inner: "h",
    }
}

fn weights_in_blocks() -> Case {
    let numbers: Vec<i8> = (0..40 * 30).map(|i| (i * 37 % 255 - 127) as i8).collect();
    let scale: Vec<f32> = wave(30, 0.1).iter().map(|x| 0.01 + 0.01 * x * x).collect();
    Case {
        rewrite: "weights_in_blocks",
        nodes: vec![
            with_int(node("Cast", &["q"], &["f"]), "to", 1),
            node("Mul", &["f", "scale"], &["w"]),
            node("MatMul", &["x", "w"], &["y"]),
        ],
        initializers: vec![bytes_of("q", &[40, 30], &numbers), floats("scale", &[1, 30], &scale)],
        shapes: vec![vec![3, 40]],
        inner: "f",
    }
}

fn cases() -> Vec<Case> {
    vec![batch_norm(), gelu(), gelu_tanh(), layer_norm(), attention(), linear(), weights_in_blocks()]
}

impl Case {
    fn graph(&self, outputs: &[&str]) -> GraphProto {
        graph(self.nodes.clone(), &INPUTS[..self.shapes.len()], outputs, self.initializers.clone())
    }

    fn load(&self, rewrites: Rewrites, device: &Device) -> Model {
        Model::from_bytes_with(bytes(self.graph(&["y"])), device, rewrites).unwrap()
    }

    fn inputs(&self, device: &Device) -> Vec<Tensor> {
        let input = |(at, shape): (usize, &Vec<usize>)| {
            let list = wave(shape.iter().product(), at as f32);
            Tensor::from_vec(list, shape.as_slice(), device).unwrap()
        };
        self.shapes.iter().enumerate().map(input).collect()
    }
}

fn run(net: &Model, inputs: &[Tensor]) -> Tensor {
    net.run(INPUTS.into_iter().zip(inputs)).unwrap().tensor("y").unwrap()
}

fn list(tensor: &Tensor) -> Vec<f64> {
    tensor.to_f64_vec().unwrap()
}

#[test]
fn each_rewrite_fires_once_and_gives_the_same_result() {
    for device in devices() {
        for case in cases() {
            let what = format!("{} on {device}", case.rewrite);
            let (net, plain) =
                (case.load(Rewrites::default(), &device), case.load(Rewrites::none(), &device));
            assert_eq!(net.rewritten().get(case.rewrite), Some(&1), "{what}: {:?}", net.rewritten());
            assert!(plain.rewritten().is_empty(), "{what}");
            let inputs = case.inputs(&device);
            let (found, wanted) = (run(&net, &inputs), run(&plain, &inputs));
            assert_eq!(found.dims(), wanted.dims(), "{what}");
            assert_close(&list(&found), &list(&wanted), (1e-4, 1e-5), &what);
            // Without gradients, values that depend on weights alone are kept from the first run on.
            for _ in 0..2 {
                let found = autograd::no_grad(|| run(&net, &inputs));
                assert_close(&list(&found), &list(&wanted), (1e-4, 1e-5), &what);
            }
        }
    }
}

#[test]
fn gradients_reach_inputs_and_parameters_as_before() {
    for device in devices() {
        for case in cases() {
            let mut gradients = Vec::new();
            for rewrites in [Rewrites::default(), Rewrites::none()] {
                let net = case.load(rewrites, &device);
                let inputs: Vec<Tensor> =
                    case.inputs(&device).into_iter().map(|x| x.into_cell(true).unwrap()).collect();
                let y = run(&net, &inputs);
                let factors = Tensor::from_vec(wave(y.numel(), 0.3), y.shape(), &device).unwrap();
                y.mul(&factors).unwrap().sum().backward().unwrap();
                let of_inputs: Vec<Vec<f64>> = inputs.iter().map(|x| list(&x.grad().unwrap())).collect();
                let of_weights = net.named_parameters().into_iter().map(|(name, parameter)| {
                    let gradient = parameter.grad();
                    (name, gradient.map(|gradient| list(&gradient)))
                });
                gradients.push((of_inputs, of_weights.collect::<Vec<_>>()));
            }
            let [(inputs, weights), (plain_inputs, plain_weights)] = gradients.as_slice() else {
                unreachable!()
            };
            let what = format!("{} on {device}", case.rewrite);
            for (found, wanted) in inputs.iter().zip(plain_inputs) {
                assert_close(found, wanted, (1e-3, 1e-4), &what);
            }
            // Numbers that are part of a step, and scales of weights in blocks, are no parameters.
            for (name, found) in weights {
                let wanted = plain_weights.iter().find(|(plain, _)| plain == name).unwrap();
                let what = format!("{what}: {name}");
                let (Some(found), Some(wanted)) = (found, &wanted.1) else {
                    panic!("{what} has no gradient")
                };
                assert_close(found, wanted, (1e-3, 1e-4), &what);
            }
        }
    }
}

#[test]
fn rewrites_can_be_switched_off_one_by_one() {
    let cpu = backend_cpu::cpu();
    for case in cases() {
        let off = case.load(Rewrites::default().without(case.rewrite).unwrap(), &cpu);
        assert_eq!(off.rewritten().get(case.rewrite), None, "{}", case.rewrite);
        let only = case.load(Rewrites::none().with(case.rewrite).unwrap(), &cpu);
        assert_eq!(only.rewritten().get(case.rewrite), Some(&1), "{}", case.rewrite);
        assert_eq!(only.rewritten().len(), 1, "{}", case.rewrite);
    }
    assert!(Rewrites::default().without("batchnorm").is_err());
}

#[test]
fn values_that_are_read_elsewhere_are_not_rewritten() {
    let cpu = backend_cpu::cpu();
    for case in cases() {
        let only = || Rewrites::none().with(case.rewrite).unwrap();
        let rewritten = |graph: GraphProto| {
            let net = Model::from_bytes_with(bytes(graph), &cpu, only()).unwrap();
            net.rewritten().get(case.rewrite).copied()
        };
        assert_eq!(rewritten(case.graph(&["y", case.inner])), None, "{}: an output", case.rewrite);
        let mut read = case.graph(&["y", "z"]);
        read.node.push(node("Identity", &[case.inner], &["z"]));
        assert_eq!(rewritten(read), None, "{}: another node", case.rewrite);
        let inner = graph(vec![node("Identity", &[case.inner], &["inside"])], &[], &["inside"], vec![]);
        let branch = with_graph(node("If", &["condition"], &["z"]), "then_branch", inner.clone());
        let mut captured = case.graph(&["y", "z"]);
        captured.node.push(with_graph(branch, "else_branch", inner));
        captured.initializer.push(TensorProto {
            name: Some("condition".into()),
            data_type: Some(9),
            int32_data: vec![1],
            ..Default::default()
        });
        assert_eq!(rewritten(captured), None, "{}: an inner graph", case.rewrite);
    }
}

#[test]
fn initializers_that_a_run_may_replace_are_no_constants() {
    let cpu = backend_cpu::cpu();
    let mut graph = gelu().graph(&["y"]);
    graph.input.push(onnx::proto::ValueInfoProto { name: Some("half".into()), ..Default::default() });
    let net = Model::from_bytes(bytes(graph), &cpu).unwrap();
    assert_eq!(net.rewritten().get("gelu"), None);
    let x = gelu().inputs(&cpu).remove(0);
    let wanted = run(&gelu().load(Rewrites::none(), &cpu), std::slice::from_ref(&x));
    let half = Tensor::full((), 1.0f32, &cpu).unwrap();
    let found = net.run([("x", &x), ("half", &half)]).unwrap().tensor("y").unwrap();
    assert_close(&list(&found), &list(&wanted.mul_scalar(2.0)), (1e-5, 1e-6), "twice");
}

#[test]
fn operators_of_the_user_are_not_replaced() {
    let cpu = backend_cpu::cpu();
    let mut registry = Registry::default();
    registry.register("", "Erf", 9, |context| Ok(vec![context.tensor(0)?.mul_scalar(0.0).into()]));
    let net = Model::from_bytes_with(bytes(gelu().graph(&["y"])), &cpu, &registry).unwrap();
    assert_eq!(net.rewritten().get("gelu"), None);
}

#[test]
fn a_folded_batch_norm_follows_changes_of_its_parameters() {
    for device in devices() {
        let case = batch_norm();
        let (net, plain) = (case.load(Rewrites::default(), &device), case.load(Rewrites::none(), &device));
        let inputs = case.inputs(&device);
        autograd::no_grad(|| run(&net, &inputs)).eval().unwrap();
        for model in [&net, &plain] {
            let parameters = model.named_parameters();
            let (_, scale) = parameters.iter().find(|(name, _)| name == "scale").unwrap();
            scale.assign(&scale.mul_scalar(3.0)).unwrap();
        }
        let (found, wanted) = autograd::no_grad(|| (run(&net, &inputs), run(&plain, &inputs)));
        assert_close(&list(&found), &list(&wanted), (1e-4, 1e-5), &format!("batch norm on {device}"));
    }
}

#[test]
fn weights_in_blocks_take_a_byte_for_each_number() {
    for device in devices() {
        let case = weights_in_blocks();
        let net = case.load(Rewrites::default(), &device);
        assert!(net.parameters().is_empty());
        let state = net.state_dict();
        assert_eq!(state.len(), 1);
        let weight = &state["q"];
        assert_eq!((weight.dims(), weight.dtype()), (&[40, 30][..], DType::F32));
        let bytes = weight.detach().block_bytes().unwrap().len();
        assert!(bytes < 40 * 30 + 200, "{bytes} bytes on {device}");
    }
}

#[test]
fn tables_in_blocks_are_gathered() {
    let numbers: Vec<i8> = (0..200 * 8).map(|i| (i * 31 % 251 - 125) as i8).collect();
    let nodes = vec![
        with_int(node("Cast", &["q"], &["f"]), "to", 1),
        node("Mul", &["f", "scale"], &["table"]),
        node("Gather", &["table", "x"], &["y"]),
    ];
    let scale: Vec<f32> = wave(200, 0.4).iter().map(|x| 0.02 + 0.01 * x).collect();
    let initializers = vec![bytes_of("q", &[200, 8], &numbers), floats("scale", &[200, 1], &scale)];
    let file = bytes(graph(nodes, &["x"], &["y"], initializers));
    for device in devices() {
        let index = Tensor::new([0, 199, 7, 7], &device).unwrap();
        let load = |rewrites: Rewrites| Model::from_bytes_with(file.clone(), &device, rewrites).unwrap();
        let (net, plain) = (load(Rewrites::default()), load(Rewrites::none()));
        assert_eq!(net.rewritten().get("weights_in_blocks"), Some(&1));
        let (found, wanted) = (run(&net, std::slice::from_ref(&index)), run(&plain, &[index]));
        assert_eq!(list(&found), list(&wanted), "gathered on {device}");
    }
}

#[test]
fn attention_of_other_forms_is_computed_step_by_step() {
    // Keys without a batch, and a softmax over the queries.
    let mut case = attention();
    case.nodes[5] = with_int(node("Softmax", &["masked"], &["p"]), "axis", 2);
    case.shapes = vec![vec![2, 3, 12, 4], vec![4, 11], vec![2, 3, 11, 5], vec![12, 11]];
    let cpu = backend_cpu::cpu();
    let (net, plain) = (case.load(Rewrites::default(), &cpu), case.load(Rewrites::none(), &cpu));
    assert_eq!(net.rewritten().get("attention"), Some(&1));
    let inputs = case.inputs(&cpu);
    assert_close(&list(&run(&net, &inputs)), &list(&run(&plain, &inputs)), (1e-4, 1e-6), "attention");
}

#[test]
fn real_models_give_the_same_with_and_without_rewrites() {
    let cpu = backend_cpu::cpu();
    let path = model("ch_ppocr_mobile_v2.0_cls_infer.onnx");
    let net = Model::load(&path, &cpu).unwrap();
    assert_eq!(net.rewritten().get("batch_norm"), Some(&35), "{:?}", net.rewritten());
    let plain = LoadOptions { rewrites: Rewrites::none(), ..Default::default() };
    let plain = Model::load_with(&path, &cpu, plain).unwrap();
    let x = Tensor::from_vec(wave(3 * 48 * 192, 0.0), [1, 3, 48, 192], &cpu).unwrap();
    let answer =
        |net: &Model| autograd::no_grad(|| net.run([("x", &x)])).unwrap().tensors().unwrap().remove(0);
    assert_close(&list(&answer(&net)), &list(&answer(&plain)), (1e-4, 1e-6), "direction");
}
