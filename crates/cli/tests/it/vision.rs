//! `taper classify` and `taper detect` with small networks of random weights, whose results mean nothing but
//! are always the same.

use std::{fs, path::Path};

use taper::{
    data::Image,
    models::vision::{
        Detr, DetrConfig, ImageClassifier, ResNetConfig, TimmVit, TimmVitConfig, YoloV8, YoloV8Config,
    },
    nn::save_safetensors,
    prelude::*,
};

use crate::common::{at, json, printed, refused};

type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

/// A picture of coloured stripes, 48 pixels high and 64 wide.
fn write_picture(path: &Path) {
    let pixel = |k: usize| [(k * 7 % 256) as u8, (k / 64 * 5) as u8, (k % 64 * 4) as u8];
    let bytes: Vec<u8> = (0..48 * 64).flat_map(pixel).collect();
    let file = fs::File::create(path).unwrap();
    let mut encoder = png::Encoder::new(file, 64, 48);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header().unwrap().write_image_data(&bytes).unwrap();
}

#[test]
fn classify_prints_the_best_classes() -> Outcome {
    let (folder, device) = (tempfile::tempdir().unwrap(), taper::device("cpu")?);
    let path = |name: &str| at(&folder, name);
    let config = TimmVitConfig {
        img_size: 32,
        embed_dim: 24,
        depth: 1,
        num_heads: 3,
        num_classes: 6,
        ..TimmVitConfig::vit_tiny_patch16_224()
    };
    let model = TimmVit::new(&config, &Generator::seed(1, &device))?;
    save_safetensors(path("model.safetensors"), &model.state_dict())?;
    let config_json = r#"{"architecture": "vit_tiny_patch16_224",
        "model_args": {"img_size": 32, "embed_dim": 24, "depth": 1, "num_heads": 3},
        "pretrained_cfg": {"input_size": [3, 32, 32], "crop_pct": 0.9, "interpolation": "bicubic"},
        "label_names": ["ant", "bee", "cat", "dog", "eel", "fox"]}"#;
    fs::write(path("config.json"), config_json).unwrap();
    write_picture(Path::new(&path("stripes.png")));
    let model = folder.path().display().to_string();
    let text = printed(&["classify", &model, &path("stripes.png")]);

    let classifier = ImageClassifier::from_folder(folder.path(), &device)?;
    let best = classifier.classify(&Image::open(path("stripes.png"))?.to_tensor(&device)?, 5)?;
    let mut expected = format!("{}\n", path("stripes.png"));
    for class in &best {
        expected.push_str(&format!("  {:6.2} %  {}\n", 100.0 * class.probability, class.label));
    }
    assert_eq!(text, expected);
    assert_eq!(text.lines().count(), 6);

    fs::write(path("names.txt"), "one\ntwo\nthree\nfour\nfive\nsix\n").unwrap();
    let (picture, labels) = (path("stripes.png"), path("names.txt"));
    let one = ["classify", &model, &picture, "--labels", &labels, "--count", "1"];
    let text = printed(&one);
    let names = ["one", "two", "three", "four", "five", "six"];
    assert!(text.trim_end().ends_with(names[best[0].class]), "{text}");
    let found = json(&[&one[..], &["--json"]].concat());
    assert_eq!(found[0]["classes"][0]["label"], names[best[0].class]);
    let list = printed(&["classify", "--list"]);
    assert!(list.lines().any(|name| name == "resnet50") && list.lines().any(|name| name == "swin_v2_b"));
    let message = refused(&["classify", &path("model.safetensors"), &picture]);
    assert!(message.contains("needs --architecture"), "{message}");
    Ok(())
}

/// The objects that a program printed: probability, label, corners.
fn rows(text: &str) -> Vec<(f32, String, [f32; 4])> {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let n = words.len();
        let corner = |from_end: usize| words[n - from_end].parse().unwrap();
        (words[0].parse().unwrap(), words[2..n - 8].join(" "), [corner(7), corner(5), corner(3), corner(1)])
    };
    text.lines().filter(|line| line.contains(" % ")).map(row).collect()
}

#[test]
fn detect_draws_the_boxes_of_detr() -> Outcome {
    let (folder, device) = (tempfile::tempdir().unwrap(), taper::device("cpu")?);
    let path = |name: &str| at(&folder, name);
    let config = DetrConfig {
        backbone: ResNetConfig::resnet18(),
        d_model: 16,
        encoder_layers: 1,
        encoder_attention_heads: 2,
        encoder_ffn_dim: 16,
        decoder_layers: 1,
        decoder_attention_heads: 2,
        decoder_ffn_dim: 16,
        num_queries: 4,
        num_labels: 2,
    };
    let model = Detr::new(&config, &Generator::seed(2, &device))?;
    save_safetensors(path("model.safetensors"), &model.state_dict())?;
    let config_json = r#"{"backbone": "resnet18", "d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2,
        "encoder_ffn_dim": 16, "decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 16,
        "num_queries": 4, "id2label": {"0": "cat", "1": "traffic light"}}"#;
    fs::write(path("config.json"), config_json).unwrap();
    write_picture(Path::new(&path("stripes.png")));
    let model = folder.path().display().to_string();
    let arguments = [
        "detect",
        &model,
        &path("stripes.png"),
        "--threshold",
        "0",
        "--side",
        "64",
        "--out",
        &path("out.png"),
    ];
    let found = rows(&printed(&arguments));
    assert_eq!(found.len(), 4);
    assert!(found.windows(2).all(|pair| pair[0].0 >= pair[1].0));
    assert!(found.iter().all(|(_, label, _)| label == "cat" || label == "traffic light"));
    // The boxes are those of the library for the same pixels, and their edges are drawn.
    let network = Detr::from_folder(folder.path(), &device)?;
    let x = Image::open(path("stripes.png"))?.resize((64, 85))?;
    let x = x.normalized([0.485, 0.456, 0.406], [0.229, 0.224, 0.225], &device)?.unsqueeze(0)?;
    let objects = network.forward(&x)?.objects(0.0, &[(48, 64)])?.concat();
    let corners: Vec<_> = objects.iter().map(|object| object.corners.map(f32::round)).collect();
    assert_eq!(found.iter().map(|row| row.2).collect::<Vec<_>>(), corners);
    let (before, after) = (Image::open(path("stripes.png"))?, Image::open(path("out.png"))?);
    assert_eq!((after.height(), after.width()), (48, 64));
    assert_ne!(before.bytes(), after.bytes());
    let none =
        printed(&["detect", &model, &path("stripes.png"), "--threshold", "1", "--out", &path("no.png")]);
    assert_eq!(rows(&none), []);
    assert_eq!(Image::open(path("no.png"))?.bytes(), before.bytes());

    // Several pictures, and as JSON.
    fs::copy(path("stripes.png"), path("again.png"))?;
    let several =
        ["detect", &model, &path("stripes.png"), &path("again.png"), "--side", "64", "--out", &path("all")];
    let objects = json(&[&several[..], &["--threshold", "0", "--json"]].concat());
    assert_eq!(objects[1]["objects"].as_array().unwrap().len(), 4);
    assert_eq!(objects[0]["objects"], objects[1]["objects"]);
    assert_eq!(Image::open(path("all/again.png"))?.bytes(), after.bytes());
    let message = refused(&["detect", &model, &path("none.png")]);
    assert!(message.contains("none.png"), "{message}");
    Ok(())
}

#[test]
fn detect_brings_the_boxes_of_yolov8_back_to_the_picture() -> Outcome {
    let (folder, device) = (tempfile::tempdir().unwrap(), taper::device("cpu")?);
    let path = |name: &str| at(&folder, name);
    let config = YoloV8Config { classes: 3, ..YoloV8Config::yolov8n() };
    let model = YoloV8::new(&config, &Generator::seed(4, &device))?;
    save_safetensors(path("yolov8n.safetensors"), &model.state_dict())?;
    write_picture(Path::new(&path("stripes.png")));
    let arguments = [
        "detect",
        &path("yolov8n.safetensors"),
        &path("stripes.png"),
        "--threshold",
        "0.01",
        "--side",
        "96",
        "--out",
        &path("out.png"),
    ];
    let found = rows(&printed(&arguments));
    assert!(!found.is_empty());
    for (_, label, [left, top, right, bottom]) in &found {
        assert!(label.starts_with("class "), "{label}");
        assert!(0.0 <= *left && left <= right && *right <= 64.0);
        assert!(0.0 <= *top && top <= bottom && *bottom <= 48.0);
    }
    // 48 x 64 pixels become 72 x 96, with 12 rows of grey above and below.
    model.eval();
    let x = Image::open(path("stripes.png"))?.resize((72, 96))?.to_tensor(&device)?.unsqueeze(0)?;
    let x = x.pad(&[(0, 0), (0, 0), (12, 12), (0, 0)], 114.0 / 255.0)?;
    let objects = model.detections(&model.forward(&x)?, 0.01, 0.7, 300)?.concat();
    assert_eq!(objects.len(), found.len());
    let [left, top, right, bottom] = objects[0].corners;
    let corners = [
        (left / 1.5).clamp(0.0, 64.0),
        ((top - 12.0) / 1.5).clamp(0.0, 48.0),
        (right / 1.5).clamp(0.0, 64.0),
        ((bottom - 12.0) / 1.5).clamp(0.0, 48.0),
    ];
    assert_eq!(found[0].2, corners.map(f32::round));
    Ok(())
}
