#!/usr/bin/env python3
"""A small SentencePiece model of byte pairs in the metadata of a GGUF file, as llama.cpp's converter writes it, and the tokens and texts by
sentencepiece: crates/models/tests/fixtures/sentence_pieces.gguf and sentence_pieces.json.

    python3 -m venv .venv && .venv/bin/pip install sentencepiece==0.2.3 gguf==0.19.0
    .venv/bin/python scripts/model_fixtures/tokenizer.py
"""
import io
import json
import random
from pathlib import Path

import gguf
import sentencepiece

FIXTURES = Path(__file__).resolve().parent.parent.parent / "crates/models/tests/fixtures"

TEXT = """The harbour lay still under a thin grey light. A woman carried two baskets of bread along the quay, and a boy ran before her with a dog.
"Is the boat in?" she asked. "Not yet," said the boy, "but the wind has turned, and it will be here before the bells."
They waited. The water rose and fell against the stones; the ropes creaked; somewhere a door opened and closed again.
When the boat came at last, it carried salt, timber, twelve sheep and a letter with a blue seal. The woman read it twice.
She folded the paper, put it into the basket with the bread, and walked back along the quay without a word.
The boy counted the sheep: ten, eleven, twelve. He wrote 12 on a board, then 1847, the year, and the names of the men.
    In the evening the harbour was empty again.    Only the dog stayed, and listened to the water.
"""

# Texts whose characters the model has not seen, and spaces where they are easily lost.
TEXTS = [
    "the boat", "The woman read the letter.", "  two  spaces   and three ", "", " ", "\n", "a\nb\n\n c", "tab\there", "1847 and 12",
    "né, naïve, straße", "北京 and 東京", "🐕 the dog 🐕‍🦺", "zzzzzzz", "aaaa bbbb", "bread.bread.bread", "x = {y: [1, 2]}", "<s> and </s> are words",
    "<0x41> is a word", "▁ is written", "THE HARBOUR",
]


def texts_of_pieces(model, count):
    """Texts of random pieces of the vocabulary, which may be joined in several ways."""
    draw = random.Random(0)
    pieces = [model.id_to_piece(k) for k in range(259, model.vocab_size())]
    return ["".join(draw.choice(pieces) for _ in range(draw.randint(2, 9))).replace("▁", " ") for _ in range(count)]


def train():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT.splitlines()), model_writer=model, model_type="bpe", vocab_size=460, byte_fallback=True, split_digits=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, allow_whitespace_only_pieces=True, character_coverage=1.0, minloglevel=2)
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def write(model, path):
    kinds = gguf.TokenType
    tokens, scores, types = [], [], []
    for k in range(model.vocab_size()):
        tokens.append(model.id_to_piece(k).encode())
        scores.append(model.get_score(k))
        kind = kinds.UNKNOWN if model.is_unknown(k) else kinds.CONTROL if model.is_control(k) else kinds.BYTE if model.is_byte(k) else kinds.NORMAL
        types.append(kind)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(types)
    writer.add_bos_token_id(model.bos_id())
    writer.add_eos_token_id(model.eos_id())
    writer.add_unk_token_id(model.unk_id())
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


if __name__ == "__main__":
    model = train()
    write(model, FIXTURES / "sentence_pieces.gguf")
    asked = TEXTS + texts_of_pieces(model, 300)
    cases = [{"text": text, "ids": model.encode(text), "decoded": model.decode(model.encode(text))} for text in asked]
    # Bytes that are no text, or only in part.
    byte = lambda *values: [model.piece_to_id(f"<0x{value:02X}>") for value in values]
    the = model.encode("the")
    torn = [the + byte(0xE5, 0x8C) + the, byte(0xFF) + the, byte(0xE5, 0x8C, 0x97, 0xE4) + the, byte(0x41, 0xC3, 0xA9, 0x80, 0xC3, 0xA9), byte(0xF0, 0x9F)]
    decoded = [{"ids": ids, "decoded": model.decode(ids)} for ids in torn]
    (FIXTURES / "sentence_pieces.json").write_text(json.dumps({"cases": cases, "torn": decoded}, ensure_ascii=False, separators=(",", ":")) + "\n")
    for name in ("sentence_pieces.gguf", "sentence_pieces.json"):
        print(name, (FIXTURES / name).stat().st_size, "bytes")
