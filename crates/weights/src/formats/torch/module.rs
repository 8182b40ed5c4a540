//! The state of a module that was pickled as a whole: what `Module.state_dict` of PyTorch would give.
//!
//! A module's pickle has its attributes as a dict. Three of them hold its state
//! (`torch/nn/modules/module.py`): `_parameters`, `_buffers` without those named in
//! `_non_persistent_buffers_set`, and `_modules`.

use std::sync::Arc;

use super::node::{Id, Node};

/// The names and nodes of a module's parameters, buffers and submodules, in the order of its state dict;
/// `None` if the attributes are not those of a module.
pub(super) fn state(nodes: &[Node], attributes: Id) -> Option<Vec<(Arc<str>, Id)>> {
    let dict = |id: Id| match &nodes[id as usize] {
        Node::Dict(entries) => Some(entries),
        _ => None,
    };
    let text = |id: Id| match &nodes[id as usize] {
        Node::Text(text) => Some(text),
        _ => None,
    };
    let attributes = dict(attributes)?;
    // A later entry of a key replaces an earlier one.
    let attribute = |name: &str| {
        let mut entries = attributes.iter().rev();
        entries.find(|&&(key, _)| text(key).is_some_and(|key| **key == *name)).map(|&(_, value)| value)
    };
    let (parameters, buffers) = (dict(attribute("_parameters")?)?, dict(attribute("_buffers")?)?);
    let modules = dict(attribute("_modules")?)?;
    let skipped = attribute("_non_persistent_buffers_set").map(|id| match &nodes[id as usize] {
        Node::List(names) => &names[..],
        _ => &[],
    });
    let skipped = skipped.unwrap_or_default();
    let is_kept = |name: &Arc<str>| !skipped.iter().any(|&id| text(id).is_some_and(|other| other == name));
    let mut parts = Vec::with_capacity(parameters.len() + buffers.len() + modules.len());
    for (entries, is_buffer) in [(parameters, false), (buffers, true), (modules, false)] {
        for &(key, value) in entries {
            let name = text(key)?;
            let is_none = matches!(nodes[value as usize], Node::None);
            if !is_none && (!is_buffer || is_kept(name)) {
                parts.push((name.clone(), value));
            }
        }
    }
    Some(parts)
}
