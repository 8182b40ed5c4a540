"""``torch.utils.benchmark``: times of statements. Every run ends when what it left to compute is computed."""

import time

from .. import _taper, cuda


class Measurement:
    """Times of a statement in seconds, each of ``number_per_run`` runs."""

    def __init__(self, number_per_run, raw_times, description):
        self.number_per_run, self.raw_times, self._description = number_per_run, raw_times, description

    @property
    def times(self):
        return [seconds / self.number_per_run for seconds in self.raw_times]

    @property
    def mean(self):
        return sum(self.times) / len(self.times)

    @property
    def median(self):
        import statistics

        return statistics.median(self.times)

    @property
    def iqr(self):
        import statistics

        if len(self.times) < 2:
            return 0.0
        first, _, third = statistics.quantiles(self.times, n=4, method="inclusive")
        return third - first

    def __repr__(self):
        title = next((f"{scale * self.median:.2f} {unit}" for scale, unit in ((1, "s"), (1e3, "ms"), (1e6, "us"))
                      if scale * self.median >= 1), f"{1e9 * self.median:.2f} ns")
        runs = f"{len(self.times)} measurement{'s' * (len(self.times) > 1)}, {self.number_per_run} runs per measurement"
        return f"<{__name__}.Measurement object>\n{self._description}\n  Median: {title}\n  {runs}"


class Timer:
    def __init__(self, stmt="pass", setup="pass", global_setup="", timer=None, globals=None, label=None,
                 sub_label=None, description=None, env=None, num_threads=1, language="python"):
        self._names = dict(globals or {})
        self._threads, self._title = num_threads, " ".join(filter(None, (label or stmt.strip(), sub_label, description)))
        import ast

        exec(setup, self._names)
        # The value of an expression is kept until it is computed: what is dropped, Taper does not compute.
        tree = ast.parse(stmt.strip())
        if isinstance(tree.body[-1], ast.Expr):
            last = tree.body[-1]
            tree.body[-1] = ast.copy_location(ast.Assign([ast.Name("_result", ast.Store())], last.value), last)
            ast.fix_missing_locations(tree)
        self._code = compile(tree, "<timeit>", "exec")

    @staticmethod
    def _settle():
        _taper.synchronize("cpu")
        cuda.synchronize()

    def _time(self, number):
        before = _taper._num_threads()
        _taper._set_num_threads(self._threads)
        try:
            self._settle()
            begin = time.perf_counter()
            for _ in range(number):
                exec(self._code, self._names)
                self._settle()
            return time.perf_counter() - begin
        finally:
            _taper._set_num_threads(before)

    def timeit(self, number=1_000_000):
        self._time(max(number // 100, 2))
        return Measurement(number, [self._time(number)], self._title)

    def blocked_autorange(self, callback=None, min_run_time=0.2):
        number = 1
        while (seconds := self._time(number)) < min_run_time / 100:
            number *= 10
        raw = [seconds]
        while sum(raw) < min_run_time:
            raw.append(self._time(number))
        return Measurement(number, raw, self._title)

    adaptive_autorange = blocked_autorange
