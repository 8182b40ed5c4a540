//! Printing in PyTorch's format: four digits, aligned columns, and the middle of large tensors elided.
//! Then come the device (unless it is the CPU), the size of an empty tensor, an unusual dtype, and the
//! gradient state.

use std::fmt;

use crate::tensor::Tensor;
use crate::{
    base::error::Result,
    devices::defaults::default_dtype,
    elements::dtype::{Arithmetic, DType},
};

const PRECISION: usize = 4;
const THRESHOLD: usize = 1000;
const EDGE: usize = 3;
const LINE_WIDTH: usize = 80;
const PREFIX: &str = "tensor(";

/// The precision is PyTorch's: `{:.2}` prints two digits after the point instead of four.
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match render(self, f.precision().unwrap_or(PRECISION)) {
            Ok(text) => f.write_str(&text),
            Err(error) => write!(f, "tensor(<{error}>)"),
        }
    }
}

/// The same as `Display`, because the values are most useful in a test failure.
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[track_caller]
fn render(tensor: &Tensor, precision: usize) -> Result<String> {
    let dims = tensor.dims();
    let mut suffixes = Vec::new();
    let device = tensor.device();
    if device.name() != "cpu" {
        suffixes.push(format!("device={device}"));
    }
    let body = if tensor.numel() == 0 {
        if tensor.rank() != 1 {
            let sizes: Vec<String> = dims.iter().map(usize::to_string).collect();
            suffixes.push(format!("size=({})", sizes.join(", ")));
        }
        "[]".to_string()
    } else {
        let page = Page::new(tensor, precision)?;
        page.block(0, 0, PREFIX.len())
    };
    if ![default_dtype(), device.int_dtype(), DType::Bool].contains(&tensor.dtype()) {
        suffixes.push(format!("dtype={}", tensor.dtype()));
    }
    if tensor.is_tracked() {
        suffixes.push(if tensor.is_leaf() {
            "requires_grad=True".into()
        } else {
            format!("grad_fn={}", tensor.op().grad_name())
        });
    }
    let mut out = format!("{PREFIX}{body}");
    let mut last_line = out.len() - out.rfind('\n').map_or(0, |at| at + 1) + 2;
    for suffix in suffixes {
        if last_line + suffix.len() + 2 > LINE_WIDTH {
            out.push_str(",\n");
            out.push_str(&" ".repeat(PREFIX.len()));
            last_line = PREFIX.len() + suffix.len();
        } else {
            out.push_str(", ");
            last_line += suffix.len() + 2;
        }
        out.push_str(&suffix);
    }
    out.push(')');
    Ok(out)
}

/// The format of a tensor's numbers, chosen by those that are shown.
enum Style {
    Words,
    /// Floats that are all integral: `3.`
    Whole,
    Fixed,
    Scientific,
}

struct Page<'a> {
    dims: &'a [usize],
    values: Vec<f64>,
    /// The text of integers and bools, since f64 would round large integers.
    words: Vec<String>,
    summarize: bool,
    style: Style,
    /// The number of digits after the point.
    precision: usize,
    width: usize,
}

impl<'a> Page<'a> {
    #[track_caller]
    fn new(tensor: &'a Tensor, precision: usize) -> Result<Page<'a>> {
        let dims = tensor.dims();
        let summarize = tensor.numel() > THRESHOLD;
        let mut page = Page {
            dims,
            values: Vec::new(),
            words: Vec::new(),
            summarize,
            style: Style::Words,
            precision,
            width: 1,
        };
        match tensor.dtype().arithmetic() {
            Arithmetic::Bool => {
                let word = |&v: &bool| if v { "True" } else { "False" }.to_string();
                page.words = tensor.to_vec::<bool>()?.iter().map(word).collect();
            }
            Arithmetic::I64 => page.words = tensor.to_vec::<i64>()?.iter().map(i64::to_string).collect(),
            Arithmetic::U64 => page.words = tensor.to_vec::<u64>()?.iter().map(u64::to_string).collect(),
            Arithmetic::I32 | Arithmetic::U32 => {
                page.words = tensor.to_f64_vec()?.iter().map(|v| format!("{v:.0}")).collect();
            }
            Arithmetic::F32 | Arithmetic::F64 => {
                page.values = tensor.to_f64_vec()?;
                page.style = Style::Whole;
            }
        }
        let mut shown = Vec::new();
        page.collect_shown(0, 0, &mut shown);
        if !page.words.is_empty() {
            page.width = shown.iter().map(|&i| page.words[i].len()).max().unwrap_or(1);
            return Ok(page);
        }
        let finite: Vec<f64> =
            shown.iter().map(|&i| page.values[i]).filter(|v| v.is_finite() && *v != 0.0).collect();
        if finite.is_empty() {
            return Ok(page);
        }
        let greatest = finite.iter().fold(0f64, |m, v| m.max(v.abs()));
        let least = finite.iter().fold(f64::INFINITY, |m, v| m.min(v.abs()));
        let whole = finite.iter().all(|v| v.fract() == 0.0);
        page.style = match whole {
            _ if greatest / least > 1000.0 || greatest > 1e8 => Style::Scientific,
            true => Style::Whole,
            false if least < 1e-4 => Style::Scientific,
            false => Style::Fixed,
        };
        page.width = finite.iter().map(|&v| page.number(v).len()).max().unwrap_or(1);
        Ok(page)
    }

    /// The positions along an axis that are shown; `None` is the ellipsis.
    fn positions(&self, axis: usize) -> Vec<Option<usize>> {
        let n = self.dims[axis];
        if self.summarize && n > 2 * EDGE {
            (0..EDGE).map(Some).chain([None]).chain((n - EDGE..n).map(Some)).collect()
        } else {
            (0..n).map(Some).collect()
        }
    }

    fn stride(&self, axis: usize) -> usize {
        self.dims[axis + 1..].iter().product()
    }

    fn collect_shown(&self, axis: usize, start: usize, out: &mut Vec<usize>) {
        if axis == self.dims.len() {
            out.push(start);
            return;
        }
        for at in self.positions(axis).into_iter().flatten() {
            self.collect_shown(axis + 1, start + at * self.stride(axis), out);
        }
    }

    fn number(&self, v: f64) -> String {
        if v.is_nan() {
            return "nan".into();
        }
        if v.is_infinite() {
            return if v > 0.0 { "inf".into() } else { "-inf".into() };
        }
        let precision = self.precision;
        match self.style {
            Style::Words | Style::Whole => format!("{v:.0}."),
            Style::Fixed => format!("{v:.precision$}"),
            Style::Scientific => {
                // Rust writes 1.0e5, Python 1.0e+05.
                let text = format!("{v:.precision$e}");
                let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |e| ('-', e));
                format!("{digits}e{sign}{exponent:0>2}")
            }
        }
    }

    fn cell(&self, i: usize) -> String {
        let text = if self.words.is_empty() { self.number(self.values[i]) } else { self.words[i].clone() };
        format!("{text:>width$}", width = self.width)
    }

    /// The text of the subtensor that starts at element `start`, from an axis on, starting at column
    /// `indent`.
    fn block(&self, axis: usize, start: usize, indent: usize) -> String {
        if axis == self.dims.len() {
            return self.cell(start).trim_start().to_string();
        }
        if axis + 1 == self.dims.len() {
            let cells: Vec<String> = self
                .positions(axis)
                .into_iter()
                .map(|at| at.map_or(" ...".to_string(), |at| self.cell(start + at)))
                .collect();
            let a_line = (LINE_WIDTH.saturating_sub(indent) / (self.width + 2)).max(1);
            let lines: Vec<String> = cells.chunks(a_line).map(|line| line.join(", ")).collect();
            return format!("[{}]", lines.join(&format!(",\n{}", " ".repeat(indent + 1))));
        }
        let blocks: Vec<String> = self
            .positions(axis)
            .into_iter()
            .map(|at| {
                at.map_or("...".to_string(), |at| {
                    self.block(axis + 1, start + at * self.stride(axis), indent + 1)
                })
            })
            .collect();
        let gap = format!(",{}{}", "\n".repeat(self.dims.len() - axis - 1), " ".repeat(indent + 1));
        format!("[{}]", blocks.join(&gap))
    }
}
