//! Tensors in blocks: decoded numbers to the bit, what reads them without a copy, and what does not.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::HashMap;

use taper::{
    Affine, AffineBits, BlockFormat, DType, Device, ErrorKind, GgmlType, Result, Shape, Tensor,
    nn::{Linear, Module, load_safetensors, save_safetensors},
    prelude::*,
};
use taper_testing::{assert_close, make_scales_small, run_alone};

use crate::common::{agree, agree_within, device, drawn, has, needs, refused, second_device, tensor};

/// The fixtures by `scripts/gguf_fixtures.py`.
fn fixtures() -> HashMap<String, HashMap<String, String>> {
    let home = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").into());
    let text = std::fs::read_to_string(format!("{home}/tests/fixtures/blocks.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Numbers of some hexadecimal digits each.
fn hex(text: &str, digits: usize) -> Vec<u32> {
    let pairs = text.as_bytes().chunks(digits);
    pairs.map(|hex| u32::from_str_radix(std::str::from_utf8(hex).unwrap(), 16).unwrap()).collect()
}

/// The fixture of a format: bytes, and the numbers that they encode.
fn fixture(format: GgmlType) -> (Vec<u8>, Vec<f32>) {
    let one = fixtures().remove(format.name()).unwrap();
    let bytes = hex(&one["bytes"], 2).into_iter().map(|byte| byte as u8).collect();
    (bytes, hex(&one["numbers"], 8).into_iter().map(f32::from_bits).collect())
}

/// Blocks of small numbers: random bytes, and small scales.
fn bytes_of(format: GgmlType, shape: &[usize], seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    let mut bytes: Vec<u8> = (0..format.bytes(&Shape::from(shape)).unwrap()).map(|_| next()).collect();
    bytes.chunks_mut(format.block_bytes()).for_each(|block| make_scales_small(format, block));
    bytes
}

fn weight(format: GgmlType, shape: &[usize], seed: u64, dtype: DType, d: &Device) -> Result<Tensor> {
    Tensor::from_blocks(format, shape, dtype, &bytes_of(format, shape, seed), d)
}

#[test]
fn numbers_are_those_of_ggufs_own_package_to_the_bit() {
    let d = device();
    for format in GgmlType::ALL {
        let (bytes, numbers) = fixture(format);
        let shape = [numbers.len() / format.block_elements(), format.block_elements()];
        let weight = Tensor::from_blocks(format, shape, DType::F32, &bytes, &d).unwrap();
        let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        let name = format.name();
        assert_eq!(bits(weight.dequantize().to_vec().unwrap()), bits(numbers.clone()), "{name}");
        assert_eq!(bits(weight.to_vec().unwrap()), bits(numbers.clone()), "{name}, read as it is");
        // A part that begins within a block, and another order.
        let part = weight.slice(1, 3..21).unwrap().dequantize().to_vec::<f32>().unwrap();
        let block = format.block_elements();
        let wanted = |i: usize| numbers[i / 18 * block + 3 + i % 18];
        assert_eq!(bits(part), bits((0..shape[0] * 18).map(wanted).collect()), "{name}, a part");
        let turned = weight.t().unwrap().dequantize().to_vec::<f32>().unwrap();
        let wanted = |i: usize| numbers[i % shape[0] * block + i / shape[0]];
        assert_eq!(bits(turned), bits((0..numbers.len()).map(wanted).collect()), "{name}, transposed");
        assert_eq!(weight.block_bytes().unwrap(), bytes);
        assert_eq!(GgmlType::from_code(format.code()), Some(format));
        for dtype in [DType::F16, DType::BF16, DType::F64] {
            if has(&d, dtype) {
                let narrow = Tensor::from_blocks(format, shape, dtype, &bytes, &d).unwrap();
                let cast = weight.dequantize().to_dtype(dtype).unwrap();
                assert_eq!(narrow.read_bytes().unwrap(), cast.read_bytes().unwrap(), "{name} in {dtype}");
            }
        }
    }
}

/// As [`agree`], of sums whose terms are larger than they.
#[track_caller]
fn agree_sums(what: &str, f: impl Fn(&Device) -> Result<Tensor>) {
    agree_within(what, Some((1e-4, 2e-4)), f);
}

#[test]
fn products_read_blocks_as_either_operand() {
    for format in GgmlType::ALL {
        if !drawn(format!("products with {}", format.name())) {
            continue;
        }
        let (n, k) = (7, 2 * format.block_elements());
        let own = move |d: &Device| weight(format, &[n, k], 1, DType::F32, d);
        // How an operand is read does not depend on how an element is decoded.
        let every_way = matches!(format, GgmlType::Q4_1 | GgmlType::Q6_K);
        let sizes = [(5, 1), (1, 1), (70, 1), (3, 2), (17, 2)];
        for (m, batch) in sizes.into_iter().take(if every_way { 5 } else { 1 }) {
            let what = |what: &str| format!("{what} of {}, {batch} x {m} rows", format.name());
            let rows = move |columns: usize, d: &Device| tensor(&[batch, m, columns], 3, DType::F32, d);
            agree_sums(&what("x wᵀ"), |d| rows(k, d)?.matmul(&own(d)?.t()?));
            if !every_way {
                continue;
            }
            agree_sums(&what("x w"), |d| rows(n, d)?.matmul(&own(d)?));
            agree_sums(&what("w xᵀ"), |d| own(d)?.matmul(&rows(k, d)?.transpose(1, 2)?));
            agree_sums(&what("wᵀ xᵀ"), |d| own(d)?.t()?.matmul(&rows(n, d)?.transpose(1, 2)?));
            agree_sums(&what("x wᵀ of every other row"), |d| {
                rows(k, d)?.matmul(&own(d)?.slice_step(0, 0..7, 2)?.t()?)
            });
            agree_sums(&what("an epilogue"), |d| {
                Ok(rows(k, d)?.matmul(&own(d)?.t()?)?.add_scalar(1.0).relu())
            });
        }
        if every_way {
            agree_within(&format!("both operands in {}", format.name()), Some((1e-4, 5e-3)), |d| {
                own(d)?.matmul(&weight(format, &[3, k], 2, DType::F32, d)?.t()?)
            });
            agree_sums(&format!("a batch of blocks of {}", format.name()), |d| {
                let experts = weight(format, &[3, n, k], 5, DType::F32, d)?;
                tensor(&[3, 4, k], 3, DType::F32, d)?.matmul(&experts.transpose(1, 2)?)
            });
        }
    }
}

#[test]
fn products_are_computed_in_the_blocks_dtype() {
    for dtype in [DType::F16, DType::BF16, DType::F64] {
        let d = device();
        if !has(&d, dtype) {
            continue;
        }
        for format in [GgmlType::Q4_1, GgmlType::Q6_K] {
            agree(&format!("{} in {dtype}", format.name()), |d| {
                let x = tensor(&[4, 256], 3, dtype, d)?;
                x.matmul(&weight(format, &[6, 256], 1, dtype, d)?.t()?)
            });
        }
        // Another dtype is another way to read the same bytes.
        let weight = weight(GgmlType::Q4_0, &[6, 64], 1, DType::F32, &d).unwrap();
        let cast = weight.to_dtype(dtype).unwrap();
        assert!(cast.block_format().is_some());
        let numbers = weight.dequantize().to_dtype(dtype).unwrap();
        assert_eq!(cast.read_bytes().unwrap(), numbers.read_bytes().unwrap());
    }
}

#[test]
fn large_products_and_long_sums_agree() {
    for (m, n, k) in [(1, 600, 512), (33, 300, 768), (130, 40, 4096)] {
        // A buffer in blocks fits one binding, or the product is refused.
        let forced = |format: GgmlType| {
            refused(format.bytes(&Shape::from([n, k])).unwrap(), || {
                let d = device();
                let weight = weight(format, &[n, k], 1, DType::F32, &d)?;
                tensor(&[m, k], 3, DType::F32, &d)?.matmul(&weight.t()?)?.eval()
            })
        };
        if forced(GgmlType::Q5_1) | forced(GgmlType::Q8_0) {
            continue;
        }
        agree_within(&format!("{m} x {n} x {k}"), Some((1e-4, 1e-3)), |d| {
            let x = tensor(&[m, k], 3, DType::F32, d)?;
            x.matmul(&weight(GgmlType::Q5_1, &[n, k], 1, DType::F32, d)?.t()?)
        });
        agree_within(&format!("{m} x {k} x {n}, by rows"), Some((1e-4, 1e-3)), |d| {
            let x = tensor(&[m, n], 3, DType::F32, d)?;
            x.matmul(&weight(GgmlType::Q8_0, &[n, k], 1, DType::F32, d)?)
        });
    }
}

#[test]
fn convolutions_and_einsum_read_blocks() {
    agree("a convolution whose weight is in blocks", |d| {
        let x = tensor(&[2, 8, 6, 6], 3, DType::F32, d)?;
        let weight = weight(GgmlType::Q4_0, &[5, 96], 1, DType::F32, d)?.reshape([5, 8, 3, 4])?;
        taper::nn::functional::conv2d(&x, &weight, None, Default::default())
    });
    agree("einsum", |d| {
        let x = tensor(&[4, 32, 3], 3, DType::F32, d)?;
        let weight = weight(GgmlType::Q4_0, &[6, 32], 1, DType::F32, d)?;
        Tensor::einsum("akb,nk->nab", &[&x, &weight])
    });
}

#[test]
fn gathers_decode_what_they_pick() {
    let rows = |d: &Device| Tensor::new([4i32, 0, 6, 4], d);
    for format in [GgmlType::Q4_1, GgmlType::Q8_0, GgmlType::Q3_K] {
        let (name, k) = (format.name(), format.block_elements());
        for dtype in [DType::F32, DType::F16] {
            let table = move |d: &Device| weight(format, &[7, k], 1, dtype, d);
            agree(&format!("rows of {name} {dtype}"), |d| table(d)?.index_select(0, &rows(d)?));
            agree(&format!("columns of {name} {dtype}"), |d| table(d)?.index_select(1, &rows(d)?));
            agree(&format!("rows of the transposed {name} {dtype}"), |d| {
                table(d)?.t()?.index_select(0, &rows(d)?)
            });
            agree(&format!("an embedding in {name} {dtype}"), |d| {
                let words = Tensor::new([[1i32, 5], [2, 2]], d)?;
                let added = tensor(&[2, 2, k], 3, dtype, d)?;
                taper::nn::functional::embedding(&words, &table(d)?)?.add(&added)
            });
            agree(&format!("elements of {name} {dtype}"), |d| {
                table(d)?.gather(1, &Tensor::new([[1i32, 0, 31], [5, 5, 9]], d)?)
            });
        }
    }
    let d = device();
    let table = weight(GgmlType::Q4_0, &[7, 32], 1, DType::F32, &d).unwrap();
    let error = table.index_select(0, &Tensor::new([3i32, 7], &d).unwrap()).unwrap().eval().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::IndexOutOfRange { index: 7, size: 7, .. }), "{error}");
}

#[test]
fn gradients_pass_through_products_with_blocks() {
    let d = device();
    let blocks = weight(GgmlType::Q4_K, &[5, 256], 1, DType::F32, &d).unwrap();
    let gradients = |weight: &Tensor| {
        let x = tensor(&[3, 256], 3, DType::F32, &d).unwrap().requires_grad();
        let y = x.matmul(&weight.t().unwrap()).unwrap();
        y.square().sum().backward().unwrap();
        x.grad().unwrap().to_f64_vec().unwrap()
    };
    let expected = gradients(&blocks.dequantize());
    assert_close(&gradients(&blocks), &expected, (1e-4, 1e-4), "the gradient of the activations");
}

/// The rounding of one vector and of eight to 8 bits; gradients are exact.
#[test]
fn activations_are_rounded_on_request() {
    if run_alone(activations_are_rounded_on_request) {
        return;
    }
    let d = taper::cpu();
    for format in [GgmlType::Q4_1, GgmlType::Q8_0, GgmlType::Q6_K] {
        for rows in [1, 8] {
            let weight = weight(format, &[7, 512], 1, DType::F32, &d).unwrap();
            let product = |int8| {
                taper::set_int8_activations(int8);
                let x = tensor(&[rows, 512], 3, DType::F32, &d).unwrap().requires_grad();
                let y = x.matmul(&weight.t().unwrap()).unwrap();
                y.sum().backward().unwrap();
                (y.to_f64_vec().unwrap(), x.grad().unwrap().to_f64_vec().unwrap())
            };
            let ((exact, gradient), (rounded, gradient_of_rounded)) = (product(false), product(true));
            let most = exact.iter().fold(0f64, |most, y| most.max(y.abs()));
            let error = exact.iter().zip(&rounded).fold(0f64, |most, (a, b)| most.max((a - b).abs()));
            assert!(error > 0.0 && error < 0.01 * most, "{format:?}, {rows} rows: {error} of {most}");
            assert_eq!(gradient, gradient_of_rounded);
        }
    }
    taper::set_int8_activations(false);
}

/// In addition to the result, only the memory of some rows is in use.
#[test]
fn no_decoded_copy_is_made() {
    if run_alone(no_decoded_copy_is_made) {
        return;
    }
    let d = device();
    let (n, k) = (4096, 1024);
    let weight = weight(GgmlType::Q4_0, &[n, k], 1, DType::F32, &d).unwrap();
    let x = tensor(&[2, k], 3, DType::F32, &d).unwrap();
    let rows = Tensor::new([5i32, 9], &d).unwrap();
    let held = d.memory().allocated;
    assert!(held < 4 << 20, "{held} bytes for a weight of {} in blocks", n * k / 32 * 18);
    d.reset_peak();
    let product = x.matmul(&weight.t().unwrap()).unwrap();
    let picked = weight.index_select(0, &rows).unwrap();
    if refused(n * k / 32 * 18, || product.eval()) {
        return;
    }
    taper::eval_all(&[&product, &picked]).unwrap();
    let most = d.memory().peak - held;
    assert!(most < 1 << 20, "{most} bytes more were in use, of {} decoded ones", 4 * n * k);
}

#[test]
fn other_operations_are_errors_that_name_the_format_and_the_mend() {
    let d = device();
    let weight = weight(GgmlType::Q4_1, &[4, 64], 1, DType::F32, &d).unwrap();
    let dense = tensor(&[4, 64], 3, DType::F32, &d).unwrap();
    let twice = || weight.add(&dense);
    for (op, result) in [
        ("relu", weight.relu()),
        ("add", twice().unwrap()),
        ("sum", weight.sum()),
        ("sum", weight.t().unwrap().sum_axis(0, false).unwrap()),
        ("cumsum", weight.cumsum(1).unwrap()),
        ("concat", Tensor::concat(&[&weight, &dense], 0).unwrap()),
        ("gather", dense.gather(1, &dense.to_dtype(DType::I32).unwrap().mul_scalar(0)).unwrap()),
    ] {
        match op {
            // The table is not in blocks.
            "gather" => result.eval().unwrap(),
            _ => {
                let text = result.eval().unwrap_err().to_string();
                for part in [op, "[4, 64]", "q4_1", ".dequantize()"] {
                    let turned = part == "[4, 64]" && text.contains("[64, 4]");
                    assert!(text.contains(part) || turned, "{op}: {text}");
                }
            }
        }
    }
    // The tensor is as it was.
    assert_eq!(weight.dequantize().relu().shape(), weight.shape());
    weight.dequantize().relu().eval().unwrap();
    let wrong = |result: Result<Tensor>, part: &str| {
        let text = result.unwrap_err().to_string();
        assert!(text.contains(part), "{text}");
    };
    let of =
        |shape: [usize; 2], dtype, bytes: &[u8]| Tensor::from_blocks(GgmlType::Q4_K, shape, dtype, bytes, &d);
    wrong(of([2, 100], DType::F32, &[]), "no multiple of the 256 in a block of q4_k");
    wrong(of([2, 256], DType::I32, &[]), "float dtype");
    wrong(of([2, 256], DType::F32, &[0; 100]), "takes 288 bytes, not 100");
    assert!(dense.block_bytes().unwrap_err().to_string().contains("not stored in blocks"));
    assert!(dense.block_format().is_none());
    let view = weight.t().unwrap();
    view.eval().unwrap();
    assert!(view.block_bytes().unwrap_err().to_string().contains("a view of blocks"));
}

#[test]
fn blocks_move_print_and_lie_in_modules() {
    let (d, other) = (device(), second_device());
    let weight = weight(GgmlType::Q8_0, &[6, 32], 1, DType::F32, &d).unwrap();
    let moved = weight.to(&other).unwrap();
    assert_eq!(moved.block_format().unwrap().name(), "q8_0");
    assert_eq!(moved.block_bytes().unwrap(), weight.block_bytes().unwrap());
    assert_eq!(moved.to_vec::<f32>().unwrap(), weight.to_vec::<f32>().unwrap());
    // A view moves as the numbers that it shows.
    let turned = weight.t().unwrap().to(&other).unwrap();
    let expected = weight.t().unwrap().dequantize().to_vec::<f32>().unwrap();
    assert_eq!(turned.to_vec::<f32>().unwrap(), expected);
    assert_eq!(format!("{weight}"), format!("{}", weight.dequantize()));
    assert_eq!(weight.i((2, 3)).unwrap().item::<f32>().unwrap(), weight.to_vec::<f32>().unwrap()[2 * 32 + 3]);

    // A linear layer whose frozen weight is in blocks computes as one with the decoded weight.
    let rng = Generator::seed(1, &d);
    let layer = Linear::new(32, 6, &rng).unwrap();
    layer.parameters()[0].set_requires_grad(false).unwrap();
    let x = tensor(&[3, 32], 3, DType::F32, &d).unwrap();
    let parameters = layer.parameters();
    parameters[0].assign(&weight.dequantize()).unwrap();
    let expected = layer.forward(&x).unwrap().to_f64_vec().unwrap();
    parameters[0].assign(&weight).unwrap();
    assert!(parameters[0].block_format().is_some());
    let y = layer.forward(&x).unwrap();
    assert_close(&y.to_f64_vec().unwrap(), &expected, (1e-4, 1e-5), "a linear layer");
    y.sum().backward().unwrap();
    assert!(parameters[0].grad().is_none() && parameters[1].grad().is_some());
    let y = taper::autocast(DType::BF16, || layer.forward(&x)).unwrap();
    assert_close(&y.to_f64_vec().unwrap(), &expected, (5e-2, 5e-2), "a linear layer under autocast");
}

#[test]
fn files_keep_blocks() {
    let d = device();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("blocks.safetensors");
    let own = weight(GgmlType::Q5_K, &[3, 2, 256], 1, DType::F16, &d).unwrap();
    let integers = Tensor::new([[1, 2], [3, -4]], &d).unwrap();
    let affine =
        Tensor::affine(&integers, &Tensor::new([0.5, 2.0], &d).unwrap(), None, 0, AffineBits::I4).unwrap();
    let turned = own.select(1, 0).unwrap();
    let dict = [("own", &own), ("affine", &affine), ("turned", &turned)];
    let dict = dict.map(|(name, tensor)| (name.to_string(), tensor.clone())).into();
    save_safetensors(&path, &dict).unwrap();
    let read = load_safetensors(&path, &d).unwrap();
    for (name, tensor) in &dict {
        let found = &read[name];
        assert_eq!((found.shape(), found.dtype()), (tensor.shape(), tensor.dtype()), "{name}");
        assert_eq!(found.read_bytes().unwrap(), tensor.read_bytes().unwrap(), "{name}");
        // A view is written as the numbers that it shows.
        let blocks = tensor.block_format().filter(|_| name != "turned").map(|format| format.name());
        assert_eq!(found.block_format().map(|format| format.name()), blocks, "{name}");
    }
    let small = std::fs::metadata(&path).unwrap().len();
    assert!(small < 3000, "{small} bytes");

    // Metadata that are wrong.
    let bytes = std::fs::read(&path).unwrap();
    for (old, new, part) in [
        ("q5_k f16 3 2 256", "q6_k f16 3 2 256", "in blocks of q6_k"),
        ("q5_k f16 3 2 256", "q5_k f16 3 4 256", "in blocks of q5_k"),
        ("q5_k f16 3 2 256", "q5_k x16 3 2 256", "no format, dtype and shape"),
        ("q5_k f16 3 2 256", "q5_k f16 3 2 -56", "no format, dtype and shape"),
        ("affine_i4 f32 2 2", "affine_i4 f32 2 9", "past their end"),
    ] {
        let at = bytes.windows(old.len()).position(|window| window == old.as_bytes()).unwrap();
        let mut changed = bytes.clone();
        changed[at..at + old.len()].copy_from_slice(new.as_bytes());
        std::fs::write(&path, changed).unwrap();
        let text = load_safetensors(&path, &d).unwrap_err().to_string();
        assert!(text.contains(part), "{new}: {text}");
    }
}

/// Every header of an affine tensor is refused or decodes the bytes that exist.
#[test]
fn hostile_bytes_are_refused() {
    let d = taper::cpu();
    let integers = Tensor::new([[1, 2, 3, 4], [3, -4, 5, 6]], &d).unwrap();
    let scale = Tensor::new([[0.5, 2.0], [1.0, 3.0]], &d).unwrap();
    let tensor = Tensor::affine(&integers, &scale, Some(&scale.round()), 1, AffineBits::I8).unwrap();
    let (format, bytes) = (tensor.block_format().unwrap(), tensor.block_bytes().unwrap());
    let mut refused = 0;
    for word in 0..8 {
        for value in [0, 1, 2, 3, 5, 8, 32, 40, 41, 56, 1000, u32::MAX] {
            let mut changed = bytes.clone();
            changed[4 * word..][..4].copy_from_slice(&value.to_le_bytes());
            match Tensor::of_blocks("test", format.clone(), tensor.shape(), DType::F32, &changed, &d) {
                Ok(tensor) => assert_eq!(tensor.to_vec::<f32>().unwrap().len(), 8),
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 30, "{refused}");
}

#[test]
fn groups_of_integers_are_their_formula() {
    let d = device();
    if !needs(&d, DType::I8) {
        return;
    }
    let shape = [6usize, 5, 4];
    let scales: [(&[usize], usize); 6] =
        [(&[], 0), (&[1], 1), (&[6], 0), (&[4], 2), (&[6, 2, 4], 1), (&[6, 5, 2], 2)];
    for bits in AffineBits::ALL {
        let (low, high) = bits.range();
        let count = (high - low + 1) as usize;
        let values: Vec<i64> = (0..120).map(|i| i64::from(low) + (i * 37 % count) as i64).collect();
        for (scale, axis) in scales {
            for with_zero in [false, true] {
                let what = format!("{bits:?}, a scale of {scale:?} along {axis}, zero points {with_zero}");
                let make = |d: &Device| -> Result<[Tensor; 3]> {
                    let values = Tensor::new(values.clone(), d)?.reshape(shape)?.to_dtype(DType::I32)?;
                    let scales = tensor(scale, 5, DType::F32, d)?;
                    let zero = tensor(scale, 6, DType::F32, d)?.mul_scalar(3.0).round();
                    Ok([values, scales, zero])
                };
                let affine = |d: &Device| -> Result<Tensor> {
                    let [values, scale, zero] = make(d)?;
                    Tensor::affine(&values, &scale, with_zero.then_some(&zero), axis, bits)
                };
                // Each scale for ⌈size / its size⌉ neighbours.
                let [values, scales, zero] = make(&d).unwrap();
                let spread = |t: &Tensor| -> Result<Tensor> {
                    match scale.len() {
                        1 if scale[0] > 1 => {
                            let mut all = [1, 1, 1];
                            all[axis] = scale[0];
                            t.reshape(all)
                        }
                        3 => t
                            .repeat_interleave(shape[axis].div_ceil(scale[axis]), axis)?
                            .slice(axis, 0..shape[axis]),
                        _ => t.reshape([1, 1, 1]),
                    }
                };
                let shift = if with_zero { spread(&zero).unwrap() } else { zero.sum().mul_scalar(0.0) };
                let expected = values.to_dtype(DType::F32).unwrap().sub(&shift).unwrap();
                let expected = expected.mul(&spread(&scales).unwrap()).unwrap().to_vec::<f32>().unwrap();
                let made = affine(&d).unwrap();
                assert_eq!(made.dequantize().to_vec::<f32>().unwrap(), expected, "{what}");
                assert_eq!(
                    made.block_format().unwrap().bytes(made.shape()).unwrap(),
                    made.block_bytes().unwrap().len()
                );
                if scale.len() == 3 && drawn(&what) {
                    let two = |d: &Device| affine(d)?.reshape([30, 4]);
                    agree_sums(&format!("a product with {what}"), |d| {
                        tensor(&[3, 4], 3, DType::F32, d)?.matmul(&two(d)?.t()?)
                    });
                    agree(&format!("rows of {what}"), |d| {
                        two(d)?.index_select(0, &Tensor::new([29i32, 0, 7], d)?)
                    });
                }
            }
        }
    }
    let wrong = |values: Tensor, scale: &[usize], part: &str| {
        let scale = Tensor::ones(scale, &d).unwrap();
        let text = Tensor::affine(&values, &scale, None, 0, AffineBits::I4).unwrap_err().to_string();
        assert!(text.contains(part), "{text}");
    };
    wrong(Tensor::new([[8, 0]], &d).unwrap(), &[], "8 is none of the integers from -8 to 7");
    wrong(Tensor::new([[1.0, 0.0]], &d).unwrap(), &[], "integers");
    wrong(Tensor::new([[1, 0], [1, 0], [1, 0]], &d).unwrap(), &[2], "one for each position of the axis");
    wrong(Tensor::new([[1, 0], [1, 0], [1, 0]], &d).unwrap(), &[3, 3], "one for each position of the axis");
}

/// One bit an element, +1 or −1 times the f32 that the bytes begin with: a format that no crate of Taper
/// knows.
#[derive(Debug)]
struct Signs;

impl BlockFormat for Signs {
    fn name(&self) -> &'static str {
        "signs"
    }
    fn key(&self) -> Vec<u64> {
        Vec::new()
    }
    fn bytes(&self, shape: &Shape) -> Result<usize> {
        Ok(4 + shape.numel().div_ceil(8))
    }
    fn elements(&self, bytes: usize) -> usize {
        8 * bytes.saturating_sub(4)
    }
    fn bits_per_element(&self) -> f64 {
        1.0
    }
    fn decode(&self, bytes: &[u8], start: usize, out: &mut [f32]) {
        let scale = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        for (i, x) in (start..).zip(out) {
            *x = if bytes[4 + i / 8] >> (i % 8) & 1 == 1 { scale } else { -scale };
        }
    }
    fn wgsl(&self) -> Option<&'static str> {
        Some(
            "fn decode_x(i: u32) -> f32 {
                let bit = (byte_x(4u + i / 8u) >> (i % 8u)) & 1u;
                return select(-1.0, 1.0, bit == 1u) * bitcast<f32>(word_x(0u));
            }",
        )
    }
}

#[test]
fn another_crate_may_bring_a_format() {
    let signs = |d: &Device| {
        let mut bytes = 0.5f32.to_le_bytes().to_vec();
        bytes.extend([0b1010_0101, 0b0000_1111, 0xff, 0x00, 0b1100_1100]);
        Tensor::from_blocks(Signs, [5, 8], DType::F32, &bytes, d)
    };
    agree("numbers of a format of this test", |d| Ok(signs(d)?.dequantize()));
    agree("a product with it", |d| tensor(&[3, 8], 3, DType::F32, d)?.matmul(&signs(d)?.t()?));
    let d = device();
    assert_eq!(signs(&d).unwrap().to_vec::<f32>().unwrap()[..4], [0.5, -0.5, 0.5, -0.5]);
    let format = signs(&d).unwrap().block_format().unwrap();
    assert_eq!((format.to_string(), format == std::sync::Arc::new(Signs)), ("signs".into(), true));
    assert!((&*format as &dyn std::any::Any).downcast_ref::<Affine>().is_none());
}

#[test]
fn numbers_are_encoded_as_ggufs_own_package_encodes_them() {
    let (fixture, d) = (fixtures().remove("encode").unwrap(), device());
    let numbers: Vec<f32> = hex(&fixture["numbers"], 8).into_iter().map(f32::from_bits).collect();
    let x = Tensor::from_vec(numbers, [12, 32], &d).unwrap();
    let whole = x.slice(0, 0..8).unwrap().reshape([1, 256]).unwrap();
    let [q4_0, q4_1, q5_0] = [GgmlType::Q4_0, GgmlType::Q4_1, GgmlType::Q5_0];
    let rows = [q4_0, q4_1, q5_0, GgmlType::Q5_1, GgmlType::Q8_0, GgmlType::MXFP4].map(|format| (format, &x));
    for (format, x) in rows.into_iter().chain([(GgmlType::TQ2_0, &whole)]) {
        let bytes: Vec<u8> = hex(&fixture[format.name()], 2).into_iter().map(|byte| byte as u8).collect();
        let found = x.quantize(format, None).unwrap();
        assert_eq!(found.block_bytes().unwrap(), bytes, "{}", format.name());
        assert_eq!((found.dims(), found.dtype()), (x.dims(), DType::F32));
    }
}

/// Σ w (x − quantized x)² / Σ w x².
fn error_of(x: &Tensor, quantized: &Tensor, weights: &Tensor) -> f64 {
    let sum = |x: Tensor| x.square().mul(weights).unwrap().sum().item::<f32>().unwrap();
    f64::from(sum(quantized.dequantize().sub(x).unwrap()) / sum(x.clone()))
}

#[test]
fn encoding_loses_no_more_than_the_format_must() {
    let d = device();
    // Normal numbers, some rows with a mean, some in another unit.
    let rows = tensor(&[8, 512], 11, DType::F32, &d).unwrap();
    let unit = Tensor::from_vec(vec![1.0f32, 1e-3, 50.0, 1.0, 1.0, 1.0, 0.0, 1.0], [8, 1], &d).unwrap();
    let mean = Tensor::from_vec(vec![0.0f32, 0.0, 0.0, 3.0, -3.0, 0.5, 0.0, 0.0], [8, 1], &d).unwrap();
    let x = rows.mul(&unit).unwrap().add(&mean).unwrap();
    let ones = Tensor::ones([512], &d).unwrap();
    // Some columns count a hundred times as much as others.
    let importance: Vec<f32> = (0..512).map(|i| if i % 7 == 0 { 1.0 } else { 0.01 }).collect();
    let importance = Tensor::from_vec(importance, [512], &d).unwrap();
    for format in GgmlType::ALL {
        let name = format.name();
        let plain = x.quantize(format, None).unwrap();
        let error = error_of(&x, &plain, &ones).sqrt();
        // An integer of b bits is wrong by a third of its step, and numbers reach over all 2^b steps. The
        // steps of e2m1 are as wide as its numbers.
        let bits = match format {
            // It has three numbers, for weights that are trained to be those.
            GgmlType::TQ2_0 => continue,
            GgmlType::Q2_K => 2,
            GgmlType::Q3_K | GgmlType::MXFP4 => 3,
            GgmlType::Q4_0 | GgmlType::Q4_1 | GgmlType::Q4_K => 4,
            GgmlType::IQ4_NL | GgmlType::IQ4_XS => 4,
            GgmlType::Q5_0 | GgmlType::Q5_1 | GgmlType::Q5_K => 5,
            GgmlType::Q6_K => 6,
            GgmlType::Q8_0 => 8,
        };
        assert!(error < 0.55 / f64::from(1 << (bits - 1)), "{name}: {error}");
        // Encoding what was decoded changes little more.
        let again = plain.dequantize().quantize(format, None).unwrap();
        assert!(error_of(&plain.dequantize(), &again, &ones).sqrt() <= error, "{name}");
        let weighed = x.quantize(format, Some(&importance)).unwrap();
        if !matches!(format, GgmlType::Q8_0 | GgmlType::MXFP4) {
            let (with, without) = (error_of(&x, &weighed, &importance), error_of(&x, &plain, &importance));
            assert!(with < without, "{name}: {with} with the importance, {without} without");
        }
    }
}

#[test]
fn what_cannot_be_encoded_is_refused() {
    let d = device();
    let x = tensor(&[2, 64], 1, DType::F32, &d).unwrap();
    let q = |x: &Tensor, w: Option<&Tensor>| x.quantize(GgmlType::Q4_1, w).unwrap_err().to_string();
    assert!(q(&x.to_dtype(DType::I32).unwrap(), None).contains("blocks hold rows of floats"));
    assert!(q(&x.slice(1, 0..40).unwrap(), None).contains("no multiple of the 32"));
    let blocks = x.quantize(GgmlType::Q8_0, None).unwrap();
    assert!(q(&blocks, None).contains("in blocks of q8_0 already"));
    let infinite = x.mul_scalar(f64::INFINITY);
    assert!(q(&infinite, None).contains("element 0 is"), "{}", q(&infinite, None));
    assert!(q(&x, Some(&Tensor::ones([32], &d).unwrap())).contains("one for each column"));
    let negative = Tensor::ones([64], &d).unwrap().neg();
    assert!(q(&x, Some(&negative)).contains("number 0 is -1"));
    assert!(
        x.slice(0, 0..0).unwrap().quantize(GgmlType::Q6_K, None).unwrap_err().to_string().contains("256")
    );
    assert_eq!(x.slice(0, 0..0).unwrap().quantize(GgmlType::Q4_0, None).unwrap().dims(), [0, 64]);
}
