//! Metrics compared with scikit-learn's.
#![allow(clippy::unwrap_used, clippy::panic)]

use tensor_core::{DType, Tensor};
use train::metrics::{Accuracy, Average, ConfusionMatrix};

const CLASSES: [i32; 10] = [0, 1, 1, 2, 2, 2, 3, 0, 1, 5];
const PREDICTED: [i32; 10] = [0, 1, 2, 2, 2, 0, 2, 2, 1, 0];

fn tensor(values: &[i32]) -> Tensor {
    Tensor::from_slice(values, [values.len()], &backend_cpu::cpu()).unwrap()
}

fn close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    found
        .iter()
        .zip(expected)
        .for_each(|(a, b)| assert!((a - b).abs() < 1e-15, "{found:?}, not {expected:?}"));
}

/// `confusion_matrix(t, p, labels=range(6))` and `precision_recall_fscore_support(t, p, zero_division=0)` of
/// scikit-learn 1.7. Class 4 does not occur.
#[test]
fn precision_recall_and_f1_are_those_of_scikit_learn() {
    let mut matrix = ConfusionMatrix::new(6);
    assert_eq!((matrix.accuracy(), matrix.f1(Average::Macro)), (None, None));
    // In two batches, of different dtypes.
    matrix.update(&tensor(&PREDICTED[..4]).to_dtype(DType::U8).unwrap(), &tensor(&CLASSES[..4])).unwrap();
    matrix.update(&tensor(&PREDICTED[4..]), &tensor(&CLASSES[4..]).to_dtype(DType::I64).unwrap()).unwrap();
    let rows: Vec<&[u64]> = (0..6).map(|class| matrix.row(class)).collect();
    let expected = [
        [1, 0, 1, 0, 0, 0],
        [0, 2, 1, 0, 0, 0],
        [1, 0, 2, 0, 0, 0],
        [0, 0, 1, 0, 0, 0],
        [0; 6],
        [1, 0, 0, 0, 0, 0],
    ];
    assert_eq!(rows, expected);
    close(&matrix.precisions(), &[1.0 / 3.0, 1.0, 0.4, 0.0, 0.0, 0.0]);
    close(&matrix.recalls(), &[0.5, 2.0 / 3.0, 2.0 / 3.0, 0.0, 0.0, 0.0]);
    close(&matrix.f1s(), &[0.4, 0.8, 0.5, 0.0, 0.0, 0.0]);
    let all =
        |average| [matrix.precision(average), matrix.recall(average), matrix.f1(average)].map(Option::unwrap);
    close(&all(Average::Micro), &[0.5, 0.5, 0.5]);
    close(&all(Average::Macro), &[0.346_666_666_666_666_7, 0.366_666_666_666_666_6, 0.34]);
    close(&all(Average::Weighted), &[0.486_666_666_666_666_7, 0.5, 0.47]);
    assert_eq!((matrix.accuracy(), matrix.items()), (Some(0.5), 10));
    assert_eq!(matrix.row(6), [0u64; 0]);
    assert!(matrix.to_string().lines().nth(2).unwrap().contains("1 0 2 1 0 0 0"), "{matrix}");
}

#[test]
fn the_top_k_are_those_of_scikit_learn() {
    let device = backend_cpu::cpu();
    let scores = [
        [0.5f32, 0.2, 0.2, 0.1],
        [0.3, 0.4, 0.2, 0.1],
        [0.2, 0.4, 0.3, 0.1],
        [0.7, 0.2, 0.15, 0.1],
        [0.1, 0.2, 0.3, 0.4],
    ];
    let (scores, targets) = (Tensor::new(scores, &device).unwrap(), tensor(&[0, 1, 2, 2, 0]));
    // `top_k_accuracy_score(y, s, k=k, labels=range(4))`
    for (k, expected) in [(1, 0.4), (2, 0.6), (3, 0.8), (4, 1.0)] {
        let mut accuracy = Accuracy::top_k(k);
        accuracy.update(&scores.narrow(0, 0, 2).unwrap(), &targets.narrow(0, 0, 2).unwrap()).unwrap();
        accuracy.update(&scores.narrow(0, 2, 3).unwrap(), &targets.narrow(0, 2, 3).unwrap()).unwrap();
        assert_eq!(accuracy.value(), Some(expected), "{k}");
    }
    let mut matrix = ConfusionMatrix::new(4);
    matrix.update(&scores, &targets).unwrap();
    assert_eq!(matrix.accuracy(), Some(0.4));
    // Among equal scores the lower class wins.
    let mut first = Accuracy::new();
    first.update(&Tensor::ones([2, 3], &device).unwrap(), &tensor(&[0, 1])).unwrap();
    assert_eq!(first.counts(), (1, 2));
    // An empty batch changes nothing.
    first.update(&Tensor::zeros([0, 3], &device).unwrap(), &tensor(&[])).unwrap();
    assert_eq!(first.counts(), (1, 2));
    first.reset();
    assert_eq!(first.value(), None);
}

#[test]
fn misfits_are_told_and_count_nothing() {
    let device = backend_cpu::cpu();
    let scores = Tensor::ones([2, 3], &device).unwrap();
    let mut accuracy = Accuracy::new();
    let mut top = Accuracy::top_k(4);
    let mut matrix = ConfusionMatrix::new(3);
    for (error, part) in [
        (accuracy.update(&scores, &tensor(&[0])), "[2, 3] with targets [1]"),
        (accuracy.update(&scores, &tensor(&[0, 3])), "class 3 of 3"),
        (accuracy.update(&scores, &tensor(&[0, -1])), "class -1 of 3"),
        (accuracy.update(&scores, &Tensor::ones([2], &device).unwrap()), "give class numbers"),
        (top.update(&scores, &tensor(&[0, 1])), "top 4 of 3"),
        (Accuracy::top_k(0).update(&scores, &tensor(&[0, 1])), "top 0 of 3"),
        (matrix.update(&tensor(&[0, 1]), &tensor(&[0, 3])), "targets: class 3"),
        (matrix.update(&tensor(&[-1, 1]), &tensor(&[0, 1])), "predictions: class -1"),
        (matrix.update(&tensor(&[1]), &tensor(&[0, 1])), "predictions [1] for targets [2]"),
        (matrix.update(&Tensor::ones([2, 4], &device).unwrap(), &tensor(&[0, 1])), "[2, 4] for 3 classes"),
    ] {
        let message = error.unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
    assert_eq!((accuracy.counts(), top.counts(), matrix.items()), ((0, 0), (0, 0), 0));
}
