//! Weights in blocks: which are chosen, their errors, sharing, files, calibration, and bad input.

#![allow(clippy::unwrap_used)]

use taper::{
    DType, Device, Generator, GgmlType, Result, Tensor, WeightFormat,
    nn::{Calibration, Embedding, Linear, Module, QuantizeConfig, Sequential, lora, quantize},
    prelude::TensorGrad,
};

use taper_testing::assert_close;

use crate::common::device;

#[derive(Module)]
struct Net {
    table: Embedding,
    first: Linear,
    second: Linear,
    head: Linear,
}

impl Net {
    fn new(device: &Device) -> Result<Net> {
        let rng = Generator::seed(3, device);
        let table = Embedding::new(10, 64, &rng)?;
        let head = Linear::from_weight(table.weight.clone(), None);
        Ok(Net { table, first: Linear::new(64, 48, &rng)?, second: Linear::new(48, 64, &rng)?, head })
    }

    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let x = self.first.forward(&self.table.forward(ids)?)?.relu();
        self.head.forward(&self.second.forward(&x)?)
    }
}

fn ids(device: &Device) -> Result<Tensor> {
    Tensor::from_vec(vec![1i32, 5, 9], [1, 3], device)
}

#[test]
fn layers_get_the_format_that_fits_and_results_stay_near() -> Result<()> {
    let device = device();
    let mut net = Net::new(&device)?;
    let before = net.forward(&ids(&device)?)?.to_vec::<f32>()?;
    let report = quantize(&mut net, &QuantizeConfig::new(GgmlType::Q8_0))?;
    let outcomes: Vec<_> = report.layers.iter().map(|l| (l.path.as_str(), l.outcome)).collect();
    assert_eq!(
        outcomes,
        [
            ("table", Err("a table of embeddings")),
            ("first", Ok(GgmlType::Q8_0.into())),
            // 48 inputs are no whole blocks of 32.
            ("second", Err("rows that are no whole blocks")),
            ("head", Err("a table of embeddings")),
        ]
    );
    assert!(report.to_string().contains("first"), "{report}");
    assert!(report.layers[1].error > 0.0 && report.layers[1].error < 0.01);
    assert_eq!(report.layers[1].bytes, [4 * 64 * 48, 2 * 34 * 48]);
    let after = net.forward(&ids(&device)?)?.to_vec::<f32>()?;
    let change = before.iter().zip(&after).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(change > 0.0 && change < 0.05, "{change}");
    assert!(!net.first.weight.is_tracked());

    // The table, with the output layer that shares it; and weights again, in another format.
    let more = QuantizeConfig { embeddings: true, ..QuantizeConfig::new(GgmlType::Q6_K) };
    let report = quantize(&mut net, &more)?;
    let outcomes: Vec<_> = report.layers.iter().map(|l| l.outcome).collect();
    let none = Err("rows that are no whole blocks");
    let q8 = Ok(GgmlType::Q8_0.into());
    assert_eq!(outcomes, [q8, Err("in blocks already"), none, q8]);
    assert_eq!(net.table.weight.id(), net.head.weight.id());
    let again = QuantizeConfig {
        requantize: true,
        exclude: vec!["head".into()],
        formats: [("first".to_string(), GgmlType::Q5_1.into())].into(),
        ..QuantizeConfig::new(GgmlType::Q4_0)
    };
    let report = quantize(&mut net, &again)?;
    assert_eq!(report.layers[1].outcome, Ok(GgmlType::Q5_1.into()));
    assert_eq!(report.layers[1].bytes, [2 * 34 * 48, 2 * 24 * 48]);
    net.forward(&ids(&device)?)?.eval()?;
    Ok(())
}

#[test]
fn calibration_measures_inputs_and_lowers_the_errors_that_count() -> Result<()> {
    let device = device();
    let rng = Generator::seed(5, &device);
    // Half of the inputs are a hundred times as large as the others.
    let scale: Vec<f32> = (0..64).map(|i| if i % 2 == 0 { 10.0 } else { 0.1 }).collect();
    let scale = Tensor::from_vec(scale, [64], &device)?;
    let x = Tensor::randn([200, 64], &rng)?.mul(&scale)?;
    let make = || -> Result<Vec<Linear>> {
        let rng = Generator::seed(6, &device);
        Ok(vec![Linear::new(64, 32, &rng)?])
    };
    let (mut plain, mut weighed) = (make()?, make()?);
    let right = plain[0].forward(&x)?;
    let calibration = Calibration::start(&weighed);
    for part in x.chunk(4, 0)? {
        let _ = weighed[0].forward(&part.reshape([5, 10, 64])?)?;
    }
    let importance = calibration.finish()?;
    let found = importance["0"].to_vec::<f32>()?;
    let expected = x.square().mean_axis(0, false)?.to_vec::<f32>()?;
    assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-4 * b), "{found:?}");
    let config = QuantizeConfig::new(GgmlType::Q4_0);
    quantize(&mut plain, &config)?;
    quantize(&mut weighed, &QuantizeConfig { importance, ..config })?;
    let error = |layers: &[Linear]| -> Result<f32> {
        layers[0].forward(&x)?.sub(&right)?.square().mean().item::<f32>()
    };
    let [without, with] = [error(&plain)?, error(&weighed)?];
    assert!(with < 0.9 * without, "{with} with the importance, {without} without");
    // Nothing is measured after the end.
    assert!(Calibration::start(&plain).finish()?.is_empty());
    Ok(())
}

#[test]
fn adapters_are_trained_beside_blocks() -> Result<()> {
    let device = device();
    let rng = Generator::seed(1, &device);
    let mut net = Sequential::new().add(Linear::new(64, 8, &rng)?);
    quantize(&mut net, &QuantizeConfig::new(GgmlType::Q4_1))?;
    assert!(net.trainable_parameters().len() == 1, "the bias alone");
    let adapted = lora::attach(&net, &lora::LoraConfig::new(2).targets(["0"]), &rng)?;
    let x = Tensor::ones([2, 64], &device)?;
    net.forward(&x)?.square().mean().backward()?;
    assert!(adapted.parameters().iter().all(|parameter| parameter.grad().is_some()));
    Ok(())
}

#[test]
fn what_cannot_be_quantized_is_refused_by_the_layers_path() -> Result<()> {
    let device = device();
    let mut net = Net::new(&device)?;
    let huge = net.first.weight.detach().mul_scalar(1e9);
    net.first.weight = huge.into_cell(true)?;
    let config = QuantizeConfig::new(GgmlType::Q4_0);
    let error = quantize(&mut net, &config).unwrap_err().to_string();
    assert!(error.contains("first: ") && error.contains("65504"), "{error}");
    assert!(net.first.weight.block_format().is_none());
    let mut net = Net::new(&device)?;
    let importance = [("first".to_string(), Tensor::ones([48], &device)?)].into();
    let wrong = QuantizeConfig { importance, ..config };
    let error = quantize(&mut net, &wrong).unwrap_err().to_string();
    assert!(error.contains("first: ") && error.contains("one for each column"), "{error}");
    let calibration = Calibration::start(&net);
    let _ = net.first.forward(&Tensor::full([1, 64], f32::NAN, &device)?)?;
    let error = calibration.finish().unwrap_err().to_string();
    assert!(error.contains("first: ") && error.contains("not finite"), "{error}");
    let narrow = net.first.weight.detach().to_dtype(DType::F16)?.quantize(GgmlType::Q8_0, None)?;
    assert_eq!(narrow.dtype(), DType::F16);
    Ok(())
}

#[test]
fn products_and_rows_of_nf4_are_those_of_its_numbers() -> Result<()> {
    let d = device();
    let rng = Generator::seed(3, &d);
    for (rows, columns) in [(5, 64), (33, 96), (40, 256), (7, 13)] {
        for double_quantized in [false, true] {
            let weight = Tensor::randn([rows, columns], &rng)?;
            let blocks = weight.quantize(WeightFormat::Nf4 { double_quantized }, None)?;
            let dense = blocks.dequantize();
            let error = dense.sub(&weight)?.square().mean().item::<f32>()?.sqrt();
            assert!(error < 0.12, "{error}");
            for batch in [1, 3, 20] {
                let x = Tensor::randn([batch, columns], &rng)?;
                let [found, wanted] = [&blocks, &dense].map(|w| x.matmul(&w.t()?)?.to_f64_vec());
                assert_close(&found?, &wanted?, (2e-5, 2e-5), "product");
            }
            let ids = Tensor::from_vec(vec![4i32, 0, 2], [3], &d)?;
            let [found, wanted] = [&blocks, &dense].map(|w| w.index_select(0, &ids)?.to_vec::<f32>());
            assert_eq!(found?, wanted?);
        }
    }
    Ok(())
}
