//! Kernels whose shaders stand in `taper-shaders`: each gets a header and its parameters. What the words mean is written there.

use taper_shaders::{ARG_REDUCE, COPY, GATHER, INDEX, INTEGER, MATH, MATMUL, SCATTER_ADD, binding};
use tensor_core::{
    ArgReduceOp, DType, Launch, Layout, Result, Scalar, collapse,
    kernel::{ArgReduceKernel, CopyKernel, GatherKernel, MatMulKernel, ScatterAddKernel},
};

use super::{Bindings, Prepared, Variants, head};
use crate::{
    backend::WgpuBackend,
    expression::scalar,
    lanes::{lane, scalar_words, unsupported, word},
    queue::{Dispatch, Indexing, Source},
};

/// Names given to bindings by a shader, in the order of the launch's inputs and outputs.
struct Shader<'a> {
    name: &'static str,
    stage: u8,
    header: String,
    body: &'a [&'a str],
    names: &'a [&'a str],
    workgroup: u32,
    status: bool,
}

impl Shader<'_> {
    fn run(&self, backend: &WgpuBackend, launch: &Launch<'_>, threads: usize, words: &[u32]) -> Result<()> {
        let bindings = Bindings::new(launch)?;
        let prepared = Variants::of(launch)?.get(self.stage, &bindings, || {
            let places: Vec<u8> = bindings.inputs.iter().chain(&bindings.outputs).copied().collect();
            let mut source = self.header.clone();
            // Two inputs in one buffer are two names for one binding, which WGSL lacks: the second is bound again.
            let mut buffers = 0;
            for (i, name) in self.names.iter().enumerate() {
                let buffer = bindings.buffers[places[i] as usize];
                source += &binding(i, name, lane(buffer.dtype), i >= bindings.inputs.len());
                buffers += 1;
            }
            source += &binding(buffers, "p", "u32", false);
            if self.status {
                source += "@group(0) @binding(9) var<storage, read_write> status: array<atomic<u32>>;\n";
            }
            self.body.iter().for_each(|part| source += part);
            let written = 1 << bindings.inputs.len();
            let pipeline = backend.pipelines.get(
                backend,
                Source { name: self.name, text: source, buffers, written, status: self.status },
            )?;
            Ok(Prepared { pipeline, words: Vec::new() })
        })?;
        let buffers: Vec<_> = bindings
            .inputs
            .iter()
            .chain(&bindings.outputs)
            .map(|&at| bindings.buffers[at as usize])
            .collect();
        backend.queue.dispatch(&Dispatch {
            pipeline: &prepared.pipeline.pipeline,
            layout: &prepared.pipeline.layout,
            buffers: &buffers,
            params: words,
            threads: threads as u64,
            workgroup: self.workgroup,
            status: self.status,
        })
    }
}

/// The function that rounds a sum to the dtype's precision.
fn narrow(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "fn narrow(x: T) -> T { return round_f16(x); }\n",
        DType::BF16 => "fn narrow(x: T) -> T { return round_bf16(x); }\n",
        DType::U8 => "fn narrow(x: T) -> T { return x & 255u; }\n",
        DType::Bool => "fn narrow(x: T) -> T { return min(x, 1u); }\n",
        _ => "fn narrow(x: T) -> T { return x; }\n",
    }
}

fn words_of(op: &'static str, values: &[isize]) -> Result<Vec<u32>> {
    values.iter().map(|&v| word(op, v)).collect()
}

pub(crate) fn matmul(backend: &WgpuBackend, kernel: &MatMulKernel, launch: &Launch<'_>) -> Result<()> {
    const OP: &str = "matmul";
    if kernel.dtype == DType::Bool {
        return Err(unsupported(OP, &backend.info.name, kernel.dtype));
    }
    let (m, n, k) = (kernel.m, kernel.n, kernel.k);
    let (down, across) = (m.div_ceil(4), n.div_ceil(4));
    let threads = kernel.batch.numel() * down * across;
    let rank = kernel.batch.rank();
    let mut words = words_of(OP, &[threads, m, n, k, down, across].map(|v| v as isize))?;
    let strides = [&kernel.lhs.strides()[..rank], &kernel.rhs.strides()[..rank]];
    let batch = collapse(&kernel.batch, &strides);
    words.push(batch.shape.len() as u32);
    for layout in [&kernel.lhs, &kernel.rhs] {
        let s = layout.strides();
        words.extend(words_of(OP, &[layout.offset() as isize, s[rank], s[rank + 1]])?);
    }
    for (axis, &size) in batch.shape.iter().enumerate() {
        words.extend(words_of(OP, &[size as isize, batch.strides[0][axis], batch.strides[1][axis]])?);
    }
    Shader {
        name: OP,
        stage: 0,
        header: format!(
            "{MATH}alias T = {};\nconst ZERO: T = T(0);\n{}",
            lane(kernel.dtype),
            narrow(kernel.dtype)
        ),
        body: &[MATMUL],
        names: &["lhs", "rhs", "output"],
        workgroup: 64,
        status: false,
    }
    .run(backend, launch, threads, &words)
}

pub(crate) fn copy(backend: &WgpuBackend, kernel: &CopyKernel, launch: &Launch<'_>) -> Result<()> {
    const OP: &str = "copy";
    let t = lane(kernel.dtype);
    if kernel.fill {
        let numel = kernel.shape.numel();
        let mut words = words_of(OP, &[numel as isize])?;
        scalar_words(kernel.dtype, launch.scalars.first().copied().unwrap_or(Scalar::Int(0)), &mut words);
        let value = if kernel.dtype == DType::Bool { "p[1]".into() } else { scalar(kernel.dtype, 1) };
        let body = head(256) + &format!("    output[thread] = {value};\n}}\n");
        Shader {
            name: "fill",
            stage: 1,
            header: String::new(),
            body: &[&body],
            names: &["output"],
            workgroup: 256,
            status: false,
        }
        .run(backend, &Launch { inputs: &[], ..*launch }, numel, &words)?;
    }
    for (region, input) in kernel.regions.iter().zip(launch.inputs) {
        let shape = region.src.shape();
        let both = collapse(shape, &[region.src.strides(), region.dst.strides()]);
        let mut words = words_of(
            OP,
            &[shape.numel(), region.src.offset(), region.dst.offset(), both.shape.len()].map(|v| v as isize),
        )?;
        for (axis, &size) in both.shape.iter().enumerate() {
            words.extend(words_of(OP, &[size as isize, both.strides[0][axis], both.strides[1][axis]])?);
        }
        Shader {
            name: OP,
            stage: 0,
            header: format!("alias T = {t};\n"),
            body: &[COPY],
            names: &["input", "output"],
            workgroup: 256,
            status: false,
        }
        .run(
            backend,
            &Launch { inputs: std::slice::from_ref(input), ..*launch },
            shape.numel(),
            &words,
        )?;
    }
    Ok(())
}

pub(crate) fn arg_reduce(backend: &WgpuBackend, kernel: &ArgReduceKernel, launch: &Launch<'_>) -> Result<()> {
    let op = kernel.op.name();
    let layout = &kernel.input;
    let results = layout.shape().reduced(&[kernel.axis], false).numel();
    let mut words = words_of(
        op,
        &[
            results as isize,
            layout.shape()[kernel.axis] as isize,
            layout.strides()[kernel.axis],
            layout.offset() as isize,
            layout.shape().rank() as isize - 1,
        ],
    )?;
    for axis in (0..layout.shape().rank()).filter(|&a| a != kernel.axis) {
        words.extend(words_of(op, &[layout.shape()[axis] as isize, layout.strides()[axis]])?);
    }
    let sign = if kernel.op == ArgReduceOp::ArgMax { ">" } else { "<" };
    let better = match lane(kernel.dtype) {
        "f32" => format!(
            "fn better(a: T, b: T) -> bool {{ if (is_nan(b)) {{ return false; }} return is_nan(a) || a {sign} b; }}\n"
        ),
        _ => format!("fn better(a: T, b: T) -> bool {{ return a {sign} b; }}\n"),
    };
    Shader {
        name: op,
        stage: 0,
        header: format!("{MATH}alias T = {};\n{better}", lane(kernel.dtype)),
        body: &[ARG_REDUCE],
        names: &["input", "output"],
        workgroup: 256,
        status: false,
    }
    .run(backend, launch, results, &words)
}

fn index_header(dtype: DType, index: DType) -> String {
    format!("{MATH}{INTEGER}alias T = {};\nalias I = {};\n{}", lane(dtype), lane(index), narrow(dtype))
}

pub(crate) fn gather(backend: &WgpuBackend, kernel: &GatherKernel, launch: &Launch<'_>) -> Result<()> {
    const OP: &str = "gather";
    let (input, index) = (&kernel.input, &kernel.index);
    let size = input.shape()[kernel.axis];
    let threads = index.numel();
    if threads == 0 {
        return Ok(());
    }
    let launched = backend.queue.note(Indexing { op: OP, axis: kernel.axis, size });
    let strides: Vec<isize> =
        input.strides().iter().enumerate().map(|(a, &s)| if a == kernel.axis { 0 } else { s }).collect();
    let both = collapse(index.shape(), &[&strides, index.strides()]);
    let mut words = words_of(OP, &[threads as isize])?;
    words.push(launched);
    words.extend(words_of(
        OP,
        &[
            size as isize,
            input.strides()[kernel.axis],
            input.offset() as isize,
            index.offset() as isize,
            both.shape.len() as isize,
        ],
    )?);
    for (axis, &size) in both.shape.iter().enumerate() {
        words.extend(words_of(OP, &[size as isize, both.strides[0][axis], both.strides[1][axis]])?);
    }
    Shader {
        name: OP,
        stage: 0,
        header: index_header(kernel.dtype, kernel.index_dtype),
        body: &[INDEX, GATHER],
        names: &["input", "index", "output"],
        workgroup: 256,
        status: true,
    }
    .run(backend, launch, threads, &words)
}

pub(crate) fn scatter_add(
    backend: &WgpuBackend,
    kernel: &ScatterAddKernel,
    launch: &Launch<'_>,
) -> Result<()> {
    const OP: &str = "scatter_add";
    let (base, index, src) = (&kernel.base, &kernel.index, &kernel.src);
    let shape = base.shape();
    let threads = shape.numel();
    if threads == 0 {
        return Ok(());
    }
    let launched = backend.queue.note(Indexing { op: OP, axis: kernel.axis, size: shape[kernel.axis] });
    // An index without elements adds nothing, whatever its strides.
    let length = if index.numel() == 0 { 0 } else { index.shape()[kernel.axis] };
    let mut words = words_of(OP, &[threads as isize])?;
    words.push(launched);
    words.extend(words_of(
        OP,
        &[
            shape[kernel.axis] as isize,
            length as isize,
            base.offset() as isize,
            index.offset() as isize,
            src.offset() as isize,
            index.strides()[kernel.axis],
            src.strides()[kernel.axis],
            kernel.axis as isize,
            shape.rank() as isize,
        ],
    )?);
    let strides = |l: &Layout, axis: usize| l.strides()[axis];
    for axis in 0..shape.rank() {
        words.extend(words_of(
            OP,
            &[
                shape[axis] as isize,
                index.shape()[axis] as isize,
                strides(base, axis),
                strides(index, axis),
                strides(src, axis),
            ],
        )?);
    }
    Shader {
        name: OP,
        stage: 0,
        header: index_header(kernel.dtype, kernel.index_dtype),
        body: &[INDEX, SCATTER_ADD],
        names: &["base", "index", "src", "output"],
        workgroup: 256,
        status: true,
    }
    .run(backend, launch, threads, &words)
}
