//! `nn::functional`.

use taper::{
    Tensor,
    nn::functional::{
        self as f, AttentionOptions, BagMode, BagOptions, ConvOptions, ConvTransposeOptions, FoldOptions,
        GridMode, GridPadding, GridSampleOptions, InterpolateMode, InterpolateOptions, PadMode, PoolOptions,
        UnpoolOptions,
    },
};

use crate::row::{DTypes::F32F64, Row, four, make, one, three, two};

#[rustfmt::skip] // a line a row
pub(super) fn rows() -> Vec<Row> {
    const LINE: &[usize] = &[2, 2, 5];
    const IMAGE: &[usize] = &[1, 2, 4, 5];
    const SOLID: &[usize] = &[1, 2, 3, 3, 3];
    vec![
        three("functional::linear", "F.linear(x, y, z)", |x, y, z| f::linear(x, y, Some(z))).shapes([&[2, 4], &[3, 4], &[3]])
            .bad(|x| f::linear(&x[0], &x[1].t()?, None)),
        two("functional::linear", "F.linear(x, y)", |x, y| f::linear(x, y, None)).shapes([&[2, 3, 4], &[4]])
            .bad(|x| f::linear(&x[0], &x[1], Some(&x[1]))),
        two("functional::linear", "F.linear(x, y)", |x, y| f::linear(x, y, None)).shapes([&[4], &[3, 4]]),
        two("functional::embedding", "F.embedding(x, y)", |x, y| f::embedding(x, y)).shapes([&[2, 3], &[5, 2]]).index(0, &[4, 0, 1, 4, 2, 2])
            .bad(|x| f::embedding(&x[1], &x[1])),
        two("functional::embedding_with_padding", "F.embedding(x, y, padding_idx=2)", |x, y| f::embedding_with_padding(x, y, 2))
            .shapes([&[2, 3], &[5, 2]]).index(0, &[4, 0, 1, 4, 2, 2]).order(0)
            .note("the gradient of the padding row is always 0, which finite differences cannot show"),
        three("functional::scaled_dot_product_attention", "F.scaled_dot_product_attention(x, y, z)",
            |q, k, v| f::scaled_dot_product_attention(q, k, v, AttentionOptions::default())).shapes([&[2, 3, 4], &[2, 3, 4], &[2, 3, 2]]),
        three("functional::scaled_dot_product_attention", "F.scaled_dot_product_attention(x, y, z, is_causal=True, scale=0.25)",
            |q, k, v| f::scaled_dot_product_attention(q, k, v, AttentionOptions { is_causal: true, scale: Some(0.25), ..Default::default() }))
            .shapes([&[2, 3, 4], &[2, 3, 4], &[2, 3, 2]]),
        four("functional::scaled_dot_product_attention", "F.scaled_dot_product_attention(x, y, z, attn_mask=w)",
            |[q, k, v, m]| f::scaled_dot_product_attention(q, k, v, AttentionOptions { mask: Some(m), ..Default::default() }))
            .shapes([&[2, 3, 4], &[2, 3, 4], &[2, 3, 2], &[3, 3]])
            .bad(|x| f::scaled_dot_product_attention(&x[0], &x[2], &x[2], AttentionOptions::default())),
        make("functional::sinusoidal_positions", "", |(_, d)| f::sinusoidal_positions(3, 4, d)).of(F32F64)
            .note("Vaswani and others 2017"),
        one("functional::rotary_embedding", "", |x| f::rotary_embedding(x, 2, 100.0)).shapes([&[2, 3, 4]]).note("Su and others 2021")
            .bad(|x| f::rotary_embedding(&x[0].narrow(-1, 0, 3)?, 0, 100.0)),
        three("functional::conv1d", "F.conv1d(x, y, z, stride=2, padding=1)",
            |x, w, b| f::conv1d(x, w, Some(b), ConvOptions { stride: [2], padding: 1.into(), ..Default::default() }))
            .shapes([LINE, &[3, 2, 3], &[3]]).bad(|x| f::conv1d(&x[0], &x[1].narrow(1, 0, 1)?, None, ConvOptions::default())),
        three("functional::conv2d", "F.conv2d(x, y, z, stride=(2, 1), padding=1, dilation=(1, 2), groups=2)",
            |x, w, b| f::conv2d(x, w, Some(b), ConvOptions { stride: [2, 1], padding: 1.into(), dilation: [1, 2], groups: 2 }))
            .shapes([IMAGE, &[2, 1, 2, 2], &[2]]),
        two("functional::conv2d", "F.conv2d(x, y, padding='same')",
            |x, w| f::conv2d(x, w, None, ConvOptions { padding: f::ConvPadding::Same, ..Default::default() })).shapes([IMAGE, &[2, 2, 3, 3]])
            .bad(|x| f::conv2d(&x[0], &x[1], None, ConvOptions { stride: [0, 1], ..Default::default() })),
        two("functional::conv3d", "F.conv3d(x, y)", |x, w| f::conv3d(x, w, None, ConvOptions::default())).shapes([SOLID, &[2, 2, 2, 2, 2]])
            .bad(|x| f::conv3d(&x[0], &x[0].narrow(1, 0, 1)?, None, ConvOptions::default())),
        three("functional::conv_transpose1d", "F.conv_transpose1d(x, y, z, stride=2, padding=1, output_padding=1)",
            |x, w, b| f::conv_transpose1d(x, w, Some(b), ConvTransposeOptions { stride: [2], padding: [1], output_padding: [1], ..Default::default() }))
            .shapes([&[2, 2, 3], &[2, 3, 3], &[3]]).bad(|x| f::conv_transpose1d(&x[0], &x[1].narrow(0, 0, 1)?, None, Default::default())),
        two("functional::conv_transpose2d", "F.conv_transpose2d(x, y, stride=(1, 2), groups=2, dilation=2)",
            |x, w| f::conv_transpose2d(x, w, None, ConvTransposeOptions { stride: [1, 2], groups: 2, dilation: [2, 2], ..Default::default() }))
            .shapes([&[1, 2, 2, 3], &[2, 1, 2, 2]]).bad(|x| f::conv_transpose2d(&x[0], &x[1].narrow(0, 0, 1)?, None, Default::default())),
        two("functional::conv_transpose3d", "F.conv_transpose3d(x, y)", |x, w| f::conv_transpose3d(x, w, None, Default::default()))
            .shapes([&[1, 2, 2, 2, 2], &[2, 1, 2, 2, 1]]).bad(|x| f::conv_transpose3d(&x[0], &x[1].narrow(0, 0, 1)?, None, Default::default())),
        one("functional::normalize", "F.normalize(x, dim=1)", |x| f::normalize(x, 2.0, 1, 1e-12)).bad(|x| f::normalize(&x[0], 2.0, 2, 1e-12)),
        two("functional::cosine_similarity", "F.cosine_similarity(x, y, 1)", |x, y| f::cosine_similarity(x, y, 1, 1e-8)),
        two("functional::pairwise_distance", "F.pairwise_distance(x, y)", |x, y| f::pairwise_distance(x, y, 2.0, 1e-6)),
        two("functional::cdist", "torch.cdist(x, y)", |x, y| f::cdist(x, y, 2.0)).shapes([&[2, 3, 4], &[2, 4]]).bad(|x| f::cdist(&x[0], &x[1].narrow(1, 0, 3)?, 2.0)),
        two("functional::cdist", "torch.cdist(x, y, p=1)", |x, y| f::cdist(x, y, 1.0)).shapes([&[3, 4], &[2, 4]]),
        two("functional::cdist", "torch.cdist(x, y, p=3.5)", |x, y| f::cdist(x, y, 3.5)).shapes([&[3, 4], &[2, 4]]),
        two("functional::cdist", "torch.cdist(x, y, p=math.inf)", |x, y| f::cdist(x, y, f64::INFINITY)).shapes([&[3, 4], &[2, 4]]).order(1),
        two("functional::cdist", "torch.cdist(x, y, p=0)", |x, y| f::cdist(x, y, 0.0)).shapes([&[3, 2], &[2, 2]]).order(0),
        two("functional::cdist", "torch.cdist(x, y)", |x, y| f::cdist(x, y, 2.0)).shapes([&[26, 2], &[2, 2]]).loose(8.0).no_ties(),
        two("functional::linear_scan", "torch.stack([y[:, 0], x[:, 1] * y[:, 0] + y[:, 1], x[:, 2] * (x[:, 1] * y[:, 0] + y[:, 1]) + y[:, 2]], 1)",
            |x, y| f::linear_scan(x, y, None, 1)).shapes([&[2, 3], &[2, 3]]).bad(|x| f::linear_scan(&x[0], &x[1].narrow(1, 0, 2)?, None, 1)),
        three("functional::linear_scan", "(lambda s: torch.stack([s := x[k] * s + y[k] for k in range(7)]))(z[0])", |x, y, z| f::linear_scan(x, y, Some(z), 0))
            .shapes([&[7, 2], &[7, 2], &[1, 2]]).bad(|x| f::linear_scan(&x[0], &x[1], Some(&x[1]), 0)),
        one("functional::pdist", "F.pdist(x)", |x| f::pdist(x, 2.0)).no_ties().bad(|x| f::pdist(&x[0], -1.0)),
        one("functional::pdist", "F.pdist(x, 3)", |x| f::pdist(x, 3.0)).no_ties(),
        four("functional::bilinear", "F.bilinear(x, y, z, w)", |[x, y, w, b]| f::bilinear(x, y, w, Some(b))).shapes([&[2, 3], &[2, 4], &[2, 3, 4], &[2]])
            .bad(|x| f::bilinear(&x[0], &x[0], &x[2], None)),
        two("functional::grid_sample", "F.grid_sample(x, y, align_corners=False)", |x, y| f::grid_sample(x, y, GridSampleOptions::default()))
            .shapes([IMAGE, &[1, 3, 2, 2]]).bad(|x| f::grid_sample(&x[0], &x[1].narrow(3, 0, 1)?, GridSampleOptions::default())),
        two("functional::grid_sample", "F.grid_sample(x, y, padding_mode='reflection', align_corners=True)", |x, y| f::grid_sample(x, y,
            GridSampleOptions { padding: GridPadding::Reflection, align_corners: true, ..Default::default() })).shapes([IMAGE, &[1, 3, 4, 2]]),
        two("functional::grid_sample", "F.grid_sample(x, y, padding_mode='reflection', align_corners=False)", |x, y| f::grid_sample(x, y,
            GridSampleOptions { padding: GridPadding::Reflection, ..Default::default() })).shapes([IMAGE, &[1, 3, 4, 2]]),
        two("functional::grid_sample", "F.grid_sample(x, y, 'nearest', 'border', align_corners=False)", |x, y| f::grid_sample(x, y,
            GridSampleOptions { mode: GridMode::Nearest, padding: GridPadding::Border, align_corners: false })).shapes([IMAGE, &[1, 3, 2, 2]]),
        two("functional::grid_sample", "F.grid_sample(x, y, padding_mode='border', align_corners=True)", |x, y| f::grid_sample(x, y,
            GridSampleOptions { padding: GridPadding::Border, align_corners: true, ..Default::default() })).shapes([SOLID, &[1, 2, 1, 2, 3]]),
        two("functional::grid_sample", "F.grid_sample(x, y, 'bicubic', align_corners=False)", |x, y| f::grid_sample(x, y,
            GridSampleOptions { mode: GridMode::Bicubic, ..Default::default() })).shapes([IMAGE, &[1, 3, 2, 2]]).loose(4.0)
            .bad(|x| f::grid_sample(&x[0].unsqueeze(2)?, &Tensor::zeros([1, 1, 1, 1, 3], (x[1].dtype(), &x[1].device()))?,
                GridSampleOptions { mode: GridMode::Bicubic, ..Default::default() })),
        two("functional::grid_sample", "F.grid_sample(x, y, 'bicubic', 'border', align_corners=True)", |x, y| f::grid_sample(x, y,
            GridSampleOptions { mode: GridMode::Bicubic, padding: GridPadding::Border, align_corners: true })).shapes([IMAGE, &[1, 3, 2, 2]]).loose(4.0),
        two("functional::grid_sample", "F.grid_sample(x, y, 'bicubic', 'reflection', align_corners=False)", |x, y| f::grid_sample(x, y,
            GridSampleOptions { mode: GridMode::Bicubic, padding: GridPadding::Reflection, ..Default::default() })).shapes([IMAGE, &[1, 3, 2, 2]]).loose(4.0),
        one("functional::affine_grid", "F.affine_grid(x, (2, 1, 3, 4), align_corners=False)", |x| f::affine_grid(x, [2, 1, 3, 4], false))
            .shapes([&[2, 2, 3]]).bad(|x| f::affine_grid(&x[0], [2, 1, 3], false)),
        one("functional::affine_grid", "F.affine_grid(x, (1, 1, 2, 1, 3), align_corners=True)", |x| f::affine_grid(x, [1, 1, 2, 1, 3], true))
            .shapes([&[1, 3, 4]]),
        one("functional::channel_shuffle", "F.channel_shuffle(x, 2)", |x| f::channel_shuffle(x, 2)).shapes([&[2, 4, 3]])
            .bad(|x| f::channel_shuffle(&x[0], 3)),
        three("functional::layer_norm", "F.layer_norm(x, (4,), y, z)", |x, w, b| f::layer_norm(x, [4], Some(w), Some(b), 1e-5))
            .shapes([&[3, 4], &[4], &[4]]).bad(|x| f::layer_norm(&x[0], [3], None, None, 1e-5)),
        two("functional::rms_norm", "F.rms_norm(x, (4,), y, 1e-5)", |x, w| f::rms_norm(x, [4], Some(w), Some(1e-5)))
            .bad(|x| f::rms_norm(&x[0], [3], None, None)),
        three("functional::group_norm", "F.group_norm(x, 2, y, z)", |x, w, b| f::group_norm(x, 2, Some(w), Some(b), 1e-5))
            .shapes([&[2, 4, 3], &[4], &[4]]).bad(|x| f::group_norm(&x[0], 3, None, None, 1e-5)),
        three("functional::batch_norm", "F.batch_norm(x, None, None, y, z, training=True)",
            |x, w, b| f::batch_norm(x, None, None, Some(w), Some(b), true, 0.1, 1e-5)).shapes([&[3, 2, 4], &[2], &[2]])
            .bad(|x| f::batch_norm(&x[0], None, None, Some(&x[0]), None, true, 0.1, 1e-5)),
        one("functional::instance_norm", "F.instance_norm(x)", |x| f::instance_norm(x, None, None, None, None, true, 0.1, 1e-5))
            .shapes([&[2, 2, 4]]).bad(|x| f::instance_norm(&x[0].narrow(-1, 0, 1)?, None, None, None, None, true, 0.1, 1e-5)),
        one("functional::pad", "F.pad(x, (2, 1, 1, 0), mode='reflect')", |x| f::pad(x, &[(1, 0), (2, 1)], PadMode::Reflect)).shapes([IMAGE])
            .bad(|x| f::pad(&x[0], &[(4, 0), (0, 0)], PadMode::Reflect)),
        one("functional::pad", "F.pad(x, (2, 1, 1, 0), mode='replicate')", |x| f::pad(x, &[(1, 0), (2, 1)], PadMode::Replicate)).shapes([IMAGE]),
        one("functional::pad", "F.pad(x, (2, 1, 1, 0), mode='circular')", |x| f::pad(x, &[(1, 0), (2, 1)], PadMode::Circular)).shapes([IMAGE]),
        one("functional::pad", "F.pad(x, (-3, 5), mode='replicate')", |x| f::pad(x, &[(-3, 5)], PadMode::Replicate)).shapes([&[2, 3]])
            .bad(|x| f::pad(&x[0], &[(-4, 0)], PadMode::Replicate)),
        one("functional::pad", "F.pad(x, (4, -5), mode='replicate')", |x| f::pad(x, &[(4, -5)], PadMode::Replicate)).shapes([&[2, 3]]),
        one("functional::pad", "F.pad(x, (-2, 2), mode='reflect')", |x| f::pad(x, &[(-2, 2)], PadMode::Reflect)).shapes([&[2, 3]])
            .bad(|x| f::pad(&x[0], &[(-2, 3)], PadMode::Reflect)),
        one("functional::pad", "F.pad(x, (-1, 2, 1, -1), mode='replicate')", |x| f::pad(x, &[(1, -1), (-1, 2)], PadMode::Replicate)).shapes([IMAGE])
            .bad(|x| f::pad(&x[0], &[(-9, 1), (0, 0)], PadMode::Replicate)),
        one("functional::pad", "F.pad(x, (-1, 2), value=3)", |x| f::pad(x, &[(-1, 2)], PadMode::Constant(3.0))).shapes([IMAGE]),
        one("functional::pixel_shuffle", "F.pixel_shuffle(x, 2)", |x| f::pixel_shuffle(x, 2)).shapes([&[1, 4, 2, 3]])
            .bad(|x| f::pixel_shuffle(&x[0], 3)),
        one("functional::pixel_unshuffle", "F.pixel_unshuffle(x, 2)", |x| f::pixel_unshuffle(x, 2)).shapes([&[1, 1, 4, 2]])
            .bad(|x| f::pixel_unshuffle(&x[0], 3)),
        two("functional::embedding_bag", "F.embedding_bag(x, y)", |x, y| f::embedding_bag(x, y, BagOptions::default()))
            .shapes([&[2, 3], &[5, 2]]).index(0, &[4, 0, 1, 4, 2, 2]).bad(|x| f::embedding_bag(&x[1], &x[1], BagOptions::default())),
        two("functional::embedding_bag", "F.embedding_bag(x, y, mode='max')",
            |x, y| f::embedding_bag(x, y, BagOptions { mode: BagMode::Max, ..Default::default() }))
            .shapes([&[2, 3], &[5, 2]]).index(0, &[4, 0, 1, 4, 2, 2]),
        one("functional::unfold", "F.unfold(x, (2, 3), padding=1, stride=(1, 2))",
            |x| f::unfold(x, [2, 3], FoldOptions { padding: [1, 1], stride: [1, 2], ..Default::default() })).shapes([IMAGE])
            .bad(|x| f::unfold(&x[0], [7, 2], FoldOptions::default())),
        one("functional::fold", "F.fold(x, (3, 4), 2)", |x| f::fold(x, [3, 4], 2, FoldOptions::default())).shapes([&[1, 8, 6]]).loose(2.0)
            .bad(|x| f::fold(&x[0], [3, 4], 3, FoldOptions::default())),
        one("functional::interpolate_with", "F.interpolate(x, (3, 7), mode='bilinear')", |x| f::interpolate_with(x, [3, 7], InterpolateOptions {
            mode: InterpolateMode::Bilinear, ..Default::default() })).shapes([IMAGE])
            .bad(|x| f::interpolate_with(&x[0], [3, 4, 5], InterpolateOptions { mode: InterpolateMode::Bilinear, ..Default::default() })),
        one("functional::interpolate_with", "F.interpolate(x, 7, mode='linear', align_corners=True)", |x| f::interpolate_with(x, 7, InterpolateOptions {
            mode: InterpolateMode::Linear, align_corners: true, ..Default::default() })).shapes([LINE]),
        one("functional::interpolate_with", "F.interpolate(x, scale_factor=1.5, mode='bicubic')", |x| f::interpolate_with(x, 1.5, InterpolateOptions {
            mode: InterpolateMode::Bicubic, ..Default::default() })).shapes([IMAGE]),
        one("functional::interpolate_with", "F.interpolate(x, (2, 4, 5), mode='trilinear')", |x| f::interpolate_with(x, [2, 4, 5], InterpolateOptions {
            mode: InterpolateMode::Trilinear, ..Default::default() })).shapes([SOLID]),
        one("functional::interpolate_with", "F.interpolate(x, (2, 3), mode='bilinear', antialias=True)", |x| f::interpolate_with(x, [2, 3], InterpolateOptions {
            mode: InterpolateMode::Bilinear, antialias: true, ..Default::default() })).shapes([IMAGE])
            .bad(|x| f::interpolate_with(&x[0], [2, 3], InterpolateOptions { antialias: true, ..Default::default() })),
        one("functional::interpolate_with", "F.interpolate(x, scale_factor=(0.4, 0.55), mode='bilinear', antialias=True)", |x| f::interpolate_with(x, [0.4, 0.55],
            InterpolateOptions { mode: InterpolateMode::Bilinear, antialias: true, ..Default::default() })).shapes([&[1, 2, 7, 9]]),
        one("functional::interpolate_with", "F.interpolate(x, (3, 8), mode='bicubic', antialias=True)", |x| f::interpolate_with(x, [3, 8], InterpolateOptions {
            mode: InterpolateMode::Bicubic, antialias: true, ..Default::default() })).shapes([&[1, 2, 7, 5]]),
        one("functional::interpolate_with", "F.interpolate(x, (4, 3), mode='bicubic', align_corners=True, antialias=True)", |x| f::interpolate_with(x, [4, 3],
            InterpolateOptions { mode: InterpolateMode::Bicubic, antialias: true, align_corners: true, ..Default::default() })).shapes([&[1, 2, 7, 5]]),
        one("functional::interpolate", "F.interpolate(x, scale_factor=(1.2, 2.2))", |x| f::interpolate(x, [1.2, 2.2])).shapes([IMAGE]),
        one("functional::local_response_norm", "F.local_response_norm(x, 3)", |x| f::local_response_norm(x, 3, 1e-4, 0.75, 1.0))
            .shapes([&[2, 5, 3]]).bad(|x| f::local_response_norm(&x[0], 0, 1e-4, 0.75, 1.0)),
        one("functional::lp_pool1d", "F.lp_pool1d(x, 2, 2)", |x| f::lp_pool1d(x, 2.0, [2], PoolOptions::default())).shapes([LINE]),
        one("functional::lp_pool2d", "F.lp_pool2d(x, 3, 2, stride=1)",
            |x| f::lp_pool2d(x, 3.0, [2, 2], PoolOptions { stride: Some([1, 1]), ..Default::default() })).shapes([IMAGE]).over(0.3, 2.0)
            .bad(|x| f::lp_pool2d(&x[0], 3.0, [5, 2], PoolOptions::default())),
        one("functional::lp_pool3d", "F.lp_pool3d(x, 2, 2)", |x| f::lp_pool3d(x, 2.0, [2; 3], PoolOptions::default())).shapes([SOLID]),
        two("functional::max_unpool1d", "F.max_unpool1d(x, y.long(), 2)", |x, i| f::max_unpool1d(x, i, [2], UnpoolOptions::default()))
            .shapes([&[1, 2, 2], &[1, 2, 2]]).index(1, &[1, 2, 0, 3]),
        two("functional::max_unpool2d", "F.max_unpool2d(x, y.long(), 2)", |x, i| f::max_unpool2d(x, i, [2, 2], UnpoolOptions::default()))
            .shapes([&[1, 1, 2, 2], &[1, 1, 2, 2]]).index(1, &[5, 2, 8, 15]).bad(|x| f::max_unpool2d(&x[0], &x[0], [2, 2], UnpoolOptions::default())),
        two("functional::max_unpool3d", "F.max_unpool3d(x, y.long(), 2)", |x, i| f::max_unpool3d(x, i, [2; 3], UnpoolOptions::default()))
            .shapes([&[1, 1, 1, 1, 2], &[1, 1, 1, 1, 2]]).index(1, &[5, 2]),
        one("functional::adaptive_max_pool_with_indices", "F.adaptive_max_pool2d(x, (3, 2), return_indices=True)",
            |x| f::adaptive_max_pool_with_indices(x, [3, 2])).shapes([IMAGE]),
        one("functional::interpolate_nearest", "F.interpolate(x, (7, 3))", |x| f::interpolate_nearest(x, &[7, 3])).shapes([IMAGE])
            .bad(|x| f::interpolate_nearest(&x[0], &[7, 3, 2])),
        one("functional::max_pool1d", "F.max_pool1d(x, 2)", |x| f::max_pool1d(x, [2])).shapes([LINE]),
        one("functional::max_pool2d_with", "F.max_pool2d(x, (2, 3), stride=(1, 2), padding=1)",
            |x| f::max_pool2d_with(x, [2, 3], PoolOptions { stride: Some([1, 2]), padding: [1, 1], ..Default::default() })).shapes([IMAGE])
            .bad(|x| f::max_pool2d(&x[0], [5, 3])),
        one("functional::max_pool3d", "F.max_pool3d(x, 2)", |x| f::max_pool3d(x, [2; 3])).shapes([SOLID]),
        one("functional::max_pool_with_indices", "F.max_pool2d_with_indices(x, 2, ceil_mode=True)",
            |x| f::max_pool_with_indices(x, [2, 2], PoolOptions { ceil_mode: true, ..Default::default() })).shapes([IMAGE]),
        two("functional::fractional_max_pool_with_indices", "F.fractional_max_pool2d(x, (2, 1), output_size=(2, 3), return_indices=True, _random_samples=y.detach())",
            |x, y| f::fractional_max_pool_with_indices(x, [2, 1], [2, 3], y)).shapes([IMAGE, &[1, 2, 2]]).exactly(1, &[0.1, 0.9, 0.3, 0.4])
            .bad(|x| f::fractional_max_pool_with_indices(&x[0], [5, 1], [2, 3], &x[1])),
        two("functional::fractional_max_pool_with_indices", "F.fractional_max_pool3d(x, 2, output_size=2, return_indices=True, _random_samples=y.detach())",
            |x, y| f::fractional_max_pool_with_indices(x, [2; 3], [2; 3], y)).shapes([&[1, 2, 4, 4, 5], &[1, 2, 3]]).exactly(1, &[0.1, 0.9, 0.3, 0.4, 0.6, 0.2])
            .bad(|x| f::fractional_max_pool_with_indices(&x[0], [2; 3], [2; 3], &x[0])),
        one("functional::avg_pool1d", "F.avg_pool1d(x, 2)", |x| f::avg_pool1d(x, [2])).shapes([LINE]),
        one("functional::avg_pool2d_with", "F.avg_pool2d(x, 2, stride=1, padding=1, divisor_override=3)",
            |x| f::avg_pool2d_with(x, [2, 2], PoolOptions { stride: Some([1, 1]), padding: [1, 1], divisor_override: Some(3), ..Default::default() })).shapes([IMAGE])
            .bad(|x| f::avg_pool2d_with(&x[0], [2, 2], PoolOptions { divisor_override: Some(0), ..Default::default() })),
        one("functional::avg_pool2d_with", "F.avg_pool2d(x, (6, 7), stride=(3, 3), ceil_mode=True)",
            |x| f::avg_pool2d_with(x, [6, 7], PoolOptions { stride: Some([3, 3]), ceil_mode: true, ..Default::default() })).shapes([IMAGE]),
        one("functional::max_pool2d_with", "F.max_pool2d(x, (6, 7), stride=(3, 3), ceil_mode=True)",
            |x| f::max_pool2d_with(x, [6, 7], PoolOptions { stride: Some([3, 3]), ceil_mode: true, ..Default::default() })).shapes([IMAGE]),
        one("functional::avg_pool2d_with", "F.avg_pool2d(x, 2, stride=1, padding=1, count_include_pad=False)",
            |x| f::avg_pool2d_with(x, [2, 2], PoolOptions { stride: Some([1, 1]), padding: [1, 1], count_include_pad: false, ..Default::default() }))
            .shapes([IMAGE]).bad(|x| f::avg_pool2d_with(&x[0], [2, 2], PoolOptions { dilation: [2, 2], ..Default::default() })),
        one("functional::avg_pool3d_with", "F.avg_pool3d(x, 2, ceil_mode=True)",
            |x| f::avg_pool3d_with(x, [2; 3], PoolOptions { ceil_mode: true, ..Default::default() })).shapes([SOLID]),
        one("functional::adaptive_avg_pool1d", "F.adaptive_avg_pool1d(x, 3)", |x| f::adaptive_avg_pool1d(x, 3)).shapes([LINE]),
        one("functional::adaptive_avg_pool2d", "F.adaptive_avg_pool2d(x, (3, 2))", |x| f::adaptive_avg_pool2d(x, [3, 2])).shapes([IMAGE])
            .bad(|x| f::adaptive_avg_pool2d(&x[0], [0, 2])),
        one("functional::adaptive_avg_pool3d", "F.adaptive_avg_pool3d(x, 2)", |x| f::adaptive_avg_pool3d(x, 2)).shapes([SOLID]),
        one("functional::adaptive_max_pool1d", "F.adaptive_max_pool1d(x, 3)", |x| f::adaptive_max_pool1d(x, 3)).shapes([LINE]),
        one("functional::adaptive_max_pool2d", "F.adaptive_max_pool2d(x, (3, 2))", |x| f::adaptive_max_pool2d(x, [3, 2])).shapes([IMAGE])
            .bad(|x| f::adaptive_max_pool2d(&x[0], [0, 2])),
        one("functional::adaptive_max_pool3d", "F.adaptive_max_pool3d(x, 2)", |x| f::adaptive_max_pool3d(x, 2)).shapes([SOLID]),
    ]
}
