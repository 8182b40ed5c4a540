//! `cargo xtask gpu-stats`: compiles kernels with AMD's compiler in Mesa (ACO, in the driver RADV), which
//! needs no GPU, and compares its statistics with the checked-in table `stats.tsv`.
//!
//! | subject | module |
//! |---|---|
//! | the kernels, as WGSL from a device that records but does not run | `kernels` |
//! | WGSL to SPIR-V, as wgpu does it | `spirv` |
//! | Vulkan on the driver's null device: pipelines and their statistics | `vulkan` |
//! | the table and its comparison | `table` |

mod kernels;
#[path = "../../../crates/taper/src/pipe.rs"]
#[allow(unreachable_pub)] // it is public in taper
mod pipe;
mod spirv;
mod table;
mod vulkan;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use clap::Parser;

/// The error is a message for the user of the command.
type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// The GPUs by the names that RADV knows them by, and by those of [`shim`]: RDNA3 and RDNA2. Others of a
/// generation give the same numbers.
const FAMILIES: &[(&str, &str)] = &[("gfx1100", "navi31"), ("navi21", "navi21")];

/// Compiles kernels for AMD's GPUs without a GPU, and compares registers, spills and costs with the table in
/// tools/gpu-stats.
#[derive(Parser)]
#[command(name = "taper-gpu-stats", bin_name = "cargo xtask gpu-stats")]
struct Args {
    /// Write tools/gpu-stats/stats.tsv
    #[arg(long)]
    write: bool,
    /// Only kernels whose name contains this
    #[arg(long, value_name = "TEXT", conflicts_with = "write")]
    filter: Option<String>,
    /// Leave the WGSL of the kernels in this folder
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Print the statistics of the WGSL files in a folder, for the GPU of the environment
    #[arg(long, hide = true, value_name = "FOLDER")]
    compile: Option<PathBuf>,
}

fn main() -> ExitCode {
    pipe::end_quietly_on_closed_pipe();
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    if let Some(folder) = &args.compile {
        return compile(folder);
    }
    let Some(driver) = driver() else {
        println!("skipped: there is no driver RADV here (radeon_icd*.json; on Debian: mesa-vulkan-drivers)");
        return Ok(());
    };
    let temporary = tempfile::tempdir()?;
    let folder = args.keep.as_deref().unwrap_or(temporary.path());
    fs::create_dir_all(folder)?;
    if kernels::write(folder, args.filter.as_deref())? == 0 {
        return Err("no kernel has such a name".into());
    }
    let mut text = String::new();
    for (family, in_shim) in FAMILIES {
        // Drivers read the environment when they are loaded: each GPU has a process of its own.
        let mut command = Command::new(std::env::current_exe()?);
        if let Some(shim) = shim() {
            command.env("LD_PRELOAD", shim).env("AMDGPU_GPU_ID", in_shim);
        }
        let output = command
            .arg("--compile")
            .arg(folder)
            .env("VK_DRIVER_FILES", &driver)
            .env("VK_ICD_FILENAMES", &driver)
            .env("RADV_FORCE_FAMILY", family)
            .output()?;
        if !output.status.success() {
            return Err(format!("{family}: {}", String::from_utf8_lossy(&output.stderr).trim_end()).into());
        }
        text += &String::from_utf8(output.stdout)?;
    }
    let found = table::Table::parse(&text)?;
    match (args.write, &args.filter) {
        (true, _) => found.write(),
        (false, Some(_)) => {
            print!("{}", found.text());
            Ok(())
        }
        (false, None) => found.check(),
    }
}

/// The library that plays an AMD GPU for newer versions of Mesa, which have no null device (on Debian:
/// mesa-drm-shim).
fn shim() -> Option<PathBuf> {
    let folders = fs::read_dir("/usr/lib").ok()?.flatten().map(|folder| folder.path());
    folders.map(|folder| folder.join("libamdgpu_noop_drm_shim.so")).find(|path| path.exists())
}

/// The file that describes RADV to Vulkan's loader.
fn driver() -> Option<PathBuf> {
    let folders = ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d"];
    let files = folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    files.map(|file| file.path()).find(|path| {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        name.starts_with("radeon_icd") && name.ends_with(".json")
    })
}

/// Prints a line of statistics for each WGSL file of a folder.
fn compile(folder: &Path) -> Result<()> {
    let gpu = vulkan::Gpu::open()?;
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|file| Ok(file?.path())).collect::<Result<_>>()?;
    files.retain(|path| path.extension().is_some_and(|extension| extension == "wgsl"));
    files.sort();
    for path in files {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs::read_to_string(&path)?;
        if text.contains("coopMultiplyAdd") && !gpu.has_matrix_units() {
            continue;
        }
        let shader = spirv::Shader::compile(&text).map_err(|e| format!("{name}: {e}"))?;
        let statistics = gpu.statistics(&shader).map_err(|e| format!("{name}: {e}"))?;
        print!("{}", table::line(gpu.name(), gpu.driver(), &name, &statistics)?);
    }
    Ok(())
}
