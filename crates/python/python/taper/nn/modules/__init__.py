"""The layers, by topic."""

from . import activation, container, conv, dropout, linear, loss, norm, pooling, rnn, sparse, transformer
from .module import Module

_TOPICS = (activation, container, conv, dropout, linear, loss, norm, pooling, rnn, sparse, transformer)
__all__ = [name for topic in _TOPICS for name in topic.__all__]
globals().update({name: getattr(topic, name) for topic in _TOPICS for name in topic.__all__})
__all__.append("Module")

# PyTorch has it among the activations.
activation.MultiheadAttention = transformer.MultiheadAttention
