//! Reductions, and operations along an axis.

use taper::{Bins, HistogramOptions, Interpolation, Tensor, tensor_core::CumulativeOp};

use crate::row::{
    DTypes::{self, All, Bool, Ints, Numbers},
    Row, one, three, two,
};

const DEEP: [&[usize]; 1] = [&[2, 3, 4]];
/// Rows of four with one NaN, none, and nothing else.
const WITH_NAN: [f64; 12] =
    [2.0, f64::NAN, -1.0, 0.5, 3.0, -2.0, 1.0, 0.25, f64::NAN, f64::NAN, f64::NAN, f64::NAN];
/// A row with zeros, one of zeros, one of equal magnitudes.
const TIED: [f64; 9] = [3.0, 0.0, -4.0, -0.0, 0.0, 0.0, -2.0, 2.0, -2.0];
const REPEATED: [f64; 12] = [3.0, 1.0, 1.0, 0.0, 2.0, 2.0, 2.0, 3.0, 0.0, 0.0, 1.0, 1.0];

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
        one("prod", "torch.prod(x)", Tensor::prod).of(Numbers).over(-1.2, 1.5),
        one("prod_axis", "torch.prod(torch.prod(x, 0), 1)", |x| x.prod_axis([0, 2], false)).shapes(DEEP).over(-1.5, 1.5),
        one("any", "torch.any(x)", Tensor::any).of(All).order(0).pointwise(),
        one("all", "torch.all(x)", Tensor::all).of(All).order(0).pointwise(),
        one("any", "torch.any(x)", Tensor::any).of(Bool).exactly(0, &[0.0]),
        one("any_axis", "torch.any(x, (0, 2))", |x| x.any_axis([0, 2], false)).shapes(DEEP).of(Bool).bad(|x| x[0].any_axis(3, false)),
        one("any_axis", "torch.any(x, 1, keepdim=True)", |x| x.any_axis(1, true)).of(All).over(-0.7, 0.7).order(0),
        one("all_axis", "torch.all(x, (0, 2))", |x| x.all_axis([0, 2], false)).shapes(DEEP).of(Bool).bad(|x| x[0].all_axis(3, false)),
        one("all_axis", "torch.all(x, 1, keepdim=True)", |x| x.all_axis(1, true)).of(All).over(-0.7, 0.7).order(0),
        one("count_nonzero", "torch.count_nonzero(x, (0, 2))", |x| x.count_nonzero([0, 2])).shapes(DEEP).of(All).over(-0.7, 0.7).order(0)
            .bad(|x| x[0].count_nonzero(3)),
        one("count_nonzero", "torch.count_nonzero(x)", |x| x.count_nonzero(..)).of(All).exactly(0, &[0.0, 1.0, -0.0, 2.0, f64::NAN]).order(0)
            .of(DTypes::Floats),
        one("max", "torch.amax(x)", Tensor::max).of(Numbers).bad(|x| x[0].narrow(0, 0, 0)?.max()),
        one("min", "torch.amin(x)", Tensor::min).of(Numbers).bad(|x| x[0].narrow(0, 0, 0)?.min()),
        one("amax", "torch.amax(x, (0, 2))", |x| x.amax([0, 2], false)).shapes(DEEP).of(Numbers).bad(|x| x[0].amax(3, false)),
        one("amin", "torch.amin(x, 1, keepdim=True)", |x| x.amin(1, true)).of(Numbers).bad(|x| x[0].amin(2, false)),
        one("aminmax", "torch.aminmax(x, dim=1, keepdim=True)", |x| x.aminmax(1, true)).of(Numbers).bad(|x| x[0].aminmax(2, false)),
        one("aminmax", "torch.aminmax(x)", |x| x.aminmax(.., false)).of(Numbers),
        one("amax", "torch.amax(x, (0, 1))", |x| x.amax([0, 1], false)).shapes([&[2, 3]]).exactly(0, &[1.0, 2.0, 2.0, -1.0, 2.0, 0.0]).kinks()
            .note("equal elements share the gradient"),
        one("aminmax", "torch.amin(x, 1), torch.amax(x, 1)", |x| x.aminmax(1, false)).shapes([&[2, 3]]).exactly(0, &[1.0, 2.0, 2.0, -1.0, -1.0, 0.0]).kinks(),
        one("max_axis", "torch.max(x, 1)", |x| x.max_axis(1, false)).of(Numbers).bad(|x| x[0].max_axis(2, false)),
        one("max_axis", "torch.max(x, 0, keepdim=True)", |x| x.max_axis(0, true)).shapes([&[3, 2]]).exactly(0, &[1.0, f64::NAN, 2.0, 5.0, 2.0, f64::NAN]).kinks(),
        one("min_axis", "torch.min(x, 1)", |x| x.min_axis(1, false)).of(Numbers).bad(|x| x[0].min_axis(2, false)),
        one("argmax", "torch.argmax(x)", Tensor::argmax).of(Numbers).order(0).bad(|x| x[0].narrow(0, 0, 0)?.argmax()),
        one("argmin", "torch.argmin(x)", Tensor::argmin).of(Numbers).order(0).bad(|x| x[0].narrow(0, 0, 0)?.argmin()),
        one("argmax_axis", "torch.argmax(x, 1)", |x| x.argmax_axis(1, false)).of(Numbers).order(0)
            .bad(|x| x[0].argmax_axis(2, false)),
        one("argmin_axis", "torch.argmin(x, 0, keepdim=True)", |x| x.argmin_axis(0, true)).of(Numbers).order(0)
            .bad(|x| x[0].argmin_axis(2, false)),
        one("logsumexp", "torch.logsumexp(x, (0, 1))", |x| x.logsumexp([0, 1], false)).bad(|x| x[0].logsumexp(2, false)),
        one("nansum", "torch.nansum(x, (0, 2), keepdim=True)", |x| x.nansum([0, 2], true)).shapes(DEEP).bad(|x| x[0].nansum(3, false)),
        one("nansum", "torch.nansum(x, 1)", |x| x.nansum(1, false)).exactly(0, &WITH_NAN).kinks(),
        one("nanmean", "torch.nanmean(x, 1)", |x| x.nanmean(1, false)).bad(|x| x[0].nanmean(2, false)),
        one("nanmean", "torch.nanmean(x, 1, keepdim=True)", |x| x.nanmean(1, true)).shapes([&[2, 4]]).exactly(0, &WITH_NAN).kinks(),
        one("nanmean", "torch.nanmean(x, 1, keepdim=True)", |x| x.nanmean(1, true)).exactly(0, &WITH_NAN).order(0),
        one("trace", "torch.trace(x)", Tensor::trace).of(Numbers).bad(|x| x[0].unsqueeze(0)?.trace()),
        one("trace", "torch.trace(x)", Tensor::trace).shapes([&[5, 3]]),
        one("vector_norm", "torch.linalg.vector_norm(x, 2, (0, 2), keepdim=True)", |x| x.vector_norm(2, [0, 2], true)).shapes(DEEP)
            .bad(|x| x[0].vector_norm(2, 3, false)),
        one("vector_norm", "torch.linalg.vector_norm(x, 1, 1)", |x| x.vector_norm(1, 1, false)),
        one("vector_norm", "torch.linalg.vector_norm(x, 3)", |x| x.vector_norm(3, .., false)).over(0.1, 2.0)
            .bad(|x| x[0].to_dtype(taper::DType::I32)?.vector_norm(2, .., false)),
        one("vector_norm", "torch.linalg.vector_norm(x, 0.5, 1)", |x| x.vector_norm(0.5, 1, false)),
        one("vector_norm", "torch.linalg.vector_norm(x, -1.5, 1)", |x| x.vector_norm(-1.5, 1, false)).over(0.3, 2.0),
        one("vector_norm", "torch.linalg.vector_norm(x, 0, 1)", |x| x.vector_norm(0, 1, false)).exactly(0, &[0.0, 1.0, -0.0, 2.0, 0.0]).order(0),
        one("vector_norm", "torch.linalg.vector_norm(x, math.inf, 1)", |x| x.vector_norm(f64::INFINITY, 1, false))
            .bad(|x| x[0].narrow(0, 0, 0)?.vector_norm(f64::INFINITY, .., false)),
        one("vector_norm", "torch.linalg.vector_norm(x, -math.inf, 1)", |x| x.vector_norm(f64::NEG_INFINITY, 1, false)),
        one("vector_norm", "torch.linalg.vector_norm(x, 2, 1)", |x| x.vector_norm(2, 1, false)).shapes([&[3, 3]]).exactly(0, &TIED).kinks(),
        one("vector_norm", "torch.linalg.vector_norm(x, 1, 1)", |x| x.vector_norm(1, 1, false)).shapes([&[3, 3]]).exactly(0, &TIED).kinks(),
        one("vector_norm", "torch.linalg.vector_norm(x, 3, 1)", |x| x.vector_norm(3, 1, false)).shapes([&[3, 3]]).exactly(0, &TIED).kinks(),
        one("vector_norm", "torch.linalg.vector_norm(x, math.inf, 1)", |x| x.vector_norm(f64::INFINITY, 1, false)).shapes([&[3, 3]]).exactly(0, &TIED).kinks(),
        one("vector_norm", "torch.linalg.vector_norm(x, 0, 1)", |x| x.vector_norm(0, 1, false)).shapes([&[3, 3]]).exactly(0, &TIED).kinks(),
        two("dist", "torch.dist(x, y, 2)", |x, y| x.dist(y, 2)).bad(|x| x[0].dist(&x[1].narrow(0, 0, 3)?, 2)),
        two("dist", "torch.dist(x, y, 3)", |x, y| x.dist(y, 3)),
        one("renorm", "torch.renorm(x, 2, 0, 2.0)", |x| x.renorm(2, 0, 2.0)).bad(|x| x[0].renorm(0, 0, 2.0)),
        one("renorm", "torch.renorm(x, 1, 1, 3.0)", |x| x.renorm(1, 1, 3.0)).shapes(DEEP).bad(|x| x[0].renorm(1, 3, 3.0)),
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

/// Weights of four observations.
fn weights(x: &Tensor) -> taper::Result<Tensor> {
    Tensor::new([0.5f32, 1.0, 2.0, 0.25], &x.device())?.to_dtype(x.dtype())
}

/// Moments, ranks, counts.
#[rustfmt::skip]
pub(super) fn statistics() -> Vec<Row> {
    use Interpolation::{Higher, Linear, Lower, Midpoint, Nearest};
    const Q: [f64; 3] = [0.1, 0.5, 0.8];
    vec![
        one("var_axis", "torch.var(x, 1, correction=1)", |x| x.var_axis(1, 1.0, false)).bad(|x| x[0].var_axis(2, 1.0, false)),
        one("var_axis", "torch.var(x, (0, 2), correction=0)", |x| x.var_axis([0, 2], 0.0, false)).shapes(DEEP),
        one("std_axis", "torch.std(x, 1, correction=1, keepdim=True)", |x| x.std_axis(1, 1.0, true))
            .bad(|x| x[0].std_axis(2, 1.0, false)),
        one("var_mean", "torch.var_mean(x, (0, 2), correction=1)", |x| x.var_mean([0, 2], 1.0, false)).shapes(DEEP)
            .bad(|x| x[0].var_mean(3, 1.0, false)),
        one("std_mean", "torch.std_mean(x, correction=0)", |x| x.std_mean(.., 0.0, false)).bad(|x| x[0].std_mean(2, 1.0, false)),
        one("cov", "torch.cov(x)", |x| x.cov(1.0)).bad(|x| x[0].unsqueeze(0)?.cov(1.0)),
        one("cov", "torch.cov(x, correction=0)", |x| x.cov(0.0)).shapes([&[7]]),
        one("cov", "torch.cov(x)", |x| x.cov(1.0)).shapes([&[1, 5]]),
        one("corrcoef", "torch.corrcoef(x)", Tensor::corrcoef).shapes([&[1, 5]]).order(0).no_ties(),
        two("cov_weighted", "torch.cov(x, fweights=y)", |x, y| x.cov_weighted(1.0, Some(y), None)).index(1, &[1, 3, 0, 2])
            .bad(|x| x[0].cov_weighted(1.0, Some(&x[0]), None)),
        two("cov_weighted", "torch.cov(x, fweights=y, aweights=torch.tensor([0.5, 1.0, 2.0, 0.25]).to(x))", |x, y| x.cov_weighted(1.0, Some(y), Some(&weights(x)?)))
            .index(1, &[1, 3, 2, 2]).bad(|x| x[0].cov_weighted(1.0, Some(&x[1].narrow(0, 0, 3)?), None)),
        one("cov_weighted", "torch.cov(x, correction=0, aweights=torch.tensor([0.5, 1.0, 2.0, 0.25]).to(x))", |x| x.cov_weighted(0.0, None, Some(&weights(x)?)))
            .shapes([&[4]]),
        one("corrcoef", "torch.corrcoef(x)", Tensor::corrcoef).no_ties().bad(|x| x[0].unsqueeze(0)?.corrcoef()),
        one("median", "torch.median(x)", Tensor::median).of(Numbers).bad(|x| x[0].narrow(0, 0, 0)?.median()),
        one("median_axis", "torch.median(x, 1)", |x| x.median_axis(1, false)).of(Numbers).no_ties().bad(|x| x[0].median_axis(2, false)),
        one("median_axis", "torch.median(x, 0, keepdim=True)", |x| x.median_axis(0, true)).no_ties(),
        one("median_axis", "torch.median(x, 1)", |x| x.median_axis(1, false)).exactly(0, &WITH_NAN).order(0),
        one("nanmedian", "torch.nanmedian(x)", Tensor::nanmedian).of(Numbers),
        one("nanmedian", "torch.nanmedian(x)", Tensor::nanmedian).exactly(0, &WITH_NAN).order(0).bad(|x| x[0].narrow(0, 0, 0)?.nanmedian()),
        one("nanmedian_axis", "torch.nanmedian(x, 1)", |x| x.nanmedian_axis(1, false)).of(Numbers).no_ties().bad(|x| x[0].nanmedian_axis(2, false)),
        one("nanmedian_axis", "torch.nanmedian(x, 1, keepdim=True)[0]", |x| x.nanmedian_axis(1, true).map(|r| r.0)).exactly(0, &WITH_NAN).order(0),
        one("kthvalue", "torch.kthvalue(x, 3, 1)", |x| x.kthvalue(3, 1, false)).of(Numbers).no_ties().bad(|x| x[0].kthvalue(5, 1, false)),
        one("kthvalue", "torch.kthvalue(x, 1, 0, keepdim=True)", |x| x.kthvalue(1, 0, true)).no_ties().bad(|x| x[0].kthvalue(0, 0, false)),
        one("mode", "torch.mode(x, 1)", |x| x.mode(1, false)).shapes([&[3, 6]]).of(Numbers).order(0)
            .exactly(0, &[2.0, 1.0, 2.0, 1.0, 3.0, 0.0, 5.0, 5.0, 4.0, 4.0, 4.0, 5.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
            .bad(|x| x[0].mode(2, false)),
        one("mode", "torch.mode(x, 0, keepdim=True)[0]", |x| x.mode(0, true).map(|r| r.0)),
        one("quantile", "torch.quantile(x, 0.3, dim=1)", |x| x.quantile(0.3, 1, false)).bad(|x| x[0].quantile(1.5, 1, false)),
        one("quantile", "torch.quantile(x, 0.3, keepdim=True)", |x| x.quantile(0.3, .., true)).bad(|x| x[0].quantile(0.5, 2, false)),
        one("quantile", "torch.quantile(x, 0.25, dim=1)", |x| x.quantile(0.25, 1, false)).exactly(0, &WITH_NAN).order(0),
        one("quantiles", "torch.quantile(x, torch.tensor([0.1, 0.5, 0.8]), dim=1, keepdim=True)", |x| x.quantiles(&Q, 1, Linear, true))
            .bad(|x| x[0].quantiles(&[], 1, Linear, true)),
        one("quantiles", "torch.quantile(x, torch.tensor([0.1, 0.5, 0.8]), dim=1, interpolation='lower')", |x| x.quantiles(&Q, 1, Lower, false)),
        one("quantiles", "torch.quantile(x, torch.tensor([0.1, 0.5, 0.8]), dim=1, interpolation='higher')", |x| x.quantiles(&Q, 1, Higher, false)),
        one("quantiles", "torch.quantile(x, torch.tensor([0.1, 0.5, 0.8]), dim=1, interpolation='nearest')", |x| x.quantiles(&Q, 1, Nearest, false)),
        one("quantiles", "torch.quantile(x, torch.tensor([0.1, 0.5, 0.8]), dim=1, interpolation='midpoint')", |x| x.quantiles(&Q, 1, Midpoint, false)),
        one("nanquantile", "torch.nanquantile(x, 0.3, dim=1)", |x| x.nanquantile(0.3, 1, false)).bad(|x| x[0].nanquantile(-0.5, 1, false)),
        one("nanquantile", "torch.nanquantile(x, 0.3, dim=1, keepdim=True)", |x| x.nanquantile(0.3, 1, true)).exactly(0, &WITH_NAN).order(0),
        one("nanquantiles", "torch.nanquantile(x, torch.tensor([0.1, 0.5, 0.8]), dim=1, interpolation='nearest')",
            |x| x.nanquantiles(&Q, 1, Nearest, false)).exactly(0, &WITH_NAN).order(0).bad(|x| x[0].nanquantiles(&[], 1, Linear, true)),
        one("nanquantiles", "torch.nanquantile(x, torch.tensor([0.1, 0.5, 0.8]), dim=1, interpolation='midpoint')",
            |x| x.nanquantiles(&Q, 1, Midpoint, false)),
        two("quantiles_at", "torch.quantile(x, y, dim=1)", |x, y| x.quantiles_at(y, 1, Linear, false)).shapes([&[3, 5], &[3]]).exactly(1, &[0.1, 0.55, 0.8])
            .bad(|x| x[0].quantiles_at(&x[0], 1, Linear, false)),
        two("quantiles_at", "torch.quantile(x, y.reshape(()), keepdim=True)", |x, y| x.quantiles_at(&y.reshape(())?, .., Linear, true)).shapes([&[3, 5], &[1]]).exactly(1, &[0.3])
            .bad(|x| x[0].quantiles_at(&x[1].add_scalar(2.0), 1, Linear, false)),
        two("nanquantiles_at", "torch.nanquantile(x, y, dim=1)", |x, y| x.nanquantiles_at(y, 1, Linear, false)).shapes([&[2, 4], &[3]])
            .exactly(0, &[1.0, f64::NAN, 3.0, 2.0, f64::NAN, 0.5, f64::NAN, -1.5]).exactly(1, &[0.1, 0.55, 0.8])
            .bad(|x| x[0].nanquantiles_at(&x[0], 1, Linear, false)),
        two("quantiles_at", "torch.quantile(x, y, dim=0, interpolation='higher')", |x, y| x.quantiles_at(y, 0, Higher, false)).shapes([&[4, 2], &[2]]).exactly(1, &[0.1, 0.8]),
        one("gradient", "torch.gradient(x, spacing=0.5, dim=1)", |x| x.gradient(&[0.5], 1, 1)).bad(|x| x[0].gradient(&[1.0], 1, 3)),
        one("gradient", "torch.gradient(x, spacing=[2.0, 0.5], edge_order=2)", |x| x.gradient(&[2.0, 0.5], .., 2)).bad(|x| x[0].gradient(&[1.0, 2.0], 0, 1)),
        one("gradient", "torch.gradient(x, dim=0)", |x| x.gradient(&[1.0], 0, 1)).shapes([&[2, 3]]),
        two("gradient_at", "torch.gradient(x, spacing=(y,), dim=1)", |x, y| x.gradient_at(&[y], 1, 1)).shapes([&[3, 4], &[4]])
            .exactly(1, &[-1.0, 0.5, 1.0, 3.0]).bad(|x| x[0].gradient_at(&[&x[1]], 0, 1)),
        two("gradient_at", "torch.gradient(x, spacing=(y,), dim=1, edge_order=2)", |x, y| x.gradient_at(&[y], 1, 2)).shapes([&[3, 4], &[4]])
            .exactly(1, &[-1.0, 0.5, 1.0, 3.0]),
        one("diff", "torch.diff(x)", |x| x.diff(1, -1)).of(All).bad(|x| x[0].diff(1, 2)),
        one("diff", "torch.diff(x, n=2, dim=0)", |x| x.diff(2, 0)).of(Numbers),
        one("diff", "torch.diff(x, n=5, dim=0)", |x| x.diff(5, 0)).order(0),
        one("trapezoid", "torch.trapezoid(x, dx=0.5, dim=0)", |x| x.trapezoid(0.5, 0)).bad(|x| x[0].trapezoid(0.5, 2)),
        two("trapezoid_at", "torch.trapezoid(x, y)", |x, y| x.trapezoid_at(y, -1)).bad(|x| x[0].trapezoid_at(&x[1].narrow(0, 0, 3)?, -1)),
        two("trapezoid_at", "torch.trapezoid(x, y)", |x, y| x.trapezoid_at(y, -1)).shapes([&[3, 4], &[3, 4]]),
        one("cumulative_trapezoid", "torch.cumulative_trapezoid(x, dx=0.5, dim=0)", |x| x.cumulative_trapezoid(0.5, 0))
            .bad(|x| x[0].cumulative_trapezoid(0.5, 2)),
        two("cumulative_trapezoid_at", "torch.cumulative_trapezoid(x, y)", |x, y| x.cumulative_trapezoid_at(y, -1))
            .bad(|x| x[0].cumulative_trapezoid_at(&x[1].narrow(0, 0, 3)?, -1)),
        two("isin", "torch.isin(x, y)", |x, y| x.isin(y)).of(All).exactly(0, &REPEATED).exactly(1, &[1.0, 5.0, 3.0, -0.0]).order(0),
        one("unique", "torch.unique(x)", Tensor::unique).by_value().of(All).exactly(0, &REPEATED).order(0),
        one("unique_all", "torch.unique(x, return_inverse=True, return_counts=True)", Tensor::unique_all).by_value().of(All).exactly(0, &REPEATED).order(0),
        one("unique_all", "torch.unique(x, return_inverse=True, return_counts=True)", Tensor::unique_all).shapes([&[0]]).order(0),
        one("unique_axis", "torch.unique(x, dim=0, return_inverse=True, return_counts=True)", |x| x.unique_axis(0)).by_value().of(All).order(0)
            .shapes([&[6, 2]]).exactly(0, &[1.0, 2.0, 0.0, 3.0, 1.0, 2.0, 1.0, 0.0, 0.0, 3.0, 0.0, 3.0]).bad(|x| x[0].unique_axis(2)),
        one("unique_axis", "torch.unique(x, dim=1, return_inverse=True, return_counts=True)", |x| x.unique_axis(1)).by_value().order(0)
            .shapes([&[2, 3, 2]]).exactly(0, &[1.0, 2.0, 0.0, 3.0, 1.0, 2.0, 1.0, 0.0, 0.0, 3.0, 1.0, 0.0]),
        one("unique_axis", "torch.unique(x, dim=2, return_inverse=True, return_counts=True)", |x| x.unique_axis(2)).by_value().of(All).order(0)
            .shapes([&[2, 2, 4]]).exactly(0, &[0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0]),
        one("unique_consecutive_axis", "torch.unique_consecutive(x, dim=1, return_inverse=True, return_counts=True)", |x| x.unique_consecutive_axis(1))
            .by_value().of(All).order(0).shapes([&[2, 5]]).exactly(0, &[1.0, 1.0, 0.0, 0.0, 1.0, 2.0, 2.0, 0.0, 1.0, 2.0]).bad(|x| x[0].unique_consecutive_axis(2)),
        one("unique_consecutive", "torch.unique_consecutive(x)", Tensor::unique_consecutive).by_value().of(All).exactly(0, &REPEATED).order(0),
        one("unique_consecutive_all", "torch.unique_consecutive(x, return_inverse=True, return_counts=True)", Tensor::unique_consecutive_all).by_value()
            .of(All).exactly(0, &REPEATED).order(0),
        one("bincount", "torch.bincount(x, minlength=6)", |x| x.bincount(6)).of(Ints).shapes([&[8]]).exactly(0, &[1.0, 5.0, 1.0, 0.0, 3.0, 1.0, 3.0, 5.0])
            .bad(|x| x[0].to_dtype(taper::DType::I32)?.bincount(5)),
        one("bincount", "torch.bincount(x)", |x| x.bincount(None)).by_value().of(Ints).shapes([&[8]]).exactly(0, &[1.0, 4.0, 1.0, 0.0, 3.0, 1.0, 3.0, 4.0])
            .bad(|x| x[0].bincount(None)),
        two("bincount_weighted", "torch.bincount(x.long(), y, 7)", |x, y| x.bincount_weighted(y, 7)).shapes([&[8], &[8]])
            .index(0, &[1, 5, 1, 0, 3, 1, 3, 5]).order(0).bad(|x| x[0].bincount_weighted(&x[1].narrow(0, 0, 7)?, None)),
        one("histc", "torch.histc(x, 5, -1.5, 1.5)", |x| x.histc(5, -1.5, 1.5)).shapes([&[5, 8]]).order(0).bad(|x| x[0].histc(0, -1.0, 1.0)),
        one("histc", "torch.histc(x, 4)", |x| x.histc(4, 0.0, 0.0)).exactly(0, &[1.0, 2.0, 3.0, 5.0, 4.0, 2.0]).order(0)
            .bad(|x| x[0].histc(4, 1.0, -1.0)),
        one("histc", "torch.histc(x, 3)", |x| x.histc(3, 0.0, 0.0)).exactly(0, &[2.0]).order(0),
        one("histogram", "torch.histogram(x, 5, range=(-1.5, 1.5))", |x| x.histogram(5, -1.5, 1.5)).shapes([&[5, 8]]).order(0)
            .bad(|x| x[0].histogram(0, -1.0, 1.0)),
        one("histogram", "torch.histogram(x, 4)", |x| x.histogram(4, 0.0, 0.0)).shapes([&[3]]).exactly(0, &[2.0]).order(0)
            .bad(|x| x[0].masked_fill(&x[0].gt_scalar(0.0), f64::INFINITY)?.add_scalar(f64::INFINITY).histogram(4, 0.0, 0.0)),
        one("histogram", "torch.histogram(x, 4)", |x| x.histogram(4, 0.0, 0.0)).shapes([&[0]]).order(0),
        one("histc", "torch.histc(x, 4)", |x| x.histc(4, 0.0, 0.0)).shapes([&[0]]).order(0).bad(|x| Tensor::new([1.0f32, f32::NAN], &x[0].device())?.histc(4, 0.0, 0.0)),
        one("histc", "torch.histc(x, 4, 0, 2)", |x| x.histc(4, 0.0, 2.0)).shapes([&[4]]).exactly(0, &[f64::INFINITY, f64::NAN, 1.0, f64::NEG_INFINITY]).order(0)
            .bad(|x| Tensor::new([1.0f32, f32::INFINITY], &x[0].device())?.histc(4, 0.0, 0.0)),
        one("histogram_with", "torch.histogram(x, 5, range=(-1.5, 1.5), density=True)",
            |x| x.histogram_with(Bins::Between(5, -1.5, 1.5), HistogramOptions { density: true, ..Default::default() })).shapes([&[5, 8]]).order(0)
            .bad(|x| x[0].histogram_with(Bins::Between(5, 1.5, -1.5), HistogramOptions::default())),
        three("histogram_with", "torch.histogram(x, y, weight=z)", |x, y, z| x.histogram_with(Bins::Edges(y), HistogramOptions { weight: Some(z), density: false }))
            .shapes([&[12], &[4], &[12]]).exactly(1, &[-1.5, -0.25, 1.0, 1.75]).order(0)
            .bad(|x| x[0].histogram_with(Bins::Edges(&x[1].narrow(0, 0, 1)?), HistogramOptions::default())),
        three("histogram_with", "torch.histogram(x, y, weight=z, density=True)", |x, y, z| x.histogram_with(Bins::Edges(y), HistogramOptions { weight: Some(z), density: true }))
            .shapes([&[12], &[4], &[12]]).exactly(0, &[-1.5, 1.75, 2.0, 0.0, -0.25, 1.0]).exactly(1, &[-1.5, -0.25, 1.0, 1.75]).exactly(2, &[1.0, 2.0, 0.5]).order(0),
        one("histogramdd", "(lambda r: (r[0], *r[1]))(torch.histogramdd(x, [3, 2], range=[-1.0, 1.0, -1.5, 2.0]))", |x| {
            let (counts, edges) = x.histogramdd(&[Bins::Between(3, -1.0, 1.0), Bins::Between(2, -1.5, 2.0)], HistogramOptions::default())?;
            taper::Result::Ok(std::iter::once(counts).chain(edges).collect::<Vec<_>>())
        }).shapes([&[10, 2]]).order(0).bad(|x| x[0].histogramdd(&[Bins::Count(3)], HistogramOptions::default()).map(|r| r.0)),
        three("histogramdd", "(lambda r: (r[0], *r[1]))(torch.histogramdd(x, [y, torch.tensor([-1.0, 0.5, 2.0]).to(x)], weight=z, density=True))", |x, y, z| {
            let other = Tensor::new([-1.0f32, 0.5, 2.0], &x.device())?.to_dtype(x.dtype())?;
            let bins = [Bins::Edges(y), Bins::Edges(&other)];
            let (counts, edges) = x.histogramdd(&bins, HistogramOptions { weight: Some(z), density: true })?;
            taper::Result::Ok(std::iter::once(counts).chain(edges).collect::<Vec<_>>())
        }).shapes([&[12, 2], &[4], &[12]]).exactly(1, &[-1.5, -0.25, 1.0, 1.75]).exactly(2, &[1.0, 2.0, 0.5]).order(0),
    ]
}
