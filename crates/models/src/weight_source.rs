//! [`WeightSource`]: where the parameters of a model come from. A model's constructor asks it for each layer
//! by name; nothing is computed that a file then replaces.

use std::{cell::RefCell, collections::BTreeSet, fmt, path::Path, rc::Rc};

use nn::{
    Embedding, LayerNorm, LayerNormConfig, Linear, Module, RmsNorm, StateDict, TensorSource, skip_init,
};
use tensor_core::{DType, Device, Error, Generator, Result, Shape, Tensor, default_dtype, file::file_error};
use weights::WeightFile;

use crate::gguf::GgufNames;

/// The distribution of a parameter's initial values, for models without files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Initial {
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
    /// Zeros.
    Zeros,
    /// Ones.
    Ones,
}

/// Notes that a table of embeddings is also the weight of the output layer, which adapters must know.
pub(crate) fn tie_output(table: &Embedding) {
    table.adapters.set_shared("the output layer");
}

impl Initial {
    #[track_caller]
    fn draw(self, shape: &[usize], rng: &Generator) -> Result<Tensor> {
        Ok(match self {
            Initial::Normal(deviation) => Tensor::randn(shape, rng)?.mul_scalar(deviation),
            Initial::Zeros => Tensor::zeros(shape, rng.device())?,
            Initial::Ones => Tensor::ones(shape, rng.device())?,
        })
    }
}

/// The standard deviation of initial weights, `initializer_range` of most references.
const INITIAL_DEVIATION: f64 = 0.02;

/// The source of a model's parameters: a file, a state dict, or random numbers. A clone by
/// [`WeightSource::at`] adds a part of the names. A generator can take its place: it is the source of random
/// numbers.
///
/// ```
/// use models::WeightSource;
/// use tensor_core::Generator;
/// # fn main() -> tensor_core::Result<()> {
/// let source = WeightSource::random(&Generator::seed(0, &backend_cpu::cpu()));
/// let layer = source.at("encoder").linear("fc1", 4, 8, true)?;
/// assert_eq!(layer.weight.dims(), [8, 4]);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct WeightSource {
    inner: Rc<Inner>,
    prefix: String,
}

struct Inner {
    origin: Origin,
    device: Device,
    /// The floats are cast to this dtype as they are read; those in blocks stay as they are.
    dtype: Option<DType>,
    used: RefCell<BTreeSet<String>>,
}

enum Origin {
    File(Box<WeightFile>, Option<GgufNames>),
    Dict(StateDict),
    Random(Generator),
}

impl From<&Generator> for WeightSource {
    /// [`WeightSource::random`].
    fn from(rng: &Generator) -> WeightSource {
        WeightSource::random(rng)
    }
}

impl From<&WeightSource> for WeightSource {
    fn from(source: &WeightSource) -> WeightSource {
        source.clone()
    }
}

impl WeightSource {
    fn new(origin: Origin, device: &Device) -> WeightSource {
        let inner = Inner { origin, device: device.clone(), dtype: None, used: RefCell::default() };
        WeightSource { inner: Rc::new(inner), prefix: String::new() }
    }

    /// The tensors of a folder or file, as [`weights::open`] reads them, on `device`.
    ///
    /// # Errors
    /// As [`weights::open`].
    #[track_caller]
    pub fn open(path: impl AsRef<Path>, device: &Device) -> Result<WeightSource> {
        Ok(WeightSource::file(weights::open(path)?, device))
    }

    /// The tensors of an open file.
    pub fn file(file: WeightFile, device: &Device) -> WeightSource {
        WeightSource::new(Origin::File(Box::new(file), None), device)
    }

    /// The tensors of a GGUF file under the names of `transformers`.
    pub(crate) fn gguf(file: WeightFile, names: GgufNames, device: &Device) -> WeightSource {
        WeightSource::new(Origin::File(Box::new(file), Some(names)), device)
    }

    /// The tensors of a state dict, moved to `device`.
    pub fn state_dict(dict: StateDict, device: &Device) -> WeightSource {
        WeightSource::new(Origin::Dict(dict), device)
    }

    /// Initial values for a training, on the generator's device.
    pub fn random(rng: &Generator) -> WeightSource {
        WeightSource::new(Origin::Random(rng.clone()), rng.device())
    }

    /// The same source, with floats cast to `dtype` as they are read. Tensors in blocks stay in blocks.
    #[must_use]
    pub fn floats(self, dtype: DType) -> WeightSource {
        let WeightSource { inner, prefix } = self;
        let inner = match Rc::try_unwrap(inner) {
            Ok(inner) => Inner { dtype: Some(dtype), ..inner },
            Err(shared) => {
                let origin = match &shared.origin {
                    Origin::File(file, names) => Origin::File(file.clone(), names.clone()),
                    Origin::Dict(dict) => Origin::Dict(dict.clone()),
                    Origin::Random(rng) => Origin::Random(rng.clone()),
                };
                let (device, used) = (shared.device.clone(), shared.used.clone());
                Inner { origin, device, dtype: Some(dtype), used }
            }
        };
        WeightSource { inner: Rc::new(inner), prefix }
    }

    /// The part of the names below `name`: `source.at("layers").at(3)`.
    #[must_use]
    pub fn at(&self, name: impl fmt::Display) -> WeightSource {
        WeightSource { inner: self.inner.clone(), prefix: self.full(&name.to_string()) }
    }

    /// [`WeightSource::at`], if there is any tensor below `name`; otherwise the same source. Files of a
    /// model without its head often lack the model's name before each tensor.
    #[must_use]
    pub fn at_if_there(&self, name: &str) -> WeightSource {
        let below = self.at(name);
        let dotted = below.dotted();
        let there = match &self.inner.origin {
            Origin::File(file, None) => file.names().any(|name| name.starts_with(&dotted)),
            Origin::Dict(dict) => dict.keys().any(|name| name.starts_with(&dotted)),
            Origin::File(_, Some(_)) | Origin::Random(_) => true,
        };
        if there { below } else { self.clone() }
    }

    /// The device of the tensors.
    pub fn device(&self) -> &Device {
        &self.inner.device
    }

    /// Whether the source has a tensor with this name. A random source has all.
    pub fn has(&self, name: &str) -> bool {
        let full = self.full(name);
        match &self.inner.origin {
            Origin::File(file, None) => file.info(&full).is_some(),
            Origin::File(file, Some(names)) => {
                names.find(&full).is_some_and(|(name, _)| file.info(&name).is_some())
            }
            Origin::Dict(dict) => dict.contains_key(&full),
            Origin::Random(_) => true,
        }
    }

    fn full(&self, name: &str) -> String {
        match (self.prefix.is_empty(), name.is_empty()) {
            (true, _) => name.to_string(),
            (_, true) => self.prefix.clone(),
            (false, false) => format!("{}.{name}", self.prefix),
        }
    }

    /// A parameter of this shape. A tensor in blocks stays in blocks, and is not trained.
    ///
    /// # Errors
    /// No tensor with this name, one of another shape, or one that cannot be read.
    #[track_caller]
    pub fn parameter(&self, name: &str, shape: &[usize], initial: Initial) -> Result<Tensor> {
        self.parameter_from(name, shape, |rng| initial.draw(shape, rng))
    }

    /// As [`WeightSource::parameter`], with initial values by a function where the source is random.
    #[track_caller]
    pub(crate) fn parameter_from(
        &self,
        name: &str,
        shape: &[usize],
        initial: impl FnOnce(&Generator) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let value = self.value(name, shape, initial)?;
        value.eval()?;
        let trained = value.block_format().is_none();
        value.into_cell(trained)
    }

    /// A tensor of this shape that is not trained.
    ///
    /// # Errors
    /// As [`WeightSource::parameter`].
    #[track_caller]
    pub fn buffer(&self, name: &str, shape: &[usize], initial: Initial) -> Result<Tensor> {
        self.value(name, shape, |rng| initial.draw(shape, rng))?.into_cell(false)
    }

    /// A tensor of this shape that the caller makes parameters of, where the source is not random.
    #[track_caller]
    pub(crate) fn stored(&self, name: &str, shape: &[usize]) -> Result<Tensor> {
        self.value(name, shape, |_| Err(Error::invalid("WeightSource", format!("no initial \"{name}\""))))
    }

    /// The dtype of the floats.
    pub(crate) fn dtype(&self) -> DType {
        self.inner.dtype.unwrap_or_else(default_dtype)
    }

    #[track_caller]
    fn value(
        &self,
        name: &str,
        shape: &[usize],
        initial: impl FnOnce(&Generator) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let full = self.full(name);
        let device = &self.inner.device;
        let mut value = match &self.inner.origin {
            Origin::File(file, None) => file.tensor(&full, device)?,
            Origin::File(file, Some(names)) => names.read(file, &full, device)?,
            Origin::Dict(dict) => match dict.get(&full) {
                Some(tensor) => tensor.detach().to(device)?,
                None => return Err(self.unfit(format!("has no \"{full}\""))),
            },
            Origin::Random(rng) => initial(rng)?,
        };
        if value.dims() != shape {
            let message =
                format!("\"{full}\" has the shape {}; this configuration needs {shape:?}", value.shape());
            return Err(Error::invalid("WeightSource", message));
        }
        let dtype = self.dtype();
        if value.dtype().is_float() && value.dtype() != dtype {
            value = value.to_dtype(dtype)?;
        }
        self.inner.used.borrow_mut().insert(full);
        Ok(value)
    }

    /// A whole network by its constructor: see [`WeightSource::module`] and [`WeightSource::finish`].
    #[track_caller]
    pub(crate) fn network<M: Module>(&self, initial: impl FnOnce(&Generator) -> Result<M>) -> Result<M> {
        let network = self.module("", initial)?;
        // Batch norms that are frozen have no counters, and older files have tables that are computed.
        self.finish(&["num_batches_tracked", "position_ids"])?;
        Ok(network)
    }

    /// A module by its constructor, with its initial values where the source is random. From a file or a
    /// dict it takes the parameters and buffers below `name`, and no initial value is computed. Counters of
    /// batch norms, which old files lack, then begin at 0.
    ///
    /// # Errors
    /// The constructor's; tensors that are missing, have another shape, or cannot be read; a
    /// [`WeightSource::floats`] other than the default dtype, which the constructor gives its layers.
    #[track_caller]
    pub(crate) fn module<M: Module>(
        &self,
        name: &str,
        initial: impl FnOnce(&Generator) -> Result<M>,
    ) -> Result<M> {
        if let Some(dtype) = self.inner.dtype.filter(|dtype| *dtype != default_dtype()) {
            let (mend, layers) = (format!("call set_default_dtype({dtype:?}) before"), default_dtype());
            let message = format!("the layers of this network are {layers}, not {dtype}: {mend}");
            return Err(Error::invalid("WeightSource", message));
        }
        let tensors: &dyn TensorSource = match &self.inner.origin {
            Origin::Random(rng) => return initial(rng),
            Origin::File(file, _) => &**file,
            Origin::Dict(dict) => dict,
        };
        let module = skip_init(|| initial(&Generator::seed(0, &self.inner.device)))?;
        self.at(name).load(&module, tensors)?;
        Ok(module)
    }

    /// Replaces the parameters and buffers of a module by the tensors below the source's name.
    #[track_caller]
    fn load(&self, module: &dyn Module, tensors: &dyn TensorSource) -> Result<()> {
        let prefix = self.dotted();
        let mut missing = module.load_matching(&Below { tensors, prefix: &prefix })?.missing;
        missing.retain(|name| !name.ends_with("num_batches_tracked"));
        if let Some(first) = missing.first() {
            let others = match missing.len() - 1 {
                0 => String::new(),
                count => format!(" and {count} others"),
            };
            let message =
                format!("has no \"{prefix}{first}\"{others}: these are the weights of another model");
            return Err(self.unfit(message));
        }
        self.inner
            .used
            .borrow_mut()
            .extend(module.state_dict().into_keys().map(|name| prefix.clone() + &name));
        Ok(())
    }

    /// An error about the file or the state dict.
    #[track_caller]
    fn unfit(&self, message: String) -> Error {
        match &self.inner.origin {
            Origin::File(file, _) => file_error(file.path(), message),
            Origin::Dict(_) => Error::invalid("WeightSource", format!("the state dict {message}")),
            Origin::Random(_) => Error::invalid("WeightSource", message),
        }
    }

    /// The beginning of the names below the source's.
    fn dotted(&self) -> String {
        if self.prefix.is_empty() { String::new() } else { format!("{}.", self.prefix) }
    }

    /// A linear layer from `inputs` to `outputs` features.
    ///
    /// # Errors
    /// As [`WeightSource::parameter`].
    #[track_caller]
    pub fn linear(&self, name: &str, inputs: usize, outputs: usize, bias: bool) -> Result<Linear> {
        let at = self.at(name);
        let weight = at.parameter("weight", &[outputs, inputs], Initial::Normal(INITIAL_DEVIATION))?;
        let bias = match bias {
            true => Some(at.parameter("bias", &[outputs], Initial::Zeros)?),
            false => None,
        };
        Ok(Linear::from_weight(weight, bias))
    }

    /// A table of `rows` vectors.
    ///
    /// # Errors
    /// As [`WeightSource::parameter`].
    #[track_caller]
    pub fn embedding(&self, name: &str, rows: usize, features: usize) -> Result<Embedding> {
        let weight =
            self.at(name).parameter("weight", &[rows, features], Initial::Normal(INITIAL_DEVIATION))?;
        if weight.block_format().is_none() {
            return Embedding::from_weight(weight); // shares the parameter
        }
        // A table in blocks takes the place of one row.
        let mut table = Embedding::from_weight(Tensor::zeros([1, 1], &self.inner.device)?)?;
        table.weight = weight;
        Ok(table)
    }

    /// A layer normalization over the last axis.
    ///
    /// # Errors
    /// As [`WeightSource::parameter`].
    #[track_caller]
    pub fn layer_norm(&self, name: &str, features: usize, eps: f64, bias: bool) -> Result<LayerNorm> {
        let at = self.at(name);
        let config = LayerNormConfig { eps, bias, ..Default::default() };
        let mut norm = skip_init(|| LayerNorm::with_config([features], config, &self.inner.device))?;
        norm.weight = Some(at.parameter("weight", &[features], Initial::Ones)?);
        if bias {
            norm.bias = Some(at.parameter("bias", &[features], Initial::Zeros)?);
        }
        Ok(norm)
    }

    /// A root mean square normalization over the last axis.
    ///
    /// # Errors
    /// As [`WeightSource::parameter`].
    #[track_caller]
    pub fn rms_norm(&self, name: &str, features: usize, eps: f64) -> Result<RmsNorm> {
        let mut norm = skip_init(|| RmsNorm::with_config([features], Some(eps), true, &self.inner.device))?;
        norm.weight = Some(self.at(name).parameter("weight", &[features], Initial::Ones)?);
        Ok(norm)
    }

    /// Checks that the model has taken every tensor of the source, except those whose names end with one of
    /// `ignored`. For a source by [`WeightSource::at`], these are the tensors below its name.
    ///
    /// # Errors
    /// Tensors that this model does not have, by name: the file belongs to another one.
    #[track_caller]
    pub fn finish(&self, ignored: &[&str]) -> Result<()> {
        self.finish_but(|name| ignored.iter().any(|end| name.ends_with(end)))
    }

    /// As [`WeightSource::finish`], except for tensors whose names in the file `ignored` knows.
    #[track_caller]
    pub(crate) fn finish_but(&self, ignored: impl Fn(&str) -> bool) -> Result<()> {
        let used = self.inner.used.borrow();
        let known: BTreeSet<String> = match &self.inner.origin {
            Origin::File(_, Some(names)) => {
                used.iter().filter_map(|name| names.find(name)).map(|(name, _)| name).collect()
            }
            Origin::File(_, None) | Origin::Dict(_) | Origin::Random(_) => used.clone(),
        };
        let all: Vec<&str> = match &self.inner.origin {
            Origin::File(file, _) => file.names().filter(|name| !file.is_part(name)).collect(),
            Origin::Dict(dict) => dict.keys().map(String::as_str).collect(),
            Origin::Random(_) => Vec::new(),
        };
        let prefix = self.dotted();
        let mut left: Vec<&str> = all
            .into_iter()
            .filter(|name| name.starts_with(&prefix) && !known.contains(*name))
            .filter(|name| !ignored(name))
            .collect();
        if left.is_empty() {
            return Ok(());
        }
        let count = left.len();
        left.truncate(8);
        let message = format!(
            "has {count} tensors that belong to no part of this model: {}{}; is its configuration another one's?",
            left.join(", "),
            if count > left.len() { " and more" } else { "" }
        );
        Err(self.unfit(message))
    }
}

/// The tensors whose names begin with `prefix`, named without it.
struct Below<'a> {
    tensors: &'a dyn TensorSource,
    prefix: &'a str,
}

impl TensorSource for Below<'_> {
    fn names(&self) -> Vec<&str> {
        self.tensors.names().into_iter().filter_map(|name| name.strip_prefix(self.prefix)).collect()
    }

    fn described(&self, name: &str) -> Option<(Shape, DType)> {
        self.tensors.described(&format!("{}{name}", self.prefix))
    }

    #[track_caller]
    fn read(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor> {
        self.tensors.read(&format!("{}{name}", self.prefix), dtype, device)
    }

    fn is_in_memory(&self) -> bool {
        self.tensors.is_in_memory()
    }
}

impl fmt::Debug for WeightSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = match &self.inner.origin {
            Origin::File(file, _) => file.path().display().to_string(),
            Origin::Dict(_) => "a state dict".into(),
            Origin::Random(_) => "random".into(),
        };
        f.debug_struct("WeightSource").field("origin", &origin).field("prefix", &self.prefix).finish()
    }
}
