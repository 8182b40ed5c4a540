//! Elements by their index.

use taper::{Result, ScatterReduce, Tensor};

use crate::row::{
    DTypes::{All, Floats, Numbers},
    Row, one, three, two,
};

#[rustfmt::skip] // a line a row
pub(super) fn rows() -> Vec<Row> {
    let mut rows = vec![
        one("segment_reduce", "torch.segment_reduce(x, 'sum', lengths=torch.tensor([2, 0, 1]), axis=0)", |x| x.segment_reduce(ScatterReduce::Sum, &[2, 0, 1], 0))
            .bad(|x| x[0].segment_reduce(ScatterReduce::Sum, &[2, 2], 0)),
        one("segment_reduce", "torch.segment_reduce(x, 'mean', lengths=torch.tensor([1, 2]), axis=0)", |x| x.segment_reduce(ScatterReduce::Mean, &[1, 2], 0)),
        one("segment_reduce", "torch.segment_reduce(x.T.contiguous(), 'prod', lengths=torch.tensor([1, 3, 0]), axis=0).T", |x| x.segment_reduce(ScatterReduce::Prod, &[1, 3, 0], 1))
            .over(0.5, 2.0),
        one("segment_reduce", "torch.segment_reduce(x, 'max', lengths=torch.tensor([2, 1]), axis=0)", |x| x.segment_reduce(ScatterReduce::Amax, &[2, 1], 0))
            .kinks(),
        one("segment_reduce", "torch.segment_reduce(x, 'min', lengths=torch.tensor([2, 1]), axis=0)", |x| x.segment_reduce(ScatterReduce::Amin, &[2, 1], 0))
            .kinks(),
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
        two("take", "torch.take(x, y.long())", |x, y| x.take(y)).shapes([&[3, 4], &[2, 3]]).index(1, &[0, 11, -1, 5, 5, -12]).of(All)
            .bad(|x| x[0].take(&x[1].add_scalar(12))),
        two("take_along_dim", "torch.take_along_dim(x, y.long(), 1)", |x, y| x.take_along_dim(y, 1)).shapes([&[3, 4], &[3, 2]]).index(1, &[-1, 0, -4, 2, 1, -2]).of(All)
            .bad(|x| x[0].take_along_dim(&x[1].sub_scalar(1), 1)),
        one("nonzero_static", "torch.nonzero_static(x, size=5)", |x| x.nonzero_static(5, -1)).of(All).exactly(0, &[0.0, 1.0, -0.0, 2.0, 3.0]).order(0),
        one("nonzero_static", "torch.nonzero_static(x, size=20, fill_value=7)", |x| x.nonzero_static(20, 7)).shapes([&[2, 3, 2]]).exactly(0, &[0.0, 1.0, 2.0]).order(0)
            .bad(|x| x[0].nonzero_static(usize::MAX, 7)),
        one("unravel_index", "torch.unravel_index(x.long(), (2, 3, 4))", |x| x.unravel_index([2, 3, 4])).index(0, &[0, 23, 4, 11, 12, 7]).shapes([&[2, 3]]).order(0)
            .bad(|x| x[0].unravel_index([2, 0])),
        three("scatter_add", "torch.scatter_add(x, 0, y.long(), z.detach())", |x, y, z| x.scatter_add(0, y, z))
            .shapes([&[3, 4], &[1, 2], &[2, 3]]).index(1, &[2, 0]).of(All).bad(|x| x[0].scatter_add(0, &x[1], &x[2].narrow(1, 0, 1)?)),
        three("scatter_reduce", "torch.scatter_reduce(x, 0, y.long(), z.detach(), 'sum')", |x, y, z| x.scatter_reduce(0, y, z, ScatterReduce::Sum, true))
            .shapes([&[3, 4], &[1, 2], &[2, 3]]).index(1, &[2, 0]).of(All),
        three("scatter_reduce", "torch.scatter_reduce(x.detach(), 0, y.long(), z.detach(), 'prod')", |x, y, z| x.scatter_reduce(0, y, z, ScatterReduce::Prod, true))
            .shapes([&[3, 4], &[2, 2], &[2, 3]]).index(1, &[2, 0, 1, 0]).of(All),
        two("index_fill", "torch.index_fill(x, 1, y, -1)", |x, y| x.index_fill(1, y, -1)).shapes([&[2, 4], &[3]]).index(1, &[-1, 0, -2]).of(Numbers),
        three("index_fill", "torch.index_fill(x, 1, y, z.reshape(()))", |x, y, z| x.index_fill(1, y, z.reshape(())?)).shapes([&[2, 4], &[3], &[1]]).index(1, &[2, 0, 3]).of(All)
            .bad(|x| x[0].index_fill(1, &x[1], &x[2])),
        three("masked_scatter", "torch.masked_scatter(x, y, z)", |x, y, z| x.masked_scatter(y, z)).shapes([&[3, 1], &[1, 4], &[2, 6]]).mask(1).of(All)
            .bad(|x| x[0].masked_scatter(&x[1].narrow(1, 0, 3)?.expand([2, 3])?, &x[2])),
        two("take_along_dim", "torch.take_along_dim(x, y.long(), 1)", |x, y| x.take_along_dim(y, 1)).shapes([&[3, 4], &[1, 2]]).index(1, &[3, 1]).of(All)
            .bad(|x| x[0].take_along_dim(&x[1].flatten_all(), 1)),
        three("scatter", "torch.scatter(x, 1, y.long(), z[:2])", |x, y, z| x.scatter(1, y, z)).shapes([&[3, 4], &[2, 3], &[3, 3]])
            .index(1, &[2, 0, 1, 3, 1, 0]).of(All).bad(|x| x[0].scatter(1, &x[1], &x[2].narrow(1, 0, 2)?)),
        two("scatter", "torch.scatter(x, 0, y.long(), 5)", |x, y| x.scatter(0, y, 5)).shapes([&[3, 4], &[2, 4]])
            .index(1, &[2, 0, 1, 2, 2, 1, 1, 0]).of(All).bad(|x| x[0].scatter(0, &x[1].add_scalar(2), 5)),
        three("index_copy", "torch.index_copy(x, 1, y, z)", |x, y, z| x.index_copy(1, y, z)).shapes([&[2, 4], &[3], &[2, 3]])
            .index(1, &[3, 0, 1]).of(All).no_ties().bad(|x| x[0].index_copy(0, &x[1], &x[2])),
        two("index_fill", "torch.index_fill(x, 1, y, 2)", |x, y| x.index_fill(1, y, 2)).shapes([&[2, 4], &[3]]).index(1, &[3, 0, 3]).of(All)
            .bad(|x| x[0].index_fill(2, &x[1], 2)),
        three("masked_scatter", "torch.masked_scatter(x, y, z)", |x, y, z| x.masked_scatter(y, z)).shapes([&[3, 4], &[3, 4], &[2, 6]]).mask(1).of(All)
            .bad(|x| x[0].masked_scatter(&x[1], &x[2].flatten_all().narrow(0, 0, 1)?)),
        two("select_scatter", "torch.select_scatter(x, y, 1, -2)", |x, y| x.select_scatter(y, 1, -2)).shapes([&[3, 4], &[3]]).of(All)
            .bad(|x| x[0].select_scatter(&x[1], 0, 0)),
        two("slice_scatter", "torch.slice_scatter(x, y, 1, 1, 4, 2)", |x, y| x.slice_scatter(y, 1, 1..4, 2)).shapes([&[3, 4], &[3, 2]]).of(All)
            .bad(|x| x[0].slice_scatter(&x[1], 1, .., 1)),
        two("searchsorted", "torch.searchsorted(x, y)", |x, y| x.searchsorted(y, false)).shapes([&[2, 4], &[2, 3]])
            .exactly(0, &[0.0, 1.0, 1.0, 2.0, 0.0, 2.0, 3.0, 5.0]).exactly(1, &[1.0, 3.0, 0.0, 2.0, 6.0, 4.0]).of(Numbers).order(0)
            .bad(|x| x[0].searchsorted(&x[1].narrow(0, 0, 1)?, false)),
        two("searchsorted", "torch.searchsorted(x, y, right=True)", |x, y| x.searchsorted(y, true)).shapes([&[4], &[2, 3]])
            .exactly(0, &[0.0, 1.0, 1.0, 2.0]).exactly(1, &[1.0, 3.0, 0.0, 2.0, 1.0, 4.0]).of(Numbers).order(0),
        two("searchsorted", "torch.searchsorted(torch.cat([x, torch.arange(2.0, 100.0).to(x)]), y)",
            |x, y| Tensor::concat(&[x.clone(), Tensor::arange(2, 100, 1, (x.dtype(), &x.device()))?], 0)?.searchsorted(y, false))
            .shapes([&[4], &[2, 3]]).exactly(0, &[0.0, 1.0, 1.0, 2.0]).exactly(1, &[1.0, 300.0, 0.0, 2.0, 57.0, 99.0]).of(Floats).order(0),
        two("bucketize", "torch.bucketize(x, y)", |x, y| x.bucketize(y, false)).shapes([&[2, 3], &[3]])
            .exactly(0, &[1.0, 3.0, 0.0, 2.0, 6.0, 4.0]).exactly(1, &[1.0, 2.0, 5.0]).of(Numbers).order(0)
            .bad(|x| x[0].bucketize(&x[0], false)),
        two("isin", "torch.isin(x, y)", |x, y| x.isin(y)).shapes([&[2, 3], &[2, 2]])
            .exactly(0, &[1.0, 3.0, 0.0, 2.0, 6.0, 4.0]).exactly(1, &[1.0, 2.0, 5.0, 6.0]).of(Numbers).order(0),
        two("isin", "torch.isin(x, y + torch.arange(30).to(x))",
            |x, y| x.isin(&y.add(&Tensor::arange(0, 30, 1, (x.dtype(), &x.device()))?)?)).shapes([&[2, 3], &[3, 1]])
            .exactly(0, &[1.0, 3.0, 0.0, 20.0, 32.0, 40.0]).exactly(1, &[7.0, 2.0, 3.0]).of(Numbers).order(0),
    ];
    // (name of PyTorch, kind), each with and without what was there.
    let sum = ["torch.scatter_reduce(x, 0, y.long(), z[:, :3], 'sum')", "torch.scatter_reduce(x, 0, y.long(), z[:, :3], 'sum', include_self=False)"];
    let prod = ["torch.scatter_reduce(x, 0, y.long(), z[:, :3], 'prod')", "torch.scatter_reduce(x, 0, y.long(), z[:, :3], 'prod', include_self=False)"];
    let mean = ["torch.scatter_reduce(x, 0, y.long(), z[:, :3], 'mean')", "torch.scatter_reduce(x, 0, y.long(), z[:, :3], 'mean', include_self=False)"];
    let amax = ["torch.scatter_reduce(x, 0, y.long(), z[:, :3], 'amax')", "torch.scatter_reduce(x, 0, y.long(), z[:, :3], 'amax', include_self=False)"];
    let amin = ["torch.scatter_reduce(x, 0, y.long(), z[:, :3], 'amin')", "torch.scatter_reduce(x, 0, y.long(), z[:, :3], 'amin', include_self=False)"];
    type Call = fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>;
    let reductions: [([&'static str; 2], [Call; 2]); 5] = [
        (sum, [|x, y, z| x.scatter_reduce(0, y, z, ScatterReduce::Sum, true), |x, y, z| x.scatter_reduce(0, y, z, ScatterReduce::Sum, false)]),
        (prod, [|x, y, z| x.scatter_reduce(0, y, z, ScatterReduce::Prod, true), |x, y, z| x.scatter_reduce(0, y, z, ScatterReduce::Prod, false)]),
        (mean, [|x, y, z| x.scatter_reduce(0, y, z, ScatterReduce::Mean, true), |x, y, z| x.scatter_reduce(0, y, z, ScatterReduce::Mean, false)]),
        (amax, [|x, y, z| x.scatter_reduce(0, y, z, ScatterReduce::Amax, true), |x, y, z| x.scatter_reduce(0, y, z, ScatterReduce::Amax, false)]),
        (amin, [|x, y, z| x.scatter_reduce(0, y, z, ScatterReduce::Amin, true), |x, y, z| x.scatter_reduce(0, y, z, ScatterReduce::Amin, false)]),
    ];
    for (torch, calls) in reductions {
        for (torch, call) in torch.into_iter().zip(calls) {
            let row = three("scatter_reduce", torch, call).shapes([&[3, 4], &[4, 3], &[4, 4]]).of(Numbers);
            rows.push(row.index(1, &[2, 0, 1, 2, 2, 1, 1, 0, 1, 2, 2, 1]).bad(|x| x[0].scatter_reduce(0, &x[1], &x[0], ScatterReduce::Sum, true)));
        }
    }
    rows.push(three("index_reduce", "torch.index_reduce(x, 1, y, z, 'amax')", |x, y, z| x.index_reduce(1, y, z, ScatterReduce::Amax, true))
        .shapes([&[2, 4], &[3], &[2, 3]]).index(1, &[3, 0, 3]).of(Numbers)
        .bad(|x| x[0].index_reduce(1, &x[0], &x[2], ScatterReduce::Amax, true)));
    rows.push(three("index_reduce", "torch.index_reduce(x, 0, y, z, 'mean', include_self=False)",
        |x, y, z| x.index_reduce(0, y, z, ScatterReduce::Mean, false)).shapes([&[2, 4], &[3], &[3, 4]]).index(1, &[1, 1, 1]).of(Numbers));
    rows
}
