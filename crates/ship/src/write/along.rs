//! The bodies of kernels along an axis, and those with indices.

use tensor_core::{ArgReduceOp, BinaryOp, CumulativeOp, DType, Layout, ReduceOp, collapse};

use super::kernel::{KernelWriter, Place};
use crate::operations;

impl KernelWriter<'_> {
    /// The condition under which an element takes the place of the best one.
    fn better(&self, dtype: DType, sign: &str, next: &str, best: &str) -> String {
        if dtype.is_float() {
            format!("{best} == {best} && ({next} != {next} || {next} {sign} {best})")
        } else {
            format!("{next} {sign} {best}")
        }
    }

    pub(super) fn arg_reduce(&mut self, op: ArgReduceOp, axis: usize) {
        let kernel = &self.step.kernel;
        let dtype = kernel.operands[0].dtype;
        let of = dtype.arithmetic();
        let kept = self.nest(&kernel.outputs[0].axes);
        let outer = self.open_all(&kept.sizes);
        let (best, at, next) = (self.name("best"), self.name("at"), self.name("next"));
        let start = self.operand_place(0, &[(&outer, &kept)]);
        let first = self.load(0, &start);
        self.define_mutable(&best, self.language.register(of), &first);
        self.define_mutable(&at, self.language.of("size_t", "usize"), "0");
        let i = self.open_loop(kernel.space[axis]);
        let value = self.load(0, &start.with(&i, kernel.operands[0].layout.strides()[axis]));
        self.define(&next, of, &value);
        let sign = if op == ArgReduceOp::ArgMax { ">" } else { "<" };
        let better = self.better(dtype, sign, &next, &best);
        self.open(&self.language.of(format!("if ({better})"), format!("if {better}")));
        self.line(&format!("{best} = {next};"));
        self.line(&format!("{at} = {i};"));
        self.close();
        self.close();
        let place = self.output_place(0, &[(&outer, &kept)]);
        let value = self.language.of(format!("(int32_t){at}"), format!("{at} as i32"));
        self.store(0, &place, &value);
        self.close_all(&outer);
    }

    pub(super) fn cumulative(&mut self, op: CumulativeOp, axis: usize, reverse: bool) {
        let kernel = &self.step.kernel;
        let dtype = kernel.operands[0].dtype;
        let of = dtype.arithmetic();
        let others: Vec<usize> = (0..kernel.space.rank()).filter(|&a| a != axis).collect();
        let lines = self.nest(&others);
        let outer = self.open_all(&lines.sizes);
        let nests = [(&outer, &lines)];
        let size = kernel.space[axis];
        let (mut from, mut to) = (self.operand_place(0, &nests), self.output_place(0, &nests));
        let (mut step, mut out) = (
            kernel.operands[0].layout.strides()[axis],
            kernel.outputs[0].strides_over(kernel.space.rank())[axis],
        );
        if reverse {
            from.offset = from.offset.wrapping_add_signed((size as isize - 1) * step);
            to.offset = to.offset.wrapping_add_signed((size as isize - 1) * out);
            (step, out) = (-step, -out);
        }
        let (state, next) = (self.name("state"), self.name("next"));
        let first = self.load(0, &from);
        self.define_mutable(&state, self.language.register(of), &first);
        let at = self.name("at");
        if op.is_arg() {
            self.define_mutable(&at, self.language.of("size_t", "usize"), "0");
        }
        let i = self.open_loop(size);
        let value = self.load(0, &from.with(&i, step));
        self.define(&next, of, &value);
        let to = to.with(&i, out);
        let sign = match op {
            CumulativeOp::ArgMax => ">=",
            CumulativeOp::ArgMin => "<=",
            CumulativeOp::Sum | CumulativeOp::Prod | CumulativeOp::LogSumExp => {
                let reduction = if op == CumulativeOp::Prod { ReduceOp::Prod } else { ReduceOp::Sum };
                self.open(&self.language.of(format!("if ({i} > 0)"), format!("if {i} > 0")));
                self.accumulate(reduction, dtype, &state, &next);
                self.close();
                self.store(0, &to, &state);
                self.close();
                self.close_all(&outer);
                return;
            }
        };
        let continues = if dtype.is_float() {
            format!("{next} != {next} || ({state} == {state} && {next} {sign} {state})")
        } else {
            format!("{next} {sign} {state}")
        };
        self.open(&self.language.of(format!("if ({continues})"), format!("if {continues}")));
        self.line(&format!("{state} = {next};"));
        let position = if reverse { format!("{} - {i}", size - 1) } else { i.clone() };
        self.line(&format!("{at} = {position};"));
        self.close();
        let value = self.language.of(format!("(int32_t){at}"), format!("{at} as i32"));
        self.store(0, &to, &value);
        self.close();
        self.close_all(&outer);
    }

    pub(super) fn gather(&mut self, axis: usize) {
        let kernel = &self.step.kernel;
        let [table, index] = [0, 1].map(|k| &kernel.operands[k].layout);
        let own = kernel.space.contiguous_strides();
        let mut from: Vec<isize> = table.strides().to_vec();
        let along = std::mem::replace(&mut from[axis], 0);
        let all = collapse(&kernel.space, &[&from, index.strides(), &own]);
        let loops = self.open_all(&all.shape);
        let value = self.load(1, &Place::new(index.offset()).over(&loops, &all.strides[1]));
        let (wanted, of) = (self.name("k"), kernel.operands[1].dtype.arithmetic());
        self.define(&wanted, of, &value);
        let j = self.index(&wanted, table.shape()[axis]);
        let place = Place::new(table.offset()).over(&loops, &all.strides[0]).with(&j, along);
        let value = self.load(0, &place);
        self.store(0, &Place::new(0).over(&loops, &all.strides[2]), &value);
        self.close_all(&loops);
    }

    pub(super) fn scatter(&mut self, op: Option<BinaryOp>, axis: usize) {
        let kernel = &self.step.kernel;
        let dtype = kernel.outputs[0].dtype;
        let own = Layout::contiguous(kernel.space.clone());
        self.copy(0, &own);
        let [index, source] = [1, 2].map(|k| &kernel.operands[k].layout);
        if index.shape().contains(&0) {
            return;
        }
        let mut to: Vec<isize> = own.strides().to_vec();
        let along = std::mem::replace(&mut to[axis], 0);
        let all = collapse(index.shape(), &[&to, index.strides(), source.strides()]);
        let loops = self.open_all(&all.shape);
        let value = self.load(1, &Place::new(index.offset()).over(&loops, &all.strides[1]));
        let (wanted, next) = (self.name("k"), self.name("next"));
        self.define(&wanted, kernel.operands[1].dtype.arithmetic(), &value);
        let j = self.index(&wanted, kernel.space[axis]);
        let value = self.load(2, &Place::new(source.offset()).over(&loops, &all.strides[2]));
        self.define(&next, dtype.arithmetic(), &value);
        let place = Place::new(0).over(&loops, &all.strides[0]).with(&j, along);
        let value = match op {
            Some(op) => {
                let before = self.name("before");
                let old = self.language.load(dtype, &format!("y0[{place}]"));
                self.define(&before, dtype.arithmetic(), &old);
                let of = dtype.arithmetic();
                let value = self.text(operations::binary(op, of), of, &before, &next);
                let sum = self.name("s");
                self.define(&sum, of, &value);
                sum
            }
            None => next,
        };
        self.store(0, &place, &value);
        self.close_all(&loops);
    }
}
