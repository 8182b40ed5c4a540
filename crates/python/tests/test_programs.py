"""Programs that others wrote, from the folder that ``TAPER_PROGRAMS`` names, run unchanged to their end."""

import os
import pathlib

import pytest

from test_run import ran

FOLDER = os.environ.get("TAPER_PROGRAMS")
PROGRAMS = sorted(pathlib.Path(FOLDER).glob("*.py")) if FOLDER else []


@pytest.mark.skipif(not FOLDER, reason="TAPER_PROGRAMS names no folder")
@pytest.mark.parametrize("program", PROGRAMS or [None], ids=lambda program: program and program.name)
def test_a_program_ends_well(program, tmp_path):
    # A program for several GPUs finds as many on one.
    code, out, errors = ran(tmp_path, str(program.resolve()), timeout=600, TORCH_CUDA_DEVICES="4")
    assert code == 0 and "Traceback" not in errors, errors
    # The last line of some says whether a result was near to the expected one.
    assert not out.rstrip().endswith("False"), out
