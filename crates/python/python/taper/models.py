"""``taper.models``: text by known models, and sentences as vectors, with the weights of their references.

``taper.models.load("SmolLM2-135M-Instruct").chat("Hello")`` takes a folder with ``config.json``,
``tokenizer.json`` and weights, or a GGUF file. No PyTorch and no transformers are needed.
"""

import queue
import threading

from . import _taper


class LanguageModel:
    """A decoder with its tokenizer."""

    def __init__(self, path, device=None):
        self._model = _taper._LanguageModel(path, device)

    def encode(self, text, special=True):
        """The tokens of a text; ``special`` adds those that begin a text."""
        return self._model.encode(text, special)

    def decode(self, tokens, skip_special=True):
        """The text of tokens."""
        return self._model.decode(list(tokens), skip_special)

    def generate(self, prompt, *, stop=(), **settings):
        """Continues a text, or a list of tokens, and gives the new text.

        ``max_new_tokens`` (256), ``temperature`` (0: the most likely token), ``top_k``, ``top_p``, ``min_p``,
        ``repetition_penalty`` and ``seed`` are as in transformers; ``stop`` has words at which the text ends.
        """
        return self._model.generate(self._tokens(prompt), settings, list(stop), lambda piece: True)

    def stream(self, prompt, *, stop=(), **settings):
        """As ``generate``: an iterator over the pieces of the text, as they come."""
        return self._stream(self._tokens(prompt), stop, settings)

    def chat(self, messages, **settings):
        """The answer to a conversation: one text, or a list of ``{"role": …, "content": …}``."""
        return self.generate(self._conversation(messages), **settings)

    def stream_chat(self, messages, **settings):
        """As ``chat``: an iterator over the pieces of the answer, as they come."""
        return self.stream(self._conversation(messages), **settings)

    def _conversation(self, messages):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        text = self._model.chat_text([(message["role"], message["content"]) for message in messages])
        return self._model.encode(text, False)

    def _tokens(self, prompt):
        return self.encode(prompt) if isinstance(prompt, str) else [int(token) for token in prompt]

    def _stream(self, tokens, stop, settings):
        pieces, ended = queue.SimpleQueue(), threading.Event()

        def on_text(piece):
            pieces.put((piece, None))
            return not ended.is_set()

        def work():
            try:
                self._model.generate(tokens, settings, list(stop), on_text)
                pieces.put((None, None))
            except BaseException as error:  # for the thread that reads
                pieces.put((None, error))

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        try:
            while True:
                piece, error = pieces.get()
                if error is not None:
                    raise error
                if piece is None:
                    return
                yield piece
        finally:
            ended.set()
            worker.join()


class SentenceModel:
    """Sentences as vectors, by a folder of a BERT, RoBERTa or DistilBERT such as ``all-MiniLM-L6-v2``."""

    def __init__(self, path, device=None):
        self._model = _taper._SentenceModel(path, device)

    def encode(self, sentences, *, batch_size=32, max_length=256):
        """Vectors of length 1, ``[N, features]``; for one text ``[features]``. Longer texts are cut to
        ``max_length`` tokens. The product of two vectors is their similarity."""
        from . import cat

        if isinstance(sentences, str):
            return self.encode([sentences], max_length=max_length)[0]
        sentences = list(sentences)
        if not sentences:
            raise ValueError("encode: there are no sentences")
        starts = range(0, len(sentences), batch_size)
        return cat([self._model.encode(sentences[at : at + batch_size], max_length) for at in starts])


def load(path, device=None):
    """A language model from a folder or a GGUF file."""
    return LanguageModel(path, device)
