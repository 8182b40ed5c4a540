//! The machine that this process runs on: its processor, memory, caches and instruction sets. The system is
//! asked once; where it does not answer, the values are those of a common machine.

use std::{fs, sync::OnceLock};

use crate::simd::isa::Isa;

pub(crate) struct Machine {
    /// The processor in its maker's words.
    pub(crate) processor: String,
    /// Bytes of memory that this process may use: the machine's, or less where a control group says so.
    pub(crate) memory: Option<u64>,
    /// Processors that this process may use.
    pub(crate) processors: usize,
    /// Every instruction set of the processor, best first.
    pub(crate) isas: Vec<Isa>,
    /// Bytes of the first-level data cache and of the second-level cache of a processor. No block is sized
    /// by the third level, which processors share.
    pub(crate) l1d: usize,
    pub(crate) l2: usize,
}

/// The machine, asked once.
pub(crate) fn machine() -> &'static Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let caches = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").into_iter().flatten();
        let caches: Vec<Cache> = caches.filter_map(|entry| Cache::read(&entry.ok()?.path())).collect();
        let bytes = |level: u32, default: usize| {
            caches.iter().find(|cache| cache.level == level).map_or(default, |cache| cache.bytes)
        };
        Machine {
            processor: processor(),
            memory: memory(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            isas: Isa::available(),
            l1d: bytes(1, 48 << 10),
            l2: bytes(2, 1 << 20),
        }
    })
}

/// A cache that holds data.
struct Cache {
    level: u32,
    bytes: usize,
}

impl Cache {
    /// The cache that a folder of Linux describes.
    fn read(folder: &std::path::Path) -> Option<Cache> {
        let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
        Cache::parse(&text("level")?, &text("type")?, &text("size")?)
    }

    fn parse(level: &str, kind: &str, size: &str) -> Option<Cache> {
        let size = size.trim();
        let (number, unit) = match (size.strip_suffix('K'), size.strip_suffix('M')) {
            (Some(number), _) => (number, 1 << 10),
            (None, Some(number)) => (number, 1 << 20),
            (None, None) => (size, 1),
        };
        let bytes = number.parse::<usize>().ok()?.checked_mul(unit).filter(|&bytes| bytes > 0)?;
        (kind.trim() != "Instruction").then_some(Cache { level: level.trim().parse().ok()?, bytes })
    }
}

fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    info.lines()
        .find_map(|line| {
            let (key, value) = line.split_once(':')?;
            matches!(key.trim(), "model name" | "Model").then(|| value.trim().to_string())
        })
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| format!("{} processor", std::env::consts::ARCH))
}

fn memory() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let total = info.lines().find_map(|line| {
        let kib: u64 = line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    })?;
    let group = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        .iter()
        .find_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    Some(group.map_or(total, |group| group.min(total)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_read_as_linux_writes_them() {
        let parse = |level, kind, size| Cache::parse(level, kind, size).map(|c| (c.level, c.bytes));
        assert_eq!(parse("1\n", "Data\n", "48K\n"), Some((1, 48 << 10)));
        assert_eq!(parse("2", "Unified", "2M"), Some((2, 2 << 20)));
        assert_eq!(parse("1", "Instruction", "32K"), None);
        assert_eq!(parse("2", "Unified", "0K"), None);
        assert_eq!(parse("2", "Unified", "unknown"), None);
    }
}
