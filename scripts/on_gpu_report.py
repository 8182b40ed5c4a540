#!/usr/bin/env python3
"""Writes the table of a hardware GPU from what scripts/on_gpu.sh found.

    python3 scripts/on_gpu_report.py OUT PAGE.md

replaces what stands between the lines `<!-- gpu:begin -->` and `<!-- gpu:end -->` of the page.
"""
import json
import pathlib
import sys

BEGIN, END = "<!-- gpu:begin -->", "<!-- gpu:end -->"


def lines(path, peer="taper"):
    """The JSON lines of one side of a bench, by case."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.startswith("{"):
            one = json.loads(line)
            if "case" in one and one.get("peer", peer) == peer:
                found[one["case"]] = one
    return found


def ms(one):
    time = (one or {}).get("median_ms")
    return "" if time is None else f"{time:.4g}"


def ratio(other, ours):
    if not other or not ours or not other.get("median_ms") or not ours.get("median_ms"):
        return ""
    return f"{other['median_ms'] / ours['median_ms']:.2f}x"


def table(out):
    ours, tuned = (lines(out / f"{name}.txt") for name in ("bench", "autotune"))
    torch = lines(out / "bench.txt", "torch")
    rows = ["| | |", "|---|---|"]
    machine = (out / "machine.txt").read_text().splitlines() if (out / "machine.txt").exists() else []
    device = next((one["device"] for one in ours.values() if one.get("device")), "wgpu:0")
    rows += [f"| device | {device} |"] + [f"| machine | {line} |" for line in machine]
    if (out / "commit.txt").exists():
        rows.append(f"| Taper | commit {(out / 'commit.txt').read_text().strip()} |")
    for line in (out / "steps.txt").read_text().splitlines():
        name, said = line.split(": ", 1)
        rows.append(f"| {name} | {said} |")
    rows += ["", "| case | Taper, ms | with autotuning, ms | PyTorch on CUDA, ms | ratio | note |", "|---|---:|---:|---:|---:|---|"]
    for case, one in ours.items():
        note = one.get("absent") or one.get("wrong") or ""
        other = torch.get(case)
        rows.append(f"| {case} | {ms(one)} | {ms(tuned.get(case))} | {ms(other)} | {ratio(other, one)} | {note} |")
    choices = out / "tuned.txt"
    kept = [line for line in choices.read_text().splitlines() if " = " in line] if choices.exists() else []
    if kept:
        rows += ["", "What autotuning chose (dtype, m, n, k, batch, how the operands are dense):", ""]
        rows += [f"    {line}" for line in kept]
    return "\n".join(rows)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    out, report = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    text = report.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        sys.exit(f"{report} does not have {BEGIN} and {END} once each")
    before, rest = text.split(BEGIN)
    report.write_text(f"{before}{BEGIN}\n\n{table(out)}\n\n{END}{rest.split(END)[1]}")


main()
