//! [`Registry`]: the functions of operators, by domain and version.

use std::collections::HashMap;

use tensor_core::Result;

use crate::{
    context::{Context, Operator},
    graph::domain_of,
    ops,
    value::Value,
};

/// The operators that a model may use. [`Registry::default`] has those of this crate; [`Registry::register`]
/// adds or replaces one.
///
/// ```
/// use onnx::Registry;
///
/// let mut registry = Registry::default();
/// registry.register("com.example", "Double", 1, |context| {
///     Ok(vec![context.tensor(0)?.mul_scalar(2.0).into()])
/// });
/// ```
#[derive(Clone, Debug)]
pub struct Registry {
    /// By domain and name: the first version of each function, the newest last.
    functions: HashMap<(String, String), Vec<(i64, Operator)>>,
}

impl Default for Registry {
    fn default() -> Registry {
        let mut registry = Registry::empty();
        for &(domain, name, since, function) in ops::tables().iter().copied().flatten() {
            registry.insert(domain, name, since, Operator::new(function));
        }
        registry
    }
}

impl Registry {
    /// A registry without operators.
    pub fn empty() -> Registry {
        Registry { functions: HashMap::new() }
    }

    /// Registers a function for an operator of a domain (empty for ONNX's own), from this version of the
    /// domain on.
    pub fn register(
        &mut self,
        domain: &str,
        name: &str,
        since_version: i64,
        function: impl Fn(&Context<'_>) -> Result<Vec<Value>> + Send + Sync + 'static,
    ) {
        self.insert(domain, name, since_version, Operator::registered(function));
    }

    fn insert(&mut self, domain: &str, name: &str, since_version: i64, operator: Operator) {
        let versions = self.functions.entry((domain_of(Some(domain)).into(), name.into())).or_default();
        match versions.binary_search_by_key(&since_version, |(since, _)| *since) {
            Ok(at) => versions[at].1 = operator,
            Err(at) => versions.insert(at, (since_version, operator)),
        }
    }

    /// The names of all operators, with their domains and the first versions of their functions.
    pub fn operators(&self) -> Vec<(String, String, i64)> {
        let mut all: Vec<(String, String, i64)> = self
            .functions
            .iter()
            .flat_map(|((domain, name), versions)| {
                versions.iter().map(|(since, _)| (domain.clone(), name.clone(), *since))
            })
            .collect();
        all.sort();
        all
    }

    pub(crate) fn find(&self, domain: &str, name: &str, version: i64) -> Option<Operator> {
        let versions = self.functions.get(&(domain.to_string(), name.to_string()))?;
        let newest = versions.iter().rev().find(|(since, _)| *since <= version);
        newest.map(|(_, operator)| operator.clone())
    }
}
