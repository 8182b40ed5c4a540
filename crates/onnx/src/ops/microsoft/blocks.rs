//! Weights of few bits in ONNX Runtime's own domain, with a scale and a zero point for each block of
//! neighbours. They stay packed: products and gathers decode the numbers that they read.

use std::sync::{Arc, Mutex, PoisonError};

use tensor_core::{Affine, AffineBits, DType, Device, Result, Shape, Tensor};

use super::attention::refuse;
use crate::{
    context::Context,
    ops::{Row, from_start, one},
    value::{DataType, HostTensor, Value},
};

const DOMAIN: &str = "com.microsoft";

pub(crate) const TABLE: &[Row] =
    &[(DOMAIN, "GatherBlockQuantized", 1, gather), (DOMAIN, "MatMulNBits", 1, matmul)];

/// A value that a kept weight was made from.
#[derive(Debug)]
enum MadeFrom {
    Tensor(u64),
    Host(Arc<HostTensor>),
    Missing,
}

impl MadeFrom {
    fn of(value: Option<&Value>) -> MadeFrom {
        match value {
            Some(Value::Tensor(tensor)) => MadeFrom::Tensor(tensor.value_id()),
            Some(Value::Host(host)) => MadeFrom::Host(host.clone()),
            Some(Value::Sequence(_) | Value::Nothing) | None => MadeFrom::Missing,
        }
    }

    /// Whether both have the same elements, as far as this is known without a look at them.
    fn same(&self, other: &MadeFrom) -> bool {
        match (self, other) {
            (MadeFrom::Tensor(a), MadeFrom::Tensor(b)) => a == b,
            (MadeFrom::Host(a), MadeFrom::Host(b)) => Arc::ptr_eq(a, b),
            (MadeFrom::Missing, MadeFrom::Missing) => true,
            (MadeFrom::Tensor(_) | MadeFrom::Host(_) | MadeFrom::Missing, _) => false,
        }
    }
}

/// A weight in blocks.
#[derive(Clone, Debug)]
struct BlockWeight {
    tensor: Tensor,
    /// The columns of a product's left side in the weight's order, if it is another one. A number after the
    /// last column stands for a zero.
    order: Option<Tensor>,
}

/// The weight of a node, with its device and the values that it was made from.
#[derive(Debug, Default)]
struct Kept(Mutex<Option<(Device, Vec<MadeFrom>, BlockWeight)>>);

/// The weight that `make` computes of these inputs; it is kept until one of them changes.
fn kept(
    c: &Context<'_>,
    inputs: &[usize],
    make: fn(&Context<'_>) -> Result<BlockWeight>,
) -> Result<BlockWeight> {
    let sources: Vec<MadeFrom> = inputs.iter().map(|&input| MadeFrom::of(c.input(input))).collect();
    let kept = c.parsed(|| Ok(Kept::default()))?;
    let mut kept = kept.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((device, own, weight)) = kept.as_ref()
        && device == c.device()
        && own.iter().zip(&sources).all(|(a, b)| a.same(b))
    {
        return Ok(weight.clone());
    }
    let weight = make(c)?;
    *kept = Some((c.device().clone(), sources, weight.clone()));
    Ok(weight)
}

/// A size that is an attribute.
fn size(c: &Context<'_>, name: &str, default: i64) -> Result<usize> {
    let size = i32::try_from(c.int_or(name, default)?).ok().filter(|&size| size > 0);
    size.map(|size| size as usize).ok_or_else(|| c.error(format!("{name} is missing, or no size")))
}

/// The attribute `bits`.
fn bits(c: &Context<'_>) -> Result<usize> {
    match size(c, "bits", 4)? {
        bits @ (2 | 4 | 8) => Ok(bits),
        bits => Err(c.error(format!("a weight of {bits} bits; 2, 4 and 8 are known"))),
    }
}

/// The integers of `bits` bits in bytes, the first in the lowest bits of each byte.
fn unpacked(bytes: &[u8], bits: usize) -> Vec<u8> {
    let mask = u8::MAX >> (8 - bits);
    bytes.iter().flat_map(|byte| (0..8).step_by(bits).map(move |at| byte >> at & mask)).collect()
}

/// Integers, one in each byte, as blocks store them.
fn packed(format: AffineBits, integers: Vec<u8>) -> Vec<u8> {
    match format {
        AffineBits::I8 | AffineBits::U8 => integers,
        AffineBits::I4 | AffineBits::U4 => integers
            .chunks(2)
            .map(|pair| pair[0] & 0xf | pair.get(1).copied().unwrap_or_default() << 4)
            .collect(),
    }
}

/// A tensor of f32 numbers (q − zero)·scale. The axis has a whole number of blocks of each scale.
fn encoded(
    c: &Context<'_>,
    shape: &[usize],
    (format, bytes): (AffineBits, &[u8]),
    (of_scale, scale): (&[usize], &[f32]),
    zero: Option<&[f32]>,
    axis: usize,
) -> Result<Tensor> {
    let shape = Shape::from(shape);
    let of_scale = Shape::from(of_scale);
    let (format, bytes) = Affine::encode(format, &shape, bytes, (&of_scale, scale), zero, axis)?;
    Tensor::from_blocks(format, shape, DType::F32, &bytes, c.device())
}

/// The elements of a small input as f32.
fn floats(c: &Context<'_>, input: usize) -> Result<Vec<f32>> {
    Ok(c.host_data(input)?.to_f64s()?.into_iter().map(|x| x as f32).collect())
}

/// The bytes of an input of u8.
fn bytes(c: &Context<'_>, input: usize) -> Result<Vec<u8>> {
    match c.value(input)? {
        // Integers on the host take eight bytes each, and weights are long.
        value @ Value::Tensor(tensor) if tensor.dtype() == DType::U8 => {
            c.refuse_trace(value)?;
            tensor.to_vec::<u8>()
        }
        _ => Ok(c.host_data(input)?.to_i64s()?.into_iter().map(|byte| byte as u8).collect()),
    }
}

/// The zero points of `rows` rows of `blocks` blocks: an input of numbers, or of bytes in which those of a
/// row are packed. Without it, all are in the middle of the integers' range.
fn zero_points(
    c: &Context<'_>,
    input: usize,
    bits: usize,
    (rows, blocks): (usize, usize),
) -> Result<Vec<f32>> {
    let middle = (1u32 << (bits - 1)) as f32;
    let Some(value) = c.input(input) else { return Ok(vec![middle; rows * blocks]) };
    let list = if value.data_type() == Some(DataType::Tensor(DType::U8)) {
        let list = bytes(c, input)?;
        let line = (blocks * bits).div_ceil(8);
        if list.len() != rows * line {
            let message = format!("zero points {:?} for {rows} rows of {blocks} blocks", value.dims());
            return Err(c.error(message));
        }
        let row =
            |row: &[u8]| unpacked(row, bits).into_iter().take(blocks).map(f32::from).collect::<Vec<_>>();
        list.chunks(line.max(1)).flat_map(row).collect()
    } else {
        floats(c, input)?
    };
    if list.len() == rows * blocks {
        return Ok(list);
    }
    Err(c.error(format!("{} zero points for {} scales", list.len(), rows * blocks)))
}

/// x·Wᵀ + bias, where W `[N, K]` has 2, 4 or 8 bits for each number, with a scale and a zero point for each
/// `block_size` numbers of a row, or for the columns that `g_idx` puts in one group.
fn matmul(c: &Context<'_>) -> Result<Vec<Value>> {
    refuse(c, 6, &["weight_prepacked"])?;
    let BlockWeight { tensor: weight, order } = kept(c, &[1, 2, 3, 4], of_matmul)?;
    let x = c.tensor(0)?;
    let mut wide = x.to_dtype(DType::F32)?;
    let columns = size(c, "K", 0)?;
    if wide.dims().last() != Some(&columns) {
        return Err(c.error(format!("an input {} for K = {columns}", x.shape())));
    }
    // The last block may be longer than the rows of x, and a group shorter than its block.
    if weight.dims()[1] > columns {
        let more = if order.is_some() { 1 } else { weight.dims()[1] - columns };
        let mut padding = vec![(0, 0); wide.rank()];
        padding[wide.rank() - 1] = (0, more as isize);
        wide = wide.pad(&padding, 0.0)?;
    }
    if let Some(order) = order {
        wide = wide.index_select(-1, &order)?;
    }
    let bias = c.optional_tensor(5)?.map(|bias| bias.to_dtype(DType::F32)).transpose()?;
    one(nn::functional::linear(&wide, &weight, bias.as_ref())?.to_dtype(x.dtype())?)
}

/// The weight of [`matmul`] as a tensor in blocks, `[N, blocks·block_size]`.
fn of_matmul(c: &Context<'_>) -> Result<BlockWeight> {
    let (rows, columns) = (size(c, "N", 0)?, size(c, "K", 0)?);
    let (bits, block) = (bits(c)?, size(c, "block_size", 0)?);
    let (mut list, mut scale) = (bytes(c, 1)?, floats(c, 2)?);
    let mut blocks = columns.div_ceil(block);
    let fits = (block * bits).is_multiple_of(8)
        && rows.checked_mul(blocks).filter(|&count| count == scale.len()).is_some()
        && scale.len().checked_mul(block * bits / 8) == Some(list.len());
    if !fits {
        let message = format!(
            "a weight {:?} and {} scales for N = {rows}, K = {columns} in blocks of {block}",
            c.value(1)?.dims(),
            scale.len()
        );
        return Err(c.error(message));
    }
    let mut zero = zero_points(c, 3, bits, (rows, blocks))?;
    let mut order = None;
    if let Some(groups) = c.input(4).map(|_| c.host_data(4)?.to_i64s()).transpose()? {
        let ColumnOrder { slots, groups } = ColumnOrder::of(c, &groups, columns, (blocks, block))?;
        let by_group = |list: &[f32]| -> Vec<f32> {
            list.chunks(blocks).flat_map(|row| groups.iter().map(|&group| row[group])).collect()
        };
        (scale, zero) = (by_group(&scale), by_group(&zero));
        list = unpacked(&list, bits)
            .chunks(blocks * block)
            .flat_map(|row| slots.iter().map(|&column| row.get(column).copied().unwrap_or_default()))
            .collect();
        blocks = groups.len();
        if slots.iter().enumerate().any(|(at, &column)| at != column) {
            let slots: Vec<i64> = slots.into_iter().map(|column| column as i64).collect();
            let index = Tensor::from_vec(slots, [blocks * block], c.device())?;
            order = Some(index.to_dtype(c.index_dtype())?);
        }
        list = packed(if bits == 8 { AffineBits::U8 } else { AffineBits::U4 }, list);
    } else if bits == 2 {
        list = packed(AffineBits::U4, unpacked(&list, bits));
    }
    let format = if bits == 8 { AffineBits::U8 } else { AffineBits::U4 };
    let shape = [rows, blocks * block];
    let tensor = encoded(c, &shape, (format, &list), (&[rows, blocks], &scale), Some(&zero), 1)?;
    Ok(BlockWeight { tensor, order })
}

/// The columns of a weight, sorted so that those with a common scale are neighbours.
struct ColumnOrder {
    /// The column in each place. A number after the last column fills up a block.
    slots: Vec<usize>,
    /// The number of the scale of each block.
    groups: Vec<usize>,
}

impl ColumnOrder {
    /// `list` has the group of each column; groups beyond a block's length have several blocks.
    fn of(
        c: &Context<'_>,
        list: &[i64],
        columns: usize,
        (blocks, block): (usize, usize),
    ) -> Result<ColumnOrder> {
        if list.len() != columns && list.len() != blocks * block {
            return Err(c.error(format!("g_idx has {} elements for K = {columns}", list.len())));
        }
        let mut members = vec![Vec::new(); blocks];
        for (column, &group) in list.iter().take(columns).enumerate() {
            let of_group = usize::try_from(group).ok().and_then(|group| members.get_mut(group));
            let of_group =
                of_group.ok_or_else(|| c.error(format!("g_idx has {group} for {blocks} groups")))?;
            of_group.push(column);
        }
        let (mut slots, mut groups) = (Vec::new(), Vec::new());
        for (group, members) in members.iter().enumerate() {
            for part in members.chunks(block) {
                slots.extend(part);
                groups.push(group);
                slots.resize(groups.len() * block, columns);
            }
        }
        Ok(ColumnOrder { slots, groups })
    }
}

/// Slices along `gather_axis` of a tensor whose `quantize_axis` is in blocks. An index that is out of range
/// gives zeros.
fn gather(c: &Context<'_>) -> Result<Vec<Value>> {
    let shape = of_table(c)?.shape;
    let axis = c.axis_or("gather_axis", 0, shape.len())?;
    let quantized = c.axis_or("quantize_axis", 1, shape.len())?;
    let (index, size) = (c.tensor(1)?, shape[axis]);
    let dtype = c.tensor(2)?.dtype();
    let out: Vec<usize> =
        shape[..axis].iter().chain(index.dims()).chain(&shape[axis + 1..]).copied().collect();
    if size == 0 {
        return one(Tensor::zeros(out, (dtype, c.device()))?);
    }
    let table = kept(c, &[0, 2, 3], |c| of_table(c)?.weight(c))?.tensor;
    let flat = from_start(c, &index.flatten_all(), size)?;
    let last = size as i64 - 1;
    let mut picked = table.index_select(axis, &flat.clamp(0, last))?;
    if quantized != axis && picked.dims()[quantized] > shape[quantized] {
        picked = picked.narrow(quantized, 0, shape[quantized])?;
    }
    let mut mask = vec![1; picked.rank()];
    mask[axis] = flat.numel();
    let inside = flat.ge_scalar(0).logical_and(flat.le_scalar(last))?.reshape(mask)?;
    let y = inside.where_cond(&picked, &picked.zeros_like())?;
    one(y.reshape(out)?.to_dtype(dtype)?)
}

/// The data of [`gather`].
struct QuantizedData {
    /// The sizes that the integers have once they are unpacked.
    shape: Vec<usize>,
    /// The bits of an integer.
    bits: usize,
    /// The type of integers of four bits; other data is packed in bytes.
    narrow: Option<AffineBits>,
}

/// The sizes and the type of the data of [`gather`].
fn of_table(c: &Context<'_>) -> Result<QuantizedData> {
    let value = c.value(0)?;
    let mut shape = value.dims().ok_or_else(|| c.error("the data is no tensor"))?.to_vec();
    let narrow = match value.data_type() {
        Some(DataType::Tensor(DType::U8)) => None,
        Some(DataType::Uint4) => Some(AffineBits::U4),
        Some(DataType::Int4) => Some(AffineBits::I4),
        other => {
            let other = other.map_or("texts".into(), |other| other.to_string());
            return Err(c.error(format!("data of {other}; uint8, uint4 and int4 are known")));
        }
    };
    let bits = bits(c)?;
    if narrow.is_some() && bits != 4 {
        return Err(c.error(format!("{bits} bits for data of integers of 4")));
    }
    if narrow.is_none() && bits < 8 {
        let rank = shape.len();
        let last = rank.checked_sub(1).ok_or_else(|| c.error("the data is a single number"))?;
        let axes = [c.axis_or("gather_axis", 0, rank)?, c.axis_or("quantize_axis", 1, rank)?];
        if axes[0] == last || axes[1] != last {
            return Err(c.error(format!(
                "bytes of {bits} bits are packed along the last axis of {rank}: they are gathered along another \
                 axis and quantized along the last, not {axes:?}"
            )));
        }
        shape[last] *= 8 / bits;
    }
    Ok(QuantizedData { shape, bits, narrow })
}

impl QuantizedData {
    /// The data as a tensor in blocks. The quantized axis is filled up to whole blocks.
    fn weight(&self, c: &Context<'_>) -> Result<BlockWeight> {
        let QuantizedData { shape, bits, narrow } = self;
        let axis = c.axis_or("quantize_axis", 1, shape.len())?;
        let block = size(c, "block_size", 128)?;
        let blocks = shape[axis].div_ceil(block);
        let mut of_scale = shape.clone();
        of_scale[axis] = blocks;
        let scales = c.value(2)?;
        if scales.dims() != Some(of_scale.as_slice()) {
            let message = format!(
                "scales {:?} for data of sizes {shape:?} in blocks of {block} along axis {axis}",
                scales.dims()
            );
            return Err(c.error(message));
        }
        let scale = floats(c, 2)?;
        let zero = match (c.input(3), narrow) {
            (None, Some(_)) => None,
            (Some(_), Some(_)) if scale.len() == c.host_data(3)?.data().len() => Some(floats(c, 3)?),
            (Some(zero), Some(_)) => {
                return Err(c.error(format!("zero points {:?} for scales {of_scale:?}", zero.dims())));
            }
            // Zero points of bytes are packed along the last axis, as the data is.
            (_, None) => {
                let lines = if *bits < 8 { blocks } else { 1 };
                Some(zero_points(c, 3, *bits, (scale.len() / lines.max(1), lines))?)
            }
        };
        let format = narrow.unwrap_or(if *bits == 8 { AffineBits::U8 } else { AffineBits::U4 });
        let mut integers = match narrow {
            Some(_) => c.host_data(0)?.to_i64s()?.into_iter().map(|x| x as u8).collect(),
            None => unpacked(&bytes(c, 0)?, *bits),
        };
        let mut sizes = shape.clone();
        if blocks > 1 && blocks * block > shape[axis] {
            let inner: usize = shape[axis + 1..].iter().product();
            sizes[axis] = blocks * block;
            integers = integers
                .chunks((shape[axis] * inner).max(1))
                .flat_map(|slice| {
                    let more = (sizes[axis] - shape[axis]) * inner;
                    slice.iter().copied().chain(std::iter::repeat_n(0, more))
                })
                .collect();
        }
        let bytes = packed(format, integers);
        let tensor = encoded(c, &sizes, (format, &bytes), (&of_scale, &scale), zero.as_deref(), axis)?;
        Ok(BlockWeight { tensor, order: None })
    }
}
