//! Logs and plots of a run; the range test of learning rates.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::fs;

use autograd::TensorGrad;
use nn::{Linear, Module, Sequential};
use optim::{Adam, AdamConfig, Optimizer};
use tensor_core::{Error, ErrorKind, Generator, StateValue, Stateful, Tensor};
use train::{Curves, LrFinder, RunLog};

#[test]
fn rows_after_the_step_of_a_checkpoint_are_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.csv");
    let mut log = RunLog::csv(&path, &["loss", "lr"]).unwrap();
    for step in 1..=4 {
        log.write(step, &[("lr", 1e-30), ("loss", f64::from(step as u32) / 3.0)]).unwrap();
    }
    let whole = fs::read_to_string(&path).unwrap();
    for (values, part) in [
        (&[("loss", 1.0), ("loss", 2.0)][..], "once"),
        (&[("step", 1.0)], "apart"),
        (&[("accuracy", 1.0)], "none of the columns"),
    ] {
        let message = log.write(5, values).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), whole);
    drop(log);
    // Truncated in the middle of a row, as a killed process leaves it.
    fs::write(&path, &whole[..whole.len() - 5]).unwrap();
    assert!(RunLog::csv(&path, &["loss", "lr"]).unwrap_err().to_string().contains("exists already"));
    assert!(RunLog::resume_csv(&path, &["loss"], 2).unwrap_err().to_string().contains("step,loss,lr"));
    let mut log = RunLog::resume_csv(&path, &["loss", "lr"], 2).unwrap();
    for step in 3..=4 {
        log.write(step, &[("lr", 1e-30), ("loss", f64::from(step as u32) / 3.0)]).unwrap();
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), whole);
    // Every number is read back exactly.
    let loss: f64 = whole.lines().nth(1).unwrap().split(',').nth(1).unwrap().parse().unwrap();
    assert_eq!(loss, 1.0 / 3.0);

    let path = folder.path().join("a.jsonl");
    let mut log = RunLog::resume_json_lines(&path, 7).unwrap();
    log.write(1, &[("loss", 0.5), ("a \"name\"", f64::NAN)]).unwrap();
    log.write(2, &[("loss", 0.25)]).unwrap();
    drop(log);
    let mut log = RunLog::resume_json_lines(&path, 1).unwrap();
    log.write(2, &[]).unwrap();
    let lines = fs::read_to_string(&path).unwrap();
    assert_eq!(lines, "{\"a \\\"name\\\"\":null,\"loss\":0.5,\"step\":1}\n{\"step\":2}\n");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);

    for columns in [&["a", "a"][..], &["step"], &["a,b"], &[""]] {
        assert!(RunLog::csv(folder.path().join("b"), columns).is_err());
    }
    fs::write(folder.path().join("c"), "step,loss\nx,1\n").unwrap();
    let message = RunLog::resume_csv(folder.path().join("c"), &["loss"], 1).unwrap_err().to_string();
    assert!(message.contains("x,1"), "{message}");
    assert_eq!(fs::read_to_string(folder.path().join("c")).unwrap(), "step,loss\nx,1\n");
}

#[test]
fn curves_leave_gaps_where_there_is_nothing_to_draw() {
    let line = [(1.0, 1.0), (2.0, f64::NAN), (3.0, 0.5), (4.0, 0.25)];
    let svg = Curves::new("losses").line("train <1>", line).line("test", [(2.0, 10.0)]).svg().unwrap();
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert!(svg.contains("losses") && svg.contains("train &lt;1&gt;") && svg.contains("test"));
    // A single point and a line of two, and a point of the other line; each has a line in the legend.
    assert_eq!((svg.matches("<circle").count(), svg.matches("stroke-width=\"2\"").count()), (2, 3), "{svg}");
    for curves in [Curves::new("log").log_y(), Curves::new("log").log_x().log_y(), Curves::new("log").log_x()]
    {
        assert!(curves.line("a", [(1e-7, 0.1), (1e-3, 0.0), (1.0, 1e9)]).svg().is_ok());
    }
    for line in [vec![], vec![(1.0, f64::NAN)], vec![(f64::INFINITY, 1.0)]] {
        assert!(Curves::new("nothing").line("a", line).svg().unwrap_err().to_string().contains("no point"));
    }
    assert!(Curves::new("0").line("a", [(1.0, 0.0)]).log_y().svg().is_err());
    for y in [0.0, 1e300, -1e300] {
        assert!(Curves::new("one").line("a", [(5.0, y), (5.0, y)]).svg().unwrap().contains("<svg"));
    }
}

/// The plot as pixels: white, with the colour of the line along it, and the same in the file.
#[test]
fn curves_are_drawn_as_png() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("loss.png");
    let curves = Curves::new("loss").line("training", [(0.0, 1.0), (1.0, 0.5)]).log_y();
    curves.write_png(&path).unwrap();
    let file = fs::read(&path).unwrap();
    assert_eq!(file, curves.png().unwrap());
    let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!((info.width, info.height), (1440, 880));
    let count = |colour: [u8; 3]| pixels.chunks(3).filter(|pixel| **pixel == colour).count();
    // The first colour of plotters' palette, on a line across the picture.
    assert!(count([230, 25, 75]) > 1000, "{}", count([230, 25, 75]));
    assert!(count([255; 3]) > 1_000_000);
    assert!(Curves::new("nothing").png().unwrap_err().to_string().contains("no point"));
    let nowhere = folder.path().join("missing").join("loss.png");
    assert!(matches!(curves.write_png(nowhere).unwrap_err().kind(), ErrorKind::File { .. }));
}

fn everything(model: &impl Module, adam: &Adam) -> Vec<String> {
    let parameters = model.parameters().into_iter().map(|p| format!("{:?}", p.read_bytes().unwrap()));
    let state = adam.state_dict().into_iter().map(|(name, value)| match value {
        StateValue::Number(number) => format!("{name} {number:?}"),
        StateValue::Tensor(tensor) => format!("{name} {:?}", tensor.read_bytes().unwrap()),
    });
    parameters
        .chain(state)
        .chain(model.rng_state().iter().map(|(name, value)| format!("{name} {value}")))
        .collect()
}

#[test]
fn a_range_test_leaves_everything_as_it_was() {
    let device = backend_cpu::cpu();
    let rng = Generator::seed(3, &device);
    let model = Sequential::new()
        .add(Linear::new(4, 8, &rng).unwrap())
        .add(nn::Dropout::new(0.2, &rng).unwrap())
        .add(Linear::new(8, 1, &rng).unwrap());
    let mut adam = Adam::new(model.parameters(), AdamConfig { lr: 0.02, ..Default::default() });
    let x = Tensor::randn((16, 4), &rng).unwrap();
    let mut step = |adam: &mut Adam| {
        adam.zero_grad();
        let loss = (model.forward(&x)? - 1.0).powi(2).mean();
        loss.backward()?;
        adam.step()?;
        loss.item_f64()
    };
    // An optimizer with momenta.
    assert!((0..3).all(|_| step(&mut adam).unwrap().is_finite()));
    let before = everything(&model, &adam);
    let finder = LrFinder { steps: 60, ..Default::default() };
    let found = finder.run(&model, &mut adam, &mut step).unwrap();
    assert_eq!(everything(&model, &adam), before);
    assert!(found.rates.len() > 20 && found.rates.len() == found.losses.len());
    assert!((found.rates[1] / found.rates[0] - 1e8f64.powf(1.0 / 59.0)).abs() < 1e-9);
    // The first smoothed loss is the loss itself, because of the bias correction.
    assert!((found.smoothed[0] - found.losses[0]).abs() < 1e-12);
    let rate = found.steepest().unwrap();
    assert!((1e-5..10.0).contains(&rate) && found.tenth_of_least().unwrap() > 1e-6, "{rate}");
    // The state is also restored if a step fails.
    let mut left = 5;
    let failed = finder.run(&model, &mut adam, |adam| {
        left -= 1;
        if left == 0 { Err(Error::invalid("step", "a bad label")) } else { step(adam) }
    });
    assert!(failed.unwrap_err().to_string().contains("a bad label"));
    assert_eq!(everything(&model, &adam), before);
    // The test ends where the loss is infinite.
    let mut losses = [1.0, 0.5, f64::INFINITY].into_iter();
    let found = finder.run(&model, &mut adam, |_| Ok(losses.next().unwrap())).unwrap();
    assert_eq!(found.losses, [1.0, 0.5]);
    assert!(finder.run(&model, &mut adam, |_| Ok(f64::NAN)).unwrap_err().to_string().contains("first step"));
    for bad in [
        LrFinder { start: 0.0, ..finder },
        LrFinder { end: 1e-9, ..finder },
        LrFinder { steps: 1, ..finder },
        LrFinder { smoothing: 1.0, ..finder },
        LrFinder { diverged: 1.0, ..finder },
    ] {
        assert!(bad.run(&model, &mut adam, |_| Ok(1.0)).is_err());
    }
}
