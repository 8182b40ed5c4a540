"""Programs of others, unchanged, with Taper and with PyTorch: the same random numbers, the same data, and what they
print side by side.

    python compare.py --programs DIR [--torch PYTHON] [--only NAME] [--page PAGE.md]

``DIR`` has the folders ``micrograd``, ``minGPT``, ``nanoGPT``, ``examples`` (pytorch/examples), ``d2l`` (the pages and
the package of "Dive into Deep Learning") and ``tutorials`` (pytorch/tutorials), or some of them. This Python has Taper
and numpy; ``PYTHON`` has PyTorch. Every program runs in a copy of its folder with data that are made here. Lines are
compared number by number, without those that are times. Without ``--torch`` the shorter programs are compared with what
PyTorch printed when the page was written, which is in ``printed.json``.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from programs import PROGRAMS

HERE = pathlib.Path(__file__).resolve().parent
#: What PyTorch printed, by program: the numbers of each line.
PRINTED = HERE / "printed.json"
#: The relative difference that a loss may have.
TOLERANCE = 1e-3
NUMBER = re.compile(r"[-+]?\d+\.\d*(?:[eE][-+]?\d+)?|[-+]?\d+[eE][-+]?\d+")
#: Parts of lines that differ from run to run: times, speeds, and addresses.
TIMES = re.compile(
    r"0x[0-9a-f]+|\(?\d+(\.\d+)?\s*(ms|s|sec|seconds)\b\)?|ms/batch\s+\d+(\.\d+)?|iter_dt[^;,]*|time[^,;]*|mfu[^,;]*"
)
#: Options by which programs stay on the processor, and those that choose a GPU.
ON_GPU = ((" --no-accel", ""), (" --no_accel", ""), ("--device=cpu", "--device=cuda"))


class Ran:
    """A program's numbers, words, seconds, and the last line of its error."""

    def __init__(self, lines=()):
        self.lines, self.texts, self.seconds, self.error, self.stopped = list(lines), [], 0.0, "", False


def run(python, library, folder, commands, limit, gpu):
    ran = Ran()
    env = dict(
        os.environ, OMP_NUM_THREADS="2", TAPER_THREADS="2", PYTHONUNBUFFERED="1", MPLBACKEND="Agg",
        CUDA_VISIBLE_DEVICES="", TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD="1",
        PYTHONPATH=os.pathsep.join([".", os.environ.get("PYTHONPATH", "")]),
        # The order of sets.
        PYTHONHASHSEED="0",
    )
    if not gpu:
        env.update(VK_DRIVER_FILES="/nonexistent", VK_ICD_FILENAMES="/nonexistent")
    for command in commands:
        if library == "torch":
            # Its compiler draws numbers itself.
            command = command.replace("--compile=True", "--compile=False")
        for alone, chosen in ON_GPU if gpu else ():
            command = command.replace(alone, chosen)
        words = command.split(" ")
        program = [f"-m {words[1]}", *words[2:]] if words[0] == "-m" else words
        process = subprocess.Popen(
            [python, HERE / "run.py", library, *program],
            cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            ran.stopped = True
        # The last line of a program that was stopped may lack its end.
        for line in out.splitlines()[: -1 if ran.stopped else None]:
            if line.startswith("seconds of the program: "):
                ran.seconds += float(line.split(": ")[1])
            else:
                line = TIMES.sub("", line)
                numbers = [float(number) for number in NUMBER.findall(line)]
                ran.lines += [numbers] if numbers else []
                ran.texts.append(NUMBER.sub("", line))
        if process.returncode and not ran.stopped:
            ran.error = (err.strip().splitlines() or ["no error was printed"])[-1]
            break
    return ran


def difference(ours, theirs):
    """The greatest relative difference of two programs' numbers, and how many were compared."""
    worst, count = 0.0, 0
    for mine, other in zip(ours.lines, theirs.lines):
        if len(mine) != len(other):
            return float("inf"), count
        for a, b in zip(mine, other):
            worst, count = max(worst, abs(a - b) / max(abs(b), 0.05)), count + 1
    return worst, count


def ran(program, folder, python, library, limit, gpu=False):
    """Runs a program in a copy of its folder."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = pathlib.Path(scratch) / "inside" / pathlib.Path(program.folder).name
        shutil.copytree(folder / program.folder, copy)
        program.data(copy)
        found = run(python, library, copy, program.commands, program.stopped[0] if program.stopped else limit, gpu)
    if program.stopped:
        found.lines = found.lines[: program.stopped[1]]
    elif found.stopped:
        found.error = f"it was stopped after {limit:.0f} s"
    return found


def row(program, ours, theirs, timed):
    """A program's row, and whether it did what it must."""
    worst, count = difference(ours, theirs)
    alike = worst <= TOLERANCE and (len(ours.lines) == len(theirs.lines) or program.stopped or program.refused)
    if program.texts and ours.texts != theirs.texts:
        alike = False
    if ours.error or theirs.error:
        verdict = f"Taper: {ours.error}" if ours.error else f"PyTorch: {theirs.error}"
    else:
        verdict = f"{worst:.0e}" if alike else f"{worst:.0e}: {program.differs or '(!)'}"
    well = program.refused in ours.error if program.refused else not ours.error
    timed = timed and ours.seconds and theirs.seconds
    seconds = f"{theirs.seconds:.1f} | {ours.seconds:.1f} | {theirs.seconds / ours.seconds:.2f}" if timed else "| |"
    return f"| {program.name} | {count} | {verdict} | {seconds} |", bool(well and (alike or program.differs))


def write(page, rows):
    """Writes rows into the table of a page, between its marks; those of other programs stay."""
    columns = "| program | numbers | greatest difference | PyTorch, s | Taper, s | ratio |"
    head = f"{columns}\n|---|---:|---|---:|---:|---:|\n"
    begin, end = "<!-- programs:begin -->\n", "<!-- programs:end -->"
    text = page.read_text()
    before, after = text.split(begin)[0], text.split(end)[1]
    known = {line.split(" | ")[0]: line for line in text.split(begin)[1].split(end)[0].splitlines()[2:]}
    known |= {line.split(" | ")[0]: line for line in rows}
    table = [known[name] for program in PROGRAMS if (name := f"| {program.name}") in known]
    page.write_text(before + begin + head + "\n".join(table) + "\n" + end + after)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--torch", help="a Python with PyTorch")
    parser.add_argument("--only", default="", help="a part of the names")
    parser.add_argument("--page", type=pathlib.Path, help="a page for the rows; what PyTorch prints is recorded too")
    parser.add_argument("--gpu", action="store_true", help="Taper's programs use a GPU, where they know how")
    parser.add_argument("--no-times", action="store_true", help="leave the times out: the machine does other work")
    parser.add_argument("--limit", type=float, default=300, help="seconds that a command may take")
    args = parser.parse_args()
    if args.page and (args.gpu or not args.torch):
        parser.error("--page needs --torch, and is about the processor")
    recorded = json.loads(PRINTED.read_text())
    rows, failed = [], []
    for program in PROGRAMS:
        if args.only not in program.name or (program.slow and not args.torch):
            continue
        if not (args.programs / program.folder).is_dir():
            print(f"{program.name}: {args.programs} has no folder {program.folder}", flush=True)
            failed += [program.name] if args.page else []
            continue
        if args.torch:
            theirs = ran(program, args.programs, args.torch, "torch", args.limit)
        else:
            theirs = Ran(recorded[program.name])
        ours = ran(program, args.programs, sys.executable, "taper", args.limit, args.gpu)
        line, well = row(program, ours, theirs, not args.no_times)
        if not program.slow:
            recorded[program.name] = theirs.lines
        rows.append(line)
        failed += [] if well else [program.name]
        print(line, flush=True)
    if args.page:
        write(args.page, rows)
        PRINTED.write_text(json.dumps(recorded, separators=(",", ":")).replace('],"', '],\n"') + "\n")
    if failed:
        print(f"{len(failed)} programs differ or fail: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
