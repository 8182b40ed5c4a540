//! Random numbers: word for word the stream of `tensor_core::philox`, and the distributions made from it.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::common::{agree, devices, run};
use tensor_core::{
    DType, Kernel, RandomKind, Scalar, Shape,
    kernel::{Instr, Program},
};

fn draw(kind: RandomKind, dtype: DType, n: usize) -> Kernel {
    Kernel::map(
        Shape::from([n]),
        [],
        Program {
            instrs: vec![Instr::Random { kind, seed: 0, offset: 1 }],
            dtypes: vec![dtype],
            inputs: vec![],
            scalars: vec![DType::I64, DType::I64],
            outputs: vec![0],
        },
    )
}

#[test]
fn words_are_the_same_everywhere() {
    for (name, device) in devices() {
        // Offsets near and across a carry of the counter's low word.
        for (seed, offset) in [(0u64, 0u64), (42, 1000), (u64::MAX, 0xffff_fff0), (1 << 40, u64::MAX - 3)] {
            let scalars = [Scalar::Int(seed as i64), Scalar::Int(offset as i64)];
            let found = run(device, &draw(RandomKind::Bits, DType::U32, 1000), &scalars, &[]).unwrap();
            for (i, &word) in found[0].iter().enumerate() {
                let expected = tensor_core::philox(seed, offset.wrapping_add(i as u64))[0];
                assert_eq!(word, f64::from(expected), "{name}: {i}");
            }
        }
    }
}

#[test]
fn distributions_agree() {
    let scalars = [Scalar::Int(7), Scalar::Int(123)];
    for (dtype, tolerance) in [(DType::F32, 0.0), (DType::F64, 0.0), (DType::F16, 1e-3)] {
        agree("uniform", &draw(RandomKind::Uniform, dtype, 5001), &scalars, &[], tolerance);
    }
    for (dtype, tolerance) in [(DType::F32, 3e-6), (DType::F64, 1e-14), (DType::BF16, 1e-2)] {
        agree("normal", &draw(RandomKind::Normal, dtype, 5001), &scalars, &[], tolerance);
    }
}
