"""Checks `taper serve` with the Python package `openai`: chats, streams, tools, schemas, embeddings, speech, fine-tuning.

    taper serve SmolLM2-135M-Instruct.Q4_1.gguf --port 8080
    python scripts/openai_client_check.py http://127.0.0.1:8080 --tokens 16

Each check prints what the client got, and fails if it lacks what every model must give.
"""

import argparse
import asyncio
import json
import time
from typing import Literal

import openai
from pydantic import BaseModel

QUESTION = [{"role": "user", "content": "What is the capital of Norway?"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Oslo", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


class Capital(BaseModel):
    """A schema whose every text is short."""

    country: Literal["Norway", "Italy"]
    capital: Literal["Oslo", "Rome"]


def check_sync(client, model, tokens):
    answer = client.chat.completions.create(model=model, messages=QUESTION, max_tokens=tokens, temperature=0)
    text = answer.choices[0].message.content
    print("chat:", repr(text), answer.usage.model_dump(include={"prompt_tokens", "completion_tokens"}))
    assert text and answer.usage.completion_tokens <= tokens

    stream = client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=tokens, temperature=0, stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    print("stream:", len(chunks), "chunks")
    assert "".join(pieces) == text and chunks[-1].usage == answer.usage

    answer = client.chat.completions.create(
        model=model, messages=QUESTION, max_tokens=2, temperature=0, logprobs=True, top_logprobs=2
    )
    first = answer.choices[0].logprobs.content[0]
    print("log-probabilities:", repr(first.token), [(top.token, round(top.logprob, 3)) for top in first.top_logprobs])
    assert len(first.top_logprobs) == 2

    answer = client.completions.create(model=model, prompt="One, two, three,", max_tokens=tokens, temperature=0)
    print("completion:", repr(answer.choices[0].text))
    assert answer.choices[0].text


def check_structure(client, model):
    parsed = client.chat.completions.parse(
        model=model, messages=QUESTION, response_format=Capital, max_tokens=64, temperature=0
    )
    print("schema:", parsed.choices[0].message.parsed)
    assert isinstance(parsed.choices[0].message.parsed, Capital)

    answer = client.chat.completions.create(
        model=model, messages=QUESTION, tools=[TOOL], tool_choice="required", max_tokens=64, temperature=0
    )
    call = answer.choices[0].message.tool_calls[0]
    print("tool:", call.function.name, call.function.arguments)
    assert json.loads(call.function.arguments)["city"] in ("Oslo", "Rome")
    follow_up = QUESTION + [
        answer.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "Rain"},
    ]
    answer = client.chat.completions.create(model=model, messages=follow_up, tools=[TOOL], max_tokens=4)
    print("after the tool:", repr(answer.choices[0].message.content))


def check_errors(client, model):
    for error, fields in [
        (openai.NotFoundError, {"model": "absent"}),
        (openai.BadRequestError, {"model": model, "temperature": 3}),
    ]:
        try:
            client.chat.completions.create(messages=QUESTION, **fields)
        except error as found:
            print("error:", found.status_code, found.body["message"])
        else:
            raise AssertionError(f"no {error.__name__}")


def check_speech(client, model, sound):
    def write_down(task, **fields):
        with open(sound, "rb") as file:
            return task.create(model=model, file=file, **fields)

    text = write_down(client.audio.transcriptions).text
    print("speech:", repr(text))
    whole = write_down(client.audio.transcriptions, response_format="verbose_json", temperature=0)
    print("parts:", [(part.start, part.end, part.text) for part in whole.segments], whole.language, whole.duration)
    assert whole.text == text and whole.segments[-1].end == whole.duration
    assert write_down(client.audio.transcriptions, response_format="text").strip() == text
    assert write_down(client.audio.transcriptions, response_format="srt").startswith("1\n00:00:00,000 --> ")
    print("in English:", repr(write_down(client.audio.translations).text))


def check_fine_tuning(client, model, data):
    """An adapter that is trained on two epochs of the data answers beside its base."""
    with open(data, "rb") as file:
        sent = client.files.create(file=file, purpose="fine-tune")
    assert sent.id in [file.id for file in client.files.list()]
    job = client.fine_tuning.jobs.create(model=model, training_file=sent.id, suffix="check", hyperparameters={"n_epochs": 2})
    while job.status in ("queued", "running"):
        time.sleep(1)
        job = client.fine_tuning.jobs.retrieve(job.id)
    events = list(client.fine_tuning.jobs.list_events(job.id))
    losses = [event.data["train_loss"] for event in reversed(events) if event.type == "metrics"]
    print("fine-tuned:", job.fine_tuned_model, [round(loss, 2) for loss in losses], job.trained_tokens)
    assert job.status == "succeeded" and losses[-1] < losses[0]
    answer = client.chat.completions.create(model=job.fine_tuned_model, messages=QUESTION, max_tokens=24, temperature=0)
    print("its answer:", repr(answer.choices[0].message.content))
    assert client.files.delete(sent.id).deleted


async def check_async(url, model, tokens):
    async with openai.AsyncOpenAI(base_url=url, api_key="none") as client:
        async def stream():
            chunks = await client.chat.completions.create(
                model=model, messages=QUESTION, max_tokens=tokens, temperature=0, stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

        texts = await asyncio.gather(stream(), stream(), stream())
        print("three at once:", texts)
        assert texts[0] and texts[0] == texts[1] == texts[2]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="the address that `taper serve` prints")
    parser.add_argument("--tokens", type=int, default=16, help="new tokens of each text")
    parser.add_argument("--embeddings", help="the name of a model for vectors")
    parser.add_argument("--speech", nargs=2, metavar=("MODEL", "SOUND"), help="the name of a Whisper, and a WAV file")
    parser.add_argument("--fine-tune", metavar="DATA", help="conversations, one a line, for a server with --jobs")
    options = parser.parse_args()
    url = options.url.rstrip("/") + "/v1"
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
    names = [model.id for model in client.models.list()]
    others = [options.embeddings, *(options.speech or [])]
    model = next(name for name in names if name not in others)
    print("models:", names)
    check_sync(client, model, options.tokens)
    check_structure(client, model)
    check_errors(client, model)
    asyncio.run(check_async(url, model, options.tokens))
    if options.embeddings:
        answer = client.embeddings.create(model=options.embeddings, input=["A sentence.", "Another one."])
        print("embeddings:", [len(data.embedding) for data in answer.data])
        assert len(answer.data) == 2
    if options.speech:
        check_speech(client, *options.speech)
    if options.fine_tune:
        check_fine_tuning(client, model, options.fine_tune)


if __name__ == "__main__":
    main()
