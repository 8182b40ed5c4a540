//! The devices of these tests: the reference backend, which is slow and exact and can be made to fail, and
//! the CPU.
#![allow(unused_imports, clippy::unwrap_used)]

pub(crate) use taper_testing::{assert_elements as assert_close, reference, reference as device};

/// The reference backend and the CPU.
pub(crate) fn devices() -> [tensor_core::Device; 2] {
    [device(), backend_cpu::cpu()]
}

/// The bytes of a tensor's values.
pub(crate) fn bits(tensor: &tensor_core::Tensor) -> Vec<u8> {
    tensor.read_bytes().unwrap()
}

/// A state as text, for comparisons.
pub(crate) fn shown(state: &tensor_core::State) -> Vec<String> {
    let part = |(name, value): (&str, &tensor_core::StateValue)| match value {
        tensor_core::StateValue::Tensor(tensor) => format!("{name} {:?}", bits(tensor)),
        tensor_core::StateValue::Number(number) => format!("{name} {number:?}"),
    };
    state.iter().map(part).collect()
}
