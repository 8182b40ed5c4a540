//! A graph that is built by computing, its gradient, and its picture.
//!
//!     cargo run --release --example dynamic_graph

use taper::{ErrorKind, prelude::*};

fn main() -> Result<()> {
    let device = taper::best_device();
    let x = Tensor::arange(1.0, 4.0, 1.0, &device)?.requires_grad();
    let a = &x + 2.0;
    let b = a.powi(2);
    let c = &b + 3.0;
    let y = c.mean();
    println!("x = {x}");
    println!("y = {y}");

    // Drawn before the backward pass, which uses the graph up.
    std::fs::write("graph.dot", taper::dot(&[&y])).map_err(|error| {
        Error::new(ErrorKind::File {
            path: "graph.dot".into(),
            message: format!("cannot be written: {error}"),
        })
    })?;
    y.backward()?;
    if let Some(gradient) = x.grad() {
        println!("x.grad = {gradient}");
    }
    println!("graph written to graph.dot; `dot -Tsvg graph.dot` draws it");
    Ok(())
}
