//! Metrics of a training. They count on the host, in integers and f64, so that a million batches add up
//! exactly.
//!
//! Metrics read the tensors that they are given, which waits for the device: use them in an evaluation, or
//! every hundredth step.
//!
//! | task | metrics |
//! |---|---|
//! | classes | [`Accuracy`], [`ConfusionMatrix`] (precision, recall, F1, IoU) |
//! | scores of classes | [`Auroc`], [`AveragePrecision`] |
//! | boxes | [`MeanAveragePrecision`] |
//! | texts | [`Bleu`], [`Rouge`], [`ErrorRate`] (WER, CER), [`Perplexity`] |
//! | pictures | [`Psnr`], [`Ssim`] |
//! | any | [`Mean`], [`Throughput`] |

mod accuracy;
mod confusion;
mod detection;
mod image;
mod mean;
mod ranking;
mod text;
mod throughput;

pub use accuracy::Accuracy;
pub use confusion::{Average, ConfusionMatrix};
pub use detection::{DetectionScores, MeanAveragePrecision, PredictedBox, TrueBox};
pub use image::{Psnr, Ssim};
pub use mean::Mean;
pub use ranking::{Auroc, AveragePrecision};
pub use text::{Bleu, ErrorRate, Perplexity, Rouge, RougeKind, RougeScore, TextUnit};
pub use throughput::Throughput;

use tensor_core::{Error, Result, Tensor};

/// Class numbers `[N]` of any integer dtype.
#[track_caller]
fn classes(op: &'static str, name: &str, tensor: &Tensor) -> Result<Vec<i64>> {
    if tensor.rank() != 1 || !tensor.dtype().is_int() {
        let message = format!(
            "{name}: {} {}; give class numbers, integers of shape [N]",
            tensor.dtype(),
            tensor.shape()
        );
        return Err(Error::invalid(op, message));
    }
    // Each value is exact in f64, or far out of range.
    Ok(tensor.detach().to_f64_vec()?.into_iter().map(|class| class as i64).collect())
}

/// Checks that there is a target for each row of scores `[N, C]`.
#[track_caller]
fn check_rows(op: &'static str, scores: &Tensor, targets: &Tensor) -> Result<()> {
    if scores.rank() != 2 || targets.rank() != 1 || scores.dims()[0] != targets.dims()[0] {
        let message = format!(
            "scores {} with targets {}: give scores [N, C] and a class for each, [N]",
            scores.shape(),
            targets.shape()
        );
        return Err(Error::invalid(op, message));
    }
    Ok(())
}
