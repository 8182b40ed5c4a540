//! Compares the operation with the same function composed of Taper's operations: values and gradients, on
//! every device.
#![allow(clippy::unwrap_used)]

use custom_op::rotate;
use taper::{
    autograd::{gradcheck, gradgradcheck},
    prelude::*,
};

/// The same function, composed of tensor operations.
fn composition(x: &Tensor, angles: &Tensor) -> Result<Tensor> {
    let pairs: Vec<usize> = x.dims()[..x.rank() - 1].iter().copied().chain([angles.dims()[1], 2]).collect();
    let pairs = x.reshape(pairs.as_slice())?;
    let (a, b) = (pairs.select(-1, 0)?, pairs.select(-1, 1)?);
    let (sin, cos) = (angles.sin(), angles.cos());
    let turned = [a.mul(&cos)?.sub(&b.mul(&sin)?)?, a.mul(&sin)?.add(&b.mul(&cos)?)?];
    Tensor::stack(&turned, -1)?.reshape(x.dims())
}

fn random(shape: &[usize], seed: u64, dtype: DType, device: &Device) -> Tensor {
    Tensor::randn_dtype(shape, dtype, &Generator::seed(seed, device)).unwrap()
}

/// The CPU, and the first GPU where there is one.
fn devices() -> Vec<Device> {
    let mut all = vec![taper::cpu()];
    #[cfg(feature = "wgpu")]
    match taper::wgpu(0) {
        Ok(device) => all.push(device),
        Err(error) => {
            assert!(
                !std::env::var("TAPER_TEST").is_ok_and(|settings| settings.contains("require=wgpu")),
                "TAPER_TEST has require=wgpu, but {error}"
            );
            eprintln!("SKIPPED on wgpu: {error}");
        }
    }
    all
}

#[test]
fn it_is_its_composition() -> Result<()> {
    for device in devices() {
        for shape in [vec![1, 2], vec![5, 6], vec![2, 3, 5, 6], vec![0, 5, 6], vec![70, 200]] {
            let x = random(&shape, 1, DType::F32, &device).requires_grad();
            let angles =
                random(&[shape[shape.len() - 2], shape[shape.len() - 1] / 2], 2, DType::F32, &device)
                    .requires_grad();
            let weights = random(&shape, 3, DType::F32, &device);
            let run = |f: fn(&Tensor, &Tensor) -> Result<Tensor>| -> Result<[Tensor; 3]> {
                x.zero_grad();
                angles.zero_grad();
                let y = f(&x, &angles)?;
                y.mul(&weights)?.sum().backward()?;
                Ok([y.detach(), x.grad().unwrap(), angles.grad().unwrap()])
            };
            for (found, expected) in run(rotate)?.iter().zip(&run(composition)?) {
                assert_eq!(found.shape(), expected.shape());
                assert!(
                    found.allclose(expected, 1e-4, 1e-4)?,
                    "{device} {shape:?}: {found} is not {expected}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn inputs_may_lie_in_any_order() -> Result<()> {
    for device in devices() {
        let x = random(&[6, 5], 4, DType::F32, &device);
        let angles = random(&[4, 3, 2], 5, DType::F32, &device);
        x.eval()?;
        angles.eval()?;
        let (x, angles) = (x.t()?, angles.select(1, 1)?.narrow(0, 1, 1)?.expand([5, 2])?);
        let angles = Tensor::concat(&[&angles, &angles.narrow(1, 0, 1)?], 1)?;
        assert!(rotate(&x, &angles)?.allclose(&composition(&x, &angles)?, 1e-5, 1e-5)?);
        // Expressions that wait are computed before.
        let (x, angles) = (&x * 2.0 + 1.0, angles.flip([0])?);
        assert!(rotate(&x, &angles)?.exp().allclose(&composition(&x, &angles)?.exp(), 1e-4, 1e-4)?);
    }
    Ok(())
}

#[test]
fn its_gradients_are_those_of_differences() -> Result<()> {
    let cpu = taper::cpu();
    let inputs = [random(&[2, 3, 4], 6, DType::F64, &cpu), random(&[3, 2], 7, DType::F64, &cpu)];
    gradcheck(|x| rotate(&x[0], &x[1]), &inputs)?;
    gradgradcheck(|x| rotate(&x[0], &x[1]), &inputs)
}

#[test]
fn what_does_not_fit_is_said() -> Result<()> {
    let cpu = taper::cpu();
    let x = Tensor::ones([3, 4], &cpu)?;
    let error = rotate(&x, &Tensor::ones([3, 4], &cpu)?).unwrap_err().to_string();
    assert!(error.contains("rotate") && error.contains("[3, 4]"), "{error}");
    let error = rotate(&x, &Tensor::ones([3, 2], (DType::F64, &cpu))?).unwrap_err().to_string();
    assert!(error.contains("f32") && error.contains("f64"), "{error}");
    Ok(())
}
