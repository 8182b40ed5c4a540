"""The studio: a page that shows a training while it runs, and the graph by which tensors were made."""

from . import _taper


class Picture(str):
    """The text of a picture, which a notebook shows as one."""

    def _repr_svg_(self):
        return str(self)


class Page:
    """A page of this machine, which a notebook shows in its cell."""

    def __init__(self, address, height):
        self.address, self.height = address, height

    def __repr__(self):
        return self.address

    def _repr_html_(self):
        from html import escape

        return f'<iframe src="{escape(self.address)}" width="100%" height="{self.height}" style="border:0"></iframe>'


def show(height=600):
    """The studio in the cell of a notebook, ``height`` pixels high."""
    return Page(serve(), int(height))


def serve():
    """Serves the page to this machine alone, and gives its address. Scalars that a ``SummaryWriter`` writes appear
    there as curves."""
    return _taper._serve_studio()


def graph(outputs, params=None, kind="svg", folded=True):
    """The graph by which tensors were made, as ``svg``, ``dot`` for Graphviz, or ``json``. ``params`` has names of
    tensors, as ``dict(model.named_parameters())``; ``folded`` draws a layer as one box."""
    outputs = [outputs] if isinstance(outputs, _taper.Tensor) else list(outputs)
    text = _taper._graph(outputs, list((params or {}).items()), kind, folded)
    return Picture(text) if kind == "svg" else text
