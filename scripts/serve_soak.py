#!/usr/bin/env python3
"""Loads a `taper serve` with clients for some time, and says whether it stays well.

    python3 scripts/serve_soak.py target/release/taper MODEL.gguf --seconds 60 --clients 16

Each client sends one request after the other: conversations as a whole and as streams, several messages with one
beginning, JSON schemas, wrong requests, and streams that it leaves in the middle. The last lines have the tokens a
second, the times between two tokens of a stream, and the server's memory after half of the time and at the end.
A request that fails, or memory that grows by more than a tenth, is an error. It needs nothing but Python.

With `--jobs FOLDER` the clients take the model and its adapters of the folder by turns. Those of a model with another
name are not there: the jobs must have been those of a model "soak".
"""

import argparse
import http.client
import json
import random
import statistics
import subprocess
import sys
import threading
import time

QUESTIONS = ["What is the capital of France?", "Name three fruits.", "Tell me a story about the sea.",
             "What is two and two?"]
SCHEMA = {"type": "object", "properties": {"city": {"enum": ["Oslo", "Paris", "Rome"]}}, "required": ["city"],
          "additionalProperties": False}


class Client:
    """Sends requests until a moment, and notes what it saw."""

    def __init__(self, address, model, tokens, seed, kinds):
        self.address, self.model, self.tokens, self.kinds = address, model, tokens, kinds
        self.random = random.Random(seed)
        self.requests, self.written, self.waits, self.faults = 0, 0, [], []

    def post(self, body):
        connection = http.client.HTTPConnection(*self.address, timeout=600)
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def body(self, **more):
        messages = [{"role": "user", "content": self.random.choice(QUESTIONS)}]
        body = {"model": self.model, "messages": messages, "max_tokens": self.tokens, "temperature": 0.7}
        return {**body, **more}

    def whole(self, **more):
        connection, response = self.post(self.body(**more))
        answer = json.loads(response.read())
        connection.close()
        assert response.status == 200, answer
        self.written += answer["usage"]["completion_tokens"]
        return answer["choices"][0]["message"]["content"]

    def stream(self, leaves_after=None):
        connection, response = self.post(self.body(stream=True))
        assert response.status == 200, response.read()
        last = None
        for line in response:
            if not line.startswith(b"data: {") or not json.loads(line[6:])["choices"][0]["delta"].get("content"):
                continue
            now = time.perf_counter()
            if last is not None:
                self.waits.append(now - last)
            last = now
            self.written += 1
            if leaves_after is not None and self.written % leaves_after == 0:
                break
        connection.close()

    def schema(self):
        form = {"type": "json_schema", "json_schema": {"name": "city", "schema": SCHEMA}}
        text = self.whole(response_format=form, max_tokens=200)
        assert json.loads(text)["city"] in SCHEMA["properties"]["city"]["enum"], text

    def wrong(self):
        connection, response = self.post({"model": "none", "messages": []})
        assert response.status == 404 and json.loads(response.read())["error"]["code"] == "model_not_found"
        connection.close()

    def run(self, end):
        while time.monotonic() < end:
            kind = self.random.choice(self.kinds)
            try:
                {"whole": self.whole, "stream": self.stream, "leave": lambda: self.stream(leaves_after=3),
                 "schema": self.schema, "wrong": self.wrong}[kind]()
            except Exception as fault:  # Each fault is reported at the end, whatever it is.
                self.faults.append(f"{kind}: {fault!r}")
            self.requests += 1


def memory(process):
    """The resident memory of a process in MiB."""
    with open(f"/proc/{process.pid}/status") as status:
        line = next(line for line in status if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("program")
    arguments.add_argument("model")
    arguments.add_argument("--seconds", type=float, default=60)
    arguments.add_argument("--clients", type=int, default=16)
    arguments.add_argument("--tokens", type=int, default=48)
    arguments.add_argument("--kinds", default="whole,stream,leave,schema,wrong")
    arguments.add_argument("--device", default="cpu")
    arguments.add_argument("--jobs")
    given = arguments.parse_args()
    serve = [given.program, "serve", f"soak={given.model}", "--port", "0", "--device", given.device]
    serve += ["--jobs", given.jobs] if given.jobs else []
    process = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True)
    try:
        host, port = process.stdout.readline().strip().removeprefix("http://").rsplit(":", 1)
        address = (host, int(port))
        models = http.client.HTTPConnection(*address, timeout=600)
        models.request("GET", "/v1/models")
        names = [model["id"] for model in json.loads(models.getresponse().read())["data"]]
        begin = time.monotonic()
        end = begin + given.seconds
        kinds = given.kinds.split(",")
        clients = [Client(address, names[seed % len(names)], given.tokens, seed, kinds) for seed in range(given.clients)]
        threads = [threading.Thread(target=client.run, args=(end,)) for client in clients]
        for thread in threads:
            thread.start()
        # Kept texts and the plans of batches fill their memory first.
        time.sleep(given.seconds / 2)
        before = memory(process)
        for thread in threads:
            thread.join()
        seconds, after = time.monotonic() - begin, memory(process)
    finally:
        process.terminate()
    waits = sorted(wait for client in clients for wait in client.waits) or [0.0]
    faults = [fault for client in clients for fault in client.faults]
    requests, written = sum(client.requests for client in clients), sum(client.written for client in clients)
    rate = written / seconds
    print(f"{requests} requests in {seconds:.0f} s by {given.clients} clients, {rate:.1f} tokens a second")
    shares = ", ".join(f"{share:.0%} {waits[int(share * (len(waits) - 1))] * 1e3:.0f}" for share in (0.9, 0.99, 1))
    print(f"between two tokens of a stream: median {statistics.median(waits) * 1e3:.0f} ms, {shares}")
    print(f"memory {before:.0f} MiB after half of the time, {after:.0f} MiB at the end")
    for fault in faults[:10]:
        print(fault, file=sys.stderr)
    if faults or after > 1.1 * before:
        sys.exit(f"{len(faults)} requests failed" if faults else "the memory has grown")


if __name__ == "__main__":
    main()
