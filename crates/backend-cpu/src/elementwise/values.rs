//! The values of a step's operand, with their count: a step that would read past them is an error, in every
//! build. The check is one comparison for an operand of a block.

use tensor_core::{Error, Result};

use crate::memory::buffer::Memory;

/// The values of an operand in a block: an address, and the number of elements that are valid behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Values {
    at: *const u8,
    len: u32,
    /// Whether all elements are the same number.
    uniform: bool,
}

impl Values {
    /// The values of an operand that was not computed.
    pub(crate) fn none() -> Values {
        Values { at: std::ptr::null(), len: 0, uniform: false }
    }

    /// `n` elements of a block.
    pub(crate) fn block(at: *const u8, n: usize) -> Values {
        Values { at, len: saturated(n), uniform: false }
    }

    /// A register filled with `n` copies of one number.
    pub(crate) fn filled(at: *const u8, n: usize) -> Values {
        Values { at, len: saturated(n), uniform: true }
    }

    /// The elements of a buffer from `first` on.
    pub(crate) fn of(memory: Memory, first: usize) -> Values {
        let at = memory.ptr.wrapping_add(first * memory.dtype.size());
        Values { at, len: saturated(memory.numel.saturating_sub(first)), uniform: false }
    }

    /// Element `first` of a buffer alone, which stands for the whole block.
    pub(crate) fn number(memory: Memory, first: usize) -> Values {
        let values = Values::of(memory, first);
        Values { len: values.len.min(1), uniform: true, ..values }
    }

    /// The values from position `start` of the block on, for elements of `size` bytes. A single number stands
    /// for every position.
    pub(crate) fn from(self, start: usize, size: usize) -> Values {
        if self.uniform && self.len == 1 {
            return self;
        }
        let len = self.len.saturating_sub(saturated(start));
        Values { at: self.at.wrapping_add(start * size), len, ..self }
    }

    /// The address of `n` elements. Fails if there are fewer.
    pub(crate) fn first(self, n: usize) -> Result<*const u8> {
        match saturated(n) <= self.len {
            true => Ok(self.at),
            false => Err(self.too_few(n)),
        }
    }

    /// Whether the values can only be read as a number: there are fewer than `n`, and all are the same.
    fn is_number_alone(self, n: usize) -> bool {
        self.uniform && self.len < saturated(n)
    }

    #[cold]
    fn too_few(self, n: usize) -> Error {
        Error::invalid(
            "block",
            format!(
                "a step reads {n} elements of an operand that has {}; this is a fault of the CPU backend, please \
                 report the program",
                self.len
            ),
        )
    }
}

/// Which of two operands a step reads as one number: an operand that has no more elements than one comes
/// first, then any with the same number everywhere. `None` if both are read element by element.
pub(crate) fn number_of([a, b]: [Values; 2], n: usize) -> Option<Side> {
    match ([a, b].map(|values| values.is_number_alone(n)), a.uniform, b.uniform) {
        ([true, _], ..) => Some(Side::Left),
        ([false, true], ..) => Some(Side::Right),
        ([false, false], true, _) => Some(Side::Left),
        ([false, false], false, true) => Some(Side::Right),
        ([false, false], false, false) => None,
    }
}

/// An operand of a binary operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Right,
}

fn saturated(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use tensor_core::DType;

    use super::*;

    /// A buffer, a number of it and a filled register are read as far as they reach, and an error says how
    /// far that is.
    #[test]
    fn no_step_reads_past_its_operand() {
        let mut elements = [0f32; 8];
        let memory = Memory { ptr: elements.as_mut_ptr().cast(), numel: 8, dtype: DType::F32 };
        assert!(Values::of(memory, 3).first(5).is_ok());
        let message = Values::of(memory, 3).first(6).unwrap_err().to_string();
        assert!(message.contains("reads 6 elements of an operand that has 5"), "{message}");
        assert!(Values::number(memory, 7).first(1).is_ok());
        assert!(Values::number(memory, 7).first(2).is_err());
        assert!(Values::number(memory, 8).first(1).is_err());
        assert!(Values::none().first(1).is_err());
        let block = Values::block(elements.as_ptr().cast(), 8);
        assert!(block.from(6, 4).first(2).is_ok());
        assert!(block.from(6, 4).first(3).is_err());
        // A number stands for every position.
        assert!(Values::number(memory, 0).from(6, 4).first(1).is_ok());
    }

    /// A constant fills a register and could be read in either way; a number of a buffer is read as a number
    /// wherever it stands.
    #[test]
    fn a_number_beside_a_constant_is_the_number() {
        let mut elements = [0f32; 8];
        let memory = Memory { ptr: elements.as_mut_ptr().cast(), numel: 8, dtype: DType::F32 };
        let (number, constant) = (Values::number(memory, 2), Values::filled(elements.as_ptr().cast(), 8));
        let block = Values::block(elements.as_ptr().cast(), 8);
        assert_eq!(number_of([constant, number], 8), Some(Side::Right));
        assert_eq!(number_of([number, constant], 8), Some(Side::Left));
        assert_eq!(number_of([constant, block], 8), Some(Side::Left));
        assert_eq!(number_of([block, constant], 8), Some(Side::Right));
        assert_eq!(number_of([block, block], 8), None);
    }
}
