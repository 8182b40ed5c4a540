"""Layers with the batch normalization behind them as one layer, for evaluation."""

import copy

from ..parameter import Parameter

__all__ = ["fuse_conv_bn_eval", "fuse_conv_bn_weights", "fuse_linear_bn_eval", "fuse_linear_bn_weights"]


def _fused(weight, bias, mean, variance, eps, scale, shift, axis):
    factor = (variance + eps).rsqrt()
    factor = factor if scale is None else factor * scale
    bias = mean.new_zeros(mean.shape) if bias is None else bias
    shape = [1] * weight.dim()
    shape[axis] = -1
    fused = (bias - mean) * factor
    fused = fused if shift is None else fused + shift
    return (
        Parameter((weight * factor.reshape(shape)).to(weight.dtype).detach(), weight.requires_grad),
        Parameter(fused.to(weight.dtype).detach(), weight.requires_grad),
    )


def fuse_conv_bn_weights(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, transpose=False):
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0)


def fuse_linear_bn_weights(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b):
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)


def _fuse(layer, bn, transpose):
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    fused = copy.deepcopy(layer)
    fused.weight, fused.bias = _fused(
        layer.weight, layer.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias, 1 if transpose else 0
    )
    return fused


def fuse_conv_bn_eval(conv, bn, transpose=False):
    """A convolution that does what it and the normalization behind it did."""
    return _fuse(conv, bn, transpose)


def fuse_linear_bn_eval(linear, bn):
    return _fuse(linear, bn, False)
