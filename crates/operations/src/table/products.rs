//! Products of matrices, and their kin.

use taper::Tensor;

use crate::row::{DTypes::Numbers, Row, three, two};

#[rustfmt::skip] // a line a row
pub(super) fn rows() -> Vec<Row> {
    vec![
        two("matmul", "torch.matmul(x, y)", |x, y| x.matmul(y)).shapes([&[3, 4], &[4, 2]]).of(Numbers)
            .bad(|x| x[0].matmul(&x[1].t()?)),
        two("matmul", "torch.matmul(x, y)", |x, y| x.matmul(y)).of(Numbers),
        two("matmul", "torch.matmul(x, y)", |x, y| x.matmul(y)).shapes([&[4], &[4]]).of(Numbers),
        two("matmul", "torch.matmul(x, y)", |x, y| x.matmul(y)).shapes([&[2, 1, 2, 3], &[2, 3, 2]]).of(Numbers),
        two("outer", "torch.outer(x, y)", |x, y| x.outer(y)).shapes([&[3], &[4]]).of(Numbers).bad(|x| x[0].unsqueeze(0)?.outer(&x[1])),
        two("tensordot", "torch.tensordot(x, y, ([1, 2], [1, 0]))", |x, y| x.tensordot(y, [1, 2], [1, 0]))
            .shapes([&[2, 3, 2], &[2, 3]]).of(Numbers).bad(|x| x[0].tensordot(&x[1], [0], [1])),
        two("einsum", "torch.einsum('bij,bjk->bik', x, y)", |x, y| Tensor::einsum("bij,bjk->bik", &[x, y]))
            .shapes([&[2, 3, 2], &[2, 2, 3]]).of(Numbers).bad(|x| Tensor::einsum("bij,bik->bjk", &[&x[0], &x[1]])),
        two("einsum", "torch.einsum('ij,j->ji', x, y)", |x, y| Tensor::einsum("ij,j->ji", &[x, y])).of(Numbers),
        three("einsum", "torch.einsum('ij,jk,ki->', x, y, z)", |x, y, z| Tensor::einsum("ij,jk,ki->", &[x, y, z]))
            .shapes([&[2, 3], &[3, 2], &[2, 2]]).of(Numbers),
    ]
}
