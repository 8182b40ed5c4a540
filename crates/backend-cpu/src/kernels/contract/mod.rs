//! Contractions: matrix products, and everything that is one over lists of axes. Floats are multiplied in
//! [micro-kernels](micro_kernel), which threads share by rectangles of the result; integers in plain loops.
//! Operands are read in place by their strides. bf16 is multiplied in [pairs](bf16_kernel) where the
//! processor has instructions for them, and otherwise widened, as f16 is.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod bf16_gemm;
#[cfg(target_arch = "x86_64")]
mod bf16_kernel;
mod decoded;
pub(crate) mod dense;
mod dots;
mod epilogue;
pub(crate) mod gemm;
pub(crate) mod gemv;
pub(crate) mod micro_kernel;
mod tables;
mod thin;
mod windows;
mod winograd;

use std::{ops::Range, sync::Arc};

use tensor_core::{
    Arithmetic, DType, Error, ErrorKind, Launch, Layout, Result, bf16,
    contraction::{Contraction, Loop, Loops, count},
};

#[cfg(target_arch = "x86_64")]
use self::bf16_gemm::{Bf16Product, Target};
use self::{
    epilogue::{Epilogue, Finish, LoweredEpilogue},
    gemm::{Product, Steps, Strided, WIDEST},
    gemv::Matrix,
    micro_kernel::{HasMicroKernels, Update},
    winograd::Convolution,
};
use crate::{
    memory::{
        blocks::Blocks,
        buffer::{Bound, CpuBuffer, Memory, compiled},
        narrow::{Widened, narrow_into},
        pool::Pool,
    },
    simd::{
        bf16::{Bf16, Pairs},
        isa::Isa,
    },
    threads::{self, part},
    tuning::{
        BF16_KC_TERMS, CACHED_RESULTS, DOTS_MAX_ROWS, MICRO_KERNEL_GRAIN, MIN_LOOP_ELEMENTS,
        MIN_RUN_POSITIONS, PACK_LHS_MIN_REUSE, SERIAL_STEPS, THIN_MAX_RESULTS,
    },
};

/// Rectangles begin at multiples of these rows, a micro-tile's, and of [`WIDEST`] columns.
const MR: usize = 8;

/// A contraction as a batch of matrix products.
struct Matrices {
    /// Whether the kernel's second operand is the left one.
    swapped: bool,
    batch: Loops,
    batches: usize,
    m: usize,
    n: usize,
    k: usize,
    /// The left operand's rows and terms, the right one's terms and columns.
    lhs: [Distances; 2],
    rhs: [Distances; 2],
    /// Of one row: where runs of columns that lie side by side begin, and the end of the last; empty where
    /// they are short.
    runs: Vec<usize>,
    /// Of a few results: how many terms lie side by side in both operands, 0 where that is few.
    side_by_side: usize,
    /// Of more, over windows: registers of terms, if those lie side by side in both operands.
    along: Option<dots::Terms>,
    /// Of windows of 3 x 3 whose results are formed from fewer products.
    winograd: Option<Convolution>,
}

/// [`Steps`] that are owned.
enum Distances {
    Even(isize),
    Table(Vec<isize>),
}

impl Distances {
    fn of(loops: &[Loop], stride: impl Fn(&Loop) -> isize) -> Distances {
        match loops {
            [] => Distances::Even(0),
            [one] => Distances::Even(stride(one)),
            several => Distances::Table((0..count(several)).map(|i| offset(several, i, &stride)).collect()),
        }
    }

    fn steps(&self) -> Steps<'_> {
        match self {
            Distances::Even(step) => Steps::Even(*step),
            Distances::Table(table) => Steps::Table(table),
        }
    }
}

/// The distance of flat position `i` of a list of axes.
fn offset(loops: &[Loop], mut i: usize, stride: impl Fn(&Loop) -> isize) -> isize {
    let mut at = 0;
    for axis in loops.iter().rev() {
        at += (i % axis.size) as isize * stride(axis);
        i /= axis.size;
    }
    at
}

impl Matrices {
    /// With registers of `width`, 0 where there are none.
    fn of(contraction: Contraction, width: usize) -> Matrices {
        let winograd = Convolution::of(&contraction).filter(|_| width > 0);
        let Contraction { swapped, batch, m, n, k } = contraction;
        let lhs = [Distances::of(&m, |axis| axis.lhs), Distances::of(&k, |axis| axis.lhs)];
        let rhs = [Distances::of(&k, |axis| axis.rhs), Distances::of(&n, |axis| axis.rhs)];
        let runs = match &rhs[1] {
            Distances::Table(table) if m.is_empty() => {
                let starts = (0..table.len()).filter(|&j| j == 0 || table[j] != table[j - 1] + 1);
                let runs: Vec<usize> = starts.chain([table.len()]).collect();
                if (runs.len() - 1) * MIN_LOOP_ELEMENTS <= table.len() { runs } else { Vec::new() }
            }
            Distances::Table(_) | Distances::Even(_) => Vec::new(),
        };
        let inner = k.last().filter(|axis| axis.lhs == 1 && axis.rhs == 1 && axis.size >= MIN_LOOP_ELEMENTS);
        let few = count(&m) * count(&n) <= THIN_MAX_RESULTS && k.len() > 1;
        Matrices {
            swapped,
            runs,
            side_by_side: inner.filter(|_| few).map_or(0, |axis| axis.size),
            along: inner
                .filter(|_| width > 0 && !few && n.len() > 1 && count(&m) <= DOTS_MAX_ROWS)
                .and_then(|_| dots::Terms::of(width, count(&k), lhs[1].steps(), rhs[0].steps())),
            batches: count(&batch),
            batch,
            m: count(&m),
            n: count(&n),
            k: count(&k),
            lhs,
            rhs,
            winograd,
        }
    }

    /// Whether all products read one left operand, often enough that it pays to pack it once for all of them.
    /// One whose terms lie side by side is only packed for windows.
    fn packs_left(&self) -> bool {
        let lies = matches!(self.lhs, [Distances::Even(_), Distances::Even(1)]);
        let windows = matches!(self.rhs[0], Distances::Table(_));
        let shared = self.batches > 1 && self.batch.iter().all(|axis| axis.lhs == 0);
        (windows || !lies) && shared && self.batches * self.n >= PACK_LHS_MIN_REUSE
    }

    /// Whether these are products of two matrices, no vectors among them, and not over windows that are thin.
    fn are_large(&self) -> bool {
        self.m > 1 && self.n > 1 && self.side_by_side == 0 && self.runs.is_empty()
    }
}

/// A kernel ready to run.
struct Contract {
    matrices: Matrices,
    epilogue: Option<LoweredEpilogue>,
}

/// Where an operand's first element lies: a buffer, and a place in it.
#[derive(Clone, Copy)]
struct Source<'a> {
    memory: Memory,
    layout: &'a Layout,
    /// How its elements are read, where they are in blocks.
    blocks: Option<Blocks<'a>>,
}

pub(crate) fn run(isa: Isa, bf16: Bf16, pool: &Arc<Pool>, launch: &Launch<'_>) -> Result<()> {
    let kernel = launch.kernel;
    let malformed = || Error::invalid("matmul", "the kernel is no contraction of two operands");
    let bound = Bound::of_launch(pool, launch)?;
    let (dtype, numel) = (kernel.operands[0].dtype, kernel.outputs[0].shape.numel());
    if numel == 0 {
        return Ok(());
    }
    let Contract { matrices, epilogue } = compiled(launch, || {
        let contraction = Contraction::of(kernel).ok_or_else(malformed)?;
        let matrices = Matrices::of(contraction, width(isa, dtype.register()));
        Ok(Contract { matrices, epilogue: LoweredEpilogue::of(kernel)? })
    })?;
    let is_narrow = dtype.is_narrow();
    let in_blocks = kernel.operands.iter().any(|operand| operand.format.is_some());
    let pairs = Some(bf16)
        .filter(|_| dtype == DType::BF16 && matrices.are_large() && !in_blocks)
        .and_then(Bf16::pairs);
    // Pairs are rounded as they are stored, unless something is still to be done with their sums.
    let is_rounded = pairs.is_some() && epilogue.is_none() && matrices.k <= BF16_KC_TERMS;
    let own = epilogue.as_ref().map_or(Some(0), |epilogue| epilogue.own).filter(|_| !is_narrow);
    let apart;
    let sums = match own {
        Some(o) => bound.outputs[o],
        None if is_rounded => bound.outputs[0],
        None => {
            apart = CpuBuffer::new(pool, dtype.register(), numel)?;
            apart.memory()
        }
    };
    let epilogue = match epilogue {
        Some(lowered) => Some(Epilogue::new(isa, lowered, launch, &bound, sums)?),
        None => None,
    };
    let epilogue = epilogue.as_ref();
    if kernel.space.contains(&0) {
        // Sums of nothing, whose bits are 0 in every dtype. Where an operand without elements lies means
        // nothing. SAFETY: the output was checked to hold so many elements, as what lies apart does.
        unsafe { sums.at::<u8>(0).write_bytes(0, numel * sums.dtype.size()) };
        if let Some(epilogue) = epilogue {
            return epilogue.run(0..numel);
        }
    } else {
        let operand = |k: usize| {
            let (memory, operand) = (bound.inputs[k], &kernel.operands[k]);
            Source { memory, layout: &operand.layout, blocks: Blocks::of(operand, memory) }
        };
        let (lhs, rhs) = match matrices.swapped {
            false => (operand(0), operand(1)),
            true => (operand(1), operand(0)),
        };
        let of = Parts { isa, of: matrices, lhs, rhs, sums, epilogue };
        if let Some(pairs) = pairs {
            in_pairs(&of, pairs)?;
        } else {
            product_of(dtype, &of)?;
        }
    }
    if is_narrow && epilogue.is_none() && !is_rounded {
        // SAFETY: the sums are so many, and initialised; the launch checked the output's size, and that it
        // lies apart.
        unsafe { narrow_into(sums, bound.outputs[0], numel) };
    }
    Ok(())
}

/// A product of operands of a dtype, in the type that computes it.
fn product_of(dtype: DType, parts: &Parts<'_>) -> Result<()> {
    if dtype.is_narrow() {
        let mut wide = [parts.lhs, parts.rhs].map(|from| match from.blocks {
            // Decoded numbers are wide.
            Some(_) => None,
            // SAFETY: the launch checked the spans of both layouts.
            None => unsafe { Widened::of(from.memory, from.layout.span().1) },
        });
        let [lhs, rhs] = &mut wide;
        let source = |wide: &mut Option<Widened>, from| match wide {
            Some(wide) => Source { memory: wide.memory(), ..from },
            None => from,
        };
        let (lhs, rhs) = (source(lhs, parts.lhs), source(rhs, parts.rhs));
        return product_of(dtype.register(), &Parts { lhs, rhs, ..*parts });
    }
    let in_blocks = parts.lhs.blocks.is_some() || parts.rhs.blocks.is_some();
    match dtype.arithmetic() {
        Arithmetic::F32 if in_blocks => decoded::float::<f32>(parts),
        Arithmetic::F64 if in_blocks => decoded::float::<f64>(parts),
        Arithmetic::F32 => float::<f32>(parts),
        Arithmetic::F64 => float::<f64>(parts),
        // The low bits are the same for signed and unsigned ones.
        Arithmetic::I64 | Arithmetic::U64 => {
            integer::<i64>(parts, |s, a, b| s.wrapping_add(a.wrapping_mul(b)))
        }
        Arithmetic::I32 | Arithmetic::U32 => {
            integer::<i32>(parts, |s, a, b| s.wrapping_add(a.wrapping_mul(b)))
        }
        Arithmetic::Bool => Err(Error::new(ErrorKind::Unsupported {
            op: "matmul",
            device: "cpu".into(),
            dtype,
            hint: "cast with .to_dtype(DType::F32)".into(),
        })),
    }
}

/// Numbers in a register, 0 of those that have no micro-kernels.
fn width(isa: Isa, dtype: DType) -> usize {
    match dtype.arithmetic() {
        Arithmetic::F32 => f32::micro_kernels(isa).width,
        Arithmetic::F64 => f64::micro_kernels(isa).width,
        Arithmetic::I64 | Arithmetic::U64 | Arithmetic::I32 | Arithmetic::U32 | Arithmetic::Bool => 0,
    }
}

/// What a product is formed of, and where.
#[derive(Clone, Copy)]
struct Parts<'a> {
    isa: Isa,
    of: &'a Matrices,
    lhs: Source<'a>,
    rhs: Source<'a>,
    sums: Memory,
    epilogue: Option<&'a Epilogue<'a>>,
}

/// Product `b` of a batch.
///
/// # Safety
/// The operands' layouts and the output's size were checked against their buffers.
unsafe fn product<'a, T>(
    of: &'a Matrices,
    lhs: Source<'_>,
    rhs: Source<'_>,
    out: Memory,
    b: usize,
) -> Product<'a, T> {
    let first = |from: Source<'_>, stride: fn(&Loop) -> isize| {
        let start = from.memory.at::<T>(0).cast_const();
        start.wrapping_offset(from.layout.offset() as isize + offset(&of.batch, b, stride))
    };
    let ([row, left_term], [right_term, column]) = (&of.lhs, &of.rhs);
    Product {
        n: of.n,
        k: of.k,
        a: Strided { at: first(lhs, |axis| axis.lhs), row: row.steps(), column: left_term.steps() },
        b: Strided { at: first(rhs, |axis| axis.rhs), row: right_term.steps(), column: column.steps() },
        to: out.at::<T>(0).wrapping_offset(offset(&of.batch, b, |axis| axis.out)),
        to_row: of.n,
        update: Update::Set,
        prepared: None,
    }
}

/// How a product of floats is computed.
enum Form<T> {
    /// The left operand, a row whose elements are so far apart, times the right one.
    Row(isize, Matrix<T>),
    /// The left operand, transposed, times the right one, a column whose elements are so far apart.
    Column(isize, Matrix<T>),
    /// Both are matrices, or the one that is has no axis of unit stride.
    Gemm,
}

impl<T> Form<T> {
    /// A product with one row or one column is a vector times a matrix, whose own strides decide whether
    /// `gemv` can walk it.
    fn of(m: usize, product: &Product<'_, T>) -> Form<T> {
        let (a, b) = (&product.a, &product.b);
        let walks = |matrix: &Matrix<T>| matrix.row == 1 || matrix.column == 1;
        if m == 1
            && let (Some(step), Some(matrix)) = (a.column.even(), b.matrix().filter(walks))
        {
            return Form::Row(step, matrix);
        }
        if product.n == 1
            && let (Some(step), Some(matrix)) = (b.row.even(), a.matrix().filter(walks))
        {
            return Form::Column(step, Matrix { at: matrix.at, row: matrix.column, column: matrix.row });
        }
        Form::Gemm
    }
}

fn float<T: HasMicroKernels>(parts: &Parts<'_>) -> Result<()> {
    let Parts { isa, of, lhs, rhs, sums, .. } = *parts;
    let filtered = match &of.winograd {
        Some(convolution) => filtered::<T>(parts, convolution)?,
        None => false,
    };
    if filtered {
        return Ok(());
    }
    let (m, n, k) = (of.m, of.n, of.k);
    let thin = of.side_by_side > 0 || !of.runs.is_empty();
    // SAFETY: `run` checked both layouts and the output against their buffers.
    let placed = |b: usize| unsafe { product::<T>(of, lhs, rhs, sums, b) };
    // A thread that takes products takes whole ones, which have something in common.
    let prepared = match of.batches > 1 && of.are_large() && of.batches >= threads::available() {
        // SAFETY: as above; products have elements.
        true => Some(unsafe { placed(0).prepare(isa, m, of.packs_left()) }),
        false => None,
    };
    let along = of.along.as_ref().filter(|terms| terms.are_for::<T>(isa));
    let product = |b: usize| Product { prepared: prepared.as_ref(), ..placed(b) };
    let alone = |b: usize, finish: Option<Finish<'_>>| -> Result<()> {
        let p = product(b);
        // SAFETY: the launch checked that the operands and the output lie apart; the form was chosen by the
        // matrix's strides.
        unsafe {
            if of.side_by_side > 0 {
                thin::dots(isa, p, m, of.side_by_side);
                return Ok(());
            }
            if !of.runs.is_empty() {
                thin::row(isa, p, &of.runs);
                return Ok(());
            }
            if let Some(terms) = along {
                return dots::run(isa, &p, terms, 0..m, 0..n, finish);
            }
            let (x, step, matrix) = match Form::of(m, &p) {
                Form::Gemm => return p.run(isa, 0..m, 0..n, finish),
                Form::Row(step, matrix) => (p.a.at, step, matrix),
                Form::Column(step, matrix) => (p.b.at, step, matrix),
            };
            gemv::run(isa, x, step, k, matrix, std::slice::from_raw_parts_mut(p.to, m * n));
        }
        Ok(())
    };
    let first = product(0);
    Batch {
        gemm: !thin && matches!(Form::of(m, &first), Form::Gemm),
        alone: &alone,
        // SAFETY: as above, and the rectangles are apart.
        rectangle: &|b, rows, columns, finish| unsafe {
            match along {
                Some(terms) => dots::run(isa, &placed(b), terms, rows, columns, finish),
                None => placed(b).run(isa, rows, columns, finish),
            }
        },
        cost: &|rows, columns| match along {
            Some(_) => rows * columns,
            None => first.cost(rows, columns),
        },
        units: [MR, WIDEST],
        grain: MICRO_KERNEL_GRAIN,
    }
    .run(parts)
}

/// As [`float`], of windows by [`Convolution`]: threads share blocks of images. Gives whether it is done.
fn filtered<T: HasMicroKernels>(parts: &Parts<'_>, convolution: &Convolution) -> Result<bool> {
    let Parts { isa, of, lhs, rhs, sums, epilogue, .. } = *parts;
    let (m, n) = (of.m, of.n);
    // SAFETY: `run` checked both layouts and the output against their buffers.
    let placed = |b: usize| unsafe { product::<T>(of, lhs, rhs, sums, b) };
    // SAFETY: as above; all products read one left operand.
    let Some(weight) = (unsafe { convolution.transformed(placed(0).a.at) }) else { return Ok(false) };
    share_if_worth(of, convolution.blocks(), |block| {
        let first = placed(0);
        // SAFETY: as above; blocks are apart.
        let done = unsafe { convolution.run(isa, &weight, first.b.at, first.to, block)? };
        for (b, columns) in convolution.columns(block) {
            if !done {
                // SAFETY: as above.
                unsafe { placed(b).run(isa, 0..m, columns.clone(), None)? };
            }
            if let Some(epilogue) = epilogue {
                let finish = Finish { epilogue, first: b * m * n };
                epilogue.with(|evaluator| finish.rectangle(evaluator, n, 0..m, &columns))?;
            }
        }
        Ok(())
    })?;
    Ok(true)
}

/// So many tasks of a contraction, shared among threads if it is worth them.
fn share_if_worth(of: &Matrices, tasks: usize, one: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    match threads::worth(of.batches * of.m * of.n * of.k, MICRO_KERNEL_GRAIN) {
        1 => (0..tasks).try_for_each(one),
        _ => threads::try_share(tasks, one),
    }
}

/// As [`float`], of bf16 in pairs: into sums, or rounded if those are bf16.
#[cfg(target_arch = "x86_64")]
fn in_pairs(parts: &Parts<'_>, pairs: Pairs) -> Result<()> {
    let Parts { isa, of, lhs, rhs, sums, .. } = *parts;
    let rectangle = |b: usize, rows: Range<usize>, columns: Range<usize>, finish: Option<Finish<'_>>| {
        // SAFETY: `run` checked both layouts and the output against their buffers, and that those lie apart;
        // rectangles are apart.
        unsafe {
            let Product { n, k, a, b: right, to, .. } = product::<bf16>(of, lhs, rhs, sums, b);
            let to = if sums.dtype == DType::BF16 {
                Target::Rounded(to)
            } else {
                Target::Sums(sums.at::<f32>(0).wrapping_offset(offset(&of.batch, b, |axis| axis.out)))
            };
            Bf16Product { n, k, a, b: right, to }.run(isa, pairs, rows, columns, finish)
        }
    };
    Batch {
        gemm: true,
        alone: &|b, finish| rectangle(b, 0..of.m, 0..of.n, finish),
        rectangle: &rectangle,
        cost: &bf16_gemm::cost,
        units: [bf16_gemm::UNIT; 2],
        grain: crate::tuning::BF16_GRAIN,
    }
    .run(parts)
}

#[cfg(not(target_arch = "x86_64"))]
fn in_pairs(_: &Parts<'_>, pairs: Pairs) -> Result<()> {
    // `Bf16::pairs` gives none here.
    Err(Error::invalid("matmul", format!("{pairs:?} is another architecture's")))
}

/// Called with a product's number in the batch and what finishes it.
type Alone<'a> = &'a (dyn Fn(usize, Option<Finish<'_>>) -> Result<()> + Sync);
/// The same of a rectangle of it: rows and columns.
type Rectangle<'a> = &'a (dyn Fn(usize, Range<usize>, Range<usize>, Option<Finish<'_>>) -> Result<()> + Sync);

/// How products are formed that threads share.
struct Batch<'a> {
    /// Whether products can be cut into rectangles, and are finished tile by tile.
    gemm: bool,
    alone: Alone<'a>,
    rectangle: Rectangle<'a>,
    /// Roughly what rows and columns take.
    cost: &'a (dyn Fn(usize, usize) -> usize + Sync),
    /// Rectangles begin at multiples of these rows and columns.
    units: [usize; 2],
    /// Multiplications that are worth a thread.
    grain: usize,
}

impl Batch<'_> {
    fn run(&self, parts: &Parts<'_>) -> Result<()> {
        let Parts { of, epilogue, .. } = *parts;
        let (m, n, k, batches) = (of.m, of.n, of.k, of.batches);
        let size = m * n;
        // A large product is finished tile by tile, and any other with its neighbours in the batch.
        let by_tiles = epilogue.filter(|_| self.gemm && size > CACHED_RESULTS);
        let finish = |b: usize| by_tiles.map(|epilogue| Finish { epilogue, first: b * size });
        let alone = |b: usize| (self.alone)(b, finish(b));
        let some = |range: Range<usize>| -> Result<()> {
            let Some(epilogue) = epilogue.filter(|_| by_tiles.is_none()) else {
                return range.into_iter().try_for_each(alone);
            };
            let together = (CACHED_RESULTS / size).max(1);
            for start in range.clone().step_by(together) {
                let end = range.end.min(start + together);
                (start..end).try_for_each(alone)?;
                epilogue.run(start * size..end * size)?;
            }
            Ok(())
        };
        let (available, work) = (threads::available(), batches * m * n * k);
        // Few batch positions of a thin product go one by one; and a vector times a matrix shares its work
        // itself.
        if available == 1 || (!self.gemm && batches < available) {
            return some(0..batches);
        }
        if threads::worth(work, self.grain) == 1 {
            some(0..batches)
        } else if batches >= available {
            let piece = (batches / (available * 16)).max(1);
            threads::try_share(batches.div_ceil(piece), |i| some(i * piece..batches.min((i + 1) * piece)))
        } else {
            for b in 0..batches {
                let (down, across) =
                    grid([m, n], available.min(work / batches / self.grain), self.units, self.cost);
                // Short parts of rows are finished when all are there.
                let finish = finish(b).filter(|_| across == 1 || n / across >= MIN_RUN_POSITIONS);
                let rectangle = |i: usize| {
                    let [down_by, across_by] = self.units;
                    let (rows, columns) =
                        (part(m, down_by, down, i / across), part(n, across_by, across, i % across));
                    (self.rectangle)(b, rows, columns, finish)
                };
                threads::try_share(down * across, rectangle)?;
                if let (Some(epilogue), None) = (epilogue, finish) {
                    epilogue.run(b * size..(b + 1) * size)?;
                }
            }
            Ok(())
        }
    }
}

/// Into how many rectangles, down and across, rows and columns are cut for so many threads, at multiples of
/// some: what takes the least time by `cost`, which is given rows and columns. If several do, the one with
/// the most rows of rectangles: those are whole pieces of memory, as elementwise kernels cut it.
fn grid(
    [m, n]: [usize; 2],
    threads: usize,
    [down_by, across_by]: [usize; 2],
    cost: impl Fn(usize, usize) -> usize,
) -> (usize, usize) {
    let threads = threads.max(1);
    let most = |size: usize, unit: usize| (size / unit).max(1);
    let time = |(down, across): (usize, usize)| {
        let longest = |size: usize, unit: usize, parts: usize| {
            (0..parts).map(|i| part(size, unit, parts, i).len()).max().unwrap_or(size)
        };
        cost(longest(m, down_by, down), longest(n, across_by, across))
    };
    (1..=threads.min(most(m, 2 * down_by)))
        .rev()
        .map(|down| (down, (threads / down).min(most(n, 2 * across_by))))
        .min_by_key(|&cut| time(cut))
        .unwrap_or((1, 1))
}

fn integer<T: Copy + Default + Send + Sync>(
    parts: &Parts<'_>,
    step: impl Fn(T, T, T) -> T + Send + Sync,
) -> Result<()> {
    let Parts { of, lhs, rhs, sums, epilogue, .. } = *parts;
    let row = |at: usize| {
        // SAFETY: `run` checked both layouts and the output against their buffers; each row is written by one
        // thread.
        unsafe {
            let (b, i) = (at / of.m, at % of.m);
            let p = product::<T>(of, lhs, rhs, sums, b);
            let mut row = vec![T::default(); of.n];
            for x in 0..of.k {
                let left = p.a.element(i, x).read();
                for (j, sum) in row.iter_mut().enumerate() {
                    *sum = step(*sum, left, p.b.element(x, j).read());
                }
            }
            std::ptr::copy_nonoverlapping(row.as_ptr(), p.to.add(i * of.n), of.n);
        }
    };
    let rows = of.batches * of.m;
    if rows * of.n * of.k < SERIAL_STEPS || threads::available() == 1 {
        (0..rows).for_each(row);
    } else {
        threads::share(rows, row);
    }
    epilogue.map_or(Ok(()), |epilogue| epilogue.run(0..rows * of.n))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn rectangles_cover_the_result_once() {
        const UNITS: [usize; 2] = [MR, WIDEST];
        let cost = |rows: usize, columns: usize| columns.div_ceil(WIDEST) * (rows + 8);
        for (m, n, k) in [(1, 1, 1 << 22), (13, 5000, 900), (5000, 13, 900), (64, 128, 784), (2048, 2048, 64)]
        {
            for threads in 1..40 {
                let (down, across) = grid([m, n], threads.min(m * n * k / MICRO_KERNEL_GRAIN), UNITS, cost);
                assert!(down * across <= threads);
                for (size, unit, parts) in [(m, UNITS[0], down), (n, UNITS[1], across)] {
                    let mut next = 0;
                    for i in 0..parts {
                        let range = part(size, unit, parts, i);
                        assert!(range.start == next && !range.is_empty());
                        next = range.end;
                    }
                    assert_eq!(next, size);
                }
            }
        }
        // Threads that share columns would each copy them; a register partly filled costs as much as a full
        // one.
        assert_eq!(grid([512, 512], 2, UNITS, cost), (1, 2));
        assert_eq!(grid([333, 129], 2, UNITS, cost), (2, 1));
        assert_eq!(grid([64, 32], 0, UNITS, cost), (1, 1));
        assert_eq!(grid([128, 784], 2, UNITS, |rows, columns| rows * columns), (2, 1));
    }
    /// Axes of 2 × 3 positions, whose neighbours lie 10 and −1 apart on the left, 0 and 4 on the right.
    fn axes() -> Vec<Loop> {
        vec![Loop { size: 2, lhs: 10, rhs: 0, out: 3 }, Loop { size: 3, lhs: -1, rhs: 4, out: 1 }]
    }

    #[test]
    fn distances_are_those_of_nested_loops() {
        let axes = axes();
        let table = |distances: &Distances| (0..6).map(|i| distances.steps().at(i)).collect::<Vec<_>>();
        let (lhs, rhs) = (Distances::of(&axes, |a| a.lhs), Distances::of(&axes, |a| a.rhs));
        assert_eq!(table(&lhs), [0, -1, -2, 10, 9, 8]);
        assert_eq!(table(&rhs), [0, 4, 8, 0, 4, 8]);
        assert_eq!(Distances::of(&axes, |a| a.out).steps().even(), None);
        assert_eq!(Distances::of(&axes[1..], |a| a.lhs).steps().even(), Some(-1));
        assert_eq!(Distances::of(&[], |a| a.lhs).steps().at(0), 0);
        assert_eq!((0..6).map(|i| offset(&axes, i, |a| a.out)).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn vectors_and_matrices_have_their_forms() {
        let x = [0f32; 64];
        let table: Vec<isize> = vec![0, 2, 3, 7];
        let strided = |row, column| Strided { at: x.as_ptr(), row, column };
        let product = |n, a, b| {
            let to = std::ptr::null_mut();
            Product { n, k: 4, a, b, to, to_row: n, update: Update::Set, prepared: None }
        };
        let even = |row, column| strided(Steps::Even(row), Steps::Even(column));
        let is_row = |p: Product<'_, f32>| matches!(Form::of(1, &p), Form::Row(3, _));
        assert!(is_row(product(5, even(0, 3), even(5, 1))) && is_row(product(5, even(0, 3), even(1, 4))));
        // Neither axis of the matrix has unit stride, and terms at uneven distances.
        assert!(!is_row(product(5, even(0, 3), even(10, 2))));
        assert!(!is_row(product(5, strided(Steps::Even(0), Steps::Table(&table)), even(5, 1))));
        let column = product(1, even(4, 1), even(2, 0));
        assert!(matches!(Form::of(5, &column), Form::Column(2, Matrix { row: 1, column: 4, .. })));
        assert!(matches!(Form::of(5, &product(5, even(4, 1), even(5, 1))), Form::Gemm));
    }

    /// Both operands' rows, columns and terms lie by tables: each element against its sum by hand, in
    /// integers and in floats.
    #[test]
    fn products_over_tables_are_sums_by_hand() {
        let a: Vec<i32> = (0..64).map(|i| i * 7 % 11 - 5).collect();
        let b: Vec<i32> = (0..64).map(|i| i * 5 % 13 - 6).collect();
        let (m, n, k) = (axes(), axes(), axes());
        let lay = |axes: Vec<Loop>, lhs: [isize; 2], rhs: [isize; 2]| -> Loops {
            let with = |(i, axis): (usize, Loop)| Loop { lhs: lhs[i], rhs: rhs[i], ..axis };
            axes.into_iter().enumerate().map(with).collect()
        };
        let contraction = Contraction {
            swapped: false,
            batch: Loops::new(),
            m: lay(m, [1, 12], [0, 0]),
            n: lay(n, [0, 0], [20, 3]),
            k: lay(k, [4, 9], [1, 2]),
        };
        let expected: Vec<i32> = (0..36)
            .map(|at| {
                let (i, j) = (at / 6, at % 6);
                let term = |x: usize| {
                    let left = i / 3 + 12 * (i % 3) + 4 * (x / 3) + 9 * (x % 3);
                    let right = 20 * (j / 3) + 3 * (j % 3) + x / 3 + 2 * (x % 3);
                    a[left] * b[right]
                };
                (0..6).map(term).sum()
            })
            .collect();
        let matrices = Matrices::of(contraction, 0);
        let layout = Layout::contiguous([64]);
        fn memory<T>(values: &mut [T], dtype: DType) -> Memory {
            Memory { ptr: values.as_mut_ptr().cast(), numel: values.len(), dtype }
        }
        let (mut left, mut right, mut out) = (a.clone(), b.clone(), vec![0i32; 36]);
        let source = |memory| Source { memory, layout: &layout, blocks: None };
        let (lhs, rhs) = (memory(&mut left, DType::I32), memory(&mut right, DType::I32));
        let to = memory(&mut out, DType::I32);
        let of = |isa, lhs, rhs, sums| Parts {
            isa,
            of: &matrices,
            lhs: source(lhs),
            rhs: source(rhs),
            sums,
            epilogue: None,
        };
        integer::<i32>(&of(Isa::available()[0], lhs, rhs, to), |s, a, b| s + a * b).unwrap();
        assert_eq!(out, expected);
        for isa in Isa::available() {
            let mut left: Vec<f32> = a.iter().map(|&v| v as f32).collect();
            let mut right: Vec<f32> = b.iter().map(|&v| v as f32).collect();
            let mut out = vec![0f32; 36];
            let (lhs, rhs) = (memory(&mut left, DType::F32), memory(&mut right, DType::F32));
            let to = memory(&mut out, DType::F32);
            float::<f32>(&of(isa, lhs, rhs, to)).unwrap();
            assert!(out.iter().zip(&expected).all(|(&o, &e)| o == e as f32), "{isa:?}");
        }
    }
}
