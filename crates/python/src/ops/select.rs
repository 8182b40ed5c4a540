//! Brackets: `x[…]` and `x[…] = v`, with integers, slices, `None`, `...`, tensors, lists and masks.

use pyo3::{
    prelude::*,
    types::{PyBool, PyEllipsis, PySlice, PyTuple},
};
use taper::{DType, Index, Result, Tensor};

use crate::{
    args::{Operand, built},
    errors::{index, runtime, wrong_type, wrong_value},
    tensor::{PyTensor, made, run},
    view::{Part, Recipe},
};

/// An index of one axis, counted from the start.
pub(crate) fn place(at: isize, size: usize, axis: usize) -> PyResult<usize> {
    let from_start = if at < 0 { at + size as isize } else { at };
    if (0..size as isize).contains(&from_start) {
        return Ok(from_start as usize);
    }
    Err(index(format!("index {at} is out of bounds for dimension {axis} with size {size}")))
}

/// One element of brackets.
enum Item<'py> {
    At(isize),
    Slice(Bound<'py, PySlice>),
    New,
    Rest,
    Tensor(Tensor),
}

fn item<'py>(object: &Bound<'py, PyAny>) -> PyResult<Item<'py>> {
    if let Ok(tensor) = object.cast::<PyTensor>() {
        let value = tensor.get().read()?;
        if value.rank() == 0 && value.dtype().is_int() {
            return Ok(Item::At(tensor.get().scalar(object.py())?.as_i64() as isize));
        }
        // Bytes are masks, as they were before PyTorch had truth values.
        let is_mask = value.dtype() == DType::U8;
        return Ok(Item::Tensor(if is_mask { built(value.to_dtype(DType::Bool))? } else { value }));
    }
    if object.is_none() {
        return Ok(Item::New);
    }
    if object.is_instance_of::<PyEllipsis>() {
        return Ok(Item::Rest);
    }
    if let Ok(slice) = object.cast::<PySlice>() {
        return Ok(Item::Slice(slice.clone()));
    }
    if let Ok(truth) = object.cast::<PyBool>() {
        let value = Tensor::full((), truth.is_true(), (DType::Bool, &taper::cpu()));
        return Ok(Item::Tensor(built(value)?));
    }
    if let Ok(at) = object.extract::<isize>() {
        return Ok(Item::At(at));
    }
    if object.hasattr("__len__")? {
        let tensor = object.py().import("taper")?.getattr("tensor")?.call1((object,))?;
        let value = tensor.cast::<PyTensor>()?.get().read()?;
        // An empty list is one of integers.
        let empty = value.numel() == 0 && value.dtype().is_float();
        return Ok(Item::Tensor(if empty { built(value.to_dtype(DType::I64))? } else { value }));
    }
    Err(index(format!(
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid indices (got {})",
        object.get_type().name()?
    )))
}

/// The brackets of a tensor with these sizes, an item for each axis and each new one.
enum Brackets {
    /// Integers and slices: a view.
    Plain(Vec<Part>),
    /// With tensors among them: elements are gathered.
    Gathered(Vec<Index>),
}

fn brackets(object: &Bound<'_, PyAny>, x: &Tensor) -> PyResult<Brackets> {
    let items = match object.cast::<PyTuple>() {
        Ok(tuple) => tuple.iter().map(|part| item(&part)).collect::<PyResult<Vec<_>>>()?,
        Err(_) => vec![item(object)?],
    };
    let taken = |item: &Item<'_>| match item {
        Item::New | Item::Rest => 0,
        Item::Tensor(mask) if mask.dtype() == DType::Bool => mask.rank(),
        Item::At(_) | Item::Slice(_) | Item::Tensor(_) => 1,
    };
    let named: usize = items.iter().map(taken).sum();
    if named > x.rank() {
        return Err(index(format!("too many indices for tensor of dimension {}", x.rank())));
    }
    let gathers = items.iter().any(|item| matches!(item, Item::Tensor(_)));
    let (mut parts, mut all, mut axis) = (Vec::new(), Vec::new(), 0);
    let mut rest = Some(x.rank() - named);
    for item in items {
        let part = match item {
            Item::New => Part::New,
            Item::At(at) => Part::At(place(at, x.dims()[axis], axis)?),
            Item::Slice(slice) => sliced(&slice, x.dims()[axis])?,
            Item::Rest => {
                let Some(count) = rest.take() else {
                    return Err(index("an index can only have a single ellipsis ('...')"));
                };
                for &len in &x.dims()[axis..axis + count] {
                    let whole = Part::Slice { start: 0, len, step: 1 };
                    all.push(whole.index());
                    parts.push(whole);
                }
                axis += count;
                continue;
            }
            Item::Tensor(tensor) => {
                axis += if tensor.dtype() == DType::Bool { tensor.rank() } else { 1 };
                all.push(Index::Tensor(built(tensor.to(&x.device()))?));
                continue;
            }
        };
        axis += usize::from(!matches!(part, Part::New));
        all.push(part.index());
        parts.push(part);
    }
    Ok(if gathers { Brackets::Gathered(all) } else { Brackets::Plain(parts) })
}

fn sliced(slice: &Bound<'_, PySlice>, size: usize) -> PyResult<Part> {
    let step = slice.getattr("step")?;
    let step: isize = if step.is_none() { 1 } else { step.extract()? };
    if step <= 0 {
        return Err(wrong_value("step must be greater than zero"));
    }
    let bound = |name: &str, missing: isize| -> PyResult<usize> {
        let bound = slice.getattr(name)?;
        let at: isize = if bound.is_none() { missing } else { bound.extract()? };
        let size = size as isize;
        Ok((if at < 0 { at + size } else { at }).clamp(0, size) as usize)
    };
    let (start, stop) = (bound("start", 0)?, bound("stop", size as isize)?);
    let len = stop.saturating_sub(start).div_ceil(step.unsigned_abs());
    Ok(Part::Slice { start, len, step: step.unsigned_abs() })
}

/// A value without the leading axes of size 1 that the part has not, as PyTorch accepts it.
fn trimmed(value: Tensor, part: &Tensor) -> Result<Tensor> {
    let extra = value.rank().saturating_sub(part.rank());
    let ones = value.dims().iter().take_while(|&&size| size == 1).count();
    match extra.min(ones) {
        0 => Ok(value),
        left_out => value.reshape(&value.dims()[left_out..]),
    }
}

#[pymethods]
impl PyTensor {
    fn __getitem__(slf: &Bound<'_, Self>, object: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
        let x = slf.get().read()?;
        // A mask without axes is one along a new axis.
        if let Ok(Item::Tensor(mask)) = item(object)
            && mask.rank() == 0
        {
            return made(slf.py(), "IndexBackward0", move || {
                x.unsqueeze(0)?.i(mask.to(&x.device())?.reshape([1])?)
            });
        }
        match brackets(object, &x)? {
            Brackets::Gathered(all) => made(slf.py(), "IndexBackward0", move || x.i(all)),
            Brackets::Plain(parts) => {
                let name = match parts.last() {
                    Some(Part::At(_)) => "SelectBackward0",
                    Some(Part::New) => "UnsqueezeBackward0",
                    Some(Part::Slice { .. }) => "SliceBackward0",
                    None => "AliasBackward0",
                };
                slf.get().view_by(Recipe::Index(parts), name)
            }
        }
    }

    fn __setitem__(
        &self,
        py: Python<'_>,
        object: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.refuse_leaf(true)?;
        let x = self.read()?;
        let value = value.extract::<Operand>().map_err(|_| {
            let (given, own) = (value.get_type(), crate::print::type_name(x.dtype()));
            wrong_type(format!("can't assign a {given} to a torch.{own}Tensor"))
        })?;
        let number = match &value {
            Operand::Number(_) => true,
            Operand::Tensor(tensor) => tensor.rank() == 0,
        };
        let found = brackets(object, &x)?;
        let (dtype, device) = (x.dtype(), x.device());
        let next = run(py, move || {
            let value = match value {
                Operand::Number(number) => Tensor::full((), number, (dtype, &device))?,
                Operand::Tensor(tensor) => tensor.to(&device)?.to_dtype(dtype)?,
            };
            match found {
                Brackets::Plain(parts) => {
                    let all: Vec<Index> = parts.iter().map(Part::index).collect();
                    let value = trimmed(value, &x.i(all.clone())?)?;
                    x.index_put(all, &value, false)
                }
                Brackets::Gathered(all) => match &all[..] {
                    // One number under a mask needs no search for the places, and a mask without axes chooses
                    // all or nothing.
                    [Index::Tensor(mask)] if mask.dtype() == DType::Bool && (number || mask.rank() == 0) => {
                        // No number is enough where the mask chooses nothing.
                        if value.numel() == 0 && x.numel() > 0 && !mask.any().item::<bool>()? {
                            return Ok(x);
                        }
                        let value = trimmed(value, &x)?.expand(x.dims())?;
                        let mut mask = mask.clone();
                        for _ in mask.rank()..x.rank() {
                            mask = mask.unsqueeze(-1)?;
                        }
                        mask.where_cond(&value, &x)
                    }
                    _ => x.index_put(all, &value, false),
                },
            }
        });
        let next =
            next.map_err(|error| match error.is_instance_of::<pyo3::exceptions::PyIndexError>(py) {
                true => error,
                false => runtime(format!("shape mismatch: {error}")),
            })?;
        self.write(py, &next, "CopySlices")
    }

    /// `index_put` with a list of index tensors.
    #[pyo3(signature = (indices, values, accumulate = false))]
    fn index_put(
        &self,
        py: Python<'_>,
        indices: &Bound<'_, PyAny>,
        values: crate::args::Value,
        accumulate: bool,
    ) -> PyResult<PyTensor> {
        let x = self.read()?;
        let indices = crate::args::values(indices)?;
        made(py, "IndexPutBackward0", move || {
            let all: Vec<Index> = indices.into_iter().map(Index::Tensor).collect();
            x.index_put(all, values.0.to_dtype(x.dtype())?, accumulate)
        })
    }
}
