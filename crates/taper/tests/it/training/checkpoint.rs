//! Checkpointing: the gradients are those of the plain function, and the memory is that of one part at a
//! time.
#![allow(clippy::unwrap_used)]

use crate::common::{device, needs, tensor};
use taper::{
    autograd::{gradcheck, gradgradcheck},
    checkpoint, eval_pending,
    func::{jacobian, vmap},
    grad, grad_of,
    nn::{BatchNorm1d, Checkpointed, Dropout, Gelu},
    prelude::*,
};

#[track_caller]
fn close(what: &str, found: &Tensor, expected: &Tensor) {
    assert_eq!(found.shape(), expected.shape(), "{what}");
    let within = taper_testing::tolerance(found.dtype());
    taper_testing::assert_close(&found.to_f64_vec().unwrap(), &expected.to_f64_vec().unwrap(), within, what);
}

/// The gradients of `y`'s sum with respect to cells, which are cleared before.
fn gradients(y: &Tensor, cells: &[&Tensor]) -> Result<Vec<Tensor>> {
    cells.iter().for_each(|cell| cell.zero_grad());
    y.sum().backward()?;
    Ok(cells.iter().map(|cell| cell.grad().unwrap()).collect())
}

#[track_caller]
fn same(what: &str, found: &[Tensor], expected: &[Tensor]) {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).for_each(|(found, expected)| close(what, found, expected));
}

#[test]
fn inputs_and_what_is_captured_get_the_gradients_of_the_function_itself() -> Result<()> {
    let d = device();
    let x = tensor(&[5, 4], 1, DType::F32, &d)?.requires_grad();
    let w = tensor(&[4, 4], 2, DType::F32, &d)?.requires_grad();
    let b = tensor(&[4], 3, DType::F32, &d)?.requires_grad();
    let frozen = tensor(&[4], 4, DType::F32, &d)?;
    // Something between a leaf and the function, which is captured too.
    let scale = |w: &Tensor| w.tanh().sum_axis(0, false);
    let f = |x: &Tensor, s: &Tensor| -> Result<Tensor> {
        x.matmul(&w)?.add(&b)?.tanh().mul(s)?.mul(&frozen)?.exp().mul(x)
    };
    let plain = {
        let s = scale(&w)?;
        gradients(&f(&f(&x, &s)?, &s)?, &[&x, &w, &b])?
    };
    let s = scale(&w)?;
    let first = checkpoint(|inputs| f(&inputs[0], &s), &[&x])?;
    let second = checkpoint(|inputs| f(&inputs[0], &s), &[&first])?;
    assert_eq!(second.op().grad_name(), "Checkpoint");
    same("checkpointed", &gradients(&second, &[&x, &w, &b])?, &plain);
    // The same where values were looked at before.
    let s = scale(&w)?;
    let first = checkpoint(|inputs| f(&inputs[0], &s), &[&x])?;
    first.eval()?;
    let second = checkpoint(|inputs| f(&inputs[0], &s), &[&first])?;
    let loss = second.sum();
    let value = loss.item::<f32>()?;
    assert!(value.is_finite());
    same("looked at", &gradients(&second, &[&x, &w, &b])?, &plain);
    Ok(())
}

#[test]
fn inputs_that_are_made_of_each_other_get_each_their_share() -> Result<()> {
    let d = device();
    let x = tensor(&[6], 5, DType::F32, &d)?.requires_grad();
    let f = |a: &Tensor, b: &Tensor, c: &Tensor| a.mul(b)?.add(&b.powi(2))?.mul(c);
    let plain = {
        let twice = &x * 2.0;
        gradients(&f(&x, &twice, &twice.exp())?, &[&x])?
    };
    let twice = &x * 2.0;
    let third = twice.exp();
    let y = checkpoint(|t| f(&t[0], &t[1], &t[2]), &[&x, &twice, &third])?;
    same("related", &gradients(&y, &[&x])?, &plain);
    // With create_graph, the gradients have a graph, which reaches x.
    let twice = &x * 2.0;
    let third = twice.exp();
    let y = checkpoint(|t| f(&t[0], &t[1], &t[2]), &[&x, &twice, &third])?;
    let slope = grad_of(&y.sum(), &x, true)?;
    same("with a graph", std::slice::from_ref(&slope), &plain);
    let curvature = grad_of(&slope.sum(), &x, false)?;
    let twice = &x * 2.0;
    let slope = grad_of(&f(&x, &twice, &twice.exp())?.sum(), &x, true)?;
    close("curvature", &curvature, &grad_of(&slope.sum(), &x, false)?);
    Ok(())
}

#[test]
fn several_results_used_or_not() -> Result<()> {
    let d = device();
    let x = tensor(&[3, 4], 6, DType::F32, &d)?.requires_grad();
    let f = |t: &[Tensor]| -> Result<(Tensor, Tensor, Tensor, Tensor)> {
        let (values, order) = t[0].sort(1, false)?;
        Ok((values.exp(), order, t[0].tanh().mul(&values)?, t[0].clone()))
    };
    let given = [x.clone()];
    let (a, _, b, _) = f(&given)?;
    let plain = gradients(&a.add(&b)?, &[&x])?;
    let plain_of_one = gradients(&f(&given)?.2, &[&x])?;
    let (a, order, b, itself) = checkpoint(f, &given)?;
    assert!(!order.is_tracked() && itself.is_cell());
    assert_eq!(order.to_vec::<i64>().or_else(|_| Ok::<_, taper::Error>(Vec::new()))?.len() % 12, 0);
    same("both", &gradients(&a.add(&b)?, &[&x])?, &plain);
    let (_, _, b, _) = checkpoint(f, &given)?;
    same("one", &gradients(&b, &[&x])?, &plain_of_one);
    Ok(())
}

#[test]
fn dropout_drops_the_same_and_buffers_change_once() -> Result<()> {
    let d = device();
    let model = |checkpointed: bool| -> Result<(Vec<Tensor>, Vec<Tensor>, Tensor)> {
        let rng = Generator::seed(3, &d);
        let (fc, norm) = (Linear::new(8, 8, &rng)?, BatchNorm1d::new(8, &d)?);
        let drop = Dropout::new(0.5, &rng)?;
        let x = Tensor::randn([16, 8], &rng)?;
        let f = |x: &Tensor| drop.forward(&norm.forward(&fc.forward(x)?)?.relu());
        let mut y = x;
        for _ in 0..3 {
            y = if checkpointed { checkpoint(|t| f(&t[0]), &[&y])? } else { f(&y)? };
        }
        // Afterwards the random stream has the same position as without a checkpoint.
        let after = drop.forward(&Tensor::ones([16], &d)?)?;
        y.powi(2).sum().backward()?;
        let found = fc.parameters().iter().map(|p| p.grad().unwrap()).collect();
        Ok((found, norm.state_dict().into_values().collect(), y.add(&after.sum())?))
    };
    let (plain, plain_buffers, plain_y) = model(false)?;
    let (found, buffers, y) = model(true)?;
    same("gradients", &found, &plain);
    assert!(buffers.len() >= 4);
    same("buffers", &buffers, &plain_buffers);
    close("output", &y, &plain_y);
    Ok(())
}

#[test]
fn checkpoints_nest_and_wrap_layers() -> Result<()> {
    let d = device();
    let rng = Generator::seed(4, &d);
    let blocks = (0..4).map(|_| Linear::new(6, 6, &rng)).collect::<Result<Vec<_>>>()?;
    let x = Tensor::randn([5, 6], &rng)?;
    let cells = blocks.parameters();
    let cells: Vec<&Tensor> = cells.iter().collect();
    let mask = Tensor::rand([5, 6], &rng)?;
    let step = |k: usize, x: &Tensor| blocks[k].forward(x)?.tanh().mul(&mask);
    let through = |x: &Tensor| (0..4).try_fold(x.clone(), |x, k| step(k, &x));
    let plain = gradients(&through(&x)?, &cells)?;
    let pair = |k: usize, x: &Tensor| -> Result<Tensor> {
        checkpoint(
            |t| {
                let half = &t[0] * 0.5; // built outside of the inner one, read inside
                let first = checkpoint(|u| step(k, &(&u[0] + &half)), &[&half])?;
                checkpoint(|u| step(k + 1, &u[0]), &[first])
            },
            &[x],
        )
    };
    same("nested", &gradients(&pair(2, &pair(0, &x)?)?, &cells)?, &plain);

    let layers = |wrapped: bool| {
        let mut model = Sequential::new();
        for block in &blocks {
            let part = Sequential::new().add(block.clone()).add(Gelu);
            if wrapped { model.push(Checkpointed::new(part)) } else { model.push(part) }
        }
        model
    };
    let plain = gradients(&layers(false).forward(&x)?, &cells)?;
    let wrapped = layers(true);
    assert_eq!(wrapped.named_parameters()[2].0, layers(false).named_parameters()[2].0);
    same("wrapped", &gradients(&wrapped.forward(&x)?, &cells)?, &plain);
    for segments in 1..=4 {
        let y = layers(false).forward_checkpointed(segments, &x)?;
        same("segments", &gradients(&y, &cells)?, &plain);
    }
    for segments in [0, 5] {
        let error = layers(false).forward_checkpointed(segments, &x).unwrap_err().to_string();
        assert!(error.contains("from 1 to as many as there are layers"), "{error}");
    }
    Ok(())
}

#[test]
fn its_gradients_can_be_differentiated() -> Result<()> {
    let d = device();
    if !needs(&d, DType::F64) {
        return Ok(());
    }
    let w = tensor(&[3, 3], 7, DType::F64, &d)?;
    let x = tensor(&[2, 3], 8, DType::F64, &d)?;
    let f = |t: &[Tensor]| -> Result<Tensor> {
        let inner = |u: &[Tensor]| Ok(u[0].matmul(&t[1])?.tanh());
        checkpoint(|u| Ok(checkpoint(inner, &[&u[0]])?.powi(3)), &[&t[0]])
    };
    gradcheck(|t| Ok(f(t)?.sum()), &[x.clone(), w.clone()])?;
    gradgradcheck(|t| Ok(f(t)?.sum()), &[x, w])?;
    Ok(())
}

#[test]
fn it_maps_over_slices() -> Result<()> {
    let d = device();
    let x = tensor(&[4], 9, DType::F32, &d)?;
    let f = |x: &Tensor| x.tanh().mul(&x.exp());
    let plain = jacobian(|t| f(&t[0]), std::slice::from_ref(&x))?;
    let found = jacobian(|t| checkpoint(|u| f(&u[0]), &[&t[0]]), std::slice::from_ref(&x))?;
    same("jacobian", &found, &plain);
    let each = |checkpointed: bool| {
        let slope = |t: &[Tensor]| {
            let leaf = t[0].detach().requires_grad();
            let y = if checkpointed { checkpoint(|u| f(&u[0]), &[&leaf])? } else { f(&leaf)? };
            grad_of(&y.sum(), &leaf, false)
        };
        vmap(slope, &[tensor(&[3, 4], 10, DType::F32, &d)?], &[Some(0)])
    };
    close("slices", &each(true)?, &each(false)?);
    Ok(())
}

#[test]
fn the_graph_is_used_up_or_retained_as_any() -> Result<()> {
    let d = device();
    let x = tensor(&[4], 11, DType::F32, &d)?.requires_grad();
    let y = checkpoint(|t| Ok(t[0].exp().tanh()), &[&x])?.sum();
    y.backward_retain()?;
    let once = x.grad().unwrap();
    y.backward()?;
    close("twice", &x.grad().unwrap(), &(&once * 2.0));
    let error = y.backward().unwrap_err().to_string();
    assert!(error.contains("used up"), "{error}");
    // A tensor that leaves the function by another way has no gradient, and says so.
    let mut inside = None;
    let y = checkpoint(
        |t| {
            let hidden = t[0].exp();
            inside = Some(hidden.clone());
            Ok(hidden.tanh())
        },
        &[&x],
    )?;
    let hidden = inside.unwrap();
    close("its value is there", &hidden, &x.exp());
    let error = hidden.sum().backward().unwrap_err().to_string();
    assert!(error.contains("have the function return it"), "{error}");
    x.zero_grad();
    y.sum().backward()?;
    close("the result's gradient too", &x.grad().unwrap(), &once);
    // checkpoint returns the function's own error; and without gradients it is the function alone.
    let error = checkpoint(|t| t[0].reshape([3]), &[&x]).unwrap_err().to_string();
    assert!(error.starts_with("reshape"), "{error}");
    assert!(checkpoint(|t| Ok(t[0].exp()), &[&x])?.is_tracked());
    assert!(!no_grad(|| checkpoint(|t| Ok(t[0].exp()), &[&x]))?.is_tracked());
    let plain = checkpoint(|t| Ok(t[0].exp()), &[x.detach()])?;
    assert!(!plain.is_tracked());
    assert!(grad(&[&plain], &[&x], false).is_err());
    Ok(())
}

const BLOCKS: usize = 24;
const BATCH: usize = 256;
const WIDTH: usize = 64;
const INNER: usize = 256;

/// The peak memory of a training step beyond the memory in use before, and the gradients, for blocks 64 →
/// 256 → 64.
fn step(checkpointed: bool, looked_at: bool) -> Result<(u64, u64, Vec<Tensor>)> {
    let d = device();
    let rng = Generator::seed(5, &d);
    let blocks = (0..BLOCKS)
        .map(|_| {
            let (first, last) = (Linear::new(WIDTH, INNER, &rng)?, Linear::new(INNER, WIDTH, &rng)?);
            Ok(Sequential::new().add(first).add(Gelu).add(last))
        })
        .collect::<Result<Vec<_>>>()?;
    let x = Tensor::randn([BATCH, WIDTH], &rng)?;
    let cells = blocks.parameters();
    x.eval()?;
    taper::eval_all(&cells.iter().collect::<Vec<_>>())?;
    eval_pending()?;
    d.synchronize()?;
    let before = d.memory().allocated;
    d.reset_peak();
    let mut y = x;
    for block in &blocks {
        y = match checkpointed {
            true => y.add(&checkpoint(|t| block.forward(&t[0]), &[&y])?)?,
            false => y.add(&block.forward(&y)?)?,
        };
    }
    let loss = y.powi(2).mean();
    drop(y);
    if looked_at {
        loss.item::<f32>()?;
    }
    loss.backward()?;
    eval_pending()?;
    d.synchronize()?;
    let peak = d.memory().peak - before;
    let gradients: Vec<Tensor> = cells.iter().map(|cell| cell.grad().unwrap()).collect();
    let bytes = gradients.iter().map(|g| g.numel() * 4).sum::<usize>() as u64;
    Ok((peak, bytes, gradients))
}

/// A step holds the gradients, the input of each block, and the inside of one: not the inside of all.
#[test]
fn a_deep_network_peaks_at_one_part_s_memory() -> Result<()> {
    if taper_testing::run_alone(a_deep_network_peaks_at_one_part_s_memory) {
        return Ok(());
    }
    for looked_at in [false, true] {
        let (plain, gradient_bytes, expected) = step(false, looked_at)?;
        let (peak, _, found) = step(true, looked_at)?;
        same("gradients", &found, &expected);
        let (edge, inside) = ((BATCH * WIDTH * 4) as u64, (BATCH * INNER * 4) as u64);
        // The input and the output of each block; for one block its two inner tensors, their gradients, and
        // as much again.
        let bound = gradient_bytes + 2 * (BLOCKS as u64 + 4) * edge + 8 * inside;
        eprintln!("looked at {looked_at}: plain {plain}, checkpointed {peak}, bound {bound}");
        assert!(peak <= bound, "{peak} bytes at the peak, {bound} allowed; {plain} without checkpoints");
        // Without, two inner tensors of each block are there at once.
        assert!(plain >= gradient_bytes / 2 + 2 * BLOCKS as u64 * inside, "{plain}");
    }
    Ok(())
}
