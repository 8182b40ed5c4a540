"""Records what PyTorch saves, for ``test_serialization.py``: run it with a Python that has PyTorch."""

from collections import OrderedDict
from pathlib import Path

import torch

HERE = Path(__file__).parent / "data"


def main():
    torch.manual_seed(0)
    whole = torch.arange(12.0).reshape(3, 4)
    torch.save({
        "whole": whole, "column": whole[:, 1], "turned": whole.t(), "half": torch.tensor([1.5, -2.0]).half(),
        "bfloat": torch.tensor([0.5]).bfloat16(), "long": torch.tensor([1, -(2**40)]), "truth": torch.tensor([True]),
        "parameter": torch.nn.Parameter(torch.ones(2)), "size": whole.shape, "dtype": torch.float16,
        "device": torch.device("cpu"), "named": OrderedDict(a=1),
    }, HERE / "tensors.pt")
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
        model[0].bias.copy_(torch.tensor([0.5, -100.0]))
    torch.save(model, HERE / "module.pt")
    old = {"whole": whole, "column": whole[:, 1], "half": torch.tensor([1.5, -2.0]).half(), "named": OrderedDict(a=1)}
    torch.save(old, HERE / "old.pt", _use_new_zipfile_serialization=False)
    for name in ("tensors.pt", "module.pt", "old.pt"):
        assert (HERE / name).stat().st_size < 4096, name


if __name__ == "__main__":
    main()
