//! Reads a tensor from a file: contiguous elements go directly to the tensor's memory; strided, compressed,
//! big-endian and cast ones pass through host memory.

use std::sync::Arc;

use nn::read_safetensors_blocks;
use tensor_core::{
    BlockType, DType, Device, Element, Error, Result, Scalar, Tensor, file::file_error, with_element,
};

use crate::{
    archive::Packed,
    tensor_info::{Encoding, Place, TensorInfo},
};

/// Reads tensors one after the other. The archive entry that was decompressed last is kept for the next
/// tensor of it.
#[derive(Default)]
pub(crate) struct Reader {
    unpacked: Option<(Arc<Packed>, Vec<u8>)>,
}

impl Reader {
    /// A tensor on `device`. Floating-point tensors are cast to `floats`, if that is given.
    #[track_caller]
    pub(crate) fn read(
        &mut self,
        info: &TensorInfo,
        device: &Device,
        floats: Option<DType>,
    ) -> Result<Tensor> {
        if let Some((name, described)) = &info.described {
            let count = info.bytes().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX);
            let bytes = self.host(info, DType::U8, 0, count)?;
            return Error::here_in(read_safetensors_blocks(info.path(), name, described, &bytes, device));
        }
        let dtype = match &info.encoding {
            Encoding::Plain(dtype) => *dtype,
            Encoding::Blocks(blocks) => {
                return self.blocks(info, *blocks, floats.unwrap_or(DType::F32), device);
            }
            Encoding::Other(name) => {
                return Err(file_error(
                    info.path(),
                    format!("holds a tensor of {name}, which is no dtype here"),
                ));
            }
        };
        let cast = floats.filter(|&floats| dtype.is_float() && floats != dtype);
        // If the device lacks the file's dtype, the host casts; otherwise the device does.
        let (on_host, on_device) = if device.supports(dtype) { (None, cast) } else { (cast, None) };
        let mut elements = Elements { reader: self, info, dtype, cast: on_host, device };
        let tensor = match Arrangement::new(info) {
            Arrangement::RowMajor => elements.contiguous(0, info.shape.dims())?,
            Arrangement::Permuted { sizes, order, view } => {
                let sorted: Vec<usize> = order.iter().map(|&axis| sizes[axis]).collect();
                // The position of each axis among the sorted ones.
                let mut places: Vec<usize> = (0..order.len()).collect();
                places.sort_by_key(|&k| order[k]);
                let tensor = elements.contiguous(0, &sorted)?.permute(places.as_slice())?;
                tensor.reshape(view.as_slice())?.expand(info.shape.dims())?
            }
            Arrangement::Strided { sizes, strides, span, view } => {
                let tensor = elements.gather(&sizes, &strides, span)?;
                tensor.reshape(view.as_slice())?.expand(info.shape.dims())?
            }
            Arrangement::Overlapping => {
                let message = "holds a tensor whose elements overlap in memory, as those of Tensor.unfold do; \
                               save tensor.contiguous() in its place";
                return Err(file_error(info.path(), message));
            }
        };
        match on_device {
            None => Ok(tensor),
            Some(dtype) => {
                let tensor = tensor.to_dtype(dtype)?;
                // So that the tensor in the file's dtype is dropped before the next is read.
                tensor.eval()?;
                Ok(tensor)
            }
        }
    }

    /// A tensor that stays block-quantized, and has the dtype `dtype` for its readers.
    #[track_caller]
    fn blocks(
        &mut self,
        info: &TensorInfo,
        blocks: BlockType,
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        let Some(format) = blocks.decoded() else {
            let message = format!(
                "holds a tensor in blocks of {}, which are not decoded here; WeightFile::bytes reads them as they are",
                blocks.name()
            );
            return Err(file_error(info.path(), message));
        };
        if let Place::File { content, start } = &info.place {
            let (format, at) = (Arc::new(format), (&**content, *start));
            let made = Tensor::of_blocks_in("from_blocks", format, &info.shape, dtype, at, device);
            let tensor = Error::here_in(made)?;
            content.check_unchanged()?;
            return Ok(tensor);
        }
        let count = info.bytes().and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(usize::MAX);
        let bytes = self.host(info, DType::U8, 0, count)?;
        Error::here_in(Tensor::from_blocks(format, info.shape.clone(), dtype, &bytes, device))
    }

    /// The bytes of a tensor as stored in the file, as a tensor of u8.
    #[track_caller]
    pub(crate) fn bytes(&mut self, info: &TensorInfo, count: u64, device: &Device) -> Result<Tensor> {
        let size = usize::try_from(count).map_err(|_| file_error(info.path(), "does not fit memory"))?;
        let mut elements = Elements { reader: self, info, dtype: DType::U8, cast: None, device };
        elements.contiguous(0, &[size])
    }

    /// All bytes of a contiguous tensor on the host.
    #[track_caller]
    pub(crate) fn host_bytes(&mut self, info: &TensorInfo) -> Result<Vec<u8>> {
        let count = info.bytes().filter(|_| info.strides.is_none() && !info.big_endian);
        let count = count.and_then(|count| usize::try_from(count).ok());
        let count = count.ok_or_else(|| file_error(info.path(), "has no plain bytes of a tensor"))?;
        self.host(info, DType::U8, 0, count)
    }

    /// Bytes of the tensor on the host, little-endian.
    #[track_caller]
    fn host(&mut self, info: &TensorInfo, dtype: DType, skip: u64, count: usize) -> Result<Vec<u8>> {
        let mut bytes = match &info.place {
            Place::File { content, start } => {
                let mut bytes = vec![0; count];
                content.read_at(&mut bytes, start + skip)?;
                content.check_unchanged()?;
                bytes
            }
            Place::Packed { entry, start } => {
                let all = self.unpack(entry)?;
                let first = usize::try_from(start + skip).ok();
                let part = first.and_then(|first| all.get(first..)?.get(..count));
                part.ok_or_else(|| file_error(info.path(), "is cut off within an entry"))?.to_vec()
            }
        };
        if info.big_endian {
            bytes.chunks_exact_mut(dtype.size()).for_each(<[u8]>::reverse);
        }
        Ok(bytes)
    }

    fn unpack(&mut self, entry: &Arc<Packed>) -> Result<&[u8]> {
        if !self.unpacked.as_ref().is_some_and(|(last, _)| Arc::ptr_eq(last, entry)) {
            // So that two decompressed entries are not in memory at once.
            self.unpacked = None;
            self.unpacked = Some((entry.clone(), entry.unpack()?));
        }
        Ok(self.unpacked.as_ref().map_or(&[], |(_, bytes)| bytes))
    }
}

impl TensorInfo {
    pub(crate) fn path(&self) -> &std::path::Path {
        match &self.place {
            Place::File { content, .. } => content.path(),
            Place::Packed { entry, .. } => entry.content.path(),
        }
    }
}

/// The memory layout of a tensor's elements. Sizes are those of the axes with a size other than 1 and a
/// stride other than 0; `view` has a 1 for each other axis.
enum Arrangement {
    RowMajor,
    /// Without gaps, with permuted axes: `order` lists them from the largest stride on.
    Permuted {
        sizes: Vec<usize>,
        order: Vec<usize>,
        view: Vec<usize>,
    },
    /// With gaps, within `span` elements.
    Strided {
        sizes: Vec<usize>,
        strides: Vec<u64>,
        span: u64,
        view: Vec<usize>,
    },
    /// More elements than the memory that they are in.
    Overlapping,
}

impl Arrangement {
    fn new(info: &TensorInfo) -> Arrangement {
        let dims = info.shape.dims();
        let Some(all) = &info.strides else { return Arrangement::RowMajor };
        if dims.contains(&0) {
            return Arrangement::RowMajor;
        }
        let mut view = Vec::with_capacity(dims.len());
        let (mut sizes, mut strides) = (Vec::new(), Vec::new());
        for (&size, &stride) in dims.iter().zip(all) {
            let kept = size > 1 && stride > 0;
            view.push(if kept { size } else { 1 });
            if kept {
                sizes.push(size);
                strides.push(stride);
            }
        }
        let mut order: Vec<usize> = (0..sizes.len()).collect();
        order.sort_by_key(|&axis| std::cmp::Reverse(strides[axis]));
        let mut dense = 1u64;
        let gapless = order.iter().rev().all(|&axis| {
            let fits = strides[axis] == dense;
            dense = dense.saturating_mul(sizes[axis] as u64);
            fits
        });
        if gapless {
            if order.is_sorted() && view == dims {
                return Arrangement::RowMajor;
            }
            return Arrangement::Permuted { sizes, order, view };
        }
        // The span was checked against the storage when the file was opened.
        let steps =
            sizes.iter().zip(&strides).map(|(&size, &stride)| (size as u64 - 1).saturating_mul(stride));
        let span = steps.fold(1u64, u64::saturating_add);
        let numel = sizes.iter().fold(1u64, |product, &size| product.saturating_mul(size as u64));
        if numel > span {
            return Arrangement::Overlapping;
        }
        Arrangement::Strided { sizes, strides, span, view }
    }
}

/// The elements of a tensor that is being read.
struct Elements<'a> {
    reader: &'a mut Reader,
    info: &'a TensorInfo,
    dtype: DType,
    cast: Option<DType>,
    device: &'a Device,
}

impl Elements<'_> {
    /// Contiguous elements, from the byte `skip` of the tensor on.
    #[track_caller]
    fn contiguous(&mut self, skip: u64, shape: &[usize]) -> Result<Tensor> {
        let straight = self.cast.is_none() && !self.info.big_endian;
        if let (Place::File { content, start }, true) = (&self.info.place, straight) {
            let made = Tensor::from_content(content, start + skip, self.dtype, shape, self.device);
            let tensor = Error::here_in(made)?;
            content.check_unchanged()?;
            return Ok(tensor);
        }
        let count = shape.iter().product::<usize>() * self.dtype.size();
        let bytes = self.reader.host(self.info, self.dtype, skip, count)?;
        self.upload(bytes, shape)
    }

    /// Elements with gaps between them, all within the first `span`.
    #[track_caller]
    fn gather(&mut self, sizes: &[usize], strides: &[u64], span: u64) -> Result<Tensor> {
        let size = self.dtype.size();
        let all = self.reader.host(self.info, self.dtype, 0, span as usize * size)?;
        let mut bytes = Vec::with_capacity(sizes.iter().product::<usize>() * size);
        let mut place = vec![0usize; sizes.len()];
        let mut at = 0usize;
        loop {
            bytes.extend_from_slice(&all[at * size..(at + 1) * size]);
            let mut axis = sizes.len();
            loop {
                if axis == 0 {
                    return self.upload(bytes, sizes);
                }
                axis -= 1;
                place[axis] += 1;
                at += strides[axis] as usize;
                if place[axis] < sizes[axis] {
                    break;
                }
                at -= place[axis] * strides[axis] as usize;
                place[axis] = 0;
            }
        }
    }

    #[track_caller]
    fn upload(&self, bytes: Vec<u8>, shape: &[usize]) -> Result<Tensor> {
        match self.cast {
            None => Tensor::from_bytes_of(self.dtype, &bytes, shape, self.device),
            Some(to) => {
                let cast = cast_floats(self.dtype, to, &bytes);
                drop(bytes);
                Tensor::from_bytes_of(to, &cast, shape, self.device)
            }
        }
    }
}

/// Casts elements of one floating-point dtype to another on the host, in pieces.
fn cast_floats(from: DType, to: DType, bytes: &[u8]) -> Vec<u8> {
    const ELEMENTS: usize = 4096;
    let mut out = Vec::with_capacity(bytes.len() / from.size() * to.size());
    for piece in bytes.chunks(ELEMENTS * from.size()) {
        let numbers: Vec<Scalar> =
            with_element!(from, T => T::from_bytes(piece).into_iter().map(Element::to_scalar).collect());
        with_element!(to, T => {
            let cast: Vec<T> = numbers.iter().map(|&number| T::from_scalar(number)).collect();
            out.extend_from_slice(T::as_bytes(&cast));
        });
    }
    out
}
