//! `taper run`, `taper studio` and `taper compile` with a network from an ONNX file.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Stdio},
};

use taper::{onnx::Model, prelude::*, weights};

use crate::common::{at, json, printed, program, refused, repository};

#[test]
fn a_network_runs_on_arrays_and_its_outputs_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let device = taper::cpu();
    let path = repository("crates/onnx/tests/models/ch_ppocr_mobile_v2.0_cls_infer.onnx");
    let network = path.to_str().unwrap();
    let x = Tensor::randn([2, 3, 48, 192], &Generator::seed(1, &device)).unwrap();
    let (array, out) = (at(&folder, "x.npy"), at(&folder, "out.npz"));
    weights::save_npy(&array, &x).unwrap();
    let model = Model::load(&path, &device).unwrap();
    let name = model.output_names().next().unwrap().to_string();
    let expected = model.run([("x", &x)]).unwrap().tensor(&name).unwrap();

    let input = format!("x={array}");
    let text = printed(&["run", network, "--input", &input, "--out", &out, "--repeat", "1"]);
    assert!(text.starts_with(&format!("{name}  f32 [2, 2]  min ")) && text.contains(" ms a run"), "{text}");
    let written = weights::open(&out).unwrap().tensor(&name, &device).unwrap();
    assert!(written.equal(&expected).unwrap());

    let found = json(&["run", network, "--input", &input, "--json"]);
    let greatest = f64::from(expected.max().unwrap().item::<f32>().unwrap());
    let output = &found["outputs"][0];
    assert!((output["max"].as_f64().unwrap() - greatest).abs() < 1e-6 && found["seconds"].is_null());
    assert!((output["mean"].as_f64().unwrap() - 0.5).abs() < 1e-6); // two probabilities in each row
    assert_eq!(output["shape"], serde_json::json!([2, 2]));
}

#[test]
fn made_inputs_need_a_shape() {
    let path = repository("crates/onnx/tests/models/ch_ppocr_mobile_v2.0_cls_infer.onnx");
    let network = path.to_str().unwrap();
    let run = |input: &str| printed(&["run", network, "--input", input]);
    assert_ne!(run("x=zeros:1x3x48x192"), run("x=random:1x3x48x192"));
    assert_eq!(run("x=random:1x3x48x192"), run("x=random:1,3,48,192"));
    assert!(refused(&["run", network]).contains("add --input x=FILE or x=random:SHAPE"));
    assert!(refused(&["run", network, "--input", "x=ones"]).contains("--input x=ones:1x3x224x224"));
    assert!(refused(&["run", network, "--input", "x=ones:1xa"]).contains("this is no shape"));
    assert!(refused(&["run", network, "--input", "y=ones"]).contains("there is no input y"));
    assert!(refused(&["run", network, "--input", "x"]).contains("give NAME=SOURCE"));
    assert!(refused(&["run", network, "--input", "x=none.npy"]).contains("none.npy"));
    assert!(refused(&["run", network, "--output", "z"]).contains('z'));
    assert!(refused(&["run", "none.onnx"]).contains("none.onnx"));
}

#[test]
fn the_studio_shows_a_network_as_a_file_and_as_a_page() {
    let folder = tempfile::tempdir().unwrap();
    let path = repository("crates/onnx/tests/models/ch_ppocr_mobile_v2.0_cls_infer.onnx");
    let network = path.to_str().unwrap();
    let page = at(&folder, "run.html");
    let input = ["studio", network, "--input", "x=random:1x3x48x192"];
    printed(&[&input[..], &["--save", &page, "--repeat", "3"]].concat());
    let page = std::fs::read_to_string(page).unwrap();
    for kind in ["graph", "explanation", "limits", "profile", "memory"] {
        assert!(page.contains(&format!(r#""kind":"{kind}""#)), "{kind}");
    }
    assert!(refused(&[&input[..], &["--save", "none/run.html"]].concat()).contains("none/run.html"));

    let mut served = Ended(program(&input).stdout(Stdio::piped()).spawn().unwrap());
    let mut address = String::new();
    BufReader::new(served.0.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let (host, place) = address.trim().strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /{place} HTTP/1.0\r\nHost: {host}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("<html"), "{answer}");
}

/// A program that is ended when this is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_network_is_written_as_a_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = repository("crates/onnx/tests/models/silero_vad.onnx");
    let sizes = ["--input", "input=zeros:1x576", "--input", "state=zeros:2x1x128", "--fix", "sr=16000"];
    let arguments = [&["compile", path.to_str().unwrap()], &sizes[..]].concat();
    for (language, file) in [("c", "silero_vad.h"), ("rust", "src/lib.rs"), ("wgsl", "silero_vad.wgsl")] {
        let out = at(&folder, language);
        let text = printed(&[&arguments[..], &["--to", language, "--out", &out, "--ram", "128K"]].concat());
        assert!(
            text.starts_with("x0  f32 [1, 576]  the input input\nx1  f32 [2, 1, 128]  the input state\n"),
            "{text}"
        );
        assert!(text.contains("code about ") && text.contains(file), "{text}");
        assert!(folder.path().join(language).join(file).is_file());
    }
    let budget = [&arguments[..], &["--to", "c", "--flash", "256K"]].concat();
    let message = refused(&budget);
    assert!(message.contains("the budget is 256 KiB; the largest tensors: "), "{message}");
    let message = refused(&[&arguments[..6], &["--to", "c", "--fix", "rate=1"]].concat());
    assert!(message.contains("there is no input rate"), "{message}");
    let message = refused(&[&arguments[..6], &["--to", "c", "--fix", "sr=fast"]].concat());
    assert!(message.contains("`fast` is no number of the input \"sr\""), "{message}");
}
