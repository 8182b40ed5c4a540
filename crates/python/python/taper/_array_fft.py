"""The extension ``fft`` of the array API standard, without the functions of complex numbers."""

from . import _taper


def fftfreq(n, /, *, d=1.0, dtype=None, device=None):
    return _taper.fftfreq(n, d).to(device, dtype) if device is not None else _taper.fftfreq(n, d)._to(None, dtype)


def rfftfreq(n, /, *, d=1.0, dtype=None, device=None):
    return _taper.rfftfreq(n, d).to(device, dtype) if device is not None else _taper.rfftfreq(n, d)._to(None, dtype)


def fftshift(x, /, *, axes=None):
    return _taper.fftshift(x, axes)


def ifftshift(x, /, *, axes=None):
    return _taper.ifftshift(x, axes)
