//! How a device is opened: [`Options`], and the environment variables that change them.

use std::{ffi::OsString, path::PathBuf};

use tensor_core::{DType, Error, Result, environment};

use crate::{Form, disk_cache};

/// The least bytes of one binding that kernels can be cut to.
const LEAST_BINDING: u64 = 512;
/// Storage buffers of one kernel that every adapter has.
const LEAST_BUFFERS: u64 = 8;

/// How to open a device, where the defaults will not do.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether parameters of kernels go as immediates (push constants) where the adapter has them, or through a
    /// uniform buffer always.
    pub immediates: bool,
    /// The memory budget in bytes; without one, three quarters of the system's memory on software adapters, and the
    /// driver's word on others.
    pub memory_limit: Option<u64>,
    /// Which family of kernels to use.
    pub form: Form,
    /// Whether the ways to compute a matrix product are timed on the first of each class (dtype, sizes to a power of two,
    /// layouts), rather than chosen by a fixed table. What is found is kept in `cache_dir` for the same adapter, driver and
    /// version; until then the first product of a class takes longer. Another way may round otherwise in the last bits.
    pub autotune: bool,
    /// The directory where compiled pipelines, where the driver hands them out, and what autotuning found are kept from one
    /// process to the next; none keeps none.
    pub cache_dir: Option<PathBuf>,
    /// Limits below the adapter's own.
    pub caps: Caps,
}

/// Limits below an adapter's own, so that tests meet with small tensors what large ones and lesser adapters meet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caps {
    /// Bytes of one binding: larger tensors are worked through in windows. At least 512.
    pub binding_bytes: Option<u64>,
    /// Workgroups in each dimension of a dispatch.
    pub groups: Option<u32>,
    /// Storage buffers of one kernel; every adapter has 8.
    pub storage_buffers: Option<u32>,
    /// Elementary steps in one dispatch; longer ones are split, lest the system take the device for hung.
    pub dispatch_work: Option<u64>,
    /// Dtypes to do without.
    pub without: &'static [DType],
    /// Kernels use no subgroups, as where an adapter has none or their size varies.
    pub no_subgroups: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            immediates: true,
            memory_limit: None,
            form: Form::Auto,
            autotune: false,
            cache_dir: disk_cache::directory(None),
            caps: Caps::default(),
        }
    }
}

impl Options {
    /// The defaults, changed by the environment:
    ///
    /// | variable | sets |
    /// |---|---|
    /// | `TAPER_WGPU_MEMORY_LIMIT` | the memory budget in bytes |
    /// | `TAPER_CACHE_DIR` | a directory for compiled pipelines and what autotuning found, or `off` |
    /// | `TAPER_WGPU_AUTOTUNE` | `1` times the ways of matrix products: see [`Options::autotune`] |
    /// | `TAPER_WGPU_FORM` | the family of kernels: `auto`, `direct` or `tiled` |
    /// | `TAPER_WGPU_NO_IMMEDIATES` | `1` sends parameters through uniform buffers |
    /// | `TAPER_WGPU_NO_SUBGROUPS` | `1` makes kernels without subgroups |
    /// | `TAPER_WGPU_BINDING_BYTES` | bytes of one binding, 512 or more, if the adapter has no fewer |
    /// | `TAPER_WGPU_STORAGE_BUFFERS` | storage buffers of one kernel, 8 or more, if the adapter has no fewer |
    ///
    /// An empty value is none.
    ///
    /// # Errors
    /// `Invalid` for a value that cannot be read, with those that can.
    pub fn from_env() -> Result<Options> {
        environment::note_unknown();
        Options::read(|name| std::env::var_os(name))
    }

    fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Options> {
        let set = |name: &'static str| Setting::of(name, variable(name));
        let default = Options::default();
        Ok(Options {
            immediates: !set("TAPER_WGPU_NO_IMMEDIATES").flag()?,
            memory_limit: set("TAPER_WGPU_MEMORY_LIMIT")
                .number(1, "bytes; write it out, as in 8589934592")?,
            form: set("TAPER_WGPU_FORM").one_of(&[
                ("auto", Form::Auto),
                ("direct", Form::Direct),
                ("tiled", Form::Tiled),
            ])?,
            autotune: set("TAPER_WGPU_AUTOTUNE").flag()?,
            cache_dir: disk_cache::directory(variable("TAPER_CACHE_DIR").as_deref()),
            caps: Caps {
                binding_bytes: set("TAPER_WGPU_BINDING_BYTES").number(LEAST_BINDING, "bytes, 512 or more")?,
                storage_buffers: set("TAPER_WGPU_STORAGE_BUFFERS")
                    .number(LEAST_BUFFERS, "buffers, 8 or more")?
                    .map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
                no_subgroups: set("TAPER_WGPU_NO_SUBGROUPS").flag()?,
                ..default.caps
            },
        })
    }
}

/// An environment variable and its value, if it has one.
struct Setting {
    name: &'static str,
    text: Option<OsString>,
}

impl Setting {
    fn of(name: &'static str, text: Option<OsString>) -> Setting {
        Setting { name, text: text.filter(|text| !text.is_empty()) }
    }

    fn wrong(&self, expected: &str) -> Error {
        let text = self.text.as_deref().unwrap_or_default().to_string_lossy();
        Error::invalid(self.name, format!("{text:?} is not {expected}"))
    }

    /// A number of at least `least`.
    fn number(&self, least: u64, what: &str) -> Result<Option<u64>> {
        let Some(text) = &self.text else { return Ok(None) };
        let number = text.to_str().and_then(|text| text.trim().parse().ok()).filter(|&n| n >= least);
        number.map(Some).ok_or_else(|| self.wrong(&format!("a number of {what}")))
    }

    /// The value of a word; the default's without one.
    fn one_of<T: Copy + Default>(&self, words: &[(&str, T)]) -> Result<T> {
        let Some(text) = &self.text else { return Ok(T::default()) };
        let found = words.iter().find(|(word, _)| text.to_str().is_some_and(|text| text.trim() == *word));
        found.map(|&(_, value)| value).ok_or_else(|| {
            let words: Vec<&str> = words.iter().map(|&(word, _)| word).collect();
            self.wrong(&format!("one of {}", words.join(", ")))
        })
    }

    fn flag(&self) -> Result<bool> {
        self.one_of(&[("0", false), ("1", true)])
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tensor_core::ErrorKind;

    use super::*;

    fn read(name: &'static str, value: &'static str) -> Result<Options> {
        Options::read(|asked| (asked == name).then(|| value.into()))
    }

    #[test]
    fn variables_are_read() {
        let none = Options::read(|_| None).unwrap();
        assert!(none.immediates && none.form == Form::Auto && none.memory_limit.is_none());
        assert!(!none.autotune && read("TAPER_WGPU_AUTOTUNE", "1").unwrap().autotune);
        assert_eq!(read("TAPER_WGPU_FORM", "direct").unwrap().form, Form::Direct);
        assert_eq!(read("TAPER_WGPU_FORM", "tiled").unwrap().form, Form::Tiled);
        assert_eq!(read("TAPER_WGPU_FORM", "").unwrap().form, Form::Auto);
        assert!(!read("TAPER_WGPU_NO_IMMEDIATES", "1").unwrap().immediates);
        assert!(read("TAPER_WGPU_NO_IMMEDIATES", "0").unwrap().immediates);
        assert!(read("TAPER_WGPU_NO_SUBGROUPS", "1").unwrap().caps.no_subgroups);
        assert_eq!(read("TAPER_WGPU_MEMORY_LIMIT", " 99 ").unwrap().memory_limit, Some(99));
        assert_eq!(read("TAPER_WGPU_BINDING_BYTES", "512").unwrap().caps.binding_bytes, Some(512));
        assert_eq!(read("TAPER_WGPU_STORAGE_BUFFERS", "8").unwrap().caps.storage_buffers, Some(8));
        assert_eq!(read("TAPER_CACHE_DIR", "off").unwrap().cache_dir, None);
    }

    #[test]
    fn what_cannot_be_read_is_an_error_that_names_the_variable() {
        for (name, value) in [
            ("TAPER_WGPU_FORM", "Direct"),
            ("TAPER_WGPU_FORM", "fast"),
            ("TAPER_WGPU_NO_IMMEDIATES", "yes"),
            ("TAPER_WGPU_MEMORY_LIMIT", "8 GB"),
            ("TAPER_WGPU_MEMORY_LIMIT", "0"),
            ("TAPER_WGPU_BINDING_BYTES", "511"),
            ("TAPER_WGPU_BINDING_BYTES", "-1"),
            ("TAPER_WGPU_STORAGE_BUFFERS", "7"),
            ("TAPER_WGPU_STORAGE_BUFFERS", "1e9"),
        ] {
            let error = read(name, value).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error.kind(), ErrorKind::Invalid { .. }), "{text}");
            assert!(text.contains(name) && text.contains(&format!("{value:?}")), "{text}");
        }
    }
}
