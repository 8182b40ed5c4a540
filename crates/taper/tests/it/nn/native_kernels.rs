//! The operations with kernels of their own on each backend.

/// Operations that have a kernel on the CPU and are composed of others on GPUs, with the reason.
const COMPOSED: &[(&str, &str)] = &[
    (
        "EmbeddingBag",
        "the rows are read at indices within the kernel that reduces them, which also reports bad indices",
    ),
    ("GridSample", "the pixels are read at indices within the map that weighs them: one kernel already"),
    ("Nonzero", "a running count and a scatter are the passes that a kernel would have"),
    ("RunningExtreme", "running positions and a gather are two dispatches, and a scan alone has up to three"),
];

#[test]
fn gpus_have_the_kernels_of_the_cpu_or_a_reason() {
    let (cpu, gpu) = (backend_cpu::NATIVE_KERNELS, backend_wgpu::NATIVE_KERNELS);
    for name in cpu {
        let reason = COMPOSED.iter().find(|(composed, _)| composed == name);
        assert_eq!(
            gpu.contains(name),
            reason.is_none(),
            "{name}: a kernel on GPUs or a reason, and not both"
        );
    }
    for name in gpu.iter().chain(COMPOSED.iter().map(|(name, _)| name)) {
        assert!(cpu.contains(name), "{name} has no kernel on the CPU");
    }
}
