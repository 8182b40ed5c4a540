//! Tensors as text, exactly as PyTorch prints them: four digits, aligned columns, the middle of large
//! tensors elided, then the device, the size of an empty tensor, an unusual dtype and the gradient.

use pyo3::prelude::*;
use taper::{DType, Result, Scalar, Tensor};

use crate::device::PyDevice;

/// The settings of `set_printoptions`.
#[derive(Clone, Copy, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    precision: usize,
    threshold: usize,
    edgeitems: usize,
    linewidth: usize,
    sci_mode: Option<bool>,
}

const PREFIX: &str = "tensor(";

/// The name that PyTorch's messages have for a dtype, such as `Float`.
pub(crate) fn type_name(dtype: DType) -> String {
    let name = match dtype {
        DType::F32 => "Float",
        DType::F64 => "Double",
        DType::F16 => "Half",
        DType::BF16 => "BFloat16",
        DType::I64 => "Long",
        DType::I32 => "Int",
        DType::I16 => "Short",
        DType::I8 => "Char",
        DType::U8 => "Byte",
        DType::Bool => "Bool",
        other => return format!("{other:?}"),
    };
    name.to_string()
}

/// The text of a tensor; `state` says what it has to do with gradients.
pub(crate) fn text(
    tensor: &Tensor,
    device: PyDevice,
    state: Option<String>,
    options: &Options,
) -> Result<String> {
    let tensor = tensor.detach();
    let mut suffixes = Vec::new();
    let place = device.text();
    if place != "cpu" {
        suffixes.push(format!("device='{place}'"));
    }
    let dtype = tensor.dtype();
    let usual = [taper::default_dtype(), DType::I64, DType::Bool].contains(&dtype);
    let body = if tensor.numel() == 0 {
        if tensor.rank() != 1 {
            suffixes.push(format!("size={}", tuple(tensor.dims())));
        }
        if dtype != taper::default_dtype() {
            suffixes.push(format!("dtype=torch.{}", crate::dtype::name(dtype)));
        }
        "[]".to_string()
    } else {
        if !usual {
            suffixes.push(format!("dtype=torch.{}", crate::dtype::name(dtype)));
        }
        Page::new(&tensor, options)?.block(0, 0, PREFIX.len())
    };
    suffixes.extend(state);
    let mut out = format!("{PREFIX}{body}");
    let mut last_line = out.chars().rev().take_while(|&c| c != '\n').count() + 1;
    for suffix in suffixes {
        if last_line + suffix.len() + 2 > options.linewidth {
            out.push_str(&format!(",\n{}{suffix}", " ".repeat(PREFIX.len())));
            last_line = PREFIX.len() + suffix.len();
        } else {
            out.push_str(&format!(", {suffix}"));
            last_line += suffix.len() + 2;
        }
    }
    out.push(')');
    Ok(out)
}

/// Sizes as Python writes a tuple.
fn tuple(dims: &[usize]) -> String {
    let list: Vec<String> = dims.iter().map(usize::to_string).collect();
    if dims.len() == 1 { format!("({},)", list[0]) } else { format!("({})", list.join(", ")) }
}

/// How the numbers of a tensor are written.
enum Style {
    /// Integers and truth values.
    Plain,
    /// Floats that are all whole: `1.`.
    Whole,
    /// Digits after the point.
    Fixed,
    /// Digits and an exponent.
    Scientific,
}

/// The part of a tensor that is shown.
struct Page<'a> {
    /// The sizes of what is shown, where an elided axis has twice the edge items.
    dims: Vec<usize>,
    elided: Vec<bool>,
    values: Vec<Scalar>,
    style: Style,
    width: usize,
    options: &'a Options,
}

impl<'a> Page<'a> {
    fn new(tensor: &Tensor, options: &'a Options) -> Result<Page<'a>> {
        let edge = options.edgeitems;
        let summarize = tensor.numel() > options.threshold;
        let mut shown = tensor.clone();
        let mut elided = vec![false; tensor.rank()];
        for (axis, elided) in elided.iter_mut().enumerate() {
            let size = tensor.dims()[axis];
            if summarize && size > 2 * edge {
                let (head, tail) = (shown.narrow(axis, 0, edge)?, shown.narrow(axis, size - edge, edge)?);
                shown = Tensor::concat(&[head, tail], axis)?;
                *elided = true;
            }
        }
        let values = Scalar::from_bytes(shown.dtype(), &shown.read_bytes()?);
        let dims = shown.dims().to_vec();
        let mut page = Page { dims, elided, values, style: Style::Plain, width: 1, options };
        if shown.dtype().is_float() {
            page.choose_style();
        }
        let widths = page.values.iter().map(|&value| page.number(value).len());
        page.width = match page.style {
            Style::Plain => widths.max().unwrap_or(1),
            // As PyTorch: only finite numbers other than zero count.
            _ => {
                let counted = page.values.iter().filter(|value| counts(value.as_f64()));
                counted.map(|&value| page.number(value).len()).max().unwrap_or(1)
            }
        };
        Ok(page)
    }

    fn choose_style(&mut self) {
        self.style = Style::Whole;
        let finite: Vec<f64> =
            self.values.iter().map(|value| value.as_f64()).filter(|&value| counts(value)).collect();
        if finite.is_empty() {
            return;
        }
        let greatest = finite.iter().fold(0f64, |most, value| most.max(value.abs()));
        let least = finite.iter().fold(f64::INFINITY, |least, value| least.min(value.abs()));
        let whole = finite.iter().all(|value| value.fract() == 0.0);
        let wide = greatest / least > 1000.0 || greatest > 1e8 || !whole && least < 1e-4;
        self.style = match (self.options.sci_mode.unwrap_or(wide), whole) {
            (true, _) => Style::Scientific,
            (false, true) => Style::Whole,
            (false, false) => Style::Fixed,
        };
    }

    fn number(&self, value: Scalar) -> String {
        let (precision, v) = (self.options.precision, value.as_f64());
        match (&self.style, value) {
            (Style::Plain, Scalar::Bool(true)) => "True".into(),
            (Style::Plain, Scalar::Bool(false)) => "False".into(),
            (Style::Plain, value) => value.to_string(),
            _ if v.is_nan() => "nan".into(),
            _ if v.is_infinite() => if v > 0.0 { "inf" } else { "-inf" }.into(),
            (Style::Whole, _) => format!("{v:.0}."),
            (Style::Fixed, _) => format!("{v:.precision$}"),
            (Style::Scientific, _) => {
                // Rust writes 1.0e5, Python 1.0e+05.
                let text = format!("{v:.precision$e}");
                let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                let (sign, exponent) =
                    exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
                format!("{digits}e{sign}{exponent:0>2}")
            }
        }
    }

    fn cell(&self, at: usize) -> String {
        format!("{:>width$}", self.number(self.values[at]), width = self.width)
    }

    /// The elements of an axis and those after it, from a first element on.
    fn block(&self, axis: usize, start: usize, indent: usize) -> String {
        if axis == self.dims.len() {
            return self.number(self.values[start]);
        }
        let stride: usize = self.dims[axis + 1..].iter().product();
        let last = axis + 1 == self.dims.len();
        let mut pieces: Vec<String> = (0..self.dims[axis])
            .map(|at| match last {
                true => self.cell(start + at),
                false => self.block(axis + 1, start + at * stride, indent + 1),
            })
            .collect();
        if self.elided[axis] {
            pieces.insert(self.dims[axis] / 2, if last { " ..." } else { "..." }.into());
        }
        if !last {
            let gap = format!(",{}{}", "\n".repeat(self.dims.len() - axis - 1), " ".repeat(indent + 1));
            return format!("[{}]", pieces.join(&gap));
        }
        let a_line = (self.options.linewidth.saturating_sub(indent) / (self.width + 2)).max(1);
        let lines: Vec<String> = pieces.chunks(a_line).map(|line| line.join(", ")).collect();
        format!("[{}]", lines.join(&format!(",\n{}", " ".repeat(indent + 1))))
    }
}

/// Whether a number decides how all are written.
fn counts(value: f64) -> bool {
    value.is_finite() && value != 0.0
}
