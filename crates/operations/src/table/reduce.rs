//! Reductions, and what goes along an axis.

use taper::{Tensor, tensor_core::CumulativeOp};

use crate::row::{
    DTypes::{All, Bool, Numbers},
    Row, one,
};

const DEEP: [&[usize]; 1] = [&[2, 3, 4]];

#[rustfmt::skip] // a line a row
pub(super) fn rows() -> Vec<Row> {
    vec![
        one("sum", "torch.sum(x)", Tensor::sum).of(All).pointwise(),
        one("sum_axis", "torch.sum(x, (0, 2), keepdim=True)", |x| x.sum_axis([0, 2], true)).shapes(DEEP).of(All)
            .bad(|x| x[0].sum_axis([0, 3], true)),
        one("sum_axis", "torch.sum(x, 1)", |x| x.sum_axis(1, false)).of(All),
        one("mean", "torch.mean(x)", Tensor::mean).pointwise(),
        one("mean_axis", "torch.mean(x, (1, 2))", |x| x.mean_axis([1, 2], false)).shapes(DEEP).bad(|x| x[0].mean_axis(3, false)),
        one("prod_axis", "torch.prod(x, 1, keepdim=True)", |x| x.prod_axis(1, true)).of(Numbers)
            .bad(|x| x[0].prod_axis(2, false)),
        one("any", "torch.any(x)", Tensor::any).of(All).order(0).pointwise(),
        one("all", "torch.all(x)", Tensor::all).of(All).order(0).pointwise(),
        one("any", "torch.any(x)", Tensor::any).of(Bool).exactly(0, &[0.0]),
        one("max", "torch.amax(x)", Tensor::max).of(Numbers).bad(|x| x[0].narrow(0, 0, 0)?.max()),
        one("min", "torch.amin(x)", Tensor::min).of(Numbers).bad(|x| x[0].narrow(0, 0, 0)?.min()),
        one("amax", "torch.amax(x, (0, 2))", |x| x.amax([0, 2], false)).shapes(DEEP).of(Numbers).bad(|x| x[0].amax(3, false)),
        one("amin", "torch.amin(x, 1, keepdim=True)", |x| x.amin(1, true)).of(Numbers).bad(|x| x[0].amin(2, false)),
        one("argmax", "torch.argmax(x)", Tensor::argmax).of(Numbers).order(0).bad(|x| x[0].narrow(0, 0, 0)?.argmax()),
        one("argmin", "torch.argmin(x)", Tensor::argmin).of(Numbers).order(0).bad(|x| x[0].narrow(0, 0, 0)?.argmin()),
        one("argmax_axis", "torch.argmax(x, 1)", |x| x.argmax_axis(1, false)).of(Numbers).order(0)
            .bad(|x| x[0].argmax_axis(2, false)),
        one("argmin_axis", "torch.argmin(x, 0, keepdim=True)", |x| x.argmin_axis(0, true)).of(Numbers).order(0)
            .bad(|x| x[0].argmin_axis(2, false)),
        one("var_axis", "torch.var(x, 1, correction=1)", |x| x.var_axis(1, 1.0, false)).stepwise().bad(|x| x[0].var_axis(2, 1.0, false)),
        one("var_axis", "torch.var(x, (0, 2), correction=0)", |x| x.var_axis([0, 2], 0.0, false)).shapes(DEEP).stepwise(),
        one("std_axis", "torch.std(x, 1, correction=1, keepdim=True)", |x| x.std_axis(1, 1.0, true)).stepwise()
            .bad(|x| x[0].std_axis(2, 1.0, false)),
        one("logsumexp", "torch.logsumexp(x, (0, 1))", |x| x.logsumexp([0, 1], false)).bad(|x| x[0].logsumexp(2, false)),
    ]
}

#[rustfmt::skip]
pub(super) fn along() -> Vec<Row> {
    vec![
        one("cumsum", "torch.cumsum(x, 1)", |x| x.cumsum(1)).of(All).bad(|x| x[0].cumsum(2)),
        one("cumprod", "torch.cumprod(x, 0)", |x| x.cumprod(0)).of(Numbers).bad(|x| x[0].cumprod(2)),
        one("logcumsumexp", "torch.logcumsumexp(x, 1)", |x| x.logcumsumexp(1)).bad(|x| x[0].logcumsumexp(2)),
        one("cummax", "torch.cummax(x, 1)", |x| x.cummax(1)).of(Numbers).bad(|x| x[0].cummax(2)),
        one("cummin", "torch.cummin(x, 0)", |x| x.cummin(0)).of(Numbers).bad(|x| x[0].cummin(2)),
        one("cumulative", "torch.cumsum(x.flip(1), 1).flip(1)", |x| x.cumulative(CumulativeOp::Sum, 1, true)).of(All),
        one("cumulative", "torch.cumprod(x.flip(0), 0).flip(0)", |x| x.cumulative(CumulativeOp::Prod, 0, true)).of(Numbers),
        one("cumulative", "torch.logcumsumexp(x.flip(0), 0).flip(0)", |x| x.cumulative(CumulativeOp::LogSumExp, 0, true)),
        one("sort", "torch.sort(x, dim=1, stable=True)", |x| x.sort(1, false)).of(Numbers).bad(|x| x[0].sort(2, false)),
        one("sort", "torch.sort(x, dim=0, descending=True, stable=True)", |x| x.sort(0, true)).of(Numbers),
        one("argsort", "torch.argsort(x, dim=1, stable=True)", |x| x.argsort(1, false)).of(Numbers).order(0).bad(|x| x[0].argsort(2, false)),
        one("topk", "torch.topk(x, 2, 1)", |x| x.topk(2, 1, true)).of(Numbers).bad(|x| x[0].topk(5, 1, true)),
        one("topk", "torch.topk(x, 2, 0, largest=False)", |x| x.topk(2, 0, false)).of(Numbers),
    ]
}
