//! The page's detector of speech, outside a browser, against ONNX Runtime's numbers.
#![allow(clippy::unwrap_used)]

use std::fs;

use browser::{CHUNK, Listener};

#[test]
fn speech_is_found_the_same_on_every_device() {
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates/onnx/tests/models/silero_vad");
    let model = fs::read(format!("{models}.onnx")).unwrap();
    let wanted = taper::nn::load_safetensors(format!("{models}.safetensors"), &taper::cpu()).unwrap();
    let audio = wanted["audio"].to_vec::<f32>().unwrap();
    let probabilities = wanted["probability_16k"].to_vec::<f32>().unwrap();
    let hear = |device: &taper::Device| {
        let mut listener = Listener::new(model.clone(), device).unwrap();
        for (k, (chunk, &wanted)) in audio.chunks_exact(CHUNK).zip(&probabilities).enumerate() {
            let found = pollster::block_on(listener.listen(chunk)).unwrap();
            assert!((found - wanted).abs() < 5e-5, "chunk {k} on {device}: {found}, {wanted}");
        }
        assert!(pollster::block_on(listener.listen(&[0.0; 3])).is_err());
    };
    hear(&taper::cpu());
    match pollster::block_on(taper::device_async("wgpu")) {
        Ok(device) => hear(&device),
        Err(error) => {
            let required =
                std::env::var("TAPER_TEST").is_ok_and(|settings| settings.contains("require=wgpu"));
            assert!(!required, "TAPER_TEST has require=wgpu, but {error}");
            eprintln!("skipped: {error}");
        }
    }
}
