//! Gathers: reading by index along an axis, in runs of elements that share one index.

use tensor_core::{
    Layout, Result, collapse,
    kernel::{IndexedAxis, Instr, Kernel, Program},
};

use crate::{
    codegen::{
        capabilities::Capabilities,
        dispatch::{Dispatch, Dispatches, Resource},
        dtypes::{per_word, storage_size},
        index,
        storage::Elements,
    },
    kernels::{
        by_index::{Along, index_functions, multiples, off_axis},
        copy,
        cut::{Aliases, Cut, Inner, Parts, Place},
        map::elementwise,
    },
};

/// The body of a gather.
pub(crate) struct Gather {
    pub(crate) axis: usize,
}

impl Gather {
    /// The slice of the table from position `start` on.
    fn along(&self, start: usize, whole: &Kernel) -> Along {
        Along { axis: self.axis, start, size: whole.operands[0].layout.shape()[self.axis] }
    }
}

impl Cut for Gather {
    fn piece(&self, kernel: &Kernel, place: Place<'_>) -> Result<Dispatches> {
        let along = self.along(0, place.whole);
        match decoding(kernel, along) {
            Some((map, program)) => {
                let aliases = Aliases::from_elem(None, 2);
                elementwise::dispatches(&map, &program, &aliases, place.first(), place.capabilities)
            }
            None => Ok(dispatch(kernel, along, place.capabilities).into()),
        }
    }

    fn inner(&self, _: &Kernel) -> Inner {
        Inner::of_operands(self.axis, 0..1)
    }

    fn part(&self, part: &Kernel, parts: &mut Parts<'_>) -> Result<Dispatches> {
        let along = self.along(parts.positions, parts.place.whole);
        parts.positions += part.operands[0].layout.shape()[self.axis];
        Ok(dispatch(part, along, parts.place.capabilities).into())
    }
}

/// The dispatch of a gather from the slice of the table that the kernel has.
fn dispatch(kernel: &Kernel, along: Along, capabilities: &Capabilities) -> Dispatch {
    let (axis, dtype) = (along.axis, kernel.outputs[0].dtype);
    let (input, index) = (&kernel.operands[0].layout, &kernel.operands[1].layout);
    let index_dtype = kernel.operands[1].dtype;
    let merged = collapse(index.shape(), &[index.strides(), &off_axis(input.strides(), axis)]);
    let (mut shape, mut strides) = (merged.shape, merged.strides);
    let mut axis_stride = input.strides()[axis];
    let mut offset = input.offset();
    // The elements that share one index; they are contiguous in the output.
    let (mut run, mut run_stride) = (1, 0);
    if let (Some(&n), Some(0)) = (shape.last(), strides[0].last()) {
        shape.pop();
        strides[0].pop();
        (run, run_stride) = (n, strides[1].pop().unwrap_or(0));
    }
    // Splits runs into whole words, of several elements each or of one, and then into groups of four words.
    let per_word = per_word(dtype);
    let mut divide = |by: usize| {
        let whole =
            multiples(by, &[run as isize, axis_stride, offset as isize]) && multiples(by, &strides[1]);
        let fits = by > 1 && run_stride == 1 && whole;
        if fits {
            (run, offset, axis_stride) = (run / by, offset / by, axis_stride / by as isize);
            strides[1].iter_mut().for_each(|s| *s /= by as isize);
        }
        fits
    };
    let whole_words = divide(per_word) || per_word == 1;
    let word = match storage_size(dtype) {
        8 => "vec2<u32>",
        _ if whole_words && divide(4) => "vec4<u32>",
        _ => "u32",
    };
    let elements = || if whole_words { Elements::from(word) } else { Elements::bits(dtype) };
    let mut d = Dispatch::new("gather");
    let runs = shape.iter().product::<usize>();
    if whole_words {
        copy::in_runs(runs, run, MAX_GATHER_WORDS, &mut d, capabilities);
    } else {
        d.params.size("total", runs * run);
        d.params.size("run", run);
        d.workgroups = (runs * run).div_ceil(256 * 4);
        d.work = 256 * 4;
    }
    d.params.stride("run_stride", run_stride);
    d.params.size("start", along.start);
    d.params.size("count", input.shape()[axis]);
    d.params.size("size", along.size);
    d.params.stride("axis_stride", axis_stride);
    d.bind("input", elements(), false, Resource::Input(0));
    d.bind("index", Elements::of(index_dtype), false, Resource::Input(1));
    d.bind("output", elements().in_fours(!whole_words), true, Resource::Output(0));
    d.code.line(format_args!("alias Word = {word};"));
    index_functions(index_dtype, &mut d);
    let operands = [(&strides[0][..], index.offset()), (&strides[1][..], offset)];
    d.code.append(&index::places(&shape, &operands, &mut d.params));
    d.code.kernel(256, if whole_words { taper_shaders::GATHER } else { taper_shaders::GATHER_FOUR });
    d
}

/// A gather from a block format, as a map that reads at indices and decodes the loaded elements; None for
/// other tables.
fn decoding(kernel: &Kernel, along: Along) -> Option<(Kernel, Program)> {
    let [table, index] = &kernel.operands[..] else { return None };
    let format = table.format.clone()?;
    let Along { axis, size, .. } = along;
    let program = Program {
        instrs: vec![Instr::Load(1), Instr::LoadAt { input: 0, index: 0 }],
        dtypes: vec![index.dtype, table.dtype],
        inputs: vec![table.dtype, index.dtype],
        scalars: Vec::new(),
        outputs: vec![1],
    };
    let strides = off_axis(table.layout.strides(), axis);
    let from = Layout::new(kernel.space.clone(), &strides, table.layout.offset());
    let axis = IndexedAxis { axis, size, stride: table.layout.strides()[axis] };
    let mut map = Kernel::map(kernel.space.clone(), [from, index.layout.clone()], program.clone())
        .with_indexed([Some(axis), None]);
    map.operands[0].format = Some(format);
    Some((map, program))
}

/// The most words that one invocation of a software adapter reads from one run.
const MAX_GATHER_WORDS: usize = 64;
