//! Losses of classes.

use tensor_core::{Result, Tensor};

use crate::{
    context::Context,
    ops::{Row, all, one},
    value::Value,
};

pub(crate) const TABLE: &[Row] = &[
    ("", "NegativeLogLikelihoodLoss", 12, |c| one(negative_log_likelihood(c, &c.tensor(0)?)?)),
    ("", "SoftmaxCrossEntropyLoss", 12, cross_entropy),
];

fn cross_entropy(c: &Context<'_>) -> Result<Vec<Value>> {
    let log_probabilities = c.tensor(0)?.log_softmax(1)?;
    all([negative_log_likelihood(c, &log_probabilities)?, log_probabilities])
}

/// −weight[class]·x[class], of `[N, C, …]` with classes `[N, …]`; the mean is by the weights.
fn negative_log_likelihood(c: &Context<'_>, x: &Tensor) -> Result<Tensor> {
    let classes = c.tensor(1)?.to_dtype(c.index_dtype())?;
    let ignored = c.int("ignore_index")?;
    let mask = ignored.map(|class| classes.ne_scalar(class));
    let safe = match &mask {
        Some(mask) => mask.where_cond(&classes, &classes.zeros_like())?,
        None => classes,
    };
    let picked = x.gather(1, &safe.unsqueeze(1)?)?.squeeze(1)?;
    let mut weights = match c.optional_tensor(2)? {
        Some(weights) => weights.index_select(0, &safe.flatten_all())?.reshape(safe.dims())?,
        None => picked.ones_like(),
    };
    if let Some(mask) = &mask {
        weights = mask.where_cond(&weights, &weights.zeros_like())?;
    }
    let losses = picked.mul(&weights)?.neg();
    Ok(match c.text_or("reduction", "mean")? {
        "none" => losses,
        "sum" => losses.sum(),
        "mean" => losses.sum().div(&weights.sum())?,
        other => return Err(c.error(format!("reduction \"{other}\"; none, sum and mean are known"))),
    })
}
