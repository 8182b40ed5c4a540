//! Programs in C on QEMU's Cortex-M4, which has 256 KiB of flash and 64 KiB of RAM.

use std::{fmt::Write, fs, path::PathBuf, process::Command};

use ship::Shipment;
use taper_testing::settings::{setting, skip};
use tensor_core::DType;

/// The instructions of a tick of the clock.
const TICK: u64 = 40;

const MAIN: &str = "\
#include \"NAME.h\"
#include <stddef.h>
static NAME_arena arena;
static float y0[RESULTS];
ARGUMENTS
int network(unsigned char **result, size_t *bytes) {
    *result = (unsigned char *)y0;
    *bytes = sizeof y0;
    return NAME_run(&arena, VALUES, y0);
}
";

fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

/// The only result of a program of f32, and the instructions of its call; none where there is no QEMU, unless
/// `TAPER_TEST` has `require=` with `qemu`.
pub(crate) fn run(program: &Shipment, name: &str, arguments: &[Vec<u8>]) -> Option<(Vec<u8>, u64)> {
    let qemu = "qemu-system-arm";
    if Command::new(qemu).arg("--version").output().is_err() {
        let required = setting("require").is_some_and(|names| names.split('+').any(|name| name == "qemu"));
        assert!(!required, "there is no {qemu}");
        skip("its program is not run on a microcontroller: apt-get install qemu-system-arm");
        return None;
    }
    assert!(program.arguments().chain(program.results()).all(|(_, dtype)| dtype == DType::F32));
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    program.write(folder.path()).unwrap();
    let mut arrays = String::new();
    for (k, bytes) in arguments.iter().enumerate() {
        let numbers = bytes.chunks_exact(4).map(|four| f32::from_ne_bytes(four.try_into().unwrap()));
        let numbers: Vec<String> = numbers.map(|x| format!("{x:?}f")).collect();
        writeln!(arrays, "static const float x{k}[] = {{{}}};", numbers.join(", ")).unwrap();
    }
    let values: Vec<String> = (0..arguments.len()).map(|k| format!("x{k}")).collect();
    let results = program.results().map(|(shape, _)| shape.numel()).sum::<usize>().to_string();
    let main = MAIN.replace("NAME", name).replace("RESULTS", &results).replace("ARGUMENTS", &arrays);
    fs::write(file("main.c"), main.replace("VALUES", &values.join(", "))).unwrap();
    fs::write(file("qemu.c"), include_str!("qemu.c")).unwrap();
    let mut build = Command::new("clang");
    build.current_dir(folder.path()).args(["--target=thumbv7em-none-eabihf", "-mcpu=cortex-m4"]);
    build.args(["-mfloat-abi=hard", "-O2", "-std=gnu99", "-ffreestanding", "-fno-builtin", "-c"]);
    succeeds(build.args(["main.c", "qemu.c", &format!("{name}.c")]));
    let sysroot = succeeds(Command::new("rustc").args(["--print", "sysroot"]));
    let host = succeeds(Command::new("rustc").arg("-vV"));
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_string();
    let linker = PathBuf::from(sysroot.trim()).join("lib/rustlib").join(host).join("bin/rust-lld");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/ship/firmware/arm.x");
    let mut link = Command::new(linker);
    link.current_dir(folder.path()).args(["-flavor", "gnu", "-T", script, "--entry=start", "-o", "program"]);
    succeeds(link.args(["main.o", "qemu.o", &format!("{name}.o")]));
    let mut start = Command::new(qemu);
    start.args(["-machine", "mps2-an386", "-nographic", "-icount", "shift=0"]);
    start.args(["-semihosting-config", "enable=on,target=native", "-kernel"]).arg(file("program"));
    let text = succeeds(&mut start);
    let mut lines = text.lines().filter(|line| !line.is_empty()).map(|line| {
        let digit = |k: usize| u8::from_str_radix(&line[k..k + 2], 16).unwrap_or_else(|_| panic!("{text}"));
        (0..line.len() / 2).map(|k| digit(2 * k)).collect::<Vec<u8>>()
    });
    let (result, ticks) = (lines.next().unwrap(), lines.next().unwrap());
    Some((result, u64::from(u32::from_le_bytes(ticks.try_into().unwrap())) * TICK))
}
