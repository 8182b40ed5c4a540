//! Losses as functions: the means, with PyTorch's defaults.

use taper::nn::functional as f;

use crate::row::{Row, two};

#[rustfmt::skip] // a line a row
pub(super) fn rows() -> Vec<Row> {
    const PAIR: [&[usize]; 2] = [&[3, 4], &[3, 4]];
    vec![
        two("functional::mse_loss", "F.mse_loss(x, y)", |x, y| f::mse_loss(x, y)).shapes(PAIR).bad(|x| f::mse_loss(&x[0], &x[1].t()?)),
        two("functional::l1_loss", "F.l1_loss(x, y)", |x, y| f::l1_loss(x, y)).shapes(PAIR).bad(|x| f::l1_loss(&x[0], &x[1].t()?)),
        two("functional::smooth_l1_loss", "F.smooth_l1_loss(x, y)", |x, y| f::smooth_l1_loss(x, y)).shapes(PAIR).bad(|x| f::smooth_l1_loss(&x[0], &x[1].t()?)),
        two("functional::huber_loss", "F.huber_loss(x, y)", |x, y| f::huber_loss(x, y)).shapes(PAIR).bad(|x| f::huber_loss(&x[0], &x[1].t()?)),
        two("functional::binary_cross_entropy", "F.binary_cross_entropy(x, y)", |x, y| f::binary_cross_entropy(x, y)).shapes(PAIR).over(0.1, 0.9)
            .bad(|x| f::binary_cross_entropy(&x[0], &x[1].t()?)),
        two("functional::binary_cross_entropy_with_logits", "F.binary_cross_entropy_with_logits(x, y)",
            |x, y| f::binary_cross_entropy_with_logits(x, y)).shapes(PAIR).over(0.1, 0.9).bad(|x| f::binary_cross_entropy_with_logits(&x[0], &x[1].t()?)),
        two("functional::kl_div", "F.kl_div(x, y)", |x, y| f::kl_div(x, y)).shapes(PAIR).over(0.1, 0.9).bad(|x| f::kl_div(&x[0], &x[1].t()?)),
        two("functional::cross_entropy", "F.cross_entropy(x, y.long())", |x, y| f::cross_entropy(x, y)).shapes([&[3, 4], &[3]]).index(1, &[3, 0, 1])
            .bad(|x| f::cross_entropy(&x[0].narrow(0, 0, 2)?, &x[1])),
        two("functional::cross_entropy", "F.cross_entropy(x, y)", |x, y| f::cross_entropy(x, y)).shapes(PAIR).over(0.1, 0.9),
        two("functional::nll_loss", "F.nll_loss(x, y.long())", |x, y| f::nll_loss(x, y)).shapes([&[3, 4], &[3]]).index(1, &[3, 0, 1])
            .bad(|x| f::nll_loss(&x[0].narrow(0, 0, 2)?, &x[1])),
        two("functional::sigmoid_focal_loss",
            "torchvision.ops.sigmoid_focal_loss(x, y, reduction='mean')",
            |x, y| f::sigmoid_focal_loss(x, y)).shapes(PAIR).over(0.1, 0.9).bad(|x| f::sigmoid_focal_loss(&x[0], &x[1].t()?)),
        two("functional::dice_loss", "(1 - (2 * (x * y).sum(2) + 1e-5) / (x.sum(2) + y.sum(2) + 1e-5)).mean()",
            |x, y| f::dice_loss(x, y))
            .shapes([&[2, 3, 4], &[2, 3, 4]]).over(0.1, 0.9).bad(|x| f::dice_loss(&x[0].select(0, 0)?, &x[1].select(0, 0)?)),
    ]
}
