//! Losses in edge cases, with numbers worked out by hand.
#![allow(clippy::unwrap_used)]

use crate::common::{assert_close, device};
use autograd::TensorGrad;
use nn::{
    BceWithLogitsLoss, CrossEntropyLoss, L1Loss, MseLoss, NllLoss, Reduction,
    binary_cross_entropy_with_logits, cross_entropy, l1_loss, mse_loss, nll_loss,
};
use tensor_core::{DType, Device, ErrorKind, Tensor};

fn logits(device: &Device) -> Tensor {
    Tensor::new([[1.0f32, 2.0, 0.5], [0.0, 0.0, 0.0]], device).unwrap()
}

#[test]
fn cross_entropy_is_minus_the_log_of_the_softmax() {
    let device = device();
    let x = logits(&device).requires_grad();
    let labels = Tensor::new([1i32, 2], &device).unwrap();
    let loss = cross_entropy(&x, &labels).unwrap();
    // (ln(e + e² + √e) − 2 + ln 3) / 2
    assert_close(&loss, &[0.7814906]);
    loss.backward().unwrap();
    let third = 1.0 / 6.0;
    assert_close(&x.grad().unwrap(), &[0.1156122, -0.1857339, 0.0701218, third, third, third - 0.5]);
    let per_label = CrossEntropyLoss { reduction: Reduction::None, ..Default::default() };
    assert_eq!(per_label.forward(&x, &labels).unwrap().dims(), [2]);
    let same = nll_loss(&x.log_softmax(1).unwrap(), &labels).unwrap();
    assert_close(&same, &[0.7814906]);
    assert_eq!(NllLoss::default().ignore_index, Some(-100));
}

#[test]
fn shapes_and_dtypes_of_labels() {
    let device = device();
    for dtype in [DType::U8, DType::U32, DType::I32, DType::I64] {
        let labels = Tensor::new([1i32, 2], &device).unwrap().to_dtype(dtype).unwrap();
        assert_close(&cross_entropy(&logits(&device), &labels).unwrap(), &[0.7814906]);
    }
    let single = Tensor::new([0.0f32, 0.0], &device).unwrap();
    let label = Tensor::new(1i32, &device).unwrap();
    assert_close(&cross_entropy(&single, &label).unwrap(), &[std::f64::consts::LN_2]);
    let deep = Tensor::zeros([2, 4, 3, 5], &device).unwrap();
    let labels = Tensor::zeros([2, 3, 5], (DType::I32, &device)).unwrap();
    assert_close(&cross_entropy(&deep, &labels).unwrap(), &[4f64.ln()]);
}

#[test]
fn ignored_labels_count_for_nothing() {
    let device = device();
    let x = logits(&device).requires_grad();
    let labels = Tensor::new([-100i32, 2], &device).unwrap();
    let loss = cross_entropy(&x, &labels).unwrap();
    assert_close(&loss, &[3f64.ln()]);
    loss.backward().unwrap();
    assert_close(&x.grad().unwrap(), &[0.0, 0.0, 0.0, 1.0 / 3.0, 1.0 / 3.0, -2.0 / 3.0]);
    let none = Tensor::new([-100i32, -100], &device).unwrap();
    assert_close(&cross_entropy(&x, &none).unwrap(), &[f64::NAN]);
    let sum = CrossEntropyLoss { reduction: Reduction::Sum, ..Default::default() };
    assert_close(&sum.forward(&x, &none).unwrap(), &[0.0]);
    // 156 is −100 in eight bits; as a label it is out of range, not ignored.
    let narrow = Tensor::new([156u8, 2], &device).unwrap();
    assert!(cross_entropy(&x, &narrow).unwrap().eval().is_err());
}

#[test]
fn smoothing_and_weights_are_pytorchs() {
    let device = device();
    let x = Tensor::new([[2.0f32, 0.0], [0.0, 0.0], [0.0, 1.0]], &device).unwrap();
    let labels = Tensor::new([0i32, -100, 0], &device).unwrap();
    let weight = Tensor::new([2.0f32, 0.5], &device).unwrap();
    let loss = CrossEntropyLoss { label_smoothing: 0.2, weight: Some(weight), ..Default::default() }
        .forward(&x, &labels);
    // ln softmax: row 0 −0.126928, −2.126928; row 2 −1.313262, −0.313262. 0.8 · 2 · (0.126928 + 1.313262) +
    // 0.1 · (2 · (0.126928 + 1.313262) + 0.5 · (2.126928 + 0.313262)), over 4.
    assert_close(&loss.unwrap(), &[(1.6 * 1.44019 + 0.1 * (2.88038 + 1.220095)) / 4.0]);
}

#[test]
fn labels_outside_the_classes_are_errors() {
    let device = device();
    for label in [3i32, -1, i32::MIN] {
        let labels = Tensor::new([label, 0], &device).unwrap();
        let error = cross_entropy(&logits(&device), &labels).unwrap().item::<f32>().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::IndexOutOfRange { size: 3, .. }), "{error}");
    }
    let keep = CrossEntropyLoss { ignore_index: None, ..Default::default() };
    let labels = Tensor::new([-100i32, 0], &device).unwrap();
    assert!(keep.forward(&logits(&device), &labels).unwrap().eval().is_err());
}

#[test]
fn misfits_are_said_at_once() {
    let device = device();
    let x = logits(&device);
    let says = |result: tensor_core::Result<Tensor>, part: &str| {
        let message = result.unwrap_err().to_string();
        assert!(message.contains("cross_entropy") && message.contains(part), "{message}");
    };
    let labels = Tensor::new([0i32, 1], &device).unwrap();
    says(cross_entropy(&x, &labels.unsqueeze(1).unwrap()), "take labels of shape [2]");
    says(cross_entropy(&x, &labels.to_dtype(DType::F32).unwrap()), "class labels are integers of shape [2]");
    let one_hot = Tensor::zeros([2, 3], (DType::I32, &device)).unwrap();
    says(cross_entropy(&x, &one_hot), "cast them with .to_dtype(DType::F32)");
    says(cross_entropy(&x, &one_hot.to_dtype(DType::F64).unwrap()), "the logits' dtype");
    says(cross_entropy(&x, &one_hot.to_dtype(DType::Bool).unwrap()), "integers from 0 to C - 1");
    let ignoring = CrossEntropyLoss { ignore_index: Some(1), ..Default::default() };
    says(ignoring.forward(&x, &one_hot.to_dtype(DType::F32).unwrap()), "ignore_index 1");
    says(cross_entropy(&x.to_dtype(DType::I32).unwrap(), &labels), "floating-point");
    says(cross_entropy(&Tensor::zeros([2, 0], &device).unwrap(), &labels), "no classes");
    says(cross_entropy(&Tensor::zeros((), &device).unwrap(), &labels), "no classes");
    let with = |weight: Tensor| CrossEntropyLoss { weight: Some(weight), ..Default::default() };
    says(with(Tensor::ones([2], &device).unwrap()).forward(&x, &labels), "3 classes");
    says(with(Tensor::ones([3], (DType::F64, &device)).unwrap()).forward(&x, &labels), "dtype");
    for label_smoothing in [-0.1, 1.1, f64::NAN] {
        says(CrossEntropyLoss { label_smoothing, ..Default::default() }.forward(&x, &labels), "from 0 to 1");
    }
}

/// By hand: −Σ w p' ln softmax(x), with p' = (1 − ε) p + ε / C.
#[test]
fn floating_point_targets_are_class_probabilities() {
    let device = device();
    let x = Tensor::new([[1.0f32, 2.0, 0.5], [0.0, 0.0, 3.0]], &device).unwrap().requires_grad();
    let rows = [[0.2f32, 0.5, 0.3], [0.0, 1.0, 0.0]];
    let p = Tensor::new(rows, &device).unwrap();
    let w = [1.0f32, 2.0, 0.5];
    let weight = Tensor::new(w, &device).unwrap();
    let logits = [[1.0f64, 2.0, 0.5], [0.0, 0.0, 3.0]];
    let by_hand = |epsilon: f64, weighted: bool| -> Vec<f64> {
        let one = |(x, p): (&[f64; 3], &[f32; 3])| {
            let log_sum = x.iter().map(|v| v.exp()).sum::<f64>().ln();
            let term = |c: usize| {
                let share = (1.0 - epsilon) * f64::from(p[c]) + epsilon / 3.0;
                -share * (x[c] - log_sum) * if weighted { f64::from(w[c]) } else { 1.0 }
            };
            (0..3).map(term).sum()
        };
        logits.iter().zip(&rows).map(one).collect()
    };
    for (epsilon, weighted) in [(0.0, false), (0.1, false), (0.0, true), (0.3, true)] {
        let expected = by_hand(epsilon, weighted);
        let with = |reduction| CrossEntropyLoss {
            reduction,
            label_smoothing: epsilon,
            weight: weighted.then(|| weight.clone()),
            ..Default::default()
        };
        assert_close(&with(Reduction::None).forward(&x, &p).unwrap(), &expected);
        assert_close(&with(Reduction::Sum).forward(&x, &p).unwrap(), &[expected.iter().sum()]);
        // The mean is over positions, whatever the weights.
        assert_close(&with(Reduction::Mean).forward(&x, &p).unwrap(), &[expected.iter().sum::<f64>() / 2.0]);
    }
    // One-hot rows are equivalent to labels.
    let one_hot = Tensor::new([[0.0f32, 1.0, 0.0], [0.0, 0.0, 1.0]], &device).unwrap();
    let labels = Tensor::new([1i32, 2], &device).unwrap();
    let of_rows = cross_entropy(&x, &one_hot).unwrap();
    assert_close(&of_rows, &cross_entropy(&x, &labels).unwrap().to_f64_vec().unwrap());
    of_rows.backward().unwrap();
    let gradient = x.grad().unwrap().to_f64_vec().unwrap();
    x.set_grad(None);
    cross_entropy(&x, &labels).unwrap().backward().unwrap();
    assert_close(&x.grad().unwrap(), &gradient);
    // One vector, and positions behind the class axis.
    assert_close(
        &cross_entropy(&x.select(0, 0).unwrap(), &p.select(0, 0).unwrap()).unwrap(),
        &by_hand(0.0, false)[..1],
    );
    let wide = |t: &Tensor| t.t().unwrap().unsqueeze(0).unwrap();
    let loss = CrossEntropyLoss { weight: Some(weight), ..Default::default() };
    let expected = by_hand(0.0, true).iter().sum::<f64>() / 2.0;
    assert_close(&loss.forward(&wide(&x), &wide(&p)).unwrap(), &[expected]);
}

#[test]
fn large_and_small_logits_stay_finite() {
    let device = device();
    let x = Tensor::new([[1000.0f32, -1000.0]], &device).unwrap().requires_grad();
    let loss = cross_entropy(&x, &Tensor::new([1i32], &device).unwrap()).unwrap();
    assert_close(&loss, &[2000.0]);
    loss.backward().unwrap();
    assert_close(&x.grad().unwrap(), &[1.0, -1.0]);
}

#[test]
fn half_precision_keeps_count() {
    let device = device();
    let x = Tensor::zeros([5000, 2], (DType::F16, &device)).unwrap();
    let labels = Tensor::zeros([5000], (DType::I32, &device)).unwrap();
    let loss = cross_entropy(&x, &labels).unwrap();
    assert_eq!(loss.dtype(), DType::F16);
    assert!((loss.to_f64_vec().unwrap()[0] - std::f64::consts::LN_2).abs() < 1e-3);
}

#[test]
fn distances() {
    let device = device();
    let a = Tensor::new([1.0f32, 2.0, 3.0], &device).unwrap();
    let b = Tensor::new([1.0f32, 0.0, 6.0], &device).unwrap();
    assert_close(&mse_loss(&a, &b).unwrap(), &[13.0 / 3.0]);
    assert_close(&l1_loss(&a, &b).unwrap(), &[5.0 / 3.0]);
    assert_close(&MseLoss { reduction: Reduction::Sum }.forward(&a, &b).unwrap(), &[13.0]);
    assert_close(&L1Loss { reduction: Reduction::None }.forward(&a, &b).unwrap(), &[0.0, 2.0, 3.0]);
    let message = mse_loss(&a, &b.unsqueeze(1).unwrap()).unwrap_err().to_string();
    assert!(message.contains("mse_loss: [3] x [3, 1]"), "{message}");
    let empty = Tensor::zeros([0], &device).unwrap();
    assert_close(&mse_loss(&empty, &empty).unwrap(), &[f64::NAN]);
}

#[test]
fn binary_cross_entropy_is_stable_everywhere() {
    let device = device();
    let x = Tensor::new([0.0f32, 100.0, -100.0, 2.0, -20.0], &device).unwrap().requires_grad();
    let y = Tensor::new([1.0f32, 0.0, 1.0, 0.5, 0.0], &device).unwrap();
    let each = BceWithLogitsLoss { reduction: Reduction::None, ..Default::default() };
    let losses = each.forward(&x, &y).unwrap();
    assert_close(&losses, &[std::f64::consts::LN_2, 100.0, 100.0, 1.1269280, 0.0]);
    // Small values are not lost: ln(1 + e⁻²⁰).
    assert!((losses.to_f64_vec().unwrap()[4] / 2.0611536e-9 - 1.0).abs() < 1e-4);
    losses.sum().backward().unwrap();
    // σ(x) − y
    assert_close(&x.grad().unwrap(), &[-0.5, 1.0, -1.0, 0.3807971, 0.0]);
    let weighted =
        BceWithLogitsLoss { pos_weight: Some(Tensor::new(3.0f32, &device).unwrap()), ..Default::default() };
    let zero = Tensor::zeros([2], &device).unwrap();
    let y = Tensor::new([1.0f32, 0.0], &device).unwrap();
    assert_close(&weighted.forward(&zero, &y).unwrap(), &[2.0 * std::f64::consts::LN_2]);
    assert_close(&binary_cross_entropy_with_logits(&zero, &y).unwrap(), &[std::f64::consts::LN_2]);
}
