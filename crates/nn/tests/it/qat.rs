//! Simulated quantization against PyTorch's numbers (`scripts/qat_fixtures.py`), training with it, and bad
//! input.
#![allow(clippy::unwrap_used)]

use autograd::TensorGrad;
use nn::{
    Conv2d, Linear, Module,
    functional::{fake_quantize_per_channel_affine, fake_quantize_per_tensor_affine},
    lora::{self, LoraConfig},
    qat::{IntegerRange, Observer, ObserverKind, QatConfig, prepare, prepare_qat},
};
use serde_json::Value;
use tensor_core::{Device, Generator, Result, Tensor};

fn device() -> Device {
    backend_cpu::cpu()
}

fn fixtures() -> Value {
    serde_json::from_str(include_str!("../fixtures/qat.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

fn close(found: &Tensor, wanted: &Value, what: &str) {
    let wanted: Vec<f64> = numbers(wanted).into_iter().map(f64::from).collect();
    taper_testing::assert_close(&found.to_f64_vec().unwrap(), &wanted, (1e-6, 1e-6), what);
}

#[test]
fn fake_quantization_and_its_gradient_are_those_of_pytorch() -> Result<()> {
    let (all, d) = (fixtures(), device());
    let output_gradient = Tensor::from_vec(numbers(&all["output_gradient"]), [4, 6], &d)?;
    for case in all["cases"].as_array().unwrap() {
        let x = Tensor::from_vec(numbers(&all["x"]), [4, 6], &d)?.requires_grad();
        let [scale, zero] = ["scale", "zero"].map(|name| numbers(&case[name]));
        let [scale, zero] =
            [scale, zero].map(|list| Tensor::from_vec(list.clone(), [list.len()], &d).unwrap());
        let (low, high) = (case["low"].as_i64().unwrap(), case["high"].as_i64().unwrap());
        let y = match case["axis"].as_i64() {
            None => fake_quantize_per_tensor_affine(&x, &scale, &zero, low, high)?,
            Some(axis) => fake_quantize_per_channel_affine(&x, &scale, &zero, axis as isize, low, high)?,
        };
        close(&y, &case["y"], "numbers");
        y.mul(&output_gradient)?.sum().backward()?;
        close(&x.grad().unwrap(), &case["gradient"], "gradient");
    }
    Ok(())
}

#[test]
fn observers_find_the_scales_of_pytorch() -> Result<()> {
    let (all, d) = (fixtures(), device());
    for case in all["observers"].as_array().unwrap() {
        let kind = match case["kind"].as_str() {
            Some("min_max") => ObserverKind::MinMax,
            _ => ObserverKind::MovingAverage { averaging_constant: 0.01 },
        };
        let integers = if case["symmetric"].as_bool().unwrap() { IntegerRange::I8 } else { IntegerRange::U8 };
        let mut observer = Observer::new(kind);
        assert_eq!(observer.parameters(integers), None);
        for batch in all["batches"].as_array().unwrap() {
            observer.observe(&Tensor::from_vec(numbers(batch), [3, 5], &d)?)?;
        }
        let (scale, zero) = observer.parameters(integers).unwrap();
        let wanted = case["scale"].as_f64().unwrap();
        assert!((scale - wanted).abs() <= 1e-6 * wanted, "{case}: {scale}");
        assert_eq!(zero, case["zero"].as_f64().unwrap(), "{case}");
    }
    Ok(())
}

#[test]
fn a_histogram_cuts_rare_numbers_off_where_that_lowers_the_error() -> Result<()> {
    let d = device();
    let x = Tensor::randn([20_000], &Generator::seed(1, &d))?;
    let error = |observer: &Observer, integers: IntegerRange| -> Result<f32> {
        let (scale, zero) = observer.parameters(integers).unwrap();
        let [scale, zero] = [scale, zero].map(|x| Tensor::full((), x, &d).unwrap());
        let (low, high) = (integers.quant_min, integers.quant_max);
        fake_quantize_per_tensor_affine(&x, &scale, &zero, low, high)?.sub(&x)?.square().mean().item::<f32>()
    };
    let four_bits = IntegerRange { quant_min: 0, quant_max: 15, symmetric: false };
    let mut observers = [ObserverKind::MinMax, ObserverKind::Histogram { bins: 2048 }].map(Observer::new);
    for part in x.chunk(10, 0)? {
        observers.iter_mut().try_for_each(|observer| observer.observe(&part))?;
    }
    let [whole, cut] = [error(&observers[0], four_bits)?, error(&observers[1], four_bits)?];
    assert!(cut < 0.8 * whole, "{cut} and {whole}");
    let (low, high) = observers[1].range(IntegerRange::U8).unwrap();
    assert!(low < -3.0 && high > 3.0, "eight bits reach far: {low} to {high}");
    Ok(())
}

#[derive(Clone, Module)]
struct Net {
    conv: Conv2d,
    fc: Linear,
    unused: Linear,
}

impl Net {
    fn new(d: &Device) -> Result<Net> {
        let rng = Generator::seed(4, d);
        Ok(Net {
            conv: Conv2d::new(2, 6, 3, &rng)?,
            fc: Linear::new(6 * 36, 3, &rng)?,
            unused: Linear::new(2, 2, &rng)?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.fc.forward(&self.conv.forward(x)?.relu().flatten(1, -1)?)
    }
}

fn without_unused() -> QatConfig {
    QatConfig { exclude: vec!["unused".into()], ..QatConfig::default() }
}

#[test]
fn a_network_trains_with_rounding_and_becomes_integers() -> Result<()> {
    let d = device();
    let mut net = Net::new(&d)?;
    let qat = prepare_qat(&net, &without_unused())?;
    assert_eq!(qat.layers(), ["conv", "fc"]);
    let names: Vec<String> = net.named_buffers().into_iter().map(|(name, _)| name).collect();
    assert!(names.contains(&"fc.input_quantizer.scale".to_string()), "{names:?}");
    let rng = Generator::seed(8, &d);
    let (x, target) = (Tensor::randn([16, 2, 8, 8], &rng)?, Tensor::randn([16, 3], &rng)?);
    let loss = |net: &Net| nn::mse_loss(&net.forward(&x)?, &target);
    let before = loss(&net)?.item::<f32>()?;
    for _ in 0..30 {
        loss(&net)?.backward()?;
        for parameter in net.trainable_parameters() {
            let Some(gradient) = parameter.grad() else { continue };
            parameter.assign(&parameter.detach().sub(&gradient.mul_scalar(0.02))?)?;
            parameter.set_grad(None);
        }
    }
    let after = loss(&net)?.item::<f32>()?;
    assert!(after < 0.8 * before, "{before} to {after}");
    qat.observe(false);
    let simulated = net.forward(&x)?.to_f64_vec()?;
    let copy = net.deep_copy()?;
    assert_eq!(copy.forward(&x)?.to_f64_vec()?, simulated);
    qat.convert(&mut net)?;
    let found = net.forward(&x)?.to_f64_vec()?;
    taper_testing::assert_close(&found, &simulated, (1e-5, 1e-5), "integers");
    assert_eq!(net.conv.weight.block_format().unwrap().name(), "affine_i8");
    assert!(net.unused.weight.block_format().is_none());
    // The copy has its own scales.
    copy.forward(&x.mul_scalar(100.0))?.eval()?;
    assert_eq!(net.forward(&x)?.to_f64_vec()?, found);
    Ok(())
}

#[test]
fn calibration_alone_changes_nothing_until_it_is_converted() -> Result<()> {
    let d = device();
    let mut net = Net::new(&d)?;
    let x = Tensor::randn([16, 2, 8, 8], &Generator::seed(8, &d))?;
    let right = net.forward(&x)?;
    for observer in [ObserverKind::MinMax, ObserverKind::Histogram { bins: 512 }] {
        let qat = prepare(&net, &QatConfig { observer, ..without_unused() })?;
        assert_eq!(net.forward(&x)?.to_f64_vec()?, right.to_f64_vec()?);
        assert!(qat.input_parameters("fc").is_some_and(|(scale, _)| scale > 0.0));
        qat.remove();
    }
    let qat = prepare(&net, &QatConfig { observer: ObserverKind::MinMax, ..without_unused() })?;
    net.forward(&x)?.eval()?;
    qat.convert(&mut net)?;
    let error =
        net.forward(&x)?.sub(&right)?.square().mean().div(&right.square().mean())?.item::<f32>()?.sqrt();
    assert!(error > 0.0 && error < 0.03, "{error}");
    // Adapters take the input as it was, beside the integers.
    let before = net.forward(&x)?.to_f64_vec()?;
    let config = LoraConfig::new(2).targets(["fc", "conv"]);
    let adapted = lora::attach(&net, &config, &Generator::seed(2, &d))?;
    taper_testing::assert_close(&net.forward(&x)?.to_f64_vec()?, &before, (1e-6, 1e-6), "zeros");
    net.forward(&x)?.square().mean().backward()?;
    assert!(adapted.parameters().iter().all(|parameter| parameter.grad().is_some()));
    Ok(())
}

#[test]
fn bad_input_is_refused_by_the_layers_path() -> Result<()> {
    let d = device();
    let mut net = Net::new(&d)?;
    let x = Tensor::randn([1, 2, 8, 8], &Generator::seed(8, &d))?;
    let qat = prepare(&net, &QatConfig::default())?;
    let error = prepare_qat(&net, &QatConfig::default()).unwrap_err().to_string();
    assert!(error.contains("conv") && error.contains("prepared already"), "{error}");
    let error = net.forward(&x.mul_scalar(f64::NAN)).unwrap_err().to_string();
    assert!(error.contains("conv: ") && error.contains("not finite"), "{error}");
    net.forward(&x)?.eval()?;
    let error = qat.convert(&mut net).unwrap_err().to_string();
    assert!(error.contains("unused") && error.contains("no input was observed"), "{error}");
    assert!(net.conv.weight.block_format().is_none(), "the model is unchanged");
    let none =
        QatConfig { exclude: vec!["conv".into(), "fc".into(), "unused".into()], ..QatConfig::default() };
    assert!(prepare(&Net::new(&d)?, &none).unwrap_err().to_string().contains("no linear layer"));

    let scale = Tensor::ones([2], &d)?;
    let rows = Tensor::ones([3, 2], &d)?;
    let error = |result: Result<Tensor>| result.unwrap_err().to_string();
    assert!(error(fake_quantize_per_tensor_affine(&rows, &scale, &scale, 0, 255)).contains("one of each"));
    assert!(
        error(fake_quantize_per_channel_affine(&rows, &scale, &scale, 0, 0, 255)).contains("3 positions")
    );
    assert!(error(fake_quantize_per_channel_affine(&rows, &scale, &scale, 1, 5, 5)).contains("range"));
    assert!(fake_quantize_per_channel_affine(&rows, &scale, &scale, 2, 0, 255).is_err());
    let mut observer = Observer::new(ObserverKind::Histogram { bins: 0 });
    assert!(observer.observe(&rows).unwrap_err().to_string().contains("0 bins"));
    Ok(())
}
