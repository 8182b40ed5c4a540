//! The positions of true elements. Threads first count blocks of the mask; then they write the positions of
//! each block after those of the blocks before it.
#![allow(unsafe_code)]

use smallvec::SmallVec;
use tensor_core::{DType, Error, Kernel, Launch, Nonzero, Result};

use super::custom::Native;
use crate::{
    CpuBackend,
    memory::{buffer::Bound, strided::Shared},
    threads,
    tuning::ELEMENT_GRAIN,
};

impl Native for Nonzero {
    fn supports(kernel: &Kernel) -> bool {
        kernel.operands.first().is_some_and(|operand| operand.dtype == DType::Bool)
    }

    fn run(&self, backend: &CpuBackend, launch: &Launch<'_>) -> Result<()> {
        let shape = launch.kernel.operands[0].layout.shape();
        let bound = Bound::of_launch(&backend.pool, launch)?;
        // SAFETY: `check_custom` and `of_launch` checked that the mask is row-major and has that many
        // elements, each a byte of 0 or 1.
        let mask =
            unsafe { std::slice::from_raw_parts(bound.inputs[0].at::<u8>(0).cast_const(), shape.numel()) };
        let mut begins = vec![0usize; mask.len().div_ceil(ELEMENT_GRAIN)];
        threads::share_chunks(&mut begins, 1, |block, count| {
            count[0] = mask[of_block(block, mask)].iter().map(|&truth| usize::from(truth)).sum();
        });
        let mut total = 0;
        for begin in &mut begins {
            total += std::mem::replace(begin, total);
        }
        if total != self.count {
            let message = format!("{total} elements are true, but {} were counted before", self.count);
            return Err(Error::invalid(launch.kernel.name(), message));
        }
        let rank = shape.rank();
        let out = Shared(bound.outputs[0].at::<i64>(0));
        threads::share(begins.len(), |block| {
            let range = of_block(block, mask);
            let first = range.start;
            let mut to = begins[block] * rank;
            let mut write = |coordinate: usize| {
                // SAFETY: `total` equals `count`, so the output has room for all coordinates; each block
                // writes after the coordinates of earlier blocks.
                unsafe { out.at(to as isize).write(coordinate as i64) };
                to += 1;
            };
            if rank == 1 {
                return for_each_true(&mask[range], |place| write(first + place));
            }
            // The current line along the last axis, and its coordinates.
            let (&length, lead) = shape.dims().split_last().unwrap_or((&1, &[]));
            let mut line: SmallVec<[usize; 5]> = SmallVec::from_elem(0, lead.len());
            let (mut start, mut end) = (0, 0);
            for_each_true(&mask[range], |place| {
                let place = first + place;
                if place >= end {
                    let mut number = place / length;
                    (start, end) = (number * length, (number + 1) * length);
                    for (coordinate, &n) in line.iter_mut().zip(lead).rev() {
                        *coordinate = number % n;
                        number /= n;
                    }
                }
                line.iter().for_each(|&coordinate| write(coordinate));
                write(place - start);
            });
        });
        Ok(())
    }
}

fn of_block(block: usize, mask: &[u8]) -> std::ops::Range<usize> {
    block * ELEMENT_GRAIN..mask.len().min((block + 1) * ELEMENT_GRAIN)
}

/// Calls `f` with the position of each 1 among bytes of 0 and 1, in ascending order. One multiplication
/// packs eight bytes into the bits of a byte.
#[inline(always)]
fn for_each_true(mask: &[u8], mut f: impl FnMut(usize)) {
    let (words, rest) = mask.as_chunks::<8>();
    for (group, words) in words.chunks(8).enumerate() {
        let mut bits = 0u64;
        for (i, &word) in words.iter().enumerate() {
            let byte = u64::from_le_bytes(word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
            bits |= byte << (8 * i);
        }
        while bits != 0 {
            f(64 * group + bits.trailing_zeros() as usize);
            bits &= bits - 1;
        }
    }
    let first = mask.len() - rest.len();
    rest.iter().enumerate().filter(|(_, truth)| **truth != 0).for_each(|(i, _)| f(first + i));
}

#[cfg(test)]
mod tests {
    use super::for_each_true;

    #[test]
    fn every_true_byte_is_found_once() {
        for length in [0, 1, 7, 8, 9, 63, 64, 65, 200] {
            for step in [1, 2, 3, 7, 64] {
                let mask: Vec<u8> = (0..length).map(|i| u8::from(i * i % step == 0)).collect();
                let mut found = Vec::new();
                for_each_true(&mask, |place| found.push(place));
                let wanted: Vec<usize> = (0..length).filter(|i| i * i % step == 0).collect();
                assert_eq!(found, wanted, "{length} {step}");
            }
        }
    }
}
