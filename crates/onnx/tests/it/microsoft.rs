//! Errors of operators of ONNX Runtime's own domain; [`crate::runtime`] has their results.

use onnx::{
    Model,
    proto::{AttributeProto, NodeProto, TensorProto},
};
use tensor_core::Tensor;

use crate::build::{bytes_in, floats, graph, integers_of, node_of, with_int};

const UINT8: i32 = 2;
const INT32: i32 = 6;
const INT4: i32 = 22;

fn with_text(mut node: NodeProto, name: &str, text: &str) -> NodeProto {
    let attribute = AttributeProto {
        name: Some(name.into()),
        r#type: Some(3),
        s: Some(text.as_bytes().to_vec().into()),
        ..Default::default()
    };
    node.attribute.push(attribute);
    node
}

fn with_numbers(mut node: NodeProto, name: &str, numbers: &[f32]) -> NodeProto {
    let attribute = AttributeProto {
        name: Some(name.into()),
        r#type: Some(6),
        floats: numbers.to_vec(),
        ..Default::default()
    };
    node.attribute.push(attribute);
    node
}

/// The results of a node with the input x, or the error.
fn run(node: NodeProto, x: &Tensor, constants: Vec<TensorProto>) -> Result<Vec<f32>, String> {
    let graph = graph(vec![node], &["x"], &["y"], constants);
    let text = |error: tensor_core::Error| error.to_string();
    let net = Model::from_bytes(bytes_in(graph, "com.microsoft"), &backend_cpu::cpu()).map_err(text)?;
    net.run([("x", x.clone())]).and_then(|found| found.tensor("y")?.to_vec::<f32>()).map_err(text)
}

/// A product with a weight of four bits of 2 rows and 32 columns in blocks of 16, all of whose numbers are 1.
fn product(groups: &[i64], zero: Option<&[i64]>, settings: &[(&str, i64)]) -> Result<Vec<f32>, String> {
    let (z, g) = (if zero.is_some() { "z" } else { "" }, if groups.is_empty() { "" } else { "g" });
    let mut node = node_of("com.microsoft", "MatMulNBits", &["x", "b", "s", z, g], &["y"]);
    for &(name, number) in &[("K", 32), ("N", 2), ("bits", 4), ("block_size", 16)] {
        let other = settings.iter().find(|(own, _)| *own == name);
        node = with_int(node, name, other.map_or(number, |(_, number)| *number));
    }
    let mut constants =
        vec![integers_of(UINT8, "b", &[2, 2, 8], &[0x99; 32]), floats("s", &[2, 2], &[1.0; 4])];
    constants.extend(zero.map(|zero| integers_of(UINT8, "z", &[zero.len() as i64], zero)));
    constants.push(integers_of(INT32, "g", &[groups.len() as i64], groups));
    run(node, &Tensor::ones([1, 32], &backend_cpu::cpu()).unwrap(), constants)
}

#[test]
fn a_product_of_few_bits_refuses_what_does_not_fit() {
    assert_eq!(product(&[], None, &[]).unwrap(), [32.0, 32.0]);
    assert_eq!(product(&[1; 32], Some(&[0x08, 0x98]), &[]).unwrap(), [288.0, 0.0]);
    for (groups, zero, settings, wanted) in [
        (&[0; 31][..], None, &[][..], "g_idx has 31 elements"),
        (&[2; 32], None, &[], "g_idx has 2 for 2 groups"),
        (&[-1; 32], None, &[], "g_idx has -1"),
        (&[], Some(&[8i64][..]), &[], "zero points"),
        (&[], None, &[("bits", 3)], "3 bits"),
        (&[], None, &[("K", 48)], "K = 48"),
        (&[], None, &[("K", 31)], "K = 31"),
        (&[], None, &[("block_size", 0)], "block_size"),
    ] {
        let error = product(groups, zero, settings).unwrap_err();
        assert!(error.contains("MatMulNBits") && error.contains(wanted), "{wanted}: {error}");
    }
}

/// A table of 3 rows and 32 columns in blocks of 16, all of whose numbers are 1.
fn row(data_type: i32, zero: Option<&[i64]>, settings: &[(&str, i64)]) -> Result<Vec<f32>, String> {
    let mut node = node_of("com.microsoft", "GatherBlockQuantized", &["d", "x", "s"], &["y"]);
    node.input.extend(zero.map(|_| "z".to_string()));
    for &(name, number) in &[("gather_axis", 0), ("quantize_axis", 1), ("bits", 4), ("block_size", 16)] {
        let other = settings.iter().find(|(own, _)| *own == name);
        node = with_int(node, name, other.map_or(number, |(_, number)| *number));
    }
    let data = match data_type {
        UINT8 => integers_of(UINT8, "d", &[3, 16], &[0x99; 48]),
        INT4 => integers_of(INT4, "d", &[3, 32], &[0x11; 48]),
        other => integers_of(other, "d", &[3, 32], &[1; 96]),
    };
    let mut constants = vec![data, floats("s", &[3, 2], &[1.0; 6])];
    let zero_type = if data_type == INT4 { INT4 } else { UINT8 };
    let elements = if data_type == INT4 { 2 } else { 1 };
    constants.extend(zero.map(|zero| integers_of(zero_type, "z", &[zero.len() as i64 * elements], zero)));
    run(node, &Tensor::new([2], &backend_cpu::cpu()).unwrap(), constants)
}

#[test]
fn a_gather_of_blocks_refuses_what_does_not_fit() {
    assert_eq!(row(UINT8, None, &[]).unwrap(), [1.0; 32]);
    assert_eq!(row(INT4, None, &[]).unwrap(), [1.0; 32]);
    for (data_type, zero, settings, wanted) in [
        (INT32, None, &[][..], "data of i32"),
        (INT4, None, &[("bits", 8)][..], "8 bits"),
        (UINT8, None, &[("bits", 3)], "3 bits"),
        (UINT8, None, &[("gather_axis", 1)], "packed along the last axis"),
        (UINT8, None, &[("quantize_axis", 0)], "packed along the last axis"),
        (UINT8, None, &[("gather_axis", 2)], "axis 2"),
        (UINT8, None, &[("block_size", 32)], "scales"),
        (UINT8, None, &[("block_size", -16)], "block_size"),
        (UINT8, Some(&[0x88; 2][..]), &[], "zero points"),
        (INT4, Some(&[0; 2]), &[], "zero points"),
    ] {
        let error = row(data_type, zero, settings).unwrap_err();
        assert!(error.contains("GatherBlockQuantized") && error.contains(wanted), "{wanted}: {error}");
    }
}

#[test]
fn a_fused_convolution_refuses_what_does_not_fit() {
    let conv = |activation: &str, settings: &[f32], sum: &[i64]| {
        let node = node_of("com.microsoft", "FusedConv", &["x", "w", "", "z"], &["y"]);
        let node = with_numbers(with_text(node, "activation", activation), "activation_params", settings);
        let count = sum.iter().product::<i64>() as usize;
        let constants = vec![floats("w", &[1, 1, 2], &[1.0, -3.0]), floats("z", sum, &vec![0.5; count])];
        run(node, &Tensor::new([[[1.0f32, 2.0, 0.0]]], &backend_cpu::cpu()).unwrap(), constants)
    };
    assert_eq!(conv("LeakyRelu", &[0.5], &[1, 1, 2]).unwrap(), [-2.25, 2.5]);
    for (activation, settings, sum, wanted) in [
        ("LeakyRelu", &[][..], &[1, 1, 2][..], "one number"),
        ("Clip", &[1.0], &[1, 1, 2], "two numbers"),
        ("HardSigmoid", &[1.0, 2.0, 3.0], &[1, 1, 2], "two numbers"),
        ("Softplus", &[], &[1, 1, 2], "\"Softplus\""),
        ("Relu", &[], &[1, 1, 1], "[1, 1, 1]"),
    ] {
        let error = conv(activation, settings, sum).unwrap_err();
        assert!(error.contains("FusedConv") && error.contains(wanted), "{wanted}: {error}");
    }
}
