//! Attention in tiles against the formulas in f64: lengths and widths around each tile's edge, any strides,
//! masks, dropout, half types, few queries, and the gradients.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use taper_testing::{numbers, settings::has_turn};
use tensor_core::{
    Attention, AttentionPass, CustomKernel, DType, Kernel, Layout, Shape, kernel::Operand, philox,
};

use crate::common::{close, run, tiled};

/// Sizes: batch positions, queries, keys, features of keys and of values.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    batch: usize,
    rows: usize,
    keys: usize,
    width: usize,
    features: usize,
}

const fn sizes(batch: usize, rows: usize, keys: usize, width: usize, features: usize) -> Sizes {
    Sizes { batch, rows, keys, width, features }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mask {
    None,
    Bool,
    Added,
}

#[derive(Clone, Copy, Debug)]
struct Options {
    causal: Option<usize>,
    mask: Mask,
    dropout: Option<f64>,
    dtype: DType,
}

const PLAIN: Options = Options { causal: None, mask: Mask::None, dropout: None, dtype: DType::F32 };
/// The seed and the offset of the random stream. The offset overflows its low word.
const STREAM: [u64; 2] = [0x1234_5678_9abc_def0, 0xffff_ff00];

/// The inputs as rows of numbers.
struct Given {
    query: Vec<f64>,
    key: Vec<f64>,
    value: Vec<f64>,
    /// The numbers that are added to scores.
    added: Vec<f64>,
    gradient: Vec<f64>,
}

impl Given {
    fn new(s: Sizes, options: Options) -> Given {
        let rounded = |n: usize, seed: u64| -> Vec<f64> {
            let numbers = numbers(n, seed);
            numbers.into_iter().map(|x| tensor_core::Scalar::Float(x).cast(options.dtype).as_f64()).collect()
        };
        let scores = s.batch * s.rows * s.keys;
        let added = match options.mask {
            Mask::None => vec![0.0; scores],
            // One query sees nothing.
            Mask::Bool => (0..scores)
                .map(|i| if i / s.keys == 1 || i % 3 == 1 { f64::NEG_INFINITY } else { 0.0 })
                .collect(),
            Mask::Added => rounded(scores, 5),
        };
        Given {
            query: rounded(s.batch * s.rows * s.width, 1),
            key: rounded(s.batch * s.keys * s.width, 2),
            value: rounded(s.batch * s.keys * s.features, 3),
            added,
            gradient: rounded(s.batch * s.rows * s.features, 4),
        }
    }
}

/// The results of both passes in f64.
struct Expected {
    out: Vec<f64>,
    logarithms: Vec<f64>,
    gradients: [Vec<f64>; 3],
}

fn expected(s: Sizes, options: Options, scale: f64, given: &Given) -> Expected {
    let mut out = vec![0.0; s.batch * s.rows * s.features];
    let mut logarithms = vec![f64::INFINITY; s.batch * s.rows];
    let mut gradients =
        [given.query.len(), given.key.len(), given.value.len()].map(|length| vec![0.0; length]);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f64>();
    for batch in 0..s.batch {
        let row_of = |values: &[f64], length: usize, width: usize, i: usize| -> Vec<f64> {
            let first = (batch * length + i) * width;
            values[first..first + width].to_vec()
        };
        for i in 0..s.rows {
            let query = row_of(&given.query, s.rows, s.width, i);
            let scores: Vec<f64> = (0..s.keys)
                .map(|j| {
                    let seen = options.causal.is_none_or(|first| j <= first + i);
                    let added = given.added[(batch * s.rows + i) * s.keys + j];
                    let score = dot(&query, &row_of(&given.key, s.keys, s.width, j)) * scale + added;
                    if seen { score } else { f64::NEG_INFINITY }
                })
                .collect();
            let greatest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            if greatest == f64::NEG_INFINITY {
                continue;
            }
            let total: f64 = scores.iter().map(|score| (score - greatest).exp()).sum();
            logarithms[batch * s.rows + i] = greatest + total.ln();
            let weights: Vec<f64> = scores.iter().map(|score| (score - greatest).exp() / total).collect();
            let kept: Vec<f64> = (0..s.keys)
                .map(|j| match options.dropout {
                    Some(p) => {
                        let at = ((i * s.batch + batch) * s.keys + j) as u64;
                        let draw = philox(STREAM[0], STREAM[1].wrapping_add(at))[0] >> 8;
                        let draw = draw as f32 * (1.0 / (1 << 24) as f32);
                        if draw >= p as f32 { 1.0 / (1.0 - p) } else { 0.0 }
                    }
                    None => 1.0,
                })
                .collect();
            let gradient = row_of(&given.gradient, s.rows, s.features, i);
            let of_weights: Vec<f64> = (0..s.keys)
                .map(|j| dot(&gradient, &row_of(&given.value, s.keys, s.features, j)) * kept[j])
                .collect();
            let sum = dot(&weights, &of_weights);
            for j in 0..s.keys {
                let value = row_of(&given.value, s.keys, s.features, j);
                let key = row_of(&given.key, s.keys, s.width, j);
                let of_score = weights[j] * (of_weights[j] - sum) * scale;
                for f in 0..s.features {
                    out[(batch * s.rows + i) * s.features + f] += weights[j] * kept[j] * value[f];
                    gradients[2][(batch * s.keys + j) * s.features + f] += weights[j] * kept[j] * gradient[f];
                }
                for e in 0..s.width {
                    gradients[0][(batch * s.rows + i) * s.width + e] += of_score * key[e];
                    gradients[1][(batch * s.keys + j) * s.width + e] += of_score * query[e];
                }
            }
        }
    }
    Expected { out, logarithms, gradients }
}

type Inputs = Vec<(DType, Vec<f64>)>;

/// The kernel of a pass and its inputs, row-major.
fn case(
    pass: AttentionPass,
    s: Sizes,
    options: Options,
    scale: f64,
    given: &Given,
    forward: &Expected,
) -> (Kernel, Inputs) {
    let Options { causal, mask, dropout, dtype } = options;
    let attention = Attention { pass, scale, causal, mask: mask != Mask::None, dropout };
    let mut operands: Vec<(DType, Layout, Vec<f64>)> = Vec::new();
    let rows = |width| Layout::contiguous([s.batch, s.rows, width]);
    let keys = |width| Layout::contiguous([s.batch, s.keys, width]);
    operands.push((dtype, rows(s.width), given.query.clone()));
    operands.push((dtype, keys(s.width), given.key.clone()));
    operands.push((dtype, keys(s.features), given.value.clone()));
    if pass == AttentionPass::Backward {
        operands.push((dtype, rows(s.features), forward.out.clone()));
        operands.push((dtype.compute(), Layout::contiguous([s.batch, s.rows]), forward.logarithms.clone()));
        operands.push((dtype, rows(s.features), given.gradient.clone()));
    }
    match mask {
        Mask::None => {}
        Mask::Bool => {
            let seen = given.added.iter().map(|&x| f64::from(u8::from(x == 0.0))).collect();
            operands.push((DType::Bool, rows(s.keys), seen));
        }
        Mask::Added => operands.push((dtype, rows(s.keys), given.added.clone())),
    }
    if dropout.is_some() {
        let words = STREAM.map(|word| [word as u32, (word >> 32) as u32]).concat();
        operands.push((DType::U32, Layout::contiguous([4]), words.into_iter().map(f64::from).collect()));
    }
    let specs: Vec<(Shape, DType)> =
        operands.iter().map(|(dtype, layout, _)| (layout.shape().clone(), *dtype)).collect();
    let results = attention.results(&specs).unwrap();
    let layouts = operands.iter().map(|(dtype, layout, _)| Operand::new(*dtype, layout.clone()));
    let kernel = Kernel::custom(Arc::new(attention), layouts.collect::<Vec<_>>(), &results);
    (kernel, operands.into_iter().map(|(dtype, _, values)| (dtype, values)).collect())
}

fn assert_close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (&f, &e)) in found.iter().zip(expected).enumerate() {
        assert!(close(f, e, tolerance), "{what}: element {i} is {f}, expected {e}");
    }
}

/// Runs both passes and compares.
fn compare(s: Sizes, options: Options) {
    let Some(device) = tiled() else { return };
    let (what, scale) = (format!("{s:?}, {options:?}"), 1.0 / (s.width as f64).sqrt());
    if !has_turn(4) {
        return;
    }
    let given = Given::new(s, options);
    let expected = expected(s, options, scale, &given);
    let within = match options.dtype {
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        _ => 2e-5,
    };
    let (kernel, inputs) = case(AttentionPass::Forward, s, options, scale, &given, &expected);
    assert!(device.backend().implements(&kernel), "{what}");
    let found = run(device, &kernel, &[], &inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_close(&format!("{what}, out"), &found[0], &expected.out, within);
    assert_close(&format!("{what}, logarithms"), &found[1], &expected.logarithms, 1e-4);
    let (kernel, inputs) = case(AttentionPass::Backward, s, options, scale, &given, &expected);
    let found = run(device, &kernel, &[], &inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
    for (name, (found, expected)) in
        ["queries", "keys", "values"].iter().zip(found.iter().zip(&expected.gradients))
    {
        assert_close(&format!("{what}, gradient of {name}"), found, expected, 4.0 * within);
    }
}

#[test]
fn lengths_and_widths_around_the_edges_of_tiles() {
    for s in [
        sizes(1, 9, 1, 4, 4),
        sizes(2, 63, 31, 3, 5),
        sizes(1, 64, 32, 32, 32),
        sizes(1, 65, 33, 33, 36),
        sizes(3, 10, 70, 8, 64),
        sizes(1, 17, 40, 40, 65),
        sizes(1, 12, 34, 65, 100),
        sizes(1, 12, 34, 132, 129),
        sizes(1, 130, 9, 64, 1),
    ] {
        compare(s, PLAIN);
    }
}

#[test]
fn causal_masks_skip_tiles() {
    for (s, first) in [
        (sizes(2, 70, 70, 8, 8), 0),
        (sizes(1, 70, 140, 4, 4), 70),
        (sizes(1, 130, 40, 4, 12), 0),
        (sizes(1, 33, 100, 5, 3), 31),
    ] {
        compare(s, Options { causal: Some(first), ..PLAIN });
    }
}

#[test]
fn masks_and_dropout() {
    for mask in [Mask::Bool, Mask::Added] {
        for (rows, keys) in [(20, 36), (66, 35)] {
            compare(sizes(2, rows, keys, 4, 4), Options { mask, ..PLAIN });
        }
    }
    for (mask, causal) in [(Mask::None, None), (Mask::None, Some(2)), (Mask::Bool, None)] {
        compare(sizes(2, 20, 36, 4, 4), Options { mask, causal, dropout: Some(0.3), ..PLAIN });
    }
}

#[test]
fn few_queries_split_the_keys() {
    for (rows, keys, width, features) in [
        (1, 1, 4, 4),
        (1, 300, 8, 12),
        (1, 2100, 5, 3),
        (2, 129, 36, 64),
        (3, 640, 4, 1),
        (8, 700, 4, 130),
        (1, 140, 4, 520),
    ] {
        compare(sizes(2, rows, keys, width, features), PLAIN);
    }
    for causal in [Some(0), Some(127), Some(140)] {
        compare(sizes(1, 4, 150, 4, 4), Options { causal, ..PLAIN });
    }
    for mask in [Mask::Bool, Mask::Added] {
        compare(sizes(2, 2, 150, 4, 4), Options { mask, dropout: Some(0.3), ..PLAIN });
    }
}

#[test]
fn half_types_are_read_and_written_packed() {
    for dtype in [DType::F16, DType::BF16] {
        for s in [sizes(1, 20, 36, 8, 8), sizes(2, 11, 13, 3, 5), sizes(1, 1, 140, 3, 5)] {
            compare(s, Options { dtype, mask: Mask::Added, ..PLAIN });
        }
    }
}

/// Heads beside features, keys shared by heads, a mask of one row, numbers in reverse: the kernel reads all
/// of them in place.
#[test]
fn any_strides() {
    let Some(device) = tiled() else { return };
    let s = sizes(6, 10, 20, 8, 4);
    let options = Options { mask: Mask::Added, ..PLAIN };
    let given = Given::new(s, options);
    let (kernel, inputs) = {
        let forward = Expected { out: Vec::new(), logarithms: Vec::new(), gradients: Default::default() };
        case(AttentionPass::Forward, s, options, 0.5, &given, &forward)
    };
    let layouts = [
        // [2, rows, 3, width] read as [2, 3, rows, width].
        Layout::contiguous([2, 10, 3, 8]).permute(&[0, 2, 1, 3]),
        // Two keys for six batch positions.
        Layout::contiguous([2, 1, 20, 8]).expand(&Shape::from([2, 3, 20, 8])),
        Layout::contiguous([2, 3, 4, 20]).permute(&[0, 1, 3, 2]).flip(2),
        Layout::contiguous([2, 1, 1, 20]).expand(&Shape::from([2, 3, 10, 20])),
    ];
    let attention =
        Attention { pass: AttentionPass::Forward, scale: 0.5, causal: None, mask: true, dropout: None };
    let (lead, operands): (Shape, Vec<Operand>) =
        (Shape::from([2, 3]), layouts.iter().map(|l| Operand::new(DType::F32, l.clone())).collect());
    let specs: Vec<(Shape, DType)> = layouts.iter().map(|l| (l.shape().clone(), DType::F32)).collect();
    assert_eq!(lead.numel(), s.batch);
    let strided = Kernel::custom(Arc::new(attention), operands, &attention.results(&specs).unwrap());
    let found = run(device, &strided, &[], &inputs).unwrap();
    // The same numbers, row-major.
    let dense: Vec<(DType, Vec<f64>)> = layouts
        .iter()
        .zip(&inputs)
        .map(|(layout, (dtype, values))| {
            let shape = layout.shape();
            let at = |mut i: usize| {
                let mut at = layout.offset() as isize;
                for axis in (0..shape.rank()).rev() {
                    at += (i % shape[axis]) as isize * layout.strides()[axis];
                    i /= shape[axis];
                }
                values[at as usize]
            };
            (*dtype, (0..shape.numel()).map(at).collect())
        })
        .collect();
    let expected = run(device, &kernel, &[], &dense).unwrap();
    for (found, expected) in found.iter().zip(&expected) {
        assert_close("any strides", found, expected, 1e-5);
    }
}

#[test]
fn numbers_of_dispatches() {
    let Some(device) = tiled() else { return };
    let count = |pass, s: Sizes| {
        let given = Given::new(s, PLAIN);
        let forward = expected(s, PLAIN, 1.0, &given);
        device.backend().source(&case(pass, s, PLAIN, 1.0, &given, &forward).0).len()
    };
    assert_eq!(count(AttentionPass::Forward, sizes(2, 70, 70, 8, 8)), 1);
    assert_eq!(count(AttentionPass::Backward, sizes(2, 70, 70, 8, 8)), 3);
    assert_eq!(count(AttentionPass::Forward, sizes(1, 1, 100, 8, 8)), 1);
    assert_eq!(count(AttentionPass::Forward, sizes(1, 1, 1000, 8, 8)), 2);
}

/// Bits do not change from run to run.
#[test]
fn results_repeat() {
    let Some(device) = tiled() else { return };
    let s = sizes(2, 70, 100, 8, 8);
    let given = Given::new(s, PLAIN);
    let forward = expected(s, PLAIN, 0.3, &given);
    let (kernel, inputs) = case(AttentionPass::Backward, s, PLAIN, 0.3, &given, &forward);
    let first = run(device, &kernel, &[], &inputs).unwrap();
    assert_eq!(run(device, &kernel, &[], &inputs).unwrap(), first);
}

/// Query heads that share keys are rows of one workgroup, with the same results.
#[test]
fn heads_that_share_keys_read_them_once() {
    let Some(device) = tiled() else { return };
    let attention =
        Attention { pass: AttentionPass::Forward, scale: 0.5, causal: None, mask: true, dropout: None };
    let made = |heads: Layout, keys: Layout| {
        let mask = Layout::contiguous([2, 1, 1, 1, 150]).expand(&Shape::from([2, 2, 3, 1, 150]));
        let operands = [heads, keys.clone(), keys, mask].map(|layout| Operand::new(DType::F32, layout));
        let specs: Vec<(Shape, DType)> =
            operands.iter().map(|o| (o.layout.shape().clone(), DType::F32)).collect();
        Kernel::custom(Arc::new(attention), operands, &attention.results(&specs).unwrap())
    };
    let heads = Layout::contiguous([2, 2, 3, 1, 8]);
    let shared =
        made(heads.clone(), Layout::contiguous([2, 2, 1, 150, 8]).expand(&Shape::from([2, 2, 3, 150, 8])));
    let apart = made(heads, Layout::contiguous([2, 2, 3, 150, 8]));
    let (query, mask) = (numbers(96, 1), numbers(300, 2));
    let keys = numbers(4 * 1200, 3);
    let copies: Vec<f64> = keys.chunks(1200).flat_map(|matrix| matrix.repeat(3)).collect();
    let inputs = |keys: Vec<f64>| [query.clone(), keys.clone(), keys, mask.clone()].map(|x| (DType::F32, x));
    let found = run(device, &shared, &[], &inputs(keys)).unwrap();
    let expected = run(device, &apart, &[], &inputs(copies)).unwrap();
    for (found, expected) in found.iter().zip(&expected) {
        assert_close("shared keys", found, expected, 1e-5);
    }
}
