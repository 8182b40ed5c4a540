//! `taper completions`: scripts by which shells complete the options of `taper`.

use std::io::{self, Write};

use clap::{Args, Command};
use clap_complete::{Shell, generate};

use crate::error::Outcome;

/// Prints a script by which a shell completes the commands and options of `taper`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  taper completions bash > ~/.local/share/bash-completion/completions/taper
  taper completions fish > ~/.config/fish/completions/taper.fish
  taper completions zsh > \"${fpath[1]}/_taper\"")]
pub(crate) struct Options {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script for a command.
pub(crate) fn run(options: &Options, command: &mut Command) -> Outcome {
    let mut script = Vec::new();
    generate(options.shell, command, "taper", &mut script);
    Ok(io::stdout().write_all(&script)?)
}
