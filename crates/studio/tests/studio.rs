//! The page over HTTP and as a file. The studio records for the whole process, so one test takes every case
//! in turn.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
};

use autograd::TensorGrad;
use inspect::{Graph, explain, memory_peaks, memory_snapshot, profile, record_memory};
use nn::{Dropout, Linear, Module};
use serde_json::Value;
use tensor_core::{DType, Error, Generator, Result, Tensor, autocast_dtype};

/// The status line and body of an answer.
fn ask(method: &str, url: &str) -> (String, String) {
    let rest = url.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "{method} /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_string(), body.to_string())
}

/// The events of one kind that the server sends after the event with this number.
fn events(url: &str, after: u64, kind: &str) -> Vec<Value> {
    let (status, body) = ask("GET", &format!("{url}events?after={after}"));
    assert_eq!(status, "HTTP/1.1 200 OK");
    let data: Value = serde_json::from_str(&body).unwrap();
    data["events"].as_array().unwrap().iter().filter(|event| event["kind"] == kind).cloned().collect()
}

#[derive(Debug, Module)]
struct Net {
    first: Linear,
    second: Linear,
}

impl Net {
    fn loss(&self, x: &Tensor) -> Result<Tensor> {
        Ok(self.second.forward(&self.first.forward(x)?.relu())?.powi(2).mean())
    }
}

#[test]
fn a_run_from_its_first_step_to_its_file() -> Result<()> {
    nothing_is_kept_before_it_is_asked_for();
    record_memory(true);
    let url = studio::serve()?;
    assert_eq!(studio::serve()?, url);
    only_the_token_opens_the_page(&url);

    let device = backend_cpu::cpu();
    let rng = Generator::seed(1, &device);
    let net = Net { first: Linear::new(4, 8, &rng)?, second: Linear::new(8, 1, &rng)? };
    let x = Tensor::randn([16, 4], &rng)?;
    curves_arrive_in_order(&url);
    reports_have_the_numbers_of_inspect(&url, &net, &x)?;
    a_step_is_profiled_when_the_page_asks(&url, &net, &x)?;
    other_settings_are_measured_when_the_page_asks(&url, &net, &x)?;
    what_is_tried_leaves_no_trace(&url)?;
    troubles_are_named_once(&url, &net)?;
    an_anomaly_has_its_inputs(&url)?;
    the_studios_own_time_is_no_loading(&url)?;
    parameters_without_gradients_are_not_trained(&url, &rng)?;
    the_file_has_the_same_events(&url)
}

/// A body that is cut off by a detach is named once, with the paths of its parameters.
fn parameters_without_gradients_are_not_trained(url: &str, rng: &Generator) -> Result<()> {
    let net = Net { first: Linear::new(4, 8, rng)?, second: Linear::new(8, 1, rng)? };
    let x = Tensor::randn([2, 4], rng)?;
    studio::show_model("cut", &net);
    for step in 0..12 {
        studio::step(100 + step, || {
            net.zero_grad();
            net.second.forward(&net.first.forward(&x)?.detach())?.mean().backward()
        })?;
    }
    let idle = events(url, 0, "idle");
    assert_eq!(idle.len(), 1, "{idle:?}");
    assert_eq!(idle[0]["model"], "cut");
    assert_eq!(idle[0]["paths"], serde_json::json!(["first.weight", "first.bias"]));
    let troubles = events(url, 0, "trouble");
    let told = troubles.iter().filter(|trouble| trouble["title"] == "2 parameters of cut have no gradient");
    assert_eq!(told.count(), 1, "{troubles:?}");
    Ok(())
}

fn nothing_is_kept_before_it_is_asked_for() {
    studio::scalar("early", "loss", 1.0, 0);
    assert!(!studio::is_recording());
    assert!(studio::save("never.html").unwrap_err().to_string().contains("nothing is recorded"));
}

fn only_the_token_opens_the_page(url: &str) {
    let (root, token) = url.trim_end_matches('/').rsplit_once('/').unwrap();
    assert_eq!(token.len(), 32);
    let wrong = format!("{root}/{}/", "0".repeat(32));
    for refused in [
        format!("{root}/"),
        wrong.clone(),
        format!("{wrong}events?after=0"),
        format!("{root}/events?after=0"),
    ] {
        assert_eq!(ask("GET", &refused).0, "HTTP/1.1 403 Forbidden", "{refused}");
    }
    assert_eq!(ask("POST", &format!("{wrong}ask/profile")).0, "HTTP/1.1 403 Forbidden");
    assert_eq!(ask("GET", &format!("{url}ask/profile")).0, "HTTP/1.1 404 Not Found");
    assert_eq!(ask("POST", &format!("{url}ask/anything")).0, "HTTP/1.1 404 Not Found");
    let (status, page) = ask("GET", url);
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(page.contains("<title>Taper studio</title>") && page.len() < 300_000);
    is_self_contained(&page);
}

/// No part of the page is loaded from elsewhere.
fn is_self_contained(page: &str) {
    for word in [
        "src=\"http",
        "href=\"http",
        "<link",
        "@import",
        "url(",
        "/*SCRIPT*/",
        "/*STYLE*/",
        "/*EVENTS*/",
        "/*SECTIONS*/",
    ] {
        assert!(!page.contains(word), "{word}");
    }
    // The modules of the script are one.
    assert!(!page.lines().any(|line| line.starts_with("import ") || line.starts_with("export ")));
}

fn curves_arrive_in_order(url: &str) {
    for step in 0..3 {
        studio::scalar("first", "loss/train", 1.0 / (step + 1) as f64, step);
    }
    studio::scalar("second", "loss/train", 0.5, 0);
    studio::histogram("first", "weight", &[0.0, 1.0, 2.0], &[0.0, 3.0, 1.0], 2);
    let values: Vec<f64> =
        events(url, 0, "scalar").iter().map(|event| event["value"].as_f64().unwrap()).collect();
    assert_eq!(values, [1.0, 0.5, 1.0 / 3.0, 0.5]);
    let runs: Vec<Value> = events(url, 0, "run").iter().map(|event| event["name"].clone()).collect();
    assert_eq!(runs, ["first", "second"]);
    // Events 1 to 5 are a run, three points and a run.
    assert_eq!(events(url, 5, "scalar").len(), 1);
    assert_eq!(events(url, 0, "histogram")[0]["counts"], serde_json::json!([0.0, 3.0, 1.0]));
}

fn reports_have_the_numbers_of_inspect(url: &str, net: &Net, x: &Tensor) -> Result<()> {
    studio::show_model("net", net);
    let model = &events(url, 0, "model")[0];
    assert_eq!(model["parameters"], net.num_parameters());
    assert_eq!(model["entries"][0]["path"], "first.weight");

    let loss = net.loss(x)?;
    studio::show_graph("loss", &Graph::of(&[&loss], &net.named_parameters()));
    let graph = &events(url, 0, "graph")[0];
    let nodes = graph["nodes"].as_array().unwrap();
    let layer = |title: &str| nodes.iter().find(|node| node["title"] == title).unwrap()["layer"].clone();
    assert_eq!((layer("first.weight"), layer("Relu")), ("first".into(), "".into()));
    // The studio notes calls of layers, so that each is one box.
    let calls: Vec<(Value, Value)> = graph["calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| (call["layer"].clone(), call["type"].clone()))
        .collect();
    assert_eq!(calls, [("first".into(), "Linear".into()), ("second".into(), "Linear".into())]);
    let explained = explain(&loss)?;
    studio::show_explanation("loss", &explained);
    let shown = &events(url, 0, "explanation")[0];
    assert_eq!(shown["text"], explained.to_string());
    assert_eq!(
        (&shown["flops"], &shown["read"]),
        (&explained.flops().into(), &explained.bytes_read().into())
    );
    assert_eq!(shown["kernels"].as_array().unwrap().len(), explained.plan.kernels.len());
    for (kernel, shown) in explained.plan.kernels.iter().zip(shown["kernels"].as_array().unwrap()) {
        assert_eq!(shown["separate"].as_str().map(str::to_string), kernel.separation.map(|s| s.to_string()));
        for (operation, shown) in kernel.operations.iter().zip(shown["operations"].as_array().unwrap()) {
            let because = operation.stored_because.map(|reason| reason.to_string());
            assert_eq!(shown["because"].as_str().map(str::to_string), because);
        }
    }
    assert_eq!(shown["kernels"][1]["separate"], "it is not elementwise and begins a kernel of its own");

    let profiled = profile(|| loss.backward())?;
    studio::show_profile(&profiled, 7);
    let shown = &events(url, 0, "profile")[0];
    assert_eq!(shown["runs"].as_array().unwrap().len(), profiled.runs.len());
    let lines = profiled.lines();
    assert!(!lines.is_empty());
    for (line, shown) in lines.iter().zip(shown["lines"].as_array().unwrap()) {
        assert_eq!((&shown["runs"], &shown["bytes"]), (&line.count.into(), &line.bytes.into()));
        assert_eq!(
            (&shown["time"], &shown["flops"]),
            (&(line.time.as_nanos() as u64).into(), &line.flops.into())
        );
    }
    let programs = shown["programs"].as_array().unwrap();
    for (run, shown) in profiled.runs.iter().zip(shown["runs"].as_array().unwrap()) {
        assert_eq!(shown["waited"], true);
        let program = shown["program"].as_u64().map(|number| programs[number as usize]["program"].clone());
        assert_eq!(program, run.program.clone().map(Value::from), "{shown}");
    }
    // Equal programs are sent once.
    assert!(!programs.is_empty() && (1..programs.len()).all(|k| !programs[..k].contains(&programs[k])));
    assert_eq!(shown["built"].as_array().unwrap().len(), profiled.built.len());
    assert_eq!(shown["plans"].as_array().unwrap().len(), profiled.plans.len());
    assert!(shown["built"].as_array().unwrap().iter().any(|node| node["gradient"] == true));
    // The forward pass was built before this profile, and the gradients are those of the layers' operations.
    let snapshot = memory_snapshot()?;
    studio::show_memory(&snapshot, 7);
    let shown = &events(url, 0, "memory")[0];
    assert!(!snapshot.lines.is_empty());
    for (line, shown) in snapshot.lines.iter().zip(shown["lines"].as_array().unwrap()) {
        assert_eq!((&shown["bytes"], &shown["buffers"]), (&line.bytes.into(), &line.buffers.into()));
    }
    assert_eq!(shown["devices"][0]["peak"], snapshot.devices[0].stats.peak);
    let peaks = memory_peaks()?;
    assert_eq!(shown["peaks"][0]["allocated"], peaks[0].allocated);
    assert_eq!(shown["peaks"][0]["lines"].as_array().unwrap().len(), peaks[0].lines.len());
    Ok(())
}

fn a_step_is_profiled_when_the_page_asks(url: &str, net: &Net, x: &Tensor) -> Result<()> {
    let steps =
        || events(url, 0, "profile").iter().map(|event| event["step"].as_u64().unwrap()).collect::<Vec<_>>();
    let run = |number| studio::step(number, || net.loss(x)?.backward());
    (10..15).try_for_each(run)?;
    // The third call is profiled without being asked.
    assert_eq!(steps(), [7, 12]);
    assert_eq!(ask("POST", &format!("{url}ask/profile")).0, "HTTP/1.1 200 OK");
    (15..17).try_for_each(run)?;
    assert_eq!(steps(), [7, 12, 15]);
    // A whole step has its layers, forward and backward.
    let layers = events(url, 12, "profile").pop().unwrap()["layers"].clone();
    for layer in ["first", "second"] {
        let row = layers.as_array().unwrap().iter().find(|row| row["layer"] == layer).unwrap();
        for part in ["forward", "backward"] {
            assert!(row[part]["runs"].as_u64().unwrap() > 0, "{layer} {part}: {row}");
        }
    }
    let listed = events(url, 0, "memory").len();
    assert_eq!(ask("POST", &format!("{url}ask/memory")).0, "HTTP/1.1 200 OK");
    run(17)?;
    assert_eq!(events(url, 0, "memory").len(), listed + 1);
    assert_eq!(events(url, 0, "limits").len(), 0);
    assert_eq!(ask("POST", &format!("{url}ask/limits")).0, "HTTP/1.1 200 OK");
    run(17)?;
    let limits = events(url, 0, "limits");
    assert_eq!((limits.len(), &limits[0]["device"]), (1, &"cpu".into()));
    assert!(["bytes", "flops"].iter().all(|rate| limits[0][rate].as_f64().unwrap() > 1e6), "{limits:?}");
    // The points of the pace come every tenth of a second.
    std::thread::sleep(std::time::Duration::from_millis(120));
    run(17)?;
    let tags: Vec<Value> = events(url, 0, "scalar").iter().map(|event| event["tag"].clone()).collect();
    assert!(
        tags.contains(&"pace/steps per second".into()) && tags.contains(&"memory/peak on cpu".into()),
        "{tags:?}"
    );
    Ok(())
}

fn troubles_are_named_once(url: &str, net: &Net) -> Result<()> {
    let titles = || {
        let titles = events(url, 0, "trouble");
        titles.iter().map(|event| event["title"].as_str().unwrap().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(titles(), [""; 0]);
    studio::scalar("first", "loss/train", f64::NAN, 20);
    studio::scalar("first", "loss/train", f64::INFINITY, 21);
    assert_eq!(titles(), ["loss/train is NaN"]);
    let failed = studio::step(22, || Err::<(), _>(Error::invalid("test", "no such batch")));
    assert!(failed.is_err());
    assert_eq!(titles()[1..], ["A step failed"]);

    let device = backend_cpu::cpu();
    studio::activations("relu", &Tensor::new([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]], &device)?, 23)?;
    assert_eq!(titles()[2..], ["2 of 3 units of relu are dead"]);
    assert!(studio::activations("relu", &Tensor::new([0.0], &device)?, 23).is_err());

    let gradient = |size: f32| -> Result<()> {
        net.parameters().iter().for_each(|parameter| parameter.zero_grad());
        net.loss(&Tensor::full([16, 4], size, &device)?)?.backward()
    };
    for step in 30..36 {
        gradient(1.0)?;
        studio::weights(net, step)?;
    }
    assert_eq!(titles().len(), 3);
    gradient(1000.0)?;
    studio::weights(net, 36)?;
    assert!(titles()[3..].contains(&"The gradient of first.weight explodes".into()), "{:?}", titles());
    Ok(())
}

/// The chosen setting is measured beside the usual one, and the model is as before.
fn other_settings_are_measured_when_the_page_asks(url: &str, net: &Net, x: &Tensor) -> Result<()> {
    let mut seen = Vec::new();
    let device = backend_cpu::cpu();
    let mut call = || {
        studio::what_if(net, 16, std::slice::from_ref(&device), |setting| {
            seen.push((setting.batch, setting.fuses, autocast_dtype()));
            assert_eq!(setting.batch_of(x)?.dims(), [setting.batch, 4]);
            net.loss(&setting.batch_of(x)?)
        })
    };
    call()?;
    let names = events(url, 0, "what_if")[0]["settings"].clone();
    let expected =
        ["as it is", "in bf16 (autocast)", "with a batch of 8", "with a batch of 32", "without fusion"];
    assert_eq!(names, serde_json::json!(expected));
    assert_eq!(ask("POST", &format!("{url}what-if/5")).0, "HTTP/1.1 404 Not Found");
    let state = |net: &Net| -> Result<Vec<Vec<f64>>> {
        let tensors = net.parameters().into_iter().flat_map(|p| [p.detach(), p.grad().unwrap()]);
        tensors.map(|tensor| tensor.to_f64_vec()).collect()
    };
    let before = state(net)?;
    for setting in ["2", "1", "4"] {
        assert_eq!(ask("POST", &format!("{url}what-if/{setting}")).0, "HTTP/1.1 200 OK");
        call()?;
    }
    // Asked once, measured once.
    call()?;
    assert_eq!(state(net)?, before);
    let steps: Vec<_> = seen.iter().filter(|step| **step != (16, true, None)).copied().collect();
    assert_eq!(steps[..7], [(8, true, None); 7]);
    assert_eq!(steps[7..14], [(16, true, Some(DType::BF16)); 7]);
    assert_eq!(steps[14..], [(16, false, None); 7]);
    assert_eq!(seen.len(), 6 * 7);
    let measured = events(url, 0, "measured");
    let names: Vec<&str> = measured.iter().map(|event| event["setting"].as_str().unwrap()).collect();
    assert_eq!(names, [expected[0], expected[2], expected[0], expected[1], expected[0], expected[4]]);
    assert!(measured.iter().all(|event| event["time"].as_u64().unwrap() > 0), "{measured:?}");
    let losses: Vec<f64> = measured.iter().map(|event| event["loss"].as_f64().unwrap()).collect();
    assert!(
        (losses[5] - losses[0]).abs() < 1e-5 && (losses[3] - losses[0]).abs() < 0.05 * losses[0],
        "{losses:?}"
    );
    // An error of a setting is shown, and is not one of the training.
    assert_eq!(ask("POST", &format!("{url}what-if/0")).0, "HTTP/1.1 200 OK");
    studio::what_if(net, 16, &[], |_| Err(Error::invalid("test", "no such setting")))?;
    let last = events(url, 0, "measured").pop().unwrap();
    assert!(last["error"].as_str().unwrap().contains("no such setting"), "{last}");
    Ok(())
}

#[derive(Debug, Module)]
struct NoisyNet {
    dropout: Dropout,
    linear: Linear,
}

/// A run with a what-if in its middle draws the same numbers, and has the same losses to the bit, as one
/// without.
fn what_is_tried_leaves_no_trace(url: &str) -> Result<()> {
    /// The bits of the losses, and the numbers drawn by the steps and by the tries.
    type Drawn = (Vec<u32>, Vec<Vec<f32>>, Vec<Vec<f32>>);
    let run = |tries: bool| -> Result<Drawn> {
        let device = backend_cpu::cpu();
        let rng = Generator::seed(3, &device);
        let net = NoisyNet { dropout: Dropout::new(0.5, &rng)?, linear: Linear::new(4, 1, &rng)? };
        let noise = Generator::seed(4, &device);
        let loss = |drawn: &mut Vec<Vec<f32>>| -> Result<Tensor> {
            let x = Tensor::randn([16, 4], &noise)?;
            drawn.push(x.to_vec()?);
            Ok((net.linear.forward(&net.dropout.forward(&x)?)? - 1.0).powi(2).mean())
        };
        let (mut losses, mut drawn, mut tried) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..8 {
            if tries && number == 5 {
                assert_eq!(ask("POST", &format!("{url}what-if/1")).0, "HTTP/1.1 200 OK");
            }
            studio::what_if(&net, 16, &[], |_| loss(&mut tried))?;
            net.parameters().iter().for_each(TensorGrad::zero_grad);
            let loss = loss(&mut drawn)?;
            loss.backward()?;
            for parameter in net.parameters() {
                let change = &parameter.grad().unwrap() * 0.1;
                parameter.assign(&parameter.detach().sub(&change)?)?;
            }
            losses.push(loss.item::<f32>()?.to_bits());
        }
        Ok((losses, drawn, tried))
    };
    let (plain, interrupted) = (run(false)?, run(true)?);
    assert_eq!((&plain.0, &plain.1), (&interrupted.0, &interrupted.1));
    assert_eq!(plain.2.len(), 0);
    // Each try draws what the next step will draw: two warm-up steps and five measured ones of two settings.
    assert_eq!(interrupted.2, vec![plain.1[5].clone(); 14]);
    Ok(())
}

fn an_anomaly_has_its_inputs(url: &str) -> Result<()> {
    let x = Tensor::new([4.0, -1.0], &backend_cpu::cpu())?;
    assert_eq!(ask("POST", &format!("{url}ask/anomaly")).0, "HTTP/1.1 200 OK");
    let done = studio::step(38, || (&x * 0.5).log().sum().item::<f32>());
    // The training goes on.
    assert!(done?.is_nan());
    let trouble = events(url, 0, "trouble").pop().unwrap();
    assert_eq!(trouble["title"], "Log makes the first value that is not finite");
    let anomaly = &trouble["anomaly"];
    assert_eq!((&anomaly["inputs"][0]["min"], &anomaly["inputs"][0]["max"]), (&(-0.5).into(), &2.0.into()));
    assert_eq!(anomaly["output"]["nans"], 1);
    assert_eq!(anomaly["before"][0]["op"], "Mul");
    assert!(anomaly["line"].as_str().unwrap().contains("tests/studio.rs"), "{anomaly}");
    Ok(())
}

fn the_studios_own_time_is_no_loading(url: &str) -> Result<()> {
    let rest = |time| std::thread::sleep(std::time::Duration::from_micros(time));
    let starves =
        || events(url, 0, "trouble").iter().any(|event| event["title"] == "The loader may starve the device");
    let steps = |aside: bool| -> Result<()> {
        for number in 0..102 {
            studio::step(number, || {
                rest(200);
                Ok(())
            })?;
            let _aside = aside.then(studio::Aside::begin);
            rest(2000);
        }
        Ok(())
    };
    steps(true)?;
    assert!(!starves());
    steps(false)?;
    assert!(starves());
    Ok(())
}

fn the_file_has_the_same_events(url: &str) -> Result<()> {
    studio::text("first", "note", "</script><script>alert(1)</script>", 40);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.html");
    studio::save(&path)?;
    let page = fs::read_to_string(path).unwrap();
    is_self_contained(page.split("id=\"events\">").next().unwrap());
    assert_eq!(page.matches("</script>").count(), 2);
    let data = page.split("id=\"events\">").nth(1).unwrap().split("</script>").next().unwrap();
    let (saved, live): (Value, Value) = (
        serde_json::from_str(data).unwrap(),
        serde_json::from_str(&ask("GET", &format!("{url}events?after=0")).1).unwrap(),
    );
    assert_eq!(saved, live);
    Ok(())
}
