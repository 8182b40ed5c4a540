//! The backends of this process by name: Taper's own, and those that a program registered.

use std::sync::{Arc, Once, OnceLock, PoisonError, RwLock};

use tensor_core::{DeviceProvider, Error, Result, hide_lines_of};

use crate::environment::note_unknown;

pub(crate) type Provider = Arc<dyn DeviceProvider>;

/// The name that stands for a choice among devices.
pub(crate) const AUTO: &str = "auto";

/// The roots of the sources of Taper's crates. No error names a line in them.
const ROOTS: &[&str] = &[
    file!(),
    autograd::ROOT,
    data::ROOT,
    inspect::ROOT,
    nn::ROOT,
    optim::ROOT,
    #[cfg(feature = "cpu")]
    backend_cpu::ROOT,
    #[cfg(feature = "gpu")]
    backend_wgpu::ROOT,
    #[cfg(feature = "distributed")]
    distributed::ROOT,
    #[cfg(feature = "distributions")]
    distributions::ROOT,
    #[cfg(feature = "linalg")]
    linalg::ROOT,
    #[cfg(feature = "models")]
    models::ROOT,
    #[cfg(feature = "onnx")]
    onnx::ROOT,
    #[cfg(feature = "ship")]
    ship::ROOT,
    #[cfg(feature = "train")]
    train::ROOT,
    #[cfg(feature = "studio")]
    studio::ROOT,
    #[cfg(feature = "weights")]
    weights::ROOT,
];

/// The variables that this crate reads itself.
const VARIABLES: &[&str] = &[
    "TAPER_DEVICE",
    #[cfg(feature = "studio")]
    "TAPER_STUDIO",
];

/// Registers the devices of a backend by name: for [`device()`](crate::device()) and the variable
/// `TAPER_DEVICE`, for [`devices`](crate::devices()), [`is_available`](crate::is_available) and
/// [`device_count`](crate::device_count), and for their errors. A program calls it once, before it asks for
/// a device; `auto` takes a hardware GPU of such a backend if there is no other. The page on extending in
/// `docs/guide` has a complete example.
///
/// # Errors
/// `Invalid` for a name that is already in use, or that cannot be part of a device name.
///
/// ```
/// use taper::tensor_core::{DeviceInfo, DeviceProvider};
/// use taper::{Device, Error, ErrorKind, Result};
///
/// /// An accelerator that this machine does not have.
/// struct Npu;
///
/// impl DeviceProvider for Npu {
///     fn name(&self) -> &str {
///         "npu"
///     }
///     fn devices(&self) -> Vec<DeviceInfo> {
///         Vec::new()
///     }
///     fn open(&self, index: usize, _logical: usize) -> Result<Device> {
///         let (asked, hint) = (format!("npu:{index}"), "plug one in".to_string());
///         Err(Error::new(ErrorKind::UnknownDevice { asked, hint }))
///     }
/// }
///
/// taper::register_backend(Npu)?;
/// assert!(taper::device("npu").unwrap_err().to_string().contains("plug one in"));
/// assert!(taper::register_backend(Npu).unwrap_err().to_string().contains("is taken"));
/// # Ok::<(), taper::Error>(())
/// ```
#[track_caller]
pub fn register_backend(provider: impl DeviceProvider + 'static) -> Result<()> {
    let mut registered = registered().write().unwrap_or_else(PoisonError::into_inner);
    let names = || std::iter::once(provider.name()).chain(provider.aliases().iter().copied());
    if let Some(problem) = names().find_map(|name| problem(name, &registered)) {
        return Err(Error::invalid("register_backend", problem));
    }
    registered.push(Arc::new(provider));
    Ok(())
}

/// The reason why a name cannot be registered, or none.
fn problem(name: &str, registered: &[Provider]) -> Option<String> {
    let readable = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-' | '_'));
    if !readable {
        return Some(format!(
            "{name:?} cannot be the name of a backend; begin with a small letter, and go on with small letters, digits, - and _"
        ));
    }
    if name == AUTO {
        return Some(format!(
            "{AUTO:?} stands for a choice among devices; take another name for the backend"
        ));
    }
    let taken = registered.iter().find(|other| is_called(other, name))?;
    Some(format!(
        "the name {name:?} is taken by the backend {:?}; take another name, and register each backend once",
        taken.name()
    ))
}

/// Whether this is one of the backend's names.
pub(crate) fn is_called(provider: &Provider, name: &str) -> bool {
    provider.name() == name || provider.aliases().contains(&name)
}

/// The backend of a name.
pub(crate) fn provider(name: &str) -> Option<Provider> {
    providers().into_iter().find(|provider| is_called(provider, name))
}

/// Each backend, Taper's own first. Their functions are called without the lock, so that they may ask for
/// devices themselves.
pub(crate) fn providers() -> Vec<Provider> {
    prepare();
    registered().read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Preparations before the first device is used: errors hide the lines of Taper's crates, and variables that
/// nothing reads are reported.
pub(crate) fn prepare() {
    static PREPARED: Once = Once::new();
    PREPARED.call_once(|| {
        let registered = registered().read().unwrap_or_else(PoisonError::into_inner).clone();
        let backends = registered.iter().flat_map(|provider| provider.variables());
        let mut known: Vec<&str> = VARIABLES.iter().chain(backends).copied().collect();
        known.sort_unstable();
        note_unknown(&known);
    });
}

fn registered() -> &'static RwLock<Vec<Provider>> {
    static REGISTERED: OnceLock<RwLock<Vec<Provider>>> = OnceLock::new();
    REGISTERED.get_or_init(|| {
        ROOTS.iter().for_each(|root| hide_lines_of(root));
        RwLock::new(vec![
            #[cfg(feature = "cpu")]
            Arc::new(backend_cpu::CpuDevices),
            #[cfg(feature = "gpu")]
            Arc::new(backend_wgpu::WgpuDevices),
        ])
    })
}

#[cfg(test)]
mod tests {
    /// Every crate that this crate depends on hides its lines.
    #[test]
    fn every_crate_below_has_its_root_listed() {
        let (manifest, this) = (include_str!("../Cargo.toml"), include_str!("registry.rs"));
        let dependencies =
            manifest.split("\n[").find_map(|table| table.strip_prefix("dependencies]\n")).unwrap_or("");
        let names = dependencies
            .lines()
            .filter_map(|line| line.split(['.', ' ']).next())
            .filter(|name| !name.is_empty());
        // The first crate hides its own lines; the second is not one of Taper's crates.
        let names: Vec<String> = names
            .filter(|name| !["tensor-core", "strsim"].contains(name))
            .map(|name| name.replace('-', "_"))
            .collect();
        assert!(names.len() > 8, "{names:?}");
        for name in names {
            assert!(this.contains(&format!("    {name}::ROOT,")), "{name}");
        }
    }
}
