"""Gradients and parameters of a whole network."""

from . import rnn
from .clip_grad import clip_grad_norm, clip_grad_norm_, clip_grad_value_

__all__ = ["rnn", "clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "parameters_to_vector",
           "vector_to_parameters"]


def parameters_to_vector(parameters):
    from ... import _taper

    return _taper.cat([parameter.reshape(-1) for parameter in parameters], 0)


def vector_to_parameters(vec, parameters):
    start = 0
    for parameter in parameters:
        count = parameter.numel()
        parameter.data = vec[start : start + count].view_as(parameter).detach().clone()
        start += count
