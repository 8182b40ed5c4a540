//! Whatever the library builds or refuses on behalf of a line of a program carries that line: kernels of the
//! forward and the backward pass, nodes of the graph, errors.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::io::{BufRead, BufReader};

use taper::{
    Error, Location,
    inspect::Graph,
    nn::{
        AdaptiveMaxPool2d, Bilinear, CosineSimilarity, CtcLoss, EmbeddingBag, GruCell, InstanceNorm2d,
        LpPool2d, LstmCell, TransformerDecoderLayer, TripletMarginLoss, ZeroPad2d,
        functional::{AttentionOptions, scaled_dot_product_attention},
    },
    optim::{
        Adadelta, AdadeltaConfig, Adamax, AdamaxConfig, Lion, LionConfig, Muon, MuonConfig, NAdam,
        NAdamConfig, RAdam, RAdamConfig, Rprop, RpropConfig,
    },
    prelude::*,
    profile,
};
use taper_operations::{
    Row,
    row::{Given, Placement},
    rows,
};
use taper_testing::{run_alone, test_process};

use crate::common::device;

/// Whether a file is of the user's side: this one, the table of operations, or helpers of tests.
fn is_users(file: &str) -> bool {
    file == file!() || file.starts_with("tools/operations/src/") || file.starts_with("tools/testing/src/")
}

/// The operations and lines of the library that ran as kernels in `f`, each operation on its own.
fn lines_of_library<T>(f: impl FnOnce() -> Result<T>) -> Vec<String> {
    let profiled = profile(|| Ok(taper::detect_anomaly(f).is_ok())).unwrap();
    let hidden = profiled.runs.iter().filter(|run| !is_users(run.location.file()));
    let mut lines: Vec<String> = hidden.map(|run| format!("{} at {}", run.op, run.location)).collect();
    lines.sort();
    lines.dedup();
    lines
}

/// The rows of free functions: those of `nn`, `linalg` and `fft`. (`interface.rs` has methods of `Tensor`.)
fn rows_of_functions() -> Vec<Row> {
    let rows: Vec<Row> = rows().into_iter().filter(|row| row.name.contains("::")).collect();
    assert!(rows.len() > 100, "{}", rows.len());
    rows
}

fn given(row: &Row) -> Given {
    let dtype = DType::F32;
    let mut given = row.given(&device(), dtype, dtype, Placement::Contiguous).unwrap();
    for tensor in &mut given.tensors {
        tensor.eval().unwrap();
        if tensor.dtype().is_float() && row.order > 0 {
            *tensor = tensor.clone().requires_grad();
        }
    }
    given
}

#[test]
fn kernels_of_every_function_are_of_its_callers_line() {
    if run_alone(kernels_of_every_function_are_of_its_callers_line) {
        return;
    }
    let mut wrong: Vec<String> = Vec::new();
    for row in rows_of_functions() {
        let given = given(&row);
        let mut nodes: Vec<String> = Vec::new();
        let lines = lines_of_library(|| {
            let outputs = row.run(&given)?;
            let graph = Graph::of::<Tensor, &str>(&outputs, &[]);
            let hidden = graph.nodes.iter().filter(|node| !is_users(node.location.0));
            nodes.extend(hidden.map(|node| format!("{} at {:?}", node.op, node.location)));
            for output in outputs.iter().filter(|output| output.is_tracked()) {
                output.sum().backward_retain()?;
            }
            Ok(())
        });
        nodes.sort();
        nodes.dedup();
        if !lines.is_empty() || !nodes.is_empty() {
            wrong.push(format!("{}:\n  kernels {lines:?}\n  nodes {nodes:?}", row.label()));
        }
    }
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn errors_of_every_function_are_of_its_callers_line() {
    let mut wrong: Vec<String> = Vec::new();
    let mut refused = 0;
    let mut hold = |row: &Row, what: &str, result: Result<Vec<Tensor>>| {
        let Err(error) = result else { return };
        refused += 1;
        if !error.location().is_some_and(|line| is_users(line.file())) {
            wrong.push(format!("{}, {what}: {error}", row.label()));
        }
    };
    let d = device();
    for row in rows_of_functions() {
        let given = given(&row);
        if let Some(bad) = &row.bad {
            hold(&row, "its bad input", bad(&given));
        }
        for k in 0..given.tensors.len() {
            for (what, other) in [
                ("a scalar", Tensor::ones((), &d)),
                ("seven axes", Tensor::ones([2, 1, 2, 1, 2, 1, 2], &d)),
                ("other sizes", Tensor::ones([5, 7], &d)),
                ("five axes", Tensor::ones([2, 3, 1, 2, 4], &d)),
                ("no elements", Tensor::ones([0, 3], &d)),
                ("bools", Tensor::ones(given.tensors[k].dims(), (DType::Bool, &d))),
            ] {
                let mut given = given.clone();
                given.tensors[k] = other.unwrap();
                hold(&row, what, row.run(&given));
            }
        }
    }
    assert!(refused > 500, "{refused}");
    assert!(wrong.is_empty(), "{} of {refused} errors:\n{}", wrong.len(), wrong.join("\n"));
}

/// Holds calls, each with the line of its own: its kernels, and its error for bad input.
macro_rules! hold {
    ($wrong:ident, $call:expr, $bad:expr) => {{
        // A call may take several lines.
        let lines = line!()..line!() + 4;
        let of_call = |l: Location| l.file() == file!() && lines.contains(&l.line());
        let profiled = profile(|| Ok(taper::detect_anomaly(|| $call.map(|_| ())).is_ok())).unwrap();
        let ran = profiled.runs.iter();
        let others = ran.filter(|run| !of_call(run.location));
        $wrong.extend(others.map(|run| format!("{}: {} at {}", stringify!($call), run.op, run.location)));
        let error: Error = $bad.map(|_| ()).unwrap_err();
        if !error.location().is_some_and(of_call) {
            $wrong.push(format!("{}: {error}", stringify!($bad)));
        }
    }};
}

#[test]
fn layers_and_losses_are_of_their_callers_line() -> Result<()> {
    if run_alone(layers_and_losses_are_of_their_callers_line) {
        return Ok(());
    }
    let d = device();
    let rng = Generator::seed(0, &d);
    let ones = |shape: &[usize]| {
        let ones = Tensor::ones(shape, &d).unwrap().requires_grad();
        ones.eval().unwrap();
        ones
    };
    let ids = |shape: &[usize]| {
        let ids = Tensor::ones(shape, (DType::I32, &d)).unwrap();
        ids.eval().unwrap();
        ids
    };
    let (image, line, flat, bad) =
        (ones(&[2, 3, 6, 6]), ones(&[2, 3, 6]), ones(&[2, 6]), ones(&[7, 1, 1, 1, 1, 7]));
    let (sequence, one_id, two_ids) = (ones(&[5, 2, 6]), ids(&[2]), ids(&[2, 3]));
    let mut wrong: Vec<String> = Vec::new();

    let conv1d = Conv1d::new(3, 4, 3, &rng)?;
    let conv2d = Conv2d::new(3, 4, 3, &rng)?;
    let up = ConvTranspose2d::new(3, 4, 2, &rng)?;
    hold!(wrong, conv1d.forward(&line), conv1d.forward(&bad));
    hold!(wrong, conv2d.forward(&image), conv2d.forward(&bad));
    hold!(wrong, up.forward(&image), up.forward(&bad));
    hold!(wrong, MaxPool2d::new(2).forward(&image), MaxPool2d::new(2).forward(&bad));
    hold!(wrong, AvgPool2d::new(2).forward(&image), AvgPool2d::new(2).forward(&bad));
    hold!(wrong, LpPool2d::new(2.0, 2).forward(&image), LpPool2d::new(2.0, 2).forward(&bad));
    hold!(wrong, AdaptiveAvgPool2d::new(4).forward(&image), AdaptiveAvgPool2d::new(4).forward(&bad));
    hold!(wrong, AdaptiveMaxPool2d::new(4).forward(&image), AdaptiveMaxPool2d::new(4).forward(&bad));
    hold!(wrong, Upsample::new(2.0).forward(&image), Upsample::new(2.0).forward(&bad));
    hold!(wrong, ZeroPad2d::new(1).forward(&image), ZeroPad2d::new(1).forward(&ones(&[6])));
    let (norm, group, layer, rms) =
        (BatchNorm2d::new(3, &d)?, GroupNorm::new(3, 3, &d)?, LayerNorm::new(6, &d)?, RmsNorm::new(6, &d)?);
    hold!(wrong, norm.forward(&image), norm.forward(&bad));
    hold!(wrong, group.forward(&image), group.forward(&bad));
    hold!(wrong, layer.forward(&image), layer.forward(&bad));
    hold!(wrong, rms.forward(&image), rms.forward(&bad));
    let instance = InstanceNorm2d::new(3, &d)?;
    hold!(wrong, instance.forward(&image), instance.forward(&bad));
    let (linear, bilinear) = (Linear::new(6, 4, &rng)?, Bilinear::new(6, 6, 2, &rng)?);
    hold!(wrong, linear.forward(&image), linear.forward(&bad));
    hold!(wrong, bilinear.forward(&flat, &flat), bilinear.forward(&flat, &bad));
    let (embedding, bag) = (Embedding::new(4, 3, &rng)?, EmbeddingBag::new(4, 3, Default::default(), &rng)?);
    hold!(wrong, embedding.forward(&two_ids), embedding.forward(&flat));
    hold!(wrong, bag.forward(&two_ids, None, None), bag.forward(&flat, None, None));
    let dropout = Dropout::new(0.5, &rng)?;
    hold!(wrong, dropout.forward(&flat), Dropout::new(1.5, &rng));
    hold!(wrong, Gelu.forward(&flat), Softmax::new(5).forward(&flat));
    hold!(
        wrong,
        CosineSimilarity::default().forward(&flat, &flat),
        CosineSimilarity::default().forward(&flat, &bad)
    );

    let (rnn, lstm, gru) = (Rnn::new(6, 4, &rng)?, Lstm::new(6, 4, &rng)?, Gru::new(6, 4, &rng)?);
    hold!(wrong, rnn.forward(&sequence, None), rnn.forward(&sequence, Some(&flat)));
    hold!(wrong, lstm.forward(&sequence, None), lstm.forward(&sequence, Some((&flat, &flat))));
    hold!(wrong, gru.forward(&sequence, None), gru.forward(&bad, None));
    hold!(
        wrong,
        lstm.forward_with_lengths(&sequence, &[5, 2], None),
        lstm.forward_with_lengths(&sequence, &[5], None)
    );
    let (lstm_cell, gru_cell) = (LstmCell::new(6, 4, &rng)?, GruCell::new(6, 4, &rng)?);
    hold!(wrong, lstm_cell.forward(&flat, None), lstm_cell.forward(&flat, Some((&flat, &flat))));
    hold!(wrong, gru_cell.forward(&flat, None), gru_cell.forward(&flat, Some(&flat)));
    let attention = MultiheadAttention::new(6, 2, &rng)?;
    let masks = AttentionMasks::default();
    hold!(
        wrong,
        attention.forward(&sequence, &sequence, &sequence, masks),
        attention.forward(&sequence, &bad, &bad, masks)
    );
    let encoder = TransformerEncoderLayer::new(6, 2, &rng)?;
    let decoder = TransformerDecoderLayer::new(6, 2, &rng)?;
    hold!(wrong, encoder.forward(&sequence), encoder.forward(&bad));
    hold!(
        wrong,
        decoder.forward(&sequence, &sequence, masks, masks),
        decoder.forward(&sequence, &bad, masks, masks)
    );
    let options = AttentionOptions::default;
    hold!(
        wrong,
        scaled_dot_product_attention(&sequence, &sequence, &sequence, options()),
        scaled_dot_product_attention(&sequence, &sequence, &bad, options())
    );

    hold!(wrong, CrossEntropyLoss::default().forward(&flat, &one_id), cross_entropy(&flat, &two_ids));
    hold!(wrong, NllLoss::default().forward(&flat, &one_id), nll_loss(&flat, &two_ids));
    hold!(wrong, mse_loss(&flat, &flat.detach()), mse_loss(&flat, &line));
    hold!(wrong, huber_loss(&flat, &flat.detach()), huber_loss(&flat, &line));
    hold!(wrong, binary_cross_entropy_with_logits(&flat, &flat), binary_cross_entropy(&flat, &line));
    let triplet = TripletMarginLoss::default();
    hold!(wrong, triplet.forward(&flat, &flat, &flat), triplet.forward(&flat, &flat, &bad));
    let targets = ids(&[2, 2]);
    hold!(
        wrong,
        CtcLoss::default().forward(&sequence, &targets, &[5, 5], &[2, 2]),
        CtcLoss::default().forward(&flat, &one_id, &[5], &[2])
    );

    // A layer in a sequence, and behind pointers: the line of the sequence's call.
    let model = || {
        Sequential::new()
            .add(Flatten::new())
            .add(Box::new(Linear::new(18, 2, &rng).unwrap()) as Box<dyn Layer>)
    };
    let model = model().add(Sequential::new().add(LayerNorm::new(2, &d)?));
    hold!(wrong, model.forward(&line), model.forward(&bad));
    hold!(wrong, Layer::forward(&model, &line), Layer::forward(&model, &bad));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn optimizers_and_sums_of_gradients_are_of_the_users_lines() -> Result<()> {
    if run_alone(optimizers_and_sums_of_gradients_are_of_the_users_lines) {
        return Ok(());
    }
    let d = device();
    let weight = || {
        let weight = Tensor::ones([3, 4], &d).unwrap().requires_grad();
        weight.eval().unwrap();
        weight.set_grad(Some(Tensor::ones([3, 4], &d).unwrap()));
        weight.grad().unwrap().eval().unwrap();
        weight
    };
    let mut optimizers: Vec<Box<dyn Optimizer>> = Vec::new();
    let mut wrong: Vec<String> = Vec::new();
    macro_rules! steps {
        ($($optimizer:ident $config:expr;)*) => {$({
            let mut optimizer = $optimizer::new([weight()], $config);
            for _ in 0..2 {
                wrong.extend(lines_of_library(|| optimizer.step()));
            }
            optimizers.push(Box::new(optimizer));
        })*};
    }
    steps! {
        Sgd SgdConfig { lr: 0.1, momentum: 0.9, ..Default::default() };
        Adam AdamConfig::default();
        AdamW AdamWConfig::default();
        Adagrad AdagradConfig::default();
        Adadelta AdadeltaConfig::default();
        Adamax AdamaxConfig::default();
        NAdam NAdamConfig::default();
        RAdam RAdamConfig::default();
        RmsProp RmsPropConfig::default();
        Rprop RpropConfig::default();
        Lion LionConfig::default();
        Muon MuonConfig::default();
    }
    assert_eq!(optimizers.len(), 12);
    let clipped = weight();
    wrong.extend(lines_of_library(|| clip_grad_norm(&[&clipped], 0.5)));

    // A tensor that is read three times, and a leaf that has a gradient already.
    let x = weight();
    wrong.extend(lines_of_library(|| {
        let y = x.exp();
        let parts = y.narrow(1, 0, 2)?.add(&y.narrow(1, 1, 2)?)?.sum();
        let loss = y.mul(&y.sin())?.sum().add(&parts)?.add(&y.matmul(&y.t()?)?.sum())?;
        loss.backward_retain()?;
        loss.backward()
    }));
    assert!(x.grad().unwrap().isfinite().all().item::<bool>()?);
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    // A wrong setting, and a gradient of another shape.
    let mut sgd = Sgd::new([weight()], SgdConfig { lr: -1.0, ..Default::default() });
    let (error, line) = (sgd.step().unwrap_err(), line!());
    assert_eq!(error.location().map(|l| (l.file(), l.line())), Some((file!(), line)), "{error}");
    Ok(())
}

#[cfg(feature = "distributions")]
#[test]
fn draws_and_densities_are_of_the_callers_line() -> Result<()> {
    use taper::distributions::{
        Beta, Categorical, Dirichlet, Distribution, Gamma, Laplace, MultivariateNormal, Normal, Uniform,
    };
    if run_alone(draws_and_densities_are_of_the_callers_line) {
        return Ok(());
    }
    let d = device();
    let rng = Generator::seed(0, &d);
    let (half, value) = (Tensor::full([2], 0.5, &d)?, Tensor::full([2], 0.25, &d)?);
    let eye = Tensor::eye(2, &d)?;
    taper::eval_all(&[&half, &value, &eye])?;
    let mut wrong = Vec::new();
    macro_rules! all {
        ($($made:expr;)*) => {$(
            wrong.extend(lines_of_library(|| {
                let made = $made?;
                made.sample([3], &rng)?.eval()?;
                made.log_prob(&value)?.eval()?;
                made.mean()?.eval()?;
                made.variance()?.eval()
            }));
        )*};
    }
    all! {
        Normal::new(&half, 1.0);
        Uniform::new(&half.mul_scalar(0.0), 1.0);
        Laplace::new(&half, 1.0);
        Gamma::new(&half, 1.0);
        Beta::new(&half, 1.0);
    }
    wrong.extend(lines_of_library(|| Dirichlet::new(&half)?.log_prob(&half)?.eval()));
    wrong.extend(lines_of_library(|| MultivariateNormal::new(&half, &eye)?.log_prob(&value)?.eval()));
    wrong.extend(lines_of_library(|| Categorical::from_probs(&half)?.entropy()?.eval()));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[track_caller]
fn says<T>(result: Result<T>, words: &[&str]) {
    let text = match result {
        Ok(_) => panic!("no error where one that says {words:?} was expected"),
        Err(error) => error.to_string(),
    };
    for word in words {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
}

#[test]
fn shape_errors_say_what_the_caller_probably_meant() -> Result<()> {
    let d = device();
    let rng = Generator::seed(0, &d);
    let ones = |shape: &[usize]| Tensor::ones(shape, &d).unwrap();
    let conv = Conv2d::new(3, 4, 3, &rng)?;
    says(
        conv.forward(&ones(&[8, 32, 32, 3])),
        &["[8, 32, 32, 3]", "the channels seem to be last: permute([0, 3, 1, 2])"],
    );
    says(conv.forward(&ones(&[32, 32, 3])), &["permute([2, 0, 1])"]);
    let error = conv.forward(&ones(&[8, 5, 32, 32])).unwrap_err().to_string();
    assert!(error.contains("[8, 5, 32, 32]") && !error.contains("permute"), "{error}");
    let up = ConvTranspose2d::new(3, 4, 2, &rng)?;
    says(up.forward(&ones(&[8, 32, 32, 3])), &["permute([0, 3, 1, 2])"]);

    let lstm = Lstm::new(6, 4, &rng)?;
    let state = ones(&[1, 8, 4]);
    says(lstm.forward(&ones(&[8, 5, 6]), Some((&state, &state))), &["[8, 5, 6]", "batch_first: true"]);
    says(lstm.forward_with_lengths(&ones(&[8, 5, 6]), &[5; 8], None), &["8 lengths", "batch_first: true"]);
    says(lstm.forward(&ones(&[5, 6, 8]), None), &["transpose(1, 2)"]);
    let attention = MultiheadAttention::new(6, 2, &rng)?;
    let (query, key) = (ones(&[8, 5, 6]), ones(&[8, 7, 6]));
    says(attention.forward(&query, &key, &key, AttentionMasks::default()), &["batch_first: true"]);
    let mask = Tensor::zeros([8, 5], (DType::Bool, &d))?;
    let masks = AttentionMasks { key_padding_mask: Some(&mask), ..Default::default() };
    says(attention.forward(&query, &query, &query, masks), &["[5, 8]", "batch_first: true"]);

    let labels = Tensor::new([0, 3], (DType::I32, &d))?;
    let loss = cross_entropy(&ones(&[2, 3]), &labels).and_then(|loss| loss.item::<f32>());
    says(
        loss,
        &["cross_entropy: label 3 of 3 classes; labels run from 0 to 2", "in cross_entropy", "lines.rs"],
    );
    let loss = nll_loss(&ones(&[2, 3]), &labels).and_then(|loss| loss.item::<f32>());
    says(loss, &["nll_loss: label 3 of 3 classes"]);
    let words = Tensor::new([7, 0], (DType::I32, &d))?;
    let rows = Embedding::new(5, 3, &rng)?.forward(&words).and_then(|rows| rows.to_vec::<f32>());
    says(rows, &["embedding: index 7 of 5 rows; indices run from 0 to 4", "lines.rs"]);
    let bag = EmbeddingBag::new(5, 3, Default::default(), &rng)?;
    says(
        bag.forward(&words.unsqueeze(0)?, None, None).and_then(|rows| rows.to_vec::<f32>()),
        &["embedding", "index 7 of 5 rows"],
    );

    let inner = Sequential::new().add(Relu).add(Linear::new(4, 2, &rng)?);
    let model = Sequential::new().add(Linear::new(6, 3, &rng)?).add(inner);
    says(model.forward(&ones(&[2, 6])), &["(layer 1.1: Linear)", "[2, 3]"]);
    says(model.forward_checkpointed(2, &ones(&[2, 6])), &["(layer 1.1: Linear)"]);
    Ok(())
}

#[test]
fn a_model_on_another_device_is_named() -> Result<()> {
    let (here, there) = (device(), crate::common::second_device());
    let rng = Generator::seed(0, &there);
    let (linear, conv) = (Linear::new(6, 4, &rng)?, Conv2d::new(3, 4, 3, &rng)?);
    let words = ["the parameter [4, 6] is on ", "the other tensor, [2, 6], on ", "model.to(&device)?"];
    says(linear.forward(&Tensor::ones([2, 6], &here)?), &words);
    says(
        conv.forward(&Tensor::ones([2, 3, 6, 6], &here)?),
        &["the parameter [4, 3, 3, 3]", "model.to(&device)?"],
    );
    let words = Tensor::zeros([2], (DType::I32, &here))?;
    says(Embedding::new(5, 3, &rng)?.forward(&words), &["the parameter [5, 3]"]);
    Ok(())
}

#[test]
fn a_step_without_gradients_is_reported_once() {
    const MARK: &str = "TAPER_TEST_NO_GRADIENTS";
    if std::env::var(MARK).is_ok() {
        let weight = Tensor::ones(2, &taper::cpu()).unwrap().requires_grad();
        let mut adam = Adam::new([weight.clone()], AdamConfig::default());
        adam.step().unwrap();
        adam.step().unwrap();
        weight.sum().backward().unwrap();
        let mut sgd = Sgd::new([weight], SgdConfig { lr: 0.1, ..Default::default() });
        sgd.step().unwrap();
        return;
    }
    let child =
        test_process(a_step_without_gradients_is_reported_once).env(MARK, "1").arg("--nocapture").output();
    let child = child.unwrap();
    let told = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{told}");
    assert_eq!(told.matches("no parameter has a gradient").count(), 1, "{told}");
    assert!(told.contains("taper: Adam: ") && told.contains("lines.rs:"), "{told}");
}

/// A body that a detach cuts off is named once, after some steps, with the names of its module. Frozen
/// parameters are left alone.
#[test]
fn parameters_that_never_get_a_gradient_are_named_once() {
    const MARK: &str = "TAPER_TEST_IDLE_PARAMETERS";
    if std::env::var(MARK).is_ok() {
        let rng = Generator::seed(0, &taper::cpu());
        let net = Sequential::new()
            .add(Linear::new(2, 3, &rng).unwrap())
            .add(Linear::new(3, 3, &rng).unwrap())
            .add(Linear::new(3, 1, &rng).unwrap());
        net.set_requires_grad_matching(&["1.weight", "1.bias"].into(), false).unwrap();
        let mut sgd = Sgd::new(net.parameters(), SgdConfig { lr: 0.1, ..Default::default() });
        let x = Tensor::ones([4, 2], &taper::cpu()).unwrap();
        for _ in 0..25 {
            sgd.zero_grad();
            let hidden = net.parameters()[0].t().and_then(|weight| x.matmul(&weight)).unwrap().detach();
            let head = net.parameters()[4].t().unwrap();
            hidden.matmul(&head).unwrap().add(&net.parameters()[5]).unwrap().mean().backward().unwrap();
            sgd.step().unwrap();
        }
        return;
    }
    let mut child = test_process(parameters_that_never_get_a_gradient_are_named_once);
    let child = child.env(MARK, "1").arg("--nocapture").output().unwrap();
    let told = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{told}");
    assert_eq!(told.matches("had no gradient").count(), 1, "{told}");
    assert!(told.contains("Sgd: 2 of 6 parameters") && told.contains("lines.rs:"), "{told}");
    assert!(told.contains(r#""0.weight" [3, 2], "0.bias" [3]"#), "{told}");
}

#[test]
fn a_pipe_that_closes_ends_a_program_quietly() {
    const MARK: &str = "TAPER_TEST_PIPE";
    if std::env::var(MARK).is_ok() {
        taper::end_quietly_on_closed_pipe();
        for line in 0..10_000_000 {
            println!("line {line}");
        }
        panic!("the pipe never closed");
    }
    let mut child = test_process(a_pipe_that_closes_ends_a_program_quietly);
    child.env(MARK, "1").arg("--nocapture");
    child.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut child = child.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(std::result::Result::ok).any(|line| line.ends_with("line 9")));
    let child = child.wait_with_output().unwrap();
    assert!(child.status.success(), "{child:?}");
    assert!(child.stderr.is_empty(), "{child:?}");
}

/// A newcomer's first programs, with the prelude alone.
#[test]
fn everyday_code_compiles() -> Result<()> {
    let d = device();
    let mut x = Tensor::new([1.0f32, 2.0], &d)?;
    let before = x.clone();
    x += 1.0;
    x *= &before;
    x -= before.clone();
    x /= 2;
    assert_eq!(x.to_vec::<f32>()?, [0.5, 2.0]);
    assert_eq!(before.to_vec::<f32>()?, [1.0, 2.0]);
    let parameter = x.requires_grad();
    let mut y = &parameter * 2f32;
    y += &parameter;
    y.sum().backward()?;
    assert_eq!(parameter.grad().unwrap().to_vec::<f32>()?, [3.0, 3.0]);
    let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut parameter = parameter.clone();
        parameter += 1.0;
    }));
    let message = refused.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("x.assign(&(&x + 1.0))?") && message.contains("lines.rs"), "{message}");

    let read = || std::fs::read_to_string("no such file").map_err(Error::io);
    assert!(!read().unwrap_err().to_string().is_empty());

    let rng = Generator::seed(0, &d);
    let model = Sequential::new()
        .add(Conv2d::with_config(1, 2, 3, ConvConfig { padding: 1.into(), ..Default::default() }, &rng)?)
        .add(BatchNorm2d::new(2, &d)?)
        .add(Gelu)
        .add(MaxPool2d::new(2))
        .add(Dropout::new(0.1, &rng)?)
        .add(Flatten::new())
        .add(Linear::new(8, 3, &rng)?);
    let mut adamw = AdamW::new(model.parameters(), AdamWConfig::default());
    let mut schedule = LrScheduler::new(CosineAnnealingLr::new(10, 0.0)?, &mut adamw);
    let loss = CrossEntropyLoss::default();
    let logits = model.forward(&Tensor::ones([2, 1, 4, 4], &d)?)?;
    loss.forward(&logits, &Tensor::new([0, 2], (DType::I32, &d))?)?.backward()?;
    clip_grad_norm(&model.parameters(), 1.0)?;
    adamw.step()?;
    schedule.step(&mut adamw)
}
