//! Options for opening a device: [`Options`], and the environment variables that change them.

use std::{ffi::OsString, path::PathBuf};

use tensor_core::{DType, Error, Result};

use crate::{Form, MatrixUnits, device::disk_cache};

/// The environment variables of this backend.
pub(crate) const VARIABLES: &[&str] = &[
    "TAPER_ADAPTER",
    "TAPER_CACHE_DIR",
    "TAPER_WGPU_AUTOTUNE",
    "TAPER_WGPU_CHECKED",
    "TAPER_WGPU_MATRIX_UNITS",
    "TAPER_WGPU_MEMORY_LIMIT",
];

/// Options for opening a device.
#[derive(Clone, Debug)]
pub struct Options {
    /// The memory budget in bytes. Without one, software adapters use three quarters of the system's
    /// memory, and other adapters are limited only by the driver.
    pub memory_limit: Option<u64>,
    /// Whether the variants of a matrix product are timed on the first product of each class (dtype, sizes
    /// to a power of two, layouts), instead of chosen by a fixed table. The results are kept in `cache_dir`
    /// for the same adapter, driver and version. The first product of a class takes longer. Variants may
    /// differ in the last bits.
    pub autotune: bool,
    /// Whether shaders check every index and bound every loop, as browsers do. Off by default: a test
    /// proves both for the kernels of this backend. WGSL of other crates is always checked. Turn it on if
    /// you suspect a kernel of damaging memory.
    pub checked: bool,
    /// Whether products of f16 use the adapter's matrix units (tensor cores), with sums in f32, if it has
    /// cooperative matrices of f16. None uses them on adapters on which the tests have passed: NVIDIA's, with
    /// its own driver. They are an experimental feature of wgpu. Sums are added in another order, and may be
    /// rounded otherwise.
    pub matrix_units: Option<bool>,
    /// The directory that keeps compiled pipelines (if the driver exports them) and autotuning results
    /// between processes; None keeps nothing.
    pub cache_dir: Option<PathBuf>,
    /// Conditions that tests force on a device.
    #[doc(hidden)]
    pub forced: Forced,
}

/// Conditions that a test forces: other kernels than the adapter would get, and lower limits, so that small
/// tensors exercise the code for large tensors and weaker adapters.
#[doc(hidden)]
#[derive(Clone, Debug, Default)]
pub struct Forced {
    /// The family of kernels to use.
    pub form: Form,
    /// Passes the parameters of kernels in a uniform buffer instead of immediates.
    pub no_immediates: bool,
    /// The most bytes of one binding, at least 512: larger tensors are processed in windows.
    pub binding_bytes: Option<u64>,
    /// The most workgroups in each dimension of a dispatch.
    pub workgroups: Option<u32>,
    /// The most storage buffers of one kernel; every adapter has 8.
    pub storage_buffers: Option<u32>,
    /// The most elementary steps of one dispatch; longer dispatches are split, to avoid the system's hang
    /// detection.
    pub dispatch_work: Option<u64>,
    /// Uses no operations of subgroups.
    pub no_subgroups: bool,
    /// Multiplies integers of 8 bits one at a time.
    pub no_dots: bool,
    /// Uses this kernel for matrix units, whatever the adapter has.
    pub matrix_units: Option<MatrixUnits>,
    /// The number of invocations that is assumed to keep the device busy.
    pub invocations: Option<usize>,
    /// Kernels report an index beyond the end of a buffer or array; the next read is then an error.
    pub trace: bool,
    /// Dtypes to treat as unsupported.
    pub without: &'static [DType],
    /// Chooses the kernels of a discrete GPU on a software adapter, to count the work of one.
    pub hardware: bool,
    /// Records dispatches, but runs none: results are unspecified. For counting.
    pub dry: bool,
    /// A file to which each new pipeline appends a line: the hash of its source, and its name.
    pub pipeline_log: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            memory_limit: None,
            autotune: false,
            checked: false,
            matrix_units: None,
            cache_dir: disk_cache::directory(None),
            forced: Forced::default(),
        }
    }
}

impl Options {
    /// The defaults, changed by the environment:
    ///
    /// | variable | sets |
    /// |---|---|
    /// | `TAPER_WGPU_MEMORY_LIMIT` | the memory budget in bytes |
    /// | `TAPER_WGPU_AUTOTUNE` | `1` times the variants of matrix products: see [`Options::autotune`] |
    /// | `TAPER_WGPU_CHECKED` | `1` checks every index in shaders: see [`Options::checked`] |
    /// | `TAPER_WGPU_MATRIX_UNITS` | `1` or `0` for products of f16: see [`Options::matrix_units`] |
    /// | `TAPER_CACHE_DIR` | a directory for compiled pipelines and autotuning results, or `off` |
    ///
    /// An empty value counts as unset.
    ///
    /// # Errors
    /// `Invalid` for a value that cannot be parsed; the message lists the valid ones.
    pub fn from_env() -> Result<Options> {
        Options::read(|name| std::env::var_os(name))
    }

    fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Options> {
        let set = |name: &'static str| Setting::of(name, variable(name));
        let budget = set("TAPER_WGPU_MEMORY_LIMIT");
        let [autotune, checked, matrix_units] =
            ["TAPER_WGPU_AUTOTUNE", "TAPER_WGPU_CHECKED", "TAPER_WGPU_MATRIX_UNITS"].map(set);
        let forced = set("TAPER_TEST");
        Ok(Options {
            memory_limit: match &budget.text {
                Some(text) => Some(
                    number(text, 1)
                        .ok_or_else(|| budget.wrong("a number of bytes; write it out, as in 8589934592"))?,
                ),
                None => None,
            },
            autotune: autotune.switch()?.unwrap_or(false),
            checked: checked.switch()?.unwrap_or(false),
            matrix_units: matrix_units.switch()?,
            cache_dir: disk_cache::directory(variable("TAPER_CACHE_DIR").as_deref()),
            forced: match &forced.text {
                Some(text) => Forced::read(text).ok_or_else(|| {
                    forced.wrong(
                        "of wgpu.form=direct, wgpu.form=tiled, wgpu.immediates=off, wgpu.binding_bytes=N, \
                         wgpu.storage_buffers=N, wgpu.invocations=N, wgpu.subgroups=off, wgpu.dots=off, \
                         wgpu.trace=on, wgpu.matrix_units=plain, wgpu.pipelines=FILE",
                    )
                })?,
                None => Forced::default(),
            },
        })
    }
}

impl Forced {
    /// Parses the conditions of a list such as `device=wgpu:0,wgpu.form=direct,wgpu.storage_buffers=8`. Names
    /// without `wgpu.` are settings of the tests themselves.
    fn read(text: &str) -> Option<Forced> {
        let mut out = Forced::default();
        for condition in text.split(',').filter_map(|word| word.trim().strip_prefix("wgpu.")) {
            match condition.split_once('=')? {
                ("form", "direct") => out.form = Form::Direct,
                ("form", "tiled") => out.form = Form::Tiled,
                ("immediates", "off") => out.no_immediates = true,
                ("binding_bytes", n) => out.binding_bytes = Some(number(n, 512)?),
                ("subgroups", "off") => out.no_subgroups = true,
                ("dots", "off") => out.no_dots = true,
                ("trace", "on") => out.trace = true,
                ("pipelines", path) if !path.is_empty() => out.pipeline_log = Some(path.into()),
                ("matrix_units", "plain") => out.matrix_units = Some(MatrixUnits::Plain),
                ("invocations", n) => out.invocations = Some(number(n, 1)?.try_into().ok()?),
                ("storage_buffers", n) => out.storage_buffers = Some(number(n, 8)?.try_into().ok()?),
                _ => return None,
            }
        }
        Some(out)
    }
}

/// A number of at least `least`.
fn number(text: &str, least: u64) -> Option<u64> {
    text.trim().parse().ok().filter(|&n| n >= least)
}

/// An environment variable and its value, if it has one.
struct Setting {
    name: &'static str,
    text: Option<String>,
}

impl Setting {
    fn of(name: &'static str, text: Option<OsString>) -> Setting {
        let text = text.filter(|text| !text.is_empty());
        Setting { name, text: text.map(|text| text.to_string_lossy().into_owned()) }
    }

    /// The value of a variable that is 0 or 1.
    fn switch(&self) -> Result<Option<bool>> {
        match self.text.as_deref().map(str::trim) {
            None => Ok(None),
            Some("0") => Ok(Some(false)),
            Some("1") => Ok(Some(true)),
            Some(_) => Err(self.wrong("one of 0, 1")),
        }
    }

    fn wrong(&self, expected: &str) -> Error {
        let text = self.text.as_deref().unwrap_or_default();
        Error::invalid(self.name, format!("{text:?} is not {expected}"))
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
        assert!(
            !none.autotune && !none.checked && none.forced.form == Form::Auto && none.memory_limit.is_none()
        );
        assert_eq!(none.matrix_units, None);
        for (text, value) in [("1", true), ("0", false)] {
            assert_eq!(read("TAPER_WGPU_MATRIX_UNITS", text).unwrap().matrix_units, Some(value));
        }
        assert!(read("TAPER_WGPU_AUTOTUNE", "1").unwrap().autotune);
        assert!(!read("TAPER_WGPU_AUTOTUNE", "0").unwrap().autotune);
        assert!(read("TAPER_WGPU_CHECKED", "1").unwrap().checked);
        assert_eq!(read("TAPER_WGPU_MEMORY_LIMIT", " 99 ").unwrap().memory_limit, Some(99));
        assert_eq!(read("TAPER_CACHE_DIR", "off").unwrap().cache_dir, None);
    }

    #[test]
    fn conditions_for_tests_are_read() {
        let forced = |text| read("TAPER_TEST", text).unwrap().forced;
        let some = forced("wgpu.form=direct,wgpu.immediates=off,wgpu.storage_buffers=8");
        assert!(some.form == Form::Direct && some.no_immediates && some.storage_buffers == Some(8));
        let some = forced("device=wgpu:0,wgpu.form=tiled,wgpu.binding_bytes=512");
        assert!(some.form == Form::Tiled && !some.no_immediates && some.binding_bytes == Some(512));
        let some = forced("wgpu.trace=on,wgpu.invocations=65536,wgpu.subgroups=off,wgpu.dots=off");
        assert!(some.trace && some.no_dots && some.no_subgroups && some.invocations == Some(65_536));
        assert_eq!(forced("wgpu.matrix_units=plain").matrix_units, Some(MatrixUnits::Plain));
        assert_eq!(forced("wgpu.pipelines=a/b.log").pipeline_log, Some("a/b.log".into()));
        assert_eq!(forced("").form, Form::Auto);
    }

    #[test]
    fn what_cannot_be_read_is_an_error_that_names_the_variable() {
        for (name, value) in [
            ("TAPER_WGPU_MEMORY_LIMIT", "8 GB"),
            ("TAPER_WGPU_MEMORY_LIMIT", "0"),
            ("TAPER_WGPU_AUTOTUNE", "yes"),
            ("TAPER_WGPU_CHECKED", "2"),
            ("TAPER_WGPU_MATRIX_UNITS", "on"),
            ("TAPER_TEST", "wgpu.matrix_units=1"),
            ("TAPER_TEST", "wgpu.direct"),
            ("TAPER_TEST", "wgpu.trace=1"),
            ("TAPER_TEST", "wgpu.form=fast"),
            ("TAPER_TEST", "wgpu.pipelines="),
            ("TAPER_TEST", "wgpu.immediates=0"),
            ("TAPER_TEST", "wgpu.binding_bytes=511"),
            ("TAPER_TEST", "wgpu.binding_bytes=-1"),
            ("TAPER_TEST", "wgpu.storage_buffers=7"),
            ("TAPER_TEST", "wgpu.storage_buffers=1e9"),
        ] {
            let error = read(name, value).unwrap_err();
            let text = error.to_string();
            assert!(matches!(error.kind(), ErrorKind::Invalid { .. }), "{text}");
            assert!(text.contains(name) && text.contains(&format!("{value:?}")), "{text}");
        }
    }
}
