//! The device of these tests: the plain reference backend, which is slow, exact, and can be made to fail.
#![allow(unused_imports, clippy::unwrap_used)]

pub(crate) use taper_testing::{assert_elements as assert_close, reference, reference as device};

/// The reference and the CPU.
pub(crate) fn devices() -> [tensor_core::Device; 2] {
    [device(), backend_cpu::cpu()]
}

/// Parameter and gradient values by their bits.
pub(crate) fn bits(tensor: &tensor_core::Tensor) -> Vec<u8> {
    tensor.read_bytes().unwrap()
}

/// A state, so that two can be told apart.
pub(crate) fn shown(state: &tensor_core::State) -> Vec<String> {
    let part = |(name, value): (&str, &tensor_core::StateValue)| match value {
        tensor_core::StateValue::Tensor(tensor) => format!("{name} {:?}", bits(tensor)),
        tensor_core::StateValue::Number(number) => format!("{name} {number:?}"),
    };
    state.iter().map(part).collect()
}
