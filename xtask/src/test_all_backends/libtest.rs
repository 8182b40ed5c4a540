//! Reads the output of Rust's test harness line by line, and counts the results.

use std::collections::BTreeMap;

/// The results of the tests of one or several executables.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    /// The number of skipped tests for each reason; the empty reason if a test gave none.
    pub(crate) reasons: BTreeMap<String, usize>,
    /// The names of the failed tests, and messages about failures outside tests.
    pub(crate) failures: Vec<String>,
    /// The number of result lines. An executable that crashes prints none.
    pub(crate) results: usize,
    /// The elapsed time of all of them together.
    pub(crate) seconds: f64,
    /// The different kernels that the tests compiled for a GPU.
    pub(crate) kernels: usize,
    /// Seconds and names of tests, if the harness reports them.
    pub(crate) times: Vec<(f64, String)>,
}

impl Tally {
    /// Takes in one line of output.
    pub(crate) fn read(&mut self, line: &str) {
        let line = without_colours(line);
        let line = line.trim_end();
        if let Some(counts) = line.strip_prefix("test result: ") {
            // ok. 10 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
            let (_, counts) = counts.split_once(". ").unwrap_or_default();
            for count in counts.split("; ") {
                let mut words = count.split_whitespace();
                let Some(number) = words.next().and_then(|word| word.parse::<usize>().ok()) else { continue };
                match words.next() {
                    Some("passed" | "measured") => self.passed += number,
                    Some("failed") => self.failed += number,
                    Some("ignored") => self.skipped += number,
                    _ => {}
                }
            }
            self.results += 1;
        } else if let Some((name, outcome)) =
            line.strip_prefix("test ").and_then(|test| test.split_once(" ... "))
        {
            // With `--report-time`: ok <1.234s>
            let (outcome, time) = outcome.split_once(" <").unwrap_or((outcome, ""));
            if let Some(seconds) = time.strip_suffix("s>").and_then(|seconds| seconds.parse().ok()) {
                self.times.push((seconds, name.to_string()));
            }
            if outcome == "FAILED" {
                self.failures.push(name.to_string());
            } else if let Some(reason) = outcome.strip_prefix("ignored") {
                *self.reasons.entry(reason.trim_start_matches(", ").to_string()).or_default() += 1;
            }
        }
    }

    /// Counts a failure outside the tests.
    pub(crate) fn fail(&mut self, what: impl Into<String>) {
        self.failed += 1;
        self.failures.push(what.into());
    }

    /// Moves passed tests to the skipped ones if the log names them; each name counts once.
    pub(crate) fn skip(&mut self, log: &str) {
        let skips: BTreeMap<&str, &str> = log
            .lines()
            .filter(|line| !line.is_empty())
            .map(|line| line.split_once('\t').unwrap_or((line, "")))
            .collect();
        for reason in skips.into_values().take(self.passed) {
            self.passed -= 1;
            self.skipped += 1;
            *self.reasons.entry(reason.to_string()).or_default() += 1;
        }
    }

    pub(crate) fn add(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        for (reason, count) in other.reasons {
            *self.reasons.entry(reason).or_default() += count;
        }
        self.failures.extend(other.failures);
        self.results += other.results;
        self.seconds += other.seconds;
        self.kernels += other.kernels;
        self.times.extend(other.times);
    }

    /// The slowest tests, a line for each.
    pub(crate) fn slowest(&self, count: usize) -> String {
        let mut times: Vec<&(f64, String)> = self.times.iter().collect();
        times.sort_by(|a, b| b.0.total_cmp(&a.0));
        let lines = times.iter().take(count).map(|(seconds, name)| format!("{seconds:9.2} s  {name}"));
        lines.collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn total(&self) -> usize {
        self.passed + self.failed + self.skipped
    }
}

/// Whether a harness prints this line around its tests if no test fails.
pub(crate) fn is_frame(line: &str) -> bool {
    let line = without_colours(line);
    let line = line.trim();
    line.is_empty() || line.starts_with("running ") || line.starts_with("test result: ok")
}

/// The line without terminal escapes of the form `ESC [ … letter`.
fn without_colours(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, escape)) = rest.split_once("\x1b[") {
        plain.push_str(before);
        rest = escape.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
        rest = rest.get(1..).unwrap_or_default();
    }
    plain.push_str(rest);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(output: &str) -> Tally {
        let mut tally = Tally::default();
        output.lines().for_each(|line| tally.read(line));
        tally
    }

    const OUTPUT: &str = "
running 5 tests
test shape::tests::broadcast ... ok
test ops::f64_sum ... ignored, needs f64
test ops::f64_mean ... ignored, needs f64
test ops::huge ... ignored
test ops::exp ... FAILED
test ops::panics - should panic ... ok

failures:
    ops::exp

test result: FAILED. 2 passed; 1 failed; 3 ignored; 0 measured; 4 filtered out; finished in 0.02s
";

    #[test]
    fn results_reasons_and_names_are_read() {
        let tally = tally(OUTPUT);
        assert_eq!((tally.passed, tally.failed, tally.skipped, tally.results), (2, 1, 3, 1));
        assert_eq!(tally.reasons, BTreeMap::from([("needs f64".to_string(), 2), (String::new(), 1)]));
        assert_eq!(tally.failures, ["ops::exp"]);
        assert_eq!(tally.total(), 6);
    }

    #[test]
    fn times_are_read_and_the_slowest_named() {
        let tally = tally(
            "test a ... ok <0.250s>\ntest b ... FAILED <12.000s>\ntest c ... ok <1.000s>\ntest d ... ignored, why\n",
        );
        assert_eq!(tally.failures, ["b"]);
        assert_eq!(tally.slowest(2), "    12.00 s  b\n     1.00 s  c");
        assert_eq!(tally.slowest(9).lines().count(), 3);
    }

    #[test]
    fn colours_do_not_matter() {
        let tally = tally(
            "test a ... \x1b[31mFAILED\x1b(B\x1b[m\n\x1b[1mtest result: \x1b[32mok\x1b[m. 7 passed; 0 failed; 1 ignored",
        );
        assert_eq!((tally.passed, tally.skipped), (7, 1));
    }

    #[test]
    fn other_lines_count_for_nothing() {
        let tally = tally("test\ntest result\nrunning 3 tests\nwarning: test x\n   Doc-tests nn\n\u{1b}[\n");
        assert_eq!(tally, Tally::default());
    }

    #[test]
    fn the_frame_is_not_what_happened() {
        let frame = ["\n", "running 3 tests\n", "test result: ok. 3 passed; 0 failed\n"];
        assert!(frame.into_iter().all(is_frame));
        let told =
            ["test a ... ok\n", "failures:\n", "test result: FAILED. 1 passed; 1 failed\n", "a runs\n"];
        assert!(!told.into_iter().any(is_frame));
    }

    #[test]
    fn tallies_add_up() {
        let mut sum = tally(OUTPUT);
        sum.add(tally(OUTPUT));
        assert_eq!((sum.total(), sum.reasons["needs f64"], sum.failures.len(), sum.results), (12, 4, 2, 2));
    }

    #[test]
    fn a_test_that_skipped_itself_did_not_pass() {
        let mut tally = tally("test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        tally.skip("a\tno f64\nb\tno f64\na\tno f64\n");
        assert_eq!((tally.passed, tally.skipped, tally.reasons["no f64"]), (1, 2, 2));
        // Never more than passed.
        tally.skip("c\tx\nd\tx\n");
        assert_eq!((tally.passed, tally.skipped), (0, 3));
    }

    #[test]
    fn what_fails_beside_the_tests_counts() {
        let mut tally = Tally::default();
        tally.fail("signal: 11");
        assert_eq!((tally.failed, tally.failures), (1, vec!["signal: 11".to_string()]));
    }
}
