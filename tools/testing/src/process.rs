//! Tests that need their own process, because they set environment variables, lose a device, or measure
//! the whole process. The test program is started again for that one test.

use std::process::Command;

/// The environment variable that [`run_alone`] sets in its child process, to the name of the test.
const ALONE: &str = "TAPER_TEST_ALONE";

/// The name of a test in its program's list, `module::test`.
fn name_of<F>(_: &F) -> &'static str {
    let path = std::any::type_name::<F>();
    path.split_once("::").map_or(path, |(_program, name)| name)
}

/// A command that starts this test program again for one test: add variables, then run it.
///
/// ```text
/// let child = test_process(the_test).env("TAPER_THREADS", "3").output().unwrap();
/// ```
pub fn test_process<F>(test: F) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name_of(&test)]);
    command
}

/// Runs a test again in its own process, in which no other test runs. Returns `true` to the caller,
/// whose work is then done, and `false` in that process.
///
/// ```text
/// #[test]
/// fn memory_is_flat() {
///     if run_alone(memory_is_flat) {
///         return;
///     }
///     // …
/// }
/// ```
///
/// # Panics
/// The test fails there; the message has all that it printed.
#[track_caller]
pub fn run_alone<F>(test: F) -> bool {
    let name = name_of(&test);
    if std::env::var(ALONE).is_ok_and(|alone| alone == name) {
        return false;
    }
    let output = test_process(test).arg("--nocapture").env(ALONE, name).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success() && out.contains("1 passed"),
        "{name}, alone: {}\n{out}{err}",
        output.status
    );
    // Print the child's notes about what this device lacks.
    eprint!("{err}");
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_runs_in_a_process_of_its_own() {
        let parent = std::env::var("TAPER_TEST_PARENT").ok();
        if parent.is_none() {
            let child = test_process(a_test_runs_in_a_process_of_its_own)
                .env("TAPER_TEST_PARENT", std::process::id().to_string())
                .output()
                .unwrap();
            assert!(String::from_utf8_lossy(&child.stdout).contains("1 passed"), "{child:?}");
            return;
        }
        assert_ne!(parent.unwrap(), std::process::id().to_string());
    }

    #[test]
    fn a_test_that_fails_alone_fails() {
        if std::env::var(ALONE).is_err() {
            let failed = std::panic::catch_unwind(|| run_alone(a_test_that_fails_alone_fails)).unwrap_err();
            let text = failed.downcast_ref::<String>().unwrap();
            assert!(text.contains("a_test_that_fails_alone_fails") && text.contains("on purpose"), "{text}");
            return;
        }
        assert!(!run_alone(a_test_that_fails_alone_fails));
        panic!("on purpose");
    }

    #[test]
    fn what_does_not_run_alone_is_a_failure() {
        fn no_test() {}
        assert!(std::panic::catch_unwind(|| run_alone(no_test)).is_err());
    }
}
