//! Whether vectors are rounded before they are multiplied with weights in blocks: a choice of the whole
//! process, as the number of threads is.

use std::{
    ffi::OsString,
    sync::atomic::{AtomicU8, Ordering},
};

use crate::environment::{Misread, Variable};

const UNKNOWN: u8 = 0;
const EXACT: u8 = 1;
const INT8: u8 = 2;

static CHOICE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Whether f32 operands are rounded to 8 bits where they meet weights in blocks: the last argument of
/// [`set_int8_activations`], or `TAPER_CPU_BLOCKS`, or else not.
pub fn int8_activations() -> bool {
    if CHOICE.load(Ordering::Relaxed) == UNKNOWN {
        // A value that cannot be parsed is reported when the device is opened.
        let int8 = from_env(&|name| std::env::var_os(name)).ok().flatten().unwrap_or(false);
        let _ = CHOICE.compare_exchange(
            UNKNOWN,
            if int8 { INT8 } else { EXACT },
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
    }
    CHOICE.load(Ordering::Relaxed) == INT8
}

/// Sets whether up to 64 f32 vectors that are multiplied with a matrix in one of the formats of GGUF
/// files are rounded to 8 bits first, 32 neighbours with one scale, as llama.cpp does: about twice the
/// speed of such a product on a processor with products of bytes, for an error of at most 0.4 % of a
/// group's greatest element. Products with more vectors stay exact, as they would not be faster. The choice
/// counts for kernels that start from now on, on any thread. Gradients are those of the exact product.
pub fn set_int8_activations(int8: bool) {
    CHOICE.store(if int8 { INT8 } else { EXACT }, Ordering::Relaxed);
}

/// The choice that the environment makes.
pub(crate) fn from_env(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Option<bool>, Misread> {
    let Some(wanted) = Variable::of("TAPER_CPU_BLOCKS", variable("TAPER_CPU_BLOCKS")) else {
        return Ok(None);
    };
    match wanted.text.as_str() {
        "exact" => Ok(Some(false)),
        "int8" => Ok(Some(true)),
        _ => Err(wanted.misread("exact or int8")),
    }
}
