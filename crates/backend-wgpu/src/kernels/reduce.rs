//! Reductions: a thread a result, which walks its elements and computes the prologue on the way. A long reduction to few results
//! is cut in pieces, whose partial results a second pass joins. No barriers, no atomics, always the same order.
//!
//! p: 0 threads, 1 pieces, 2 elements a piece, 3 elements a result, 4 the divisor of a mean (f32); sizes of the kept and then of
//! the reduced axes; for each input its offset, strides along the kept and along the reduced axes; the scalars.

use std::{fmt::Write, sync::Arc};

use smallvec::SmallVec;
use tensor_core::{
    DType, Launch, Layout, ReduceOp, Result, Shape, Storage, collapse,
    kernel::{Instr, Program, ReduceKernel},
};

use super::{Bindings, Prepared, Variants, head};
use crate::{
    backend::WgpuBackend,
    expression::{library, statements, stored},
    lanes::{lane, scalar_words, unsupported, word},
    queue::Dispatch,
};

const WORKGROUP: u32 = 64;
/// Fewer results than this leave a device idle: long reductions to them are cut in pieces.
const FEW: usize = 2048;
/// Elements that one thread may walk without being cut.
const LONG: usize = 1024;
const MAX_PIECES: usize = 512;

/// One pass of a reduction.
struct Pass<'a> {
    stage: u8,
    op: ReduceOp,
    kernel: &'a ReduceKernel,
    /// Pieces that each result is cut in; the output then holds them side by side.
    pieces: usize,
    divisor: Option<usize>,
    dtype: DType,
}

pub(crate) fn run(backend: &WgpuBackend, kernel: &ReduceKernel, launch: &Launch<'_>) -> Result<()> {
    let results = kernel.shape.reduced(&kernel.axes, false).numel();
    let count: usize = kernel.axes.iter().map(|&a| kernel.shape[a]).product();
    let dtype = kernel.program.output_dtype(0);
    let divisor = (kernel.op == ReduceOp::Mean).then_some(count);
    let pieces = if results < FEW && count > LONG { count.div_ceil(LONG).min(MAX_PIECES) } else { 1 };
    if pieces == 1 {
        let pass = Pass { stage: 0, op: kernel.op, kernel, pieces, divisor, dtype };
        return pass.run(backend, launch);
    }
    // Partial results of halves stay wide.
    let wide = dtype.compute();
    let partial: Storage = Arc::new(backend.pool.take(&backend.health, wide, results * pieces)?);
    let op = if kernel.op == ReduceOp::Mean { ReduceOp::Sum } else { kernel.op };
    let first = Pass { stage: 1, op, kernel, pieces, divisor: None, dtype: wide };
    first.run(backend, &Launch { outputs: std::slice::from_ref(&partial), ..*launch })?;
    let shape = Shape::from([results, pieces]);
    let join = ReduceKernel {
        op,
        shape: shape.clone(),
        axes: SmallVec::from_slice(&[1]),
        inputs: SmallVec::from_iter([Layout::contiguous(shape)]),
        program: Program {
            instrs: vec![Instr::Load(0)],
            dtypes: vec![wide],
            inputs: vec![wide],
            scalars: Vec::new(),
            outputs: vec![0],
        },
    };
    let second = Pass { stage: 2, op, kernel: &join, pieces: 1, divisor, dtype };
    second.run(backend, &Launch { inputs: std::slice::from_ref(&partial), scalars: &[], ..*launch })
}

impl Pass<'_> {
    fn run(&self, backend: &WgpuBackend, launch: &Launch<'_>) -> Result<()> {
        let bindings = Bindings::new(launch)?;
        let prepared =
            Variants::of(launch)?.get(self.stage, &bindings, || self.prepare(backend, &bindings))?;
        let mut words = prepared.words.clone();
        for (&dtype, &value) in self.kernel.program.scalars.iter().zip(launch.scalars) {
            scalar_words(dtype, value, &mut words);
        }
        backend.queue.dispatch(&Dispatch {
            pipeline: &prepared.pipeline.pipeline,
            layout: &prepared.pipeline.layout,
            buffers: &bindings.buffers,
            params: &words,
            threads: u64::from(words[0]),
            workgroup: WORKGROUP,
            status: false,
        })
    }

    fn prepare(&self, backend: &WgpuBackend, bindings: &Bindings<'_>) -> Result<Prepared> {
        const OP: &str = "reduce";
        let ReduceKernel { shape, axes, inputs, program, .. } = self.kernel;
        let part = |reduced: bool| {
            let chosen: SmallVec<[usize; 5]> =
                (0..shape.rank()).filter(|a| axes.contains(a) == reduced).collect();
            let sizes: SmallVec<[usize; 5]> = chosen.iter().map(|&a| shape[a]).collect();
            let strides: Vec<SmallVec<[isize; 5]>> =
                inputs.iter().map(|l| chosen.iter().map(|&a| l.strides()[a]).collect()).collect();
            let refs: Vec<&[isize]> = strides.iter().map(|s| s.as_slice()).collect();
            collapse(&sizes, &refs)
        };
        let (kept, reduced) = (part(false), part(true));
        let results: usize = kept.shape.iter().product();
        let count: usize = reduced.shape.iter().product();
        let mut words = vec![
            word(OP, (results * self.pieces) as isize)?,
            word(OP, self.pieces as isize)?,
            word(OP, count.div_ceil(self.pieces) as isize)?,
            word(OP, count as isize)?,
            (self.divisor.unwrap_or(1) as f32).to_bits(),
        ];
        // Writing to a string cannot fail.
        let mut text = String::new();
        let mut decode = |text: &mut String, name: &str, sizes: &[usize]| {
            let first = words.len();
            words.extend(sizes.iter().map(|&s| s as u32));
            for axis in (0..sizes.len()).rev() {
                let _ = match axis {
                    0 => writeln!(text, "    let {name}0 = i32(rest);"),
                    _ => writeln!(
                        text,
                        "    let {name}{axis} = i32(rest % p[{0}]);\n    rest = rest / p[{0}];",
                        first + axis
                    ),
                };
            }
        };
        text += "    var rest = thread / p[1];\n";
        decode(&mut text, "k", &kept.shape);
        let mut inner = String::from("    rest = i;\n");
        decode(&mut inner, "j", &reduced.shape);
        let mut loads = Vec::new();
        for (n, layout) in inputs.iter().enumerate() {
            let at = words.len();
            words.push(word(OP, layout.offset() as isize)?);
            let _ = write!(text, "    let s{n} = i32(p[{at}])");
            for (axis, &stride) in kept.strides[n].iter().enumerate() {
                let _ = write!(text, " + k{axis} * i32(p[{}])", words.len());
                words.push(word(OP, stride)?);
            }
            text += ";\n";
            let _ = write!(inner, "    let a{n} = s{n}");
            for (axis, &stride) in reduced.strides[n].iter().enumerate() {
                let _ = write!(inner, " + j{axis} * i32(p[{}])", words.len());
                words.push(word(OP, stride)?);
            }
            inner += ";\n";
            loads.push(format!("b{}[a{n}]", bindings.inputs[n]));
        }
        let (body, _) = statements(&backend.info.name, program, &loads, words.len())?;
        let value = format!("r{}", program.outputs[0]);
        let source_dtype = program.output_dtype(0);
        let (kind, identity) = identity(self.op, source_dtype)
            .ok_or_else(|| unsupported(self.op.name(), &backend.info.name, source_dtype))?;
        let join = |a: &str, b: &str| join(self.op, source_dtype, a, b);
        let result = match self.divisor {
            Some(_) => "div_(sum, bitcast<f32>(p[4]))",
            None => "sum",
        };
        let _ = write!(
            text,
            "    let first = thread % p[1] * p[2];\n    let last = min(first + p[2], p[3]);\n    \
             var sum: {kind} = {identity};\n    var part: {kind} = {identity};\n    \
             for (var i = first; i < last; i++) {{\n{inner}{body}    part = {};\n    \
             if ((i & 63u) == 63u) {{ sum = {}; part = {identity}; }}\n    }}\n    sum = {};\n    b{}[thread] = {};\n",
            join("part", &value),
            join("sum", "part"),
            join("sum", "part"),
            bindings.outputs[0],
            stored(self.dtype, result),
        );
        let source = bindings.declare() + &library(program) + &head(WORKGROUP) + &text + "}\n";
        let pipeline = backend.pipelines.get(
            &backend.device,
            &backend.health,
            self.op.name(),
            source,
            bindings.buffers.len(),
            bindings.written,
            false,
        )?;
        Ok(Prepared { pipeline, words })
    }
}

/// The register type of a reduction, and what it starts from.
fn identity(op: ReduceOp, dtype: DType) -> Option<(&'static str, &'static str)> {
    use ReduceOp as R;
    Some(match (lane(dtype), dtype) {
        (_, DType::Bool) => match op {
            R::Any | R::Max => ("bool", "false"),
            R::All | R::Min => ("bool", "true"),
            _ => return None,
        },
        ("f32", _) => match op {
            R::Sum | R::Mean => ("f32", "0.0"),
            R::Prod => ("f32", "1.0"),
            R::Max => ("f32", "-inf()"),
            R::Min => ("f32", "inf()"),
            R::Any | R::All => return None,
        },
        ("i32", _) => match op {
            R::Prod => ("i32", "1"),
            R::Max => ("i32", "-2147483647 - 1"),
            R::Min => ("i32", "2147483647"),
            _ => ("i32", "0"),
        },
        ("u32", _) => match op {
            R::Prod => ("u32", "1u"),
            R::Min => ("u32", "4294967295u"),
            _ => ("u32", "0u"),
        },
        ("i64", _) => match op {
            R::Prod => ("i64", "1li"),
            R::Max => ("i64", "-9223372036854775807li - 1li"),
            R::Min => ("i64", "9223372036854775807li"),
            _ => ("i64", "0li"),
        },
        _ => return None,
    })
}

fn join(op: ReduceOp, dtype: DType, a: &str, b: &str) -> String {
    use ReduceOp as R;
    let float = lane(dtype) == "f32";
    match op {
        R::Max if dtype == DType::Bool => format!("{a} || {b}"),
        R::Min if dtype == DType::Bool => format!("{a} && {b}"),
        R::Any => format!("{a} || {b}"),
        R::All => format!("{a} && {b}"),
        R::Sum | R::Mean => format!("{a} + {b}"),
        R::Prod => format!("{a} * {b}"),
        R::Max if float => format!("max_({a}, {b})"),
        R::Min if float => format!("min_({a}, {b})"),
        R::Max => format!("max({a}, {b})"),
        R::Min => format!("min({a}, {b})"),
    }
}
