//! The number of threads. A process reads the environment once, so each case runs in its own process.
#![allow(clippy::unwrap_used)]

use std::process::Output;

use tensor_core::Tensor;

const MARK: &str = "TAPER_TEST_THREADS";

/// Runs `told_how_many_threads` with these variables.
fn with(variables: &[(&str, &str)], expected: usize) -> Output {
    let mut child = taper_testing::test_process(told_how_many_threads);
    child.arg("--nocapture").env(MARK, expected.to_string());
    child.env_remove("TAPER_THREADS").env_remove("RAYON_NUM_THREADS").envs(variables.iter().copied());
    child.output().unwrap()
}

/// In a child: the number of threads is what the parent expects, and a kernel runs.
#[test]
fn told_how_many_threads() {
    let Ok(expected) = std::env::var(MARK) else { return };
    assert_eq!(backend_cpu::num_threads().to_string(), expected);
    let x = Tensor::ones([1 << 20], &backend_cpu::open().unwrap()).unwrap();
    assert_eq!((&x * 2.0).sum().item::<f32>().unwrap(), (2 << 20) as f32);
    backend_cpu::set_num_threads(2).unwrap();
    assert_eq!(backend_cpu::num_threads(), 2);
}

#[test]
fn the_environment_says_how_many_threads() {
    for (variables, expected) in [
        (&[("TAPER_THREADS", "3")][..], 3),
        (&[("RAYON_NUM_THREADS", "5")], 5),
        (&[("TAPER_THREADS", "1"), ("RAYON_NUM_THREADS", "5")], 1),
    ] {
        let told = with(variables, expected);
        assert!(told.status.success(), "{variables:?}: {}", String::from_utf8_lossy(&told.stderr));
    }
}
