"""``torch.onnx``: networks as files, and files as networks."""

import contextlib
import os

from . import _taper
from ._tree import flatten

_exporting = False


def is_in_onnx_export():
    return _exporting


@contextlib.contextmanager
def _export_mode(model):
    """The modes of an export: layers as in use, and ``is_in_onnx_export()`` true."""
    global _exporting
    modes = [(module, module.training) for module in model.modules()] if hasattr(model, "modules") else []
    _exporting = True
    try:
        for module, _ in modes:
            module.training = False
        yield
    finally:
        _exporting = False
        for module, training in modes:
            module.training = training


def _input_names(model, count, given):
    """The names of the inputs: those given, those of the arguments of ``forward``, or numbers."""
    import inspect

    names = list(given or [])
    if not names:
        try:
            names = list(inspect.signature(getattr(model, "forward", model)).parameters)
        except (TypeError, ValueError):
            names = []
    return names[:count] + [f"input_{at}" for at in range(len(names), count)]


def _axes(dynamic_axes, inputs):
    """The dynamic axes of inputs: input, axis and the name of the size. Those of outputs follow from them."""
    found = []
    for name, axes in (dynamic_axes or {}).items():
        if name not in inputs:
            continue
        if not isinstance(axes, dict):
            axes = {axis: f"{name}_axis_{axis}" for axis in axes}
        found += [(name, axis % inputs[name].dim(), str(size)) for axis, size in axes.items()]
    return found


def export(
    model,
    args=(),
    f=None,
    *,
    input_names=None,
    output_names=None,
    opset_version=None,
    dynamic_axes=None,
    **ignored,
):
    """Writes a network as an ONNX file: a path, or a file object.

    ``args`` are the inputs. The model is called with them, several times if ``dynamic_axes`` has axes whose sizes
    may change, and its operations are translated; nothing is computed. ``opset_version`` is 18 to 24, and 20 by
    default. Options of PyTorch's exporters that have no meaning here, such as ``do_constant_folding``, are
    ignored. Gives the number of nodes of each operator.
    """
    if f is None:
        raise TypeError("export: give a file, as export(model, args, 'network.onnx')")
    args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    names = _input_names(model, len(args), input_names)
    inputs = dict(zip(names, args))
    stateful = hasattr(model, "named_parameters")
    parameters = list(model.named_parameters()) if stateful else []
    buffers = list(model.named_buffers()) if stateful else []

    def call(given):
        return [output for output in flatten(model(*given))[0] if isinstance(output, _taper.Tensor)]

    with contextlib.ExitStack() as stack:
        path = f
        if not isinstance(f, (str, os.PathLike)):
            import tempfile

            path = os.path.join(stack.enter_context(tempfile.TemporaryDirectory()), "model.onnx")
        stack.enter_context(_export_mode(model))
        operators = _taper._export_onnx(
            call,
            parameters,
            buffers,
            list(inputs.items()),
            path,
            list(output_names or []),
            _axes(dynamic_axes, inputs),
            20 if opset_version is None else opset_version,
        )
        if path is not f:
            with open(path, "rb") as written:
                f.write(written.read())
    return dict(operators)


class Model:
    """A network from an ONNX file: ``taper.onnx.load(path)``. Call it with its inputs, in order or by name; it
    gives its output, or a dictionary if there are several."""

    def __init__(self, path, device=None):
        self._model = _taper._OnnxModel(path, device)
        self.input_names, self.output_names = self._model.input_names(), self._model.output_names()

    def __call__(self, *inputs, **named):
        if len(inputs) > len(self.input_names):
            raise TypeError(f"{len(inputs)} inputs for a model that has {self.input_names}")
        named = dict(zip(self.input_names, inputs)) | named
        outputs = dict(self._model.run(list(named.items())))
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs

    def __repr__(self):
        return repr(self._model)


def load(path, device=None):
    """A network from an ONNX file, by its path."""
    return Model(path, device)
