#!/usr/bin/env python3
"""Numbers from torchmetrics for the tests of train::metrics: crates/train/tests/fixtures/metrics.json.

    python3 -m venv .venv && .venv/bin/pip install torch torchvision torchmetrics pycocotools
    .venv/bin/python scripts/metric_fixtures.py

The file is checked in, so the tests need no Python. Random inputs are multiples of 1/64, so that scores have ties and are exact.
"""
import json
from pathlib import Path

import numpy as np
import torch
import torchmetrics
import torchmetrics.functional as F
from torchmetrics.detection import MeanAveragePrecision
from torchmetrics.functional.image import peak_signal_noise_ratio, structural_similarity_index_measure
from torchmetrics.functional.text import bleu_score, char_error_rate, perplexity, rouge, rouge_score, word_error_rate

# Sentences end with lines, as in Google's rouge_score. torchmetrics takes NLTK's model of English sentences,
# which it downloads.
rouge._split_sentence = str.splitlines

OUT = Path(__file__).resolve().parent.parent / "crates/train/tests/fixtures/metrics.json"
rng = np.random.default_rng(7)


def grid(*shape, low=0.0, high=1.0):
    return torch.from_numpy(np.round((rng.random(shape) * (high - low) + low) * 64) / 64).float()


def data(x):
    return {"shape": list(x.shape), "data": [float(v) for v in x.flatten().tolist()]}


def ranking():
    scores, targets = grid(40), torch.from_numpy(rng.integers(0, 2, 40))
    yield {"name": "binary", "scores": data(scores), "targets": targets.tolist(),
           "auroc": {"value": float(F.auroc(scores.double(), targets, task="binary"))},
           "average_precision": {"value": float(F.average_precision(scores.double(), targets, task="binary"))}}
    logits, targets = grid(50, 4, low=-2, high=2).double().softmax(1), torch.from_numpy(rng.integers(0, 4, 50))
    row = {"name": "multiclass", "scores": data(logits.float()), "targets": targets.tolist(), "auroc": {}, "average_precision": {}}
    logits = logits.float().double()
    for average in ["macro", "weighted"]:
        row["auroc"][average] = float(F.auroc(logits, targets, task="multiclass", num_classes=4, average=average))
        row["average_precision"][average] = float(F.average_precision(logits, targets, task="multiclass", num_classes=4, average=average))
    one_hot = torch.nn.functional.one_hot(targets, 4)
    row["auroc"]["micro"] = float(F.auroc(logits.flatten(), one_hot.flatten(), task="binary"))
    row["average_precision"]["micro"] = float(F.average_precision(logits.flatten(), one_hot.flatten(), task="binary"))
    row["auroc"]["none"] = F.auroc(logits, targets, task="multiclass", num_classes=4, average=None).tolist()
    row["average_precision"]["none"] = F.average_precision(logits, targets, task="multiclass", num_classes=4, average=None).tolist()
    yield row


def jaccard():
    predicted, targets = torch.from_numpy(rng.integers(0, 4, (2, 5, 6))), torch.from_numpy(rng.integers(0, 4, (2, 5, 6)))
    index = lambda average: F.jaccard_index(predicted, targets, task="multiclass", num_classes=5, average=average)
    f1 = lambda average: F.f1_score(predicted.flatten(), targets.flatten(), task="multiclass", num_classes=5, average=average)
    return {"predicted": predicted.flatten().tolist(), "targets": targets.flatten().tolist(), "shape": [2, 5, 6],
            **{average: float(index(average)) for average in ["micro", "macro", "weighted"]}, "none": index("none").tolist(),
            "f1_macro": float(f1("macro")), "f1_weighted": float(f1("weighted"))}


TEXTS = [
    ("the cat is on the mat", ["there is a cat on the mat", "a cat is on the mat"]),
    ("Hello, World! It's 2 o'clock now", ["hello world it is two o clock", "hello there"]),
    ("the the the the the the the", ["the cat is on the mat", "there is a cat on the mat"]),
    ("the quick brown fox jumps over the lazy dog", ["the quick brown dog jumps over the lazy fox"]),
    ("a b c d e f g h", ["a c b d e g f h i j", "a b c d x e f g h"]),
    ("the police killed the gunman\nthe gunman is dead", ["a gunman was killed\nthe police say the gunman is dead\n\nthe end", "dead\nthe police"]),
]


def texts():
    predictions, references = [p for p, _ in TEXTS], [r for _, r in TEXTS]
    first = [r[0] for r in references]
    rouge = {key: float(value) for key, value in rouge_score(predictions, references, rouge_keys=("rouge1",), use_stemmer=False).items()}
    for key in ["rouge2", "rougeL", "rougeLsum"]:
        rouge |= {k: float(v) for k, v in rouge_score(predictions, references, rouge_keys=(key,), use_stemmer=False).items()}
    bleu = {f"{n}{'_smooth' if smooth else ''}": float(bleu_score(predictions, references, n_gram=n, smooth=smooth)) for n in [1, 2, 4] for smooth in [False, True]}
    return {"texts": TEXTS, "bleu": bleu, "rouge": rouge, "wer": float(word_error_rate(predictions, first)), "cer": float(char_error_rate(predictions, first))}


def model():
    logits, targets = grid(2, 6, 7, low=-3, high=3), torch.from_numpy(rng.integers(0, 7, (2, 6)))
    targets[1, 4:] = -100
    return {"logits": data(logits), "targets": targets.flatten().tolist(), "perplexity": float(perplexity(logits.double(), targets, ignore_index=-100))}


def pictures():
    a = grid(2, 3, 16, 13)
    b = (a + grid(2, 3, 16, 13, low=-0.25, high=0.25)).clamp(0, 1)
    return {"pictures": data(a), "targets": data(b), "psnr": float(peak_signal_noise_ratio(a.double(), b.double(), data_range=1.0)),
            "ssim": float(structural_similarity_index_measure(a.double(), b.double(), data_range=1.0))}


def detection():
    """Boxes of all three sizes, in two pictures of five without truths or predictions of some class, and a crowd."""
    metric = MeanAveragePrecision(iou_thresholds=np.linspace(0.5, 0.95, 10).tolist(), rec_thresholds=np.linspace(0, 1, 101).tolist(), class_metrics=True)
    images = []
    for picture in range(6):
        truths, found = [], []
        for _ in range(int(rng.integers(0, 7)) if picture else 0):
            side = float(rng.choice([20, 60, 130]))
            left, top = (float(v) for v in rng.integers(0, 300, 2))
            box = [left, top, left + side, top + side * float(rng.choice([0.75, 1.0]))]
            truths.append({"corners": box, "class": int(rng.integers(0, 3)), "crowd": int(rng.random() < 0.15)})
        for truth in truths * 2:
            if rng.random() < 0.7:
                shift = rng.integers(-6, 7, 4) * (truth["corners"][2] - truth["corners"][0]) / 64
                box = [float(v + s) for v, s in zip(truth["corners"], shift)]
                found.append({"corners": box, "class": truth["class"] if rng.random() < 0.85 else 3, "score": float(rng.integers(1, 64)) / 64})
        for _ in range(2):
            left, top = (float(v) for v in rng.integers(0, 300, 2))
            found.append({"corners": [left, top, left + 50, top + 40], "class": int(rng.integers(0, 3)), "score": float(rng.integers(1, 64)) / 64})
        images.append({"found": found, "truths": truths})
        tensor = lambda rows, key, dtype: torch.tensor([row[key] for row in rows], dtype=dtype)
        boxes = lambda rows: tensor(rows, "corners", torch.float32).reshape(-1, 4)
        metric.update(
            [{"boxes": boxes(found), "scores": tensor(found, "score", torch.float32), "labels": tensor(found, "class", torch.int64)}],
            [{"boxes": boxes(truths), "labels": tensor(truths, "class", torch.int64), "iscrowd": tensor(truths, "crowd", torch.int64)}],
        )
    scores = metric.compute()
    return {"images": images, "classes": scores.pop("classes").tolist(), "scores": {name: value.tolist() for name, value in scores.items()}}


OUT.parent.mkdir(exist_ok=True)
rows = {"torchmetrics": torchmetrics.__version__, "ranking": list(ranking()), "jaccard": jaccard(), "texts": texts(), "model": model(),
        "pictures": pictures(), "detection": detection()}
OUT.write_text("{" + ",\n".join(f'"{name}":{json.dumps(row, separators=(",", ":"))}' for name, row in rows.items()) + "}\n")
