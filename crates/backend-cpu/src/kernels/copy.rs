//! Strided copies into regions of the output.
#![allow(unsafe_code)]

use std::sync::Arc;

use tensor_core::{DType, Launch, Layout, Result, bf16, f16, round_to_odd};

use crate::{
    memory::{
        buffer::{Bound, by_size},
        pool::Pool,
        strided,
    },
    simd::isa::Isa,
};

pub(crate) fn run(
    isa: Isa,
    pool: &Arc<Pool>,
    fill: bool,
    regions: &[Layout],
    launch: &Launch<'_>,
) -> Result<()> {
    let bound = Bound::of_launch(pool, launch)?;
    let (out, spec) = (bound.outputs[0], &launch.kernel.outputs[0]);
    let (dtype, numel) = (spec.dtype, spec.shape.numel());
    for (region, operand) in regions.iter().zip(&launch.kernel.operands) {
        out.require("copy", operand.dtype, region.span().1)?;
    }
    if fill {
        let value = launch.scalars.first().copied().unwrap_or(tensor_core::Scalar::Int(0));
        macro_rules! fill {
            ($t:ty, $v:expr) => {
                // SAFETY: the output holds `numel` elements of this type.
                unsafe { std::slice::from_raw_parts_mut(out.at::<$t>(0), numel) }.fill($v)
            };
        }
        match dtype {
            DType::F64 => fill!(f64, value.as_f64()),
            DType::F32 => fill!(f32, value.as_f64() as f32),
            DType::F16 => fill!(f16, f16::from_f32(round_to_odd(value.as_f64()))),
            DType::BF16 => fill!(bf16, bf16::from_f32(round_to_odd(value.as_f64()))),
            DType::I64 => fill!(i64, value.as_i64()),
            DType::I32 => fill!(i32, value.as_i64() as i32),
            DType::U32 => fill!(u32, value.as_i64() as u32),
            DType::U8 => fill!(u8, value.as_i64() as u8),
            DType::Bool => fill!(bool, value.as_bool()),
        }
    }
    for ((dst, operand), &input) in regions.iter().zip(&launch.kernel.operands).zip(&bound.inputs) {
        let src = &operand.layout;
        if src.numel() == 0 {
            // Where it lies means nothing.
            continue;
        }
        macro_rules! go {
            ($t:ty) => {
                // SAFETY: both layouts were checked; regions of the output are apart from each other and from every input.
                unsafe {
                    strided::copy::<$t>(
                        isa,
                        src.shape(),
                        input.at::<$t>(src.offset()).cast_const(),
                        src.strides(),
                        out.at::<$t>(dst.offset()),
                        dst.strides(),
                    )
                }
            };
        }
        by_size!(dtype, go);
    }
    Ok(())
}
