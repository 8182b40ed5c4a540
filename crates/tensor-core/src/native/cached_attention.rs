//! [`CachedAttention`]: attention of a few queries to the keys and values of a cache in two tables, as a
//! native kernel that a backend may implement.

use crate::{
    base::{error::Result, shape::Shape},
    elements::dtype::DType,
    kernels::custom::{CustomKernel, Request, misfit},
};

/// softmax(cap(query · keyᵀ · scale)) · value over the rows in use of two tables, as a [`CustomKernel`] whose
/// implementation is this value itself: a backend that asks a [`Request`] for a `CachedAttention` computes it
/// from these fields. cap(x) is c · tanh(x / c) for a `softcap` c, and x without.
///
/// | input | shape | |
/// |---|---|---|
/// | query | `[N, H, L, E]` | of the last L positions |
/// | keys, values | `[N, G, C, E]`, `[N, G, C, V]` | the long table; G divides H |
/// | keys, values | `[N, G, T, E]`, `[N, G, T, V]` | the short table |
/// | places | i32 `[3 + N]` or `[4]` | the position of the long table's first row; rows in use of the long and of the short table, whose positions follow each other; the first position of each text, or of all |
/// | sinks | `[H]` | if the field asks for them: a score that each query sees beside its keys |
///
/// The result `[N, H, L, V]` has the inputs' dtype. The last query has the position of the last row in use,
/// and a query sees the rows from its text's first position, or from the beginning of its window, to its own
/// position; without any, its result is 0. Terms are added in the order of positions, so that the bits of a
/// text depend neither on other texts, nor on the tables' sizes, nor on which table has a row. On a device
/// without this kernel ([`crate::Tensor::has_custom_kernel`]), the caller composes it from products and a
/// mask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CachedAttention {
    /// The factor of the scores.
    pub scale: f64,
    /// The cap of the scores.
    pub softcap: Option<f64>,
    /// The number of positions that a query sees at most, its own included.
    pub window: Option<usize>,
    /// Whether there are sinks.
    pub sinks: bool,
}

impl CustomKernel for CachedAttention {
    fn name(&self) -> &'static str {
        "cached_attention"
    }

    fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>> {
        let wrong = || {
            let what = "a query [N, H, L, E], keys and values [N, G, C, E], [N, G, C, V], [N, G, T, E], [N, G, T, V] of \
                        one dtype, places [3 + N] or [4] of i32, and sinks [H] if they are asked for";
            Err(misfit(self, inputs, &what))
        };
        let [(query, dtype), tables @ .., places] = &inputs[..inputs.len() - usize::from(self.sinks)] else {
            return wrong();
        };
        let [keys, values, new_keys, new_values] = tables else { return wrong() };
        let (&[n, heads, length, width], &[_, groups, rows, features], &[_, _, short, _]) =
            (query.dims(), values.0.dims(), new_keys.0.dims())
        else {
            return wrong();
        };
        let like = |(shape, own): &(Shape, DType), last: [usize; 2]| {
            shape.dims() == [n, groups, last[0], last[1]] && own == dtype
        };
        let fit = like(keys, [rows, width])
            && like(values, [rows, features])
            && like(new_keys, [short, width])
            && like(new_values, [short, features])
            && groups > 0
            && heads.is_multiple_of(groups)
            && (*places == ([3 + n].into(), DType::I32) || *places == ([4].into(), DType::I32))
            && (!self.sinks || inputs.last().is_some_and(|sinks| *sinks == ([heads].into(), *dtype)));
        match fit {
            true => Ok(vec![([n, heads, length, features].into(), *dtype)]),
            false => wrong(),
        }
    }

    fn key(&self) -> Vec<u64> {
        // Unambiguous as "none": a cap is never NaN, and no window has this many positions.
        let softcap = self.softcap.map_or(u64::MAX, f64::to_bits);
        let window = self.window.map_or(u64::MAX, |window| window as u64);
        vec![self.scale.to_bits(), softcap, window, u64::from(self.sinks)]
    }

    fn implement(&self, request: &mut Request<'_>) {
        request.provide(|_| *self);
    }
}
