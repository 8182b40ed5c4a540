//! Recipes: how a view is taken of its base, and how a new value of the view becomes one of the base. A
//! list of recipes is a view of a view.

use taper::{Error, Index, NewAxis, Result, StepBy, Tensor};

/// A part of one axis that brackets name, with every number inside of the axis.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    At(usize),
    Slice { start: usize, len: usize, step: usize },
    New,
}

impl Part {
    pub(crate) fn index(&self) -> Index {
        match *self {
            Part::At(at) => at.into(),
            Part::Slice { start, len, step } => {
                let end = if len == 0 { start } else { start + (len - 1) * step + 1 };
                StepBy(start..end, step as isize).into()
            }
            Part::New => NewAxis.into(),
        }
    }
}

/// One step from a base to a view.
#[derive(Clone, Debug)]
pub(crate) enum Recipe {
    /// The axes in this order.
    Permute(Vec<usize>),
    /// The same elements in order, with these sizes.
    Reshape(Vec<usize>),
    /// A part that integers and slices name.
    Index(Vec<Part>),
    /// Repeated along new axes and axes of size 1: elements share memory, so it cannot be written.
    Expand(Vec<usize>),
    /// A diagonal of two axes, which becomes the last axis.
    Diagonal(isize, usize, usize),
    /// Overlapping windows of an axis as a last axis, which cannot be written: axis, size, step.
    Unfold(usize, usize, usize),
    /// The same values without their history.
    Detach,
}

impl Recipe {
    /// The view of a base.
    pub(crate) fn take(&self, base: &Tensor) -> Result<Tensor> {
        match self {
            Recipe::Permute(order) => base.permute(order),
            Recipe::Reshape(dims) => base.reshape(dims),
            Recipe::Index(parts) => base.i(parts.iter().map(Part::index).collect::<Vec<_>>()),
            Recipe::Expand(dims) => base.expand(dims),
            Recipe::Diagonal(offset, first, second) => base.diagonal(*offset, *first, *second),
            Recipe::Unfold(axis, size, step) => base.unfold(*axis, *size, *step),
            Recipe::Detach => Ok(base.detach()),
        }
    }

    /// The base with this view of it replaced.
    fn put(&self, base: &Tensor, value: &Tensor) -> Result<Tensor> {
        match self {
            Recipe::Permute(order) => {
                let mut back = vec![0; order.len()];
                order.iter().enumerate().for_each(|(to, &from)| back[from] = to);
                value.permute(back)
            }
            Recipe::Reshape(_) => value.reshape(base.dims()),
            Recipe::Index(parts) => {
                base.index_put(parts.iter().map(Part::index).collect::<Vec<_>>(), value, false)
            }
            Recipe::Diagonal(offset, first, second) => base.diagonal_scatter(value, *offset, *first, *second),
            // Only axes of one element were added: no element is there twice.
            Recipe::Expand(_) if base.shape().numel() == value.shape().numel() => value.reshape(base.dims()),
            Recipe::Expand(_) | Recipe::Unfold(..) => Err(Error::invalid(
                "unsupported operation",
                "more than one element of the written-to tensor refers to a single memory location. Please \
                 clone() the tensor before performing the operation.",
            )),
            Recipe::Detach => Ok(value.clone()),
        }
    }

    /// Whether the view is without history.
    pub(crate) fn is_detach(&self) -> bool {
        matches!(self, Recipe::Detach)
    }
}

/// The view that a list of recipes takes of a base.
pub(crate) fn take(recipes: &[Recipe], base: &Tensor) -> Result<Tensor> {
    let mut view = base.clone();
    for recipe in recipes {
        view = recipe.take(&view)?;
    }
    Ok(view)
}

/// The base with the view of a list of recipes replaced.
pub(crate) fn put(recipes: &[Recipe], base: &Tensor, value: &Tensor) -> Result<Tensor> {
    let mut between = vec![base.clone()];
    for recipe in recipes.iter().take(recipes.len().saturating_sub(1)) {
        let next = recipe.take(&between[between.len() - 1])?;
        between.push(next);
    }
    let mut value = value.clone();
    for (recipe, base) in recipes.iter().zip(&between).rev() {
        value = recipe.put(base, &value)?;
    }
    Ok(value)
}

/// The places of a tensor's elements in the memory that PyTorch would give it. Taper needs no strides; they
/// decide here whether `reshape` is a view and whether `view` is refused, and `stride()` shows them.
#[derive(Clone, Debug)]
pub(crate) struct Strided {
    pub(crate) strides: Vec<isize>,
    pub(crate) offset: isize,
}

impl Strided {
    pub(crate) fn contiguous(dims: &[usize]) -> Strided {
        let mut strides = vec![1; dims.len()];
        for axis in (1..dims.len()).rev() {
            strides[axis - 1] = strides[axis] * dims[axis].max(1) as isize;
        }
        Strided { strides, offset: 0 }
    }

    pub(crate) fn is_contiguous(&self, dims: &[usize]) -> bool {
        let empty = dims.contains(&0);
        let plain = Strided::contiguous(dims).strides;
        empty
            || self
                .strides
                .iter()
                .zip(&plain)
                .zip(dims)
                .all(|((own, plain), &size)| size == 1 || own == plain)
    }

    /// The strides of the same memory with other sizes, or `None` if no strides say it.
    pub(crate) fn reshaped(&self, from: &[usize], to: &[usize]) -> Option<Strided> {
        if from.contains(&0) {
            return Some(Strided { offset: self.offset, ..Strided::contiguous(to) });
        }
        let mut strides = vec![0; to.len()];
        let mut axis = to.len();
        // Runs of axes whose elements are evenly spaced, from the last axis on.
        let mut base = self.strides.last().copied().unwrap_or(1);
        let (mut run, mut taken) = (1usize, 1usize);
        for d in (0..from.len()).rev() {
            run *= from[d];
            let ends = d == 0 || from[d - 1] != 1 && self.strides[d - 1] != run as isize * base;
            if !ends {
                continue;
            }
            while axis > 0 && (taken < run || to[axis - 1] == 1) {
                axis -= 1;
                strides[axis] = taken as isize * base;
                taken *= to[axis];
            }
            if taken != run {
                return None;
            }
            if d > 0 {
                base = self.strides[d - 1];
                (run, taken) = (1, 1);
            }
        }
        if from.is_empty() {
            strides.fill(1);
            axis = 0;
        }
        (axis == 0).then_some(Strided { strides, offset: self.offset })
    }

    /// The strides after one more recipe; `from` are the sizes before it, `to` those after it.
    pub(crate) fn after(&self, recipe: &Recipe, from: &[usize], to: &[usize]) -> Strided {
        let (own, offset) = (&self.strides, self.offset);
        match recipe {
            Recipe::Permute(order) => {
                Strided { strides: order.iter().map(|&axis| own[axis]).collect(), offset }
            }
            Recipe::Reshape(_) => {
                self.reshaped(from, to).unwrap_or_else(|| Strided { offset, ..Strided::contiguous(to) })
            }
            Recipe::Index(parts) => self.indexed(parts),
            Recipe::Expand(_) => {
                let new = to.len() - from.len();
                let stride = |axis: usize| match axis.checked_sub(new) {
                    Some(old) if from[old] == to[axis] => own[old],
                    _ => 0,
                };
                Strided { strides: (0..to.len()).map(stride).collect(), offset }
            }
            Recipe::Diagonal(by, first, second) => {
                let start = if *by >= 0 { by * own[*second] } else { -by * own[*first] };
                let others = (0..from.len()).filter(|axis| axis != first && axis != second);
                let strides = others.map(|axis| own[axis]).chain([own[*first] + own[*second]]).collect();
                Strided { strides, offset: offset + start }
            }
            Recipe::Unfold(axis, _, step) => {
                let mut strides = own.clone();
                strides[*axis] *= *step as isize;
                strides.push(own[*axis]);
                Strided { strides, offset }
            }
            Recipe::Detach => self.clone(),
        }
    }

    /// After integers, slices and new axes.
    fn indexed(&self, parts: &[Part]) -> Strided {
        let (mut strides, mut offset, mut axis) = (Vec::new(), self.offset, 0);
        for part in parts {
            match *part {
                Part::New => {
                    strides.push(strides.last().copied().unwrap_or(1));
                    continue;
                }
                Part::At(at) => offset += at as isize * self.strides[axis],
                Part::Slice { start, step, .. } => {
                    offset += start as isize * self.strides[axis];
                    strides.push(self.strides[axis] * step as isize);
                }
            }
            axis += 1;
        }
        strides.extend(&self.strides[axis..]);
        Strided { strides, offset }
    }
}
