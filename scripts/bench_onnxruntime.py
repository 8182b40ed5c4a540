#!/usr/bin/env python3
"""ONNX Runtime's side of `cargo xtask bench --vs-onnxruntime`.

    pip install onnxruntime numpy
    cargo xtask bench --vs-onnxruntime --models DIR --python PYTHON

Each line of stdin is a case in JSON: the parts of a file, its inputs, and whether to time a run or the creation of a
session. The answer is a line of JSON. Threads do not spin between runs, as Taper's do not.
"""
import argparse
import json
import statistics
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--device", default="cpu")
parser.add_argument("--budget", type=float, default=2.0, help="seconds a case")
parser.add_argument("--serve", action="store_true", help="read cases from stdin")
args = parser.parse_args()

try:
    import numpy as np
    import onnxruntime as ort
except ImportError as error:
    print(json.dumps({"error": str(error)}), flush=True)
    sys.exit(2)
ort.set_default_logger_severity(3)


def session(files):
    options = ort.SessionOptions()
    options.intra_op_num_threads = args.threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    source = files[0]
    if len(files) > 1:
        source = b"".join(open(part, "rb").read() for part in files)
    return ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def array(spec):
    shape, dtype, number = spec["shape"], spec["dtype"], spec["number"]
    i = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.int64)
    values = {
        "wave": lambda: number * np.sin(0.37 * i),
        "same": lambda: np.full(i.shape, number),
        "below": lambda: 7919 * i % int(number),
        "whole": lambda: np.array(spec["list"]),
    }[spec["fill"]]()
    return values.astype(dtype).reshape(shape)


def milliseconds(call):
    start = time.perf_counter()
    result = call()
    return (time.perf_counter() - start) * 1e3, result


def answer(question):
    name = question["case"]
    files = question["files"]
    if question["loads"]:
        times = [milliseconds(lambda: session(files))[0] for _ in range(question["times"])]
        return line(name, times)
    net = session(files)
    inputs = {spec["name"]: array(spec) for spec in question["inputs"]}
    for _ in range(3):
        outputs = net.run(None, inputs)
    times = []
    begin = time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - begin < question["budget"] and len(times) < 2000):
        times.append(milliseconds(lambda: net.run(None, inputs))[0])
    sums = [dict(mean=float(out.mean(dtype=np.float64)), most=float(np.abs(out).max())) for out in outputs]
    return line(name, times, outputs=sums)


def line(name, times, **extra):
    return dict(peer="ONNX Runtime", case=name, median_ms=round(statistics.median(times), 6), min_ms=round(min(times), 6),
                mean_ms=round(statistics.mean(times), 6), reps=len(times), device="cpu", threads=args.threads, **extra)


print(json.dumps({"version": ort.__version__, "device": "cpu"}), flush=True)
for text in sys.stdin:
    if not text.startswith("{"):
        name = text.strip()
        reply = dict(peer="ONNX Runtime", case=name, absent="no ONNX file")
    else:
        question = json.loads(text)
        try:
            reply = answer(question)
        except Exception as error:
            why = str(error).strip() or type(error).__name__
            reply = dict(peer="ONNX Runtime", case=question["case"], absent=why.splitlines()[0][:120])
    print(json.dumps(reply), flush=True)
