"""Writes crates/nn/tests/fixtures/preference.json: losses of preferences by the trainers of Python's `trl`, on small
models with random weights, with the log-probabilities that they are made of.

    pip install torch transformers trl && python scripts/preference_fixtures.py
"""

import json
import pathlib
import tempfile
import types

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from tokenizers import Tokenizer, models, pre_tokenizers

OUT = pathlib.Path(__file__).parents[1] / "crates/nn/tests/fixtures/preference.json"
WORDS = ["<pad>", "</s>", *"abcdefghij"]


def model(seed):
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, pad_token_id=0, eos_token_id=1, bos_token_id=1, initializer_range=0.5,
    )
    return LlamaForCausalLM(config).eval()


def tokenizer():
    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="</s>")


def log_probability(net, prompt, answer):
    """The sum over the answer's tokens, and their number."""
    ids = torch.tensor([prompt + answer])
    logits = net(ids).logits[0].log_softmax(-1)
    at = range(len(prompt) - 1, len(prompt) + len(answer) - 1)
    return sum(logits[i, ids[0, i + 1]] for i in at).item(), len(answer)


PROMPTS = [[2, 3], [4, 5, 6], [7], [8, 2]]
CHOSEN = [[5, 6, 1], [2, 1], [3, 3, 9, 1], [10, 1]]
REJECTED = [[7, 1], [9, 10, 11, 1], [2, 4, 1], [11, 5, 6, 1]]


def dpo(policy, reference, **options):
    from trl import DPOConfig, DPOTrainer

    rows = {"prompt": [], "chosen": [], "rejected": []}
    for prompt, chosen, rejected in zip(PROMPTS, CHOSEN, REJECTED):
        for key, ids in (("prompt", prompt), ("chosen", chosen[:-1]), ("rejected", rejected[:-1])):
            rows[key].append(" ".join(WORDS[i] for i in ids))
    with tempfile.TemporaryDirectory() as folder:
        args = DPOConfig(
            output_dir=folder, per_device_train_batch_size=4, report_to="none", use_cpu=True, bf16=False,
            disable_dropout=True, gradient_checkpointing=False, **options,
        )
        trainer = DPOTrainer(
            model=policy, ref_model=reference, args=args, train_dataset=Dataset.from_dict(rows),
            processing_class=tokenizer(),
        )
        batch = next(iter(trainer.get_train_dataloader()))
        with torch.no_grad():
            return trainer.compute_loss(policy, batch).item()


def orpo(chosen, rejected, beta):
    from trl.experimental.orpo import ORPOTrainer

    losses = ORPOTrainer.odds_ratio_loss(types.SimpleNamespace(beta=beta), chosen, rejected)
    return losses[0].tolist()


def main():
    policy, reference = model(1), model(2)
    out = {"pairs": []}
    with torch.no_grad():
        for prompt, chosen, rejected in zip(PROMPTS, CHOSEN, REJECTED):
            row = {}
            for name, net in (("policy", policy), ("reference", reference)):
                for kind, answer in (("chosen", chosen), ("rejected", rejected)):
                    row[f"{name}_{kind}"], row[f"{kind}_tokens"] = log_probability(net, prompt, answer)
            out["pairs"].append(row)
    out["dpo"] = []
    for loss, beta, smoothing in (("sigmoid", 0.1, 0), ("sigmoid", 0.3, 0), ("hinge", 0.2, 0), ("ipo", 0.1, 0)):
        value = dpo(policy, reference, loss_type=[loss], beta=beta, label_smoothing=smoothing)
        out["dpo"].append({"loss": loss, "beta": beta, "value": value})
    means = [
        torch.tensor([row[f"policy_{kind}"] / row[f"{kind}_tokens"] for row in out["pairs"]])
        for kind in ("chosen", "rejected")
    ]
    out["orpo"] = {"beta": 0.1, "odds_ratio": orpo(*means, 0.1)}
    OUT.write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
