//! A graph that is built by computing: its gradient, its pictures, and the kernels that run for it.
//!
//!     cargo run --release --example dynamic_graph -- --device auto
//!
//! Writes `graph.dot`, `graph.svg`, `graph.json` and an event file into the folder `graph`: `tensorboard
//! --logdir graph` shows the event file under Graphs, and any browser shows the picture. `profile.html` is a
//! page with the kernels that ran, and `trace.json` is the same for ui.perfetto.dev.

mod common;

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Parser;
use common::{Outcome, holds};
use taper::{inspect::Graph, prelude::*};

/// Computes the mean of (x + 2)² + 3, its gradient, and pictures of the graph.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Numbers in x, which are 1, 2, 3 …
    #[arg(long, default_value_t = 3)]
    size: usize,
    /// The folder for the files
    #[arg(long, default_value = "graph")]
    out: PathBuf,
}

fn run(options: &Options) -> Outcome {
    let mut out = io::stdout();
    let device = taper::device(&options.device)?;
    if options.size == 0 {
        return Err("--size 0: the mean of nothing is not a number; give a size from 1".into());
    }
    let n = options.size as f64;
    let x = Tensor::arange(1.0, n + 1.0, 1.0, &device)?.requires_grad();
    let a = &x + 2.0;
    let b = a.powi(2);
    let c = &b + 3.0;
    let y = c.mean();

    // The kernels that will run: only one, which reads x and writes one number.
    let explanation = taper::explain(&y)?;
    writeln!(out, "{explanation}")?;
    writeln!(out, "x = {x}")?;
    writeln!(out, "a = {a}\nb = {b}\nc = {c}\ny = {y}")?;
    let names = ["a", "b", "c", "y"].map(String::from).into_iter().zip([&a, &b, &c, &y].map(Clone::clone));
    let names: Vec<(String, Tensor)> = names.chain([("x".to_string(), x.clone())]).collect();
    for (tensor, made_by) in [(&a, "Add"), (&b, "Pow"), (&c, "Add"), (&y, "Mean")] {
        let printed = tensor.to_string();
        holds(printed.contains(&format!("grad_fn={made_by}")), &format!("{printed} records {made_by}"))?;
    }
    let mean = (1..=options.size).map(|k| (k as f64 + 2.0).powi(2) + 3.0).sum::<f64>() / n;
    holds((y.item_f64()? - mean).abs() < 1e-5 * mean, &format!("y is {mean:.4}"))?;

    // Drawn before the backward pass, which releases the graph.
    let graph = Graph::of(&[&y], &names);
    fs::create_dir_all(&options.out).map_err(|error| format!("{}: {error}", options.out.display()))?;
    for (name, text) in [("graph.dot", graph.dot()), ("graph.svg", graph.svg()), ("graph.json", graph.json())]
    {
        let path = options.out.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        writeln!(out, "written: {}", path.display())?;
    }
    let events = graph.write_event_file(&options.out)?;
    writeln!(out, "written: {}", events.display())?;
    holds(
        graph.nodes.iter().filter(|node| node.name.is_some()).count() == 5,
        "x, a, b, c and y are in the graph",
    )?;

    y.backward()?;
    let gradient = x.grad().ok_or("x has no gradient")?;
    writeln!(out, "x.grad = {gradient}")?;
    let exact = (1..=options.size).map(|k| 2.0 * (k as f64 + 2.0) / n);
    let right =
        gradient.to_f64_vec()?.into_iter().zip(exact).all(|(got, want)| (got - want).abs() < 1e-5 * want);
    holds(right, "x.grad is 2 (x + 2) / n")?;

    // The same computation with a profile: which kernels run for which line, and how long.
    x.zero_grad();
    let profile = taper::profile(|| {
        let y = ((&x + 2.0).powi(2) + 3.0).mean();
        let graph = Graph::of(&[&y], &[("x", x.clone())]);
        y.eval()?;
        y.backward()?;
        x.grad().map_or(Ok(()), |gradient| gradient.eval())?;
        Ok(graph)
    })?;
    writeln!(out, "{profile}")?;
    for (name, text) in
        [("profile.html", profile.html(Some(&profile.value))), ("trace.json", profile.trace())]
    {
        let path = options.out.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        writeln!(out, "written: {}", path.display())?;
    }
    holds(!profile.runs.is_empty(), "kernels ran for it")?;
    writeln!(out, "all claims hold on {device}")?;
    Ok(())
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
