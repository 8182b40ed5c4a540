//! The lazy graph and its scheduler, on the reference backend: fusion, storage and release.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::Ordering;

use taper_testing::{Reference, reference, reference_backend};
use tensor_core::{
    DType, ErrorKind, Generator, Result, Tensor, eval_all, eval_pending, plan_of, set_grad_enabled,
};

fn kernels(backend: &Reference) -> usize {
    backend.kernels.lock().unwrap().values().sum()
}

#[test]
fn building_computes_nothing_and_looking_computes_once() -> Result<()> {
    let (device, backend) = reference_backend();
    let x = Tensor::from_vec(vec![1f32, 2.0, 3.0], [3], &device)?;
    let y = (&x * 2.0 + 1.0).exp();
    assert_eq!(kernels(&backend), 0);
    assert!(!y.is_evaluated());
    let first = y.to_vec::<f32>()?;
    assert_eq!(kernels(&backend), 1, "one fused map");
    assert_eq!(y.to_vec::<f32>()?, first);
    assert_eq!(kernels(&backend), 1);
    assert!((first[0] - 3f32.exp()).abs() < 1e-5);
    Ok(())
}

#[test]
fn an_untracked_result_forgets_its_inputs() -> Result<()> {
    let (device, backend) = reference_backend();
    let x = Tensor::from_vec(vec![1f32; 100], [100], &device)?;
    let y = &x + 1.0;
    drop(x);
    assert_eq!(y.inputs().len(), 2);
    y.eval()?;
    assert!(y.inputs().is_empty());
    assert_eq!(tensor_core::Backend::memory(backend.as_ref()).allocated, 400);
    Ok(())
}

#[test]
fn a_dying_buffer_is_overwritten_and_a_held_one_is_not() -> Result<()> {
    let (device, backend) = reference_backend();
    let live = || tensor_core::Backend::memory(backend.as_ref()).allocated;
    let x = Tensor::from_vec(vec![1f32; 100], [100], &device)?;
    let held = &x + 1.0;
    held.eval()?;
    assert_eq!(x.to_vec::<f32>()?, vec![1.0; 100]);
    assert_eq!(live(), 800);
    let mut r = x;
    for _ in 0..5 {
        r = &r + &held;
        r.eval()?;
    }
    assert_eq!(r.to_vec::<f32>()?, vec![11.0; 100]);
    assert_eq!(held.to_vec::<f32>()?, vec![2.0; 100]);
    assert_eq!(live(), 800);
    // A view of the buffer keeps it from being overwritten.
    let base = Tensor::from_vec(vec![1f32; 100], [100], &device)?;
    let view = base.reshape([10, 10])?;
    view.eval()?;
    let next = &base + 1.0;
    drop(base);
    next.eval()?;
    assert_eq!(view.to_vec::<f32>()?, vec![1.0; 100]);
    assert_eq!(next.to_vec::<f32>()?, vec![2.0; 100]);
    Ok(())
}

#[test]
fn several_outputs_share_one_kernel() -> Result<()> {
    let (device, backend) = reference_backend();
    let g = Tensor::from_vec(vec![1f32, 2.0], [2], &device)?;
    let m = Tensor::from_vec(vec![10f32, 20.0], [2], &device)?;
    let p = Tensor::from_vec(vec![100f32, 200.0], [2], &device)?;
    let m2 = &m * 0.5 + &g;
    let p2 = &p - &m2 * 2.0;
    eval_pending()?;
    assert_eq!(kernels(&backend), 1);
    assert_eq!(m2.to_vec::<f32>()?, [6.0, 12.0]);
    assert_eq!(p2.to_vec::<f32>()?, [88.0, 176.0]);
    assert_eq!(kernels(&backend), 1);
    Ok(())
}

#[test]
fn reductions_take_their_prologue_in() -> Result<()> {
    let (device, backend) = reference_backend();
    let x = Tensor::from_vec((0..6).map(|v| v as f32).collect(), [2, 3], &device)?;
    let y = (&x * 2.0 + 1.0).sum_axis(1, false)?;
    assert_eq!(y.to_vec::<f32>()?, [9.0, 27.0]);
    assert_eq!(kernels(&backend), 1);
    Ok(())
}

#[test]
fn views_copy_nothing() -> Result<()> {
    let (device, backend) = reference_backend();
    let x = Tensor::from_vec((0..24).map(|v| v as f32).collect(), [2, 3, 4], &device)?;
    let y = x.permute([2, 0, 1])?.slice_step(0, 1..4, 2)?.flip([1])?.select(1, 0)?.expand([5, -1, -1])?;
    y.eval()?;
    assert_eq!(kernels(&backend), 0);
    assert_eq!(y.shape().dims(), [5, 2, 3]);
    let values = y.to_vec::<f32>()?;
    assert_eq!(values[..6], [13.0, 17.0, 21.0, 15.0, 19.0, 23.0]);
    let z = x.permute([2, 0, 1])?.reshape([-1])?;
    assert_eq!(z.to_vec::<f32>()?[..4], [0.0, 4.0, 8.0, 12.0]);
    Ok(())
}

#[test]
fn a_chain_of_a_million_is_built_evaluated_and_dropped_on_a_small_stack() {
    let run = || -> Result<()> {
        let device = reference();
        let mut x = Tensor::zeros([1], (DType::F64, &device))?.into_cell(true)?;
        for _ in 0..1_000_000 {
            x = &x + 1.0;
        }
        assert_eq!(x.item::<f64>()?, 1e6);
        let mut y = Tensor::zeros([1], (DType::F64, &device))?;
        for _ in 0..1_000_000 {
            y = &y + 1.0;
        }
        assert_eq!(y.item::<f64>()?, 1e6);
        Ok(())
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap().unwrap();
}

#[test]
fn a_loop_that_never_looks_holds_bounded_memory() -> Result<()> {
    let (device, backend) = reference_backend();
    let mut sum = Tensor::zeros([1000], &device)?;
    let mut most = 0;
    for i in 0..20_000 {
        let row = Tensor::full([1000], f64::from(i % 7), &device)?;
        sum = (&sum + &row) * 0.5;
        most = most.max(tensor_core::Backend::memory(backend.as_ref()).allocated);
    }
    assert!(sum.is_evaluated() || kernels(&backend) > 0);
    assert!(most <= 100 * 4000, "{most}");
    Ok(())
}

/// A body of 700 and one of 5,000 nodes: the bound on pending nodes is met never and once in each pass.
#[test]
fn a_loop_that_looks_does_the_same_in_each_pass() -> Result<()> {
    for nodes in [700, 5000] {
        let (device, backend) = reference_backend();
        let x = Tensor::from_vec(vec![1f32, 2.0], [2], &device)?;
        let mut passes = Vec::new();
        for _ in 0..40 {
            let before = kernels(&backend);
            let mut y = x.clone();
            for _ in 0..nodes {
                y = (&y - 1.0).abs();
            }
            y.to_vec::<f32>()?;
            passes.push(kernels(&backend) - before);
        }
        assert!(passes.iter().all(|&pass| pass == passes[0]), "{nodes}: {passes:?}");
    }
    Ok(())
}

#[test]
fn kept_results_of_a_loop_pin_no_graph() -> Result<()> {
    let (device, backend) = reference_backend();
    let w = Tensor::full([1000], 2.0, &device)?.into_cell(true)?;
    let mut losses = Vec::new();
    for step in 0..50 {
        let x = Tensor::from_vec(vec![step as f32; 1000], [1000], &device)?;
        losses.push((&x * &w).sum().detach());
        eval_pending()?;
    }
    let live = tensor_core::Backend::memory(backend.as_ref()).allocated;
    assert!(live <= 4000 + 50 * 4 + 4000, "{live}");
    assert_eq!(losses[3].item::<f32>()?, 6000.0);
    Ok(())
}

#[test]
fn a_failure_names_operation_and_line_and_loses_nothing() -> Result<()> {
    let (device, backend) = reference_backend();
    let x = Tensor::from_vec(vec![1f32, 2.0, 3.0, 4.0], [2, 2], &device)?;
    let sum = x.sum_axis(0, true)?;
    let product = (&x / &sum).matmul(&x)?;
    let line = line!() - 1;
    let y = product.exp();
    for n in 1..=4 {
        backend.fail_in.store(n, Ordering::Relaxed);
        let result = y.eval();
        backend.fail_in.store(0, Ordering::Relaxed);
        let Err(error) = result else { break };
        assert!(matches!(error.kind(), ErrorKind::OutOfMemory { .. }), "{error}");
        assert!(error.op().is_some(), "{error}");
        if n == 2 {
            assert!(error.to_string().contains(&format!("graph.rs:{line}")), "{error}");
        }
    }
    let expected = [(0.25 * 1.0 + 2.0 / 6.0 * 3.0f64).exp(), (0.25 * 2.0 + 2.0 / 6.0 * 4.0f64).exp()];
    let found = y.to_vec::<f32>()?;
    assert!(
        (f64::from(found[0]) - expected[0]).abs() < 1e-4 && (f64::from(found[1]) - expected[1]).abs() < 1e-4
    );
    assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    Ok(())
}

#[test]
fn two_threads_share_a_graph() -> Result<()> {
    let device = reference();
    let x = Tensor::from_vec((0..100).map(|v| v as f32).collect(), [100], &device)?;
    let shared = (&x * 3.0).exp().log();
    let threads: Vec<_> = (0..8)
        .map(|i| {
            let shared = shared.clone();
            std::thread::spawn(move || (&shared + f64::from(i)).sum().item::<f32>())
        })
        .collect();
    for (i, thread) in threads.into_iter().enumerate() {
        let sum = thread.join().unwrap()?;
        assert!(sum.is_infinite() || sum > i as f32);
    }
    Ok(())
}

#[test]
fn cells_keep_old_graphs_on_old_values() -> Result<()> {
    let device = reference();
    let w = Tensor::from_vec(vec![1f32, 2.0], [2], &device)?.into_cell(true)?;
    let before = &w * 10.0;
    w.assign(&Tensor::from_vec(vec![5f32, 6.0], [2], &device)?)?;
    let after = &w * 10.0;
    assert_eq!(before.to_vec::<f32>()?, [10.0, 20.0]);
    assert_eq!(after.to_vec::<f32>()?, [50.0, 60.0]);
    assert!(w.assign(&Tensor::zeros([3], &device)?).is_err());
    assert!(w.assign(&Tensor::zeros([2], (DType::F64, &device))?).is_err());
    assert_eq!(w.to_vec::<f32>()?, [5.0, 6.0]);
    // In place, repeatedly: neither memory nor the graph grows.
    for _ in 0..100 {
        let next = set_grad_enabled(false, || &w * 0.5);
        w.assign(&next)?;
    }
    assert_eq!(w.to_vec::<f32>()?, [5.0 * 0.5f32.powi(100), 6.0 * 0.5f32.powi(100)]);
    Ok(())
}

#[test]
fn one_seed_gives_one_stream() -> Result<()> {
    let device = reference();
    let rng = Generator::seed(42, &device);
    let a = Tensor::randn([4], &rng)?;
    let b = Tensor::randn([4], &rng)?;
    let again = Generator::seed(42, &device);
    let both = Tensor::randn([8], &again)?;
    let (a, b, both) = (a.to_vec::<f32>()?, b.to_vec::<f32>()?, both.to_vec::<f32>()?);
    assert_eq!(both[..4], a[..]);
    assert_eq!(both[4..], b[..]);
    assert_ne!(a, b);
    Ok(())
}

#[test]
fn plans_are_reused_for_other_scalars() -> Result<()> {
    let device = reference();
    let x = Tensor::from_vec(vec![1f32, 2.0], [2], &device)?;
    for i in 0..10 {
        let y = &x * f64::from(i) + Tensor::arange(f64::from(i), f64::from(i) + 2.0, 1.0, &device)?;
        let i = i as f32;
        assert_eq!(y.to_vec::<f32>()?, [i + i, 2.0 * i + i + 1.0]);
    }
    Ok(())
}

#[test]
fn an_expression_larger_than_a_kernel_is_cut() -> Result<()> {
    let (device, backend) = reference_backend();
    let x = Tensor::from_vec(vec![1f64, 2.0], [2], &device)?;
    let mut y = x.clone();
    for i in 0..100 {
        y = &y * 1.01 + f64::from(i);
    }
    let inputs: Vec<Tensor> =
        (0..30).map(|i| Tensor::from_vec(vec![f64::from(i); 2], [2], &device)).collect::<Result<_>>()?;
    let many = inputs.iter().fold(y, |sum, t| &sum + t);
    let mut expected = 2f64;
    for i in 0..100 {
        expected = expected * 1.01 + f64::from(i);
    }
    expected += (0..30).map(f64::from).sum::<f64>();
    assert!((many.to_vec::<f64>()?[1] - expected).abs() < 1e-9);
    assert!(kernels(&backend) > 4);
    Ok(())
}

#[test]
fn a_shared_subexpression_that_grows_is_computed_once() -> Result<()> {
    let (device, backend) = reference_backend();
    let x = Tensor::from_vec(vec![1f64, 1.0], [2], &device)?;
    let (mut a, mut b) = (x.clone(), x);
    for _ in 0..60 {
        (a, b) = (&a + &b, a);
    }
    assert_eq!(a.to_vec::<f64>()?, [4_052_739_537_881.0; 2]);
    assert!(kernels(&backend) < 20);
    Ok(())
}

#[test]
fn concatenations_of_concatenations_are_one_copy() -> Result<()> {
    let (device, backend) = reference_backend();
    let count = || std::mem::take(&mut *backend.kernels.lock().unwrap()).values().sum::<usize>();
    let x = Tensor::from_vec((0..6).map(|i| i as f32).collect(), [2, 3], &device)?;
    let wide = Tensor::concat(&[x.narrow(1, 1, 2)?.flip(1)?, x.clone()], 1)?;
    let both = Tensor::concat(&[&wide, &wide, &Tensor::concat(&[&x, &x.narrow(1, 0, 2)?], 1)?], 0)?;
    let rows = [
        [2f32, 1.0, 0.0, 1.0, 2.0],
        [5.0, 4.0, 3.0, 4.0, 5.0],
        [0.0, 1.0, 2.0, 0.0, 1.0],
        [3.0, 4.0, 5.0, 3.0, 4.0],
    ];
    let expected = [rows[0], rows[1], rows[0], rows[1], rows[2], rows[3]].concat();
    count();
    drop(wide);
    assert_eq!(both.to_vec::<f32>()?, expected);
    assert_eq!(count(), 1);
    // A concatenation that is also read elsewhere or kept is stored, and so are expressions; a part is
    // not an operand of a sum.
    let wide = Tensor::concat(&[&x, &x], 1)?;
    let all = Tensor::concat(&[&wide, &wide], 0)?;
    assert_eq!(all.sum().item::<f32>()?, 60.0);
    assert!(wide.is_evaluated());
    let wide = Tensor::concat(&[&x, &x], 1)?;
    let (all, sums) = (Tensor::concat(&[&wide, &wide], 0)?, wide.sum_axis(0, false)?);
    drop(wide);
    count();
    eval_all(&[&all, &sums])?;
    assert_eq!(count(), 3);
    assert_eq!(sums.to_vec::<f32>()?, [3.0, 5.0, 7.0, 3.0, 5.0, 7.0]);
    let computed = Tensor::concat(&[&Tensor::concat(&[&x + 1.0, x.neg()], 0)?, &x.zeros_like()], 0)?;
    assert_eq!(
        computed.to_vec::<f32>()?,
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 0.0, -1.0, -2.0, -3.0, -4.0, -5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    );
    Ok(())
}

/// A concatenation that grew step by step is not one kernel with all its parts, whose plan would recurse
/// as deep.
#[test]
fn a_list_may_grow_by_any_number_of_concatenations() -> Result<()> {
    let (device, _) = reference_backend();
    let one = Tensor::from_vec(vec![1f32], [1], &device)?;
    let mut list = one.clone();
    for _ in 0..2000 {
        list = Tensor::concat(&[&list, &one], 0)?;
    }
    assert_eq!(list.to_vec::<f32>()?, vec![1.0; 2001]);
    Ok(())
}

/// A clamp selects the element or the bound for the sake of gradients; the kernel computes a maximum and
/// a minimum.
#[test]
fn a_choice_that_is_the_greater_of_two_is_one_instruction() -> Result<()> {
    let (device, _) = reference_backend();
    let x = Tensor::from_vec(vec![-3f32, 0.25, f32::NAN, 3.0], [4], &device)?;
    let instrs = |y: &Tensor| -> Result<usize> {
        let plan = plan_of(y)?;
        assert_eq!(plan.kernels.len(), 1);
        Ok(plan.kernels[0].kernel.body.program().unwrap().instrs.len())
    };
    let held = x.clamp(-1.0, 1.0);
    // The element, two bounds, the maximum and the minimum.
    assert_eq!(instrs(&held)?, 5);
    assert_eq!(format!("{:?}", held.to_vec::<f32>()?), "[-1.0, 0.25, NaN, 1.0]");
    // Other selections stay.
    let choose = |condition: &Tensor, other: &Tensor| condition.where_cond(&x, other);
    let bound = x.neg();
    let most = x.maximum(&bound)?;
    let choices = [
        (choose(&x.lt(&bound)?, &most)?, 5),
        (choose(&x.gt(&bound)?, &x.minimum(&bound)?)?, 5),
        (choose(&bound.gt(&x)?, &most)?, 5),
        (choose(&x.gt(&bound)?, &most)?, 3),
    ];
    for (other, expected) in choices {
        assert_eq!(instrs(&other)?, expected);
    }
    assert_eq!(format!("{:?}", choose(&x.lt(&bound)?, &most)?.to_vec::<f32>()?), "[-3.0, 0.25, NaN, 3.0]");
    Ok(())
}

/// A copy of a constant needs only one element of it in memory.
#[test]
fn a_number_beside_others_is_written_once() -> Result<()> {
    let (device, _) = reference_backend();
    let x = Tensor::from_vec((0..6).map(|i| i as f32).collect(), [2, 3], &device)?;
    let index = Tensor::from_vec(vec![1i32, 1, 0], [1, 3], &device)?;
    eval_all(&[&x, &index])?;
    let written = |y: &Tensor| -> Result<Vec<usize>> {
        let plan = plan_of(y)?;
        Ok(plan.kernels.iter().flat_map(|k| &k.kernel.outputs).map(|output| output.shape.numel()).collect())
    };
    let sums = x.zeros_like().scatter_add(0, &index, &x.narrow(0, 1, 1)?)?;
    assert_eq!(written(&sums)?, [1, 6]);
    assert_eq!(sums.to_vec::<f32>()?, [0.0, 0.0, 5.0, 3.0, 4.0, 0.0]);
    let one = Tensor::ones([1], &device)?;
    let framed = Tensor::concat(&[&one.expand([2, 1])?, &x, &one.expand([2, 2])?], 1)?;
    assert_eq!(written(&framed)?, [1, 12]);
    assert_eq!(framed.to_vec::<f32>()?, [1.0, 0.0, 1.0, 2.0, 1.0, 1.0, 1.0, 3.0, 4.0, 5.0, 1.0, 1.0]);
    // A reader of the whole tensor gets all elements, and other readers use that buffer.
    let ones = one.expand([2, 3])?;
    let beside = Tensor::concat(&[&ones, &x], 0)?;
    eval_all(&[&ones, &beside])?;
    assert_eq!(ones.to_vec::<f32>()?, [1.0; 6]);
    assert_eq!(beside.to_vec::<f32>()?, [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    // A product needs the rows stored contiguously.
    assert_eq!(Tensor::ones([1, 2], &device)?.matmul(&x)?.to_vec::<f32>()?, [3.0, 5.0, 7.0]);
    Ok(())
}
