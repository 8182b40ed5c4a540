"""Times of small operations from Python: ``python bench.py taper`` or ``python bench.py torch``.

Each line is the median of several rounds, in microseconds a call, on one thread.
"""

import importlib
import statistics
import sys
import time

torch = importlib.import_module(sys.argv[1] if len(sys.argv) > 1 else "taper")
if hasattr(torch, "set_num_threads"):
    torch.set_num_threads(1)
torch.manual_seed(0)

x, y = torch.randn(16), torch.randn(16)
wide = torch.randn(64, 256)
layer = torch.nn.Linear(256, 256)
net = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
labels = torch.randint(0, 10, (64,))


def add_and_read():
    (x + y).tolist()


def chain():
    z = x
    for _ in range(1000):
        z = z + y
    z.tolist()


def linear():
    layer.zero_grad()
    layer(wide).sum().backward()
    layer.weight.grad.sum().item()


def training_step():
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(net(wide), labels)
    loss.backward()
    optimizer.step()
    loss.item()


CASES = [
    ("x + y of 16 numbers, read", add_and_read, 2000),
    ("a chain of 1,000 sums of 16 numbers, read", chain, 10),
    ("nn.Linear(256, 256) of 64 rows, forward and backward", linear, 100),
    ("a training step of two layers with SGD", training_step, 100),
]

for name, call, count in CASES:
    times = []
    for _ in range(9):
        start = time.perf_counter()
        for _ in range(count):
            call()
        times.append((time.perf_counter() - start) / count * 1e6)
    # The first round has the plans and caches made.
    print(f"{sys.argv[1]:6} {statistics.median(times[1:]):10.1f} us  {name}", flush=True)
