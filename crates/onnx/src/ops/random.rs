//! Random numbers. A node with a seed draws the same numbers at each run; other runtimes draw different ones.

use std::sync::atomic::{AtomicU64, Ordering};

use tensor_core::{DType, Generator, Result, Tensor, refuse_later};

use super::{Row, all, one, sizes};
use crate::{
    context::Context,
    value::{DataType, Value, on_device},
};

pub(crate) const TABLE: &[Row] = &[
    ("", "Bernoulli", 15, bernoulli),
    ("", "Dropout", 1, dropout),
    ("", "Multinomial", 7, multinomial),
    ("", "RandomNormal", 1, |c| one(normal(c, given_shape(c)?)?)),
    ("", "RandomNormalLike", 1, |c| one(normal(c, like(c)?)?)),
    ("", "RandomUniform", 1, |c| one(uniform(c, given_shape(c)?)?)),
    ("", "RandomUniformLike", 1, |c| one(uniform(c, like(c)?)?)),
];

/// The node's stream: by its seed, or another at each run.
fn generator(c: &Context<'_>) -> Result<Generator> {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let seed = match (c.number("seed"), c.int("seed")) {
        (Ok(Some(seed)), _) => seed.to_bits(),
        (_, Ok(Some(seed))) => seed as u64,
        _ => {
            // A repeated run would draw the same numbers.
            refuse_later("run", "choose another seed at each run");
            RUNS.fetch_add(1, Ordering::Relaxed)
        }
    };
    Ok(Generator::seed(seed, c.device()))
}

fn given_shape(c: &Context<'_>) -> Result<(Vec<usize>, DType)> {
    let shape = c.ints("shape")?.ok_or_else(|| c.error("the shape is missing"))?;
    Ok((sizes(c, &shape)?, dtype(c)?.unwrap_or(DType::F32)))
}

fn like(c: &Context<'_>) -> Result<(Vec<usize>, DType)> {
    let value = c.value(0)?;
    let shape = value.dims().ok_or_else(|| c.error("the input is no tensor"))?.to_vec();
    let own = value.data_type().and_then(DataType::dtype).filter(|dtype| dtype.is_float());
    Ok((shape, dtype(c)?.or(own).unwrap_or(DType::F32)))
}

/// The dtype that the node asks for, if it does.
fn dtype(c: &Context<'_>) -> Result<Option<DType>> {
    let Some(number) = c.int("dtype")? else { return Ok(None) };
    let found = i32::try_from(number).ok().and_then(DataType::from_onnx).and_then(DataType::dtype);
    found.map(|dtype| Some(on_device(dtype, c.device()))).ok_or_else(|| c.error(format!("dtype {number}")))
}

fn normal(c: &Context<'_>, (shape, dtype): (Vec<usize>, DType)) -> Result<Tensor> {
    let (mean, scale) = (c.number_or("mean", 0.0)?, c.number_or("scale", 1.0)?);
    Tensor::randn_dtype(shape, dtype, &generator(c)?).map(|x| x.mul_scalar(scale).add_scalar(mean))
}

fn uniform(c: &Context<'_>, (shape, dtype): (Vec<usize>, DType)) -> Result<Tensor> {
    let (low, high) = (c.number_or("low", 0.0)?, c.number_or("high", 1.0)?);
    Tensor::rand_dtype(shape, dtype, &generator(c)?).map(|x| x.mul_scalar(high - low).add_scalar(low))
}

fn bernoulli(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    one(x.bernoulli(&generator(c)?)?.to_dtype(dtype(c)?.unwrap_or(x.dtype()))?)
}

fn multinomial(c: &Context<'_>) -> Result<Vec<Value>> {
    let weights = c.tensor(0)?.softmax(1)?;
    let count = usize::try_from(c.int_or("sample_size", 1)?).unwrap_or(0);
    let drawn = weights.multinomial(count, true, &generator(c)?)?;
    one(drawn.to_dtype(dtype(c)?.unwrap_or(DType::I32))?)
}

/// Drops only where the node says that it trains: an input from version 12 on, an attribute before 7.
fn dropout(c: &Context<'_>) -> Result<Vec<Value>> {
    let x = c.tensor(0)?;
    let (training, ratio) = if c.version() < 12 {
        (c.version() < 7 && !c.flag("is_test", false)?, c.number_or("ratio", 0.5)?)
    } else {
        (c.integer(2)?.is_some_and(|flag| flag != 0), c.float(1)?.unwrap_or(0.5))
    };
    let everywhere = |x: &Tensor| x.ones_like().to_dtype(DType::Bool);
    if !training || ratio == 0.0 {
        let mask = everywhere(&x)?;
        return all([x, mask]);
    }
    let kept = Tensor::rand_dtype(x.shape(), DType::F32, &generator(c)?)?.ge_scalar(ratio);
    all([kept.where_cond(&x.div_scalar(1.0 - ratio), &x.zeros_like())?, kept])
}
