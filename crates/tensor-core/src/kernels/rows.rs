//! [`RowProgram`]: the program of a [`Body::Rows`], split at its folds into phases for backends to
//! compile.

use crate::kernels::{
    kernel::{Body, Instr, Kernel, Program, Reg},
    operators::ReduceOp,
};

/// A row kernel's program in phases: phase `p` has the values that depend on `p` successive folds. A
/// loop over a row computes one phase, including the values to fold for the next one.
#[derive(Clone, Debug)]
pub struct RowProgram<'a> {
    /// The kernel's program.
    pub program: &'a Program,
    /// For each register, whether it is uniform along a row.
    pub uniform: Vec<bool>,
    /// For each register, the number of successive folds that it depends on.
    pub phase: Vec<usize>,
    /// The last phase.
    pub last: usize,
    /// For each output, whether it holds one value per row.
    per_row: Vec<bool>,
}

impl<'a> RowProgram<'a> {
    /// The row program of a kernel, if its body is [`Body::Rows`].
    pub fn of(kernel: &'a Kernel) -> Option<RowProgram<'a>> {
        let Body::Rows { program, .. } = &kernel.body else { return None };
        let mut phase: Vec<usize> = Vec::with_capacity(program.instrs.len());
        for instr in &program.instrs {
            let deepest = instr.operands().iter().map(|&r| phase[r as usize]).max().unwrap_or(0);
            phase.push(deepest + usize::from(matches!(instr, Instr::Fold(..))));
        }
        Some(RowProgram {
            program,
            uniform: kernel.uniform(),
            last: phase.iter().copied().max().unwrap_or(0),
            phase,
            per_row: kernel.outputs.iter().map(|o| o.axes.len() < kernel.space.rank()).collect(),
        })
    }

    /// Whether output `o` holds one value per row.
    pub fn is_per_row(&self, o: usize) -> bool {
        self.per_row[o]
    }

    /// The folds whose results belong to a phase: register, reduction, and the register that is folded.
    pub fn folds(&self, phase: usize) -> impl Iterator<Item = (Reg, ReduceOp, Reg)> {
        self.program.instrs.iter().enumerate().filter_map(move |(r, instr)| {
            let Instr::Fold(op, a) = *instr else { return None };
            (self.phase[r] == phase).then_some((r as Reg, op, a))
        })
    }

    /// The outputs that can be stored in a phase, either those with one value per row or those over all
    /// positions, with their registers.
    pub fn due(&self, phase: usize, per_row: bool) -> impl Iterator<Item = (usize, Reg)> {
        self.program
            .outputs
            .iter()
            .copied()
            .enumerate()
            .filter(move |&(o, r)| self.phase[r as usize] == phase && self.per_row[o] == per_row)
    }

    /// For each register, whether a phase's loop over a row computes it, if earlier loops kept nothing:
    /// registers that vary along the row and lead to an output or a fold.
    pub fn computed(&self, phase: usize) -> Vec<bool> {
        let mut computed = vec![false; self.program.instrs.len()];
        let stored = self.due(phase, false).map(|(_, r)| r);
        stored.chain(self.folds(phase + 1).map(|(.., a)| a)).for_each(|r| computed[r as usize] = true);
        for r in (0..computed.len()).rev() {
            computed[r] &= !self.uniform[r];
            if computed[r] {
                self.program.instrs[r].operands().iter().for_each(|&a| computed[a as usize] = true);
            }
        }
        computed
    }
}
