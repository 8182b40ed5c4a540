//! Settings of tests: the environment variable `TAPER_TEST` holds a list such as
//! `device=wgpu:0,deal=tiled@20785`. Also the log of skipped tests.

use std::{
    cell::Cell,
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

use tensor_core::Result;

use crate::deal::hash;

/// The environment variable.
pub const VARIABLE: &str = "TAPER_TEST";

/// The settings and their meaning. The wgpu backend reads its own settings, which begin with `wgpu.`.
pub const SETTINGS: &[(&str, &str)] = &[
    ("device", "the device of the behaviour suite; the CPU by default"),
    ("deal", "the cases to run on a GPU, by form and day, as in tiled@20785"),
    ("models", "a folder with the packages that contain larger models"),
    ("operation", "run only rows whose names contain this text"),
    (
        "require",
        "a device whose absence is a failure: wgpu; for programs of crates/ship chromium, qemu or chromium+qemu",
    ),
    ("rounds", "repetitions of a test that draws its cases"),
    ("seconds", "how long the byte fuzzer runs"),
    ("seed", "the seed of a test that draws its cases"),
    ("skip_log", "the file that names skipped tests, a line `name<TAB>reason` for each"),
    ("turn", "the number of the day, by which tests of several forms take turns"),
    ("written", "the folder in which a test leaves its files for another program"),
];

/// The value of a setting, if `TAPER_TEST` has it.
///
/// # Panics
/// `TAPER_TEST` has a name that is no setting.
#[track_caller]
pub fn setting(name: &str) -> Option<String> {
    find(&std::env::var(VARIABLE).unwrap_or_default(), name)
}

/// The number of the day where tests take turns.
#[track_caller]
fn day() -> Option<u64> {
    let read = |day: String| day.parse().unwrap_or_else(|e| panic!("{VARIABLE}: turn: {e}"));
    setting("turn").map(read)
}

/// Whether the next case of the running test is tried today: where tests take turns, every `of`-th one, and
/// on the next day its neighbour. So cases that are alike, which are neighbours, are not all left to one day.
#[track_caller]
pub fn has_turn(of: u64) -> bool {
    thread_local! {
        /// The cases that this thread, which runs one test, has asked for.
        static ASKED: Cell<u64> = const { Cell::new(0) };
    }
    let number = ASKED.replace(ASKED.get() + 1);
    day().is_none_or(|day| hash(&test()).wrapping_add(number).wrapping_add(day).is_multiple_of(of))
}

/// The name of the running test: the test harness names its threads.
fn test() -> String {
    std::thread::current().name().unwrap_or_default().to_string()
}

/// The number of the form, of `of`, that the running test takes today: after eight days it takes the next.
/// Nothing where the setting `turn` is absent, and each test takes all its forms.
#[track_caller]
pub fn turn(of: usize) -> Option<usize> {
    let day = day()?;
    // A case that has a turn on one of eight days meets each form.
    Some((hash(&test()).wrapping_add(day / 8) % of.max(1) as u64) as usize)
}

/// A number among the settings, or the default.
#[track_caller]
pub fn number(name: &str, default: u64) -> u64 {
    setting(name).map_or(default, |text| {
        text.parse().unwrap_or_else(|_| panic!("{VARIABLE}: {name}={text} is not a whole number"))
    })
}

fn find(list: &str, name: &str) -> Option<String> {
    let mut found = None;
    for word in list.split(',').filter(|word| !word.is_empty()) {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let known = SETTINGS.iter().any(|(known, _)| *known == key) || key.starts_with("wgpu.");
        assert!(known, "{VARIABLE}: {word:?} is no setting; the settings are\n{}", listed());
        if key == name {
            found = Some(value.to_string());
        }
    }
    found
}

fn listed() -> String {
    let lines: Vec<String> = SETTINGS.iter().map(|(name, meaning)| format!("  {name}: {meaning}")).collect();
    lines.join("\n")
}

/// Reports that the running test cannot run here. `cargo xtask test-all-backends` counts it as skipped and
/// prints the reason.
pub fn skip(reason: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_string();
    eprintln!("skipped: {name}: {reason}");
    if let Some(log) = setting("skip_log") {
        let mut log = OpenOptions::new().append(true).create(true).open(log).unwrap();
        // In one write, as tests of other processes write there too.
        log.write_all(format!("{name}\t{}\n", reason.replace(['\n', '\t'], " ")).as_bytes()).unwrap();
    }
}

/// A file or folder by its path below the folder that `TAPER_TEST=models=FOLDER` names; without that setting
/// the running test is reported as skipped.
///
/// # Panics
/// The folder does not have it.
#[track_caller]
pub fn downloaded(path: &str) -> Option<PathBuf> {
    let path = models(path)?.join(path);
    assert!(path.exists(), "{} is missing", path.display());
    Some(path)
}

/// As [`downloaded`], for a file by its name, anywhere below the folder.
///
/// # Panics
/// The folder does not have it.
#[track_caller]
pub fn downloaded_file(name: &str) -> Option<PathBuf> {
    fn below(folder: &Path, name: &str) -> Option<PathBuf> {
        let entries: Vec<PathBuf> =
            fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        let is_it = |path: &&PathBuf| path.is_file() && path.file_name().is_some_and(|found| found == name);
        let deeper = || entries.iter().filter(|path| path.is_dir()).find_map(|path| below(path, name));
        entries.iter().find(is_it).cloned().or_else(deeper)
    }
    let folder = models(name)?;
    let found = below(&folder, name);
    assert!(found.is_some(), "no {name} in {}", folder.display());
    found
}

fn models(wanted: &str) -> Option<PathBuf> {
    let folder = setting("models");
    if folder.is_none() {
        skip(&format!("{VARIABLE}=models= names no folder with {wanted}"));
    }
    folder.map(PathBuf::from)
}

/// The device, if it could be opened; otherwise reports the running test as skipped.
///
/// # Panics
/// There is no device, and `TAPER_TEST` has `require=wgpu`.
#[track_caller]
pub fn opened<D>(device: Result<D>) -> Option<D> {
    let device = opened_beside(device);
    if device.is_none() {
        skip("no adapter: apt-get install libvulkan1 mesa-vulkan-drivers");
    }
    device
}

/// As [`opened`], for a test that runs on another device too, and is not skipped.
///
/// # Panics
/// There is no device, and `TAPER_TEST` has `require=wgpu`.
#[track_caller]
pub fn opened_beside<D>(device: Result<D>) -> Option<D> {
    let required = setting("require").is_some_and(|name| name.starts_with("wgpu"));
    match device {
        Ok(device) => Some(device),
        Err(error) if required => panic!("{VARIABLE} requires wgpu, but {error}"),
        Err(error) => {
            eprintln!("note: not tested on wgpu: {error}");
            None
        }
    }
}

/// As [`opened_beside`]; where tests take turns, the running test has the device on one of three days.
///
/// # Panics
/// There is no device, and `TAPER_TEST` has `require=wgpu`.
#[track_caller]
pub fn opened_in_turn<D>(open: impl FnOnce() -> Result<D>) -> Option<D> {
    has_turn(3).then(open).and_then(opened_beside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_by_name_and_unknown_ones_refused() {
        let list = "device=wgpu:0,deal=tiled@20785,wgpu.form=direct,require=wgpu";
        assert_eq!(find(list, "device").as_deref(), Some("wgpu:0"));
        assert_eq!(find(list, "deal").as_deref(), Some("tiled@20785"));
        assert_eq!(find(list, "seed"), None);
        assert_eq!(find("", "seed"), None);
        assert!(std::panic::catch_unwind(|| find("divice=cpu", "device")).is_err());
    }
}
