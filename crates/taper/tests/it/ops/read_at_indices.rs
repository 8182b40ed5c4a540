//! Operations on gathered elements, all at once and step by step.
#![allow(clippy::unwrap_used, clippy::panic)]

use taper::{DType, Device, ErrorKind, Result, Tensor};
use taper_testing::{LAYOUTS, assert_close, laid_out, numbers, of, tensor, tolerance};

use crate::common::device;
use tensor_core::ReduceOp;

/// Keeps an intermediate value as it is, or computes it first.
type Step<'a> = &'a dyn Fn(Tensor) -> Result<Tensor>;

/// Holds a composition that is computed at once to the same one, each of whose steps is stored.
#[track_caller]
fn agree(what: &str, f: impl Fn(&Device, Step<'_>) -> Result<Tensor>) {
    let d = device();
    let whole = f(&d, &Ok).unwrap_or_else(|error| panic!("{what}: {error}"));
    let stored = |t: Tensor| t.eval().map(|()| t);
    let by_steps = f(&d, &stored).unwrap();
    assert_eq!((whole.shape(), whole.dtype()), (by_steps.shape(), by_steps.dtype()), "{what}");
    // Sums of up to 70 terms are added in another order.
    let of_sums = |(rtol, atol)| (rtol, 10.0 * atol);
    let within = if whole.dtype().is_float() { of_sums(tolerance(whole.dtype())) } else { (0.0, 0.0) };
    assert_close(&whole.to_f64_vec().unwrap(), &by_steps.to_f64_vec().unwrap(), within, what);
}

/// Indices below a bound, in no order.
fn indices(shape: &[usize], below: usize, seed: u64, dtype: DType, d: &Device) -> Result<Tensor> {
    let all = numbers(shape.iter().product(), seed);
    let all: Vec<f64> = all.iter().map(|x| ((x + 2.0) * 0.249_9 * below as f64).floor()).collect();
    let index = of(&all, shape, dtype, d)?;
    index.eval()?;
    Ok(index)
}

fn float(shape: &[usize], seed: u64, d: &Device) -> Result<Tensor> {
    let x = tensor(shape, seed, DType::F32, d)?;
    x.eval()?;
    Ok(x)
}

#[test]
fn rows_of_a_table() {
    // Short rows and long ones, few and many.
    for (rows, features) in [(1, 1), (7, 3), (33, 64), (20, 129), (300, 40), (5, 2000)] {
        let what = |what: &str| format!("{what} of {rows} rows of {features}");
        let table = |d: &Device| float(&[11, features], 1, d);
        let index = |d: &Device| indices(&[rows], 11, 2, DType::I32, d);
        agree(&what("a position added"), |d, step| {
            let found = step(table(d)?.index_select(0, &index(d)?)?)?;
            found.add(&float(&[rows, features], 3, d)?)
        });
        agree(&what("normalized"), |d, step| {
            let found = step(table(d)?.index_select(0, &index(d)?)?)?;
            let mean = found.mean_axis(1, true)?;
            let centered = step(found.sub(&mean)?)?;
            let deviation = step(centered.square().mean_axis(1, true)?.add_scalar(1e-5).sqrt())?;
            centered.div(&deviation)
        });
        agree(&what("the softmax"), |d, step| {
            step(table(d)?.index_select(0, &index(d)?)?)?.mul_scalar(2.0).softmax(-1)
        });
        agree(&what("two tables"), |d, step| {
            let first = step(table(d)?.index_select(0, &index(d)?)?)?;
            let second =
                step(float(&[5, features], 7, d)?.index_select(0, &indices(&[rows], 5, 8, DType::I32, d)?)?)?;
            first.mul(&second)
        });
        agree(&what("one table twice"), |d, step| {
            let table = table(d)?;
            let first = step(table.index_select(0, &index(d)?)?)?;
            first.sub(&step(table.index_select(0, &indices(&[rows], 11, 9, DType::I32, d)?)?)?)
        });
        agree(&what("sums"), |d, step| {
            step(table(d)?.index_select(0, &index(d)?)?)?.exp().sum_axis(0, false)
        });
        agree(&what("a sum of each"), |d, step| {
            step(table(d)?.index_select(0, &index(d)?)?)?.sum_axis(1, false)
        });
        agree(&what("their sum"), |d, step| Ok(step(table(d)?.index_select(0, &index(d)?)?)?.sum()));
    }
}

#[test]
fn bags() {
    for (bags, count, features) in [(4, 3, 5), (9, 10, 64), (3, 70, 130), (1, 1, 1), (2, 0, 3)] {
        let found = |d: &Device| -> Result<Tensor> {
            let index = indices(&[bags, count], 20, 4, DType::I32, d)?;
            float(&[20, features], 5, d)?
                .index_select(0, &index.flatten_all())?
                .reshape([bags, count, features])
        };
        let what = |what: &str| format!("{what} of {bags} bags of {count} rows of {features}");
        agree(&what("sums"), |d, step| step(found(d)?)?.sum_axis(1, false));
        agree(&what("weighted sums"), |d, step| {
            step(found(d)?)?.mul(&float(&[bags, count, 1], 6, d)?)?.sum_axis(1, false)
        });
        if count > 0 {
            agree(&what("means"), |d, step| step(found(d)?)?.mean_axis(1, false));
            agree(&what("maxima"), |d, step| step(found(d)?)?.reduce(ReduceOp::Max, 1, false));
        }
    }
}

#[test]
fn elements_along_an_axis() {
    for shape in [[6, 9], [40, 300], [300, 7], [1, 2000]] {
        for axis in [0, 1] {
            let what = |what: &str| format!("{what} along axis {axis} of {shape:?}");
            let (x, index) = (
                |d: &Device| float(&shape, 1, d),
                |d: &Device| indices(&shape, shape[axis], 2, DType::I32, d),
            );
            agree(&what("scaled"), |d, step| Ok(step(x(d)?.gather(axis, &index(d)?)?)?.mul_scalar(3.0)));
            agree(&what("from the end"), |d, step| {
                let from_end = step(index(d)?.add_scalar(-(shape[axis] as i64)))?;
                Ok(step(x(d)?.take_along_dim(&from_end, axis)?)?.neg())
            });
            agree(&what("at what is computed"), |d, step| {
                let moved = step(index(d)?.add_scalar(1).remainder_scalar(shape[axis] as i64))?;
                step(x(d)?.gather(axis, &moved)?)?.add(&x(d)?)
            });
            agree(&what("picked for each line"), |d, step| {
                let first = index(d)?.narrow(axis, 0, 1)?;
                let logits = x(d)?;
                let picked = step(logits.log_softmax(axis)?.gather(axis, &first)?)?;
                Ok(picked.squeeze(axis)?.neg().mean())
            });
            agree(&what("twice"), |d, step| {
                let order = step(index(d)?.gather(axis, &index(d)?)?)?;
                Ok(step(x(d)?.gather(axis, &order)?)?.exp())
            });
        }
    }
}

#[test]
fn views_of_what_is_gathered_and_of_tables() {
    let found = |d: &Device| -> Result<Tensor> {
        float(&[9, 8], 1, d)?.index_select(0, &indices(&[12], 9, 2, DType::I32, d)?)
    };
    type View = (&'static str, fn(&Tensor) -> Result<Tensor>);
    let views: [View; 8] = [
        ("transposed", |t| t.t()),
        ("cut", |t| t.slice_step(0, 1..11, 3)?.slice(1, 2..)),
        ("backwards", |t| t.flip([0, 1])),
        ("repeated", |t| t.unsqueeze(1)?.expand([12, 5, 8])),
        ("split", |t| t.reshape([3, 4, 2, 4])),
        // Strides cannot express it.
        ("in one line", |t| t.reshape([96])),
        ("transposed, in one line, and cut", |t| t.t()?.reshape([96])?.slice(0, 3..)),
        ("windows", |t| t.windows(0, 3, 2, 1)),
    ];
    for (what, view) in views {
        agree(&format!("{what}: a map"), |d, step| Ok(view(&step(found(d)?)?)?.exp()));
        agree(&format!("{what}: a sum"), |d, step| view(&step(found(d)?)?)?.sum_axis(0, false));
        agree(&format!("{what}: rows"), |d, step| view(&step(found(d)?)?)?.softmax(-1));
        agree(&format!("{what}: a product after"), |d, step| {
            let t = step(view(&step(found(d)?)?)?.exp())?.flatten_all().unsqueeze(0)?;
            t.matmul(&t.t()?)
        });
    }
    let values = numbers(72, 3);
    for &layout in LAYOUTS {
        agree(&format!("a table that lies {layout:?}"), |d, step| {
            let table = laid_out(&values, &[9, 8], layout, DType::F32, d)?;
            let along = step(table.gather(1, &indices(&[9, 5], 8, 4, DType::I32, d)?)?)?;
            let rows = step(table.index_select(0, &indices(&[9], 9, 5, DType::I32, d)?)?)?;
            rows.narrow(1, 0, 5)?.add(&along)
        });
        agree(&format!("indices that lie {layout:?}"), |d, step| {
            let all: Vec<f64> = values.iter().map(|x| ((x + 2.0) * 1.99).floor()).collect();
            let index = laid_out(&all, &[9, 8], layout, DType::I32, d)?;
            Ok(step(float(&[9, 8], 6, d)?.gather(1, &index)?)?.mul_scalar(0.5))
        });
    }
}

#[test]
fn dtypes_of_tables_and_of_indices() {
    let d = device();
    for dtype in DType::ALL.into_iter().filter(|&dtype| d.supports(dtype)) {
        for index_dtype in [DType::I32, DType::I64, DType::U8] {
            if !d.supports(index_dtype) {
                continue;
            }
            let rows = |d: &Device| -> Result<Tensor> {
                let table = tensor(&[7, 30], 1, dtype, d)?;
                table.eval()?;
                table.index_select(0, &indices(&[11], 7, 2, index_dtype, d)?)
            };
            let what = |what: &str| format!("{what} of {dtype} at {index_dtype}");
            agree(&what("a choice"), |d, step| {
                let found = step(rows(d)?)?;
                found.ne(&found.flip([0])?)?.where_cond(&found, &found.narrow(0, 3, 1)?.expand([11, 30])?)
            });
            if dtype != DType::Bool {
                agree(&what("a map"), |d, step| {
                    let found = step(rows(d)?)?;
                    step(found.mul(&found)?)?.add(&found)
                });
                agree(&what("a sum"), |d, step| step(rows(d)?)?.sum_axis(0, false));
            }
        }
    }
}

#[test]
fn an_image_between_its_pixels() {
    agree("bilinear", |d, step| {
        let (channels, height, width, points) = (3, 9, 11, 40);
        let image = float(&[channels, height * width], 1, d)?;
        let [y, x] = [2, 3].map(|seed| float(&[points], seed, d).unwrap().abs());
        let (y, x) = (step(y.mul_scalar(3.9))?, step(x.mul_scalar(4.9))?);
        let (top, left) = (step(y.floor())?, step(x.floor())?);
        let (below, right) = (y.sub(&top)?, x.sub(&left)?);
        let mut sum: Option<Tensor> = None;
        for (dy, dx) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let row = top.to_dtype(DType::I32)?.add_scalar(dy).minimum_scalar(height as i64 - 1);
            let column = left.to_dtype(DType::I32)?.add_scalar(dx).minimum_scalar(width as i64 - 1);
            let place = step(row.mul_scalar(width as i64).add(&column)?)?;
            let pixel = step(image.gather(1, &place.unsqueeze(0)?.expand([channels, points])?)?)?;
            let weight =
                |one: i64, t: &Tensor| if one == 1 { t.clone() } else { t.mul_scalar(-1.0).add_scalar(1.0) };
            let weight = step(weight(dy, &below).mul(&weight(dx, &right))?)?;
            let term = step(pixel.mul(&weight)?)?;
            sum = Some(match sum {
                Some(sum) => step(sum.add(&term)?)?,
                None => term,
            });
        }
        Ok(sum.unwrap())
    });
}

#[test]
fn a_bad_index_is_of_what_depends_on_it() -> Result<()> {
    let d = device();
    let table = float(&[5, 4], 1, &d)?;
    // Nothing is known of sums.
    let unknown = |values: &[f64]| -> Result<Tensor> {
        let index = of(values, &[values.len(), 1], DType::I32, &d)?.sum_axis(1, false)?;
        index.eval()?;
        Ok(index)
    };
    let (good, bad) = (unknown(&[0.0, 4.0, 2.0])?, unknown(&[0.0, 5.0, -1.0])?);
    let good = table.index_select(0, &good)?.exp();
    let line = line!() + 1;
    let bad = table.index_select(0, &bad)?;
    let sums = [bad.exp(), bad.add(&good)?, bad.sum_axis(1, false)?, bad.softmax(-1)?, bad.t()?.neg()];
    for sum in sums {
        for _ in 0..2 {
            let error = sum.to_f64_vec().unwrap_err();
            let ErrorKind::IndexOutOfRange { op: "gather", index: 5 | -1, axis: 0, size: 5 } = *error.kind()
            else {
                panic!("{error}")
            };
            assert!(error.to_string().contains(&format!("read_at_indices.rs:{line}:")), "{error}");
        }
    }
    good.mul_scalar(2.0).to_f64_vec()?;
    // Nor does an empty table have any row.
    let empty = Tensor::zeros([0, 4], &d)?.index_select(0, &unknown(&[0.0])?)?.exp();
    assert!(matches!(empty.to_f64_vec().unwrap_err().kind(), ErrorKind::IndexOutOfRange { size: 0, .. }));
    let nothing = table.index_select(0, &unknown(&[])?)?.exp();
    assert!(nothing.to_f64_vec()?.is_empty());
    Ok(())
}
