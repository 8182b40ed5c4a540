//! Environment variables that Taper does not read. Without a warning, a misspelled name would be ignored
//! silently.

use std::io::Write;

use strsim::levenshtein;

/// The prefix of every name, and the prefix of names that tests use.
const PREFIX: &str = "TAPER_";
const TESTS: &str = "TAPER_TEST";

/// Prints a line on stderr for each variable that begins with `TAPER_` and is not in `known` (nor used by
/// tests, `TAPER_TEST…`), with the most similar name.
pub(crate) fn note_unknown(known: &[&str]) {
    // A browser has no environment, and reading it fails there.
    if cfg!(all(target_family = "wasm", target_os = "unknown")) {
        return;
    }
    for (name, _) in std::env::vars_os() {
        if let Some(line) = complaint(&name.to_string_lossy(), known) {
            // A closed stderr is not an error.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
}

/// The warning about a variable that Taper does not read, or none.
fn complaint(name: &str, known: &[&str]) -> Option<String> {
    if !name.starts_with(PREFIX) || name.starts_with(TESTS) || known.contains(&name) {
        return None;
    }
    let nearest = known.iter().min_by_key(|known| levenshtein(name, known));
    let near = nearest.filter(|known| levenshtein(name, known) <= (name.len() - PREFIX.len()).div_ceil(2));
    let hint = match near {
        Some(known) => format!("did you mean {known}?"),
        None => format!("there are {}", known.join(", ")),
    };
    Some(format!("taper: nothing reads the environment variable {name}; {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["TAPER_DEVICE", "TAPER_CPU_ISA", "TAPER_CPU_MEMORY_LIMIT", "TAPER_THREADS"];

    #[test]
    fn a_name_that_nobody_reads_is_said_with_the_nearest() {
        assert_eq!(complaint("TAPER_THREADS", KNOWN), None);
        assert_eq!(complaint("PATH", KNOWN), None);
        assert_eq!(complaint("TAPER_TEST", KNOWN), None);
        for (name, known) in [
            ("TAPER_THREAD", "TAPER_THREADS?"),
            ("TAPER_NUM_THREADS", "TAPER_THREADS?"),
            ("TAPER_MEMORY_LIMIT", "TAPER_CPU_MEMORY_LIMIT?"),
            ("TAPER_CPU_SIA", "TAPER_CPU_ISA?"),
            ("TAPER_DEVICES", "TAPER_DEVICE?"),
        ] {
            let said = complaint(name, KNOWN).unwrap_or_default();
            assert!(said.contains(name) && said.ends_with(&format!("did you mean {known}")), "{said}");
        }
        assert!(
            complaint("TAPER_Q", KNOWN).unwrap_or_default().contains("there are TAPER_DEVICE, TAPER_CPU_ISA")
        );
    }
}
