//! Expressions of random inputs, a row each: Rust, PyTorch's Python, the inputs, and the least work.

use std::rc::Rc;

use taper::{
    DType, Device, DeviceKind, Generator, Tensor,
    linalg::{self, QrMode, Tolerance, Uplo},
    nn::{
        self,
        functional::{
            self as f, AttentionOptions, ConvOptions, ConvTransposeOptions, PoolOptions,
            scaled_dot_product_attention,
        },
    },
};

use super::laws;
use crate::{
    case::Case,
    expression::{Check, Expression, Fill, Large},
};

type Build = fn(&[Tensor]) -> taper::Result<Vec<Tensor>>;

/// A row before it is a case.
struct Row(String, Expression);

/// A row whose results are compared with those of its expression in f64, up to 1e-5 of the element and of the
/// greatest one.
fn row(name: &str, torch: &str, inputs: Vec<Large>, build: Build) -> Row {
    let expression = Expression {
        run: Rc::new(move |given| build(&given.tensors)),
        torch: torch.into(),
        inputs,
        dtype: DType::F32,
        gradients: false,
        compiled: false,
        check: Check::Twin,
        loose: 0.5,
        pointwise: false,
    };
    Row(name.into(), expression)
}

impl Row {
    /// In place of the result, the gradients of its sum, weighted at random; the result has this shape.
    fn gradients(mut self, result: &[usize]) -> Row {
        self.1.inputs.push(rand(result));
        Row(self.0, Expression { gradients: true, ..self.1 })
    }

    fn check(self, check: Check) -> Row {
        Row(self.0, Expression { check, ..self.1 })
    }

    /// Up to 1e-6 of each element, which is computed by itself.
    fn pointwise(self) -> Row {
        Row(self.0, Expression { loose: 0.05, pointwise: true, ..self.1 })
    }

    /// Up to `loose` times 2e-5 of the element and of the greatest one.
    fn loose(self, loose: f64) -> Row {
        Row(self.0, Expression { loose, ..self.1 })
    }

    /// In a half type, and accumulated in f32.
    fn half(self, dtype: DType) -> Case {
        // A quarter of the dtype's tolerance is one rounding of the sum.
        Row(self.0, Expression { dtype, loose: 0.25, ..self.1 }).case().unless(match dtype {
            DType::BF16 => |device| (!device.supports(DType::BF16)).then_some("the device has no bf16"),
            _ => |device| (!device.supports(DType::F16)).then_some("the device has no f16"),
        })
    }

    /// Beside PyTorch's `torch.compile`.
    fn compiled(self) -> Row {
        Row(self.0 + "_compiled", Expression { compiled: true, ..self.1 })
    }

    /// Linear algebra, whose rotations a software adapter would take minutes for.
    fn linalg(self) -> Case {
        fn elsewhere(device: &Device) -> Option<&'static str> {
            let is_software = device.info().kind == DeviceKind::SoftwareGpu;
            is_software.then_some("a software adapter takes minutes for the rotations of large matrices")
        }
        self.case().unless(elsewhere).reps(5..=2000)
    }

    fn case(self) -> Case {
        Case::compared(self.0, self.1)
    }
}

fn large(shape: &[usize], values: Fill) -> Large {
    Large { shape: shape.to_vec(), values }
}

/// Uniform on [0, 1).
fn rand(shape: &[usize]) -> Large {
    large(shape, Fill::Between(0.0, 1.0))
}

/// Uniform on [-0.5, 0.5).
fn centred(shape: &[usize]) -> Large {
    large(shape, Fill::Between(-0.5, 0.5))
}

fn one(result: taper::Result<Tensor>) -> taper::Result<Vec<Tensor>> {
    Ok(vec![result?])
}

fn two((a, b): (Tensor, Tensor)) -> taper::Result<Vec<Tensor>> {
    Ok(vec![a, b])
}

const N: usize = 10_000_000;
const VECTOR: &[usize] = &[N];
const SQUARE: &[usize] = &[4096, 4096];
const ROWS: &[usize] = &[4096, 1000];
const WIDE_ROWS: &[usize] = &[4096, 1024];
const MIDDLE: &[usize] = &[64, 128, 512];

fn numel(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// The cases of the list that was made before any of this was tuned.
pub(super) fn listed() -> Vec<Case> {
    let mut cases = products();
    cases.extend(pointwise());
    cases.extend(along_axes());
    cases.extend(normalised_rows());
    cases.extend(windows());
    cases
}

fn matmul(x: &[Tensor]) -> taper::Result<Vec<Tensor>> {
    one(x[0].matmul(&x[1]))
}

/// The looseness of a sum of `k` terms in f32.
fn of_terms(k: usize) -> f64 {
    0.05 * (k as f64).sqrt().max(8.0)
}

fn product(name: &str, [m, k, n]: [usize; 3]) -> Case {
    let inputs = vec![rand(&[m, k]), rand(&[k, n])];
    row(name, "x @ y", inputs, matmul).loose(of_terms(k)).case().flop(2 * m * k * n)
}

fn batched(name: &str, [b, m, k, n]: [usize; 4]) -> Case {
    let inputs = vec![rand(&[b, m, k]), rand(&[b, k, n])];
    row(name, "x @ y", inputs, matmul).loose(of_terms(k)).case().flop(2 * b * m * k * n)
}

fn with_transposed(x: &[Tensor]) -> taper::Result<Vec<Tensor>> {
    one(x[0].matmul(&x[1].t()?))
}

fn products() -> Vec<Case> {
    let mut cases: Vec<Case> =
        [64, 256, 512, 1024, 2048].map(|n| product(&format!("matmul_{n}"), [n; 3])).into();
    let transposed = |name, torch, [x, y]: [&[usize]; 2], build| {
        row(name, torch, vec![rand(x), rand(y)], build).case().flop(2 * 64 * 784 * 128)
    };
    let first: Build = |x| one(x[0].t()?.matmul(&x[1]));
    cases.extend([
        product("matmul_nn_64x784x128", [64, 784, 128]),
        transposed("matmul_nt_64x784x128", "x @ y.t()", [&[64, 784], &[128, 784]], with_transposed),
        transposed("matmul_tn_784x64x128", "x.t() @ y", [&[64, 784], &[64, 128]], first),
        batched("bmm_32x128", [32, 128, 128, 128]),
    ]);
    cases
}

fn pointwise() -> Vec<Case> {
    const CUBE: &[usize] = &[10, 1000, 1000];
    let chain = || {
        let build: Build =
            |x| (0..20).try_fold(x[0].zeros_like(), |r, _| r.add(&x[0].mul(&x[1])?)).map(|r| vec![r]);
        let torch = "functools.reduce(lambda r, _: r + x * y, range(20), torch.zeros_like(x))";
        row("elementwise_chain", torch, vec![rand(CUBE), rand(CUBE)], build)
    };
    let unary_chain = || {
        let build: Build = |x| Ok(vec![x[0].mul_scalar(2.0).add_scalar(1.0).tanh().exp().sqrt()]);
        row("unary_chain", "torch.tanh(x * 2 + 1).exp().sqrt()", vec![rand(VECTOR)], build).pointwise()
    };
    let unary = |name: &str, build: Build| {
        row(&format!("unary_{name}_10M"), &format!("torch.{name}(x)"), vec![rand(VECTOR)], build)
            .pointwise()
            .case()
    };
    let mut cases = vec![
        chain().case().elements(3 * N),
        chain().compiled().case().elements(3 * N),
        unary_chain().case().elements(2 * N),
        unary_chain().compiled().case().elements(2 * N),
    ];
    let functions = [
        unary("exp", |x| Ok(vec![x[0].exp()])),
        unary("tanh", |x| Ok(vec![x[0].tanh()])),
        unary("sqrt", |x| Ok(vec![x[0].sqrt()])),
        unary("relu", |x| Ok(vec![x[0].relu()])),
        unary("sigmoid", |x| Ok(vec![x[0].sigmoid()])),
        unary("log", |x| Ok(vec![x[0].log()])),
        unary("sin", |x| Ok(vec![x[0].sin()])),
    ];
    cases.extend(functions.map(|case| case.elements(2 * N)));
    let add: Build = |x| one(x[0].add(&x[1]));
    let add = row("add_10M", "x + y", vec![rand(VECTOR), rand(VECTOR)], add);
    cases.push(add.pointwise().case().elements(3 * N));
    cases
}

fn along_axes() -> Vec<Case> {
    let case = |name, torch, inputs, build| row(name, torch, inputs, build).case();
    let exact = |name, torch, inputs, build| row(name, torch, inputs, build).loose(0.0).case();
    let square = || vec![rand(SQUARE)];
    vec![
        case("sum_all_10M", "x.sum()", vec![rand(VECTOR)], |x| Ok(vec![x[0].sum()])).elements(N),
        case("sum_axis0_4096", "x.sum(0)", square(), |x| one(x[0].sum_axis(0, false))).elements(4096 * 4097),
        case("sum_axis1_4096", "x.sum(1)", square(), |x| one(x[0].sum_axis(1, false))).elements(4096 * 4097),
        row("broadcast_add_4096x1000", "x + y", vec![rand(ROWS), rand(&[1000])], |x| one(x[0].add(&x[1])))
            .pointwise()
            .case()
            .elements(2 * numel(ROWS)),
        exact("transpose_copy_4096", "x.t().contiguous()", square(), |x| one(x[0].t()?.contiguous()))
            .elements(2 * numel(SQUARE)),
    ]
}

/// Layer norm over the last axis without weights, as a user writes it who finds no such layer.
fn layer_norm(x: &[Tensor]) -> taper::Result<Vec<Tensor>> {
    let centred = x[0].sub(&x[0].mean_axis(-1, true)?)?;
    let variance = centred.mul(&centred)?.mean_axis(-1, true)?;
    one(centred.mul(&variance.add_scalar(1e-5).rsqrt()))
}

fn softmax(x: &[Tensor]) -> taper::Result<Vec<Tensor>> {
    one(x[0].softmax(-1))
}

const LAYER_NORM: &str = "F.layer_norm(x, (1024,))";

/// The memory is the limit: the input is read once, and the result is written once.
fn normalised_rows() -> Vec<Case> {
    vec![
        row("softmax_4096x1000", "F.softmax(x, -1)", vec![rand(ROWS)], softmax)
            .case()
            .elements(2 * numel(ROWS)),
        row("layer_norm_4096x1024", LAYER_NORM, vec![rand(WIDE_ROWS)], layer_norm)
            .case()
            .elements(2 * numel(WIDE_ROWS)),
    ]
}

/// A convolution: its input, its weight and its result.
struct Convolution {
    name: &'static str,
    torch: &'static str,
    input: &'static [usize],
    weight: &'static [usize],
    result: &'static [usize],
    build: Build,
}

impl Convolution {
    fn row(&self) -> Row {
        row(self.name, self.torch, vec![rand(self.input), rand(self.weight)], self.build)
    }

    /// Two for each tap of the weight and each place of a picture.
    fn flop(&self) -> usize {
        2 * self.result[0] * numel(&self.result[2..]) * numel(self.weight)
    }

    fn forward(&self) -> Case {
        self.row().case().flop(self.flop())
    }

    fn backward(&self) -> Case {
        let Row(name, expression) = self.row().gradients(self.result);
        Row(name + "_fwd_bwd", expression).case().flop(3 * self.flop())
    }
}

/// A convolution of pictures with a padding, a stride and groups.
fn convolve(x: &[Tensor], padding: usize, stride: usize, groups: usize) -> taper::Result<Vec<Tensor>> {
    let options = ConvOptions { padding: padding.into(), stride: [stride; 2], groups, ..Default::default() };
    one(f::conv2d(&x[0], &x[1], None, options))
}

fn windows() -> Vec<Case> {
    let small = Convolution {
        name: "conv2d",
        torch: "F.conv2d(x, y, padding=1)",
        input: &[16, 16, 28, 28],
        weight: &[32, 16, 3, 3],
        result: &[16, 32, 28, 28],
        build: |x| convolve(x, 1, 1, 1),
    };
    let pool: Build = |x| one(f::max_pool2d(&x[0], [2, 2]));
    vec![
        Convolution { name: "conv2d_fwd", ..small }.forward(),
        small.backward(),
        row("max_pool2d", "F.max_pool2d(x, 2)", vec![rand(&[16, 32, 28, 28])], pool).case(),
    ]
}

/// Linear algebra of the list. Results are checked by what defines them.
pub(super) fn linalg_listed() -> Vec<Case> {
    let square = |n: usize| vec![rand(&[n, n])];
    let system = vec![rand(&[1000, 1000]), rand(&[1000, 1])];
    let inverse = Check::Law(laws::is_pseudo_inverse);
    vec![
        row("pinv_500", "L.pinv(x)", square(500), pinv).check(inverse).linalg(),
        row("pinv_1000", "L.pinv(x)", square(1000), pinv).check(Check::Law(laws::is_pseudo_inverse)).linalg(),
        row("svd_1000", "L.svd(x)", square(1000), svd).check(Check::Law(laws::is_svd)).linalg(),
        row("solve_1000", "L.solve(x, y)", system, solve).check(Check::Law(laws::solves)).linalg(),
    ]
}

fn pinv(x: &[Tensor]) -> taper::Result<Vec<Tensor>> {
    one(linalg::pinv(&x[0], Tolerance::default(), false))
}

fn svd(x: &[Tensor]) -> taper::Result<Vec<Tensor>> {
    let (u, s, vh) = linalg::svd(&x[0], true)?;
    Ok(vec![u, s, vh])
}

fn solve(x: &[Tensor]) -> taper::Result<Vec<Tensor>> {
    one(linalg::solve(&x[0], &x[1]))
}

/// Cases that were not chosen for tuning: odd shapes, middle axes, backward passes, indices.
pub(super) fn more() -> Vec<Case> {
    let mut cases = more_products();
    cases.extend(more_pointwise());
    cases.extend(more_along_axes());
    cases.extend(more_rows());
    cases.extend(more_windows());
    cases.extend(norms());
    cases.extend(attention());
    cases.extend(more_linalg());
    cases
}

fn more_products() -> Vec<Case> {
    let square = |name: &str, n: usize, dtype| {
        row(name, "x @ y", vec![centred(&[n, n]), centred(&[n, n])], matmul).half(dtype).flop(2 * n * n * n)
    };
    let layer = vec![centred(&[512, 1024]), centred(&[1024, 1024])];
    vec![
        product("more_matmul_333x517x129", [333, 517, 129]),
        product("more_matmul_1x1024x1024", [1, 1024, 1024]),
        product("more_matmul_1024x1024x1", [1024, 1024, 1]),
        batched("more_bmm_16x65x77x33", [16, 65, 77, 33]),
        square("matmul_bf16_256", 256, DType::BF16),
        square("matmul_bf16_1024", 1024, DType::BF16),
        square("matmul_bf16_2048", 2048, DType::BF16),
        row("linear_bf16_512x1024x1024", "F.linear(x, y)", layer, with_transposed)
            .half(DType::BF16)
            .flop(2 * 512 * 1024 * 1024),
        square("matmul_f16_1024", 1024, DType::F16),
    ]
}

fn more_pointwise() -> Vec<Case> {
    const GATED: &[usize] = &[4096, 2048];
    let branches: Build = |x| {
        let within = x[0].mul(&x[1])?.clamp(0.1, 0.8);
        let chosen = x[0].gt_scalar(0.5).where_cond(&within, &x[0].neg().exp())?;
        one(chosen.mul(&x[1])?.add(&x[0].sqrt()))
    };
    let where_torch = "torch.where(x > 0.5, (x * y).clamp(0.1, 0.8), (-x).exp()) * y + x.sqrt()";
    let concat: Build = |x| one(Tensor::concat(&x.iter().collect::<Vec<_>>(), 1));
    let parts = vec![rand(MIDDLE), rand(MIDDLE), rand(MIDDLE), rand(MIDDLE)];
    let dropout: Build =
        |x| one(nn::functional::dropout(&x[0], 0.5, true, &Generator::seed(1, &x[0].device())));
    vec![
        row("more_chain_where_10M", where_torch, vec![rand(VECTOR), rand(VECTOR)], branches)
            .pointwise()
            .case()
            .elements(3 * N),
        row("more_concat_4x64x128x512", "torch.cat((x, y, z, w), 1)", parts, concat)
            .loose(0.0)
            .case()
            .elements(8 * numel(MIDDLE)),
        row("gelu_10M", "F.gelu(x)", vec![centred(VECTOR)], |x| Ok(vec![x[0].gelu()]))
            .pointwise()
            .case()
            .elements(2 * N),
        row("dropout_10M", "F.dropout(x, 0.5, True)", vec![centred(VECTOR)], dropout)
            .check(Check::Law(laws::is_half_dropped))
            .case()
            .elements(2 * N),
        // Forward reads both inputs and the weights; backward reads them again, and writes two gradients.
        row("silu_mul_4096x2048_fwd_bwd", "F.silu(x) * y", vec![centred(GATED), centred(GATED)], |x| {
            one(x[0].silu().mul(&x[1]))
        })
        .gradients(GATED)
        .loose(0.1)
        .case()
        .elements(8 * numel(GATED)),
    ]
}

/// Reductions, cumulative operations and sorts along an axis, and rows picked by index.
fn more_along_axes() -> Vec<Case> {
    let along = |name, torch, shape, build| row(name, torch, vec![rand(shape)], build);
    let cumsum0: Build = |x| one(x[0].cumsum(0));
    // PyTorch leaves open which of equal elements its index names.
    let topk =
        |name, torch, shape, build| along(name, torch, shape, build).check(Check::Law(laws::is_chosen));
    let table = || rand(&[50_000, 256]);
    let picked = || large(&[8192], Fill::Index(50_000));
    let select: Build = |x| one(x[0].index_select(0, &x[1]));
    let sort0: Build = |x| two(x[0].sort(0, false)?);
    vec![
        along("more_sum_axis1_64x128x512", "x.sum(1)", MIDDLE, |x| one(x[0].sum_axis(1, false)))
            .case()
            .elements(64 * 512 * 129),
        along("more_var_axis1_4096", "x.var(1)", SQUARE, |x| one(x[0].var_axis(1, 1.0, false)))
            .case()
            .elements(4096 * 4097),
        along("more_cumsum_10M", "x.cumsum(0)", VECTOR, cumsum0).case().elements(2 * N),
        along("more_cumsum_axis0_4096", "x.cumsum(0)", SQUARE, cumsum0).case().elements(2 * numel(SQUARE)),
        along("more_cumsum_axis1_4096", "x.cumsum(1)", SQUARE, |x| one(x[0].cumsum(1)))
            .case()
            .elements(2 * numel(SQUARE)),
        along("more_cummax_axis1_4096x1000", "x.cummax(1).values", ROWS, |x| Ok(vec![x[0].cummax(1)?.0]))
            .case()
            .elements(2 * numel(ROWS)),
        along("more_sort_1M", "x.sort(dim=0, stable=True)", &[1_000_000], sort0)
            .loose(0.0)
            .case()
            .elements(3_000_000),
        along("more_sort_axis0_1000x4096", "x.sort(dim=0, stable=True)", &[1000, 4096], sort0)
            .loose(0.0)
            .case()
            .elements(3 * 4096 * 1000),
        along("more_sort_axis1_4096x1000", "x.sort(dim=1, stable=True)", ROWS, |x| two(x[0].sort(1, false)?))
            .loose(0.0)
            .case()
            .elements(3 * numel(ROWS)),
        topk("more_topk10_64x50000", "x.topk(10, dim=1)", &[64, 50_000], |x| two(x[0].topk(10, 1, true)?))
            .case()
            .elements(64 * 50_020),
        topk("more_topk50_1M", "x.topk(50)", &[1_000_000], |x| two(x[0].topk(50, 0, true)?))
            .case()
            .elements(1_000_100),
        row("more_index_select_50000x256", "x.index_select(0, y)", vec![table(), picked()], select)
            .loose(0.0)
            .case()
            .elements(2 * 8192 * 256),
        // The gradient of the table is written; what is picked is read, as are the weights, twice.
        row("more_embedding_fwd_bwd_50000x256", "F.embedding(y, x)", vec![table(), picked()], select)
            .gradients(&[8192, 256])
            .loose(0.05)
            .case()
            .elements((50_000 + 4 * 8192) * 256),
    ]
}

fn more_rows() -> Vec<Case> {
    let labels = large(&[1024], Fill::Index(1000));
    // Forward reads the input and the weights; backward reads both again and writes the gradient.
    vec![
        row("more_log_softmax_4096x1000", "F.log_softmax(x, -1)", vec![rand(ROWS)], |x| {
            one(x[0].log_softmax(-1))
        })
        .case()
        .elements(2 * numel(ROWS)),
        row("more_softmax_axis1_64x128x512", "F.softmax(x, 1)", vec![rand(MIDDLE)], |x| one(x[0].softmax(1)))
            .case()
            .elements(2 * numel(MIDDLE)),
        row("more_softmax_fwd_bwd", "F.softmax(x, -1)", vec![rand(ROWS)], softmax)
            .gradients(ROWS)
            .loose(1.0)
            .case()
            .elements(5 * numel(ROWS)),
        row("more_layer_norm_fwd_bwd", LAYER_NORM, vec![rand(WIDE_ROWS)], layer_norm)
            .gradients(WIDE_ROWS)
            .loose(1.0)
            .case()
            .elements(5 * numel(WIDE_ROWS)),
        row(
            "more_cross_entropy_fwd_bwd_1024x1000",
            "F.cross_entropy(x, y.long())",
            vec![rand(&[1024, 1000]), labels],
            |x| one(nn::cross_entropy(&x[0], &x[1])),
        )
        .gradients(&[])
        .case()
        .elements(3 * 1024 * 1000),
    ]
}

fn more_windows() -> Vec<Case> {
    const IMAGES: &[usize] = &[8, 64, 112, 112];
    let block = Convolution {
        name: "conv2d_3x3_8x64x56x56",
        torch: "F.conv2d(x, y, padding=1)",
        input: &[8, 64, 56, 56],
        weight: &[64, 64, 3, 3],
        result: &[8, 64, 56, 56],
        build: |x| convolve(x, 1, 1, 1),
    };
    let point = Convolution {
        name: "conv2d_1x1_8x256x28x28",
        torch: "F.conv2d(x, y)",
        input: &[8, 256, 28, 28],
        weight: &[128, 256, 1, 1],
        result: &[8, 128, 28, 28],
        build: |x| convolve(x, 0, 1, 1),
    };
    let stem = Convolution {
        name: "conv2d_stem_7x7s2_8x3x224x224",
        torch: "F.conv2d(x, y, stride=2, padding=3)",
        input: &[8, 3, 224, 224],
        weight: &[64, 3, 7, 7],
        result: &[8, 64, 112, 112],
        build: |x| convolve(x, 3, 2, 1),
    };
    let depthwise = Convolution {
        name: "conv2d_depthwise_8x96x56x56",
        torch: "F.conv2d(x, y, padding=1, groups=96)",
        input: &[8, 96, 56, 56],
        weight: &[96, 1, 3, 3],
        result: &[8, 96, 56, 56],
        build: |x| convolve(x, 1, 1, 96),
    };
    let line = Convolution {
        name: "conv1d_k5_16x64x1000",
        torch: "F.conv1d(x, y, padding=2)",
        input: &[16, 64, 1000],
        weight: &[64, 64, 5],
        result: &[16, 64, 1000],
        build: |x| {
            one(f::conv1d(&x[0], &x[1], None, ConvOptions { padding: 2.into(), ..Default::default() }))
        },
    };
    let transposed: Build = |x| {
        let options = ConvTransposeOptions { stride: [2, 2], ..Default::default() };
        one(f::conv_transpose2d(&x[0], &x[1], None, options))
    };
    let up = vec![rand(&[8, 64, 28, 28]), rand(&[64, 32, 2, 2])];
    let max: Build = |x| {
        let options = PoolOptions { stride: Some([2, 2]), padding: [1, 1], ..Default::default() };
        one(f::max_pool2d_with(&x[0], [3, 3], options))
    };
    let mean: Build = |x| one(f::avg_pool2d(&x[0], [2, 2]));
    let pooled = &[8, 64, 56, 56];
    vec![
        block.forward(),
        block.backward(),
        point.forward(),
        stem.forward(),
        depthwise.forward(),
        depthwise.backward(),
        line.forward(),
        row("conv_transpose2d_8x64x28x28_fwd_bwd", "F.conv_transpose2d(x, y, stride=2)", up, transposed)
            .gradients(&[8, 32, 56, 56])
            .case()
            .flop(3 * 2 * 8 * 28 * 28 * 64 * 32 * 4),
        row("max_pool2d_8x64x112x112_fwd_bwd", "F.max_pool2d(x, 3, 2, 1)", vec![rand(IMAGES)], max)
            .gradients(pooled)
            .case(),
        row("avg_pool2d_8x64x112x112_fwd_bwd", "F.avg_pool2d(x, 2)", vec![rand(IMAGES)], mean)
            .gradients(pooled)
            .case(),
    ]
}

/// Normalization with its weights. The input and the weights of the sum are read forward and backward, the
/// gradient of the input is written.
fn norms() -> Vec<Case> {
    const IMAGES: &[usize] = &[8, 64, 56, 56];
    let images = || vec![centred(IMAGES), centred(&[64]), centred(&[64])];
    let batch: Build = |x| one(f::batch_norm(&x[0], None, None, Some(&x[1]), Some(&x[2]), true, 0.1, 1e-5));
    let group: Build = |x| one(f::group_norm(&x[0], 8, Some(&x[1]), Some(&x[2]), 1e-5));
    let rms: Build = |x| one(f::rms_norm(&x[0], [1024], Some(&x[1]), Some(f32::EPSILON.into())));
    let batch_torch = "F.batch_norm(x, None, None, y, z, training=True)";
    let rms_torch = "F.rms_norm(x, (1024,), y, 1.1920928955078125e-07)";
    vec![
        row("batch_norm_8x64x56x56_fwd_bwd", batch_torch, images(), batch)
            .gradients(IMAGES)
            .loose(2.5)
            .case()
            .elements(5 * numel(IMAGES)),
        row("group_norm_8x64x56x56_fwd_bwd", "F.group_norm(x, 8, y, z)", images(), group)
            .gradients(IMAGES)
            .loose(2.5)
            .case()
            .elements(5 * numel(IMAGES)),
        row("rms_norm_4096x1024_fwd_bwd", rms_torch, vec![centred(WIDE_ROWS), centred(&[1024])], rms)
            .gradients(WIDE_ROWS)
            .loose(2.5)
            .case()
            .elements(5 * numel(WIDE_ROWS)),
    ]
}

fn attend(x: &[Tensor], is_causal: bool) -> taper::Result<Vec<Tensor>> {
    let options = AttentionOptions { is_causal, ..Default::default() };
    one(scaled_dot_product_attention(&x[0], &x[1], &x[2], options))
}

/// Attention of queries, keys and values `[batch, heads, length, 64]`.
fn attention() -> Vec<Case> {
    const QUERIES: &[usize] = &[4, 8, 512, 64];
    const LONG_QUERIES: &[usize] = &[1, 8, 4096, 64];
    let inputs = |shape| vec![centred(shape), centred(shape), centred(shape)];
    let causal: Build = |x| attend(x, true);
    let torch = "F.scaled_dot_product_attention(x, y, z)";
    let causal_torch = "F.scaled_dot_product_attention(x, y, z, is_causal=True)";
    vec![
        row("attention_4x8x512x64", torch, inputs(QUERIES), |x| attend(x, false))
            .case()
            .flop(4 * 4 * 8 * 512 * 512 * 64),
        row("attention_causal_4x8x512x64", causal_torch, inputs(QUERIES), causal).case(),
        row("attention_causal_4x8x512x64_fwd_bwd", causal_torch, inputs(QUERIES), causal)
            .gradients(QUERIES)
            .case(),
        row("attention_causal_1x8x4096x64", causal_torch, inputs(LONG_QUERIES), causal).case(),
    ]
}

fn more_linalg() -> Vec<Case> {
    let square = |n: usize| vec![centred(&[n, n])];
    let definite = |n: usize| vec![large(&[n, n], Fill::Definite)];
    let tall = vec![centred(&[2000, 200]), centred(&[2000, 1])];
    let systems = vec![centred(&[256, 16, 16]), centred(&[256, 16, 1])];
    vec![
        row("qr_1000", "L.qr(x)", square(1000), |x| two(linalg::qr(&x[0], QrMode::Reduced)?))
            .check(Check::Law(laws::is_qr))
            .linalg(),
        row("cholesky_1000", "L.cholesky(x)", definite(1000), |x| one(linalg::cholesky(&x[0], false)))
            .loose(1.0)
            .linalg(),
        row("eigh_500", "L.eigh(x)", definite(500), |x| two(linalg::eigh(&x[0], Uplo::Lower)?))
            .check(Check::Law(laws::is_eigh))
            .linalg(),
        row("inv_1000", "L.inv(x)", definite(1000), |x| one(linalg::inv(&x[0]))).loose(1.0).linalg(),
        row("slogdet_1000", "L.slogdet(x)", definite(1000), |x| two(linalg::slogdet(&x[0])?))
            .loose(1.0)
            .linalg(),
        row("lstsq_2000x200", "L.lstsq(x, y).solution", tall, |x| {
            Ok(vec![linalg::lstsq(&x[0], &x[1], None)?.solution])
        })
        .loose(10.0)
        .linalg(),
        row("svd_batch_64x32x32", "L.svd(x)", vec![centred(&[64, 32, 32])], svd)
            .check(Check::Law(laws::is_svd))
            .linalg(),
        row("solve_batch_256x16", "L.solve(x, y)", systems, solve).check(Check::Law(laws::solves)).linalg(),
        // The errors of an inverse grow with the condition of the matrix, here some hundreds.
        row("pinv_200_fwd_bwd", "L.pinv(x)", square(200), pinv).gradients(&[200, 200]).loose(500.0).linalg(),
    ]
}
