//! What `cargo xtask operations` runs: `questions` for the script of fixtures, `page` for docs/operations.md, `check NAME [DEVICE]` for the
//! rows whose name contains NAME, or one of several names with commas between.

use std::process::ExitCode;

use taper_operations::{
    Bench, Row,
    check::Verdict,
    fixtures::{Answers, key},
    page, questions, rows,
};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["questions"] => println!("{}", questions(&rows())),
        ["page"] => print!("{}", page()),
        ["check", name] => return check(name, "cpu"),
        ["check", name, device] => return check(name, device),
        _ => {
            eprintln!("error: say questions, page, or check NAME [DEVICE]");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Holds the rows of a name to everything, and says what is wrong.
fn check(name: &str, device: &str) -> ExitCode {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../taper/tests/fixtures/operations.json");
    let answers = std::fs::read_to_string(path).map_err(|e| e.to_string());
    let answers =
        answers.and_then(|text| Ok(Answers::of(serde_json::from_str(&text).map_err(|e| e.to_string())?)));
    let (answers, bench) = match (answers, taper::device(device)) {
        (Ok(answers), Ok(device)) => (answers, Bench::new(device)),
        (Err(e), _) => return said(&format!("{path}: {e}")),
        (_, Err(e)) => return said(&e.to_string()),
    };
    type Check<'a> = (&'a str, Box<dyn Fn(&Row) -> Verdict + 'a>);
    let mut checks: Vec<Check<'_>> = vec![
        ("forward", Box::new(|row| bench.forward(row))),
        ("layouts", Box::new(|row| bench.layouts(row))),
        ("gradients", Box::new(|row| bench.gradients(row))),
        ("bad input", Box::new(|row| bench.bad_input(row))),
        ("PyTorch", Box::new(|row| bench.torch(row, answers.get(&key(row))))),
    ];
    if device == "cpu" {
        checks.push(("derivatives", Box::new(|row| bench.derivatives(row))));
    }
    let rows: Vec<Row> =
        rows().into_iter().filter(|row| name.split(',').any(|name| row.name.contains(name))).collect();
    let mut wrong = 0;
    for (what, check) in &checks {
        let start = std::time::Instant::now();
        for row in &rows {
            if let Err(message) = check(row) {
                wrong += 1;
                println!("{}: {what}: {message}", row.label());
            }
        }
        println!("{what}: {} rows, {:.1} s", rows.len(), start.elapsed().as_secs_f64());
    }
    if rows.is_empty() || wrong > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn said(message: &str) -> ExitCode {
    eprintln!("error: {message}");
    ExitCode::FAILURE
}
