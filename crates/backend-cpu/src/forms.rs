//! The special forms of kernels: each computes what a plain form computes too, faster for some shapes. Each
//! can be switched off for the whole process, to weigh it and to test the plain form that it hides.

use std::{ffi::OsString, sync::OnceLock};

use crate::environment::{Misread, Variable};

/// The variable that switches forms off: names with `-` before each, and commas between them; `-all` means
/// all.
pub(crate) const VARIABLE: &str = "TAPER_CPU_FORMS";

macro_rules! specials {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// A special form. The operations with native kernels are special forms too, by their own names.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Special {
            $($(#[$doc])* $name),*
        }

        impl Special {
            const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// Whether kernels may have this form.
            pub(crate) fn is_on(self) -> bool {
                is_on(Special::NAMES[self as usize])
            }
        }
    };
}
specials! {
    /// Products along terms that are contiguous in both operands.
    AlongTerms,
    /// Products with few results, each summed by itself.
    FewResults,
    /// Reductions of a few strided terms.
    FewTerms,
    /// Copies that bring a few tensors together along a new last axis.
    Interleaved,
    /// Products of one row with columns that are contiguous in runs.
    OneRow,
    /// Two operations of f32 in one step.
    Pairs,
    /// Products of a vector with a matrix.
    Vector,
    /// Columns of convolutions that are read in place.
    Windows,
    /// Convolutions of 3 x 3 windows with fewer multiplications.
    Winograd,
}

/// Whether the form with this name may be used.
pub(crate) fn is_on(name: &str) -> bool {
    static OFF: OnceLock<Vec<String>> = OnceLock::new();
    // A value that cannot be parsed is reported when the device is opened.
    let off = OFF.get_or_init(|| from_env(&|name| std::env::var_os(name), &[]).unwrap_or_default());
    !off.iter().any(|entry| entry == name || entry == "all")
}

/// The forms that the environment switches off. If there are `natives`, a name that is none of theirs and no
/// special form is an error.
pub(crate) fn from_env(
    variable: &dyn Fn(&str) -> Option<OsString>,
    natives: &[&str],
) -> Result<Vec<String>, Misread> {
    let Some(wanted) = Variable::of(VARIABLE, variable(VARIABLE)) else { return Ok(Vec::new()) };
    let names: Vec<&str> = ["all"].iter().chain(Special::NAMES).chain(natives).copied().collect();
    let entry = |entry: &str| {
        let name = entry.trim().strip_prefix('-')?;
        (natives.is_empty() || names.contains(&name)).then(|| name.to_string())
    };
    let off: Option<Vec<String>> = wanted.text.split(',').map(entry).collect();
    off.ok_or_else(|| {
        let known: Vec<String> = names.iter().map(|name| format!("-{name}")).collect();
        wanted.misread(&format!("a list of forms that are switched off, of {}", known.join(", ")))
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_switched_off_by_their_names() {
        let off = |text: &'static str| {
            from_env(&|_| Some(text.into()), &["MaxPool"]).map_err(|misread| misread.error())
        };
        assert_eq!(off(" ").unwrap(), [""; 0]);
        assert_eq!(off("-Winograd, -MaxPool").unwrap(), ["Winograd", "MaxPool"]);
        assert_eq!(off("-all").unwrap(), ["all"]);
        for wrong in ["Winograd", "-winograd", "-Winograd,", "+all"] {
            let text = off(wrong).unwrap_err().to_string();
            assert!(text.contains(VARIABLE) && text.contains("-all, -AlongTerms, -FewResults"), "{text}");
        }
        assert_eq!(Special::NAMES[Special::Winograd as usize], "Winograd");
    }
}
