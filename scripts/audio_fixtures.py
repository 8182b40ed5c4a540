#!/usr/bin/env python3
"""Numbers from torchaudio and from Whisper's feature extractor for the tests of data::audio:
crates/data/tests/fixtures/audio.json.

    python3 -m venv .venv && .venv/bin/pip install numpy torch torchaudio transformers
    .venv/bin/python scripts/audio_fixtures.py

The file is checked in, so the tests need no Python. Signals are made by the same formula in the test: sample k is
0.5 sin(0.05 k + 0.0001 k^2) + 0.25 cos(0.9 k), in float64, rounded to float32. Large results are given at some
positions only, "at", in the flattened result.
"""
import json
import sys
from pathlib import Path

import numpy as np
import torch

# torchaudio's wheel and torch's may be built for other versions of CUDA, which nothing here uses.
torch.version.cuda = None
import torchaudio
import torchaudio.functional as F
import torchaudio.transforms as T
from transformers import WhisperFeatureExtractor

FIXTURES = Path(__file__).resolve().parent.parent / "crates/data/tests/fixtures"


def signal(count):
    k = np.arange(count, dtype=np.float64)
    return torch.from_numpy((0.5 * np.sin(0.05 * k + 0.0001 * k * k) + 0.25 * np.cos(0.9 * k)).astype(np.float32))


def result(x, most=60):
    """The shape, and the elements or `most` of them."""
    flat = x.reshape(-1)
    at = range(flat.numel()) if flat.numel() <= most else np.linspace(0, flat.numel() - 1, most).astype(int)
    return {"shape": list(x.shape), "at": [int(i) for i in at], "data": [float(str(np.float32(flat[i]))) for i in at]}


def resampled():
    """In float64: torchaudio makes the filter for float32 signals in float32, with errors of 2e-5."""
    cases = [(44100, 16000, 500, {}), (16000, 22050, 300, {}), (8000, 16000, 64, {}), (48000, 44100, 400, {"lowpass_filter_width": 16, "rolloff": 0.95}),
             (44100, 22050, 301, {"resampling_method": "sinc_interp_kaiser", "lowpass_filter_width": 64, "rolloff": 0.9475937167399596, "beta": 14.769656459379492})]
    for old, new, count, options in cases:
        yield {"from": old, "to": new, "count": count, **options, **result(F.resample(signal(count).double(), old, new, **options))}


def banks():
    for n_fft, rate, f_min, f_max, n_mels, scale, norm in [
        (400, 16000, 0.0, None, 80, "slaney", "slaney"), (2048, 22050, 30.0, 8000.0, 64, "htk", None), (512, 11025, 0.0, None, 40, "htk", "slaney"),
    ]:
        bank = F.melscale_fbanks(n_fft // 2 + 1, f_min, f_max or rate / 2, n_mels, rate, norm, scale)
        at = bank.reshape(-1).nonzero().reshape(-1)
        at = at[:: max(1, len(at) // 60)].tolist() + [0, bank.numel() - 1]
        yield {"n_fft": n_fft, "rate": rate, "f_min": f_min, "f_max": f_max, "n_mels": n_mels, "scale": scale, "norm": norm,
               "shape": list(bank.shape), "at": at, "data": [float(str(np.float32(bank.reshape(-1)[i]))) for i in at]}


def spectrograms():
    for rate, count, options in [(16000, 3200, {"n_mels": 20}), (22050, 5000, {"n_fft": 512, "win_length": 300, "hop_length": 128, "n_mels": 32, "f_min": 40.0, "power": 1.0,
                                                                         "mel_scale": "slaney", "norm": "slaney"})]:
        yield {"rate": rate, "count": count, **options, **result(T.MelSpectrogram(rate, **options)(signal(count)))}


def whisper():
    for n_mels, count in [(80, 16000), (128, 8000)]:
        extractor = WhisperFeatureExtractor(feature_size=n_mels)
        x = signal(count).numpy()
        padded = extractor(x, sampling_rate=16000, padding="do_not_pad", return_tensors="np").input_features[0]
        yield {"n_mels": n_mels, "count": count, **result(torch.from_numpy(padded))}


def main():
    cases = {"resample": list(resampled()), "mel_filterbank": list(banks()), "mel_spectrogram": list(spectrograms()), "whisper": list(whisper())}
    FIXTURES.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f'"{name}": [\n' + ",\n".join(json.dumps(case, separators=(",", ":"), allow_nan=False) for case in list_) + "\n]" for name, list_ in cases.items())
    path = FIXTURES / "audio.json"
    path.write_text(f'{{"torchaudio": "{torchaudio.__version__.split("+")[0]}",\n{lines}\n}}\n')
    print(f"{path}: {path.stat().st_size} bytes", file=sys.stderr)


main()
