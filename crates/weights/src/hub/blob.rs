//! The contents of a file in the cache: written beside their place, resumed, and moved there when their size
//! and hash are right.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Write},
    path::{Path, PathBuf},
};

use sha2::Digest;
use tensor_core::{Result, file::file_error};

use super::http::{FileFacts, Server, checked, failed};

/// The number of requests in a row that bring no byte before a download fails.
const TRIES: usize = 3;
/// The greatest size of a file whose size the server does not announce, in bytes.
const UNANNOUNCED_BYTES: u64 = 1 << 30;
/// The bytes that are read at once.
const CHUNK_BYTES: usize = 1 << 16;

/// The hash that an etag is: of large files (LFS) the SHA-256, of others that of git.
enum Hash {
    Sha256(sha2::Sha256),
    Git(sha1::Sha1),
    /// An etag of another kind, which a mirror may have.
    Unknown,
}

impl Hash {
    fn of(etag: &str, size: Option<u64>) -> Hash {
        let hexadecimal = etag.bytes().all(|byte| byte.is_ascii_hexdigit());
        match (etag.len(), size) {
            (64, _) if hexadecimal => Hash::Sha256(sha2::Sha256::new()),
            (40, Some(size)) if hexadecimal => {
                let mut hash = sha1::Sha1::new();
                hash.update(format!("blob {size}\0"));
                Hash::Git(hash)
            }
            _ => Hash::Unknown,
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Hash::Sha256(hash) => hash.update(bytes),
            Hash::Git(hash) => hash.update(bytes),
            Hash::Unknown => {}
        }
    }

    /// The digits of the hash, if there is one.
    fn finish(self) -> Option<String> {
        fn digits(bytes: &[u8]) -> Option<String> {
            Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
        }
        match self {
            Hash::Sha256(hash) => digits(&hash.finalize()),
            Hash::Git(hash) => digits(&hash.finalize()),
            Hash::Unknown => None,
        }
    }
}

/// Downloads the contents of a file to `path`, after what is in `path` with the ending `.incomplete`.
/// `progress` gets the number of bytes that are there.
#[track_caller]
pub(super) fn download(
    server: &Server,
    facts: &FileFacts,
    path: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<()> {
    let address = facts.address.as_str();
    let part = PathBuf::from(format!("{}.incomplete", path.display()));
    let written = |error: std::io::Error| file_error(&part, format!("cannot be written: {error}"));
    let mut file = OpenOptions::new().create(true).append(true).read(true).open(&part).map_err(written)?;
    let mut there = file.metadata().map_err(written)?.len();
    if facts.size.is_some_and(|size| there > size) {
        file.set_len(0).map_err(written)?;
        there = 0;
    }
    let mut failures = 0;
    while facts.size.is_none_or(|size| there < size) {
        let before = there;
        let reason = transfer(server, facts, &part, &mut file, &mut there, progress)?;
        if reason.is_none() && facts.size.is_none() {
            break;
        }
        failures = if there > before { 0 } else { failures + 1 };
        if failures == TRIES {
            let reason = reason.unwrap_or_else(|| "the server ends".into());
            return Err(failed(address, &format!("{reason}, after {there} bytes; a later call resumes it")));
        }
    }
    file.sync_all().map_err(written)?;
    drop(file);
    let wrong = |message: String| {
        // The next download begins anew.
        let _ = fs::remove_file(&part);
        Err(failed(address, &message))
    };
    if let Some(size) = facts.size.filter(|size| *size != there) {
        return wrong(format!("{there} bytes came, of {size}"));
    }
    if let Some(found) = hash_of(&part, facts)?.filter(|found| !found.eq_ignore_ascii_case(&facts.etag)) {
        return wrong(format!("its hash is {found}, and should be {}", facts.etag));
    }
    fs::rename(&part, path).map_err(|error| file_error(path, format!("cannot be written: {error}")))
}

/// Appends what the server sends. A connection that fails gives the reason; an answer that refuses, or that
/// is longer than announced, is an error.
#[track_caller]
fn transfer(
    server: &Server,
    facts: &FileFacts,
    part: &Path,
    file: &mut File,
    there: &mut u64,
    progress: &mut dyn FnMut(u64),
) -> Result<Option<String>> {
    let address = facts.address.as_str();
    let most = facts.size.unwrap_or(UNANNOUNCED_BYTES);
    let written = |error: std::io::Error| file_error(part, format!("cannot be written: {error}"));
    let mut response = match server.get(address, *there) {
        Ok(response) => response,
        Err(error) => return Ok(Some(error.to_string())),
    };
    let status = response.status().as_u16();
    if (500..=599).contains(&status) {
        return Ok(Some(format!("status {status}")));
    }
    let range = response.headers().get("content-range").and_then(|range| range.to_str().ok());
    let continues = range.is_some_and(|range| range.starts_with(&format!("bytes {there}-")));
    if *there > 0 && !(status == 206 && continues) {
        // The server sends the whole file, or has another one than before.
        file.set_len(0).map_err(written)?;
        *there = 0;
        if status != 200 {
            return Ok(Some(format!("status {status} for a part of the file")));
        }
    }
    checked(address, status, response.headers())?;
    let mut body = response.body_mut().with_config().limit(u64::MAX).reader();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let count = match body.read(&mut chunk) {
            Ok(0) => return Ok(None),
            Ok(count) => count,
            Err(error) => return Ok(Some(error.to_string())),
        };
        if *there + count as u64 > most {
            // The next download begins anew.
            let _ = fs::remove_file(part);
            let what = if facts.size.is_some() { "announced" } else { "allowed without an announced size" };
            return Err(failed(address, &format!("more than the {most} bytes come that are {what}")));
        }
        file.write_all(&chunk[..count]).map_err(written)?;
        *there += count as u64;
        progress(*there);
    }
}

/// The hash of a file, in the form of its etag.
#[track_caller]
fn hash_of(path: &Path, facts: &FileFacts) -> Result<Option<String>> {
    let unreadable = |error: std::io::Error| file_error(path, format!("cannot be read: {error}"));
    let mut file = File::open(path).map_err(unreadable)?;
    let mut hash = Hash::of(&facts.etag, facts.size);
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk).map_err(unreadable)? {
            0 => return Ok(hash.finish()),
            count => hash.update(&chunk[..count]),
        }
    }
}
