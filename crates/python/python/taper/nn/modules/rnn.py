"""Recurrent layers. Taper computes them, with the parameters that a module has at the time."""

import copy
import math

from ... import _taper
from .. import init
from ..parameter import Parameter
from .module import Module

__all__ = ["RNN", "GRU", "LSTM", "RNNCell", "GRUCell", "LSTMCell"]


#: Attributes of PyTorch's layers, for which there is no use here.
_OF_PYTORCH = ("_all_weights", "_flat_weights", "_flat_weights_names", "_flat_weight_refs")


#: Attributes that are made anew, and not saved.
_NATIVE = ("_native", "_names")


class _Recurrent(Module):
    _states = 1

    def __init__(self, mode, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
                 bidirectional=False, proj_size=0, device=None, dtype=None):
        super().__init__()
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        self._build()
        self.reset_parameters()
        if device is not None or dtype is not None:
            self.to(device, dtype)

    def reset_parameters(self):
        bound = 1 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def _build(self):
        object.__setattr__(self, "_native", _taper.NativeRecurrent(
            self.mode, self.input_size, self.hidden_size, self.num_layers, self.bias, self.batch_first,
            self.dropout, self.bidirectional, self.proj_size,
        ))
        named = self._native.parameters()
        object.__setattr__(self, "_names", [name for name, _ in named])
        for name, tensor in named:
            parameter = _taper.Tensor.__new__(Parameter)
            parameter.set_(tensor)
            self.register_parameter(name, parameter)

    def flatten_parameters(self):
        """Nothing to do: Taper plans the layer as a whole."""

    @property
    def _flat_weights_names(self):
        return list(self._names)

    @property
    def all_weights(self):
        return [list(self.parameters())]

    def forward(self, input, hx=None):
        return self._computed(input, hx, [getattr(self, name) for name in self._names], self.training)

    def _computed(self, input, hx, parameters, training):
        states = [] if hx is None else list(hx) if isinstance(hx, tuple) else [hx]
        output, *states = self._native.forward(input, states, parameters, training)
        return output, states[0] if self._states == 1 else tuple(states)

    def extra_repr(self):
        text = f"{self.input_size}, {self.hidden_size}"
        for name, usual in (("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False),
                            ("dropout", 0.0), ("bidirectional", False)):
            if getattr(self, name) != usual:
                text += f", {name}={getattr(self, name)}"
        return text

    def _rebuilt(self, state):
        Module.__setstate__(self, {name: value for name, value in state.items() if name not in _OF_PYTORCH})
        values = dict(self._parameters)
        self._build()
        for name, parameter in self._parameters.items():
            parameter.data = values[name].detach()
            parameter.requires_grad_(values[name].requires_grad)
        return self

    def __getstate__(self):
        names = [name.split("_l") for name in self._parameters]
        layers = dict.fromkeys(layer for _, layer in names)
        listed = [[f"{name}_l{layer}" for name, own in names if own == layer] for layer in layers]
        state = {name: value for name, value in super().__getstate__().items() if name not in _NATIVE}
        # PyTorch's layers find their weights by these names.
        flat = [name for names in listed for name in names]
        weights = [self._parameters[name] for name in flat]
        return {**state, "_all_weights": listed, "_flat_weights_names": flat, "_flat_weights": weights}

    def __setstate__(self, state):
        self._rebuilt(state)

    def __deepcopy__(self, memo):
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        return made._rebuilt(copy.deepcopy(self.__getstate__(), memo))


class RNN(_Recurrent):
    def __init__(self, input_size, hidden_size, num_layers=1, nonlinearity="tanh", *args, **kwargs):
        super().__init__(f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, *args, **kwargs)
        self.nonlinearity = nonlinearity


class GRU(_Recurrent):
    def __init__(self, *args, **kwargs):
        super().__init__("GRU", *args, **kwargs)


class LSTM(_Recurrent):
    _states = 2

    def __init__(self, *args, **kwargs):
        super().__init__("LSTM", *args, **kwargs)


class _Cell(Module):
    """One step of a recurrent layer: the layer itself over one element."""

    _layer, _states = None, 1

    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None, **options):
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        layer = type(self)._layer(input_size, hidden_size, bias=bias, device=device, dtype=dtype, **options)
        object.__setattr__(self, "_step", layer)
        for name, parameter in layer.named_parameters():
            self.register_parameter(name.removesuffix("_l0"), parameter)

    def reset_parameters(self):
        self._step.reset_parameters()

    def forward(self, input, hx=None):
        states = None
        if hx is not None:
            given = hx if isinstance(hx, tuple) else (hx,)
            states = tuple(one.unsqueeze(0) for one in given)
            states = states if self._states == 2 else states[0]
        parameters = [getattr(self, name.removesuffix("_l0")) for name in self._step._names]
        _, states = self._step._computed(input.unsqueeze(0), states, parameters, self.training)
        return tuple(one.squeeze(0) for one in states) if self._states == 2 else states.squeeze(0)

    def extra_repr(self):
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


class RNNCell(_Cell):
    _layer = RNN

    def __init__(self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None):
        super().__init__(input_size, hidden_size, bias, device, dtype, nonlinearity=nonlinearity)


class GRUCell(_Cell):
    _layer = GRU


class LSTMCell(_Cell):
    _layer, _states = LSTM, 2
