//! Numbers for types, as parts of the keys of plans.

use std::{any::TypeId, sync::Mutex};

use crate::base::sync::lock;

/// A number for each type of kernel or block format seen so far, as a part of plan keys.
pub(crate) fn type_number(id: TypeId) -> u64 {
    static TYPES: Mutex<Vec<TypeId>> = Mutex::new(Vec::new());
    let mut types = lock(&TYPES);
    let place = types.iter().position(|known| *known == id).unwrap_or_else(|| {
        types.push(id);
        types.len() - 1
    });
    place as u64
}
