//! [`serve`]: the page over HTTP on the loopback address, for those who know the token.

use std::{
    env,
    hash::{BuildHasher, RandomState},
    io::{self, Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tensor_core::{Error, Result};

use crate::{page::page, record};

/// The greatest size of a request's head in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 64;
/// The time that a client has for its whole request, and then for reading the whole answer.
const REQUEST_TIME: Duration = Duration::from_secs(5);
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// The number of clients that are served at once; each has a thread. More are turned away.
const MAX_CLIENTS: usize = 16;
/// The greatest number of bytes of events in an answer: the page asks for the rest a second later.
const MAX_EVENTS_BYTES: usize = 8 << 20;
/// The page may run its own script and ask this server, and nothing else. Pages of this machine may show it
/// in a frame, as a notebook does.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors http://127.0.0.1:* \
                      http://localhost:* https://localhost:*";

static ADDRESS: Mutex<Option<String>> = Mutex::new(None);

/// Starts to record, and serves the page on the loopback address until the process ends. Returns its
/// address, which contains a random token: requests without it are refused. A second call returns the same
/// address.
///
/// # Errors
/// `Invalid` if the system grants no port or thread.
#[track_caller]
pub fn serve() -> Result<String> {
    let mut address = ADDRESS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(address) = &*address {
        return Ok(address.clone());
    }
    let failed = |error: io::Error| Error::invalid("studio::serve", format!("cannot serve: {error}"));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let token = token();
    let url = format!("http://127.0.0.1:{port}/{token}/");
    thread::Builder::new()
        .name("taper-studio".into())
        .spawn(move || {
            let (token, clients) = (Arc::new(token), Arc::new(()));
            for stream in listener.incoming().flatten() {
                if Arc::strong_count(&clients) > MAX_CLIENTS {
                    continue; // which closes the connection
                }
                let (token, client) = (token.clone(), clients.clone());
                // A client that leaves early, or finds no thread, is not an error of the training.
                let _ = thread::Builder::new().name("taper-studio-client".into()).spawn(move || {
                    let _ = answer(stream, &token);
                    drop(client);
                });
            }
        })
        .map_err(failed)?;
    record::record();
    *address = Some(url.clone());
    Ok(url)
}

/// Calls [`serve`] and prints its address on stderr, if the environment variable `TAPER_STUDIO` is set and is
/// not `0`. `train::SummaryWriter` calls it.
pub fn serve_if_asked() {
    let wanted = env::var_os("TAPER_STUDIO").is_some_and(|value| !value.is_empty() && value != "0");
    if wanted && !record::is_recording() {
        let line = match serve() {
            Ok(url) => format!("taper: the studio is at {url}"),
            Err(error) => format!("taper: {error}"),
        };
        // A closed stderr is not an error.
        let _ = writeln!(io::stderr(), "{line}");
    }
}

/// 128 random bits in hexadecimal. The standard library seeds its hashers from the system's random numbers.
fn token() -> String {
    (0..2).map(|k| format!("{:016x}", RandomState::new().hash_one(k))).collect()
}

/// The request of a client.
enum Request {
    /// The method and the path after the token.
    Known(String, String),
    /// The token is missing or wrong.
    Forbidden,
    /// It is malformed, too long or too slow.
    Malformed,
}

fn answer(mut stream: TcpStream, token: &str) -> io::Result<()> {
    let (method, path) = match request(&mut stream, token)? {
        Request::Known(method, path) => (method, path),
        Request::Forbidden => {
            return respond(&mut stream, "403 Forbidden", "text/plain", "the token is missing or wrong");
        }
        Request::Malformed => return respond(&mut stream, "400 Bad Request", "text/plain", "not a request"),
    };
    let after = path.strip_prefix("/events?after=").and_then(|number| number.parse().ok());
    match (method.as_str(), path.as_str(), after) {
        ("GET", "/", _) => respond(&mut stream, "200 OK", "text/html; charset=utf-8", &page(None)),
        ("GET", _, Some(after)) => {
            let events = record::part_after(after, MAX_EVENTS_BYTES);
            respond(&mut stream, "200 OK", "application/json", &events)
        }
        ("POST", _, _) if path.strip_prefix('/').is_some_and(crate::ask) => {
            respond(&mut stream, "200 OK", "application/json", "{}")
        }
        _ => respond(&mut stream, "404 Not Found", "text/plain", "no such page"),
    }
}

/// Reads the head of a request. The token is checked as soon as the first line is there, before the rest is
/// read; a body is never read.
fn request(stream: &mut TcpStream, token: &str) -> io::Result<Request> {
    let deadline = Instant::now() + REQUEST_TIME;
    let mut head = Vec::new();
    let mut part = [0; 2048];
    while head.len() < MAX_HEAD_BYTES {
        let Some(left) = left_until(deadline) else { return Ok(Request::Malformed) };
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut part)?;
        head.extend_from_slice(&part[..count]);
        let first = head.split(|&byte| byte == b'\n').next().filter(|line| line.len() < head.len());
        if first.is_some_and(|line| after_token(line, token).is_none()) {
            return Ok(Request::Forbidden);
        }
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&head) {
            Ok(httparse::Status::Complete(_)) => {
                let path = first.and_then(|line| after_token(line, token));
                return Ok(match request.method.zip(path) {
                    Some((method, path)) => Request::Known(method.to_string(), path.to_string()),
                    None => Request::Malformed,
                });
            }
            Ok(httparse::Status::Partial) if count > 0 => {}
            _ => return Ok(Request::Malformed),
        }
    }
    Ok(Request::Malformed)
}

/// The path in the first line of a request, without the token before it.
fn after_token<'a>(line: &'a [u8], token: &str) -> Option<&'a str> {
    let target = std::str::from_utf8(line).ok()?.split_ascii_whitespace().nth(1)?;
    target.strip_prefix('/')?.strip_prefix(token).filter(|path| path.starts_with('/'))
}

/// The time that is left; none after the deadline.
fn left_until(deadline: Instant) -> Option<Duration> {
    Some(deadline.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero())
}

fn respond(stream: &mut TcpStream, status: &str, kind: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\nCache-Control: no-store\r\n\
         Referrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\nContent-Security-Policy: {POLICY}\r\n\r\n"
    );
    let deadline = Instant::now() + ANSWER_TIME;
    for mut part in [head.as_bytes(), body.as_bytes()] {
        while !part.is_empty() {
            let left = left_until(deadline).ok_or(io::ErrorKind::TimedOut)?;
            stream.set_write_timeout(Some(left))?;
            let count = stream.write(part)?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            part = &part[count..];
        }
    }
    // Closing a connection with unread bytes may discard the answer before the client has it: the rest of the
    // request is dropped first, as far as it has come.
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    let mut rest = [0; 4096];
    let end = Instant::now() + REQUEST_TIME;
    while left_until(end).is_some() && stream.read(&mut rest)? > 0 {}
    Ok(())
}
