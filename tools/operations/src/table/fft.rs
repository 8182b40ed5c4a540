//! Fourier transforms. Complex numbers have a last axis of 2, for PyTorch's `view_as_real` and
//! `view_as_complex`.

use taper::fft::{
    self,
    Norm::{Backward, Forward, Ortho},
    StftOptions, StftPadding,
};

use crate::row::{DTypes::F32F64, Row, make, one, two};

#[rustfmt::skip] // a line a row
pub(super) fn rows() -> Vec<Row> {
    vec![
        one("fft::fft", "torch.view_as_real(torch.fft.fft(torch.view_as_complex(x)))", |x| fft::fft(x, None, -1, Backward))
            .shapes([&[2, 5, 2]]).bad(|x| fft::fft(&x[0].narrow(-1, 0, 1)?, None, -1, Backward)),
        one("fft::fft", "torch.view_as_real(torch.fft.fft(torch.view_as_complex(x), n=6, dim=0, norm='ortho'))", |x| fft::fft(x, Some(6), 0, Ortho))
            .shapes([&[4, 3, 2]]).bad(|x| fft::fft(&x[0], Some(0), 0, Ortho)),
        one("fft::fft", "torch.view_as_real(torch.fft.fft(torch.view_as_complex(x), norm='forward'))", |x| fft::fft(x, None, -1, Forward))
            .shapes([&[1, 34, 2]]).bad(|x| fft::fft(&x[0], None, 2, Forward)),
        one("fft::ifft", "torch.view_as_real(torch.fft.ifft(torch.view_as_complex(x), n=3))", |x| fft::ifft(x, Some(3), -1, Backward))
            .shapes([&[2, 5, 2]]).bad(|x| fft::ifft(&x[0].narrow(-1, 0, 1)?, None, -1, Backward)),
        one("fft::rfft", "torch.view_as_real(torch.fft.rfft(x))", |x| fft::rfft(x, None, -1, Backward)).shapes([&[2, 7]])
            .bad(|x| fft::rfft(&x[0].sum(), None, 0, Backward)),
        one("fft::rfft", "torch.view_as_real(torch.fft.rfft(x, n=10, dim=0, norm='forward'))", |x| fft::rfft(x, Some(10), 0, Forward))
            .shapes([&[6, 2]]),
        one("fft::irfft", "torch.fft.irfft(torch.view_as_complex(x))", |x| fft::irfft(x, None, -1, Backward)).shapes([&[2, 4, 2]])
            .bad(|x| fft::irfft(&x[0].narrow(1, 0, 1)?, None, -1, Backward)),
        one("fft::irfft", "torch.fft.irfft(torch.view_as_complex(x), n=9, dim=0, norm='ortho')", |x| fft::irfft(x, Some(9), 0, Ortho))
            .shapes([&[4, 2, 2]]),
        one("fft::fftn", "torch.view_as_real(torch.fft.fftn(torch.view_as_complex(x)))", |x| fft::fftn(x, .., Backward)).shapes([&[2, 3, 4, 2]])
            .bad(|x| fft::fftn(&x[0], [1, 1], Backward)),
        one("fft::ifftn", "torch.view_as_real(torch.fft.ifft2(torch.view_as_complex(x)))", |x| fft::ifftn(x, [-2, -1], Backward))
            .shapes([&[2, 3, 4, 2]]).bad(|x| fft::ifftn(&x[0], [3], Backward)),
        one("fft::rfftn", "torch.view_as_real(torch.fft.rfft2(x))", |x| fft::rfftn(x, [-2, -1], Backward)).shapes([&[2, 3, 5]])
            .bad(|x| fft::rfftn(&x[0], [0, 0], Backward)),
        one("fft::irfftn", "torch.fft.irfftn(torch.view_as_complex(x), s=(3, 5), dim=(0, 1))", |x| fft::irfftn(x, Some(5), [0, 1], Backward))
            .shapes([&[3, 3, 2]]).bad(|x| fft::irfftn(&x[0], None, [2], Backward)),
        one("fft::fftn_sized", "torch.view_as_real(torch.fft.fftn(torch.view_as_complex(x), s=(5, 2)))", |x| fft::fftn_sized(x, &[5, 2], .., Backward))
            .shapes([&[2, 3, 4, 2]]).bad(|x| fft::fftn_sized(&x[0], &[5, 2, 1], [0, 1], Backward)),
        one("fft::ifftn_sized", "torch.view_as_real(torch.fft.ifftn(torch.view_as_complex(x), s=(5, 2), dim=(1, 0), norm='ortho'))",
            |x| fft::ifftn_sized(x, &[5, 2], [1, 0], Ortho)).shapes([&[3, 4, 2]]).bad(|x| fft::ifftn_sized(&x[0], &[5, 0], [0, 1], Backward)),
        one("fft::rfftn_sized", "torch.view_as_real(torch.fft.rfftn(x, s=(5, 2)))", |x| fft::rfftn_sized(x, &[5, 2], .., Backward)).shapes([&[3, 4]])
            .bad(|x| fft::rfftn_sized(&x[0], &[5], [0, 1], Backward)),
        one("fft::irfftn_sized", "torch.fft.irfftn(torch.view_as_complex(x), s=(4, 5), dim=(0, 1))", |x| fft::irfftn_sized(x, &[4, 5], [0, 1], Backward))
            .shapes([&[3, 4, 2]]).bad(|x| fft::irfftn_sized(&x[0], &[5], [0, 1], Backward)),
        one("fft::hfft", "torch.fft.hfft(torch.view_as_complex(x))", |x| fft::hfft(x, None, -1, Backward)).shapes([&[2, 4, 2]])
            .bad(|x| fft::hfft(&x[0].narrow(-1, 0, 1)?, None, -1, Backward)),
        one("fft::hfft", "torch.fft.hfft(torch.view_as_complex(x), n=7, dim=0, norm='forward')", |x| fft::hfft(x, Some(7), 0, Forward))
            .shapes([&[4, 2, 2]]),
        one("fft::ihfft", "torch.view_as_real(torch.fft.ihfft(x, norm='ortho').resolve_conj())", |x| fft::ihfft(x, None, -1, Ortho)).shapes([&[2, 5]])
            .bad(|x| fft::ihfft(&x[0], Some(0), -1, Ortho)),
        one("fft::hfftn", "torch.fft.hfft2(torch.view_as_complex(x))", |x| fft::hfftn(x, None, [-2, -1], Backward)).shapes([&[2, 3, 4, 2]])
            .bad(|x| fft::hfftn(&x[0], None, [1, 1], Backward)),
        one("fft::hfftn", "torch.fft.hfftn(torch.view_as_complex(x), s=(3, 5), dim=(1, 0), norm='ortho')", |x| fft::hfftn(x, Some(5), [1, 0], Ortho))
            .shapes([&[3, 3, 2]]),
        one("fft::ihfftn", "torch.view_as_real(torch.fft.ihfftn(x).resolve_conj())", |x| fft::ihfftn(x, .., Backward)).shapes([&[2, 3, 5]])
            .bad(|x| fft::ihfftn(&x[0], [0, 0], Backward)),
        one("fft::stft", "torch.view_as_real(torch.stft(x, 8, window=torch.ones(8), return_complex=True))", |x| fft::stft(x, 8, &Default::default()))
            .shapes([&[2, 13]]).bad(|x| fft::stft(&x[0].narrow(1, 0, 4)?, 8, &Default::default())),
        two("fft::stft", "torch.view_as_real(torch.stft(x, 7, hop_length=3, win_length=4, window=y, pad_mode='constant', normalized=True, return_complex=True))",
            |x, y| fft::stft(x, 7, &StftOptions { hop_length: Some(3), win_length: Some(4), window: Some(y), padding: StftPadding::Zeros, normalized: true,
                ..Default::default() })).shapes([&[2, 13], &[4]])
            .bad(|x| fft::stft(&x[0], 7, &StftOptions { window: Some(&x[1]), ..Default::default() })),
        two("fft::stft", "torch.view_as_real(torch.stft(x, 6, hop_length=2, window=y, center=False, onesided=False, return_complex=True))",
            |x, y| fft::stft(x, 6, &StftOptions { hop_length: Some(2), window: Some(y), center: false, onesided: false, ..Default::default() }))
            .shapes([&[13], &[6]]).bad(|x| fft::stft(&x[0], 0, &Default::default())),
        one("fft::stft", "torch.view_as_real(torch.stft(x, 8, pad_mode='replicate', window=torch.ones(8), return_complex=True))",
            |x| fft::stft(x, 8, &StftOptions { padding: StftPadding::Replicate, ..Default::default() })).shapes([&[2, 13]]),
        one("fft::stft", "torch.view_as_real(torch.stft(x, 8, pad_mode='circular', window=torch.ones(8), return_complex=True))",
            |x| fft::stft(x, 8, &StftOptions { padding: StftPadding::Circular, ..Default::default() })).shapes([&[2, 13]])
            .bad(|x| fft::stft(&x[0].narrow(1, 0, 3)?, 8, &StftOptions { padding: StftPadding::Circular, ..Default::default() })),
        one("fft::istft", "torch.istft(torch.view_as_complex(x), 8, window=torch.ones(8))", |x| fft::istft(x, 8, None, &Default::default()))
            .shapes([&[2, 5, 4, 2]]).bad(|x| fft::istft(&x[0], 6, None, &Default::default())),
        two("fft::istft", "torch.istft(torch.view_as_complex(x), 7, hop_length=3, win_length=5, window=y + 3, normalized=True, length=14)",
            |x, y| fft::istft(x, 7, Some(14), &StftOptions { hop_length: Some(3), win_length: Some(5), window: Some(&y.add_scalar(3.0)), normalized: true,
                ..Default::default() })).shapes([&[4, 5, 2], &[5]])
            .bad(|x| fft::istft(&x[0], 7, None, &StftOptions { hop_length: Some(6), win_length: Some(5), ..Default::default() })),
        two("fft::istft", "torch.istft(torch.view_as_complex(x), 6, hop_length=4, window=y + 3, center=False, onesided=False)",
            |x, y| fft::istft(x, 6, None, &StftOptions { hop_length: Some(4), window: Some(&y.add_scalar(3.0)), center: false, onesided: false,
                ..Default::default() })).shapes([&[6, 3, 2], &[6]])
            .bad(|x| fft::istft(&x[0].narrow(1, 0, 0)?, 6, None, &StftOptions { onesided: false, ..Default::default() })),
        make("fft::fftfreq", "torch.fft.fftfreq(5, 0.5)", |on| fft::fftfreq(5, 0.5, on)).of(F32F64)
            .bad(|_| fft::fftfreq(0, 1.0, &taper::cpu())),
        make("fft::rfftfreq", "torch.fft.rfftfreq(6, 0.5)", |on| fft::rfftfreq(6, 0.5, on)).of(F32F64)
            .bad(|_| fft::rfftfreq(4, 1.0, (taper::DType::I32, &taper::cpu()))),
        one("fft::fftshift", "torch.fft.fftshift(x, 1)", |x| fft::fftshift(x, 1)).shapes([&[2, 5]]).bad(|x| fft::fftshift(&x[0], 2)),
        one("fft::ifftshift", "torch.fft.ifftshift(x)", |x| fft::ifftshift(x, ..)).shapes([&[3, 4]]).bad(|x| fft::ifftshift(&x[0], 2)),
    ]
}
