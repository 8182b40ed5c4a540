//! Makes a page of a WebAssembly module, and serves it; or opens it in a browser without a window and checks
//! what it does.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use clap::Parser;
use serde_json::Value;
use tiny_http::{Header, Method, Request, Response, Server};
use wasm_bindgen_cli_support::Bindgen;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Serves the page of a WebAssembly module.
#[derive(Parser)]
struct Options {
    /// The module, as cargo makes it
    module: PathBuf,
    /// The folder of the page
    page: PathBuf,
    /// Where the page is put together
    out: PathBuf,
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
    fs::create_dir_all(&options.out)?;
    Bindgen::new().input_path(&options.module).web(true)?.typescript(false).generate(&options.out)?;
    for entry in fs::read_dir(&options.page)? {
        let entry = entry?;
        fs::copy(entry.path(), options.out.join(entry.file_name()))?;
    }
    for file in &options.with {
        let name = file.file_name().ok_or_else(|| format!("{}: no file", file.display()))?;
        fs::copy(file, options.out.join(name)).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let port = if options.check { 0 } else { options.port };
    let server = Server::http(("127.0.0.1", port)).map_err(|e| format!("port {port}: {e}"))?;
    let address = server.server_addr();
    if options.check {
        return check(&server, &options.out, &format!("http://{address}/?check={}", options.only));
    }
    println!("http://{address}/ (Ctrl-C ends it)");
    for request in server.incoming_requests() {
        serve(request, &options.out)?;
    }
    Ok(())
}

/// Answers a request with a file of the folder.
fn serve(request: Request, folder: &Path) -> Outcome {
    let path = request.url().split('?').next().unwrap_or_default().trim_start_matches('/').to_owned();
    let name = if path.is_empty() { "index.html".to_owned() } else { path };
    let kind = match name.rsplit_once('.').map(|(_, end)| end) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript",
        Some("wasm") => "application/wasm",
        _ => "application/octet-stream",
    };
    // The folder has no folders: nothing above it is reached.
    let file = if name.contains(['/', '\\']) { None } else { fs::read(folder.join(&name)).ok() };
    let header = Header::from_bytes("Content-Type", kind).map_err(|()| "a header")?;
    match file {
        Some(bytes) => request.respond(Response::from_data(bytes).with_header(header))?,
        None => request.respond(Response::empty(404))?,
    }
    Ok(())
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

/// Opens the page and judges what it sends back.
fn check(server: &Server, folder: &Path, url: &str) -> Outcome {
    // A page that says nothing for so long has come to a stop.
    const LONG: Duration = Duration::from_secs(300);
    let profile = tempfile::tempdir()?;
    let mut browser = open(url, profile.path())?;
    let (mut heard, mut doing) = (Instant::now(), "starting".to_string());
    while heard.elapsed() < LONG {
        if let Some(status) = browser.0.try_wait()? {
            return Err(format!("the browser ended: {status}").into());
        }
        let Some(mut request) = server.recv_timeout(Duration::from_secs(1))? else { continue };
        if *request.method() != Method::Post {
            serve(request, folder)?;
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
            None => judge(&results),
        };
    }
    Err(format!("the page has sent nothing for {} s; its last word: {doing}", LONG.as_secs()).into())
}

fn judge(results: &Value) -> Outcome {
    let mut first = Vec::new();
    for device in ["cpu", "wgpu"] {
        let result = &results[device];
        if let Some(error) = result["error"].as_str() {
            return Err(format!("{device}: {error}").into());
        }
        let epochs = result["epochs"].as_array().ok_or_else(|| format!("{device}: no epochs"))?;
        let number = |epoch: Option<&Value>, what: &str| {
            epoch.and_then(|epoch| epoch[what].as_f64()).ok_or_else(|| format!("{device}: no {what}"))
        };
        let (loss, accuracy) = (number(epochs.first(), "loss")?, number(epochs.last(), "accuracy")?);
        println!(
            "{device}, {}: loss of the first epoch {loss:.6}, test accuracy {accuracy:.4}, {:.1} s",
            result["description"].as_str().unwrap_or_default(),
            result["seconds"].as_f64().unwrap_or_default()
        );
        if accuracy < 0.95 {
            return Err(format!("{device}: accuracy {accuracy}, expected 0.95").into());
        }
        first.push(loss);
    }
    judge_voice(&results["voice"])?;
    if let Some(operations) = results.get("operations") {
        let wrong = operations["wrong"].as_array().ok_or("operations: no list of what is wrong")?;
        println!("wgpu: {} rows of the table of operations, {} of them wrong", operations["count"], wrong.len());
        if !wrong.is_empty() {
            let lines: Vec<&str> = wrong.iter().filter_map(Value::as_str).collect();
            return Err(lines.join("\n").into());
        }
    }
    if (first[0] - first[1]).abs() > 1e-4 {
        return Err(format!("the first epoch's losses differ: {first:?}").into());
    }
    Ok(())
}

/// Checks the probabilities of speech against ONNX Runtime's, which the page sends along.
fn judge_voice(voice: &Value) -> Outcome {
    const TOLERANCE: f64 = 1e-4;
    for device in ["cpu", "wgpu"] {
        let result = &voice[device];
        if let Some(error) = result["error"].as_str() {
            return Err(format!("voice on {device}: {error}").into());
        }
        let numbers = |name: &str| -> Vec<f64> {
            result[name].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
        };
        let (found, wanted) = (numbers("probabilities"), numbers("wanted"));
        let apart = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        println!(
            "voice on {device}: {} chunks, at most {apart:.1e} from ONNX Runtime, {:.1} ms each, the first {:.0} ms",
            found.len(),
            result["milliseconds"].as_f64().unwrap_or_default(),
            result["first"].as_f64().unwrap_or_default()
        );
        let speech = found.iter().filter(|&&p| p >= 0.5).count();
        if found.len() != wanted.len() || speech < 20 || apart > TOLERANCE {
            return Err(format!("voice on {device}: {speech} chunks of speech, {apart:.1e} apart").into());
        }
    }
    Ok(())
}
