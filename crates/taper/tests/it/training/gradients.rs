//! Every gradient rule against finite differences in f64 (on the reference where the device has no f64, and
//! there the f32 gradients are compared), and what a user of gradients relies on.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{assert_close, device, of, reference_device, tensor};
use taper::autograd::{Function, TensorGrad, apply, grad, gradcheck, gradgradcheck};
use taper::tensor_core::{BinaryOp, CumulativeOp, ReduceOp, UnaryOp};
use taper::{DType, Device, Error, ErrorKind, Result, Tensor, dot, enable_grad, no_grad};

/// Checks a function's gradient: by differences in f64 where the device has it; and always in f32 against the
/// reference.
#[track_caller]
fn check(what: &str, f: impl Fn(&[Tensor]) -> Result<Tensor>, shapes: &[&[usize]]) {
    check_at(what, f, |k, dtype, d| Ok(tensor(shapes[k], k as u64 + 1, dtype, d)? * 0.7 + 0.1), shapes.len());
}

#[track_caller]
fn check_at(
    what: &str,
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
    input: impl Fn(usize, DType, &Device) -> Result<Tensor>,
    n: usize,
) {
    let d = device();
    let inputs =
        |dtype, d: &Device| (0..n).map(|k| input(k, dtype, d)).collect::<Result<Vec<Tensor>>>().unwrap();
    if d.supports(DType::F64) {
        gradcheck(&f, &inputs(DType::F64, &d)).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
    let gradients = |d: &Device| -> Result<Vec<Vec<f64>>> {
        let x: Vec<Tensor> = inputs(DType::F32, d).into_iter().map(TensorGrad::requires_grad).collect();
        let y = f(&x)?;
        y.backward_with(&tensor(y.dims(), 99, DType::F32, d)?)?;
        x.iter().map(|x| x.grad().map_or_else(|| Ok(vec![]), |g| g.to_f64_vec())).collect()
    };
    let (found, expected) = (gradients(&d).unwrap(), gradients(&reference_device()).unwrap());
    for (f, e) in found.iter().zip(&expected) {
        assert_close(f, e, (1e-4, 1e-5), what);
    }
}

#[test]
fn unary_rules() {
    for &op in UnaryOp::ALL {
        if matches!(op, UnaryOp::Not | UnaryOp::IsNan | UnaryOp::IsInf) {
            continue;
        }
        // Away from poles and corners: positive where only that is defined.
        let positive = matches!(op, UnaryOp::Log | UnaryOp::Sqrt | UnaryOp::Rsqrt | UnaryOp::Log1p);
        check_at(
            op.name(),
            |x| Ok(x[0].unary(op)),
            |_, dtype, d| {
                let x = tensor(&[3, 4], 5, dtype, d)?;
                Ok(if positive { x.abs() + 0.3 } else { x * 0.6 + 0.05 })
            },
            1,
        );
    }
    for n in [-2, -1, 0, 1, 2, 3, 5] {
        check(&format!("powi {n}"), |x| Ok((&x[0] + 3.0).powi(n)), &[&[5]]);
    }
}

#[test]
fn binary_rules_broadcast_or_not() {
    use BinaryOp as B;
    for op in [B::Add, B::Sub, B::Mul, B::Div, B::Maximum, B::Minimum, B::Atan2, B::Pow] {
        for shapes in
            [[vec![3, 4], vec![3, 4]], [vec![3, 4], vec![4]], [vec![3, 1], vec![1, 4]], [vec![], vec![2, 3]]]
        {
            check_at(
                &format!("{} of {shapes:?}", op.name()),
                |x| x[0].binary(op, &x[1]),
                |k, dtype, d| Ok(tensor(&shapes[k], k as u64 + 1, dtype, d)?.abs() + 0.4),
                2,
            );
        }
    }
    check("a tensor by itself", |x| x[0].mul(&x[0])?.add(&x[0].div(&(&x[0] + 5.0))?), &[&[4]]);
    check("scalars on either side", |x| Ok(2.0 - (3.0 * &x[0] + 1.0) / 2.0 + 1.0 / (&x[0] + 4.0)), &[&[4]]);
}

#[test]
fn edges_of_rules() -> Result<()> {
    let d = device();
    let one = |values: &[f64]| Ok::<_, Error>(of(values, &[values.len()], DType::F32, &d)?.requires_grad());
    // Equals share.
    let (a, b) = (one(&[1.0, 2.0, 3.0])?, one(&[1.0, 5.0, 0.0])?);
    a.maximum(&b)?.sum().backward()?;
    assert_eq!(a.grad().unwrap().to_vec::<f32>()?, [0.5, 0.0, 1.0]);
    assert_eq!(b.grad().unwrap().to_vec::<f32>()?, [0.5, 1.0, 0.0]);
    let x = one(&[3.0, 1.0, 3.0])?;
    x.max()?.backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [0.5, 0.0, 0.5]);
    // Products with no zero, one, and two.
    for (values, expected) in
        [([2.0, 3.0, 4.0], [12.0, 8.0, 6.0]), ([2.0, 0.0, 4.0], [0.0, 8.0, 0.0]), ([0.0, 0.0, 4.0], [0.0; 3])]
    {
        let x = one(&values)?;
        x.prod_axis(.., false)?.backward()?;
        assert_eq!(x.grad().unwrap().to_vec::<f32>()?, expected);
    }
    // 0⁰ has slope 0 in the base; relu is flat at 0.
    let x = one(&[0.0, -1.0, 2.0])?;
    x.pow(&of(&[0.0, 2.0, 2.0], &[3], DType::F32, &d)?)?.add(&x.relu())?.sum().backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [0.0, -2.0, 5.0]);
    Ok(())
}

#[test]
fn movement_rules() {
    check("reshape", |x| x[0].reshape([4, -1]), &[&[2, 6]]);
    check("permute", |x| Ok(x[0].permute([2, 0, 1])? * 2.0), &[&[2, 3, 4]]);
    check("expand", |x| x[0].expand([3, 2, 4])?.mul(&x[1]), &[&[2, 1], &[3, 2, 4]]);
    check("slice", |x| x[0].slice(1, 1..3), &[&[3, 5]]);
    check("slice with step", |x| x[0].slice_step(1, 1..6, 2)?.slice_step(0, 0..3, 2), &[&[3, 7]]);
    check("flip", |x| x[0].flip([0, 1])?.mul(&x[1]), &[&[3, 2], &[3, 2]]);
    check("flipped slices", |x| x[0].flip(1)?.slice_step(1, 0..5, 2)?.flip(1), &[&[2, 5]]);
    check("select", |x| x[0].select(0, -1), &[&[3, 4]]);
    check("concat", |x| Tensor::concat(&[&x[0], &x[1], &x[0]], 1), &[&[2, 3], &[2, 1]]);
    check("stack", |x| Tensor::stack(&[&x[0], &x[1]], -1), &[&[2, 3], &[2, 3]]);
    check("pad", |x| x[0].pad(&[(1, 0), (2, 3)], 5.0), &[&[2, 3]]);
    check("squeeze", |x| x[0].squeeze(1)?.unsqueeze(0)?.flatten(0, -1), &[&[2, 1, 3]]);
    check("tril", |x| x[0].tril(0)?.add(&x[0].triu(1)?.powi(2)), &[&[3, 3]]);
    check("where", |x| x[0].gt_scalar(0.1).where_cond(&x[0].powi(2), &x[1]), &[&[3, 4], &[4]]);
    check("clamp", |x| Ok(x[0].clamp(-0.5, 0.8)), &[&[9]]);
}

#[test]
fn reduction_rules_over_every_axis() {
    for op in [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min, ReduceOp::Prod] {
        for mask in 1u32..8 {
            let axes: Vec<usize> = (0..3).filter(|a| mask >> a & 1 == 1).collect();
            check(
                &format!("{} over {axes:?}", op.name()),
                |x| x[0].reduce(op, axes.clone(), mask % 2 == 0),
                &[&[2, 3, 2]],
            );
        }
    }
    for axis in [0, 1] {
        check("softmax", |x| x[0].softmax(axis)?.mul(&x[1]), &[&[3, 4], &[3, 4]]);
        check("log_softmax", |x| x[0].log_softmax(axis)?.mul(&x[1]), &[&[3, 4], &[3, 4]]);
        check("logsumexp", |x| x[0].logsumexp(axis, false), &[&[3, 4]]);
        check("var", |x| x[0].var_axis(axis, 1.0, false), &[&[3, 4]]);
    }
}

#[test]
fn cumulative_rules_along_every_axis() {
    for &op in CumulativeOp::ALL.iter().filter(|op| !op.is_arg()) {
        for axis in 0..3 {
            for reverse in [false, true] {
                let what = format!("{} along {axis}, reversed: {reverse}", op.name());
                check(&what, |x| x[0].cumulative(op, axis, reverse), &[&[2, 3, 4]]);
            }
        }
    }
    check("cummax", |x| Ok(x[0].cummax(1)?.0), &[&[3, 7]]);
    check("cummin", |x| Ok(x[0].cummin(0)?.0), &[&[7, 3]]);
    // Products without a zero, with one, with two, and with only zeros.
    for reverse in [false, true] {
        check_at(
            "zeros in a cumprod",
            |x| x[0].cumulative(CumulativeOp::Prod, 1, reverse),
            |_, dtype, d| {
                let rows = [[2.0, 3.0, -1.0, 0.5], [2.0, 0.0, 4.0, 3.0], [0.0, 3.0, 0.0, 2.0], [0.0; 4]];
                of(&rows.concat(), &[4, 4], dtype, d)
            },
            1,
        );
    }
    // Where nothing was added up yet, and nothing comes back.
    check_at(
        "infinities in a logcumsumexp",
        |x| Ok(x[0].logcumsumexp(0)?.exp()),
        |_, dtype, d| of(&[f64::NEG_INFINITY, f64::NEG_INFINITY, 1.0, -700.0, 0.5], &[5], dtype, d),
        1,
    );
}

#[test]
fn sorting_rules() {
    for (axis, descending) in [(0, false), (1, true), (-1, false)] {
        check("sort", |x| Ok(x[0].sort(axis, descending)?.0), &[&[3, 5]]);
        check("topk", |x| Ok(x[0].topk(2, axis, descending)?.0), &[&[3, 5]]);
    }
    check("the middle", |x| Ok(x[0].sort(0, false)?.0.select(0, 3)?.powi(2)), &[&[7, 2]]);
}

#[test]
fn product_and_index_rules() {
    for (a, b) in [
        (vec![3, 4], vec![4, 2]),
        (vec![4], vec![4]),
        (vec![4], vec![4, 2]),
        (vec![3, 4], vec![4]),
        (vec![2, 3, 4], vec![4, 2]),
        (vec![2, 1, 3, 2], vec![3, 2, 2]),
    ] {
        check(&format!("{a:?} x {b:?}"), |x| x[0].matmul(&x[1]), &[&a, &b]);
    }
    check("transposed", |x| x[0].t()?.matmul(&x[1].t()?), &[&[3, 2], &[4, 3]]);
    let index = |x: &Tensor| Tensor::from_vec(vec![2i32, 0, 2, 1], [4], &x.device());
    check("index_select", |x| x[0].index_select(1, &index(&x[0])?), &[&[2, 3]]);
    check("index_add", |x| x[0].index_add(0, &index(&x[0])?, &x[1]), &[&[3, 2], &[4, 2]]);
    let square = |x: &Tensor| Tensor::from_vec(vec![1i32, 0, 1, 2, 2, 2], [2, 3], &x.device());
    check("gather", |x| x[0].gather(0, &square(&x[0])?), &[&[3, 3]]);
    check("scatter_add", |x| x[0].scatter_add(0, &square(&x[0])?, &x[1]), &[&[3, 3], &[2, 3]]);
}

#[test]
fn second_derivatives() {
    let d = device();
    if !crate::common::needs(&d, DType::F64) {
        return;
    }
    let at = |shape: &[usize], seed| tensor(shape, seed, DType::F64, &d).unwrap() * 0.5 + 1.2;
    let check = |what: &str, f: &dyn Fn(&[Tensor]) -> Result<Tensor>, inputs: &[Tensor]| {
        gradgradcheck(f, inputs).unwrap_or_else(|e| panic!("{what}: {e}"));
    };
    for op in [
        UnaryOp::Exp,
        UnaryOp::Log,
        UnaryOp::Sqrt,
        UnaryOp::Tanh,
        UnaryOp::Sigmoid,
        UnaryOp::Sin,
        UnaryOp::Erf,
        UnaryOp::Ndtr,
        UnaryOp::Gaussian,
    ] {
        check(op.name(), &|x| Ok(x[0].unary(op)), &[at(&[4], 1)]);
    }
    check("powi", &|x| Ok(x[0].powi(3)), &[at(&[4], 1)]);
    check("mul and div", &|x| x[0].mul(&x[1])?.div(&(&x[1] + 2.0)), &[at(&[2, 3], 1), at(&[3], 2)]);
    check("matmul", &|x| x[0].matmul(&x[1])?.tanh().matmul(&x[1].t()?), &[at(&[2, 3], 1), at(&[3, 2], 2)]);
    check("softmax", &|x| x[0].softmax(1), &[at(&[2, 3], 1)]);
    check("mean of slices", &|x| x[0].slice(1, 0..2)?.powi(2).mean_axis(0, false), &[at(&[2, 3], 1)]);
    check("pow", &|x| x[0].pow(&x[1]), &[at(&[3], 1), at(&[3], 2)]);
    check("sort", &|x| Ok(x[0].sort(1, true)?.0.powi(3)), &[at(&[2, 4], 1)]);
    check("topk", &|x| Ok(x[0].topk(2, 1, true)?.0.powi(3)), &[at(&[2, 4], 1)]);
    check("cummax", &|x| Ok(x[0].cummax(1)?.0.powi(3)), &[at(&[2, 4], 1)]);
    for reverse in [false, true] {
        for op in [CumulativeOp::Sum, CumulativeOp::Prod, CumulativeOp::LogSumExp] {
            check(op.name(), &|x| Ok(x[0].cumulative(op, 1, reverse)?.powi(2)), &[at(&[2, 4], 1)]);
        }
        let zeros = of(&[2.0, 0.0, 3.0, 0.0, 1.5, 0.5, 0.0, 2.0, 0.7], &[3, 3], DType::F64, &d).unwrap();
        check("zeros", &|x| x[0].cumulative(CumulativeOp::Prod, 1, reverse), &[zeros]);
    }
}

/// The second derivative of a product was once that of a constant if the input had a zero.
#[test]
fn second_derivatives_of_products_with_zeros() {
    let d = device();
    if !crate::common::needs(&d, DType::F64) {
        return;
    }
    for values in
        [[2.0, 3.0, -1.0, 0.5], [2.0, 0.0, 4.0, 3.0], [0.0, 3.0, 0.0, 2.0], [0.0, 0.0, 0.0, 2.0], [0.0; 4]]
    {
        let rows = || of(&[values, [1.0, 2.0, 0.0, 0.5]].concat(), &[2, 2, 2], DType::F64, &d).unwrap();
        for axes in [vec![0], vec![1], vec![2], vec![0, 2], vec![1, 2], vec![0, 1, 2]] {
            let product = |x: &[Tensor]| x[0].prod_axis(axes.clone(), false);
            gradcheck(product, &[rows()]).unwrap_or_else(|e| panic!("{values:?} over {axes:?}: {e}"));
            gradgradcheck(product, &[rows()])
                .unwrap_or_else(|e| panic!("{values:?} over {axes:?}, twice: {e}"));
        }
    }
}

/// The weights are 0, and what comes back of the gradient is theirs.
#[test]
fn second_derivatives_of_sums_in_logarithms_with_weights_of_zero() {
    let d = device();
    if !crate::common::needs(&d, DType::F64) {
        return;
    }
    let inputs = || {
        let values = [[0.5, -0.25, 1.0, 2.0], [0.0, 1.5, 0.0, -0.5]];
        values.map(|v| of(&v, &[2, 2], DType::F64, &d).unwrap())
    };
    for (axis, reverse) in [(0, false), (1, true)] {
        let sums = |x: &[Tensor]| x[0].cumulative(CumulativeOp::LogSumExp, axis, reverse)?.mul(&x[1]);
        gradcheck(sums, &inputs()).unwrap();
        gradgradcheck(sums, &inputs()).unwrap();
    }
}

/// Places along the axis were counted in the index's dtype, where 256 is 0 again.
#[test]
fn gradients_of_bytes_that_index_a_long_axis() -> Result<()> {
    let d = device();
    const CLASSES: usize = 1000;
    if !crate::common::needs(&d, DType::U8) {
        return Ok(());
    }
    let labels = Tensor::from_vec(vec![3u8, 200, 255], [3], &d)?;
    let gradient = |f: &dyn Fn(&Tensor) -> Result<Tensor>| -> Result<Vec<f32>> {
        let x = tensor(&[3, CLASSES], 1, DType::F32, &d)?.requires_grad();
        f(&x)?.sum().backward()?;
        x.grad().unwrap().to_vec::<f32>()
    };
    let wide = labels.to_dtype(DType::I32)?;
    for (what, narrow, wide) in [
        (
            "gather",
            gradient(&|x| x.gather(1, &labels.unsqueeze(1)?))?,
            gradient(&|x| x.gather(1, &wide.unsqueeze(1)?))?,
        ),
        (
            "index_select",
            gradient(&|x| x.index_select(1, &labels))?,
            gradient(&|x| x.index_select(1, &wide))?,
        ),
        (
            "one of a line",
            gradient(&|x| x.index_select(1, &labels.narrow(0, 1, 1)?))?,
            gradient(&|x| x.index_select(1, &wide.narrow(0, 1, 1)?))?,
        ),
        (
            "cross_entropy",
            gradient(&|x| taper::nn::cross_entropy(x, &labels))?,
            gradient(&|x| taper::nn::cross_entropy(x, &wide))?,
        ),
    ] {
        assert_eq!(narrow, wide, "{what}");
        assert!(narrow.iter().any(|g| *g != 0.0), "{what}");
    }
    Ok(())
}

#[test]
fn gradients_of_gradients_of_a_cube() -> Result<()> {
    let d = device();
    let x = of(&[2.0], &[], DType::F32, &d)?.requires_grad();
    let y = x.powi(3);
    let first = grad(&[&y], &[&x], true)?.remove(0).unwrap();
    let second = grad(&[&first], &[&x], true)?.remove(0).unwrap();
    let third = grad(&[&second], &[&x], false)?.remove(0).unwrap();
    assert_eq!([first.item::<f32>()?, second.item::<f32>()?, third.item::<f32>()?], [12.0, 12.0, 6.0]);
    assert!(x.grad().is_none(), "grad() does not accumulate");
    // An intermediate can be asked for, and what does not matter has none.
    let z = of(&[1.0], &[], DType::F32, &d)?.requires_grad();
    let middle = &x * 2.0;
    let out = middle.exp();
    let found = grad(&[&out], &[&middle, &z], false)?;
    assert!((found[0].as_ref().unwrap().item::<f32>()? - 4f32.exp()).abs() < 1e-3);
    assert!(found[1].is_none());
    Ok(())
}

#[test]
fn gradients_accumulate_until_cleared() -> Result<()> {
    let x = of(&[1.0, 2.0, 3.0], &[3], DType::F32, &device())?.requires_grad();
    for times in 1..=3 {
        x.powi(2).sum().backward()?;
        let expected: Vec<f32> = [2.0, 4.0, 6.0].iter().map(|g| g * times as f32).collect();
        assert_eq!(x.grad().unwrap().to_vec::<f32>()?, expected);
    }
    x.zero_grad();
    assert!(x.grad().is_none());
    Ok(())
}

#[test]
fn a_graph_is_used_up_unless_it_is_kept() -> Result<()> {
    let x = of(&[3.0], &[], DType::F32, &device())?.requires_grad();
    let y = x.powi(2);
    y.backward_retain()?;
    y.backward()?;
    assert_eq!(x.grad().unwrap().item::<f32>()?, 12.0);
    let error = y.backward().unwrap_err().to_string();
    assert!(error.contains("used up") && error.contains("gradients.rs"), "{error}");
    assert_eq!(y.item::<f32>()?, 9.0);
    Ok(())
}

#[test]
fn nothing_is_recorded_where_nothing_is_wanted() -> Result<()> {
    let d = device();
    let x = of(&[1.0, 2.0], &[2], DType::F32, &d)?.requires_grad();
    assert!(x.is_leaf() && x.is_tracked());
    let hidden = no_grad(|| &x * 2.0);
    assert!(!hidden.is_tracked());
    assert!(no_grad(|| enable_grad(|| &x * 2.0)).is_tracked());
    let cut = (&x * 2.0).detach();
    assert!(!cut.is_tracked());
    (&x * &cut).sum().backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [2.0, 4.0]);
    assert!(!x.argmax()?.is_tracked());
    assert!(!x.gt_scalar(0.0).is_tracked());
    // A frozen leaf.
    x.zero_grad();
    let w = of(&[5.0, 5.0], &[2], DType::F32, &d)?.requires_grad();
    x.set_requires_grad(false)?;
    x.mul(&w)?.sum().backward()?;
    assert!(x.grad().is_none());
    assert_eq!(w.grad().unwrap().to_vec::<f32>()?, [1.0, 2.0]);
    Ok(())
}

#[test]
fn misuse_is_an_error_that_says_the_mend() -> Result<()> {
    let d = device();
    let x = of(&[1.0, 2.0], &[2], DType::F32, &d)?.requires_grad();
    let error = (&x * 2.0).backward().unwrap_err().to_string();
    assert!(error.contains("[2]") && error.contains("mean"), "{error}");
    let plain = of(&[1.0], &[], DType::F32, &d)?;
    let error = plain.backward().unwrap_err().to_string();
    assert!(error.contains("requires_grad"), "{error}");
    let error = (&x * 2.0).backward_with(&plain).unwrap_err().to_string();
    assert!(error.contains("[2]") && error.contains("[]"), "{error}");
    assert!(matches!(
        grad(&[&x.sum()], &[&plain], false).as_ref().map_err(|e| e.kind()),
        Err(ErrorKind::Autograd { .. })
    ));
    let ints = of(&[1.0], &[1], DType::I32, &d)?;
    assert!(ints.clone().into_cell(true).is_err());
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ints.requires_grad())).is_err());
    assert!(x.grad().is_none());
    Ok(())
}

/// The identity, with a gradient turned round.
#[derive(Debug)]
struct Reversed;
impl Function for Reversed {
    type Output = Tensor;
    fn name(&self) -> &'static str {
        "Reversed"
    }
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Ok(inputs[0] * 1.0)
    }
    fn backward(&self, _: &[Tensor], _: &Tensor, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(gradient.neg())])
    }
}

#[test]
fn functions_of_ones_own() -> Result<()> {
    let x = of(&[1.0, 2.0], &[2], DType::F32, &device())?.requires_grad();
    let y = apply(Reversed, &[&x.powi(2)])?;
    assert!(y.to_string().contains("grad_fn=Reversed"), "{y}");
    assert_eq!(y.to_vec::<f32>()?, [1.0, 4.0]);
    y.sum().backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [-2.0, -4.0]);
    Ok(())
}

/// A square whose gradient is of the wrong kind.
#[derive(Debug)]
struct Careless(fn(&Tensor) -> Result<Tensor>);
impl Function for Careless {
    type Output = Tensor;
    fn name(&self) -> &'static str {
        "Careless"
    }
    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Ok(inputs[0].powi(2))
    }
    fn backward(&self, _: &[Tensor], _: &Tensor, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some((self.0)(gradient)?)])
    }
}

/// A gradient of another dtype or device was stored in the leaf.
#[test]
fn gradients_of_the_wrong_kind_name_the_function() -> Result<()> {
    let x = of(&[1.0, 2.0], &[2], DType::F32, &device())?.requires_grad();
    let given = |f| apply(Careless(f), &[&x])?.sum().backward();
    let half = |g: &Tensor| g.to_dtype(if g.device().supports(DType::F64) { DType::F64 } else { DType::F16 });
    for (error, words) in [
        (given(half), ["input 0", "f32", "to_dtype(DType::F32)"]),
        (given(|g| g.to_dtype(DType::I32)), ["input 0", "i32", "to_dtype(DType::F32)"]),
        (given(|g| g.to(&reference_device())), ["reference", device().name(), "move"]),
        (given(|g| g.narrow(0, 0, 1)), ["[2]", "[1]", "input 0"]),
    ] {
        let error = error.unwrap_err().to_string();
        assert!(error.contains("Careless"), "{error}");
        for word in words {
            assert!(error.contains(word), "{word} is missing in {error}");
        }
    }
    assert!(x.grad().is_none());
    Ok(())
}

/// The exponent below the least one does not exist.
#[test]
fn the_least_power_has_a_gradient() -> Result<()> {
    let x = of(&[1.0, 2.0], &[2], DType::F32, &device())?.requires_grad();
    x.powi(i32::MIN).sum().backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [i32::MIN as f32, 0.0]);
    Ok(())
}

#[test]
fn gradients_cross_devices() -> Result<()> {
    let x = of(&[1.0, 2.0], &[2], DType::F32, &device())?.requires_grad();
    let there = x.powi(2).to(&reference_device())?;
    (&there * 3.0).sum().backward()?;
    let gradient = x.grad().unwrap();
    assert_eq!(gradient.device(), device());
    assert_eq!(gradient.to_vec::<f32>()?, [6.0, 12.0]);
    Ok(())
}

#[test]
fn the_graph_can_be_drawn() -> Result<()> {
    let x = Tensor::arange(1.0, 4.0, 1.0, &device())?.requires_grad();
    let y = ((&x + 2.0).powi(2) + 3.0).mean();
    let text = dot(&[&y]);
    for part in ["digraph", "Mean", "Pow", "Add", "leaf", "[3] f32", &format!("#{}", x.id()), "->"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let arrow = format!("n{} -> n{};", y.inputs()[0].id(), y.id());
    assert!(text.contains(&arrow), "{arrow} is missing in {text}");
    Ok(())
}

/// Large gradients are summed rows first, and without the factors that all elements share: they are the sums
/// of those of parts, which are small.
#[test]
fn gradients_of_what_is_broadcast_are_sums_of_those_of_parts() -> Result<()> {
    let d = device();
    let shape = [12, 6, 30, 31];
    let (x, g) = (tensor(&shape, 1, DType::F32, &d)?, tensor(&shape, 2, DType::F32, &d)?);
    let leaves = |all: [&Tensor; 4]| all.map(|leaf| leaf.detach().requires_grad());
    let small = [&[6usize, 1, 1][..], &[12, 6, 1, 1], &[30, 1], &[1]];
    let small: Vec<Tensor> = small
        .iter()
        .enumerate()
        .map(|(k, s)| tensor(s, 3 + k as u64, DType::F32, &d))
        .collect::<Result<_>>()?;
    let by = |x: &Tensor, g: &Tensor, [w, each, line, one]: &[Tensor; 4]| -> Result<Vec<Vec<f64>>> {
        // Differences, products of small and of large factors, powers, each with factors along some axes
        // alone.
        let y = x.sub(each)?.mul(w)?.add(&line.mul(x)?)?.mul(&one.sub(w)?)?.sub(&each.mul(line)?.powi(2))?;
        let sum = y.mul(g)?.sum();
        let found = grad(&[&sum], &[w.clone(), each.clone(), line.clone(), one.clone()], false)?;
        found.iter().map(|g| g.as_ref().unwrap().to_f64_vec()).collect()
    };
    let whole = by(&x, &g, &leaves([&small[0], &small[1], &small[2], &small[3]]))?;
    let mut sums = whole.iter().map(|of| vec![0.0; of.len()]).collect::<Vec<_>>();
    let mut each = Vec::new();
    for i in 0..shape[0] {
        let own = small[1].narrow(0, i, 1)?;
        let part =
            by(&x.narrow(0, i, 1)?, &g.narrow(0, i, 1)?, &leaves([&small[0], &own, &small[2], &small[3]]))?;
        each.extend(&part[1]);
        for k in [0, 2, 3] {
            sums[k].iter_mut().zip(&part[k]).for_each(|(sum, x)| *sum += x);
        }
    }
    sums[1] = each;
    for (k, (found, expected)) in whole.iter().zip(&sums).enumerate() {
        assert_close(found, expected, (1e-4, 1e-3), &format!("small tensor {k}"));
    }
    Ok(())
}
