//! Einsum against its definition, contractions of every layout, and windows as views.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use taper::autograd::{TensorGrad, gradcheck, gradgradcheck};
use taper::tensor_core::Subscripts;
use taper::{DType, Device, Result, Tensor};

use crate::common::{agree, assert_close, device, needs, reference_device, tensor};

/// The sum over all assignments of the names, as the equation says. Operands are row-major; no ellipsis, no
/// broadcasting.
fn definition(equation: &str, operands: &[(Vec<usize>, Vec<f64>)]) -> Vec<f64> {
    let (terms, out) = equation.split_once("->").unwrap();
    let terms: Vec<Vec<char>> = terms.split(',').map(|t| t.chars().collect()).collect();
    let out: Vec<char> = out.chars().collect();
    let mut sizes: BTreeMap<char, usize> = BTreeMap::new();
    for (term, (shape, _)) in terms.iter().zip(operands) {
        term.iter().zip(shape).for_each(|(&c, &n)| {
            sizes.insert(c, n);
        });
    }
    let names: Vec<char> = sizes.keys().copied().collect();
    let flat = |term: &[char], index: &BTreeMap<char, usize>| {
        term.iter().fold(0, |flat, c| flat * sizes[c] + index[c])
    };
    let mut result = vec![0.0; out.iter().map(|c| sizes[c]).product()];
    for mut position in 0..sizes.values().product::<usize>() {
        let mut index = BTreeMap::new();
        for &name in names.iter().rev() {
            index.insert(name, position % sizes[&name]);
            position /= sizes[&name];
        }
        let product: f64 = terms.iter().zip(operands).map(|(t, (_, v))| v[flat(t, &index)]).product();
        result[flat(&out, &index)] += product;
    }
    result
}

/// Equations, with the sizes of their operands.
fn cases() -> Vec<(&'static str, Vec<Vec<usize>>)> {
    vec![
        ("ij,jk->ik", vec![vec![3, 4], vec![4, 5]]),
        ("bij,bjk->bik", vec![vec![2, 3, 4], vec![2, 4, 5]]),
        ("ij,jk->ki", vec![vec![3, 4], vec![4, 5]]),
        ("bqhd,bkhd->bhqk", vec![vec![2, 3, 2, 4], vec![2, 5, 2, 4]]),
        ("bhqk,bkhd->bqhd", vec![vec![2, 2, 3, 5], vec![2, 5, 2, 4]]),
        ("abcd,cdbe->ae", vec![vec![2, 3, 4, 2], vec![4, 2, 3, 3]]),
        ("i,j->ij", vec![vec![3], vec![4]]),
        ("i,i->", vec![vec![7], vec![7]]),
        ("ij,ij->ij", vec![vec![3, 4], vec![3, 4]]),
        ("ij,ij->j", vec![vec![3, 4], vec![3, 4]]),
        ("ijk->kji", vec![vec![2, 3, 4]]),
        ("ijk->j", vec![vec![2, 3, 4]]),
        ("ii->i", vec![vec![4, 4]]),
        ("ii->", vec![vec![4, 4]]),
        ("iij,jk->ik", vec![vec![3, 3, 4], vec![4, 2]]),
        ("ij,k->i", vec![vec![3, 4], vec![5]]),
        ("ij,jk,kl,lm->im", vec![vec![2, 3], vec![3, 4], vec![4, 2], vec![2, 5]]),
        ("b,bi,bij->j", vec![vec![3], vec![3, 2], vec![3, 2, 4]]),
        ("nchw,oc->nohw", vec![vec![2, 3, 4, 5], vec![6, 3]]),
    ]
}

/// A tensor of numbers in one of four memory layouts: in order, with its axes reversed, backwards, with
/// gaps.
fn laid(way: usize, shape: &[usize], seed: u64, device: &Device) -> Result<Tensor> {
    let x = tensor(shape, seed, DType::F32, device)?;
    let axes: Vec<usize> = (0..shape.len()).rev().collect();
    let stored = |t: Tensor| -> Result<Tensor> {
        t.eval()?;
        Ok(t)
    };
    match way % 4 {
        0 => Ok(x),
        1 => stored(x.permute(axes.clone())?.add_scalar(0.0))?.permute(axes),
        2 => stored(x.flip(axes.clone())?.add_scalar(0.0))?.flip(axes),
        _ => {
            let gaps: Vec<(usize, usize)> = shape.iter().map(|_| (1, 2)).collect();
            let mut inner = stored(x.pad(&gaps, f64::NAN)?)?;
            for (axis, &n) in shape.iter().enumerate() {
                inner = inner.narrow(axis, 1, n)?;
            }
            Ok(inner)
        }
    }
}

#[test]
fn sums_of_products_over_names() {
    for (case, (equation, shapes)) in cases().into_iter().enumerate() {
        for way in 0..4 {
            agree(&format!("{equation}, operands lying in way {way}"), |device| {
                let made = |(k, s): (usize, &Vec<usize>)| laid(way + k, s, (case * 10 + k) as u64, device);
                let operands: Vec<Tensor> = shapes.iter().enumerate().map(made).collect::<Result<_>>()?;
                Tensor::einsum(equation, &operands)
            });
        }
        let reference = reference_device();
        let operands: Vec<Tensor> = shapes
            .iter()
            .enumerate()
            .map(|(k, s)| tensor(s, (case * 10 + k) as u64, DType::F64, &reference).unwrap())
            .collect();
        let values: Vec<_> =
            operands.iter().map(|t| (t.dims().to_vec(), t.to_vec::<f64>().unwrap())).collect();
        let found = Tensor::einsum(equation, &operands).unwrap();
        assert_close(&found.to_f64_vec().unwrap(), &definition(equation, &values), (1e-12, 1e-12), equation);
    }
}

#[test]
fn integers_wrap_and_half_types_sum_in_f32() {
    for dtype in [DType::I32, DType::I64, DType::U8, DType::F16, DType::BF16] {
        if !device().supports(dtype) {
            continue;
        }
        agree(&format!("einsum of {dtype}"), |device| {
            let (a, b) = (tensor(&[3, 4, 5], 1, dtype, device)?, tensor(&[5, 3, 6], 2, dtype, device)?);
            Tensor::einsum("ijk,kil->jl", &[a, b])
        });
    }
}

#[test]
fn gradients_of_sums_of_products() {
    if !needs(&device(), DType::F64) {
        return;
    }
    for (case, (equation, shapes)) in cases().into_iter().enumerate() {
        let operands: Vec<Tensor> = shapes
            .iter()
            .enumerate()
            .map(|(k, s)| tensor(s, (case * 10 + k) as u64, DType::F64, &device()).unwrap())
            .collect();
        gradcheck(|t| Tensor::einsum(equation, t), &operands).unwrap_or_else(|e| panic!("{equation}: {e}"));
        if operands.iter().map(Tensor::numel).sum::<usize>() < 30 {
            gradgradcheck(|t| Tensor::einsum(equation, t), &operands)
                .unwrap_or_else(|e| panic!("{equation}: {e}"));
        }
    }
}

#[test]
fn ellipses_implied_results_and_broadcasting() {
    let device = device();
    let shape = |equation: &str, shapes: &[&[usize]]| -> Vec<usize> {
        let operands: Vec<Tensor> = shapes.iter().map(|s| Tensor::ones(*s, &device).unwrap()).collect();
        Tensor::einsum(equation, &operands).unwrap().dims().to_vec()
    };
    assert_eq!(shape("...ij->...ji", &[&[2, 3, 4, 5]]), [2, 3, 5, 4]);
    assert_eq!(shape("...ij,...jk->...ik", &[&[2, 3, 4, 5], &[5, 6]]), [2, 3, 4, 6]);
    assert_eq!(shape("b...,b...->...", &[&[2, 3, 4], &[2, 1, 4]]), [3, 4]);
    assert_eq!(shape("ba", &[&[2, 3]]), [3, 2]);
    assert_eq!(shape("aB", &[&[2, 3]]), [3, 2]);
    assert_eq!(shape("ij, jk", &[&[2, 3], &[3, 4]]), [2, 4]);
    assert_eq!(shape("ij,j", &[&[2, 3], &[1]]), [2]);
    assert_eq!(shape("ii", &[&[3, 3]]), [0; 0]);
    assert_eq!(shape("...i,...i", &[&[2, 3], &[4, 2, 3]]), [4, 2]);
    assert_eq!(shape("ij,jk->ik", &[&[0, 3], &[3, 4]]), [0, 4]);
    let empty = Tensor::einsum(
        "ij,jk->ik",
        &[Tensor::ones([2, 0], &device).unwrap(), Tensor::ones([0, 2], &device).unwrap()],
    );
    assert_eq!(empty.unwrap().to_vec::<f32>().unwrap(), [0.0; 4]);
}

#[test]
fn equations_of_every_wrong_kind() {
    let device = device();
    let (a, b) = (Tensor::ones([2, 3], &device).unwrap(), Tensor::ones([3, 4], &device).unwrap());
    for (equation, words) in [
        ("ij->ij", "1 operands are named, and 2 given"),
        ("ij,jk,kl->il", "3 operands are named"),
        ("i,jk->ijk", "names 1 axes of shape [2, 3]"),
        ("ijk,jk->i", "names 3 axes"),
        ("ij,ij->i", "j is of size 3 in one operand, 4 in the other, or i"),
        ("ij,jk->iz", "no operand has the result's z"),
        ("ij,jk->ii", "the result has i twice"),
        ("i1,1k->ik", "'1' is no subscript"),
        ("i..j,jk->ik", "ellipsis"),
        ("i......j,jk->ik", "ellipsis"),
        ("ij,jk->ik->k", "no subscript"),
        ("", "operands are named"),
    ] {
        let error = Tensor::einsum(equation, &[&a, &b]).unwrap_err().to_string();
        let first = words.split(", or ").next().unwrap();
        let said = error.contains(first) || error.contains("is of size");
        assert!(said && error.contains("einsum") && error.contains("einsum.rs"), "{equation}: {error}");
    }
    assert!(Tensor::einsum("ii->i", &[&a]).unwrap_err().to_string().contains("sizes 2 and 3"));
    assert!(Tensor::einsum("i", &[] as &[Tensor]).unwrap_err().to_string().contains("no operands"));
    let whole = a.to_dtype(DType::I32).unwrap();
    assert!(Tensor::einsum("ij,jk", &[&whole, &b]).unwrap_err().to_string().contains("cast"));
    let subscripts = |lhs: &[u8], rhs: &[u8], out: &[u8]| Subscripts {
        lhs: lhs.iter().copied().collect(),
        rhs: rhs.iter().copied().collect(),
        out: out.iter().copied().collect(),
    };
    let says = |s: Subscripts, words: &str| {
        let error = a.contract(&b, s).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    says(subscripts(&[0, 0], &[0, 1], &[1]), "left labels");
    says(subscripts(&[0, 1], &[1], &[0]), "right labels");
    says(subscripts(&[0, 1], &[0, 2], &[2]), "has size 2 in one operand, 3 in the other");
    says(subscripts(&[0, 1], &[1, 2], &[0, 3]), "is no operand's");
    says(subscripts(&[0, 1], &[2, 3], &[0, 3]), "one operand's alone");
}

#[test]
fn outer_and_tensordot() {
    agree("outer", |device| {
        tensor(&[3], 1, DType::F32, device)?.outer(&tensor(&[4], 2, DType::F32, device)?)
    });
    let device = device();
    let a = tensor(&[2, 3, 4], 1, DType::F32, &device).unwrap();
    let b = tensor(&[4, 5, 2], 2, DType::F32, &device).unwrap();
    let found = a.tensordot(&b, [2, 0], [0, 2]).unwrap();
    let expected = Tensor::einsum("ijk,kli->jl", &[&a, &b]).unwrap();
    assert_close(&found.to_f64_vec().unwrap(), &expected.to_f64_vec().unwrap(), (1e-6, 1e-6), "tensordot");
    assert_eq!(a.tensordot(&b, -1, 0).unwrap().dims(), [2, 3, 5, 2]);
    assert!(a.tensordot(&b, [1], [0]).unwrap_err().to_string().contains("has size 3"));
    assert!(a.tensordot(&b, [1, 2], [0]).unwrap_err().to_string().contains("2 axes of one tensor for 1"));
    assert!(a.outer(&b).unwrap_err().to_string().contains("no vector"));
}

#[test]
fn windows_are_views_that_may_overlap() {
    let device = device();
    let x = Tensor::arange(0.0, 10.0, 1.0, &device).unwrap();
    let y = x.unfold(0, 4, 3).unwrap();
    assert_eq!(y.dims(), [3, 4]);
    let expected = [0.0, 1.0, 2.0, 3.0, 3.0, 4.0, 5.0, 6.0, 6.0, 7.0, 8.0, 9.0];
    assert_eq!(y.to_vec::<f32>().unwrap(), expected);
    assert_eq!(x.windows(0, 3, 5, 2).unwrap().to_vec::<f32>().unwrap(), [0.0, 2.0, 4.0, 5.0, 7.0, 9.0]);
    for way in 0..4 {
        agree(&format!("windows of a tensor lying in way {way}"), |device| {
            let x = laid(way, &[3, 7, 4], 1, device)?;
            x.windows(1, 3, 2, 2)?.unfold(-2, 2, 1)?.mul_scalar(2.0).sum_axis(1, false)
        });
    }
    // A buffer that windows read is not overwritten while they read it.
    let twice = x.add_scalar(1.0);
    let windows = twice.unfold(0, 2, 1).unwrap();
    drop(twice);
    let sums = windows.add(&windows.flip(0).unwrap()).unwrap();
    assert_eq!(sums.sum().item_f64().unwrap(), 4.0 * numbers_between());
    for (size, step, dilation, words) in
        [(11, 1, 1, "reaches over 11"), (3, 0, 1, "step or dilation of 0"), (3, 1, 5, "reaches over 11")]
    {
        let error = x.windows(0, size, step, dilation).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    assert!(x.unfold(1, 1, 1).is_err());
    let tracked = x.clone().requires_grad();
    tracked.unfold(0, 3, 1).unwrap().sum().backward().unwrap();
    let gradient = tracked.grad().unwrap().to_vec::<f32>().unwrap();
    assert_eq!(gradient, [1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 2.0, 1.0]);
    if needs(&device, DType::F64) {
        let x = tensor(&[2, 6], 1, DType::F64, &device).unwrap();
        gradcheck(|t| t[0].windows(1, 2, 2, 3), std::slice::from_ref(&x)).unwrap();
        gradgradcheck(|t| t[0].powi(2).unfold(1, 3, 2), &[x]).unwrap();
    }
}

/// The sum of the pairs' means: each pair of neighbours of 1..=10, twice over its two elements.
fn numbers_between() -> f64 {
    let pairs = (1..10).map(|i| f64::from(i) + f64::from(i + 1));
    pairs.sum::<f64>() / 2.0
}
