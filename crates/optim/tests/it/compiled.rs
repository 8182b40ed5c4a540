//! Compiled training steps against the same steps as usual, bit by bit; and what cannot be compiled.

#![allow(clippy::unwrap_used)]

use std::cell::{Cell, RefCell};

use autograd::{TensorGrad, compile, compile_or_run};
use optim::{
    AdadeltaConfig, AdagradConfig, Adam, AdamConfig, AdamW, AdamWConfig, AdamaxConfig, AsgdConfig,
    LionConfig, MuonConfig, NAdamConfig, Optimizer, ParamGroups, RAdamConfig, RmsPropConfig, RpropConfig,
    Sgd, SgdConfig, UpdateRule, clip_grad_norm,
};
use tensor_core::{DType, Device, Error, ErrorKind, Generator, Result, Stateful, Tensor};

fn cpu() -> Device {
    backend_cpu::cpu()
}

/// Two parameters of different shapes, from the same numbers each time.
fn parameters() -> Result<Vec<Tensor>> {
    let rng = Generator::seed(3, &cpu());
    let shapes: [&[usize]; 2] = [&[4, 3], &[3]];
    shapes.iter().map(|&shape| Ok(Tensor::randn(shape, &rng)?.requires_grad())).collect()
}

fn batch(k: usize) -> Result<(Tensor, Tensor)> {
    let rng = Generator::seed(100 + k as u64, &cpu());
    Ok((Tensor::randn([5, 4], &rng)?, Tensor::randn([5, 3], &rng)?))
}

fn loss_of(p: &[Tensor], x: &Tensor, y: &Tensor) -> Result<Tensor> {
    Ok(x.matmul(&p[0])?.add(&p[1])?.tanh().sub(y)?.powi(2).mean())
}

fn bits(tensors: &[Tensor]) -> Result<Vec<Vec<u8>>> {
    tensors.iter().map(Tensor::read_bytes).collect()
}

/// Steps of an optimizer in a compiled function, against the same steps as usual: losses, parameters and the
/// optimizer's state have the same bits. The learning rate changes on the way.
fn agrees<C: UpdateRule>(config: C) -> Result<()> {
    let train = |is_compiled: bool| -> Result<_> {
        let p = parameters()?;
        let optimizer = RefCell::new(ParamGroups::new(p.clone(), config));
        let body = |(x, y): (Tensor, Tensor)| {
            optimizer.borrow().zero_grad();
            let loss = loss_of(&p, &x, &y)?;
            loss.backward()?;
            clip_grad_norm(&p, 0.5)?;
            optimizer.borrow_mut().step()?;
            Ok(loss.detach())
        };
        let compiled = compile(body);
        let mut losses = Vec::new();
        for k in 0..8 {
            if k == 5 {
                let rates: Vec<f64> = optimizer.borrow().learning_rates().iter().map(|lr| lr * 0.5).collect();
                optimizer.borrow_mut().set_learning_rates(&rates);
            }
            let (x, y) = batch(k)?;
            losses.push(if is_compiled { compiled.call((x, y))? } else { body((x, y))? });
        }
        let counts = compiled.counts();
        if is_compiled {
            assert!(counts.captured <= 3 && counts.replayed >= 5, "{}: {counts:?}", C::NAME);
        }
        let gradients: Vec<Tensor> = p.iter().map(|p| p.grad().unwrap()).collect();
        let state = format!(
            "{:?}",
            optimizer
                .borrow()
                .state_dict()
                .iter()
                .map(|(name, value)| {
                    match value {
                        tensor_core::StateValue::Tensor(t) => format!("{name} {:?}", t.read_bytes()),
                        tensor_core::StateValue::Number(n) => format!("{name} {n:?}"),
                    }
                })
                .collect::<Vec<_>>()
        );
        Ok((bits(&losses)?, bits(&p)?, bits(&gradients)?, state))
    };
    assert_eq!(train(true)?, train(false)?, "{}", C::NAME);
    Ok(())
}

#[test]
fn every_optimizer_takes_the_same_steps() -> Result<()> {
    agrees(SgdConfig { lr: 0.1, momentum: 0.9, weight_decay: 0.01, ..Default::default() })?;
    agrees(SgdConfig { lr: 0.1, ..Default::default() })?;
    agrees(AdamConfig::default())?;
    agrees(AdamConfig { amsgrad: true, weight_decay: 0.1, ..Default::default() })?;
    agrees(AdamWConfig::default())?;
    agrees(AdagradConfig::default())?;
    agrees(AdadeltaConfig::default())?;
    agrees(AdamaxConfig::default())?;
    agrees(AsgdConfig::default())?;
    agrees(LionConfig::default())?;
    agrees(NAdamConfig::default())?;
    agrees(RAdamConfig::default())?;
    agrees(RmsPropConfig { momentum: 0.9, centered: true, ..Default::default() })?;
    agrees(RpropConfig::default())?;
    // Numbers that are equal by chance.
    agrees(AdamConfig { lr: 0.1, betas: (0.9, 0.9), ..Default::default() })
}

/// Muon's factor depends on the parameter's shape; vectors are not for it.
#[test]
fn muon_takes_the_same_steps() -> Result<()> {
    let train = |is_compiled: bool| -> Result<_> {
        let p = &parameters()?[..1];
        let muon = RefCell::new(ParamGroups::new(p.to_vec(), MuonConfig::default()));
        let body = |x: Tensor| {
            muon.borrow().zero_grad();
            let loss = x.matmul(&p[0])?.powi(2).mean();
            loss.backward()?;
            muon.borrow_mut().step()?;
            Ok(loss.detach())
        };
        let compiled = compile(body);
        let mut losses = Vec::new();
        for k in 0..5 {
            let (x, _) = batch(k)?;
            losses.push(if is_compiled { compiled.call(x)? } else { body(x)? });
        }
        Ok((bits(&losses)?, bits(p)?))
    };
    assert_eq!(train(true)?, train(false)?);
    Ok(())
}

#[test]
fn arguments_of_each_form_are_captured_once() -> Result<()> {
    let ran = Cell::new(0);
    let double = compile(|x: Tensor| {
        ran.set(ran.get() + 1);
        Ok(x.mul_scalar(2.0).add_scalar(1.0))
    });
    let rows = Tensor::arange(0.0, 12.0, 1.0, &cpu())?.reshape([3, 4])?;
    for _ in 0..3 {
        assert_eq!(double.call(Tensor::new([1.0f32, 2.0], &cpu())?)?.to_vec::<f32>()?, [3.0, 5.0]);
        assert_eq!(double.call(Tensor::new([1.0f64], &cpu())?)?.to_vec::<f64>()?, [3.0]);
        // A view is another form.
        let columns = double.call(rows.t()?)?;
        assert_eq!(
            (columns.dims(), columns.to_vec::<f32>()?[..4].to_vec()),
            (&[4, 3][..], vec![1.0, 9.0, 17.0, 3.0])
        );
        assert_eq!(double.call(rows.clone())?.to_vec::<f32>()?[..3], [1.0, 3.0, 5.0]);
    }
    assert_eq!((ran.get(), double.counts().captured, double.counts().replayed), (4, 4, 8));
    Ok(())
}

#[test]
fn results_may_be_anything_that_exists() -> Result<()> {
    let cpu = cpu();
    let (counter, constant) = (Tensor::zeros([], &cpu)?.into_cell(false)?, Tensor::new([7.0f32], &cpu)?);
    let f = compile(|x: Tensor| {
        counter.assign(&counter.add_scalar(1.0))?;
        let twice = x.mul_scalar(2.0);
        Ok(vec![
            x.clone(),
            constant.clone(),
            counter.detach(),
            twice.clone(),
            twice,
            Tensor::full([2], 3.0, &cpu)?,
        ])
    });
    for k in 1..5 {
        let x = Tensor::full([1], f64::from(k), &cpu)?;
        let found = f.call(x)?.iter().map(Tensor::to_f64_vec).collect::<Result<Vec<_>>>()?;
        let k = f64::from(k);
        assert_eq!(found, [vec![k], vec![7.0], vec![k], vec![2.0 * k], vec![2.0 * k], vec![3.0; 2]]);
    }
    assert_eq!(counter.item::<f32>()?, 4.0);
    // Nothing to compute.
    let same = compile(|x: Tensor| Ok((x.clone(), x)));
    for _ in 0..2 {
        let (a, b) = same.call(Tensor::new([5.0f32], &cpu)?)?;
        assert_eq!((a.item::<f32>()?, b.item::<f32>()?), (5.0, 5.0));
    }
    Ok(())
}

/// Operations with several results, of which the function reads one, in the function and before it.
#[test]
fn results_that_are_not_read_are_no_obstacle() -> Result<()> {
    let body = |x: Tensor| {
        let (largest, _) = x.sort(-1, true)?;
        let (_, at) = x.cummax(0)?;
        let (top, _) = x.topk(2, -1, true)?;
        Ok((largest, at, top.sum_axis(-1, false)?))
    };
    let compiled = compile(body);
    for k in 0..4 {
        let (x, _) = batch(k)?;
        let ((a, b, c), (d, e, f)) = (compiled.call(x.clone())?, body(x)?);
        assert_eq!(bits(&[a, b, c])?, bits(&[d, e, f])?);
    }
    assert_eq!((compiled.counts().captured, compiled.counts().replayed), (1, 3));
    // Pending before the call: the sorted values are a constant, and the indices are never read.
    let (sorted, _) = batch(9)?.0.sort(0, false)?;
    let add = compile(|x: Tensor| x.add(&sorted));
    for k in 0..3 {
        let (x, _) = batch(k)?;
        assert_eq!(bits(&[add.call(x.clone())?])?, bits(&[x.add(&sorted)?])?);
    }
    assert_eq!(add.counts().replayed, 2);
    Ok(())
}

#[test]
fn draws_go_on() -> Result<()> {
    let (a, b) = (Generator::seed(5, &cpu()), Generator::seed(5, &cpu()));
    let draw = |rng: &Generator, x: &Tensor| -> Result<Tensor> {
        let first = Tensor::rand([3], rng)?;
        first.add(&Tensor::randn([3], rng)?)?.mul(x)
    };
    let compiled = compile(|x: Tensor| draw(&a, &x));
    for k in 0..4 {
        let x = Tensor::full([3], f64::from(k) + 1.0, &cpu())?;
        assert_eq!(bits(&[compiled.call(x.clone())?])?, bits(&[draw(&b, &x)?])?);
        assert_eq!(a.offset(), b.offset());
    }
    // Another seed and place are seen.
    a.set_seed_and_offset(9, 40);
    b.set_seed_and_offset(9, 40);
    let x = Tensor::ones([3], &cpu())?;
    assert_eq!(bits(&[compiled.call(x.clone())?])?, bits(&[draw(&b, &x)?])?);
    assert_eq!((compiled.counts().captured, compiled.counts().replayed), (1, 4));
    Ok(())
}

/// A generator that the function makes starts anew at each call; dropout has its own stream, made before.
#[test]
fn streams_of_the_function_start_anew() -> Result<()> {
    let outer = Generator::seed(1, &cpu());
    let f = compile(|x: Tensor| {
        let inner = Generator::seed(7, &cpu());
        inner.set_offset(2);
        Ok((Tensor::rand([2], &inner)?.mul(&x)?, Tensor::rand([2], &outer)?))
    });
    let mut drawn = Vec::new();
    for _ in 0..4 {
        let (fixed, next) = f.call(Tensor::ones([2], &cpu())?)?;
        let inner = Generator::seed(7, &cpu());
        inner.set_offset(2);
        assert_eq!(bits(&[fixed])?, bits(&[Tensor::rand([2], &inner)?])?);
        drawn.extend(next.to_vec::<f32>()?);
    }
    let again = Generator::seed(1, &cpu());
    assert_eq!(drawn, Tensor::rand([8], &again)?.to_vec::<f32>()?);
    assert_eq!(f.counts().captured, 1);
    Ok(())
}

/// Results that the plan does not read, of cells with a value that is not computed yet.
#[test]
fn values_from_before_the_call_are_returned() -> Result<()> {
    let cell = Tensor::zeros([2], &cpu())?.into_cell(false)?;
    let f = compile(|x: Tensor| Ok((cell.detach(), x.exp())));
    let g = compile(|x: Tensor| Ok((cell.clone(), x)));
    for k in 0..4 {
        cell.assign(&Tensor::full([2], f64::from(k), &cpu())?.mul_scalar(2.0))?;
        let (value, _) = f.call(Tensor::ones([1], &cpu())?)?;
        let k = k as f32;
        assert_eq!(value.to_vec::<f32>()?, [2.0 * k; 2]);
        cell.assign(&cell.add_scalar(1.0))?;
        let (same, _) = g.call(Tensor::ones([1], &cpu())?)?;
        // A cell is returned as itself.
        assert_eq!((same.id(), same.to_vec::<f32>()?), (cell.id(), vec![2.0 * k + 1.0; 2]));
    }
    Ok(())
}

#[test]
fn work_of_other_threads_is_refused() -> Result<()> {
    let f = compile(|x: Tensor| {
        let other = std::thread::scope(|s| s.spawn(|| x.exp()).join().unwrap());
        other.add(&x)
    });
    refused(f.call(Tensor::ones([2], &cpu())?), "another thread");
    let g = compile_or_run(|x: Tensor| {
        let other = std::thread::scope(|s| s.spawn(|| x.mul_scalar(3.0)).join().unwrap());
        other.add(&x)
    });
    for k in 1..4 {
        let x = Tensor::full([2], f64::from(k), &cpu())?;
        assert_eq!(g.call(x)?.to_f64_vec()?, [4.0 * f64::from(k); 2]);
    }
    assert_eq!(g.counts().ran, 3);
    Ok(())
}

#[test]
fn gradients_accumulate_and_are_cleared() -> Result<()> {
    let w = Tensor::new([1.0f32, 2.0], &cpu())?.requires_grad();
    let add = compile(|x: Tensor| {
        let loss = w.mul(&x)?.sum();
        loss.backward()?;
        Ok(loss.detach())
    });
    for k in 1..6 {
        let _ = add.call(Tensor::new([1.0f32, 10.0], &cpu())?)?;
        let k = k as f32;
        assert_eq!(w.grad().unwrap().to_vec::<f32>()?, [k, 10.0 * k]);
    }
    // The first call had no gradient to add to.
    assert_eq!((add.counts().captured, add.counts().replayed), (2, 3));
    w.zero_grad();
    let _ = add.call(Tensor::new([3.0f32, 4.0], &cpu())?)?;
    assert_eq!(w.grad().unwrap().to_vec::<f32>()?, [3.0, 4.0]);
    let clear = compile(|x: Tensor| {
        w.mul(&x)?.sum().backward()?;
        w.zero_grad();
        Ok(())
    });
    for _ in 0..3 {
        clear.call(Tensor::new([3.0f32, 4.0], &cpu())?)?;
        assert!(w.grad().is_none());
    }
    Ok(())
}

#[test]
fn what_others_hold_is_not_overwritten() -> Result<()> {
    // A separate device, whose memory other tests do not use.
    let device = Device::new(std::sync::Arc::new(backend_cpu::CpuBackend::new()));
    let w = Tensor::zeros([1000], &device)?.into_cell(false)?;
    let step = compile(|x: Tensor| {
        w.assign(&w.add(&x)?)?;
        Ok(())
    });
    let mut kept = Vec::new();
    for _ in 0..5 {
        step.call(Tensor::ones([1000], &device)?)?;
        kept.push(w.detach());
    }
    for (k, kept) in kept.iter().enumerate() {
        assert!(kept.to_vec::<f32>()?.iter().all(|&v| v == k as f32 + 1.0), "{k}");
    }
    drop(kept);
    // Without another holder the buffer is used again.
    let before = device.memory().allocated;
    for _ in 0..5 {
        step.call(Tensor::ones([1000], &device)?)?;
    }
    assert!(device.memory().allocated <= before, "{} bytes more", device.memory().allocated - before);
    assert!(w.to_vec::<f32>()?.iter().all(|&v| v == 10.0));
    Ok(())
}

#[test]
fn what_is_built_before_is_a_value() -> Result<()> {
    let cpu = cpu();
    let rng = Generator::seed(1, &cpu);
    // Not computed yet when the function is captured, on this thread and on another one.
    let pending = Tensor::randn([4], &rng)?.exp();
    let cell = Tensor::randn([4], &rng)?.mul_scalar(2.0).into_cell(false)?;
    let other =
        std::thread::scope(|s| s.spawn(|| Tensor::ones([4], &cpu)?.exp().into_cell(false)).join().unwrap())?;
    let f = compile(|x: Tensor| {
        cell.assign(&cell.add(&pending)?)?;
        cell.add(&other)?.add(&x)
    });
    let (mut expected, x) = (cell.to_f64_vec()?, Tensor::zeros([4], &cpu)?);
    let (pending, other) = (pending.to_f64_vec()?, other.to_f64_vec()?);
    for _ in 0..4 {
        let found = f.call(x.clone())?.to_f64_vec()?;
        for k in 0..4 {
            expected[k] = f64::from((expected[k] + pending[k]) as f32);
            assert!((found[k] - expected[k] - other[k]).abs() < 1e-5);
        }
    }
    Ok(())
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, words: &str) -> Error {
    let error = result.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Capture { .. }), "{error}");
    assert!(error.to_string().contains(words), "{error}");
    error
}

#[test]
fn what_cannot_be_repeated_is_refused_and_undone() -> Result<()> {
    let cpu = cpu();
    let x = Tensor::new([1.0f32, 2.0], &cpu)?;
    let w = Tensor::new([1.0f32, 2.0], &cpu)?.requires_grad();
    let rng = Generator::seed(5, &cpu);
    let sgd = RefCell::new(Sgd::new([w.clone()], SgdConfig { lr: 0.5, momentum: 0.9, ..Default::default() }));

    // A value is read, after everything has been changed.
    let read = compile(|x: Tensor| {
        let loss = w.mul(&x)?.mul(&Tensor::rand([2], &rng)?)?.sum();
        loss.backward()?;
        sgd.borrow_mut().step()?;
        loss.item::<f32>()
    });
    let error = refused(read.call(x.clone()), "cannot read a value");
    assert_eq!(error.location().unwrap().file(), file!());
    assert_eq!((w.to_vec::<f32>()?, w.grad().is_none(), rng.offset()), (vec![1.0, 2.0], true, 0));
    assert!(!sgd.borrow().state_dict().iter().any(|(name, _)| name.contains("momentum_buffer")));

    let kept: RefCell<Vec<Tensor>> = RefCell::default();
    let keeps = compile(|x: Tensor| {
        kept.borrow_mut().push(x.exp());
        Ok(x.neg())
    });
    refused(keeps.call(x.clone()), "is held after it");

    let draws = compile(|x: Tensor| Ok(x.mul_scalar(rng.next_u64() as f64)));
    refused(draws.call(x.clone()), "draw random numbers on the host");

    let rates = compile(|x: Tensor| {
        sgd.borrow_mut().set_learning_rates(&[0.1]);
        Ok(x)
    });
    refused(rates.call(x.clone()), "learning rate");

    // An error of the function itself stays what it is.
    let fails = compile(|x: Tensor| x.reshape([3]));
    assert!(matches!(
        fails.call(x.clone()).unwrap_err().kind(),
        ErrorKind::ShapeMismatch { .. } | ErrorKind::Invalid { .. }
    ));

    // A function that goes on as usual.
    let either = compile_or_run(|x: Tensor| if x.sum().item::<f32>()? > 0.0 { Ok(x.neg()) } else { Ok(x) });
    assert_eq!(either.call(x.clone())?.to_vec::<f32>()?, [-1.0, -2.0]);
    assert_eq!(either.call(x.neg())?.to_vec::<f32>()?, [-1.0, -2.0]);
    assert_eq!(either.counts().ran, 2);
    Ok(())
}

#[test]
fn a_frozen_parameter_is_another_form() -> Result<()> {
    let p = parameters()?;
    let sgd = RefCell::new(Sgd::new(p.clone(), SgdConfig { lr: 0.1, ..Default::default() }));
    let step = compile(|(x, y): (Tensor, Tensor)| {
        sgd.borrow().zero_grad();
        loss_of(&p, &x, &y)?.backward()?;
        sgd.borrow_mut().step()
    });
    for k in 0..3 {
        step.call(batch(k)?)?;
    }
    p[1].set_requires_grad(false)?;
    let (first, second) = (bits(&p[..1])?, bits(&p[1..])?);
    for k in 0..3 {
        step.call(batch(k)?)?;
    }
    assert!(first != bits(&p[..1])? && second == bits(&p[1..])?);
    Ok(())
}

#[test]
fn threads_wait_for_each_other() -> Result<()> {
    let total = Tensor::zeros([100], &cpu())?.into_cell(false)?;
    let add = compile(|x: Tensor| {
        total.assign(&total.add(&x)?)?;
        Ok(total.sum())
    });
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| {
                for _ in 0..50 {
                    let _ = add.call(Tensor::ones([100], &cpu()).unwrap()).unwrap();
                    // A reader sees a whole value.
                    let seen = total.to_vec::<f32>().unwrap();
                    assert!(seen.iter().all(|&v| v == seen[0]));
                }
            });
        }
    });
    assert!(total.to_vec::<f32>()?.iter().all(|&v| v == 200.0));
    Ok(())
}

#[test]
fn a_failing_call_changes_nothing() -> Result<()> {
    let cpu = cpu();
    let table = Tensor::arange(0.0, 5.0, 1.0, &cpu)?.requires_grad();
    let adam = RefCell::new(Adam::new([table.clone()], AdamConfig::default()));
    let step = compile(|index: Tensor| {
        adam.borrow().zero_grad();
        let loss = table.gather(0, &index)?.powi(2).sum();
        loss.backward()?;
        adam.borrow_mut().step()?;
        Ok(loss.detach())
    });
    // A call that is captured, and one that repeats it.
    let start = bits(&[table.detach()])?;
    assert!(step.call(Tensor::new([0i64, 5, 3], &cpu)?).is_err());
    assert_eq!(bits(&[table.detach()])?, start);
    assert!(adam.borrow().state_dict().number("state.0.step").is_none() && table.grad().is_none());
    for _ in 0..3 {
        let _ = step.call(Tensor::new([0i64, 3, 3], &cpu)?)?;
    }
    let before =
        (bits(&[table.detach()])?, adam.borrow().state_dict().number("state.0.step").map(|n| n.as_f64()));
    let error = step.call(Tensor::new([0i64, 5, 3], &cpu)?).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::IndexOutOfRange { index: 5, .. }), "{error}");
    assert_eq!(error.location().unwrap().file(), file!());
    let after =
        (bits(&[table.detach()])?, adam.borrow().state_dict().number("state.0.step").map(|n| n.as_f64()));
    assert_eq!(before, after);
    let _ = step.call(Tensor::new([0i64, 4, 3], &cpu)?)?;
    assert_eq!(step.counts().captured, 2);
    Ok(())
}

#[test]
fn halves_and_integers() -> Result<()> {
    let p = Tensor::new([0.5f32, 1.5], &cpu())?.to_dtype(DType::F16)?.requires_grad();
    let adam = RefCell::new(AdamW::new([p.clone()], AdamWConfig { lr: 0.1, ..Default::default() }));
    let steps = Tensor::new(0i64, &cpu())?.into_cell(false)?;
    let step = compile(|(): ()| {
        adam.borrow().zero_grad();
        p.powi(2).sum().backward()?;
        adam.borrow_mut().step()?;
        steps.assign(&steps.add_scalar(1))
    });
    for _ in 0..6 {
        step.call(())?;
    }
    assert_eq!((steps.item::<i64>()?, step.counts().captured), (6, 2));
    assert!(p.to_f64_vec()?[0].abs() < 0.1);
    Ok(())
}
