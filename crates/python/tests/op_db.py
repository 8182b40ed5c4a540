"""Judges taper by PyTorch's own table of operations.

The table `op_db` of PyTorch's tests has, for every operation, samples of arguments, dtypes, tolerances and calls that
must fail. This program calls taper's function of the same name with the same arguments and compares sizes, dtypes,
values, gradients and the types of exceptions. It is not collected by pytest, since it needs PyTorch 2.15, numpy and
the package `expecttest`, which PyTorch's tests import:

    PYTHONPATH=python TAPER_THREADS=1 python tests/op_db.py --limit 20 --out table.md

Every operation runs in a process of its own, so that a crash or an endless loop costs one sample.
"""

import argparse
import collections
import json
import os
import select
import signal
import sys
import time
import types
import warnings

warnings.filterwarnings("ignore")

import taper
import torch
from torch.testing._internal import common_device_type, common_methods_invocations
from torch.testing._internal.opinfo.core import DecorateInfo

DTYPES = {"float32": torch.float32, "int64": torch.int64, "float64": torch.float64, "bool": torch.bool}

#: Operations whose numbers are drawn, or which leave memory as it was: only sizes and dtypes are compared.
RANDOM = set(
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided resize_ resize_as_ cauchy exponential "
    "geometric log_normal uniform normal bernoulli multinomial randn rand randint randn_like rand_like randint_like "
    "poisson nn.functional.dropout nn.functional.dropout1d nn.functional.dropout2d nn.functional.dropout3d "
    "nn.functional.alpha_dropout nn.functional.feature_alpha_dropout nn.functional.rrelu svd_lowrank pca_lowrank "
    "nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d nn.functional.gumbel_softmax".split()
)

#: Factorizations that are unique only up to signs or phases: what the table makes of the factors is compared.
GAUGES = ("svd", "eigh", "eig", "qr", "geqrf", "householder", "lstsq", "lobpcg", "lu", "ldl")


#: Operations that name one of equal elements, which one is not defined.
TIES = ("kthvalue", "topk", "mode", "median", "nanmedian", "argsort", "sort", "argmax", "argmin")


#: Operations whose gradient in PyTorch is not the derivative of what they compute: elements that are not read
#: have one (of triangular factors and strided parts), or the input is taken for the result of `log_softmax`.
NOT_DERIVATIVES = ("cholesky_inverse", "cholesky_solve", "as_strided_scatter", "nn.functional.ctc_loss")


class LeftOut(Exception):
    """A sample that taper has no counterpart for, with the reason."""


# From PyTorch to taper and back

def to_taper(value, memo, taper):
    """The same value with taper's tensors, dtypes and devices."""
    kinds = {
        torch.strided: "strided", torch.contiguous_format: "contiguous_format",
        torch.preserve_format: "preserve_format",
    }
    if isinstance(value, torch.Tensor):
        if id(value) not in memo:
            memo[id(value)] = (value, tensor_to_taper(value, taper))
        return memo[id(value)][1]
    if isinstance(value, torch.dtype):
        name = str(value).removeprefix("torch.")
        if value.is_complex or not hasattr(taper, name):
            raise LeftOut("complex" if value.is_complex else f"dtype {name}")
        return getattr(taper, name)
    if isinstance(value, torch.device):
        return taper.device("cpu")
    if isinstance(value, torch.layout | torch.memory_format):
        if value not in kinds:
            raise LeftOut("channels_last" if isinstance(value, torch.memory_format) else "sparse")
        return getattr(taper, kinds[value])
    if isinstance(value, torch.nn.Module) and not list(value.parameters()):
        kind = getattr(taper.nn, type(value).__name__, None)
        if kind is None:
            raise LeftOut("a module of PyTorch")
        return kind()
    if isinstance(value, types.FunctionType) or type(value).__name__.endswith("Options"):
        raise LeftOut("a function of PyTorch" if callable(value) else "options of PyTorch")
    if isinstance(value, torch.Generator):
        return taper.Generator()
    if isinstance(value, torch.Size):
        return tuple(value)
    if isinstance(value, complex):
        raise LeftOut("complex")
    if isinstance(value, dict):
        return {key: to_taper(one, memo, taper) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([to_taper(one, memo, taper) for one in value])
    if isinstance(value, slice):
        return slice(*(to_taper(one, memo, taper) for one in (value.start, value.stop, value.step)))
    return value


def tensor_to_taper(value, taper):
    if value.is_nested:
        raise LeftOut("nested")
    if value.layout != torch.strided:
        raise LeftOut("sparse")
    if value.is_quantized:
        raise LeftOut("quantized")
    if value.is_complex():
        raise LeftOut("complex")
    if value.device.type != "cpu":
        raise LeftOut(f"device {value.device.type}")
    if value.dim() > 3 and value.numel() and not value.is_contiguous() and (
        value.is_contiguous(memory_format=torch.channels_last) if value.dim() == 4
        else value.dim() == 5 and value.is_contiguous(memory_format=torch.channels_last_3d)
    ):
        raise LeftOut("channels_last")
    if value.dim() > 32:
        raise LeftOut("more axes than numpy has")
    plain = value.detach().resolve_neg()
    name = str(value.dtype).removeprefix("torch.")
    if not hasattr(taper, name):
        raise LeftOut(f"dtype {name}")
    if name == "bfloat16":
        made = taper.from_numpy(plain.float().numpy()).to(taper.bfloat16)
    else:
        made = taper.from_numpy(plain.numpy())
    return made.requires_grad_() if value.requires_grad else made


def to_torch(value):
    value = value.detach()
    if str(value.dtype) == "torch.bfloat16":
        return torch.from_numpy(value.float().numpy()).bfloat16()
    return torch.from_numpy(value.numpy())


# Taper's functions

def substituted(function, taper):
    """A function of PyTorch's tests, with taper in the place of torch."""
    def plain(op, *args, **kwargs):
        return op(*args, **kwargs)

    names = {**function.__globals__, "torch": taper, "wrapper_set_seed": plain}
    def inside(cell):
        held = cell.cell_contents
        own = named(getattr(held, "__name__", ""), taper) if callable(held) else None
        return types.CellType(own or held)

    cells = function.__closure__ and tuple(inside(cell) for cell in function.__closure__)
    made = types.FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def named(path, taper):
    """The function or method with a name of PyTorch, or None."""
    found = taper
    for part in path.split("."):
        found = getattr(found, part, None)
        if found is None:
            break
    if callable(found) and not (isinstance(found, type) and "." not in path):
        return found
    return getattr(taper.Tensor, path, None)


def function_of(op, taper):
    """Taper's function for an operation, or None."""
    if op.name in ("svd_lowrank", "pca_lowrank") and named(op.name, taper) is None:
        return None
    own = getattr(op.op, "__code__", None) and (op.op.__module__ or "").startswith("torch.testing")
    if own:
        names = op.op.__code__.co_names
        path = [*names[names.index("torch") + 1 :]] if "torch" in names else []
        found = taper
        for part in path if op.name not in ("resize_as_", "zero_", "linalg.pinv") else ():
            found = getattr(found, part, None)
        if path and found is None:
            return None
        if not path and "wrapper_set_seed" not in names and op.name.replace(".", "").isidentifier() and not hasattr(taper.Tensor, op.name):
            return None
        return substituted(op.op, taper)
    for name in (op.name, *(alias.name for alias in op.aliases)):
        if (found := named(name, taper)) is not None:
            return found
    return None


# Comparison

def leaves(value):
    """The differentiable tensors of arguments, in their order."""
    if hasattr(value, "requires_grad"):
        return [value] if value.requires_grad else []
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for one in value for leaf in leaves(one)] if isinstance(value, (list, tuple)) else []


def tensors(value):
    if isinstance(value, (list, tuple)):
        return [one for part in value for one in tensors(part)]
    return [value] if hasattr(value, "requires_grad") else []


def refuse(expected):
    """Leaves out results that taper has no tensors for."""
    for one in tensors(expected):
        if one.is_complex() or one.is_quantized or one.layout != torch.strided:
            raise LeftOut("complex" if one.is_complex() else "quantized" if one.is_quantized else "sparse")


def same_elements(actual, expected, input):
    """Whether indices that differ are those of equal elements."""
    for dim in range(-1, -input.dim() - 1, -1):
        for one in (lambda x: x, lambda x: x.unsqueeze(dim)):
            try:
                if torch.equal(input.gather(dim, one(actual)), input.gather(dim, one(expected))):
                    return True
            except (RuntimeError, IndexError):
                pass
    return False


def compare(actual, expected, tolerances, values=True, where="result"):
    """Raises AssertionError where two results differ."""
    if isinstance(expected, torch.Tensor):
        if expected.is_complex():
            raise LeftOut("complex")
        if expected.layout != torch.strided:
            raise LeftOut("sparse")
        if expected.is_quantized:
            raise LeftOut("quantized")
        assert hasattr(actual, "requires_grad"), f"{where}: {type(actual).__name__} in place of a tensor"
        own, other = (str(one.dtype).removeprefix("torch.") for one in (actual, expected))
        assert own == other, f"{where}: dtype {own} in place of {other}"
        sizes = tuple(actual.shape)
        assert sizes == tuple(expected.shape), f"{where}: sizes {sizes} in place of {tuple(expected.shape)}"
        found = to_torch(actual)
        if values:
            rtol, atol = tolerances.get(expected.dtype, (None, None))
            # PyTorch's message has several lines; the number of differences and the greatest one count.
            torch.testing.assert_close(
                found, expected.detach().resolve_neg(), rtol=rtol, atol=atol, equal_nan=True, check_stride=False,
                msg=lambda text: f"{where}: " + " ".join(text.split()),
            )
    elif isinstance(expected, (list, tuple)):
        kind = "tuple" if isinstance(expected, tuple) else "list"
        assert isinstance(actual, tuple if kind == "tuple" else list), (
            f"{where}: {type(actual).__name__} in place of a {kind}"
        )
        assert len(actual) == len(expected), f"{where}: {len(actual)} parts in place of {len(expected)}"
        for at, (one, other) in enumerate(zip(actual, expected)):
            compare(one, other, tolerances, values, f"{where} {at}")
    elif isinstance(expected, complex):
        raise LeftOut("complex")
    elif isinstance(expected, float):
        assert isinstance(actual, float), f"{where}: {type(actual).__name__} in place of float"
        if values:
            torch.testing.assert_close(actual, expected, equal_nan=True)
    elif isinstance(expected, torch.dtype):
        assert str(actual) == str(expected), f"{where}: {actual} in place of {expected}"
    elif isinstance(expected, torch.layout | torch.device):
        pass
    else:
        assert type(actual) is type(expected), (
            f"{where}: {type(actual).__name__} in place of {type(expected).__name__}"
        )
        assert not values or actual == expected, f"{where}: {actual!r} in place of {expected!r}"


def tolerances_of(op):
    """The greatest tolerances that the table has for an operation on processors, by dtype."""
    found = {torch.float32: (1e-5, 1e-5), torch.float64: (1e-7, 1e-7)}
    for decorator in op.decorators:
        if not isinstance(decorator, DecorateInfo) or decorator.device_type not in (None, "cpu"):
            continue
        for one in decorator.decorators:
            if isinstance(one, common_device_type.toleranceOverride):
                for dtype, given in one.d.items():
                    rtol, atol = found.get(dtype, (0.0, 0.0))
                    found[dtype] = (max(rtol, given.rtol or 0.0), max(atol, given.atol or 0.0))
    return found


def is_random(op, sample):
    if op.name == "nn.functional.multi_head_attention_forward":
        return bool(sample.args[9]) and sample.kwargs.get("training", True)
    return op.name in RANDOM or bool(sample.kwargs.get("dropout_p"))


def gradients(outputs, inputs, engine, cotangents):
    """The gradients of the sum of the products of outputs and cotangents; None where there is none."""
    total = None
    for output, cotangent in zip(outputs, cotangents):
        if output.requires_grad:
            term = (output * cotangent).sum()
            total = term if total is None else total + term.to(total.dtype)
    return None if total is None else engine.autograd.grad(total, inputs, allow_unused=True)


def check_sample(op, function, sample, taper):
    """Raises AssertionError where taper differs from PyTorch, and LeftOut where it cannot be compared."""
    memo = {}
    strided = op.name.startswith("as_strided") and isinstance(sample.input, torch.Tensor)
    if strided and (not sample.input.is_contiguous() or sample.input.storage_offset()):
        raise LeftOut("strides of a view")
    given = to_taper((sample.input, tuple(sample.args), dict(sample.kwargs)), memo, taper)
    inputs = leaves((sample.input, tuple(sample.args), sample.kwargs))
    own_inputs = leaves(given)
    if sample.broadcasts_input and op.name.endswith("_"):
        raise LeftOut("broadcast in place")
    try:
        expected = op(sample.input, *sample.args, **sample.kwargs)
    except Exception as error:
        raise LeftOut(f"PyTorch raises {type(error).__name__}") from None
    refuse(expected)
    actual = function(given[0], *given[1], **given[2])
    if isinstance(actual, types.GeneratorType):
        actual = tuple(actual)
    values, tolerances = not is_random(op, sample), tolerances_of(op)
    processed = sample.output_process_fn_grad
    plain = processed.__code__.co_code == (lambda x: x).__code__.co_code if hasattr(processed, "__code__") else False
    if not plain and any(gauge in op.name for gauge in GAUGES):
        compare(actual, expected, tolerances, False)
        expected, actual = processed(expected), substituted(processed, taper)(actual)
    elif not plain and values and op.supports_autograd:
        compare(actual, expected, tolerances, values)
        expected, actual = processed(expected), substituted(processed, taper)(actual)
    tied = op.name in TIES and isinstance(expected, (tuple, torch.Tensor)) and isinstance(sample.input, torch.Tensor)
    if tied:
        # Any of several equal elements may be named.
        indices, own = (one[1] if isinstance(one, tuple) else one for one in (expected, actual))
        if to_torch(own).shape == indices.shape and same_elements(to_torch(own), indices, sample.input.detach()):
            values_differ = False
            compare(actual, expected, tolerances, False)
            if isinstance(expected, tuple):
                compare(actual[0], expected[0], tolerances)
        else:
            values_differ = True
    if not tied or values_differ:
        compare(actual, expected, tolerances, values)
    if not values or not op.supports_autograd or not inputs or op.name in NOT_DERIVATIVES:
        return
    outputs, own_outputs = tensors(expected), tensors(actual)
    generator = torch.Generator().manual_seed(7)
    cotangents = [torch.randn(one.shape, generator=generator, dtype=torch.float64).to(one.dtype) for one in outputs]
    try:
        wanted = gradients(outputs, inputs, torch, cotangents)
    except Exception:
        return
    for at, (one, other) in enumerate(zip(own_outputs, outputs)):
        assert one.requires_grad == other.requires_grad or not other.numel(), (
            f"output {at}: requires_grad is {one.requires_grad} in place of {other.requires_grad}"
        )
    if wanted is None:
        return
    found = gradients(own_outputs, own_inputs, taper, [tensor_to_taper(one, taper) for one in cotangents])
    found = [None] * len(wanted) if found is None else found
    looser = {dtype: (rtol * 10, atol * 10) for dtype, (rtol, atol) in tolerances.items()}
    for at, (one, other, input) in enumerate(zip(found, wanted, inputs)):
        if other is None:
            other = torch.zeros_like(input)
        if one is None:
            one = taper.zeros(tuple(input.shape), dtype=to_taper(input.dtype, {}, taper))
        compare(one, other, looser, where=f"gradient {at}")


def check_error(op, function, case, taper):
    """Raises AssertionError if taper accepts what PyTorch refuses, or raises another type of exception."""
    sample = case.sample_input
    given = to_taper((sample.input, tuple(sample.args), dict(sample.kwargs)), {}, taper)
    try:
        op(sample.input, *sample.args, **sample.kwargs)
    except case.error_type:
        pass
    except Exception as error:
        raise LeftOut(f"PyTorch raises {type(error).__name__}") from None
    else:
        raise LeftOut("PyTorch raises nothing")
    try:
        result = function(given[0], *given[1], **given[2])
        for one in tensors(result):
            one.detach().numpy()
    except case.error_type:
        return
    except Exception as error:
        raise AssertionError(
            f"error: {type(error).__name__} in place of {case.error_type.__name__}: {error}"
        ) from None
    raise AssertionError(f"error: nothing is raised; PyTorch: {case.error_regex}")


# One operation in a process of its own

def phases(op, dtypes):
    """The parts of the work: samples by dtype where the operation has it, then the calls that must fail."""
    supported = op.supported_dtypes("cpu")
    for name in dtypes:
        if DTYPES[name] in supported:
            yield name
    if op.error_inputs_func is not None:
        yield "errors"


def samples_of(op, phase):
    torch.manual_seed(0)
    if phase == "errors":
        return op.error_inputs("cpu")
    dtype = DTYPES[phase]
    differentiable = op.supports_autograd and dtype.is_floating_point
    return op.sample_inputs("cpu", dtype, requires_grad=differentiable)


def described(sample, depth=0):
    """The arguments of a sample in short."""
    if isinstance(sample, torch.Tensor):
        return f"{str(sample.dtype).removeprefix('torch.')}{list(sample.shape)}"
    if isinstance(sample, (list, tuple)):
        return "(" + ", ".join(described(one) for one in sample[:6]) + ")"
    if isinstance(sample, dict):
        return ", ".join(f"{key}={described(one)}" for key, one in sample.items())
    return repr(sample)[:60]


def work(op, dtypes, limit, start, report):
    """Runs the samples from `start` on and reports on each."""
    function = function_of(op, taper)
    if function is None:
        return report(["missing"])
    for phase in phases(op, dtypes):
        try:
            samples = iter(samples_of(op, phase))
        except Exception as error:
            report([phase, -1, "left out", f"no samples: {error}"[:200]])
            continue
        at = -1
        while limit is None or at + 1 < limit:
            at += 1
            try:
                sample = next(samples)
            except StopIteration:
                break
            except Exception as error:
                report([phase, at, "left out", f"no samples: {error}"[:200]])
                break
            if start is not None:
                if [phase, at] == start:
                    start = None
                continue
            report([phase, at, "begun", ""])
            check = check_error if phase == "errors" else check_sample
            shown = sample.sample_input if phase == "errors" else sample
            text = f"{described(shown.input)}, {described(shown.args)[1:-1]}, {described(shown.kwargs)}".strip(", ")
            try:
                check(op, function, sample, taper)
                report([phase, at, "passed", ""])
            except LeftOut as reason:
                report([phase, at, "left out", str(reason)])
            except AssertionError as difference:
                report([phase, at, "failed", f"{difference} <- {text}"[:700]])
            except BaseException as error:
                report([phase, at, "failed", f"{type(error).__name__}: {error} <- {text}"[:700]])
    return None


def judged(op, dtypes, limit, seconds):
    """The reports on all samples of an operation."""
    reports, start = [], None
    while True:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            out = os.fdopen(writing, "w", buffering=1)
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 2)
            try:
                work(op, dtypes, limit, start, lambda line: print(json.dumps(line), file=out))
                print(json.dumps(["ended"]), file=out)
            except BaseException as error:
                print(json.dumps(["broken", f"{type(error).__name__}: {error}"]), file=out)
            out.flush()
            os._exit(0)
        os.close(writing)
        begun, ended, pending, deadline = None, False, b"", time.monotonic() + 12 * seconds
        while True:
            ready, _, _ = select.select([reading], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(reading, 65536) if ready else b""
            if not data:
                break
            deadline = time.monotonic() + seconds
            *lines, pending = (pending + data).split(b"\n")
            for line in map(json.loads, lines):
                if line[0] in ("ended", "missing", "broken"):
                    ended = True
                if line[0] in ("missing", "broken"):
                    reports.append(line)
                elif len(line) == 4 and line[2] == "begun":
                    begun = line
                elif len(line) == 4:
                    begun, last = None, line
                    reports.append(last)
        os.close(reading)
        if not ended:
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if ended or begun is None:
            if not ended:
                reports.append(["broken", "no answer between two samples"])
            return reports
        cause = "no answer within the time" if not ready else "the process ended"
        reports.append([begun[0], begun[1], "failed", cause])
        start = begun[:2]


# The whole table

def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="names of operations; may end with *")
    parser.add_argument("--limit", type=int, help="samples of each operation and dtype")
    parser.add_argument("--dtype", action="append", choices=DTYPES, help="float32 and int64 if missing")
    parser.add_argument("--seconds", type=float, default=10.0, help="the time of one sample")
    parser.add_argument("--out", help="a file for the table in markdown")
    parser.add_argument("--all", action="store_true", help="print all failures, and not the first of each operation")
    parser.add_argument("--list", help="a file with names, one a line, in place of --only")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(False)
    only = list(chosen.only or [])
    if chosen.list:
        with open(chosen.list) as file:
            only += file.read().split()
    wanted = lambda name: not only or any(
        name.startswith(one[:-1]) if one.endswith("*") else name == one for one in only
    )
    total, errors, reasons = collections.Counter(), collections.Counter(), collections.Counter()
    rows, missing, existing, faulty = [], set(), set(), set()
    for op in common_methods_invocations.op_db:
        if not wanted(op.name):
            continue
        reports = judged(op, chosen.dtype or ["float32", "int64"], chosen.limit, chosen.seconds)
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if reports and reports[0][0] == "missing":
            missing.add(op.name)
            rows.append((name, "missing", ""))
            print(f"{name}: missing", flush=True)
            continue
        existing.add(op.name)
        own, own_errors, failures = collections.Counter(), collections.Counter(), []
        for report in reports:
            if report[0] == "broken":
                own["failed"] += 1
                failures.append(report[1])
                continue
            phase, at, outcome, text = report
            (own_errors if phase == "errors" else own)[outcome] += 1
            if outcome == "left out":
                reasons[text] += 1
            elif outcome == "failed":
                failures.append(f"[{phase} {at}] {text}")
        total.update(own)
        errors.update(own_errors)
        if own["failed"]:
            faulty.add(op.name)
        counts = f"{own['passed']} passed, {own['failed']} failed, {own['left out']} left out"
        if own_errors:
            counts += f"; errors {own_errors['passed']} passed, {own_errors['failed']} failed"
        first = failures[0] if failures else ""
        rows.append((name, counts, first))
        print(f"{name}: {counts}" + (f"; {first}" if first else ""), flush=True)
        for failure in failures[1:] if chosen.all else ():
            print(f"    {failure}", flush=True)
    tried = total["passed"] + total["failed"]
    summary = (
        f"{total['passed']} of {tried} samples of the {len(existing)} names that exist; "
        f"{len(existing) - len(faulty)} names without a failure; "
        f"{errors['passed']} of {errors['passed'] + errors['failed']} calls that must fail; "
        f"names missing: {len(missing)}: {' '.join(sorted(missing))}"
    )
    left_out = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(12))
    print(summary)
    print(f"left out: {left_out}")
    if chosen.out:
        with open(chosen.out, "w") as file:
            file.write(f"{summary}\n\nLeft out: {left_out}\n\n| operation | samples | first failure |\n|---|---|---|\n")
            for name, counts, first in rows:
                file.write(f"| {name} | {counts} | {first.replace('|', chr(92) + '|')} |\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
