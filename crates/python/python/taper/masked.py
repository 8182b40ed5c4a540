"""``torch.masked``: reductions and normalizations of the elements under a mask."""

from . import _functions as _f

_INTEGERS = {"sum": True, "prod": True, "cumsum": True, "cumprod": True}


def _cast(name, input, dtype):
    if dtype is not None:
        return input.to(dtype)
    if name in _INTEGERS and not input.is_floating_point():
        return input.long()
    return input


def _expanded(input, mask):
    if mask is None:
        return _f.ones_like(input, dtype=_bool())
    if mask.dim() > input.dim():
        raise IndexError("_input_mask expected broadcastable mask (got mask dimensionality higher than of the input)")
    return mask.expand(input.shape)


def _bool():
    from . import _taper

    return dict(_taper._dtypes)["bool"]


def _least(dtype):
    return float("-inf") if dtype.is_floating_point else _f.iinfo(dtype).min if dtype != _bool() else False


def _greatest(dtype):
    return float("inf") if dtype.is_floating_point else _f.iinfo(dtype).max if dtype != _bool() else True


def _axes(input, dim):
    """The axes of a reduction: all of them for None and for no axis."""
    if dim is None or isinstance(dim, (tuple, list)) and not dim:
        return tuple(range(input.dim()))
    return tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)


def _where(mask, input, value):
    return _f.where(mask, input, _f.full_like(input.detach(), value))


def sum(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    input = _cast("sum", input, dtype)
    return _where(_expanded(input, mask), input, 0).sum(_axes(input, dim), keepdim, dtype=input.dtype)


def prod(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    input = _cast("prod", input, dtype)
    made = _where(_expanded(input, mask), input, 1)
    for one in sorted((axis % max(input.dim(), 1) for axis in _axes(input, dim)), reverse=True):
        made = made.prod(one, keepdim, dtype=input.dtype)
    return made


def amax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    input = _cast("amax", input, dtype)
    return _where(_expanded(input, mask), input, _least(input.dtype)).amax(_axes(input, dim), keepdim)


def amin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    input = _cast("amin", input, dtype)
    return _where(_expanded(input, mask), input, _greatest(input.dtype)).amin(_axes(input, dim), keepdim)


def argmax(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    input = _cast("argmax", input, dtype)
    return _where(_expanded(input, mask), input, _least(input.dtype)).argmax(dim, bool(keepdim)).to(input.dtype)


def argmin(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    input = _cast("argmin", input, dtype)
    return _where(_expanded(input, mask), input, _greatest(input.dtype)).argmin(dim, bool(keepdim)).to(input.dtype)


def mean(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    input = _cast("mean", input, dtype)
    if not input.is_floating_point():
        raise ValueError(f"mean input and output dtypes must be floating point, got {input.dtype}")
    mask, axes = _expanded(input, mask), _axes(input, dim)
    return _where(mask, input, 0).sum(axes, keepdim) / mask.to(input.dtype).sum(axes, keepdim)


def median(input, dim=-1, *, keepdim=False, dtype=None, mask=None):
    input = _cast("median", input, dtype)
    if mask is None:
        return input.median(dim, keepdim)[0]
    return _where(_expanded(input, mask), input, float("nan")).nanmedian(dim, keepdim)[0]


def _spread(input, dim, unbiased, correction, keepdim, dtype, mask):
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    input = _cast("var", input, dtype)
    if not input.is_floating_point():
        input = input.to(_f._taper.get_default_dtype())
    mask, axes = _expanded(input, mask), _axes(input, dim)
    count = mask.to(input.dtype).sum(axes, True)
    middle = _where(mask, input, 0).sum(axes, True) / count
    squares = _where(mask, input - middle, 0).square().sum(axes, keepdim)
    count = count if keepdim else count.reshape(squares.shape)
    return squares / (count - correction).clamp(min=0)


def var(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
    return _spread(input, dim, unbiased, correction, keepdim, dtype, mask)


def std(input, dim=None, unbiased=None, *, correction=None, keepdim=False, dtype=None, mask=None):
    return _spread(input, dim, unbiased, correction, keepdim, dtype, mask).sqrt()


def norm(input, ord=2.0, dim=None, *, keepdim=False, dtype=None, mask=None):
    input = _cast("norm", input, dtype)
    ord = 2.0 if ord in (None, "fro") else float(ord)
    value = float("inf") if ord < 0 else 0
    return _where(_expanded(input, mask), input, value)._norm(ord, _axes(input, dim), keepdim)


def logsumexp(input, dim=None, *, keepdim=False, dtype=None, mask=None):
    input = _cast("logsumexp", input, dtype)
    held = _where(_expanded(input, mask), input, _least(input.dtype))
    return held.logsumexp(_axes(input, dim), keepdim).to(input.dtype)


def logaddexp(input, other, *, dtype=None, input_mask=None, other_mask=None):
    input, other = _cast("", input, dtype), _cast("", other, dtype)
    one = _where(_expanded(input, input_mask), input, float("-inf"))
    return one.logaddexp(_where(_expanded(other, other_mask), other, float("-inf")))


def cumsum(input, dim, *, dtype=None, mask=None):
    input = _cast("cumsum", input, dtype)
    return _where(_expanded(input, mask), input, 0).cumsum(dim, dtype=input.dtype)


def cumprod(input, dim, *, dtype=None, mask=None):
    input = _cast("cumprod", input, dtype)
    return _where(_expanded(input, mask), input, 1).cumprod(dim, dtype=input.dtype)


def softmax(input, dim, *, dtype=None, mask=None):
    input = _cast("", input, dtype)
    return _where(_expanded(input, mask), input, float("-inf")).softmax(dim)


def log_softmax(input, dim, *, dtype=None, mask=None):
    input = _cast("", input, dtype)
    return _where(_expanded(input, mask), input, float("-inf")).log_softmax(dim)


def softmin(input, dim, *, dtype=None, mask=None):
    input = _cast("", input, dtype)
    return _where(_expanded(input, mask), input, float("inf")).softmin(dim)


def normalize(input, ord, dim, *, eps=1e-12, dtype=None, mask=None):
    input = _cast("", input, dtype)
    size = norm(input, ord, dim, keepdim=True, mask=mask).clamp(min=eps)
    return _where(_expanded(input, mask), input, 0) / size
