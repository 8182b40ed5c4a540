"""Values and derivatives of activation and other functions in 50 digits, by mpmath, over the range of f32 and f64: writes
crates/taper/tests/fixtures/tails.json, which crates/taper/tests/it/numbers/tails.rs reads. Run with no arguments.

A row has x, the value, and for the first and second derivative each: its value and its greatest term. All are strings, as parsers of
JSON may round numbers twice."""

import json
import pathlib

import mpmath as mp
import numpy as np

mp.mp.dps = 50
TABLE = pathlib.Path(__file__).parent.parent / "crates/taper/tests/fixtures/tails.json"

# Few bits, which halves have, too; then all bits of f32; then all of f64.
SHORT = [2.0**-24, 2.0**-12, 0.0078125, 0.125, 0.4375, 0.75, 1.0, 1.5, 1.96875, 2.5, 3.25, 5.5, 8.0, 9.5, 12.5, 15.0, 37.0, 80.0]
SINGLE = [1e-8, 0.0123456, 0.3141592, 0.7654321, 1.2345678, 1.5707963, 2.7182818, 3.7654321, 5.4321098, 7.1234567, 9.0987654, 11.234567, 12.7654321, 30.123456]
DOUBLE = [1e-12, 0.1234567890123, 0.9876543210987, 2.345678901234, 5.432109876543, 13.456789012345, 20.12345678901, 30.98765432109, 36.98765432109]
POSITIVE = SHORT + [float(np.float32(x)) for x in SINGLE] + DOUBLE
EVERYWHERE = [s * x for x in POSITIVE for s in (-1, 1)]
INSIDE = [2.0**-24, 0.0078125, 0.125, 0.3125, 0.4375, 0.498046875, 0.5009765625, 0.53125, 0.625, 0.75, 0.9375, 0.99609375]
INSIDE += [float(np.float32(x)) for x in (1e-20, 0.0123456, 0.299999, 0.300001, 0.4999999, 0.5000001, 0.500123, 0.69999, 0.70001, 0.9876543)]
INSIDE += [0.1234567890123, 0.4999999999, 0.50000000012, 0.51234567890123]

one, two = mp.mpf(1), mp.mpf(2)


def s(x):
    """The logistic function without loss on either side."""
    return 1 / (1 + mp.exp(-x)) if x >= 0 else mp.exp(x) / (1 + mp.exp(x))


def phi(x):
    return mp.npdf(x)


def tail(x):
    return mp.erfc(-x / mp.sqrt(2)) / 2


def sech2(x):
    return 1 / mp.cosh(x) ** 2


def softplus(x):
    return mp.log1p(mp.exp(x))


def gelu_tanh(x):
    c, k = mp.sqrt(8 / mp.pi), mp.mpf("0.044715")
    z, d, dd = c * (x + k * x**3), c * (1 + 3 * k * x**2), c * 6 * k * x
    slope = s(z) * s(-z)
    return x * s(z), [s(z), x * slope * d], [2 * slope * d, x * slope * (s(-z) - s(z)) * d**2, x * slope * dd]


def mish(x):
    t, q, g, h = mp.tanh(softplus(x)), sech2(softplus(x)), s(x), s(-x)
    return x * t, [t, x * q * g], [2 * q * g, x * q * g * h, -2 * x * t * q * g * g]


def silu(x):
    g, h = s(x), s(-x)
    return x * g, [g, x * g * h], [2 * g * h, x * g * h * h, -x * g * g * h]


def elu(alpha, rate, scale=one):
    """scale·x above 0, scale·alpha·(e^(rate·x) − 1) below."""

    def of(x):
        if x > 0:
            return scale * x, [scale], [mp.mpf(0)]
        e = mp.exp(rate * x)
        return scale * alpha * mp.expm1(rate * x), [scale * alpha * rate * e], [scale * alpha * rate**2 * e]

    return of


root_pi = 2 / mp.sqrt(mp.pi)
ALPHA, SCALE = mp.mpf("1.6732632423543772848170429916717"), mp.mpf("1.0507009873554804934193349852946")
FUNCTIONS = {
    "gelu": lambda x: (x * tail(x), [tail(x), x * phi(x)], [2 * phi(x), -x * x * phi(x)]),
    "gelu_tanh": gelu_tanh,
    "tanhshrink": lambda x: (x - mp.tanh(x), [mp.tanh(x) ** 2], [2 * mp.tanh(x) * sech2(x)]),
    "softsign": lambda x: (x / (1 + abs(x)), [1 / (1 + abs(x)) ** 2], [-2 * mp.sign(x) / (1 + abs(x)) ** 3]),
    "softplus": lambda x: (softplus(x), [s(x)], [s(x) * s(-x)]),
    "logsigmoid": lambda x: (-softplus(-x), [s(-x)], [-s(x) * s(-x)]),
    "silu": silu,
    "mish": mish,
    "elu": elu(one, one),
    "celu": elu(one / 2, two),
    "selu": elu(ALPHA, one, SCALE),
    "sigmoid": lambda x: (s(x), [s(x) * s(-x)], [s(x) * s(-x) ** 2, -s(x) ** 2 * s(-x)]),
    "tanh": lambda x: (mp.tanh(x), [sech2(x)], [8 * s(2 * x) * s(-2 * x) ** 2, -8 * s(2 * x) ** 2 * s(-2 * x)]),
    "expm1": lambda x: (mp.expm1(x), [mp.exp(x)], [mp.exp(x)]),
    "erf": lambda x: (mp.erf(x), [root_pi * mp.exp(-x * x)], [-2 * x * root_pi * mp.exp(-x * x)]),
    "erfc": lambda x: (mp.erfc(x), [-root_pi * mp.exp(-x * x)], [2 * x * root_pi * mp.exp(-x * x)]),
    "ndtr": lambda x: (tail(x), [phi(x)], [-x * phi(x)]),
    "gaussian": lambda x: (mp.exp(-x * x / 2), [-x * mp.exp(-x * x / 2)], [x * x * mp.exp(-x * x / 2), -mp.exp(-x * x / 2)]),
    "logit": lambda x: (mp.log(x / (1 - x)), [1 / (x * (1 - x))], [1 / (1 - x) ** 2, -1 / x**2]),
}


def row(f, x):
    value, *derivatives = f(mp.mpf(x))
    numbers = [mp.mpf(x), value]
    for terms in derivatives:
        numbers += [mp.fsum(terms), max(abs(t) for t in terms)]
    return [mp.nstr(+n, 18) for i, n in enumerate(numbers)]


table = {name: [row(f, x) for x in (INSIDE if name == "logit" else EVERYWHERE)] for name, f in FUNCTIONS.items()}
lines = ",\n".join(json.dumps(name) + ": [\n" + ",\n".join(json.dumps(r) for r in rows) + "]" for name, rows in table.items())
TABLE.write_text("{\n" + lines + "\n}\n")
