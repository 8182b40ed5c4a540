//! Gradients that flow through compiled functions, against those of the functions themselves, bit by bit.

#![allow(clippy::unwrap_used)]

use autograd::{Function, TensorGrad, apply, checkpoint, compile, compile_or_run, grad, no_grad};
use optim::{Adam, AdamConfig, Optimizer};
use tensor_core::{Device, ErrorKind, Generator, Result, Tensor};

fn cpu() -> Device {
    backend_cpu::cpu()
}

fn random(shape: &[usize], seed: u64) -> Result<Tensor> {
    Tensor::randn(shape, &Generator::seed(seed, &cpu()))
}

fn bits(tensors: &[Tensor]) -> Result<Vec<Vec<u8>>> {
    tensors.iter().map(Tensor::read_bytes).collect()
}

/// Two layers with a normalization between them.
fn network(p: &[Tensor], x: &Tensor) -> Result<Tensor> {
    let h = x.matmul(&p[0])?.add(&p[1])?;
    let centred = h.sub(&h.mean_axis(-1, true)?)?;
    let normal = centred.div(&centred.powi(2).mean_axis(-1, true)?.add_scalar(1e-5).sqrt())?;
    normal.gelu().matmul(&p[2])?.sigmoid().add(x)
}

fn parameters() -> Result<Vec<Tensor>> {
    let shapes: [&[usize]; 3] = [&[5, 40], &[40], &[40, 5]];
    let numbered = shapes.iter().enumerate();
    numbered.map(|(k, &shape)| Ok(random(shape, k as u64 + 1)?.mul_scalar(0.3).requires_grad())).collect()
}

/// The loss, the parameters' gradients and those of an argument that is itself made of a parameter, for some
/// steps whose loss, backward pass and update are outside of the function.
fn trained(calls: impl Fn(&[Tensor], Tensor) -> Result<Tensor>) -> Result<Vec<Vec<u8>>> {
    let (p, scale) = (parameters()?, Tensor::new(1.5f32, &cpu())?.requires_grad());
    let all: Vec<Tensor> = p.iter().chain([&scale]).cloned().collect();
    let mut adam = Adam::new(all.clone(), AdamConfig { lr: 0.01, ..Default::default() });
    let mut found = Vec::new();
    for k in 0..4 {
        let x = random(&[7, 5], 20 + k)?.mul(&scale)?;
        let loss = calls(&p, x)?.sub_scalar(0.5).powi(2).mean();
        loss.backward()?;
        found.push(loss.read_bytes()?);
        found.extend(bits(&all.iter().map(|p| p.grad().unwrap()).collect::<Vec<_>>())?);
        adam.step()?;
        adam.zero_grad();
    }
    found.extend(bits(&all)?);
    Ok(found)
}

#[test]
fn a_network_learns_the_same_through_a_compiled_function() -> Result<()> {
    let plain = trained(|p, x| network(p, &x))?;
    let compiled = compile(|(p, x): (Vec<Tensor>, Tensor)| network(&p, &x));
    assert_eq!(plain, trained(|p, x| compiled.call((p.to_vec(), x)))?);
    assert_eq!((compiled.counts().captured, compiled.counts().replayed), (1, 3));
    // Parameters that the function captures, rather than gets as arguments.
    let outer = std::cell::RefCell::new(Vec::new());
    let compiled = compile(|x: Tensor| network(&outer.borrow(), &x));
    let found = trained(|p, x| {
        *outer.borrow_mut() = p.to_vec();
        compiled.call(x)
    })?;
    assert_eq!(plain, found);
    assert_eq!((compiled.counts().captured, compiled.counts().replayed), (1, 3));
    Ok(())
}

#[test]
fn each_call_has_its_own_recording() -> Result<()> {
    let square = compile(|x: Tensor| Ok((x.powi(2), x.sum_axis(0, true)?)));
    let x = Tensor::new([1.0f32, 2.0], &cpu())?.requires_grad();
    let y = Tensor::new([3.0f32, 4.0], &cpu())?.requires_grad();
    let (first, sum) = square.call(x.clone())?;
    let (second, _) = square.call(y.clone())?;
    let (third, _) = square.call(first.clone())?;
    second.add(&third)?.sum().backward_retain()?;
    assert_eq!(y.grad().unwrap().to_vec::<f32>()?, [6.0, 8.0]);
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [4.0, 32.0]); // of x^4
    second.sum().backward()?;
    assert_eq!(y.grad().unwrap().to_vec::<f32>()?, [12.0, 16.0]);
    assert!(second.sum().backward().unwrap_err().to_string().contains("used up"));
    // A result that was not used has no gradient, and one that was used gets all of it.
    x.zero_grad();
    sum.sum().backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [1.0, 1.0]);
    assert_eq!(square.counts().captured, 1);
    // Nothing is recorded for arguments without gradients, or without a tape.
    assert!(!square.call(x.detach())?.0.is_tracked());
    assert!(!no_grad(|| square.call(x.clone()))?.0.is_tracked());
    assert_eq!(square.counts().captured, 3);
    Ok(())
}

#[test]
fn arguments_and_parameters_are_results() -> Result<()> {
    let w = Tensor::new([3.0f32, 4.0], &cpu())?.requires_grad();
    let x = Tensor::new([1.0f32, 2.0], &cpu())?.requires_grad();
    let same = compile(|x: Tensor| Ok((x.clone(), w.clone(), x.mul(&w)?)));
    for _ in 0..3 {
        w.zero_grad();
        x.zero_grad();
        let (same_x, same_w, product) = same.call(x.mul_scalar(2.0))?;
        same_x.add(&same_w.powi(2))?.add(&product)?.sum().backward()?;
        assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [8.0, 10.0]);
        assert_eq!(w.grad().unwrap().to_vec::<f32>()?, [8.0, 12.0]);
    }
    assert_eq!(same.counts().captured, 1);
    Ok(())
}

#[test]
fn draws_of_a_call_are_those_of_its_gradients() -> Result<()> {
    let rng = Generator::seed(8, &cpu());
    let dropped = compile(|x: Tensor| {
        let mask = Tensor::rand([64], &rng)?.gt(&Tensor::new(0.5f32, &cpu())?)?;
        x.sin().mul(&mask.to_dtype(x.dtype())?)?.mul(&Tensor::randn([64], &rng)?)
    });
    let x = Tensor::zeros([64], &cpu())?.requires_grad();
    let mut before = Vec::new();
    for _ in 0..3 {
        x.zero_grad();
        let y = dropped.call(x.add_scalar(0.25))?;
        y.sum().backward()?;
        let (y, gradient) = (y.to_vec::<f32>()?, x.grad().unwrap().to_vec::<f32>()?);
        for (y, gradient) in y.iter().zip(&gradient) {
            assert!((y * 0.25f32.cos() - gradient * 0.25f32.sin()).abs() < 1e-6, "{y} {gradient}");
        }
        assert!(y.contains(&0.0) && y != before);
        before = y;
    }
    assert_eq!(dropped.counts().captured, 1);
    Ok(())
}

/// x³ with the gradient 7.
#[derive(Debug)]
struct Seven;

impl Function for Seven {
    type Output = Tensor;

    fn name(&self) -> &'static str {
        "Seven"
    }

    fn forward(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Ok(inputs[0].powi(3))
    }

    fn backward(&self, _: &[Tensor], _: &Tensor, gradient: &Tensor) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(gradient.mul_scalar(7.0))])
    }
}

#[test]
fn functions_with_gradients_of_their_own_and_checkpoints_compile() -> Result<()> {
    let w = random(&[4, 4], 3)?.requires_grad();
    let body = |x: Tensor| {
        let inner = checkpoint(|x| Ok(x[0].matmul(&w)?.tanh().exp()), &[&x])?;
        apply(Seven, &[&inner])?.matmul(&w)
    };
    let compiled = compile(body);
    let x = random(&[3, 4], 4)?.requires_grad();
    for _ in 0..3 {
        let wanted = grad(&[body(x.clone())?.sum()], &[&x, &w], false)?;
        let found = grad(&[compiled.call(x.clone())?.sum()], &[&x, &w], false)?;
        for (wanted, found) in wanted.iter().zip(&found) {
            assert_eq!(wanted.as_ref().unwrap().to_vec::<f32>()?, found.as_ref().unwrap().to_vec::<f32>()?);
        }
    }
    assert_eq!(compiled.counts().captured, 1);
    Ok(())
}

#[test]
fn a_compiled_function_within_another_one_is_a_part_of_it() -> Result<()> {
    let w = Tensor::new([1.0f32, 2.0], &cpu())?.requires_grad();
    let inner = compile(|x: Tensor| x.mul(&w));
    let outer = compile(|x: Tensor| {
        w.zero_grad();
        inner.call(x)?.powi(2).sum().backward()
    });
    let x = Tensor::new([3.0f32, 5.0], &cpu())?;
    for _ in 0..3 {
        outer.call(x.clone())?;
        assert_eq!(w.grad().unwrap().to_vec::<f32>()?, [18.0, 100.0]);
    }
    assert_eq!((outer.counts().captured, inner.counts().ran), (1, 1));
    Ok(())
}

#[test]
fn results_of_any_shape_have_gradients() -> Result<()> {
    let compiled = compile(|x: Tensor| Ok((x.sum(), x.narrow(0, 0, 0)?, x.powi(2).mean_axis(0, true)?)));
    let x = Tensor::new([1.0f32, 2.0], &cpu())?.requires_grad();
    for _ in 0..3 {
        x.zero_grad();
        let (sum, none, mean) = compiled.call(x.clone())?;
        sum.add(&none.sum())?.add(&mean.sum())?.backward()?;
        assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [2.0, 3.0]);
    }
    Ok(())
}

#[test]
fn what_has_no_gradient_says_so() -> Result<()> {
    let x = Tensor::new([1.0f32, 2.0], &cpu())?.requires_grad();
    let square = compile(|x: Tensor| Ok(x.powi(2)));
    let error = grad(&[square.call(x.clone())?.sum()], &[&x], true).unwrap_err();
    assert!(error.to_string().contains("cannot be differentiated again"), "{error}");
    assert_eq!(error.location().unwrap().file(), file!());

    let hidden = x.exp();
    let reads = compile(|y: Tensor| hidden.mul(&y));
    let error = reads.call(x.detach()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Capture { .. }), "{error}");
    assert!(error.to_string().contains("pass it as an argument"), "{error}");

    // A function that runs as usual has the gradients of an ordinary one.
    let branches =
        compile_or_run(|y: Tensor| if y.sum().item::<f32>()? > 0.0 { Ok(y.powi(2)) } else { Ok(y) });
    for _ in 0..2 {
        x.zero_grad();
        branches.call(x.mul_scalar(3.0))?.sum().backward()?;
        assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [18.0, 36.0]);
    }
    assert_eq!(branches.counts().ran, 2);
    Ok(())
}
