//! [`NameMap`]: maps the names in a file to the names of a module.

use std::collections::BTreeMap;

use tensor_core::{DType, Device, Error, ErrorKind, Result, Shape, Tensor};

use crate::{StateDict, TensorSource};

/// Rules that map the names of a state dict to those of a module, for
/// [`Module::load_mapped`](crate::Module::load_mapped). They are applied to each name in the given order.
///
/// In a pattern `*` matches any characters except dots, and `**` any characters; a replacement has the same
/// number of wildcards, which are filled with the matched texts in order.
///
/// ```
/// use nn::NameMap;
///
/// let names = NameMap::new()
///     .strip("bert.")
///     .rename("encoder.layer.*.attention.self.query.*", "layers.*.attention.q.*")
///     .rename("**.LayerNorm.gamma", "**.norm.weight")
///     .ignore("**.position_ids");
/// let name = names.map("bert.encoder.layer.0.attention.self.query.bias");
/// assert_eq!(name.as_deref(), Some("layers.0.attention.q.bias"));
/// assert_eq!(names.map("bert.embeddings.LayerNorm.gamma").as_deref(), Some("embeddings.norm.weight"));
/// assert_eq!(names.map("bert.embeddings.position_ids"), None);
/// ```
#[derive(Clone, Debug, Default)]
pub struct NameMap {
    rules: Vec<Rule>,
    /// Pairs of mapped names: if the first is missing, it is the second.
    ties: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
enum Rule {
    Strip(String),
    Prefix(String),
    Rename { pattern: String, replacement: String },
    Ignore(String),
}

impl NameMap {
    /// A map that changes no name.
    pub fn new() -> NameMap {
        NameMap::default()
    }

    /// Removes `prefix` from names that begin with it: `"module."`, which `torch.nn.DataParallel` adds to
    /// all names, or `"bert."`.
    #[must_use]
    pub fn strip(mut self, prefix: &str) -> NameMap {
        self.rules.push(Rule::Strip(prefix.into()));
        self
    }

    /// Adds `prefix` to all names.
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> NameMap {
        self.rules.push(Rule::Prefix(prefix.into()));
        self
    }

    /// Replaces names that match `pattern` as a whole by `replacement`.
    #[must_use]
    pub fn rename(mut self, pattern: &str, replacement: &str) -> NameMap {
        self.rules.push(Rule::Rename { pattern: pattern.into(), replacement: replacement.into() });
        self
    }

    /// Drops names that match `pattern` as a whole, so that they are not unexpected.
    #[must_use]
    pub fn ignore(mut self, pattern: &str) -> NameMap {
        self.rules.push(Rule::Ignore(pattern.into()));
        self
    }

    /// If the dict lacks the first name, uses the tensor of the second: `.tie("lm_head.weight",
    /// "embed.weight")` for a file that leaves out the copy. Both are names of the module.
    ///
    /// Parameters that the module itself ties need no such rule: one of their names is enough.
    #[must_use]
    pub fn tie(mut self, name: &str, source: &str) -> NameMap {
        self.ties.push((name.into(), source.into()));
        self
    }

    /// The mapped name; `None` for one that is dropped.
    pub fn map(&self, name: &str) -> Option<String> {
        let mut name = name.to_string();
        for rule in &self.rules {
            match rule {
                Rule::Strip(prefix) => {
                    if let Some(rest) = name.strip_prefix(prefix.as_str()) {
                        name = rest.to_string();
                    }
                }
                Rule::Prefix(prefix) => name.insert_str(0, prefix),
                Rule::Rename { pattern, replacement } => {
                    if let Some(parts) = fit(pattern, &name) {
                        name = fill(replacement, &parts);
                    }
                }
                Rule::Ignore(pattern) => {
                    fit(pattern, &name).is_none().then_some(())?;
                }
            }
        }
        Some(name)
    }

    /// The tensors of a dict under their mapped names.
    ///
    /// # Errors
    /// A pattern with another number of wildcards than its replacement, or two names that are mapped to one.
    #[track_caller]
    pub fn apply(&self, dict: &StateDict) -> Result<StateDict> {
        let Renamed { origins, .. } = self.source(dict)?;
        let tensor = |(new, old): (String, &str)| Some((new, dict.get(old)?.clone()));
        Ok(origins.into_iter().filter_map(tensor).collect())
    }

    /// A source under its mapped names.
    #[track_caller]
    pub(crate) fn source<'a>(&self, source: &'a dyn TensorSource) -> Result<Renamed<'a>> {
        for rule in &self.rules {
            if let Rule::Rename { pattern, replacement } = rule
                && stars(pattern) != stars(replacement)
            {
                let message = format!(
                    "the pattern \"{pattern}\" and its replacement \"{replacement}\" have different numbers of stars"
                );
                return Err(Error::invalid("NameMap", message));
            }
        }
        let mut origins: BTreeMap<String, &str> = BTreeMap::new();
        for old in source.names() {
            let Some(new) = self.map(old) else { continue };
            if let Some(other) = origins.insert(new.clone(), old) {
                let message = format!("\"{other}\" and \"{old}\" both become \"{new}\"");
                return Err(Error::invalid("NameMap", message));
            }
        }
        for (name, tied) in &self.ties {
            if let (false, Some(&old)) = (origins.contains_key(name), origins.get(tied)) {
                origins.insert(name.clone(), old);
            }
        }
        Ok(Renamed { source, origins })
    }
}

/// A source under the names of a [`NameMap`].
pub(crate) struct Renamed<'a> {
    source: &'a dyn TensorSource,
    /// The names of the source by the mapped ones.
    origins: BTreeMap<String, &'a str>,
}

impl Renamed<'_> {
    /// The names of the source by the mapped ones.
    pub(crate) fn origins(&self) -> &BTreeMap<String, &str> {
        &self.origins
    }
}

impl TensorSource for Renamed<'_> {
    fn names(&self) -> Vec<&str> {
        self.origins.keys().map(String::as_str).collect()
    }

    fn described(&self, name: &str) -> Option<(Shape, DType)> {
        self.source.described(self.origins.get(name)?)
    }

    #[track_caller]
    fn read(&self, name: &str, dtype: DType, device: &Device) -> Result<Tensor> {
        self.source.read(self.origins.get(name).copied().unwrap_or(name), dtype, device)
    }

    fn is_in_memory(&self) -> bool {
        self.source.is_in_memory()
    }
}

/// An error of loading, with the names of the dict beside the mapped ones.
#[track_caller]
pub(crate) fn with_origins(error: Error, origins: &BTreeMap<String, &str>) -> Error {
    let ErrorKind::StateDict { missing, unexpected, mismatched } = error.kind() else { return error };
    let origin = |name: &str| origins.get(name).filter(|old| **old != name);
    let unexpected = unexpected.iter().map(|name| match origin(name) {
        Some(old) => format!("{name} ({old} in the dict)"),
        None => name.clone(),
    });
    let mismatched =
        mismatched.iter().map(|text| match text.split_once(": ").map(|(name, _)| origin(name)) {
            Some(Some(old)) => format!("{text} ({old})"),
            Some(None) | None => text.clone(),
        });
    Error::new(ErrorKind::StateDict {
        missing: missing.clone(),
        unexpected: unexpected.collect(),
        mismatched: mismatched.collect(),
    })
}

/// The wildcards of a pattern: runs of stars.
fn stars(pattern: &str) -> usize {
    pattern.split(|c| c != '*').filter(|run| !run.is_empty()).count()
}

/// The texts that the wildcards of a pattern match, if it matches the whole name. Each match is as short as
/// possible.
fn fit<'a>(pattern: &str, name: &'a str) -> Option<Vec<&'a str>> {
    let Some(star) = pattern.find('*') else {
        return (pattern == name).then(Vec::new);
    };
    let (literal, rest) = pattern.split_at(star);
    let name = name.strip_prefix(literal)?;
    let after = rest.trim_start_matches('*');
    let any = rest.len() - after.len() > 1;
    for (end, c) in name.char_indices().map(|(at, c)| (at, Some(c))).chain([(name.len(), None)]) {
        if let Some(mut parts) = fit(after, &name[end..]) {
            parts.insert(0, &name[..end]);
            return Some(parts);
        }
        if c == Some('.') && !any {
            return None;
        }
    }
    None
}

/// A replacement with its wildcards filled in order.
fn fill(replacement: &str, parts: &[&str]) -> String {
    let mut out = String::new();
    let mut parts = parts.iter();
    let mut rest = replacement;
    while let Some(star) = rest.find('*') {
        out.push_str(&rest[..star]);
        out.push_str(parts.next().copied().unwrap_or_default());
        rest = rest[star..].trim_start_matches('*');
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name, parts) in [
            ("a.b", "a.b", Some(vec![])),
            ("a.b", "a.c", None),
            ("a.*.c", "a.bb.c", Some(vec!["bb"])),
            ("a.*.c", "a.b.b.c", None),
            ("a.**.c", "a.b.b.c", Some(vec!["b.b"])),
            ("*.*", "x.y", Some(vec!["x", "y"])),
            ("**", "any.thing", Some(vec!["any.thing"])),
            ("layer*.w", "layer12.w", Some(vec!["12"])),
            ("**.é.*", "ä.é.ü", Some(vec!["ä", "ü"])),
            ("*", "", Some(vec![""])),
        ] {
            assert_eq!(fit(pattern, name), parts, "{pattern} on {name}");
        }
        assert_eq!(fill("x.*.**.y", &["1", "2.3"]), "x.1.2.3.y");
    }
}
