//! Other shapes, and parts of tensors.

use taper::{Ellipsis, NewAxis, Step, Tensor};

use crate::row::{DTypes::All, Row, one, two};

#[rustfmt::skip] // a line a row
pub(super) fn rows() -> Vec<Row> {
    const DEEP: [&[usize]; 1] = [&[2, 3, 4]];
    let rows: Vec<Row> = vec![
        one("reshape", "x.reshape(2, -1)", |x| x.reshape([2, -1])).bad(|x| x[0].reshape([5, -1])),
        one("flatten_all", "x.flatten()", Tensor::flatten_all),
        one("flatten", "x.flatten(1, 2)", |x| x.flatten(1, 2)).shapes(DEEP).bad(|x| x[0].flatten(2, 1)),
        one("permute", "x.permute(2, 0, 1)", |x| x.permute([2, 0, 1])).shapes(DEEP).bad(|x| x[0].permute([0, 0, 1])),
        one("transpose", "x.transpose(0, -1)", |x| x.transpose(0, -1)).shapes(DEEP).bad(|x| x[0].transpose(0, 3)),
        one("t", "x.t()", Tensor::t).bad(|x| x[0].unsqueeze(0)?.t()),
        one("squeeze", "x.squeeze(1)", |x| x.squeeze(1)).shapes([&[3, 1, 2]]).bad(|x| x[0].squeeze(3)),
        one("unsqueeze", "x.unsqueeze(-2)", |x| x.unsqueeze(-2)).bad(|x| x[0].unsqueeze(4)),
        one("expand", "x.expand(2, 3, 4)", |x| x.expand([2, 3, 4])).shapes([&[3, 1]]).bad(|x| x[0].expand([4, 4])),
        one("unfold", "x.unfold(1, 3, 2)", |x| x.unfold(1, 3, 2)).shapes([&[2, 7]]).bad(|x| x[0].unfold(1, 8, 1)),
        one("windows", "x.unfold(1, 3, 1)[..., ::2]", |x| x.windows(1, 2, 1, 2)).shapes([&[2, 7]])
            .bad(|x| x[0].windows(1, 8, 1, 1)),
        one("slice", "x[:, 1:3]", |x| x.slice(1, 1..3)),
        one("slice_step", "x[:, 1::2]", |x| x.slice_step(1, 1.., 2)),
        one("narrow", "x.narrow(1, 1, 2)", |x| x.narrow(1, 1, 2)).bad(|x| x[0].narrow(1, 3, 2)),
        one("select", "x.select(1, -1)", |x| x.select(1, -1)).bad(|x| x[0].select(1, 4)),
        one("flip", "x.flip(0, 1)", |x| x.flip([0, 1])).bad(|x| x[0].flip([0, 0])),
        two("concat", "torch.cat([x, y, x], 1)", |x, y| Tensor::concat(&[x, y, x], 1)).shapes([&[2, 3], &[2, 1]])
            .bad(|x| Tensor::concat(&[&x[0], &x[1]], 0)),
        two("stack", "torch.stack([x, y], -1)", |x, y| Tensor::stack(&[x, y], -1)).shapes([&[2, 3], &[2, 3]])
            .bad(|x| Tensor::stack(&[&x[0], &x[1].t()?], 0)),
        one("split", "torch.split(x, 3, 1)", |x| x.split(3, 1)).bad(|x| x[0].split(0, 1)),
        one("pad", "F.pad(x, (2, 0, 1, 1), value=5)", |x| x.pad(&[(1, 1), (2, 0)], 5)).bad(|x| x[0].pad(&[(1, 1)], 5)),
        one("tril", "torch.tril(x, 1)", |x| x.tril(1)).bad(|x| x[0].select(0, 0)?.tril(0)),
        one("triu", "torch.triu(x, -1)", |x| x.triu(-1)).bad(|x| x[0].select(0, 0)?.triu(0)),
        one("i", "x[..., ::2, None, 1]", |x| x.i((Ellipsis, Step(.., 2), NewAxis, 1))).shapes(DEEP).bad(|x| x[0].i((0, 0, 0, 0))),
        one("i", "x[1, [2, 0]]", |x| x.i((1, [2, 0]))).shapes(DEEP),
        one("index_put", "x.index_put((torch.tensor([1, 0]),), torch.tensor(7).to(x))", |x| x.index_put([1, 0], 7, false))
            .bad(|x| x[0].index_put([3], 7, false)),
    ];
    rows.into_iter().map(|row| row.of(All)).collect()
}
