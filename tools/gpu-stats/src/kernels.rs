//! The kernels: the WGSL that a discrete GPU would get for some lines.

use std::{fs, path::Path};

use backend_wgpu::{Forced, MatrixUnits, Options};
use taper::{
    DType, Device, Tensor,
    nn::functional::{ConvOptions, conv2d},
};

use crate::Result;

/// A line of a program whose kernels are compiled.
type Line = (&'static str, fn(&Device) -> taper::Result<Tensor>);

/// Ones in the device's memory.
fn ones(device: &Device, shape: &[usize]) -> taper::Result<Tensor> {
    let x = Tensor::ones(shape.to_vec(), device)?;
    x.eval()?;
    Ok(x)
}

/// Ones of f16 in the device's memory.
fn halves(device: &Device, shape: &[usize]) -> taper::Result<Tensor> {
    let x = ones(device, shape)?.to_dtype(DType::F16)?;
    x.eval()?;
    Ok(x)
}

/// Indices in the device's memory.
fn indices(device: &Device, shape: &[usize]) -> taper::Result<Tensor> {
    let x = Tensor::zeros(shape.to_vec(), device)?.to_dtype(DType::I32)?;
    x.eval()?;
    Ok(x)
}

const LINES: &[Line] = &[
    ("matmul_2048", |d| ones(d, &[2048, 2048])?.matmul(&ones(d, &[2048, 2048])?)),
    ("matmul_256", |d| ones(d, &[256, 256])?.matmul(&ones(d, &[256, 256])?)),
    ("matmul_64x784x128", |d| ones(d, &[64, 784])?.matmul(&ones(d, &[784, 128])?)),
    ("matmul_odd", |d| ones(d, &[333, 517])?.matmul(&ones(d, &[517, 129])?)),
    ("matmul_1_row", |d| ones(d, &[1, 1024])?.matmul(&ones(d, &[1024, 1024])?)),
    ("matmul_f16", |d| halves(d, &[2048, 2048])?.matmul(&halves(d, &[2048, 2048])?)),
    ("matmul_i8", |d| {
        let x = ones(d, &[2048, 2048])?.to_dtype(DType::I8)?;
        x.eval()?;
        x.matmul(&x)
    }),
    ("matmul_bias_relu", |d| {
        ones(d, &[512, 512])?.matmul(&ones(d, &[512, 512])?)?.add(&ones(d, &[512])?).map(|x| x.relu())
    }),
    ("conv2d", |d| {
        conv2d(&ones(d, &[8, 32, 56, 56])?, &ones(d, &[64, 32, 3, 3])?, None, ConvOptions::default())
    }),
    ("softmax", |d| ones(d, &[4096, 1000])?.softmax(-1)),
    ("softmax_long", |d| ones(d, &[16, 50_257])?.softmax(-1)),
    ("log_softmax", |d| ones(d, &[4096, 1000])?.log_softmax(-1)),
    ("sum_all", |d| Ok(ones(d, &[4096, 4096])?.sum())),
    ("sum_axis0", |d| ones(d, &[4096, 4096])?.sum_axis(0, false)),
    ("sum_axis1", |d| ones(d, &[4096, 4096])?.sum_axis(1, false)),
    ("argmax", |d| ones(d, &[8, 50_257])?.argmax_axis(-1, false)),
    ("cumsum_axis0", |d| ones(d, &[1024, 1024])?.cumsum(0)),
    ("cumsum_axis1", |d| ones(d, &[1024, 1024])?.cumsum(1)),
    ("gather", |d| ones(d, &[512, 512])?.gather(0, &indices(d, &[256, 512])?)),
    ("index_select", |d| ones(d, &[50_000, 256])?.index_select(0, &indices(d, &[1024])?)),
    ("index_add", |d| {
        let x = ones(d, &[50_000, 256])?;
        x.index_add(0, &indices(d, &[1024])?, &ones(d, &[1024, 256])?)
    }),
    ("chain", |d| {
        let (a, b) = (ones(d, &[512, 512])?, ones(d, &[512, 512])?);
        Ok(a.mul(&b)?.add_scalar(1.0).tanh().mul_scalar(2.0).sub(&a)?.exp())
    }),
    ("gelu", |d| Ok(ones(d, &[1024, 1024])?.gelu())),
    ("transpose", |d| Ok(ones(d, &[1024, 1024])?.transpose(0, 1)?.contiguous_copy())),
    ("broadcast", |d| ones(d, &[64, 32, 28, 28])?.add(&ones(d, &[32, 1, 1])?)),
    ("sort", |d| Ok(ones(d, &[1 << 16])?.sort(0, false)?.0)),
    ("sort_long", |d| Ok(ones(d, &[1 << 20])?.sort(0, false)?.0)),
    ("sort_short_rows", |d| Ok(ones(d, &[16, 4096])?.sort(1, false)?.0)),
    ("sort_i64", |d| Ok(ones(d, &[1 << 20])?.to_dtype(DType::I64)?.sort(0, false)?.0)),
    ("topk", |d| Ok(ones(d, &[1 << 20])?.topk(50, 0, true)?.0)),
];

/// Lines whose products use matrix units. Only drivers with cooperative matrices can compile them.
const ON_MATRIX_UNITS: &[Line] = &[
    ("units_2048", |d| halves(d, &[2048, 2048])?.matmul(&halves(d, &[2048, 2048])?)),
    ("units_transposed", |d| halves(d, &[2048, 2048])?.transpose(0, 1)?.matmul(&halves(d, &[2048, 2048])?)),
    ("units_odd", |d| halves(d, &[2001, 2005])?.matmul(&halves(d, &[2005, 2004])?)),
    ("units_bias_relu", |d| {
        halves(d, &[512, 512])?.matmul(&halves(d, &[512, 512])?)?.add(&halves(d, &[512])?).map(|x| x.relu())
    }),
];

/// The matrix units of RDNA3.
const MATRIX_UNITS: MatrixUnits = MatrixUnits::Cooperative { size: 16, subgroup_sizes: [32, 64] };

/// Writes the kernels whose name contains `filter` to `folder`, a file for each, and returns their number.
pub(crate) fn write(folder: &Path, filter: Option<&str>) -> Result<usize> {
    let mut count = 0;
    for (lines, matrix_units) in [(LINES, None), (ON_MATRIX_UNITS, Some(MATRIX_UNITS))] {
        let forced = Forced { hardware: true, dry: true, matrix_units, ..Default::default() };
        let options = Options { cache_dir: None, forced, ..Default::default() };
        let device = backend_wgpu::open(0, &options)?;
        for (name, line) in lines.iter().filter(|(name, _)| filter.is_none_or(|text| name.contains(text))) {
            let result = line(&device).map_err(|error| format!("{name}: {error}"))?;
            let sources = taper::explain(&result)?.sources();
            for (k, text) in sources.iter().flatten().enumerate() {
                fs::write(folder.join(format!("{name}_{k}.wgsl")), text)?;
                count += 1;
            }
        }
    }
    Ok(count)
}
