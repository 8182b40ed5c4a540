//! Makes a page of WebAssembly modules, and serves it; or opens it in a browser without a window and checks
//! or times what it does.

mod bench;
mod files;
mod judge;

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use clap::Parser;
use files::Files;
use serde_json::Value;
use tiny_http::{Header, Method, Request, Response, Server};
use wasm_bindgen_cli_support::Bindgen;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Serves the page of WebAssembly modules.
#[derive(Parser)]
struct Options {
    /// The folder of the page
    page: PathBuf,
    /// Where the page is put together
    out: PathBuf,
    /// A module as cargo makes it, with its name in the page: NAME=FILE; may be given several times
    #[arg(long = "module", value_name = "NAME=FILE")]
    modules: Vec<String>,
    /// Another file that the page fetches; may be given several times
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// The port on this machine
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// Open the page in Chromium without a window, and check what it sends back: that it learns and hears on
    /// the processor and on the GPU alike
    #[arg(long)]
    check: bool,
    /// With --check: the operations whose names begin so
    #[arg(long, default_value = "")]
    only: String,
    /// Open the page in Chromium without a window, and print the times of networks in Taper and in ONNX
    /// Runtime Web
    #[arg(long)]
    bench: bool,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Outcome {
    if options.out.exists() {
        fs::remove_dir_all(&options.out)?;
    }
    fs::create_dir_all(&options.out)?;
    for module in &options.modules {
        let (name, path) = module.split_once('=').ok_or_else(|| format!("{module}: expected NAME=FILE"))?;
        let mut bindgen = Bindgen::new();
        bindgen.input_path(path).out_name(&format!("{name}_module"));
        bindgen.web(true)?.typescript(false).generate(&options.out)?;
    }
    for entry in fs::read_dir(&options.page)? {
        let path = entry?.path();
        files::require_no_address(&path)?;
        copy(&path, &options.out)?;
    }
    options.with.iter().try_for_each(|path| copy(path, &options.out))?;
    let files = Files::read(&options.out)?;
    print!("{}", files.table());
    let port = if options.check || options.bench { 0 } else { options.port };
    let server = Server::http(("127.0.0.1", port)).map_err(|e| format!("port {port}: {e}"))?;
    let address = server.server_addr();
    if options.check {
        let url = format!("http://{address}/?check={}", options.only);
        return judge::all(&results(&server, &files, &url)?, &url);
    }
    if options.bench {
        return bench::table(&results(&server, &files, &format!("http://{address}/?bench"))?);
    }
    println!("http://{address}/ (Ctrl-C ends it)");
    for request in server.incoming_requests() {
        serve(request, &files)?;
    }
    Ok(())
}

fn copy(file: &Path, folder: &Path) -> Outcome {
    let name = file.file_name().ok_or_else(|| format!("{}: no file", file.display()))?;
    fs::copy(file, folder.join(name)).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(())
}

/// Answers a request with a file of the page, compressed if the browser accepts that.
fn serve(request: Request, files: &Files) -> Outcome {
    let name = request.url().split('?').next().unwrap_or_default().trim_start_matches('/').to_owned();
    let accepted = request.headers().iter().find(|header| header.field.equiv("Accept-Encoding"));
    let accepted = accepted.map(|header| header.value.to_string()).unwrap_or_default();
    let Some((kind, encoding, bytes)) = files.answer(&name, &accepted) else {
        return Ok(request.respond(Response::empty(404))?);
    };
    let header = |field: &str, value: &str| Header::from_bytes(field, value).map_err(|()| "a header");
    let mut response = Response::from_data(bytes).with_header(header("Content-Type", kind)?);
    if let Some(encoding) = encoding {
        response.add_header(header("Content-Encoding", encoding)?);
    }
    // tiny_http sends bodies above 32 KB in chunks otherwise.
    Ok(request.respond(response.with_chunked_threshold(usize::MAX))?)
}

/// A browser that ends with this.
struct Browser(Child);

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn open(url: &str, profile: &Path) -> Outcome<Browser> {
    const NAMES: [&str; 4] = ["chromium", "google-chrome", "chromium-browser", "chrome"];
    for name in NAMES {
        let started = Command::new(name)
            .args([
                "--headless",
                "--no-sandbox",
                "--enable-unsafe-webgpu",
                "--no-first-run",
                "--disable-dev-shm-usage",
            ])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(url)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        if let Ok(child) = started {
            return Ok(Browser(child));
        }
    }
    Err(format!("no browser: none of {} is installed", NAMES.join(", ")).into())
}

/// Opens the page and waits for what it sends back.
fn results(server: &Server, files: &Files, url: &str) -> Outcome<Value> {
    // A page that says nothing for so long has come to a stop.
    const MAX_SILENCE: Duration = Duration::from_secs(300);
    let profile = tempfile::tempdir()?;
    let mut browser = open(url, profile.path())?;
    let (mut heard, mut doing) = (Instant::now(), "starting".to_string());
    while heard.elapsed() < MAX_SILENCE {
        if let Some(status) = browser.0.try_wait()? {
            return Err(format!("the browser ended: {status}").into());
        }
        let Some(mut request) = server.recv_timeout(Duration::from_secs(1))? else { continue };
        if *request.method() != Method::Post {
            serve(request, files)?;
            continue;
        }
        heard = Instant::now();
        if request.url() == "/doing" {
            doing.clear();
            request.as_reader().read_to_string(&mut doing)?;
            request.respond(Response::empty(204))?;
            continue;
        }
        let results: Value = serde_json::from_reader(request.as_reader())?;
        request.respond(Response::empty(204))?;
        return match results["error"].as_str() {
            Some(error) => Err(format!("at {doing}: {error}").into()),
            None => Ok(results),
        };
    }
    Err(format!("the page has sent nothing for {} s; its last word: {doing}", MAX_SILENCE.as_secs()).into())
}
