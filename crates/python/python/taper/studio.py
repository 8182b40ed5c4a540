"""The studio: a page that shows a training while it runs, and the graph by which tensors were made."""

from . import _taper


def serve():
    """Serves the page to this machine alone, and gives its address. Scalars that a ``SummaryWriter`` writes appear
    there as curves."""
    return _taper._serve_studio()


def graph(outputs, params=None, kind="svg", folded=True):
    """The graph by which tensors were made, as ``svg``, ``dot`` for Graphviz, or ``json``. ``params`` has names of
    tensors, as ``dict(model.named_parameters())``; ``folded`` draws a layer as one box."""
    outputs = [outputs] if isinstance(outputs, _taper.Tensor) else list(outputs)
    return _taper._graph(outputs, list((params or {}).items()), kind, folded)
