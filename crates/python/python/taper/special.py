"""``torch.special``: the functions that Taper has, by their names there."""

from . import _taper
from ._taper import Tensor

_TABLE = {
    "erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "exp2": "exp2", "expm1": "expm1", "log1p": "log1p",
    "digamma": "digamma", "psi": "digamma", "gammaln": "lgamma", "i0": "i0", "sinc": "sinc", "expit": "sigmoid",
    "logit": "logit", "round": "round", "softmax": "softmax", "log_softmax": "log_softmax",
    "logsumexp": "logsumexp", "multigammaln": "mvlgamma",
}
globals().update({name: getattr(Tensor, method) for name, method in _TABLE.items()})


def polygamma(n, input):
    return input.polygamma(n)


def xlogy(input, other):
    from ._functions import xlogy

    return xlogy(input, other)


def _of_one(name):
    def function(input, *, out=None):
        made = _taper._special(name, input)
        return made if out is None else out._replace(made)

    function.__name__ = function.__qualname__ = name
    return function


for _name in (
    "i1 i0e i1e erfcx ndtr log_ndtr ndtri entr bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_k0 "
    "modified_bessel_k1 scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0 airy_ai"
).split():
    globals()[_name] = _of_one(_name)
modified_bessel_i0, modified_bessel_i1 = Tensor.i0, globals()["i1"]


def _of_tensors(name, *operands):
    if not any(isinstance(one, Tensor) for one in operands):
        raise TypeError(f"special_{name}(): one of the arguments must be Tensor")


def xlog1py(input, other):
    _of_tensors("xlog1py", input, other)
    return _taper._special_xlog1py(input, other)


def zeta(input, other):
    _of_tensors("zeta", input, other)
    return _taper._special_zeta(input, other)


def _polynomial(name):
    def function(input, n):
        _of_tensors(name, input, n)
        return _taper._special_polynomial(name, input, n)

    function.__name__ = function.__qualname__ = name
    return function


for _name in (
    "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w "
    "shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
    "shifted_chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he laguerre_polynomial_l "
    "legendre_polynomial_p"
).split():
    globals()[_name] = _polynomial(_name)
