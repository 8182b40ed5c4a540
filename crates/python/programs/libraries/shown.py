"""Prints results, which have to be tensors."""

import torch


def show(name, *results):
    for result in results:
        if not isinstance(result, torch.Tensor):
            raise TypeError(f"{name} gave a {type(result)}")
        print(f"{name}: {result.double().reshape(-1)[:6].tolist()}, sum {result.double().sum().item():.8f}")
