//! Cases that create tensors at full size. The sizes of rows are given here; random tensors have no row,
//! because there are no numbers to compare.

use taper::{Device, Generator, Tensor, nn::functional as f};
use taper_operations::row::{DTypes, Row, make, one};

const N: usize = 10_000_000;

fn rng(device: &Device) -> Generator {
    Generator::seed(1, device)
}

/// The names of the rows here.
pub(super) fn names() -> Vec<&'static str> {
    rows().iter().map(|(row, _)| row.name).collect()
}

/// The rows, and whether each is random.
#[rustfmt::skip] // a line a row
pub(super) fn rows() -> Vec<(Row, bool)> {
    let made = vec![
        make("zeros", "torch.zeros(10_000_000)", |o| Tensor::zeros(N, o)),
        make("ones", "torch.ones(10_000_000)", |o| Tensor::ones(N, o)),
        make("full", "torch.full((10_000_000,), 5.0)", |o| Tensor::full(N, 5.0, o)),
        make("arange", "torch.arange(10_000_000.0)", |o| Tensor::arange(0, 10_000_000, 1, o)),
        make("linspace", "torch.linspace(-1, 2, 10_000_000)", |o| Tensor::linspace(-1.0, 2.0, N, o)),
        make("logspace", "torch.logspace(-1, 2, 10_000_000, 3)", |o| Tensor::logspace(-1.0, 2.0, N, 3.0, o)),
        make("eye", "torch.eye(3000)", |o| Tensor::eye(3000, o)),
        make("hann_window", "torch.hann_window(1_000_000)", |o| Tensor::hann_window(1_000_000, true, o)),
        make("hamming_window", "torch.hamming_window(1_000_000)", |o| Tensor::hamming_window(1_000_000, true, 0.54, 0.46, o)),
        make("blackman_window", "torch.blackman_window(1_000_000)", |o| Tensor::blackman_window(1_000_000, true, o)),
        make("bartlett_window", "torch.bartlett_window(1_000_000)", |o| Tensor::bartlett_window(1_000_000, true, o)),
        make("kaiser_window", "torch.kaiser_window(1_000_000)", |o| Tensor::kaiser_window(1_000_000, true, 12.0, o)),
        make("tril_indices", "torch.tril_indices(1000, 1000)", |(_, d)| Tensor::tril_indices(1000, 1000, 0, d)),
        make("triu_indices", "torch.triu_indices(1000, 1000)", |(_, d)| Tensor::triu_indices(1000, 1000, 0, d)),
    ];
    let random = vec![
        make("rand", "torch.rand(10_000_000)", |(_, d)| Tensor::rand(N, &rng(d))),
        make("randn", "torch.randn(10_000_000)", |(_, d)| Tensor::randn(N, &rng(d))),
        make("uniform", "torch.empty(10_000_000).uniform_(-1, 2)", |(_, d)| Tensor::uniform(N, -1.0, 2.0, &rng(d))),
        make("randint", "torch.randint(0, 1000, (10_000_000,))", |(_, d)| Tensor::randint(0, 1000, N, &rng(d))),
        make("randperm", "torch.randperm(1_000_000)", |(_, d)| Tensor::randperm(1_000_000, &rng(d))),
        make("exponential", "torch.empty(10_000_000).exponential_(2)", |(_, d)| Tensor::exponential(N, 2.0, &rng(d))),
        make("log_normal", "torch.empty(10_000_000).log_normal_(0, 1)", |(_, d)| Tensor::log_normal(N, 0.0, 1.0, &rng(d))),
        make("cauchy", "torch.empty(10_000_000).cauchy_()", |(_, d)| Tensor::cauchy(N, 0.0, 1.0, &rng(d))),
        make("geometric", "torch.empty(10_000_000).geometric_(0.3)", |(_, d)| Tensor::geometric(N, 0.3, &rng(d))),
        make("truncated_normal", "torch.nn.init.trunc_normal_(torch.empty(10_000_000))",
            |(_, d)| Tensor::truncated_normal(N, 0.0, 1.0, -2.0, 2.0, &rng(d))),
        one("bernoulli", "torch.bernoulli(x)", |x| x.bernoulli(&rng(&x.device()))).over(0.0, 1.0),
        one("poisson", "torch.poisson(x)", |x| x.poisson(&rng(&x.device()))).over(0.5, 8.0),
        one("standard_gamma", "torch._standard_gamma(x)", |x| x.standard_gamma(&rng(&x.device()))).over(0.5, 8.0),
        one("functional::dropout", "F.dropout(x, 0.5, True)", |x| f::dropout(x, 0.5, true, &rng(&x.device()))),
        one("functional::alpha_dropout", "F.alpha_dropout(x, 0.5, True)", |x| f::alpha_dropout(x, 0.5, true, &rng(&x.device()))),
        one("functional::rrelu", "F.rrelu(x, training=True)", |x| f::rrelu(x, 1.0 / 8.0, 1.0 / 3.0, true, &rng(&x.device()))),
    ];
    let made = made.into_iter().map(|row| match row.name {
        "tril_indices" | "triu_indices" => (row.of(DTypes::Ints), false),
        _ => (row.of(DTypes::Floats), false),
    });
    made.chain(random.into_iter().map(|row| (row, true))).collect()
}
