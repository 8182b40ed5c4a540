//! [`StateDict`]: the tensors of a module by their names.

use std::collections::BTreeMap;

use tensor_core::{Error, Result, Tensor, few, near_names};

/// Tensors by name: `fc1.weight`. It is a snapshot, which later training does not change.
pub type StateDict = BTreeMap<String, Tensor>;

/// Reading a [`StateDict`] by name, where a name that is missing is an error.
pub trait StateDictTensor {
    /// The tensor with a name. `dict.get(name)` gives an `Option`.
    ///
    /// ```
    /// use nn::{Linear, Module, StateDictTensor};
    /// use tensor_core::Generator;
    /// # fn main() -> tensor_core::Result<()> {
    /// let layer = Linear::new(2, 3, &Generator::seed(0, &backend_cpu::cpu()))?;
    /// let dict = layer.state_dict();
    /// assert_eq!(dict.tensor("weight")?.dims(), [3, 2]);
    /// assert_eq!(dict.get("weight").unwrap().dims(), [3, 2]);
    /// assert!(dict.tensor("weights").unwrap_err().to_string().contains("[\"weight\"]"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// No such name; the error has the closest ones.
    fn tensor(&self, name: &str) -> Result<&Tensor>;
}

impl StateDictTensor for StateDict {
    #[track_caller]
    fn tensor(&self, name: &str) -> Result<&Tensor> {
        let Some(tensor) = self.get(name) else {
            let near = near_names(name, self.keys().map(String::as_str));
            let known = match near.is_empty() {
                true => few(&self.keys().cloned().collect::<Vec<_>>()),
                false => format!("{near:?}"),
            };
            let message = format!("the state dict has no tensor \"{name}\"; it has {known}");
            return Err(Error::invalid("state_dict", message));
        };
        Ok(tensor)
    }
}
