//! [`Checkpoint`]: the whole state of a training in one file, to resume as if it had not stopped.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    path::Path,
};

use crc32fast::Hasher;
use serde::{Serialize, de::DeserializeOwned};
use tensor_core::{Device, Error, ErrorKind, Result, Scalar, State, StateValue, Stateful, file::file_error};

use crate::{
    Module, StateDict,
    safetensors::{Part, Piece, SafetensorsFile, evaluate, write},
};

/// The prefix of the random streams of all modules.
const STREAMS: &str = "rng";
/// The metadata entry that lists the file's tensors that are plain numbers.
const NUMBERS: &str = "taper.numbers";
/// The metadata entry with the version of this format; there is only one version.
const VERSION_KEY: &str = "taper.version";
const VERSION: &str = "1";
/// The metadata entry with the checksum of everything else in the file.
const CHECKSUM: &str = "taper.crc32";
/// The prefix of the names of values in JSON.
const VALUES: &str = "taper.value.";
/// The prefix of texts whose names the format reserves.
const TEXTS: &str = "taper.text.";

/// The state of a training: modules with their random streams, optimizers, schedulers, loaders, generators,
/// numbers, texts and other values. Training that resumes from it gives the same bits as training that was
/// not stopped.
///
/// ```
/// use autograd::TensorGrad;
/// use nn::{Checkpoint, Dropout, Linear, Module, Sequential};
/// use tensor_core::{Generator, Result, Tensor};
///
/// # fn main() -> Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("training.safetensors");
/// let device = backend_cpu::cpu();
/// let mut rng = Generator::seed(42, &device);
/// let build = |rng: &Generator| Ok::<_, tensor_core::Error>(
///     Sequential::new().add(Linear::new(4, 4, rng)?).add(Dropout::new(0.5, rng)?));
/// let model = build(&rng)?;
/// let x = Tensor::rand([2, 4], &rng)?;
/// Checkpoint::new().module("model", &model).part("generator", &rng).number("epoch", 3).save(&path)?;
/// let expected = model.forward(&x)?.to_vec::<f32>()?;
///
/// // Later, and elsewhere: the same objects are created again, and load the state.
/// let model = build(&Generator::seed(0, &device))?;
/// let checkpoint = Checkpoint::load(&path, &device)?;
/// checkpoint.restore().module("model", &model).part("generator", &mut rng).finish()?;
/// assert_eq!(checkpoint.get_number("epoch").map(|epoch| epoch.as_i64()), Some(3));
/// assert_eq!(model.forward(&x)?.to_vec::<f32>()?, expected); // the same dropped
/// # Ok(()) }
/// ```
///
/// The file is in the safetensors format, so that Python can read it: `model.fc1.weight`,
/// `optimizer.state.0.momentum_buffer`, `rng.model.drop.offset`. Plain numbers are 0-d tensors in it, f64,
/// i64 or bool. It is written completely or not at all (see [`crate::save_safetensors`]): a training that is
/// killed while it saves keeps the previous checkpoint. A checksum of its content detects damaged files when
/// they are loaded. Gradients are not saved; save between `step` and the next `backward`.
///
/// A part, a text or a value may have any name; each part is given once. In the file a dot or line break in
/// the name of a part is written as `%2E` or `%0A`, and a part `rng` as `%rng`, since `rng` is the prefix of
/// modules' random streams.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    state: State,
    text: BTreeMap<String, String>,
    /// The names of the parts so far.
    parts: Vec<String>,
    /// The error of an invalid name, reported by [`Checkpoint::save`].
    problem: Option<String>,
}

impl Checkpoint {
    /// An empty checkpoint.
    pub fn new() -> Checkpoint {
        Checkpoint::default()
    }

    /// Adds a module's parameters, buffers and random streams.
    #[must_use]
    pub fn module(mut self, name: &str, module: &(impl Module + ?Sized)) -> Checkpoint {
        let key = self.claim(name);
        self.state.extend_under(&format!("{STREAMS}.{key}"), module.rng_state());
        self.state.extend_under(&key, tensors(module.state_dict()));
        self
    }

    /// Adds the state of an optimizer, a scheduler, a loader, a generator, or any other [`Stateful`].
    #[must_use]
    pub fn part(mut self, name: &str, part: &(impl Stateful + ?Sized)) -> Checkpoint {
        let key = self.claim(name);
        self.state.extend_under(&key, part.state_dict());
        self
    }

    /// Adds a number, such as the epoch.
    #[must_use]
    pub fn number(mut self, name: &str, value: impl Into<Scalar>) -> Checkpoint {
        let key = self.claim(name);
        self.state.insert(key, StateValue::Number(value.into()));
        self
    }

    /// Adds a text, such as the settings of the run.
    #[must_use]
    pub fn text(mut self, name: &str, text: impl Into<String>) -> Checkpoint {
        self.text.insert(text_key(name).into_owned(), text.into());
        self
    }

    /// Adds a user-defined value, such as a `struct` of settings or the losses so far. It is stored as JSON,
    /// in which numbers are exact, but NaN and infinity are null.
    ///
    /// ```
    /// # fn main() -> tensor_core::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("a.safetensors");
    /// use nn::Checkpoint;
    /// Checkpoint::new().value("losses", &vec![0.9, 0.1]).save(&path)?;
    /// let read = Checkpoint::load(&path, &backend_cpu::cpu())?;
    /// assert_eq!(read.get_value::<Vec<f64>>("losses")?, Some(vec![0.9, 0.1]));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn value(mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Checkpoint {
        match serde_json::to_string(value) {
            Ok(json) => {
                if self.text.insert(format!("{VALUES}{name}"), json).is_some() {
                    self.problem.get_or_insert(format!("the value \"{name}\" is given twice"));
                }
            }
            Err(error) => {
                self.problem
                    .get_or_insert(format!("the value \"{name}\" cannot be written as JSON: {error}"));
            }
        }
        self
    }

    /// Registers the name of a part, and returns the prefix of its entries in the file.
    fn claim(&mut self, name: &str) -> String {
        if self.parts.iter().any(|part| part == name) {
            self.problem.get_or_insert(format!("the name \"{name}\" is given twice"));
        } else {
            self.parts.push(name.to_string());
        }
        part_key(name)
    }

    /// Writes the checkpoint to a file, completely or not at all.
    ///
    /// # Errors
    /// A name that is given twice, or a value that cannot be written as JSON; a tensor that cannot be
    /// computed; errors of the file system.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if let Some(problem) = &self.problem {
            return Err(Error::invalid("Checkpoint", problem.clone()));
        }
        let mut numbers = Vec::new();
        let mut parts = Vec::with_capacity(self.state.len());
        for (name, value) in self.state.iter() {
            parts.push(match value {
                StateValue::Tensor(tensor) => Part::of(name, tensor),
                StateValue::Number(value) => {
                    numbers.push(name);
                    Part::of_number(name, *value)
                }
            });
        }
        evaluate(&mut parts)?;
        let mut metadata: HashMap<String, String> = self.text.clone().into_iter().collect();
        metadata.insert(NUMBERS.into(), numbers.join("\n"));
        metadata.insert(VERSION_KEY.into(), VERSION.into());
        let mut checksum = Checksum::of_text(metadata.iter().collect());
        for part in &parts {
            checksum.add_tensor(part.name, part.shape(), part.size());
            part.read(&mut |bytes| {
                checksum.add_bytes(bytes);
                Ok(())
            })?;
        }
        metadata.insert(CHECKSUM.into(), checksum.finish());
        write(path, parts, metadata)
    }

    /// Reads a checkpoint; its tensors go to `device`. When they are restored, they move to the devices of
    /// the tensors that they replace.
    ///
    /// # Errors
    /// A `File` error for a file that cannot be read, is truncated or damaged, has another version of the
    /// format, or is no checkpoint; a dtype that the device lacks; too little memory.
    #[track_caller]
    pub fn load(path: impl AsRef<Path>, device: &Device) -> Result<Checkpoint> {
        let path = path.as_ref();
        let file = SafetensorsFile::open(path)?;
        let Some(numbers) = file.metadata().get(NUMBERS) else {
            let message = "is a safetensors file, but not a checkpoint; read it with load_safetensors";
            return Err(file_error(path, message));
        };
        let version = file.metadata().get(VERSION_KEY).map_or("none", String::as_str);
        if version != VERSION {
            let message = format!(
                "is a checkpoint of version {version}, and this Taper reads version {VERSION}; the tensors in it can be read with \
                 load_safetensors"
            );
            return Err(file_error(path, message));
        }
        let other = file.metadata().iter().filter(|(name, _)| *name != CHECKSUM && *name != "format");
        let mut checksum = Checksum::of_text(other.collect());
        file.each(|piece| match piece {
            Piece::Tensor { name, shape, bytes } => checksum.add_tensor(name, shape, bytes),
            Piece::Bytes(bytes) => checksum.add_bytes(bytes),
        })?;
        if file.metadata().get(CHECKSUM) != Some(&checksum.finish()) {
            let message = "is damaged: its checksum does not match its content; use the previous checkpoint";
            return Err(file_error(path, message));
        }
        let numbers: Vec<&str> = numbers.lines().collect();
        let mut state = State::new();
        for name in file.names() {
            let value = match numbers.binary_search(&name) {
                Ok(_) => StateValue::Number(file.number(name)?),
                Err(_) => StateValue::Tensor(file.tensor(name, device)?),
            };
            state.insert(name, value);
        }
        let own = |name: &str| [NUMBERS, VERSION_KEY, CHECKSUM, "format"].contains(&name);
        let text = file.metadata().clone().into_iter().filter(|(name, _)| !own(name));
        Ok(Checkpoint { state, text: text.collect(), ..Checkpoint::default() })
    }

    /// A number by its name.
    pub fn get_number(&self, name: &str) -> Option<Scalar> {
        self.state.number(&part_key(name)).or_else(|| self.state.number(name))
    }

    /// A text by its name.
    pub fn get_text(&self, name: &str) -> Option<&str> {
        self.text.get(&*text_key(name)).map(String::as_str)
    }

    /// A user-defined value by its name; `None` if there is none.
    ///
    /// # Errors
    /// A value that cannot be read as a `T`.
    #[track_caller]
    pub fn get_value<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let Some(json) = self.text.get(&format!("{VALUES}{name}")) else { return Ok(None) };
        let read = serde_json::from_str(json);
        let wrong =
            |error| Error::invalid("Checkpoint", format!("the value \"{name}\" has another type: {error}"));
        read.map(Some).map_err(wrong)
    }

    /// Restores the state to the objects that it was taken from, or to equivalent ones.
    #[must_use = "nothing is restored before .finish()?"]
    pub fn restore(&self) -> Restore<'_> {
        Restore { checkpoint: self, targets: Vec::new() }
    }
}

/// The prefix of a part's entries: its name, with `%2E` for a dot, because a dot ends it. It differs from
/// [`STREAMS`] and from the prefixes of all other names.
fn part_key(name: &str) -> String {
    if name.is_empty() || name == STREAMS {
        return format!("%{name}");
    }
    let mut key = String::with_capacity(name.len());
    for (at, c) in name.char_indices() {
        let escape = |code: &str| name[at + 1..].starts_with(code);
        match c {
            '.' => key += "%2E",
            '\n' => key += "%0A",
            // A `%` that would otherwise be read as an escape.
            '%' if at == 0 || ["2E", "0A", "25"].iter().any(|code| escape(code)) => key += "%25",
            _ => key.push(c),
        }
    }
    key
}

/// The name of a text in the file: its own, unless the format reserves it.
fn text_key(name: &str) -> Cow<'_, str> {
    match name == "format" || name.starts_with("taper.") {
        true => format!("{TEXTS}{name}").into(),
        false => name.into(),
    }
}

/// The checksum of texts by name, and of tensors by name, shape and bytes.
struct Checksum(Hasher);

impl Checksum {
    /// Starts with the texts.
    fn of_text(mut text: Vec<(&String, &String)>) -> Checksum {
        let mut checksum = Checksum(Hasher::new());
        text.sort();
        for (name, text) in text {
            checksum.add(name.as_bytes());
            checksum.add(text.as_bytes());
        }
        checksum
    }

    /// Adds the next tensor, before its bytes.
    fn add_tensor(&mut self, name: &str, shape: &[usize], bytes: usize) {
        self.add(name.as_bytes());
        shape.iter().for_each(|size| self.add(&(*size as u64).to_le_bytes()));
        self.add_length(bytes);
    }

    /// Adds some of a tensor's bytes.
    fn add_bytes(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn add(&mut self, bytes: &[u8]) {
        self.add_length(bytes.len());
        self.0.update(bytes);
    }

    /// Lengths come first, so that parts cannot be confused with each other.
    fn add_length(&mut self, length: usize) {
        self.0.update(&(length as u64).to_le_bytes());
    }

    fn finish(self) -> String {
        format!("{:08x}", self.0.finalize())
    }
}

fn tensors(dict: StateDict) -> State {
    dict.into_iter().map(|(name, tensor)| (name, StateValue::Tensor(tensor))).collect()
}

/// The objects that the parts of a [`Checkpoint`] are restored to. See [`Checkpoint::restore`].
#[must_use = "nothing is restored before .finish()?"]
pub struct Restore<'a> {
    checkpoint: &'a Checkpoint,
    targets: Vec<(String, Target<'a>)>,
}

enum Target<'a> {
    Module(&'a dyn LoadModule),
    Part(&'a mut dyn Stateful),
}

/// A module of any type, with the operations of restoring.
trait LoadModule {
    fn take(&self) -> (StateDict, State);
    fn load_dict(&self, dict: &StateDict) -> Result<()>;
    fn load_streams(&self, streams: &State) -> Result<()>;
}

impl<M: Module> LoadModule for M {
    fn take(&self) -> (StateDict, State) {
        (self.state_dict(), self.rng_state())
    }
    #[track_caller]
    fn load_dict(&self, dict: &StateDict) -> Result<()> {
        self.load_state_dict(dict)
    }
    #[track_caller]
    fn load_streams(&self, streams: &State) -> Result<()> {
        self.load_rng_state(streams)
    }
}

impl<'a> Restore<'a> {
    /// Restores a module's parameters, buffers and random streams.
    pub fn module(mut self, name: &str, module: &'a impl Module) -> Restore<'a> {
        self.targets.push((name.into(), Target::Module(module)));
        self
    }

    /// Restores the state of an optimizer, a scheduler, a loader, a generator …
    pub fn part(mut self, name: &str, part: &'a mut impl Stateful) -> Restore<'a> {
        self.targets.push((name.into(), Target::Part(part)));
        self
    }

    /// Restores all of them, or none. Other parts of the checkpoint are ignored.
    ///
    /// # Errors
    /// `StateDict` with the names of all entries that are missing, unexpected or of another shape in the
    /// first part that does not fit; a value that cannot be moved. Nothing has changed then.
    #[track_caller]
    pub fn finish(self) -> Result<()> {
        let state = &self.checkpoint.state;
        let mut undo: Vec<Undo<'_>> = Vec::new();
        for (name, target) in self.targets {
            let key = part_key(&name);
            let part = state.under(&key);
            let done = match target {
                Target::Module(module) => {
                    let (dict, streams) = module.take();
                    let tensors = part.into_iter().filter_map(|(name, value)| match value {
                        StateValue::Tensor(tensor) => Some((name, tensor)),
                        StateValue::Number(_) => None,
                    });
                    let path = format!("{STREAMS}.{key}");
                    match module.load_dict(&tensors.collect()) {
                        Ok(()) => {
                            let loaded = module.load_streams(&state.under(&path));
                            undo.push(Undo::Module(module, dict, streams));
                            loaded.map_err(|error| under(&path, error))
                        }
                        Err(error) => Err(under(&name, error)),
                    }
                }
                Target::Part(target) => {
                    let before = target.state_dict();
                    let loaded = target.load_state_dict(&part);
                    undo.push(Undo::Part(target, before));
                    loaded.map_err(|error| under(&name, error))
                }
            };
            if let Err(error) = done {
                // Each object loads the state that it returned before.
                undo.into_iter().try_for_each(Undo::run)?;
                return Err(error);
            }
        }
        Ok(())
    }
}

/// The data that undoes a restored part.
enum Undo<'a> {
    Module(&'a dyn LoadModule, StateDict, State),
    Part(&'a mut dyn Stateful, State),
}

impl Undo<'_> {
    fn run(self) -> Result<()> {
        match self {
            Undo::Module(module, dict, streams) => {
                module.load_dict(&dict)?;
                module.load_streams(&streams)
            }
            Undo::Part(part, state) => part.load_state_dict(&state),
        }
    }
}

/// A mismatch with its names under a prefix.
#[track_caller]
fn under(prefix: &str, error: Error) -> Error {
    let all = |names: &[String]| names.iter().map(|name| format!("{prefix}.{name}")).collect();
    let ErrorKind::StateDict { missing, unexpected, mismatched } = error.kind() else { return error };
    Error::new(ErrorKind::StateDict {
        missing: all(missing),
        unexpected: all(unexpected),
        mismatched: all(mismatched),
    })
}
