//! Sizes for rows that need special shapes, and the rows without a size.

/// The values of an input, if they differ from the row's.
#[derive(Clone, Copy)]
pub(super) enum Draw {
    /// The values of the row.
    Own,
    /// Uniform numbers between two bounds.
    Between(f64, f64),
    /// Whole numbers below a bound.
    Whole(usize),
    /// Indices below a bound.
    Index(usize),
    /// Indices below a bound, none twice.
    Distinct(usize),
    /// Rows that ascend.
    Sorted,
    /// 1 and −1: any product of them is finite.
    Signs,
}

/// An input's shape, and what it holds.
pub(super) struct Size(pub(super) &'static [usize], pub(super) Draw);

use Draw::{Between, Distinct, Index, Own, Signs, Sorted, Whole};

const N: &[usize] = &[10_000_000];
const M: &[usize] = &[4096, 1000];
const DEEP: &[usize] = &[16, 256, 1000];
const LINE: &[usize] = &[16, 64, 1000];
const IMAGE: &[usize] = &[16, 64, 56, 56];
const SOLID: &[usize] = &[4, 16, 16, 32, 32];

/// The size of each input of a row, by its name and its expression. If a name has rows here, only these rows
/// are cases.
#[rustfmt::skip] // a line a row
pub(super) const SIZES: &[(&str, &str, &[Size])] = &[
    // Element by element.
    ("to_dtype", "x.to(torch.int32)", &[Size(N, Own)]),
    ("nextafter", "torch.nextafter(x, y)", &[Size(N, Between(-2.0, 2.0)), Size(N, Between(-2.0, 2.0))]),
    // Along axes: the last, the first, and two around a middle one.
    ("sum_axis", "torch.sum(x, 1)", &[Size(M, Own)]),
    ("sum_axis", "torch.sum(x, (0, 2), keepdim=True)", &[Size(DEEP, Own)]),
    ("prod_axis", "torch.prod(x, 1, keepdim=True)", &[Size(M, Between(0.9, 1.1))]),
    ("prod", "torch.prod(x)", &[Size(N, Signs)]),
    ("cumprod", "torch.cumprod(x, 0)", &[Size(M, Between(0.9, 1.1))]),
    ("softmax", "torch.softmax(x, 1)", &[Size(M, Own)]),
    ("softmax", "torch.softmax(x, 0)", &[Size(M, Own)]),
    ("sort", "torch.sort(x, dim=1, stable=True)", &[Size(M, Own)]),
    ("sort", "torch.sort(x, dim=0, descending=True, stable=True)", &[Size(M, Own)]),
    ("median_axis", "torch.median(x, 1)", &[Size(M, Between(-2.0, 2.0))]),
    ("vector_norm", "torch.linalg.vector_norm(x, 2, (0, 2), keepdim=True)", &[Size(DEEP, Own)]),
    ("vector_norm", "torch.linalg.vector_norm(x, 3)", &[Size(M, Own)]),
    ("mode", "torch.mode(x, 1)", &[Size(M, Whole(100))]),
    ("cov", "torch.cov(x)", &[Size(&[256, 16_000], Own)]),
    ("corrcoef", "torch.corrcoef(x)", &[Size(&[256, 16_000], Own)]),
    ("isin", "torch.isin(x, y)", &[Size(M, Whole(2000)), Size(&[100], Whole(2000))]),
    ("unique", "torch.unique(x)", &[Size(M, Whole(1000))]),
    ("unique_all", "torch.unique(x, return_inverse=True, return_counts=True)", &[Size(M, Whole(1000))]),
    ("unique_axis", "torch.unique(x, dim=0, return_inverse=True, return_counts=True)", &[Size(&[100_000, 4], Whole(5))]),
    ("unique_consecutive", "torch.unique_consecutive(x)", &[Size(M, Whole(2))]),
    ("unique_consecutive_all", "torch.unique_consecutive(x, return_inverse=True, return_counts=True)", &[Size(M, Whole(2))]),
    ("bincount", "torch.bincount(x)", &[Size(N, Whole(1000))]),
    ("bincount_weighted", "torch.bincount(x.long(), y, 7)", &[Size(N, Index(7)), Size(N, Own)]),
    ("histc", "torch.histc(x, 5, -1.5, 1.5)", &[Size(N, Own)]),
    ("histogram", "torch.histogram(x, 5, range=(-1.5, 1.5))", &[Size(N, Own)]),
    // By index.
    ("gather", "torch.gather(x, 1, y.long())", &[Size(M, Own), Size(&[4096, 500], Index(1000))]),
    ("index_select", "torch.index_select(x, 1, y)", &[Size(M, Own), Size(&[500], Index(1000))]),
    ("scatter_add", "torch.scatter_add(x, 0, y.long(), z)", &[Size(M, Own), Size(M, Index(4096)), Size(M, Own)]),
    ("index_add", "torch.index_add(x, 1, y, z)", &[Size(M, Own), Size(&[1000], Index(1000)), Size(M, Own)]),
    ("masked_select", "torch.masked_select(x, y)", &[Size(N, Own), Size(N, Own)]),
    ("one_hot", "F.one_hot(x.long(), 5)", &[Size(&[1_000_000], Index(5))]),
    ("take", "torch.take(x, y.long())", &[Size(N, Own), Size(N, Index(10_000_000))]),
    ("take_along_dim", "torch.take_along_dim(x, y.long(), 1)", &[Size(M, Own), Size(&[1, 500], Index(1000))]),
    ("scatter", "torch.scatter(x, 0, y.long(), 5)", &[Size(M, Own), Size(M, Index(4096))]),
    ("index_copy", "torch.index_copy(x, 1, y, z)", &[Size(M, Own), Size(&[500], Distinct(1000)), Size(&[4096, 500], Own)]),
    ("index_fill", "torch.index_fill(x, 1, y, 2)", &[Size(M, Own), Size(&[500], Index(1000))]),
    ("masked_scatter", "torch.masked_scatter(x, y, z)", &[Size(N, Own), Size(N, Own), Size(N, Own)]),
    ("slice_scatter", "torch.slice_scatter(x, y, 1, 1, 4, 2)", &[Size(M, Own), Size(&[4096, 2], Own)]),
    ("searchsorted", "torch.searchsorted(x, y, right=True)", &[Size(&[1000], Sorted), Size(M, Between(0.0, 1.0))]),
    ("bucketize", "torch.bucketize(x, y)", &[Size(M, Between(0.0, 1.0)), Size(&[1000], Sorted)]),
    ("scatter_reduce", "torch.scatter_reduce(x, 0, y.long(), z[:, :3], 'sum')",
        &[Size(&[100_000, 4], Own), Size(&[1_000_000, 3], Index(100_000)), Size(&[1_000_000, 4], Own)]),
    ("scatter_reduce", "torch.scatter_reduce(x, 0, y.long(), z[:, :3], 'mean')",
        &[Size(&[100_000, 4], Own), Size(&[1_000_000, 3], Index(100_000)), Size(&[1_000_000, 4], Own)]),
    ("scatter_reduce", "torch.scatter_reduce(x, 0, y.long(), z[:, :3], 'amax')",
        &[Size(&[100_000, 4], Own), Size(&[1_000_000, 3], Index(100_000)), Size(&[1_000_000, 4], Own)]),
    ("segment_reduce", "torch.segment_reduce(x, 'sum', lengths=torch.tensor([2, 0, 1]), axis=0)", &[Size(&[3, 1_000_000], Own)]),
    ("index_reduce", "torch.index_reduce(x, 1, y, z, 'amax')", &[Size(M, Own), Size(&[1000], Index(1000)), Size(M, Own)]),
    // Copies.
    ("concat", "torch.cat([x, y, x], 1)", &[Size(M, Own), Size(&[4096, 24], Own)]),
    ("stack", "torch.stack([x, y], -1)", &[Size(M, Own), Size(M, Own)]),
    ("repeat", "x.repeat(2, 3, 2)", &[Size(&[1024, 500], Own)]),
    ("tile", "torch.tile(x, (2,))", &[Size(M, Own)]),
    ("repeat_interleave_counts", "torch.repeat_interleave(x, y, 0)", &[Size(M, Own), Size(&[4096], Index(3))]),
    ("vander", "torch.vander(x.detach(), 4)", &[Size(&[1_000_000], Own)]),
    ("hstack", "torch.hstack((x, y))", &[Size(M, Own), Size(&[4096, 24], Own)]),
    ("dstack", "torch.dstack((x, y))", &[Size(&[1_000_000], Own), Size(&[1, 1_000_000, 2], Own)]),
    ("column_stack", "torch.column_stack((x, y))", &[Size(&[4096], Own), Size(M, Own)]),
    ("cartesian_prod", "torch.cartesian_prod(x, y)", &[Size(&[2000], Own), Size(&[2000], Own)]),
    ("combinations", "torch.combinations(x, 3)", &[Size(&[200], Own)]),
    ("block_diag", "torch.block_diag(x, y, z)", &[Size(&[2000, 1000], Own), Size(&[1000], Own), Size(&[], Own)]),
    ("diag", "torch.diag(x, -1)", &[Size(&[2000], Own)]),
    ("diag_embed", "torch.diag_embed(x, 1, 0, 2)", &[Size(&[16, 500], Own)]),
    ("diagflat", "torch.diagflat(x, -2)", &[Size(&[50, 40], Own)]),
    ("diagonal_scatter", "torch.diagonal_scatter(x, y, 1, 2, 0)", &[Size(DEEP, Own), Size(&[256, 15], Own)]),
    // Products.
    ("matmul", "torch.matmul(x, y)", &[Size(&[1024, 1024], Own), Size(&[1024, 1024], Own)]),
    ("outer", "torch.outer(x, y)", &[Size(&[4096], Own), Size(&[1000], Own)]),
    ("tensordot", "torch.tensordot(x, y, ([1, 2], [1, 0]))", &[Size(&[1024, 32, 32], Own), Size(&[32, 32], Own)]),
    ("einsum", "torch.einsum('bij,bjk->bik', x, y)", &[Size(&[32, 128, 128], Own), Size(&[32, 128, 128], Own)]),
    ("dot", "torch.dot(x, y)", &[Size(N, Own), Size(N, Own)]),
    ("addmm", "torch.addmm(x, y, z, beta=2, alpha=3)", &[Size(&[1000], Own), Size(&[1000, 1000], Own), Size(&[1000, 1000], Own)]),
    ("addmv", "torch.addmv(x, y, z, beta=2, alpha=3)", &[Size(&[4096], Own), Size(M, Own), Size(&[1000], Own)]),
    ("addr", "torch.addr(x, y, z, beta=2, alpha=3)", &[Size(M, Own), Size(&[4096], Own), Size(&[1000], Own)]),
    ("baddbmm", "torch.baddbmm(x, y, z, beta=2, alpha=3)", &[Size(&[32, 128, 128], Own), Size(&[32, 128, 128], Own), Size(&[32, 128, 128], Own)]),
    ("addbmm", "torch.addbmm(x, y, z, beta=2, alpha=3)", &[Size(&[128, 128], Own), Size(&[32, 128, 128], Own), Size(&[32, 128, 128], Own)]),
    ("kron", "torch.kron(x, y)", &[Size(&[200, 100], Own), Size(&[20, 10], Own)]),
    ("cross", "torch.linalg.cross(x, y.unsqueeze(0))", &[Size(&[1_000_000, 3], Own), Size(&[3], Own)]),
    // `nn::functional`.
    ("functional::linear", "F.linear(x, y, z)", &[Size(&[512, 1024], Own), Size(&[1024, 1024], Own), Size(&[1024], Own)]),
    ("functional::embedding", "F.embedding(x, y)", &[Size(&[8192], Index(50_000)), Size(&[50_000, 256], Own)]),
    ("functional::embedding_with_padding", "F.embedding(x, y, padding_idx=2)", &[Size(&[8192], Index(50_000)), Size(&[50_000, 256], Own)]),
    ("functional::scaled_dot_product_attention", "F.scaled_dot_product_attention(x, y, z)",
        &[Size(&[32, 512, 64], Own), Size(&[32, 512, 64], Own), Size(&[32, 512, 64], Own)]),
    ("functional::conv1d", "F.conv1d(x, y, z, stride=2, padding=1)", &[Size(LINE, Own), Size(&[64, 64, 3], Own), Size(&[64], Own)]),
    ("functional::conv2d", "F.conv2d(x, y, padding='same')", &[Size(&[8, 64, 56, 56], Own), Size(&[64, 64, 3, 3], Own)]),
    ("functional::conv3d", "F.conv3d(x, y)", &[Size(SOLID, Own), Size(&[16, 16, 3, 3, 3], Own)]),
    ("functional::conv_transpose1d", "F.conv_transpose1d(x, y, z, stride=2, padding=1, output_padding=1)",
        &[Size(&[16, 64, 500], Own), Size(&[64, 64, 3], Own), Size(&[64], Own)]),
    ("functional::conv_transpose2d", "F.conv_transpose2d(x, y, stride=(1, 2), groups=2, dilation=2)",
        &[Size(&[8, 32, 28, 28], Own), Size(&[32, 16, 2, 2], Own)]),
    ("functional::conv_transpose3d", "F.conv_transpose3d(x, y)", &[Size(&[2, 16, 8, 16, 16], Own), Size(&[16, 16, 2, 2, 2], Own)]),
    ("functional::cdist", "torch.cdist(x, y)", &[Size(&[1000, 64], Own), Size(&[1000, 64], Own)]),
    ("functional::cdist", "torch.cdist(x, y, p=1)", &[Size(&[1000, 64], Own), Size(&[1000, 64], Own)]),
    ("functional::pdist", "F.pdist(x)", &[Size(&[1000, 64], Own)]),
    ("functional::bilinear", "F.bilinear(x, y, z, w)", &[Size(&[512, 64], Own), Size(&[512, 64], Own), Size(&[64, 64, 64], Own), Size(&[64], Own)]),
    ("functional::grid_sample", "F.grid_sample(x, y, align_corners=False)", &[Size(&[8, 16, 64, 64], Own), Size(&[8, 64, 64, 2], Between(-1.0, 1.0))]),
    ("functional::channel_shuffle", "F.channel_shuffle(x, 2)", &[Size(IMAGE, Own)]),
    ("functional::group_norm", "F.group_norm(x, 2, y, z)", &[Size(IMAGE, Own), Size(&[64], Own), Size(&[64], Own)]),
    ("functional::batch_norm", "F.batch_norm(x, None, None, y, z, training=True)", &[Size(IMAGE, Own), Size(&[64], Own), Size(&[64], Own)]),
    ("functional::instance_norm", "F.instance_norm(x)", &[Size(IMAGE, Own)]),
    ("functional::pad", "F.pad(x, (2, 1, 1, 0), mode='reflect')", &[Size(IMAGE, Own)]),
    ("functional::pad", "F.pad(x, (2, 1, 1, 0), mode='circular')", &[Size(IMAGE, Own)]),
    ("functional::pixel_shuffle", "F.pixel_shuffle(x, 2)", &[Size(IMAGE, Own)]),
    ("functional::pixel_unshuffle", "F.pixel_unshuffle(x, 2)", &[Size(IMAGE, Own)]),
    ("functional::embedding_bag", "F.embedding_bag(x, y)", &[Size(&[8192, 20], Index(50_000)), Size(&[50_000, 64], Own)]),
    ("functional::unfold", "F.unfold(x, (2, 3), padding=1, stride=(1, 2))", &[Size(&[16, 16, 56, 56], Own)]),
    ("functional::interpolate_with", "F.interpolate(x, scale_factor=1.5, mode='bicubic')", &[Size(&[8, 16, 64, 64], Own)]),
    ("functional::local_response_norm", "F.local_response_norm(x, 3)", &[Size(IMAGE, Own)]),
    ("functional::lp_pool1d", "F.lp_pool1d(x, 2, 2)", &[Size(LINE, Own)]),
    ("functional::lp_pool2d", "F.lp_pool2d(x, 3, 2, stride=1)", &[Size(IMAGE, Own)]),
    ("functional::lp_pool3d", "F.lp_pool3d(x, 2, 2)", &[Size(SOLID, Own)]),
    ("functional::adaptive_max_pool_with_indices", "F.adaptive_max_pool2d(x, (3, 2), return_indices=True)", &[Size(IMAGE, Own)]),
    ("functional::max_pool1d", "F.max_pool1d(x, 2)", &[Size(LINE, Own)]),
    ("functional::max_pool2d_with", "F.max_pool2d(x, (2, 3), stride=(1, 2), padding=1)", &[Size(IMAGE, Own)]),
    ("functional::max_pool3d", "F.max_pool3d(x, 2)", &[Size(SOLID, Own)]),
    ("functional::max_pool_with_indices", "F.max_pool2d_with_indices(x, 2, ceil_mode=True)", &[Size(IMAGE, Own)]),
    ("functional::avg_pool1d", "F.avg_pool1d(x, 2)", &[Size(LINE, Own)]),
    ("functional::avg_pool2d_with", "F.avg_pool2d(x, 2, stride=1, padding=1, count_include_pad=False)", &[Size(IMAGE, Own)]),
    ("functional::avg_pool3d_with", "F.avg_pool3d(x, 2, ceil_mode=True)", &[Size(SOLID, Own)]),
    ("functional::adaptive_avg_pool1d", "F.adaptive_avg_pool1d(x, 3)", &[Size(LINE, Own)]),
    ("functional::adaptive_avg_pool2d", "F.adaptive_avg_pool2d(x, (3, 2))", &[Size(IMAGE, Own)]),
    ("functional::adaptive_avg_pool3d", "F.adaptive_avg_pool3d(x, 2)", &[Size(SOLID, Own)]),
    ("functional::adaptive_max_pool1d", "F.adaptive_max_pool1d(x, 3)", &[Size(LINE, Own)]),
    ("functional::adaptive_max_pool2d", "F.adaptive_max_pool2d(x, (3, 2))", &[Size(IMAGE, Own)]),
    ("functional::adaptive_max_pool3d", "F.adaptive_max_pool3d(x, 2)", &[Size(SOLID, Own)]),
    // Matrices and Fourier transforms.
    ("linalg::matrix_norm", "torch.linalg.matrix_norm(x)", &[Size(&[16, 512, 512], Own)]),
    ("linalg::multi_dot", "torch.linalg.multi_dot([x, y, z])", &[Size(&[1000], Own), Size(&[1000, 1000], Own), Size(&[1000, 500], Own)]),
    ("linalg::svdvals", "torch.linalg.svdvals(x)", &[Size(&[300, 300], Own)]),
    ("linalg::lstsq", "torch.linalg.lstsq(x, y)[0]", &[Size(&[1000, 100], Own), Size(&[1000, 2], Own)]),
    ("linalg::pinv", "torch.linalg.pinv(x)", &[Size(&[200, 300], Own)]),
    ("fft::fft", "torch.view_as_real(torch.fft.fft(torch.view_as_complex(x)))", &[Size(&[1000, 2048, 2], Own)]),
    ("fft::rfft", "torch.view_as_real(torch.fft.rfft(x))", &[Size(&[1000, 4096], Own)]),
    ("fft::irfft", "torch.fft.irfft(torch.view_as_complex(x))", &[Size(&[1000, 2049, 2], Own)]),
    ("fft::fftn", "torch.view_as_real(torch.fft.fftn(torch.view_as_complex(x)))", &[Size(&[32, 128, 256, 2], Own)]),
    ("fft::ifftn", "torch.view_as_real(torch.fft.ifft2(torch.view_as_complex(x)))", &[Size(&[32, 128, 256, 2], Own)]),
    ("fft::rfftn", "torch.view_as_real(torch.fft.rfft2(x))", &[Size(&[32, 256, 256], Own)]),
    ("fft::fftshift", "torch.fft.fftshift(x, 1)", &[Size(M, Own)]),
    ("fft::ifftshift", "torch.fft.ifftshift(x)", &[Size(M, Own)]),
];

/// Operations whose first result alone is compared: PyTorch leaves open which of equal elements its index
/// names.
pub(super) const FIRST_ALONE: &[&str] = &["mode"];

/// Reasons, and the names they hold for.
#[rustfmt::skip]
pub(super) const LEFT_OUT: &[(&str, &[&str])] = &[
    (
        "a view: nothing is computed",
        &[
            "contiguous", "detach", "reshape", "flatten_all", "flatten", "permute", "transpose", "t", "squeeze", "unsqueeze", "expand",
            "unfold", "windows", "slice", "slice_step", "narrow", "select", "flip", "split", "i", "chunk", "split_with_sizes",
            "tensor_split", "tensor_split_at", "unbind", "movedim", "rot90", "as_strided", "broadcast_tensors", "diagonal", "meshgrid",
        ],
    ),
    (
        "a size is part of the row",
        &[
            "functional::affine_grid", "functional::layer_norm", "functional::rms_norm", "functional::fold",
            "functional::interpolate_nearest", "fft::ifft", "fft::irfftn", "fft::fftfreq", "fft::rfftfreq", "fft::fftn_sized",
            "fft::ifftn_sized", "fft::rfftn_sized", "fft::irfftn_sized", "cov_weighted", "quantiles_at", "gradient_at", "unravel_index",
            "nonzero_static", "histogram_with", "histogramdd", "unique_consecutive_axis",
        ],
    ),
    (
        "its indices are those of a pooling before it",
        &["functional::max_unpool1d", "functional::max_unpool2d", "functional::max_unpool3d"],
    ),
];
