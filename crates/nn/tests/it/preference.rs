//! Losses for fine-tuning against their formulas in f64: cross-entropy in parts, preferences, distillation.
#![allow(clippy::unwrap_used)]

use autograd::TensorGrad;
use nn::{
    CrossEntropyLoss, DistillationLoss, Divergence, DpoLoss, DpoVariant, KtoLoss, LinearCrossEntropyLoss,
    OrpoLoss, Reduction, answer_log_probabilities,
};
use tensor_core::{DType, Device, Generator, Result, Tensor};

/// The CPU, which computes in f64 as the formulas do.
fn device() -> Device {
    backend_cpu::cpu()
}

fn f64s(values: &[f64]) -> Tensor {
    Tensor::from_vec(values.to_vec(), [values.len()], &device()).unwrap()
}

fn close(found: &Tensor, expected: &[f64]) {
    taper_testing::assert_close(&found.to_f64_vec().unwrap(), expected, (1e-10, 1e-10), "numbers");
}

/// The derivative of a loss with respect to each input against finite differences.
fn differentiable(inputs: &[Tensor], loss: impl Fn(&[Tensor]) -> Result<Tensor>) {
    autograd::gradcheck(|x| loss(x), inputs).unwrap();
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[test]
fn cross_entropy_in_parts_is_that_of_the_whole() {
    let device = device();
    let rng = Generator::seed(3, &device);
    let hidden = Tensor::randn_dtype([7, 5], DType::F64, &rng).unwrap().requires_grad();
    let weight = Tensor::randn_dtype([11, 5], DType::F64, &rng).unwrap().requires_grad();
    let bias = Tensor::randn_dtype([11], DType::F64, &rng).unwrap().requires_grad();
    let labels = Tensor::new([3i32, -100, 10, 0, 3, -100, 6], &device).unwrap();
    let leaves = [&hidden, &weight, &bias];
    let results = |loss: Tensor| {
        loss.sum().backward().unwrap();
        let gradients = leaves.map(|leaf| leaf.grad().unwrap().to_f64_vec().unwrap());
        leaves.iter().for_each(|leaf| leaf.set_grad(None));
        (loss.to_f64_vec().unwrap(), gradients)
    };
    for (label_smoothing, ignore_index, labels) in
        [(0.0, Some(-100), labels.clone()), (0.2, Some(-100), labels.clone()), (0.1, None, labels.abs())]
    {
        let labels = if ignore_index.is_none() { labels.clamp(0, 10) } else { labels };
        for reduction in [Reduction::Mean, Reduction::Sum, Reduction::None] {
            let whole = CrossEntropyLoss { reduction, label_smoothing, ignore_index, weight: None };
            let logits = nn::functional::linear(&hidden, &weight, Some(&bias)).unwrap();
            let (expected, gradients) = results(whole.forward(&logits, &labels).unwrap());
            for chunk in [1, 3, 7, 100] {
                let parts = LinearCrossEntropyLoss { reduction, label_smoothing, ignore_index, chunk };
                let loss = parts.forward(&hidden, &weight, Some(&bias), &labels).unwrap();
                let (found, of_parts) = results(loss);
                taper_testing::assert_close(&found, &expected, (1e-12, 1e-12), "loss");
                for (found, expected) in of_parts.iter().zip(&gradients) {
                    taper_testing::assert_close(found, expected, (1e-12, 1e-12), "gradient");
                }
            }
        }
    }
    let loss = LinearCrossEntropyLoss::default();
    let error = |loss: LinearCrossEntropyLoss, labels: &Tensor| {
        loss.forward(&hidden, &weight, None, labels).unwrap_err().to_string()
    };
    assert!(error(LinearCrossEntropyLoss { chunk: 0, ..loss }, &labels).contains("a chunk of 0 rows"));
    assert!(error(loss, &labels.narrow(0, 0, 3).unwrap()).contains("7 hidden states and 3 labels"));
    assert!(error(loss, &labels.unsqueeze(0).unwrap()).contains("give [N, d] and [N]"));
}

#[test]
fn log_probabilities_are_those_of_answers() {
    let device = device();
    let logits = f64s(&[0.0, 3f64.ln(), 0.0, 0.0, 9.0, 1.0]).reshape([1, 3, 2]).unwrap();
    let labels = Tensor::new([[1i32, 0, -100]], &device).unwrap();
    let (sum, count) = answer_log_probabilities(&logits, &labels, -100).unwrap();
    close(&sum, &[0.75f64.ln() + 0.5f64.ln()]);
    close(&count, &[2.0]);
    let error = answer_log_probabilities(&logits, &labels.narrow(1, 0, 2).unwrap(), -100).unwrap_err();
    assert!(error.to_string().contains("[N, L, V]"), "{error}");
}

#[test]
fn preferences_are_direct() {
    let (c, r) = ([-10.0, -8.5, -2.6], [-12.0, -7.0, -3.5]);
    let (rc, rr) = ([-11.0, -8.0, -3.0], [-11.0, -8.0, -4.0]);
    let [policy_c, policy_r, reference_c, reference_r] = [&c, &r, &rc, &rr].map(|x| f64s(x));
    let margins: Vec<f64> = (0..3).map(|k| (c[k] - rc[k]) - (r[k] - rr[k])).collect();
    let beta = 0.3;
    type Formula = Box<dyn Fn(f64) -> f64>;
    let cases: [(DpoVariant, f64, Formula); 4] = [
        (DpoVariant::Sigmoid, 0.0, Box::new(move |d| -sigmoid(beta * d).ln())),
        (
            DpoVariant::Sigmoid,
            0.1,
            Box::new(move |d| -0.9 * sigmoid(beta * d).ln() - 0.1 * sigmoid(-beta * d).ln()),
        ),
        (DpoVariant::Hinge, 0.0, Box::new(move |d| (1.0 - beta * d).max(0.0))),
        (DpoVariant::Ipo, 0.0, Box::new(move |d| (d - 1.0 / (2.0 * beta)).powi(2))),
    ];
    for (variant, label_smoothing, formula) in cases {
        let loss = DpoLoss { beta, label_smoothing, variant, reduction: Reduction::None };
        let run = |x: &[Tensor]| loss.forward([&x[0], &x[1]], [&reference_c, &reference_r]);
        let found = run(&[policy_c.clone(), policy_r.clone()]).unwrap();
        close(&found, &margins.iter().map(|&d| formula(d)).collect::<Vec<_>>());
        differentiable(&[policy_c.clone(), policy_r.clone()], run);
    }
    let wrong = |loss: DpoLoss| {
        loss.forward([&policy_c, &policy_r], [&reference_c, &reference_r]).unwrap_err().to_string()
    };
    assert!(wrong(DpoLoss { beta: 0.0, ..Default::default() }).contains("beta 0"));
    assert!(wrong(DpoLoss { label_smoothing: 0.5, ..Default::default() }).contains("0.5"));
    let ipo = DpoLoss { label_smoothing: 0.1, variant: DpoVariant::Ipo, ..Default::default() };
    assert!(wrong(ipo).contains("with Sigmoid"));
    let short = f64s(&[1.0]);
    let error = DpoLoss::default().forward([&policy_c, &short], [&reference_c, &reference_r]).unwrap_err();
    assert!(error.to_string().contains("one number for each answer"), "{error}");
}

/// The numbers that `scripts/trl_losses.py` prints with TRL 1.16: means over three pairs of answers.
#[test]
fn preferences_are_those_of_trl() {
    let (c, r) = ([-10.0, -8.5, -2.6], [-12.0, -7.0, -3.5]);
    let (rc, rr) = ([-11.0, -8.0, -3.0], [-11.0, -8.0, -4.0]);
    let (tokens_c, tokens_r) = ([2.0, 1.0, 2.0], [1.0, 2.0, 2.0]);
    let mean = |sums: &[f64; 3], tokens: &[f64; 3]| [0, 1, 2].map(|k| sums[k] / tokens[k]);
    let sums = [c, r, rc, rr];
    let means = [mean(&c, &tokens_c), mean(&r, &tokens_r), mean(&rc, &tokens_c), mean(&rr, &tokens_r)];
    for (variant, label_smoothing, log_probabilities, expected) in [
        (DpoVariant::Sigmoid, 0.0, &sums, 0.696332190941596),
        (DpoVariant::Hinge, 0.0, &sums, 0.96),
        (DpoVariant::Ipo, 0.0, &means, 3.361944444444445),
        (DpoVariant::Robust, 0.1, &sums, 0.691332190941596),
        (DpoVariant::ApoZero, 0.0, &sums, 0.990151040703756),
        (DpoVariant::ApoDown, 0.0, &sums, 1.013153029502176),
    ] {
        let [c, r, rc, rr] = log_probabilities.each_ref().map(|x| f64s(x));
        let loss = DpoLoss { beta: 0.3, label_smoothing, variant, reduction: Reduction::Mean };
        close(&loss.forward([&c, &r], [&rc, &rr]).unwrap(), &[expected]);
        differentiable(&[c, r], |x| loss.forward([&x[0], &x[1]], [&rc, &rr]));
    }
    let kto = KtoLoss { beta: 0.3, desirable_weight: 1.5, undesirable_weight: 0.5, ..Default::default() };
    let six = |pair: [[f64; 3]; 2]| f64s(&pair.concat());
    let desirable = Tensor::new([true, true, true, false, false, false], &device()).unwrap();
    let divergence = f64s(&[0.5, -0.25, 0.2]);
    let found = kto.forward(&six([c, r]), &six([rc, rr]), &desirable, &divergence).unwrap();
    close(&found, &[0.491964370486001]);
    // TRL computes this one in f32.
    let orpo = OrpoLoss { lambda: 0.3, reduction: Reduction::Mean };
    let found = orpo.forward(&f64s(&means[0]), &f64s(&means[1])).unwrap();
    taper_testing::assert_close(&found.to_f64_vec().unwrap(), &[5.481680432823487], (1e-7, 0.0), "ORPO");
}

#[test]
fn desirable_answers_and_others() {
    let device = device();
    let (policy, reference) = (f64s(&[-3.0, -4.0, -2.0]), f64s(&[-3.5, -3.0, -2.0]));
    let desirable = Tensor::new([true, false, true], &device).unwrap();
    let loss =
        KtoLoss { beta: 0.5, desirable_weight: 1.2, undesirable_weight: 0.7, reduction: Reduction::None };
    for (divergence, k) in [([0.4, 0.2], 0.3), ([-1.0, 0.2], 0.0)] {
        let divergence = f64s(&divergence);
        let found = loss.forward(&policy, &reference, &desirable, &divergence).unwrap();
        let expected = [
            1.2 * (1.0 - sigmoid(0.5 * (0.5 - k))),
            0.7 * (1.0 - sigmoid(0.5 * (k + 1.0))),
            1.2 * (1.0 - sigmoid(0.5 * (0.0 - k))),
        ];
        close(&found, &expected);
        let policy = policy.clone();
        differentiable(&[policy], |x| loss.forward(&x[0], &reference, &desirable, &divergence));
    }
    let negative = KtoLoss { desirable_weight: -1.0, ..loss };
    let error = negative.forward(&policy, &reference, &desirable, &policy).unwrap_err().to_string();
    assert!(error.contains("desirable_weight -1"), "{error}");
}

#[test]
fn odds_ratios_need_no_reference() {
    let (c, r) = ([-0.3f64, -1e-6, -2.0], [-0.9f64, -0.5, -0.7]);
    let odds = |x: f64| x - (-x.exp_m1()).ln();
    let expected: Vec<f64> =
        c.iter().zip(r).map(|(&c, r)| -c - 0.25 * sigmoid(odds(c) - odds(r)).ln()).collect();
    let loss = OrpoLoss { lambda: 0.25, reduction: Reduction::None };
    close(&loss.forward(&f64s(&c), &f64s(&r)).unwrap(), &expected);
    differentiable(&[f64s(&[-0.3, -2.0]), f64s(&[-0.9, -0.7])], |x| loss.forward(&x[0], &x[1]));
}

#[test]
fn students_learn_probabilities() {
    let student = f64s(&[0.3, -1.0, 0.2, 2.0, 0.0, -0.5]).reshape([2, 3]).unwrap();
    let teacher = f64s(&[1.0, 0.5, -0.7, 0.1, 0.2, 0.3]).reshape([2, 3]).unwrap();
    let (t, rows) = (2.5, 2);
    let softmax = |x: &Tensor, row: usize| {
        let x = &x.to_f64_vec().unwrap()[3 * row..3 * row + 3];
        let sum: f64 = x.iter().map(|x| (x / t).exp()).sum();
        x.iter().map(|x| (x / t).exp() / sum).collect::<Vec<f64>>()
    };
    let divergence = |p: &[f64], q: &[f64]| -> f64 { p.iter().zip(q).map(|(p, q)| p * (p / q).ln()).sum() };
    for direction in [Divergence::Forward, Divergence::Reverse] {
        let loss = DistillationLoss { temperature: t, divergence: direction, reduction: Reduction::None };
        let expected: Vec<f64> = (0..rows)
            .map(|row| {
                let (q, p) = (softmax(&student, row), softmax(&teacher, row));
                let of_row = match direction {
                    Divergence::Forward => divergence(&p, &q),
                    Divergence::Reverse => divergence(&q, &p),
                };
                of_row * t * t
            })
            .collect();
        close(&loss.forward(&student, &teacher).unwrap(), &expected);
        differentiable(std::slice::from_ref(&student), |x| loss.forward(&x[0], &teacher));
    }
    let cold = DistillationLoss { temperature: 0.0, ..Default::default() };
    assert!(cold.forward(&student, &teacher).unwrap_err().to_string().contains("temperature 0"));
}
