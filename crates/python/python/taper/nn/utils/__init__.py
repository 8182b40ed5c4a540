"""Gradients and parameters of a whole network."""

from . import rnn
from .clip_grad import clip_grad_norm, clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm

__all__ = [
    "rnn", "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm",
    "parameters_to_vector", "vector_to_parameters", "skip_init", "parametrize", "parametrizations", "weight_norm",
    "remove_weight_norm", "fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights",
]

#: Names whose modules need the layers, which are made after this package.
_LATER = {
    "parametrize": "parametrize", "parametrizations": "parametrizations", "weight_norm": "weight_norm",
    "remove_weight_norm": "weight_norm", "fuse_conv_bn_eval": "fusion", "fuse_conv_bn_weights": "fusion",
    "fuse_linear_bn_eval": "fusion", "fuse_linear_bn_weights": "fusion", "fusion": "fusion",
}


def _finish():
    """Adds the names of the modules that need the layers."""
    import importlib

    for name, module in _LATER.items():
        found = importlib.import_module(f".{module}", __name__)
        globals()[name] = getattr(found, name, found)


def skip_init(module_cls, *args, **kwargs):
    """A module whose parameters are not drawn, for weights that come from elsewhere."""
    return module_cls(*args, **kwargs)


def parameters_to_vector(parameters):
    from ... import _taper

    return _taper.cat([parameter.reshape(-1) for parameter in parameters], 0)


def vector_to_parameters(vec, parameters):
    start = 0
    for parameter in parameters:
        count = parameter.numel()
        parameter.data = vec[start : start + count].view_as(parameter).detach().clone()
        start += count
