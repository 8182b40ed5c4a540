//! The program as a whole: help, exit codes, devices, completions.

use crate::common::{json, printed, program, refused};

const COMMANDS: &[&str] = &[
    "devices",
    "chat",
    "complete",
    "embed",
    #[cfg(feature = "serve")]
    "serve",
    "transcribe",
    "classify",
    "detect",
    "run",
    "studio",
    "inspect",
    "convert",
    "compile",
    "perplexity",
    "bench",
    "fine-tune",
    "completions",
];

#[test]
fn every_command_teaches_with_an_example() {
    let overview = printed(&["--help"]);
    for command in COMMANDS {
        assert!(overview.lines().any(|line| line.trim_start().starts_with(command)), "{command}");
        let help = printed(&[command, "--help"]);
        assert!(help.contains(&format!("Examples:\n  taper {command}")), "{help}");
    }
    // The overview has no command that is missing above.
    let listed = overview.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let listed = listed.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   ")).count();
    assert_eq!(listed, COMMANDS.len() + 1, "{overview}"); // and `help`
}

#[test]
fn usage_errors_have_exit_code_2() {
    for arguments in [&[][..], &["sing"], &["chat"], &["convert", "one"], &["classify"]] {
        let output = program(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn devices_are_listed() {
    assert!(printed(&["devices"]).starts_with("cpu: "));
    let devices = json(&["devices", "--json"]);
    let cpu = &devices[0];
    assert_eq!(cpu["name"], "cpu");
    assert!(cpu["dtypes"].as_array().unwrap().iter().any(|dtype| dtype == "f32"));
}

#[test]
fn an_error_says_what_to_do() {
    let message = refused(&["chat", "no/such/model"]);
    assert!(message.contains("no/such/model: there is no such file or folder; give a path"), "{message}");
    let message = refused(&["chat", "org/name"]);
    assert!(message.contains("org/name"), "{message}");
    let message = refused(&["inspect", "Cargo.toml"]);
    assert!(message.contains("Cargo.toml"), "{message}");
    let message = refused(&["chat", "model", "--device", "cuda:0"]);
    assert!(message.contains("wgpu"), "{message}");
}

#[test]
fn shells_get_completions() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = printed(&["completions", shell]);
        assert!(script.contains("fine-tune") && script.contains("temperature"), "{shell}");
    }
}
