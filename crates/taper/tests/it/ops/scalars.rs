//! 0-d tensors where a function takes an axis: 0 and −1 name the one that a line of one element has, as in
//! PyTorch; others are refused.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::device;
use taper::{
    DType, Interpolation, Result, ScatterReduce, Tensor,
    nn::functional::{cosine_similarity, gumbel_softmax, normalize},
    prelude::*,
    tensor_core::CumulativeOp,
};

type Call = fn(&Tensor, isize) -> Result<Tensor>;

/// The functions along an axis, and what each gives of 2.
const ALONG: &[(&str, Call, f64)] = &[
    ("sum_axis", |x, a| x.sum_axis(a, false), 2.0),
    ("sum_axis, kept", |x, a| x.sum_axis(a, true), 2.0),
    ("mean_axis", |x, a| x.mean_axis(a, false), 2.0),
    ("prod_axis", |x, a| x.prod_axis(a, false), 2.0),
    ("amax", |x, a| x.amax(a, false), 2.0),
    ("amin", |x, a| x.amin(a, true), 2.0),
    ("aminmax", |x, a| Ok(x.aminmax(a, false)?.1), 2.0),
    ("max_axis", |x, a| Ok(x.max_axis(a, false)?.0), 2.0),
    ("max_axis, index", |x, a| Ok(x.max_axis(a, true)?.1), 0.0),
    ("min_axis", |x, a| Ok(x.min_axis(a, false)?.0), 2.0),
    ("argmax_axis", |x, a| x.argmax_axis(a, false), 0.0),
    ("argmin_axis", |x, a| x.argmin_axis(a, true), 0.0),
    ("any_axis", |x, a| x.any_axis(a, false), 1.0),
    ("all_axis", |x, a| x.all_axis(a, false), 1.0),
    ("count_nonzero", |x, a| x.count_nonzero(a), 1.0),
    ("logsumexp", |x, a| x.logsumexp(a, false), 2.0),
    ("nansum", |x, a| x.nansum(a, false), 2.0),
    ("nanmean", |x, a| x.nanmean(a, false), 2.0),
    ("var_axis", |x, a| x.var_axis(a, 0.0, false), 0.0),
    ("std_axis", |x, a| x.std_axis(a, 0.0, false), 0.0),
    ("var_mean", |x, a| Ok(x.var_mean(a, 0.0, false)?.1), 2.0),
    ("std_mean", |x, a| Ok(x.std_mean(a, 0.0, false)?.1), 2.0),
    ("median_axis", |x, a| Ok(x.median_axis(a, false)?.0), 2.0),
    ("median_axis, index", |x, a| Ok(x.median_axis(a, true)?.1), 0.0),
    ("nanmedian_axis", |x, a| Ok(x.nanmedian_axis(a, false)?.0), 2.0),
    ("mode", |x, a| Ok(x.mode(a, false)?.0), 2.0),
    ("kthvalue", |x, a| Ok(x.kthvalue(1, a, false)?.0), 2.0),
    ("quantile", |x, a| x.quantile(0.5, a, false), 2.0),
    ("nanquantile", |x, a| x.nanquantile(0.5, a, true), 2.0),
    ("quantiles_at", |x, a| x.quantiles_at(x, a, Interpolation::Lower, false).map(|_| x.clone()), 2.0),
    ("cumsum", |x, a| x.cumsum(a), 2.0),
    ("cumprod", |x, a| x.cumprod(a), 2.0),
    ("logcumsumexp", |x, a| x.logcumsumexp(a), 2.0),
    ("cummax", |x, a| Ok(x.cummax(a)?.0), 2.0),
    ("cummin, index", |x, a| Ok(x.cummin(a)?.1), 0.0),
    ("cumulative", |x, a| x.cumulative(CumulativeOp::Sum, a, true), 2.0),
    ("sort", |x, a| Ok(x.sort(a, false)?.0), 2.0),
    ("sort, index", |x, a| Ok(x.sort(a, true)?.1), 0.0),
    ("argsort", |x, a| x.argsort(a, false), 0.0),
    ("topk", |x, a| Ok(x.topk(1, a, true)?.0), 2.0),
    ("softmax", |x, a| x.softmax(a), 1.0),
    ("softmin", |x, a| x.softmin(a), 1.0),
    ("log_softmax", |x, a| x.log_softmax(a), 0.0),
    ("squeeze", |x, a| x.squeeze(a), 2.0),
    ("flip", |x, a| x.flip(a), 2.0),
    ("transpose", |x, a| x.transpose(0, a), 2.0),
    ("movedim", |x, a| x.movedim(a, 0), 2.0),
    ("unfold", |x, a| x.unfold(a, 1, 1)?.select(0, 0), 2.0),
    ("vector_norm", |x, a| x.vector_norm(2, a, false), 2.0),
    ("vecdot", |x, a| x.vecdot(x, a), 4.0),
    ("gather", |x, a| x.gather(a, &zero(x, 0)), 2.0),
    ("gather by a line", |x, a| x.gather(a, &zero(x, 1))?.select(0, 0), 2.0),
    ("index_select", |x, a| x.index_select(a, &zero(x, 0)), 2.0),
    ("index_select by a line", |x, a| x.index_select(a, &zero(x, 1)), 2.0),
    ("index_add", |x, a| x.index_add(a, &zero(x, 1), x), 4.0),
    ("index_copy", |x, a| x.index_copy(a, &zero(x, 0), &x.add_scalar(1)), 3.0),
    ("index_fill", |x, a| x.index_fill(a, &zero(x, 1), 3.0), 3.0),
    ("index_reduce", |x, a| x.index_reduce(a, &zero(x, 0), x, ScatterReduce::Prod, true), 4.0),
    ("scatter", |x, a| x.scatter(a, &zero(x, 0), 3.0), 3.0),
    ("scatter of a line", |x, a| x.scatter(a, &zero(x, 1), x.add_scalar(1).unsqueeze(0)?), 3.0),
    ("scatter_add", |x, a| x.scatter_add(a, &zero(x, 0), x), 4.0),
    ("scatter_reduce", |x, a| x.scatter_reduce(a, &zero(x, 1), x, ScatterReduce::Sum, true), 4.0),
    ("normalize", |x, a| normalize(x, 2.0, a, 1e-12), 1.0),
    ("cosine_similarity", |x, a| cosine_similarity(x, x, a, 1e-8), 1.0),
    ("gumbel_softmax", |x, a| gumbel_softmax(x, 1.0, true, a, &Generator::seed(1, &x.device())), 1.0),
];

/// The index 0, 0-d or along one axis.
fn zero(x: &Tensor, rank: usize) -> Tensor {
    Tensor::zeros(vec![1; rank], (DType::I32, &x.device())).unwrap()
}

#[test]
fn an_axis_of_a_scalar_is_that_of_a_line() {
    let x = Tensor::full((), 2.0f32, &device()).unwrap();
    for (name, call, expected) in ALONG {
        for axis in [0, -1] {
            let found = call(&x, axis).unwrap_or_else(|e| panic!("{name}, axis {axis}: {e}"));
            assert_eq!(found.rank(), 0, "{name}, axis {axis}");
            let value = found.to_dtype(DType::F32).unwrap().item::<f32>().unwrap();
            assert!((f64::from(value) - expected).abs() < 1e-6, "{name}, axis {axis}: {value}");
        }
        for axis in [1, -2] {
            let found = call(&x, axis).map(|t| t.dims().to_vec());
            assert!(found.is_err(), "{name} took axis {axis} of a scalar: {found:?}");
        }
    }
}

#[test]
fn gradients_flow_through_a_scalar_seen_as_a_line() {
    let x = Tensor::full((), 2.0f32, &device()).unwrap().requires_grad();
    let zero = zero(&x, 0);
    let y = x.cumsum(0).unwrap().sort(0, false).unwrap().0.gather(-1, &zero).unwrap();
    y.scatter_add(0, &zero, &x).unwrap().backward().unwrap();
    assert_eq!(x.grad().unwrap().item::<f32>().unwrap(), 2.0);
}

#[test]
fn a_scalar_has_one_place() {
    let x = Tensor::full((), 2.0f32, &device()).unwrap();
    let two = Tensor::zeros(2, (DType::I32, &device())).unwrap();
    let error = x.index_select(0, &two).unwrap_err().to_string();
    assert!(error.contains("scalar"), "{error}");
    assert!(x.sum_axis([0, -1], false).is_err());
    assert!(x.dim(0).is_err());
}

/// PyTorch's results: a number is a single class or a vector of one element, and a single label may have an
/// axis.
#[test]
fn margin_losses_of_numbers() -> Result<()> {
    use taper::nn::{MarginRankingLoss, MultiLabelMarginLoss, MultiMarginLoss, Reduction, TripletMarginLoss};
    let d = device();
    let number = |v: f32| Tensor::full((), v, &d);
    let (zero, one, zeros) = (Tensor::full((), 0, (DType::I32, &d))?, number(1.0)?, Tensor::new([0i32], &d)?);
    let (x, line) = (number(0.5)?, Tensor::new([0.5f32, 0.1, 0.2], &d)?);
    for reduction in [Reduction::Mean, Reduction::Sum, Reduction::None] {
        let multi =
            MultiMarginLoss { weight: Some(Tensor::new([2.0f32], &d)?), reduction, ..Default::default() };
        let labels = MultiLabelMarginLoss { reduction };
        for (what, loss, dims) in [
            ("one class", multi.forward(&x, &zero)?, 0),
            ("one class, labels [1]", multi.forward(&x, &zeros)?, 1),
            ("one class [1]", multi.forward(&x.unsqueeze(0)?, &zero)?, 0),
            ("labels of one class", labels.forward(&x, &zero)?, 0),
            ("labels of one class, [1]", labels.forward(&x, &zeros)?, 0),
            ("labels of one class [1]", labels.forward(&x.unsqueeze(0)?, &zero)?, 0),
        ] {
            let dims = if matches!(reduction, Reduction::None) { dims } else { 0 };
            assert_eq!((loss.rank(), loss.to_f64_vec()?), (dims, vec![0.0]), "{what}, {reduction:?}");
        }
        let plain = MultiMarginLoss { reduction, ..Default::default() };
        let loss = plain.forward(&line, &zeros)?.to_vec::<f32>()?;
        assert!((loss[0] - 1.3 / 3.0).abs() < 1e-6, "{loss:?}");
        let ranking = MarginRankingLoss { reduction, ..Default::default() }.forward(&x, &one, &one)?;
        assert_eq!((ranking.rank(), ranking.item::<f32>()?), (0, 0.5));
        let triplet = TripletMarginLoss { reduction, ..Default::default() };
        let loss = triplet.forward(&x, &one, &number(1.5)?)?;
        assert!(loss.rank() == 0 && (loss.item::<f32>()? - 0.5).abs() < 1e-5, "{loss:?}");
    }
    let tracked = x.detach().requires_grad();
    taper::nn::functional::pairwise_distance(&tracked, &one, 2.0, 0.0)?.backward()?;
    assert_eq!(tracked.grad().unwrap().item::<f32>()?, -1.0);
    let two = Tensor::new([1i32, 0], &d)?;
    assert!(MultiMarginLoss::default().forward(&x, &two).is_err());
    assert!(MultiLabelMarginLoss::default().forward(&x, &two).is_err());
    Ok(())
}

/// A [`taper::Scalar`] stands where a Rust number may.
#[test]
fn scalars_are_operands() -> Result<()> {
    use taper::Scalar;
    let x = Tensor::new([3.0f32, 4.0], &device())?;
    assert_eq!(x.hypot(Scalar::Float(4.0))?.to_vec::<f32>()?, x.hypot(4.0)?.to_vec::<f32>()?);
    assert_eq!(x.fmod(Scalar::Int(3))?.to_vec::<f32>()?, [0.0, 1.0]);
    assert_eq!((&x + Scalar::Int(1)).to_vec::<f32>()?, [4.0, 5.0]);
    let mut sum = x.clone();
    sum += Scalar::from(2.5f32);
    assert_eq!(sum.to_vec::<f32>()?, [5.5, 6.5]);
    let whole = Tensor::new([1i32, 2], &device())?;
    assert_eq!((&whole * Scalar::Float(0.5)).dtype(), DType::F32);
    assert_eq!(whole.logical_and(Scalar::Bool(true))?.to_vec::<bool>()?, [true, true]);
    Ok(())
}
