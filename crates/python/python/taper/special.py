"""``torch.special``: the functions that Taper has, by their names there."""

from ._taper import Tensor

_TABLE = {
    "erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "exp2": "exp2", "expm1": "expm1", "log1p": "log1p",
    "digamma": "digamma", "psi": "digamma", "gammaln": "lgamma", "i0": "i0", "sinc": "sinc", "expit": "sigmoid",
    "logit": "logit", "xlogy": "xlogy", "round": "round", "softmax": "softmax", "log_softmax": "log_softmax",
    "logsumexp": "logsumexp", "multigammaln": "mvlgamma",
}
globals().update({name: getattr(Tensor, method) for name, method in _TABLE.items()})


def polygamma(n, input):
    return input.polygamma(n)
