//! Kernels for the operations that `tensor_core` describes as data, such as attention: each is a
//! `CustomKernel` whose implementation is its own value. A case that has no kernel here is composed of other
//! operations by the caller.

mod attention;
mod cached_attention;
pub(crate) mod custom;
mod distances;
mod fourier;
mod max_pool;
mod recurrence;
mod search_sorted;

use tensor_core::{
    Attention, CachedAttention, CustomKernel, DType, Distances, Error, Fourier, Kernel, MaxPool, Recurrence,
    Result, SearchSorted, custom::implementation,
};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatches, Resource},
        dtypes::{loaded, storage_size},
    },
    kernels::blocks::{room, shifted, window},
};

/// An operation with a kernel in this backend; the value holds the operation's parameters.
pub(crate) trait Native: CustomKernel {
    /// Whether the kernel covers operands of these shapes and dtypes on this device. It may not depend on
    /// strides, which are unknown when the caller decides whether to compose the operation.
    fn supports(&self, kernel: &Kernel, capabilities: &Capabilities) -> bool;

    /// The dispatches, for operands that fit one binding each.
    fn dispatches(&self, kernel: &Kernel, capabilities: &Capabilities) -> Dispatches;
}

/// The invocations of a workgroup of the kernels with one invocation for each result.
const INVOCATIONS: usize = 256;

/// The WGSL type T of a loaded number and its `is_nan`; `None` for bool.
fn number(dtype: DType) -> Option<&'static str> {
    let functions = match loaded(dtype) {
        _ if dtype.is_bool() => return None,
        "f32" => "alias T = f32;\nfn is_nan(x: T) -> bool { return is_nan_f32(x); }\n",
        "f64" => "alias T = f64;\nfn is_nan(x: T) -> bool { return is_nan_f64(x); }\n",
        "i32" => "alias T = i32;\nfn is_nan(x: T) -> bool { return false; }\n",
        "u32" => "alias T = u32;\nfn is_nan(x: T) -> bool { return false; }\n",
        "i64" => "alias T = i64;\nfn is_nan(x: T) -> bool { return false; }\n",
        "u64" => "alias T = u64;\nfn is_nan(x: T) -> bool { return false; }\n",
        _ => return None,
    };
    Some(functions)
}

type Find = fn(&dyn CustomKernel, &Kernel, &str) -> Option<Box<dyn Native>>;

fn find<T: Native + Send + Sync>(
    custom: &dyn CustomKernel,
    kernel: &Kernel,
    device: &str,
) -> Option<Box<dyn Native>> {
    let found: T = implementation(custom, kernel, device).ok()?;
    Some(Box::new(found))
}

/// The table of the operations with kernels here, by the names of their types.
macro_rules! natives {
    ($($name:ident),* $(,)?) => {
        const FIND: &[Find] = &[$(find::<$name>),*];
        /// The names of the operations of `tensor_core` for which this backend has kernels.
        #[doc(hidden)]
        pub const NATIVE_KERNELS: &[&str] = &[$(stringify!($name)),*];
    };
}
natives![Attention, CachedAttention, Recurrence, Fourier, Distances, SearchSorted, MaxPool];

/// The operation's kernel, if it covers this case.
fn native(
    custom: &dyn CustomKernel,
    kernel: &Kernel,
    capabilities: &Capabilities,
) -> Option<Box<dyn Native>> {
    if kernel.operands.iter().any(|operand| operand.format.is_some()) {
        return None;
    }
    let device = &capabilities.info.name;
    let found = FIND.iter().find_map(|find| find(custom, kernel, device))?;
    found.supports(kernel, capabilities).then_some(found)
}

/// Whether this backend has a kernel for the operation, and its operands fit bindings.
pub(crate) fn implements(custom: &dyn CustomKernel, kernel: &Kernel, capabilities: &Capabilities) -> bool {
    native(custom, kernel, capabilities).is_some() && fitted(kernel, capabilities).is_some()
}

/// The kernel with each operand's buffer beginning where its binding does, and those positions in elements;
/// None if an operand or output does not fit one binding.
fn fitted(kernel: &Kernel, capabilities: &Capabilities) -> Option<(Kernel, Vec<usize>)> {
    let large =
        |output: &tensor_core::kernel::Output| output.shape.numel() > room(output.dtype, capabilities);
    if kernel.outputs.iter().any(large) {
        return None;
    }
    let mut fitted = kernel.clone();
    let mut starts = Vec::with_capacity(kernel.operands.len());
    for operand in &mut fitted.operands {
        let start = window(&operand.layout, operand.dtype, capabilities)?;
        operand.layout = shifted(&operand.layout, start);
        starts.push(start);
    }
    Some((fitted, starts))
}

/// The dispatches of a native operation; `None` if this backend has no kernel for it.
///
/// # Errors
/// `Unsupported` for operands that are larger than a binding.
pub(crate) fn dispatches(
    kernel: &Kernel,
    custom: &dyn CustomKernel,
    capabilities: &Capabilities,
) -> Result<Option<Dispatches>> {
    let Some(native) = native(custom, kernel, capabilities) else { return Ok(None) };
    let (fitted, starts) =
        fitted(kernel, capabilities).ok_or_else(|| too_large(kernel, custom, capabilities))?;
    let mut made = native.dispatches(&fitted, capabilities);
    for binding in made.bindings() {
        if let Resource::Input(k) = binding.resource {
            binding.start = (starts[k] * storage_size(kernel.operands[k].dtype)) as u64;
        }
    }
    Ok(Some(made))
}

fn too_large(kernel: &Kernel, custom: &dyn CustomKernel, capabilities: &Capabilities) -> Error {
    let hint = format!(
        "one binding of this adapter shows {} bytes (max_storage_buffer_binding_size); split the tensors, or compute it on \
         the cpu",
        capabilities.binding_bytes
    );
    capabilities.unsupported(custom.name(), kernel.operands[0].dtype, &hint)
}
