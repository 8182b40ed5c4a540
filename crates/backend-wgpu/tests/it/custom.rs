//! Custom operations with kernels in WGSL.

use std::sync::Arc;

use backend_wgpu::{WgslKernel, WgslProgram};
use tensor_core::{CustomKernel, DType, Error, ErrorKind, Result, Shape, Tensor, custom::Request};

use crate::common::devices;

#[derive(Clone, Copy, Debug)]
enum Behaviour {
    /// The elements times a factor, and each element's position.
    Scale,
    /// A shader that does not compile.
    Crooked,
    /// A kernel that names only one of two outputs.
    Misnamed,
    /// An operation without a kernel.
    Absent,
}

#[derive(Debug)]
struct Test(Behaviour);

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
            Behaviour::Scale => (SCALE, &["y", "place"]),
            Behaviour::Crooked => ("fn kernel(a: u32, b: u32) { no_such_function(); }", &["y", "place"]),
            Behaviour::Misnamed => (SCALE, &["y"]),
            Behaviour::Absent => return,
        };
        request.provide(|kernel| {
            let n = kernel.operands[0].layout.numel();
            let made = WgslKernel::new(source).inputs(&["x"]).outputs(outputs);
            made.param("n", n as u32).workgroups(32, n.div_ceil(32))
        });
    }
}

fn run(what: Behaviour, x: &Tensor) -> Result<Vec<Tensor>> {
    Tensor::custom_kernel(Arc::new(Test(what)), &[x])
}

#[test]
fn results_are_those_of_the_shader() -> Result<()> {
    for (form, device) in devices() {
        for n in [1usize, 31, 1000, 70_000] {
            let x = &Tensor::arange(0.0, n as f64, 1.0, device)? * 0.5;
            let [y, place] = &run(Behaviour::Scale, &x)?[..] else { panic!("two results") };
            let count: Vec<f32> = (0..n).map(|i| i as f32).collect();
            assert_eq!(y.to_vec::<f32>()?, count, "{form}");
            assert_eq!(place.to_vec::<i32>()?, (0..n as i32).collect::<Vec<_>>(), "{form}");
        }
        let x = Tensor::arange(0.0, 6.0, 1.0, device)?.reshape([2, 3])?;
        x.eval()?;
        assert_eq!(
            run(Behaviour::Scale, &x.t()?)?[0].to_vec::<f32>()?,
            [0.0, 6.0, 2.0, 8.0, 4.0, 10.0],
            "{form}"
        );
        assert_eq!(
            run(Behaviour::Scale, &x.narrow(0, 1, 1)?)?[0].to_vec::<f32>()?,
            [6.0, 8.0, 10.0],
            "{form}"
        );
    }
    Ok(())
}

#[test]
fn what_is_wrong_with_a_kernel_is_said() -> Result<()> {
    for (form, device) in devices() {
        let x = Tensor::arange(0.0, 6.0, 1.0, device)?;
        let failed = |what| -> Result<_> { Ok(run(what, &x)?[0].eval().unwrap_err()) };
        let error = failed(Behaviour::Crooked)?.to_string();
        assert!(error.contains("no_such_function") && error.contains("custom.rs"), "{form}: {error}");
        // In a plan of several kernels, which are compiled before the first one runs.
        let y = run(Behaviour::Crooked, &x.cumsum(0)?)?[0].sum();
        let error = y.eval().unwrap_err().to_string();
        assert!(error.contains("no_such_function") && error.contains("custom.rs"), "{form}: {error}");
        let error = failed(Behaviour::Misnamed)?.to_string();
        assert!(error.contains("test_op") && error.contains("1 outputs"), "{form}: {error}");
        let error = failed(Behaviour::Absent)?;
        assert!(matches!(error.kind(), ErrorKind::Unsupported { op: "test_op", .. }), "{form}: {error}");
        // The device stays usable.
        assert_eq!(run(Behaviour::Scale, &x)?[0].sum().item::<f32>()?, 30.0, "{form}");
    }
    Ok(())
}

/// A program of several stages: x is doubled `times` times in a temporary buffer, by two stages in turn. An
/// element of the result above a limit is a failure; the parts are the elements.
#[derive(Clone, Copy, Debug)]
struct Doubled {
    times: usize,
    program: Stages,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stages {
    Right,
    /// A stage that names a missing buffer.
    NoBuffer,
    /// A stage that writes to an input.
    WritesInput,
    /// A stage that binds one buffer twice.
    Twice,
}

const LIMIT: u32 = 1000;

impl CustomKernel for Doubled {
    fn name(&self) -> &'static str {
        "doubled"
    }
    fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>> {
        Ok(vec![inputs[0].clone()])
    }
    fn key(&self) -> Vec<u64> {
        vec![self.times as u64, self.program as u64]
    }
    fn may_fail(&self) -> bool {
        true
    }
    fn failure(&self, inputs: &[(Shape, DType)], code: u32, part: u32) -> Error {
        let message = format!("element {part} of {} has {code}", inputs[0].0);
        Error::new(ErrorKind::LinAlg { op: self.name(), batch: Some(part as usize), message })
    }
    fn implement(&self, request: &mut Request<'_>) {
        let Doubled { times, program } = *self;
        request.provide(|kernel| {
            let n = kernel.operands[0].layout.numel();
            let each = |body: &str| {
                let source = format!(
                    "fn kernel(g: u32, t: u32) {{ let i = g * 32u + t; if (i < params.n) {{ {body} }} }}"
                );
                WgslKernel::new(source).param("n", n as u32).workgroups(32, n.div_ceil(32)).work(64)
            };
            let add = each("sum[i] += value[i] * f32(params.round + 1u) / f32(params.round + 1u);");
            let add = add.inputs(&["value"]).outputs(&["sum"]);
            let copy = || each("to[i] = value[i];").inputs(&["value"]).outputs(&["to"]);
            let check = each(&format!("codes[i] = select(0u, u32(value[i]), value[i] > {LIMIT}.0);"));
            let made = WgslProgram::new(&["x"], &["y"])
                .temporary("own", DType::F32, n)
                .temporary("codes", DType::U32, n)
                .stage(copy(), &["x", "y"])
                .stage(copy(), &["x", "own"])
                .repeat(times, &[(&add, &["own", "y"]), (&copy(), &["y", "own"])])
                .stage(check.inputs(&["value"]).outputs(&["codes"]), &["y", "codes"])
                .failures("codes");
            match program {
                Stages::Right => made,
                Stages::NoBuffer => made.stage(copy(), &["y", "nowhere"]),
                Stages::WritesInput => made.stage(copy(), &["own", "x"]),
                Stages::Twice => made.stage(copy(), &["y", "y"]),
            }
        });
    }
}

#[track_caller]
fn doubled(times: usize, program: Stages, x: &Tensor) -> Result<Tensor> {
    Ok(Tensor::custom_kernel(Arc::new(Doubled { times, program }), &[x])?.swap_remove(0))
}

#[test]
fn stages_run_in_order_and_in_rounds() -> Result<()> {
    for (form, device) in devices() {
        for (n, times) in [(1usize, 0), (40, 1), (700, 3)] {
            let x = Tensor::full([n], 1.5, device)?;
            let y = doubled(times, Stages::Right, &x)?;
            assert_eq!(y.to_vec::<f32>()?, vec![1.5 * f32::powi(2.0, times as i32); n], "{form}");
        }
        let x = Tensor::full([4], 1.0, device)?;
        for (program, part) in [
            (Stages::NoBuffer, "no buffer \"nowhere\""),
            (Stages::WritesInput, "input \"x\""),
            (Stages::Twice, "\"y\" twice"),
        ] {
            let error = doubled(1, program, &x)?.eval().unwrap_err().to_string();
            assert!(error.contains("doubled") && error.contains(part), "{form}: {error}");
        }
    }
    Ok(())
}

/// The first failing part is reported by everything that depends on the result, and by nothing else.
#[test]
fn what_a_device_finds_is_an_error_of_what_depends_on_it() -> Result<()> {
    for (form, device) in devices() {
        let x = Tensor::arange(0.0, 700.0, 1.0, device)?;
        let good = doubled(0, Stages::Right, &x)?;
        let bad = doubled(1, Stages::Right, &x)?;
        let line = line!() - 1;
        let later = bad.add_scalar(1.0).sum();
        let beside = good.sum();
        for _ in 0..2 {
            for error in [bad.to_vec::<f32>().unwrap_err(), later.item::<f32>().unwrap_err()] {
                assert!(
                    matches!(error.kind(), ErrorKind::LinAlg { batch: Some(501), .. }),
                    "{form}: {error}"
                );
                let error = error.to_string();
                let parts = ["element 501 of [700] has 1002", "doubled", "custom.rs", &format!(":{line}:")];
                assert!(parts.iter().all(|part| error.contains(part)), "{form}: {error}");
            }
        }
        assert_eq!(beside.item::<f32>()?, 244_650.0, "{form}");
        assert_eq!(
            doubled(1, Stages::Right, &x.narrow(0, 0, 400)?)?.sum().item::<f32>()?,
            159_600.0,
            "{form}"
        );
    }
    Ok(())
}

/// The elements times two, and whether each is above 1, with the access functions only: one source for
/// every dtype.
#[derive(Debug)]
struct ByFunctions;

const BY_FUNCTIONS: &str = "
fn kernel(workgroup_index: u32, local_index: u32) {
    let i = workgroup_index * 32u + local_index;
    if (i < params.n) {
        let x = load_x(i);
        store_y(i, x + x);
        store_above(i, select(0u, 1u, f32(x) > 1.0));
    }
}";

impl CustomKernel for ByFunctions {
    fn name(&self) -> &'static str {
        "by_functions"
    }
    fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>> {
        Ok(vec![inputs[0].clone(), (inputs[0].0.clone(), DType::Bool)])
    }
    fn key(&self) -> Vec<u64> {
        Vec::new()
    }
    fn implement(&self, request: &mut Request<'_>) {
        request.provide(|kernel| {
            let n = kernel.operands[0].layout.numel();
            let made = WgslKernel::new(BY_FUNCTIONS).inputs(&["x"]).outputs(&["y", "above"]);
            made.param("n", n as u32).workgroups(32, n.div_ceil(32))
        });
    }
}

#[test]
fn elements_that_share_words_are_read_and_written_by_functions() -> Result<()> {
    for (form, device) in devices() {
        for dtype in [DType::U8, DType::F16, DType::BF16, DType::U32, DType::I32, DType::F32] {
            for n in [1usize, 3, 33, 1001] {
                let x = Tensor::arange(0.0, n as f64, 1.0, device)?.remainder_scalar(7).to_dtype(dtype)?;
                let [y, above] = &Tensor::custom_kernel(Arc::new(ByFunctions), &[&x])?[..] else {
                    panic!("two results")
                };
                let expected = |i: usize| (i % 7 * 2) as f32;
                let found = y.to_dtype(DType::F32)?.to_vec::<f32>()?;
                assert_eq!(found, (0..n).map(expected).collect::<Vec<_>>(), "{n} of {dtype}, {form}");
                let expected: Vec<bool> = (0..n).map(|i| i % 7 > 1).collect();
                assert_eq!(above.to_vec::<bool>()?, expected, "{n} of {dtype}, {form}");
            }
        }
    }
    Ok(())
}
