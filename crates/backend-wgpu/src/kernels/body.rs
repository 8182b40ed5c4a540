//! Generates the dispatches of a kernel's body.

use tensor_core::{
    Result,
    kernel::{Body, Kernel},
};

use crate::{
    codegen::{capabilities::Capabilities, dispatch::Dispatches},
    kernels::{
        arg_reduce::{self, Search},
        arg_sort,
        by_index::Along,
        contract, cumulative, gather,
        map::{self, Aliases},
        reduce::{self, Reduce},
        rows, scatter,
    },
};

/// The dispatches of a kernel whose operands fit one binding each. For a piece of a larger kernel, `first`
/// is the flat index of its first output element, and `along` is its slice of the indexed axis.
pub(crate) fn dispatches(
    kernel: &Kernel,
    aliases: &Aliases,
    first: usize,
    along: Along,
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    match &kernel.body {
        Body::Map(program) => map::dispatches(kernel, program, aliases, first, capabilities),
        Body::Reduce { op, program } => reduce::dispatches(Reduce { kernel, op: *op, program }, capabilities),
        Body::Rows { row_axes, program } => rows::dispatches(kernel, *row_axes, program, first, capabilities),
        Body::ArgReduce { op, axis } => {
            Ok(arg_reduce::dispatches(Search::new(kernel, *op, *axis), capabilities))
        }
        Body::Cumulative { op, axis, reverse } => {
            cumulative::dispatches(kernel, *op, *axis, *reverse, capabilities)
        }
        Body::ArgSort { axis, descending } => {
            Ok(arg_sort::dispatches(kernel, *axis, *descending, capabilities))
        }
        Body::Contract(_) => contract::dispatches(kernel, capabilities),
        Body::Gather { .. } => match gather::decoding(kernel, along) {
            Some((map, program)) => {
                map::dispatches(&map, &program, &Aliases::from_elem(None, 2), first, capabilities)
            }
            None => Ok(gather::dispatch(kernel, along, capabilities).into()),
        },
        Body::Scatter { op, .. } => scatter::dispatches(kernel, *op, along, capabilities),
        // `window.rs` generates these.
        Body::Copy { .. } | Body::Custom(_) => Ok(Dispatches::default()),
    }
}
