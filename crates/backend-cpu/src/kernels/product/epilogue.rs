//! The epilogue of a contraction: an elementwise program that the block engine runs over parts of the result
//! while they are in cache.
//!
//! The sums are formed in an output of their dtype, and replaced there as in a map that works in place; in
//! memory of their own where no output has it. Positions are flat ones of the output.

use std::ops::Range;

use smallvec::SmallVec;
use tensor_core::{
    Error, Kernel, Launch, Result,
    kernel::{Body, Instr},
};

use crate::{
    elementwise::{
        engine::{Evaluator, with_evaluator},
        lower::{Lowered, lower},
        map::check_inputs,
    },
    memory::buffer::{Bound, Memory},
    simd::isa::Isa,
    threads,
    tuning::{BLOCK_POSITIONS, SERIAL_STEPS},
};

/// The program, made once for each kernel.
#[derive(Debug)]
pub(super) struct LoweredEpilogue {
    program: Lowered,
    /// The output in which the sums are formed.
    pub(super) own: Option<usize>,
}

impl LoweredEpilogue {
    /// The epilogue of a kernel, if it has one.
    pub(super) fn of(kernel: &Kernel) -> Result<Option<LoweredEpilogue>> {
        let Some(map) = kernel.epilogue_map() else { return Ok(None) };
        let mut operands = map.operands;
        let Body::Map(mut program) = map.body else { return Ok(None) };
        // Sums of half types are f32.
        let sums = program.inputs[0].register();
        program.inputs[0] = sums;
        operands[0].dtype = sums;
        // Where the sums themselves are an output, they stay as they are; any other is written over them.
        let is_plain = |&o: &usize| program.instrs[program.outputs[o] as usize] == Instr::Load(0);
        let fits = |&o: &usize| program.output_dtype(o) == sums;
        let mut outputs = (0..program.outputs.len()).filter(fits);
        let own = outputs.clone().find(is_plain).or_else(|| outputs.next());
        Ok(Some(LoweredEpilogue { program: lower(&program, &map.space, &operands, |_| true)?, own }))
    }
}

/// An epilogue with its buffers.
pub(super) struct Epilogue<'a> {
    isa: Isa,
    program: &'a Lowered,
    inputs: SmallVec<[Memory; 4]>,
    outputs: &'a [Memory],
    launch: &'a Launch<'a>,
}

impl<'a> Epilogue<'a> {
    /// The epilogue of a launch whose sums are formed in `sums`.
    pub(super) fn new(
        isa: Isa,
        lowered: &'a LoweredEpilogue,
        launch: &'a Launch<'a>,
        bound: &'a Bound<'_>,
        sums: Memory,
    ) -> Result<Epilogue<'a>> {
        let inputs: SmallVec<[Memory; 4]> =
            std::iter::once(sums).chain(bound.inputs.iter().skip(2).copied()).collect();
        let program = &lowered.program;
        check_inputs("matmul", program, &inputs, launch.scalars.len())?;
        if bound.outputs.len() != program.outputs.len() {
            return Err(Error::invalid("matmul", "the launch has other outputs than the kernel's epilogue"));
        }
        Ok(Epilogue { isa, program, inputs, outputs: &bound.outputs, launch })
    }

    /// Runs `f` with an evaluator on this thread.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut Evaluator<'_>) -> Result<R>) -> Result<R> {
        with_evaluator(self.isa, self.program, &self.inputs, self.launch, self.outputs, f)
    }

    fn span(&self, evaluator: &mut Evaluator<'_>, range: Range<usize>) -> Result<()> {
        let mut pos = range.start;
        while pos < range.end {
            let n = evaluator.block_len(pos, range.end);
            evaluator.block(pos, n, self.outputs, pos)?;
            pos += n;
        }
        Ok(())
    }

    /// Finishes positions whose sums are formed; threads share them if they are many.
    pub(super) fn run(&self, range: Range<usize>) -> Result<()> {
        let one = |part: Range<usize>| self.with(|evaluator| self.span(evaluator, part));
        if range.len() * (self.program.steps.len() + 1) < SERIAL_STEPS || threads::available() == 1 {
            return one(range);
        }
        threads::try_share_ranges(range.len(), BLOCK_POSITIONS, |part| {
            one(range.start + part.start..range.start + part.end)
        })
    }
}

/// The epilogue of one product, which finishes its rectangles.
#[derive(Clone, Copy)]
pub(crate) struct Finish<'a> {
    pub(super) epilogue: &'a Epilogue<'a>,
    /// The position of the product's first element.
    pub(super) first: usize,
}

impl Finish<'_> {
    /// Finishes columns of some rows, of `n` columns in all.
    pub(super) fn rectangle(
        &self,
        evaluator: &mut Evaluator<'_>,
        n: usize,
        rows: Range<usize>,
        columns: &Range<usize>,
    ) -> Result<()> {
        let at = |row: usize, column: usize| self.first + row * n + column;
        if *columns == (0..n) {
            return self.epilogue.span(evaluator, at(rows.start, 0)..at(rows.end, 0));
        }
        rows.into_iter()
            .try_for_each(|row| self.epilogue.span(evaluator, at(row, columns.start)..at(row, columns.end)))
    }
}
