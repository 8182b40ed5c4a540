//! Attention by blocks and by a device's own kernel, against whole matrices of scores written out: values,
//! gradients, gradients of gradients, masks, groups of heads, dropout, and the memory that it takes.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use taper::autograd::{TensorGrad, grad, gradcheck, gradgradcheck};
use taper::nn::{
    self,
    functional::{AttentionOptions, scaled_dot_product_attention},
};
use taper::tensor_core::{CachedAttention, PackedRows};
use taper::{DType, Device, Generator, Result, Tensor, no_grad};

use crate::common::{agree_within, assert_close, device, has, has_plain_forms, needs, numbers, of};

/// Numbers about 0.
fn made(shape: &[usize], seed: u64, dtype: DType, device: &Device) -> Tensor {
    of(&numbers(shape.iter().product(), seed), shape, dtype, device).unwrap()
}

/// softmax(query · keyᵀ · scale + mask) · value, written out.
fn whole(q: &Tensor, k: &Tensor, v: &Tensor, added: Option<&Tensor>) -> Result<Tensor> {
    let width = q.dims()[q.rank() - 1] as f64;
    let mut scores = q.matmul(&k.transpose(-2, -1)?)?.mul_scalar(1.0 / width.sqrt());
    if let Some(added) = added {
        scores = scores.add(added)?;
    }
    let blind = scores.detach().amax(-1, true)?.eq_scalar(f64::NEG_INFINITY);
    scores.masked_fill(&blind, 0.0)?.softmax(-1)?.masked_fill(&blind, 0.0)?.matmul(v)
}

/// 0 where key ≤ query, and else −∞.
fn causal(rows: usize, keys: usize, dtype: DType, device: &Device) -> Tensor {
    let values: Vec<f64> =
        (0..rows * keys).map(|i| if i % keys <= i / keys { 0.0 } else { f64::NEG_INFINITY }).collect();
    of(&values, &[rows, keys], dtype, device).unwrap()
}

/// The value, and the gradients of its sum with weights with respect to the inputs.
fn with_gradients(inputs: &[Tensor], f: impl Fn(&[Tensor]) -> Result<Tensor>) -> Vec<Vec<f64>> {
    let leaves: Vec<Tensor> = inputs.iter().map(|t| t.detach().requires_grad()).collect();
    let out = f(&leaves).unwrap();
    let weights = made(out.dims(), 77, out.dtype(), &out.device());
    let loss = out.mul(&weights).unwrap().sum();
    let gradients = grad(&[loss], &leaves, false).unwrap();
    let all = [Some(out)].into_iter().chain(gradients);
    all.map(|t| t.unwrap().to_f64_vec().unwrap()).collect()
}

fn compare(found: &[Vec<f64>], expected: &[Vec<f64>], within: (f64, f64), what: &str) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert_close(found, expected, within, &format!("{what}: result {i}"));
    }
}

#[test]
fn attention_is_what_whole_matrices_give() {
    let device = device();
    // Lengths about those of blocks and tiles, features that fill no register.
    let shapes: [(&[usize], usize, usize, usize, usize); 9] = [
        (&[2], 9, 9, 4, 4),
        (&[], 16, 33, 5, 3),
        (&[2, 3], 65, 64, 8, 16),
        (&[1, 2], 64, 129, 7, 20),
        (&[2], 130, 257, 16, 1),
        (&[3], 11, 300, 1, 17),
        (&[1], 300, 10, 33, 48),
        // So few batch positions that threads share one.
        (&[], 140, 600, 8, 12),
        (&[2, 1], 270, 270, 24, 24),
    ];
    // On devices without a kernel, attention is composed of blocks, for which a few shapes are enough.
    let (dtypes, every) =
        if device.name() == "cpu" { (&[DType::F32, DType::F64][..], 1) } else { (&[DType::F32][..], 3) };
    for &dtype in dtypes {
        let within = if dtype == DType::F64 { (1e-10, 1e-11) } else { (2e-4, 2e-5) };
        for &(batch, rows, keys, width, features) in shapes.iter().step_by(every) {
            let shape = |last: [usize; 2]| [batch, &last[..]].concat();
            let inputs = [
                made(&shape([rows, width]), 1, dtype, &device),
                made(&shape([keys, width]), 2, dtype, &device),
                made(&shape([keys, features]), 3, dtype, &device),
            ];
            for is_causal in [false, true] {
                let added = is_causal.then(|| causal(rows, keys, dtype, &device));
                let found = with_gradients(&inputs, |t| {
                    let options = AttentionOptions { is_causal, ..Default::default() };
                    scaled_dot_product_attention(&t[0], &t[1], &t[2], options)
                });
                let expected = with_gradients(&inputs, |t| whole(&t[0], &t[1], &t[2], added.as_ref()));
                let what =
                    format!("{batch:?} {rows} x {keys}, {width}, {features} {dtype} causal {is_causal}");
                compare(&found, &expected, within, &what);
            }
        }
    }
}

#[test]
fn masks_of_every_shape_hide_what_they_say() {
    let device = device();
    let (rows, keys) = (70, 140);
    let inputs = [
        made(&[2, 3, rows, 8], 1, DType::F32, &device),
        made(&[2, 3, keys, 8], 2, DType::F32, &device),
        made(&[2, 3, keys, 8], 3, DType::F32, &device),
    ];
    let masks: [&[usize]; 8] = [
        &[],
        &[keys],
        &[rows, 1],
        &[rows, keys],
        &[3, rows, keys],
        &[2, 1, 1, keys],
        &[2, 3, rows, keys],
        &[1, 3, 1, keys],
    ];
    for shape in masks.into_iter().step_by(if device.name() == "cpu" { 1 } else { 3 }) {
        let draws = numbers(shape.iter().product(), 9);
        // A third is hidden, and all of a query or a key where the mask has one number for it.
        let seen: Vec<f64> = draws.iter().map(|&x| if x > -0.3 { 1.0 } else { 0.0 }).collect();
        let hidden: Vec<f64> = seen.iter().map(|&x| if x == 1.0 { 0.0 } else { f64::NEG_INFINITY }).collect();
        let mask = of(&seen, shape, DType::Bool, &device).unwrap();
        let hidden = of(&hidden, shape, DType::F32, &device).unwrap();
        let numbers = made(shape, 10, DType::F32, &device);
        for (mask, added) in [(&mask, &hidden), (&hidden, &hidden), (&numbers, &numbers)] {
            let options = AttentionOptions { mask: Some(mask), ..Default::default() };
            let found =
                with_gradients(&inputs, |t| scaled_dot_product_attention(&t[0], &t[1], &t[2], options));
            let expected = with_gradients(&inputs, |t| whole(&t[0], &t[1], &t[2], Some(added)));
            compare(&found, &expected, (2e-4, 2e-5), &format!("a mask of {shape:?} {}", mask.dtype()));
        }
    }
    // A mask that is learned has a gradient too.
    let bias = made(&[rows, keys], 11, DType::F32, &device);
    let all = [inputs[0].clone(), inputs[1].clone(), inputs[2].clone(), bias];
    let found = with_gradients(&all, |t| {
        let options = AttentionOptions { mask: Some(&t[3]), ..Default::default() };
        scaled_dot_product_attention(&t[0], &t[1], &t[2], options)
    });
    let expected = with_gradients(&all, |t| whole(&t[0], &t[1], &t[2], Some(&t[3])));
    compare(&found, &expected, (2e-4, 2e-5), "a mask with a gradient");
}

#[test]
fn a_query_that_sees_nothing_gives_zeros_in_blocks_too() {
    let device = device();
    let seen: Vec<f64> = (0..40 * 200).map(|i| f64::from(u8::from(i / 200 % 3 != 1))).collect();
    let mask = of(&seen, &[40, 200], DType::Bool, &device).unwrap();
    let inputs = [1, 2, 3].map(|seed| {
        let rows = if seed == 1 { 40 } else { 200 };
        made(&[2, rows, 4], seed, DType::F32, &device)
    });
    let found = with_gradients(&inputs, |t| {
        let options = AttentionOptions { mask: Some(&mask), ..Default::default() };
        scaled_dot_product_attention(&t[0], &t[1], &t[2], options)
    });
    for (i, (out, gradient)) in found[0].iter().zip(&found[1]).enumerate() {
        let is_blind = i / 4 % 40 % 3 == 1;
        assert!(!is_blind || (*out == 0.0 && *gradient == 0.0), "element {i}: {out}, {gradient}");
        assert!(is_blind || *out != 0.0, "element {i}");
    }
    assert!(found.iter().flatten().all(|x| x.is_finite()));
}

/// Views of every kind as inputs: heads split off features, broadcast keys, flipped and transposed ones.
#[test]
fn inputs_are_read_where_they_lie() {
    let device = device();
    let x = made(&[2, 50, 3 * 4 * 8], 1, DType::F32, &device);
    let heads = |t: &Tensor| t.reshape([2, 50, 4, 8]).unwrap().transpose(1, 2).unwrap();
    let parts = x.split(32, -1).unwrap();
    let views = [heads(&parts[0]), heads(&parts[1]), heads(&parts[2])];
    let few = made(&[1, 4, 70, 8], 2, DType::F32, &device);
    let turned = made(&[2, 4, 8, 50], 3, DType::F32, &device).transpose(-2, -1).unwrap();
    let flipped = views[1].flip(-1).unwrap();
    let backwards = views[1].flip(-2).unwrap();
    let cases = [
        [&views[0], &views[1], &views[2]],
        [&views[0], &few, &few],
        [&turned, &turned, &turned],
        [&flipped, &flipped, &backwards],
        [&backwards, &backwards, &flipped],
    ];
    for (i, case) in cases.into_iter().enumerate() {
        for is_causal in [false, true] {
            let options = AttentionOptions { is_causal, ..Default::default() };
            let found = no_grad(|| scaled_dot_product_attention(case[0], case[1], case[2], options)).unwrap();
            let added = is_causal.then(|| causal(50, case[1].dims()[2], DType::F32, &device));
            let expected = whole(case[0], case[1], case[2], added.as_ref()).unwrap();
            let what = format!("case {i}, causal {is_causal}");
            let (found, expected) = (found.to_f64_vec().unwrap(), expected.to_f64_vec().unwrap());
            assert_close(&found, &expected, (2e-4, 2e-5), &what);
        }
    }
}

#[test]
fn groups_of_heads_share_keys() {
    let device = device();
    let inputs = [
        made(&[2, 6, 20, 4], 1, DType::F32, &device),
        made(&[2, 2, 30, 4], 2, DType::F32, &device),
        made(&[2, 2, 30, 5], 3, DType::F32, &device),
    ];
    for shape in [&[30][..], &[6, 20, 30], &[2, 1, 20, 30]] {
        let mask = made(shape, 4, DType::F32, &device);
        let found = with_gradients(&inputs, |t| {
            let options = AttentionOptions { enable_gqa: true, mask: Some(&mask), ..Default::default() };
            scaled_dot_product_attention(&t[0], &t[1], &t[2], options)
        });
        let expected = with_gradients(&inputs, |t| {
            let wide = |t: &Tensor| {
                let last = t.dims()[3];
                t.unsqueeze(2)?.expand([2, 2, 3, 30, last])?.reshape([2, 6, 30, last])
            };
            whole(&t[0], &wide(&t[1])?, &wide(&t[2])?, Some(&mask))
        });
        compare(&found, &expected, (2e-4, 2e-5), &format!("groups under a mask of {shape:?}"));
    }
}

#[test]
fn gradients_are_differences_and_have_gradients() {
    let device = device();
    if !needs(&device, DType::F64) {
        return;
    }
    let all = [
        made(&[2, 10, 3], 1, DType::F64, &device),
        made(&[2, 12, 3], 2, DType::F64, &device),
        made(&[2, 12, 2], 3, DType::F64, &device),
    ];
    let mask = of(
        &numbers(120, 5).iter().map(|&x| f64::from(u8::from(x > -0.5))).collect::<Vec<_>>(),
        &[10, 12],
        DType::Bool,
        &device,
    )
    .unwrap();
    for (is_causal, mask) in [(false, None), (true, None), (false, Some(&mask))] {
        let run = |t: &[Tensor]| {
            let options = AttentionOptions { is_causal, mask, ..Default::default() };
            scaled_dot_product_attention(&t[0], &t[1], &t[2], options)
        };
        // Finite differences take thousands of evaluations; on other devices one form is enough.
        if device.name() != "cpu" {
            gradcheck(run, &all.each_ref().map(|t| t.narrow(-2, 0, 3).unwrap())).unwrap();
            return;
        }
        gradcheck(run, &all).unwrap();
        gradgradcheck(run, &all).unwrap();
    }
    // With dropout, whose draws are the same each time.
    let run = |t: &[Tensor]| {
        let rng = Generator::seed(3, &device);
        let options = AttentionOptions { dropout: Some((0.3, &rng)), is_causal: true, ..Default::default() };
        scaled_dot_product_attention(&t[0], &t[1], &t[2], options)
    };
    gradcheck(run, &all).unwrap();
    gradgradcheck(run, &all).unwrap();
}

/// The same draws whatever the blocks are and on whatever device, and of the gradient as of the value.
#[test]
fn dropout_draws_the_same_numbers_everywhere() {
    let inputs = |device: &Device| {
        [(1, 70), (2, 280), (3, 280)].map(|(seed, length)| made(&[2, 2, length, 4], seed, DType::F32, device))
    };
    for is_causal in [false, true] {
        for result in 0..4 {
            agree_within("attention with dropout", Some((1e-3, 1e-4)), |device| {
                let rng = Generator::seed(8, device);
                let leaves = inputs(device).map(|t| t.requires_grad());
                let options =
                    AttentionOptions { dropout: Some((0.4, &rng)), is_causal, ..Default::default() };
                let out = scaled_dot_product_attention(&leaves[0], &leaves[1], &leaves[2], options)?;
                assert_eq!(rng.offset(), 2 * 2 * 70 * 280);
                if result == 0 {
                    return Ok(out.detach());
                }
                let loss = out.mul(&made(out.dims(), 4, DType::F32, device))?.sum();
                let found = grad(&[loss], &leaves[result - 1..result], false)?;
                found.into_iter().flatten().next().ok_or_else(|| unreachable!("it has a gradient"))
            });
        }
    }
    // A part of the weights is dropped, and the others are scaled up.
    let device = device();
    let rng = Generator::seed(8, &device);
    let zeros = Tensor::zeros([64, 4], &device).unwrap();
    let keys = Tensor::zeros([512, 4], &device).unwrap();
    let ones = Tensor::ones([512, 4], &device).unwrap();
    let options = AttentionOptions { dropout: Some((0.25, &rng)), ..Default::default() };
    let out = scaled_dot_product_attention(&zeros, &keys, &ones, options).unwrap().to_f64_vec().unwrap();
    let mean = out.iter().sum::<f64>() / out.len() as f64;
    assert!((mean - 1.0).abs() < 0.02 && out.iter().any(|x| (x - 1.0).abs() > 1e-3), "{mean}");
}

#[test]
fn half_types_are_computed_in_f32() {
    let device = device();
    for dtype in [DType::F16, DType::BF16] {
        if !has(&device, dtype) {
            continue;
        }
        let half = [1, 2, 3].map(|seed| made(&[2, 40, 8], seed, dtype, &device));
        let wide = half.clone().map(|t| t.to_dtype(DType::F32).unwrap());
        let run = |t: &[Tensor]| {
            let options = AttentionOptions { is_causal: true, ..Default::default() };
            scaled_dot_product_attention(&t[0], &t[1], &t[2], options)
        };
        let within = if dtype == DType::F16 { (4e-3, 4e-3) } else { (3e-2, 3e-2) };
        compare(&with_gradients(&half, run), &with_gradients(&wide, run), within, &dtype.to_string());
        assert_eq!(run(&half).unwrap().dtype(), dtype);
    }
}

/// Twice the length takes twice the memory: far less than the scores, of the value as of the gradient.
#[test]
fn memory_is_linear_in_the_length() {
    if taper_testing::run_alone(memory_is_linear_in_the_length) {
        return;
    }
    let device = device();
    // Blocks of a composition are larger than tiles, and a software adapter takes its time.
    let has_kernel = device.name().starts_with("cpu") && !has_plain_forms();
    let length = if has_kernel { 4096 } else { 2048 };
    let peak = |length: usize, mask: Option<&Tensor>| {
        let leaves = [1, 2, 3].map(|seed| made(&[2, length, 16], seed, DType::F32, &device).requires_grad());
        leaves.iter().for_each(|leaf| leaf.eval().unwrap());
        let before = device.memory().allocated;
        device.reset_peak();
        let options = AttentionOptions { is_causal: mask.is_none(), mask, ..Default::default() };
        let out = scaled_dot_product_attention(&leaves[0], &leaves[1], &leaves[2], options).unwrap();
        let loss = out.powi(2).sum();
        let gradients = grad(&[loss], &leaves, false).unwrap();
        gradients.iter().flatten().for_each(|g| g.eval().unwrap());
        device.synchronize().unwrap();
        device.memory().peak - before
    };
    let (short, long) = (peak(length / 2, None), peak(length, None));
    let scores = (2 * length * length * 4) as u64;
    let bound = if has_kernel { scores / 4 } else { scores };
    assert!(long < bound, "{long} bytes for {length} queries, whose scores are {scores}");
    assert!(long < short * 5 / 2, "{short} bytes, then {long} for twice the length");
    // A padding mask is not stored as a matrix either, even if it is computed.
    let padding = Tensor::arange(0, length as i64, 1, &device).unwrap().lt_scalar(length as i64 - 5);
    let masked = peak(length, Some(&padding));
    assert!(masked < bound, "{masked} bytes under a mask");
}

#[test]
fn a_layer_needs_no_whole_matrices() {
    let device = device();
    let rng = Generator::seed(2, &device);
    let config = nn::MultiheadAttentionConfig { batch_first: true, ..Default::default() };
    let layer = nn::MultiheadAttention::with_config(8, 2, config, &rng).unwrap();
    let x = made(&[2, 40, 8], 1, DType::F32, &device);
    let seen: Vec<f64> = (0..80).map(|i| f64::from(u8::from(i % 40 > 30))).collect();
    let padding = of(&seen, &[2, 40], DType::Bool, &device).unwrap();
    for is_causal in [false, true] {
        for key_padding_mask in [None, Some(&padding)] {
            let masks = nn::AttentionMasks { is_causal, key_padding_mask, ..Default::default() };
            let found = layer.forward(&x, &x, &x, masks).unwrap().to_f64_vec().unwrap();
            let (expected, weights) = layer.forward_with_weights(&x, &x, &x, masks).unwrap();
            assert_close(&found, &expected.to_f64_vec().unwrap(), (1e-4, 1e-5), "with weights and without");
            assert_eq!(weights.dims(), [2, 40, 40]);
        }
    }
    // Longer pieces than a few positions, then one at a time.
    let whole =
        layer.forward(&x, &x, &x, nn::AttentionMasks { is_causal: true, ..Default::default() }).unwrap();
    let mut cache = nn::KeyValueCache::new();
    let mut parts = Vec::new();
    for (start, count) in [(0, 20), (20, 12), (32, 1), (33, 7)] {
        parts.push(layer.forward_cached(&x.narrow(1, start, count).unwrap(), &mut cache).unwrap());
    }
    let found = Tensor::concat(&parts, 1).unwrap().to_f64_vec().unwrap();
    assert_close(&found, &whole.to_f64_vec().unwrap(), (1e-4, 1e-5), "piece by piece");
}

/// The texts, heads, groups of heads, queries, features of keys and of values of a step.
type Step = [usize; 6];

/// The numbers of [`CachedAttention`] written out, in f64.
fn attention_by_rows(
    of: CachedAttention,
    [texts, heads, groups, length, width, features]: Step,
    inputs: &[Vec<f64>],
    sizes: [usize; 2],
    places: &[usize],
) -> Vec<f64> {
    let (start, used) = (places[0], [places[1], places[2]]);
    let rows: Vec<(usize, usize)> = (0..2).flat_map(|t| (0..used[t]).map(move |row| (t, row))).collect();
    let mut out = Vec::new();
    for text in 0..texts {
        for head in 0..heads {
            let group = text * groups + head / (heads / groups);
            for l in 0..length {
                let query = &inputs[0][((text * heads + head) * length + l) * width..][..width];
                let own = start + rows.len() - length + l;
                let first = places[3 + text.min(places.len() - 4)];
                let first = of.window.map_or(first, |window| first.max((own + 1).saturating_sub(window)));
                let (mut scores, mut values) = (Vec::new(), Vec::new());
                for (at, &(table, row)) in rows.iter().enumerate() {
                    if (first..=own).contains(&(start + at)) {
                        let row = group * sizes[table] + row;
                        let key = &inputs[1 + 2 * table][row * width..][..width];
                        let score = query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() * of.scale;
                        scores.push(of.softcap.map_or(score, |cap| cap * (score / cap).tanh()));
                        values.push(&inputs[2 + 2 * table][row * features..][..features]);
                    }
                }
                let sink = of.sinks.then(|| inputs[5][head]);
                let sum: f64 = scores.iter().chain(&sink).map(|score| score.exp()).sum();
                out.extend((0..features).map(|k| {
                    let weighted = scores.iter().zip(&values).map(|(score, value)| score.exp() * value[k]);
                    if scores.is_empty() { 0.0 } else { weighted.sum::<f64>() / sum }
                }));
            }
        }
    }
    out
}

#[test]
fn attention_to_a_cache_reads_the_rows_in_use() {
    let device = device();
    let plain = CachedAttention {
        scale: 0.3,
        softcap: None,
        window: None,
        writes: false,
        sinks: false,
        packed: None,
    };
    let all = [
        plain,
        CachedAttention { window: Some(20), ..plain },
        CachedAttention { softcap: Some(2.0), sinks: true, ..plain },
        CachedAttention { window: Some(3), sinks: true, ..plain },
    ];
    // The rows in use are none, some and all of either table; texts begin later, and after some queries.
    // The last ones are more than a workgroup of a GPU reads at a time.
    let places: [&[usize]; 7] = [
        &[0, 64, 1, 0],
        &[0, 0, 5, 0],
        &[40, 57, 64, 90],
        &[0, 9, 8, 0, 3, 16],
        &[7, 1, 6, 0, 9, 12],
        &[0, 0, 0, 0],
        &[3, 590, 33, 0, 100, 400],
    ];
    let mut tested = 0;
    for (of, places) in all.iter().flat_map(|of| places.map(|places| (*of, places))) {
        for [heads, groups, length, width, features] in
            [[3, 1, 1, 64, 64], [4, 4, 5, 8, 24], [6, 2, 4, 9, 3], [2, 1, 1, 80, 130]]
        {
            let (texts, sizes) = (3, [if places[1] > 64 { 600 } else { 64 }, 70]);
            let dims = [
                vec![texts, heads, length, width],
                vec![texts, groups, sizes[0], width],
                vec![texts, groups, sizes[0], features],
                vec![texts, groups, sizes[1], width],
                vec![texts, groups, sizes[1], features],
                vec![heads],
            ];
            let mut inputs: Vec<Tensor> =
                dims.iter().zip(1..).map(|(dims, seed)| made(dims, seed, DType::F32, &device)).collect();
            let sinks = inputs.pop().filter(|_| of.sinks);
            let whole: Vec<i32> = places.iter().map(|&place| place as i32).collect();
            inputs.push(Tensor::from_vec(whole, [places.len()], &device).unwrap());
            let mut given: Vec<&Tensor> = inputs.iter().chain(&sinks).collect();
            if places[1] + places[2] < length || !Tensor::has_custom_kernel(Arc::new(of), &given).unwrap() {
                continue;
            }
            let found = Tensor::custom_kernel(Arc::new(of), &given).unwrap().swap_remove(0);
            // The same rows come as new ones into tables that have others there, and that may be kept.
            let writing = CachedAttention { writes: true, ..of };
            let (used, [short_k, short_v]) = (places[2], [3, 4].map(|k| &inputs[k]));
            if used >= length {
                for keeps in [false, true] {
                    let new = [short_k, short_v].map(|t| t.narrow(2, used - length, length).unwrap());
                    let old = [short_k, short_v].map(|t| {
                        let place = Tensor::arange(0, sizes[1], 1, (DType::I32, &device)).unwrap();
                        let place = place.ge_scalar(used - length).unsqueeze(1).unwrap();
                        place.where_cond(&t.neg(), t).unwrap()
                    });
                    taper::eval_all(&old.each_ref()).unwrap();
                    let mut all = given.clone();
                    all[3..5].copy_from_slice(&old.each_ref());
                    new.iter().enumerate().for_each(|(k, new)| all.insert(6 + k, new));
                    // GPUs read tables that the caller has written.
                    if device.name() != "cpu" && !Tensor::has_custom_kernel(Arc::new(writing), &all).unwrap()
                    {
                        continue;
                    }
                    let results = Tensor::custom_kernel(Arc::new(writing), &all).unwrap();
                    let kept = keeps.then(|| old.clone());
                    drop(all);
                    drop(old);
                    taper::eval_all(&results.iter().collect::<Vec<_>>()).unwrap();
                    assert_eq!(results[0].to_vec::<f32>().unwrap(), found.to_vec::<f32>().unwrap());
                    for (result, table) in results[1..].iter().zip([short_k, short_v]) {
                        let rows = |t: &Tensor| t.narrow(2, 0, used).unwrap().to_vec::<f32>().unwrap();
                        assert_eq!(rows(result), rows(table));
                    }
                    for (kept, table) in kept.iter().flatten().zip([short_k, short_v]) {
                        let row = |t: &Tensor| t.select(2, used - 1).unwrap().to_vec::<f32>().unwrap();
                        assert!(
                            row(kept).iter().zip(row(table)).all(|(a, b)| *a == -b),
                            "a table that is kept"
                        );
                    }
                }
            }
            given.remove(5);
            let numbers: Vec<Vec<f64>> = given.iter().map(|t| t.to_f64_vec().unwrap()).collect();
            let step = [texts, heads, groups, length, width, features];
            let expected = attention_by_rows(of, step, &numbers, sizes, places);
            let what = format!("{of:?}, {step:?}, {places:?}");
            assert_close(&found.to_f64_vec().unwrap(), &expected, (2e-5, 2e-6), &what);
            tested += 1;
        }
    }
    assert!(tested > 0 || device.name() != "cpu" || has_plain_forms());
}

/// Rows of a cache with some of each kind: numbers about 0, far from 0, equal ones, and zeros.
fn rows_to_pack(shape: [usize; 4], device: &Device) -> Tensor {
    let mut rows = numbers(shape.iter().product(), 11);
    for (i, row) in rows.chunks_mut(shape[3]).enumerate() {
        row.iter_mut().for_each(|x| match i % 4 {
            0 => {}
            1 => *x += 30.0,
            2 => *x = -0.7,
            _ => *x = 0.0,
        });
    }
    of(&rows, &shape, DType::F32, device).unwrap()
}

#[test]
fn packed_rows_are_near_the_rows() {
    let device = device();
    for width in [64, 48, 16] {
        let rows = rows_to_pack([2, 3, 8, width], &device);
        for (packed, steps) in [(PackedRows::Eight, 127.0), (PackedRows::Four, 15.0)] {
            let (parts, group) = (packed.pack(&rows).unwrap(), packed.group(width).unwrap());
            let found: Vec<_> = parts.iter().map(|part| (part.dtype(), part.dims()[3])).collect();
            assert_eq!(found, packed.parts(width).unwrap());
            let unpacked = packed.unpack(&parts).unwrap().to_vec::<f32>().unwrap();
            let numbers = rows.to_vec::<f32>().unwrap();
            for (group, found) in numbers.chunks(group).zip(unpacked.chunks(group)) {
                let (low, high) = group.iter().fold((f32::MAX, f32::MIN), |(l, h), x| (l.min(*x), h.max(*x)));
                let most = low.abs().max(high.abs());
                let range = if packed == PackedRows::Eight { most } else { high - low };
                // Half a step, and the rounding of scales and minima to bf16.
                let bound = range / steps * 0.55 + most / 256.0;
                for (number, found) in group.iter().zip(found) {
                    assert!(
                        (number - found).abs() <= bound,
                        "{packed:?} of width {width}: {number}, {found}"
                    );
                }
            }
            // Rows that are packed once more keep their integers in 8 bits.
            if packed == PackedRows::Eight {
                let again = packed.pack(&packed.unpack(&parts).unwrap()).unwrap();
                assert_eq!(again[0].to_vec::<i8>().unwrap(), parts[0].to_vec::<i8>().unwrap());
            }
            // Zeros stand for zeros, so that tables are padded as they are.
            let padded: Vec<Tensor> =
                parts.iter().map(|part| part.pad(&[(0, 0), (0, 0), (0, 1), (0, 0)], 0.0).unwrap()).collect();
            let last = packed.unpack(&padded).unwrap().narrow(2, 8, 1).unwrap();
            assert!(last.to_vec::<f32>().unwrap().iter().all(|x| *x == 0.0));
            let error = packed.unpack(&parts[1..]).unwrap_err().to_string();
            assert!(error.contains("not the parts of packed rows"), "{error}");
        }
    }
    let narrow = made(&[1, 1, 2, 20], 1, DType::F32, &device);
    let error = PackedRows::Eight.pack(&narrow).unwrap_err().to_string();
    assert!(error.contains("multiples of 16 numbers, not 20"), "{error}");
    let integers = Tensor::arange(0, 32, 1, (DType::I32, &device)).unwrap();
    let error = PackedRows::Four.pack(&integers).unwrap_err().to_string();
    assert!(error.contains("rows of floats"), "{error}");
    let error = PackedRows::of_bits(5).unwrap_err().to_string();
    assert!(error.contains("8 or 4 bits, not in 5"), "{error}");
}

#[test]
fn attention_reads_packed_rows_as_the_numbers_that_they_stand_for() {
    let device = device();
    let mut tested = 0;
    for [heads, groups, length, width, features] in [[6, 2, 3, 64, 32], [2, 1, 1, 48, 80], [4, 4, 1, 16, 64]]
    {
        let shape = |rows, width| [3, groups, rows, width];
        let query = made(&[3, heads, length, width], 1, DType::F32, &device);
        let long = [width, features].map(|width| rows_to_pack(shape(70, width), &device));
        let short = [width, features].map(|width| made(&shape(20, width), width as u64, DType::F32, &device));
        let places = Tensor::from_vec(vec![2_i32, 67, 9, 0, 5, 70], [6], &device).unwrap();
        let plain = CachedAttention {
            scale: 0.1,
            softcap: None,
            window: Some(50),
            writes: false,
            sinks: false,
            packed: None,
        };
        for packed in [PackedRows::Eight, PackedRows::Four] {
            let parts = long.each_ref().map(|rows| packed.pack(rows).unwrap());
            let numbers = parts.each_ref().map(|parts| packed.unpack(parts).unwrap());
            let results =
                [(None, &[numbers.to_vec()][..]), (Some(packed), &parts[..])].map(|(packed, long)| {
                    let of = CachedAttention { packed, ..plain };
                    let all: Vec<&Tensor> = [&query]
                        .into_iter()
                        .chain(long.iter().flatten())
                        .chain(&short)
                        .chain([&places])
                        .collect();
                    let has = Tensor::has_custom_kernel(Arc::new(of), &all).unwrap();
                    has.then(|| {
                        Tensor::custom_kernel(Arc::new(of), &all).unwrap()[0].to_vec::<f32>().unwrap()
                    })
                });
            let [Some(plain), Some(packed)] = results else { continue };
            assert_eq!(plain, packed);
            tested += 1;
        }
        // A part of another dtype is refused.
        let [keys, values] = long.each_ref().map(|rows| PackedRows::Eight.pack(rows).unwrap());
        let of = CachedAttention { packed: Some(PackedRows::Eight), ..plain };
        let all = [&query, &keys[0], &keys[0], &values[0], &values[1], &short[0], &short[1], &places];
        let error = Tensor::custom_kernel(Arc::new(of), &all).unwrap_err().to_string();
        assert!(error.contains("in parts if they are packed"), "{error}");
    }
    assert!(tested > 0 || device.name() != "cpu" || has_plain_forms());
}
