//! [`CachedAttention`]: attention of a few queries to the keys and values of a cache in two tables, as a
//! native kernel that a backend may implement.

use super::packed_rows::PackedRows;
use crate::{
    base::{
        error::{Error, Result},
        shape::Shape,
    },
    elements::dtype::DType,
    kernels::custom::{CustomKernel, Request, misfit},
};

/// softmax(cap(query · keyᵀ · scale)) · value over the rows in use of two tables, as a [`CustomKernel`] whose
/// implementation is this value itself: a backend that asks a [`Request`] for a `CachedAttention` computes it
/// from these fields. cap(x) is c · tanh(x / c) for a `softcap` c, and x without.
///
/// | input | shape |
/// |---|---|
/// | query of the last L positions | `[N, H, L, E]` |
/// | keys, values of the long table | `[N, G, C, E]`, `[N, G, C, V]` |
/// | keys, values of the short table | `[N, G, T, E]`, `[N, G, T, V]` |
/// | places, of i32 | `[3 + N]` or `[4]` |
/// | new keys, values, if the field asks for them | `[N, G, L, E]`, `[N, G, L, V]` |
/// | sinks, if the field asks for them | `[H]` |
///
/// G divides H. The places are the position of the long table's first row, the numbers of rows in use of the
/// long and of the short table, whose positions follow each other, and the first position of each text, or of
/// all. New keys and values are the last L rows in use of the short table, which are written before all else.
/// A sink is a score that each query sees beside its keys.
///
/// If the long table is packed, its keys and its values are each the tensors that [`PackedRows::parts`]
/// names, with the axes `[N, G, C, …]`, and rows of the short table stay as they are.
///
/// The result `[N, H, L, V]` has the inputs' dtype; the short table with the new rows follows, if there are
/// any, in the place of the old one where nothing else reads that. The last query has the position of the
/// last row in use, and a query sees the rows from its text's first position, or from the beginning of its
/// window, to its own position; without any, its result is 0. Terms are added in the order of positions, so
/// that the bits of a text depend neither on other texts, nor on the tables' sizes, nor on which table has a
/// row. On a device without this kernel ([`crate::Tensor::has_custom_kernel`]), the caller composes it from
/// products and a mask.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CachedAttention {
    /// The factor of the scores.
    pub scale: f64,
    /// The cap of the scores.
    pub softcap: Option<f64>,
    /// The number of positions that a query sees at most, its own included.
    pub window: Option<usize>,
    /// Whether there are new rows.
    pub writes: bool,
    /// Whether there are sinks.
    pub sinks: bool,
    /// The form of the long table's rows, if they are packed.
    pub packed: Option<PackedRows>,
}

impl CachedAttention {
    /// The number of tensors that are the keys, or the values, of the long table.
    pub fn long_parts(&self) -> usize {
        self.packed.map_or(1, PackedRows::tensors)
    }
}

impl CustomKernel for CachedAttention {
    fn name(&self) -> &'static str {
        "cached_attention"
    }

    fn results(&self, inputs: &[(Shape, DType)]) -> Result<Vec<(Shape, DType)>> {
        let wrong = || {
            let what = "a query [N, H, L, E], keys and values [N, G, C, E], [N, G, C, V] (in parts if they are packed), \
                        [N, G, T, E], [N, G, T, V] of one dtype, places [3 + N] or [4] of i32, and if they are asked \
                        for new keys and values [N, G, L, E], [N, G, L, V] and sinks [H]";
            Err(misfit(self, inputs, &what))
        };
        let parts = self.long_parts();
        let Some(([(query, dtype), long @ ..], [new_keys, new_values, places, rest @ ..])) =
            inputs.split_at_checked(1 + 2 * parts)
        else {
            return wrong();
        };
        let (&[n, heads, length, width], &[_, groups, short, _], &[_, _, _, features], &[_, _, rows, _]) =
            (query.dims(), new_keys.0.dims(), new_values.0.dims(), long[0].0.dims())
        else {
            return wrong();
        };
        let table = |rows: usize, width: usize| ([n, groups, rows, width].into(), *dtype);
        let long_table = |width: usize| match self.packed {
            None => Ok::<_, Error>(vec![table(rows, width)]),
            Some(packed) => {
                let parts = packed.parts(width)?.into_iter();
                Ok(parts.map(|(dtype, last)| ([n, groups, rows, last].into(), dtype)).collect())
            }
        };
        let wanted_long: [Vec<(Shape, DType)>; 2] = [long_table(width)?, long_table(features)?];
        let mut wanted: Vec<(Shape, DType)> = Vec::new();
        if self.writes {
            wanted.extend([table(length, width), table(length, features)]);
        }
        wanted.extend(self.sinks.then(|| ([heads].into(), *dtype)));
        let shorts = [table(short, width), table(short, features)];
        let fit = groups > 0
            && heads.is_multiple_of(groups)
            && long.iter().eq(wanted_long.iter().flatten())
            && [new_keys, new_values].into_iter().eq(&shorts)
            && (*places == ([3 + n].into(), DType::I32) || *places == ([4].into(), DType::I32))
            && rest == wanted;
        let out = ([n, heads, length, features].into(), *dtype);
        match fit {
            true => Ok([out].into_iter().chain(shorts.into_iter().filter(|_| self.writes)).collect()),
            false => wrong(),
        }
    }

    fn replaces(&self, result: usize) -> Option<usize> {
        (1..=2).contains(&result).then_some(result + 2 * self.long_parts())
    }

    fn key(&self) -> Vec<u64> {
        // Unambiguous as "none": a cap is never NaN, and no window has this many positions.
        let softcap = self.softcap.map_or(u64::MAX, f64::to_bits);
        let window = self.window.map_or(u64::MAX, |window| window as u64);
        let parts = self.long_parts() as u64;
        vec![self.scale.to_bits(), softcap, window, u64::from(self.writes), u64::from(self.sinks), parts]
    }

    fn implement(&self, request: &mut Request<'_>) {
        request.provide(|_| *self);
    }
}
