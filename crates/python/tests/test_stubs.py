"""The type stubs are those of the module, and mypy accepts them and a program of the usual kind."""

import subprocess
import sys
from pathlib import Path

import pytest
import taper

HERE = Path(__file__).parent
PACKAGE = Path(taper.__file__).parent
INSTALLED = PACKAGE.parent.name == "site-packages"


def test_stubs_are_current():
    script = HERE.parent / "stubs.py"
    if not (PACKAGE / "__init__.pyi").exists():
        pytest.skip("the package is installed without its stubs")
    ran = subprocess.run([sys.executable, str(script), "--check"], capture_output=True, text=True)
    assert ran.returncode == 0, f"{ran.stdout}{ran.stderr}: run stubs.py"


def checked(*files):
    cache = HERE.parent / ".pytest_cache" / "mypy"
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--follow-imports=silent", "--cache-dir", str(cache), *map(str, files)],
        capture_output=True, text=True, cwd=HERE if INSTALLED else PACKAGE.parent,
    )


def test_mypy_accepts_the_stubs_and_a_program():
    pytest.importorskip("mypy")
    assert (PACKAGE / "py.typed").exists() and (PACKAGE / "__init__.pyi").exists()
    # mypy takes no files of installed packages, so the stubs themselves are checked where the sources are.
    stubs = [] if INSTALLED else sorted(path.relative_to(PACKAGE.parent) for path in PACKAGE.rglob("*.pyi"))
    ran = checked(*stubs, HERE / "typed_program.py")
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_mypy_finds_mistakes(tmp_path):
    pytest.importorskip("mypy")
    program = tmp_path / "wrong.py"
    program.write_text(
        "import taper\n"
        "number: int = taper.ones(2)\n"
        "taper.no_such_function()\n"
        "taper.ones(2).no_such_method()\n"
        "taper.zeros(2, dtype=3)\n"
        "taper.nn.NoSuchLayer()\n"
    )
    found = checked(program).stdout
    for line in (2, 3, 4, 5, 6):
        assert f"wrong.py:{line}: error" in found, found


def test_the_typed_program_runs():
    import typed_program

    assert typed_program.train(2) > 0
