//! [`Codebook4`]: codes of four bits into a table of sixteen numbers, with a scale for 64 neighbours.

use super::{BlockFormat, affine::HEADER};
use crate::base::{
    error::{Error, Result},
    shape::Shape,
};

/// Elements with one scale, and scales with one scale of their own.
const BLOCK: usize = 64;
const NESTED_BLOCK: usize = 256;

/// The sixteen numbers of NF4, at quantiles of a normal distribution that is scaled to [−1, 1] (Dettmers et
/// al.: QLoRA, 2023, appendix E).
#[allow(clippy::excessive_precision)] // as they were published
const NF4: [f32; 16] = [
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
];

/// Codes of four bits into a table of sixteen numbers: `table[q] s`, with a scale s for each 64 neighbours in
/// row-major order, rows regardless. The scales are f32 or, with double quantization, codes of eight bits c
/// for which s = `codes[c] t + o` with an f32 t for each 256 scales and one offset o. It holds the NF4 of
/// QLoRA and the files of Python's `bitsandbytes`.
///
/// The bytes are: eight u32 words; the codes, the first of a pair in the high bits; the scales; and with
/// double quantization the numbers t and the table of the 256 codes; then the table of sixteen. Each part is
/// padded to a multiple of four bytes. The words are the byte offsets of the scales, of the numbers t (0
/// without double quantization), of the 256 codes, and of the table; the bits of o; and three zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Codebook4 {
    /// The number of elements, which cannot be derived from the bytes.
    numel: usize,
    double_quantized: bool,
}

/// The scales of a [`Codebook4`] tensor.
#[derive(Clone, Copy, Debug)]
pub enum CodebookScales<'a> {
    /// A scale for each block.
    Plain(&'a [f32]),
    /// Double quantization: a code of eight bits for each block.
    Double {
        /// The codes.
        codes: &'a [u8],
        /// The number t for each 256 codes.
        scales: &'a [f32],
        /// The 256 numbers that codes stand for.
        table: &'a [f32],
        /// The offset o.
        offset: f32,
    },
}

/// The byte offsets of the parts.
#[derive(Clone, Copy)]
struct Parts {
    scales: usize,
    nested: usize,
    codes: usize,
    table: usize,
    end: usize,
}

impl Codebook4 {
    /// The format of a tensor of this shape.
    pub(crate) fn new(shape: &Shape, double_quantized: bool) -> Codebook4 {
        Codebook4 { numel: shape.numel(), double_quantized }
    }

    fn parts(&self) -> Parts {
        let blocks = self.numel.div_ceil(BLOCK);
        let scales = HEADER + self.numel.div_ceil(2).next_multiple_of(4);
        if self.double_quantized {
            let nested = scales + blocks.next_multiple_of(4);
            let codes = nested + 4 * blocks.div_ceil(NESTED_BLOCK);
            let table = codes + 4 * 256;
            Parts { scales, nested, codes, table, end: table + 4 * 16 }
        } else {
            let table = scales + 4 * blocks;
            Parts { scales, nested: 0, codes: 0, table, end: table + 4 * 16 }
        }
    }

    /// The format and the bytes of a tensor of this shape, for
    /// [`Tensor::from_blocks`](crate::Tensor::from_blocks), from codes that are packed in pairs, the first in
    /// the high bits.
    ///
    /// # Errors
    /// Another number of codes or scales than the shape has, tables of another length, or more bytes than
    /// u32 counts.
    pub fn pack(
        shape: &Shape,
        packed: &[u8],
        table: &[f32],
        scales: CodebookScales<'_>,
    ) -> Result<(Codebook4, Vec<u8>)> {
        let double = matches!(scales, CodebookScales::Double { .. });
        let format = Codebook4::new(shape, double);
        let (parts, blocks) = (format.parts(), shape.numel().div_ceil(BLOCK));
        let (given, fits) = match scales {
            CodebookScales::Plain(scales) => (scales.len(), scales.len() == blocks),
            CodebookScales::Double { codes, scales, table, .. } => {
                let nested = blocks.div_ceil(NESTED_BLOCK);
                (codes.len(), codes.len() == blocks && scales.len() == nested && table.len() == 256)
            }
        };
        if packed.len() != shape.numel().div_ceil(2) || table.len() != 16 || !fits {
            let message = format!(
                "{} bytes of codes, {given} scales and a table of {} for shape {shape}: it takes {} bytes, {blocks} \
                 scales of {BLOCK} elements each, and 16 numbers",
                packed.len(),
                table.len(),
                shape.numel().div_ceil(2)
            );
            return Err(Error::invalid("from_blocks", message));
        }
        if u32::try_from(parts.end).is_err() {
            let message = format!("shape {shape} is too large for one tensor in blocks; split it");
            return Err(Error::invalid("from_blocks", message));
        }
        let mut bytes = vec![0; parts.end];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        let floats = |numbers: &[f32]| -> Vec<u8> { numbers.iter().flat_map(|x| x.to_le_bytes()).collect() };
        for (k, at) in [parts.scales, parts.nested, parts.codes, parts.table].into_iter().enumerate() {
            put(4 * k, &(at as u32).to_le_bytes());
        }
        put(HEADER, packed);
        put(parts.table, &floats(table));
        match scales {
            CodebookScales::Plain(scales) => put(parts.scales, &floats(scales)),
            CodebookScales::Double { codes, scales, table, offset } => {
                put(16, &offset.to_le_bytes());
                put(parts.scales, codes);
                put(parts.nested, &floats(scales));
                put(parts.codes, &floats(table));
            }
        }
        Ok((format, bytes))
    }

    /// The format and the bytes of numbers that are rounded to the nearest of NF4's, as Python's
    /// `bitsandbytes` rounds them.
    ///
    /// # Errors
    /// A number that is not finite.
    pub(crate) fn encode(numbers: &[f32], shape: &Shape, double: bool) -> Result<(Codebook4, Vec<u8>)> {
        let (mut scales, mut codes) = (Vec::new(), Vec::with_capacity(numbers.len() + 1));
        nearest(numbers, BLOCK, &NF4, &mut scales, &mut codes)?;
        if codes.len() % 2 == 1 {
            codes.push(7); // the code of 0
        }
        let packed: Vec<u8> = codes.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        if !double {
            return Codebook4::pack(shape, &packed, &NF4, CodebookScales::Plain(&scales));
        }
        let sum: f64 = scales.iter().map(|&scale| f64::from(scale)).sum();
        let offset = (sum / scales.len().max(1) as f64) as f32;
        scales.iter_mut().for_each(|scale| *scale -= offset);
        let (table, mut nested, mut codes) = (dynamic_map(), Vec::new(), Vec::new());
        nearest(&scales, NESTED_BLOCK, &table, &mut nested, &mut codes)?;
        let scales = CodebookScales::Double { codes: &codes, scales: &nested, table: &table, offset };
        Codebook4::pack(shape, &packed, &NF4, scales)
    }
}

/// Appends the greatest magnitude of each block, and for each number the code of the table's number that is
/// nearest to its part of that magnitude.
fn nearest(
    numbers: &[f32],
    block: usize,
    table: &[f32],
    scales: &mut Vec<f32>,
    codes: &mut Vec<u8>,
) -> Result<()> {
    let bounds: Vec<f32> = table.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect();
    for (i, numbers) in numbers.chunks(block).enumerate() {
        if let Some(at) = numbers.iter().position(|x| !x.is_finite()) {
            let message = format!("element {} is {}: nf4 holds finite numbers", i * block + at, numbers[at]);
            return Err(Error::invalid("quantize", message));
        }
        let scale = numbers.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        let by = 1.0 / scale.max(1e-38);
        scales.push(scale);
        let code = |x: f32| bounds.partition_point(|&bound| bound < (x * by).clamp(-1.0, 1.0)) as u8;
        codes.extend(numbers.iter().map(|&x| code(x)));
    }
    Ok(())
}

/// The 256 numbers of the codes of eight bits: a sign, an exponent of base 10 in unary, and a linear fraction
/// in the bits that are left (Dettmers et al.: 8-bit optimizers via block-wise quantization, 2021).
fn dynamic_map() -> Vec<f32> {
    let mut numbers = vec![0.0, 1.0];
    for exponent in 0..7i32 {
        let count = 1usize << exponent;
        let step = 0.9 / count as f32;
        // From both ends, as torch.linspace rounds.
        let bound = |i: usize| match 2 * i < count + 1 {
            true => 0.1 + step * i as f32,
            false => 1.0 - step * (count - i) as f32,
        };
        for i in 0..count {
            let x = (bound(i) + bound(i + 1)) / 2.0 * 10f64.powi(exponent - 6) as f32;
            numbers.extend([x, -x]);
        }
    }
    numbers.sort_by(f32::total_cmp);
    numbers
}

fn float(bytes: &[u8], at: usize) -> f32 {
    f32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl BlockFormat for Codebook4 {
    fn name(&self) -> &'static str {
        if self.double_quantized { "codebook4_double" } else { "codebook4" }
    }

    fn key(&self) -> Vec<u64> {
        vec![self.numel as u64, self.double_quantized.into()]
    }

    fn bytes(&self, shape: &Shape) -> Result<usize> {
        if shape.numel() == self.numel {
            return Ok(self.parts().end);
        }
        let message = format!("these codes are {} elements, and shape {shape} has others", self.numel);
        Err(Error::invalid("from_blocks", message))
    }

    fn check(&self, shape: &Shape, bytes: &[u8]) -> Result<()> {
        let parts = self.parts();
        let wanted = [parts.scales, parts.nested, parts.codes, parts.table];
        let right = bytes.len() == parts.end
            && wanted.iter().enumerate().all(|(k, &at)| bytes[4 * k..][..4] == (at as u32).to_le_bytes());
        if right {
            return Ok(());
        }
        let message = format!("{} bytes of {} for shape {shape} have other words", bytes.len(), self.name());
        Err(Error::invalid("from_blocks", message))
    }

    fn elements(&self, bytes: usize) -> usize {
        if bytes >= self.parts().end { self.numel } else { 0 }
    }

    fn bits_per_element(&self) -> f64 {
        8.0 * self.parts().end as f64 / self.numel.max(1) as f64
    }

    fn decode(&self, bytes: &[u8], start: usize, out: &mut [f32]) {
        let parts = self.parts();
        let table: [f32; 16] = std::array::from_fn(|q| float(bytes, parts.table + 4 * q));
        let scale_of = |block: usize| {
            if !self.double_quantized {
                return float(bytes, parts.scales + 4 * block);
            }
            let code = float(bytes, parts.codes + 4 * usize::from(bytes[parts.scales + block]));
            code * float(bytes, parts.nested + block / NESTED_BLOCK * 4) + float(bytes, 16)
        };
        let (mut at, mut rest) = (start, out);
        while !rest.is_empty() {
            let run = (BLOCK - at % BLOCK).min(rest.len());
            let now;
            (now, rest) = rest.split_at_mut(run);
            let scale = scale_of(at / BLOCK);
            for (i, x) in (at..).zip(now) {
                let pair = bytes[HEADER + i / 2];
                *x = table[usize::from(if i % 2 == 0 { pair >> 4 } else { pair & 15 })] * scale;
            }
            at += run;
        }
    }
}
