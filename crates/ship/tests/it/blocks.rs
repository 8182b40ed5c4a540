//! Weights in blocks stay in blocks: every format by each compiler, and a transformer.
//!
//! `TAPER_TEST=written=FOLDER` leaves the transformer there, for docs/benchmarks/ship.md.

use std::path::Path;

use nn::{
    LayerNorm,
    functional::{AttentionOptions, embedding, scaled_dot_product_attention},
};
use taper_testing::settings::setting;
use tensor_core::{AffineBits, BlockFormat, DType, GgmlType, IntegerGroups, Result, Tensor, WeightFormat};

use crate::{
    bodies::floats,
    programs::{Case, case, check, native_case},
};

/// All formats of weights: those of GGUF files, groups of integers, and codes of four bits.
fn formats() -> Vec<WeightFormat> {
    let ggml = GgmlType::ALL.into_iter().map(WeightFormat::from);
    let groups = AffineBits::ALL.map(|bits| match bits {
        AffineBits::I8 | AffineBits::U4 => IntegerGroups::by_row(bits).into(),
        AffineBits::U8 | AffineBits::I4 => IntegerGroups::new(bits, 64).into(),
    });
    let codes = [false, true].map(|double_quantized| WeightFormat::Nf4 { double_quantized });
    ggml.chain(groups).chain(codes).collect()
}

fn quantized(shape: &[usize], seed: u64, format: impl Into<WeightFormat>) -> Tensor {
    floats(shape, seed).quantize(format, None).unwrap()
}

fn indices(numbers: &[i64]) -> Tensor {
    Tensor::from_vec(numbers.to_vec(), [numbers.len()], &backend_cpu::cpu()).unwrap()
}

/// The weights of a program are the bytes of these tensors and `others`.
fn takes(case: &Case, tensors: &[&Tensor], others: usize) {
    let blocks: usize = tensors.iter().map(|tensor| tensor.block_bytes().unwrap().len()).sum();
    assert_eq!(case.sizes().weights, blocks + others, "{}", case.sizes());
}

#[test]
fn every_format_in_products_gathers_and_maps() {
    let cases: Vec<Case> = formats()
        .into_iter()
        .enumerate()
        .map(|(k, format)| {
            let w = quantized(&[12, 512], k as u64 + 1, format);
            let arguments = vec![floats(&[3, 512], 1), floats(&[2, 12], 2), indices(&[3, 11, 0])];
            let of = w.clone();
            let case = case(&format!("blocks_{k}"), 1e-4, arguments, move |x| {
                Ok(vec![
                    // Along rows, along columns, a part of the rows, one vector, and a few outputs.
                    x[0].matmul(&of.t()?)?,
                    x[1].matmul(&of)?,
                    x[0].narrow(1, 32, 480)?.matmul(&of.narrow(1, 32, 480)?.t()?)?,
                    x[0].narrow(0, 1, 1)?.matmul(&of.narrow(0, 5, 2)?.t()?)?,
                    embedding(&x[2], &of)?,
                    of.dequantize(),
                    of.dequantize().narrow(0, 2, 3)?.mul(&x[0])?.add_scalar(1.0),
                    of.narrow(0, 4, 3)?.dequantize().mul(&x[0])?.sum_axis(1, false)?,
                ])
            });
            takes(&case, &[&w], 0);
            case
        })
        .collect();
    check(&cases);
}

/// Blocks of any bytes, with scales that are subnormal, infinite or NaN.
#[test]
fn any_bytes_decode_alike() {
    let cases: Vec<Case> = GgmlType::ALL
        .into_iter()
        .map(|format| {
            let count = format.bytes(&[16, 512].into()).unwrap();
            let noise = floats(&[count], 7).to_vec::<f32>().unwrap();
            let bytes: Vec<u8> = noise.iter().map(|x| ((x + 2.0) * 64.0) as u8).collect();
            let w = Tensor::from_blocks(format, [16, 512], DType::F32, &bytes, &backend_cpu::cpu()).unwrap();
            native_case(
                &format!("bytes_{}", format.name()),
                0.0,
                vec![indices(&[0])],
                move |_| Ok(vec![w.dequantize()]),
                "",
            )
        })
        .collect();
    check(&cases);
}

/// Doubles are rounded from the decoded numbers, and a tensor that is read twice is stored once.
#[test]
fn dtypes_and_shared_tables() {
    let w = quantized(&[6, 64], 1, GgmlType::Q4_0);
    let wide = w.to_dtype(DType::F64).unwrap();
    let table = w.clone();
    let x = || floats(&[2, 64], 2);
    let cases = [
        case("shared", 1e-5, vec![x(), indices(&[5, 1])], move |x| {
            Ok(vec![x[0].matmul(&table.t()?)?, embedding(&x[1], &table)?])
        }),
        native_case(
            "doubles_in_blocks",
            1e-12,
            vec![x().to_dtype(DType::F64).unwrap().contiguous().unwrap()],
            move |x| Ok(vec![x[0].matmul(&wide.t()?)?]),
            "f64",
        ),
    ];
    takes(&cases[0], &[&w], 0);
    takes(&cases[1], &[&w], 0);
    check(&cases);
}

/// A passed budget names a tensor in blocks with its format.
#[test]
fn sizes_are_those_of_blocks() {
    let w = quantized(&[8, 256], 1, GgmlType::Q4_K);
    let case = case("sizes", 1e-5, vec![floats(&[1, 256], 2)], move |x| Ok(vec![x[0].matmul(&w.t()?)?]));
    assert_eq!(case.sizes().weights, 8 * 144);
    let budget = ship::Budget { flash: Some(1000), ram: None };
    let text = budget.check(case.sizes()).unwrap_err().to_string();
    assert!(text.contains("1.12 KiB in 2048 elements of q4_k read by matmul at blocks.rs"), "{text}");
    assert!(case.c_text().contains("[1152] = {") && case.c_text().contains("decode_q4_k_run(x1, "));
}

/// The bits on a Cortex-M4 in QEMU, and the instructions of a product in each format.
#[test]
fn products_on_a_microcontroller() {
    let formats =
        [None, Some(GgmlType::Q4_0), Some(GgmlType::Q8_0), Some(GgmlType::Q4_K), Some(GgmlType::Q6_K)];
    for format in formats {
        let w = floats(&[64, 256], 1);
        let w = format.map_or_else(|| w.clone(), |format| w.quantize(format, None).unwrap());
        let name = format.map_or("f32", |format| format.name());
        let arguments = vec![floats(&[1, 256], 2)];
        let case = case(&format!("small_{name}"), 1e-4, arguments, move |x| Ok(vec![x[0].matmul(&w.t()?)?]));
        if let Some(instructions) = case.on_microcontroller() {
            println!("{name}: {instructions} instructions, {} bytes of weights", case.sizes().weights);
        }
    }
}

/// A language model of one layer, whose embeddings are its last weights too.
struct Transformer {
    tokens: Tensor,
    norms: Vec<LayerNorm>,
    /// Queries, keys, values, and their results.
    attention: Vec<Tensor>,
    /// The weights of the layer after the attention.
    hidden: Tensor,
    shown: Tensor,
}

const WIDTH: usize = 256;
const TOKENS: usize = 3;

impl Transformer {
    fn new() -> Transformer {
        let small = |shape: &[usize], seed, format: GgmlType| {
            floats(shape, seed).mul_scalar(0.06).quantize(format, None).unwrap()
        };
        let norm = |_| LayerNorm::new(WIDTH, &backend_cpu::cpu()).unwrap();
        Transformer {
            tokens: small(&[40, WIDTH], 1, GgmlType::Q8_0),
            norms: (0..3).map(norm).collect(),
            attention: (0..4).map(|k| small(&[WIDTH, WIDTH], 2 + k, GgmlType::Q4_K)).collect(),
            hidden: small(&[WIDTH, WIDTH], 6, GgmlType::Q4_1),
            shown: small(&[WIDTH, WIDTH], 7, GgmlType::Q6_K),
        }
    }

    fn blocks(&self) -> Vec<&Tensor> {
        let others = [&self.tokens, &self.hidden, &self.shown];
        self.attention.iter().chain(others).collect()
    }

    fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        let x = embedding(tokens, &self.tokens)?;
        let y = self.norms[0].forward(&x)?;
        let heads = |w: &Tensor| y.matmul(&w.t()?)?.reshape([1, TOKENS, 4, WIDTH / 4])?.transpose(1, 2);
        let [q, k, v] = [0, 1, 2].map(|k| heads(&self.attention[k]));
        let options = AttentionOptions { is_causal: true, ..Default::default() };
        let seen = scaled_dot_product_attention(&q?, &k?, &v?, options)?;
        let seen = seen.transpose(1, 2)?.reshape([TOKENS, WIDTH])?;
        let x = x.add(&seen.matmul(&self.attention[3].t()?)?)?;
        let y = self.norms[1].forward(&x)?.matmul(&self.hidden.t()?)?.silu();
        let x = x.add(&y.matmul(&self.shown.t()?)?)?;
        self.norms[2].forward(&x)?.matmul(&self.tokens.t()?)
    }
}

#[test]
fn a_transformer_in_blocks() {
    let model = Transformer::new();
    let case = case("language", 1e-4, vec![indices(&[7, 39, 0])], |x| Ok(vec![model.forward(&x[0])?]));
    if let Some(folder) = setting("written") {
        case.write(Path::new(&folder));
        println!("language: {:?}", case.sizes());
    }
    // The mask of the attention, and the numbers of the norms.
    takes(&case, &model.blocks(), TOKENS * TOKENS + 3 * 2 * WIDTH * 4);
    check(&[case]);
}
