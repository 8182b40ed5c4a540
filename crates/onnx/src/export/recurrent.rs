//! Recurrent layers: one node for each layer and direction. ONNX has the gates in another order, so nodes
//! reorder the weights, which keep their names and PyTorch's order in the file.

use super::{
    builder::{given, int, text, texts},
    exporter::{Exporter, Failure},
    sample::Call,
};

/// The operator of a cell, and the order in which ONNX has its gates.
fn operator(cell: &str) -> (&'static str, &'static [usize]) {
    match cell {
        // From i, f, g, o to i, o, f, g; and from r, z, n to z, r, n.
        "lstm" => ("LSTM", &[0, 3, 1, 2]),
        "gru" => ("GRU", &[1, 0, 2]),
        _ => ("RNN", &[0]),
    }
}

/// Adds the node of a layer; returns the names of all states, of the last one, and of an LSTM's last cell.
pub(super) fn emit(exporter: &mut Exporter, call: &Call, names: &[String]) -> Result<Vec<String>, Failure> {
    let (op, order) = operator(call.text("cell"));
    let size = call.outputs[0].first().dims().last().copied().unwrap_or(0);
    let [x, of_input, of_state, bias, state_bias, hidden, rest @ ..] = names else {
        return Err(Failure::NoForm("a layer without weights".into()));
    };
    let weight = exporter.reordered(of_input, order);
    let weight = exporter.in_front(&weight);
    let recurrence = exporter.reordered(of_state, order);
    let recurrence = exporter.in_front(&recurrence);
    let bias = match bias.is_empty() {
        true => String::new(),
        false => {
            let parts = [exporter.reordered(bias, order), exporter.reordered(state_bias, order)];
            let both = exporter.builder.node("Concat", &[&parts[0], &parts[1]], [int("axis", 0)]);
            exporter.in_front(&both)
        }
    };
    let hidden = exporter.in_front(hidden);
    let cell = match rest.first().filter(|name| op == "LSTM" && !name.is_empty()) {
        Some(cell) => exporter.in_front(cell),
        None => String::new(),
    };
    let direction = if call.int("reverse") == 0 { "forward" } else { "reverse" };
    let mut attributes = vec![int("hidden_size", size as i64), text("direction", direction)];
    match call.text("cell") {
        "gru" => attributes.push(int("linear_before_reset", 1)),
        "relu" => attributes.push(texts("activations", &["Relu"])),
        _ => {}
    }
    let inputs = [x.clone(), weight, recurrence, bias, String::new(), hidden, cell];
    let results = exporter.builder.node_of(op, &given(&inputs), call.outputs.len(), attributes);
    // The axis of directions: 1 of all states, 0 of the last.
    let axes = [1, 0, 0];
    let without = |(name, axis): (&String, i64)| {
        let axis = exporter.builder.ints(&[axis]);
        exporter.builder.node("Squeeze", &[name, &axis], [])
    };
    Ok(results.iter().zip(axes).map(without).collect())
}

impl Exporter {
    /// A weight with its gates in another order.
    fn reordered(&mut self, weight: &str, order: &[usize]) -> String {
        if order.len() == 1 {
            return weight.into();
        }
        let attributes = [int("axis", 0), int("num_outputs", order.len() as i64)];
        let gates = self.builder.node_of("Split", &[weight], order.len(), attributes);
        let gates: Vec<&str> = order.iter().map(|&gate| gates[gate].as_str()).collect();
        self.builder.node("Concat", &gates, [int("axis", 0)])
    }

    /// The value with an axis of size 1 in front.
    fn in_front(&mut self, value: &str) -> String {
        let axis = self.builder.ints(&[0]);
        self.builder.node("Unsqueeze", &[value, &axis], [])
    }
}
