//! The block engine: runs a lowered program on about a thousand positions at a time, with all temporaries
//! in the first-level cache.
#![allow(unsafe_code)]

use std::{cell::RefCell, ops::Range};

use smallvec::SmallVec;
use tensor_core::{
    Arithmetic, BinaryOp, DType, Error, ErrorKind, Launch, RandomKind, Result, UnaryOp, philox, philox_words,
};

use crate::{
    elementwise::{
        compare,
        indexed::{Indexed, index_of_row},
        lower::{Access, Code, LoadAt, Lowered, Src, Step, operands},
        table,
        values::Values,
    },
    memory::{
        buffer::Memory,
        narrow::{Narrow, by_narrow, narrow, widen},
    },
    simd::{
        cache::LINE,
        isa::{Isa, Job, Plain, Sets},
        math,
    },
    tuning::{BLOCK_POSITIONS, MIN_RUN_POSITIONS, PREFETCH_STEP_ELEMENTS},
};

thread_local! {
    /// The memory of the registers, reused from launch to launch.
    static SCRATCH: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Words of scratch memory that a program's registers take: 8 bytes per position fit every dtype.
pub(crate) fn words(program: &Lowered) -> usize {
    program.registers * BLOCK_POSITIONS
}

/// Runs `f` with `words` words of this thread's scratch memory, aligned to a cache line.
pub(crate) fn with_scratch<R>(words: usize, f: impl FnOnce(*mut u64) -> R) -> R {
    const WORDS: usize = LINE / size_of::<u64>();
    let mut memory = SCRATCH.take();
    if memory.len() < words + WORDS {
        memory.resize(words + WORDS, 0);
    }
    let start = memory.as_mut_ptr();
    let result = f(start.wrapping_add(start.align_offset(LINE).min(WORDS)));
    SCRATCH.set(memory);
    result
}

/// Runs `f` with an evaluator on this thread's registers.
pub(crate) fn with_evaluator<R>(
    isa: Isa,
    program: &Lowered,
    inputs: &[Memory],
    launch: &Launch<'_>,
    outputs: &[Memory],
    f: impl FnOnce(&mut Evaluator<'_>) -> Result<R>,
) -> Result<R> {
    with_scratch(words(program), |registers| {
        f(&mut Evaluator::new(isa, program, inputs.into(), launch, outputs, registers))
    })
}

/// A range of memory to prefetch.
#[derive(Clone, Copy)]
pub(crate) struct Stream {
    pub(crate) at: *const u8,
    pub(crate) bytes: usize,
    /// Whether it will be written.
    pub(crate) write: bool,
}

impl Stream {
    /// Prefetches the cache lines of part `part` of `parts`. This is only a hint: any address is allowed.
    fn fetch(&self, part: usize, parts: usize) {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_ET0, _MM_HINT_T0, _mm_prefetch};
            let lines = self.bytes.div_ceil(64);
            for line in lines * part / parts..lines * (part + 1) / parts {
                let at = self.at.wrapping_add(line * 64).cast::<i8>();
                // SAFETY: prefetching does not access memory.
                unsafe {
                    if self.write {
                        _mm_prefetch::<_MM_HINT_ET0>(at);
                    } else {
                        _mm_prefetch::<_MM_HINT_T0>(at);
                    }
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (part, parts);
    }
}

/// Which steps may write directly to the memory of their output: all, unless that memory belongs to an
/// input that is read later.
fn direct_outputs(program: &Lowered, inputs: &[Memory], outputs: &[Memory]) -> SmallVec<[bool; 16]> {
    let safe = |at: usize, step: &Step| {
        let Some(output) = step.output.and_then(|o| outputs.get(o as usize)) else { return false };
        let shares = |k: usize| inputs[k].ptr == output.ptr;
        let later = (0..inputs.len()).any(|k| shares(k) && program.inputs[k].last_use > at);
        // These steps read their operand again after writing, or need an output that does not overlap it.
        let twice =
            matches!(
                step.code,
                Code::Unary(UnaryOp::Sin | UnaryOp::Cos | UnaryOp::Tan, _)
                    | Code::Binary(BinaryOp::Pow, ..)
                    | Code::Cast(_)
                    | Code::Compare(..)
                    | Code::Choose(..)
                    | Code::LoadAt(_)
            ) && operands(&step.code).iter().any(|s| matches!(s, Src::Input(k) if shares(*k as usize)));
        !later && !twice
    };
    let mut direct = SmallVec::from_elem(false, program.steps.len());
    for (at, step) in program.steps.iter().enumerate() {
        direct[at] = safe(at, step);
    }
    direct
}

/// A program with its inputs, on one thread.
pub(crate) struct Evaluator<'a> {
    isa: Isa,
    program: &'a Lowered,
    pub(crate) inputs: SmallVec<[Memory; 4]>,
    launch: &'a Launch<'a>,
    registers: *mut u64,
    /// The values of each register's current block (in its own memory or in an output's), followed by those
    /// of each input's block.
    places: SmallVec<[Values; 24]>,
    /// The number of elements of the last block.
    count: usize,
    /// Memory to prefetch while the costliest step of the next block runs: hardware prefetching works
    /// within a loop but not across loops.
    pub(crate) ahead: SmallVec<[Stream; 4]>,
    fresh: bool,
    /// The number of elements to fill in the constant registers.
    block: usize,
    direct: SmallVec<[bool; 16]>,
}

impl<'a> Evaluator<'a> {
    /// `registers` is aligned and valid for [`words`] words, and each input holds the elements that its
    /// access reads: all below [`Access::end`].
    pub(crate) fn new(
        isa: Isa,
        program: &'a Lowered,
        inputs: SmallVec<[Memory; 4]>,
        launch: &'a Launch<'a>,
        outputs: &[Memory],
        registers: *mut u64,
    ) -> Evaluator<'a> {
        let block = BLOCK_POSITIONS.min(program.numel.max(1));
        let mut places = SmallVec::from_elem(Values::none(), program.registers + inputs.len());
        for (r, place) in places[..program.scalars.len()].iter_mut().enumerate() {
            let register = registers.wrapping_add(r * BLOCK_POSITIONS).cast::<u8>();
            *place = Values::filled(register.cast_const(), block);
        }
        Evaluator {
            isa,
            program,
            launch,
            registers,
            places,
            count: 0,
            ahead: SmallVec::new(),
            fresh: true,
            block,
            direct: direct_outputs(program, &inputs, outputs),
            inputs,
        }
    }

    fn register(&self, r: u16) -> *mut u8 {
        self.registers.wrapping_add(r as usize * BLOCK_POSITIONS).cast()
    }

    /// The values of an operand in the current block.
    fn values(&self, src: Src) -> Values {
        match src {
            Src::Reg(r) => self.places[r as usize],
            Src::Input(k) => self.places[self.program.registers + k as usize],
        }
    }

    /// The length of the next block, from `pos` to `end` at most.
    pub(crate) fn block_len(&self, pos: usize, end: usize) -> usize {
        let inner = self.program.inner();
        let run = match inner >= MIN_RUN_POSITIONS && self.program.stops_at_rows {
            true => inner - pos % inner,
            false => BLOCK_POSITIONS,
        };
        run.min(BLOCK_POSITIONS).min(end - pos)
    }

    /// Schedules prefetches for the block at `pos`: the inputs that it reads in place, and the outputs.
    /// They are issued while the block before it is computed.
    pub(crate) fn look_ahead(&mut self, outputs: &[Memory], pos: usize) {
        let (program, end) = (self.program, self.program.numel);
        if pos >= end {
            return;
        }
        let n = self.block_len(pos, end);
        let inner = program.inner();
        let stream = |memory: &Memory, first: usize, write: bool| {
            let size = memory.dtype.size();
            Stream { at: memory.ptr.wrapping_add(first * size), bytes: n * size, write }
        };
        for (memory, access) in self.inputs.iter().zip(&program.inputs) {
            let first = match access.contiguous {
                true => access.offset + pos,
                false if program.is_read_by_rows(access) => {
                    offset_of(access, &program.dims, pos / inner, pos % inner)
                }
                false => continue,
            };
            self.ahead.push(stream(memory, first, false));
        }
        self.ahead.extend(outputs.iter().map(|memory| stream(memory, pos, true)));
    }

    /// Computes positions `pos..pos + n`; [`Evaluator::result`] gives the addresses of the results. Outputs
    /// given in `targets` are written there, from the target's element `at` on; each has room for `n`
    /// elements there, and `n` is at most [`BLOCK_POSITIONS`].
    ///
    /// It does not return a list of the results: such a list is written in small parts and read in large
    /// ones, and a load like that waits for all earlier stores, which include those of the block.
    pub(crate) fn block(&mut self, pos: usize, n: usize, targets: &[Memory], at: usize) -> Result<()> {
        if self.fresh {
            self.fill_constants();
            self.fresh = false;
        }
        let program = self.program;
        let inner = program.inner();
        let spot = if program.dims.len() > 1 { (pos / inner, pos % inner) } else { (0, pos) };
        self.count = n;
        let in_blocks = |access: &Access| access.indexed.is_none() && !access.names_runs;
        for (k, access) in program.inputs.iter().enumerate().filter(|(_, access)| in_blocks(access)) {
            self.places[program.registers + k] = self.load(k as u16, access, pos, spot, n)?;
        }
        for (index, step) in program.steps.iter().enumerate() {
            let target = match step.output.and_then(|o| targets.get(o as usize)) {
                Some(target) if self.direct[index] => {
                    Some(target.at::<u8>(0).wrapping_add(at * step.to.size()))
                }
                _ => None,
            };
            let out = target.unwrap_or_else(|| self.register(step.dst));
            if target.is_none()
                && let Some(run) = self.one_run(step, spot, n)?
            {
                self.places[step.dst as usize] = Values::block(run, n);
                if index == program.costliest {
                    self.ahead.drain(..).for_each(|stream| stream.fetch(0, 1));
                }
                continue;
            }
            if index == program.costliest && !self.ahead.is_empty() {
                let parts = n.div_ceil(PREFETCH_STEP_ELEMENTS);
                for part in 0..parts {
                    self.run(
                        step,
                        out,
                        pos,
                        part * PREFETCH_STEP_ELEMENTS..n.min((part + 1) * PREFETCH_STEP_ELEMENTS),
                    )?;
                    self.ahead.iter().for_each(|stream| stream.fetch(part, parts));
                }
                self.ahead.clear();
            } else {
                self.run(step, out, pos, 0..n)?;
            }
            self.places[step.dst as usize] = Values::block(out, n);
        }
        for (&(src, dtype), target) in program.outputs.iter().zip(targets) {
            let from = self.values(src).first(n)?;
            let to = target.at::<u8>(0).wrapping_add(at * dtype.size());
            if !std::ptr::eq(to, from) {
                // SAFETY: `first` checked `from` for n elements, and `to` has room for n. They are one
                // address or apart, because a launch overwrites only inputs that it reads in order.
                unsafe { store(self.isa, dtype, from, to, n) };
            }
        }
        Ok(())
    }

    /// The address of the elements of output `o` of the last block, in its compute dtype.
    pub(crate) fn result(&self, o: usize) -> Result<*const u8> {
        self.values(self.program.outputs[o].0).first(self.count)
    }

    /// Fills the registers of scalars and of one-element inputs, which are the same for every block.
    fn fill_constants(&self) {
        let n = self.block;
        for (slot, (&dtype, value)) in self.program.scalars.iter().zip(self.launch.scalars).enumerate() {
            let out = self.register(slot as u16);
            macro_rules! fill {
                ($t:ty, $v:expr) => {{
                    let v: $t = $v;
                    // SAFETY: a register has room for BLOCK_POSITIONS elements of any dtype, at least n.
                    (0..n).for_each(|i| unsafe { out.cast::<$t>().add(i).write(v) });
                }};
            }
            match dtype.arithmetic() {
                Arithmetic::F64 => fill!(f64, value.as_f64()),
                Arithmetic::F32 => fill!(f32, value.as_f64() as f32),
                Arithmetic::I64 => fill!(i64, value.as_i64()),
                Arithmetic::U64 => fill!(u64, value.as_i64() as u64),
                Arithmetic::I32 => fill!(i32, value.as_i64() as i32),
                Arithmetic::U32 => fill!(u32, value.as_i64() as u32),
                Arithmetic::Bool => fill!(bool, value.as_bool()),
            }
        }
        for (k, access) in self.program.inputs.iter().enumerate() {
            if access.single {
                let strides: SmallVec<[isize; 5]> = SmallVec::from_slice(&[0]);
                let register = self.register(self.program.input_register(k as u16));
                // SAFETY: the one element is in the input, by `new`'s condition; a register has room for
                // n ≤ BLOCK_POSITIONS elements of any dtype.
                unsafe { gather(self.isa, access, &strides, &[n.max(1)], self.inputs[k], 0, n, register) };
            }
        }
    }

    /// Input `k`'s elements of this block; gathers them into the register if necessary. The block begins at
    /// position `pos`, which is column `column` of row `row` along the innermost axis.
    fn load(
        &self,
        k: u16,
        access: &Access,
        pos: usize,
        (row, column): (usize, usize),
        n: usize,
    ) -> Result<Values> {
        let memory = self.inputs[k as usize];
        let register = self.register(self.program.input_register(k));
        if access.single {
            return Ok(Values::filled(register, self.block));
        }
        let plain = !access.dtype.is_narrow();
        if access.contiguous && plain {
            return Ok(Values::of(memory, access.offset + pos));
        }
        let dims = &self.program.dims;
        if plain && column + n <= self.program.inner() {
            let first = || offset_of(access, dims, row, column);
            match access.strides.last() {
                Some(1) => return Ok(Values::of(memory, first())),
                Some(0) if access.number => return Ok(Values::number(memory, first())),
                _ => {}
            }
        }
        if access.contiguous {
            let from = Values::of(memory, access.offset + pos).first(n)?;
            // SAFETY: `first` checked that the input has n elements here; the register has room for n, and is
            // not part of the input.
            unsafe { widen(self.isa, access.dtype, from, register, n) };
        } else {
            // SAFETY: the positions' elements are in the input, by `new`'s condition; a register has room for
            // n ≤ BLOCK_POSITIONS elements of any dtype.
            unsafe { gather(self.isa, access, &access.strides, dims, memory, pos, n, register) };
        }
        Ok(Values::block(register, n))
    }

    /// Runs a step on the part `part` of the block that begins at position `pos`.
    fn run(&self, step: &Step, out: *mut u8, pos: usize, part: Range<usize>) -> Result<()> {
        let isa = self.isa;
        let (pos, n) = (pos + part.start, part.len());
        let out = out.wrapping_add(part.start * step.to.register().size());
        let values_as = |src: Src, dtype: DType| self.values(src).from(part.start, dtype.register().size());
        let values = |src: Src| values_as(src, step.from);
        let find = |src: Src| values(src).first(n);
        // SAFETY: `first` returns the addresses of n elements, and `out` shares memory with no operand unless
        // `direct_outputs` allowed it.
        unsafe {
            match step.code {
                Code::Unary(op, a) => table::unary(isa, op, step.from, find(a)?, out, n)?,
                Code::Powi(p, a) => table::powi(isa, p, step.from, find(a)?, out, n)?,
                Code::Binary(op, a, b) => {
                    table::binary(isa, op, step.from, [values(a), values(b)], out, n)?;
                }
                Code::Compare(op, a, b) => compare::compare(isa, op, step.from, find(a)?, find(b)?, out, n),
                Code::Select(c, a, b) => {
                    let condition = values_as(c, DType::Bool).first(n)?;
                    compare::select(isa, step.to, condition, find(a)?, find(b)?, out, n);
                }
                Code::Choose(op, [x, y, a, b]) => {
                    compare::choose(isa, op, [find(x)?, find(y)?, find(a)?, find(b)?], out, n);
                }
                Code::Cast(a) => table::cast(isa, step.from, step.to, find(a)?, out, n),
                Code::LoadAt(load) => {
                    if let Some(indexed) = self.indexed(load, step.from, values(load.index), n)? {
                        indexed.load(pos, n, out).map_err(|index| self.bad_index(load, index))?;
                    }
                }
                Code::Arange { start, step: by } => self.arange(step.to, start, by, out, pos, n)?,
                Code::Random { kind, seed, offset } => {
                    self.random(kind, step.to, seed, offset, out, pos, n)?
                }
            }
        }
        Ok(())
    }

    /// An input that a step reads at `n` indices.
    fn indexed(
        &self,
        load: LoadAt,
        index_dtype: DType,
        indices: Values,
        n: usize,
    ) -> Result<Option<Indexed<'_>>> {
        let access = &self.program.inputs[load.input as usize];
        let Some(axis) = access.indexed else { return Ok(None) };
        let (dims, numel) = (&self.program.dims[..], self.program.numel);
        let memory = self.inputs[load.input as usize];
        let runs = match load.index {
            Src::Input(k) if self.program.inputs[k as usize].names_runs => {
                Some((&self.program.inputs[k as usize], self.inputs[k as usize]))
            }
            Src::Input(_) | Src::Reg(_) => None,
        };
        // The indices of runs are not loaded into the block.
        let index = if runs.is_some() { std::ptr::null() } else { indices.first(n)? };
        Ok(Some(Indexed { access, axis, dims, numel, memory, index, index_dtype, by_run: load.by_run, runs }))
    }

    /// The error for an index that is out of range for an input.
    fn bad_index(&self, load: LoadAt, index: i64) -> Error {
        self.launch.index_error(self.program.inputs[load.input as usize].operand, index)
    }

    /// The address of the `n` elements from column `column` of row `row` on, if a step reads them at one
    /// index and later steps can use them in place.
    fn one_run(&self, step: &Step, (row, column): (usize, usize), n: usize) -> Result<Option<*const u8>> {
        let Code::LoadAt(load) = step.code else { return Ok(None) };
        let indexed = self.indexed(load, step.from, self.values(load.index), n)?;
        match indexed.filter(|indexed| column + n <= self.program.inner() && indexed.is_run()) {
            Some(indexed) => {
                let (mut indexed, inner) = (indexed, self.program.inner());
                if let Some((access, memory)) = indexed.runs {
                    let index = |row| index_of_row(access, memory, &self.program.dims, row);
                    indexed.index = index(row);
                    if (row + 1) * inner < self.program.numel {
                        // SAFETY: row + 1 is a row of the space, so it has an index, and the input holds what
                        // its access reads.
                        unsafe { indexed.look_ahead(index(row + 1), row + 1, 0, inner) };
                    }
                }
                // SAFETY: `indexed` checked that the block has an index, or `index` is that of the row; the
                // input holds what its access reads.
                let run = unsafe { indexed.run(row, column) };
                run.map(Some).map_err(|index| self.bad_index(load, index))
            }
            None => Ok(None),
        }
    }

    /// # Safety
    /// `out` is aligned and valid for writes of `n` elements of the dtype's compute dtype.
    unsafe fn arange(
        &self,
        dtype: DType,
        start: u16,
        by: u16,
        out: *mut u8,
        pos: usize,
        n: usize,
    ) -> Result<()> {
        let (start, by) = (self.launch.scalars[start as usize], self.launch.scalars[by as usize]);
        macro_rules! float {
            ($t:ty) => {{
                let (start, by) = (start.as_f64() as $t, by.as_f64() as $t);
                // SAFETY: `out` has room for `n` elements of `$t`, the compute dtype, by `# Safety`.
                (0..n).for_each(|i| unsafe { out.cast::<$t>().add(i).write(start + by * (pos + i) as $t) });
            }};
        }
        macro_rules! int {
            ($t:ty) => {{
                let (start, by) = (start.as_i64(), by.as_i64());
                let at = |i: usize| start.wrapping_add(by.wrapping_mul((pos + i) as i64)) as $t;
                // SAFETY: `out` has room for `n` elements of `$t`, the compute dtype, by `# Safety`.
                (0..n).for_each(|i| unsafe { out.cast::<$t>().add(i).write(at(i)) });
            }};
        }
        match dtype.arithmetic() {
            Arithmetic::F64 => float!(f64),
            Arithmetic::F32 => float!(f32),
            Arithmetic::I64 => int!(i64),
            Arithmetic::U64 => int!(u64),
            Arithmetic::I32 => int!(i32),
            Arithmetic::U32 => int!(u32),
            Arithmetic::Bool => {
                return Err(Error::invalid("arange", format!("ranges of {dtype} are not supported")));
            }
        }
        Ok(())
    }

    /// # Safety
    /// `out` is aligned and valid for writes of `n` elements of the dtype.
    #[allow(clippy::too_many_arguments)]
    unsafe fn random(
        &self,
        kind: RandomKind,
        dtype: DType,
        seed: u16,
        offset: u16,
        out: *mut u8,
        pos: usize,
        n: usize,
    ) -> Result<()> {
        let seed = self.launch.scalars[seed as usize].as_i64() as u64;
        let first = (self.launch.scalars[offset as usize].as_i64() as u64).wrapping_add(pos as u64);
        let wide = |a: u32, b: u32| ((u64::from(a) << 32 | u64::from(b)) >> 11) as f64;
        let draw = Draw { seed, first, n };
        match (kind, dtype) {
            (RandomKind::Uniform, DType::F32) => {
                let uniform = |[w0, ..]: [u32; 2]| (w0 >> 8) as i32 as f32 * math::E24;
                self.isa.run(Words { draw, out: out.cast(), f: uniform });
                return Ok(());
            }
            (RandomKind::Normal, DType::F32) => {
                let out = out.cast();
                match self.isa.fused() {
                    Some(fused) => {
                        fused.run(Words { draw, out, f: |[a, b]: [u32; 2]| math::normal::<true>(a, b) })
                    }
                    None => Plain.run(Words { draw, out, f: |[a, b]: [u32; 2]| math::normal::<false>(a, b) }),
                }
                return Ok(());
            }
            (RandomKind::Bits, DType::U32) => {
                self.isa.run(Words { draw, out: out.cast(), f: |[w0, ..]: [u32; 2]| w0 });
                return Ok(());
            }
            _ => {}
        }
        const E53: f64 = 1.0 / 9_007_199_254_740_992.0;
        for i in 0..n {
            let w = philox(seed, first.wrapping_add(i as u64));
            // SAFETY: `out` has room for `n` elements of the dtype, by `# Safety`; i < n, and each arm writes
            // the dtype that it matches.
            unsafe {
                match (kind, dtype) {
                    (RandomKind::Uniform, DType::F64) => {
                        out.cast::<f64>().add(i).write(wide(w[0], w[1]) * E53)
                    }
                    (RandomKind::Normal, DType::F64) => {
                        let (u1, u2) = ((wide(w[0], w[1]) + 1.0) * E53, wide(w[2], w[3]) * E53);
                        let z = (-2.0 * u1.ln()).sqrt() * (std::f64::consts::TAU * u2).cos();
                        out.cast::<f64>().add(i).write(z);
                    }
                    _ => {
                        return Err(Error::new(ErrorKind::Unsupported {
                            op: kind.name(),
                            device: "cpu".into(),
                            dtype,
                            hint: "draw in F32 or F64 and cast".into(),
                        }));
                    }
                }
            }
        }
        Ok(())
    }
}

/// A slice of the stream `seed`: `n` blocks from `first` on.
#[derive(Clone, Copy)]
struct Draw {
    seed: u64,
    first: u64,
    n: usize,
}

/// `out[i] = f(the first two words of block i)`, vectorised: first the words of many blocks, then their
/// numbers.
struct Words<O, F> {
    draw: Draw,
    out: *mut O,
    f: F,
}

impl<O: Copy + Default, F: Fn([u32; 2]) -> O> Job for Words<O, F> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        const AT_ONCE: usize = 64;
        let Draw { seed, first, n } = self.draw;
        for start in (0..n).step_by(AT_ONCE) {
            let [w0, w1] = philox_words::<AT_ONCE>(seed, first.wrapping_add(start as u64));
            let mut numbers = [O::default(); AT_ONCE];
            for (number, (&w0, &w1)) in numbers.iter_mut().zip(w0.iter().zip(&w1)) {
                *number = (self.f)([w0, w1]);
            }
            // SAFETY: `random`'s `# Safety` gives room for `n` elements behind `out`, and at most n − start
            // are written from `start` on.
            unsafe {
                std::ptr::copy_nonoverlapping(numbers.as_ptr(), self.out.add(start), AT_ONCE.min(n - start))
            };
        }
    }
}

/// The offset in the buffer of column `column` of row `row`, where rows run along the innermost axis of the
/// space.
pub(crate) fn offset_of(access: &Access, dims: &[usize], mut row: usize, column: usize) -> usize {
    let Some((&inner, outer)) = access.strides.split_last() else { return access.offset };
    let mut at = access.offset as isize + column as isize * inner;
    // The outermost axis needs no remainder.
    for (axis, &stride) in outer.iter().enumerate().skip(1).rev() {
        at += (row % dims[axis]) as isize * stride;
        row /= dims[axis];
    }
    if let Some(&stride) = outer.first() {
        at += row as isize * stride;
    }
    at as usize
}

/// Copies the elements of positions `pos..pos + n` to contiguous memory, in their compute dtype.
///
/// # Safety
/// Positions `pos..pos + n` are in the space of `dims`, and their elements in `memory`. `out` is aligned,
/// valid for writes of `n` elements of the compute dtype, and apart from `memory`.
#[allow(clippy::too_many_arguments)]
unsafe fn gather(
    isa: Isa,
    access: &Access,
    strides: &[isize],
    dims: &[usize],
    memory: Memory,
    pos: usize,
    n: usize,
    out: *mut u8,
) {
    macro_rules! go {
        ($sets:expr, $t:ty, $o:ty, $f:expr) => {{
            let from = memory.at::<$t>(0).cast_const();
            $sets.run(Gather {
                offset: access.offset,
                strides,
                dims,
                pos,
                n,
                from,
                out: out.cast::<$o>(),
                f: $f,
            })
        }};
    }
    let few = isa.narrow();
    macro_rules! widened {
        ($t:ty) => {
            match <$t>::VECTORISES {
                true => go!(isa, $t, <$t as Narrow>::Wide, |v: $t| v.widen()),
                false => go!(few, $t, <$t as Narrow>::Wide, |v: $t| v.widen()),
            }
        };
    }
    let dtype = access.dtype;
    by_narrow!(
        dtype,
        widened,
        match dtype.arithmetic() {
            Arithmetic::Bool => go!(few, u8, u8, |v| v),
            Arithmetic::I32 | Arithmetic::U32 | Arithmetic::F32 => go!(isa, u32, u32, |v| v),
            Arithmetic::I64 | Arithmetic::U64 | Arithmetic::F64 => go!(few, u64, u64, |v| v),
        }
    )
}

/// The job of [`gather`]. Every position's element is in the memory at `from`, and `out` has room for all
/// of them.
struct Gather<'a, T, O, F> {
    offset: usize,
    strides: &'a [isize],
    dims: &'a [usize],
    pos: usize,
    n: usize,
    from: *const T,
    out: *mut O,
    f: F,
}

impl<T: Copy, O: Copy, F: Fn(T) -> O + Copy> Job for Gather<'_, T, O, F> {
    type Output = ();
    #[inline(always)]
    fn run(self) {
        let Gather { offset, strides, dims, pos, n, .. } = self;
        let inner = dims.last().copied().unwrap_or(1);
        let pairs = dims.len() > 1 && pos.is_multiple_of(inner.max(1)) && n.is_multiple_of(inner.max(1));
        // SAFETY: `gather`'s `# Safety` puts the positions into the space, so each run is as `line` asks;
        // `pairs` holds only for whole rows, as `interleaved` asks.
        unsafe {
            match inner {
                2 if pairs => self.interleaved::<2>(),
                4 if pairs => self.interleaved::<4>(),
                _ => runs(offset, strides, dims, pos, n, |done, at, stride, len| match stride {
                    0 => self.line::<0>(done, at, 0, len),
                    1 => self.line::<1>(done, at, 1, len),
                    2 => self.line::<2>(done, at, 2, len),
                    _ => self.line::<{ isize::MAX }>(done, at, stride, len),
                }),
            }
        }
    }
}

impl<T: Copy, O: Copy, F: Fn(T) -> O + Copy> Gather<'_, T, O, F> {
    /// Copies a run along the innermost axis. `S` is its stride if known at compile time, else
    /// `isize::MAX`.
    ///
    /// # Safety
    /// The run's `len` elements, `stride` apart from offset `at` on, are in the memory at `from`, and `out`
    /// has room for `done + len` elements.
    #[inline(always)]
    unsafe fn line<const S: isize>(&self, done: usize, at: isize, stride: isize, len: usize) {
        let stride = if S == isize::MAX { stride } else { S };
        let from = self.from.wrapping_offset(at);
        let to = self.out.wrapping_add(done);
        for i in 0..len {
            // SAFETY: i < len: an element of the run, and a place that `out` has room for, by `# Safety`.
            unsafe { to.add(i).write((self.f)(from.offset(i as isize * stride).read())) };
        }
    }

    /// Copies rows of `C` elements whose starts form a run along the next axis.
    ///
    /// # Safety
    /// As [`gather`]; the positions begin and end at row boundaries.
    #[inline(always)]
    unsafe fn interleaved<const C: usize>(&self) {
        let last = self.dims.len() - 1;
        let apart = self.strides[last];
        // SAFETY: whole rows are given, which `# Safety` puts into the space. Every column of a run's rows is
        // in the memory at `from`, and `out` has room for `C` elements of each row.
        unsafe {
            runs(
                self.offset,
                &self.strides[..last],
                &self.dims[..last],
                self.pos / C,
                self.n / C,
                |done, at, stride, len| {
                    let from = self.from.wrapping_offset(at);
                    let to = self.out.wrapping_add(done * C);
                    let columns: [*const T; C] =
                        std::array::from_fn(|c| from.wrapping_offset(c as isize * apart));
                    if stride == 1 {
                        for i in 0..len {
                            for (c, column) in columns.iter().enumerate() {
                                to.add(i * C + c).write((self.f)(column.add(i).read()));
                            }
                        }
                    } else {
                        for i in 0..len {
                            for (c, column) in columns.iter().enumerate() {
                                let element = column.offset(i as isize * stride).read();
                                to.add(i * C + c).write((self.f)(element));
                            }
                        }
                    }
                },
            );
        }
    }
}

/// Calls `f(done, at, stride, len)` for each run along the innermost axis within positions `pos..pos + n`.
///
/// # Safety
/// The positions are in the space of `dims`: `f` accesses the elements that it is given.
#[inline(always)]
pub(crate) unsafe fn runs(
    offset: usize,
    strides: &[isize],
    dims: &[usize],
    pos: usize,
    n: usize,
    mut f: impl FnMut(usize, isize, isize, usize),
) {
    let rank = dims.len();
    if rank == 0 {
        return f(0, offset as isize, 0, n);
    }
    let mut index: SmallVec<[usize; 5]> = SmallVec::from_elem(0, rank);
    let mut rest = pos;
    let mut row = offset as isize;
    for axis in (0..rank).rev() {
        index[axis] = rest % dims[axis];
        rest /= dims[axis];
        row += index[axis] as isize * strides[axis];
    }
    let (inner, stride) = (dims[rank - 1], strides[rank - 1]);
    let mut done = 0;
    while done < n {
        let len = (inner - index[rank - 1]).min(n - done);
        f(done, row, stride, len);
        done += len;
        if done == n {
            break;
        }
        // Moves to the start of the next row.
        row -= index[rank - 1] as isize * stride;
        index[rank - 1] = 0;
        for axis in (0..rank - 1).rev() {
            index[axis] += 1;
            row += strides[axis];
            if index[axis] < dims[axis] {
                break;
            }
            row -= strides[axis] * dims[axis] as isize;
            index[axis] = 0;
        }
    }
}

/// Writes a block of the compute dtype as elements of `dtype`.
///
/// # Safety
/// `from` is aligned and valid for reads of `n` elements of the compute dtype, `to` for writes of `n` of
/// `dtype`; they do not overlap.
pub(crate) unsafe fn store(isa: Isa, dtype: DType, from: *const u8, to: *mut u8, n: usize) {
    // SAFETY: `from` holds `n` elements of the compute dtype, and `to` has room for `n` of `dtype`, apart, by
    // `# Safety`. A dtype that is not narrow is its own compute dtype.
    unsafe {
        match dtype.is_narrow() {
            true => narrow(isa, dtype, from, to, n),
            false => std::ptr::copy_nonoverlapping(from, to, n * dtype.size()),
        }
    }
}
