//! `linalg`. Matrices are made well-conditioned in the row itself: x + 3·I, x·xᵀ + I. The signs of vectors
//! are left out, because they are arbitrary.

use taper::{
    Error, Generator, Result, Tensor,
    linalg::{self as l, MatrixNorm, QrMode, Uplo},
};

use crate::row::{DTypes, Row, one, three, two};

/// x + 3·I.
fn regular(x: &Tensor) -> Result<Tensor> {
    x.add(&Tensor::eye(3, (x.dtype(), &x.device()))?.mul_scalar(3))
}

/// x·xᵀ + I.
fn positive(x: &Tensor) -> Result<Tensor> {
    x.matmul(&x.transpose(-1, -2)?)?.add(&Tensor::eye(3, (x.dtype(), &x.device()))?)
}

#[rustfmt::skip] // a line a row
pub(super) fn rows() -> Vec<Row> {
    const SQUARE: &[usize] = &[2, 3, 3];
    const WIDE: &[usize] = &[3, 4];
    let rows = vec![
        one("linalg::cholesky", "torch.linalg.cholesky(x @ x.mT + torch.eye(3))", |x| l::cholesky(&positive(x)?, false))
            .shapes([SQUARE]).bad(|x| l::cholesky(&x[0].narrow(-1, 0, 2)?, false)),
        two("linalg::cholesky_solve", "torch.cholesky_solve(y, (x + 3 * torch.eye(3)).tril())", |x, y| l::cholesky_solve(y, &regular(x)?, false))
            .shapes([SQUARE, &[2, 3, 2]]).bad(|x| l::cholesky_solve(&x[1].narrow(1, 0, 2)?, &x[0], false)),
        two("linalg::cholesky_solve", "torch.cholesky_solve(y, (x + 3 * torch.eye(3)).triu(), upper=True)", |x, y| l::cholesky_solve(y, &regular(x)?, true))
            .shapes([&[3, 3], &[3, 2]]),
        one("linalg::cholesky_inverse", "torch.cholesky_inverse((x + 3 * torch.eye(3)).tril())", |x| l::cholesky_inverse(&regular(x)?, false))
            .shapes([SQUARE]).bad(|x| l::cholesky_inverse(&x[0].narrow(-1, 0, 2)?, false)),
        one("linalg::cholesky_inverse", "torch.cholesky_inverse((x + 3 * torch.eye(3)).triu(), upper=True)", |x| l::cholesky_inverse(&regular(x)?, true))
            .shapes([&[3, 3]]),
        one("linalg::det", "torch.linalg.det(x + 3 * torch.eye(3))", |x| l::det(&regular(x)?)).shapes([SQUARE])
            .bad(|x| l::det(&x[0].narrow(-1, 0, 2)?)),
        one("linalg::slogdet", "torch.linalg.slogdet(x + 3 * torch.eye(3))", |x| l::slogdet(&regular(x)?)).shapes([SQUARE])
            .bad(|x| l::slogdet(&x[0].narrow(-1, 0, 2)?)),
        one("linalg::logdet", "torch.logdet(x @ x.mT + torch.eye(3))", |x| l::logdet(&positive(x)?)).shapes([SQUARE])
            .bad(|x| l::logdet(&x[0].narrow(-1, 0, 2)?)),
        one("linalg::matrix_sqrth", "torch.linalg.matrix_sqrth(x @ x.mT + torch.eye(3))", |x| l::matrix_sqrth(&positive(x)?)).shapes([SQUARE])
            .bad(|x| l::matrix_sqrth(&x[0].narrow(-1, 0, 2)?)),
        one("linalg::eigh", "(lambda r: (r[0], r[1].abs()))(torch.linalg.eigh(x @ x.mT + torch.eye(3)))",
            |x| l::eigh(&positive(x)?, Uplo::Lower).map(|(w, v)| (w, v.abs()))).shapes([SQUARE]).bad(|x| l::eigh(&x[0].narrow(-1, 0, 2)?, Uplo::Lower)),
        one("linalg::eigvalsh", "torch.linalg.eigvalsh(x @ x.mT + torch.eye(3))", |x| l::eigvalsh(&positive(x)?, Uplo::Upper)).shapes([SQUARE])
            .bad(|x| l::eigvalsh(&x[0].narrow(-1, 0, 2)?, Uplo::Lower)),
        one("linalg::lu", "torch.linalg.lu(x + 3 * torch.eye(3))", |x| l::lu(&regular(x)?)).shapes([SQUARE]),
        two("linalg::lu_solve", "torch.linalg.lu_solve(*torch.linalg.lu_factor(x + 3 * torch.eye(3)), y)",
            |x, y| { let (p, lower, u) = l::lu(&regular(x)?)?; l::lu_solve(&p, &lower, &u, y, true, false) }).shapes([SQUARE, &[2, 3, 2]])
            .bad(|x| l::lu_solve(&x[0], &x[0], &x[0], &x[1].narrow(1, 0, 2)?, true, false)),
        two("linalg::lu_solve", "torch.linalg.lu_solve(*torch.linalg.lu_factor(x + 3 * torch.eye(3)), y, adjoint=True)",
            |x, y| { let (p, lower, u) = l::lu(&regular(x)?)?; l::lu_solve(&p, &lower, &u, y, true, true) }).shapes([SQUARE, &[2, 3, 2]]),
        two("linalg::lu_solve", "torch.linalg.lu_solve(*torch.linalg.lu_factor(x + 3 * torch.eye(3)), y, left=False)",
            |x, y| { let (p, lower, u) = l::lu(&regular(x)?)?; l::lu_solve(&p, &lower, &u, y, false, false) }).shapes([SQUARE, &[2, 2, 3]]),
        two("linalg::lu_solve", "torch.linalg.lu_solve(*torch.linalg.lu_factor(x + 3 * torch.eye(3)), y, left=False, adjoint=True)",
            |x, y| { let (p, lower, u) = l::lu(&regular(x)?)?; l::lu_solve(&p, &lower, &u, y, false, true) }).shapes([SQUARE, &[2, 2, 3]]),
        one("linalg::matrix_norm", "torch.linalg.matrix_norm(x)", |x| l::matrix_norm(x, MatrixNorm::Frobenius, false)).shapes([SQUARE])
            .bad(|x| l::matrix_norm(&x[0].select(0, 0)?.select(0, 0)?, MatrixNorm::Frobenius, false)),
        one("linalg::matrix_norm", "torch.linalg.matrix_norm(x, 'nuc', keepdim=True)", |x| l::matrix_norm(x, MatrixNorm::Nuclear, true)).shapes([WIDE]),
        one("linalg::matrix_norm", "torch.linalg.matrix_norm(x, 1)", |x| l::matrix_norm(x, MatrixNorm::One, false)).shapes([WIDE]),
        one("linalg::cond", "torch.linalg.cond(x + 3 * torch.eye(3))", |x| l::cond(&regular(x)?, MatrixNorm::Two)).shapes([SQUARE]),
        one("linalg::pinv", "torch.linalg.pinv(x)", |x| l::pinv(x, l::Tolerance::default(), false)).shapes([WIDE]),
        one("linalg::matrix_rank", "torch.linalg.matrix_rank(x)", |x| l::matrix_rank(x, l::Tolerance::default(), false)).shapes([WIDE]).order(0),
        two("linalg::lstsq", "torch.linalg.lstsq(x, y)[0]", |x, y| l::lstsq(x, y, None).map(|r| r.solution)).shapes([&[4, 3], &[4, 2]])
            .bad(|x| l::lstsq(&x[0], &x[1].narrow(0, 0, 3)?, None).map(|r| r.solution)),
        one("linalg::qr", "(lambda r: (r[0].abs(), r[1].abs()))(torch.linalg.qr(x))",
            |x| l::qr(x, QrMode::Reduced).map(|(q, r)| (q.abs(), r.abs()))).shapes([&[4, 3]]).no_ties(),
        two("linalg::householder_product", "torch.linalg.householder_product(x, y)", |x, y| l::householder_product(x, y)).shapes([&[2, 4, 3], &[2, 2]])
            .bad(|x| l::householder_product(&x[0], &x[1].narrow(0, 0, 1)?)),
        one("linalg::geqrf", "torch.geqrf(x)", |x| l::geqrf(x)).shapes([&[4, 3]]).no_ties().order(0).bad(|x| l::geqrf(&x[0].select(0, 0)?)),
        three("linalg::ormqr", "torch.ormqr(x, y, z)", |x, y, z| l::ormqr(x, y, z, true, false)).shapes([&[2, 4, 3], &[2, 3], &[2, 4, 2]])
            .bad(|x| l::ormqr(&x[0], &x[1], &x[2].narrow(1, 0, 3)?, true, false)),
        three("linalg::ormqr", "torch.ormqr(x, y, z, left=False, transpose=True)", |x, y, z| l::ormqr(x, y, z, false, true))
            .shapes([&[2, 4, 3], &[2, 3], &[2, 2, 4]]),
        one("linalg::ldl_factor", "torch.linalg.ldl_factor(x + x.mT)", |x| l::ldl_factor(&x.add(&x.transpose(-1, -2)?)?)).shapes([SQUARE]).no_ties().order(0)
            .bad(|x| l::ldl_factor(&x[0].narrow(-1, 0, 2)?)),
        two("linalg::ldl_solve", "torch.linalg.ldl_solve(*torch.linalg.ldl_factor(x + x.mT), y)",
            |x, y| { let (ld, pivots) = l::ldl_factor(&x.add(&x.transpose(-1, -2)?)?)?; l::ldl_solve(&ld, &pivots, y) }).shapes([SQUARE, &[2, 3, 2]]).no_ties().order(0)
            .bad(|x| l::ldl_solve(&x[0], &x[1], &x[1])),
        one("linalg::polar", "(lambda u, s, v: (u @ v, v.mT @ s.diag_embed() @ v))(*torch.linalg.svd(x, full_matrices=False))", |x| l::polar(x, false))
            .shapes([&[4, 3]]).no_ties().loose(4.0).bad(|x| l::polar(&x[0].select(0, 0)?, false)),
        one("linalg::polar", "(lambda u, s, v: (u @ v, u @ s.diag_embed() @ u.mT))(*torch.linalg.svd(x, full_matrices=False))", |x| l::polar(x, true))
            .shapes([WIDE]).no_ties().loose(4.0),
        one("linalg::symmetric_function", "(lambda e, q: q @ e.exp().diag_embed() @ q.mT)(*torch.linalg.eigh(x + x.mT))",
            |x| l::symmetric_function(&x.add(&x.transpose(-1, -2)?)?, Uplo::Lower, |values| Ok(values.exp()))).shapes([SQUARE]).loose(8.0)
            .bad(|x| l::symmetric_function(&x[0].narrow(-1, 0, 2)?, Uplo::Lower, |values| Ok(values.exp()))),
        two("linalg::tensorsolve", "torch.linalg.tensorsolve(x + torch.eye(6).reshape(2, 3, 6), y)",
            |x, y| l::tensorsolve(&x.add(&Tensor::eye(6, (x.dtype(), &x.device()))?.reshape([2, 3, 6])?)?, y)).shapes([&[2, 3, 6], &[2, 3]]).loose(8.0)
            .bad(|x| l::tensorsolve(&x[0], &x[1].t()?)),
        two("linalg::tensorsolve_axes", "torch.linalg.tensorsolve(x + torch.eye(6).reshape(2, 3, 6).movedim(2, 1), y, dims=(1,))",
            |x, y| l::tensorsolve_axes(&x.add(&Tensor::eye(6, (x.dtype(), &x.device()))?.reshape([2, 3, 6])?.movedim(2, 1)?)?, y, 1))
            .shapes([&[2, 6, 3], &[2, 3]]).loose(8.0).bad(|x| l::tensorsolve_axes(&x[0], &x[1], 3)),
        two("linalg::tensorsolve_axes", "torch.linalg.tensorsolve(x + torch.eye(6).reshape(3, 2, 2, 3), y, dims=(1, 0))",
            |x, y| l::tensorsolve_axes(&x.add(&Tensor::eye(6, (x.dtype(), &x.device()))?.reshape([3, 2, 2, 3])?)?, y, [1, 0]))
            .shapes([&[3, 2, 2, 3], &[2, 3]]).loose(8.0).bad(|x| l::tensorsolve_axes(&x[0], &x[1], [1, 1])),
        one("linalg::tensorinv", "torch.linalg.tensorinv(x + 5 * torch.eye(6).reshape(2, 3, 6), ind=2)",
            |x| l::tensorinv(&x.add(&Tensor::eye(6, (x.dtype(), &x.device()))?.reshape([2, 3, 6])?.mul_scalar(5))?, 2)).shapes([&[2, 3, 6]]).loose(8.0)
            .bad(|x| l::tensorinv(&x[0], 1)),
        two("linalg::solve", "torch.linalg.solve(x + 3 * torch.eye(3), y)", |x, y| l::solve(&regular(x)?, y)).shapes([SQUARE, &[2, 3, 2]])
            .bad(|x| l::solve(&x[0], &x[1].narrow(1, 0, 2)?)),
        two("linalg::solve_triangular", "torch.linalg.solve_triangular(x + 3 * torch.eye(3), y, upper=True)",
            |x, y| l::solve_triangular(&regular(x)?, y, true, true, false)).shapes([SQUARE, &[2, 3, 2]])
            .bad(|x| l::solve_triangular(&x[0], &x[1].narrow(1, 0, 2)?, true, true, false)),
        one("linalg::inv", "torch.linalg.inv(x + 3 * torch.eye(3))", |x| l::inv(&regular(x)?)).shapes([SQUARE]).bad(|x| l::inv(&x[0].narrow(-1, 0, 2)?)),
        one("linalg::matrix_power", "torch.linalg.matrix_power(x + 3 * torch.eye(3), -2)", |x| l::matrix_power(&regular(x)?, -2)).shapes([SQUARE])
            .bad(|x| l::matrix_power(&x[0].narrow(-1, 0, 2)?, 2)),
        one("linalg::matrix_exp", "torch.linalg.matrix_exp(x)", |x| l::matrix_exp(x)).by_value().shapes([SQUARE]).loose(8.0).bad(|x| l::matrix_exp(&x[0].narrow(-1, 0, 2)?)),
        three("linalg::multi_dot", "torch.linalg.multi_dot([x, y, z])", |x, y, z| l::multi_dot(&[x, y, z])).shapes([&[3], &[3, 4], &[4, 2]])
            .bad(|x| l::multi_dot(&[&x[1], &x[2], &x[0]])),
        one("linalg::svd", "(lambda r: (r[0].abs(), r[1], r[2].abs()))(torch.linalg.svd(x, full_matrices=False))",
            |x| l::svd(x, false).map(|(u, s, v)| (u.abs(), s, v.abs()))).shapes([WIDE]).no_ties(),
        one("linalg::svd_lowrank", "(lambda r: (r[1], r[0] @ r[1].diag_embed() @ r[2].mT))(torch.svd_lowrank(x, q=3))",
            |x| { let (u, s, v) = l::svd_lowrank(x, 3, 2, &Generator::seed(1, &x.device()))?;
                let whole = u.mul(&s.unsqueeze(-2)?)?.matmul(&v.transpose(-2, -1)?)?; Ok::<_, Error>((s, whole)) })
            .shapes([WIDE]).no_ties().loose(8.0).bad(|x| l::svd_lowrank(&x[0], 4, 2, &Generator::seed(1, &x[0].device()))),
        one("linalg::pca_lowrank", "torch.pca_lowrank(x, q=2)[1]", |x| l::pca_lowrank(x, 2, true, 2, &Generator::seed(1, &x.device())).map(|r| r.1))
            .shapes([&[4, 2]]).no_ties().loose(8.0).bad(|x| l::pca_lowrank(&x[0], 0, true, 2, &Generator::seed(1, &x[0].device()))),
        one("linalg::svdvals", "torch.linalg.svdvals(x)", |x| l::svdvals(x)).shapes([WIDE]),
    ];
    // Sums and products, which the plain reference has as well.
    let composed = |row: &Row| {
        ["torch.linalg.matrix_norm(x)", "torch.linalg.matrix_norm(x, 1)"].contains(&row.torch)
            || ["linalg::matrix_exp", "linalg::multi_dot", "linalg::householder_product", "linalg::ormqr"].contains(&row.name)
    };
    rows.into_iter().map(|row| if composed(&row) { row.of(DTypes::F32F64) } else { row.by_cpu() }).collect()
}
