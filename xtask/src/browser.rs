//! `cargo xtask browser`: the page of examples/browser. Its tools (examples/browser/serve) are not a member
//! of the workspace, so that other builds do not compile them.

use std::{ffi::OsString, fs, path::PathBuf, process::Command};

use crate::{
    Result,
    workspace::{Workspace, cargo, succeed},
};

const TARGET: &str = "wasm32-unknown-unknown";

/// The profile of the modules.
const PROFILE: &str = "web";

/// The parts of the page, each a feature of the crate and a module, so that a part is loaded when it is used.
const PARTS: [&str; 3] = ["digits", "voice", "language"];

/// The variable with the instructions of WebAssembly that are used.
const RUSTFLAGS: &str = "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS";
/// Every browser with WebGPU has these vector instructions, and so have the others since 2023.
const SIMD: &str = "-C target-feature=+simd128";
/// Not all browsers have these.
const RELAXED_SIMD: &str = "-C target-feature=+simd128,+relaxed-simd";

/// More files of the benchmark: networks, and ONNX Runtime Web in the folder of its npm package.
const BENCH_FILES: [&str; 2] = [
    "crates/onnx/tests/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "crates/onnx/tests/models/basic_pitch.onnx",
];
const PEER_FILES: [&str; 3] =
    ["dist/ort.wasm.min.mjs", "dist/ort-wasm-simd-threaded.mjs", "dist/ort-wasm-simd-threaded.wasm"];

/// Files that the page fetches: a network, a recording with what ONNX Runtime makes of it, conversations, and
/// the studio's sections.
const FILES: [&str; 11] = [
    "crates/onnx/tests/models/silero_vad.onnx",
    "crates/onnx/tests/models/silero_vad.safetensors",
    "examples/language/ships_log.jsonl",
    "crates/studio/page/component.js",
    "crates/studio/page/studio.js",
    "crates/studio/page/common.js",
    "crates/studio/page/curves.js",
    "crates/studio/page/graph.js",
    "crates/studio/page/step.js",
    "crates/studio/page/sections.html",
    "crates/studio/page/studio.css",
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Open the page in Chromium without a window, and check that its networks learn, read, write and hear on
    /// the processor and on the GPU alike, and that every operation of the table is right on both
    #[arg(long)]
    check: bool,
    /// With --check: only the operations whose names begin so
    #[arg(long, default_value = "")]
    only: String,
    /// Open the page in Chromium without a window, and time networks in Taper and in ONNX Runtime Web, each
    /// on one thread; FOLDER is its package: npm pack onnxruntime-web, then unpack
    #[arg(long, value_name = "FOLDER", conflicts_with = "check")]
    vs_onnxruntime_web: Option<PathBuf>,
    /// Form products with fused multiply-add, for browsers that have it (relaxed SIMD): other last bits
    #[arg(long)]
    relaxed_simd: bool,
    /// The port on this machine
    #[arg(long, default_value_t = 8000)]
    port: u16,
    /// A program that builds for wasm32-unknown-unknown, in place of cargo: scripts/wasm_cargo_debian.sh
    /// where rustup has no such target
    #[arg(long)]
    cargo: Option<OsString>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let workspace = Workspace::read()?;
    let built = workspace.target.join(TARGET).join(PROFILE).join("browser.wasm");
    let mut modules = Vec::new();
    let bench = args.vs_onnxruntime_web.is_some();
    for part in PARTS.into_iter().filter(|part| !bench || *part == "voice") {
        let features = match part {
            // Not the part that is loaded first, whose size the page's test judges.
            "voice" if args.check => "voice,operations",
            "voice" if bench => "voice,bench",
            _ => part,
        };
        let mut build = args.cargo.as_ref().map_or_else(cargo, Command::new);
        build
            .current_dir(&workspace.root)
            .env(RUSTFLAGS, if args.relaxed_simd { RELAXED_SIMD } else { SIMD })
            .args(["rustc", "--profile", PROFILE, "--package", "browser", "--lib", "--crate-type", "cdylib"])
            .args(["--no-default-features", "--features", features])
            .args(["--target", TARGET, "--target-dir"])
            .arg(&workspace.target);
        succeed(&mut build, &format!("rustup target add {TARGET}"))?;
        let module = built.with_file_name(format!("{part}.wasm"));
        fs::copy(&built, &module).map_err(|error| format!("{}: {error}", built.display()))?;
        modules.push(format!("--module={part}={}", module.display()));
    }

    let folder = workspace.root.join("examples/browser");
    let mut serve = cargo();
    serve
        .args(["run", "--release", "--quiet", "--manifest-path"])
        .arg(folder.join("serve/Cargo.toml"))
        .arg("--target-dir")
        .arg(workspace.target.join("serve"))
        .arg("--")
        .arg(folder.join("page"))
        .arg(workspace.target.join("page"))
        .args(modules)
        .args(FILES.iter().flat_map(|name| ["--with".into(), workspace.root.join(name)]))
        .args(["--port", &args.port.to_string()]);
    if args.check {
        serve.args(["--check", "--only", &args.only]);
    }
    if let Some(peer) = &args.vs_onnxruntime_web {
        let networks = BENCH_FILES.map(|name| workspace.root.join(name));
        let peer = PEER_FILES.map(|name| peer.join(name));
        serve
            .arg("--bench")
            .args(networks.iter().chain(&peer).flat_map(|file| ["--with".as_ref(), file.as_os_str()]));
    }
    succeed(&mut serve, "see above")
}
