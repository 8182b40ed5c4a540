//! Profiles, and the search for the first NaN. Both observe the whole process, so the tests run one after
//! the other.
#![allow(clippy::unwrap_used, clippy::panic)]

use autograd::{TensorGrad, grad_of};
use inspect::{Graph, detect_anomaly, explain, profile};
use tensor_core::{ErrorKind, Generator, Result, Tensor};

#[test]
fn watched() -> Result<()> {
    a_profile_has_every_kernel_with_its_line()?;
    what_is_explained_is_what_runs()?;
    the_first_anomaly_is_named_with_its_line()
}

/// The explained plan is the plan that runs: the same kernels in the same order, with the same costs.
fn what_is_explained_is_what_runs() -> Result<()> {
    let device = backend_cpu::cpu();
    let rng = Generator::seed(1, &device);
    let (a, b) = (Tensor::randn([24, 40], &rng)?, Tensor::randn([40, 12], &rng)?);
    let index = Tensor::new([3, 0, 7, 3], &device)?;
    let weight = Tensor::randn([40], &rng)?.requires_grad();
    tensor_core::eval_all(&[&a, &b, &index, &weight])?;
    type Make<'a> = Box<dyn Fn() -> Result<Tensor> + 'a>;
    let cases: Vec<(&str, Make<'_>)> = vec![
        ("a chain", Box::new(|| Ok((&a + 1.0).exp().sqrt()))),
        ("softmax", Box::new(|| a.softmax(-1))),
        ("a product, its bias and its activation", Box::new(|| Ok(a.matmul(&b)?.add(&b.i(0)?)?.relu()))),
        ("two products", Box::new(|| a.matmul(&b)?.matmul(&b.t()?)?.sum_axis(0, false))),
        ("a sort", Box::new(|| Ok(a.sort(-1, false)?.0))),
        ("its indices", Box::new(|| Ok(a.topk(3, -1, true)?.1))),
        ("a running sum", Box::new(|| a.cumsum(0))),
        ("rows by index", Box::new(|| Ok(a.index_select(0, &index)? * 2.0))),
        ("concatenation", Box::new(|| Tensor::concat(&[&a, &(&a * 3.0)], 0))),
        ("padding", Box::new(|| a.pad(&[(1, 2), (0, 3)], 0.5))),
        ("the greatest", Box::new(|| a.argmax_axis(1, false))),
        ("random numbers", Box::new(|| Ok(Tensor::rand([1000], &rng)? + 1.0))),
        ("a variance", Box::new(|| a.var_axis(1, 1.0, false))),
        ("a tracked chain", Box::new(|| Ok(a.mul(&weight)?.tanh().sum()))),
        ("a gradient", Box::new(|| grad_of(&a.mul(&weight)?.exp().sum(), &weight, false))),
        ("nothing", Box::new(|| a.t())),
    ];
    for (name, make) in cases {
        let profiled = profile(|| {
            let tensor = make()?;
            let explanation = explain(&tensor)?;
            tensor.eval()?;
            Ok(explanation)
        })?;
        let ran: Vec<_> =
            profiled.runs.iter().map(|r| (r.kernel, r.bytes_read, r.bytes_written, r.flops)).collect();
        let planned = profiled.value.plan.kernels.iter().map(|planned| &planned.kernel);
        let planned: Vec<_> =
            planned.map(|k| (k.name(), k.bytes_read(), k.bytes_written(), k.flops())).collect();
        assert_eq!(planned, ran, "{name}: {}", profiled.value);
    }
    Ok(())
}

fn a_profile_has_every_kernel_with_its_line() -> Result<()> {
    let x = Tensor::ones([64, 32], &backend_cpu::cpu())?;
    let waiting = &x * 5.0;
    let profiled = profile(|| {
        let mut sum = 0.0;
        for _ in 0..3 {
            sum += x.matmul(&x.t()?)?.sum_axis(0, false)?.exp().mean().item::<f32>()?;
        }
        Ok(sum)
    })?;
    let line = line!() - 4;
    assert!(profiled.value > 0.0 && waiting.is_evaluated());
    let products: Vec<_> = profiled.runs.iter().filter(|run| run.kernel == "matmul").collect();
    assert_eq!(products.len(), 3);
    for run in &products {
        assert_eq!((run.location.line(), run.device.as_str()), (line, "cpu"));
        assert_eq!(run.flops, Some(2 * 64 * 64 * 32));
        assert!(run.time.as_nanos() > 0);
    }
    assert!(profiled.runs.windows(2).all(|pair| pair[0].start + pair[0].time <= pair[1].start));
    let table = profiled.to_string();
    assert!(table.contains("matmul") && table.contains(&format!("watching.rs:{line}")), "{table}");
    let trace: serde_json::Value = serde_json::from_str(&profiled.trace()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert_eq!(events.len(), profiled.runs.len() + 1);
    assert!(events[1]["dur"].as_f64().unwrap() > 0.0, "{trace}");

    // The page refers to nothing outside, and each of its links has a target.
    let y = &x * 2.0;
    let graph = Graph::of(&[&y], &[("x", x.clone())]);
    let profiled = profile(|| y.sum().item::<f32>())?;
    let page = profiled.html(Some(&graph));
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"), "{page}");
    assert!(!page.contains("<script") && !page.contains("src="), "{page}");
    let links: Vec<&str> = page.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(
        links.len() >= profiled.runs.len()
            && links.iter().all(|link| page.contains(&format!("id=\"{link}\"")))
    );
    assert!(page.contains("watching.rs") && page.contains(">Mul<"), "{page}");

    let error = profile(|| profile(|| Ok(())).map(drop)).map(drop).unwrap_err();
    assert!(error.to_string().contains("another profile"), "{error}");
    // A failure ends the profile, too.
    assert!(profile(|| Err::<(), _>(error.clone())).is_err());
    profile(|| Ok(())).map(drop)
}

fn the_first_anomaly_is_named_with_its_line() -> Result<()> {
    let device = backend_cpu::cpu();
    let x = Tensor::new([0.0, 1.0, 4.0], &device)?.requires_grad();
    assert_eq!(detect_anomaly(|| x.sqrt().sum().item::<f32>())?, 3.0);

    // Fused, the three operations would be one kernel.
    let error = detect_anomaly(|| ((&x - 2.0).sqrt() * 3.0).sum().item::<f32>()).unwrap_err();
    let line = line!() - 1;
    let text = error.to_string();
    assert!(matches!(error.kind(), ErrorKind::Invalid { op: "detect_anomaly", .. }), "{text}");
    assert!(text.contains("Sqrt made 2 NaN among 3 elements"), "{text}");
    assert_eq!(error.location().unwrap().line(), line, "{text}");

    // In the backward pass the gradient of the root at 0 is infinite, and is attributed to the root's line.
    let y = x.sqrt();
    let line = line!() - 1;
    let error = detect_anomaly(|| y.sum().backward()).unwrap_err();
    assert!(error.to_string().contains("1 infinities among 3 elements"), "{error}");
    assert_eq!(error.location().unwrap().line(), line, "{error}");

    // A NaN in the data was made by no operation.
    let data = Tensor::new([f64::NAN, 1.0], &device)?;
    assert!(detect_anomaly(|| (&data + 1.0).sum().item::<f32>())?.is_nan());
    let error = detect_anomaly(|| detect_anomaly(|| Ok(()))).unwrap_err();
    assert!(error.to_string().contains("already"), "{error}");
    Ok(())
}
