//! Kernels over more of a buffer than one binding shows. Such a kernel is cut along its output's outermost axes into
//! pieces whose operands fit; each piece is an ordinary kernel on bindings that start further on in the buffers. A
//! kernel that sums, searches or indexes along an axis is cut along that where that is what helps, and its parts are brought
//! together (`parts.rs`); an operand that no cut makes fit, because it lies across the output, is first copied into the
//! output's order.

mod parts;

use smallvec::SmallVec;
use tensor_core::{
    DType, Kernel, Layout, Result, Shape, collapse,
    kernel::{CopyKernel, MapKernel, RowKernel, ScatterAddKernel},
};

use crate::{
    backend,
    by_index::Along,
    capabilities::Capabilities,
    copy,
    dispatch::{Dispatch, Dispatches, Resource},
    dtypes::storage_size,
    map::Aliases,
};

use parts::{in_parts, parts, parts_first};

/// Windows start at multiples of so many elements: 256 bytes, which every adapter takes, or more.
const ALIGN: usize = 64;
/// A kernel in more pieces than this is refused.
const MAX_PIECES: usize = 4096;

/// A part of a kernel.
struct Piece {
    kernel: Kernel,
    /// The flat index of its first output element, or its first row.
    first: usize,
    /// Which part it has of the axis that is indexed.
    along: Along,
}

/// The drafts of a kernel, in as many pieces as its operands need.
pub(crate) fn dispatches(
    kernel: &Kernel,
    aliases: &Aliases,
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    if let Kernel::Copy(kernel) = kernel {
        return copies(kernel, capabilities);
    }
    if let Kernel::ScatterAdd(scatter) = kernel {
        return scattered(scatter, aliases, capabilities);
    }
    in_place(kernel, aliases, capabilities)
}

/// The drafts of a kernel that finds in its output what it adds to, if it adds to anything.
fn in_place(kernel: &Kernel, aliases: &Aliases, capabilities: &Capabilities) -> Result<Dispatches> {
    if fits(kernel, capabilities) {
        return piece(whole(kernel.clone()), aliases, capabilities);
    }
    match pieces(&merged(kernel), capabilities) {
        Ok(pieces) => all(pieces, aliases, capabilities),
        Err(error) => reordered(kernel, aliases, capabilities).unwrap_or(Err(error)),
    }
}

/// The drafts of a scatter-add: the base into the output, and what is added to it there.
fn scattered(
    kernel: &ScatterAddKernel,
    aliases: &Aliases,
    capabilities: &Capabilities,
) -> Result<Dispatches> {
    let whole = Layout::contiguous(kernel.base.shape().clone());
    let mut out = Dispatches::default();
    copy_in_blocks(&kernel.base, &whole, kernel.dtype, 0, capabilities, &mut out.list)
        .ok_or_else(|| refused(&Kernel::ScatterAdd(kernel.clone()), capabilities))?;
    let added = Kernel::ScatterAdd(ScatterAddKernel { base: whole, ..kernel.clone() });
    out.append(in_place(&added, aliases, capabilities)?);
    Ok(out)
}

/// A kernel as the one piece of itself.
fn whole(kernel: Kernel) -> Piece {
    let along = Along::whole(&kernel);
    Piece { kernel, first: 0, along }
}

fn all(pieces: Vec<Piece>, aliases: &Aliases, capabilities: &Capabilities) -> Result<Dispatches> {
    let mut out = Dispatches::default();
    for one in pieces {
        let whole = one.kernel.outputs()[0].0.numel() == 0 || fits(&one.kernel, capabilities);
        out.append(if whole { piece(one, aliases, capabilities)? } else { in_parts(&one, capabilities)? });
    }
    Ok(out)
}

/// The operands that are read, in the order of the launch.
fn operands(kernel: &mut Kernel) -> SmallVec<[(&mut Layout, DType); 4]> {
    match kernel {
        Kernel::Map(k) => k.inputs.iter_mut().zip(k.program.inputs.iter().copied()).collect(),
        Kernel::Reduce(k) => k.inputs.iter_mut().zip(k.program.inputs.iter().copied()).collect(),
        Kernel::Rows(k) => k.inputs.iter_mut().zip(k.program.inputs.iter().copied()).collect(),
        Kernel::ArgReduce(k) => SmallVec::from_iter([(&mut k.input, k.dtype)]),
        Kernel::Cumulative(k) => SmallVec::from_iter([(&mut k.input, k.dtype)]),
        Kernel::ArgSort(k) => SmallVec::from_iter([(&mut k.input, k.dtype)]),
        Kernel::MatMul(k) => SmallVec::from_iter([(&mut k.lhs, k.dtype), (&mut k.rhs, k.dtype)]),
        Kernel::Gather(k) => SmallVec::from_iter([(&mut k.input, k.dtype), (&mut k.index, k.index_dtype)]),
        Kernel::ScatterAdd(k) => SmallVec::from_iter([
            (&mut k.base, k.dtype),
            (&mut k.index, k.index_dtype),
            (&mut k.src, k.dtype),
        ]),
        _ => SmallVec::new(),
    }
}

/// Where the window over an operand starts, in elements; none if it does not fit one.
fn window(layout: &Layout, dtype: DType, capabilities: &Capabilities) -> Option<usize> {
    let (low, high) = layout.span();
    let shown = |start: usize| ((high - start) * storage_size(dtype)) as u64 <= capabilities.binding_bytes;
    [0, low / ALIGN * ALIGN].into_iter().find(|&start| shown(start))
}

/// The same elements in a buffer that starts `start` elements later.
fn shifted(layout: &Layout, start: usize) -> Layout {
    Layout::new(layout.shape().clone(), layout.strides(), layout.offset().saturating_sub(start))
}

/// The first operand that does not fit a window.
fn too_wide(kernel: &Kernel, capabilities: &Capabilities) -> Option<(Layout, DType)> {
    let mut kernel = kernel.clone();
    operands(&mut kernel)
        .into_iter()
        .find(|(layout, dtype)| window(layout, *dtype, capabilities).is_none())
        .map(|(layout, dtype)| (layout.clone(), dtype))
}

fn fits(kernel: &Kernel, capabilities: &Capabilities) -> bool {
    let room = |(shape, dtype): &(Shape, DType)| {
        (shape.numel() * storage_size(*dtype)) as u64 <= capabilities.binding_bytes
    };
    // A sort has temporaries of so many keys, though its input be one element for all or its output a few.
    let keys = match kernel {
        Kernel::ArgSort(k) => room(&(k.input.shape().clone(), k.dtype)),
        _ => true,
    };
    keys && kernel.outputs().iter().all(room) && is_within(kernel, capabilities)
}

/// Whether a kernel's operands fit, and its threads go round their loops no more than they may.
fn is_within(kernel: &Kernel, capabilities: &Capabilities) -> bool {
    rounds(kernel) <= capabilities.rounds && too_wide(kernel, capabilities).is_none()
}

/// How often a thread of a kernel goes round a loop that the kernel itself does not share among more threads.
fn rounds(kernel: &Kernel) -> usize {
    match kernel {
        Kernel::MatMul(k) => k.k,
        Kernel::ScatterAdd(k) => k.src.shape()[k.axis],
        _ => 0,
    }
}

/// The refusal of a kernel that cannot be cut.
fn refused(kernel: &Kernel, capabilities: &Capabilities) -> tensor_core::Error {
    let (shape, dtype) = match kernel {
        // Of its keys.
        Kernel::ArgSort(k) => (k.input.shape().clone(), k.dtype),
        _ => kernel.outputs()[0].clone(),
    };
    let wide = too_wide(kernel, capabilities);
    if wide.is_none() && rounds(kernel) > capabilities.rounds {
        let hint = format!(
            "a thread of this kernel would go round its loop {} times, where a thread of a software adapter may go {} times \
             in all, and it cannot be worked through in parts; split the tensor, or compute it on the cpu",
            rounds(kernel),
            capabilities.rounds
        );
        return capabilities.unsupported(kernel.name(), dtype, &hint);
    }
    let (layout, dtype) = wide.unwrap_or((Layout::contiguous(shape), dtype));
    let (low, high) = layout.span();
    let hint = format!(
        "one operand lies over {} bytes, one binding of this adapter shows {} (max_storage_buffer_binding_size), and \
         this kernel cannot be worked through in windows; split the tensor, or compute it on the cpu",
        (high - low) * storage_size(dtype),
        capabilities.binding_bytes
    );
    capabilities.unsupported(kernel.name(), dtype, &hint)
}

/// A map with its axes merged: fewer and longer axes leave more places to cut.
fn merged(kernel: &Kernel) -> Kernel {
    let Kernel::Map(k) = kernel else { return kernel.clone() };
    let strides: SmallVec<[&[isize]; 8]> = k.inputs.iter().map(Layout::strides).collect();
    let merged = collapse(&k.shape, &strides);
    let shape = Shape::from(&merged.shape[..]);
    let inputs = k.inputs.iter().zip(&merged.strides);
    let inputs = inputs.map(|(layout, s)| Layout::new(shape.clone(), s, layout.offset())).collect();
    Kernel::Map(MapKernel { shape, inputs, program: k.program.clone() })
}

/// Pieces that fit, or that are to be worked through in parts.
fn pieces(kernel: &Kernel, capabilities: &Capabilities) -> Result<Vec<Piece>> {
    let mut done = Vec::new();
    let mut open = vec![whole(kernel.clone())];
    while let Some(piece) = open.pop() {
        let kernel = &piece.kernel;
        let shape = match kernel {
            Kernel::Rows(k) => k.rows(),
            other => other.outputs()[0].0.clone(),
        };
        if shape.numel() == 0 || fits(kernel, capabilities) {
            done.push(piece);
            continue;
        }
        let in_parts = parts(kernel, capabilities).is_some();
        if in_parts && parts_first(kernel, capabilities) {
            done.push(piece);
            continue;
        }
        match cut(&piece, &shape) {
            // The earlier half comes off the stack first.
            Some([one, two]) if done.len() + open.len() < MAX_PIECES => open.extend([two, one]),
            None if in_parts => done.push(piece),
            _ => return Err(refused(kernel, capabilities)),
        }
    }
    Ok(done)
}

/// Two halves along the outermost axis of more than one position, each starting where a window may if possible.
fn cut(piece: &Piece, shape: &Shape) -> Option<[Piece; 2]> {
    let axis = shape.iter().position(|&n| n > 1)?;
    let row: usize = shape[axis + 1..].iter().product();
    let unit = ALIGN >> row.trailing_zeros().min(ALIGN.trailing_zeros());
    let n = shape[axis];
    let mut half = n.div_ceil(2).next_multiple_of(unit);
    if half >= n {
        // Where no window starts: see `land`.
        half = n.div_ceil(2);
    }
    let part = |start: usize, len: usize| {
        let mut along = piece.along;
        if matches!(&piece.kernel, Kernel::ScatterAdd(k) if k.axis == axis) {
            along.start += start;
        }
        let kernel = narrow(&piece.kernel, axis, start, len)?;
        Some(Piece { kernel, first: piece.first + start * row, along })
    };
    Some([part(0, half)?, part(half, n - half)?])
}

/// The part of a kernel that makes `len` positions of its output from `start` on along `axis`.
fn narrow(kernel: &Kernel, axis: usize, start: usize, len: usize) -> Option<Kernel> {
    let slice = |layout: &Layout, axis| layout.slice(axis, start, len, 1);
    let shortened = |shape: &Shape, axis| -> Shape {
        shape.iter().enumerate().map(|(a, &n)| if a == axis { len } else { n }).collect()
    };
    let mut kernel = kernel.clone();
    match &mut kernel {
        Kernel::Map(k) => {
            k.shape = shortened(&k.shape, axis);
            k.inputs.iter_mut().for_each(|l| *l = slice(l, axis));
        }
        Kernel::Rows(k) => {
            k.shape = shortened(&k.shape, axis);
            k.inputs.iter_mut().for_each(|l| *l = slice(l, axis));
        }
        Kernel::Reduce(k) => {
            let axis = (0..k.shape.rank()).filter(|a| !k.axes.contains(a)).nth(axis)?;
            k.shape = shortened(&k.shape, axis);
            k.inputs.iter_mut().for_each(|l| *l = slice(l, axis));
        }
        Kernel::ArgReduce(k) => k.input = slice(&k.input, axis + usize::from(axis >= k.axis)),
        Kernel::Cumulative(k) if axis != k.axis => k.input = slice(&k.input, axis),
        Kernel::ArgSort(k) if axis != k.axis => k.input = slice(&k.input, axis),
        Kernel::MatMul(k) => {
            let batches = k.batch.rank();
            if axis < batches {
                k.batch = shortened(&k.batch, axis);
            }
            if axis != batches + 1 {
                k.lhs = slice(&k.lhs, axis);
            }
            if axis != batches {
                k.rhs = slice(&k.rhs, axis);
            }
            match axis.checked_sub(batches) {
                Some(0) => k.m = len,
                Some(_) => k.n = len,
                None => {}
            }
        }
        Kernel::Gather(k) => {
            k.index = slice(&k.index, axis);
            if axis != k.axis {
                k.input = slice(&k.input, axis);
            }
        }
        Kernel::ScatterAdd(k) if axis == k.axis => k.base = slice(&k.base, axis),
        Kernel::ScatterAdd(k) => {
            k.base = slice(&k.base, axis);
            // The source may end before the base does.
            let reach = k.src.shape()[axis];
            let (from, to) = (start.min(reach), (start + len).min(reach));
            k.index = k.index.slice(axis, from, to - from, 1);
            k.src = k.src.slice(axis, from, to - from, 1);
        }
        _ => return None,
    }
    Some(kernel)
}

/// The drafts of a piece, with its bindings put where they start.
fn piece(piece: Piece, aliases: &Aliases, capabilities: &Capabilities) -> Result<Dispatches> {
    let Piece { mut kernel, first, along } = piece;
    // Off the windows' starts the output is made elsewhere, and is not an input's own buffer.
    let apart = Aliases::from_elem(None, aliases.len());
    let aliases = if first.is_multiple_of(ALIGN) { aliases } else { &apart };
    let starts = shift(&mut kernel, first, aliases, capabilities);
    let position = match &kernel {
        Kernel::Rows(k) => first * length(k),
        _ => first,
    };
    let mut made = backend::dispatches(&kernel, aliases, position, along, capabilities)?;
    made.list.iter_mut().for_each(|d| place(d, &starts, &[]));
    land(&mut made, &kernel, first, capabilities);
    Ok(made)
}

/// Elements in a row.
fn length(kernel: &RowKernel) -> usize {
    kernel.shape[kernel.rows().rank()..].iter().product()
}

/// Where output `o` of a piece starts in its buffer, in elements.
fn start(kernel: &Kernel, o: usize, first: usize) -> usize {
    match kernel {
        Kernel::Rows(k) if !k.per_row[o] => first * length(k),
        _ => first,
    }
}

/// Puts the outputs of a kernel where they start in their buffers: by where their bindings start, or, where a window
/// cannot start, by way of a temporary that is copied there.
fn land(made: &mut Dispatches, kernel: &Kernel, first: usize, capabilities: &Capabilities) {
    let outputs = kernel.outputs();
    if (0..outputs.len()).all(|o| start(kernel, o, first).is_multiple_of(ALIGN)) {
        for binding in made.list.iter_mut().flat_map(|d| &mut d.bindings) {
            if let Resource::Output(o) = binding.resource {
                binding.start = (start(kernel, o, first) * storage_size(outputs[o].1)) as u64;
            }
        }
        return;
    }
    let temps = made.temporaries.len();
    for binding in made.list.iter_mut().flat_map(|d| &mut d.bindings) {
        if let Resource::Output(o) = binding.resource {
            binding.resource = Resource::Temporary(temps + o);
        }
    }
    let adds = matches!(kernel, Kernel::ScatterAdd(_));
    for (o, (shape, dtype)) in outputs.iter().enumerate() {
        let numel = shape.numel();
        made.temporaries.push((*dtype, numel));
        let (temp, goal) = (Layout::contiguous([numel]), Layout::new([numel], &[1], start(kernel, o, first)));
        let copied = |src, dst, slots: [Resource; 2]| {
            let mut copied = Vec::new();
            // Along one axis there are never too many.
            let _ = copy_in_blocks(src, dst, *dtype, 0, capabilities, &mut copied);
            for binding in copied.iter_mut().flat_map(|d| &mut d.bindings) {
                binding.resource = slots[usize::from(binding.resource == Resource::Output(0))];
            }
            copied
        };
        let slots = [Resource::Temporary(temps + o), Resource::Output(o)];
        if adds {
            // To what is in the output.
            made.list.splice(0..0, copied(&goal, &temp, [slots[1], slots[0]]));
        }
        made.list.extend(copied(&temp, &goal, slots));
    }
}

/// Makes the operands' layouts relative to their windows; gives the bytes where those start.
fn shift(
    kernel: &mut Kernel,
    first: usize,
    aliases: &Aliases,
    capabilities: &Capabilities,
) -> SmallVec<[u64; 8]> {
    let mut starts = SmallVec::new();
    for (k, (layout, dtype)) in operands(kernel).into_iter().enumerate() {
        // An operand in an output's buffer is seen through the output's binding.
        let aliased = aliases.get(k).copied().flatten().is_some();
        let start = if aliased { first } else { window(layout, dtype, capabilities).unwrap_or(0) };
        *layout = shifted(layout, start);
        starts.push((start * storage_size(dtype)) as u64);
    }
    starts
}

fn place(draft: &mut Dispatch, inputs: &[u64], outputs: &[u64]) {
    for binding in &mut draft.bindings {
        binding.start = match binding.resource {
            Resource::Input(k) => inputs.get(k).copied().unwrap_or(0),
            Resource::Output(o) => outputs.get(o).copied().unwrap_or(0),
            Resource::Temporary(_) | Resource::Faults => binding.start,
        };
    }
}

/// The axis of more than one position over which a layout reaches furthest.
fn widest(layout: &Layout, among: impl Fn(usize) -> bool) -> Option<usize> {
    let sizes = layout.shape().iter().zip(layout.strides()).enumerate();
    sizes
        .filter(|&(axis, (&n, _))| n > 1 && among(axis))
        .max_by_key(|&(_, (&n, &stride))| (n - 1) * stride.unsigned_abs())
        .map(|(axis, _)| axis)
}

/// The drafts of a kernel whose operands that are too wide are first copied into row-major temporaries; none if there
/// is none that this would help.
fn reordered(kernel: &Kernel, aliases: &Aliases, capabilities: &Capabilities) -> Option<Result<Dispatches>> {
    let mut kernel = kernel.clone();
    let mut copied = Dispatches::default();
    let mut moved: SmallVec<[usize; 4]> = SmallVec::new();
    for (k, (layout, dtype)) in operands(&mut kernel).into_iter().enumerate() {
        if window(layout, dtype, capabilities).is_some() || layout.is_contiguous() {
            continue;
        }
        let whole = Layout::contiguous(layout.shape().clone());
        let mut made = Vec::new();
        copy_in_blocks(layout, &whole, dtype, k, capabilities, &mut made)?;
        let bindings = made.iter_mut().flat_map(|d| &mut d.bindings);
        bindings
            .filter(|b| b.resource == Resource::Output(0))
            .for_each(|b| b.resource = Resource::Temporary(moved.len()));
        copied.list.extend(made);
        copied.temporaries.push((dtype, whole.numel()));
        moved.push(k);
        *layout = whole;
    }
    if moved.is_empty() {
        return None;
    }
    let made = pieces(&merged(&kernel), capabilities).and_then(|pieces| all(pieces, aliases, capabilities));
    Some(made.map(|made| {
        let Dispatches { list: mut steps, temporaries: temps } = made;
        for binding in steps.iter_mut().flat_map(|d| &mut d.bindings) {
            binding.resource = match binding.resource {
                Resource::Input(k) => {
                    moved.iter().position(|&m| m == k).map_or(Resource::Input(k), Resource::Temporary)
                }
                Resource::Temporary(t) => Resource::Temporary(t + moved.len()),
                other => other,
            };
        }
        copied.list.extend(steps);
        copied.temporaries.extend(temps);
        copied
    }))
}

/// The drafts of a copy kernel.
fn copies(kernel: &CopyKernel, capabilities: &Capabilities) -> Result<Dispatches> {
    let room = (capabilities.binding_bytes as usize / storage_size(kernel.dtype) / ALIGN * ALIGN).max(ALIGN);
    let whole = kernel.shape.numel();
    let dtype = kernel.dtype;
    let small = whole <= room
        && kernel.regions.iter().all(|r| matches!(window(&r.src, dtype, capabilities), Some(0)));
    if small {
        return Ok(copy::dispatches(kernel, capabilities));
    }
    let mut out = Dispatches::default();
    if kernel.fill {
        for first in (0..whole).step_by(room) {
            let mut draft = copy::fill(room.min(whole - first), dtype);
            place(&mut draft, &[], &[(first * storage_size(dtype)) as u64]);
            out.list.push(draft);
        }
    }
    for (k, region) in kernel.regions.iter().enumerate() {
        copy_in_blocks(&region.src, &region.dst, dtype, k, capabilities, &mut out.list)
            .ok_or_else(|| refused(&Kernel::Copy(kernel.clone()), capabilities))?;
    }
    Ok(out)
}

/// Copies of input `k`, cut along any axes until both sides fit a window; none if that takes too many.
fn copy_in_blocks(
    src: &Layout,
    dst: &Layout,
    dtype: DType,
    k: usize,
    capabilities: &Capabilities,
    out: &mut Vec<Dispatch>,
) -> Option<()> {
    let most = out.len() + MAX_PIECES;
    let mut open = vec![(src.clone(), dst.clone())];
    while let Some((src, dst)) = open.pop() {
        let wide = match (window(&src, dtype, capabilities), window(&dst, dtype, capabilities)) {
            (Some(from), Some(to)) => {
                if let Some(mut draft) =
                    copy::copy("copy", &shifted(&src, from), &shifted(&dst, to), dtype, k, capabilities)
                {
                    let bytes = |n: usize| (n * storage_size(dtype)) as u64;
                    let mut inputs: SmallVec<[u64; 8]> = SmallVec::from_elem(0, k + 1);
                    inputs[k] = bytes(from);
                    place(&mut draft, &inputs, &[bytes(to)]);
                    out.push(draft);
                }
                continue;
            }
            (None, _) => &src,
            (_, None) => &dst,
        };
        let axis = widest(wide, |_| true)?;
        if out.len() + open.len() >= most {
            return None;
        }
        let n = src.shape()[axis];
        // Whole vectors, where there are enough.
        let half = if n >= 2 * ALIGN { n.div_ceil(2).next_multiple_of(ALIGN) } else { n.div_ceil(2) };
        for (start, len) in [(half, n - half), (0, half)] {
            open.push((src.slice(axis, start, len, 1), dst.slice(axis, start, len, 1)));
        }
    }
    Some(())
}
