"""The tests run on the processor; those of GPUs are skipped where there is none."""

import pytest
import taper


@pytest.fixture(autouse=True)
def seeded():
    taper.manual_seed(0)


needs_gpu = pytest.mark.skipif(not taper.cuda.is_available(), reason="Taper finds no GPU")
