//! A shipped program on this computer: its C, compiled with a loop over rows, gives results for all of them.

use std::{
    error::Error,
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use taper::{prelude::*, ship::Shipment};

/// Reads rows from the standard input, and writes their results.
const MAIN: &str = "\
#include <stdio.h>
#include \"NAME.h\"
static NAME_arena arena;
static float x[INPUTS], y[OUTPUTS];
int main(void) {
    while (fread(x, sizeof x, 1, stdin) == 1) {
        if (NAME_run(&arena, x, y) || fwrite(y, sizeof y, 1, stdout) != 1) return 1;
    }
    return 0;
}
";

/// The bytes of rows of f32.
fn bytes(rows: &Tensor) -> Result<Vec<u8>> {
    Ok(rows.to_vec::<f32>()?.iter().flat_map(|x| x.to_ne_bytes()).collect())
}

/// The results of a program in C for these rows, `[N, outputs]`. The first `checked` rows are interpreted
/// too, and have the same bits.
pub(crate) fn results(
    program: &Shipment,
    name: &str,
    folder: &Path,
    rows: &Tensor,
    checked: usize,
) -> std::result::Result<Tensor, Box<dyn Error>> {
    let count = rows.shape()[0];
    let sizes = [program.arguments().next(), program.results().next()];
    let [inputs, outputs] = sizes.map(|of| of.map_or(0, |(shape, _)| shape.numel()));
    fs::create_dir_all(folder)?;
    program.write(folder)?;
    let main = MAIN.replace("NAME", name).replace("INPUTS", &inputs.to_string());
    fs::write(folder.join("main.c"), main.replace("OUTPUTS", &outputs.to_string()))?;
    let mut compiler = Command::new("cc");
    compiler.current_dir(folder).args(["-std=c99", "-O2", "-ffp-contract=off", "main.c"]);
    compiler.args([&format!("{name}.c"), "-o", "program", "-lm"]);
    let status = compiler.status().map_err(|error| format!("a compiler of C, `cc`, is needed: {error}"))?;
    if !status.success() {
        return Err(format!("{compiler:?}: {status}").into());
    }
    let input = bytes(rows)?;
    let mut child = Command::new(folder.canonicalize()?.join("program"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut pipe = child.stdin.take().ok_or("the program has no input")?;
    let rows = input.clone();
    let writer = std::thread::spawn(move || pipe.write_all(&rows));
    let output = child.wait_with_output()?;
    writer.join().map_err(|_| "the rows were not written")??;
    if !output.status.success() || output.stdout.len() != count * outputs * 4 {
        return Err(
            format!("{name}: the program gave {} bytes, {}", output.stdout.len(), output.status).into()
        );
    }
    for (k, row) in input.chunks_exact(inputs * 4).take(checked).enumerate() {
        let expected = program.interpret(&[row.to_vec()])?.remove(0);
        if output.stdout[k * outputs * 4..][..outputs * 4] != expected {
            return Err(format!("{name}: the bits of row {k} are not those of the interpreter").into());
        }
    }
    let numbers =
        output.stdout.chunks_exact(4).map(|four| f32::from_ne_bytes([four[0], four[1], four[2], four[3]]));
    Ok(Tensor::from_vec(numbers.collect(), [count, outputs], &taper::cpu())?)
}
