//! [`LoadWeights`]: a module is loaded from a file in one line.

use std::path::Path;

use nn::{Module, Unmatched};
use tensor_core::Result;

use crate::open;

/// Loads a module from a file of any format that [`open`] reads. Every [`Module`] has these methods.
///
/// ```
/// use nn::{Linear, Module};
/// use tensor_core::Generator;
/// use weights::LoadWeights;
/// # fn main() -> tensor_core::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("model.pt");
/// let rng = Generator::seed(0, &backend_cpu::cpu());
/// let trained = Linear::new(3, 2, &rng)?;
/// weights::save_torch(&path, &trained.state_dict())?; // or torch.save(model.state_dict(), path)
///
/// let model = Linear::new(3, 2, &rng)?;
/// model.load(&path)?;
/// assert_eq!(model.weight.to_vec::<f32>()?, trained.weight.to_vec::<f32>()?);
/// # Ok(()) }
/// ```
///
/// For a part of a file, other names or other dtypes, load from the open file:
/// `model.load_state_dict(&weights::open(path)?.under("model_state")?)?`, or
/// [`Module::load_mapped`] with a [`NameMap`](nn::NameMap). Tensors are read one by one.
pub trait LoadWeights: Module {
    /// Loads all parameters and buffers. `model.load_state_dict(torch.load(path))`, `load_model` of
    /// safetensors.
    ///
    /// # Errors
    /// The errors of [`open`] and of [`Module::load_state_dict`].
    #[track_caller]
    fn load(&self, path: impl AsRef<Path>) -> Result<()> {
        self.load_state_dict(&open(path)?)
    }

    /// Loads the tensors that both the file and the module have, and returns the other names.
    /// `model.load_state_dict(torch.load(path), strict=False)`.
    ///
    /// # Errors
    /// The errors of [`open`] and of [`Module::load_matching`].
    #[track_caller]
    fn load_partly(&self, path: impl AsRef<Path>) -> Result<Unmatched> {
        self.load_matching(&open(path)?)
    }
}

impl<M: Module + ?Sized> LoadWeights for M {}
