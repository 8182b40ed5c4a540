"""The layers, by topic."""

import sys
import types

from . import activation, container, conv, dropout, lazy, linear, loss, norm, pooling, rnn, sparse, transformer
from .module import Module

_TOPICS = (activation, container, conv, dropout, lazy, linear, loss, norm, pooling, rnn, sparse, transformer)
__all__ = [name for topic in _TOPICS for name in topic.__all__]
globals().update({name: getattr(topic, name) for topic in _TOPICS for name in topic.__all__})
__all__.append("Module")

#: The modules in which PyTorch has layers that are elsewhere here.
PLACES = {
    name: module
    for module, names in {
        "activation": "MultiheadAttention",
        "batchnorm": "BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm",
        "distance": "CosineSimilarity PairwiseDistance",
        "flatten": "Flatten Unflatten",
        "fold": "Fold Unfold",
        "instancenorm": "InstanceNorm1d InstanceNorm2d InstanceNorm3d",
        "linear": "NonDynamicallyQuantizableLinear",
        "normalization": "LayerNorm RMSNorm GroupNorm LocalResponseNorm",
        "padding": " ".join(f"{kind}Pad{d}d" for kind in ("Zero", "Constant", "Reflection", "Replication", "Circular")
                            for d in (1, 2, 3)),
        "pixelshuffle": "PixelShuffle PixelUnshuffle",
        "upsampling": "Upsample UpsamplingNearest2d UpsamplingBilinear2d",
    }.items()
    for name in names.split()
}

for _name, _place in PLACES.items():
    if _place not in globals():
        globals()[_place] = sys.modules[f"{__name__}.{_place}"] = types.ModuleType(f"{__name__}.{_place}")
    _layer = globals().get(_name) or getattr(linear, _name)
    setattr(globals()[_place], _name, _layer)
