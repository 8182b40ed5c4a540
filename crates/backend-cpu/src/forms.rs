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
    /// Products along terms that are contiguous in both operands: a step of ResNet-20 takes 1.22 of its time
    /// without them, and one of `mnist_cnn` 1.09.
    AlongTerms,
    /// Products with few results, each summed by itself: a depthwise convolution with its gradients takes 1.7
    /// times as long without them.
    FewResults,
    /// Reductions of a few strided terms: 1.06 of a step of ResNet-20.
    FewTerms,
    /// Copies that bring a few tensors together along a new last axis: 1.15 of a step of an LSTM.
    Interleaved,
    /// Products of one row with columns that are contiguous in runs: 6.6 of a depthwise convolution, and 3.5
    /// with its gradients.
    OneRow,
    /// Products of a vector with a matrix: 5.1 of the generation of 64 tokens by a small GPT.
    Vector,
    /// Columns of convolutions that are read in place: 1.2 of a step of ResNet-20 with AVX-512, and nothing
    /// measurable with AVX2 (docs/decisions/0016).
    Windows,
}

/// Whether the form with this name may be used.
pub(crate) fn is_on(name: &str) -> bool {
    static OFF: OnceLock<Vec<String>> = OnceLock::new();
    // A value that cannot be parsed is reported when the device is opened.
    let off = OFF.get_or_init(|| {
        let wanted = Variable::of(VARIABLE, std::env::var_os(VARIABLE));
        let text = wanted.map(|wanted| wanted.text).unwrap_or_default();
        names_in(&text).flatten().map(String::from).collect()
    });
    !off.iter().any(|entry| entry == name || entry == "all")
}

/// Checks that the variable, if it is set, lists special forms and operations with kernels of these names.
pub(crate) fn check(variable: &dyn Fn(&str) -> Option<OsString>, natives: &[&str]) -> Result<(), Misread> {
    let Some(wanted) = Variable::of(VARIABLE, variable(VARIABLE)) else { return Ok(()) };
    let known: Vec<&str> = ["all"].iter().chain(Special::NAMES).chain(natives).copied().collect();
    if names_in(&wanted.text).all(|name| name.is_some_and(|name| known.contains(&name))) {
        return Ok(());
    }
    let known: Vec<String> = known.iter().map(|name| format!("-{name}")).collect();
    Err(wanted.misread(&format!("a list of forms that are switched off, of {}", known.join(", "))))
}

/// The names in the variable's text; `None` for an entry without `-`.
fn names_in(text: &str) -> impl Iterator<Item = Option<&str>> {
    text.split(',').map(|entry| entry.trim().strip_prefix('-'))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_switched_off_by_their_names() {
        let checked = |text: &'static str| {
            check(&|_| Some(text.into()), &["MaxPool"]).map_err(|misread| misread.error())
        };
        let off = |text: &'static str| {
            checked(text).unwrap();
            names_in(text).flatten().collect::<Vec<_>>()
        };
        assert_eq!(off(" "), [""; 0]);
        assert_eq!(off("-Windows, -MaxPool"), ["Windows", "MaxPool"]);
        assert_eq!(off("-all"), ["all"]);
        for wrong in ["Windows", "-windows", "-Windows,", "+all"] {
            let text = checked(wrong).unwrap_err().to_string();
            assert!(text.contains(VARIABLE) && text.contains("-all, -AlongTerms, -FewResults"), "{text}");
        }
        assert_eq!(Special::NAMES[Special::Windows as usize], "Windows");
    }
}
