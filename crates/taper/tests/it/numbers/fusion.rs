//! Random graphs, evaluated all at once and step by step, here and on the reference: fusion changes nothing.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{assert_close, device, reference_device, tensor};
use proptest::{prelude::*, test_runner::RngSeed};
use taper::{DType, Device, Generator, Result, Tensor};

/// One operation on earlier results, chosen by numbers.
#[derive(Clone, Debug)]
struct Pick {
    what: u8,
    a: usize,
    b: usize,
    c: usize,
}

/// Builds the graph on a device; with `eager`, each operation is computed before the next is built.
fn build(picks: &[Pick], d: &Device, eager: bool) -> Result<Vec<Tensor>> {
    let rng = Generator::seed(7, d);
    let mut all = vec![
        tensor(&[4, 6], 1, DType::F32, d)?,
        tensor(&[4, 6], 2, DType::F32, d)?,
        tensor(&[6], 3, DType::F32, d)?,
        // One size along both axes: a vector may number the rows or the columns.
        tensor(&[6, 6], 4, DType::F32, d)?,
    ];
    for pick in picks {
        let at = |i: usize| &all[i % all.len()];
        let (a, b, c) = (at(pick.a), at(pick.b), at(pick.c));
        let fits =
            |x: &Tensor, y: &Tensor| x.shape().broadcast(y.shape(), "test").is_ok_and(|s| s.numel() < 5000);
        let next = match pick.what % 22 {
            0 => a.tanh(),
            1 => (a * 0.5 + 0.25).sin(),
            2 if fits(a, b) => a.add(b)?,
            3 if fits(a, b) => a.mul(b)?.tanh(),
            4 if fits(a, b) => a.maximum(b)?,
            5 if fits(a, b) && fits(b, c) && fits(a, c) => a.gt_scalar(0.0).where_cond(b, c)?,
            6 if a.rank() > 0 && a.numel() > 0 => {
                a.mean_axis((pick.b % a.rank()) as isize, pick.c % 2 == 0)?
            }
            7 if a.rank() > 0 && a.numel() > 0 => a.amax((pick.b % a.rank()) as isize, true)?,
            8 if a.rank() == 2 => a.t()?,
            9 if a.rank() == 2 && b.rank() == 2 && a.dims()[1] == b.dims()[0] => {
                let product = a.matmul(b)?;
                // Read as it is, or only the other way round.
                let product = if pick.c % 2 == 0 { product } else { product.t()? };
                (product * 0.1).tanh()
            }
            10 => a.flatten_all(),
            11 if a.rank() > 0 => a.flip((pick.b % a.rank()) as isize)?,
            12 if a.rank() > 0 && a.dims()[0] > 1 => a.slice(0, 1..)?,
            13 if a.rank() > 0 && a.numel() > 0 => a.softmax(-1)?,
            14 if a.rank() == 2 && a.numel() > 0 && pick.b % 2 == 0 => {
                // One value a row, as a vector, seen along the rows or the columns again.
                let scale = ((a * a).sum_axis(1, false)? + 1.0).rsqrt();
                if pick.c % 2 == 0 && fits(a, &scale) {
                    a.mul(&scale)?
                } else {
                    a.mul(&scale.unsqueeze(1)?)?.sub(&a.amax(-1, true)?)?
                }
            }
            15 => {
                // Numbers that depend on their position, over the elements, the rows or the columns of
                // another tensor.
                let shape = match pick.b % 3 {
                    0 if a.rank() > 0 => a.shape().reduced(&[a.rank() - 1], true),
                    1 if a.rank() > 0 => a.shape().reduced(&[0], true),
                    _ => a.shape().clone(),
                };
                let draw = match pick.c % 2 {
                    0 => Tensor::rand(&shape, &rng)?,
                    _ => Tensor::arange(0, shape.numel(), 1, (DType::F32, d))?.reshape(&shape)? * 0.01,
                };
                if b.shape() == &shape { b.mul(&draw)?.add(a)? } else { a.mul(&draw)? }
            }
            16 if a.rank() > 0 && a.numel() > 0 => {
                // Dropout on one value a row.
                let rows = a.mean_axis(-1, pick.c % 2 == 0)?;
                let kept = Tensor::rand(rows.shape(), &rng)?.lt_scalar(0.7);
                rows.mul(&kept.to_dtype(DType::F32)?)?
            }
            20 => a.clamp(-0.25, 0.5).add(&a.clamp(0.0, f32::INFINITY))?,
            18 if a.rank() > 0 && a.numel() < 2000 => {
                // One number beside others, over others and around others; also seen by an expression.
                let number = Tensor::full([1], 0.25, d)?;
                let [left, right] = [number.expand(vec![1; a.rank()])?.expand(a.shape())?, a.full_like(0.25)];
                let both = Tensor::concat(&[&left, a, &right], (pick.b % a.rank()) as isize)?;
                match pick.c % 3 {
                    0 => Tensor::concat(&[both.flatten_all(), number], 0)?,
                    1 => Tensor::concat(&[left.add(a)?, left], 0)?,
                    _ => both,
                }
            }
            19 if a.rank() > 0 && a.numel() > 0 => {
                let axis = (pick.b % a.rank()) as isize;
                let index = Tensor::arange(0, a.dims()[pick.b % a.rank()], 1, (DType::I32, d))?
                    .floor_divide_scalar(2);
                let mut line = vec![1; a.rank()];
                line[pick.b % a.rank()] = index.numel();
                let sums = a.zeros_like().scatter_add(axis, &index.reshape(line)?.expand(a.shape())?, a)?;
                if pick.c % 2 == 0 { sums } else { sums.sub(&a.zeros_like())? }
            }
            21 if a.rank() >= 2 && a.numel() < 2000 => {
                // A border of zeros around an expression, read as it is and with its axes exchanged.
                let (x, lead) = ((a * 0.5).tanh(), vec![(0, 0); a.rank() - 2]);
                let x = if pick.b % 3 == 0 { x.transpose(-1, -2)? } else { x };
                let padded = x.pad(&[&lead[..], &[(pick.b % 2, 1), (1, pick.c % 3)]].concat(), 0.0)?;
                if pick.c % 2 == 0 { padded } else { padded.slice(-1, 1..)?.sin().add(&x.sum())? }
            }
            14 => a.relu().to_dtype(DType::I32)?.to_dtype(DType::F32)?,
            _ => a.sigmoid() * 2.0 - 1.0,
        };
        if eager {
            next.eval()?;
        }
        all.push(next);
    }
    // Some are dropped before anything is looked at, as in a user's program.
    Ok(all.into_iter().enumerate().filter(|(i, _)| i % 3 != 1 || eager).map(|(_, t)| t).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if device().name() == "cpu" { 300 } else { 24 }, rng_seed: RngSeed::Fixed(2026), ..ProptestConfig::default() })]
    #[test]
    fn fused_and_unfused_agree(
        picks in prop::collection::vec(
            (any::<u8>(), 0usize..40, 0usize..40, 0usize..40).prop_map(|(what, a, b, c)| Pick { what, a, b, c }),
            1..24,
        )
    ) {
        let d = device();
        let lazy = build(&picks, &d, false).unwrap();
        // The last first, so that the rest is computed on the way or not at all.
        let found: Vec<Vec<f64>> = lazy.iter().rev().map(|t| t.to_f64_vec().unwrap()).collect();
        let eager = build(&picks, &d, true).unwrap();
        let eager: Vec<&Tensor> = eager.iter().enumerate().filter(|(i, _)| i % 3 != 1).map(|(_, t)| t).collect();
        let plain = build(&picks, &reference_device(), false).unwrap();
        for (i, found) in found.iter().rev().enumerate() {
            let unfused = eager[i].to_f64_vec().unwrap();
            let reference = plain[i].to_f64_vec().unwrap();
            if d.name() == "cpu" {
                prop_assert_eq!(found, &unfused, "fused and unfused differ at {}", i);
            }
            assert_close(found, &unfused, (1e-3, 1e-4), "fused and unfused");
            // A cast to integers may fall either way of a whole number.
            if !picks.iter().any(|p| p.what % 22 == 14) {
                assert_close(found, &reference, (1e-3, 1e-4), "the reference");
            }
        }
    }
}

/// A draw of one number a row, multiplied by a sum over the row, was written into the row's kernel, which
/// drew one for each element of the row.
#[test]
fn one_number_a_row_stays_one_number_a_row() -> Result<()> {
    let d = device();
    let run = |eager: bool| -> Result<Vec<f64>> {
        let rng = Generator::seed(3, &d);
        let x = tensor(&[3, 4], 1, DType::F32, &d)?;
        let rows = x.sum_axis(1, true)?.mul(&Tensor::rand([3, 1], &rng)?)?;
        if eager {
            rows.eval()?;
        }
        x.mul(&rows)?.to_f64_vec()
    };
    assert_close(&run(false)?, &run(true)?, (1e-6, 1e-7), "random numbers of rows");
    let ranges = |eager: bool| -> Result<Vec<f64>> {
        let x = tensor(&[3, 4], 1, DType::F32, &d)?;
        let rows = x.amax(1, false)?.add(&Tensor::arange(0, 3, 1, (DType::F32, &d))?)?;
        if eager {
            rows.eval()?;
        }
        x.sub(&rows.unsqueeze(1)?)?.to_f64_vec()
    };
    assert_close(&ranges(false)?, &ranges(true)?, (1e-6, 1e-7), "a range over the rows");
    Ok(())
}

/// On devices with a scope for the row and one for its elements, a draw a row had no value in the row's.
#[test]
fn dropout_of_row_means_runs() -> Result<()> {
    let d = device();
    let x = tensor(&[5, 300], 1, DType::F32, &d)?;
    let rng = Generator::seed(3, &d);
    let means = x.mean_axis(1, false)?;
    let kept = Tensor::rand(means.shape(), &rng)?.lt_scalar(0.5).to_dtype(DType::F32)?;
    let dropped = means.mul(&(kept * 2.0))?;
    let (dropped, means) = (dropped.to_f64_vec()?, means.to_f64_vec()?);
    for (d, m) in dropped.iter().zip(means) {
        assert!(*d == 0.0 || (d - 2.0 * m).abs() <= 1e-5 * m.abs(), "{d} of {m}");
    }
    Ok(())
}
