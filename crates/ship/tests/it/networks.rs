//! Networks as programs.

use nn::{Gru, Lstm, Module, TransformerEncoderLayer};
use tensor_core::{Generator, Result, Tensor};

use crate::{
    bodies::floats,
    programs::{case, check},
};

#[test]
fn recurrent_layers() {
    let rng = Generator::seed(1, &backend_cpu::cpu());
    let gru = Gru::new(6, 8, &rng).unwrap();
    let lstm = Lstm::new(6, 8, &rng).unwrap();
    let x = || vec![floats(&[5, 1, 6], 1)];
    check(&[
        case("gru", 1e-5, x(), move |x| {
            let (all, last) = gru.forward(&x[0], None)?;
            Ok(vec![all, last])
        }),
        case("lstm", 1e-5, x(), move |x| {
            let (all, (hidden, cell)) = lstm.forward(&x[0], None)?;
            Ok(vec![all, hidden, cell])
        }),
    ]);
}

#[test]
fn a_transformer() {
    let rng = Generator::seed(1, &backend_cpu::cpu());
    let layer = TransformerEncoderLayer::new(16, 4, &rng).unwrap();
    layer.eval();
    check(&[case("transformer", 1e-4, vec![floats(&[1, 7, 16], 1)], move |x| -> Result<Vec<Tensor>> {
        Ok(vec![layer.forward(&x[0])?])
    })]);
}
