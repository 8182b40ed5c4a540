"""``python -m taper`` runs programs whose ``import torch`` means Taper."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import taper

PROGRAM = """
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor, optim
from torch.utils.data import DataLoader, TensorDataset
from torch.optim.lr_scheduler import StepLR
import torch.utils.data.dataloader
import torch._C

assert torch.nn.functional is F and isinstance(torch.ones(1), Tensor)


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.fc1, self.fc2 = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


torch.manual_seed(0)
net = Net()
optimizer = optim.SGD(net.parameters(), lr=0.1)
data = TensorDataset(torch.randn(32, 4), torch.randint(0, 2, (32,)))
first = last = None
for epoch in range(20):
    for inputs, labels in DataLoader(data, batch_size=8, shuffle=True):
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss()(net(inputs), labels)
        loss.backward()
        optimizer.step()
    first = loss.item() if first is None else first
print(sys.argv[1:], loss.item() < first, __name__)
"""


def ran(folder, *args, timeout=120, **variables):
    environment = {**os.environ, "PYTHONPATH": str(pathlib.Path(taper.__file__).parent.parent), **variables}
    found = subprocess.run(
        [sys.executable, "-m", "taper", *args], cwd=folder, env=environment, capture_output=True, text=True,
        timeout=timeout,
    )
    return found.returncode, found.stdout, found.stderr


def test_a_program_trains_and_gets_its_arguments(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    code, out, errors = ran(tmp_path, "program.py", "--epochs", "3")
    assert (code, out) == (0, "['--epochs', '3'] True __main__\n"), errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["program.py"]


def test_an_error_of_a_program_is_its_own(tmp_path):
    (tmp_path / "program.py").write_text("import torch\ntorch.ones(2) + torch.ones(3)\n")
    code, _, errors = ran(tmp_path, "program.py")
    assert code == 1 and "program.py\", line 2" in errors and "RuntimeError" in errors


def test_more_gpus_can_be_named_than_there_are(tmp_path):
    (tmp_path / "program.py").write_text(
        "import torch\nn = torch.cuda.device_count()\n"
        "print(n, [str(torch.ones(1).cuda(k).device) for k in range(n)])\n"
    )
    _, out, _ = ran(tmp_path, "program.py", TORCH_CUDA_DEVICES="3")
    there = taper.cuda.is_available()
    assert out == ("3 ['cuda:0', 'cuda:1', 'cuda:2']\n" if there else "0 []\n")




def long_evaluation():
    """The seconds of a chain of products, or until an exception ends it."""
    x = y = taper.rand(300, 300) / 150
    taper.synchronize()
    start = time.perf_counter()
    try:
        for _ in range(400):
            y = y @ x
        y.sum().item()
    except KeyboardInterrupt:
        return time.perf_counter() - start, y
    return time.perf_counter() - start, None


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers that send signals")
def test_ctrl_c_ends_a_long_evaluation_whose_value_can_be_read_later():
    long_evaluation()
    whole, _ = long_evaluation()

    def interrupted(*args):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupted)
    try:
        signal.setitimer(signal.ITIMER_REAL, whole / 8)
        part, value = long_evaluation()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert value is not None and part < whole / 2 + 0.1
    assert value.isfinite().all()
