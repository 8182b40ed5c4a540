//! Files kept between processes, one of each kind for each adapter and driver: compiled pipelines, if the
//! driver exports them (Vulkan), and measured choices (`tuning.rs`). A file that is missing, damaged or
//! from another driver is ignored; nothing here fails.
#![allow(unsafe_code)]

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use tensor_core::{file::write_whole, lock};

use crate::{
    device::faults::{Faults, scoped},
    platform::Instant,
};

/// Larger files are discarded, because drivers never remove entries.
const MAX_BYTES: u64 = 256 << 20;

/// The directory for these files: `TAPER_CACHE_DIR`, or None if that is `off`, or else a folder in the
/// user's cache directory.
pub(crate) fn directory(setting: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    match setting {
        Some(off) if off == "off" => None,
        Some(dir) if !dir.is_empty() => Some(dir.into()),
        _ => {
            let user = etcetera::base_strategy::choose_native_strategy().ok()?;
            Some(etcetera::BaseStrategy::cache_dir(&user).join("taper"))
        }
    }
}

/// A file of one kind, with the key that it must have.
#[derive(Debug)]
pub(crate) struct Kept {
    kind: &'static str,
    path: PathBuf,
    key: String,
}

impl Kept {
    /// The file in `dir` for an adapter and its driver.
    pub(crate) fn new(kind: &'static str, info: &wgpu::AdapterInfo, dir: &Path) -> Kept {
        // Other versions generate other shaders; with a file for each version, old pipelines do not
        // accumulate.
        let key = format!(
            "{}, {:?}, {:x}:{:x}, {}, {}, {}",
            env!("CARGO_PKG_VERSION"),
            info.backend,
            info.vendor,
            info.device,
            info.name,
            info.driver,
            info.driver_info
        )
        .replace('\n', " ");
        let name: String =
            info.name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(40).collect();
        let path = dir.join(format!("{name}-{:016x}.{kind}", checksum(key.as_bytes())));
        Kept { kind, path, key }
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn header(&self, data: &[u8]) -> String {
        format!("taper {} 1\n{}\n{:016x}\n", self.kind, self.key, checksum(data))
    }

    /// The contents of the file, if it is complete and has this key.
    pub(crate) fn read(&self) -> Option<Vec<u8>> {
        if std::fs::metadata(&self.path).ok()?.len() > MAX_BYTES {
            return None;
        }
        let mut bytes = std::fs::read(&self.path).ok()?;
        let head = self.header(&[]).len();
        let data = bytes.get(head..)?;
        if !bytes.starts_with(self.header(data).as_bytes()) {
            return None;
        }
        bytes.drain(..head);
        Some(bytes)
    }

    /// Writes a temporary file and renames it over the old one, so readers never see a partial file.
    pub(crate) fn write(&self, data: &[u8]) -> std::io::Result<()> {
        if let Some(dir) = self.path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        write_whole(
            &self.path,
            |error| error,
            |file| {
                file.write_all(self.header(data).as_bytes())?;
                file.write_all(data)
            },
        )
    }
}

/// The pipelines of one device.
pub(crate) struct DiskCache {
    raw: wgpu::PipelineCache,
    file: Kept,
    saved: Mutex<Saved>,
}

struct Saved {
    /// The checksum of the data on disk.
    checksum: u64,
    /// The number of pipelines of the device when the file was last written.
    pipelines: usize,
    /// The earliest time of the next save, so that saving takes only a small part of the time.
    not_before: Instant,
}

impl DiskCache {
    /// Opens the cache for `device` in `dir`, and loads existing pipelines.
    pub(crate) fn open(
        device: &wgpu::Device,
        faults: &Arc<Faults>,
        info: &wgpu::AdapterInfo,
        dir: &Path,
    ) -> Option<DiskCache> {
        if !device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let file = Kept::new("pipelines", info, dir);
        let data = file.read();
        let (raw, caught) =
            scoped(device, faults, "the cache of pipelines", || create(device, data.as_deref()));
        let saved =
            Saved { checksum: data.as_deref().map_or(0, checksum), pipelines: 0, not_before: Instant::now() };
        caught.is_none().then(|| DiskCache { raw, file, saved: Mutex::new(saved) })
    }

    /// The cache object for creating pipelines.
    pub(crate) fn raw(&self) -> &wgpu::PipelineCache {
        &self.raw
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Writes the file if there are new pipelines since the last write and that was not too recent, or if
    /// `now` is set.
    pub(crate) fn save(&self, pipelines: usize, now: bool) {
        // If another thread is saving, it saves for this one too.
        let Ok(mut saved) = self.saved.try_lock() else { return };
        let start = Instant::now();
        if saved.pipelines == pipelines || !now && start < saved.not_before {
            return;
        }
        saved.pipelines = pipelines;
        if let Some(data) = self.raw.get_data() {
            let sum = checksum(&data);
            if sum != saved.checksum && self.file.write(&data).is_ok() {
                saved.checksum = sum;
            }
        }
        saved.not_before = Instant::now() + start.elapsed() * 20 + Duration::from_millis(10);
    }

    /// Writes all unsaved pipelines; called when the device closes.
    pub(crate) fn close(&self, pipelines: usize) {
        drop(lock(&self.saved));
        self.save(pipelines, true);
    }
}

fn create(device: &wgpu::Device, data: Option<&[u8]>) -> wgpu::PipelineCache {
    let descriptor = wgpu::PipelineCacheDescriptor { label: Some("pipelines"), data, fallback: true };
    // SAFETY: `data` came from `PipelineCache::get_data` for the same adapter and driver: `Kept::read`
    // compares the key and a checksum. The driver also checks its own header, and with `fallback` it
    // ignores data that does not match.
    unsafe { device.create_pipeline_cache(&descriptor) }
}

/// FNV-1a over words of 8 bytes; protects against damage, not against malice.
fn checksum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let step = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    let sum = words.iter().fold(0xcbf2_9ce4_8422_2325, |sum, &word| step(sum, u64::from_le_bytes(word)));
    rest.iter().fold(sum ^ bytes.len() as u64, |sum, &byte| step(sum, u64::from(byte)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/down/card.pipelines");
        let file = |kind, key: &str| Kept { kind, path: path.clone(), key: key.into() };
        let card = file("pipelines", "card");
        assert_eq!(card.read(), None);
        let data: Vec<u8> = (0..1000u32).map(|i| (i * 7) as u8).collect();
        card.write(&data).unwrap();
        assert_eq!(card.read().as_deref(), Some(&data[..]));
        assert_eq!(file("pipelines", "another card").read(), None);
        assert_eq!(file("tuning", "card").read(), None);
        // No temporary file is left in the directory.
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        let whole = std::fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            std::fs::write(&path, &damaged).unwrap();
            assert_eq!(card.read(), None, "byte {at}");
        }
        for length in [0, 1, 20, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            assert_eq!(card.read(), None, "{length} bytes");
        }
        std::fs::write(&path, [&whole[..], b"more"].concat()).unwrap();
        assert_eq!(card.read(), None);
    }

    #[test]
    fn the_directory_can_be_moved_and_turned_off() {
        assert_eq!(directory(Some("off".as_ref())), None);
        assert_eq!(directory(Some("/somewhere".as_ref())), Some("/somewhere".into()));
        assert_eq!(directory(Some("".as_ref())), directory(None));
        assert!(directory(None).is_none_or(|d| d.ends_with("taper")));
    }
}
