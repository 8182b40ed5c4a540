//! The insertion points of values in sorted numbers: a binary search in each invocation.

use tensor_core::{DType, Kernel, SearchSorted};

use super::{INVOCATIONS, Native, number};
use crate::codegen::{
    capabilities::Capabilities,
    dispatch::{Dispatch, Dispatches, Resource},
    storage::Elements,
};

impl Native for SearchSorted {
    fn supports(&self, kernel: &Kernel, _: &Capabilities) -> bool {
        number(kernel.operands[0].dtype).is_some()
    }

    fn dispatches(&self, kernel: &Kernel, _: &Capabilities) -> Dispatches {
        let (sorted, values) = (&kernel.operands[0], &kernel.operands[1]);
        let last = |shape: &tensor_core::Shape| shape[shape.rank() - 1];
        let total = values.layout.numel();
        let mut d = Dispatch::new("searchsorted");
        d.workgroups = total.div_ceil(INVOCATIONS);
        d.work = INVOCATIONS * 32;
        d.params.size("total", total);
        d.params.size("length", last(sorted.layout.shape()));
        d.params.size("values_length", last(values.layout.shape()));
        d.bind("sorted", Elements::of(sorted.dtype), false, Resource::Input(0));
        d.bind("values", Elements::of(values.dtype), false, Resource::Input(1));
        d.bind("places", Elements::of(DType::I32), true, Resource::Output(0));
        d.code.line(format_args!("const RIGHT = {};", self.right));
        d.code.append(number(sorted.dtype).unwrap_or_default());
        d.code.kernel(INVOCATIONS, taper_shaders::native::SEARCH_SORTED);
        d.into()
    }
}
