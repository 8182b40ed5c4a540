//! [`Checkpoints`]: a folder with the checkpoints of one training, which keeps the last and the best.
//!
//! A file's name has its step and its metric, so that no index can disagree with the files:
//! `step-0000000120.loss=0.25.safetensors`. In a metric's name all characters except letters, digits, `_`
//! and `-` are percent-encoded: `val%2Floss`.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use nn::Checkpoint;
use tensor_core::{Device, Error, ErrorKind, Result, Scalar, file::sweep};

const OP: &str = "Checkpoints";
const PREFIX: &str = "step-";
const SUFFIX: &str = ".safetensors";
/// The lock file, locked while a training writes to the folder.
const LOCK: &str = ".lock";

/// Whether lower or higher values of a metric are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Lower values are better, as for a loss.
    Lower,
    /// Higher values are better, as for an accuracy.
    Higher,
}

impl Goal {
    /// Whether `a` is better than `b`. Any number is better than NaN.
    pub fn is_better(self, a: f64, b: f64) -> bool {
        match self {
            _ if a.is_nan() => false,
            _ if b.is_nan() => true,
            Goal::Lower => a < b,
            Goal::Higher => a > b,
        }
    }
}

/// The checkpoints of one training, in its own folder.
///
/// ```
/// use nn::{Checkpoint, Linear};
/// use tensor_core::Generator;
/// use train::Checkpoints;
///
/// # fn main() -> tensor_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path().join("run");
/// let device = backend_cpu::cpu();
/// let model = Linear::new(4, 2, &Generator::seed(0, &device))?;
/// let mut checkpoints = Checkpoints::create(&folder)?.keep_last(2).keep_best("loss");
/// for (step, loss) in [(10, 0.5), (20, 0.1), (30, 0.4), (40, 0.3)] {
///     checkpoints.save(step, &Checkpoint::new().module("model", &model).number("loss", loss))?;
/// }
/// let steps: Vec<u64> = checkpoints.list()?.iter().map(|saved| saved.step).collect();
/// assert_eq!(steps, [20, 30, 40]); // the best, and the last two
///
/// // Later, in another process:
/// # drop(checkpoints);
/// let mut checkpoints = Checkpoints::resume(&folder)?.keep_last(2).keep_best("loss");
/// if let Some(latest) = checkpoints.latest(&device)? {
///     latest.checkpoint.restore().module("model", &model).finish()?;
///     assert_eq!(latest.step, 40);
/// }
/// # Ok(()) }
/// ```
///
/// Only one training at a time may write to a folder. It is locked until the value is dropped or the process
/// ends, even if it is killed: [`Checkpoints::create`] and [`Checkpoints::resume`] lock it before the
/// training, so that a folder that cannot be used is an error then. Other processes may read it, by
/// [`Checkpoints::new`].
///
/// Existing files in the folder do not make a save fail. If a training that did not call
/// [`Checkpoints::latest`] reaches a step that already exists, it is a different training: its first save
/// moves the existing files to a subfolder `earlier-1`. A training that goes back, such as to the best
/// checkpoint, moves those of later steps there.
#[derive(Debug)]
pub struct Checkpoints {
    folder: PathBuf,
    keep_last: Option<usize>,
    best: Option<(String, Goal)>,
    lock: Option<File>,
    /// Whether the training continues from the folder's checkpoints: it has read the latest, or saved one.
    goes_on: bool,
    /// The files that [`Checkpoints::latest`] could not read.
    damaged: Vec<PathBuf>,
}

/// A checkpoint in a folder that has not been read yet.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedStep {
    /// The number of steps before it was saved.
    pub step: u64,
    /// The name and value of the metric of [`Checkpoints::keep_best`].
    pub metric: Option<(String, f64)>,
    /// The path of the file.
    pub path: PathBuf,
}

/// A checkpoint that was read.
#[derive(Debug)]
pub struct LoadedStep {
    /// The number of steps before it was saved.
    pub step: u64,
    /// The path of the file.
    pub path: PathBuf,
    /// The checkpoint to restore.
    pub checkpoint: Checkpoint,
    /// The errors of newer files that were skipped because they are damaged. The next save removes them.
    pub passed_over: Vec<Error>,
}

impl Checkpoints {
    /// The checkpoints in `folder`, for reading. Writing is possible too: the first save creates and locks
    /// the folder. All checkpoints are kept, unless [`Checkpoints::keep_last`] limits them.
    pub fn new(folder: impl AsRef<Path>) -> Checkpoints {
        let folder = folder.as_ref().to_path_buf();
        Checkpoints { folder, keep_last: None, best: None, lock: None, goes_on: false, damaged: Vec::new() }
    }

    /// The folder of a new training, which is created and locked.
    ///
    /// # Errors
    /// A folder that has checkpoints already; `File` for a folder that another training writes to, or that
    /// cannot be created or written to.
    #[track_caller]
    pub fn create(folder: impl AsRef<Path>) -> Result<Checkpoints> {
        let checkpoints = Checkpoints::resume(folder)?;
        if let Some(last) = checkpoints.list()?.last() {
            let message = format!(
                "{} holds checkpoints up to step {}: continue from them with Checkpoints::resume, or give another folder",
                checkpoints.folder.display(),
                last.step
            );
            return Err(Error::invalid(OP, message));
        }
        Ok(checkpoints)
    }

    /// The folder of a training that continues from its latest checkpoint, or begins if there is none. The
    /// folder is created if it does not exist, and locked.
    ///
    /// # Errors
    /// `File` for a folder that another training writes to, or that cannot be created or written to.
    #[track_caller]
    pub fn resume(folder: impl AsRef<Path>) -> Result<Checkpoints> {
        let mut checkpoints = Checkpoints::new(folder);
        checkpoints.claim()?;
        Ok(checkpoints)
    }

    /// Keeps only the last `count` checkpoints, and at least one.
    #[must_use]
    pub fn keep_last(mut self, count: usize) -> Checkpoints {
        self.keep_last = Some(count.max(1));
        self
    }

    /// Also keeps the checkpoint with the lowest value of a metric: the number of this name in the
    /// checkpoint.
    #[must_use]
    pub fn keep_best(self, metric: &str) -> Checkpoints {
        self.keep_best_by(metric, Goal::Lower)
    }

    /// Also keeps the checkpoint with the best value of a metric: the number of this name in the checkpoint.
    /// If several are equal, the first is kept.
    #[must_use]
    pub fn keep_best_by(mut self, metric: &str, goal: Goal) -> Checkpoints {
        self.best = Some((metric.to_string(), goal));
        self
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a checkpoint after `step` steps, completely or not at all, and then removes those that are not
    /// to be kept. Returns its path.
    ///
    /// # Errors
    /// A folder that another training writes to, unless it was locked before; the errors of
    /// [`Checkpoint::save`], such as a full disk, after which all earlier files still exist. A checkpoint
    /// without the metric is an error too, but is written, without the metric in its name.
    #[track_caller]
    pub fn save(&mut self, step: u64, checkpoint: &Checkpoint) -> Result<PathBuf> {
        let (name, is_missing) = self.file_name(step, checkpoint);
        let path = self.folder.join(name);
        self.claim()?;
        self.move_aside(step)?;
        checkpoint.save(&path)?;
        self.goes_on = true;
        for old in self.not_kept(&path)? {
            fs::remove_file(&old)
                .map_err(|error| failed(&old, "is no longer needed, and cannot be removed", &error))?;
        }
        self.damaged.clear();
        match &self.best {
            Some((metric, _)) if is_missing => {
                let message = format!(
                    "keep_best(\"{metric}\"): the checkpoint of step {step} has no such number, and is saved without; give \
                     .number(\"{metric}\", …)"
                );
                Err(Error::invalid(OP, message))
            }
            Some(_) | None => Ok(path),
        }
    }

    /// Moves the checkpoints that this training, which has reached `step`, does not continue from to a
    /// subfolder.
    #[track_caller]
    fn move_aside(&self, step: u64) -> Result<()> {
        let mut others = self.list()?;
        others.retain(|saved| !self.damaged.contains(&saved.path));
        match self.goes_on {
            true => others.retain(|saved| saved.step > step),
            // Earlier steps may belong to this training, if it was restored in another way.
            false if others.last().is_none_or(|last| last.step < step) => others.clear(),
            false => {}
        }
        if others.is_empty() {
            return Ok(());
        }
        let names = (1..).map(|n: u64| self.folder.join(format!("earlier-{n}")));
        for aside in names {
            match fs::create_dir(&aside) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(failed(&aside, "cannot be made", &error)),
            }
            for saved in &others {
                let name = saved.path.file_name().unwrap_or_default();
                fs::rename(&saved.path, aside.join(name))
                    .map_err(|error| failed(&saved.path, "cannot be moved", &error))?;
            }
            break;
        }
        Ok(())
    }

    /// The checkpoints in the folder, by their steps; empty if there is no folder.
    ///
    /// # Errors
    /// `File` for a folder that cannot be read.
    #[track_caller]
    pub fn list(&self) -> Result<Vec<SavedStep>> {
        let unreadable = |error: io::Error| failed(&self.folder, "cannot be read", &error);
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(unreadable(error)),
        };
        let mut all = Vec::new();
        for entry in entries {
            let path = entry.map_err(unreadable)?.path();
            all.extend(parse(&path));
        }
        all.sort_by(|a, b| a.step.cmp(&b.step).then_with(|| a.path.cmp(&b.path)));
        Ok(all)
    }

    /// Reads the latest checkpoint that is not damaged, with its tensors on `device`. `None` if there are
    /// none.
    ///
    /// # Errors
    /// The `File` error of the newest if all are damaged; too little memory on the device.
    #[track_caller]
    pub fn latest(&mut self, device: &Device) -> Result<Option<LoadedStep>> {
        let mut passed_over: Vec<Error> = Vec::new();
        let mut damaged = Vec::new();
        for saved in self.list()?.into_iter().rev() {
            match Checkpoint::load(&saved.path, device) {
                Ok(checkpoint) => {
                    (self.damaged, self.goes_on) = (damaged, true);
                    return Ok(Some(LoadedStep {
                        step: saved.step,
                        path: saved.path,
                        checkpoint,
                        passed_over,
                    }));
                }
                Err(error) if matches!(error.kind(), ErrorKind::File { .. }) => {
                    passed_over.push(error);
                    damaged.push(saved.path);
                }
                Err(error) => return Err(error),
            }
        }
        passed_over.into_iter().next().map_or(Ok(None), Err)
    }

    /// Reads the checkpoint with the best value of the metric. `None` if no file has one, or no metric is
    /// named.
    ///
    /// # Errors
    /// `File` for a file that is damaged; too little memory on the device.
    #[track_caller]
    pub fn best(&self, device: &Device) -> Result<Option<LoadedStep>> {
        let all = self.list()?;
        let Some(best) = self.best_of(&all) else { return Ok(None) };
        let checkpoint = Checkpoint::load(&best.path, device)?;
        Ok(Some(LoadedStep { step: best.step, path: best.path.clone(), checkpoint, passed_over: Vec::new() }))
    }

    /// The file name of a checkpoint, and whether it lacks the metric.
    fn file_name(&self, step: u64, checkpoint: &Checkpoint) -> (String, bool) {
        let without = || format!("{PREFIX}{step:010}{SUFFIX}");
        let Some((metric, _)) = &self.best else { return (without(), false) };
        match checkpoint.get_number(metric).map(Scalar::as_f64) {
            Some(value) => {
                (format!("{PREFIX}{step:010}.{}={value:?}{SUFFIX}", metric_in_file(metric)), false)
            }
            None => (without(), true),
        }
    }

    /// Creates the folder, locks it against other trainings, and removes files that a killed process left
    /// incomplete.
    #[track_caller]
    fn claim(&mut self) -> Result<()> {
        if self.lock.is_some() {
            return Ok(());
        }
        fs::create_dir_all(&self.folder).map_err(|error| failed(&self.folder, "cannot be made", &error))?;
        let path = self.folder.join(LOCK);
        let lock = File::create(&path).map_err(|error| failed(&path, "cannot be made", &error))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let message =
                    "another training writes its checkpoints here; give each training its own folder";
                return Err(Error::new(ErrorKind::File {
                    path: self.folder.clone(),
                    message: message.into(),
                }));
            }
            // Some file systems have no locks.
            Err(TryLockError::Error(_)) => {}
        }
        sweep(&self.folder);
        self.lock = Some(lock);
        Ok(())
    }

    fn best_of<'a>(&self, all: &'a [SavedStep]) -> Option<&'a SavedStep> {
        let (name, goal) = self.best.as_ref()?;
        let mut best: Option<(&SavedStep, f64)> = None;
        for saved in all {
            if let Some((metric, value)) = &saved.metric
                && metric == name
                && best.is_none_or(|(_, least)| goal.is_better(*value, least))
            {
                best = Some((saved, *value));
            }
        }
        Some(best?.0)
    }

    /// The files to be removed after `new` was written.
    #[track_caller]
    fn not_kept(&self, new: &Path) -> Result<Vec<PathBuf>> {
        let mut all = self.list()?;
        let step = parse(new).map(|saved| saved.step);
        // A file of the same step with another value of the metric: the step was repeated.
        let twin = |saved: &SavedStep| Some(saved.step) == step && saved.path != new;
        let mut removed: Vec<PathBuf> = Vec::new();
        all.retain(|saved| {
            let stays = !twin(saved) && !self.damaged.contains(&saved.path);
            if !stays {
                removed.push(saved.path.clone());
            }
            stays
        });
        if let Some(count) = self.keep_last {
            let best = self.best_of(&all);
            let older = &all[..all.len().saturating_sub(count)];
            removed.extend(older.iter().filter(|saved| Some(*saved) != best).map(|saved| saved.path.clone()));
        }
        Ok(removed)
    }
}

/// Parses a file's name, if it is that of a checkpoint.
fn parse(path: &Path) -> Option<SavedStep> {
    let name = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    let (step, metric) = match name.split_once('.') {
        Some((step, metric)) => {
            let (name, value) = metric.split_once('=')?;
            (step, Some((metric_of_file(name)?, value.parse().ok()?)))
        }
        None => (name, None),
    };
    Some(SavedStep { step: step.parse().ok()?, metric, path: path.to_path_buf() })
}

/// A metric's name as a part of a file's name: bytes other than letters, digits, `_` and `-` become `%2F`
/// and the like.
fn metric_in_file(metric: &str) -> String {
    let mut name = String::with_capacity(metric.len());
    for byte in metric.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => name.push(char::from(byte)),
            _ => name += &format!("%{byte:02X}"),
        }
    }
    name
}

/// The inverse of [`metric_in_file`].
fn metric_of_file(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if c == '%' {
            bytes.push(u8::from_str_radix(rest.get(1..3)?, 16).ok()?);
            rest = &rest[3..];
        } else {
            let (own, after) = rest.split_at(c.len_utf8());
            bytes.extend_from_slice(own.as_bytes());
            rest = after;
        }
    }
    String::from_utf8(bytes).ok()
}

#[track_caller]
fn failed(path: &Path, what: &str, error: &io::Error) -> Error {
    Error::new(ErrorKind::File { path: path.to_path_buf(), message: format!("{what}: {error}") })
}
