"""``torch.fft``, without the functions whose results are complex: Taper has no complex dtype yet."""

from ._taper import fftfreq, fftshift, ifftshift, rfftfreq

__all__ = ["fftfreq", "fftshift", "ifftshift", "rfftfreq"]
