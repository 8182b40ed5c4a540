//! Other shapes, and parts of tensors.

use taper::{Ellipsis, MeshIndexing, NewAxis, StepBy, Tensor};

use crate::row::{
    DTypes::{All, Numbers},
    Row, one, three, two,
};

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
        one("pad", "F.pad(x, (-1, 2, 1, -2), value=5)", |x| x.pad(&[(1, -2), (-1, 2)], 5)).bad(|x| x[0].pad(&[(-2, -2), (0, 0)], 5)),
        one("tril", "torch.tril(x, 1)", |x| x.tril(1)).bad(|x| x[0].select(0, 0)?.tril(0)),
        one("triu", "torch.triu(x, -1)", |x| x.triu(-1)).bad(|x| x[0].select(0, 0)?.triu(0)),
        one("i", "x[..., ::2, None, 1]", |x| x.i((Ellipsis, StepBy(.., 2), NewAxis, 1))).shapes(DEEP).bad(|x| x[0].i((0, 0, 0, 0))),
        one("i", "x[1, [2, 0]]", |x| x.i((1, [2, 0]))).shapes(DEEP),
        one("index_put", "x.index_put((torch.tensor([1, 0]),), torch.tensor(7).to(x))", |x| x.index_put([1, 0], 7, false))
            .bad(|x| x[0].index_put([3], 7, false)),
        one("roll", "torch.roll(x, (1, -2), (0, 1))", |x| x.roll([1, -2], [0, 1])).bad(|x| x[0].roll([1, 2], 0)),
        one("roll", "torch.roll(x, 5)", |x| x.roll(5, ..)),
        one("repeat", "x.repeat(2, 3, 2)", |x| x.repeat([2, 3, 2])).bad(|x| x[0].repeat([2])),
        one("repeat", "x.repeat(1, 2, 3, 2)", |x| x.repeat([1, 2, 3, 2])).shapes([&[2, 1, 2, 3]]),
        one("tile", "torch.tile(x, (2,))", |x| x.tile([2])).bad(|x| x[0].tile([usize::MAX])),
        one("tile", "torch.tile(x, (2, 1, 2))", |x| x.tile([2, 1, 2])),
        one("repeat_interleave", "torch.repeat_interleave(x, 3, 1)", |x| x.repeat_interleave(3, 1)).bad(|x| x[0].repeat_interleave(3, 2)),
        two("repeat_interleave_counts", "torch.repeat_interleave(x, y, 0)", |x, y| x.repeat_interleave_counts(y, 0)).by_value().shapes([&[3, 4], &[3]])
            .index(1, &[2, 0, 3]).no_ties().bad(|x| x[0].repeat_interleave_counts(&x[1], 1))
            .note("counts are read on the host"),
        one("chunk", "torch.chunk(x, 3, 1)", |x| x.chunk(3, 1)).bad(|x| x[0].chunk(0, 1)),
        one("split_with_sizes", "torch.split(x, (1, 3), 1)", |x| x.split_with_sizes(&[1, 3], 1)).bad(|x| x[0].split_with_sizes(&[1, 2], 1)),
        one("tensor_split", "torch.tensor_split(x, 3, 1)", |x| x.tensor_split(3, 1)).bad(|x| x[0].tensor_split(0, 1)),
        one("tensor_split_at", "torch.tensor_split(x, (1, -1), 1)", |x| x.tensor_split_at(&[1, -1], 1)).bad(|x| x[0].tensor_split_at(&[1], 2)),
        one("unbind", "torch.unbind(x, 1)", |x| x.unbind(1)).bad(|x| x[0].unbind(2)),
        one("movedim", "torch.movedim(x, (0, 2), (-1, 0))", |x| x.movedim([0, 2], [-1, 0])).shapes(DEEP).bad(|x| x[0].movedim([0, 1], 0)),
        one("rot90", "torch.rot90(x, 1, (0, 1))", |x| x.rot90(1, [0, 1])).bad(|x| x[0].rot90(1, 0)),
        one("rot90", "torch.rot90(x, -1, (2, 1))", |x| x.rot90(-1, [2, 1])).shapes(DEEP),
        one("rot90", "torch.rot90(x, 2, (0, 1))", |x| x.rot90(2, [0, 1])),
        one("as_strided", "torch.as_strided(x, (2, 3), (1, 2), 4)", |x| x.as_strided([2, 3], &[1, 2], 4)).bad(|x| x[0].as_strided([2, 3], &[5, 2], 4)),
        one("as_strided", "torch.as_strided(x, (3, 2), (0, 3))", |x| x.as_strided([3, 2], &[0, 3], 0)),
        one("vander", "torch.vander(x.detach(), 4)", |x| x.vander(4, false)).shapes([&[3]]).of(Numbers).bad(|x| x[0].vander(usize::MAX, true)),
        one("vander", "torch.linalg.vander(x, N=3)", |x| x.vander(3, true)).shapes([&[]]).of(Numbers),
        one("vander", "torch.linalg.vander(x, N=3)", |x| x.vander(3, true)).of(Numbers).exactly(0, &[0.0, 1.0, -1.5, 2.0, -1.0, 0.5]),
        two("hstack", "torch.hstack((x, y))", |x, y| Tensor::hstack(&[x, y])).shapes([&[3, 4], &[3, 2]]).bad(|x| Tensor::hstack(&[&x[0], &x[1].t()?])),
        two("hstack", "torch.hstack((x, y))", |x, y| Tensor::hstack(&[x, y])).shapes([&[3], &[]]),
        two("vstack", "torch.vstack((x, y))", |x, y| Tensor::vstack(&[x, y])).bad(|x| Tensor::vstack(&[&x[0], &x[0].t()?])),
        two("dstack", "torch.dstack((x, y))", |x, y| Tensor::dstack(&[x, y])).shapes([&[4], &[1, 4, 2]]).bad(|x| Tensor::dstack(&x[1..1])),
        two("column_stack", "torch.column_stack((x, y))", |x, y| Tensor::column_stack(&[x, y])).shapes([&[3], &[3, 2]])
            .bad(|x| Tensor::column_stack(&[&x[0], &x[1].t()?])),
        two("broadcast_tensors", "torch.broadcast_tensors(x, y)", |x, y| Tensor::broadcast_tensors(&[x, y])).shapes([&[3, 1], &[4]])
            .bad(|x| Tensor::broadcast_tensors(&[&x[0].repeat([1, 2])?, &x[1]])),
        three("meshgrid", "torch.meshgrid(x, y, z, indexing='ij')", |x, y, z| Tensor::meshgrid(&[x, y, z], MeshIndexing::Ij))
            .shapes([&[3], &[4], &[]]).bad(|x| Tensor::meshgrid(&[&x[0].unsqueeze(0)?], MeshIndexing::Ij)),
        three("meshgrid", "torch.meshgrid(x, y, z, indexing='xy')", |x, y, z| Tensor::meshgrid(&[x, y, z], MeshIndexing::Xy))
            .shapes([&[3], &[4], &[2]]),
        two("cartesian_prod", "torch.cartesian_prod(x, y)", |x, y| Tensor::cartesian_prod(&[x, y])).shapes([&[3], &[2]])
            .bad(|x| Tensor::cartesian_prod(&[&x[0].unsqueeze(0)?])),
        one("combinations", "torch.combinations(x, 3)", |x| x.combinations(3, false)).shapes([&[5]]).bad(|x| x[0].unsqueeze(0)?.combinations(2, false)),
        one("combinations", "torch.combinations(x, 2, with_replacement=True)", |x| x.combinations(2, true)).shapes([&[4]]),
        three("block_diag", "torch.block_diag(x, y, z)", |x, y, z| Tensor::block_diag(&[x, y, z])).shapes([&[2, 3], &[2], &[]])
            .bad(|x| Tensor::block_diag(&[&x[0].unsqueeze(0)?])),
        one("diagonal", "torch.diagonal(x)", |x| x.diagonal(0, 0, 1)).bad(|x| x[0].diagonal(0, 1, -1)),
        one("diagonal", "torch.diagonal(x, -1, 2, 0)", |x| x.diagonal(-1, 2, 0)).shapes(DEEP),
        one("diagonal", "torch.diagonal(x, 2, -2, -1)", |x| x.diagonal(2, -2, -1)).shapes(DEEP),
        one("diag", "torch.diag(x, -1)", |x| x.diag(-1)).shapes([&[3]]).bad(|x| x[0].select(0, 0)?.diag(0)),
        one("diag", "torch.diag(x, 1)", |x| x.diag(1)),
        one("diag_embed", "torch.diag_embed(x, 1, 0, 2)", |x| x.diag_embed(1, 0, 2)).bad(|x| x[0].diag_embed(0, 1, 1)),
        one("diag_embed", "torch.diag_embed(x)", |x| x.diag_embed(0, -2, -1)),
        one("diagflat", "torch.diagflat(x, -2)", |x| x.diagflat(-2)).shapes([&[2, 2]]).bad(|x| x[0].diagflat(isize::MAX)),
        two("diagonal_scatter", "torch.diagonal_scatter(x, y, 1, 2, 0)", |x, y| x.diagonal_scatter(y, 1, 2, 0)).shapes([&[2, 3, 4], &[3, 1]])
            .bad(|x| x[0].diagonal_scatter(&x[1], 0, 0, 1)),
        two("diagonal_scatter", "torch.diagonal_scatter(x, y, -1)", |x, y| x.diagonal_scatter(y, -1, 0, 1)).shapes([&[3, 4], &[2]]),
    ];
    // A row that sums, or takes powers, names its own dtypes.
    let has_own = |row: &Row| row.dtypes == Numbers;
    rows.into_iter().map(|row| if has_own(&row) { row } else { row.of(All) }).collect()
}
