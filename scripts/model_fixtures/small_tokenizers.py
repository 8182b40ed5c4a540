#!/usr/bin/env python3
"""Small tokenizers of each kind, by the package tokenizers: crates/models/tests/tokenizers, for the fuzzer of files.

    python3 -m venv .venv && .venv/bin/pip install tokenizers
    .venv/bin/python scripts/model_fixtures/small_tokenizers.py
"""
import pathlib

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "crates/models/tests/tokenizers"
TEXTS = ["the cat sat on the mat", "a naïve café, 12 times", "<s> hello hello world </s>", "the end of the world 2026"] * 4
SPECIAL = ["<unk>", "<s>", "</s>", "[CLS]", "[SEP]"]


def surrounded(begin, end):
    return processors.TemplateProcessing(single=f"{begin} $A {end}", pair=f"{begin} $A {end} $B:1 {end}:1",
                                         special_tokens=[(begin, SPECIAL.index(begin)), (end, SPECIAL.index(end))])


def save(name, tokenizer, trainer):
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.save(str(FOLDER / f"{name}.json"), pretty=False)


bytes_ = Tokenizer(models.BPE())
bytes_.normalizer = normalizers.NFC()
bytes_.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Split(
    Regex(r"'s| ?\p{L}+| ?\p{N}+|\s+(?!\S)|\s+"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
bytes_.decoder = decoders.ByteLevel()
bytes_.post_processor = processors.ByteLevel(trim_offsets=True)
save("byte_pairs", bytes_, trainers.BpeTrainer(vocab_size=90, special_tokens=SPECIAL, show_progress=False))

pieces = Tokenizer(models.WordPiece(unk_token="<unk>", max_input_chars_per_word=50))
pieces.normalizer = normalizers.BertNormalizer()
pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
pieces.decoder = decoders.WordPiece()
pieces.enable_padding(length=16)
pieces.enable_truncation(12)
save("word_pieces", pieces, trainers.WordPieceTrainer(vocab_size=70, special_tokens=SPECIAL, show_progress=False))

unigram = Tokenizer(models.Unigram())
unigram.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " "), normalizers.Lowercase()])
unigram.pre_tokenizer = pre_tokenizers.Metaspace()
unigram.decoder = decoders.Metaspace()
save("unigram", unigram, trainers.UnigramTrainer(vocab_size=60, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False))

words = Tokenizer(models.WordLevel(unk_token="<unk>"))
words.normalizer = normalizers.Sequence([normalizers.StripAccents(), normalizers.Strip(), normalizers.Prepend("_")])
words.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
words.decoder = decoders.Sequence([decoders.Replace("_", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
save("words", words, trainers.WordLevelTrainer(vocab_size=40, special_tokens=SPECIAL, show_progress=False))

# The part around a text names tokens, which exist only after training.
for name, begin, end in (("word_pieces", "[CLS]", "[SEP]"), ("unigram", "<s>", "</s>")):
    made = Tokenizer.from_file(str(FOLDER / f"{name}.json"))
    made.post_processor = surrounded(begin, end)
    made.save(str(FOLDER / f"{name}.json"), pretty=False)
