#!/usr/bin/env python3
"""llama.cpp and Taper on one GGUF file, by turns in one run: a prompt read at once, and tokens written one after the other.

    CMAKE_ARGS=-DGGML_NATIVE=ON pip install llama-cpp-python
    cargo build --release -p taper-cli
    python scripts/bench_llama.py MODEL.gguf [--taper target/release/taper] [--threads 1,2] [--prompt 512] [--generate 60]

Prints a table of tokens a second, the medians of --turns turns. In each turn the two programs, and Taper with rounded activations
(TAPER_CPU_BLOCKS=int8), run one after the other in processes of their own, each once without being counted.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("model")
parser.add_argument("--taper", default="target/release/taper")
parser.add_argument("--threads", default="1,2")
parser.add_argument("--prompt", type=int, default=512)
parser.add_argument("--generate", type=int, default=60)
parser.add_argument("--turns", type=int, default=3)
parser.add_argument("--llama", type=int, help=argparse.SUPPRESS)
args = parser.parse_args()


def llama(threads):
    """Tokens a second of llama.cpp: prompt and generation."""
    from llama_cpp import Llama
    model = Llama(args.model, n_ctx=args.prompt + args.generate + 16, n_batch=args.prompt, n_threads=threads, n_threads_batch=threads,
                  verbose=False)
    prompt = [100 + at * 7919 % 30_000 for at in range(args.prompt)]

    def clock(tokens):
        model.reset()
        start = time.perf_counter()
        for some in tokens:
            model.eval(some)
        return sum(map(len, tokens)) / (time.perf_counter() - start)
    both = ([prompt], [[token] for token in prompt[:args.generate]])
    for tokens in both:
        clock(tokens)
    return [clock(tokens) for tokens in both]


def taper(threads, **environment):
    """Tokens a second of `taper bench`: prompt and generation."""
    command = [args.taper, "bench", args.model, "-p", str(args.prompt), "-n", str(args.generate), "-r", "1", "--device", "cpu", "--json"]
    told = subprocess.run(command, check=True, capture_output=True, text=True,
                          env=dict(os.environ, TAPER_THREADS=str(threads), **environment)).stdout
    return [test["avg_ts"] for test in json.loads(told)]


def peer(threads):
    command = [sys.executable, __file__, args.model, "--llama", str(threads), "--prompt", str(args.prompt), "--generate", str(args.generate)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


if args.llama:
    print(json.dumps(llama(args.llama)))
    sys.exit()
print("| tokens a second | Taper, exact | Taper, int8 | llama.cpp | ratio of the better |\n|---|---:|---:|---:|---:|")
for threads in map(int, args.threads.split(",")):
    turns = [[taper(threads), taper(threads, TAPER_CPU_BLOCKS="int8"), peer(threads)] for _ in range(args.turns)]
    for test, name in enumerate(("prompt", "generation")):
        exact, rounded, other = (statistics.median(turn[side][test] for turn in turns) for side in range(3))
        print(f"| {name}, {threads} thread{'s' * (threads > 1)} | {exact:.1f} | {rounded:.1f} | {other:.1f} | "
              f"{max(exact, rounded) / other:.2f} |", flush=True)
