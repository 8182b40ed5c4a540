//! The choice of frames, checked by the numbers of kernels and by the results on the reference backend.
#![allow(clippy::unwrap_used)]

use taper_testing::{reference, reference_limited, tensor};
use tensor_core::{DType, Device, Result, Tensor, eval_all};

/// The kernels that compute some tensors, by name, with frames or without; both must give the same numbers.
fn kernels(f: impl Fn(&Device) -> Result<Vec<Tensor>>) -> [Vec<(&'static str, usize)>; 2] {
    let run = |min_framed_bytes: usize| {
        let (device, backend) = reference_limited(|limits| limits.min_framed_bytes = min_framed_bytes);
        let results = f(&device).unwrap();
        backend.kernels.lock().unwrap().clear();
        eval_all(&results.iter().collect::<Vec<_>>()).unwrap();
        let mut counted: Vec<_> = backend.kernels.lock().unwrap().drain().collect();
        counted.sort_unstable();
        let numbers: Vec<Vec<f64>> = results.iter().map(|t| t.to_f64_vec().unwrap()).collect();
        (counted, numbers)
    };
    let ((framed, numbers), (plain, same)) = (run(1), run(usize::MAX));
    assert_eq!(numbers, same);
    [framed, plain]
}

/// Images `[2, 3, 4, 5]` in memory.
fn images(d: &Device) -> Result<Tensor> {
    let images = tensor(&[2, 3, 4, 5], 1, DType::F32, d)?;
    images.eval()?;
    Ok(images)
}

/// A border of zeros of these widths, before and after rows and columns.
fn border(x: &Tensor, rows: (usize, usize), columns: (usize, usize)) -> Result<Tensor> {
    let lead = vec![(0, 0); x.rank() - 2];
    x.pad(&[&lead[..], &[rows, columns]].concat(), 0.0)
}

#[test]
fn a_border_around_an_expression_takes_no_kernel() {
    let one = vec![("map", 1)];
    let apart = vec![("copy", 1), ("map", 1)];
    let around = |d: &Device| Ok(vec![border(&images(d)?.tanh(), (1, 2), (3, 0))?]);
    assert_eq!(kernels(around), [one.clone(), apart.clone()]);
    // The expression is also a result of its own, and is read as it is.
    let both = |d: &Device| {
        let x = images(d)?.tanh();
        Ok(vec![border(&x, (1, 1), (1, 1))?, x.clone(), x.sum_axis(0, false)?])
    };
    assert_eq!(kernels(both), [vec![("map", 1), ("sum", 1)], vec![("copy", 1), ("map", 1), ("sum", 1)]]);
    // Two equal borders are one buffer; another border is a copy of its own.
    let three = |d: &Device| {
        let x = images(d)?.tanh();
        Ok(vec![border(&x, (1, 1), (1, 1))?.neg(), border(&x, (1, 1), (1, 1))?, border(&x, (2, 2), (1, 1))?])
    };
    assert_eq!(kernels(three), [vec![("copy", 1), ("map", 2)], vec![("copy", 3), ("map", 2)]]);
    // Several results of one kernel, of which one has a border.
    let several = |d: &Device| {
        let x = images(d)?;
        Ok(vec![border(&x.tanh(), (0, 1), (1, 0))?, x.exp(), x.tanh().exp()])
    };
    assert_eq!(kernels(several), [one, apart]);
}

#[test]
fn a_border_is_found_behind_permuted_axes_and_around_rows() {
    // Images whose channels are first, as the gradients of a batch norm compute them.
    let permuted = |d: &Device| {
        let x = images(d)?.permute([1, 0, 2, 3])?.tanh().permute([1, 0, 2, 3])?;
        Ok(vec![border(&x, (1, 1), (2, 2))?, (x * 2.0)])
    };
    let [framed, plain] = kernels(permuted);
    assert_eq!((framed, plain), (vec![("map", 2)], vec![("copy", 1), ("map", 2)]));
    let transposed = |d: &Device| Ok(vec![border(&images(d)?.tanh().transpose(2, 3)?, (1, 0), (0, 2))?]);
    assert_eq!(kernels(transposed), [vec![("map", 1)], vec![("copy", 1), ("map", 1)]]);
    // The softmax of rows, and of whole images.
    for axes in [&[3isize][..], &[2, 3]] {
        let rows = |d: &Device| {
            let x = images(d)?;
            let exp = x.sub(&x.amax(axes, true)?)?.exp();
            Ok(vec![border(&exp.div(&exp.sum_axis(axes, true)?)?, (1, 1), (1, 1))?])
        };
        assert_eq!(kernels(rows), [vec![("rows", 1)], vec![("copy", 1), ("rows", 1)]]);
    }
}

#[test]
fn other_paddings_are_copies() {
    let with = |f: &dyn Fn(&Tensor) -> Result<Tensor>| kernels(|d| Ok(vec![f(&images(d)?.tanh())?]));
    let apart = vec![("copy", 1), ("map", 1)];
    // A border of ones; zeros along an axis before the last two; the border of a tensor in memory.
    let ones = with(&|x| x.pad(&[(0, 0), (0, 0), (1, 1), (1, 1)], 1.0));
    let channels = with(&|x| x.pad(&[(0, 0), (1, 0), (0, 0), (1, 1)], 0.0));
    assert_eq!([ones, channels], [[apart.clone(), apart.clone()], [apart.clone(), apart]]);
    let ready = kernels(|d| Ok(vec![border(&images(d)?, (1, 1), (1, 1))?]));
    assert_eq!(ready, [vec![("copy", 1)], vec![("copy", 1)]]);
    // Integers have bounds, which do not know of zeros: index 0 is not checked if all are above it.
    let integers = kernels(|d| {
        let index = Tensor::arange(1, 5, 1, (DType::I32, d))?.reshape([2, 2])?;
        let table = tensor(&[5], 2, DType::F32, d)?;
        let padded = border(&(index + 0), (1, 0), (0, 0))?;
        Ok(vec![table.index_select(0, &padded.flatten_all())?])
    });
    assert_eq!(integers[0], integers[1]);
    // The epilogue of a product is better where it is.
    let product = |d: &Device| {
        let (a, b) = (tensor(&[4, 5], 1, DType::F32, d)?, tensor(&[5, 6], 2, DType::F32, d)?);
        eval_all(&[&a, &b])?;
        Ok(vec![border(&a.matmul(&b)?.relu(), (1, 1), (1, 1))?])
    };
    assert_eq!(kernels(product), [vec![("copy", 1), ("matmul", 1)], vec![("copy", 1), ("matmul", 1)]]);
}

/// A value in a border is a view, which later plans read as any other.
#[test]
fn a_bordered_value_is_read_by_later_plans() -> Result<()> {
    let d = reference();
    let x = images(&d)?.tanh();
    let padded = border(&x, (1, 0), (0, 2))?;
    eval_all(&[&x, &padded])?;
    let expected: Vec<f64> = images(&d)?.to_f64_vec()?.into_iter().map(|v| v.tanh()).collect();
    let close = |found: &[f64]| found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6);
    assert!(close(&x.to_f64_vec()?));
    assert!(close(&padded.narrow(2, 1, 4)?.narrow(3, 0, 5)?.to_f64_vec()?));
    assert!(close(&(x * 1.0).to_f64_vec()?));
    assert_eq!(padded.narrow(2, 0, 1)?.sum().to_f64_vec()?, [0.0]);
    Ok(())
}
