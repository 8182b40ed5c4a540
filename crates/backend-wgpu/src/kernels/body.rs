//! The dispatches of a kernel, by its body.

use tensor_core::{
    Result,
    kernel::{Body, Kernel},
};

use crate::{
    codegen::{blocks::text as blocks_text, capabilities::Capabilities, dispatch::Dispatches},
    kernels::{
        cut::{Aliases, Cut},
        fold::{arg_reduce::ArgReduce, reduce::Reduce, rows::Rows},
        map::elementwise,
        movement::{
            gather::Gather,
            regions,
            scatter::{self, Scatter},
        },
        native::custom,
        product::contract::Contract,
        scan::cumulative::Cumulative,
        sort::arg_sort::ArgSort,
        window::Windows,
    },
};

/// The dispatches of a kernel, in as many pieces as its operands need.
pub(crate) fn dispatches(
    kernel: &Kernel,
    aliases: &Aliases,
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    for operand in &kernel.operands {
        if let Some(format) = &operand.format
            && blocks_text(format.as_ref()).is_none()
        {
            let hint = format!(
                "blocks of {format} have no WGSL; implement BlockFormat::wgsl, or call .dequantize() on the cpu"
            );
            return Err(capabilities.unsupported(kernel.name(), operand.dtype, &hint));
        }
    }
    let cut: &dyn Cut = match &kernel.body {
        Body::Map(program) => return elementwise::in_windows(kernel, program, aliases, capabilities),
        &Body::Scatter { op, axis } => {
            return scatter::in_windows(kernel, Scatter { op, axis }, aliases, capabilities);
        }
        Body::Copy { fill, regions } => return regions::dispatches(kernel, *fill, regions, capabilities),
        Body::Custom(custom) => return custom::dispatches(kernel, custom.as_ref(), capabilities),
        &Body::Reduce { op, ref program } => &Reduce { op, program },
        &Body::Rows { row_axes, ref program } => &Rows { row_axes, program },
        &Body::ArgReduce { op, axis } => &ArgReduce { op, axis },
        &Body::Cumulative { op, axis, reverse } => &Cumulative { op, axis, reverse },
        &Body::ArgSort { axis, descending } => &ArgSort { axis, descending },
        Body::Contract(epilogue) => &Contract { has_epilogue: epilogue.is_some() },
        &Body::Gather { axis } => &Gather { axis },
    };
    Windows { kernel, cut, aliases, capabilities }.dispatches()
}
