//! An HTTP server answers questions with a model; questions that arrive together are one batch.
//!
//!     cargo run --release -p taper-examples-cookbook --example serve -- --port 8000
//!     curl localhost:8000/digit -d "[0, 0, 0.3, …]"
//!
//! The body of a question is a list of 64 pixels. Without `--port`, the program asks itself and ends.

#[path = "../basics/common/mod.rs"]
mod common;

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    process::ExitCode,
    sync::mpsc::{self, Receiver, Sender},
    thread,
    time::Duration,
};

use clap::Parser;
use common::{Outcome, holds};
use serde_json::{Value, json};
use taper::{data::Digits, prelude::*};

/// Serves a network that reads digits.
#[derive(Parser)]
struct Options {
    /// auto, cpu, wgpu, or wgpu:N
    #[arg(long, default_value = "auto")]
    device: String,
    /// Answer on this port until Ctrl-C
    #[arg(long)]
    port: Option<u16>,
}

const PIXELS: usize = 64;
const MAX_BATCH: usize = 32;
const MAX_HEAD_BYTES: usize = 8 << 10;
const MAX_BODY_BYTES: usize = 64 << 10;
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);

/// Pixels, and where the digit and its probability go.
struct Question {
    pixels: Vec<f32>,
    reply: Sender<(i32, f32)>,
}

/// A network that was trained on the digits. A program of your own loads one by
/// `model.load("digits.safetensors")?`.
fn trained(digits: &TensorDataset, device: &Device) -> Result<Sequential> {
    let rng = Generator::seed(0, &taper::cpu());
    let mut model =
        Sequential::new().add(Linear::new(PIXELS, 64, &rng)?).add(Relu).add(Linear::new(64, 10, &rng)?);
    model.to(device)?;
    let mut adam = Adam::new(model.parameters(), AdamConfig { lr: 1e-2, ..Default::default() });
    let loader = DataLoader::new(digits.clone(), 256)?.shuffle(0);
    for _ in 0..30 {
        for batch in loader.iter() {
            let (images, labels) = batch?.to(device)?;
            adam.zero_grad();
            cross_entropy(&model.forward(&images)?, &labels)?.backward()?;
            adam.step()?;
        }
    }
    model.eval();
    Ok(model)
}

/// Answers questions until no sender is left: those that wait are one batch.
fn answer(model: &Sequential, device: &Device, questions: &Receiver<Question>) -> Result<()> {
    while let Ok(first) = questions.recv() {
        let batch: Vec<Question> = [first].into_iter().chain(questions.try_iter()).take(MAX_BATCH).collect();
        let pixels = batch.iter().flat_map(|question| &question.pixels).copied().collect();
        let images = Tensor::from_vec::<f32>(pixels, (batch.len(), PIXELS), device)?;
        let (probability, digit) = no_grad(|| model.forward(&images)?.softmax(1)?.max_axis(1, false))?;
        let answers = digit.to_vec::<i32>()?.into_iter().zip(probability.to_vec::<f32>()?);
        for (question, answer) in batch.iter().zip(answers) {
            // A client that left has no receiver.
            let _ = question.reply.send(answer);
        }
    }
    Ok(())
}

/// The body of a POST to `/digit`, or the status that refuses the request.
fn body(stream: &TcpStream) -> io::Result<std::result::Result<Vec<u8>, &'static str>> {
    let mut reader = BufReader::new(stream.take((MAX_HEAD_BYTES + MAX_BODY_BYTES) as u64));
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if reader.read_until(b'\n', &mut head)? == 0 || head.len() > MAX_HEAD_BYTES {
            return Ok(Err("400 Bad Request"));
        }
    }
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut request = httparse::Request::new(&mut headers);
    if !request.parse(&head).is_ok_and(|status| status.is_complete()) {
        return Ok(Err("400 Bad Request"));
    }
    if (request.method, request.path) != (Some("POST"), Some("/digit")) {
        return Ok(Err("404 Not Found"));
    }
    let length = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = length.and_then(|header| std::str::from_utf8(header.value).ok()?.parse().ok());
    match length {
        Some(length) if length <= MAX_BODY_BYTES => {
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            Ok(Ok(body))
        }
        Some(_) => Ok(Err("413 Content Too Large")),
        None => Ok(Err("411 Length Required")),
    }
}

/// Reads a request, waits for the model, and writes the answer.
fn serve(mut stream: TcpStream, model: &Sender<Question>) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let pixels = body(&stream)?.and_then(|body| match serde_json::from_slice::<Vec<f32>>(&body) {
        Ok(pixels) if pixels.len() == PIXELS => Ok(pixels),
        _ => Err("422 Unprocessable Content"),
    });
    let (reply, answer) = mpsc::channel();
    let (status, body) = match pixels.map(|pixels| model.send(Question { pixels, reply })) {
        Err(status) => (status, json!({ "error": format!("POST a list of {PIXELS} numbers to /digit") })),
        Ok(_) => match answer.recv() {
            Ok((digit, probability)) => ("200 OK", json!({ "digit": digit, "probability": probability })),
            Err(_) => ("500 Internal Server Error", json!({ "error": "the model failed" })),
        },
    };
    let body = body.to_string();
    let head =
        format!("Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close", body.len());
    write!(stream, "HTTP/1.1 {status}\r\n{head}\r\n\r\n{body}")
}

/// Asks the server, as a client; the status and the answer.
fn ask(address: SocketAddr, body: &str) -> Outcome<(String, Value)> {
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "POST /digit HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or("an answer without a body")?;
    Ok((head.lines().next().unwrap_or_default().into(), serde_json::from_str(body)?))
}

fn run(options: &Options) -> Outcome {
    let device = taper::device(&options.device)?;
    let digits = Digits::load(&taper::cpu())?;
    let model = trained(&digits, &device)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port.unwrap_or(0)))?;
    let address = listener.local_addr()?;
    writeln!(io::stdout(), "POST http://{address}/digit")?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let sender = sender.clone();
            thread::spawn(move || serve(stream, &sender));
        }
    });
    if options.port.is_some() {
        return Ok(answer(&model, &device, &receiver)?);
    }

    thread::spawn(move || answer(&model, &device, &receiver));
    let (images, labels) = digits.tensors();
    let (pixels, labels) = (images.to_vec::<f32>()?, labels.to_vec::<i32>()?);
    let right = |from: usize| -> usize {
        let questions = pixels.chunks(PIXELS).zip(&labels).skip(from).step_by(4).take(50);
        questions
            .filter(|(pixels, label)| {
                ask(address, &json!(pixels).to_string())
                    .is_ok_and(|(_, answer)| answer["digit"] == json!(label))
            })
            .count()
    };
    let right: usize = thread::scope(|scope| {
        let clients: Vec<_> = (0..4).map(|k| scope.spawn(move || right(k))).collect();
        clients.into_iter().filter_map(|client| client.join().ok()).sum()
    });
    holds(right > 190, &format!("{right} of 200 digits are read, more than 190"))?;
    let (status, answer) = ask(address, "[1, 2, 3]")?;
    holds(status.contains("422"), &format!("three pixels are refused: {status}, {answer}"))
}

fn main() -> ExitCode {
    common::finish(run(&Options::parse()))
}
