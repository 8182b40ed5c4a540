//! The bodies of kernels along an axis, and those with indices.

use tensor_core::{ArgReduceOp, BinaryOp, CumulativeOp, DType, Layout, ReduceOp, collapse};

use super::kernel::{KernelWriter, Place};
use crate::operations;

impl KernelWriter<'_> {
    fn is_nan(&self, x: &str) -> String {
        let plain = format!("{x} != {x}");
        self.language.of(plain.clone(), plain, format!("is_nan_f32({x})"))
    }

    /// The condition under which an element takes the place of the best one.
    fn better(&self, dtype: DType, sign: &str, next: &str, best: &str) -> String {
        if dtype.is_float() {
            let [lost, wins] = [best, next].map(|name| self.is_nan(name));
            format!("!({lost}) && ({wins} || {next} {sign} {best})")
        } else {
            format!("{next} {sign} {best}")
        }
    }

    pub(super) fn arg_reduce(&mut self, op: ArgReduceOp, axis: usize) {
        let kernel = &self.step.kernel;
        let dtype = kernel.operands[0].dtype;
        let of = dtype.arithmetic();
        let kept = self.nest(&kernel.outputs[0].axes);
        let outer = self.open_grid(&kept.sizes);
        let (best, at, next) = (self.name("best"), self.name("at"), self.name("next"));
        let start = self.operand_place(0, &[(&outer, &kept)]);
        let first = self.load(0, &start);
        self.define_mutable(&best, self.language.register(of), &first);
        self.define_mutable(&at, self.language.of("size_t", "usize", "u32"), "0");
        let i = self.open_loop(kernel.space[axis]);
        let value = self.load(0, &start.with(&i, kernel.operands[0].layout.strides()[axis]));
        self.define(&next, of, &value);
        let sign = if op == ArgReduceOp::ArgMax { ">" } else { "<" };
        let better = self.better(dtype, sign, &next, &best);
        self.open_if(&better);
        self.line(&format!("{best} = {next};"));
        self.line(&format!("{at} = {i};"));
        self.close();
        self.close();
        let place = self.output_place(0, &[(&outer, &kept)]);
        let value = self.language.of(format!("(int32_t){at}"), format!("{at} as i32"), format!("i32({at})"));
        self.store(0, &place, &value);
        self.close_grid(&outer);
    }

    pub(super) fn cumulative(&mut self, op: CumulativeOp, axis: usize, reverse: bool) {
        let kernel = &self.step.kernel;
        let dtype = kernel.operands[0].dtype;
        let of = dtype.arithmetic();
        let others: Vec<usize> = (0..kernel.space.rank()).filter(|&a| a != axis).collect();
        let lines = self.nest(&others);
        let outer = self.open_grid(&lines.sizes);
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
            self.define_mutable(&at, self.language.of("size_t", "usize", "u32"), "0");
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
                self.open_if(&format!("{i} > 0"));
                self.accumulate(reduction, dtype, &state, &next);
                self.close();
                self.store(0, &to, &state);
                self.close();
                self.close_grid(&outer);
                return;
            }
        };
        let continues = if dtype.is_float() {
            let [wins, lost] = [&next, &state].map(|name| self.is_nan(name));
            format!("{wins} || (!({lost}) && {next} {sign} {state})")
        } else {
            format!("{next} {sign} {state}")
        };
        self.open_if(&continues);
        self.line(&format!("{state} = {next};"));
        let position = if reverse { format!("{} - {i}", size - 1) } else { i.clone() };
        self.line(&format!("{at} = {position};"));
        self.close();
        let value = self.language.of(format!("(int32_t){at}"), format!("{at} as i32"), format!("i32({at})"));
        self.store(0, &to, &value);
        self.close();
        self.close_grid(&outer);
    }

    pub(super) fn gather(&mut self, axis: usize) {
        let kernel = &self.step.kernel;
        let [table, index] = [0, 1].map(|k| &kernel.operands[k].layout);
        let own = kernel.space.contiguous_strides();
        let mut from: Vec<isize> = table.strides().to_vec();
        let along = std::mem::replace(&mut from[axis], 0);
        let all = collapse(&kernel.space, &[&from, index.strides(), &own]);
        let loops = self.open_grid(&all.shape);
        let value = self.load(1, &Place::new(index.offset()).over(&loops, &all.strides[1]));
        let (wanted, of) = (self.name("k"), kernel.operands[1].dtype.arithmetic());
        self.define(&wanted, of, &value);
        let j = self.index(&wanted, table.shape()[axis]);
        let place = Place::new(table.offset()).over(&loops, &all.strides[0]).with(&j, along);
        let value = self.load(0, &place);
        self.store(0, &Place::new(0).over(&loops, &all.strides[2]), &value);
        self.close_grid(&loops);
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
        // Only the elements of a line along the axis may have the same place.
        let others: Vec<usize> = (0..kernel.space.rank()).filter(|&a| a != axis).collect();
        let of = |layout: &Layout| others.iter().map(|&a| layout.strides()[a]).collect::<Vec<_>>();
        let sizes: Vec<usize> = others.iter().map(|&a| index.shape()[a]).collect();
        let all = collapse(&sizes, &[&of(&own), &of(index), &of(source)]);
        let lines = self.open_grid(&all.shape);
        let i = self.open_loop(index.shape()[axis]);
        let within = |layout: &Layout, start: usize, strides: &[isize]| {
            Place::new(start).over(&lines, strides).with(&i, layout.strides()[axis])
        };
        let value = self.load(1, &within(index, index.offset(), &all.strides[1]));
        let (wanted, next) = (self.name("k"), self.name("next"));
        self.define(&wanted, kernel.operands[1].dtype.arithmetic(), &value);
        let j = self.index(&wanted, kernel.space[axis]);
        let value = self.load(2, &within(source, source.offset(), &all.strides[2]));
        self.define(&next, dtype.arithmetic(), &value);
        let place = Place::new(0).over(&lines, &all.strides[0]).with(&j, own.strides()[axis]);
        let value = match op {
            Some(op) => {
                let before = self.name("before");
                let old = self.load_output(0, dtype, &place);
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
        self.close();
        self.close_grid(&lines);
    }
}
