"""Layers whose number of inputs comes with the first input; then they become the layer of that size."""

from ..parameter import UninitializedBuffer, UninitializedParameter, is_lazy
from . import conv, linear, norm


class _Lazy:
    """Mixed into a layer in front of its class. Nothing is drawn before the first input is there."""

    _axis = -1

    def __init__(self, *args, **options):
        import inspect

        given = inspect.signature(self.cls_to_become.__init__).bind(self, 0, *args, **options)
        given.apply_defaults()
        _, self._size_name, *_ = given.arguments
        arguments = dict(given.arguments)
        # A method's signature begins with the layer itself.
        arguments.pop("self")
        learned = "affine" if "affine" in arguments else "bias"
        super().__init__(**{**arguments, learned: False})
        arguments.pop(self._size_name)
        self._arguments = arguments
        place = {"device": arguments["device"], "dtype": arguments["dtype"]}
        if learned == "affine":
            self.affine = arguments["affine"]
        if arguments.get("affine", True):
            for name in ("weight", "bias") if arguments.get("bias", True) else ("weight",):
                self.register_parameter(name, UninitializedParameter(**place))
        for name in ("running_mean", "running_var"):
            if self._buffers.get(name) is not None:
                self.register_buffer(name, UninitializedBuffer(**place))
        self._first_input = self.register_forward_pre_hook(_Lazy._infer_parameters)

    def has_uninitialized_params(self):
        return any(is_lazy(one) for one in (*self._parameters.values(), *self._buffers.values()))

    def reset_parameters(self):
        if not self.has_uninitialized_params():
            super().reset_parameters()

    def _infer_parameters(self, args):
        size, members = args[0].shape[self._axis], self.__dict__
        arguments = members.pop("_arguments")
        if self.has_uninitialized_params():
            made = self.cls_to_become(size, **arguments)
            for own, others in ((self._parameters, made._parameters), (self._buffers, made._buffers)):
                for name, one in own.items():
                    if is_lazy(one):
                        one.materialize(others[name].shape)
                        one.data.copy_(others[name].data)
        setattr(self, members.pop("_size_name"), size)
        members.pop("_first_input").remove()
        self.__class__ = self.cls_to_become

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        for own in (self._parameters, self._buffers):
            for name, one in own.items():
                if is_lazy(one) and prefix + name in state_dict:
                    one.materialize(state_dict[prefix + name].shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def _lazy(base, axis):
    return type(f"Lazy{base.__name__}", (_Lazy, base), {"cls_to_become": base, "_axis": axis, "__module__": __name__})


_LAYERS = [_lazy(linear.Linear, -1)]
for _rank in (1, 2, 3):
    _LAYERS += [_lazy(getattr(conv, f"{_kind}{_rank}d"), -_rank - 1) for _kind in ("Conv", "ConvTranspose")]
    _LAYERS += [_lazy(getattr(norm, f"{_kind}{_rank}d"), 1) for _kind in ("BatchNorm", "InstanceNorm")]
__all__ = [_layer.__name__ for _layer in _LAYERS]
globals().update({_layer.__name__: _layer for _layer in _LAYERS})
