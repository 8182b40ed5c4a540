"""Profiles, explanations, graphs and errors name the lines of the program."""

import inspect
import json
import re

import pytest

import taper
from conftest import needs_gpu
from taper import nn
from taper.profiler import ProfilerActivity, profile, record_function


def line():
    """The number of the line that calls."""
    return inspect.currentframe().f_back.f_lineno


def test_a_profile_has_rows_for_lines_of_the_program(tmp_path):
    x = taper.rand(200, 200)
    x.sum().item()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof:
        with record_function("work"):
            product, at = x @ x, line()
            total, summed_at = product.exp().sum(), line()
            total.item()
    rows = prof.key_averages()
    assert {row.lineno for row in rows if row.filename == __file__} >= {at}
    assert {row.lineno for row in rows} <= {at, summed_at} and all(row.filename == __file__ for row in rows)
    matmul = next(row for row in rows if row.kernel == "matmul")
    assert matmul.lineno == at and matmul.count == 1 and matmul.flops == 2 * 200**3
    assert f"{__file__}:{at}" in rows.table(row_limit=10) and f"{__file__}:{at}" in str(prof)
    prof.export_chrome_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any(event["name"].startswith("matmul") for event in events)


def test_lines_inside_of_the_package_are_those_that_called_it():
    layer = nn.Linear(30, 20)
    x = taper.rand(10, 30)
    layer(x).sum().item()
    with profile() as prof:
        y, at = nn.functional.relu(layer(x)), line()
        y.tolist()
    rows = prof.key_averages()
    assert rows and {(row.filename, row.lineno) for row in rows} == {(__file__, at)}


def test_a_profile_ends_once_and_two_do_not_run_together():
    with profile() as prof:
        with pytest.raises(RuntimeError, match="another profile"):
            profile().start()
        with pytest.raises(RuntimeError, match="has not ended"):
            prof.key_averages()
    with pytest.raises(RuntimeError, match="has not begun"):
        str(profile())
    with pytest.raises(ZeroDivisionError):
        with profile():
            1 / 0
    with profile() as prof:
        taper.ones(3).exp().sum().item()
    assert prof.key_averages()


def test_an_explanation_and_a_graph_name_lines():
    x = taper.rand(100, 100)
    y, at = ((x + 2) ** 2).mean(), line()
    text = taper.explain(y)
    assert f"{__file__}:{at}" in text and "kernel" in text
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    out = model(taper.rand(2, 3))
    params = dict(model.named_parameters())
    assert taper.studio.graph(out, params).startswith("<svg")
    drawn = json.loads(taper.studio.graph(out, params, kind="json", folded=False))
    assert "0.weight" in json.dumps(drawn)
    assert taper.studio.graph([out], kind="dot").startswith("digraph")
    with pytest.raises(RuntimeError, match="svg, dot and json"):
        taper.studio.graph(out, kind="png")


def test_memory_by_line():
    taper.profiler.record_memory()
    try:
        x, at = taper.rand(300, 300).exp(), line()
        x.sum().item()
        (kept, at) = (x * 2, line())
        kept.tolist()
        assert re.search(rf"{re.escape(__file__)}:{at}\b", taper.profiler.memory_snapshot())
    finally:
        taper.profiler.record_memory(False)
    with pytest.raises(RuntimeError):
        taper.profiler.memory_snapshot()


@needs_gpu
def test_an_error_that_is_met_when_a_value_is_read_names_the_line_that_built_it():
    table = taper.rand(10, 4, device="cuda")
    bad = taper.tensor([1, 20], device="cuda")
    picked, at = table.index_select(0, bad), line()
    with pytest.raises((IndexError, RuntimeError), match=rf"{re.escape(__file__)}:{at}\b"):
        picked.tolist()


def test_the_number_of_threads_is_set():
    before = taper.get_num_threads()
    taper.set_num_threads(1)
    assert taper.get_num_threads() == 1
    taper.set_num_threads(before)
    with pytest.raises(RuntimeError, match="at least 1"):
        taper.set_num_threads(0)


def test_code_that_is_made_at_run_time_has_its_own_name():
    names = {}
    exec(compile("x = taper.ones(50, 50)\ny = (x @ x).exp()", "a_program.py", "exec"), {"taper": taper}, names)
    assert "a_program.py:2" in taper.explain(names["y"])
