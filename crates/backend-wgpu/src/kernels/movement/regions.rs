//! Concatenation and padding in one dispatch: an invocation finds the region in which its elements of the
//! output are, or else stores the fill. The output is written once, and there is nothing to wait for between
//! its parts.

use smallvec::SmallVec;
use tensor_core::{Kernel, Layout, Result};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatch, Dispatches, Resource},
        dtypes::{is_packed, storage_size, stored},
        index::Space,
        storage::Elements,
    },
    kernels::{
        blocks::{align, copies, refused, room},
        copy,
    },
};

/// The most regions of one dispatch: each element is compared with all of them.
const MAX_REGIONS: usize = 32;

/// The positions of a region along an axis of the output, and the source's stride along it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    begin: usize,
    count: usize,
    /// The distance between neighbouring positions in the output.
    step: usize,
    stride: isize,
}

/// An axis of the output, with the span of each region.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Axis {
    size: usize,
    spans: SmallVec<[Span; 4]>,
}

impl Axis {
    /// Whether a region has every position.
    fn is_whole(&self, region: usize) -> bool {
        let Span { begin, count, step, .. } = self.spans[region];
        begin == 0 && count == self.size && step == 1
    }

    /// This axis and the next inner one as a single axis, if all regions allow it.
    fn joined(&self, inner: &Axis) -> Option<Axis> {
        let spans = self.spans.iter().zip(&inner.spans).enumerate().map(|(region, (own, other))| {
            let follows = own.count == 1 || own.stride == other.stride * inner.size as isize;
            (inner.is_whole(region) && own.step == 1 && follows).then(|| Span {
                begin: own.begin * inner.size,
                count: own.count * inner.size,
                step: 1,
                stride: other.stride,
            })
        });
        Some(Axis { size: self.size * inner.size, spans: spans.collect::<Option<_>>()? })
    }

    /// The axis in groups of four neighbours, if all regions begin and end at such groups.
    fn in_fours(&self) -> Option<Axis> {
        let fours = |span: &Span| {
            let fits = span.stride == 1
                && span.step == 1
                && span.begin.is_multiple_of(4)
                && span.count.is_multiple_of(4);
            fits.then_some(Span { begin: span.begin / 4, count: span.count / 4, step: 1, stride: 4 })
        };
        let spans = self.spans.iter().map(fours).collect::<Option<_>>()?;
        self.size.is_multiple_of(4).then_some(Axis { size: self.size / 4, spans })
    }
}

/// The axes of an output of this shape, with the regions' spans, merged where possible; `None` if a region's
/// layout is no box of the output.
fn axes(shape: &[usize], regions: &[(&Layout, &Layout)]) -> Option<Vec<Axis>> {
    let mut axes: Vec<Axis> = shape.iter().map(|&size| Axis { size, spans: SmallVec::new() }).collect();
    for (goal, source) in regions {
        if goal.shape().len() != shape.len() {
            return None;
        }
        let (mut rest, mut pitch) = (goal.offset(), shape.iter().product::<usize>());
        for (a, axis) in axes.iter_mut().enumerate() {
            pitch /= axis.size;
            let (begin, count, along) = (rest / pitch, goal.shape()[a], goal.strides()[a]);
            rest %= pitch;
            let step = if count == 1 { 1 } else { usize::try_from(along).ok()? / pitch };
            let fits = count == 1 || (step * pitch) as isize == along && step > 0;
            if !fits || begin + (count - 1) * step >= axis.size {
                return None;
            }
            axis.spans.push(Span { begin, count, step, stride: source.strides()[a] });
        }
    }
    let mut merged: Vec<Axis> = Vec::new();
    for axis in axes.into_iter().filter(|axis| axis.size != 1) {
        match merged.last().and_then(|outer| outer.joined(&axis)) {
            Some(both) => {
                merged.pop();
                merged.push(both);
            }
            None => merged.push(axis),
        }
    }
    Some(merged)
}

/// The dispatches of a copy into these regions of the output, of any size: one, or else a fill if requested,
/// then each region.
pub(crate) fn dispatches(
    kernel: &Kernel,
    fill: bool,
    regions: &[Layout],
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    if let Some(one) = dispatch(kernel, fill, regions, capabilities) {
        return Ok(one.into());
    }
    let (dtype, numel) = (kernel.outputs[0].dtype, kernel.outputs[0].shape.numel());
    let room = (room(dtype, capabilities) / align(dtype) * align(dtype)).max(align(dtype));
    let mut out = Dispatches::default();
    for first in (0..if fill { numel } else { 0 }).step_by(room) {
        let mut one = copy::fill(room.min(numel - first), dtype);
        one.bindings[0].start = (first * storage_size(dtype)) as u64;
        out.list.push(one);
    }
    for (k, (operand, goal)) in kernel.operands.iter().zip(regions).enumerate() {
        let made = copies(k, operand.dtype, &operand.layout, goal, capabilities);
        let widest = operand.layout.span().1.max(numel);
        out.append(made.ok_or_else(|| refused(kernel, operand.dtype, widest, capabilities))?);
    }
    Ok(out)
}

/// The dispatch of a copy into these regions of the output. `None` if it needs several: on software adapters,
/// for elements that share words, if a side is larger than a binding, for too many regions.
fn dispatch(
    kernel: &Kernel,
    fill: bool,
    regions: &[Layout],
    capabilities: &Capabilities,
) -> Option<Dispatch> {
    let output = &kernel.outputs[0];
    let (dtype, numel) = (output.dtype, output.shape.numel());
    let sources = kernel.operands.iter().enumerate().filter(|(_, operand)| operand.layout.numel() > 0);
    let (numbers, sources): (Vec<usize>, Vec<&Layout>) = sources.map(|(k, o)| (k, &o.layout)).unzip();
    let fits = |layout: &&Layout| layout.span().1 <= room(dtype, capabilities);
    if capabilities.direct
        || is_packed(dtype)
        || stored(dtype).packing.is_some()
        || numel == 0
        || numel > room(dtype, capabilities)
        || !sources.iter().all(fits)
        || sources.len() > MAX_REGIONS.min(capabilities.info.limits.max_inputs)
        || (sources.len() < 2 && !fill)
    {
        return None;
    }
    let pairs: Vec<(&Layout, &Layout)> =
        numbers.iter().map(|&k| &regions[k]).zip(sources.iter().copied()).collect();
    let mut axes = axes(&output.shape, &pairs)?;
    let aligned = |k: usize, source: &Layout| {
        source.offset().is_multiple_of(4)
            && axes.iter().rev().skip(1).all(|axis| axis.spans[k].stride % 4 == 0)
    };
    let fours = axes.last().and_then(Axis::in_fours).filter(|_| {
        storage_size(dtype) == 4 && sources.iter().enumerate().all(|(k, source)| aligned(k, source))
    });
    let unit = if fours.is_some() { 4 } else { 1 };
    if let (Some(last), Some(fours)) = (axes.last_mut(), fours) {
        *last = fours;
    }
    let mut d = Dispatch::new("copy");
    d.params.size("total", numel / unit);
    if fill {
        d.params.scalar(0, dtype);
    }
    for (k, &operand) in numbers.iter().enumerate() {
        let elements = Elements::bits(dtype).in_fours(unit == 4);
        d.bind(format!("in{k}"), elements, false, Resource::Input(operand));
    }
    d.bind("output", Elements::bits(dtype).in_fours(unit == 4), true, Resource::Output(0));
    let sizes: Vec<usize> = axes.iter().map(|axis| axis.size).collect();
    let space = Space::new("d", &sizes, &mut d.params);
    let found: Vec<Found> =
        sources.iter().enumerate().map(|(k, source)| Found::new(k, &axes, source, &mut d)).collect();
    let (load, store, at) = match unit {
        4 => ("load4", "store4", "4u * u"),
        _ => ("load", "store", "u"),
    };
    let word = if storage_size(dtype) == 8 { "vec2<u32>(params.s0, params.s0h)" } else { "params.s0" };
    d.code.entry(256, |c| {
        c.bind("u", "workgroup_index * 256u + local_index");
        c.return_if("u >= params.total");
        c.append(&space.unravel("u"));
        for (k, Found { lets, condition, place }) in found.iter().enumerate() {
            lets.iter().for_each(|(name, value)| c.bind(name, value));
            c.when(condition, |c| {
                c.line(format_args!("{store}_output({at}, {load}_in{k}({place}));"));
                c.line("return;");
            });
        }
        if fill {
            let value = if unit == 4 { format!("vec4<u32>({word})") } else { word.to_string() };
            c.line(format_args!("{store}_output({at}, {value});"));
        }
    });
    d.workgroups = (numel / unit).div_ceil(256);
    d.work = 256 * (1 + sources.len());
    Some(d)
}

/// WGSL that finds a position in a region.
struct Found {
    /// The position along each axis, counted from the region's begin.
    lets: Vec<(String, String)>,
    /// Whether the position is in the region.
    condition: String,
    /// The element of the source.
    place: String,
}

impl Found {
    fn new(k: usize, axes: &[Axis], source: &Layout, d: &mut Dispatch) -> Found {
        d.params.size(format!("o{k}"), source.offset());
        let (mut lets, mut conditions, mut place) = (Vec::new(), Vec::new(), format!("params.o{k}"));
        for (a, axis) in axes.iter().enumerate() {
            let span = axis.spans[k];
            let mut position = format!("dc{a}");
            if !axis.is_whole(k) {
                let [begin, extent] = [format!("b{k}_{a}"), format!("n{k}_{a}")];
                d.params.size(&begin, span.begin);
                d.params.size(&extent, (span.count - 1) * span.step + 1);
                // Positions before the begin wrap to great numbers.
                let name = format!("x{k}_{a}");
                lets.push((name.clone(), format!("{position} - params.{begin}")));
                conditions.push(format!("{name} < params.{extent}"));
                position = name;
            }
            if span.step != 1 {
                let step = format!("step{k}_{a}");
                d.params.size(&step, span.step);
                conditions.push(format!("{position} % params.{step} == 0u"));
                position = format!("{position} / params.{step}");
            }
            let stride = format!("s{k}_{a}");
            d.params.stride(&stride, span.stride);
            place += &format!(" + ({position}) * params.{stride}");
        }
        let condition = if conditions.is_empty() { "true".into() } else { conditions.join(" && ") };
        Found { lets, condition, place }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn regions_are_boxes_with_merged_axes() {
        // Two blocks of [2, 3, 4] and [2, 1, 4] along the middle axis of [2, 4, 4].
        let goal = |begin: usize, n: usize| Layout::new(&[2, n, 4][..], &[16, 4, 1], begin * 4);
        let [a, b] = [Layout::contiguous([2, 3, 4]), Layout::contiguous([2, 1, 4])];
        let found = axes(&[2, 4, 4], &[(&goal(0, 3), &a), (&goal(3, 1), &b)]).unwrap();
        let span = |begin, count, stride| Span { begin, count, step: 1, stride };
        let expected = [
            Axis { size: 2, spans: [span(0, 2, 12), span(0, 2, 4)].into_iter().collect() },
            Axis { size: 16, spans: [span(0, 12, 1), span(12, 4, 1)].into_iter().collect() },
        ];
        assert_eq!(found, expected);
        assert_eq!(found[1].in_fours().unwrap().spans[1], span(3, 1, 4));
    }

    #[test]
    fn a_step_between_positions_is_kept_and_a_layout_that_is_no_box_is_refused() {
        let source = Layout::contiguous([3]);
        let found = axes(&[7], &[(&Layout::new(&[3][..], &[2], 1), &source)]).unwrap();
        assert_eq!(found[0].spans[0], Span { begin: 1, count: 3, step: 2, stride: 1 });
        let diagonal = Layout::new(&[1, 3][..], &[0, 4], 0);
        assert!(axes(&[3, 3], &[(&diagonal, &Layout::contiguous([1, 3]))]).is_none());
    }
}
