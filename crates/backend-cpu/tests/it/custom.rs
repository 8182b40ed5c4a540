//! Custom operations with kernels for the CPU.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use backend_cpu::{CpuKernel, cpu};
use tensor_core::{
    CustomKernel, DType, Error, ErrorKind, Layout, Result, Shape, Tensor, custom::Request, kernel::Kernel,
};

/// The behaviour of the test operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behaviour {
    /// Multiplies the elements by a constant, and counts them.
    Scale(i64),
    /// Reverses the elements, for inputs of any strides.
    Reverse,
    /// Always returns an error.
    Fail,
    /// Reads its input as another type.
    Mistake,
    /// Has two results that depend on no element.
    Nothing,
}

#[derive(Debug)]
struct Test(Behaviour);

/// The number of times an implementation was requested.
static MADE: AtomicUsize = AtomicUsize::new(0);

impl CustomKernel for Test {
    fn name(&self) -> &'static str {
        "test_op"
    }

    fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>> {
        if inputs.len() != 1 {
            return Err(Error::invalid("test_op", "it takes one tensor"));
        }
        Ok(match self.0 {
            Behaviour::Scale(_) => vec![inputs[0].clone(), (Shape::scalar(), DType::I64)],
            Behaviour::Reverse | Behaviour::Fail | Behaviour::Mistake => vec![inputs[0].clone()],
            Behaviour::Nothing => Vec::new(),
        })
    }

    fn key(&self) -> Vec<u64> {
        match self.0 {
            Behaviour::Scale(factor) => vec![0, factor as u64],
            Behaviour::Reverse => vec![1],
            Behaviour::Fail => vec![2],
            Behaviour::Mistake => vec![3],
            Behaviour::Nothing => vec![4],
        }
    }

    fn implement(&self, request: &mut Request<'_>) {
        MADE.fetch_add(1, Ordering::Relaxed);
        let what = self.0;
        request.provide(|kernel| {
            let layout = kernel.operands[0].layout.clone();
            CpuKernel::new(move |inputs, outputs| {
                match what {
                    Behaviour::Scale(factor) => {
                        let x = inputs[0].as_slice::<f32>()?;
                        let [scaled, count] = outputs else { return Err(Error::invalid("test_op", "two")) };
                        let to = scaled.as_mut_slice::<f32>()?;
                        assert!(to.iter().all(|v| *v == 0.0));
                        to.iter_mut().zip(x).for_each(|(to, x)| *to = x * factor as f32);
                        count.as_mut_slice::<i64>()?[0] = x.len() as i64;
                    }
                    Behaviour::Reverse => {
                        assert_eq!(*inputs[0].layout(), layout);
                        let x = inputs[0].as_slice::<f32>()?;
                        let to = outputs[0].as_mut_slice::<f32>()?;
                        let last = to.len() - 1;
                        let mut flat = Vec::new();
                        places(&layout, 0, layout.offset() as isize, &mut flat);
                        flat.iter().enumerate().for_each(|(i, &at)| to[last - i] = x[at]);
                    }
                    Behaviour::Fail => return Err(Error::invalid("test_op", "it always fails")),
                    Behaviour::Mistake => drop(inputs[0].as_slice::<f64>()?),
                    Behaviour::Nothing => {}
                }
                Ok(())
            })
        });
    }

    fn takes_strides(&self) -> bool {
        self.0 == Behaviour::Reverse
    }
}

/// Appends the offsets of a layout's elements in row-major order.
fn places(layout: &Layout, axis: usize, at: isize, out: &mut Vec<usize>) {
    match layout.shape().get(axis) {
        None => out.push(at as usize),
        Some(&n) => {
            (0..n as isize).for_each(|i| places(layout, axis + 1, at + i * layout.strides()[axis], out))
        }
    }
}

fn run(what: Behaviour, x: &Tensor) -> Result<Vec<Tensor>> {
    Tensor::custom_kernel(Arc::new(Test(what)), &[x])
}

/// 0 to 5 in two rows.
fn six() -> Result<Tensor> {
    Tensor::arange(0.0, 6.0, 1.0, &cpu())?.reshape([2, 3])
}

#[test]
fn several_results_of_inputs_in_any_order() -> Result<()> {
    let (waiting, ready) = (&six()? * 1.0, six()?);
    ready.eval()?;
    let whole = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
    for x in [waiting.clone(), ready.clone(), six()? + 0.0] {
        let [scaled, count] = &run(Behaviour::Scale(2), &x)?[..] else { panic!("two results") };
        assert_eq!((count.item::<i64>()?, count.dtype()), (6, DType::I64));
        assert_eq!(scaled.to_vec::<f32>()?, whole.map(|v| 2.0 * v));
        // Views: of another order, with an offset, and with repeated elements.
        assert_eq!(run(Behaviour::Scale(3), &x.t()?)?[0].to_vec::<f32>()?, [0.0, 9.0, 3.0, 12.0, 6.0, 15.0]);
        assert_eq!(run(Behaviour::Scale(1), &x.narrow(0, 1, 1)?)?[0].to_vec::<f32>()?, [3.0, 4.0, 5.0]);
        assert_eq!(
            run(Behaviour::Scale(1), &x.select(1, 1)?.expand([2, 2])?)?[0].to_vec::<f32>()?,
            [1.0, 4.0, 1.0, 4.0]
        );
        assert_eq!(run(Behaviour::Reverse, &x.t()?)?[0].to_vec::<f32>()?, [5.0, 2.0, 4.0, 1.0, 3.0, 0.0]);
        assert_eq!(
            run(Behaviour::Reverse, &x.flip([1])?)?[0].to_vec::<f32>()?,
            [3.0, 4.0, 5.0, 0.0, 1.0, 2.0]
        );
    }
    // A constant, a result of another such operation, and operations on the results.
    assert_eq!(run(Behaviour::Scale(2), &Tensor::full([2], 4.0, &cpu())?)?[0].to_vec::<f32>()?, [8.0; 2]);
    let twice = run(Behaviour::Scale(2), &run(Behaviour::Scale(2), &ready)?[0].t()?)?;
    assert_eq!((&twice[0] + 1.0).sum().item::<f32>()?, 66.0);
    assert_eq!(run(Behaviour::Scale(2), &Tensor::zeros([0, 3], &cpu())?)?[1].item::<i64>()?, 0);
    assert_eq!(ready.to_vec::<f32>()?, whole);
    Ok(())
}

/// Kernels with different keys are different, and each is made once.
#[test]
fn plans_are_kept_by_the_key() -> Result<()> {
    for factor in [5, 7, 5, 7] {
        assert_eq!(run(Behaviour::Scale(factor), &six()?)?[0].sum().item::<f32>()?, 15.0 * factor as f32);
    }
    let before = MADE.load(Ordering::Relaxed);
    let mut more = Vec::new();
    for _ in 0..20 {
        more.push(run(Behaviour::Scale(5), &six()?)?[0].sum().item::<f32>()?);
    }
    assert_eq!(more, [75.0; 20]);
    // Other tests make some meanwhile, but fewer than twenty.
    assert!(MADE.load(Ordering::Relaxed) - before < 20 + 15);
    Ok(())
}

#[test]
fn failures_name_the_operation_and_the_line() -> Result<()> {
    let x = &six()? + 1.0;
    let found = run(Behaviour::Fail, &x)?.swap_remove(0);
    let error = found.eval().unwrap_err();
    assert_eq!(error.op(), Some("test_op"));
    assert!(error.to_string().contains("always fails") && error.to_string().contains("custom.rs"), "{error}");
    // Its input is still valid, and so is the device.
    assert_eq!(x.to_vec::<f32>()?[5], 6.0);
    assert!(found.eval().is_err());
    let error = run(Behaviour::Mistake, &x)?[0].eval().unwrap_err();
    assert!(error.to_string().contains("f32") && error.to_string().contains("f64"), "{error}");
    let line = line!() + 1;
    let error = Tensor::custom_kernel(Arc::new(Test(Behaviour::Fail)), &[&x, &x]).unwrap_err();
    assert_eq!(error.location().unwrap().line(), line, "{error}");
    for (inputs, what) in [(vec![], Behaviour::Fail), (vec![&x], Behaviour::Nothing)] {
        let error = Tensor::custom_kernel(Arc::new(Test(what)), &inputs).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Invalid { op: "test_op", .. }), "{error}");
    }
    Ok(())
}

/// The kernel has one output for each result, and cannot be split along an axis.
#[test]
fn a_custom_kernel_is_whole() {
    let operand = tensor_core::kernel::Operand::new(DType::F32, Layout::contiguous([2, 3]));
    let results = [(Shape::from([2, 3]), DType::F32), (Shape::scalar(), DType::I64)];
    let kernel = Kernel::custom(Arc::new(Test(Behaviour::Scale(1))), [operand], &results);
    assert_eq!((kernel.name(), kernel.outputs.len()), ("test_op", 2));
    assert!(kernel.narrow(0, 0, 1).is_none() && kernel.indexed_operands().is_empty());
}
