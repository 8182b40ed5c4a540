//! Conversions between narrow types and the types that compute them: single elements, and whole buffers in
//! pieces that threads share.
#![allow(unsafe_code)]

use half::slice::HalfFloatSliceExt;
use tensor_core::{DType, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, bf16, f16};

use crate::{memory::buffer::Memory, threads, tuning::ELEMENT_GRAIN};

/// The Rust type of a narrow dtype.
pub(crate) trait Narrow: Copy + Send + Sync {
    /// The type that computes it.
    type Wide: Copy + Send + Sync + bytemuck::Pod;
    fn widen(self) -> Self::Wide;
    /// The nearest number for floats; the low bits for integers.
    fn narrow(wide: Self::Wide) -> Self;
    /// Widens elements, up to the length of the shorter slice.
    fn widen_all(from: &[Self], to: &mut [Self::Wide]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = from.widen());
    }
    /// Narrows elements, up to the length of the shorter slice.
    fn narrow_all(from: &[Self::Wide], to: &mut [Self]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = Self::narrow(*from));
    }
}

/// Implements [`Narrow`] for a float type, with its crate's faster methods for slices if there are any.
macro_rules! float {
    ($t:ty $(, $($slices:tt)*)?) => {
        impl Narrow for $t {
            type Wide = f32;
            #[inline(always)]
            fn widen(self) -> f32 {
                self.to_f32()
            }
            #[inline(always)]
            fn narrow(wide: f32) -> $t {
                <$t>::from_f32(wide)
            }
            $($($slices)*)?
        }
    };
}

macro_rules! halves {
    ($($t:ty),*) => {$(
        float!(
            $t,
            fn widen_all(from: &[$t], to: &mut [f32]) {
                from.convert_to_f32_slice(to);
            }
            fn narrow_all(from: &[f32], to: &mut [$t]) {
                to.convert_from_f32_slice(from);
            }
        );
    )*};
}
halves!(f16, bf16);
float!(F8E4M3FN);
float!(F8E5M2);
float!(F8E4M3FNUZ);
float!(F8E5M2FNUZ);

macro_rules! small_integers {
    ($($t:ty),*) => {$(
        impl Narrow for $t {
            type Wide = i32;
            #[inline(always)]
            fn widen(self) -> i32 {
                self.into()
            }
            #[inline(always)]
            fn narrow(wide: i32) -> $t {
                wide as $t
            }
        }
    )*};
}
small_integers!(u8, i8, u16, i16);

/// Calls a macro with the Rust type of a narrow dtype; evaluates an expression for any other.
macro_rules! by_narrow {
    ($dtype:expr, $go:ident, $otherwise:expr) => {
        match $dtype {
            tensor_core::DType::U8 => $go!(u8),
            tensor_core::DType::I8 => $go!(i8),
            tensor_core::DType::U16 => $go!(u16),
            tensor_core::DType::I16 => $go!(i16),
            tensor_core::DType::F8E4M3FN => $go!(tensor_core::F8E4M3FN),
            tensor_core::DType::F8E5M2 => $go!(tensor_core::F8E5M2),
            tensor_core::DType::F8E4M3FNUZ => $go!(tensor_core::F8E4M3FNUZ),
            tensor_core::DType::F8E5M2FNUZ => $go!(tensor_core::F8E5M2FNUZ),
            tensor_core::DType::F16 => $go!(tensor_core::f16),
            tensor_core::DType::BF16 => $go!(tensor_core::bf16),
            tensor_core::DType::Bool
            | tensor_core::DType::U32
            | tensor_core::DType::I32
            | tensor_core::DType::U64
            | tensor_core::DType::I64
            | tensor_core::DType::F32
            | tensor_core::DType::F64 => $otherwise,
        }
    };
}
pub(crate) use by_narrow;

/// A copy of a narrow buffer in its compute type.
pub(crate) struct Widened {
    /// Elements of `f32` or `i32`.
    words: Vec<u32>,
    dtype: DType,
}

impl Widened {
    /// Copies the first `numel` elements of a buffer; None if its type is not narrow.
    ///
    /// # Safety
    /// The buffer holds that many initialised elements, and they are not written meanwhile.
    pub(crate) unsafe fn of(from: Memory, numel: usize) -> Option<Widened> {
        let mut words = vec![0u32; numel];
        macro_rules! go {
            ($t:ty) => {{
                // SAFETY: the caller's promise.
                let narrow = unsafe { std::slice::from_raw_parts(from.at::<$t>(0).cast_const(), numel) };
                let wide: &mut [<$t as Narrow>::Wide] = bytemuck::cast_slice_mut(&mut words);
                threads::share_chunks(wide, ELEMENT_GRAIN, |i, wide| {
                    <$t>::widen_all(&narrow[i * ELEMENT_GRAIN..][..wide.len()], wide);
                });
            }};
        }
        by_narrow!(from.dtype, go, return None);
        Some(Widened { words, dtype: from.dtype.register() })
    }

    /// Its memory; valid until it moves.
    pub(crate) fn memory(&mut self) -> Memory {
        Memory { ptr: self.words.as_mut_ptr().cast(), numel: self.words.len(), dtype: self.dtype }
    }
}

/// Narrows the first `numel` elements of `wide` into `to`, a buffer of a narrow dtype with the compute
/// dtype of `wide`. Each element is rounded once.
///
/// # Safety
/// Both hold that many elements, those of `wide` initialised; they do not overlap, and nothing else
/// accesses `to`.
pub(crate) unsafe fn narrow_into(wide: Memory, to: Memory, numel: usize) {
    debug_assert_eq!(wide.dtype, to.dtype.register());
    macro_rules! go {
        ($t:ty) => {{
            // SAFETY: the caller's promise.
            let (wide, narrow) = unsafe {
                let wide = wide.at::<<$t as Narrow>::Wide>(0).cast_const();
                let wide = std::slice::from_raw_parts(wide, numel);
                (wide, std::slice::from_raw_parts_mut(to.at::<$t>(0), numel))
            };
            threads::share_chunks(narrow, ELEMENT_GRAIN, |i, narrow| {
                <$t>::narrow_all(&wide[i * ELEMENT_GRAIN..][..narrow.len()], narrow);
            });
        }};
    }
    by_narrow!(to.dtype, go, debug_assert!(false, "{} is not narrow", to.dtype));
}
