//! Clients that are slow, many or unknown, and programs that record without end. The studio records for the
//! whole process, so one test takes every case in turn.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use serde_json::Value;
use tensor_core::Result;

#[test]
fn clients_and_events_are_bounded() -> Result<()> {
    let url = studio::serve()?;
    let (root, token) = url.trim_end_matches('/').rsplit_once('/').unwrap();
    let host = root.strip_prefix("http://").unwrap();
    a_client_that_says_nothing_keeps_no_other_waiting(host, token);
    a_slow_request_ends_at_its_deadline(host, token);
    a_wrong_token_is_refused_before_the_rest_is_read(host);
    all_kinds_of_events_are_bounded();
    an_answer_has_a_part_of_many_events(host, token);
    Ok(())
}

fn ask(host: &str, token: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /{token}/{path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_string(), body.to_string())
}

fn a_client_that_says_nothing_keeps_no_other_waiting(host: &str, token: &str) {
    let silent: Vec<TcpStream> = (0..5).map(|_| TcpStream::connect(host).unwrap()).collect();
    let begin = Instant::now();
    assert_eq!(ask(host, token, "events?after=0").0, "HTTP/1.1 200 OK");
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    drop(silent);
    // Clients beyond a number are turned away, and others are served when those are gone.
    let many: Vec<TcpStream> = (0..64).map(|_| TcpStream::connect(host).unwrap()).collect();
    drop(many);
    let begin = Instant::now();
    loop {
        let mut stream = TcpStream::connect(host).unwrap();
        let sent = write!(stream, "GET /{token}/events?after=0 HTTP/1.1\r\n\r\n");
        let mut answer = String::new();
        if sent.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.starts_with("HTTP/1.1 200 OK")
        {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "nothing is served after many clients");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Each byte came in time, and the request never ended.
fn a_slow_request_ends_at_its_deadline(host: &str, token: &str) {
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /{token}/ HTTP/1.1\r\nX: ").unwrap();
    let begin = Instant::now();
    stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut byte = [0];
    let ended = loop {
        match stream.read(&mut byte) {
            Ok(_) => break true,
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => break true,
        }
        if begin.elapsed() > Duration::from_secs(20) || stream.write_all(b"a").is_err() {
            break begin.elapsed() < Duration::from_secs(20);
        }
    };
    assert!(ended, "a slow client is still served after {:?}", begin.elapsed());
}

fn a_wrong_token_is_refused_before_the_rest_is_read(host: &str) {
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(3))).unwrap();
    // The head does not end, and a body of gigabytes is announced.
    write!(stream, "POST /{}/ask/profile HTTP/1.1\r\nContent-Length: 9999999999\r\n", "0".repeat(32))
        .unwrap();
    let mut answer = [0; 22];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 403 Forbidden");
}

fn events() -> Vec<Value> {
    let data: Value = serde_json::from_str(&studio::events_after(0)).unwrap();
    data["events"].as_array().unwrap().clone()
}

fn all_kinds_of_events_are_bounded() {
    // Notes of 200 MB, a note larger than any may be, and more runs than are kept.
    let note = "n".repeat(1 << 20);
    for number in 0..200 {
        studio::text("notes", "long", &note, number);
    }
    studio::text("notes", "longest", &"n".repeat(40 << 20), 200);
    assert!(studio::events_after(0).len() < 130 << 20);
    let kept = events();
    let text = |event: &Value| event["text"].as_str().unwrap_or_default().to_string();
    assert!(text(kept.last().unwrap()).contains("is too large to be kept"));
    let steps: Vec<u64> =
        kept.iter().filter(|e| e["tag"] == "long").map(|e| e["step"].as_u64().unwrap()).collect();
    assert!(steps.len() > 60 && steps.last() == Some(&199), "the newest stay: {steps:?}");
    assert!(steps.is_sorted());
    for number in 0..3000 {
        studio::scalar(&format!("run {number}"), "loss", 1.0, 0);
    }
    let names: Vec<Value> =
        events().iter().filter(|e| e["kind"] == "run").map(|e| e["name"].clone()).collect();
    assert!(names.len() <= 1001 && names[0] == "notes" && names.last().unwrap() == "more runs");
    // Points and reports beyond the greatest number of events.
    for step in 0..260_000 {
        studio::scalar("run 0", "loss", 1.0, step);
        if step % 4 == 0 {
            studio::text("run 0", "short", "note", step);
        }
    }
    let kept = events();
    assert!(kept.len() <= 200_000, "{} events", kept.len());
    let kinds: BTreeSet<&str> = kept.iter().filter_map(|event| event["kind"].as_str()).collect();
    assert_eq!(kinds, BTreeSet::from(["run", "scalar", "text"]));
}

fn an_answer_has_a_part_of_many_events(host: &str, token: &str) {
    let (mut after, mut count, mut answers) = (0, 0, 0);
    loop {
        let (status, body) = ask(host, token, &format!("events?after={after}"));
        assert_eq!(status, "HTTP/1.1 200 OK");
        assert!(body.len() < 12 << 20, "{} bytes", body.len());
        let data: Value = serde_json::from_str(&body).unwrap();
        let part = data["events"].as_array().unwrap().len();
        if part == 0 {
            break;
        }
        (after, count, answers) = (data["next"].as_u64().unwrap(), count + part, answers + 1);
    }
    assert_eq!(count, events().len());
    assert!(answers > 1);
}
