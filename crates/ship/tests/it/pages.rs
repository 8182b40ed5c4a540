//! Programs of several functions on a page in Chromium without a window: a server of files, and a page that
//! sends all results back.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Sender, channel},
    thread,
    time::Duration,
};

use taper_testing::settings::{setting, skip};

/// The time for all programs of a page, on a GPU in software.
const MAX_DURATION: Duration = Duration::from_secs(600);

/// Runs the programs with these names in a folder, each with its arguments from the file `input`.
const PAGE: &str = "\
<script type=module>
  try {
    const input = await (await fetch('input')).arrayBuffer();
    const results = [];
    let at = 0;
    for (const name of NAMES) {
      document.title = name;
      const program = await import(`./${name}.js`);
      const values = program.inputs.map((input_) => {
        const zeros = program.zeros(input_);
        const value = new zeros.constructor(input.slice(at, at + zeros.byteLength));
        at += zeros.byteLength;
        return value;
      });
      const network = await program.load();
      for (const y of await network.run(...values)) results.push(y.slice());
    }
    await fetch('output', { method: 'POST', body: new Blob(results) });
  } catch (error) {
    await fetch('error', { method: 'POST', body: `${document.title}: ${error.stack}` });
  }
</script>
";

/// A browser that ends with this.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn open(url: &str, profile: &Path) -> Option<Browser> {
    let names = ["chromium", "google-chrome", "chromium-browser", "chrome"];
    names.iter().find_map(|name| {
        let mut command = Command::new(name);
        command.args(["--headless", "--no-sandbox", "--enable-unsafe-webgpu", "--no-first-run"]);
        command.args(["--disable-dev-shm-usage"]).arg(format!("--user-data-dir={}", profile.display()));
        command.arg(url).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok().map(Browser)
    })
}

/// The results of the programs in a folder, one after the other, or the page's error; none where there is no
/// browser, unless `TAPER_TEST` has `require=` with `chromium`.
pub(crate) fn results(folder: &Path, names: &[&str]) -> Option<Result<Vec<u8>, String>> {
    let list: Vec<String> = names.iter().map(|name| format!("'{name}'")).collect();
    fs::write(folder.join("index.html"), PAGE.replace("NAMES", &format!("[{}]", list.join(", ")))).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let (sender, receiver) = channel();
    let files = folder.to_path_buf();
    thread::spawn(move || {
        // A browser opens connections before it needs them, so each has a thread.
        for stream in listener.incoming().flatten() {
            let (files, sender) = (files.clone(), sender.clone());
            thread::spawn(move || answer(stream, &files, &sender));
        }
    });
    let profile = tempfile::tempdir().unwrap();
    let Some(_browser) = open(&url, profile.path()) else {
        let required =
            setting("require").is_some_and(|names| names.split('+').any(|name| name == "chromium"));
        assert!(!required, "there is no Chromium");
        skip("its program is not run on a page: apt-get install chromium");
        return None;
    };
    Some(receiver.recv_timeout(MAX_DURATION).unwrap())
}

/// Answers a request: a file, or what the page sends.
fn answer(mut stream: TcpStream, files: &Path, sender: &Sender<Result<Vec<u8>, String>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).ok()?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
    }
    let mut words = first.split_whitespace();
    let (method, path) = (words.next()?, words.next()?.trim_start_matches('/'));
    if method == "POST" {
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let text = String::from_utf8_lossy(&body).into_owned();
        sender.send(if path == "error" { Err(text) } else { Ok(body) }).ok()?;
    }
    let name = if path.is_empty() { "index.html" } else { path };
    let kind = match PathBuf::from(name).extension().and_then(|ext| ext.to_str()) {
        Some("js") => "text/javascript",
        Some("html") => "text/html",
        _ => "application/octet-stream",
    };
    let file = if method == "GET" { fs::read(files.join(name)).ok() } else { Some(Vec::new()) };
    let status = if file.is_some() { "200 OK" } else { "404 Not Found" };
    let file = file.unwrap_or_default();
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n", file.len());
    stream.write_all(format!("{head}Connection: close\r\n\r\n").as_bytes()).ok()?;
    stream.write_all(&file).ok()
}
