//! The devices that Taper finds on this machine, as its example `devices` lists them.

use std::process::Command;

use super::build::{Built, DEVICES};
use crate::{Result, workspace::output};

/// One line of the example: a name that `TAPER_TEST=device=…` takes, and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) description: String,
}

impl Device {
    /// Whether this is the device asked for, or one of that kind: `wgpu:0` is a `wgpu`.
    pub(crate) fn is(&self, asked: &str) -> bool {
        self.name == asked || self.name.split(':').next() == Some(asked)
    }
}

/// The package of the example.
const EXAMPLES: &str = "taper-examples";

/// Runs the example, in an environment prepared by `prepare`.
pub(crate) fn list(built: &Built, prepare: impl FnOnce(&mut Command)) -> Result<Vec<Device>> {
    let example = built
        .examples
        .iter()
        .find(|example| example.package == EXAMPLES && example.target == DEVICES)
        .ok_or("the example `devices` was not built, so the devices are not known")?;
    let mut command = Command::new(&example.path);
    prepare(&mut command);
    let devices = parse(&output(&mut command)?);
    if devices.is_empty() { Err("the example `devices` lists no device".to_string()) } else { Ok(devices) }
}

/// Lines of `name<TAB>description<TAB>memory`, the memory in bytes if it is known; others are passed over.
fn parse(listing: &str) -> Vec<Device> {
    let device = |line: &str| {
        let mut fields = line.split('\t').map(str::trim);
        let (name, description) = (fields.next()?, fields.next()?);
        let memory = fields.next().and_then(|bytes| bytes.parse::<u64>().ok());
        let description = memory.map_or(description.to_string(), |bytes| {
            format!("{description}, {:.1} GiB", bytes as f64 / f64::from(1 << 30))
        });
        (!name.is_empty()).then(|| Device { name: name.to_string(), description })
    };
    listing.lines().filter_map(device).collect()
}

/// The advice for a machine without an adapter.
pub(crate) fn no_adapter() -> &'static str {
    if cfg!(target_os = "linux") {
        "no adapter: apt-get install libvulkan1 mesa-vulkan-drivers"
    } else {
        "no adapter: install or update the driver of the GPU"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_read() {
        let devices = parse(
            "cpu\tAMD EPYC, 2 threads\t8589934592\nwgpu:0\tllvmpipe (Vulkan)\tunknown\nnote: none\n\n\tx\t\n",
        );
        assert_eq!(
            devices,
            [
                Device { name: "cpu".to_string(), description: "AMD EPYC, 2 threads, 8.0 GiB".to_string() },
                Device { name: "wgpu:0".to_string(), description: "llvmpipe (Vulkan)".to_string() },
            ]
        );
    }

    #[test]
    fn a_device_answers_to_its_name_and_its_kind() {
        let device = Device { name: "wgpu:1".to_string(), description: String::new() };
        assert!(device.is("wgpu") && device.is("wgpu:1"));
        assert!(!device.is("wgpu:0") && !device.is("cpu"));
    }
}
