//! The end of a process.

use taper_testing::settings::opened;
use tensor_core::Tensor;

/// A process that has submitted much and read nothing ends well: a software GPU compiles in threads of its
/// own, whose compiler would otherwise be gone before they are.
#[test]
fn a_process_may_end_while_its_gpu_computes() {
    const CHILD: &str = "TAPER_TEST_UNREAD";
    let Some(device) = opened(backend_wgpu::wgpu(0)) else { return };
    if std::env::var_os(CHILD).is_none() {
        let child = taper_testing::test_process(a_process_may_end_while_its_gpu_computes)
            .env(CHILD, "1")
            .env("MESA_SHADER_CACHE_DISABLE", "true")
            .output()
            .unwrap();
        assert!(child.status.success(), "{child:?}");
        return;
    }
    let x = Tensor::ones([1000], &device).unwrap();
    // Each length of the chain is another kernel, which the adapter compiles when it comes to it.
    for length in 1..40 {
        let mut y = x.clone();
        for _ in 0..length {
            y = y.sin();
        }
        y.eval().unwrap();
    }
}
