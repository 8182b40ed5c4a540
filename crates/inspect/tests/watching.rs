//! Profiles, and the search for the first NaN. Both observe the whole process, so the tests run one after
//! the other.
#![allow(clippy::unwrap_used, clippy::panic)]

use autograd::{TensorGrad, grad_of};
use inspect::{
    Graph, detect_anomaly, device_limits, explain, find_anomaly, memory_peaks, profile, record_memory,
    without_fusion,
};
use tensor_core::{ErrorKind, Generator, Result, Tensor};

#[test]
fn watched() -> Result<()> {
    a_profile_has_every_kernel_with_its_line()?;
    what_is_explained_is_what_runs()?;
    the_host_is_profiled_too()?;
    kernels_have_their_programs()?;
    a_device_without_waiting_is_profiled_too()?;
    nothing_is_fused_on_request()?;
    the_first_anomaly_is_named_with_its_line()?;
    an_anomaly_has_its_inputs_and_the_steps_before()?;
    the_peak_has_what_was_alive()
}

/// A kernel has its program with its scalars, and the sources that a device compiles.
fn kernels_have_their_programs() -> Result<()> {
    let x = Tensor::ones([64], &backend_cpu::cpu())?;
    x.eval()?;
    let add_and_exp = || {
        let y = (&x + 2.5).exp(); // the sum is held no longer
        y.eval()
    };
    let run = profile(add_and_exp)?.runs.remove(0);
    assert_eq!(
        run.program.as_deref(),
        Some("r0: f32 = input 0\nr1: f32 = 2.5\nr2: f32 = add r0 r1\nr3: f32 = exp r2\noutput r3")
    );
    assert!(run.waited && run.sources.is_empty(), "{run:?}");
    Ok(())
}

/// A device that cannot be waited for, as a GPU in a browser, is profiled without times, and has no limits.
fn a_device_without_waiting_is_profiled_too() -> Result<()> {
    let device = taper_testing::without_waiting(taper_testing::reference_backend().1);
    let x = Tensor::ones([64], &device)?;
    x.eval()?;
    let profiled = profile(|| (&x + 2.5).exp().eval())?;
    assert!(!profiled.runs[0].waited && profiled.runs[0].time >= profiled.runs[0].submission);
    assert!(profiled.runs[0].program.is_some());
    let error = device_limits(&device).unwrap_err().to_string();
    assert!(error.contains("cannot be waited for"), "{error}");
    let limits = device_limits(&backend_cpu::cpu())?;
    assert!(limits.bytes_per_second > 1e6 && limits.flops_per_second > 1e6, "{limits:?}");
    Ok(())
}

/// A profile has the operations with their inputs, gradients with their forward operations, and plans.
fn the_host_is_profiled_too() -> Result<()> {
    let x = Tensor::ones([16, 16], &backend_cpu::cpu())?.requires_grad();
    let profiled = profile(|| x.exp().matmul(&x)?.sum().backward())?;
    let at = |op: &str| {
        profiled.built.iter().position(|node| node.op == op && node.gradient_of.is_none()).unwrap()
    };
    let (exp, product, sum) = (at("exp"), at("matmul"), at("sum"));
    assert!(exp < product && product < sum, "{:?}", profiled.built);
    assert_eq!(profiled.built[exp].inputs, [x.id()]);
    assert_eq!(profiled.built[product].inputs[0], profiled.built[exp].id);
    let gradients: Vec<u64> = profiled.built.iter().filter_map(|node| node.gradient_of).collect();
    assert!(gradients.contains(&profiled.built[product].id) && gradients.contains(&profiled.built[exp].id));
    assert!(profiled.built.windows(2).all(|pair| pair[0].time <= pair[1].time));
    // Each kernel ran for an operation that is known, after it was built.
    for run in &profiled.runs {
        let built = profiled.built.iter().find(|node| node.id == run.tensor).unwrap();
        assert!(built.time <= run.start && run.submission <= run.time, "{run:?}");
    }
    let plan = profiled.plans.first().unwrap();
    assert!(plan.is_new && plan.nodes >= 3 && plan.start <= profiled.runs[0].start, "{plan:?}");
    // A second step of the same form finds its plan.
    x.zero_grad();
    let again = profile(|| x.exp().matmul(&x)?.sum().backward())?;
    assert!(again.plans.iter().all(|plan| !plan.is_new), "{:?}", again.plans);
    Ok(())
}

fn nothing_is_fused_on_request() -> Result<()> {
    let x = Tensor::ones([64], &backend_cpu::cpu())?;
    x.eval()?;
    let make = || ((&x + 1.0).exp() * 2.0).sum().item::<f32>();
    let (fused, apart) = (profile(make)?, profile(|| without_fusion(make))?);
    assert_eq!((fused.runs.len(), apart.runs.len()), (1, 4));
    assert!((fused.value - apart.value).abs() < 1e-3 * fused.value.abs());
    // It ends with the function.
    assert_eq!(profile(make)?.runs.len(), 1);
    Ok(())
}

fn an_anomaly_has_its_inputs_and_the_steps_before() -> Result<()> {
    let x = Tensor::new([0.0, 1.0, 4.0], &backend_cpu::cpu())?;
    let (done, anomaly) = find_anomaly(|| ((&x - 2.0) * 0.5).sqrt().sum().item::<f32>())?;
    assert!(done?.is_nan());
    let anomaly = anomaly.unwrap();
    assert_eq!((anomaly.op.as_str(), anomaly.output.nans, anomaly.output.infinities), ("Sqrt", 2, 0));
    assert_eq!(anomaly.inputs.len(), 1);
    let input = &anomaly.inputs[0];
    assert_eq!((input.shape.dims(), input.min, input.max, input.nans), (&[3][..], Some(-1.0), Some(1.0), 0));
    let steps: Vec<_> = anomaly.before.iter().map(|step| (step.op.as_str(), step.output.min)).collect();
    assert_eq!(steps, [("Sub", Some(-2.0)), ("Mul", Some(-1.0))]);
    let error = detect_anomaly(|| (&x - 2.0).sqrt().sum().item::<f32>()).unwrap_err();
    assert!(error.to_string().contains("of finite inputs: [3] f32 from -2 to 2"), "{error}");
    assert!(find_anomaly(|| x.sum().item::<f32>())?.1.is_none());
    Ok(())
}

/// The peak lists the tensors that were alive then, also those that a running computation held.
fn the_peak_has_what_was_alive() -> Result<()> {
    let error = memory_peaks().unwrap_err();
    assert!(error.to_string().contains("record_memory"), "{error}");
    assert_eq!(error.location().unwrap().line(), line!() - 2);
    record_memory(true);
    let device = backend_cpu::cpu();
    let x = Tensor::ones([256, 256], &device)?.exp();
    x.eval()?;
    let after = {
        // Two results of one computation are alive together; their sum is not yet.
        let line = line!() + 1;
        let y = x.matmul(&x)?.cumsum(0)?.cumsum(1)?;
        y.eval()?;
        line
    };
    let peak = memory_peaks()?.remove(0);
    let held = |number: u32| -> Vec<(&str, u64)> {
        let lines = peak.lines.iter().filter(|line| line.location.line() == number);
        lines.flat_map(|line| &line.kinds).map(|kind| (kind.op, kind.bytes)).collect()
    };
    assert_eq!(held(after), [("matmul", 1 << 18), ("cumsum", 1 << 18)], "{peak}");
    assert_eq!(held(x.location().line()), [("exp", 1 << 18)], "{peak}");
    assert_eq!(peak.device, "cpu");
    let told: u64 = peak.lines.iter().map(|line| line.bytes).sum();
    assert_eq!(peak.allocated, told + peak.elsewhere);
    // Less memory later does not replace it.
    let before = peak.allocated;
    (&x + 1.0).eval()?;
    assert_eq!(memory_peaks()?[0].allocated, before);
    record_memory(false);
    assert!(memory_peaks().is_err());
    Ok(())
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
    let text = error.to_string();
    assert!(text.contains("in the gradient of Sqrt, made 1 infinities among 3 elements"), "{text}");
    assert_eq!(error.location().unwrap().line(), line, "{error}");
    let (done, anomaly) = find_anomaly(|| x.sqrt().sum().backward())?;
    done?;
    assert_eq!(anomaly.unwrap().gradient_of.as_deref(), Some("Sqrt"));

    // A NaN in the data was made by no operation.
    let data = Tensor::new([f64::NAN, 1.0], &device)?;
    assert!(detect_anomaly(|| (&data + 1.0).sum().item::<f32>())?.is_nan());
    let error = detect_anomaly(|| detect_anomaly(|| Ok(()))).unwrap_err();
    assert!(error.to_string().contains("already"), "{error}");
    Ok(())
}
