//! A recurrent layer over a whole sequence. Its weight is packed once and read from the second-level cache
//! at every step.
//!
//! Sequences are independent of each other. With enough sequences and a small weight, a task takes a few
//! sequences through all steps without synchronisation. Otherwise a task has a part of the state's
//! elements, for all sequences, and threads synchronise at every step. [`cell`] has the operations between
//! the products. An element's bits do not depend on how the work is shared.
#![allow(unsafe_code)]

mod cell;

use std::ops::Range;

use tensor_core::{Launch, Recurrence, RecurrencePass, RecurrentCell, Result};

use self::cell::{Activation, Gradient, Next};
use super::custom::{Native, for_float};
use crate::{
    CpuBackend,
    kernels::product::{
        gemm::{kc_block, kc_blocks},
        kernel_table::MicroKernels,
        micro_kernel::MicroTile,
        operands::{Panels, Update},
    },
    memory::{
        buffer::{Bound, CpuBuffer, Memory},
        strided,
    },
    simd::isa::Isa,
    threads,
    tuning::{RECURRENCE_GRAIN, RECURRENCE_TILES, recurrence_weight_bytes},
};

impl Native for Recurrence {
    fn run(&self, backend: &CpuBackend, launch: &Launch<'_>) -> Result<()> {
        for_float!(self, launch, typed(backend, *self, launch))
    }
}

fn typed<T: Activation>(backend: &CpuBackend, of: Recurrence, launch: &Launch<'_>) -> Result<()> {
    let (isa, pool) = (backend.isa, &backend.pool);
    let shape = |k: usize| launch.kernel.operands[k].layout.shape();
    let bound = Bound::of_launch(pool, launch)?;
    let (weight, sequence) = match of.pass {
        RecurrencePass::Forward | RecurrencePass::Kept => (1, 0),
        RecurrencePass::Backward => (0, 2),
    };
    let (steps, batch) = (shape(sequence)[0], shape(sequence)[1]);
    let size = shape(weight)[1];
    if batch == 0 {
        return Ok(());
    }
    let kernels = T::micro_kernels(isa);
    let panels = Panels::of(size, kernels.width, kernels.registers());
    let is_backward = of.pass == RecurrencePass::Backward;
    // In a forward pass each part of the gates has its own matrix, transposed.
    let (matrices, terms) = if is_backward { (1, of.cell.gates() * size) } else { (of.cell.gates(), size) };
    let padded = size.next_multiple_of(kernels.width);
    let packed = CpuBuffer::new(pool, launch.kernel.operands[0].dtype, matrices * padded * terms)?;
    let layer = Layer::<T> {
        isa,
        kernels,
        panels,
        of,
        steps,
        batch,
        size,
        terms,
        matrix: padded * terms,
        packed: packed.memory(),
        _number: std::marker::PhantomData,
    };
    let strides = if is_backward { [size as isize, 1] } else { [1, size as isize] };
    layer.pack(bound.inputs[weight], matrices, strides);
    let (inputs, outputs) = (&bound.inputs, &bound.outputs);
    match of.pass {
        RecurrencePass::Forward | RecurrencePass::Kept => {
            let keeps = of.pass == RecurrencePass::Kept;
            let is_lstm = of.cell == RecurrentCell::Lstm;
            let apart;
            // The sums go to the kept activations, or to a buffer for one step.
            let work = match (of.cell.kept(), keeps) {
                (0, _) => outputs[0],
                (_, true) => outputs[outputs.len() - 1],
                (kept, false) => {
                    apart = CpuBuffer::new(pool, outputs[0].dtype, batch * kept * size)?;
                    apart.memory()
                }
            };
            let extra = inputs.get(3).copied().unwrap_or(inputs[2]);
            let cells = if is_lstm { outputs[1] } else { outputs[0] };
            let pass = Forwards {
                layer: &layer,
                keeps,
                gates: inputs[0],
                first: inputs[2],
                extra,
                hidden: outputs[0],
                cells,
                work,
            };
            layer.each(steps, |step, rows, panels| {
                // SAFETY: `check_custom` and `of_launch` checked the sizes of all inputs and outputs, and
                // `each` runs the steps in order. Tasks have different sequences or different panels.
                unsafe { pass.step(step, rows, panels) }
            });
        }
        RecurrencePass::Backward => {
            let has_kept = usize::from(of.cell.kept() > 0);
            let is_lstm = of.cell == RecurrentCell::Lstm;
            let next = 3 + has_kept + if is_lstm { 2 } else { 0 };
            let or_any = |there: bool, k: usize| if there { inputs[k] } else { inputs[0] };
            let pass = Backwards {
                layer: &layer,
                first: inputs[1],
                hidden: inputs[2],
                kept: or_any(has_kept == 1, 3),
                first_cell: or_any(is_lstm, 4),
                cells: or_any(is_lstm, 5),
                of_outputs: inputs[next],
                of_last: inputs[next + 1],
                of_last_cell: or_any(is_lstm, next + 2),
                of_gates: outputs[0],
                of_hidden: outputs[1],
                of_cell: if is_lstm { outputs[2] } else { outputs[1] },
                of_state: if of.cell == RecurrentCell::Gru { outputs[2] } else { outputs[0] },
            };
            layer.each(steps + 1, |round, rows, panels| {
                // SAFETY: `check_custom` and `of_launch` checked the sizes of all inputs and outputs, and
                // `each` runs the rounds in order. Tasks have different sequences or different panels.
                unsafe { pass.round(round, rows, panels) }
            });
        }
    }
    Ok(())
}

/// The sizes of a layer, and its packed weight.
struct Layer<T: 'static> {
    isa: Isa,
    kernels: MicroKernels<T>,
    /// The panels of the state's elements.
    panels: Panels,
    of: Recurrence,
    steps: usize,
    batch: usize,
    size: usize,
    /// The terms of a sum, and the size of a packed matrix.
    terms: usize,
    matrix: usize,
    packed: Memory,
    _number: std::marker::PhantomData<T>,
}

impl<T: Activation> Layer<T> {
    /// Packs consecutive matrices; `strides` are the stride between terms and the stride between columns.
    fn pack(&self, weight: Memory, matrices: usize, strides: [isize; 2]) {
        let count = self.panels.count();
        let pack = |i: usize| {
            let (matrix, panel) = (i / count, i % count);
            let (first, width, columns) = self.place(panel);
            let from = weight.at::<T>(matrix * self.size * self.terms).cast_const();
            let to = self.packed.at::<T>(matrix * self.matrix + first * self.terms);
            // SAFETY: `place` keeps the panel within its matrix, whose size `check_custom` checked, and
            // within `packed`, which `typed` made for all panels. One task packs each panel.
            unsafe {
                if columns < width {
                    to.write_bytes(0, width * self.terms);
                }
                let from = from.wrapping_offset(first as isize * strides[1]);
                strided::block(self.isa, [self.terms, columns], from, strides, to, [width as isize, 1]);
            }
        };
        match matrices * self.matrix >= RECURRENCE_GRAIN {
            true => threads::share(matrices * count, pack),
            false => (0..matrices * count).for_each(pack),
        }
    }

    /// A panel's first element, the columns of its registers, and the number of its columns.
    fn place(&self, panel: usize) -> (usize, usize, usize) {
        let (first, registers) = self.panels.place(panel);
        let width = registers * self.kernels.width;
        (first, width, width.min(self.size - first))
    }

    /// The position of a step in memory.
    fn at(&self, step: usize) -> usize {
        if self.of.reverse { self.steps - 1 - step } else { step }
    }

    /// The elements of some panels.
    fn columns(&self, panels: &Range<usize>) -> Range<usize> {
        let (last, _, columns) = self.place(panels.end - 1);
        self.place(panels.start).0..last + columns
    }

    /// Calls `f` for each of `rounds` rounds in order, with the sequences and panels to process together. A
    /// round starts only after earlier rounds have finished for these sequences.
    fn each(&self, rounds: usize, f: impl Fn(usize, Range<usize>, Range<usize>) + Sync) {
        let batch = self.batch;
        let all = 0..self.panels.count();
        let threads = threads::available();
        let multiplications = batch * self.of.cell.gates() * self.size * self.size;
        let tiles = batch.div_ceil(self.kernels.rows(self.panels.most()));
        let groups = tiles.div_ceil(RECURRENCE_TILES).next_multiple_of(threads).min(tiles);
        let is_small =
            self.of.cell.gates() * self.size * self.size * size_of::<T>() <= recurrence_weight_bytes();
        if is_small && groups >= threads {
            let group = |i: usize| {
                let rows = threads::part(batch, 1, groups, i);
                (0..rounds).for_each(|round| f(round, rows.clone(), all.clone()));
            };
            match multiplications * rounds >= 2 * RECURRENCE_GRAIN {
                true => threads::share(groups, group),
                false => (0..groups).for_each(group),
            }
            return;
        }
        let parts = threads.min(all.len()).min(multiplications / RECURRENCE_GRAIN).max(1);
        for round in 0..rounds {
            let one = |part: usize| f(round, 0..batch, threads::part(all.len(), 1, parts, part));
            match parts {
                1 => one(0),
                _ => threads::share(parts, one),
            }
        }
    }

    /// Computes the product of some rows with a panel of a packed matrix. The first row is at `a`, with
    /// contiguous terms. The result goes to `to`, with rows `to_row` apart, or is added to it.
    ///
    /// # Safety
    /// `a` has `rows` rows of initialised terms, and `to`, apart from it, as many rows of the state's size.
    /// Nothing else accesses the panel's columns of the result, which are initialised if they are added to.
    #[allow(clippy::too_many_arguments)]
    unsafe fn product(
        &self,
        matrix: usize,
        panel: usize,
        rows: usize,
        a: *const T,
        to: *mut T,
        to_row: usize,
        adds: bool,
    ) {
        let (first, width, columns) = self.place(panel);
        let registers = width / self.kernels.width;
        let b = self.packed.at::<T>(matrix * self.matrix + first * self.terms).cast_const();
        let parts = rows.div_ceil(self.kernels.rows(registers));
        for part in 0..parts {
            let rows = threads::part(rows, 1, parts, part);
            for block in 0..kc_blocks::<T>(self.terms) {
                let terms = kc_block::<T>(self.terms, block);
                let tile = MicroTile {
                    terms: terms.len(),
                    a: a.wrapping_add(rows.start * self.terms + terms.start),
                    a_row: self.terms as isize,
                    a_term: 1,
                    b: b.wrapping_add(terms.start * width),
                    b_term: width as isize,
                    to: to.wrapping_add(rows.start * to_row + first),
                    to_row,
                    last: columns + self.kernels.width - width,
                    update: Update::adds(adds || block > 0),
                };
                // SAFETY: these rows of `a` and of the result are in memory by `# Safety`; `pack` filled
                // whole registers of the panel, and `last` keeps writes within the state's size.
                unsafe { self.kernels.run(rows.len(), registers, &tile) };
            }
        }
    }
}

/// A forward pass.
struct Forwards<'a, T: 'static> {
    layer: &'a Layer<T>,
    keeps: bool,
    gates: Memory,
    first: Memory,
    /// The initial cell state, or the bias of the state's contribution.
    extra: Memory,
    hidden: Memory,
    /// The cell states after each step, or only after the last one.
    cells: Memory,
    work: Memory,
}

impl<T: Activation> Forwards<'_, T> {
    /// Computes a step of some sequences and panels.
    ///
    /// # Safety
    /// The memories have the sizes of the layer, `rows` and `panels` are within them, the steps before are
    /// done, and nothing else accesses the elements that these rows and panels write.
    unsafe fn step(&self, step: usize, rows: Range<usize>, panels: Range<usize>) {
        let Layer { isa, of, batch, size, .. } = *self.layer;
        let (cell, at) = (of.cell, self.layer.at(step));
        let columns = self.layer.columns(&panels);
        let n = columns.len();
        let parts = cell.kept().max(1);
        let own = |row: usize| row * size + columns.start;
        let before = match step {
            0 => self.first.at::<T>(0),
            _ => self.hidden.at::<T>(self.layer.at(step - 1) * batch * size),
        };
        let hidden = self.hidden.at::<T>(at * batch * size);
        let gates = self.gates.at::<T>(at * batch * cell.gates() * size);
        let kept = if self.keeps || cell.kept() == 0 { at } else { 0 };
        let work = self.work.at::<T>(kept * batch * parts * size);
        // The part of `work` for the sum of a gate. The last sum of a GRU is stored separately, because it
        // is not added to the input's contribution.
        let part = |gate: usize| if cell == RecurrentCell::Gru && gate == 2 { 3 } else { gate };
        // SAFETY: by `# Safety` the memories have the layer's sizes; every offset below is of one of these
        // rows or of the bias, and this call alone writes the panels' columns of these rows.
        unsafe {
            let is_gru = cell == RecurrentCell::Gru;
            for row in rows.clone().filter(|_| is_gru) {
                for gate in 0..cell.gates() {
                    let bias = self.extra.at::<T>(gate * size + columns.start).cast_const();
                    let to = work.add((row * parts + part(gate)) * size + columns.start);
                    std::ptr::copy_nonoverlapping(bias, to, n);
                }
            }
            let a = before.add(rows.start * size).cast_const();
            for panel in panels {
                for gate in 0..cell.gates() {
                    let to = work.add((rows.start * parts + part(gate)) * size);
                    self.layer.product(gate, panel, rows.len(), a, to, parts * size, is_gru);
                }
            }
            for row in rows {
                let mut of_cell = self.cells.at::<T>(0).add(own(row));
                if cell == RecurrentCell::Lstm {
                    let all = |step: usize| self.layer.at(step) * batch * size;
                    let from = match step {
                        0 => Some(self.extra.at::<T>(own(row))),
                        _ => self.keeps.then(|| self.cells.at::<T>(all(step - 1) + own(row))),
                    };
                    if self.keeps {
                        of_cell = self.cells.at::<T>(all(step) + own(row));
                    }
                    if let Some(from) = from {
                        std::ptr::copy_nonoverlapping(from.cast_const(), of_cell, n);
                    }
                }
                let next = Next {
                    count: n,
                    size,
                    gates: gates.add(row * cell.gates() * size + columns.start).cast_const(),
                    work: work.add(row * parts * size + columns.start),
                    before: before.add(own(row)).cast_const(),
                    hidden: hidden.add(own(row)),
                    cell: of_cell,
                };
                cell::forward(isa, cell, next);
            }
        }
    }
}

/// A backward pass.
struct Backwards<'a, T: 'static> {
    layer: &'a Layer<T>,
    first: Memory,
    hidden: Memory,
    kept: Memory,
    first_cell: Memory,
    cells: Memory,
    of_outputs: Memory,
    of_last: Memory,
    of_last_cell: Memory,
    of_gates: Memory,
    /// Gradients with respect to the state before the last computed step (at first, to the final state),
    /// and likewise for the cell state.
    of_hidden: Memory,
    of_cell: Memory,
    /// The gradient with respect to the state's contribution to the gates; the same memory as `of_gates` if
    /// they are equal.
    of_state: Memory,
}

impl<T: Activation> Backwards<'_, T> {
    /// Adds the contribution of the previous round's step through the weight (if there was a round), and
    /// then computes the next backward step (if there is one).
    ///
    /// # Safety
    /// As [`Forwards::step`].
    unsafe fn round(&self, round: usize, rows: Range<usize>, panels: Range<usize>) {
        let steps = self.layer.steps;
        // SAFETY: `begin`, `by_weight` and `step` have the conditions of `round`, and earlier rounds did
        // all later steps.
        unsafe {
            match round {
                0 => self.begin(&rows, &panels),
                _ => self.by_weight(steps - round, &rows, &panels),
            }
            if round < steps {
                self.step(steps - 1 - round, rows, panels);
            }
        }
    }

    /// Copies the gradients with respect to the last states.
    ///
    /// # Safety
    /// As [`Forwards::step`].
    unsafe fn begin(&self, rows: &Range<usize>, panels: &Range<usize>) {
        let columns = self.layer.columns(panels);
        let copy = |from: Memory, to: Memory, row: usize| {
            let at = row * self.layer.size + columns.start;
            // SAFETY: by `# Safety` both memories have a row of `size` for each sequence, with these
            // columns; an output is not an input.
            unsafe {
                std::ptr::copy_nonoverlapping(from.at::<T>(at).cast_const(), to.at::<T>(at), columns.len())
            };
        };
        for row in rows.clone() {
            copy(self.of_last, self.of_hidden, row);
            if self.layer.of.cell == RecurrentCell::Lstm {
                copy(self.of_last_cell, self.of_cell, row);
            }
        }
    }

    /// # Safety
    /// As [`Forwards::step`]; all later steps are done.
    unsafe fn step(&self, step: usize, rows: Range<usize>, panels: Range<usize>) {
        let Layer { isa, of, batch, size, .. } = *self.layer;
        let (cell, at) = (of.cell, self.layer.at(step));
        let columns = self.layer.columns(&panels);
        let own = |row: usize| row * size + columns.start;
        let gates = cell.gates() * size;
        let state = |of: &Memory, step: usize| of.at::<T>(self.layer.at(step) * batch * size);
        let (before, cell_before) = match step {
            0 => (self.first.at::<T>(0), self.first_cell.at::<T>(0)),
            _ => (state(&self.hidden, step - 1), self.cell_state(step - 1)),
        };
        // SAFETY: by `# Safety` the memories have the layer's sizes; every offset below is of one of these
        // rows, and this call alone writes the panels' columns of them.
        unsafe {
            for row in rows.clone() {
                let part = |of: Memory| of.at::<T>((at * batch + row) * gates + columns.start);
                let kept =
                    if cell.kept() > 0 { (at * batch + row) * cell.kept() * size + columns.start } else { 0 };
                let gradient = Gradient {
                    count: columns.len(),
                    size,
                    before: before.wrapping_add(own(row)).cast_const(),
                    hidden: state(&self.hidden, step).add(own(row)).cast_const(),
                    kept: self.kept.at::<T>(kept).cast_const(),
                    cell_before: cell_before.wrapping_add(own(row)).cast_const(),
                    cell: self.cell_state(step).wrapping_add(own(row)).cast_const(),
                    of_output: state(&self.of_outputs, step).add(own(row)).cast_const(),
                    of_hidden: self.of_hidden.at::<T>(own(row)),
                    of_cell: self.of_cell.at::<T>(own(row)),
                    of_gates: part(self.of_gates),
                    of_state: part(self.of_state),
                };
                cell::backward(isa, cell, gradient);
            }
        }
    }

    /// The cell state after a step, for a cell that has one.
    fn cell_state(&self, step: usize) -> *mut T {
        match self.layer.of.cell {
            RecurrentCell::Lstm => {
                self.cells.at::<T>(self.layer.at(step) * self.layer.batch * self.layer.size)
            }
            RecurrentCell::Tanh | RecurrentCell::Relu | RecurrentCell::Gru => self.cells.at::<T>(0),
        }
    }

    /// Adds the contribution of a finished step, through the weight, to the gradient of the state before
    /// it.
    ///
    /// # Safety
    /// As [`Forwards::step`]; `step` itself is done, for all panels.
    unsafe fn by_weight(&self, step: usize, rows: &Range<usize>, panels: &Range<usize>) {
        let Layer { of, batch, size, .. } = *self.layer;
        let gates = of.cell.gates() * size;
        let a = self.of_state.at::<T>((self.layer.at(step) * batch + rows.start) * gates).cast_const();
        let to = self.of_hidden.at::<T>(rows.start * size);
        for panel in panels.clone() {
            // SAFETY: by `# Safety` `of_state` has `gates` numbers for each of these rows, which `step`
            // wrote, and `of_hidden` has a row of `size` that holds the gradient so far.
            unsafe { self.layer.product(0, panel, rows.len(), a, to, size, true) };
        }
    }
}
