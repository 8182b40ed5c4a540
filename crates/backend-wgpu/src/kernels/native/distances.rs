//! Distances between points, one invocation for each pair.

use tensor_core::{DType, Distances, Kernel, Measure};

use super::{INVOCATIONS, Native};
use crate::codegen::{
    capabilities::Capabilities,
    dispatch::{Dispatch, Dispatches, Resource},
};

impl Native for Distances {
    fn supports(&self, kernel: &Kernel, capabilities: &Capabilities) -> bool {
        let shape = kernel.operands[0].layout.shape();
        // A Euclidean distance that leaves the range reads its coordinates twice.
        let rounds = shape[shape.rank() - 1].saturating_mul(3);
        // One matrix product computes the Euclidean distances of two sets of points faster.
        let is_product = self.measure == Measure::Euclidean && kernel.operands.len() == 2;
        kernel.operands[0].dtype == DType::F32 && rounds <= capabilities.rounds && !is_product
    }

    fn dispatches(&self, kernel: &Kernel, _: &Capabilities) -> Dispatches {
        let shape = kernel.operands[0].layout.shape();
        let rows = shape[shape.rank() - 2];
        let is_pairs = kernel.operands.len() == 1;
        let others = kernel.operands[kernel.operands.len() - 1].layout.shape();
        let columns = others[others.rank() - 2];
        let (total, coordinates) = (kernel.outputs[0].shape.numel(), shape[shape.rank() - 1]);
        let mut d = Dispatch::new("distances");
        d.workgroups = total.div_ceil(INVOCATIONS);
        d.work = INVOCATIONS * coordinates * 2;
        d.params.size("total", total);
        d.params.size("rows", rows);
        d.params.size("columns", columns);
        d.params.size("coordinates", coordinates);
        let each = if is_pairs { rows * rows.saturating_sub(1) / 2 } else { rows * columns };
        d.params.size("each", each);
        d.bind("points", "f32", false, Resource::Input(0));
        if !is_pairs {
            d.bind("others", "f32", false, Resource::Input(1));
        }
        d.bind("output", "f32", true, Resource::Output(0));
        let c = &mut d.code;
        let other = if is_pairs { "points[i]" } else { "others[i]" };
        c.expression("other", &[("i", "u32")], "f32", other);
        let pair = if is_pairs { "pair_of(i)" } else { "vec2<u32>(i / params.columns, i % params.columns)" };
        c.append(if is_pairs { taper_shaders::native::PAIR_OF } else { "" });
        c.expression("pair", &[("i", "u32")], "vec2<u32>", pair);
        let sum = match self.measure {
            Measure::Unequal => "sum + select(1.0, 0.0, difference == 0.0 && !is_nan_f32(difference))",
            Measure::Sum => "sum + abs(difference)",
            Measure::Euclidean => "sum + difference * difference",
            Measure::Greatest => "max_f32(sum, abs(difference))",
        };
        c.expression("add", &[("sum", "f32"), ("difference", "f32")], "f32", sum);
        let join = if self.measure == Measure::Greatest { "max_f32(a, b)" } else { "a + b" };
        c.expression("join", &[("a", "f32"), ("b", "f32")], "f32", join);
        c.line(format_args!("const EUCLIDEAN = {};", self.measure == Measure::Euclidean));
        c.kernel(INVOCATIONS, taper_shaders::native::DISTANCES);
        d.into()
    }
}
