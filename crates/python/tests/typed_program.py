"""A short program of the usual kind, which ``test_stubs.py`` gives to mypy."""

from typing import Any

import taper
import taper.nn.functional as F
from taper import Tensor, nn, optim
from taper.utils.data import DataLoader, TensorDataset


class Model(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(4, width)
        self.norm = nn.LayerNorm(width)
        self.last = nn.Sequential(nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 2))

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = F.gelu(self.norm(self.first(x)))
        result: Tensor = self.last(hidden)
        return result


def train(steps: int, device: str | taper.device = "cpu") -> float:
    taper.manual_seed(0)
    model = Model(8).to(device)
    x, y = taper.randn(16, 4, device=device), taper.randint(0, 2, (16,))
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = optim.lr_scheduler.StepLR(optimizer, 5)
    total = 0.0
    for _ in range(steps):
        for inputs, labels in DataLoader(TensorDataset(x, y), batch_size=8, shuffle=True):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            total += float(loss.item())
        scheduler.step()
    with taper.no_grad():
        share: Tensor = (model(x).argmax(1) == y).float().mean()
    sizes: tuple[int, ...] = x.shape
    values, indices = x.max(1)
    dtype: taper.dtype = x.dtype
    grad: Tensor | None = model.first.weight.grad
    state: dict[str, Any] = model.state_dict()
    taper.save(state, "/dev/null")
    assert len(sizes) == 2 and values.shape == indices.shape and dtype == taper.float32 and grad is not None
    return total + share.item()


if __name__ == "__main__":
    print(train(3))
