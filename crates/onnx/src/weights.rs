//! [`Weights`]: the tensors of a file while its graphs are compiled. They are uploaded at the end, in the
//! form that the rewritten graph reads.

use tensor_core::{Affine, AffineBits, DType, Device, Result, Shape, Tensor};

use crate::{
    data::Stored,
    value::{DataType, HostTensor},
};

/// The tensors of a file, by index.
#[derive(Default)]
pub(crate) struct Weights<'a> {
    list: Vec<Pending<'a>>,
}

/// The role of a weight in the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WeightRole {
    Parameter,
    Buffer,
    /// No part of the module: a rewrite has made it superfluous.
    Unused,
}

/// A tensor that is not uploaded yet.
struct Pending<'a> {
    name: String,
    stored: Stored<'a>,
    form: Form,
}

/// The form in which a tensor is uploaded.
enum Form {
    Plain(WeightRole),
    /// Small integers with scales, which stay packed.
    Blocks(Scales),
    /// No step reads it any more.
    Unused,
}

/// The scales and zero points of a tensor of small integers, as [`Affine::encode`] takes them.
pub(crate) struct Scales {
    pub(crate) scale: HostTensor,
    pub(crate) zero: Option<HostTensor>,
    pub(crate) axis: usize,
}

/// A tensor of a loaded file.
#[derive(Clone)]
pub(crate) struct Weight {
    pub(crate) name: String,
    pub(crate) tensor: Tensor,
    pub(crate) role: WeightRole,
}

impl<'a> Weights<'a> {
    /// Adds a tensor, and returns its index.
    pub(crate) fn add(&mut self, name: &str, stored: Stored<'a>, role: WeightRole) -> usize {
        self.list.push(Pending { name: name.to_string(), stored, form: Form::Plain(role) });
        self.list.len() - 1
    }

    /// The tensor's shape.
    pub(crate) fn shape(&self, index: usize) -> &[usize] {
        &self.list[index].stored.shape
    }

    /// The tensor's element type, while it is not in blocks.
    pub(crate) fn data_type(&self, index: usize) -> Option<DataType> {
        match &self.list[index].form {
            Form::Plain(_) => Some(self.list[index].stored.data_type),
            Form::Blocks(_) | Form::Unused => None,
        }
    }

    /// The elements on the host.
    pub(crate) fn to_host(&self, index: usize) -> Result<HostTensor> {
        self.list[index].stored.to_host()
    }

    /// Whether the tensor is stored in blocks.
    pub(crate) fn is_in_blocks(&self, index: usize) -> bool {
        matches!(self.list[index].form, Form::Blocks(_))
    }

    /// Stores a tensor of 8-bit integers with scales, in blocks.
    pub(crate) fn store_in_blocks(&mut self, index: usize, scales: Scales) {
        self.list[index].form = Form::Blocks(scales);
    }

    /// Drops a tensor that no step reads any more.
    pub(crate) fn drop_unused(&mut self, index: usize) {
        self.list[index].form = Form::Unused;
    }

    /// Uploads all tensors.
    pub(crate) fn upload(self, device: &Device) -> Result<Vec<Weight>> {
        let upload = |Pending { name, stored, form }: Pending<'a>| {
            let (tensor, role) = match form {
                Form::Plain(role) => {
                    (stored.to_tensor(device)?.into_cell(role == WeightRole::Parameter)?, role)
                }
                Form::Blocks(scales) => (blocks(&stored, &scales, device)?, WeightRole::Buffer),
                Form::Unused => (Tensor::zeros((), device)?, WeightRole::Unused),
            };
            Ok(Weight { name, tensor, role })
        };
        self.list.into_iter().map(upload).collect()
    }
}

/// The integers with their scales, in blocks.
fn blocks(stored: &Stored<'_>, scales: &Scales, device: &Device) -> Result<Tensor> {
    let bits = match stored.data_type {
        DataType::Tensor(DType::U8) => AffineBits::U8,
        DataType::Tensor(_) | DataType::Int4 | DataType::Uint4 | DataType::Int2 => AffineBits::I8,
        DataType::Uint2 | DataType::Float4E2M1 | DataType::Float8E8M0 | DataType::Text => AffineBits::I8,
    };
    let shape = Shape::from(stored.shape.as_slice());
    let numbers = |host: &HostTensor| -> Result<Vec<f32>> {
        Ok(host.to_f64s()?.into_iter().map(|x| x as f32).collect())
    };
    let scale = numbers(&scales.scale)?;
    let zero = scales.zero.as_ref().map(numbers).transpose()?;
    let of_scale = Shape::from(scales.scale.dims());
    let (format, bytes) = Affine::encode(
        bits,
        &shape,
        &stored.bytes_of_elements()?,
        (&of_scale, &scale),
        zero.as_deref(),
        scales.axis,
    )?;
    Tensor::from_blocks(format, shape, DType::F32, &bytes, device)?.into_cell(false)
}
