//! `cargo xtask operations`: docs/operations.md, from the table in tools/operations. The suite fails if it
//! is out of date.

use std::{fs, process::Command};

use crate::{
    Result,
    workspace::{Workspace, build_tool, output},
};

const PAGE: &str = "docs/operations.md";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print the inputs for PyTorch instead, as JSON: scripts/torch_fixtures.py reads it
    #[arg(long)]
    questions: bool,
    /// Print the inputs for PyTorch with integers and bools instead, as JSON
    #[arg(long, conflicts_with = "questions")]
    integer_questions: bool,
    /// Print the rows that a run on a GPU takes instead, with the cases of each: `tiled@20785`, as
    /// test-all-backends names it
    #[arg(long, value_name = "FORM@DAY", conflicts_with = "questions")]
    dealt: Option<String>,
    /// Run all checks of the rows whose name contains this instead, and print the failures
    #[arg(long, value_name = "NAME", conflicts_with = "questions")]
    check: Option<String>,
    /// The device for --check
    #[arg(long, default_value = "cpu")]
    device: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let program = build_tool("taper-operations")?;
    if args.questions {
        print!("{}", output(Command::new(program).arg("questions"))?);
        return Ok(());
    }
    if args.integer_questions {
        print!("{}", output(Command::new(program).arg("integer-questions"))?);
        return Ok(());
    }
    if let Some(deal) = &args.dealt {
        print!("{}", output(Command::new(program).args(["dealt", deal]))?);
        return Ok(());
    }
    if let Some(name) = &args.check {
        let status = Command::new(program).args(["check", name, &args.device]).status();
        return match status {
            Ok(status) if status.success() => Ok(()),
            Ok(_) => Err("rows that do not hold, or none of that name".into()),
            Err(e) => Err(format!("taper-operations cannot be run: {e}")),
        };
    }
    let page = output(Command::new(program).arg("page"))?;
    let path = Workspace::read()?.root.join(PAGE);
    fs::write(&path, page).map_err(|e| format!("{PAGE} cannot be written: {e}"))?;
    println!("{PAGE} is written");
    Ok(())
}
