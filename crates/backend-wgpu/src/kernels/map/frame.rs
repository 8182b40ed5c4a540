//! Outputs with zeros around their elements: functions of an element's and of a zero's place in the buffer.

use tensor_core::{DType, Kernel, kernel::Output};

use crate::codegen::{dispatch::Dispatch, dtypes::loaded, wgsl::Code};

/// The outputs of a map or row kernel that have a frame.
pub(crate) struct Frames {
    of: Vec<Option<Framed>>,
}

/// An output in a frame.
struct Framed {
    dtype: DType,
    /// The length of its runs along the last axis.
    run: usize,
}

impl Frames {
    /// Adds the functions of a kernel's outputs in frames. The dispatch has this number of invocations.
    pub(crate) fn new(kernel: &Kernel, invocations: usize, d: &mut Dispatch) -> Frames {
        if kernel.is_framed() {
            d.params.size("invocations", invocations);
        }
        Frames { of: kernel.outputs.iter().enumerate().map(|(o, output)| framed(o, output, d)).collect() }
    }

    /// Whether output `o` has a frame.
    pub(crate) fn has(&self, o: usize) -> bool {
        self.of[o].is_some()
    }

    /// The place in the buffer of output `o` of the element at a flat position.
    pub(crate) fn place(&self, o: usize, position: &str) -> String {
        if self.has(o) { format!("framed{o}({position})") } else { position.to_string() }
    }

    /// Stores four neighbours of output `o`, which has a frame, from a position on that is a multiple of 4.
    /// The position of each is below `end`, unless all are.
    pub(crate) fn store_four(&self, o: usize, at: &str, four: [String; 4], end: Option<&str>, c: &mut Code) {
        if self.of[o].as_ref().is_some_and(|framed| framed.run % 4 == 0) {
            c.bind(format_args!("place{o}"), format_args!("framed{o}({at})"));
            for (e, value) in four.iter().enumerate() {
                c.line(format_args!("store_out{o}(place{o} + {e}u, {value});"));
            }
            return;
        }
        for (e, value) in four.iter().enumerate() {
            let stored = format!("store_out{o}(framed{o}({at} + {e}u), {value});");
            match end {
                Some(end) => c.when(format_args!("{at} + {e}u < {end}"), |c| c.line(stored)),
                None => c.line(stored),
            }
        }
    }

    /// Stores the zeros, a share in each invocation of workgroups of this size.
    pub(crate) fn zeros(&self, size: usize, c: &mut Code) {
        let from = format!("workgroup_index * {size}u + local_index");
        for (o, framed) in self.of.iter().enumerate() {
            let Some(Framed { dtype, .. }) = framed else { continue };
            c.count("z", [&from, &format!("params.f{o}_zeros"), "params.invocations"], |c| {
                c.line(format_args!("store_out{o}(zero{o}(z), {}());", loaded(*dtype)));
            });
        }
    }
}

/// The functions `framed<o>(i)`, the place of element i, and `zero<o>(b)`, the place of zero b: in each plane
/// the runs above the elements, the ends of their runs, and the runs below.
fn framed(o: usize, output: &Output, d: &mut Dispatch) -> Option<Framed> {
    let (frame, &[.., rows, columns]) = (output.frame?, &output.shape[..]) else { return None };
    let ([top, left], [bottom, right]) = (frame.before, frame.after);
    let (height, width) = (top + rows + bottom, left + columns + right);
    let around = height * width - rows * columns;
    let planes = output.shape.numel() / (rows * columns).max(1);
    let name = |of: &str| format!("f{o}_{of}");
    for (of, size) in [
        ("rows", rows),
        ("columns", columns),
        ("top", top),
        ("left", left),
        ("height", height),
        ("width", width),
        ("around", around),
        ("zeros", planes * around),
    ] {
        d.params.size(name(of), size);
    }
    let param = |of: &str| format!("params.{}", name(of));
    let [rows, cols, top, left, height, width, around] =
        ["rows", "columns", "top", "left", "height", "width", "around"].map(param);
    d.code.function(&format!("framed{o}"), &[("i", "u32")], "u32", |c| {
        c.bind("row", format_args!("i / {cols}"));
        c.bind("plane", format_args!("row / {rows}"));
        c.bind("y", format_args!("plane * {height} + row - plane * {rows} + {top}"));
        c.line(format_args!("return y * {width} + i - row * {cols} + {left};"));
    });
    d.code.function(&format!("zero{o}"), &[("b", "u32")], "u32", |c| {
        c.bind("plane", format_args!("b / {around}"));
        c.bind("r", format_args!("b - plane * {around}"));
        c.bind("base", format_args!("plane * {height} * {width}"));
        c.bind("above", format_args!("{top} * {width}"));
        c.bind("side", format_args!("{width} - {cols}"));
        c.when("r < above", |c| c.line("return base + r;"));
        c.bind("m", "r - above");
        c.when(format_args!("m < {rows} * side"), |c| {
            c.bind("y", "m / side");
            c.bind("x", "m - y * side");
            c.line(format_args!("return base + above + y * {width} + x + select(0u, {cols}, x >= {left});"));
        });
        c.line(format_args!("return base + above + {rows} * {width} + m - {rows} * side;"));
    });
    Some(Framed { dtype: output.dtype, run: columns })
}
