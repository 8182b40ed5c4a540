//! Products of matrices, and their kin.

use taper::Tensor;

use crate::row::{
    DTypes::{All, Numbers},
    Row, one, three, two,
};

#[rustfmt::skip] // a line a row
pub(super) fn rows() -> Vec<Row> {
    vec![
        two("matmul", "torch.matmul(x, y)", |x, y| x.matmul(y)).shapes([&[3, 4], &[4, 2]]).of(Numbers)
            .bad(|x| x[0].matmul(&x[1].t()?)),
        two("matmul_wide", "torch.matmul(x, y)", |x, y| x.matmul_wide(y)).shapes([&[3, 4], &[4, 2]]).of(Numbers)
            .bad(|x| x[0].matmul_wide(&x[1].t()?)),
        two("matmul", "torch.matmul(x, y)", |x, y| x.matmul(y)).of(Numbers),
        two("matmul", "torch.matmul(x, y)", |x, y| x.matmul(y)).shapes([&[4], &[4]]).of(Numbers),
        two("matmul", "torch.matmul(x, y)", |x, y| x.matmul(y)).shapes([&[2, 1, 2, 3], &[2, 3, 2]]).of(Numbers),
        two("outer", "torch.outer(x, y)", |x, y| x.outer(y)).shapes([&[3], &[4]]).of(Numbers).bad(|x| x[0].unsqueeze(0)?.outer(&x[1])),
        two("tensordot", "torch.tensordot(x, y, ([1, 2], [1, 0]))", |x, y| x.tensordot(y, [1, 2], [1, 0]))
            .shapes([&[2, 3, 2], &[2, 3]]).of(Numbers).bad(|x| x[0].tensordot(&x[1], [0], [1])),
        two("tensordot", "torch.tensordot(x, y, ([1, 0], [0, 1]))", |x, y| x.tensordot(y, [1, 0], [0, 1]))
            .shapes([&[2, 3], &[3, 1, 4]]).of(Numbers).bad(|x| x[0].tensordot(&x[1], [0], [2])),
        two("tensordot", "torch.tensordot(x, y, ([1], [0]))", |x, y| x.tensordot(y, 1, 0)).shapes([&[2, 1], &[3, 4]]).of(Numbers),
        two("einsum", "torch.einsum('bij,bjk->bik', x, y)", |x, y| Tensor::einsum("bij,bjk->bik", &[x, y]))
            .shapes([&[2, 3, 2], &[2, 2, 3]]).of(Numbers).bad(|x| Tensor::einsum("bij,bik->bjk", &[&x[0], &x[1]])),
        two("einsum", "torch.einsum('ij,j->ji', x, y)", |x, y| Tensor::einsum("ij,j->ji", &[x, y])).of(Numbers),
        one("einsum", "torch.einsum('ij->i', x)", |x| Tensor::einsum("ij->i", &[x])).of(All),
        one("einsum", "torch.einsum('ij->', x)", |x| Tensor::einsum("ij->", &[x])).of(All),
        one("einsum", "torch.einsum('ij->ji', x)", |x| Tensor::einsum("ij->ji", &[x])).of(All),
        three("einsum", "torch.einsum('ij,jk,ki->', x, y, z)", |x, y, z| Tensor::einsum("ij,jk,ki->", &[x, y, z]))
            .shapes([&[2, 3], &[3, 2], &[2, 2]]).of(Numbers),
        two("dot", "torch.dot(x, y)", |x, y| x.dot(y)).shapes([&[4], &[4]]).of(Numbers).bad(|x| x[0].dot(&x[1].narrow(0, 0, 3)?)),
        three("addmm", "torch.addmm(x, y, z, beta=2, alpha=3)", |x, y, z| x.addmm(y, z, 2, 3)).shapes([&[2], &[3, 4], &[4, 2]]).of(Numbers)
            .bad(|x| x[0].addmm(&x[1], &x[1], 1, 1)),
        three("addmv", "torch.addmv(x, y, z, beta=2, alpha=3)", |x, y, z| x.addmv(y, z, 2, 3)).shapes([&[3], &[3, 4], &[4]]).of(Numbers)
            .bad(|x| x[0].addmv(&x[1], &x[0], 1, 1)),
        three("addr", "torch.addr(x, y, z, beta=2, alpha=3)", |x, y, z| x.addr(y, z, 2, 3)).shapes([&[3, 4], &[3], &[4]]).of(Numbers)
            .bad(|x| x[0].addr(&x[0], &x[1], 1, 1)),
        three("baddbmm", "torch.baddbmm(x, y, z, beta=2, alpha=3)", |x, y, z| x.baddbmm(y, z, 2, 3))
            .shapes([&[2, 3, 2], &[2, 3, 4], &[2, 4, 2]]).of(Numbers).bad(|x| x[0].baddbmm(&x[1], &x[1], 1, 1)),
        three("addbmm", "torch.addbmm(x, y, z, beta=2, alpha=3)", |x, y, z| x.addbmm(y, z, 2, 3))
            .shapes([&[3, 2], &[2, 3, 4], &[2, 4, 2]]).of(Numbers).bad(|x| x[0].addbmm(&x[1], &x[1], 1, 1)),
        two("kron", "torch.kron(x, y)", |x, y| x.kron(y)).shapes([&[2, 3], &[2, 2]]).of(Numbers).bad(|x| x[0].kron(&x[1].expand([usize::MAX >> 4, 2, 2])?)),
        two("kron", "torch.kron(x, y)", |x, y| x.kron(y)).shapes([&[2], &[3, 1, 2]]).of(Numbers),
        two("cross", "torch.linalg.cross(x, y.unsqueeze(0))", |x, y| x.cross(y, -1)).shapes([&[2, 3], &[3]]).of(Numbers).bad(|x| x[0].cross(&x[1], 0)),
        two("cross", "torch.cross(x, y, 1)", |x, y| x.cross(y, 1)).shapes([&[2, 3, 4], &[2, 3, 1]]).of(Numbers),
        two("vecdot", "torch.linalg.vecdot(x, y)", |x, y| x.vecdot(y, -1)).of(Numbers).bad(|x| x[0].vecdot(&x[1], 2)),
        two("vecdot", "torch.linalg.vecdot(x, y, dim=0)", |x, y| x.vecdot(y, 0)).shapes([&[3, 4], &[3, 1]]).of(Numbers),
    ]
}
