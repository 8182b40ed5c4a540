//! Networks by files alone: classifiers by the name of their architecture, detectors, and their results.

use std::fs;

use models::vision::{
    Detections, Detr, DetrConfig, ImageClassifier, Preprocess, ResNet, ResNetConfig, TimmVit, TimmVitConfig,
    VitPool, YoloV8, YoloV8Config,
};
use nn::{Module, save_safetensors};
use tensor_core::{Generator, Result, Tensor};

use crate::fixture::{Fixture, floats};

/// timm's configuration of the network of the fixture `timm_vit`, for pictures of 20 x 16 pixels.
const TIMM: &str = r#"{"architecture": "vit_tiny_patch16_224", "num_classes": 10, "global_pool": "avg",
    "model_args": {"img_size": 16, "embed_dim": 32, "depth": 2, "patch_size": 8, "num_heads": 2,
        "qkv_bias": false, "global_pool": "avg"},
    "pretrained_cfg": {"input_size": [3, 16, 16], "crop_pct": 1.0, "interpolation": "bicubic",
        "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "classifier": "head"},
    "label_names": ["n0", "n1", "n2"], "label_descriptions": {"n1": "goldfish"}}"#;

#[test]
fn a_folder_of_timm_is_a_classifier() -> Result<()> {
    let (fixture, device) = (Fixture::open("timm_vit"), backend_cpu::cpu());
    fs::write(fixture.folder().join("config.json"), TIMM).unwrap();
    let classifier = ImageClassifier::from_folder(fixture.folder(), &device)?;
    let x = fixture.input("x", &device);
    taper_testing::assert_close(
        &floats(&classifier.network.forward(&x)?),
        &fixture.output("logits"),
        (0.0, 1e-4),
        "timm_vit",
    );
    let expected = Preprocess { resize: 16, crop: 16, bicubic: true, mean: [0.5; 3], std: [0.5; 3] };
    assert_eq!(classifier.preprocess, expected);
    assert_eq!(classifier.labels, ["n0", "goldfish", "n2"]);

    let config = TimmVitConfig {
        img_size: 16,
        embed_dim: 32,
        depth: 2,
        patch_size: 8,
        num_heads: 2,
        qkv_bias: false,
        global_pool: VitPool::Avg,
        num_classes: 10,
        ..TimmVitConfig::vit_tiny_patch16_224()
    };
    let model = TimmVit::new(&config, fixture.source(&device))?;
    model.eval();
    let picture = Tensor::rand([3, 20, 16], &Generator::seed(1, &device))?;
    let shares = floats(&model.forward(&expected.apply(&picture)?)?.softmax(-1)?);
    let found = classifier.classify(&picture, 5)?;
    assert_eq!(found.len(), 5);
    for pair in found.windows(2) {
        assert!(pair[0].probability >= pair[1].probability);
    }
    for class in &found {
        assert!((f64::from(class.probability) - shares[class.class]).abs() < 1e-6);
    }
    assert!(shares.iter().all(|share| *share <= f64::from(found[0].probability) + 1e-6));
    assert_eq!(classifier.classify(&picture, 100)?.len(), 10);
    Ok(())
}

#[test]
fn a_file_of_torchvision_is_a_classifier() -> Result<()> {
    let (folder, device) = (tempfile::tempdir().unwrap(), backend_cpu::cpu());
    let config = ResNetConfig { num_classes: 7, ..ResNetConfig::resnet18() };
    let model = ResNet::new(&config, &Generator::seed(3, &device))?;
    let mut state = model.state_dict();
    state.retain(|name, _| !name.ends_with("num_batches_tracked")); // as old files
    let path = folder.path().join("resnet18.safetensors");
    save_safetensors(&path, &state)?;
    let classifier = ImageClassifier::open("resnet18", &path, &device)?;
    let picture = Tensor::rand([3, 40, 60], &Generator::seed(1, &device))?;
    let all = classifier.classify(&picture, 10)?;
    assert_eq!(all.len(), 7);
    assert_eq!(all[0].label, all[0].class.to_string());
    let message = |name: &str| ImageClassifier::open(name, &path, &device).unwrap_err().to_string();
    assert!(message("resnet19").contains("no architecture \"resnet19\"; known are resnet18, resnet34"));
    assert!(message("resnet34").contains("has no \"layer1.2."));
    assert!(message("densenet121").contains("has no \"classifier.weight\", as densenet121 has"));
    Ok(())
}

#[test]
fn configurations_of_classifiers_are_checked() {
    let (fixture, device) = (Fixture::open("timm_vit"), backend_cpu::cpu());
    let message = |config: &str| {
        fs::write(fixture.folder().join("config.json"), config).unwrap();
        ImageClassifier::from_folder(fixture.folder(), &device).unwrap_err().to_string()
    };
    for (config, expected) in [
        ("{}", "missing field `architecture`"),
        (r#"{"architecture": "vit_giant"}"#, "no architecture \"vit_giant\""),
        (r#"{"architecture": "vit_tiny_patch16_224", "model_args": {"pos_embed": "rope"}}"#, "pos_embed"),
        (r#"{"architecture": "vit_tiny_patch16_224", "pretrained_cfg": {"crop_pct": 0.0}}"#, "crop_pct 0"),
        (
            r#"{"architecture": "vit_tiny_patch16_224", "pretrained_cfg": {"interpolation": "random"}}"#,
            "random",
        ),
        (
            r#"{"architecture": "resnet18", "model_args": {"depth": 3}}"#,
            "model_args of resnet18 are not supported",
        ),
    ] {
        let found = message(config);
        assert!(found.contains(expected) && found.contains("config.json"), "{config}: {found}");
    }
}

#[test]
fn detr_is_configured_by_its_folder() -> Result<()> {
    let (fixture, device) = (Fixture::open("detr"), backend_cpu::cpu());
    let model = Detr::from_folder(fixture.folder(), &device)?;
    let found = model.forward(&fixture.input("x", &device))?;
    let logits = floats(&found.logits);
    taper_testing::assert_close(&logits, &fixture.output("logits"), (1e-4, 1e-3), "logits");
    assert_eq!(
        models::read_labels(fixture.folder())?,
        ["LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3", "LABEL_4"]
    );
    fs::write(fixture.folder().join("config.json"), r#"{"backbone_config": {"model_type": "resnet"}}"#)
        .unwrap();
    let message = models::read_config::<DetrConfig>(fixture.folder()).unwrap_err().to_string();
    assert!(message.contains("the backbone is none"), "{message}");
    Ok(())
}

/// Two images with two queries each; the last class is that of no object.
#[test]
fn objects_of_detr_are_in_pixels() -> Result<()> {
    let device = backend_cpu::cpu();
    let logits = [[[0.0f32, 3.0, 0.0], [9.0, 0.0, 0.0]], [[0.0, 0.0, 9.0], [5.0, 0.0, 0.0]]];
    let boxes =
        [[[0.5f32, 0.5, 0.5, 1.0], [0.25, 0.5, 0.1, 0.2]], [[0.5, 0.5, 1.0, 1.0], [0.5, 0.5, 1.0, 1.0]]];
    let found = Detections { logits: Tensor::new(logits, &device)?, boxes: Tensor::new(boxes, &device)? };
    let objects = found.objects(0.7, &[(100, 200), (10, 20)])?;
    let places: Vec<Vec<_>> = objects
        .iter()
        .map(|image| image.iter().map(|o| (o.class, o.corners.map(f32::round))).collect())
        .collect();
    let first = vec![(0, [40.0, 40.0, 60.0, 60.0]), (1, [50.0, 0.0, 150.0, 100.0])];
    assert_eq!(places, [first, vec![(0, [0.0, 0.0, 20.0, 10.0])]]);
    assert!(found.objects(0.7, &[(10, 20)]).unwrap_err().to_string().contains("1 sizes"));
    Ok(())
}

#[test]
fn yolov8_is_configured_by_its_weights() -> Result<()> {
    let (fixture, device) = (Fixture::open("yolov8"), backend_cpu::cpu());
    let path = fixture.folder().join("model.safetensors");
    let config = YoloV8Config::of_weights(&weights::open(&path)?)?;
    assert_eq!(config, YoloV8Config { classes: 4, ..YoloV8Config::yolov8n() });
    let out = YoloV8::open(&path, &device)?.forward(&fixture.input("x", &device))?;
    let scores = floats(&out.narrow(1, 4, 4)?);
    taper_testing::assert_close(&scores, &fixture.output("scores"), (1e-4, 1e-4), "scores");
    let other = Fixture::open("timm_vit");
    let message = YoloV8::open(other.folder().join("model.safetensors"), &device).unwrap_err().to_string();
    assert!(message.contains("has no \"model.0.conv.weight\", as YOLOv8 has"), "{message}");
    Ok(())
}
