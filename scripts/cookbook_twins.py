"""Runs the PyTorch twins of the guide's cookbook: the blocks of Python in docs/guide/cookbook.md.

python scripts/cookbook_twins.py                        # all that need no argument
python scripts/cookbook_twins.py unet ddpm              # some
python scripts/cookbook_twins.py embed FOLDER QUERY SENTENCE ...

They need torch, torchvision, numpy and peft, and `embed` needs transformers.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def twins():
    """The twin of each section, by the name of its program."""
    found = {}
    for section in (ROOT / "docs/guide/cookbook.md").read_text().split("\n## ")[1:]:
        path = re.search(r"\(\.\./\.\./((?:examples|crates/cli)/[^)]*\.rs)\)", section)[1]
        name = "custom_op" if path.endswith("lib.rs") else Path(path).stem
        found[name] = re.search(r"```python\n(.*?)```", section, re.S)[1]
    return found


def run(name, code, arguments=()):
    print(f"{name}:", flush=True)
    subprocess.run([sys.executable, "-", *arguments], input=code, text=True, cwd=ROOT, check=True, env=os.environ)


def main():
    found, asked = twins(), sys.argv[1:]
    if asked[:1] == ["embed"]:
        folder = Path(asked[1])
        run("embed", found["embed"], [str(folder.resolve()) if folder.exists() else asked[1], *asked[2:]])
        return
    for name in asked or [name for name in found if name != "embed"]:
        run(name, found[name])


main()
