//! [`Checkpoint`]: a whole training in one file, to go on from as if it had not stopped.

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

/// What stands before the streams of random numbers of all modules.
const STREAMS: &str = "rng";
/// Where the metadata says which of the file's tensors are plain numbers.
const NUMBERS: &str = "taper.numbers";
/// Where the metadata has the version of this format, and the only one there is.
const VERSION_KEY: &str = "taper.version";
const VERSION: &str = "1";
/// Where the metadata has the checksum of everything else in the file.
const CHECKSUM: &str = "taper.crc32";
/// What stands before the names of values in JSON.
const VALUES: &str = "taper.value.";
/// The prefix of texts whose names the format uses itself.
const TEXTS: &str = "taper.text.";

/// The state of a training: modules with their streams of random numbers, optimizers, schedulers, loaders,
/// generators, and what else is worth a note. Training that goes on from it gives the same bits as training
/// that was not stopped.
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
/// // Later, and elsewhere: the same things are made anew, and take over the state.
/// let model = build(&Generator::seed(0, &device))?;
/// let checkpoint = Checkpoint::load(&path, &device)?;
/// checkpoint.restore().module("model", &model).part("generator", &mut rng).finish()?;
/// assert_eq!(checkpoint.get_number("epoch").map(|epoch| epoch.as_i64()), Some(3));
/// assert_eq!(model.forward(&x)?.to_vec::<f32>()?, expected); // the same dropped
/// # Ok(()) }
/// ```
///
/// The file is in the safetensors format, so that Python reads it too: `model.fc1.weight`,
/// `optimizer.state.0.momentum_buffer`, `rng.model.drop.offset`. Plain numbers are 0-d tensors in it, f64,
/// i64 or bool. It is written whole or not at all (see [`crate::save_safetensors`]): a training that is
/// killed while it saves keeps the checkpoint before. A checksum of its content tells a damaged file when it
/// is loaded. Gradients are not saved; save between `step` and the next `backward`.
///
/// Any name will do for a part, a text or a value; a part is given once. In the file a dot or line break in
/// the name of a part is written `%2E` or `%0A`, and a part `rng` is `%rng`, since `rng` stands before the
/// streams of modules.
#[derive(Clone, Debug, Default)]
pub struct Checkpoint {
    state: State,
    text: BTreeMap<String, String>,
    /// The parts put in so far.
    parts: Vec<String>,
    /// What was wrong with a name, for [`Checkpoint::save`] to say.
    problem: Option<String>,
}

impl Checkpoint {
    /// Nothing yet.
    pub fn new() -> Checkpoint {
        Checkpoint::default()
    }

    /// With a module's parameters, buffers and streams of random numbers.
    #[must_use]
    pub fn module(mut self, name: &str, module: &(impl Module + ?Sized)) -> Checkpoint {
        let key = self.claim(name);
        self.state.extend_under(&format!("{STREAMS}.{key}"), module.rng_state());
        self.state.extend_under(&key, tensors(module.state_dict()));
        self
    }

    /// With the state of an optimizer, a scheduler, a loader, a generator, or anything else that is
    /// [`Stateful`].
    #[must_use]
    pub fn part(mut self, name: &str, part: &(impl Stateful + ?Sized)) -> Checkpoint {
        let key = self.claim(name);
        self.state.extend_under(&key, part.state_dict());
        self
    }

    /// With a number, such as the epoch.
    #[must_use]
    pub fn number(mut self, name: &str, value: impl Into<Scalar>) -> Checkpoint {
        let key = self.claim(name);
        self.state.insert(key, StateValue::Number(value.into()));
        self
    }

    /// With a text, such as the settings of the run.
    #[must_use]
    pub fn text(mut self, name: &str, text: impl Into<String>) -> Checkpoint {
        self.text.insert(text_key(name).into_owned(), text.into());
        self
    }

    /// With a value of the user's own, such as a `struct` of settings or the losses so far. It is kept as
    /// JSON, in which numbers are exact, but NaN and infinity are null.
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
                self.problem.get_or_insert(format!("the value \"{name}\" has no form in JSON: {error}"));
            }
        }
        self
    }

    /// Takes a name for a part. Gives what stands before its entries in the file.
    fn claim(&mut self, name: &str) -> String {
        if self.parts.iter().any(|part| part == name) {
            self.problem.get_or_insert(format!("the name \"{name}\" is given twice"));
        } else {
            self.parts.push(name.to_string());
        }
        part_key(name)
    }

    /// Writes all of it to a file, whole or not at all.
    ///
    /// # Errors
    /// A name that is given twice, or a value that has no form in JSON; a tensor that cannot be computed;
    /// whatever the file system reports.
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

    /// Reads a checkpoint; its tensors go to `device`, and from there, when it is restored, to where those
    /// are that take them over.
    ///
    /// # Errors
    /// A `File` error for a file that cannot be read, is cut off or damaged, is of another version of the
    /// format, or is no checkpoint; a dtype that the device lacks; no memory there.
    #[track_caller]
    pub fn load(path: impl AsRef<Path>, device: &Device) -> Result<Checkpoint> {
        let path = path.as_ref();
        let file = SafetensorsFile::open(path)?;
        let Some(numbers) = file.metadata().get(NUMBERS) else {
            let message = "is a safetensors file, and no checkpoint; read it with load_safetensors";
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
            let message =
                "is damaged: its checksum is not that of what it holds; take the checkpoint before it";
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

    /// A value of the user's own by its name; `None` if there is none.
    ///
    /// # Errors
    /// A value that is no `T`.
    #[track_caller]
    pub fn get_value<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        let Some(json) = self.text.get(&format!("{VALUES}{name}")) else { return Ok(None) };
        let read = serde_json::from_str(json);
        let wrong = |error| {
            Error::invalid("Checkpoint", format!("the value \"{name}\" is not what is asked for: {error}"))
        };
        read.map(Some).map_err(wrong)
    }

    /// Gives the state back to those it was taken from, or to their likes.
    #[must_use = "nothing is restored before .finish()?"]
    pub fn restore(&self) -> Restore<'_> {
        Restore { checkpoint: self, targets: Vec::new() }
    }
}

/// The prefix of a part's entries: its name, in which a dot, which ends it, is written as `%2E`. It is never
/// [`STREAMS`], nor that of another name.
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
            // Where it would be taken for one of these.
            '%' if at == 0 || ["2E", "0A", "25"].iter().any(|code| escape(code)) => key += "%25",
            _ => key.push(c),
        }
    }
    key
}

/// The name that a text has in the file: its own, unless the format uses that itself.
fn text_key(name: &str) -> Cow<'_, str> {
    match name == "format" || name.starts_with("taper.") {
        true => format!("{TEXTS}{name}").into(),
        false => name.into(),
    }
}

/// The checksum of texts by name, and of tensors by name, shape and bytes.
struct Checksum(Hasher);

impl Checksum {
    /// Texts come first.
    fn of_text(mut text: Vec<(&String, &String)>) -> Checksum {
        let mut checksum = Checksum(Hasher::new());
        text.sort();
        for (name, text) in text {
            checksum.add(name.as_bytes());
            checksum.add(text.as_bytes());
        }
        checksum
    }

    /// The next tensor, before its bytes.
    fn add_tensor(&mut self, name: &str, shape: &[usize], bytes: usize) {
        self.add(name.as_bytes());
        shape.iter().for_each(|size| self.add(&(*size as u64).to_le_bytes()));
        self.add_length(bytes);
    }

    /// Some of a tensor's bytes.
    fn add_bytes(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn add(&mut self, bytes: &[u8]) {
        self.add_length(bytes.len());
        self.0.update(bytes);
    }

    /// Lengths stand first, so that nothing moves from one part to the next unseen.
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

/// Who is to take over the parts of a [`Checkpoint`]. See [`Checkpoint::restore`].
#[must_use = "nothing is restored before .finish()?"]
pub struct Restore<'a> {
    checkpoint: &'a Checkpoint,
    targets: Vec<(String, Target<'a>)>,
}

enum Target<'a> {
    Module(&'a dyn LoadModule),
    Part(&'a mut dyn Stateful),
}

/// A module of any kind, as far as restoring goes.
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
    /// A module takes over its parameters, buffers and streams of random numbers.
    pub fn module(mut self, name: &str, module: &'a impl Module) -> Restore<'a> {
        self.targets.push((name.into(), Target::Module(module)));
        self
    }

    /// An optimizer, a scheduler, a loader, a generator … takes over its state.
    pub fn part(mut self, name: &str, part: &'a mut impl Stateful) -> Restore<'a> {
        self.targets.push((name.into(), Target::Part(part)));
        self
    }

    /// Restores all of them, or none. What the checkpoint holds besides is left alone.
    ///
    /// # Errors
    /// `StateDict` with the names of all that is missing, unexpected or misshapen in the first part that does
    /// not fit; a value that cannot be moved. Everything is as it was then.
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
                // Each takes back what it gave out itself.
                undo.into_iter().try_for_each(Undo::run)?;
                return Err(error);
            }
        }
        Ok(())
    }
}

/// How to take back what was restored.
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

/// A misfit with its names under a prefix.
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
