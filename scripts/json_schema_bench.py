#!/usr/bin/env python3
"""Asks `taper serve` for answers in many JSON schemas, and says how many it accepts and how many answers are valid.

    pip install jsonschema
    python3 scripts/json_schema_bench.py target/release/taper MODEL.gguf --schemas FOLDER --every 10

FOLDER has schemas in files that end in .json, such as the folder `data` of
https://github.com/guidance-ai/jsonschemabench. Every so many of them, in the order of their paths, is the
`response_format` of a request. A schema that the server refuses is counted with its reason; an answer that ends by
itself must be JSON that is valid by the package jsonschema; an answer that reaches the limit of tokens is counted apart.
The last lines have the counts. An answer that is not valid, or a server that ends, is an error.
"""

import argparse
import collections
import concurrent.futures
import http.client
import json
import pathlib
import subprocess
import sys

import jsonschema

QUESTION = "Give an example, as short as you can."


def ask(address, model, schema, tokens):
    """The status and the body of an answer."""
    format = {"type": "json_schema", "json_schema": {"name": "example", "schema": schema}}
    body = {"model": model, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": tokens,
            "temperature": 1, "seed": 0, "response_format": format}
    connection = http.client.HTTPConnection(*address, timeout=1200)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    return response.status, answer


def judged(path, arguments, address, model):
    """What became of a schema: a word, and a remark."""
    try:
        schema = json.loads(path.read_text())
    except ValueError as error:
        return "unreadable", str(error)
    try:
        validator = jsonschema.validators.validator_for(schema)
        validator.check_schema(schema)
    except Exception as error:  # the package has errors of several kinds for schemas that are wrong
        return "wrong schema", str(error).splitlines()[0]
    status, answer = ask(address, model, schema, arguments.tokens)
    if status != 200:
        return "refused", answer["error"]["message"]
    choice = answer["choices"][0]
    if choice["finish_reason"] != "stop":
        return "cut off", ""
    text = choice["message"]["content"]
    try:
        found = json.loads(text)
    except ValueError:
        return "not valid", f"no JSON: {text}"
    try:
        errors = [error.message for error in validator(schema).iter_errors(found)]
    except Exception as error:  # such as a reference to a schema on another machine
        return "not checked", str(error).splitlines()[0]
    return ("not valid", f"{errors[0]}: {text}") if errors else ("valid", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("taper")
    parser.add_argument("model")
    parser.add_argument("--schemas", required=True, type=pathlib.Path)
    parser.add_argument("--every", type=int, default=10, help="take every so many of the schemas")
    parser.add_argument("--tokens", type=int, default=300, help="the greatest number of tokens of an answer")
    parser.add_argument("--at-once", type=int, default=16, help="requests at the same time")
    arguments = parser.parse_args()
    files = sorted(arguments.schemas.rglob("*.json"))[:: arguments.every]
    command = [arguments.taper, "serve", f"model={arguments.model}", "--port", "0", "--device", "cpu"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        host, port = server.stdout.readline().strip().removeprefix("http://").split(":")
        counts, reasons = collections.Counter(), collections.Counter()
        with concurrent.futures.ThreadPoolExecutor(arguments.at_once) as pool:
            asked = {pool.submit(judged, path, arguments, (host, int(port)), "model"): path for path in files}
            for done in concurrent.futures.as_completed(asked):
                word, remark = done.result()
                counts[word] += 1
                if word in ("not valid", "not checked"):
                    print(f"{asked[done]}: {word}: {remark[:300]}", flush=True)
                if word == "refused":
                    reasons[remark[:100]] += 1
    finally:
        server.terminate()
        server.wait()
    for reason, count in reasons.most_common(20):
        print(f"{count:5} refused: {reason}")
    right = sum(counts.values()) - counts["unreadable"] - counts["wrong schema"]
    accepted = right - counts["refused"]
    print(f"{len(files)} schemas: {dict(counts)}")
    print(f"accepted: {accepted} of {right}, {100 * accepted / max(right, 1):.1f} %")
    if counts["not valid"]:
        sys.exit(f"{counts['not valid']} answers are not valid")


if __name__ == "__main__":
    main()
