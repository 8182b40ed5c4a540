"""Writes what PyTorch prints for each expression of ``expressions.txt`` to ``printed.json``.

Run it with an installed PyTorch: ``python record.py``. The test of the same expressions compares Taper with it.
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent


def expressions():
    """The lines of the file that are no comments."""
    lines = (HERE / "expressions.txt").read_text().splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def printed(expression, torch):
    """The text that a program prints for an expression; statements before it end with semicolons."""
    *statements, last = expression.split("; ")
    names = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional}
    names["x"] = torch.arange(12, dtype=torch.float32).reshape(3, 4) / 4 - 1
    names["i"] = torch.tensor([[3, 1, 2], [0, 5, 4]])
    names["b"] = torch.tensor([True, False, True])
    try:
        for statement in statements:
            exec(statement, names)
        return repr(eval(last, names))
    except Exception as error:
        return type(error).__name__


if __name__ == "__main__":
    import torch

    found = {expression: printed(expression, torch) for expression in expressions()}
    (HERE / "printed.json").write_text(json.dumps(found, indent=0, ensure_ascii=False) + "\n")
    print(f"{len(found)} expressions, PyTorch {torch.__version__}", file=sys.stderr)
