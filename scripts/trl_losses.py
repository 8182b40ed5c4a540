#!/usr/bin/env python3
"""Prints TRL's losses of preferences for the log-probabilities in crates/nn/tests/it/preference.rs.

pip install trl accelerate datasets torch
The trainers' own code runs, with a model that returns the given log-probabilities of tokens. Written for TRL 1.16.
"""

import collections
from types import SimpleNamespace
from unittest.mock import MagicMock

import torch
from trl import DPOTrainer, KTOTrainer
from trl.experimental.orpo import ORPOTrainer

torch.set_default_dtype(torch.float64)

BETA = 0.3
# Answers of two tokens, the second of which is absent where the count is 1.
COUNTS = torch.tensor([2, 1, 2, 1, 2, 2])
POLICY = torch.tensor([-10.0, -8.5, -2.6, -12.0, -7.0, -3.5])
REFERENCE = torch.tensor([-11.0, -8.0, -3.0, -11.0, -8.0, -4.0])


def tokens(sums):
    """[N] to [N, 2]: a sum spread over an answer's tokens."""
    each = sums / COUNTS
    return torch.stack([each, torch.where(COUNTS == 2, each, 0.0)], 1)


def mask():
    """[N, 3]: a token of the question, then the answer."""
    return torch.stack([torch.zeros(6), torch.ones(6), (COUNTS == 2).double()], 1).long()


def model(sums):
    def forward(**_):
        each = tokens(sums)
        rest = torch.zeros_like(each)
        return SimpleNamespace(log_probs=each, entropy=rest, mean_logits=rest, is_top1=rest.bool())

    return forward


def trainer(**settings):
    fake = MagicMock()
    fake.accelerator.gather_for_metrics = lambda x: x
    fake.accelerator.device = "cpu"
    fake._metrics = collections.defaultdict(lambda: collections.defaultdict(list))
    fake.model = MagicMock(training=False)
    fake.ref_model = model(REFERENCE)
    fixed = dict(
        beta=BETA, aux_loss_enabled=False, ld_alpha=None, precompute_ref_logps=False, use_weighting=False,
        f_divergence_type="reverse_kl", loss_weights=[1.0], args=MagicMock(gradient_checkpointing_kwargs={}),
    )
    for name, value in (fixed | settings).items():
        setattr(fake, name, value)
    return fake


def dpo(kind, label_smoothing=0.0):
    fake = trainer(loss_types=[kind], label_smoothing=label_smoothing)
    inputs = {"input_ids": torch.zeros(6, 3).long(), "attention_mask": torch.ones(6, 3).long(), "completion_mask": mask()}
    return DPOTrainer._compute_loss(fake, model(POLICY), inputs, False).item()


def kto():
    fake = trainer(loss_type="kto", calculate_KL=True, desirable_weight=1.5, undesirable_weight=0.5)
    # The divergence of three unrelated answers.
    kl = {"policy": torch.tensor([0.5, -0.25, 0.2]), "reference": torch.zeros(3)}
    fake._compute_kl_logps = lambda which, _: kl["reference" if which is fake.ref_model else "policy"]
    batch = {
        "input_ids": torch.zeros(6, 3).long(), "attention_mask": torch.ones(6, 3).long(), "completion_mask": mask(),
        "label": torch.tensor([1, 1, 1, 0, 0, 0]),
    }
    return KTOTrainer._compute_loss(fake, model(POLICY), batch, False).item()


def orpo():
    mean = POLICY / COUNTS
    losses, *_ = ORPOTrainer.odds_ratio_loss(trainer(), mean[:3], mean[3:])
    return (-mean[:3] - losses).mean().item()


for kind, smoothing in [
    ("sigmoid", 0.0), ("hinge", 0.0), ("ipo", 0.0), ("robust", 0.1), ("apo_zero", 0.0), ("apo_down", 0.0),
]:
    print(f"dpo {kind} {smoothing}: {dpo(kind, smoothing):.15f}")
print(f"kto: {kto():.15f}")
print(f"orpo: {orpo():.15f}")
