//! GPTQ, AWQ and NF4 against the published algorithms (`scripts/quantize_fixtures.py`), on models, and with
//! bad input.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use autograd::TensorGrad;
use nn::{
    AwqFold, AwqOptions, Calibration, GptqOptions, InputStatistics, LayerNorm, Linear, Module,
    QuantizeConfig, QuantizeMethod, RmsNorm, load_safetensors, lora, quantize, save_safetensors,
};
use serde_json::Value;
use tensor_core::{
    AffineBits, Codebook4, CodebookScales, DType, Device, Generator, IntegerGroups, Result, Tensor,
    WeightFormat,
};

fn device() -> Device {
    backend_cpu::cpu()
}

fn fixtures() -> Value {
    serde_json::from_str(include_str!("../fixtures/quantize.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

fn near(found: &[f32], wanted: &[f32], bound: f32, what: &str) {
    assert_eq!(found.len(), wanted.len(), "{what}");
    for (i, (a, b)) in found.iter().zip(wanted).enumerate() {
        assert!((a - b).abs() <= bound * b.abs().max(1.0), "{what}: element {i} is {a}, not {b}");
    }
}

fn groups(case: &Value) -> IntegerGroups {
    let bits = match (case["bits"].as_u64(), case["symmetric"].as_bool()) {
        (Some(4), Some(true)) => AffineBits::I4,
        (Some(4), _) => AffineBits::U4,
        (_, Some(true)) => AffineBits::I8,
        _ => AffineBits::U8,
    };
    IntegerGroups::new(bits, 8)
}

#[test]
fn gptq_and_awq_are_the_published_algorithms() -> Result<()> {
    let d = device();
    let all = fixtures();
    let tensor =
        |name: &str, rows: usize, columns: usize| Tensor::from_vec(numbers(&all[name]), [rows, columns], &d);
    let (weight, x, products) = (tensor("weight", 5, 32)?, tensor("x", 96, 32)?, tensor("products", 32, 32)?);
    let mut magnitudes = vec![0f64; 32];
    for (i, x) in numbers(&all["x"]).into_iter().enumerate() {
        magnitudes[i % 32] += f64::from(x.abs()) / 96.0;
    }
    let magnitudes = Tensor::from_vec(magnitudes, [32], &d)?;
    let mut errors: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for case in all["cases"].as_array().unwrap() {
        let mut layers = vec![Linear::from_weight(weight.clone().into_cell(true)?, None)];
        let calibration = Calibration::with_products(&layers);
        let right = layers[0].forward(&x)?;
        let mut inputs = calibration.statistics()?;
        let found = inputs["0"].mean_products.as_ref().unwrap().to_vec::<f32>()?;
        near(&found, &numbers(&all["products"]), 1e-3, "products");
        assert_eq!(inputs["0"].rows, 96);
        // The products and magnitudes of the reference, so that nothing is rounded to another side.
        let exact = InputStatistics {
            mean_products: Some(products.clone()),
            mean_magnitude: magnitudes.clone(),
            ..inputs["0"].clone()
        };
        inputs.insert("0".into(), exact);
        let name = case["method"].as_str().unwrap();
        let method = match name {
            "gptq" => {
                let act_order = case["act_order"].as_bool().unwrap();
                QuantizeMethod::Gptq(GptqOptions { act_order, ..GptqOptions::default() })
            }
            "awq" => QuantizeMethod::Awq(AwqOptions::default()),
            _ => QuantizeMethod::Nearest,
        };
        let config = QuantizeConfig::new(groups(case)).method(method, inputs);
        let report = quantize(&mut layers, &config)?;
        let mut found = layers[0].weight.dequantize();
        if let Some(scale) = layers[0].adapters.input_scale() {
            near(&scale.to_vec::<f32>()?, &numbers(&case["scale"]), 1e-5, "scale");
            found = found.div(&scale)?;
        }
        near(&found.to_vec::<f32>()?, &numbers(&case["weight"]), 2e-5, &case.to_string()[..60]);
        let change = layers[0].forward(&x)?.sub(&right)?.square().mean().item::<f32>()?;
        let part = f64::from(change / right.square().mean().item::<f32>()?).sqrt();
        let reported = report.layers[0].output_error.unwrap();
        assert!((part - reported).abs() <= 0.01 * part, "{part} and {reported}");
        errors.entry(groups(case).bits.range().1.to_string()).or_default().push(part);
    }
    // In each format: nearest, GPTQ, GPTQ by activations, AWQ.
    for of_format in errors.values() {
        let [nearest, gptq, by_activations, awq] = of_format[..] else { panic!("{of_format:?}") };
        assert!(gptq < nearest && by_activations < nearest && awq <= nearest, "{of_format:?}");
    }
    Ok(())
}

#[test]
fn nf4_is_that_of_bitsandbytes() -> Result<()> {
    let d = device();
    for case in fixtures()["nf4"].as_array().unwrap() {
        let shape: Vec<usize> = numbers(&case["shape"]).iter().map(|&n| n as usize).collect();
        let double_quantized = case["double"].as_bool().unwrap();
        let made = (0..shape.iter().product::<usize>() as i64).map(|i| {
            let x = ((i * i * 31 + i * 7919) % 4099 - 2049) as f32 / 1024.0;
            x * (1.0 / (1 + i / 64 % 5) as f32)
        });
        let weight = Tensor::from_vec(made.collect::<Vec<f32>>(), shape.as_slice(), &d)?;
        let blocks = weight.quantize(WeightFormat::Nf4 { double_quantized }, None)?;
        let bytes = blocks.block_bytes()?;
        let packed = case["packed"].as_str().unwrap();
        let hex: String = bytes[32..32 + packed.len() / 2].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, packed);
        let decoded: Vec<f32> = blocks.to_vec::<f32>()?.into_iter().step_by(61).collect();
        near(&decoded, &numbers(&case["decoded"]), 1e-6, "decoded");
        if double_quantized {
            let at = bytes.len() - 4 * (256 + 16);
            let float = |four: &[u8]| f32::from_le_bytes(four.try_into().unwrap());
            let table: Vec<f32> = bytes[at..at + 1024].chunks(4).map(float).collect();
            near(&table, &numbers(&case["table"]), 1e-7, "table");
            assert!(blocks.block_format().unwrap().bits_per_element() < 4.8);
        }
    }
    Ok(())
}

#[test]
fn adapters_are_trained_beside_nf4_and_files_keep_it() -> Result<()> {
    let d = device();
    let rng = Generator::seed(1, &d);
    let mut net = vec![Linear::new(96, 8, &rng)?];
    quantize(&mut net, &QuantizeConfig::new(WeightFormat::Nf4 { double_quantized: true }))?;
    let adapted = lora::attach(&net, &lora::LoraConfig::new(2).targets(["0"]), &rng)?;
    let x = Tensor::ones([2, 96], &d)?;
    net[0].forward(&x)?.square().mean().backward()?;
    assert!(adapted.parameters().iter().all(|parameter| parameter.grad().is_some()));
    let file = tempfile::NamedTempFile::new().unwrap();
    let weight = net[0].weight.clone();
    save_safetensors(file.path(), &[("w".to_string(), weight.clone())].into())?;
    let loaded = load_safetensors(file.path(), &d)?;
    assert_eq!(loaded["w"].block_bytes()?, weight.block_bytes()?);
    assert!(Codebook4::pack(&[2, 3].into(), &[0; 3], &[0.0; 15], CodebookScales::Plain(&[1.0])).is_err());
    Ok(())
}

#[derive(Clone, Module)]
struct Block {
    input_layernorm: RmsNorm,
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
    norm: LayerNorm,
    head: Linear,
}

impl Block {
    fn new(d: &Device) -> Result<Block> {
        let rng = Generator::seed(2, d);
        let linear = |inputs, outputs| Linear::new(inputs, outputs, &rng);
        let input_layernorm = RmsNorm::new([32], d)?;
        // Channels of very different sizes.
        let sizes: Vec<f32> = (0..32).map(|i| 2f32.powi(i % 7 - 3)).collect();
        input_layernorm.weight.as_ref().unwrap().assign(&Tensor::from_vec(sizes, [32], d)?)?;
        Ok(Block {
            input_layernorm,
            gate_proj: linear(32, 64)?,
            up_proj: linear(32, 64)?,
            down_proj: linear(64, 32)?,
            norm: LayerNorm::new([32], d)?,
            head: linear(32, 16)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = self.input_layernorm.forward(x)?;
        let inner = self.gate_proj.forward(&x)?.silu().mul(&self.up_proj.forward(&x)?)?;
        self.head.forward(&self.norm.forward(&self.down_proj.forward(&inner)?)?)
    }
}

fn folds() -> Vec<AwqFold> {
    vec![AwqFold::new("input_layernorm", ["gate_proj", "up_proj"]), AwqFold::new("up_proj", ["down_proj"])]
}

#[test]
fn weights_in_blocks_that_are_rounded_again_fold_as_others_do() -> Result<()> {
    let d = device();
    let x = Tensor::randn([200, 32], &Generator::seed(9, &d))?;
    let mut block = Block::new(&d)?;
    let right = block.forward(&x)?;
    quantize(&mut block, &QuantizeConfig::new(IntegerGroups::new(AffineBits::U8, 16)))?;
    let calibration = Calibration::with_products(&block);
    block.forward(&x)?.eval()?;
    let inputs = calibration.statistics()?;
    let method = QuantizeMethod::Awq(AwqOptions { folds: folds(), ..AwqOptions::default() });
    let again = |requantize| QuantizeConfig {
        requantize,
        ..QuantizeConfig::new(IntegerGroups::new(AffineBits::U4, 16)).method(method.clone(), inputs.clone())
    };
    quantize(&mut block, &again(true))?;
    let divided = |layer: &Linear| layer.adapters.input_scale().is_some();
    assert!(!divided(&block.gate_proj) && !divided(&block.down_proj) && divided(&block.head));
    let error = block.forward(&x)?.sub(&right)?.square().mean().item::<f32>()?;
    let size = right.square().mean().item::<f32>()?;
    assert!(error > 0.0 && error < 0.05 * size, "{error} of {size}");
    Ok(())
}

#[test]
fn scales_fold_into_the_layers_before_or_divide_the_input() -> Result<()> {
    let d = device();
    let x = Tensor::randn([200, 32], &Generator::seed(9, &d))?;
    let groups = IntegerGroups::new(AffineBits::U4, 16);
    let mut errors = BTreeMap::new();
    for (name, folds) in [("none", None), ("divided", Some(Vec::new())), ("folded", Some(folds()))] {
        let mut block = Block::new(&d)?;
        let calibration = Calibration::with_products(&block);
        let right = block.forward(&x)?;
        let inputs = calibration.statistics()?;
        let method =
            folds.clone().map(|folds| QuantizeMethod::Awq(AwqOptions { folds, ..AwqOptions::default() }));
        let before = block.input_layernorm.weight.as_ref().unwrap().to_vec::<f32>()?;
        quantize(&mut block, &QuantizeConfig::new(groups).method(method.unwrap_or_default(), inputs))?;
        let divided = |layer: &Linear| layer.adapters.input_scale().is_some();
        let changed = before != block.input_layernorm.weight.as_ref().unwrap().to_vec::<f32>()?;
        let [gate, down, head] = [&block.gate_proj, &block.down_proj, &block.head].map(divided);
        match name {
            "folded" => assert!(changed && !gate && !down && head),
            "divided" => assert!(!changed && gate && down && head),
            _ => assert!(!changed && !gate && !down && !head),
        }
        let error = block.forward(&x)?.sub(&right)?.square().mean().item::<f32>()?;
        errors.insert(name, error);
        // A copy is the same model, and its file loads into a model that has the scales.
        let copy = block.deep_copy()?;
        let names: Vec<String> = copy.named_buffers().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.contains(&"head.input_scale".to_string()), head, "{names:?}");
        assert_eq!(copy.forward(&x)?.to_vec::<f32>()?, block.forward(&x)?.to_vec::<f32>()?);
        // An adapter takes the input as it was.
        let rng = Generator::seed(4, &d);
        let with = block.forward(&x)?.to_vec::<f32>()?;
        let adapted = lora::attach(&block, &lora::LoraConfig::new(2).targets(["head"]), &rng)?;
        near(&block.forward(&x)?.to_vec::<f32>()?, &with, 1e-6, "an adapter of zeros");
        if head {
            let error = adapted.merge_dequantized().unwrap_err().to_string();
            assert!(error.contains("head") && error.contains("divides its input"), "{error}");
        }
    }
    assert!(errors["divided"] < errors["none"] && errors["folded"] < errors["none"], "{errors:?}");
    Ok(())
}

#[test]
fn bad_input_is_refused_by_the_layers_path() -> Result<()> {
    let d = device();
    let x = Tensor::randn([100, 32], &Generator::seed(9, &d))?;
    let mut block = Block::new(&d)?;
    let run = |block: &Block, products: bool| -> Result<_> {
        let calibration =
            if products { Calibration::with_products(block) } else { Calibration::start(block) };
        block.forward(&x)?.eval()?;
        calibration.statistics()
    };
    let inputs = run(&block, true)?;
    let plain = run(&block, false)?;
    let before = block.down_proj.weight.to_vec::<f32>()?;
    let mut refuse = |config: QuantizeConfig, parts: &[&str]| {
        let error = quantize(&mut block, &config).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    };
    let gptq = || QuantizeMethod::Gptq(GptqOptions::default());
    let awq = |folds| QuantizeMethod::Awq(AwqOptions { folds, ..AwqOptions::default() });
    let of = |group| QuantizeConfig::new(IntegerGroups::new(AffineBits::I4, group));
    refuse(of(24), &["gate_proj", "groups of 24", "32"]);
    refuse(of(24).method(gptq(), inputs.clone()), &["gate_proj", "groups of 24", "32"]);
    refuse(of(24).method(awq(vec![]), inputs.clone()), &["gate_proj", "groups of 24"]);
    for method in [gptq(), awq(vec![])] {
        let mut fewer = inputs.clone();
        fewer.remove("down_proj");
        refuse(of(16).method(method.clone(), fewer), &["down_proj", "never ran"]);
        refuse(of(16).method(method.clone(), plain.clone()), &["gate_proj", "with_products"]);
        let mut other = inputs.clone();
        other.insert("head".into(), inputs["down_proj"].clone());
        refuse(of(16).method(method, other), &["head", "[64, 64]"]);
    }
    let mut negative = inputs.clone();
    let products = inputs["head"].mean_products.as_ref().unwrap().neg();
    negative
        .insert("head".into(), InputStatistics { mean_products: Some(products), ..inputs["head"].clone() });
    refuse(of(16).method(gptq(), negative), &["head", "positive definite"]);
    refuse(
        of(16).method(awq(vec![AwqFold::new("nothing", ["head"])]), inputs.clone()),
        &["head", "into nothing", "no weight"],
    );
    refuse(
        of(16).method(awq(vec![AwqFold::new("head", ["down_proj"])]), inputs.clone()),
        &["down_proj", "head"],
    );
    let twice = vec![AwqFold::new("norm", ["head"]), AwqFold::new("down_proj", ["head"])];
    refuse(of(16).method(awq(twice), inputs), &["head", "two of AWQ's folds"]);
    assert_eq!(block.down_proj.weight.to_vec::<f32>()?, before, "the model is unchanged");
    let calibration = Calibration::with_products(&block);
    block.head.forward(&Tensor::full([1, 32], f32::NAN, &d)?)?.eval()?;
    let error = calibration.statistics().unwrap_err().to_string();
    assert!(error.contains("head") && error.contains("not finite"), "{error}");
    let text =
        Tensor::full([1, 32], f32::NAN, &d)?.quantize(WeightFormat::Nf4 { double_quantized: false }, None);
    assert!(text.unwrap_err().to_string().contains("element 0"));
    assert_eq!(block.head.weight.dtype(), DType::F32);
    Ok(())
}
