//! Metrics with torchmetrics' numbers: `scripts/metric_fixtures.py`.
#![allow(clippy::unwrap_used, clippy::panic)]

use serde_json::Value;
use tensor_core::{DType, Tensor};
use train::metrics::{
    Auroc, Average, AveragePrecision, Bleu, ConfusionMatrix, ErrorRate, MeanAveragePrecision, Perplexity,
    PredictedBox, Psnr, Rouge, RougeKind, RougeScore, Ssim, TextUnit, TrueBox,
};

fn fixtures(name: &str) -> Value {
    let all: Value = serde_json::from_str(include_str!("../fixtures/metrics.json")).unwrap();
    all[name].clone()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn tensor(value: &Value) -> Tensor {
    let shape: Vec<usize> = numbers(&value["shape"]).into_iter().map(|size| size as usize).collect();
    let data: Vec<f32> = numbers(&value["data"]).into_iter().map(|x| x as f32).collect();
    Tensor::from_vec(data, shape.as_slice(), &backend_cpu::cpu()).unwrap()
}

fn integers(value: &Value, shape: &[usize]) -> Tensor {
    let data: Vec<i32> = numbers(value).into_iter().map(|x| x as i32).collect();
    Tensor::from_vec(data, shape, &backend_cpu::cpu()).unwrap()
}

/// Torchmetrics gives f32.
fn close(found: Option<f64>, expected: &Value, what: &str) {
    let (found, expected) = (found.unwrap_or(-1.0), expected.as_f64().unwrap());
    assert!((found - expected).abs() < 2e-6 * expected.abs().max(1.0), "{what}: {found}, not {expected}");
}

const AVERAGES: [(Average, &str); 3] =
    [(Average::Micro, "micro"), (Average::Macro, "macro"), (Average::Weighted, "weighted")];

/// Updates in two batches.
fn halves(count: usize, mut update: impl FnMut(usize, usize)) {
    update(0, count / 3);
    update(count / 3, count - count / 3);
}

#[test]
fn ranks() {
    for case in fixtures("ranking").as_array().unwrap() {
        let scores = tensor(&case["scores"]);
        let count = scores.dims()[0];
        let targets = integers(&case["targets"], &[count]);
        let several = scores.rank() == 2;
        let (mut auroc, mut precision) = match several {
            true => (Auroc::multiclass(4), AveragePrecision::multiclass(4)),
            false => (Auroc::new(), AveragePrecision::new()),
        };
        halves(count, |start, length| {
            let (scores, targets) = (scores.narrow(0, start, length), targets.narrow(0, start, length));
            let (scores, targets) = (scores.unwrap(), targets.unwrap());
            auroc.update(&scores, &targets).unwrap();
            precision.update(&scores, &targets).unwrap();
        });
        assert_eq!((auroc.items(), precision.items()), (count, count));
        if several {
            for (average, name) in AVERAGES {
                close(auroc.value(average), &case["auroc"][name], name);
                close(precision.value(average), &case["average_precision"][name], name);
            }
            for (class, expected) in case["auroc"]["none"].as_array().unwrap().iter().enumerate() {
                close(auroc.values()[class], expected, "a class");
                close(precision.values()[class], &case["average_precision"]["none"][class], "a class");
            }
        } else {
            for average in [Average::Macro, Average::Weighted, Average::Micro] {
                close(auroc.value(average), &case["auroc"]["value"], "binary");
                close(precision.value(average), &case["average_precision"]["value"], "binary");
            }
        }
        auroc.reset();
        assert_eq!((auroc.value(Average::Macro), auroc.items()), (None, 0));
    }
    // A class that does not occur is left out; a metric without one has no value.
    let device = backend_cpu::cpu();
    let mut auroc = Auroc::new();
    auroc
        .update(&Tensor::new([0.5f32, 0.6], &device).unwrap(), &Tensor::new([1i32, 1], &device).unwrap())
        .unwrap();
    assert_eq!((auroc.value(Average::Macro), auroc.values()), (None, vec![None]));
    let mut three = AveragePrecision::multiclass(3);
    let scores = Tensor::new([[0.9f32, 0.1, 0.0], [0.2, 0.8, 0.0]], &device).unwrap();
    let targets = Tensor::new([0i32, 1], &device).unwrap();
    three.update(&scores, &targets).unwrap();
    assert_eq!((three.value(Average::Macro), three.values()[2]), (Some(1.0), None));
    let nan = Tensor::new([f32::NAN, 0.0], &device).unwrap();
    for (error, part) in [
        (auroc.update(&scores, &targets), "give [N] both"),
        (three.update(&scores.narrow(1, 0, 2).unwrap(), &targets), "for 3 classes"),
        (three.update(&scores, &Tensor::new([0i32, 3], &device).unwrap()), "class 3 of 3"),
        (auroc.update(&nan, &targets), "NaN"),
        (auroc.update(&nan, &scores.select(1, 0).unwrap()), "give class numbers"),
    ] {
        let message = error.unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
    assert_eq!((auroc.items(), three.items()), (2, 2));
}

#[test]
fn regions() {
    let case = fixtures("jaccard");
    let (predicted, targets) =
        (integers(&case["predicted"], &[2, 5, 6]), integers(&case["targets"], &[2, 5, 6]));
    let mut matrix = ConfusionMatrix::new(5);
    matrix.update(&predicted, &targets).unwrap();
    // The same as scores of pixels.
    let mut by_scores = ConfusionMatrix::new(5);
    let scores = predicted.one_hot(5).unwrap().to_dtype(DType::F32).unwrap().permute([0, 3, 1, 2]).unwrap();
    by_scores.update(&scores, &targets).unwrap();
    assert_eq!(matrix, by_scores);
    for (average, name) in AVERAGES {
        close(matrix.iou(average), &case[name], name);
    }
    for (found, expected) in matrix.ious().into_iter().zip(case["none"].as_array().unwrap()) {
        close(Some(found), expected, "a class");
    }
    close(matrix.f1(Average::Macro), &case["f1_macro"], "F1");
    close(matrix.f1(Average::Weighted), &case["f1_weighted"], "F1");
    assert_eq!(ConfusionMatrix::new(3).iou(Average::Micro), None);
    let message = matrix.update(&predicted.narrow(1, 0, 4).unwrap(), &targets).unwrap_err().to_string();
    assert!(message.contains("give classes [N, …] both"), "{message}");
}

#[test]
fn texts() {
    let case = fixtures("texts");
    let text = |value: &Value| value.as_str().unwrap().to_string();
    let pairs: Vec<(String, Vec<String>)> = case["texts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|pair| (text(&pair[0]), pair[1].as_array().unwrap().iter().map(text).collect()))
        .collect();
    let each = |take: &mut dyn FnMut(&str, &[&str])| {
        for (prediction, references) in &pairs {
            take(prediction, &references.iter().map(String::as_str).collect::<Vec<_>>());
        }
    };
    for (name, expected) in case["bleu"].as_object().unwrap() {
        let n = name.trim_end_matches("_smooth").parse().unwrap();
        let mut bleu = Bleu::with(n, name.ends_with("_smooth"));
        each(&mut |prediction, references| bleu.update(prediction, references).unwrap());
        close(bleu.value(), expected, name);
        bleu.reset();
        assert_eq!(bleu.value(), None);
    }
    for (kind, name) in [
        (RougeKind::N(1), "rouge1"),
        (RougeKind::N(2), "rouge2"),
        (RougeKind::L, "rougeL"),
        (RougeKind::LSum, "rougeLsum"),
    ] {
        let mut rouge = Rouge::new(kind);
        each(&mut |prediction, references| rouge.update(prediction, references).unwrap());
        let RougeScore { precision, recall, f } = rouge.value().unwrap();
        for (found, part) in [(precision, "precision"), (recall, "recall"), (f, "fmeasure")] {
            close(Some(found), &case["rouge"][format!("{name}_{part}")], &format!("{name} {part}"));
        }
        rouge.reset();
        assert_eq!(rouge.value(), None);
    }
    for (unit, name) in [(TextUnit::Words, "wer"), (TextUnit::Characters, "cer")] {
        let mut rate = ErrorRate::new(unit);
        each(&mut |prediction, references| rate.update(prediction, references[0]));
        close(rate.value(), &case[name], name);
        rate.reset();
        assert_eq!(rate.value(), None);
    }
    assert!(Bleu::new().update("a", &[]).unwrap_err().to_string().contains("no references"));
    assert!(Rouge::new(RougeKind::L).update("a", &[]).is_err());
    assert!(Rouge::new(RougeKind::N(0)).update("a", &["a"]).is_err());
    // Texts without words have no matches, and no division by zero.
    let mut rouge = Rouge::new(RougeKind::N(2));
    rouge.update("", &["word"]).unwrap();
    assert_eq!(rouge.value(), Some(RougeScore::default()));
    let mut bleu = Bleu::new();
    bleu.update("", &["some words"]).unwrap();
    assert_eq!(bleu.value(), Some(0.0));
}

#[test]
fn perplexity() {
    let case = fixtures("model");
    let (logits, targets) = (tensor(&case["logits"]), integers(&case["targets"], &[2, 6]));
    let mut metric = Perplexity::new().ignoring(-100);
    for row in 0..2 {
        metric.update(&logits.narrow(0, row, 1).unwrap(), &targets.narrow(0, row, 1).unwrap()).unwrap();
    }
    close(metric.value(), &case["perplexity"], "perplexity");
    metric.reset();
    assert_eq!(metric.value(), None);
    for (error, part) in [
        (Perplexity::new().update(&logits, &targets), "token -100 of 7"),
        (metric.update(&logits, &targets.narrow(1, 0, 5).unwrap()), "give floats"),
        (metric.update(&logits, &targets.to_dtype(DType::F32).unwrap()), "give floats"),
    ] {
        let message = error.unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn pictures() {
    let case = fixtures("pictures");
    let (x, y) = (tensor(&case["pictures"]), tensor(&case["targets"]));
    let (mut psnr, mut ssim) = (Psnr::new(1.0).unwrap(), Ssim::new(1.0).unwrap());
    for item in 0..2 {
        let (x, y) = (x.narrow(0, item, 1).unwrap(), y.narrow(0, item, 1).unwrap());
        psnr.update(&x, &y).unwrap();
        ssim.update(&x, &y).unwrap();
    }
    close(psnr.value(), &case["psnr"], "PSNR");
    close(ssim.value(), &case["ssim"], "SSIM");
    // A range of 255 with values of 255 times is the same.
    let mut bytes = Ssim::new(255.0).unwrap();
    bytes.update(&x.mul_scalar(255.0), &y.mul_scalar(255.0)).unwrap();
    close(bytes.value(), &case["ssim"], "SSIM of bytes");
    let mut equal = Psnr::new(1.0).unwrap();
    equal.update(&x, &x).unwrap();
    assert_eq!(equal.value(), Some(f64::INFINITY));
    let small = x.narrow(2, 0, 5).unwrap();
    for (error, part) in [
        (psnr.update(&x, &small), "give floats of one shape"),
        (ssim.update(&small, &small), "6 x 6"),
        (ssim.update(&x.select(0, 0).unwrap(), &x.select(0, 0).unwrap()), "[N, C, H, W]"),
        (Psnr::new(0.0).map(drop), "above 0"),
        (Ssim::new(f64::NAN).map(drop), "above 0"),
    ] {
        let message = error.unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn boxes() {
    let case = fixtures("detection");
    let corners = |value: &Value| -> [f32; 4] {
        numbers(&value["corners"]).into_iter().map(|x| x as f32).collect::<Vec<_>>().try_into().unwrap()
    };
    let class = |value: &Value| value["class"].as_u64().unwrap() as usize;
    let mut map = MeanAveragePrecision::new();
    assert_eq!(map.value().map, None);
    for image in case["images"].as_array().unwrap() {
        let found: Vec<PredictedBox> = image["found"]
            .as_array()
            .unwrap()
            .iter()
            .map(|b| PredictedBox {
                corners: corners(b),
                class: class(b),
                score: b["score"].as_f64().unwrap() as f32,
            })
            .collect();
        let truths: Vec<TrueBox> = image["truths"]
            .as_array()
            .unwrap()
            .iter()
            .map(|b| TrueBox { corners: corners(b), class: class(b), is_crowd: b["crowd"] == 1 })
            .collect();
        map.update(&found, &truths).unwrap();
    }
    let scores = map.value();
    for (found, name) in [
        (scores.map, "map"),
        (scores.map_50, "map_50"),
        (scores.map_75, "map_75"),
        (scores.map_small, "map_small"),
        (scores.map_medium, "map_medium"),
        (scores.map_large, "map_large"),
        (scores.mar_1, "mar_1"),
        (scores.mar_10, "mar_10"),
        (scores.mar_100, "mar_100"),
        (scores.mar_small, "mar_small"),
        (scores.mar_medium, "mar_medium"),
        (scores.mar_large, "mar_large"),
    ] {
        close(found, &case["scores"][name], name);
    }
    for (k, class) in numbers(&case["classes"]).into_iter().enumerate() {
        // −1 of torchmetrics for a class without true boxes is `None`.
        close(scores.map_per_class[&(class as usize)], &case["scores"]["map_per_class"][k], "a class");
    }
    let bad = PredictedBox { corners: [5.0, 0.0, 4.0, 1.0], class: 0, score: 0.5 };
    let nan = PredictedBox { corners: [0.0, 0.0, 4.0, 1.0], class: 0, score: f32::NAN };
    assert!(map.update(&[bad], &[]).unwrap_err().to_string().contains("left, top, right and bottom"));
    assert!(map.update(&[nan], &[]).unwrap_err().to_string().contains("NaN"));
    assert_eq!(map.pictures(), 6);
    map.reset();
    assert_eq!((map.pictures(), map.value().map), (0, None));
}
