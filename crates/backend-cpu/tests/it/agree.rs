//! The CPU backend against the reference backend: every kernel, over the layouts that matter to it.
#![allow(clippy::unwrap_used)]

use taper_testing::floats;
use tensor_core::{DType, Device, Result, Tensor};

fn agree(what: &str, rtol: f64, f: impl Fn(&Device) -> Result<Tensor>) {
    taper_testing::agree(&backend_cpu::cpu(), what, Some((rtol, rtol)), f);
}

#[test]
fn maps_over_every_kind_of_input() {
    for shape in
        [vec![], vec![0], vec![7], vec![1023], vec![1025], vec![5, 1000], vec![3, 700, 4], vec![300, 40]]
    {
        agree("contiguous", 1e-6, |d| Ok((floats(&shape, 1, d)? * 2.0 + 1.0).tanh().exp()));
        agree("two", 1e-6, |d| floats(&shape, 1, d)?.div(&floats(&shape, 2, d)?));
    }
    // From the middle of a buffer, small and large.
    for rows in [3, 60] {
        agree("a part", 1e-6, |d| {
            let part = |seed| floats(&[rows + 4, 50], seed, d)?.narrow(0, 2, rows);
            let (a, b) = (part(1)?, part(2)?);
            a.eval()?;
            b.eval()?;
            a.sub(&b)
        });
        agree("the logarithm of a part", 1e-6, |d| {
            Ok(floats(&[rows + 4, 50], 1, d)?.abs().narrow(0, 2, rows)?.log1p())
        });
    }
    agree("broadcast row", 1e-6, |d| floats(&[50, 300], 1, d)?.add(&floats(&[300], 2, d)?));
    agree("broadcast column", 1e-6, |d| floats(&[50, 300], 1, d)?.mul(&floats(&[50, 1], 2, d)?));
    agree("transposed", 1e-6, |d| floats(&[50, 300], 1, d)?.mul(&floats(&[300, 50], 2, d)?.t()?));
    agree("sliced", 1e-6, |d| Ok(floats(&[50, 300], 1, d)?.slice_step(1, 3..290, 7)?.flip(0)?.sigmoid()));
    agree("halves", 2e-2, |d| {
        let x = floats(&[50, 300], 1, d)?.to_dtype(DType::F16)?;
        Ok((&x * 2.0 + x.t()?.t()?.relu()).to_dtype(DType::BF16)?.abs())
    });
    agree("integers", 0.0, |d| {
        let x = (floats(&[40, 30], 1, d)? * 50.0).to_dtype(DType::I32)?;
        x.remainder_scalar(7).pow(&x.floor_divide_scalar(20))
    });
}

/// A comparison may be fused into the selections that use it, but not if something else uses it too.
#[test]
fn tests_of_one_selection_and_of_several() {
    for shape in [vec![], vec![7], vec![1025], vec![50, 300], vec![300, 1000]] {
        let (x, y) = (|d: &Device| floats(&shape, 1, d), |d: &Device| floats(&shape, 2, d));
        agree("one", 1e-6, |d| x(d)?.gt(&y(d)?)?.where_cond(&x(d)?.exp(), &y(d)?));
        agree("one, of itself", 1e-6, |d| {
            let x = x(d)?;
            x.le_scalar(0.25).where_cond(&x, &(&x * 2.0))
        });
        agree("several", 1e-6, |d| {
            let (x, y) = (x(d)?, y(d)?);
            let less = x.lt(&y)?;
            less.where_cond(&x, &y)?.mul(&less.where_cond(&y, &(&x + 1.0))?)
        });
        agree("a number asks too", 1e-6, |d| {
            let (x, y) = (x(d)?, y(d)?);
            let other = x.ne(&y)?;
            other.where_cond(&x, &y)?.add(&other.to_dtype(DType::F32)?)
        });
        agree("NaN", 1e-6, |d| {
            let x = x(d)?.sqrt();
            x.isnan().where_cond(&x.zeros_like(), &x)
        });
        agree("a sum without NaN", 1e-5, |d| {
            let x = x(d)?.sqrt();
            Ok(x.isnan().where_cond(&x.zeros_like(), &x)?.sum())
        });
        agree("of another dtype", 1e-3, |d| {
            let half = x(d)?.to_dtype(DType::F16)?;
            half.ge_scalar(0.0).where_cond(&y(d)?.to_dtype(DType::F16)?, &half)?.to_dtype(DType::F32)
        });
        agree("integers by a test of floats", 0.0, |d| {
            let (x, y) = (x(d)?, (y(d)? * 9.0).to_dtype(DType::I32)?);
            x.gt_scalar(0.0).where_cond(&y, &y.neg())
        });
    }
}

#[test]
fn outputs_may_overwrite_their_inputs() -> Result<()> {
    for n in [10, 5000, 400_000] {
        let device = backend_cpu::cpu();
        let b = floats(&[n], 2, &device)?;
        let mut r = floats(&[n], 1, &device)?;
        let expected: Vec<f32> =
            r.to_vec::<f32>()?.iter().zip(b.to_vec::<f32>()?).map(|(r, b)| (r * b + r).sin() * r).collect();
        r = {
            let old = r;
            (&old * &b + &old).sin() * old
        };
        let found = r.to_vec::<f32>()?;
        for (f, e) in found.iter().zip(expected) {
            assert!((f - e).abs() < 1e-6);
        }
    }
    Ok(())
}

/// Interleaved elements of several tensors: more and fewer rows than are written at once, single elements,
/// repeated rows, columns.
#[test]
fn tensors_stacked_along_a_last_axis() {
    for columns in 2..=5usize {
        for (rows, length) in [(1, 31), (1, 32), (1, 64), (3, 63), (2, 65), (5, 200), (3, 20_001)] {
            for dtype in [DType::F32, DType::F64, DType::F16, DType::I32] {
                agree(&format!("{columns} of {rows} x {length} in {dtype}"), 0.0, |d| {
                    let shape = [rows, length];
                    let parts = (0..columns).map(|c| {
                        let x = match c {
                            0 => floats(&shape, 1, d)?,
                            1 => floats(&[length], 2, d)?.expand(shape)?,
                            2 => floats(&[length, rows], 3, d)?.t()?,
                            3 => floats(&[rows, 1], 4, d)?.expand(shape)?,
                            _ => floats(&[rows, 2 * length], 5, d)?.slice_step(1, .., 2)?.flip(0)?,
                        };
                        (x * 100.0).to_dtype(dtype)
                    });
                    let parts = parts.collect::<Result<Vec<_>>>()?;
                    parts.iter().try_for_each(|part| part.eval().map(drop))?;
                    Tensor::stack(&parts, -1)
                });
            }
        }
    }
    // Inputs with different numbers of columns, and one input that fills the output alone.
    agree("two and one", 0.0, |d| Tensor::concat(&[floats(&[100, 2], 1, d)?, floats(&[100, 1], 2, d)?], 1));
    agree("all of one", 0.0, |d| {
        let one = floats(&[1], 1, d)?.expand([300])?;
        Tensor::stack(&[&one, &one, &floats(&[300], 2, d)?], 1)
    });
}

#[test]
fn rows_that_are_filled_with_one_element() {
    for (rows, columns) in [(1, 300), (7, 257), (3, 256), (400, 900)] {
        agree(&format!("a block of {rows} x {columns}"), 0.0, |d| {
            let x = floats(&[rows, columns], 1, d)?;
            Tensor::block_diag(&[&x, &floats(&[columns], 2, d)?, &floats(&[1, 1], 3, d)?])
        });
        agree(&format!("columns beside {rows} x {columns}"), 0.0, |d| {
            let column = floats(&[rows, 1], 1, d)?.expand([rows, columns])?;
            Tensor::concat(&[&column, &floats(&[rows, columns], 2, d)?, &column], 1)
        });
    }
}

#[test]
fn reductions_over_every_axis() {
    for shape in [
        vec![3, 4, 5],
        vec![2, 3000],
        vec![3000, 2],
        vec![200, 150],
        vec![5, 64, 70],
        vec![70, 5, 64],
        vec![100_000],
    ] {
        for mask in 1u32..1 << shape.len() {
            let axes: Vec<usize> = (0..shape.len()).filter(|a| mask >> a & 1 == 1).collect();
            let what = format!("{shape:?} over {axes:?}");
            agree(&what, 1e-6, |d| (floats(&shape, 1, d)? + 0.5).exp().mean_axis(axes.clone(), false));
            agree(&what, 1e-6, |d| floats(&shape, 1, d)?.abs().sum_axis(axes.clone(), true));
            agree(&what, 0.0, |d| floats(&shape, 1, d)?.amax(axes.clone(), false));
            agree(&what, 0.0, |d| {
                (floats(&shape, 1, d)? * 9.0).to_dtype(DType::I32)?.sum_axis(axes.clone(), false)
            });
            agree(&what, 0.0, |d| {
                floats(&shape, 1, d)?.gt_scalar(1.9).reduce(tensor_core::ReduceOp::Any, axes.clone(), false)
            });
        }
    }
}

#[test]
fn reductions_of_memory_as_it_lies() -> Result<()> {
    // Strips, groups of rows and pieces, with a rest of each; from the start and from the middle of a
    // buffer.
    for (rows, columns) in [(1, 33), (33, 4097), (1100, 65)] {
        for first in [0, 1] {
            let part =
                |d: &Device| floats(&[rows + 1, columns], 1, d)?.slice(0, first..first + rows as isize);
            for axis in [0isize, 1] {
                let what = format!("[{rows}, {columns}] from row {first} over {axis}");
                // Terms cancel, so the result may be small beside them.
                agree(&what, 1e-5, |d| part(d)?.sum_axis(axis, false));
                agree(&what, 1e-6, |d| part(d)?.abs().sum_axis(axis, false));
                agree(&what, 0.0, |d| part(d)?.amax(axis, false));
                agree(&what, 0.0, |d| part(d)?.amin(axis, false));
                agree(&what, 1e-4, |d| (part(d)? * 0.01 + 1.0).prod_axis(axis, false));
                agree(&what, 1e-12, |d| part(d)?.to_dtype(DType::F64)?.sum_axis(axis, false));
                agree(&what, 0.0, |d| (part(d)? * 99.0).to_dtype(DType::I32)?.sum_axis(axis, false));
                agree(&what, 0.0, |d| (part(d)?.abs() * 99.0).to_dtype(DType::U8)?.amax(axis, false));
                agree(&what, 0.0, |d| {
                    part(d)?.gt_scalar(1.9).reduce(tensor_core::ReduceOp::Any, [axis], false)
                });
            }
        }
    }
    let device = backend_cpu::cpu();
    let mut values = vec![1f32; 50 * 40];
    values[45 * 40 + 3] = f32::NAN;
    values[2 * 40 + 5] = f32::INFINITY;
    values[49 * 40 + 6] = f32::NEG_INFINITY;
    let x = Tensor::from_vec(values, [50, 40], &device)?;
    for found in [x.sum_axis(0, false)?, x.amax(0, false)?, x.amin(0, false)?] {
        assert!(found.to_vec::<f32>()?[3].is_nan());
    }
    assert_eq!(x.sum_axis(0, false)?.to_vec::<f32>()?[4..7], [50.0, f32::INFINITY, f32::NEG_INFINITY]);
    assert_eq!(x.amax(0, false)?.to_vec::<f32>()?[4..7], [1.0, f32::INFINITY, 1.0]);
    assert_eq!(x.amin(0, false)?.to_vec::<f32>()?[4..7], [1.0, 1.0, f32::NEG_INFINITY]);
    Ok(())
}

#[test]
fn products_of_every_shape_and_layout() {
    for (m, k, n) in [(1, 1, 1), (7, 13, 5), (64, 100, 33), (1, 50, 1), (4, 0, 3), (0, 3, 4), (65, 129, 33)]
        .into_iter()
        .chain([(1, 300, 77), (77, 300, 1), (1, 0, 3), (1, 13, 200), (6, 31, 1)])
    {
        agree("nn", 1e-5, |d| floats(&[m, k], 1, d)?.matmul(&floats(&[k, n], 2, d)?));
        agree("nt", 1e-5, |d| floats(&[m, k], 1, d)?.matmul(&floats(&[n, k], 2, d)?.t()?));
        agree("tn", 1e-5, |d| floats(&[k, m], 1, d)?.t()?.matmul(&floats(&[k, n], 2, d)?));
        agree("flipped", 1e-5, |d| floats(&[m, k], 1, d)?.flip([0, 1])?.matmul(&floats(&[k, n], 2, d)?));
        agree("batched", 1e-5, |d| floats(&[3, 1, m, k], 1, d)?.matmul(&floats(&[2, k, n], 2, d)?));
        agree("integers", 0.0, |d| {
            let ints = |t: Tensor| (t * 5.0).to_dtype(DType::I32);
            ints(floats(&[m, k], 1, d)?)?.matmul(&ints(floats(&[k, n], 2, d)?)?)
        });
        agree("halves", 2e-2, |d| {
            floats(&[m, k], 1, d)?.to_dtype(DType::F16)?.matmul(&floats(&[k, n], 2, d)?.to_dtype(DType::F16)?)
        });
    }
}

/// On a rayon thread a kernel uses only that thread.
#[test]
fn products_are_the_same_bits_on_one_thread_and_on_all() -> Result<()> {
    let device = backend_cpu::cpu();
    let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    for (m, k, n) in [
        (128, 128, 128),
        (131, 700, 137),
        (64, 784, 128),
        (40, 600, 1010),
        (5, 4000, 300),
        (130, 784, 64),
        (1024, 130, 10),
        (10, 130, 1024),
        (1, 1500, 1100),
        (1, 70_000, 70),
        (70, 70_000, 1),
        (1100, 1500, 1),
        (2, 2000, 600),
        (49, 3000, 64),
        (300, 1100, 520),
        (64, 8200, 64),
    ] {
        for (ta, tb) in [(false, false), (false, true), (true, false), (true, true)] {
            let product = || {
                let a = if ta { floats(&[k, m], 1, &device)?.t()? } else { floats(&[m, k], 1, &device)? };
                let b = if tb { floats(&[n, k], 2, &device)?.t()? } else { floats(&[k, n], 2, &device)? };
                a.matmul(&b)?.to_vec::<f32>()
            };
            let bits = |v: Vec<f32>| v.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            let (all, alone) = (bits(product()?), bits(one.install(product)?));
            assert!(all == alone, "{m} x {k} x {n}, transposed {ta} {tb}");
        }
    }
    Ok(())
}

#[test]
fn indices_copies_and_extremes() {
    let index = |d: &Device| Tensor::from_vec(vec![2i32, 0, 2, 1, 1], [5], d);
    agree("index_select", 0.0, |d| floats(&[4, 3, 5], 1, d)?.index_select(1, &index(d)?));
    agree("index_select of columns", 0.0, |d| floats(&[3, 5, 4], 1, d)?.index_select(2, &index(d)?));
    agree("index_select of columns side by side", 0.0, |d| {
        floats(&[4, 70, 3], 1, d)?.permute([2, 1, 0])?.index_select(2, &index(d)?)
    });
    agree("index_add to columns", 0.0, |d| {
        let src = floats(&[3, 5, 5], 2, d)?;
        floats(&[3, 5, 4], 1, d)?.index_add(2, &index(d)?, &src)
    });
    agree("index_add", 1e-6, |d| floats(&[4, 3], 1, d)?.index_add(1, &index(d)?, &floats(&[4, 5], 2, d)?));
    agree("concat", 0.0, |d| {
        Tensor::concat(&[&floats(&[4, 3], 1, d)?, &floats(&[2, 4], 2, d)?.t()?.slice(1, 0..1)?], 1)
    });
    agree("pad", 0.0, |d| floats(&[4, 3], 1, d)?.t()?.pad(&[(1, 2), (0, 3)], 7.5));
    for shape in [vec![37, 50], vec![3, 37, 50], vec![2, 3, 20, 17], vec![700, 800]] {
        for dtype in [DType::F32, DType::F64, DType::F16, DType::U8] {
            agree("transposed copies", 0.0, |d| {
                let x = (floats(&shape, 1, d)?.abs() * 50.0).to_dtype(dtype)?;
                let last = shape.len() as isize - 1;
                x.transpose(0, last)?.contiguous()?.flip(0)?.slice_step(last, 1..100, 2)?.contiguous()
            });
        }
    }
    agree("argmax", 0.0, |d| floats(&[40, 30], 1, d)?.argmax_axis(0, false));
    agree("random", 1e-6, |d| Tensor::randn([1000], &tensor_core::Generator::seed(3, d)));
    agree("uniform", 0.0, |d| Tensor::rand([1000], &tensor_core::Generator::seed(3, d)));
}

/// The transpose, for tensors of more than one axis.
fn turned(x: &Tensor) -> Result<Tensor> {
    if x.rank() < 2 { Ok(x.clone()) } else { x.transpose(0, -1) }
}

#[test]
fn cumulative_operations_of_every_width() {
    use tensor_core::CumulativeOp;
    // Few lines and many, contiguous and strided, with a rest of each; also enough for all threads.
    for (shape, axis) in [
        (vec![5000], 0),
        (vec![19, 300], 1),
        (vec![300, 19], 0),
        (vec![7, 5, 600], 1),
        (vec![3, 1000, 1], 1),
        (vec![20, 30, 300], 0),
        (vec![700, 200], 1),
    ] {
        let what = format!("along {axis} of {shape:?}");
        for &op in CumulativeOp::ALL {
            for reverse in [false, true] {
                agree(&what, 1e-6, |d| {
                    let x = floats(&shape, 1, d)?;
                    let x = if op == CumulativeOp::Prod { x * 0.05 + 1.0 } else { x };
                    x.cumulative(op, axis, reverse)
                });
            }
        }
        agree(&what, 0.0, |d| (floats(&shape, 1, d)? * 9.0).to_dtype(DType::I32)?.cumsum(axis));
        agree(&what, 1e-6, |d| turned(&floats(&shape, 1, d)?)?.flip(0)?.cumsum(0));
        agree(&what, 2e-3, |d| floats(&shape, 1, d)?.to_dtype(DType::F16)?.cumsum(axis));
    }
    // Lines with gaps between them.
    let part = |d: &Device| floats(&[21, 400], 1, d)?.narrow(1, 3, 350);
    agree("along parts of rows", 1e-6, |d| part(d)?.cumsum(1));
    agree("along parts of rows", 0.0, |d| Ok(part(d)?.cummin(1)?.1));
}

#[test]
fn copies_of_what_lies_in_another_order() {
    for shape in [vec![50, 300], vec![17, 33, 5], vec![3, 130, 2, 70], vec![1030, 260]] {
        let axes: Vec<usize> = (0..shape.len()).rev().collect();
        for dtype in [DType::F32, DType::F64, DType::BF16, DType::I64, DType::U8] {
            let x = |d: &Device| floats(&shape, 1, d)?.mul_scalar(9.0).abs().to_dtype(dtype);
            agree("all axes turned", 0.0, |d| x(d)?.permute(axes.as_slice())?.contiguous());
            agree("flipped", 0.0, |d| x(d)?.flip(-1)?.contiguous());
            agree("every other one", 0.0, |d| x(d)?.slice_step(-1, .., 2)?.transpose(0, -1)?.contiguous());
        }
    }
}

#[test]
fn sorts_of_every_length_and_layout() {
    for (shape, axis) in
        [(vec![19, 30], 1), (vec![2100], 0), (vec![30, 19], 0), (vec![2, 300, 18], 1), (vec![17, 2100], 1)]
    {
        let what = format!("along {axis} of {shape:?}");
        for descending in [false, true] {
            let few = [DType::F32, DType::F64, DType::BF16, DType::I32, DType::I64, DType::U8];
            for &dtype in if shape.iter().product::<usize>() > 10_000 { &few[..1] } else { &few[..] } {
                let x = |d: &Device| (floats(&shape, 1, d)? * 30.0).to_dtype(dtype);
                agree(&what, 0.0, |d| x(d)?.argsort(axis, descending));
                for k in [1, 200] {
                    let k = k.min(shape[axis as usize]);
                    agree(&what, 0.0, |d| Ok(x(d)?.topk(k, axis, descending)?.1));
                }
            }
            agree(&what, 0.0, |d| turned(&floats(&shape, 1, d)?)?.flip(0)?.argsort(0, descending));
        }
    }
}

#[test]
fn rows_of_every_length() {
    let normalised = |x: &Tensor| -> Result<Tensor> {
        let centred = x.sub(&x.mean_axis(-1, true)?)?;
        centred.mul(&(centred.powi(2).mean_axis(-1, true)? + 1e-5).rsqrt())
    };
    // Several rows in a block, about one, several blocks, several tiles; few rows, and enough for all
    // threads.
    for (rows, length) in [
        (1, 1),
        (3, 1),
        (700, 3),
        (50, 10),
        (40, 511),
        (9, 512),
        (7, 513),
        (300, 1000),
        (5, 1025),
        (70, 5000),
        // A tile is one row, and the memory exceeds the cache.
        (8, 40_000),
    ] {
        let x = |d: &Device| floats(&[rows, length], 1, d);
        agree("softmax", 1e-6, |d| x(d)?.softmax(-1));
        agree("log_softmax", 1e-6, |d| (x(d)? * 3.0).log_softmax(-1));
        agree("layer norm", 1e-5, |d| normalised(&x(d)?));
        agree("scaled and shifted", 1e-5, |d| {
            normalised(&x(d)?)?.mul(&floats(&[length], 2, d)?)?.add(&floats(&[rows, 1], 3, d)?)
        });
        agree("one value a row", 1e-6, |d| {
            let x = x(d)?;
            (x.powi(2).sum_axis(-1, false)? + 1.0).sqrt().div(&(x.amax(-1, false)? + 3.0))
        });
        agree("integers", 0.0, |d| {
            let x = (x(d)? * 100.0).to_dtype(DType::I32)?;
            x.sub(&x.amax(-1, true)?)?.mul(&x.sum_axis(-1, true)?)
        });
        agree("halves", 2e-2, |d| x(d)?.to_dtype(DType::BF16)?.softmax(-1));
    }
    agree("two axes a row", 1e-5, |d| {
        let x = floats(&[6, 20, 30], 1, d)?;
        x.sub(&x.mean_axis([1, 2], true)?)?.mul(&x.amax([1, 2], true)?)
    });
    agree("a transposed input", 1e-5, |d| normalised(&floats(&[300, 70], 1, d)?.t()?));
}

/// The fold's own loop computes squares and squared deviations if the pass does nothing else, with the same
/// bits as if another step reads them too.
#[test]
fn folds_of_squares() -> Result<()> {
    let cpu = backend_cpu::cpu();
    for (rows, length) in [(3, 1), (40, 7), (20, 300), (9, 1000), (3, 1025), (3, 5000)] {
        for dtype in [DType::F32, DType::F64, DType::F16] {
            // From the middle of a buffer, so that rows begin at any alignment.
            let x = |d: &Device| floats(&[rows + 1, length], 1, d)?.narrow(0, 1, rows)?.to_dtype(dtype);
            let rtol = if dtype == DType::F16 { 2e-2 } else { 1e-5 };
            let what = format!("[{rows}, {length}] of {dtype}");
            let scaled = |x: &Tensor, by: Tensor| x.mul(&by);
            agree(&what, rtol, |d| {
                let x = x(d)?;
                scaled(&x, x.powi(2).sum_axis(-1, true)?.sqrt())
            });
            let deviations = |x: &Tensor| x.sub(&x.mean_axis(-1, true)?);
            agree(&what, rtol, |d| {
                let x = x(d)?;
                scaled(&x, deviations(&x)?.powi(2).mean_axis(-1, true)?)
            });
            if dtype == DType::F16 {
                continue;
            }
            // Not a difference from one number for each row, and a difference that is not from the row's
            // elements.
            agree(&what, rtol, |d| {
                let x = x(d)?;
                let other = floats(&[rows, length], 2, d)?.to_dtype(dtype)?;
                let reversed = x.mean_axis(-1, true)?.sub(&x)?.powi(2).sum_axis(-1, true)?;
                scaled(&x.sub(&other)?, x.sub(&other)?.powi(2).sum_axis(-1, true)?)?.mul(&reversed)
            });
            let source = x(&cpu)?;
            source.eval()?;
            let mean = source.mean_axis(-1, true)?;
            let squares = source.sub(&mean)?.powi(2);
            let alone = squares.sum_axis(-1, true)?.mul(&source)?;
            let alone = alone.to_f64_vec()?;
            let read = [squares.clone(), squares.sum_axis(-1, true)?.mul(&source)?];
            tensor_core::eval_all(&[&read[0], &read[1]])?;
            assert_eq!(read[1].to_f64_vec()?, alone, "{what}");
        }
    }
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let x = Tensor::from_vec(vec![nan, 1.0, -inf, 1.0, -0.0, -0.0, 3.0, 4.0], [4, 2], &cpu)?;
    let y = x.mul(&x.powi(2).sum_axis(-1, true)?)?.to_vec::<f32>()?;
    assert!(y[0].is_nan() && y[1].is_nan(), "{y:?}");
    assert_eq!((y[2], y[3], y[6], y[7]), (-inf, inf, 75.0, 100.0));
    assert!(y[4] == 0.0 && y[4].is_sign_negative());
    let deviations = x.sub(&x.mean_axis(-1, true)?)?;
    let y = deviations.powi(2).sum_axis(-1, true)?.mul(&x)?.to_vec::<f32>()?;
    assert!(y[..4].iter().all(|v| v.is_nan()), "{y:?}");
    assert_eq!(y[6..], [1.5, 2.0]);
    Ok(())
}

#[test]
fn rows_with_special_values() -> Result<()> {
    let device = backend_cpu::cpu();
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let x = Tensor::from_vec(vec![0.0, 0.0, inf, 0.0, nan, 1.0, -inf, 0.0], [4, 2], &device)?;
    let y = x.softmax(-1)?.to_vec::<f32>()?;
    assert_eq!((y[0], y[1], y[6], y[7]), (0.5, 0.5, 0.0, 1.0));
    assert!(y[2..6].iter().filter(|v| v.is_nan()).count() >= 3, "{y:?}");
    let none = Tensor::from_vec(Vec::<f32>::new(), [0, 5], &device)?.softmax(-1)?;
    assert_eq!(none.to_vec::<f32>()?, Vec::<f32>::new());
    Ok(())
}
