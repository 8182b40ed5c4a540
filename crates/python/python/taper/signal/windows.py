"""Window functions; ``sym`` windows are symmetric, others have the period of their length."""

from .. import _taper


def _window(name, M, numbers, sym, dtype, device, requires_grad):
    if M < 0:
        raise ValueError(f"{name} requires non-negative window length, got M={M}")
    if str(dtype) not in ("None", "torch.float32", "torch.float64"):
        raise ValueError(f"{name} expects float32 or float64 dtypes, got: {dtype}")
    made = _taper._window(name, M, not sym, [float(one) for one in numbers], dtype, device)
    return made.requires_grad_(requires_grad)


def _plain(name):
    def window(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
        return _window(name, M, (), sym, dtype, device, requires_grad)

    window.__name__ = window.__qualname__ = name
    return window


bartlett, blackman, cosine, hann, nuttall = map(_plain, ("bartlett", "blackman", "cosine", "hann", "nuttall"))


def exponential(M, *, center=None, tau=1.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    if tau <= 0:
        raise ValueError(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise ValueError("Center must be None for symmetric windows")
    numbers = (tau,) if center is None else (tau, center)
    return _window("exponential", M, numbers, sym, dtype, device, requires_grad)


def gaussian(M, *, std=1.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    if std <= 0:
        raise ValueError(f"Standard deviation must be positive, got: {std} instead.")
    return _window("gaussian", M, (std,), sym, dtype, device, requires_grad)


def kaiser(M, *, beta=12.0, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    if beta < 0:
        raise ValueError(f"beta must be non-negative, got: {beta} instead.")
    return _window("kaiser", M, (beta,), sym, dtype, device, requires_grad)


def hamming(M, *, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    return general_hamming(M, sym=sym, dtype=dtype, device=device, requires_grad=requires_grad)


def general_hamming(M, *, alpha=0.54, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    return _window("hamming", M, (alpha, 1.0 - alpha), sym, dtype, device, requires_grad)


def general_cosine(M, *, a, sym=True, dtype=None, layout=None, device=None, requires_grad=False):
    if not hasattr(a, "__iter__"):
        raise TypeError("Coefficients must be a list/tuple")
    if not a:
        raise ValueError("Coefficients cannot be empty")
    return _window("general_cosine", M, tuple(a), sym, dtype, device, requires_grad)
