"""Taper prints the same text as PyTorch 2.15 for the expressions that ``record.py`` has recorded."""

import json
import pathlib

import pytest
import taper
from record import expressions, printed

RECORDED = json.loads((pathlib.Path(__file__).parent / "printed.json").read_text())


@pytest.mark.parametrize("expression", expressions())
def test_prints_as_recorded(expression):
    assert printed(expression, taper) == RECORDED[expression]
