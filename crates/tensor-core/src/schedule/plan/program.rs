//! Writes the program of one fused kernel, instruction by instruction, with common subexpressions shared.

use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;

use super::{
    analysis::Analysis,
    gather::{Gathered, Index},
    layouts::over_space,
    step::{Part, ScalarRef},
};
use crate::{
    base::shape::Shape,
    elements::dtype::DType,
    graph::op::{Expression, Op, OpClass, OtherOp, ViewOp},
    kernels::{
        formula::Emit,
        kernel::{IndexedAxis, Instr, Program, Reg},
        layout::Layout,
        operators::{BinaryOp, CompareOp},
    },
    schedule::collect::Item,
};

/// A finished program, with its inputs and scalars.
pub(super) struct Fused {
    pub(super) program: Program,
    /// The item whose buffer each input reads.
    pub(super) sources: SmallVec<[u32; 4]>,
    pub(super) layouts: SmallVec<[Layout; 4]>,
    /// For each input, the indexed axis if it is read at computed indices.
    pub(super) indexed: SmallVec<[Option<IndexedAxis>; 4]>,
    pub(super) scalars: SmallVec<[ScalarRef; 4]>,
    /// For each input that is read at computed indices, the gather that it implements.
    pub(super) gathers: SmallVec<[(u16, u32); 1]>,
}

/// A fused kernel under construction.
pub(super) struct Builder<'a> {
    analysis: &'a Analysis<'a>,
    /// The kernel's number, which distinguishes its own results from values that must be loaded.
    kernel: u32,
    shape: Shape,
    /// The number of axes that make a row in a row kernel; 0 in any other.
    row_axes: usize,
    /// The contraction whose epilogue this is: its sums are not rounded yet.
    pub(super) sums: Option<u32>,
    program: Program,
    /// The item whose buffer each input reads.
    pub(super) sources: SmallVec<[u32; 4]>,
    layouts: SmallVec<[Layout; 4]>,
    indexed: SmallVec<[Option<IndexedAxis>; 4]>,
    scalars: SmallVec<[ScalarRef; 4]>,
    gathers: SmallVec<[(u16, u32); 1]>,
    regs: FxHashMap<u32, Reg>,
    seen: FxHashMap<(Instr, DType), Reg>,
}

impl<'a> Builder<'a> {
    /// A program of about `size` instructions.
    pub(super) fn new(
        analysis: &'a Analysis<'a>,
        kernel: u32,
        shape: Shape,
        row_axes: usize,
        size: usize,
    ) -> Builder<'a> {
        let program = Program {
            instrs: Vec::with_capacity(size),
            dtypes: Vec::with_capacity(size),
            ..Program::default()
        };
        Builder {
            analysis,
            kernel,
            shape,
            row_axes,
            sums: None,
            program,
            sources: SmallVec::new(),
            layouts: SmallVec::new(),
            indexed: SmallVec::new(),
            scalars: SmallVec::new(),
            gathers: SmallVec::new(),
            regs: FxHashMap::with_capacity_and_hasher(size, FxBuildHasher),
            seen: FxHashMap::with_capacity_and_hasher(size, FxBuildHasher),
        }
    }

    pub(super) fn finish(mut self, outputs: Vec<Reg>) -> Fused {
        self.program.outputs = outputs;
        let Builder { program, sources, layouts, indexed, scalars, gathers, .. } = self;
        Fused { program, sources, layouts, indexed, scalars, gathers }
    }

    /// The register of an item's value at each position of this kernel, as a reader of shape `over` sees
    /// it.
    pub(super) fn value(&mut self, i: u32, over: &Shape) -> Reg {
        if let Some(&reg) = self.regs.get(&i) {
            return reg;
        }
        let analysis = self.analysis;
        let item: &Item = &analysis.items[i as usize];
        let reg = if let Some(constant) = analysis.constant[i as usize] {
            self.scalar(constant, Part::Value, item.node.dtype)
        } else if analysis.computed_in(i, self.kernel) {
            self.compute(i)
        } else if let Some(source) = analysis.viewed_in(i, self.kernel) {
            self.value(source, over)
        } else {
            // Not memoized: readers of other shapes see other elements.
            return self.load(i, over);
        };
        self.regs.insert(i, reg);
        reg
    }

    /// The register of an item that is this kernel's own result or is inlined in one.
    fn compute(&mut self, i: u32) -> Reg {
        let analysis = self.analysis;
        let item = &analysis.items[i as usize];
        let dtype = item.node.dtype;
        let input = |k: usize| item.inputs[k];
        let over = &item.node.shape;
        // Narrow types are computed in a wider type and cast back at once, so that storing a result does
        // not change later ones.
        let rounds = self.rounds(item);
        let wide = if rounds { dtype.register() } else { dtype };
        let expression = match item.node.op.class() {
            OpClass::Expression(expression) => expression,
            // A copy into row-major order.
            OpClass::View(ViewOp::Reshape | ViewOp::Contiguous) => {
                return self.load(input(0), analysis.shape(input(0)));
            }
            OpClass::Other(OtherOp::Reduce { op, .. }) => {
                let instr = Instr::Fold(op, self.operand(input(0), analysis.shape(input(0)), rounds));
                return self.rounded(instr, wide, dtype);
            }
            OpClass::Leaf | OpClass::View(_) | OpClass::Tuple(_) | OpClass::Other(_) => {
                return self.load(i, over);
            }
        };
        let instr = match expression {
            Expression::Arange(_) => {
                let start = self.slot(i, Part::Start, wide);
                let step = self.slot(i, Part::Step, wide);
                Instr::Arange { start, step }
            }
            Expression::Random(kind) => {
                let seed = self.slot(i, Part::Seed, DType::I64);
                let offset = self.slot(i, Part::Offset, DType::I64);
                Instr::Random { kind, seed, offset }
            }
            Expression::Unary(op) => Instr::Unary(op, self.operand(input(0), over, rounds)),
            Expression::Powi(n) => Instr::Powi(n, self.operand(input(0), over, rounds)),
            Expression::Formula(formula) => {
                let x = self.value(input(0), over);
                return formula.write(&mut FormulaOf { builder: self, item: i }, x, dtype);
            }
            Expression::Binary(op) => {
                let (lhs, rhs) = (self.operand(input(0), over, rounds), self.operand(input(1), over, rounds));
                Instr::Binary(op, lhs, rhs)
            }
            Expression::Compare(op) => {
                Instr::Compare(op, self.value(input(0), over), self.value(input(1), over))
            }
            Expression::Where if let Some(extreme) = self.extreme(item) => return self.value(extreme, over),
            Expression::Where => {
                let condition = self.value(input(0), over);
                Instr::Select(condition, self.value(input(1), over), self.value(input(2), over))
            }
            Expression::Cast => Instr::Cast(self.value(input(0), over)),
            Expression::Full(_) => return self.load(i, over),
        };
        self.rounded(instr, wide, dtype)
    }

    /// The register of an instruction that computes in `wide`, cast to `dtype`.
    fn rounded(&mut self, instr: Instr, wide: DType, dtype: DType) -> Reg {
        let reg = self.emit(instr, wide);
        if wide == dtype { reg } else { self.emit(Instr::Cast(reg), dtype) }
    }

    /// Whether an item has a narrow type and its instruction's result must be cast back to that type.
    fn rounds(&self, item: &Item) -> bool {
        let dtype = item.node.dtype;
        let mixed = || item.inputs.iter().any(|&j| self.analysis.items[j as usize].node.dtype != dtype);
        dtype.is_narrow()
            && match item.node.op.class() {
                OpClass::Expression(expression) => match expression {
                    Expression::Unary(op) => op.leaves(dtype),
                    Expression::Powi(_) | Expression::Arange(_) | Expression::Random(_) => true,
                    // A scalar beside a half tensor is f32.
                    Expression::Binary(op) => op.leaves(dtype) || mixed(),
                    // Formulas round by themselves.
                    Expression::Formula(_) | Expression::Compare(_) => false,
                    Expression::Full(_) | Expression::Where | Expression::Cast => false,
                },
                OpClass::Other(OtherOp::Reduce { op, .. }) => op.leaves(),
                OpClass::Leaf | OpClass::View(_) | OpClass::Tuple(_) | OpClass::Other(_) => false,
            }
    }

    /// The register of an item's value as an operand of an instruction; with `rounds`, of one that
    /// computes narrow types in a wider type.
    fn operand(&mut self, i: u32, over: &Shape, rounds: bool) -> Reg {
        let reg = self.value(i, over);
        let dtype = self.program.dtypes[reg as usize];
        if rounds && dtype.is_narrow() { self.emit(Instr::Cast(reg), dtype.register()) } else { reg }
    }

    /// The maximum or minimum operand to which a select reduces, as in
    /// [`Tensor::clamp`](crate::Tensor::clamp): `if x > y { x } else { max(x, y) }` is `max(x, y)`, and
    /// likewise for the minimum. The select only affects gradients.
    fn extreme(&self, choice: &Item) -> Option<u32> {
        let items = &self.analysis.items;
        let [condition, x, extreme] = *choice.inputs.as_slice() else { return None };
        let (test, kept) = (&items[condition as usize], &items[extreme as usize]);
        let is_one = match (&test.node.op, &kept.node.op) {
            (Op::Compare(CompareOp::Gt), Op::Binary(BinaryOp::Maximum))
            | (Op::Compare(CompareOp::Lt), Op::Binary(BinaryOp::Minimum)) => {
                // A computed node counts as a leaf in a plan: its operation must not be used.
                test.value.is_none()
                    && kept.value.is_none()
                    && test.inputs == kept.inputs
                    && test.inputs[0] == x
            }
            _ => false,
        };
        (is_one && kept.node.shape == choice.node.shape && kept.node.dtype == choice.node.dtype)
            .then_some(extreme)
    }

    fn load(&mut self, i: u32, over: &Shape) -> Reg {
        let dtype = self.analysis.items[i as usize].node.dtype;
        if let Some(gathered) = &self.analysis.gathered[i as usize] {
            return self.load_at(gathered, over, dtype);
        }
        let (source, layout) = self.analysis.place(i);
        self.load_from(source, &layout, over, dtype)
    }

    /// The slot of an input: an existing one with the same access, or a new one.
    fn input(&mut self, source: u32, layout: Layout, indexed: Option<IndexedAxis>, dtype: DType) -> u16 {
        self.sources.push(source);
        self.layouts.push(layout);
        self.indexed.push(indexed);
        self.program.inputs.push(dtype);
        (self.sources.len() - 1) as u16
    }

    /// Loads the elements that a gather, or a view of one, selects.
    fn load_at(&mut self, gathered: &Gathered, over: &Shape, dtype: DType) -> Reg {
        let analysis = self.analysis;
        let index = match &gathered.index {
            Index::Expression(item) => self.value(*item, over),
            Index::Memory(source, layout) => {
                let dtype =
                    analysis.items[analysis.items[gathered.gather as usize].inputs[1] as usize].node.dtype;
                self.load_from(*source, layout, over, dtype)
            }
        };
        let layout = over_space(&gathered.layout, over, &self.shape, self.row_axes);
        // Gathers share an input only if the error of a bad index names the same line.
        let known = self.gathers.iter().find(|&&(slot, gather)| {
            let slot = usize::from(slot);
            self.sources[slot] == gathered.table
                && self.layouts[slot] == layout
                && self.indexed[slot] == Some(gathered.axis)
                && analysis.are_of_one_line(gather, gathered.gather)
        });
        let input = match known {
            Some(&(slot, _)) => slot,
            None => {
                let slot = self.input(gathered.table, layout, Some(gathered.axis), dtype);
                self.gathers.push((slot, gathered.gather));
                slot
            }
        };
        self.emit(Instr::LoadAt { input, index }, dtype)
    }

    /// Loads the elements of a buffer at each position, as a reader of shape `over` sees them.
    fn load_from(&mut self, source: u32, layout: &Layout, over: &Shape, dtype: DType) -> Reg {
        let layout = over_space(layout, over, &self.shape, self.row_axes);
        let is_sum = self.sums == Some(source);
        // A contraction's sums have the dtype of its factors, and are not rounded yet.
        let held = if is_sum { self.analysis.factors_dtype(source) } else { dtype };
        let known = (0..self.sources.len()).find(|&slot| {
            self.sources[slot] == source && self.layouts[slot] == layout && self.indexed[slot].is_none()
        });
        let slot = match known {
            Some(slot) => slot as u16,
            None => self.input(source, layout, None, held),
        };
        let loaded = self.emit(Instr::Load(slot), held);
        if !is_sum || !held.is_narrow() {
            return loaded;
        }
        let wide = self.emit(Instr::Cast(loaded), held.register());
        if dtype == held.register() { wide } else { self.emit(Instr::Cast(wide), dtype) }
    }

    fn scalar(&mut self, item: u32, part: Part, dtype: DType) -> Reg {
        let slot = self.slot(item, part, dtype);
        self.emit(Instr::Scalar(slot), dtype)
    }

    fn slot(&mut self, item: u32, part: Part, dtype: DType) -> u16 {
        let wanted = ScalarRef { item, part, dtype };
        let slot = self.scalars.iter().position(|s| *s == wanted).unwrap_or_else(|| {
            self.scalars.push(wanted);
            self.program.scalars.push(dtype);
            self.scalars.len() - 1
        });
        slot as u16
    }

    fn emit(&mut self, instr: Instr, dtype: DType) -> Reg {
        let program = &mut self.program;
        *self.seen.entry((instr, dtype)).or_insert_with(|| {
            program.instrs.push(instr);
            program.dtypes.push(dtype);
            (program.instrs.len() - 1) as Reg
        })
    }
}

/// A formula that is expanded into a kernel on behalf of an item.
struct FormulaOf<'a, 'b> {
    builder: &'a mut Builder<'b>,
    item: u32,
}

impl Emit for FormulaOf<'_, '_> {
    fn emit(&mut self, instr: Instr, dtype: DType) -> Reg {
        self.builder.emit(instr, dtype)
    }

    fn constant(&mut self, value: f64, dtype: DType) -> Reg {
        self.builder.scalar(self.item, Part::Constant(value.to_bits()), dtype)
    }
}
