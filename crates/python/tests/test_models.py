"""Text by a small model of the examples, and vectors of sentences by a model with random weights."""

import json
from pathlib import Path

import pytest
import taper
from taper import models

EXAMPLES = Path(__file__).parents[3] / "examples"
TINY = EXAMPLES / "browser/page/tiny.gguf"


@pytest.fixture(scope="module")
def model():
    return models.load(TINY)


def test_tokens_are_those_of_the_text(model):
    tokens = model.encode("Taper and ü")
    assert model.decode(tokens) == "Taper and ü"


def test_a_text_comes_whole_or_in_pieces(model):
    whole = model.generate("A tensor", max_new_tokens=24)
    assert whole and whole == model.generate(model.encode("A tensor"), max_new_tokens=24)
    assert "".join(model.stream("A tensor", max_new_tokens=24)) == whole
    pieces = model.stream("A tensor", max_new_tokens=24)
    first = next(pieces)
    pieces.close()
    assert whole.startswith(first)
    letter = whole[3]
    assert model.generate("A tensor", max_new_tokens=24, stop=[letter]) == whole[: whole.index(letter)]


def test_a_seed_repeats_a_drawn_text(model):
    drawn = [model.generate("A", max_new_tokens=16, temperature=1.5, seed=seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_conversation_is_answered(model):
    answer = model.chat("What is a tensor?", max_new_tokens=12)
    messages = [{"role": "user", "content": "What is a tensor?"}]
    assert answer == model.chat(messages, max_new_tokens=12)
    assert answer == "".join(model.stream_chat(messages, max_new_tokens=12))


def test_bad_settings_and_files_are_errors(model, tmp_path):
    with pytest.raises(ValueError, match='no setting "temprature"'):
        model.generate("A", temprature=1)
    with pytest.raises(RuntimeError, match="temperature"):
        model.generate("A", temperature=-1.0)
    with pytest.raises(RuntimeError, match="temperature"):
        next(model.stream("A", temperature=-1.0))
    with pytest.raises(RuntimeError, match="100000"):
        model.generate([100000])
    with pytest.raises(OSError):
        models.load(tmp_path / "none.gguf")


def sentence_model(folder):
    """A BERT of two layers with random weights, and the tokenizer of the examples."""
    size, inner, layers = 16, 32, 2
    config = {
        "model_type": "bert", "vocab_size": 300, "hidden_size": size, "num_hidden_layers": layers,
        "num_attention_heads": 2, "intermediate_size": inner, "max_position_embeddings": 64,
        "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
    }
    state = {}

    def linear(name, to, of):
        state[f"{name}.weight"], state[f"{name}.bias"] = taper.randn(to, of) * 0.3, taper.zeros(to)

    def norm(name):
        state[f"{name}.weight"], state[f"{name}.bias"] = taper.ones(size), taper.zeros(size)

    for name, count in [("word", 300), ("position", 64), ("token_type", 2)]:
        state[f"embeddings.{name}_embeddings.weight"] = taper.randn(count, size)
    norm("embeddings.LayerNorm")
    for at in range(layers):
        layer = f"encoder.layer.{at}"
        for part in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{part}", size, size)
        linear(f"{layer}.attention.output.dense", size, size)
        norm(f"{layer}.attention.output.LayerNorm")
        linear(f"{layer}.intermediate.dense", inner, size)
        linear(f"{layer}.output.dense", size, inner)
        norm(f"{layer}.output.LayerNorm")
    linear("pooler.dense", size, size)
    (folder / "config.json").write_text(json.dumps(config))
    taper.safetensors.save_file(state, folder / "model.safetensors")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((EXAMPLES / "language/tiny" / name).read_bytes())
    return models.SentenceModel(folder)


def test_sentences_are_vectors_of_length_1(tmp_path):
    model = sentence_model(tmp_path)
    sentences = ["A man eats.", "The gradient of a sum, and more words than the others.", "A man eats."]
    vectors = model.encode(sentences, batch_size=2)
    assert vectors.shape == (3, 16)
    taper.testing.assert_close(vectors.norm(dim=1), taper.ones(3))
    # Equal sentences have equal vectors, in whichever batch.
    taper.testing.assert_close(vectors[0], vectors[2])
    taper.testing.assert_close(model.encode("A man eats."), vectors[0])
    assert (vectors[0] @ vectors[1]).item() < 0.999
    with pytest.raises(ValueError, match="no sentences"):
        model.encode([])
