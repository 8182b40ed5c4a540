//! The list of expected failures: a line for each case, with the suite and the devices in which it fails and
//! the reason.

use std::collections::BTreeMap;

/// Case, suite (`all`, or its newest version of operators), devices (`all`, or a kind as `wgpu`), reason.
const LIST: &str = include_str!("../expected.tsv");

/// The expected failures of one suite on one kind of device.
pub(crate) struct Expected {
    reasons: BTreeMap<&'static str, &'static str>,
}

impl Expected {
    /// The lines for a suite by its newest version of operators, and for a kind of device, `cpu` say.
    pub(crate) fn read(suite: i64, kind: &str) -> Result<Expected, String> {
        let suite = suite.to_string();
        let mut reasons = BTreeMap::new();
        for (number, line) in LIST.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let fields: Vec<&str> = line.split('\t').collect();
            let &[name, suites, devices, reason] = fields.as_slice() else {
                let message = "a line is a case, a suite, devices and a reason";
                return Err(format!("expected.tsv, line {}: {message}", number + 1));
            };
            let applies = ["all", &suite].contains(&suites) && ["all", kind].contains(&devices);
            if applies && (reason.is_empty() || reasons.insert(name, reason).is_some()) {
                return Err(format!(
                    "expected.tsv, line {}: {name} is there twice, or without a reason",
                    number + 1
                ));
            }
        }
        Ok(Expected { reasons })
    }

    /// The reason why a case fails, if it is expected to.
    pub(crate) fn reason(&self, case: &str) -> Option<&'static str> {
        self.reasons.get(case).copied()
    }

    /// The cases in the list.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.reasons.keys().copied()
    }
}
