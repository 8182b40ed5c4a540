//! The list of expected failures: a line for each case, with the devices on which it fails and the reason.

use std::collections::BTreeMap;

/// Case, devices (`all`, or a kind as `wgpu`), reason.
const LIST: &str = include_str!("../expected.tsv");

/// The expected failures of one kind of device.
pub(crate) struct Expected {
    reasons: BTreeMap<&'static str, &'static str>,
}

impl Expected {
    /// The lines for a kind of device, `cpu` say.
    pub(crate) fn read(kind: &str) -> Result<Expected, String> {
        let mut reasons = BTreeMap::new();
        for (number, line) in LIST.lines().enumerate() {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut fields = line.split('\t');
            let (Some(name), Some(devices), Some(reason), None) = (
                fields.next(),
                fields.next(),
                fields.next().filter(|reason| !reason.is_empty()),
                fields.next(),
            ) else {
                return Err(format!(
                    "expected.tsv, line {}: a line is a case, devices and a reason",
                    number + 1
                ));
            };
            if ["all", kind].contains(&devices) && reasons.insert(name, reason).is_some() {
                return Err(format!("expected.tsv, line {}: {name} is there twice", number + 1));
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
