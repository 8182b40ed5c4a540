#!/usr/bin/env python3
"""Opens event files in TensorBoard, in a headless Chromium, and takes a picture; before that, TensorBoard's own reader reads them.

    pip install tensorboard setuptools
    cargo run --release --example dynamic_graph -- --out graph
    python scripts/tensorboard_picture.py graph docs/guide/tensorboard.png
"""

import argparse
import pathlib
import shutil
import socket
import subprocess
import sys
import time
import urllib.request

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.graph_pb2 import GraphDef


def read(folder):
    """Prints the graphs in the event files of a folder; the reader checks every record's checksums."""
    graphs = 0
    for path in sorted(folder.glob("*tfevents*")):
        for event in EventFileLoader(str(path)).Load():
            if event.HasField("graph_def"):
                graphs += 1
                graph = GraphDef.FromString(event.graph_def)
                known = {node.name for node in graph.node}
                for node in graph.node:
                    print(f"{path.name}: {node.name} = {node.op}({', '.join(node.input)})")
                    missing = [name for name in node.input if name not in known]
                    if missing:
                        sys.exit(f"{node.name} reads {missing}, which is not in the graph")
    if graphs == 0:
        sys.exit(f"{folder}: no event file with a graph")


def picture(folder, out, chromium, size):
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    url = f"http://localhost:{port}/"
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", folder, "--port", str(port), "--load_fast=false"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(60):
            try:
                urllib.request.urlopen(url + "data/plugin/graphs/info").read()
                break
            except OSError:
                time.sleep(1)
        else:
            sys.exit("TensorBoard did not start")
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000"]
        options += [f"--window-size={size}", f"--screenshot={out}", url + "?darkMode=false#graphs"]
        subprocess.run([chromium, *options], check=True, stderr=subprocess.DEVNULL, timeout=120)
    finally:
        server.terminate()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path, help="where the event files are")
    parser.add_argument("out", type=pathlib.Path, nargs="?", help="the picture (PNG); none, if it is not given")
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    parser.add_argument("--size", default="900,560", help="width and height of the window")
    options = parser.parse_args()
    read(options.folder)
    if options.out:
        if not options.chromium:
            sys.exit("no chromium: apt-get install chromium, or give --chromium PATH")
        picture(options.folder, options.out.absolute(), options.chromium, options.size)
        print(options.out)


if __name__ == "__main__":
    main()
