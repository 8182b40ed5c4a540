//! Settings of the whole process. An environment variable with an invalid value is an error when a device is
//! opened, and none is ignored. The default dtype is tested too. Each case has its own process.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::device;
use taper::{
    ErrorKind,
    nn::{Embedding, LinearConfig},
    prelude::*,
};

/// The variables of each backend, each with a value that it cannot have.
const WRONG: &[(&str, &str, &str)] = &[
    ("cpu", "TAPER_CPU_MEMORY_LIMIT", "8 GB"),
    ("cpu", "TAPER_CPU_ISA", "sse9"),
    ("cpu", "TAPER_THREADS", "0"),
    ("cpu", "TAPER_THREADS", "many"),
    ("wgpu", "TAPER_WGPU_MEMORY_LIMIT", "0"),
    ("wgpu", "TAPER_WGPU_AUTOTUNE", "yes"),
    ("wgpu", "TAPER_TEST", "wgpu.form=fast"),
];

#[test]
fn what_cannot_be_read_is_an_error_that_names_the_variable() {
    const MARK: &str = "TAPER_TEST_WRONG";
    if let Ok(case) = std::env::var(MARK) {
        let (backend, variable, value) = WRONG[case.parse::<usize>().unwrap()];
        return refused(backend, variable, value);
    }
    let here = device().name().to_string();
    for (case, (_, variable, value)) in
        WRONG.iter().enumerate().filter(|(_, (backend, ..))| here.starts_with(backend))
    {
        // The variable of tests names the device too.
        let value =
            if *variable == "TAPER_TEST" { format!("device={here},{value}") } else { value.to_string() };
        let child = taper_testing::test_process(what_cannot_be_read_is_an_error_that_names_the_variable)
            .env(MARK, case.to_string())
            .env(variable, &value)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success() && told.contains("1 passed"), "{variable}: {told}");
    }
}

fn refused(backend: &str, variable: &str, value: &str) {
    let name = taper_testing::settings::setting("device").unwrap_or("cpu".into());
    let told = |error: Error| {
        let text = error.to_string();
        assert!(matches!(error.kind(), ErrorKind::Invalid { .. }), "{text}");
        assert!(text.contains(variable) && text.contains(value), "{text}");
    };
    told(taper::device(&name).unwrap_err());
    if backend == "cpu" {
        // `cpu` itself cannot fail, but every attempt to make a tensor on its device fails.
        for _ in 0..2 {
            told(
                Tensor::from_vec(vec![1.0f32], [1], &taper::cpu())
                    .and_then(|x| x.to_vec::<f32>())
                    .unwrap_err(),
            );
            told(Tensor::arange(0.0, 9.0, 1.0, &taper::cpu()).and_then(|x| x.to_vec::<f32>()).unwrap_err());
        }
    }
}

#[test]
fn a_device_that_the_environment_names_wrongly_is_an_error() {
    const MARK: &str = "TAPER_TEST_NAMED_WRONGLY";
    if std::env::var_os(MARK).is_some() {
        let text = taper::device("auto").unwrap_err().to_string();
        assert!(text.contains("nowhere"), "{text}");
        return;
    }
    let child = taper_testing::test_process(a_device_that_the_environment_names_wrongly_is_an_error)
        .envs([(MARK, "1"), ("TAPER_DEVICE", "nowhere")])
        .output()
        .unwrap();
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}

/// Parameters were f32 whatever the default was, and did not fit the inputs that followed it.
#[test]
fn layers_have_the_default_dtype() {
    if taper_testing::run_alone(layers_have_the_default_dtype) {
        return;
    }
    let device = device();
    let rng = Generator::seed(0, &device);
    for dtype in [DType::F64, DType::F16, DType::BF16, DType::F32] {
        if !device.supports(dtype) {
            continue;
        }
        taper::set_default_dtype(dtype).unwrap();
        let layer = Linear::new(3, 2, &rng).unwrap();
        let bias = layer.bias.as_ref().unwrap();
        assert_eq!((layer.weight.dtype(), bias.dtype()), (dtype, dtype));
        let output = layer.forward(&Tensor::ones([4, 3], &device).unwrap()).unwrap();
        assert_eq!(output.dtype(), dtype);
        output.eval().unwrap();
        let table = Embedding::new(5, 3, &rng).unwrap();
        assert_eq!(table.weight.dtype(), dtype);
        // A dtype that is given goes before.
        let given = LinearConfig { dtype: DType::F32, ..Default::default() };
        assert_eq!(Linear::with_config(3, 2, given, &rng).unwrap().weight.dtype(), DType::F32);
    }
    // lavapipe compiles kernels while it runs them, and crashes if the process ends meanwhile.
    device.synchronize().unwrap();
}
