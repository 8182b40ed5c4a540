//! The questions of `window.rs` about a body whose kernel is larger than a binding: which temporary is large,
//! along which axes there are parts, the dispatches of a piece and of a part, and how the results of parts
//! are joined. The file of each body has its answers.

use std::ops::Range;

use smallvec::SmallVec;
use tensor_core::{DType, Result, kernel::Kernel};

use crate::codegen::{
    capabilities::Capabilities,
    dispatch::{Dispatches, Resource},
    dtypes::storage_size,
};

/// For each input, the output whose buffer it shares, if there is one.
pub(crate) type Aliases = SmallVec<[Option<u8>; 8]>;

/// The temporaries that a piece may have. Temporaries with copies of its operands follow.
pub(crate) const PIECE_TEMPORARIES: usize = 11;

/// How kernels of one body are cut. A *piece* is the kernel over some positions along axes that the outputs
/// have. A *part* is the kernel over some positions along an inner axis ([`Inner`]).
pub(crate) trait Cut {
    /// The dispatches of a piece whose operands and outputs fit one binding each.
    fn piece(&self, kernel: &Kernel, place: Place<'_>) -> Result<Dispatches>;

    /// Whether results depend on the flat position, so that a piece must start at a single one.
    fn is_positional(&self) -> bool {
        false
    }

    /// Whether dispatches change elements of the output, which holds operand 0 before.
    fn changes_output(&self) -> bool {
        false
    }

    /// The largest temporary, if it may be larger than the output.
    fn temporary(&self, _kernel: &Kernel) -> Option<Temporary> {
        None
    }

    /// The axes along which there are parts.
    fn inner(&self, _kernel: &Kernel) -> Inner {
        Inner::default()
    }

    /// The dispatches of the next part.
    fn part(&self, part: &Kernel, parts: &mut Parts<'_>) -> Result<Dispatches> {
        self.piece(part, parts.place)
    }

    /// The dispatches that compute a piece from the results of its parts, if the parts have not written them
    /// to their places in the output.
    fn join(&self, _kernel: &Kernel, _parts: &Parts<'_>) -> Result<Dispatches> {
        Ok(Dispatches::default())
    }
}

/// The place of a piece, and what else its dispatches depend on.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The whole kernel.
    pub(crate) whole: &'a Kernel,
    /// The start of the piece along each axis of the space.
    pub(crate) origin: &'a [usize],
    /// The inputs of the piece that share an output's buffer.
    pub(crate) aliases: &'a Aliases,
    pub(crate) capabilities: &'a Capabilities,
}

impl Place<'_> {
    /// The flat index of the piece's first position.
    pub(crate) fn first(&self) -> usize {
        let steps = self.whole.space.contiguous_strides();
        self.origin.iter().zip(&steps).map(|(&at, step)| at * step.unsigned_abs()).sum()
    }
}

/// A temporary of a kernel.
pub(crate) struct Temporary {
    pub(crate) dtype: DType,
    pub(crate) elements: usize,
    /// The axis along which a cut makes it smaller, unless that is the first axis that can be cut.
    pub(crate) axis: Option<usize>,
}

/// The axes along which a kernel has parts: axes that its result does not have, or that its result indexes.
#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) axes: SmallVec<[usize; 5]>,
    /// The operands that are split; empty if the space is, and all operands with it.
    pub(crate) operands: Range<usize>,
    /// The loop iterations of one invocation along these axes, if the kernel does not share them between
    /// invocations.
    pub(crate) rounds: usize,
    /// Whether the results of parts go to temporaries and are joined.
    pub(crate) is_joined: bool,
}

impl Inner {
    /// The reduced axes of a kernel.
    pub(crate) fn reduced(kernel: &Kernel) -> Inner {
        Inner { axes: kernel.reduced_axes(), is_joined: true, ..Inner::default() }
    }

    /// An axis that only some operands have in full.
    pub(crate) fn of_operands(axis: usize, operands: Range<usize>) -> Inner {
        Inner { axes: SmallVec::from_slice(&[axis]), operands, ..Inner::default() }
    }

    /// Whether an operand has an axis in full that the space does not have.
    pub(crate) fn is_of_operand(&self, axis: usize, k: usize) -> bool {
        self.axes.contains(&axis) && self.operands.contains(&k)
    }

    /// The size of an axis.
    pub(crate) fn size(&self, kernel: &Kernel, axis: usize) -> usize {
        let shape = if self.operands.is_empty() {
            &kernel.space
        } else {
            kernel.operands[self.operands.start].layout.shape()
        };
        shape[axis]
    }

    /// The part of a kernel over some positions along an axis.
    pub(crate) fn part(&self, kernel: &Kernel, axis: usize, start: usize, len: usize) -> Option<Kernel> {
        if self.operands.is_empty() {
            return kernel.narrow(axis, start, len);
        }
        let mut part = kernel.clone();
        for operand in &mut part.operands[self.operands.clone()] {
            operand.layout = operand.layout.slice(axis, start, len, 1);
        }
        Some(part)
    }
}

/// The parts of a piece, of which some are made.
pub(crate) struct Parts<'a> {
    /// The place of the piece.
    pub(crate) place: Place<'a>,
    /// The number of all parts.
    pub(crate) count: usize,
    /// The distance between neighbouring results of the same element, in elements.
    pub(crate) pitch: usize,
    /// The positions along the inner axis that the parts made so far have.
    pub(crate) positions: usize,
    /// The results of each element that they have stored.
    pub(crate) results: usize,
}

impl Parts<'_> {
    /// The temporary with the results that [`Parts::stored`] redirects.
    pub(crate) const RESULTS: Resource = Resource::Temporary(0);

    /// The dispatches of a part whose output, elements of a dtype, becomes the next result of each element.
    /// The part's own temporaries follow [`Parts::RESULTS`].
    pub(crate) fn stored(&mut self, mut made: Dispatches, dtype: DType) -> Dispatches {
        made.shift_temporaries();
        let start = (self.results * self.pitch * storage_size(dtype)) as u64;
        for binding in made.bindings() {
            if let Resource::Output(_) = binding.resource {
                (binding.resource, binding.start) = (Parts::RESULTS, start);
            }
        }
        self.results += 1;
        made
    }
}
