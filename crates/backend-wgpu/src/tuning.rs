//! Autotuning of matrix products. If requested, the variants of a product that the device supports are
//! timed on the first product of each class (its dtype, sizes to a power of two, and layouts), and the
//! fastest is kept, also on disk.
//!
//! Every variant adds up each result in the order of k; results can differ only where a device fuses
//! multiplications and additions differently.

use std::{collections::BTreeMap, path::Path, sync::Mutex, time::Duration};

use tensor_core::{Launch, Result};

use crate::{
    codegen::capabilities::{Capabilities, Form, Way},
    device::{disk_cache::Kept, faults::lock, gpu::Gpu, pipeline::assemble},
    kernels::{contract, map::Aliases, window},
    platform::Instant,
};

/// Smaller products, in multiplications, use the fixed table's variant: they are too short to time.
const LEAST_WORK: usize = 1 << 20;
/// The time for measuring one variant, unless a single run takes longer.
const TIMED: Duration = Duration::from_millis(4);
/// The most runs of one variant in a row.
const MOST_RUNS: u32 = 16;

/// The best variants found for one device.
#[derive(Debug)]
pub(crate) struct Tuning {
    form: Form,
    /// The best variants by form and class.
    best: Mutex<BTreeMap<String, Way>>,
    file: Option<Kept>,
    /// Held while measuring: two measurements would disturb each other.
    measuring: Mutex<()>,
}

impl Tuning {
    /// Loads the results of earlier processes, if they are kept in `dir`.
    pub(crate) fn open(form: Form, info: &wgpu::AdapterInfo, dir: Option<&Path>) -> Tuning {
        let file = dir.map(|dir| Kept::new("tuning", info, dir));
        let best = file.as_ref().and_then(Kept::read).map_or_else(BTreeMap::new, |text| parse(&text));
        Tuning { form, best: Mutex::new(best), file, measuring: Mutex::new(()) }
    }

    /// The path of the file, if results are kept.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.file.as_ref().map(Kept::path)
    }

    fn keep(&self, class: String, way: Way) {
        let mut best = lock(&self.best);
        best.insert(class, way);
        if let Some(file) = &self.file {
            // Another process may have added results meanwhile.
            let mut all = file.read().map_or_else(BTreeMap::new, |text| parse(&text));
            all.extend(best.iter().map(|(class, &way)| (class.clone(), way)));
            // If the directory is not writable, the next process only has to measure again.
            let _ = file.write(text(&all).as_bytes());
        }
    }
}

/// A line for each class: `auto f32 1024 1024 512 1 Last Last = tile 64`.
fn text(best: &BTreeMap<String, Way>) -> String {
    let line = |(class, way): (&String, &Way)| {
        let way = match way {
            Way::Blocks(side) => format!("blocks {side}"),
            Way::Tile(side) => format!("tile {side}"),
        };
        format!("{class} = {way}\n")
    };
    best.iter().map(line).collect()
}

/// Lines that cannot be parsed are ignored.
fn parse(bytes: &[u8]) -> BTreeMap<String, Way> {
    let line = |line: &str| {
        let (class, way) = line.split_once(" = ")?;
        let way = match way.split_once(' ') {
            Some(("blocks", side)) => Way::Blocks(side.parse().ok()?),
            Some(("tile", side)) => Way::Tile(side.parse().ok()?),
            _ => return None,
        };
        Some((class.to_string(), way))
    };
    std::str::from_utf8(bytes).unwrap_or_default().lines().filter_map(line).collect()
}

impl Tuning {
    /// The best variant for the product of `launch`, measured now if it is unknown; None if there is no
    /// choice.
    pub(crate) fn choose(&self, gpu: &Gpu, launch: &Launch<'_>) -> Result<Option<Way>> {
        let kernel = launch.kernel;
        let Some((class, _)) = contract::class(kernel).filter(|&(_, work)| work >= LEAST_WORK) else {
            return Ok(None);
        };
        let ways = contract::ways(kernel, self.form, &gpu.capabilities);
        if ways.len() < 2 {
            return Ok(None);
        }
        let class = format!("{:?} {class}", self.form).to_lowercase();
        let known = || lock(&self.best).get(&class).copied().filter(|way| ways.contains(way));
        if let Some(way) = known() {
            return Ok(Some(way));
        }
        let _alone = lock(&self.measuring);
        if let Some(way) = known() {
            return Ok(Some(way));
        }
        let mut best: Option<(Duration, Way)> = None;
        for way in ways {
            let slowest = best.map_or(Duration::MAX, |(time, _)| time * 4);
            match time(gpu, launch, &gpu.capabilities.with(way), slowest)? {
                Some(time) if best.is_none_or(|(least, _)| time < least) => best = Some((time, way)),
                _ => {}
            }
        }
        Ok(best.map(|(_, way)| {
            self.keep(class.clone(), way);
            way
        }))
    }
}

/// The time of one run, on the launch's own buffers: each run writes the same result. None if the device
/// refuses the kernel, or if a run takes longer than `slowest`.
fn time(
    gpu: &Gpu,
    launch: &Launch<'_>,
    capabilities: &Capabilities,
    slowest: Duration,
) -> Result<Option<Duration>> {
    let made =
        window::dispatches(launch.kernel, &Aliases::new(), capabilities).and_then(|made| assemble(gpu, made));
    let Ok(compiled) = made else {
        // A lost device refuses everything.
        return gpu.faults.alive(gpu.name()).map(|()| None);
    };
    let runs = |count: u32| -> Result<Duration> {
        gpu.settle()?;
        let start = Instant::now();
        for _ in 0..count {
            gpu.encode(&compiled, launch)?;
        }
        gpu.settle()?;
        Ok(start.elapsed() / count)
    };
    // The first run compiles.
    runs(1)?;
    let once = runs(1)?;
    if once > slowest {
        return Ok(None);
    }
    let count = TIMED.as_nanos() / once.as_nanos().max(1);
    let count = u32::try_from(count).unwrap_or(MOST_RUNS).clamp(1, MOST_RUNS);
    Ok(Some(once.min(runs(count)?).min(runs(count)?)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_again_and_nonsense_is_not() {
        let best = BTreeMap::from([
            ("auto f32 64 64 64 1 last last".to_string(), Way::Tile(128)),
            ("auto f32 64 64 64 2 last last".to_string(), Way::Blocks(8)),
            ("direct f64 64 64 64 1 no first".to_string(), Way::Blocks(4)),
        ]);
        assert_eq!(parse(text(&best).as_bytes()), best);
        let more = format!("{}nonsense\na = tile\nb = tile x\nc = wheel 4\nd =\n\n", text(&best));
        assert_eq!(parse(more.as_bytes()), best);
        assert!(parse(&[0xff, 0xfe]).is_empty());
    }
}
