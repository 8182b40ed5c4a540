#!/usr/bin/env python3
"""The same training as `taper fine-tune`, by transformers and peft on the CPU: milliseconds of a step, and memory.

    .venv/bin/pip install torch transformers peft gguf
    .venv/bin/python scripts/bench_peft.py SmolLM2-135M-Instruct.Q4_1.gguf --threads 2

The weights are decoded to f32. Steps, batches and the loss are those of the example: two batches of two conversations a step, the loss of
answers alone, LoRA of rank 8 on all linear layers, dropout 0.05, AdamW. Padding is to a multiple of 16, as there.
"""
import argparse
import json
import os
import resource
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("model", type=Path)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--epochs", type=int, default=2)
options = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(options.threads)

import torch  # noqa: E402
from peft import LoraConfig, get_peft_model  # noqa: E402
from transformers import AutoModelForCausalLM, AutoTokenizer  # noqa: E402

torch.set_num_threads(options.threads)
folder, file = options.model.parent, options.model.name
tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, lora_dropout=0.05, target_modules="all-linear"))
model.train()
data = Path(__file__).resolve().parent.parent / "examples/language/ships_log.jsonl"
examples = []
for line in data.read_text().splitlines():
    messages = json.loads(line)["messages"]
    whole = tokenizer(tokenizer.apply_chat_template(messages, tokenize=False), add_special_tokens=False)["input_ids"]
    prompt = tokenizer(tokenizer.apply_chat_template(messages[:1], tokenize=False, add_generation_prompt=True), add_special_tokens=False)["input_ids"]
    examples.append((whole, len(prompt)))


def batch(rows):
    length = -(-(max(len(ids) for ids, _ in rows) - 1) // 16) * 16
    ids = torch.zeros(len(rows), length, dtype=torch.long)
    labels = torch.full((len(rows), length), -100)
    for row, (tokens, prompt) in enumerate(rows):
        ids[row, : len(tokens) - 1] = torch.tensor(tokens[:-1])
        labels[row, prompt - 1 : len(tokens) - 1] = torch.tensor(tokens[prompt:])
    return ids, labels


optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-3, weight_decay=0.0)
for epoch in range(options.epochs):
    begin, steps, total, count = time.perf_counter(), 0, 0.0, 0
    for first in range(0, len(examples), 4):
        group = examples[first : first + 4]
        began = time.perf_counter()
        tokens = sum(len(ids) - prompt for ids, prompt in group)
        optimizer.zero_grad()
        for part in range(0, len(group), 2):
            ids, labels = batch(group[part : part + 2])
            logits = model(input_ids=ids, use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
            (loss / tokens).backward()
            total += loss.item()
        optimizer.step()
        steps, count = steps + 1, count + tokens
        print(f"step {steps}: {1e3 * (time.perf_counter() - began):.0f} ms", flush=True)
    print(f"epoch {epoch + 1}: loss {total / count:.4f}, {1e3 * (time.perf_counter() - begin) / steps:.0f} ms a step", flush=True)
print(f"peak resident memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000:.0f} MB")
