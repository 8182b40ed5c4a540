"""``torch.version``: Taper is built for no maker's toolkit."""

from ._taper import __version__  # noqa: F401

cuda = hip = rocm = xpu = debug = git_version = None
