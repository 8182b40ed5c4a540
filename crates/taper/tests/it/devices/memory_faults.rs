//! Memory that is used up, and tensors too large for any buffer: two errors, after which the device and every
//! live tensor are as they were. The budget is the environment's, so this is one test in a process of its
//! own.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{device, tensor};
use taper::{ErrorKind, prelude::*, tensor_core::MAX_ELEMENTS};

/// The budget, in bytes.
const LIMIT: u64 = 32 << 20;
const LIMIT_TEXT: &str = "33554432";
/// Elements of a tensor that takes an eighth of it.
const EIGHTH: usize = (LIMIT / 8 / 4) as usize;

#[test]
fn two_errors_that_leave_everything_as_it_was() -> Result<()> {
    const MARK: &str = "TAPER_TEST_BUDGET";
    if std::env::var_os(MARK).is_some() {
        return within_the_budget();
    }
    if device().memory().limit.is_none() {
        eprintln!("note: {} has no budget: nothing is tested here", device());
        return Ok(());
    }
    let child = taper_testing::test_process(two_errors_that_leave_everything_as_it_was)
        .env(MARK, "1")
        .env("TAPER_CPU_MEMORY_LIMIT", LIMIT_TEXT)
        .env("TAPER_WGPU_MEMORY_LIMIT", LIMIT_TEXT)
        .output()
        .unwrap();
    assert!(
        child.status.success(),
        "{}{}",
        String::from_utf8_lossy(&child.stdout),
        String::from_utf8_lossy(&child.stderr)
    );
    Ok(())
}

fn within_the_budget() -> Result<()> {
    let d = device();
    assert_eq!(d.memory().limit, Some(LIMIT));
    used_up_and_freed_again(&d)?;
    too_large_for_a_buffer(&d)?;
    a_pending_graph_goes_on_where_it_failed(&d)?;
    a_training_goes_on_after_a_batch_that_did_not_fit(&d)
}

fn used_up_and_freed_again(d: &Device) -> Result<()> {
    let live = tensor(&[1000], 1, DType::F32, d)?;
    let pending = (&live * 2.0).exp();
    let (values, exps) = (live.to_vec::<f32>()?, (&live * 2.0).exp().to_vec::<f32>()?);
    for _ in 0..3 {
        let mut held = Vec::new();
        let error = loop {
            let full = Tensor::full([EIGHTH], held.len() as f64, d)?;
            match full.eval() {
                Ok(()) => held.push(full),
                Err(error) => break error,
            }
            assert!(held.len() <= 8, "{:?}", d.memory());
        };
        let told = error.to_string();
        match error.kind() {
            ErrorKind::OutOfMemory { asked, in_use, reserved, limit, .. } => {
                assert_eq!((*asked, *limit), (4 * EIGHTH as u64, Some(LIMIT)), "{told}");
                assert!(*in_use <= *reserved && *reserved <= LIMIT && asked + reserved > LIMIT, "{told}");
            }
            other => panic!("{other:?}"),
        }
        // The error names the operation and its line.
        assert!(told.contains("full") && told.contains("memory_faults.rs"), "{told}");
        assert!(held.len() >= 6, "{}", held.len());
        // All live tensors still have their values.
        for (i, full) in held.iter().enumerate() {
            let ends = full.to_vec::<f32>()?;
            assert!(ends.iter().all(|&v| v == i as f32), "{i}");
        }
        assert_eq!(live.to_vec::<f32>()?, values);
        // An upload that does not fit is the same error.
        let error = Tensor::from_vec(vec![1f32; 2 * EIGHTH], [2 * EIGHTH], d).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::OutOfMemory { .. }), "{error}");
        drop(held);
        // Freed memory can be used again, at another size.
        assert_eq!(Tensor::ones([3 * EIGHTH], d)?.sum().item::<f32>()?, 3.0 * EIGHTH as f32);
    }
    assert_eq!(pending.to_vec::<f32>()?, exps);
    Ok(())
}

fn too_large_for_a_buffer(d: &Device) -> Result<()> {
    let live = tensor(&[1000], 2, DType::F32, d)?;
    let values = live.to_vec::<f32>()?;
    let before = d.memory();
    let most = d.info().limits.max_buffer_bytes;
    let elements = usize::try_from(most / 4 + 1).unwrap();
    let error = Tensor::zeros([elements], d).and_then(|t| t.eval()).unwrap_err();
    match error.kind() {
        ErrorKind::TooLarge { asked, limit, .. } => assert!(*asked > most && *limit == most, "{error}"),
        other => panic!("{other:?}"),
    }
    // As the result of an operation too, and of a product.
    let row = live.reshape([1, 1000])?.expand([elements.div_ceil(1000), 1000]);
    if elements > MAX_ELEMENTS {
        // The device holds as much as a tensor may have.
        assert!(row.is_err());
    } else {
        let row = row?;
        for absurd in [&row * 2.0, row.t()?.exp()] {
            let error = absurd.eval().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::TooLarge { .. }), "{error}");
        }
    }
    assert_eq!(live.to_vec::<f32>()?, values);
    assert_eq!(d.memory().allocated, before.allocated);
    d.synchronize()
}

fn a_pending_graph_goes_on_where_it_failed(d: &Device) -> Result<()> {
    let n = 256;
    let x = tensor(&[n, n], 3, DType::F32, d)?;
    let build = || -> Result<Tensor> {
        let first = (&x * 0.5).tanh();
        // Two and a half eighths.
        let wide = first.reshape([n * n, 1])?.expand([n * n, 40])?;
        let wide = (wide + Tensor::arange(0.0, 40.0, 1.0, d)?).relu();
        wide.eval()?;
        wide.sum_axis(1, false)?.reshape([n, n])?.matmul(&first)
    };
    let expected = build()?.to_vec::<f32>()?;
    let held: Vec<Tensor> = (0..6).map(|_| Tensor::ones([EIGHTH], d)).collect::<Result<_>>()?;
    held.iter().try_for_each(Tensor::eval)?;
    let pending = build();
    assert!(matches!(pending.as_ref().unwrap_err().kind(), ErrorKind::OutOfMemory { .. }), "{pending:?}");

    // The same without a look in between: the graph that failed is evaluated again.
    let first = (&x * 0.5).tanh();
    let wide = Tensor::ones([3 * EIGHTH], d)? * first.sum();
    let both = wide.narrow(0, 0, n)?.add(&first.sum_axis(0, false)?)?;
    let failed = wide.eval();
    assert!(matches!(failed.unwrap_err().kind(), ErrorKind::OutOfMemory { .. }));
    drop(held);
    wide.eval()?;
    let (total, sums) = (first.sum().item::<f32>()?, first.sum_axis(0, false)?.to_vec::<f32>()?);
    let found = both.to_vec::<f32>()?;
    assert!(found.iter().zip(sums).all(|(&f, s)| (f - (total + s)).abs() <= 1e-3 * total.abs().max(1.0)));
    assert_eq!(build()?.to_vec::<f32>()?, expected);
    Ok(())
}

#[derive(Module)]
struct Net {
    hidden: Linear,
    out: Linear,
}

fn a_training_goes_on_after_a_batch_that_did_not_fit(d: &Device) -> Result<()> {
    let train = |disturbed: bool| -> Result<Vec<f32>> {
        let rng = Generator::seed(1, d);
        let net = Net { hidden: Linear::new(16, 64, &rng)?, out: Linear::new(64, 4, &rng)? };
        let mut sgd = Sgd::new(net.parameters(), SgdConfig { lr: 0.1, momentum: 0.9, ..Default::default() });
        let mut step = |rows: usize| -> Result<f32> {
            sgd.zero_grad();
            let x = tensor(&[rows, 16], 7, DType::F32, d)?;
            let labels = Tensor::from_vec((0..rows).map(|i| i as i32 % 4).collect(), [rows], d)?;
            let loss = cross_entropy(&net.out.forward(&net.hidden.forward(&x)?.relu())?, &labels)?;
            loss.backward()?;
            sgd.step()?;
            loss.item::<f32>()
        };
        let mut losses = Vec::new();
        for i in 0..6 {
            if disturbed && i % 2 == 1 {
                // The inputs fit in memory, but the result does not.
                let error = step(2 * EIGHTH / 16).unwrap_err();
                assert!(matches!(error.kind(), ErrorKind::OutOfMemory { .. }), "{error}");
            }
            losses.push(step(24)?);
        }
        losses.push(net.hidden.weight.sum().item::<f32>()?);
        Ok(losses)
    };
    assert_eq!(train(true)?, train(false)?);
    Ok(())
}
