//! Counting, selecting and scattering enough elements for several threads, compared with plain loops.
#![allow(clippy::unwrap_used, clippy::panic)]

use taper::{DType, ErrorKind, Generator, Result, ScatterReduce, StepBy, Tensor};

use crate::common::{device, in_memory, refused};

/// More than one part for each of several threads, and not a multiple of the vector size.
const N: usize = 300_007;

/// Numbers below a bound in no order.
fn numbers(n: usize, below: usize) -> Vec<i32> {
    (0..n).map(|i| (i.wrapping_mul(2_654_435_761) % 1_000_003 % below) as i32).collect()
}

/// As whole numbers.
fn whole(t: &Tensor) -> Vec<i64> {
    t.to_f64_vec().unwrap().into_iter().map(|x| x as i64).collect()
}

#[test]
fn counts_of_a_long_line() -> Result<()> {
    let d = device();
    for (bins, stride) in [(1, 1), (7, 1), (1000, 1), (100, 3), (200_000, 1)] {
        let all = numbers(N * stride, bins);
        let x = Tensor::from_slice(&all, [N * stride], &d)?.slice_step(0, .., stride)?;
        let (mut counts, mut sums) = (vec![0i64; bins], vec![0i64; bins]);
        for (i, &bin) in all.iter().step_by(stride).enumerate() {
            counts[bin as usize] += 1;
            sums[bin as usize] += i as i64 % 8;
        }
        assert_eq!(whole(&x.bincount(bins)?), counts, "{bins} bins, every {stride}");
        // As floats, whose order of additions stays, the sums are exact.
        let weights: Vec<f32> = (0..N).map(|i| (i % 8) as f32).collect();
        let weights = Tensor::from_slice(&weights, [N], &d)?;
        assert_eq!(whole(&x.bincount_weighted(&weights, bins)?), sums, "{bins} bins, every {stride}");
        // Along an axis that is not the last, into a line that begins with something.
        let base = Tensor::full([bins, 1], 5i64, (DType::I32, &d))?;
        let column = |t: &Tensor| t.to_dtype(DType::I32)?.unsqueeze(1);
        let out = base.scatter_add(0, &column(&x)?, &column(&weights)?)?;
        assert_eq!(whole(&out), sums.iter().map(|sum| sum + 5).collect::<Vec<_>>(), "{bins} bins");
    }
    Ok(())
}

#[test]
fn the_first_bad_index_of_a_long_line_is_named() -> Result<()> {
    let d = device();
    let mut all = numbers(N, 50);
    (all[N / 2 - 1], all[N / 2 + 7], all[N - 1]) = (50, -3, 99);
    // Nothing is known of a sum.
    let x = Tensor::from_slice(&all, [N, 1], &d)?.sum_axis(1, false)?;
    let table = Tensor::arange(0, 50, 1, &d)?;
    for failed in [x.bincount(50).and_then(|t| t.eval()), table.gather(0, &x).and_then(|t| t.eval())] {
        let error = failed.unwrap_err();
        let &ErrorKind::IndexOutOfRange { index, size: 50, .. } = error.kind() else { panic!("{error}") };
        // A device whose invocations run in no order names one of them.
        assert!(index == 50 || d.name().starts_with("wgpu") && [-3, 99].contains(&index), "{error}");
    }
    Ok(())
}

#[test]
fn long_and_narrow_gathers_and_scatters() -> Result<()> {
    let d = device();
    for columns in [1, 2, 3, 130] {
        let (rows, n) = (501, N / columns);
        let all = numbers(n * columns, rows);
        let index = Tensor::from_slice(&all, [n, columns], &d)?;
        let table = Tensor::arange(0i64, (rows * columns) as i64, 1i64, (DType::I32, &d))?
            .reshape([rows, columns])?;
        let place = |i: usize| all[i] as usize * columns + i % columns;
        let found: Vec<i64> = (0..n * columns).map(|i| place(i) as i64).collect();
        assert_eq!(whole(&table.gather(0, &index)?), found, "{columns} columns");
        let mut sums = vec![0i64; rows * columns];
        (0..n * columns).for_each(|i| sums[place(i)] += i as i64 % 8);
        let source = Tensor::arange(0i64, (n * columns) as i64, 1i64, (DType::I32, &d))?.remainder_scalar(8);
        let source = source.reshape([n, columns])?;
        assert_eq!(whole(&table.zeros_like().scatter_add(0, &index, &source)?), sums, "{columns} columns");
        // Interleaved lines, which are strided in memory.
        let (index, table) = (index.t()?, table.t()?);
        let turned: Vec<i64> = (0..n * columns).map(|i| found[i % n * columns + i / n]).collect();
        assert_eq!(whole(&table.gather(1, &index)?), turned, "{columns} columns");
    }
    Ok(())
}

#[test]
fn places_of_what_is_true() -> Result<()> {
    let d = device();
    for shape in [vec![N], vec![61, 4919], vec![7, 3, 10_007], vec![70_001, 2], vec![3, 70_001, 1]] {
        for below in [1, 2, 3, 1000, usize::MAX] {
            let n: usize = shape.iter().product();
            let all: Vec<bool> = numbers(n, 1_000_003)
                .iter()
                .map(|&x| below != usize::MAX && (x as usize).is_multiple_of(below))
                .collect();
            let mask = Tensor::from_slice(&all, shape.as_slice(), &d)?;
            let mut wanted = Vec::new();
            for i in (0..n).filter(|&i| all[i]) {
                let mut rest = i;
                let start = wanted.len();
                for &size in shape.iter().rev() {
                    wanted.insert(start, (rest % size) as i64);
                    rest /= size;
                }
            }
            let places = mask.nonzero()?;
            assert_eq!(places.dims(), [wanted.len() / shape.len(), shape.len()]);
            assert_eq!(whole(&places), wanted, "{shape:?} below {below}");
            let x = Tensor::arange(0i64, n as i64, 1i64, (DType::I32, &d))?.reshape(shape.as_slice())?;
            let chosen: Vec<i64> = (0..n).filter(|&i| all[i]).map(|i| i as i64).collect();
            assert_eq!(whole(&x.masked_select(&mask)?), chosen, "{shape:?} below {below}");
            let replaced = || {
                let out = x.neg().masked_scatter(&mask, &x.masked_select(&mask)?)?;
                out.eval().map(|()| out)
            };
            if !chosen.is_empty() && !refused(n * 4, replaced) {
                let out = replaced()?;
                let wanted: Vec<i64> = (0..n as i64).map(|i| if all[i as usize] { i } else { -i }).collect();
                assert_eq!(whole(&out), wanted, "{shape:?} below {below}");
            }
        }
    }
    let scalar = Tensor::full((), 1, (DType::I32, &d))?;
    assert_eq!(scalar.nonzero()?.dims(), [1, 0]);
    assert_eq!(scalar.zeros_like().nonzero()?.dims(), [0, 0]);
    Ok(())
}

#[test]
fn runs_of_a_long_line() -> Result<()> {
    let d = device();
    let all: Vec<i32> = (0..N).map(|i| (i / 3 % 2 + i / 70_000) as i32).collect();
    let line = Tensor::from_slice(&all, [N], &d)?;
    if refused(N * 4, || line.unique_consecutive_all().and_then(|(_, run, _)| run.eval())) {
        return Ok(());
    }
    let (values, run, counts) = line.unique_consecutive_all()?;
    let (mut wanted, mut runs, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
    for (i, &x) in all.iter().enumerate() {
        if i == 0 || x != all[i - 1] {
            wanted.push(i64::from(x));
            lengths.push(0i64);
        }
        runs.push(wanted.len() as i64 - 1);
        *lengths.last_mut().unwrap() += 1;
    }
    assert_eq!((whole(&values), whole(&run), whole(&counts)), (wanted, runs, lengths));
    let (values, run, counts) = Tensor::zeros([0], &d)?.unique_consecutive_all()?;
    assert_eq!([values.numel(), run.numel(), counts.numel()], [0; 3]);
    Ok(())
}

#[test]
fn parts_are_replaced_along_several_axes() -> Result<()> {
    let d = device();
    let dims = [5usize, 6, 7];
    let x = Tensor::arange(0i64, 210i64, 1i64, (DType::I32, &d))?.reshape(dims)?;
    let spans = [(0, 5, 1), (1, 4, 1), (2, 7, 2), (0, 6, 3), (4, 5, 9), (0, 1, 1), (3, 3, 1)];
    for a in spans {
        for b in spans {
            for c in spans {
                let named = |(start, end, step): (usize, usize, usize), i: usize| {
                    (start..end).contains(&i) && (i - start).is_multiple_of(step)
                };
                let part = |(start, end, step): (usize, usize, usize), n: usize| {
                    (start.min(n)..end.min(n)).step_by(step).count()
                };
                let sizes = [part(a, 5), part(b, 6), part(c, 7)];
                let count: usize = sizes.iter().product();
                let value = Tensor::arange(0i64, count as i64, 1i64, (DType::I32, &d))?;
                let value = value.add_scalar(1000).reshape(sizes)?;
                let span = |(start, end, step): (usize, usize, usize)| StepBy(start..end, step as isize);
                for add in [false, true] {
                    let out = x.index_put((span(a), span(b), span(c)), &value, add)?;
                    let mut next = 1000;
                    let wanted: Vec<i64> = (0..210)
                        .map(|i| {
                            let at = [i / 42, i / 7 % 6, i % 7];
                            if !(named(a, at[0]) && named(b, at[1]) && named(c, at[2])) {
                                return i as i64;
                            }
                            next += 1;
                            next - 1 + if add { i as i64 } else { 0 }
                        })
                        .collect();
                    assert_eq!(whole(&out), wanted, "{a:?} {b:?} {c:?} {add}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn triangles_and_permutations_are_written_in_pieces() -> Result<()> {
    let d = device();
    for (rows, columns, diagonal) in
        [(700, 300, 0), (300, 700, -20), (3, 2, 5), (3, 2, -5), (0, 3, 0), (900, 1, 0)]
    {
        let at = |lower: bool| {
            let kept = move |r: i32, c: i32| if lower { c - r <= diagonal } else { c - r >= diagonal };
            let all = (0..rows).flat_map(move |r| (0..columns).map(move |c| (r, c)));
            let all: Vec<(i32, i32)> = all.filter(|&(r, c)| kept(r, c)).collect();
            let rows = all.iter().map(|place| i64::from(place.0));
            rows.chain(all.iter().map(|place| i64::from(place.1))).collect::<Vec<i64>>()
        };
        let (m, n) = (rows as usize, columns as usize);
        assert_eq!(
            whole(&Tensor::tril_indices(m, n, diagonal, &d)?),
            at(true),
            "{rows} {columns} {diagonal}"
        );
        assert_eq!(
            whole(&Tensor::triu_indices(m, n, diagonal, &d)?),
            at(false),
            "{rows} {columns} {diagonal}"
        );
    }
    // The same draws as one by one.
    let (one, other) = (Generator::seed(7, &d), Generator::seed(7, &d));
    let n = 200_003;
    let mut order: Vec<i64> = (0..n).collect();
    for i in (1..n as usize).rev() {
        order.swap(i, other.below(i as u64 + 1) as usize);
    }
    assert_eq!(whole(&Tensor::randperm(n as usize, &one)?), order);
    assert_eq!(one.offset(), other.offset());
    Ok(())
}

#[test]
fn neighbours_of_numbers() -> Result<()> {
    let d = device();
    let mut x: Vec<f32> = vec![1.0, 2.0, 0.5, 3.0, f32::MAX, f32::MIN_POSITIVE * 4.0, 1e-18, 8.673_617_4e-19];
    if !d.name().starts_with("wgpu") {
        // Denormal numbers, which a GPU may take for zeros.
        x.extend([
            f32::MIN_POSITIVE,
            f32::MIN_POSITIVE * 2.0,
            1e-45,
            1e-40,
            f32::MIN_POSITIVE * (1.0 - f32::EPSILON),
            0.0,
        ]);
    }
    x.extend((0..1000).map(|i| f32::from_bits(0x3000_0000 + i * 0x0001_3579)));
    x.extend(x.clone().iter().map(|x| -x));
    for (to, next) in [(f32::INFINITY, f32::next_up as fn(f32) -> f32), (f32::NEG_INFINITY, f32::next_down)] {
        let found =
            Tensor::from_slice(&x, [x.len()], &d)?.nextafter(&Tensor::full((), to, (DType::F32, &d))?)?;
        for (x, found) in x.iter().zip(found.to_vec::<f32>()?) {
            assert_eq!(found.to_bits(), next(*x).to_bits(), "{x:e} to {to}: {found:e}");
        }
    }
    Ok(())
}

/// One number that is copied, into a sum's beginning or between parts, takes the memory of one.
#[test]
fn a_number_that_is_copied_is_written_once() -> Result<()> {
    if taper_testing::run_alone(a_number_that_is_copied_is_written_once) {
        return Ok(());
    }
    let d = device();
    let (rows, columns) = (1000, 300);
    let bytes = (rows * columns * 4) as u64;
    let x = Tensor::ones([rows, columns], &d)?;
    let index = Tensor::from_slice(&numbers(rows, rows), [rows], &d)?;
    let square = Tensor::ones([500, 150], &d)?;
    taper::eval_all(&[&x, &index, &square])?;
    let grows = |run: &dyn Fn() -> Result<Tensor>, of: f64| -> Result<()> {
        d.empty_cache();
        let before = d.memory().allocated;
        d.reset_peak();
        let out = run()?;
        out.eval()?;
        d.synchronize()?;
        let peak = d.memory().peak - before;
        assert_eq!(out.shape().numel(), rows * columns);
        assert!(peak as f64 <= 1.5 * of, "{peak} bytes for a result of {of}");
        Ok(())
    };
    grows(&|| x.zeros_like().index_add(0, &index, &x), bytes as f64)?;
    grows(&|| Tensor::block_diag(&[&square, &square]), bytes as f64)?;
    grows(&|| Tensor::concat(&[&square, &Tensor::ones([1500, 150], &d)?], 0), bytes as f64)?;
    // A tensor that is still held keeps its value.
    let zeros = in_memory(Tensor::zeros([rows, columns], &d)?)?;
    let sums = zeros.index_add(0, &index, &x)?;
    taper::eval_all(&[&zeros, &sums])?;
    assert_eq!(zeros.to_vec::<f32>()?, vec![0.0; rows * columns]);
    assert_eq!(sums.sum().item::<f32>()?, (rows * columns) as f32);
    Ok(())
}

/// Lines that all begin with one number, beside the same number written out first: of every dtype, long,
/// short, and not all of them.
#[test]
fn scatters_into_one_number() -> Result<()> {
    let d = device();
    for dtype in [DType::F32, DType::F16, DType::I32] {
        if !d.supports(dtype) {
            continue;
        }
        for (rows, columns, indexed) in
            [(40, 1000, 40), (1000, 40, 1000), (3, 70_000, 3), (40, 1000, 39), (40, 1000, 1)]
        {
            let picks = Tensor::from_slice(&numbers(indexed * 500, columns), [indexed, 500], &d)?;
            let src = Tensor::arange(0, indexed * 500, 1, (DType::I32, &d))?.reshape([indexed, 500])?;
            let src = src.remainder_scalar(7).to_dtype(dtype)?;
            let written =
                Tensor::from_slice(&vec![2i32; rows * columns], [rows, columns], &d)?.to_dtype(dtype)?;
            written.eval()?;
            for reduce in [ScatterReduce::Sum, ScatterReduce::Amax, ScatterReduce::Amin] {
                let of = |base: &Tensor, axis: isize| {
                    let [base, picks, src] = match axis {
                        0 => [base.t()?, picks.t()?, src.t()?],
                        _ => [base.clone(), picks.clone(), src.clone()],
                    };
                    base.scatter_reduce(axis, &picks, &src, reduce, true)?.to_f64_vec()
                };
                for axis in [0, 1] {
                    let found = of(&written.full_like(2), axis)?;
                    assert!(
                        found == of(&written, axis)?,
                        "{reduce:?} of {dtype}, {rows} x {columns}, {indexed} rows"
                    );
                }
            }
        }
    }
    Ok(())
}
