"""Runs the cells of a page of a book, as a notebook does: markdown with ``{.python .input}`` blocks, some of which are
for one library (``%%tab pytorch``). A cell's last expression is printed, and the points of the book's plots are."""

import ast
import re

CELL = re.compile(r"^```\{\.python \.input[^}]*\}\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Tab:
    """The object by which a cell asks for which library it runs."""

    def interact_select(self, *names):
        pass

    def selected(self, *names):
        return "pytorch" in names


def cells(page):
    """The cells for PyTorch, without their first line and without the commands of notebooks."""
    for found in CELL.finditer(page):
        lines = found[1].strip("\n").split("\n")
        if lines[0].startswith("%%tab"):
            names = [name.strip() for name in lines[0][len("%%tab"):].split(",")]
            if not {"pytorch", "all"} & set(names):
                continue
        yield "\n".join("" if line.startswith(("%", "!")) else line for line in lines)


def show_points(board):
    """Prints a board's points, at which the book draws pictures."""

    def draw(self, x, y, label, every_n=1):
        print(f"{label} {float(x):.4f} {float(y):.6g}")

    board.draw = draw


def run(path):
    names = {"__name__": "__main__", "tab": Tab()}
    with open(path) as file:
        page = file.read()
    for number, cell in enumerate(cells(page), 1):
        tree = ast.parse(cell, f"{path}, cell {number}")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"{path}, cell {number}", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"{path}, cell {number}", "eval"), names)
            if value is not None:
                print(value)
