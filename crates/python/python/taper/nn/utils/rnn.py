"""Sequences of different lengths."""

from ... import _taper


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    longest = max(sequence.shape[0] for sequence in sequences)
    rows = []
    for sequence in sequences:
        missing = longest - sequence.shape[0]
        sides = [0, missing] if padding_side == "right" else [missing, 0]
        pad = [0, 0] * (sequence.dim() - 1) + sides
        rows.append(_taper._pad(sequence, pad, "constant", float(padding_value)) if missing else sequence)
    return _taper.stack(rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences, lengths, batch_first=False):
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[: int(length)] for row, length in zip(rows, lengths)]
