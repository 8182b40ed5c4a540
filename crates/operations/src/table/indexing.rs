//! Elements by their index.

use taper::Tensor;

use crate::row::{
    DTypes::{All, Numbers},
    Row, one, three, two,
};

#[rustfmt::skip] // a line a row
pub(super) fn rows() -> Vec<Row> {
    vec![
        two("gather", "torch.gather(x, 1, y.long())", |x, y| x.gather(1, y)).shapes([&[3, 4], &[3, 2]]).index(1, &[0, 3, 1, 1, 2, 0]).of(All)
            .bad(|x| x[0].gather(2, &x[1])),
        two("index_select", "torch.index_select(x, 1, y)", |x, y| x.index_select(1, y)).shapes([&[3, 4], &[3]]).index(1, &[3, 0, 3]).of(All)
            .bad(|x| x[0].index_select(0, &x[1])),
        three("scatter_add", "torch.scatter_add(x, 0, y.long(), z)", |x, y, z| x.scatter_add(0, y, z))
            .shapes([&[3, 4], &[2, 4], &[2, 4]]).index(1, &[2, 0, 1, 2, 2, 1, 1, 0]).of(Numbers).bad(|x| x[0].scatter_add(2, &x[1], &x[2])),
        three("index_add", "torch.index_add(x, 1, y, z)", |x, y, z| x.index_add(1, y, z))
            .shapes([&[2, 4], &[3], &[2, 3]]).index(1, &[3, 0, 3]).of(Numbers).bad(|x| x[0].index_add(0, &x[1], &x[2])),
        two("masked_select", "torch.masked_select(x, y)", |x, y| x.masked_select(y)).shapes([&[3, 4], &[3, 4]]).mask(1).of(All).by_value()
            .bad(|x| x[0].masked_select(&x[0])),
        one("nonzero", "torch.nonzero(x)", Tensor::nonzero).of(All).order(0).by_value(),
        one("one_hot", "F.one_hot(x.long(), 5)", |x| x.one_hot(5)).shapes([&[2, 3]]).index(0, &[4, 0, 1, 4, 2, 2]).order(0)
            .bad(|x| x[0].one_hot(4)),
    ]
}
