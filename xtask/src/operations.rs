//! `cargo xtask operations`: docs/operations.md, from the table in crates/operations. The suite fails while it is not current.

use std::{fs, process::Command};

use crate::{
    Result,
    workspace::{Workspace, build_tool, output},
};

const PAGE: &str = "docs/operations.md";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print what PyTorch is asked instead, as JSON: scripts/torch_fixtures.py reads it
    #[arg(long)]
    questions: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let program = build_tool("taper-operations")?;
    if args.questions {
        print!("{}", output(Command::new(program).arg("questions"))?);
        return Ok(());
    }
    let page = output(Command::new(program).arg("page"))?;
    let path = Workspace::read()?.root.join(PAGE);
    fs::write(&path, page).map_err(|e| format!("{PAGE} cannot be written: {e}"))?;
    println!("{PAGE} is written");
    Ok(())
}
