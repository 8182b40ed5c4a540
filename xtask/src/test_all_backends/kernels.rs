//! The kernels that tests compile for a GPU. Compiling them is most of what tests cost on a GPU in software,
//! so each run has a bound: a change that makes tests compile many more kernels is seen when it is made.

use std::collections::HashSet;

use super::{devices::Device, table::Table};

/// The most different kernels of a run, by the crate or the form of kernels that its row in the table names:
/// about a third more than those of the day 20786, as each day takes other tests. Raise one with a reason in
/// the commit.
const BOUNDS: &[(&str, usize)] = &[
    ("taper-backend-wgpu", 1_800),
    ("taper-linalg", 1_000),
    ("taper-models", 1_350),
    ("taper-onnx", 1_000),
    ("(tiled)", 5_000),
    ("(direct, uniforms, 8 buffers)", 4_200),
    ("(windows of 128 KiB)", 2_200),
    ("(SwiftShader)", 1_900),
];

/// The number of different kernels in a log, whose lines begin with the hash of a kernel's source.
pub(crate) fn different(log: &str) -> usize {
    log.lines().filter_map(|line| line.split_whitespace().next()).collect::<HashSet<_>>().len()
}

/// Whether the bounds are those of a device: of Mesa's adapter in software. Others have other kernels.
pub(crate) fn counts_on(device: &Device) -> bool {
    device.description.contains("llvmpipe")
}

/// Adds a failure to each row that compiled more kernels than its bound.
pub(crate) fn check(table: &mut Table) {
    for row in &mut table.rows {
        let bound = BOUNDS.iter().find(|(name, _)| row.name == *name || row.backend.ends_with(name));
        if let Some(&(name, most)) = bound.filter(|(_, most)| row.tally.kernels > *most) {
            let kernels = row.tally.kernels;
            row.tally.fail(format!("{kernels} kernels compiled, at most {most} of {name} are allowed"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_all_backends::libtest::Tally;

    #[test]
    fn a_kernel_counts_once() {
        assert_eq!(different("00ab map\n00ac reduce\n00ab map\n\n"), 2);
        assert_eq!(different(""), 0);
    }

    #[test]
    fn a_row_with_too_many_kernels_fails() {
        let mut table = Table::default();
        let most = BOUNDS.iter().find(|(name, _)| *name == "(tiled)").unwrap().1;
        let tally = |kernels| Tally { passed: 1, kernels, ..Default::default() };
        table.add("wgpu:0 (tiled)", "taper", tally(most));
        table.add("cpu", "taper", tally(0));
        check(&mut table);
        assert_eq!(table.total().failed, 0);
        table.add("wgpu:0 (tiled)", "taper", tally(1));
        check(&mut table);
        assert_eq!(table.total().failed, 1);
        assert!(table.to_string().contains("(tiled) are allowed"), "{table}");
    }
}
