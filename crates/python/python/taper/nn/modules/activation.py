"""Activations: a table of names, settings with their defaults, and the function of each."""

from .. import functional as F
from ..parameter import Parameter
from .module import Module

#: Class, settings in order with their defaults, and the function that takes them by name.
_TABLE = (
    ("ReLU", {"inplace": False}, F.relu),
    ("ReLU6", {"inplace": False}, F.relu6),
    ("Sigmoid", {}, F.sigmoid),
    ("Tanh", {}, F.tanh),
    ("SiLU", {"inplace": False}, F.silu),
    ("Mish", {"inplace": False}, F.mish),
    ("SELU", {"inplace": False}, F.selu),
    ("GELU", {"approximate": "none"}, F.gelu),
    ("ELU", {"alpha": 1.0, "inplace": False}, F.elu),
    ("CELU", {"alpha": 1.0, "inplace": False}, F.celu),
    ("LeakyReLU", {"negative_slope": 0.01, "inplace": False}, F.leaky_relu),
    ("Hardtanh", {"min_val": -1.0, "max_val": 1.0, "inplace": False}, F.hardtanh),
    ("Hardsigmoid", {"inplace": False}, F.hardsigmoid),
    ("Hardswish", {"inplace": False}, F.hardswish),
    ("Hardshrink", {"lambd": 0.5}, F.hardshrink),
    ("Softshrink", {"lambd": 0.5}, F.softshrink),
    ("Softplus", {"beta": 1.0, "threshold": 20.0}, F.softplus),
    ("Softsign", {}, F.softsign),
    ("Tanhshrink", {}, F.tanhshrink),
    ("LogSigmoid", {}, F.logsigmoid),
    ("Softmax", {"dim": None}, F.softmax),
    ("LogSoftmax", {"dim": None}, F.log_softmax),
    ("Softmin", {"dim": None}, F.softmin),
    ("GLU", {"dim": -1}, F.glu),
    ("Threshold", {"threshold": None, "value": None, "inplace": False}, F.threshold),
)


def _activation(name, settings, function):
    def __init__(self, *args, **kwargs):
        Module.__init__(self)
        given = dict(settings)
        given.update(zip(settings, args))
        unknown = set(kwargs) - set(settings)
        if unknown or len(args) > len(settings):
            raise TypeError(f"{name}.__init__() got an unexpected keyword argument '{''.join(sorted(unknown))}'")
        given.update(kwargs)
        for key, value in given.items():
            setattr(self, key, value)

    def forward(self, input):
        return function(input, **{key: getattr(self, key) for key in settings})

    def extra_repr(self):
        shown = []
        for key in settings:
            value = getattr(self, key)
            if key == "inplace":
                if value:
                    shown.append("inplace=True")
            elif key == "approximate":
                shown.append(f"approximate={value!r}")
            else:
                shown.append(f"{key}={value}")
        return ", ".join(shown)

    members = {"__init__": __init__, "forward": forward, "extra_repr": extra_repr, "__module__": __name__}
    return type(name, (Module,), members)


for _row in _TABLE:
    globals()[_row[0]] = _activation(*_row)


class PReLU(Module):
    def __init__(self, num_parameters=1, init=0.25, device=None, dtype=None):
        super().__init__()
        from ..._functions import full

        self.num_parameters = num_parameters
        self.weight = Parameter(full((num_parameters,), float(init), device=device, dtype=dtype))

    def forward(self, input):
        return F.prelu(input, self.weight)

    def extra_repr(self):
        return f"num_parameters={self.num_parameters}"


__all__ = [*(row[0] for row in _TABLE), "PReLU"]
