//! The special forms of kernels: each computes what a plain form computes too, faster for some shapes. Each
//! can be switched off for the whole process, to weigh it and to test the plain form that it hides.

use std::{ffi::OsString, sync::OnceLock};

use crate::{
    NATIVE_KERNELS,
    environment::{Misread, Variable},
};

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

/// The names of all forms that can be switched off.
fn names() -> impl Iterator<Item = &'static str> {
    Special::NAMES.iter().chain(NATIVE_KERNELS).copied()
}

/// Whether the form with this name may be used.
pub(crate) fn is_on(name: &str) -> bool {
    static OFF: OnceLock<Vec<&str>> = OnceLock::new();
    // A value that cannot be parsed is reported when the device is opened.
    let off = OFF.get_or_init(|| from_env(&|name| std::env::var_os(name)).unwrap_or_default());
    !off.contains(&name)
}

/// The forms that the environment switches off.
pub(crate) fn from_env(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Vec<&'static str>, Misread> {
    let Some(wanted) = Variable::of(VARIABLE, variable(VARIABLE)) else { return Ok(Vec::new()) };
    let mut off = Vec::new();
    for entry in wanted.text.split(',').map(str::trim) {
        let found = entry.strip_prefix('-').and_then(|asked| match asked {
            "all" => Some(names().collect()),
            _ => names().find(|name| *name == asked).map(|name| vec![name]),
        });
        let known = || names().map(|name| format!("-{name}")).collect::<Vec<_>>().join(", ");
        off.extend(found.ok_or_else(|| {
            wanted.misread(&format!("a list of forms that are switched off, of -all, {}", known()))
        })?);
    }
    Ok(off)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_switched_off_by_their_names() {
        let off = |text: &'static str| from_env(&|_| Some(text.into())).map_err(|misread| misread.error());
        assert_eq!(off(" ").unwrap(), [""; 0]);
        assert_eq!(off("-Winograd, -RunningExtreme").unwrap(), ["Winograd", "RunningExtreme"]);
        assert_eq!(off("-all").unwrap().len(), names().count());
        for wrong in ["Winograd", "-winograd", "-Winograd,", "+all"] {
            let text = off(wrong).unwrap_err().to_string();
            assert!(text.contains(VARIABLE) && text.contains("-AlongTerms, -FewResults"), "{text}");
        }
        assert!(Special::Winograd.is_on() && Special::NAMES[Special::Winograd as usize] == "Winograd");
    }
}
