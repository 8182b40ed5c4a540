//! Downloads from a server on the loopback address, with the answers of the Hugging Face hub.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use nn::StateDict;
use sha2::{Digest, Sha256};
use tensor_core::{ErrorKind, Tensor};
use weights::{HubCache, HubDownload, HubProgress};

use crate::common::cpu;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// The faults of a server that sends a file.
#[derive(Clone, Copy, Default, PartialEq)]
struct Faults {
    /// The connection is cut after this number of bytes of each answer.
    cut_after: Option<usize>,
    /// A bit of the contents is another one.
    damaged: bool,
    /// Ranges are ignored.
    no_ranges: bool,
    /// The answer has no length, and goes on for this number of bytes after the contents.
    more: Option<usize>,
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, Vec<u8>>,
    faults: Faults,
    /// The first line of each request, with its range and authorization.
    requests: Vec<String>,
    /// The address of another server, to which the contents of weights are redirected.
    contents: Option<String>,
    etag: Option<String>,
    token: Option<String>,
}

#[derive(Clone)]
struct Hub {
    state: Arc<Mutex<State>>,
    address: String,
}

impl Hub {
    fn start(files: &[(&str, Vec<u8>)]) -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let files = files.iter().map(|(name, bytes)| ((*name).to_string(), bytes.clone())).collect();
        let hub = Hub { state: Arc::new(Mutex::new(State { files, ..State::default() })), address };
        let server = hub.clone();
        thread::spawn(move || listener.incoming().flatten().for_each(|stream| drop(server.answer(stream))));
        hub
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }

    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut lines = BufReader::new(stream.try_clone()?).lines().map_while(Result::ok);
        let first = lines.next().unwrap_or_default();
        let headers: BTreeMap<String, String> = lines
            .take_while(|line| !line.is_empty())
            .filter_map(|line| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.into())))
            .collect();
        let (range, token) = (headers.get("range"), headers.get("authorization"));
        let mut state = self.state.lock().unwrap();
        let record =
            [Some(&first), range, token].into_iter().flatten().cloned().collect::<Vec<_>>().join(" ");
        state.requests.push(record);
        let words: Vec<&str> = first.split(' ').collect();
        let (is_head, path) = (words[0] == "HEAD", words[1]);
        let empty = |status: &str, headers: &str| {
            format!("HTTP/1.1 {status}\r\n{headers}content-length: 0\r\nconnection: close\r\n\r\n")
        };
        if state.token.is_some() && state.token.as_ref() != token {
            return stream.write_all(empty("401 Unauthorized", "x-error-code: GatedRepo\r\n").as_bytes());
        }
        if path.starts_with("/api/models/org/tiny/revision/main") {
            let names: Vec<String> =
                state.files.keys().map(|name| format!("{{\"rfilename\": \"{name}\"}}")).collect();
            let list = format!("{{\"sha\": \"{COMMIT}\", \"siblings\": [{}]}}", names.join(", "));
            let length = list.len();
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{list}");
            return stream.write_all(head.as_bytes());
        }
        // A model that was renamed.
        if let Some(file) = path.strip_prefix("/old/name/resolve/main/") {
            let place = format!("location: /org/tiny/resolve/main/{file}\r\n");
            return stream.write_all(empty("307 Temporary Redirect", &place).as_bytes());
        }
        let file = path
            .strip_prefix("/org/tiny/resolve/")
            .or(path.strip_prefix("/contents/"))
            .and_then(|rest| rest.split_once('/'))
            .filter(|(revision, _)| ["main", COMMIT].contains(revision))
            .and_then(|(_, file)| Some((file, state.files.get(file)?)));
        let Some((file, bytes)) = file else {
            let code = if path.contains("/org/tiny/") { "EntryNotFound" } else { "RepoNotFound" };
            return stream.write_all(empty("404 Not Found", &format!("x-error-code: {code}\r\n")).as_bytes());
        };
        let large = file.ends_with(".safetensors");
        let etag = state.etag.clone().unwrap_or_else(|| etag(bytes, large));
        let facts = format!("x-repo-commit: {COMMIT}\r\netag: \"{etag}\"\r\n");
        if let Some(other) = state.contents.as_ref().filter(|_| large) {
            let linked = format!("x-linked-etag: \"{etag}\"\r\nx-linked-size: {}\r\n", bytes.len());
            let place = format!("location: {other}/contents/{COMMIT}/{file}\r\n");
            return stream.write_all(empty("302 Found", &format!("{facts}{linked}{place}")).as_bytes());
        }
        let start: usize = range
            .filter(|_| !state.faults.no_ranges)
            .and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok())
            .unwrap_or(0);
        let (status, length) =
            if start > 0 { ("206 Partial Content", bytes.len() - start) } else { ("200 OK", bytes.len()) };
        let place = format!("content-range: bytes {start}-{}/{}\r\n", bytes.len() - 1, bytes.len());
        let place = if start > 0 { place } else { String::new() };
        let length = match state.faults.more {
            Some(_) if !is_head => String::new(),
            _ => format!("content-length: {length}\r\n"),
        };
        let head = format!("HTTP/1.1 {status}\r\n{facts}{place}{length}connection: close\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        if is_head {
            return Ok(());
        }
        let mut body = bytes[start..].to_vec();
        if state.faults.damaged {
            body[0] ^= 1;
        }
        body.truncate(state.faults.cut_after.unwrap_or(usize::MAX));
        body.resize(body.len() + state.faults.more.unwrap_or(0), 0);
        stream.write_all(&body)
    }
}

/// The etag of the hub: SHA-256 of large files, git's hash of others.
fn etag(bytes: &[u8], large: bool) -> String {
    let digits = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    if large {
        return digits(&Sha256::digest(bytes));
    }
    let mut hash = sha1::Sha1::new();
    hash.update(format!("blob {}\0", bytes.len()));
    hash.update(bytes);
    digits(&hash.finalize())
}

/// The files of a model, with 400,000 bytes of weights.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    let x = Tensor::arange(0.0, 100_000.0, 1.0, &cpu()).unwrap();
    nn::save_safetensors(&path, &StateDict::from([("x".to_string(), x)])).unwrap();
    vec![
        ("config.json", b"{\"model_type\": \"tiny\"}".to_vec()),
        ("model.safetensors", fs::read(path).unwrap()),
        ("onnx/model.onnx", vec![1, 2, 3]),
        ("extra/notes.txt", b"deep".to_vec()),
    ]
}

fn download(hub: &Hub, folder: &std::path::Path) -> HubDownload {
    HubDownload::new(HubCache::at(folder)).endpoint(&hub.address)
}

fn quiet() -> impl FnMut(HubProgress<'_>) {
    |_: HubProgress<'_>| {}
}

#[test]
fn a_model_is_in_the_cache_as_python_leaves_it() {
    let (hub, folder, files) = (Hub::start(&files()), tempfile::tempdir().unwrap(), files());
    let download = download(&hub, folder.path());
    let mut seen = Vec::new();
    let mut note = |p: HubProgress<'_>| seen.push((p.file.to_string(), p.received, p.total));
    let model = download.model("org/tiny", None, &mut note).unwrap();
    let root = folder.path().join("models--org--tiny");
    assert_eq!(model, root.join("snapshots").join(COMMIT));
    assert_eq!(fs::read_to_string(root.join("refs/main")).unwrap(), COMMIT);
    for (name, bytes) in &files[..2] {
        let blob = root.join("blobs").join(etag(bytes, name.ends_with(".safetensors")));
        assert_eq!(&fs::read(&blob).unwrap(), bytes);
        assert_eq!(&fs::read(model.join(name)).unwrap(), bytes);
        #[cfg(unix)]
        assert_eq!(fs::canonicalize(model.join(name)).unwrap(), fs::canonicalize(&blob).unwrap());
    }
    let size = files[1].1.len() as u64;
    assert_eq!(seen.last(), Some(&("model.safetensors".to_string(), size, Some(size))));
    assert!(!model.join("onnx").exists());
    assert_eq!(HubCache::at(folder.path()).model("org/tiny", None).unwrap(), model);
    let x = weights::open(&model).unwrap().tensor("x", &cpu()).unwrap().to_vec::<f32>().unwrap();
    assert_eq!((x.len(), x[99_999]), (100_000, 99_999.0));

    // A file below a folder, and a second call, which sends no contents.
    let notes = download.file("org/tiny", None, "extra/notes.txt", &mut quiet()).unwrap();
    assert_eq!(fs::read(&notes).unwrap(), b"deep");
    hub.requests();
    download.model("org/tiny", None, &mut quiet()).unwrap();
    download.file("org/tiny", None, "extra/notes.txt", &mut quiet()).unwrap();
    assert!(hub.requests().iter().all(|line| line.starts_with("HEAD") || line.contains("/api/")));
    assert_eq!(download.files("org/tiny", None).unwrap().len(), 4);
}

#[test]
fn a_cut_connection_is_resumed() {
    let (hub, folder, files) = (Hub::start(&files()), tempfile::tempdir().unwrap(), files());
    let weights = &files[1].1;
    hub.set(|state| state.faults.cut_after = Some(150_000));
    let download = download(&hub, folder.path());
    let path = download.file("org/tiny", None, "model.safetensors", &mut quiet()).unwrap();
    assert_eq!(&fs::read(path).unwrap(), weights);
    let requests = hub.requests();
    assert_eq!(requests.len(), 4, "{requests:?}"); // HEAD and three parts
    assert!(requests[2].ends_with("bytes=150000-") && requests[3].ends_with("bytes=300000-"), "{requests:?}");

    // A part that an earlier process left is the beginning.
    let blob = folder.path().join("models--org--tiny/blobs").join(etag(weights, true));
    fs::remove_file(&blob).unwrap();
    fs::write(format!("{}.incomplete", blob.display()), &weights[..399_000]).unwrap();
    let mut first = None;
    let mut note = |progress: HubProgress<'_>| {
        first.get_or_insert(progress.received);
    };
    download.file("org/tiny", None, "model.safetensors", &mut note).unwrap();
    assert!(first > Some(399_000));
    assert_eq!(&fs::read(&blob).unwrap(), weights);
    assert!(hub.requests()[1].ends_with("bytes=399000-"));

    // A server without ranges begins anew.
    fs::remove_file(&blob).unwrap();
    fs::write(format!("{}.incomplete", blob.display()), &weights[..399_000]).unwrap();
    hub.set(|state| state.faults = Faults { no_ranges: true, ..Faults::default() });
    download.file("org/tiny", None, "model.safetensors", &mut quiet()).unwrap();
    assert_eq!(&fs::read(&blob).unwrap(), weights);

    // A server that sends nothing ends the download, and what is there stays.
    fs::remove_file(&blob).unwrap();
    fs::write(format!("{}.incomplete", blob.display()), &weights[..1000]).unwrap();
    hub.set(|state| state.faults = Faults { cut_after: Some(0), ..Faults::default() });
    let message = download.file("org/tiny", None, "model.safetensors", &mut quiet()).unwrap_err().to_string();
    assert!(message.contains("after 1000 bytes; a later call resumes it"), "{message}");
}

#[test]
fn contents_with_another_hash_are_refused() {
    let (hub, folder, files) = (Hub::start(&files()), tempfile::tempdir().unwrap(), files());
    hub.set(|state| state.faults.damaged = true);
    let download = download(&hub, folder.path());
    for (name, bytes) in &files[..2] {
        let error = download.file("org/tiny", None, name, &mut quiet()).unwrap_err();
        let message = error.to_string();
        let expected = etag(bytes, name.ends_with(".safetensors"));
        assert!(message.contains(&format!("org/tiny/resolve/main/{name}")), "{message}");
        assert!(message.contains("its hash is") && message.contains(&expected), "{message}");
        let left: Vec<_> = fs::read_dir(folder.path().join("models--org--tiny/blobs")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
    assert!(!folder.path().join("models--org--tiny/snapshots").exists());
    hub.set(|state| state.faults.damaged = false);
    assert!(download.file("org/tiny", None, "config.json", &mut quiet()).is_ok());
}

/// More than was announced was written as long as it came.
#[test]
fn no_more_is_written_than_was_announced() {
    let (hub, folder, files) = (Hub::start(&files()), tempfile::tempdir().unwrap(), files());
    hub.set(|state| state.faults.more = Some(20 << 20));
    let download = download(&hub, folder.path());
    let mut most = 0;
    let mut note = |progress: HubProgress<'_>| most = most.max(progress.received);
    let message = download.file("org/tiny", None, "model.safetensors", &mut note).unwrap_err().to_string();
    let size = files[1].1.len() as u64;
    assert!(message.contains(&format!("more than the {size} bytes come that are announced")), "{message}");
    assert!(most <= size, "{most} of {size}");
    let left: Vec<_> = fs::read_dir(folder.path().join("models--org--tiny/blobs")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    hub.set(|state| state.faults.more = None);
    assert!(download.file("org/tiny", None, "model.safetensors", &mut quiet()).is_ok());
}

#[test]
fn redirects_are_followed_without_the_token() {
    let (hub, other, folder) = (Hub::start(&files()), Hub::start(&files()), tempfile::tempdir().unwrap());
    hub.set(|state| {
        state.contents = Some(other.address.clone());
        state.token = Some("Bearer hf_secret".into());
    });
    let download = download(&hub, folder.path()).token("hf_secret");
    assert!(!format!("{download:?}").contains("hf_secret"));
    let path = download.file("org/tiny", None, "model.safetensors", &mut quiet()).unwrap();
    assert_eq!(&fs::read(path).unwrap(), &files()[1].1);
    let (asked, sent) = (hub.requests(), other.requests());
    assert!(asked.iter().all(|line| line.contains("Bearer hf_secret")), "{asked:?}");
    assert_eq!(sent.len(), 1, "{sent:?}");
    assert!(sent[0].contains("/contents/") && !sent[0].contains("hf_secret"), "{sent:?}");
    // A model with another name than before.
    let path = download.file("old/name", None, "config.json", &mut quiet()).unwrap();
    assert!(path.starts_with(folder.path().join("models--old--name")));
}

#[test]
fn refusals_name_the_model_and_the_file() {
    let (hub, folder) = (Hub::start(&files()), tempfile::tempdir().unwrap());
    let message = |download: &HubDownload, name: &str, file: &str| {
        let error = download.file(name, None, file, &mut quiet()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::File { .. }));
        error.to_string()
    };
    let without = download(&hub, folder.path());
    let found = message(&without, "org/tiny", "vocab.txt");
    assert!(
        found.contains("org/tiny/resolve/main/vocab.txt")
            && found.contains("status 404, the model has no such file"),
        "{found}"
    );
    let found = message(&without, "org/none", "config.json");
    assert!(
        found.contains("org/none/resolve/main/config.json") && found.contains("there is no such model"),
        "{found}"
    );
    hub.set(|state| state.token = Some("Bearer hf_secret".into()));
    let found = message(&without, "org/tiny", "config.json");
    assert!(found.contains("status 401, the model is gated") && found.contains("HF_TOKEN"), "{found}");
    let found = without.model("org/tiny", None, &mut quiet()).unwrap_err().to_string();
    assert!(found.contains("/api/models/org/tiny/revision/main") && found.contains("401"), "{found}");

    let nobody = HubDownload::new(HubCache::at(folder.path())).endpoint("http://127.0.0.1:9");
    let found = message(&nobody, "org/tiny", "config.json");
    assert!(
        found.contains("http://127.0.0.1:9/org/tiny") && found.contains("cannot be downloaded"),
        "{found}"
    );
    let offline = download(&hub, folder.path()).offline(true);
    let found = message(&offline, "org/tiny", "config.json");
    assert!(found.contains("org/tiny was not downloaded"), "{found}");
    assert!(offline.files("org/tiny", None).unwrap_err().to_string().contains("HF_HUB_OFFLINE"));
}

/// Names of files, commits and contents that lead out of the cache.
#[test]
fn nothing_is_written_outside_the_cache() {
    let hub = Hub::start(&[
        ("../evil.json", b"{}".to_vec()),
        ("config.json", b"{}".to_vec()),
        ("model.safetensors", vec![0; 16]),
    ]);
    let outer = tempfile::tempdir().unwrap();
    let folder = outer.path().join("cache");
    let download = download(&hub, &folder);
    download.model("org/tiny", None, &mut quiet()).unwrap();
    for file in ["../evil.json", "/etc/x", "a/../../b", ""] {
        let error = download.file("org/tiny", None, file, &mut quiet()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Invalid { .. }), "{file}: {error}");
    }
    assert!(download.file("org/tiny", Some("../x"), "config.json", &mut quiet()).is_err());
    hub.set(|state| state.etag = Some("../../../evil".into()));
    let message = download.file("org/tiny", None, "config.json", &mut quiet()).unwrap_err().to_string();
    assert!(message.contains("its etag is \"../../../evil\""), "{message}");
    let left: Vec<_> = fs::read_dir(outer.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["cache"]);
}
