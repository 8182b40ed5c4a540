"""Trains a small network to tell how far a digit is turned, and exports it with PyTorch: the file that the example
fine_tune begins with. Its labels cost nothing, and the features that it learns also help to read digits.

    python scripts/rotations_onnx.py examples/basics/assets/rotations.onnx
"""

import pathlib
import sys

import numpy as np
import torch
from torch import nn

DIGITS = pathlib.Path(__file__).parent.parent / "crates/data/assets/digits.bin"


def digits():
    """The images [1797, 1, 8, 8] from 0 to 1: five bits for each pixel, the first on top of a row."""
    records = np.frombuffer(DIGITS.read_bytes(), np.uint8).reshape(-1, 41)
    bits = np.unpackbits(records[:, :40], axis=1).reshape(-1, 8, 8, 5)
    pixels = (bits * np.array([16, 8, 4, 2, 1])).sum(-1)
    return torch.tensor(pixels / 16, dtype=torch.float32).unsqueeze(1)


class Rotations(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Linear(256, 4)

    def forward(self, image):
        features = self.body(image)
        return features, self.head(features)


def main(path):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    images = digits()
    model = Rotations()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(12):
        right = 0
        for batch in torch.randperm(len(images)).split(64):
            turns = torch.randint(0, 4, (len(batch),))
            turned = torch.stack([torch.rot90(images[i], int(k), (1, 2)) for i, k in zip(batch, turns)])
            loss = nn.functional.cross_entropy(logits := model(turned)[1], turns)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right += (logits.argmax(1) == turns).sum().item()
        print(f"epoch {epoch + 1}: accuracy {right / len(images):.4f}")
    torch.onnx.export(
        model.eval(), (images[:2],), path, dynamo=False, opset_version=20, do_constant_folding=False,
        training=torch.onnx.TrainingMode.PRESERVE,
        input_names=["image"], output_names=["features", "rotation"],
        dynamic_axes={"image": {0: "batch"}, "features": {0: "batch"}, "rotation": {0: "batch"}},
    )


if __name__ == "__main__":
    main(sys.argv[1])
