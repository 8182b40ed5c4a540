"""Data for the programs that compare.py runs: small, made here from fixed seeds, in the formats that they read."""

import gzip
import io
import struct
import tarfile
import zipfile

import numpy


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


def nothing(folder):
    pass


#: A stand-in for the package requests: what lies in the folder ``served``, by the last part of its address.
REQUESTS = """
class Answer:
    def __init__(self, url):
        self.raw = open("served/" + url.rpartition("/")[2], "rb")

    @property
    def content(self):
        return self.raw.read()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.raw.close()


def get(url, **ignored):
    return Answer(url)
"""


def served(folder, files):
    """Files that a program asks the package requests for."""
    (folder / "served").mkdir()
    for name, content in files.items():
        (folder / "served" / name).write_bytes(content)
    (folder / "requests.py").write_text(REQUESTS)


def of_mnist(folder):
    for root in ("data", "../data"):
        digits(folder / root / "MNIST/raw")


def of_words(folder):
    (folder / "data/wikitext-2").mkdir(parents=True)
    whole = text(80_000)
    for name, part in (("train", whole[:60_000]), ("valid", whole[60_000:70_000]), ("test", whole[70_000:])):
        (folder / f"data/wikitext-2/{name}.txt").write_text(part)


def of_characters(folder):
    """A text where nanoGPT looks for one, and packages that it imports and then has no need of."""
    (folder / "data/shakespeare_char/input.txt").write_text(text(300_000))
    for name in ("requests", "tiktoken"):
        (folder / f"{name}.py").write_text("")


def of_chargpt(folder):
    # The program's own prompt has to be in the text.
    (folder / "input.txt").write_text("O God, O God!\n" + text(60_000))


def of_cora(folder):
    """Papers with words and links in Cora's format, which a stand-in for the package requests serves."""
    rng = numpy.random.default_rng(3)
    count, words, kinds = 1700, 200, [f"Kind_{k}" for k in range(7)]
    kind = rng.integers(0, 7, count)
    has = rng.random((count, words)) < 0.02 + 0.1 * (numpy.arange(words) % 7 == kind[:, None])
    rows = ("\t".join(map(str, one)) for one in has.astype(int))
    content = "".join(f"{n}\t{row}\t{kinds[kind[n]]}\n" for n, row in enumerate(rows))
    alike = [(a, rng.choice(numpy.flatnonzero(kind == kind[a]))) for a in rng.integers(0, count, 4000)]
    cites = "".join(f"{a}\t{b}\n" for a, b in sorted(set(alike)) if a != b)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, body in (("cora.content", content), ("cora.cites", cites)):
            entry = tarfile.TarInfo(f"cora/{name}")
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body.encode()))
    served(folder, {"cora.tgz": packed.getvalue()})


def of_pictures(folder):
    from PIL import Image

    rng = numpy.random.default_rng(4)
    for part, count in (("train", 16), ("test", 4)):
        at = folder / f"dataset/BSDS300/images/{part}"
        at.mkdir(parents=True)
        for number in range(count):
            coarse = rng.integers(0, 255, (17, 17, 3)).astype(numpy.uint8)
            Image.fromarray(coarse).resize((272, 272), Image.BICUBIC).save(at / f"{number}.png")


def of_clothes(folder, count=2000):
    """FashionMNIST's files, of which the book's pages and the first tutorials read ``count`` pictures to train with."""
    for root in ("data", "../data"):
        digits(folder / root / "FashionMNIST/raw", count, count // 4)


def of_few_clothes(folder):
    """For networks of large pictures."""
    of_clothes(folder, 64)


def of_book(folder):
    """The texts of the book: a novel, and sentences in two languages."""
    words = text(60_000).split()
    pairs = [f"{a.capitalize()} {b}.\t{b} {a} !" for a, b in zip(words[:1400:2], words[1:1400:2])]
    sentences = io.BytesIO()
    with zipfile.ZipFile(sentences, "w") as archive:
        archive.writestr("fra-eng/fra.txt", "\n".join(pairs))
    served(folder, {"timemachine.txt": text(120_000).encode(), "fra-eng.zip": sentences.getvalue()})
