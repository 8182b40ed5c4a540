"""Limits for gradients."""

from ... import _taper
from ..._taper import Tensor


def _with_gradients(parameters):
    parameters = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [parameter for parameter in parameters if parameter.grad is not None]


def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    parameters = _with_gradients(parameters)
    if not parameters:
        return _taper._full([], 0.0)
    if float(norm_type) == 2.0:
        norm = _taper._clip_grad_norm(parameters, float(max_norm))
    else:
        norms = [parameter.grad.norm(norm_type) for parameter in parameters]
        norm = _taper.stack(norms).norm(norm_type)
        factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
        for parameter in parameters:
            parameter.grad = parameter.grad.mul(factor)
    if error_if_nonfinite and not bool(norm.isfinite()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be clipped."
        )
    return norm


clip_grad_norm = clip_grad_norm_


def clip_grad_value_(parameters, clip_value, foreach=None):
    parameters = _with_gradients(parameters)
    if parameters:
        _taper._clip_grad_value(parameters, float(clip_value))


def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    """The norm of all tensors together."""
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not tensors:
        return _taper._full([], 0.0)
    norm = _taper.stack([one.norm(float(norm_type)).to(tensors[0].device) for one in tensors]).norm(float(norm_type))
    if error_if_nonfinite and not bool(norm.isfinite()):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it cannot be "
            "clipped. To disable this error and scale the gradients by the non-finite norm anyway, set "
            "`error_if_nonfinite=False`"
        )
    return norm


def clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    """Scales gradients whose norm is known to be at most ``max_norm``."""
    factor = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
    for parameter in _with_gradients(parameters):
        parameter.grad.mul_(factor.to(parameter.device))
