//! Functions that create tensors.

use taper::Tensor;

use crate::row::{DTypes, Row, make, one};

pub(super) fn rows() -> Vec<Row> {
    vec![
        make("zeros", "torch.zeros(2, 3)", |o| Tensor::zeros((2, 3), o)),
        make("ones", "torch.ones(2, 3)", |o| Tensor::ones((2, 3), o)),
        make("full", "torch.full((2, 3), 5)", |o| Tensor::full((2, 3), 5, o)),
        make("arange", "torch.arange(1, 8, 2)", |o| Tensor::arange(1, 8, 2, o)).of(DTypes::Numbers),
        make("arange", "torch.arange(-1, 2, 0.5)", |o| Tensor::arange(-1.0, 2.0, 0.5, o)).of(DTypes::Floats),
        make("linspace", "torch.linspace(-1, 2, 7)", |(t, d)| Tensor::linspace(-1.0, 2.0, 7, (t, d)))
            .of(DTypes::Floats),
        make("logspace", "torch.logspace(-1, 2, 7, 3)", |o| Tensor::logspace(-1.0, 2.0, 7, 3.0, o))
            .of(DTypes::Floats),
        make("hann_window", "torch.hann_window(7)", |o| Tensor::hann_window(7, true, o)).of(DTypes::Floats),
        make("hann_window", "torch.hann_window(8, False)", |o| Tensor::hann_window(8, false, o))
            .of(DTypes::Floats),
        make("hamming_window", "torch.hamming_window(7, True, 0.6, 0.4)", |o| {
            Tensor::hamming_window(7, true, 0.6, 0.4, o)
        })
        .of(DTypes::Floats),
        make("blackman_window", "torch.blackman_window(7)", |o| Tensor::blackman_window(7, true, o))
            .of(DTypes::Floats),
        make("bartlett_window", "torch.bartlett_window(7)", |o| Tensor::bartlett_window(7, true, o))
            .of(DTypes::Floats),
        make("kaiser_window", "torch.kaiser_window(7, True, 12.0)", |o| {
            Tensor::kaiser_window(7, true, 12.0, o)
        })
        .of(DTypes::Floats),
        make("kaiser_window", "torch.kaiser_window(6, False, 30.0)", |o| {
            Tensor::kaiser_window(6, false, 30.0, o)
        })
        .of(DTypes::Floats),
        make("cosine_window", "torch.signal.windows.cosine(7)", |o| Tensor::cosine_window(7, false, o))
            .of(DTypes::Floats),
        make("cosine_window", "torch.signal.windows.cosine(6, sym=False)", |o| {
            Tensor::cosine_window(6, true, o)
        })
        .of(DTypes::Floats),
        make("cosine_window", "torch.signal.windows.cosine(1, sym=False)", |o| {
            Tensor::cosine_window(1, true, o)
        })
        .of(DTypes::Floats),
        make("exponential_window", "torch.signal.windows.exponential(1, sym=False)", |o| {
            Tensor::exponential_window(1, true, None, 1.0, o)
        })
        .of(DTypes::Floats),
        make("exponential_window", "torch.signal.windows.exponential(1, center=2.0, sym=False)", |o| {
            Tensor::exponential_window(1, true, Some(2.0), 1.0, o)
        })
        .of(DTypes::Floats),
        make("gaussian_window", "torch.signal.windows.gaussian(1, sym=False)", |o| {
            Tensor::gaussian_window(1, true, 1.0, o)
        })
        .of(DTypes::Floats),
        make("exponential_window", "torch.signal.windows.exponential(7, tau=2.5)", |o| {
            Tensor::exponential_window(7, false, None, 2.5, o)
        })
        .of(DTypes::Floats)
        .bad(|_| Tensor::exponential_window(7, false, Some(1.0), 2.5, &taper::cpu())),
        make(
            "exponential_window",
            "torch.signal.windows.exponential(6, center=1.0, tau=2.5, sym=False)",
            |o| Tensor::exponential_window(6, true, Some(1.0), 2.5, o),
        )
        .of(DTypes::Floats),
        make("gaussian_window", "torch.signal.windows.gaussian(7, std=1.5)", |o| {
            Tensor::gaussian_window(7, false, 1.5, o)
        })
        .of(DTypes::Floats)
        .bad(|_| Tensor::gaussian_window(7, false, 0.0, &taper::cpu())),
        make("gaussian_window", "torch.signal.windows.gaussian(6, std=2.0, sym=False)", |o| {
            Tensor::gaussian_window(6, true, 2.0, o)
        })
        .of(DTypes::Floats),
        make("general_cosine_window", "torch.signal.windows.general_cosine(7, a=[0.5, 0.25, 0.125])", |o| {
            Tensor::general_cosine_window(7, false, &[0.5, 0.25, 0.125], o)
        })
        .of(DTypes::Floats)
        .bad(|_| Tensor::general_cosine_window(7, false, &[], &taper::cpu())),
        make("nuttall_window", "torch.signal.windows.nuttall(8, sym=False)", |o| {
            Tensor::nuttall_window(8, true, o)
        })
        .of(DTypes::Floats),
        make("eye", "torch.eye(3)", |o| Tensor::eye(3, o)),
        one("zeros_like", "torch.zeros_like(x)", Tensor::zeros_like).of(DTypes::All).order(0).pointwise(),
        one("ones_like", "torch.ones_like(x)", Tensor::ones_like).of(DTypes::All).order(0).pointwise(),
        one("full_like", "torch.full_like(x, 3)", |x| x.full_like(3)).of(DTypes::All).order(0).pointwise(),
        make("tril_indices", "torch.tril_indices(3, 4, 1)", |(_, d)| Tensor::tril_indices(3, 4, 1, d))
            .of(DTypes::Ints),
        make("triu_indices", "torch.triu_indices(3, 4, -1)", |(_, d)| Tensor::triu_indices(3, 4, -1, d))
            .of(DTypes::Ints),
    ]
}
