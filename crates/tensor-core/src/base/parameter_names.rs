//! The names that modules give their parameters, for messages of optimizers, which get tensors alone.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// The number of names that are kept; a name beyond it is not.
const MAX_NAMES: usize = 1 << 16;

static NAMES: Mutex<Option<HashMap<u64, String>>> = Mutex::new(None);

/// Notes the names of parameters, by the ids of their tensors. The first name of a tensor stays.
#[doc(hidden)] // for `nn`
pub fn note_parameter_names<'a>(names: impl IntoIterator<Item = (u64, &'a str)>) {
    let mut all = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let all = all.get_or_insert_default();
    for (id, name) in names {
        if !all.contains_key(&id) && all.len() < MAX_NAMES {
            all.insert(id, name.to_string());
        }
    }
}

/// The name of the parameter with an id, if a module has listed it.
#[doc(hidden)] // for `optim`
pub fn parameter_name(id: u64) -> Option<String> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner).as_ref()?.get(&id).cloned()
}
