//! Operations from elsewhere, with kernels in WGSL.

use std::sync::Arc;

use backend_wgpu::WgslKernel;
use tensor_core::{CustomKernel, DType, ErrorKind, Result, Shape, Tensor, custom::Request};

use crate::common::devices;

#[derive(Clone, Copy, Debug)]
enum What {
    /// The elements times a factor, and each element's place.
    Scale,
    /// A shader that does not compile.
    Crooked,
    /// It names one output of two.
    Misnamed,
    /// It has a kernel for nothing.
    Absent,
}

#[derive(Debug)]
struct Test(What);

const SCALE: &str = "
fn twice(x: f32) -> f32 { return 2.0 * x; }
// A name of the library's own.
fn is_nan_f32(x: f32) -> bool { return false; }
fn kernel(workgroup_index: u32, local_index: u32) {
    let i = workgroup_index * 32u + local_index;
    if (i < params.n && !is_nan_f32(x[i])) {
        y[i] = twice(x[i]);
        place[i] = i32(i);
    }
}";

impl CustomKernel for Test {
    fn name(&self) -> &'static str {
        "test_op"
    }
    fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>> {
        Ok(vec![inputs[0].clone(), (inputs[0].0.clone(), DType::I32)])
    }
    fn key(&self) -> Vec<u64> {
        vec![self.0 as u64]
    }
    fn implement(&self, request: &mut Request<'_>) {
        let (source, outputs): (_, &[&str]) = match self.0 {
            What::Scale => (SCALE, &["y", "place"]),
            What::Crooked => ("fn kernel(a: u32, b: u32) { no_such_function(); }", &["y", "place"]),
            What::Misnamed => (SCALE, &["y"]),
            What::Absent => return,
        };
        request.provide(|kernel| {
            let n = kernel.operands[0].layout.numel();
            let made = WgslKernel::new(source).inputs(&["x"]).outputs(outputs);
            made.param("n", n as u32).workgroups(32, n.div_ceil(32))
        });
    }
}

fn run(what: What, x: &Tensor) -> Result<Vec<Tensor>> {
    Tensor::custom_kernel(Arc::new(Test(what)), &[x])
}

#[test]
fn results_are_those_of_the_shader() -> Result<()> {
    for (form, device) in devices() {
        for n in [1usize, 31, 1000, 70_000] {
            let x = &Tensor::arange(0.0, n as f64, 1.0, device)? * 0.5;
            let [y, place] = &run(What::Scale, &x)?[..] else { panic!("two results") };
            let count: Vec<f32> = (0..n).map(|i| i as f32).collect();
            assert_eq!(y.to_vec::<f32>()?, count, "{form}");
            assert_eq!(place.to_vec::<i32>()?, (0..n as i32).collect::<Vec<_>>(), "{form}");
        }
        let x = Tensor::arange(0.0, 6.0, 1.0, device)?.reshape([2, 3])?;
        x.eval()?;
        assert_eq!(run(What::Scale, &x.t()?)?[0].to_vec::<f32>()?, [0.0, 6.0, 2.0, 8.0, 4.0, 10.0], "{form}");
        assert_eq!(run(What::Scale, &x.narrow(0, 1, 1)?)?[0].to_vec::<f32>()?, [6.0, 8.0, 10.0], "{form}");
    }
    Ok(())
}

#[test]
fn what_is_wrong_with_a_kernel_is_said() -> Result<()> {
    for (form, device) in devices() {
        let x = Tensor::arange(0.0, 6.0, 1.0, device)?;
        let failed = |what| -> Result<_> { Ok(run(what, &x)?[0].eval().unwrap_err()) };
        let error = failed(What::Crooked)?.to_string();
        assert!(error.contains("no_such_function") && error.contains("custom.rs"), "{form}: {error}");
        let error = failed(What::Misnamed)?.to_string();
        assert!(error.contains("test_op") && error.contains("1 outputs"), "{form}: {error}");
        let error = failed(What::Absent)?;
        assert!(matches!(error.kind(), ErrorKind::Unsupported { op: "test_op", .. }), "{form}: {error}");
        // The device goes on.
        assert_eq!(run(What::Scale, &x)?[0].sum().item::<f32>()?, 30.0, "{form}");
    }
    Ok(())
}
