//! Models made elsewhere give what ONNX Runtime gives for them, on every device.

use nn::{Module, load_safetensors};
use onnx::{Model, Value};
use taper_testing::assert_close;
use tensor_core::{DType, Device, Result, Tensor};

use crate::{devices, model};

fn floats(tensor: &Tensor) -> Vec<f64> {
    tensor.to_f64_vec().unwrap()
}

/// Probabilities of speech and the last state, chunk by chunk, each with the end of the one before.
fn speech(net: &Model, audio: &[f32], rate: i64, device: &Device) -> Result<(Vec<f64>, Vec<f64>)> {
    let (chunk, context) = if rate == 16000 { (512, 64) } else { (256, 32) };
    let mut tail = vec![0.0f32; context];
    let mut state = Tensor::zeros((2, 1, 128), device)?;
    let rate = Tensor::full((), rate, (device.int_dtype(), device))?;
    let mut probabilities = Vec::new();
    for samples in audio.chunks_exact(chunk) {
        let x = [tail.as_slice(), samples].concat();
        tail = x[chunk..].to_vec();
        let x = Tensor::from_vec(x, (1, chunk + context), device)?;
        let out = net.run([("input", &x), ("state", &state), ("sr", &rate)])?;
        probabilities.push(out.tensor("output")?.item_f64()?);
        state = out.tensor("stateN")?.detach();
    }
    Ok((probabilities, floats(&state)))
}

#[test]
fn silero_hears_speech() {
    for device in devices() {
        let net = Model::load(model("silero_vad.onnx"), &device).unwrap();
        let wanted = load_safetensors(model("silero_vad.safetensors"), &backend_cpu::cpu()).unwrap();
        let audio = wanted["audio"].to_vec::<f32>().unwrap();
        let half: Vec<f32> = audio.iter().step_by(2).copied().collect();
        for (rate, audio, name) in [(16000, &audio, "16k"), (8000, &half, "8k")] {
            let (found, state) = autograd::no_grad(|| speech(&net, audio, rate, &device)).unwrap();
            let what = format!("silero at {name} on {device}");
            assert_close(&found, &floats(&wanted[&format!("probability_{name}")]), (2e-5, 2e-5), &what);
            assert_close(&state, &floats(&wanted[&format!("state_{name}")]), (1e-4, 1e-4), &what);
        }
    }
}

#[test]
fn a_picture_is_known_to_be_upside_down() {
    for device in devices() {
        let net = Model::load(model("ch_ppocr_mobile_v2.0_cls_infer.onnx"), &device).unwrap();
        let wanted = load_safetensors(model("ocr_direction.safetensors"), &device).unwrap();
        let pictures = wanted["direction_images"].to_dtype(DType::F32).unwrap();
        let x = pictures.div_scalar(255.0).sub_scalar(0.5).div_scalar(0.5).permute([0, 3, 1, 2]).unwrap();
        let out = net.run([("x", &x)]).unwrap().tensors().unwrap().remove(0);
        let what = format!("direction on {device}");
        assert_close(&floats(&out), &floats(&wanted["direction"]), (1e-5, 1e-6), &what);
    }
}

#[test]
fn basic_pitch_hears_notes() {
    for device in devices() {
        let net = Model::load(model("basic_pitch.onnx"), &device).unwrap();
        let wanted = load_safetensors(model("basic_pitch.safetensors"), &backend_cpu::cpu()).unwrap();
        let audio = wanted["audio"].to_dtype(DType::F32).unwrap().reshape([1, 43844, 1]).unwrap();
        let audio = audio.to(&device).unwrap();
        let out = autograd::no_grad(|| net.run([("serving_default_input_2:0", &audio)])).unwrap();
        for (at, name) in [(1, "note"), (2, "onset")] {
            let found = out.tensor(&format!("StatefulPartitionedCall:{at}")).unwrap();
            // The model normalizes a logarithm by its range: ONNX Runtime differs from itself by 6e-4.
            let what = format!("basic pitch: {name} on {device}");
            assert_close(&floats(&found), &floats(&wanted[name]), (0.0, 3e-3), &what);
        }
    }
}

#[test]
fn models_are_modules() {
    let cpu = backend_cpu::cpu();
    let mut net = Model::load(model("basic_pitch.onnx"), &cpu).unwrap();
    assert!(net.num_parameters() > 10_000, "{}", net.num_parameters());
    assert!(net.parameters().iter().all(|parameter| parameter.dtype().is_float()));
    let state = net.state_dict();
    let changed: nn::StateDict =
        state.iter().map(|(name, value)| (name.clone(), value.mul_scalar(1))).collect();
    net.load_state_dict(&changed).unwrap();
    assert_eq!(net.inputs()[0].name, "serving_default_input_2:0");
    assert_eq!(net.output_names().count(), 3);
    for device in devices() {
        net.to(&device).unwrap();
        assert!(net.parameters().iter().all(|parameter| parameter.device() == device));
    }
}

#[test]
fn inputs_are_checked_against_the_models_own() {
    let cpu = backend_cpu::cpu();
    let net = Model::load(model("ch_ppocr_mobile_v2.0_cls_infer.onnx"), &cpu).unwrap();
    let x = |shape: &[usize]| Value::from(Tensor::zeros(shape, &cpu).unwrap());
    let error = |inputs: Vec<(&str, Value)>| net.run(inputs).unwrap_err().to_string();
    let name = error(vec![("y", x(&[1, 3, 48, 192]))]);
    assert!(name.contains("no input \"y\"") && name.contains("\"x\" f32"), "{name}");
    let missing = error(vec![]);
    assert!(missing.contains("\"x\" is not given"), "{missing}");
    let shape = error(vec![("x", x(&[1, 4, 48, 192]))]);
    assert!(shape.contains("[1, 4, 48, 192]"), "{shape}");
    let dtype = Tensor::zeros((1, 3, 48, 192), (DType::F64, &cpu)).unwrap();
    let dtype = error(vec![("x", dtype.into())]);
    assert!(dtype.contains("f64"), "{dtype}");
}
