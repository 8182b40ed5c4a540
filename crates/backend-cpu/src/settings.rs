//! Settings of the device from environment variables, read when it is opened.

use std::ffi::OsString;

use tensor_core::Result;

use crate::{
    NATIVE_KERNELS,
    environment::{Misread, Variable},
    forms,
    machine::machine,
    rounding,
    simd::{bf16::Bf16, isa::Isa},
    threads,
};

/// The variables of this backend.
pub(crate) const VARIABLES: &[&str] = &[
    "TAPER_CPU_BF16",
    "TAPER_CPU_BLOCKS",
    forms::VARIABLE,
    "TAPER_CPU_ISA",
    "TAPER_CPU_MEMORY_LIMIT",
    "TAPER_THREADS",
];

/// The configuration of the device.
pub(crate) struct Settings {
    pub(crate) isa: Isa,
    pub(crate) bf16: Bf16,
    /// The most bytes that buffers may take.
    pub(crate) budget: Option<u64>,
}

impl Settings {
    pub(crate) fn from_env() -> Result<Settings, Misread> {
        Settings::read(|name| std::env::var_os(name))
    }

    fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Settings, Misread> {
        let set = |name| Variable::of(name, variable(name));
        let all = &machine().isas;
        let isa = set("TAPER_CPU_ISA").map(|wanted| {
            let found = all.iter().copied().find(|isa| isa.is(&wanted.text));
            found.ok_or_else(|| {
                let names: Vec<&str> = all.iter().map(|isa| isa.name()).collect();
                wanted
                    .misread(&format!("an instruction set of this processor; there are {}", names.join(", ")))
            })
        });
        let isa = isa.transpose()?.unwrap_or(all[0]);
        let forms = Bf16::available(isa);
        let bf16 = set("TAPER_CPU_BF16").map(|wanted| {
            let found = forms.iter().copied().find(|form| form.name() == wanted.text);
            found.ok_or_else(|| {
                let names: Vec<&str> = forms.iter().map(|form| form.name()).collect();
                let has =
                    format!("a form of bf16 products that {isa:?} has here; there are {}", names.join(", "));
                wanted.misread(&has)
            })
        });
        // Threads, rounding and forms belong to the process, not to the device; here their variables are only
        // validated.
        threads::from_env(&variable)?;
        forms::check(&variable, NATIVE_KERNELS)?;
        rounding::from_env(&variable)?;
        let budget = set("TAPER_CPU_MEMORY_LIMIT").map(|wanted| {
            let bytes = wanted.text.parse().ok().filter(|&bytes: &u64| bytes > 0);
            bytes.ok_or_else(|| wanted.misread("a number of bytes; write it out, as in 8589934592"))
        });
        Ok(Settings {
            isa,
            bf16: bf16.transpose()?.unwrap_or(forms[0]),
            budget: budget.transpose()?.or(machine().memory),
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tensor_core::ErrorKind;

    use super::*;

    fn read(name: &'static str, value: &'static str) -> Result<Settings, Misread> {
        Settings::read(|asked| (asked == name).then(|| value.into()))
    }

    #[test]
    fn variables_are_read() {
        let none = Settings::read(|_| None).unwrap();
        assert_eq!(none.isa, Isa::available()[0]);
        assert_eq!(none.budget, machine().memory);
        for isa in Isa::available() {
            assert_eq!(read("TAPER_CPU_ISA", isa.name()).unwrap().isa, isa);
        }
        assert_eq!(none.bf16, Bf16::available(none.isa)[0]);
        for form in Bf16::available(none.isa) {
            assert_eq!(read("TAPER_CPU_BF16", form.name()).unwrap().bf16, form);
        }
        assert_eq!(read("TAPER_CPU_ISA", "baseline").unwrap().bf16.name(), "widen");
        let last = Isa::available().last().copied();
        assert_eq!(Some(read("TAPER_CPU_ISA", "baseline").unwrap().isa), last);
        assert_eq!(read("TAPER_CPU_MEMORY_LIMIT", " 99 ").unwrap().budget, Some(99));
        assert_eq!(read("TAPER_CPU_MEMORY_LIMIT", " ").unwrap().budget, machine().memory);
        let threads = |set: &'static [(&'static str, &'static str)]| {
            let variable = move |asked: &str| set.iter().find(|(name, _)| *name == asked).map(|s| s.1.into());
            threads::from_env(&variable).unwrap()
        };
        assert_eq!(threads(&[]), None);
        assert_eq!(threads(&[("RAYON_NUM_THREADS", "3")]), Some(3));
        assert_eq!(threads(&[("RAYON_NUM_THREADS", "0")]), None);
        assert_eq!(threads(&[("RAYON_NUM_THREADS", "3"), ("TAPER_THREADS", "5")]), Some(5));
    }

    #[test]
    fn what_cannot_be_read_is_an_error_that_names_the_variable() {
        for (name, value) in [
            ("TAPER_CPU_ISA", "AVX2"),
            ("TAPER_CPU_ISA", "sse9"),
            ("TAPER_CPU_BF16", "AMX"),
            ("TAPER_CPU_BF16", "f32"),
            ("TAPER_CPU_BLOCKS", "int4"),
            ("TAPER_CPU_FORMS", "-windows"),
            ("TAPER_CPU_MEMORY_LIMIT", "8 GB"),
            ("TAPER_CPU_MEMORY_LIMIT", "0"),
            ("TAPER_CPU_MEMORY_LIMIT", "-1"),
            ("TAPER_CPU_MEMORY_LIMIT", "1e9"),
            ("TAPER_THREADS", "0"),
            ("TAPER_THREADS", "all"),
            ("TAPER_THREADS", "-2"),
            ("TAPER_THREADS", "99999999"),
            ("RAYON_NUM_THREADS", "two"),
        ] {
            let error = read(name, value).err().unwrap().error();
            let text = error.to_string();
            assert!(matches!(error.kind(), ErrorKind::Invalid { .. }), "{text}");
            assert!(text.contains(name) && text.contains(&format!("{value:?}")), "{text}");
        }
    }
}
