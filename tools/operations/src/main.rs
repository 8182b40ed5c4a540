//! The program that `cargo xtask operations` runs: `questions` and `integer-questions` for the script of
//! fixtures, `page` for docs/operations.md, `dealt FORM@DAY` for what a run on a GPU takes, `check NAME
//! [DEVICE]` for the rows whose name contains NAME, or one of several names with commas between.

use std::process::ExitCode;

use taper_operations::{
    Bench, Draw, Row,
    check::Verdict,
    fixtures::{Answers, IntegerFile, integer_questions, key},
    page, questions, rows,
};
use taper_testing::deal::Deal;

fn main() -> ExitCode {
    taper::end_quietly_on_closed_pipe();
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["questions"] => println!("{}", questions(&rows())),
        ["integer-questions"] => println!("{}", integer_questions(&rows())),
        ["page"] => print!("{}", page()),
        ["dealt", deal] => match deal.parse::<Deal>() {
            Ok(deal) => print!("{}", Draw::dealt(deal.form, deal.day).list()),
            Err(message) => return said(&message),
        },
        ["check", name] => return check(name, "cpu"),
        ["check", name, device] => return check(name, device),
        _ => {
            eprintln!(
                "error: say questions, integer-questions, page, dealt FORM@DAY, or check NAME [DEVICE]"
            );
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Runs all checks of the rows with a name, and prints the failures.
fn check(name: &str, device: &str) -> ExitCode {
    let (answers, integers) =
        match (read("operations").map(Answers::of), read::<IntegerFile>("operations_integers")) {
            (Ok(answers), Ok(integers)) => (answers, integers.answers()),
            (Err(e), _) | (_, Err(e)) => return said(&e),
        };
    let bench = match taper::device(device) {
        Ok(device) => Bench::new(device),
        Err(e) => return said(&e.to_string()),
    };
    type Check<'a> = (&'a str, Box<dyn Fn(&Row) -> Verdict + 'a>);
    let mut checks: Vec<Check<'_>> = vec![
        ("forward", Box::new(|row| bench.forward(row))),
        ("layouts", Box::new(|row| bench.layouts(row))),
        ("sizes", Box::new(|row| bench.sizes(row))),
        ("gradients", Box::new(|row| bench.gradients(row))),
        ("vmap", Box::new(|row| bench.mapped(row))),
        ("Jacobian", Box::new(|row| bench.jacobians(row))),
        ("bad input", Box::new(|row| bench.bad_input(row))),
        ("PyTorch", Box::new(|row| bench.torch(row, answers.get(&key(row))))),
        ("integers", Box::new(|row| bench.integers(row, &integers))),
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

/// A file of PyTorch's answers.
fn read<T: serde::de::DeserializeOwned>(name: &str) -> Result<T, String> {
    let path = format!("{}/../../crates/taper/tests/fixtures/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
    serde_json::from_str(&text).map_err(|e| format!("{path}: {e}"))
}

fn said(message: &str) -> ExitCode {
    eprintln!("error: {message}");
    ExitCode::FAILURE
}
