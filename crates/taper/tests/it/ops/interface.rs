//! The ways in which tensors are written: literals and their dtypes, axes, indexing, reading, printing, and
//! whose line an error names.
#![allow(clippy::unwrap_used, clippy::panic, clippy::type_complexity)]
// Users write references and ranges such as 3..1 where they need not.
#![allow(clippy::needless_borrows_for_generic_args, clippy::reversed_empty_ranges, clippy::useless_vec)]

use crate::common::{agree, device, has};
use taper::{
    Axis, DType, Device, ErrorKind, Index,
    autograd::{gradcheck, gradgradcheck},
    grad, grad_of,
    prelude::*,
    tensor_core::{CumulativeOp, Dims},
};

/// 0, 1, … in a shape.
fn count(shape: &[usize]) -> Tensor {
    let n: usize = shape.iter().product();
    Tensor::arange(0, n, 1, (DType::I32, &device())).unwrap().reshape(shape).unwrap()
}

#[track_caller]
fn is(found: Result<Tensor>, shape: &[usize], values: &[i64]) {
    let found = found.unwrap();
    assert_eq!(found.dims(), shape);
    assert_eq!(found.to_vec::<i64>().unwrap(), values);
}

/// Numbers alone and in arrays may be literals, and f64 and i32 are the types of literals. In a vector or
/// slice, and of every other type, numbers keep their type.
#[test]
fn typed_numbers_keep_their_type_outside_of_literals() -> Result<()> {
    let d = device();
    let int = d.int_dtype();
    macro_rules! kept {
        ($($t:ty: $dtype:ident, $literal:expr, [$a:expr, $b:expr];)*) => {$(
            let (a, b): ($t, $t) = ($a, $b);
            if d.supports(DType::$dtype) {
                let typed = DType::$dtype;
                let literal: DType = $literal;
                assert_eq!(Tensor::new(a, &d)?.dtype(), literal, "one {}", stringify!($t));
                assert_eq!(Tensor::new([a, b], &d)?.dtype(), literal, "an array of {}", stringify!($t));
                assert_eq!(Tensor::new(&[a, b], &d)?.dtype(), literal);
                assert_eq!(Tensor::new([[a], [b]], &d)?.dtype(), literal);
                assert_eq!(Tensor::new(vec![a, b], &d)?.dtype(), typed, "a Vec of {}", stringify!($t));
                assert_eq!(Tensor::new(&vec![a, b], &d)?.dtype(), typed);
                assert_eq!(Tensor::new(&[a, b][..], &d)?.dtype(), typed, "a slice of {}", stringify!($t));
                assert_eq!(Tensor::new(vec![vec![a], vec![b]], &d)?.dtype(), typed);
                assert_eq!(Tensor::new(vec![[a], [b]], &d)?.dtype(), typed);
                assert_eq!(Tensor::new([vec![a], vec![b]], &d)?.dtype(), typed);
                assert_eq!(Tensor::new(vec![a, b], &d)?.to_vec::<$t>()?, [a, b]);
                let given = Tensor::new(vec![vec![a, b]], (DType::F32, &d))?;
                assert_eq!((given.dtype(), given.dims()), (DType::F32, &[1, 2][..]));
            }
        )*};
    }
    kept! {
        f32: F32, DType::F32, [0.1, 2.0];
        f64: F64, DType::F32, [0.1, 2.0];
        i32: I32, int, [1, -2];
        i64: I64, DType::I64, [1, i64::MAX];
        u8: U8, DType::U8, [7, 255];
        bool: Bool, DType::Bool, [true, false];
    }
    if !d.supports(DType::F64) {
        let message = Tensor::new(vec![0.1f64], &d).unwrap_err().to_string();
        assert!(message.contains("f64"), "{message}");
    }
    Ok(())
}

#[test]
fn literals_have_the_dtype_that_one_rule_says() -> Result<()> {
    let d = device();
    let int = if d.supports(DType::I64) { DType::I64 } else { DType::I32 };
    assert_eq!(d.int_dtype(), int);
    assert_eq!(Tensor::new([1.0, 2.0], &d)?.dtype(), DType::F32);
    assert_eq!(Tensor::new(1.5, &d)?.to_vec::<f32>()?, [1.5]);
    assert_eq!(Tensor::new([[1, 2], [3, 4]], &d)?.dtype(), int);
    assert_eq!(Tensor::new(vec![1usize, 2], &d)?.to_vec::<i64>()?, [1, 2]);
    assert_eq!(Tensor::new([1usize, 2], &d)?.dtype(), int);
    assert_eq!(Tensor::new([true, false], &d)?.dtype(), DType::Bool);
    assert_eq!(Tensor::new([1.0f32], &d)?.dtype(), DType::F32);
    assert_eq!(Tensor::new([7u8], &d)?.dtype(), DType::U8);
    assert_eq!(Tensor::new([[1, 2]], (DType::F32, &d))?.to_vec::<f32>()?, [1.0, 2.0]);
    assert_eq!(Tensor::new([1.9, -1.9], (DType::I32, &d))?.to_vec::<i32>()?, [1, -1]);
    assert_eq!(Tensor::full([2], 3, &d)?.dtype(), int);
    assert_eq!(Tensor::full([2], 3.0, &d)?.dtype(), DType::F32);
    assert_eq!(Tensor::arange(0, 3, 1, &d)?.dtype(), int);
    assert_eq!(Tensor::arange(0, 3, 0.5, &d)?.dtype(), DType::F32);
    assert_eq!((&Tensor::new([true], &d)? + 1).dtype(), int);
    let x = Tensor::new([[3, 1, 2]], &d)?;
    for integers in [
        x.sum(),
        x.cumsum(-1)?,
        x.argmax()?,
        x.argmin_axis(1, true)?,
        x.sort(1, false)?.1,
        x.argsort(1, true)?,
        x.topk(1, 1, true)?.1,
        x.cummax(1)?.1,
        x.gt_scalar(1).sum(),
        x.nonzero()?,
        Tensor::randperm(4, &Generator::seed(1, &d))?,
        Tensor::randint(0, 4, [3], &Generator::seed(1, &d))?,
    ] {
        assert_eq!(integers.dtype(), int);
    }
    assert_eq!(x.mean().dtype(), DType::F32);
    // A number that would not survive is no literal of that dtype.
    let error = Tensor::new([300], (DType::U8, &d)).unwrap_err().to_string();
    assert!(error.contains("300") && error.contains("u8"), "{error}");
    Ok(())
}

/// In a process of its own, since the setting is the whole process's.
#[test]
fn the_default_dtype_can_be_set() {
    if taper_testing::run_alone(the_default_dtype_can_be_set) {
        return;
    }
    let d = device();
    if !has(&d, DType::F64) {
        return;
    }
    assert!(taper::set_default_dtype(DType::I32).is_err());
    taper::set_default_dtype(DType::F64).unwrap();
    assert_eq!(taper::default_dtype(), DType::F64);
    let rng = Generator::seed(1, &d);
    for made in [
        Tensor::new([1.0], &d),
        Tensor::zeros([2], &d),
        Tensor::ones((2, 3), &d),
        Tensor::full([1], 0.5, &d),
        Tensor::eye(2, &d),
        Tensor::linspace(0.0, 1.0, 3, &d),
        Tensor::arange(0.0, 1.0, 0.25, &d),
        Tensor::rand([2], &rng),
        Tensor::randn([2], &rng),
        Tensor::uniform([2], 0.0, 1.0, &rng),
        Tensor::new([1, 2], &d).map(|x| x.exp()),
        Tensor::new([1, 2], &d).map(|x| x.mean()),
        Tensor::new([1, 2], &d).map(|x| &x / 2),
        Tensor::new([1, 2], &d).map(|x| &x * 0.5),
    ] {
        assert_eq!(made.unwrap().dtype(), DType::F64);
    }
    assert_eq!(Tensor::new([1.0f32], &d).unwrap().dtype(), DType::F32);
    assert_eq!(Tensor::ones([1], (DType::F32, &d)).unwrap().dtype(), DType::F32);
    assert!(!format!("{}", Tensor::new([0.5], &d).unwrap()).contains("dtype"));
}

#[test]
fn axes_and_sizes_are_any_integers() -> Result<()> {
    let x = count(&[2, 3, 4]);
    let (axis, rows): (usize, usize) = (1, 2);
    assert_eq!(x.sum_axis(axis, false)?.dims(), [2, 4]);
    assert_eq!(x.unsqueeze(axis)?.dims(), [2, 1, 3, 4]);
    assert_eq!(x.transpose(axis, -1)?.dims(), [2, 4, 3]);
    assert_eq!(x.flatten(axis, -1i64)?.dims(), [2, 12]);
    assert_eq!(x.select(axis, -1)?.dims(), [2, 4]);
    assert_eq!(x.dim(-1i32)?, 4);
    assert_eq!(x.argmax_axis(1u32, false)?.dims(), [2, 4]);
    assert_eq!(x.cumulative(CumulativeOp::Sum, Axis::from(axis), true)?.dims(), [2, 3, 4]);
    assert_eq!(x.permute((2, 0, 1))?.dims(), [4, 2, 3]);
    assert_eq!(x.squeeze(&[0, 1])?.dims(), [2, 3, 4]);
    assert_eq!(x.reshape((rows, -1))?.dims(), [2, 12]);
    assert_eq!(x.reshape((-1, rows, 2i64))?.dims(), [6, 2, 2]);
    assert_eq!(x.reshape(Dims::from(x.shape()))?.dims(), [2, 3, 4]);
    let d = device();
    for made in [
        Tensor::zeros((2, 3), &d)?,
        Tensor::zeros([2, 3], &d)?,
        Tensor::zeros(&[2, 3], &d)?,
        Tensor::zeros(vec![2, 3], &d)?,
        Tensor::zeros(&vec![rows, 3], &d)?,
        Tensor::zeros(count(&[2, 3]).shape(), &d)?,
    ] {
        assert_eq!(made.dims(), [2, 3]);
    }
    // A size that is out of range is an error, and not the last axis.
    assert!(x.sum_axis(usize::MAX, false).is_err());
    let message = x.sum_axis(3, false).unwrap_err().to_string();
    assert!(message.contains("0 to 2") && message.contains("-3 to -1"), "{message}");
    let message = x.select(1, 3).unwrap_err().to_string();
    assert!(message.contains("0 to 2") && !message.contains("size - 1"), "{message}");
    Ok(())
}

#[test]
fn lists_of_tensors_are_slices_of_tensors_or_references() -> Result<()> {
    let (a, b) = (count(&[2]), count(&[2]));
    let owned = vec![a.clone(), b.clone()];
    for list in [
        Tensor::concat(&owned, 0)?,
        Tensor::concat(&[&a, &b], 0)?,
        Tensor::concat(&[a.clone(), b.clone()], 0usize)?,
    ] {
        assert_eq!(list.to_vec::<i32>()?, [0, 1, 0, 1]);
    }
    assert_eq!(Tensor::stack(&owned, -1)?.dims(), [2, 2]);
    let x = Tensor::new([2.0, 3.0], &device())?.requires_grad();
    let y = x.powi(2).sum();
    assert_eq!(
        grad(std::slice::from_ref(&y), &[&x], false)?[0].as_ref().unwrap().to_vec::<f32>()?,
        [4.0, 6.0]
    );
    assert_eq!(grad_of(&y, &x, false)?.to_vec::<f32>()?, [4.0, 6.0]);
    let other = Tensor::new([1.0], &device())?.requires_grad();
    assert!(grad_of(&y, &other, false).unwrap_err().to_string().contains("does not depend"));
    assert!(taper::dot(&[&y]).contains("digraph") && taper::dot(&owned).contains("digraph"));
    let message =
        Tensor::stack(&[&count(&[2, 3]), &count(&[2, 3]), &count(&[2, 4])], 0).unwrap_err().to_string();
    assert!(message.contains("tensor 2 has size 4 at axis 1"), "{message}");
    let message =
        Tensor::concat(&[&count(&[2, 3]), &count(&[2, 3]), &count(&[5, 4])], 0).unwrap_err().to_string();
    assert!(message.contains("tensor 2 has size 4 at axis 1"), "{message}");
    Ok(())
}

#[test]
fn indexing_is_that_of_pytorch() -> Result<()> {
    let x = count(&[2, 3, 4]);
    is(x.i((1, 2, 3)), &[], &[23]);
    is(x.i(-1), &[3, 4], &(12..24).collect::<Vec<_>>());
    is(x.i((.., 1.., -1)), &[2, 2], &[7, 11, 19, 23]);
    is(x.i((.., ..=-2, 0)), &[2, 2], &[0, 4, 12, 16]);
    is(x.i((0, 0, -3..=-1)), &[3], &[1, 2, 3]);
    is(x.i((0, 0, 1..100)), &[3], &[1, 2, 3]);
    is(x.i((0, 0, 3..1)), &[0], &[]);
    is(x.i((Ellipsis, StepBy(.., 2), NewAxis)), &[2, 3, 2, 1], &[0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22]);
    is(x.i((0, Ellipsis, StepBy(1.., 2))), &[3, 2], &[1, 3, 5, 7, 9, 11]);
    is(x.i((NewAxis, 1, 0, 0)), &[1], &[12]);
    is(x.i(()), &[2, 3, 4], &(0..24).collect::<Vec<_>>());
    // Lists and index tensors, negative numbers among them.
    is(x.i((0, [2, 0], 1)), &[2], &[9, 1]);
    is(x.i((0, vec![2usize, 0], -1)), &[2], &[11, 3]);
    let d = device();
    let ints = |v: &[i32]| Tensor::from_slice(v, v.len(), &d).unwrap();
    is(x.i((0, 0, &ints(&[-1, 0]))), &[2], &[3, 0]);
    is(x.i((1, Tensor::new([[0, 2], [2, 2]], &d)?, 3)), &[2, 2], &[15, 23, 23, 23]);
    is(x.i((0, Tensor::new(2, &d)?)), &[4], &[8, 9, 10, 11]);
    // Neighbours stay where they were; others go in front.
    is(x.i((.., [2, 0], [3, 1])), &[2, 2], &[11, 1, 23, 13]);
    is(x.i(([1, 0], .., [3, 0])), &[2, 3], &[15, 19, 23, 0, 4, 8]);
    is(x.i((&ints(&[0, -1]), Tensor::new([[0], [1]], &d)?, 0)), &[2, 2], &[0, 12, 4, 16]);
    for dtype in [DType::U8, DType::U32, DType::I64] {
        if has(&d, dtype) {
            is(x.i((0, ints(&[2, 0]).to_dtype(dtype)?, [3, 1])), &[2], &[11, 1]);
        }
    }
    // Masks.
    let mask = x.i((.., .., 0))?.gt_scalar(4);
    is(x.i((&mask, 1..3)), &[4, 2], &[9, 10, 13, 14, 17, 18, 21, 22]);
    is(x.i((1, .., &Tensor::new([true, false, false, true], &d)?)), &[3, 2], &[12, 15, 16, 19, 20, 23]);
    is(x.i(&x.gt_scalar(20)), &[3], &[21, 22, 23]);
    is(x.i(&x.gt_scalar(30)), &[0], &[]);
    is(x.masked_select(&Tensor::new([true, false, false, false], &d)?), &[6], &[0, 4, 8, 12, 16, 20]);
    is(x.i((0, 0))?.nonzero(), &[3, 1], &[1, 2, 3]);
    is(mask.nonzero(), &[4, 2], &[0, 2, 1, 0, 1, 1, 1, 2]);
    is(x.i(vec![Index::from(0), Index::from(..), Index::from(1)]), &[3], &[1, 5, 9]);
    agree("of a view", |d| {
        let x = Tensor::arange(0.0, 60.0, 1.0, d)?.reshape((3, 4, 5))?.permute((2, 0, 1))?.flip(1)?;
        x.i((Tensor::new([4, 0, -2], d)?, .., [1, 3, 0]))
    });
    Ok(())
}

#[test]
fn an_index_that_does_not_fit_says_why() -> Result<()> {
    let (x, d) = (count(&[2, 3, 4]), device());
    let says = |found: Result<Tensor>, words: &[&str]| {
        let text = found.and_then(|t| t.to_vec::<i32>()).unwrap_err().to_string();
        for word in words {
            assert!(text.contains(word), "{word:?} is missing in: {text}");
        }
    };
    says(x.i((0, 0, 0, 0)), &["4 axes", "[2, 3, 4]"]);
    says(x.i((Ellipsis, Ellipsis)), &["one Ellipsis"]);
    says(x.i((.., 3)), &["index 3", "axis 1", "0 to 2"]);
    says(x.i((.., -4)), &["index -4", "axis 1"]);
    says(x.i((.., [0, 5])), &["index 5", "axis 1"]);
    says(x.i((.., StepBy(.., 0))), &["step 0"]);
    says(x.i(&Tensor::new([0.5], &d)?), &["integers or bool", "f32"]);
    says(x.i(&Tensor::new([true, false, true], &d)?), &["mask", "[2]"]);
    says(x.i(&Tensor::new([0, 7], &d)?), &["index 7", "size 2"]);
    says(x.i(&Tensor::new([0, -3], &d)?), &["index -3", "size 2"]);
    // 7 is beyond its own axis, but not beyond the two axes taken as one.
    says(x.i((&Tensor::new([0, 1], &d)?, &Tensor::new([0, 3], &d)?)), &["index 3", "size 3"]);
    says(x.i((&Tensor::new([0, 1], &d)?, &Tensor::new([0, 1, 2], &d)?)), &["[2]", "[3]"]);
    Ok(())
}

#[test]
fn a_part_of_a_tensor_is_replaced() -> Result<()> {
    let (x, d) = (count(&[2, 3]), device());
    let value = |v: &[i32]| Tensor::from_slice(v, v.len(), &d).unwrap();
    is(x.index_put((.., 1..), 9, false), &[2, 3], &[0, 9, 9, 3, 9, 9]);
    is(x.index_put((.., StepBy(.., 2)), value(&[7, 8]), false), &[2, 3], &[7, 1, 8, 7, 4, 8]);
    is(x.index_put((1, -1), value(&[6]).i(0)?, true), &[2, 3], &[0, 1, 2, 3, 4, 11]);
    is(x.index_put((.., 0, NewAxis), 7, false), &[2, 3], &[7, 1, 2, 7, 4, 5]);
    is(x.index_put((1, Ellipsis), 7, false), &[2, 3], &[0, 1, 2, 7, 7, 7]);
    is(x.index_put(&x.gt_scalar(3), 0, false), &[2, 3], &[0, 1, 2, 3, 0, 0]);
    is(x.index_put(3..1, 0, false), &[2, 3], &[0, 1, 2, 3, 4, 5]);
    // With several values for one position, the last one is kept, or all are added.
    let line = Tensor::zeros([4], (DType::I32, &d))?;
    is(line.index_put([1, 1, 2], value(&[5, 6, 7]), false), &[4], &[0, 6, 7, 0]);
    is(line.index_put(value(&[-1, 3, 0, -1]), value(&[1, 2, 3, 4]), false), &[4], &[3, 0, 0, 4]);
    is(line.index_put([1, 1, 2], value(&[5, 6, 7]), true), &[4], &[0, 11, 7, 0]);
    // Whole rows, columns, and places of several axes, beside integers, ranges and new axes.
    is(x.index_put([1, -1], 7, false), &[2, 3], &[0, 1, 2, 7, 7, 7]);
    is(x.index_put((.., [2, 0]), value(&[7, 8]), false), &[2, 3], &[8, 1, 7, 8, 4, 7]);
    is(x.index_put((.., [2, 2]), value(&[7, 8]), true), &[2, 3], &[0, 1, 17, 3, 4, 20]);
    is(x.index_put(([0, 1, 0], [2, 0, 2]), value(&[7, 8, 9]), false), &[2, 3], &[0, 1, 9, 8, 4, 5]);
    is(x.index_put((1, [2, 0]), value(&[7, 8]), false), &[2, 3], &[0, 1, 2, 8, 4, 7]);
    is(x.index_put(([0, 1], 1..), value(&[7, 8]), false), &[2, 3], &[0, 7, 8, 3, 7, 8]);
    is(x.index_put((NewAxis, [1], StepBy(.., 2)), value(&[7, 8]), true), &[2, 3], &[0, 1, 2, 10, 4, 13]);
    let deep = count(&[2, 2, 3]);
    let apart = deep.index_put(([0, 1], .., [2, 0]), value(&[30, 31, 32, 33]).reshape([2, 2])?, false);
    is(apart, &[2, 2, 3], &[0, 1, 30, 3, 4, 31, 32, 7, 8, 33, 10, 11]);
    is(deep.index_put(&deep.i((.., .., 0))?.gt_scalar(3), 7, false)?.i(1), &[2, 3], &[7; 6]);
    let turned = deep.permute((2, 0, 1))?.index_put((.., [1]), 7, false)?.permute((1, 2, 0));
    is(turned, &[2, 2, 3], &[0, 1, 2, 3, 4, 5, 7, 7, 7, 7, 7, 7]);
    is(x.index_put(Tensor::zeros([0], (DType::I32, &d))?, 7, false), &[2, 3], &[0, 1, 2, 3, 4, 5]);
    for bad in [2, -3] {
        let error = x.index_put(&value(&[0, bad]), 7, false).and_then(|t| t.to_vec::<i32>()).unwrap_err();
        assert!(error.to_string().contains(&format!("index {bad}")), "{error}");
    }
    // Bits are preserved: NaN, infinities and the sign of zero, in replaced elements and in the others.
    let odd = Tensor::new([f32::NAN, -0.0, f32::INFINITY, 1.0], &d)?;
    for index in [Index::from([0, 2]), Index::from(StepBy(.., 2))] {
        let put =
            odd.index_put(index, Tensor::new([-0.0f32, f32::NEG_INFINITY], &d)?, false)?.to_vec::<f32>()?;
        assert_eq!(
            put.iter().map(|v| v.to_bits()).collect::<Vec<_>>(),
            [-0.0, -0.0, f32::NEG_INFINITY, 1.0].map(f32::to_bits)
        );
    }
    let truth = Tensor::new([true, false, true], &d)?;
    assert_eq!(
        truth.index_put([0, 1], Tensor::new([false, true], &d)?, false)?.to_vec::<bool>()?,
        [false, true, true]
    );
    let error = x.index_put(0, Tensor::new([1.0], &d)?, false).unwrap_err().to_string();
    assert!(error.contains("i32") && error.contains("to_dtype(DType::I32)"), "{error}");
    assert!(x.index_put(0, value(&[1, 2]), false).unwrap_err().to_string().contains("broadcast"));
    Ok(())
}

#[test]
fn cells_are_assigned_to_by_index() -> Result<()> {
    let d = device();
    let buffer = Tensor::zeros((2, 3), &d)?.into_cell(false)?;
    let handle = buffer.clone();
    buffer.index_assign((.., 1..), 5.0)?;
    buffer.index_add_assign((0, -1), 1.0)?;
    buffer.index_add_assign(([1, 1], 0), 2.0)?;
    assert_eq!(handle.to_vec::<f32>()?, [0.0, 5.0, 6.0, 4.0, 5.0, 5.0]);

    // A graph built before keeps the value it was built with.
    let w = Tensor::new([1.0, 2.0, 3.0], &d)?.requires_grad();
    let loss = w.mul(&w)?.sum();
    let refused = w.index_assign(0, 10.0).unwrap_err();
    assert!(refused.to_string().contains("no_grad"), "{refused}");
    no_grad(|| w.index_assign(0, 10.0))?;
    assert_eq!(w.to_vec::<f32>()?, [10.0, 2.0, 3.0]);
    loss.backward()?;
    assert_eq!(w.grad().unwrap().to_vec::<f32>()?, [2.0, 4.0, 6.0]);

    let plain = Tensor::zeros([2], &d)?;
    assert!(plain.index_assign(0, 1.0).unwrap_err().to_string().contains("into_cell"));
    // An assignment that does not fit changes nothing.
    assert!(buffer.index_assign((0, 3), 1.0).is_err());
    assert_eq!(handle.to_vec::<f32>()?, [0.0, 5.0, 6.0, 4.0, 5.0, 5.0]);
    Ok(())
}

#[test]
fn gradients_flow_through_indices() -> Result<()> {
    let d = device();
    if !has(&d, DType::F64) {
        return Ok(());
    }
    let input =
        |shape: &[usize], seed| Tensor::randn_dtype(shape, DType::F64, &Generator::seed(seed, &d)).unwrap();
    let places = Tensor::new([2, 0, -1], &d)?;
    let mask = Tensor::new([true, false, true], &d)?;
    let by: [&dyn Fn(&Tensor) -> Result<Tensor>; 4] = [
        &|x| x.i((.., StepBy(.., 2), NewAxis, -1)),
        &|x| x.i((.., &places, 1)),
        &|x| x.i(([0, 1, 1], .., &places)),
        &|x| x.i((0, &mask)),
    ];
    for f in by {
        gradcheck(|x| f(&x[0])?.powi(3).sum_axis(.., false), &[input(&[2, 3, 4], 1)])?;
        gradgradcheck(|x| f(&x[0])?.powi(3).sum_axis(.., false), &[input(&[2, 3, 4], 1)])?;
    }
    for accumulate in [false, true] {
        gradcheck(
            |x| x[0].index_put((.., 1..), &x[1], accumulate)?.powi(2).sum_axis(.., false),
            &[input(&[2, 3], 1), input(&[2], 2)],
        )?;
        gradcheck(
            |x| x[0].index_put(&places, &x[1], accumulate)?.powi(2).sum_axis(.., false),
            &[input(&[3, 2], 1), input(&[2], 2)],
        )?;
        // The last of two for one place alone has a gradient, or both have.
        let by =
            |x: &[Tensor]| x[0].index_put((.., &places, 1), &x[1], accumulate)?.powi(3).sum_axis(.., false);
        let inputs = [input(&[2, 3, 2], 1), input(&[2, 3], 2)];
        gradcheck(by, &inputs)?;
        gradgradcheck(by, &inputs)?;
    }
    Ok(())
}

#[test]
fn values_are_read_in_any_type_that_holds_them() -> Result<()> {
    let d = device();
    let x = Tensor::new([1.5, -2.0], &d)?;
    assert_eq!(x.to_vec::<f64>()?, [1.5, -2.0]);
    let loss: f64 = x.sum().item()?;
    assert_eq!(loss, -0.5);
    assert_eq!(x.sum().item_f64()?, -0.5);
    assert_eq!(x.argmax()?.item::<i32>()?, 0);
    assert_eq!(x.argmax()?.item::<i64>()?, 0);
    assert_eq!(Tensor::new([true, true], &d)?.sum().item_f64()?, 2.0);
    assert_eq!(Tensor::new([3u8], &d)?.to_vec::<u32>()?, [3]);
    let error = Tensor::new([300, 2], &d)?.to_vec::<u8>().unwrap_err().to_string();
    assert!(error.contains("300"), "{error}");
    assert!(x.to_vec::<i32>().is_err() && x.to_dtype(DType::I32)?.item::<f32>().is_err());
    if has(&d, DType::F64) {
        assert!(x.to_dtype(DType::F64)?.to_vec::<f32>().is_err(), "a narrower float is a cast");
    }
    assert!(x.equal(&x.clone())? && !x.equal(&(&x + 1.0))? && !x.equal(&x.unsqueeze(0)?)?);
    assert!(x.allclose(&(&x + 1e-7), 1e-5, 1e-6)? && !x.allclose(&(&x + 0.1), 1e-5, 1e-6)?);
    let odd = Tensor::new([f64::INFINITY, 0.0], &d)?;
    assert!(
        odd.allclose(&odd, 0.0, 0.0)? && !odd.allclose(&(-&odd), 1.0, 1.0)? && !x.allclose(&odd, 1.0, 1.0)?
    );
    let nan = Tensor::new(f64::NAN, &d)?;
    assert!(!nan.allclose(&nan, 1.0, 1.0)? && !nan.equal(&nan)?);
    Ok(())
}

#[test]
fn numbers_stand_on_the_left_and_digits_are_asked_for() -> Result<()> {
    let x = Tensor::new([2.0, 4.0], &device())?;
    assert_eq!((1.0 / &x).to_vec::<f32>()?, [0.5, 0.25]);
    assert_eq!((2 - &x).to_vec::<f32>()?, [0.0, -2.0]);
    assert_eq!((1.0 - x.clone()).to_vec::<f32>()?, [-1.0, -3.0]);
    let third = &x / 3.0;
    assert!(format!("{third}").starts_with("tensor([0.6667, 1.3333]"), "{third}");
    assert!(format!("{third:.2}").starts_with("tensor([0.67, 1.33]"), "{third:.2}");
    assert!(format!("{:.1}", third.i(1)?).starts_with("tensor(1.3"), "{:.1}", third);
    assert!(format!("{:.1}", &third * 1e9).contains("e+0"));
    assert_eq!(x.cpu()?.device(), taper::cpu());
    Ok(())
}

#[test]
fn a_product_of_two_dtypes_says_which_to_cast() -> Result<()> {
    let d = device();
    if !has(&d, DType::F64) {
        return Ok(());
    }
    let data = Tensor::ones([2, 3], (DType::F64, &d))?;
    let weight = Tensor::ones([4, 3], &d)?.requires_grad();
    let says = |found: Result<Tensor>, words: &str| {
        let text = found.unwrap_err().to_string();
        assert!(text.contains(words), "{text}");
    };
    says(data.matmul(&weight.t()?), "cast the left one with .to_dtype(DType::F32)?, that of the parameter");
    says(weight.matmul(&data.t()?), "cast the right one with .to_dtype(DType::F32)?");
    says(data.matmul(&Tensor::ones([3, 1], &d)?), "cast the left one with .to_dtype(DType::F32)?");
    let half = weight.to_dtype(DType::F16)?.detach().requires_grad();
    says(Tensor::ones([2, 3], &d)?.matmul(&half.t()?), "cast the left one with .to_dtype(DType::F16)?");
    Ok(())
}

#[test]
fn devices_are_named_in_any_case_and_gpus_are_called_wgpu() {
    for name in ["CPU", " Cpu ", "cpu:0"] {
        assert_eq!(taper::device(name).unwrap(), taper::cpu(), "{name}");
    }
    for name in ["cuda", "CUDA:0", "mps", "rocm"] {
        let text = taper::device(name).unwrap_err().to_string();
        assert!(text.contains("wgpu") && text.contains(name), "{text}");
    }
    assert!(!taper::device("abacus").unwrap_err().to_string().contains("GPUs"));
}

/// Every method that can fail says the line that called it.
#[test]
fn errors_name_the_line_of_the_caller() {
    let d = device();
    let x = count(&[2, 3]);
    let f = Tensor::ones([2, 3], &d).unwrap();
    let rng = Generator::seed(1, &d);
    let cell = Tensor::zeros([2], &d).unwrap().into_cell(false).unwrap();
    let mut wrong: Vec<String> = Vec::new();
    macro_rules! here {
        ($($call:expr;)*) => {$({
            let error = $call.map(|_| ()).unwrap_err();
            let line = error.location().map(|l| (l.file(), l.line()));
            if line != Some((file!(), line!())) {
                wrong.push(format!("{}: {error}", stringify!($call)));
            }
        })*};
    }
    // All lines of a macro are the line of its call, so each call is separate.
    here! { x.dim(5); }
    here! { x.sum_axis(5, false); }
    here! { x.mean_axis([0, 0], false); }
    here! { x.prod_axis(5, false); }
    here! { x.amax(5, false); }
    here! { x.amin(5, false); }
    here! { Tensor::zeros([0], &d).unwrap().max(); }
    here! { Tensor::zeros([0], &d).unwrap().argmin(); }
    here! { x.argmax_axis(5, false); }
    here! { x.var_axis(5, 1.0, false); }
    here! { x.std_axis(5, 1.0, false); }
    here! { f.softmax(5); }
    here! { x.softmax(0); }
    here! { f.log_softmax(5); }
    here! { f.logsumexp(5, false); }
    here! { x.cumsum(5); }
    here! { x.cumprod(5); }
    here! { x.cummax(5); }
    here! { x.logcumsumexp(0); }
    here! { x.sort(5, false); }
    here! { x.argsort(5, false); }
    here! { x.topk(9, 0, true); }
    here! { x.reshape((4, -1)); }
    here! { x.flatten(1, 0); }
    here! { x.permute([0]); }
    here! { x.transpose(0, 5); }
    here! { x.unsqueeze(5).and_then(|x| x.t()); }
    here! { count(&[1, 1, 1]).t(); }
    here! { x.squeeze(5); }
    here! { x.expand((5, 5)); }
    here! { x.slice(5, ..); }
    here! { x.slice_step(0, .., 0); }
    here! { x.narrow(0, 1, 5); }
    here! { x.select(0, 5); }
    here! { x.flip(5); }
    here! { Tensor::concat(&[&x, &count(&[1])], 0); }
    here! { Tensor::stack(&[&x, &count(&[1])], 0); }
    here! { Tensor::stack(&[&x, &x], 7); }
    here! { x.split(1, 5); }
    here! { x.split(0, 0); }
    here! { x.pad(&[(0, 0)], 0); }
    here! { count(&[2]).tril(0); }
    here! { x.gather(0, &f); }
    here! { x.scatter_add(0, &x, &f); }
    here! { x.index_select(0, &x); }
    here! { x.index_add(5, &x, &x); }
    here! { x.i((0, 5)); }
    here! { x.i((0, 0, 0)); }
    here! { x.i((0, &f)); }
    here! { x.i((&x.i(0).unwrap(), &Tensor::zeros([2], (DType::I32, &d)).unwrap())); }
    here! { x.i(StepBy(.., 0)); }
    here! { x.index_put(0, &f, false); }
    here! { x.index_put((0, 5), 1, false); }
    here! { cell.index_assign(5, 1.0); }
    here! { f.index_add_assign(5, 1.0); }
    here! { x.masked_select(&x); }
    here! { f.add(&count(&[5]).cpu().unwrap().to(&d).unwrap()); }
    here! { f.maximum(&count(&[5])); }
    here! { f.lt(&count(&[5])); }
    here! { f.bitwise_and(&f); }
    here! { f.where_cond(&f, &f); }
    here! { f.masked_fill(&f, 0.0); }
    here! { f.matmul(&f); }
    here! { f.matmul(&x.t().unwrap()); }
    here! { f.item::<f32>(); }
    here! { f.item_f64(); }
    here! { x.to_vec::<f32>(); }
    here! { x.clone().into_cell(true); }
    here! { x.assign(&f); }
    here! { cell.assign(&f); }
    here! { f.set_requires_grad(true); }
    here! { Tensor::new(vec![vec![1.0], vec![]], &d); }
    here! { Tensor::new([300], (DType::U8, &d)); }
    here! { Tensor::from_slice(&[1.0f32], [2], &d); }
    here! { Tensor::from_vec(vec![1.0f32], [2], &d); }
    here! { Tensor::zeros([usize::MAX], &d); }
    here! { Tensor::arange(0, 1, 0, &d); }
    here! { Tensor::linspace(0.0, 1.0, 3, (DType::I32, &d)); }
    here! { Tensor::eye(1 << 40, &d); }
    here! { Tensor::rand([usize::MAX], &rng); }
    here! { Tensor::rand_dtype([1], DType::I32, &rng); }
    here! { Tensor::uniform([1], 1.0, 0.0, &rng); }
    here! { Tensor::randint(1, 0, [1], &rng); }
    here! { taper::set_default_dtype(DType::I32); }
    here! { taper::device("abacus"); }
    here! { f.backward(); }
    here! { grad(&[&f], &[&f], false); }
    here! { grad_of(&f, &f, false); }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Programs match on the kinds of errors, so these must not change.
#[test]
fn kinds_of_errors_stay() {
    let x = count(&[2, 3]);
    assert!(matches!(
        x.i((0, 5)).unwrap_err().kind(),
        ErrorKind::IndexOutOfRange { index: 5, axis: 1, size: 3, .. }
    ));
    assert!(matches!(x.select(0, -3).unwrap_err().kind(), ErrorKind::IndexOutOfRange { index: -3, .. }));
    let _: &Device = &device();
}
