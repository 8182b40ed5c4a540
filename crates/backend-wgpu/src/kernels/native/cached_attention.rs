//! Attention of a few queries to the rows in use of two tables: a workgroup for each query of a head.

use tensor_core::{CachedAttention, DType, Kernel};

use super::{INVOCATIONS, Native};
use crate::codegen::{
    capabilities::Capabilities,
    dispatch::{Dispatch, Dispatches, Resource},
    storage::Elements,
};

/// The most rows of the long table. A longer one is left to products, which divide its rows among more
/// workgroups.
const MAX_ROWS: usize = 1024;
/// The bytes of a workgroup's arrays.
const WORKGROUP_BYTES: usize = 2 * INVOCATIONS * 4 + 8;
/// The most features, which are columns of a workgroup.
const MAX_FEATURES: usize = INVOCATIONS;

impl Native for CachedAttention {
    fn supports(&self, kernel: &Kernel, capabilities: &Capabilities) -> bool {
        let dims = |k: usize| kernel.operands[k].layout.shape().dims();
        // New rows would be written into tables that the same kernel reads.
        !self.writes
            && self.packed.is_none()
            && matches!(kernel.operands[0].dtype, DType::F32 | DType::F16 | DType::BF16)
            && !capabilities.direct
            && capabilities.workgroup_bytes >= WORKGROUP_BYTES
            && dims(1)[2] <= MAX_ROWS
            && dims(2)[3] <= MAX_FEATURES
            && dims(0)[3].saturating_mul(MAX_ROWS) <= capabilities.rounds
            && kernel.outputs[0].shape.numel() > 0
    }

    fn dispatches(&self, kernel: &Kernel, _: &Capabilities) -> Dispatches {
        let dims = |k: usize| kernel.operands[k].layout.shape().dims();
        let (query, values) = (dims(0), dims(2));
        let queries = query[..3].iter().product();
        let features = values[3];
        let mut d = Dispatch::new("cached_attention");
        d.workgroups = queries;
        d.work = (query[3] + features) * (values[2] + dims(4)[2]);
        let sizes = [
            ("queries", queries),
            ("heads", query[1]),
            ("groups", values[1]),
            ("length", query[2]),
            ("width", query[3]),
            ("features", features),
            ("across", features.next_power_of_two()),
            ("long", values[2]),
            ("short", dims(4)[2]),
            ("firsts", dims(5)[0] - 3),
        ];
        sizes.iter().for_each(|&(name, size)| d.params.size(name, size));
        d.params.word("scale", (self.scale as f32).to_bits());
        d.params.word("cap", (self.softcap.unwrap_or(0.0) as f32).to_bits());
        let names = ["query", "long_keys", "long_values", "short_keys", "short_values", "places"];
        for (k, name) in names.into_iter().enumerate() {
            d.bind(name, Elements::of(kernel.operands[k].dtype), false, Resource::Input(k));
        }
        let sink = match self.sinks {
            true => {
                d.bind("sinks", Elements::of(kernel.operands[6].dtype), false, Resource::Input(6));
                "load_sinks(head)"
            }
            false => "0.0",
        };
        d.bind("out", Elements::of(kernel.outputs[0].dtype), true, Resource::Output(0));
        let window = self.window.and_then(|window| u32::try_from(window).ok()).unwrap_or(u32::MAX);
        d.code.line(format_args!("const HAS_CAP = {};", self.softcap.is_some()));
        d.code.line(format_args!("const HAS_SINKS = {};", self.sinks));
        d.code.line(format_args!("const WINDOW = {window}u;"));
        d.code.line(format_args!("fn sink_of(head: u32) -> f32 {{ return {sink}; }}"));
        d.code.kernel(INVOCATIONS, taper_shaders::native::CACHED_ATTENTION);
        d.into()
    }
}
