"""Programs of others, unchanged, with PyTorch and with Taper: the same random numbers, the same data, and their losses
side by side.

    python compare.py --programs DIR --torch PYTHON [--only NAME] [--out TABLE.md]

``DIR`` has the folders ``micrograd``, ``minGPT``, ``nanoGPT`` and ``examples`` (pytorch/examples). This Python has Taper
and numpy; ``PYTHON`` has PyTorch. Every program runs in a copy of its folder with data that are made here. Lines are
compared number by number, without those that are times.
"""

import argparse
import gzip
import io
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile

import numpy

HERE = pathlib.Path(__file__).resolve().parent
#: The relative difference that a loss may have.
TOLERANCE = 1e-3
NUMBER = re.compile(r"[-+]?\d+\.\d+(?:[eE][-+]?\d+)?|[-+]?\d+[eE][-+]?\d+")
#: Parts of lines that differ from run to run: times and speeds.
TIMES = re.compile(r"\(?\d+(\.\d+)?\s*(ms|s|sec|seconds)\b\)?|ms/batch\s+\d+(\.\d+)?|iter_dt[^;,]*|time[^,;]*|mfu[^,;]*")


# Data

def digits(folder, count=2000, test=500):
    """MNIST's four files with drawn digits: blurred strokes, one shape for each class."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = numpy.random.default_rng(1)
    shapes = rng.random((10, 7, 7)) > 0.6
    for name, number in (("train", count), ("t10k", test)):
        labels = rng.integers(0, 10, number).astype(numpy.uint8)
        pictures = numpy.kron(shapes[labels], numpy.ones((1, 4, 4))) * rng.uniform(120, 255, (number, 1, 1))
        noisy = (pictures + rng.normal(0, 30, pictures.shape)).clip(0, 255).astype(numpy.uint8)
        files = {
            f"{name}-images-idx3-ubyte": struct.pack(">IIII", 2051, number, 28, 28) + noisy.tobytes(),
            f"{name}-labels-idx1-ubyte": struct.pack(">II", 2049, number) + labels.tobytes(),
        }
        for file, content in files.items():
            (folder / file).write_bytes(content)
            (folder / f"{file}.gz").write_bytes(gzip.compress(content, 1))


def text(length):
    """A text of words with a grammar of its own, which a network can learn."""
    rng = numpy.random.default_rng(2)
    words = ["".join(rng.choice(list("abcdefghijklmnoprstuvw"), rng.integers(2, 8))) for _ in range(200)]
    follows = rng.integers(0, 200, (200, 5))
    at, parts, total = 0, [], 0
    while total < length:
        at = int(follows[at, rng.integers(5)])
        parts.append(words[at] + (" .\n" if rng.random() < 0.1 else " "))
        total += len(parts[-1])
    return "".join(parts)


def of_mnist(folder):
    for root in ("data", "../data"):
        digits(folder / root / "MNIST/raw")


def of_words(folder):
    (folder / "data/wikitext-2").mkdir(parents=True)
    whole = text(80_000)
    for name, part in (("train", whole[:60_000]), ("valid", whole[60_000:70_000]), ("test", whole[70_000:])):
        (folder / f"data/wikitext-2/{name}.txt").write_text(part)


def of_characters(folder):
    """A text where nanoGPT looks for one, and a package requests, which it imports and then has no need of."""
    (folder / "data/shakespeare_char/input.txt").write_text(text(300_000))
    (folder / "requests.py").write_text("")


def of_chargpt(folder):
    # The program's own prompt has to be in the text.
    (folder / "input.txt").write_text("O God, O God!\n" + text(60_000))


def of_cora(folder):
    """Papers with words and links in Cora's format, which a stand-in for the package requests serves."""
    rng = numpy.random.default_rng(3)
    count, words, kinds = 1700, 200, [f"Kind_{k}" for k in range(7)]
    kind = rng.integers(0, 7, count)
    has = rng.random((count, words)) < 0.02 + 0.1 * (numpy.arange(words) % 7 == kind[:, None])
    content = "".join(f"{n}\t" + "\t".join(map(str, has[n].astype(int))) + f"\t{kinds[kind[n]]}\n" for n in range(count))
    alike = [(a, rng.choice(numpy.flatnonzero(kind == kind[a]))) for a in rng.integers(0, count, 4000)]
    cites = "".join(f"{a}\t{b}\n" for a, b in sorted(set(alike)) if a != b)
    with tarfile.open(folder / "cora.tgz", "w:gz") as archive:
        for name, body in (("cora.content", content), ("cora.cites", cites)):
            entry = tarfile.TarInfo(f"cora/{name}")
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body.encode()))
    (folder / "requests.py").write_text(
        "import contextlib, types\n\n\n@contextlib.contextmanager\ndef get(url, stream=False):\n"
        "    with open('cora.tgz', 'rb') as file:\n        yield types.SimpleNamespace(raw=file)\n"
    )


def of_pictures(folder):
    from PIL import Image

    rng = numpy.random.default_rng(4)
    for part, count in (("train", 16), ("test", 4)):
        at = folder / f"dataset/BSDS300/images/{part}"
        at.mkdir(parents=True)
        for number in range(count):
            coarse = rng.integers(0, 255, (17, 17, 3)).astype(numpy.uint8)
            Image.fromarray(coarse).resize((272, 272), Image.BICUBIC).save(at / f"{number}.png")


def nothing(folder):
    pass


# Programs: name, folder, data, and commands; a command is a program and its arguments.

NANO = (
    "--device=cpu --eval_iters=2 --log_interval=1 --block_size=64 --batch_size=8 --n_layer=2 --n_head=2 --n_embd=64 "
    "--lr_decay_iters=60 --eval_interval=20 --dropout=0.0 --warmup_iters=5 --always_save_checkpoint=True"
)
WORDS = "--emsize 64 --nhid 64 --epochs 1 --log-interval 5 --dropout 0 --bptt 20"
PROGRAMS = [
    ("micrograd: its tests", "micrograd", nothing, ["-m pytest -q -p no:cacheprovider test/test_engine.py"]),
    ("minGPT: adder", "minGPT", nothing, ["projects/adder/adder.py --trainer.max_iters=60 --trainer.num_workers=0"]),
    ("minGPT: chargpt", "minGPT", of_chargpt, [
        "projects/chargpt/chargpt.py --trainer.max_iters=30 --trainer.num_workers=0 --model.model_type=gpt-nano "
        "--trainer.batch_size=8 --data.block_size=64"
    ]),
    ("nanoGPT: train", "nanoGPT", of_characters, [
        "data/shakespeare_char/prepare.py",
        f"train.py config/train_shakespeare_char.py {NANO} --compile=False --max_iters=40",
        f"train.py config/train_shakespeare_char.py {NANO} --compile=False --max_iters=60 --init_from=resume",
    ]),
    ("nanoGPT: train with compile", "nanoGPT", of_characters, [
        "data/shakespeare_char/prepare.py",
        f"train.py config/train_shakespeare_char.py {NANO} --compile=True --max_iters=40",
    ]),
    ("examples: mnist", "examples/mnist", of_mnist, ["main.py --epochs 1 --no-accel"]),
    ("examples: mnist_rnn", "examples/mnist_rnn", of_mnist, ["main.py --epochs 1"]),
    ("examples: mnist_forward_forward", "examples/mnist_forward_forward", of_mnist, [
        "main.py --epochs 30 --no_accel --train_size 1000 --test_size 500 --log-interval 5"
    ]),
    ("examples: mnist_hogwild", "examples/mnist_hogwild", of_mnist, ["main.py --epochs 1 --num-processes 2"]),
    ("examples: vae", "examples/vae", of_mnist, ["main.py --epochs 1 --no-accel"]),
    ("examples: siamese_network", "examples/siamese_network", of_mnist, ["main.py --epochs 1 --no-accel --dry-run --lr 0.01"]),
    ("examples: dcgan", "examples/dcgan", nothing, [
        "main.py --dataset fake --workers 0 --niter 1 --dry-run --batchSize 16 --ngf 16 --ndf 16 --manualSeed 1"
    ]),
    ("examples: regression", "examples/regression", nothing, ["main.py"]),
    ("examples: time_sequence_prediction", "examples/time_sequence_prediction", nothing, [
        "generate_sine_wave.py", "train.py --steps 1"
    ]),
    ("examples: actor_critic", "examples/reinforcement_learning", nothing, ["actor_critic.py --log-interval 1"]),
    ("examples: reinforce", "examples/reinforcement_learning", nothing, ["reinforce.py --log-interval 1"]),
    ("examples: word_language_model, LSTM", "examples/word_language_model", of_words, [f"main.py --model LSTM {WORDS}"]),
    ("examples: word_language_model, GRU", "examples/word_language_model", of_words, [f"main.py --model GRU --lr 2 {WORDS}"]),
    ("examples: word_language_model, RNN_TANH", "examples/word_language_model", of_words, [
        f"main.py --model RNN_TANH --lr 2 {WORDS}"
    ]),
    ("examples: word_language_model, Transformer", "examples/word_language_model", of_words, [
        f"main.py --model Transformer --lr 0.5 {WORDS}"
    ]),
    ("examples: gcn", "examples/gcn", of_cora, ["main.py --epochs 60 --no-accel"]),
    ("examples: gat", "examples/gat", of_cora, ["main.py --epochs 20 --no-accel"]),
    ("examples: super_resolution", "examples/super_resolution", of_pictures, [
        "main.py --upscale_factor 3 --batchSize 4 --testBatchSize 2 --nEpochs 2 --lr 0.001 --threads 0"
    ]),
]
#: Programs that end by themselves only after long: the seconds after which they are stopped, and how many of their
#: lines are compared. Later, one rounded number has changed a drawn action, and with it all that follows.
STOPPED = {"examples: actor_critic": (25, 150), "examples: reinforce": (25, 75)}


class Ran:
    """A program's numbers, seconds, and the last line of its error."""

    def __init__(self):
        self.lines, self.seconds, self.error = [], 0.0, ""


def run(python, library, folder, commands, limit):
    ran = Ran()
    env = dict(os.environ, OMP_NUM_THREADS="2", TAPER_THREADS="2", PYTHONUNBUFFERED="1", MPLBACKEND="Agg")
    # The processor: a software GPU would be slower, and PyTorch has none.
    env.update(VK_DRIVER_FILES="/nonexistent", VK_ICD_FILENAMES="/nonexistent", CUDA_VISIBLE_DEVICES="")
    env.update(TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD="1", PYTHONPATH=os.pathsep.join([".", env.get("PYTHONPATH", "")]))
    for command in commands:
        if library == "torch":
            # Its compiler draws numbers itself.
            command = command.replace("--compile=True", "--compile=False")
        words = command.split(" ")
        program = [f"-m {words[1]}", *words[2:]] if words[0] == "-m" else words
        process = subprocess.Popen(
            [python, HERE / "run.py", library, *program],
            cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        try:
            out, err = process.communicate(timeout=limit)
            stopped = False
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            stopped = True
        # The last line of a program that was stopped may lack its end.
        for line in out.splitlines()[: -1 if stopped else None]:
            if line.startswith("seconds of the program: "):
                ran.seconds += float(line.split(": ")[1])
            else:
                numbers = [float(number) for number in NUMBER.findall(TIMES.sub("", line))]
                ran.lines += [numbers] if numbers else []
        if process.returncode and not stopped:
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--programs", type=pathlib.Path, required=True)
    parser.add_argument("--torch", required=True, help="a Python with PyTorch")
    parser.add_argument("--only", default="", help="a part of the names")
    parser.add_argument("--out", type=pathlib.Path, help="a file for the table, between its marks")
    parser.add_argument("--no-times", action="store_true", help="leave the times out, on a machine that does other work")
    parser.add_argument("--limit", type=float, default=300, help="seconds that a command may take")
    args = parser.parse_args()
    rows, failed = [], []
    for name, source, data, commands in PROGRAMS:
        if args.only not in name:
            continue
        sides = []
        for python, library in ((args.torch, "torch"), (sys.executable, "taper")):
            with tempfile.TemporaryDirectory() as scratch:
                folder = pathlib.Path(scratch) / "inside" / pathlib.Path(source).name
                shutil.copytree(args.programs / source, folder)
                data(folder)
                sides.append(run(python, library, folder, commands, STOPPED.get(name, (args.limit,))[0]))
        theirs, ours = sides
        if name in STOPPED:
            ours.lines = ours.lines[: STOPPED[name][1]]
        worst, count = difference(ours, theirs)
        if ours.error or theirs.error:
            verdict = f"Taper: {ours.error}" if ours.error else f"PyTorch: {theirs.error}"
        else:
            verdict = f"{worst:.0e}" if worst <= TOLERANCE else f"{worst:.0e} (!)"
        failed += [name] if ours.error or worst > TOLERANCE else []
        ratio = theirs.seconds / ours.seconds if ours.seconds and theirs.seconds else float("nan")
        seconds = f"{theirs.seconds:.1f} | {ours.seconds:.1f} | {ratio:.2f}"
        seconds = "| |" if args.no_times else seconds
        rows.append(f"| {name} | {count} | {verdict} | {seconds} |")
        print(rows[-1], flush=True)
    if args.out:
        page = args.out.read_text()
        head = (
            "| program | numbers | greatest difference | PyTorch, s | Taper, s | ratio |\n|---|---:|---|---:|---:|---:|\n"
        )
        begin, end = "<!-- programs:begin -->\n", "<!-- programs:end -->"
        before, after = page.split(begin)[0], page.split(end)[1]
        args.out.write_text(before + begin + head + "\n".join(rows) + "\n" + end + after)
    if failed:
        print(f"{len(failed)} programs differ or fail: {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
