"""``Module``: named parameters, buffers and parts, hooks, and state dicts."""

import copy
from collections import OrderedDict
from itertools import count

from ..._taper import Tensor
from ..parameter import Buffer, Parameter

_hook_numbers = count()
#: The end of the key of what a module's ``get_extra_state`` gives, by PyTorch's private name.
_EXTRA_STATE_KEY_SUFFIX = "_extra_state"


class _Handle:
    """Takes a hook away again."""

    def __init__(self, hooks):
        self._hooks, self.id = hooks, next(_hook_numbers)

    def remove(self):
        self._hooks.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.remove()


class _Incompatible(tuple):
    """The names that a state dict lacks, and those that the module lacks."""

    def __new__(cls, missing_keys, unexpected_keys):
        made = tuple.__new__(cls, (missing_keys, unexpected_keys))
        made.missing_keys, made.unexpected_keys = missing_keys, unexpected_keys
        return made

    def __repr__(self):
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def _indented(text, spaces):
    first, *rest = text.split("\n")
    return "\n".join([first] + [" " * spaces + line for line in rest])


class Module:
    """The base of all networks."""

    training: bool
    _version = 1

    def __init__(self, *args, **kwargs):
        for name in ("_parameters", "_buffers", "_modules"):
            object.__setattr__(self, name, OrderedDict())
        object.__setattr__(self, "_non_persistent_buffers_set", set())
        for name in _HOOKS:
            object.__setattr__(self, name, OrderedDict())
        object.__setattr__(self, "training", True)

    def forward(self, *input):
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def __call__(self, *args, **kwargs):
        hooks = self.__dict__
        for number, hook in list(hooks["_forward_pre_hooks"].items()):
            with_kwargs = number in hooks["_kwargs_hooks"]
            result = hook(self, args, kwargs) if with_kwargs else hook(self, args)
            if result is not None and with_kwargs:
                args, kwargs = result
            elif result is not None:
                args = result if isinstance(result, tuple) else (result,)
        backward = hooks["_backward_hooks"] or hooks["_backward_pre_hooks"]
        if backward:
            args = self._watch_inputs(args)
        result = self.forward(*args, **kwargs)
        for number, hook in list(hooks["_forward_hooks"].items()):
            with_kwargs = number in hooks["_kwargs_hooks"]
            other = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
            result = result if other is None else other
        if backward:
            self._watch_outputs(result)
        return result

    # Backward hooks: the gradients of outputs and inputs are collected by hooks on the tensors.

    def _watch_inputs(self, args):
        watched = {"out": {}, "in": {}}
        self.__dict__["_watched"] = watched
        args = tuple(
            arg.view_as(arg) if isinstance(arg, Tensor) and arg.requires_grad else arg for arg in args
        )
        places = [at for at, arg in enumerate(args) if isinstance(arg, Tensor) and arg.requires_grad]

        def collect(at):
            def hook(gradient):
                watched["in"][at] = gradient
                if len(watched["in"]) < len(places):
                    return None
                complete = tuple(watched["in"].get(at) for at in range(len(args)))
                for user in list(self._backward_hooks.values()):
                    other = user(self, complete, watched.get("outputs", ()))
                    complete = complete if other is None else other
                return complete[at]

            return hook

        for at in places:
            args[at].register_hook(collect(at))
        watched["inputs"] = len(places)
        return args

    def _watch_outputs(self, result):
        watched = self.__dict__["_watched"]
        outputs = result if isinstance(result, (tuple, list)) else (result,)
        places = [at for at, one in enumerate(outputs) if isinstance(one, Tensor) and one.requires_grad]

        def collect(at):
            def hook(gradient):
                watched["out"][at] = gradient
                if len(watched["out"]) < len(places):
                    return None
                complete = tuple(watched["out"].get(k) for k in range(len(outputs)))
                for user in list(self._backward_pre_hooks.values()):
                    other = user(self, complete)
                    complete = complete if other is None else other
                watched["outputs"] = complete
                if not watched["inputs"]:
                    for user in list(self._backward_hooks.values()):
                        user(self, (None,), complete)
                return complete[at]

            return hook

        for at in places:
            outputs[at].register_hook(collect(at))

    # Attributes

    def __setattr__(self, name, value):
        members = self.__dict__
        if "_parameters" not in members:
            if isinstance(value, (Parameter, Module)):
                kind = "parameters" if isinstance(value, Parameter) else "module"
                raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
            object.__setattr__(self, name, value)
            return
        if isinstance(value, Parameter):
            self._forget(name, but="_parameters")
            self.register_parameter(name, value)
        elif isinstance(value, Module):
            self._forget(name, but="_modules")
            members["_modules"][name] = value
        elif name in members["_parameters"]:
            if value is not None:
                raise TypeError(
                    f"cannot assign '{type(value).__name__}' as parameter '{name}' (torch.nn.Parameter or None expected)"
                )
            members["_parameters"][name] = None
        elif name in members["_modules"] and value is None:
            members["_modules"][name] = None
        elif isinstance(value, Buffer):
            self.register_buffer(name, value, value.persistent)
        elif name in members["_buffers"] and (value is None or isinstance(value, Tensor)):
            members["_buffers"][name] = value
        else:
            self._forget(name)
            object.__setattr__(self, name, value)

    def _forget(self, name, but=None):
        """Takes a member away, except from one kind, in which a new member keeps the place of the old one."""
        members = self.__dict__
        members.pop(name, None)
        for kind in ("_parameters", "_buffers", "_modules"):
            if kind != but:
                members[kind].pop(name, None)

    def __getattr__(self, name):
        members = self.__dict__
        for kind in ("_parameters", "_buffers", "_modules"):
            if kind in members and name in members[kind]:
                return members[kind][name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __delattr__(self, name):
        for kind in ("_parameters", "_buffers", "_modules"):
            if name in self.__dict__[kind]:
                del self.__dict__[kind][name]
                return
        object.__delattr__(self, name)

    def __dir__(self):
        return sorted({*object.__dir__(self), *self._parameters, *self._buffers, *self._modules})

    def register_parameter(self, name, param):
        if "_parameters" not in self.__dict__:
            raise AttributeError("cannot assign parameter before Module.__init__() call")
        if "." in name or not name:
            raise KeyError(f'parameter name can\'t {"contain a dot" if name else "be empty string"}')
        self._parameters[name] = param

    def register_buffer(self, name, tensor, persistent=True):
        if hasattr(self, name) and name not in self._buffers:
            raise KeyError(f"attribute '{name}' already exists")
        self._buffers[name] = tensor
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def add_module(self, name, module):
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        self._modules[name] = module

    register_module = add_module

    # The members of a module

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self):
        return (module for _, module in self.named_modules())

    def named_children(self):
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self):
        return (module for _, module in self.named_children())

    def _members(self, kind, prefix, recurse, remove_duplicate):
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, tensor in getattr(module, kind).items():
                if tensor is None or (remove_duplicate and id(tensor) in seen):
                    continue
                seen.add(id(tensor))
                yield (f"{path}.{name}" if path else name), tensor

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        return self._members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse=True):
        return (tensor for _, tensor in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        return self._members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse=True):
        return (tensor for _, tensor in self.named_buffers(recurse=recurse))

    def get_submodule(self, target):
        module = self
        for part in target.split(".") if target else ():
            module = getattr(module, part)
        return module

    def get_parameter(self, target):
        path, _, name = target.rpartition(".")
        return getattr(self.get_submodule(path), name)

    get_buffer = get_parameter

    # Changes to all of it

    def apply(self, fn):
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self, fn, recurse=True):
        for module in self.children():
            module._apply(fn)
        for parameter in self._parameters.values():
            if parameter is None:
                continue
            moved = fn(parameter.detach())
            parameter.data = moved
            if parameter.grad is not None:
                parameter.grad = fn(parameter.grad)
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self, *args, **kwargs):
        from ..._tensor import _taper

        device, dtype = kwargs.get("device"), kwargs.get("dtype")
        for arg in args:
            if isinstance(arg, Tensor):
                device, dtype = arg.device, arg.dtype
            elif isinstance(arg, _taper.dtype):
                dtype = arg
            elif arg is not None and not isinstance(arg, bool):
                device = arg
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}")
        return self._apply(lambda tensor: tensor._to(device, dtype if tensor.is_floating_point() else None))

    def cuda(self, device=None):
        return self._apply(lambda tensor: tensor.cuda(device))

    def cpu(self):
        return self._apply(lambda tensor: tensor.cpu())

    def type(self, dst_type):
        return self._apply(lambda tensor: tensor.type(dst_type))

    def float(self):
        return self._apply(lambda tensor: tensor.float() if tensor.is_floating_point() else tensor)

    def double(self):
        return self._apply(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)

    def half(self):
        return self._apply(lambda tensor: tensor.half() if tensor.is_floating_point() else tensor)

    def bfloat16(self):
        return self._apply(lambda tensor: tensor.bfloat16() if tensor.is_floating_point() else tensor)

    def train(self, mode=True):
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self):
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        for parameter in self.parameters():
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad = parameter.grad.new_zeros(parameter.grad.shape)

    def share_memory(self):
        raise NotImplementedError("Taper's tensors are not shared between processes: train in one, or with threads")

    def compile(self, *args, **kwargs):
        """Taper fuses operations by itself."""

    # State

    def get_extra_state(self):
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called.")

    def set_extra_state(self, state):
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called.")

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        for name, parameter in self._parameters.items():
            if parameter is not None:
                destination[prefix + name] = parameter if keep_vars else parameter.detach()
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = buffer if keep_vars else buffer.detach()
        if type(self).get_extra_state is not Module.get_extra_state:
            destination[prefix + _EXTRA_STATE_KEY_SUFFIX] = self.get_extra_state()

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = {"version": self._version}
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in self._state_dict_hooks.values():
            other = hook(self, destination, prefix, {})
            destination = destination if other is None else other
        return destination

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ):
        for hook in self._load_state_dict_pre_hooks.values():
            hook(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        own = dict(self._parameters)
        own.update({k: v for k, v in self._buffers.items() if k not in self._non_persistent_buffers_set})
        for name, tensor in own.items():
            if tensor is None:
                continue
            key = prefix + name
            if key not in state_dict:
                if strict:
                    missing_keys.append(key)
                continue
            value = state_dict[key]
            if value.shape != tensor.shape:
                error_msgs.append(
                    f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, the shape in "
                    f"current model is {tensor.shape}."
                )
                continue
            tensor.detach().copy_(value.detach())
        extra = prefix + _EXTRA_STATE_KEY_SUFFIX
        if type(self).set_extra_state is not Module.set_extra_state:
            if extra in state_dict:
                self.set_extra_state(state_dict[extra])
            elif strict:
                missing_keys.append(extra)
        if strict:
            for key in state_dict:
                if key.startswith(prefix) and key != extra:
                    first = key[len(prefix):].split(".", 1)
                    known = first[0] in self._modules if len(first) > 1 else first[0] in own
                    if not known:
                        unexpected_keys.append(key)

    def load_state_dict(self, state_dict, strict=True, assign=False):
        missing, unexpected, errors = [], [], []
        metadata = getattr(state_dict, "_metadata", None)
        state_dict = OrderedDict(state_dict)

        def load(module, prefix):
            local = {} if metadata is None else metadata.get(prefix[:-1], {})
            module._load_from_state_dict(state_dict, prefix, local, strict, missing, unexpected, errors)
            for name, child in module._modules.items():
                if child is not None:
                    load(child, f"{prefix}{name}.")

        load(self, "")
        found = _Incompatible(missing, unexpected)
        for hook in self._load_state_dict_post_hooks.values():
            hook(self, found)
        if strict:
            for what, names in (("Unexpected", unexpected), ("Missing", missing)):
                if names:
                    listed = ", ".join(f'"{name}"' for name in names)
                    errors.insert(0, f"{what} key(s) in state_dict: {listed}. ")
        if errors:
            listed = "\n\t".join(errors)
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t{listed}")
        return found

    # Printing

    def extra_repr(self):
        return ""

    def _get_name(self):
        return type(self).__name__

    def __repr__(self):
        extra = self.extra_repr()
        extras = extra.split("\n") if extra else []
        children = [f"({name}): {_indented(repr(module), 2)}" for name, module in self._modules.items()]
        if len(extras) == 1 and not children:
            return f"{self._get_name()}({extras[0]})"
        if not extras and not children:
            return f"{self._get_name()}()"
        return f"{self._get_name()}(\n  " + "\n  ".join(extras + children) + "\n)"

    def __deepcopy__(self, memo):
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        for name, value in self.__dict__.items():
            object.__setattr__(made, name, copy.deepcopy(value, memo))
        return made

    def __getstate__(self):
        return {name: value for name, value in self.__dict__.items() if name != "_watched"}

    def __setstate__(self, state):
        # A module that PyTorch has saved has other hooks.
        for name in _HOOKS:
            self.__dict__[name] = OrderedDict()
        self.__dict__["_non_persistent_buffers_set"] = set()
        self.__dict__.update(state)


_HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_kwargs_hooks",
    "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)


def _registers(name, kind):
    def register(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        hooks = getattr(self, kind)
        handle = _Handle(hooks)
        hooks[handle.id] = hook
        if with_kwargs:
            self._kwargs_hooks[handle.id] = True
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        return handle

    register.__name__ = name
    setattr(Module, name, register)


for _name, _kind in (
    ("register_forward_hook", "_forward_hooks"),
    ("register_forward_pre_hook", "_forward_pre_hooks"),
    ("register_full_backward_hook", "_backward_hooks"),
    ("register_full_backward_pre_hook", "_backward_pre_hooks"),
    ("register_state_dict_pre_hook", "_state_dict_pre_hooks"),
    ("_register_state_dict_hook", "_state_dict_hooks"),
    ("register_load_state_dict_pre_hook", "_load_state_dict_pre_hooks"),
    ("register_load_state_dict_post_hook", "_load_state_dict_post_hooks"),
):
    _registers(_name, _kind)
Module.register_backward_hook = Module.register_full_backward_hook
