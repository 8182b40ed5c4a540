//! Which form of a GPU's kernels runs a case today.
//!
//! All cases in all forms take an hour on a GPU in software, where a test is mostly the compilation of its
//! kernels. So a group of cases (the tests of a topic, the cells of a row of the table) runs a part of them
//! each day, and each in one form. The runs of a group are numbered through all days: the next run takes the
//! next case and the next form.
//!
//! `cargo xtask test-all-backends` includes this file too, and so it uses the standard library alone.

use std::{fmt, str::FromStr};

/// How a GPU's kernels can be made. Each is a run of the suite with the settings in
/// `xtask/src/test_all_backends/reruns.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Kernels of GPUs, in workgroup memory.
    Tiled,
    /// Kernels without barriers, with parameters in uniform buffers and the fewest bindings.
    Direct,
    /// Tensors that are larger than a binding.
    Windows,
    /// Another adapter, with another compiler.
    Second,
}

impl Form {
    /// Each of them.
    pub const ALL: [Form; 4] = [Form::Tiled, Form::Direct, Form::Windows, Form::Second];

    const fn name(self) -> &'static str {
        match self {
            Form::Tiled => "tiled",
            Form::Direct => "direct",
            Form::Windows => "windows",
            Form::Second => "second",
        }
    }
}

/// The setting of `TAPER_TEST` that deals cases to a run: `TAPER_TEST=deal=tiled@20785`.
pub const SETTING: &str = "deal";

/// The days within which each case runs on a GPU.
pub const DAYS: u64 = 4;

/// The forms of consecutive runs of a group: users' GPUs run the tiled one.
const FORM_ROUNDS: [Form; 8] = [
    Form::Tiled,
    Form::Direct,
    Form::Tiled,
    Form::Windows,
    Form::Tiled,
    Form::Direct,
    Form::Tiled,
    Form::Second,
];

/// The cases of a group that run on a day, by their numbers, each with its form. One in `part` runs a day, at
/// least one; four days have every form.
pub fn dealt(group: &str, cases: usize, part: usize, day: u64) -> impl Iterator<Item = (usize, Form)> {
    let today = cases.div_ceil(part) as u64;
    let forms: &[Form] = if today == 1 { &Form::ALL } else { &FORM_ROUNDS };
    let (count, of_forms, first) = (cases as u64, forms.len() as u64, hash(group));
    (0..today).map(move |k| {
        let run = day * today + k;
        // If the numbers of cases and forms have a common factor, a case would always meet the same forms.
        let case = run + run / (count * of_forms);
        ((case % count) as usize, forms[(run.wrapping_add(first) % of_forms) as usize])
    })
}

/// The form of a run and the number of the day, written `tiled@20785`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deal {
    /// The form of this run.
    pub form: Form,
    /// The number of the day.
    pub day: u64,
}

impl Deal {
    /// Whether this run takes a case of a group that numbers its cases: one in [`DAYS`] each day.
    pub fn takes(self, group: &str, case: usize, cases: usize) -> bool {
        dealt(group, cases, DAYS as usize, self.day).any(|taken| taken == (case, self.form))
    }

    /// Whether this run takes a case that has only a name: one in [`DAYS`] each day.
    pub fn takes_name(self, name: &str) -> bool {
        let turn = hash(name).wrapping_add(self.day);
        let form = (hash(name) / DAYS).wrapping_add(self.day / DAYS) % FORM_ROUNDS.len() as u64;
        turn.is_multiple_of(DAYS) && FORM_ROUNDS[form as usize] == self.form
    }
}

impl fmt::Display for Deal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.form.name(), self.day)
    }
}

impl FromStr for Deal {
    type Err = String;

    fn from_str(text: &str) -> Result<Deal, String> {
        let parts = text.split_once('@').and_then(|(form, day)| {
            Some(Deal {
                form: Form::ALL.into_iter().find(|known| known.name() == form.trim())?,
                day: day.trim().parse().ok()?,
            })
        });
        parts.ok_or_else(|| {
            let forms = Form::ALL.map(Form::name).join(", ");
            format!("{text:?} is no form and day, as in tiled@20785; the forms are {forms}")
        })
    }
}

/// The 64-bit FNV-1a hash of a text, which is the same on every machine and in every version. Its halves are
/// mixed, as a remainder of a small number depends on few of the low bits.
pub fn hash(text: &str) -> u64 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash ^ (hash >> 32)
}
