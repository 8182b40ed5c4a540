"""Modules that hold other modules and parameters."""

import operator
from collections import OrderedDict

from ..parameter import Parameter
from .module import Module

__all__ = ["Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"]


class Sequential(Module):
    def __init__(self, *args):
        super().__init__()
        single = len(args) == 1 and isinstance(args[0], OrderedDict)
        for name, module in args[0].items() if single else enumerate(args):
            self.add_module(str(name), module)

    def _name_at(self, index):
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is out of range")
        return list(self._modules)[index]

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(OrderedDict(list(self._modules.items())[index]))
        return self._modules[self._name_at(index)]

    def __setitem__(self, index, module):
        setattr(self, self._name_at(index), module)

    def __delitem__(self, index):
        names = list(self._modules)[index] if isinstance(index, slice) else [self._name_at(index)]
        for name in names:
            del self._modules[name]
        self._modules = OrderedDict((str(at), module) for at, module in enumerate(self._modules.values()))

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def append(self, module):
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules):
        for module in modules:
            self.append(module)
        return self

    def forward(self, input):
        for module in self._modules.values():
            input = module(input)
        return input


class ModuleList(Module):
    def __init__(self, modules=None):
        super().__init__()
        self.extend(modules or ())

    def __getitem__(self, index):
        if isinstance(index, slice):
            return type(self)(list(self._modules.values())[index])
        return list(self._modules.values())[index]

    def __setitem__(self, index, module):
        setattr(self, list(self._modules)[index], module)

    def __delitem__(self, index):
        kept = list(self._modules.values())
        del kept[index]
        self._modules = OrderedDict((str(at), module) for at, module in enumerate(kept))

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def __add__(self, other):
        return ModuleList([*self, *other])

    def __iadd__(self, other):
        return self.extend(other)

    def append(self, module):
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules):
        for module in modules:
            self.append(module)
        return self

    def insert(self, index, module):
        kept = list(self._modules.values())
        kept.insert(index, module)
        self._modules = OrderedDict((str(at), module) for at, module in enumerate(kept))


class _Keyed(Module):
    """Members of one kind by their names."""

    _kind = None

    def __getitem__(self, key):
        return self.__dict__[self._kind][key]

    def __delitem__(self, key):
        del self.__dict__[self._kind][key]

    def __len__(self):
        return len(self.__dict__[self._kind])

    def __iter__(self):
        return iter(self.__dict__[self._kind])

    def __contains__(self, key):
        return key in self.__dict__[self._kind]

    def keys(self):
        return self.__dict__[self._kind].keys()

    def items(self):
        return self.__dict__[self._kind].items()

    def values(self):
        return self.__dict__[self._kind].values()

    def update(self, members):
        for key, member in members.items() if hasattr(members, "items") else members:
            self[key] = member

    def pop(self, key):
        return self.__dict__[self._kind].pop(key)


class ModuleDict(_Keyed):
    _kind = "_modules"

    def __init__(self, modules=None):
        super().__init__()
        self.update(modules or {})

    def __setitem__(self, key, module):
        self.add_module(key, module)


class ParameterList(Module):
    def __init__(self, values=None):
        super().__init__()
        self.extend(values or ())

    def __getitem__(self, index):
        return list(self._parameters.values())[index]

    def __setitem__(self, index, value):
        setattr(self, list(self._parameters)[index], value)

    def __len__(self):
        return len(self._parameters)

    def __iter__(self):
        return iter(self._parameters.values())

    def append(self, value):
        value = value if isinstance(value, Parameter) else Parameter(value)
        self.register_parameter(str(len(self)), value)
        return self

    def extend(self, values):
        for value in values:
            self.append(value)
        return self


class ParameterDict(_Keyed):
    _kind = "_parameters"

    def __init__(self, parameters=None):
        super().__init__()
        self.update(parameters or {})

    def __setitem__(self, key, value):
        self.register_parameter(key, value if isinstance(value, Parameter) else Parameter(value))
