//! A bad index or label is an error of every read that depends on it, each time, and of no other; it never
//! trains a model. This holds on every device, whether it fails at once or finds the index later.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    future::Future,
    pin::pin,
    task::{Context, Waker},
    thread,
};

use crate::common::{device, tensor};
use pollster::block_on;
use taper::{Error, ErrorKind};
use taper::{eval_all, eval_pending, nn::Embedding, prelude::*};

/// Fails unless the error is of this index and size, and names a line of this file.
#[track_caller]
fn is_of(error: &Error, bad: i64, of: usize) {
    match error.kind() {
        ErrorKind::IndexOutOfRange { index, size, .. } => assert_eq!((*index, *size), (bad, of), "{error}"),
        _ => panic!("{error}"),
    }
    let text = error.to_string();
    assert!(text.contains("bad_index.rs:") && text.contains(&bad.to_string()), "{text}");
    assert!(error.op().is_some_and(|op| text.contains(op)), "{text}");
}

/// Fails unless every way to ask for the tensor gives that error, time after time.
#[track_caller]
fn is_bad(tensor: &Tensor, bad: i64, of: usize) {
    for _ in 0..2 {
        is_of(&tensor.eval().unwrap_err(), bad, of);
        is_of(&eval_all(&[tensor]).unwrap_err(), bad, of);
        is_of(&tensor.to_f64_vec().unwrap_err(), bad, of);
        is_of(&tensor.to_vec::<f32>().unwrap_err(), bad, of);
        is_of(&block_on(tensor.to_vec_async::<f32>()).unwrap_err(), bad, of);
        is_of(&tensor.sum().item::<f32>().unwrap_err(), bad, of);
        is_of(&block_on(tensor.sum().item_async::<f32>()).unwrap_err(), bad, of);
        let text = format!("{tensor} {tensor:?}");
        assert_eq!(text.matches("run from 0 to").count(), 2, "{text}");
    }
}

/// Indices that only the device can check: nothing is known of a sum.
fn unknown(values: &[i32], d: &Device) -> Result<Tensor> {
    let values = Tensor::from_slice(values, [values.len(), 1], d)?;
    let indices = values.sum_axis(1, false)?.to_dtype(DType::I32)?;
    indices.eval()?;
    Ok(indices)
}

/// The same index by every road to the device.
fn roads(values: &[i32], d: &Device) -> Result<Vec<(&'static str, Tensor)>> {
    let host = Tensor::from_slice(values, [values.len()], d)?;
    let padded = [&[1000], values, &[-1000]].concat();
    let padded = Tensor::from_slice(&padded, [padded.len()], d)?;
    let mut roads = vec![
        ("from the host", host.clone()),
        ("a slice of a larger buffer", padded.narrow(0, 1, values.len())?),
        ("computed from the host's", host.add_scalar(3).sub_scalar(3)),
        ("only known on the device", unknown(values, d)?),
    ];
    if d.supports(DType::I64) {
        roads.push(("cast", host.to_dtype(DType::I64)?.to_dtype(DType::I32)?));
        roads.push(("64 bits", unknown(values, d)?.to_dtype(DType::I64)?));
    }
    Ok(roads)
}

#[test]
fn a_label_outside_the_classes_never_trains_the_model() -> Result<()> {
    let d = device();
    for (road, labels) in roads(&[0, 1, 2, 3], &d)? {
        let rng = Generator::seed(1, &d);
        let net = Linear::new(5, 3, &rng)?;
        let config = SgdConfig { lr: 0.1, momentum: 0.9, ..Default::default() };
        let mut sgd = Sgd::new(net.parameters(), config);
        let x = tensor(&[4, 5], 1, DType::F32, &d)?;
        let bits = |sgd: &Sgd| -> Result<Vec<Vec<u32>>> {
            let state = sgd.state_dict();
            let momenta = state.iter().filter_map(|(name, _)| state.tensor(name).cloned());
            let all = net.parameters().into_iter().chain(momenta);
            all.map(|t| Ok(t.to_vec::<f32>()?.into_iter().map(f32::to_bits).collect())).collect()
        };
        let step = |labels: &Tensor, sgd: &mut Sgd| -> (Tensor, Result<()>) {
            sgd.zero_grad();
            let loss = cross_entropy(&net.forward(&x).unwrap(), labels).unwrap();
            let result = loss.backward().and_then(|()| sgd.step());
            (loss, result)
        };
        let good = unknown(&[0, 1, 2, 0], &d)?;
        // At first without momenta.
        let before = bits(&sgd)?;
        is_of(&step(&labels, &mut sgd).1.unwrap_err(), 3, 3);
        assert_eq!(bits(&sgd)?, before, "{road}");
        step(&good, &mut sgd).1?;
        assert_ne!(bits(&sgd)?, before, "{road}");

        let before = bits(&sgd)?;
        let innocent = &x + 1.0;
        let (loss, result) = step(&labels, &mut sgd);
        is_of(&result.unwrap_err(), 3, 3);
        is_of(&sgd.step().unwrap_err(), 3, 3);
        assert!(!format!("{innocent} {x:?}").contains("run from 0 to"), "{road}");
        assert_eq!(innocent.to_vec::<f32>()?.len(), 20, "{road}");
        d.synchronize()?;
        is_bad(&loss, 3, 3);
        is_bad(&(&loss.detach() * 2.0).exp(), 3, 3);
        is_bad(&net.parameters()[0].grad().unwrap(), 3, 3);
        assert_eq!(bits(&sgd)?, before, "{road}");
        is_of(&sgd.step().unwrap_err(), 3, 3);
        assert_eq!(bits(&sgd)?, before, "{road}");
        // The next good batch trains it.
        let (loss, result) = step(&good, &mut sgd);
        result?;
        assert!(loss.item::<f32>()?.is_finite());
        assert_ne!(bits(&sgd)?, before, "{road}");
    }
    Ok(())
}

#[test]
fn classes_of_an_argmax_plus_one_are_told_too() -> Result<()> {
    let d = device();
    let scores = Tensor::from_vec(vec![0.0f32, 2.0, 1.0, 5.0, 1.0, 9.0], [2, 3], &d)?;
    let predicted = scores.argmax_axis(1, false)?;
    cross_entropy(&scores, &predicted)?.eval()?;
    let shifted = predicted.add_scalar(1);
    for labels in [shifted.clone(), shifted.to_dtype(DType::U8)?, shifted.to_dtype(DType::U32)?] {
        is_bad(&cross_entropy(&scores, &labels)?, 3, 3);
    }
    Ok(())
}

#[test]
fn every_operation_that_takes_indices_tells_of_bad_ones() -> Result<()> {
    let d = device();
    let x = tensor(&[4, 6], 1, DType::F32, &d)?;
    let rng = Generator::seed(1, &d);
    for bad in [4, -1, i32::MAX, i32::MIN] {
        for (road, index) in roads(&[1, bad, 0], &d)? {
            let wide = index.reshape([3, 1])?.expand([3, 6])?;
            let rows = tensor(&[3, 6], 2, DType::F32, &d)?;
            let of = |result: Result<Tensor>| {
                is_bad(&result.unwrap_or_else(|e| panic!("{road}: {e}")), bad.into(), 4)
            };
            of(x.gather(0, &wide));
            of(x.index_select(0, &index));
            of(x.scatter_add(0, &wide, &rows));
            of(x.index_add(0, &index, &rows));
            let embedding = Embedding::new(4, 6, &rng)?;
            of(embedding.forward(&index));
            // The gradient, whatever the result was used for.
            for selected in [embedding.weight.index_select(0, &index)?, embedding.weight.gather(0, &wide)?] {
                embedding.weight.set_grad(None);
                selected.sum().backward()?;
                is_bad(&embedding.weight.grad().unwrap(), bad.into(), 4);
            }
        }
    }
    Ok(())
}

#[test]
fn a_slice_with_good_labels_of_a_buffer_with_bad_ones_is_fine() -> Result<()> {
    let d = device();
    let x = tensor(&[5, 2], 1, DType::F32, &d)?;
    let values = [0, 4, 7, 2, 3, -3, 1, 1];
    for buffer in [Tensor::from_slice(&values, [8], &d)?, unknown(&values, &d)?] {
        for (start, len, good) in
            [(0, 2, true), (0, 3, false), (3, 2, true), (5, 1, false), (6, 2, true), (4, 2, false)]
        {
            let index = buffer.narrow(0, start, len)?;
            let found = x.index_select(0, &index)?.to_vec::<f32>();
            assert_eq!(found.is_ok(), good, "{start} {len}: {found:?}");
        }
        // Every second, and backwards.
        let odd = buffer.reshape([4, 2])?.select(1, 1)?;
        assert!(x.index_select(0, &odd)?.eval().is_err());
        let even = buffer.reshape([4, 2])?.select(1, 0)?.narrow(0, 2, 2)?.flip(0)?;
        x.index_select(0, &even)?.eval()?;
    }
    Ok(())
}

#[test]
fn an_innocent_reader_hears_nothing_of_it_and_takes_nothing_away() -> Result<()> {
    let d = device();
    let x = tensor(&[4, 2], 1, DType::F32, &d)?;
    let bad = x.index_select(0, &unknown(&[0, 9], &d)?)?;
    // Computed, where that is not an error at once.
    let _ = eval_pending();
    let derived = (&bad * 2.0).sum_axis(0, true)?;
    let both = Tensor::concat(&[&x, &derived], 0)?;
    let _ = eval_pending();
    for _ in 0..3 {
        assert_eq!(format!("{x}"), format!("{x:?}"));
        assert_eq!((&x + 1.0).to_vec::<f32>()?.len(), 8);
        assert_eq!(block_on(x.sum_axis(0, false)?.to_vec_async::<f32>())?.len(), 2);
        d.synchronize()?;
        d.empty_cache();
    }
    for tensor in [&bad, &derived, &both, &both.narrow(0, 1, 2)?, &both.t()?.flip(0)?] {
        is_bad(tensor, 9, 4);
    }
    // It does not get to another device either.
    let elsewhere = taper_testing::reference();
    is_of(&bad.to(&elsewhere)?.eval().unwrap_err(), 9, 4);
    Ok(())
}

#[test]
fn a_step_that_does_not_depend_on_it_goes_through() -> Result<()> {
    let d = device();
    let w = tensor(&[3], 1, DType::F32, &d)?.requires_grad();
    let mut sgd = Sgd::new([w.clone()], SgdConfig { lr: 0.5, ..Default::default() });
    let x = tensor(&[4], 1, DType::F32, &d)?;
    let metrics: Vec<Tensor> =
        roads(&[1, 4], &d)?.iter().map(|(_, index)| x.index_select(0, index)).collect::<Result<_>>()?;
    let before = w.to_vec::<f32>()?;
    w.sum().backward()?;
    sgd.step()?;
    assert_eq!(w.to_vec::<f32>()?, before.iter().map(|v| v - 0.5).collect::<Vec<_>>());
    metrics.iter().for_each(|metric| is_bad(metric, 4, 4));
    Ok(())
}

#[test]
fn a_bad_tensor_that_nobody_asks_for_is_told_to_nobody() -> Result<()> {
    let d = device();
    let x = tensor(&[4], 1, DType::F32, &d)?;
    for i in 0..20 {
        for (_, index) in roads(&[1, 4 + i], &d)? {
            let bad = x.index_select(0, &index)?;
            let _ = eval_pending();
            drop(bad);
        }
        let read = x.index_select(0, &unknown(&[5], &d)?)?;
        let mut context = Context::from_waker(Waker::noop());
        let _ = pin!(read.to_vec_async::<f32>()).poll(&mut context);
        drop(read);
        assert_eq!((&x * 1.0).to_vec::<f32>()?, x.to_vec::<f32>()?);
        d.synchronize()?;
    }
    Ok(())
}

#[test]
fn several_at_once_are_each_their_own() -> Result<()> {
    let d = device();
    let x = tensor(&[4], 1, DType::F32, &d)?;
    let selected = |i: i32| x.index_select(0, &unknown(&[i], &d)?);
    let tensors: Vec<Tensor> = (0..40).map(selected).collect::<Result<_>>()?;
    let _ = eval_pending();
    let sums: Vec<Tensor> = tensors.windows(2).map(|pair| pair[0].add(&pair[1])).collect::<Result<_>>()?;
    let _ = eval_pending();
    for (i, sum) in (0..).zip(&sums) {
        if i < 3 {
            assert_eq!(sum.numel(), sum.to_vec::<f32>()?.len());
        } else {
            let error = sum.eval().unwrap_err();
            let (one, other) = (i.max(4), i + 1);
            let found = |index: i64| i64::from(one) == index || i64::from(other) == index;
            assert!(
                matches!(error.kind(), ErrorKind::IndexOutOfRange { index, .. } if found(*index)),
                "{i}: {error}"
            );
        }
    }
    for (i, tensor) in (0..).zip(&tensors) {
        if i < 4 { tensor.eval()? } else { is_bad(tensor, i, 4) }
    }
    Ok(())
}

#[test]
fn threads_hear_of_their_own_only() -> Result<()> {
    let d = device();
    let x = tensor(&[4], 1, DType::F32, &d)?;
    let shared = x.index_select(0, &unknown(&[0, 77], &d)?)?;
    thread::scope(|scope| {
        for t in 0..6 {
            let (d, x, shared) = (&d, &x, &shared);
            scope.spawn(move || {
                for i in 0..30 {
                    let bad = (i + t) % 3 == 0;
                    let index = unknown(&[if bad { 100 * t + i + 4 } else { i % 4 }], d).unwrap();
                    let mine = (x.index_select(0, &index).unwrap() * 2.0).sum();
                    match mine.item::<f32>() {
                        Ok(_) => assert!(!bad),
                        Err(error) => is_of(&error, i64::from(100 * t + i + 4), 4),
                    }
                    is_of(&shared.to_vec::<f32>().unwrap_err(), 77, 4);
                    assert_eq!(x.to_vec::<f32>().unwrap().len(), 4);
                }
            });
        }
    });
    Ok(())
}

#[test]
fn indices_made_on_the_device_and_never_read_hold_no_memory() -> Result<()> {
    if taper_testing::run_alone(indices_made_on_the_device_and_never_read_hold_no_memory) {
        return Ok(());
    }
    let d = device();
    let x = tensor(&[8, 4], 1, DType::F32, &d)?;
    let mut total = Tensor::zeros([1, 4], &d)?;
    let index = unknown(&[3], &d)?;
    let mut most = 0;
    for i in 0..10_000 {
        total = total.add(&x.index_select(0, &index)?)?;
        if i % 100 == 0 {
            eval_pending()?;
        }
        if i == 1000 {
            d.reset_peak();
            most = d.memory().allocated;
        }
    }
    eval_pending()?;
    assert!(d.memory().peak <= most + (1 << 20), "{} after {most}", d.memory().peak);
    let expected = x.narrow(0, 3, 1)?.mul_scalar(10_000.0).to_vec::<f32>()?;
    for (found, expected) in total.to_vec::<f32>()?.iter().zip(expected) {
        assert!((found - expected).abs() <= 1e-2 * expected.abs().max(1.0), "{found} {expected}");
    }
    Ok(())
}

/// The bounds that are known of the indices beforehand are right: each of these reads the right element, and
/// none fails.
#[test]
fn indices_that_are_computed_from_known_ones_are_used_as_they_are() -> Result<()> {
    let d = device();
    let x = Tensor::arange(0.0, 12.0, 1.0, &d)?;
    let host = Tensor::from_slice(&[-5i32, 0, 3, 11, -100], [5], &d)?;
    let rng = Generator::seed(4, &d);
    let wrapped = host.remainder(&host.full_like(12))?;
    let cases = [
        ("clamped", host.clamp(0, 11), vec![0.0, 0.0, 3.0, 11.0, 0.0]),
        ("wrapped", wrapped.clone(), vec![7.0, 0.0, 3.0, 11.0, 8.0]),
        ("masked", host.masked_fill(&host.lt_scalar(0), 2)?, vec![2.0, 0.0, 3.0, 11.0, 2.0]),
        ("absolute", host.narrow(0, 0, 4)?.abs(), vec![5.0, 0.0, 3.0, 11.0]),
        ("halved", wrapped.floor_divide(&wrapped.full_like(2))?, vec![3.0, 0.0, 1.0, 5.0, 4.0]),
        ("a range", Tensor::arange(11, -1, -2, (DType::I32, &d))?, vec![11.0, 9.0, 7.0, 5.0, 3.0, 1.0]),
        ("sorted", x.argsort(0, true)?.narrow(0, 0, 2)?, vec![11.0, 10.0]),
        (
            "joined",
            Tensor::concat(&[&host.narrow(0, 2, 2)?, &host.narrow(0, 1, 1)?], 0)?,
            vec![3.0, 11.0, 0.0],
        ),
    ];
    for (name, index, expected) in cases {
        assert_eq!(x.index_select(0, &index)?.to_vec::<f32>()?, expected, "{name}");
    }
    let drawn = Tensor::randint(0, 12, [1000], &rng)?;
    assert_eq!(x.index_select(0, &drawn)?.to_vec::<f32>()?, drawn.to_dtype(DType::F32)?.to_vec::<f32>()?);
    // Where numbers wrap, nothing is known.
    let large = host.add_scalar(i32::MAX);
    assert!(x.index_select(0, &large)?.eval().is_err());
    Ok(())
}

#[test]
fn probabilities_that_cannot_be_are_refused_where_they_are_asked_for() -> Result<()> {
    let d = device();
    let rng = Generator::seed(4, &d);
    for bad in [-0.25f32, 1.5, f32::NAN, f32::INFINITY] {
        let probs = Tensor::new([0.5, 1.0, bad, 0.0], &d)?;
        // A value that only the device knows, and one that is the host's.
        for probs in [probs.clone(), probs.unsqueeze(0)?.sum_axis(0, false)?] {
            let drawn = probs.bernoulli(&rng)?;
            let after = drawn.mul_scalar(2.0);
            for tensor in [&drawn, &after, &drawn] {
                let error = tensor.eval().unwrap_err();
                let text = error.to_string();
                assert!(matches!(error.kind(), ErrorKind::Invalid { .. }), "{text}");
                assert!(text.contains("bernoulli: a probability is outside [0, 1]"), "{text}");
                assert!(text.contains("bad_index.rs:"), "{text}");
            }
            assert!(drawn.to_vec::<f32>().is_err());
            // Others have nothing to do with it.
            assert_eq!(probs.zeros_like().bernoulli(&rng)?.to_vec::<f32>()?, [0.0; 4]);
            assert_eq!(probs.ones_like().bernoulli(&rng)?.to_vec::<f32>()?, [1.0; 4]);
        }
    }
    // The random stream is unchanged, and an empty tensor has no bad elements.
    let half = Tensor::full([100], 0.5, &d)?;
    let drawn = half.bernoulli(&Generator::seed(9, &d))?.to_vec::<f32>()?;
    let below = Tensor::rand([100], &Generator::seed(9, &d))?.lt_scalar(0.5).to_dtype(DType::F32)?;
    assert_eq!(drawn, below.to_vec::<f32>()?);
    assert_eq!(Tensor::zeros([0, 3], &d)?.bernoulli(&rng)?.dims(), [0, 3]);
    Ok(())
}

#[test]
fn where_no_thread_can_wait_the_next_awaited_read_reports_a_bad_index() {
    let device = taper_testing::without_waiting(device().backend().clone());
    let table = Tensor::from_vec(vec![1.0f32, 2.0, 3.0], [3], &device).unwrap().requires_grad();
    // The device computes the indices, so that only it knows them.
    for (offset, bad) in [(0.0, None), (2.0, Some(4))] {
        let ids = Tensor::from_vec(vec![0.0f32, 2.0], [2], &device).unwrap().add_scalar(offset);
        let ids = ids.to_dtype(DType::I32).unwrap();
        let rows = table.index_select(0, &ids).unwrap();
        let evaluated = rows.eval();
        match bad {
            None => assert_eq!(block_on(rows.to_vec_async::<f32>()).unwrap(), [1.0, 3.0]),
            Some(bad) => {
                // A device that finds it at once may say so.
                if let Err(error) = evaluated {
                    is_of(&error, bad, 3);
                }
                is_of(&block_on(rows.to_vec_async::<f32>()).unwrap_err(), bad, 3);
                is_of(&rows.eval().unwrap_err(), bad, 3);
            }
        }
    }
}
