"""``torch.profiler``: the kernels that a block of a program runs, with the lines that asked for them.

Devices are idle before and after each kernel, so that times do not overlap; the whole takes longer than usual.
"""

import collections
import contextlib
import enum

from . import _taper

Row = collections.namedtuple("Row", "device kernel key filename lineno count time_us bytes flops")


class ProfilerActivity(enum.Enum):
    CPU = 0
    CUDA = 2


class _Averages(list):
    """The rows of a profile, the longest first."""

    def __init__(self, rows, table):
        super().__init__(rows)
        self._table = table

    def table(self, sort_by=None, row_limit=-1, **ignored):
        """The rows as a text, in the order of their times."""
        head, *rows, total = self._table.split("\n")
        return "\n".join([head, *(rows if row_limit < 0 else rows[:row_limit]), total])


class profile:
    """Records the kernels that run in a ``with`` block. Activities and the options for shapes and stacks are
    taken and not needed: every device is recorded, with the lines of the program."""

    def __init__(self, *, activities=None, on_trace_ready=None, **ignored):
        self._on_trace_ready, self._profile = on_trace_ready, None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.stop()

    def start(self):
        self._profile = _taper._Profile()

    def stop(self):
        self._recorded().end()
        if self._on_trace_ready is not None:
            self._on_trace_ready(self)

    def step(self):
        """The end of a step of a training; every step is recorded."""

    def key_averages(self, *args, **kwargs):
        return _Averages(map(Row._make, self._recorded().rows()), self._recorded().table())

    def export_chrome_trace(self, path):
        """Writes a file that https://ui.perfetto.dev shows."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._recorded().trace())

    def _recorded(self):
        if self._profile is None:
            raise RuntimeError("the profile has not begun")
        return self._profile

    def __str__(self):
        return self._recorded().table()


@contextlib.contextmanager
def record_function(name, args=None):
    """A name for a part of a program. Rows have lines of the program, so the name is not recorded."""
    yield


def record_memory(on=True):
    """Begins, or ends, the record of the lines that hold memory; ``memory_snapshot`` reads it."""
    _taper._record_memory(on)


def memory_snapshot():
    """The lines of the program that hold memory now, as a table: the number of buffers, their bytes, dtypes and
    sizes, the largest first."""
    return _taper._memory_snapshot()
