//! That epilogues of contractions change no result: products and convolutions with biases, activations,
//! residuals.
#![allow(clippy::unwrap_used)]

use taper::autograd::{TensorGrad, grad};
use taper::nn::functional::{ConvOptions, conv2d, linear};
use taper::{DType, Device, Result, Tensor};

use crate::common::{agree_within, device, drawn, has, tensor};

/// The product's kernel also stores the value before the activation, which the gradient reads.
#[test]
fn what_a_gradient_reads_is_stored_too() {
    let (device, backend) = taper_testing::reference_backend();
    let make = |shape: &[usize], seed| tensor(shape, seed, DType::F32, &device).unwrap();
    let (x, w, b) = (make(&[4, 5], 1), make(&[5, 6], 2).requires_grad(), make(&[6], 3));
    taper::eval_all(&[&x, &w, &b]).unwrap();
    backend.kernels.lock().unwrap().clear();
    let y = x.matmul(&w).unwrap().add(&b).unwrap().gelu();
    y.eval().unwrap();
    let found: Vec<_> = backend.kernels.lock().unwrap().drain().collect();
    assert_eq!(found, [("matmul", 1)]);
}

/// Every dtype, sizes of 0 and 1 and odd ones, batches, transposed operands.
#[test]
fn products_with_epilogues_agree() {
    let d = device();
    for dtype in DType::ALL.into_iter().filter(|&dtype| dtype != DType::Bool) {
        if !has(&d, dtype) {
            continue;
        }
        let within = match dtype {
            DType::F16 => Some((4e-3, 2e-2)),
            DType::BF16 => Some((3e-2, 1e-1)),
            _ => None,
        };
        for (lead, m, k, n) in [
            (&[][..], 5, 7, 9),
            (&[], 1, 8, 12),
            (&[], 12, 8, 1),
            (&[], 6, 0, 5),
            (&[], 0, 3, 5),
            (&[], 33, 20, 68),
            (&[3], 5, 6, 7),
            (&[2, 1], 1, 6, 7),
        ] {
            // Narrow types differ only in loads and stores; half types represent their other kernels.
            let is_half = matches!(dtype, DType::F16 | DType::BF16);
            let is_other = dtype.is_narrow() && !is_half && ![9, 68].contains(&n);
            if is_other || !drawn(format!("{lead:?} {m} {k} {n} {dtype}")) {
                continue;
            }
            let shape = |last: [usize; 2]| [lead, &last[..]].concat();
            let make = |d: &Device| {
                let x = tensor(&shape([m, k]), 1, dtype, d)?;
                let across = tensor(&shape([n, k]), 2, dtype, d)?.transpose(-1, -2)?;
                Ok((x, across, tensor(&[n], 3, dtype, d)?, tensor(&shape([m, n]), 4, dtype, d)?))
            };
            agree_within(&format!("bias and relu: {lead:?} {m} {k} {n} {dtype}"), within, |d| {
                let (x, w, b, _) = make(d)?;
                Ok(x.matmul(&w)?.add(&b)?.relu())
            });
            agree_within(&format!("residual and scale: {lead:?} {m} {k} {n} {dtype}"), within, |d| {
                let (x, w, _, residual) = make(d)?;
                x.matmul(&w)?.mul_scalar(3).add(&residual)
            });
            agree_within(&format!("mask and cast: {lead:?} {m} {k} {n} {dtype}"), within, |d| {
                let (x, w, b, residual) = make(d)?;
                let product = x.matmul(&w)?;
                let masked = b.gt_scalar(0).where_cond(&product, &residual)?;
                masked.to_dtype(DType::F32)
            });
        }
    }
}

#[test]
fn convolutions_with_epilogues_agree() {
    for groups in [1, 2, 4] {
        for (stride, padding) in [(1, 1), (2, 0)] {
            let options = ConvOptions {
                stride: [stride; 2],
                padding: [padding; 2].into(),
                groups,
                ..ConvOptions::default()
            };
            let what = format!("{groups} groups, stride {stride}, padding {padding}");
            agree_within(&what, Some((1e-4, 1e-4)), |d| {
                let x = tensor(&[2, 4, 9, 10], 1, DType::F32, d)?;
                let w = tensor(&[8, 4 / groups, 3, 3], 2, DType::F32, d)?;
                Ok(conv2d(&x, &w, Some(&tensor(&[8], 3, DType::F32, d)?), options)?.relu())
            });
        }
    }
}

/// Layers with activations, and their gradients: a gradient reads the computed values.
#[test]
fn gradients_through_epilogues_agree() {
    for k in 0..4 {
        let act = |t: Tensor| match k {
            0 => t.relu(),
            1 => t.gelu(),
            2 => t.sigmoid(),
            _ => t.gelu_tanh(),
        };
        agree_within(&format!("activation {k}"), Some((1e-4, 1e-4)), |d| {
            let x = tensor(&[7, 12], 1, DType::F32, d)?;
            let all: Vec<Tensor> = [(&[20, 12][..], 2), (&[20], 3), (&[12, 20], 4), (&[12], 5)]
                .iter()
                .map(|&(shape, seed)| Ok(tensor(shape, seed, DType::F32, d)?.requires_grad()))
                .collect::<Result<_>>()?;
            let hidden = act(linear(&x, &all[0], Some(&all[1]))?);
            let y = linear(&hidden, &all[2], Some(&all[3]))?.add(&x)?;
            let gradients = grad(&[y.powi(2).mean()], &all, false)?;
            let flat: Vec<Tensor> = gradients.iter().flatten().map(Tensor::flatten_all).collect();
            Tensor::concat(&flat, 0)
        });
    }
}
