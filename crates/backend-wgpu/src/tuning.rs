//! Autotuning of matrix products. If requested, the variants of a product that the device supports are
//! timed on the first product of each class (its dtype, sizes to a power of two, and layouts), and the
//! fastest is kept, also on disk.
//!
//! Variants differ in the order of additions, so results may differ in the last bits.

use std::{collections::BTreeMap, path::Path, sync::Mutex, time::Duration};

use tensor_core::{Launch, Result, lock};

use crate::{
    codegen::capabilities::{Capabilities, Form, ProductVariant},
    device::{disk_cache::Kept, gpu::Gpu, launch::pipeline::assemble},
    kernels::{body, cut::Aliases, product::contract},
    platform::Instant,
};

/// Smaller products, in multiplications, use the fixed table's variant: they are too short to time.
const MIN_WORK: usize = 1 << 20;
/// The time for measuring one variant, unless a single run takes longer.
const TIME_PER_VARIANT: Duration = Duration::from_millis(4);
/// The most runs of one variant in a row.
const MAX_RUNS: u32 = 16;

/// The best variants found for one device.
#[derive(Debug)]
pub(crate) struct Tuning {
    form: Form,
    /// The best variants by form and class.
    best: Mutex<BTreeMap<String, ProductVariant>>,
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

    fn keep(&self, class: String, variant: ProductVariant) {
        let mut best = lock(&self.best);
        best.insert(class, variant);
        if let Some(file) = &self.file {
            // Another process may have added results meanwhile.
            let mut all = file.read().map_or_else(BTreeMap::new, |text| parse(&text));
            all.extend(best.iter().map(|(class, &variant)| (class.clone(), variant)));
            // If the directory is not writable, the next process only has to measure again.
            let _ = file.write(text(&all).as_bytes());
        }
    }
}

/// A line for each class: `auto f32 1024 1024 512 1 Last Last = tile 64`.
fn text(best: &BTreeMap<String, ProductVariant>) -> String {
    let line = |(class, variant): (&String, &ProductVariant)| {
        let variant = match variant {
            ProductVariant::Blocks(side) => format!("blocks {side}"),
            ProductVariant::Tile(side) => format!("tile {side}"),
            ProductVariant::FewRows => "few rows".into(),
            ProductVariant::MatrixUnits => "matrix units".into(),
        };
        format!("{class} = {variant}\n")
    };
    best.iter().map(line).collect()
}

/// Lines that cannot be parsed are ignored.
fn parse(bytes: &[u8]) -> BTreeMap<String, ProductVariant> {
    let line = |line: &str| {
        let (class, variant) = line.split_once(" = ")?;
        let variant = match variant.split_once(' ') {
            Some(("blocks", side)) => ProductVariant::Blocks(side.parse().ok()?),
            Some(("tile", side)) => ProductVariant::Tile(side.parse().ok()?),
            Some(("few", "rows")) => ProductVariant::FewRows,
            Some(("matrix", "units")) => ProductVariant::MatrixUnits,
            _ => return None,
        };
        Some((class.to_string(), variant))
    };
    std::str::from_utf8(bytes).unwrap_or_default().lines().filter_map(line).collect()
}

impl Tuning {
    /// The best variant for the product of `launch`, measured now if it is unknown; None if there is no
    /// choice.
    pub(crate) fn choose(&self, gpu: &Gpu, launch: &Launch<'_>) -> Result<Option<ProductVariant>> {
        let kernel = launch.kernel;
        let Some((class, _)) = contract::class(kernel).filter(|&(_, work)| work >= MIN_WORK) else {
            return Ok(None);
        };
        let variants = contract::variants(kernel, self.form, &gpu.capabilities);
        if variants.len() < 2 {
            return Ok(None);
        }
        let units = if variants.contains(&ProductVariant::MatrixUnits) { " with units" } else { "" };
        let class = format!("{:?} {class}{units}", self.form).to_lowercase();
        let known = || lock(&self.best).get(&class).copied().filter(|variant| variants.contains(variant));
        if let Some(variant) = known() {
            return Ok(Some(variant));
        }
        let _alone = lock(&self.measuring);
        if let Some(variant) = known() {
            return Ok(Some(variant));
        }
        let mut best: Option<(Duration, ProductVariant)> = None;
        for variant in variants {
            let slowest = best.map_or(Duration::MAX, |(time, _)| time * 4);
            match time(gpu, launch, &gpu.capabilities.with(variant), slowest)? {
                Some(time) if best.is_none_or(|(least, _)| time < least) => best = Some((time, variant)),
                _ => {}
            }
        }
        Ok(best.map(|(_, variant)| {
            self.keep(class.clone(), variant);
            variant
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
        body::dispatches(launch.kernel, &Aliases::new(), capabilities).and_then(|made| assemble(gpu, made));
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
    let count = TIME_PER_VARIANT.as_nanos() / once.as_nanos().max(1);
    let count = u32::try_from(count).unwrap_or(MAX_RUNS).clamp(1, MAX_RUNS);
    Ok(Some(once.min(runs(count)?).min(runs(count)?)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_again_and_nonsense_is_not() {
        let best = BTreeMap::from([
            ("auto f32 64 64 64 1 last last".to_string(), ProductVariant::Tile(128)),
            ("auto f32 64 64 64 2 last last".to_string(), ProductVariant::Blocks(8)),
            ("auto f16 64 64 64 2 last last with units".to_string(), ProductVariant::MatrixUnits),
            ("direct f64 64 64 64 1 no first".to_string(), ProductVariant::Blocks(4)),
        ]);
        assert_eq!(parse(text(&best).as_bytes()), best);
        let more = format!("{}nonsense\na = tile\nb = tile x\nc = wheel 4\nd =\n\n", text(&best));
        assert_eq!(parse(more.as_bytes()), best);
        assert!(parse(&[0xff, 0xfe]).is_empty());
    }
}
