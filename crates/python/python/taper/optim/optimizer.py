"""``Optimizer`` and the optimizers of Taper under PyTorch's names."""

import copy
import inspect
from collections import OrderedDict, defaultdict

from .. import _taper
from .._taper import Tensor
from ..autograd import enable_grad


class _Required:
    def __repr__(self):
        return "<required parameter>"


required = _Required()


class Optimizer:
    """The base of all optimizers: groups of parameters with settings, and a state for each parameter."""

    def __init__(self, params, defaults):
        self.defaults, self.state, self.param_groups = defaults, defaultdict(dict), []
        self._step_hooks = OrderedDict()
        if isinstance(params, Tensor):
            raise TypeError(f"params argument given to the optimizer should be an iterable of Tensors or dicts, but got {params.type()}")
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def add_param_group(self, param_group):
        params = param_group["params"]
        params = [params] if isinstance(params, Tensor) else list(params)
        params = [one[1] if isinstance(one, tuple) else one for one in params]
        seen = {id(one) for group in self.param_groups for one in group["params"]}
        for one in params:
            if not isinstance(one, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(one).__name__}")
            if not one.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
            if id(one) in seen:
                raise ValueError("some parameters appear in more than one parameter group")
        group = {**param_group, "params": params}
        for name, value in self.defaults.items():
            if value is required and name not in group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            group.setdefault(name, value)
        self.param_groups.append(group)

    def zero_grad(self, set_to_none=True):
        for group in self.param_groups:
            for parameter in group["params"]:
                if set_to_none:
                    parameter.grad = None
                elif parameter.grad is not None:
                    parameter.grad = parameter.grad.new_zeros(parameter.grad.shape)

    def step(self, closure=None):
        raise NotImplementedError

    def state_dict(self):
        numbers, groups = {}, []
        for group in self.param_groups:
            packed = {name: value for name, value in group.items() if name != "params"}
            for parameter in group["params"]:
                numbers.setdefault(id(parameter), len(numbers))
            packed["params"] = [numbers[id(parameter)] for parameter in group["params"]]
            groups.append(packed)
        state = {numbers[id(key)] if isinstance(key, Tensor) else key: value for key, value in self.state.items()}
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict):
        groups = copy.deepcopy(state_dict["param_groups"])
        if len(groups) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        parameters = [one for group in self.param_groups for one in group["params"]]
        for own, loaded in zip(self.param_groups, groups):
            if len(own["params"]) != len(loaded["params"]):
                raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
            own.update({name: value for name, value in loaded.items() if name != "params"})
        self.state = defaultdict(dict)
        for key, value in copy.deepcopy(state_dict["state"]).items():
            self.state[parameters[key] if isinstance(key, int) else key] = value

    def register_step_post_hook(self, hook):
        from ..nn.modules.module import _Handle

        handle = _Handle(self._step_hooks)
        self._step_hooks[handle.id] = hook
        return handle

    def __repr__(self):
        lines = [f"{type(self).__name__} ("]
        for at, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {at}")
            lines += [f"    {name}: {value}" for name, value in sorted(group.items()) if name != "params"]
        return "\n".join(lines) + "\n)"


class _Native(Optimizer):
    """An optimizer whose steps Taper computes; the settings of the groups go to it before each step."""

    def __init__(self, params, defaults):
        self._native = None
        super().__init__(params, defaults)
        self._check(defaults)

    def _check(self, settings):
        if not 0.0 <= float(settings["lr"]):
            raise ValueError(f"Invalid learning rate: {settings['lr']}")
        for at, beta in enumerate(settings.get("betas", ())):
            if not 0.0 <= beta < 1.0:
                raise ValueError(f"Invalid beta parameter at index {at}: {beta}")
        for name, label in (("momentum", "momentum"), ("weight_decay", "weight_decay"), ("eps", "epsilon")):
            if settings.get(name, 0.0) < 0.0:
                raise ValueError(f"Invalid {label} value: {settings[name]}")

    def _steps(self):
        if self._native is None:
            first, *others = self.param_groups
            self._native = _taper.NativeOptimizer(type(self).__name__, first["params"])
            for group in others:
                self._native.add_group(group["params"])
        return self._native

    def add_param_group(self, param_group):
        super().add_param_group(param_group)
        if self._native is not None:
            self._native.add_group(self.param_groups[-1]["params"])

    def _settings(self, group):
        numbers = {}
        for name, value in group.items():
            if isinstance(value, (tuple, list)) and name != "params":
                numbers.update({f"{name}.{at}": float(number) for at, number in enumerate(value)})
            elif isinstance(value, (bool, int, float)):
                numbers[name] = value
            elif isinstance(value, Tensor):
                numbers[name] = value.item()
        return numbers

    def step(self, closure=None):
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        self._steps().step([self._settings(group) for group in self.param_groups])
        for hook in self._step_hooks.values():
            hook(self, (), {})
        return loss

    def state_dict(self):
        packed = super().state_dict()
        state = defaultdict(dict)
        for name, value in self._steps().state():
            kind, _, rest = name.partition(".")
            number, _, field = rest.partition(".")
            if kind == "state":
                state[int(number)][field] = value
        packed["state"] = dict(state)
        return packed

    def load_state_dict(self, state_dict):
        state = state_dict["state"]
        super().load_state_dict({**state_dict, "state": {}})
        flat = {}
        for number, fields in state.items():
            for field, value in fields.items():
                scalar = isinstance(value, Tensor) and field == "step"
                flat[f"state.{number}.{field}"] = int(value) if scalar else value
        native = self._steps()
        native.step_settings([self._settings(group) for group in self.param_groups])
        settings = {name: value for name, value in native.state() if name.startswith("param_groups.")}
        native.load({**settings, **flat})


def _optimizer(name, settings):
    """A class with these settings, in PyTorch's order and with its defaults."""

    def __init__(self, params, *args, **kwargs):
        given = dict(settings)
        given.update(zip(settings, args))
        for key, value in kwargs.items():
            if key not in settings and key not in _IGNORED:
                raise TypeError(f"{name}.__init__() got an unexpected keyword argument '{key}'")
            given[key] = value
        if given.get("nesterov") and (given["momentum"] <= 0 or given["dampening"] != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        _Native.__init__(self, params, given)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    named = [inspect.Parameter(key, kind, default=value) for key, value in settings.items()]
    given = [inspect.Parameter(key, kind) for key in ("self", "params")]
    ignored = [inspect.Parameter("ignored", inspect.Parameter.VAR_KEYWORD)]
    __init__.__signature__ = inspect.Signature(given + named + ignored)
    return type(name, (_Native,), {"__init__": __init__, "__module__": __name__})


#: Settings that choose how PyTorch computes, which Taper does by itself.
_IGNORED = {"foreach", "capturable", "differentiable", "fused"}
_BY_PYTORCH = {"foreach": None, "differentiable": False, "fused": None}
_ADAM = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8}
_TABLE = {
    "SGD": {"lr": 1e-3, "momentum": 0, "dampening": 0, "weight_decay": 0, "nesterov": False, "maximize": False,
            **_BY_PYTORCH},
    "Adam": {**_ADAM, "weight_decay": 0, "amsgrad": False, "maximize": False, **_BY_PYTORCH, "capturable": False,
             "decoupled_weight_decay": False},
    "AdamW": {**_ADAM, "weight_decay": 1e-2, "amsgrad": False, "maximize": False, **_BY_PYTORCH, "capturable": False,
              "decoupled_weight_decay": True},
    "RMSprop": {"lr": 1e-2, "alpha": 0.99, "eps": 1e-8, "weight_decay": 0, "momentum": 0, "centered": False,
                "maximize": False},
    "Adagrad": {"lr": 1e-2, "lr_decay": 0, "weight_decay": 0, "initial_accumulator_value": 0, "eps": 1e-10,
                "maximize": False},
    "Adadelta": {"lr": 1.0, "rho": 0.9, "eps": 1e-6, "weight_decay": 0, "maximize": False},
    "Adamax": {**_ADAM, "lr": 2e-3, "weight_decay": 0, "maximize": False},
    "NAdam": {**_ADAM, "lr": 2e-3, "weight_decay": 0, "momentum_decay": 4e-3, "decoupled_weight_decay": False,
              "maximize": False},
    "RAdam": {**_ADAM, "weight_decay": 0, "decoupled_weight_decay": False, "maximize": False},
    "ASGD": {"lr": 1e-2, "lambd": 1e-4, "alpha": 0.75, "t0": 1e6, "weight_decay": 0, "maximize": False},
    "Rprop": {"lr": 1e-2, "etas": (0.5, 1.2), "step_sizes": (1e-6, 50.0), "maximize": False},
}
for _name, _settings in _TABLE.items():
    globals()[_name] = _optimizer(_name, _settings)


class LBFGS(Optimizer):
    """Taper's L-BFGS, whose ``step`` calls a closure for the loss."""

    def __init__(self, params, lr=1, max_iter=20, max_eval=None, tolerance_grad=1e-7, tolerance_change=1e-9,
                 history_size=100, line_search_fn=None):
        if line_search_fn not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        super().__init__(params, {
            "lr": lr, "max_iter": max_iter, "max_eval": max_eval, "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change, "history_size": history_size, "line_search_fn": line_search_fn,
        })
        self._native = None

    def step(self, closure):
        from .._functions import tensor

        (group,) = self.param_groups
        if self._native is None:
            self._native = _taper.NativeLbfgs(
                group["params"], float(group["lr"]), group["max_iter"], group["max_eval"], group["tolerance_grad"],
                group["tolerance_change"], group["history_size"], group["line_search_fn"] == "strong_wolfe",
            )

        def evaluate():
            with enable_grad():
                return closure()

        return tensor(self._native.step(evaluate))
