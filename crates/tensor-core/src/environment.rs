//! The variables of the environment that Taper reads. A name that is nearly one of them would otherwise be passed over in silence.

use std::sync::Once;

use strsim::levenshtein;

use crate::platform;

/// Every variable that some part of Taper reads, its tests and tools among them.
pub const VARIABLES: &[&str] = &[
    "TAPER_ADAPTER",
    "TAPER_CACHE_DIR",
    "TAPER_CPU_BF16",
    "TAPER_CPU_ISA",
    "TAPER_CPU_MEMORY_LIMIT",
    "TAPER_DEVICE",
    "TAPER_REQUIRE_WGPU",
    "TAPER_ROUNDS",
    "TAPER_SEED",
    "TAPER_SKIP_LOG",
    "TAPER_THREADS",
    "TAPER_WGPU_AUTOTUNE",
    "TAPER_WGPU_MEMORY_LIMIT",
];

/// What every name begins with, and what the names begin with that tests make up.
const PREFIX: &str = "TAPER_";
const TESTS: &str = "TAPER_TEST_";

/// Writes a line on standard error for each variable that begins with `TAPER_` and is none of [`VARIABLES`] (nor a test's own,
/// `TAPER_TEST_…`), with the nearest name. Once in a process: backends call this where they read their settings.
pub fn note_unknown() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        platform::variables().iter().filter_map(|name| complaint(name)).for_each(|line| platform::say(&line));
    });
}

/// What is said of a variable, if it is one that nobody reads.
fn complaint(name: &str) -> Option<String> {
    if !name.starts_with(PREFIX) || name.starts_with(TESTS) || VARIABLES.contains(&name) {
        return None;
    }
    let nearest = VARIABLES.iter().min_by_key(|known| levenshtein(name, known));
    let near = nearest.filter(|known| levenshtein(name, known) <= (name.len() - PREFIX.len()).div_ceil(2));
    let hint = match near {
        Some(known) => format!("did you mean {known}?"),
        None => format!("there are {}", VARIABLES.join(", ")),
    };
    Some(format!("taper: nothing reads the environment variable {name}; {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nobody_reads_is_said_with_the_nearest() {
        assert_eq!(complaint("TAPER_THREADS"), None);
        assert_eq!(complaint("PATH"), None);
        assert_eq!(complaint("TAPER_TEST_DEVICE"), None);
        for (name, known) in [
            ("TAPER_THREAD", "TAPER_THREADS?"),
            ("TAPER_NUM_THREADS", "TAPER_THREADS?"),
            ("TAPER_MEMORY_LIMIT", "TAPER_CPU_MEMORY_LIMIT?"),
            ("TAPER_CPU_SIA", "TAPER_CPU_ISA?"),
            ("TAPER_DEVICES", "TAPER_DEVICE?"),
        ] {
            let said = complaint(name).unwrap_or_default();
            assert!(said.contains(name) && said.ends_with(&format!("did you mean {known}")), "{said}");
        }
        assert!(complaint("TAPER_Q").unwrap_or_default().contains("there are TAPER_ADAPTER"));
        assert!(VARIABLES.is_sorted());
    }
}
