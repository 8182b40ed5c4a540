//! Small models of single operators against ONNX Runtime's answers (`scripts/onnx_runtime_fixtures.py`).

use std::collections::BTreeMap;

use nn::load_safetensors;
use onnx::Model;
use tensor_core::{DType, Device, Tensor};

use crate::{devices, model};

/// The tensors of a case, by their names in it.
type Case = BTreeMap<String, Tensor>;

fn cases() -> BTreeMap<String, Case> {
    let mut cases: BTreeMap<String, Case> = BTreeMap::new();
    for (name, tensor) in load_safetensors(model("runtime_cases.safetensors"), &backend_cpu::cpu()).unwrap() {
        let (case, part) = name.split_once('/').unwrap();
        cases.entry(case.into()).or_default().insert(part.into(), tensor);
    }
    cases
}

/// The dtype of a tensor on a device, which may lack 64-bit integers.
fn dtype_on(tensor: &Tensor, device: &Device) -> DType {
    if tensor.dtype() == DType::I64 { device.int_dtype() } else { tensor.dtype() }
}

fn to_device(tensor: &Tensor, device: &Device) -> Tensor {
    tensor.to_dtype(dtype_on(tensor, device)).unwrap().to(device).unwrap()
}

/// The fault of a case's results, if there is one.
fn difference(case: &Case, device: &Device) -> Result<(), String> {
    let text = |error: tensor_core::Error| error.to_string();
    let net = Model::from_bytes(case["model"].to_vec::<u8>().unwrap(), device).map_err(text)?;
    let part = |kind: &'static str| {
        case.iter().filter_map(move |(name, tensor)| Some((name.strip_prefix(kind)?.to_string(), tensor)))
    };
    let inputs = part("in/").map(|(name, tensor)| (name, to_device(tensor, device)));
    let found = net.run(inputs).map_err(text)?;
    let tolerance = f64::from(case["tolerance"].to_vec::<f32>().unwrap()[0]);
    for (name, wanted) in part("out/") {
        let value = found.get(&name).ok_or_else(|| format!("there is no output {name}"))?;
        let dtype = dtype_on(wanted, device);
        let tensor = value.to_tensor(device).map_err(text)?;
        if tensor.dims() != wanted.dims() || tensor.dtype() != dtype {
            return Err(format!("{name} is {value:?}, and {} {} is right", wanted.dtype(), wanted.shape()));
        }
        let (found, wanted) = (tensor.to_f64_vec().map_err(text)?, wanted.to_f64_vec().unwrap());
        for (at, (a, b)) in found.iter().zip(&wanted).enumerate() {
            // An integer may differ by a unit where the tolerance is one.
            let bound = if dtype.is_float() { tolerance * (1.0 + b.abs()) } else { tolerance };
            if (a - b).abs() > bound || a.is_nan() != b.is_nan() {
                return Err(format!("{name}[{at}] is {a}, and {b} is right; {found:?} and {wanted:?}"));
            }
        }
    }
    Ok(())
}

/// Runs the cases whose names begin with one of these.
fn check(families: &[&str]) {
    let cases = cases();
    let chosen: Vec<_> =
        cases.iter().filter(|(name, _)| families.iter().any(|family| name.starts_with(family))).collect();
    assert!(!chosen.is_empty());
    let mut wrong = Vec::new();
    for device in devices() {
        for (name, case) in &chosen {
            // A GPU has no f64.
            if case.values().any(|tensor| !device.supports(dtype_on(tensor, &device))) {
                continue;
            }
            if let Err(why) = difference(case, &device) {
                wrong.push(format!("{name} on {device}: {why}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_case_is_in_a_family() {
    let families = FAMILIES;
    let odd: Vec<String> =
        cases().into_keys().filter(|name| !families.iter().any(|family| name.starts_with(family))).collect();
    assert!(odd.is_empty(), "{odd:?}");
}

const FAMILIES: &[&str] = &[
    "attention",
    "bias_gelu",
    "conv_transpose",
    "dynamic_quantize",
    "embed",
    "fused_conv",
    "gather_blocks",
    "group_query",
    "loop",
    "matmul",
    "multi_head",
    "n_bits",
    "qattention",
    "qgemm",
    "qlinear",
    "quantized_lstm",
    "range",
    "resize",
    "roi_align",
    "rotary",
    "slice",
    "trees",
];

#[test]
fn a_quantized_lstm_does_not_depend_on_its_length() {
    check(&["quantized_lstm"]);
}

#[test]
fn resize_computes_sizes_and_places_in_f32_and_rounds_once() {
    check(&["resize"]);
}

#[test]
fn the_odd_pad_of_an_output_shape_is_at_the_start() {
    check(&["conv_transpose"]);
}

#[test]
fn a_loop_without_iterations_has_the_type_and_sizes_of_its_body() {
    check(&["loop"]);
}

#[test]
fn ranges_and_slices_beyond_their_ends() {
    check(&["range", "slice"]);
}

#[test]
fn zeros_are_quantized_with_a_scale_of_one() {
    check(&["dynamic_quantize_zeros"]);
}

#[test]
fn trees_are_summed_in_their_own_precision() {
    check(&["trees"]);
}

#[test]
fn regions_of_an_image() {
    check(&["roi_align"]);
}

#[test]
fn attention_of_language_models() {
    check(&["attention", "multi_head", "group_query", "rotary", "qattention", "embed", "bias_gelu"]);
}

#[test]
fn products_of_integers_with_scales() {
    check(&["n_bits", "matmul", "dynamic_quantize_matmul", "qgemm", "qlinear"]);
}

#[test]
fn slices_of_weights_in_blocks() {
    check(&["gather_blocks"]);
}

#[test]
fn convolutions_with_a_sum_and_an_activation() {
    check(&["fused_conv"]);
}
