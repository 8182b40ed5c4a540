//! The greatest element of each window and its position, one invocation for each window.

use tensor_core::{DType, Kernel, MaxPool};

use super::{INVOCATIONS, Native, number};
use crate::codegen::{
    capabilities::Capabilities,
    dispatch::{Dispatch, Dispatches, Resource},
    storage::Elements,
};

impl Native for MaxPool {
    fn supports(&self, kernel: &Kernel, capabilities: &Capabilities) -> bool {
        let elements = self.window.iter().fold(1usize, |elements, &n| elements.saturating_mul(n));
        number(kernel.operands[0].dtype).is_some() && elements <= capabilities.rounds / 3
    }

    fn dispatches(&self, kernel: &Kernel, _: &Capabilities) -> Dispatches {
        let (dtype, total) = (kernel.operands[0].dtype, kernel.outputs[0].shape.numel());
        let mut d = Dispatch::new("max_pool");
        d.workgroups = total.div_ceil(INVOCATIONS);
        d.work = self.window.iter().fold(INVOCATIONS, |work, &n| work.saturating_mul(n));
        d.params.size("total", total);
        let sizes = &kernel.operands[0].layout.shape()[1..4];
        for (axis, &size) in sizes.iter().enumerate() {
            d.params.size(format!("size{axis}"), size);
            d.params.size(format!("window{axis}"), self.window[axis]);
            d.params.size(format!("stride{axis}"), self.stride[axis]);
            d.params.size(format!("dilation{axis}"), self.dilation[axis]);
            d.params.size(format!("padding{axis}"), self.padding[axis]);
            d.params.size(format!("outputs{axis}"), self.outputs[axis]);
        }
        d.bind("input", Elements::of(dtype), false, Resource::Input(0));
        d.bind("maxima", Elements::of(dtype), true, Resource::Output(0));
        d.bind("places", Elements::of(DType::I32), true, Resource::Output(1));
        d.code.append(number(dtype).unwrap_or_default());
        d.code.kernel(INVOCATIONS, taper_shaders::native::MAX_POOL);
        d.into()
    }
}
