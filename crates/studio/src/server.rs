//! [`serve`]: the page over HTTP on the loopback address, for those who know the token.

use std::{
    env,
    hash::{BuildHasher, RandomState},
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use tensor_core::{Error, Result};

use crate::{page::page, record};

/// The greatest size of a request's head in bytes.
const MAX_HEAD_BYTES: usize = 16 << 10;
const MAX_HEADERS: usize = 64;
/// The time that a client has for its request and for reading the answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
/// The page may run its own script and ask this server, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

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
            for stream in listener.incoming().flatten() {
                // A client that leaves early is not an error of the training.
                let _ = answer(stream, &token);
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

fn answer(mut stream: TcpStream, token: &str) -> io::Result<()> {
    stream.set_read_timeout(Some(CLIENT_TIMEOUT))?;
    stream.set_write_timeout(Some(CLIENT_TIMEOUT))?;
    let Some((method, target)) = request(&mut stream)? else {
        return respond(&mut stream, "400 Bad Request", "text/plain", "not a request");
    };
    let path = target.strip_prefix('/').and_then(|rest| rest.strip_prefix(token)).unwrap_or_default();
    let after = path.strip_prefix("/events?after=").and_then(|number| number.parse().ok());
    match (method.as_str(), path, after) {
        (_, "", _) => respond(&mut stream, "403 Forbidden", "text/plain", "the token is missing or wrong"),
        ("GET", "/", _) => respond(&mut stream, "200 OK", "text/html; charset=utf-8", &page(None)),
        ("GET", _, Some(after)) => {
            respond(&mut stream, "200 OK", "application/json", &record::events_after(after))
        }
        ("POST", _, _) if path.strip_prefix('/').is_some_and(crate::ask) => {
            respond(&mut stream, "200 OK", "application/json", "{}")
        }
        _ => respond(&mut stream, "404 Not Found", "text/plain", "no such page"),
    }
}

/// The method and target of a request; none if it is malformed or too long.
fn request(stream: &mut TcpStream) -> io::Result<Option<(String, String)>> {
    let mut head = Vec::new();
    let mut part = [0; 2048];
    while head.len() < MAX_HEAD_BYTES {
        let count = stream.read(&mut part)?;
        head.extend_from_slice(&part[..count]);
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&head) {
            Ok(httparse::Status::Complete(_)) => {
                return Ok(request.method.zip(request.path).map(|(a, b)| (a.to_string(), b.to_string())));
            }
            Ok(httparse::Status::Partial) if count > 0 => {}
            _ => return Ok(None),
        }
    }
    Ok(None)
}

fn respond(stream: &mut TcpStream, status: &str, kind: &str, body: &str) -> io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\nCache-Control: no-store\r\n\
         Referrer-Policy: no-referrer\r\nX-Content-Type-Options: nosniff\r\nContent-Security-Policy: {POLICY}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}
