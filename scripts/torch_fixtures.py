#!/usr/bin/env python3
"""Numbers from PyTorch for the tests to compare with: crates/taper/tests/fixtures/*.json.

    python3 -m venv .venv && .venv/bin/pip install torch torchvision numpy --index-url https://download.pytorch.org/whl/cpu
    .venv/bin/python scripts/torch_fixtures.py                # writes all files
    .venv/bin/python scripts/torch_fixtures.py sgd print      # or some of them

The files are checked in, so the tests need neither PyTorch nor Python. Run this again only to add cases; the same
version of PyTorch writes the same files.

How to read them:
- every file is {"torch": version, ..., "cases": [...]}, with one case a line;
- a tensor is {"shape": [..], "data": [..]}, row-major; one named only by its data says so below;
- infinities and NaN, which JSON lacks, are the strings "inf", "-inf" and "nan";
- inputs are exact in float32; float32 results are written so that parsing as f64 and rounding gives them back.
"""
import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import torchvision

FIXTURES = Path(__file__).resolve().parent.parent / "crates/taper/tests/fixtures"
torch.set_num_threads(1)


def number(x, dtype=torch.float64):
    """A JSON value for one element."""
    if isinstance(x, (bool, int)):
        return x
    if math.isnan(x):
        return "nan"
    if math.isinf(x):
        return "inf" if x > 0 else "-inf"
    return float(str(np.float32(x))) if dtype != torch.float64 else x


def data(t):
    return [number(x, t.dtype) for x in t.detach().reshape(-1).tolist()]


def tensor(t):
    return {"shape": list(t.shape), "data": data(t)}


def uniform(generator, *shape, low=-1.0, high=1.0):
    """Float64 values that are multiples of 1/64: short to write and exact in every float type."""
    t = torch.rand(*shape, generator=generator, dtype=torch.float64) * (high - low) + low
    return (t * 64).round() / 64


def write(name, cases, **shared):
    FIXTURES.mkdir(parents=True, exist_ok=True)
    head = {"torch": torch.__version__.split("+")[0], **shared}
    lines = ",\n".join(json.dumps(case, separators=(",", ":"), allow_nan=False) for case in cases)
    path = FIXTURES / f"{name}.json"
    path.write_text(json.dumps(head, separators=(",", ":"), allow_nan=False)[:-1] + f',"cases":[\n{lines}\n]}}\n')
    print(f"{path.name}: {len(cases)} cases, {path.stat().st_size} bytes")


def sgd():
    """Twenty steps of SGD on Linear(8, 6), ReLU, Linear(6, 4) with the mean cross-entropy of one fixed batch.

    Shared: "initial" weights by name, "inputs", "targets", "steps". Each case: the options of torch.optim.SGD, the
    dtype, the loss before each step, and the weights after the last.
    """
    steps = 20
    g = torch.Generator().manual_seed(1)
    initial = {
        "fc1.weight": uniform(g, 6, 8),
        "fc1.bias": uniform(g, 6),
        "fc2.weight": uniform(g, 4, 6),
        "fc2.bias": uniform(g, 4),
    }
    inputs = uniform(g, 16, 8, low=-2.0, high=2.0)
    targets = torch.randint(0, 4, (16,), generator=g)
    options = {
        "plain": dict(lr=0.1),
        "momentum_weight_decay": dict(lr=0.1, momentum=0.9, weight_decay=1e-2),
        "nesterov": dict(lr=0.1, momentum=0.9, nesterov=True),
        "dampening": dict(lr=0.1, momentum=0.5, dampening=0.1),
        "maximize": dict(lr=0.1, maximize=True),
    }
    defaults = dict(momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False)
    cases = []
    for name, option in options.items():
        for dtype in (torch.float32, torch.float64):
            p = {k: v.to(dtype).clone().requires_grad_() for k, v in initial.items()}
            optimizer = torch.optim.SGD(p.values(), foreach=False, **option)
            losses = []
            for _ in range(steps):
                optimizer.zero_grad()
                hidden = F.relu(F.linear(inputs.to(dtype), p["fc1.weight"], p["fc1.bias"]))
                loss = F.cross_entropy(F.linear(hidden, p["fc2.weight"], p["fc2.bias"]), targets)
                loss.backward()
                losses.append(number(loss.item(), dtype))
                optimizer.step()
            cases.append({
                "name": name,
                "dtype": str(dtype).removeprefix("torch."),
                "options": {**defaults, **option},
                "losses": losses,
                "final": {k: tensor(v) for k, v in p.items()},
            })
    write("sgd", cases, steps=steps, initial={k: tensor(v) for k, v in initial.items()}, inputs=tensor(inputs),
          targets=targets.tolist())


def lion_step(parameters, state, lr, betas, weight_decay):
    """One step of Lion (Chen and others 2023), which PyTorch lacks."""
    for p in parameters:
        if p.grad is None:
            continue
        last = state.setdefault(p, torch.zeros_like(p))
        p.data.mul_(1 - lr * weight_decay)
        p.data.add_((betas[0] * last + (1 - betas[0]) * p.grad).sign(), alpha=-lr)
        state[p] = betas[1] * last + (1 - betas[1]) * p.grad


class Lion:
    def __init__(self, groups, **options):
        self.groups, self.state = [{**options, **group} for group in groups], {}

    def step(self):
        for group in self.groups:
            lion_step(group["params"], self.state, group["lr"], group["betas"], group["weight_decay"])


def precise_muon():
    """torch.optim.Muon with its iteration in the parameter's dtype in place of bfloat16."""
    import inspect
    from torch.optim import _muon

    source = inspect.getsource(_muon._zeropower_via_newtonschulz).replace("torch.bfloat16", "grad.dtype")
    scope = dict(vars(_muon))
    exec(source, scope)
    return _muon, scope["_zeropower_via_newtonschulz"]


def optimizers():
    """25 steps of each optimizer with given gradients, in float64.

    Shared: "parameters", two of which are in a first group and one in a second, whose rate is half the first's; "gradients" of each
    step, null where the parameter has none; "after", the steps after which the values were noted. Each case: the optimizer, its
    options, and the values of all parameters after each of those steps, by their data.

    "Muon" is given matrices alone, and iterates in float64; "MuonBFloat16" is PyTorch's as it is.
    """
    after = [1, 2, 3, 6, 7, 13, 25]
    g = torch.Generator().manual_seed(6)
    shapes = [(2, 3), (3, 2), (2,)]
    start = [uniform(g, *shape) for shape in shapes]
    # Away from 0, where a sign would hang on the last bit.
    gradients = [[uniform(g, *shape) + 1 / 256 for shape in shapes] for _ in range(25)]
    for step in (2, 3, 11):
        gradients[step][1] = None
    gradients[0][2] = None
    o = torch.optim
    options = [
        (o.Adam, {}),
        (o.Adam, dict(lr=0.05, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.1)),
        (o.Adam, dict(lr=0.05, betas=(0.9, 0.7), amsgrad=True)),
        (o.Adam, dict(lr=0.05, maximize=True, weight_decay=0.1)),
        (o.Adam, dict(lr=0.05, decoupled_weight_decay=True, weight_decay=0.1)),
        (o.AdamW, {}),
        (o.AdamW, dict(lr=0.05, weight_decay=0.2, amsgrad=True, betas=(0.9, 0.7))),
        (o.AdamW, dict(lr=0.05, maximize=True)),
        (o.NAdam, {}),
        (o.NAdam, dict(lr=0.05, weight_decay=0.1, momentum_decay=0.1)),
        (o.NAdam, dict(lr=0.05, weight_decay=0.1, decoupled_weight_decay=True, maximize=True)),
        (o.RAdam, dict(lr=0.05)),
        (o.RAdam, dict(lr=0.05, betas=(0.8, 0.99), weight_decay=0.1)),
        (o.RAdam, dict(lr=0.05, weight_decay=0.1, decoupled_weight_decay=True, maximize=True)),
        (o.Adamax, {}),
        (o.Adamax, dict(lr=0.05, betas=(0.8, 0.9), weight_decay=0.1, maximize=True)),
        (o.RMSprop, {}),
        (o.RMSprop, dict(lr=0.02, alpha=0.9, centered=True, weight_decay=0.1)),
        (o.RMSprop, dict(lr=0.02, momentum=0.9)),
        (o.RMSprop, dict(lr=0.02, alpha=0.9, momentum=0.5, centered=True, maximize=True)),
        (o.Adagrad, {}),
        (o.Adagrad, dict(lr=0.1, lr_decay=0.1, initial_accumulator_value=0.5, weight_decay=0.1)),
        (o.Adagrad, dict(lr=0.1, maximize=True)),
        (o.Adadelta, {}),
        (o.Adadelta, dict(lr=0.5, rho=0.8, eps=1e-3, weight_decay=0.1, maximize=True)),
        (o.SGD, dict(lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.1)),
        (o.ASGD, {}),
        (o.ASGD, dict(lr=0.1, lambd=0.1, alpha=0.5, t0=5, weight_decay=0.1)),
        (o.ASGD, dict(lr=0.05, t0=0, maximize=True)),
        (o.Rprop, {}),
        (o.Rprop, dict(lr=0.05, etas=(0.4, 1.5), step_sizes=(0.01, 0.2))),
        (o.Rprop, dict(lr=0.1, maximize=True)),
        (o.Muon, dict(lr=0.05)),
        (o.Muon, dict(lr=0.05, nesterov=False, weight_decay=0.0, momentum=0.5)),
        (o.Muon, dict(lr=0.05, adjust_lr_fn="match_rms_adamw", ns_steps=3)),
        (o.Muon, dict(lr=0.05, adjust_lr_fn="spectral_unclamped", ns_coefficients=(2.0, -1.5, 0.5))),
        ("MuonBFloat16", dict(lr=0.05)),
        (Lion, dict(lr=0.01, betas=(0.9, 0.99), weight_decay=0.0)),
        (Lion, dict(lr=0.01, betas=(0.8, 0.9), weight_decay=0.5)),
    ]
    torch.set_default_dtype(torch.float64)  # the dtype of what PyTorch keeps as 0-d tensors
    cases = []
    for make, option in options:
        name = make if isinstance(make, str) else make.__name__
        used = 2 if name.startswith("Muon") else 3
        p = [x.clone().requires_grad_() for x in start[:used]]
        default = option.get("lr") if "lr" in option else make(p[:1]).defaults["lr"]
        groups = [{"params": p[:1] + p[2:], "lr": default}, {"params": p[1:2], "lr": default / 2}]
        muon, iteration = precise_muon()
        usual = muon._zeropower_via_newtonschulz
        if name == "Muon":
            muon._zeropower_via_newtonschulz = iteration
        optimizer = (torch.optim.Muon if name == "MuonBFloat16" else make)(groups, **option)
        values = []
        for step in range(25):
            for x, grad in zip(p, gradients[step]):
                x.grad = None if grad is None else grad.clone()
            optimizer.step()
            if step + 1 in after:
                values.append([data(x) for x in p])
        muon._zeropower_via_newtonschulz = usual
        cases.append({"optimizer": name, "options": option | {"lr": default}, "values": values})
    torch.set_default_dtype(torch.float32)
    write("optimizers", cases, after=after, parameters=[tensor(x) for x in start],
          gradients=[[None if x is None else data(x) for x in step] for step in gradients])


def lbfgs():
    """Steps of torch.optim.LBFGS in float64 on the function of Rosenbrock, sum (1 - x)^2 + 10 (y - x^2)^2, of x [2] and y [2, 1].

    Each case: the options, and for each step the loss that it gave, how often the function was evaluated so far, and x and y.
    """
    options = [
        {},
        dict(lr=0.05, max_iter=4),
        dict(lr=0.1, max_iter=5, history_size=2),
        dict(line_search_fn="strong_wolfe", max_iter=3),
        dict(line_search_fn="strong_wolfe", max_iter=4, history_size=2),
        dict(line_search_fn="strong_wolfe", max_iter=5, max_eval=3),
        dict(line_search_fn="strong_wolfe", lr=0.3, maximize=True, max_iter=4),
        dict(line_search_fn="strong_wolfe"),
    ]
    cases = []
    for option in options:
        sign = -1.0 if option.get("maximize") else 1.0
        x = torch.tensor([-1.25, 0.5], dtype=torch.float64, requires_grad=True)
        y = torch.tensor([[1.5], [-0.75]], dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS([x, y], **option)

        def closure():
            optimizer.zero_grad()
            loss = sign * ((1 - x) ** 2 + 10 * (y.reshape(-1) - x**2) ** 2).sum()
            loss.backward()
            return loss

        steps = []
        for _ in range(4):
            loss = optimizer.step(closure)
            evaluations = optimizer.state[x]["func_evals"]
            steps.append({"loss": number(loss.item()), "func_evals": evaluations, "x": data(x), "y": data(y)})
        cases.append({"options": option, "steps": steps})
    write("lbfgs", cases)


def schedules():
    """The rates of two groups, which begin with 0.5 and 0.2, under each schedule, for 40 steps: the first ones and those after each
    step. "momenta", where they change, are those of SGD or the first beta of Adam; else the list is empty. "error"
    where PyTorch refuses the step after the last one noted.

    Each case: the name, what it was made with, and the numbers. The functions of LambdaLR and MultiplicativeLR are
    "inverse", 1 / (1 + t), and "wave", 1 + 0.25 sin(t).
    """
    s = torch.optim.lr_scheduler
    functions = {"inverse": lambda t: 1 / (1 + t), "wave": lambda t: 1 + 0.25 * math.sin(t)}
    simple = [
        ("StepLR", dict(step_size=7, gamma=0.5)),
        ("MultiStepLR", dict(milestones=[3, 8, 8, 20], gamma=0.5)),
        ("ExponentialLR", dict(gamma=0.9)),
        ("PolynomialLR", dict(total_iters=25, power=1.0)),
        ("PolynomialLR", dict(total_iters=10, power=2.5)),
        ("CosineAnnealingLR", dict(T_max=12, eta_min=0.05)),
        ("CosineAnnealingLR", dict(T_max=35, eta_min=0.0)),
        ("CosineAnnealingWarmRestarts", dict(T_0=7, T_mult=1, eta_min=0.01)),
        ("CosineAnnealingWarmRestarts", dict(T_0=3, T_mult=2, eta_min=0.0)),
        ("LinearLR", dict(start_factor=0.25, end_factor=1.0, total_iters=9)),
        ("LinearLR", dict(start_factor=1.0, end_factor=0.1, total_iters=20)),
        ("ConstantLR", dict(factor=0.3, total_iters=6)),
        ("OneCycleLR", dict(max_lr=1.0, total_steps=37)),
        ("OneCycleLR", dict(max_lr=1.0, total_steps=38, anneal_strategy="linear", three_phase=True, pct_start=0.25)),
        ("OneCycleLR", dict(max_lr=0.5, total_steps=100, cycle_momentum=False, div_factor=10.0, final_div_factor=5.0)),
        ("CyclicLR", dict(base_lr=0.01, max_lr=0.1, step_size_up=4)),
        ("CyclicLR", dict(base_lr=0.01, max_lr=0.1, step_size_up=4, step_size_down=7, mode="triangular2")),
        ("CyclicLR", dict(base_lr=0.01, max_lr=0.1, step_size_up=5, mode="exp_range", gamma=0.95, base_momentum=0.7,
                          max_momentum=0.99)),
        ("CyclicLR", dict(base_lr=0.01, max_lr=0.1, step_size_up=5, cycle_momentum=False)),
        ("LambdaLR", dict(lr_lambda="inverse")),
        ("MultiplicativeLR", dict(lr_lambda="wave")),
    ]
    compositions = {
        "SequentialLR": [
            [("LinearLR", dict(start_factor=0.1, end_factor=1.0, total_iters=5)),
             ("CosineAnnealingLR", dict(T_max=20, eta_min=0.01)), ("ExponentialLR", dict(gamma=0.8))],
            [("ConstantLR", dict(factor=0.5, total_iters=3)), ("StepLR", dict(step_size=2, gamma=0.7)),
             ("MultiplicativeLR", dict(lr_lambda="wave"))],
            [("MultiplicativeLR", dict(lr_lambda="wave")), ("LambdaLR", dict(lr_lambda="inverse")),
             ("PolynomialLR", dict(total_iters=6, power=2.0))],
        ],
        "ChainedScheduler": [
            [("ConstantLR", dict(factor=0.5, total_iters=4)), ("ExponentialLR", dict(gamma=0.9))],
            [("LinearLR", dict(start_factor=0.25, end_factor=0.75, total_iters=9)), ("StepLR", dict(step_size=5, gamma=0.5)),
             ("MultiStepLR", dict(milestones=[2, 11, 11], gamma=0.5))],
            [("CosineAnnealingLR", dict(T_max=9, eta_min=0.02)), ("MultiplicativeLR", dict(lr_lambda="wave"))],
            [("ExponentialLR", dict(gamma=0.95)), ("PolynomialLR", dict(total_iters=15, power=1.5))],
        ],
    }

    def make(name, optimizer, arguments):
        arguments = {k: functions[v] if k == "lr_lambda" else v for k, v in arguments.items()}
        return getattr(s, name)(optimizer, **arguments)

    def begin(kind):
        groups = [{"params": [torch.zeros(1, requires_grad=True)], "lr": lr} for lr in (0.5, 0.2)]
        return torch.optim.SGD(groups, momentum=0.9) if kind == "SGD" else torch.optim.Adam(groups)

    def follow(name, arguments, kind, build):
        optimizer = begin(kind)
        scheduler = build(optimizer)
        optimizer.step()
        rates, momenta, error = [], [], False
        for _ in range(41):
            rates.append([number(group["lr"]) for group in optimizer.param_groups])
            momentum = [group["momentum"] if kind == "SGD" else group["betas"][0] for group in optimizer.param_groups]
            momenta.append([number(m) for m in momentum])
            try:
                scheduler.step()
            except ValueError:
                error = True
                break
        cycles = any(m != momenta[0] for m in momenta)
        return {"schedule": name, "optimizer": kind, "arguments": arguments, "rates": rates,
                "momenta": momenta if cycles else [], "error": error}

    cases = []
    for name, arguments in simple:
        for kind in ("SGD", "Adam") if name in ("OneCycleLR", "CyclicLR") else ("SGD",):
            cases.append(follow(name, arguments, kind, lambda o: make(name, o, arguments)))
    for name, lists in compositions.items():
        for parts in lists:
            milestones = [6, 29][:len(parts) - 1]

            def build(optimizer):
                inner = [make(part, optimizer, arguments) for part, arguments in parts]
                if name == "SequentialLR":
                    return s.SequentialLR(optimizer, inner, milestones)
                return s.ChainedScheduler(inner, optimizer)

            arguments = {"parts": [{"schedule": part, "arguments": a} for part, a in parts]}
            if name == "SequentialLR":
                arguments["milestones"] = milestones
            cases.append(follow(name, arguments, "SGD", build))

    metrics = [3.0, 2.0, 2.0, 2.0, 1.9999, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.6, 0.6, 0.6, 0.6, 0.6, math.nan, 0.6]
    metrics += [0.6] * 21
    plateaus = [
        dict(patience=2),
        dict(patience=1, factor=0.5, cooldown=3, min_lr=0.05),
        dict(patience=3, mode="max", factor=0.3, threshold=0.1),
        dict(patience=0, factor=0.7, threshold=0.25, threshold_mode="abs"),
        dict(patience=1, mode="max", threshold=0.25, threshold_mode="abs", eps=0.01),
    ]
    for arguments in plateaus:
        optimizer = begin("SGD")
        scheduler = s.ReduceLROnPlateau(optimizer, **arguments)
        rates = [[0.5, 0.2]]
        for metric in metrics:
            scheduler.step(metric)
            rates.append([number(group["lr"]) for group in optimizer.param_groups])
        cases.append({"schedule": "ReduceLROnPlateau", "optimizer": "SGD", "arguments": arguments,
                      "rates": rates, "momenta": [], "error": False})
    write("schedules", cases, metrics=[number(m) for m in metrics])


def cross_entropy():
    """F.cross_entropy in float64, with its gradient in the logits: of the loss itself, or for the reduction "none" of
    the sum of losses times the input's cotangent.

    Shared: "inputs", a list of logits [N, C, ..], targets, weight [C] and cotangent. Each case: the index of its
    input, the options (ignore_index is never null: -100 ignores nothing), loss, and grad by its data.
    """
    g = torch.Generator().manual_seed(2)
    inputs = []
    for shape in ((5, 4), (2, 3, 4)):
        target_shape = (shape[0], *shape[2:])
        inputs.append({
            "logits": uniform(g, *shape, low=-4.0, high=4.0),
            "targets": torch.randint(0, shape[1], target_shape, generator=g),
            "weight": uniform(g, shape[1], low=0.25, high=2.0),
            "cotangent": uniform(g, *target_shape),
        })
    inputs[0]["logits"][1] = torch.tensor([80.0, -80.0, 0.0, 79.0])  # where a careless softmax overflows
    everything = [
        (which, reduction, smoothing, ignore, weighted)
        for which in (0, 1)
        for reduction in ("mean", "sum", "none")
        for smoothing in (0.0, 0.1)
        for ignore in (-100, 1)
        for weighted in (False, True)
    ]
    cases = []
    for which, reduction, smoothing, ignore, weighted in everything:
        given = inputs[which]
        cases.append(cross_entropy_case(which, given, given["targets"], reduction, smoothing, ignore, weighted))
    # Nothing left to average over.
    for reduction in ("mean", "sum", "none"):
        given = inputs[0]
        targets = torch.full_like(given["targets"], 2)
        cases.append(cross_entropy_case(0, given, targets, reduction, 0.0, 2, False) | {"targets": targets.tolist()})
    shared = [
        {"logits": tensor(i["logits"]), "targets": {"shape": list(i["targets"].shape), "data": data(i["targets"])},
         "weight": data(i["weight"]), "cotangent": tensor(i["cotangent"])}
        for i in inputs
    ]
    write("cross_entropy", cases, inputs=shared)


def cross_entropy_case(which, given, targets, reduction, smoothing, ignore, weighted):
    logits = given["logits"].clone().requires_grad_()
    weight = given["weight"] if weighted else None
    loss = F.cross_entropy(logits, targets, weight=weight, ignore_index=ignore, reduction=reduction,
                           label_smoothing=smoothing)
    (loss * given["cotangent"] if reduction == "none" else loss).sum().backward()
    return {
        "input": which,
        "reduction": reduction,
        "label_smoothing": smoothing,
        "ignore_index": ignore,
        "weighted": weighted,
        "loss": tensor(loss),
        "grad": data(logits.grad),
    }


def operations():
    """The operations: (name, arguments by name, function of the inputs, the inputs as float64)."""
    g = torch.Generator().manual_seed(3)

    def points(*values):
        return torch.tensor(values, dtype=torch.float64)

    anywhere = points(-3.0, -1.5, -0.5, -0.0078125, 0.0, 0.0078125, 0.5, 1.0, 2.5, 4.0)
    positive = points(0.0078125, 0.25, 0.5, 1.0, 1.5, 2.0, 10.0, 100.0)
    halves = points(-2.5, -1.75, -1.5, -0.5, 0.0, 0.5, 1.5, 1.75, 2.5)
    for name in ("neg", "abs", "sign", "exp", "expm1", "sin", "cos", "tan", "tanh", "sigmoid", "relu", "erf", "square"):
        yield name, {}, getattr(torch, name), [anywhere]
    for name in ("log", "log1p", "sqrt", "rsqrt", "reciprocal"):
        yield name, {}, getattr(torch, name), [positive]
    for name in ("floor", "ceil", "round", "trunc"):
        yield name, {}, getattr(torch, name), [halves]
    yield "silu", {}, F.silu, [anywhere]
    yield "gelu", {}, F.gelu, [anywhere]
    yield "gelu", {"approximate": "tanh"}, lambda x: F.gelu(x, approximate="tanh"), [anywhere]
    yield "softplus", {}, F.softplus, [torch.cat([anywhere, points(-40.0, 19.0, 30.0)])]
    yield "leaky_relu", {"negative_slope": 0.125}, lambda x: F.leaky_relu(x, 0.125), [anywhere]
    yield "elu", {"alpha": 1.5}, lambda x: F.elu(x, 1.5), [anywhere]
    yield "clamp", {"min": -0.5, "max": 1.0}, lambda x: x.clamp(-0.5, 1.0), [anywhere]
    yield "pow_scalar", {"exponent": 3}, lambda x: x**3, [anywhere]
    yield "pow_scalar", {"exponent": 2.5}, lambda x: x**2.5, [positive]

    matrix, row, column = uniform(g, 3, 4), uniform(g, 4), uniform(g, 3, 1)
    for name in ("add", "sub", "mul", "div", "maximum", "minimum"):
        # Away from 0, for the division; no ties, but in the case after these.
        other = uniform(g, 4, low=0.5, high=2.0)
        yield name, {}, getattr(torch, name), [matrix, other]
        yield name, {}, getattr(torch, name), [column, other]
    ties = points(1.0, 2.0, -1.0, 0.0)
    for name in ("maximum", "minimum"):
        yield name, {}, getattr(torch, name), [ties, points(1.0, 1.0, -1.0, 3.0)]
    yield "pow", {}, torch.pow, [points(0.5, 1.0, 2.0, 3.0), points(-1.5, 2.0, 0.0, 0.5)]
    signs = [points(-5.5, -5.5, 5.5, 5.5, 7.0), points(2.0, -2.0, 2.0, -2.0, 0.75)]
    yield "remainder", {}, torch.remainder, signs
    yield "floor_divide", {}, torch.floor_divide, [t.clone() for t in signs]
    yield "atan2", {}, torch.atan2, [points(1.0, -1.0, 0.5, -2.0), points(2.0, -0.5, -3.0, 1.0)]
    mask = torch.tensor([True, False, True, False])
    yield "where", {"condition": mask.tolist()}, lambda a, b: torch.where(mask, a, b), [matrix, row]

    cube = uniform(g, 2, 3, 4, low=-2.0, high=2.0)
    for axes in (None, [0], [-1], [0, 2]):
        for keepdim in (False, True) if axes else (False,):
            for name in ("sum", "mean", "amax", "amin"):
                f = getattr(torch, name)
                whole = () if axes is None else tuple(axes)
                yield (name, {"axes": axes, "keepdim": keepdim},
                       lambda x, f=f, whole=whole, keepdim=keepdim: f(x, dim=whole or (0, 1, 2), keepdim=keepdim), [cube])
    for correction in (0, 1):
        for name in ("var", "std"):
            f = getattr(torch, name)
            yield (name, {"axes": [1], "correction": correction},
                   lambda x, f=f, correction=correction: f(x, dim=1, correction=correction), [cube])
    yield "prod", {"axes": [1]}, lambda x: x.prod(1), [cube]
    tied = points(1.0, 3.0, 3.0, 2.0).reshape(2, 2).repeat(1, 2)
    yield "amax", {"axes": [1], "keepdim": False}, lambda x: x.amax(1), [tied]
    yield "max", {"axes": [1], "keepdim": False}, lambda x: x.max(1).values, [tied]
    yield "min", {"axes": [1], "keepdim": False}, lambda x: x.min(1).values, [tied]
    for axis in (0, 1, -1):
        for name in ("softmax", "log_softmax", "logsumexp", "cumsum", "cumprod"):
            f = getattr(torch, name)
            yield name, {"axis": axis}, lambda x, f=f, axis=axis: f(x, dim=axis), [cube]
    extreme = points(1000.0, 999.0, -1000.0, 0.0)
    for name in ("softmax", "log_softmax", "logsumexp"):
        f = getattr(torch, name)
        yield name, {"axis": 0}, lambda x, f=f: f(x, dim=0), [extreme]

    yield "matmul", {}, torch.matmul, [uniform(g, 3, 5), uniform(g, 5, 2)]
    yield "matmul", {}, torch.matmul, [uniform(g, 4), uniform(g, 4)]
    yield "matmul", {}, torch.matmul, [uniform(g, 2, 3, 4), uniform(g, 4, 2)]
    yield "matmul", {}, torch.matmul, [uniform(g, 2, 1, 3, 4), uniform(g, 5, 4, 2)]
    yield "linear", {}, F.linear, [uniform(g, 3, 5), uniform(g, 2, 5), uniform(g, 2)]
    yield ("layer_norm", {"eps": 1e-5}, lambda x, w, b: F.layer_norm(x, (4,), w, b, 1e-5),
           [cube, uniform(g, 4), uniform(g, 4)])

    zeros = points(2.0, 0.0, 3.0, 0.0, 0.5, -1.0, 2.0, 0.0, 0.0).reshape(3, 3)
    yield "cumprod", {"axis": 1}, lambda x: x.cumprod(1), [zeros]
    for axis in (0, -1):
        yield "logcumsumexp", {"axis": axis}, lambda x, axis=axis: x.logcumsumexp(axis), [cube * 3]
        for name in ("cummax", "cummin"):
            f = getattr(torch, name)
            yield name, {"axis": axis}, lambda x, f=f, axis=axis: f(x, dim=axis).values, [cube]
        for down in (False, True):
            yield ("sort", {"axis": axis, "descending": down},
                   lambda x, axis=axis, down=down: x.sort(axis, descending=down).values, [cube])
            yield ("topk", {"axis": axis, "k": 2, "largest": down},
                   lambda x, axis=axis, down=down: x.topk(2, axis, largest=down).values, [cube])


def order():
    """Each case: a dtype, an input, an axis, and the indices of the stable sort both ways, of cummax and cummin.

    Among them are equal numbers, zeros of both signs, infinities and NaN.
    """
    inf, nan = math.inf, math.nan
    special = torch.tensor([[1.0, -0.0, nan, 0.0, -inf], [2.0, 2.0, inf, nan, -1.0], [nan, 0.0, -0.0, 0.0, 2.0]])
    g = torch.Generator().manual_seed(5)
    few = torch.randint(0, 4, (4, 9), generator=g)
    cases = []
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8,
                  torch.bool):
        for given in ([special, few] if dtype.is_floating_point else [few]):
            for axis in (0, 1):
                x = given.to(dtype)
                cases.append({
                    "dtype": str(dtype).removeprefix("torch."),
                    "input": tensor(x),
                    "axis": axis,
                    "ascending": x.sort(dim=axis, stable=True).indices.flatten().tolist(),
                    "descending": x.sort(dim=axis, stable=True, descending=True).indices.flatten().tolist(),
                    "cummax": x.cummax(axis).indices.flatten().tolist(),
                    "cummin": x.cummin(axis).indices.flatten().tolist(),
                })
    write("order", cases)


def ops():
    """Each case: the operation and its arguments, inputs, a cotangent of the output's shape, and for float32 and
    float64 the output and the gradient in each input of the sum of output times cotangent, all by their data; null
    where PyTorch has no gradient.

    "sign", "floor" and the like have gradient 0; "amax" and "amin" share the gradient among equals, "max" and "min"
    give it to the first; "maximum" and "minimum" halve it at a tie.
    """
    g = torch.Generator().manual_seed(4)
    cases = []
    for name, arguments, function, inputs in operations():
        shape = function(*inputs).shape
        cotangent = uniform(g, *shape) if shape else uniform(g, 1).reshape(())
        case = {"op": name, "args": arguments, "inputs": [tensor(t) for t in inputs], "cotangent": tensor(cotangent)}
        for dtype in (torch.float32, torch.float64):
            leaves = [t.to(dtype).clone().requires_grad_() for t in inputs]
            output = function(*leaves)
            grads = [None] * len(leaves)
            if name != "floor_divide":  # for which PyTorch has no rule
                grads = torch.autograd.grad((output * cotangent.to(dtype)).sum(), leaves, allow_unused=True)
            key = "f32" if dtype == torch.float32 else "f64"
            case[key] = {"output": data(output), "grads": [None if d is None else data(d) for d in grads]}
        cases.append(case)
    write("ops", cases)


def edges():
    """Numbers at the edges, where the sign of a zero and a NaN count. Each case: the operation and its arguments, an input
    with its dtype, the output with its dtype, and for floats the gradient of the output's sum, or null.

    "prod" and "cumprod" have an axis and "weights": the output is the gradient of the sum of the gradients of the sum, times
    the weights, a second derivative at zeros.
    """
    inf, nan = math.inf, math.nan
    cases = []

    def case(op, arguments, function, x):
        leaf = x.clone().requires_grad_(x.is_floating_point())
        output = function(leaf)
        grad = None
        if output.requires_grad:
            grad = torch.autograd.grad(output.sum(), leaf)[0]
        name = lambda t: str(t.dtype).removeprefix("torch.")
        cases.append({"op": op, "args": arguments, "dtype": name(x), "input": tensor(x), "output_dtype": name(output),
                      "output": tensor(output), "grad": None if grad is None else data(grad)})

    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        x = torch.tensor([nan, -0.0, 0.0, -2.0, 3.0, inf, -inf, -0.0, nan], dtype=dtype)
        for name in ("sign", "abs", "relu", "logical_not"):
            case(name, {}, getattr(torch, name), x)
    for dtype in (torch.int64, torch.int32, torch.uint8, torch.bool):
        x = torch.tensor([7, 0, 1, 255, 0], dtype=dtype)
        for name in ("logical_not", "bitwise_not"):
            case(name, {}, getattr(torch, name), x)
    bytes_ = torch.tensor([0, 4, 44, 255], dtype=torch.uint8)
    for low, high in ((-5, 300), (-5, 100), (4, 300)):
        case("clamp", {"min": low, "max": high}, lambda x: x.clamp(low, high), bytes_)
    ints = torch.tensor([-2**31, -3, 0, 2**31 - 1], dtype=torch.int32)
    case("clamp", {"min": -2**40, "max": 2**40}, lambda x: x.clamp(-2**40, 2**40), ints)
    x = torch.tensor([-1.0, 0.0, 0.5, 1.0, nan, inf])
    for low, high in ((nan, 1.0), (0.0, nan), (nan, nan), (1.0, 0.0), (0.0, 1.0)):
        case("clamp", {"min": number(low), "max": number(high)}, lambda x: x.clamp(low, high), x)
    for exponent in (2, True, False):
        case("pow_scalar", {"exponent": exponent}, lambda x: x**exponent, torch.tensor([True, False]))
    for shape in ((2, 0), (0,), (0, 3)):
        case("logsumexp", {"axis": -1}, lambda x: x.logsumexp(-1), torch.zeros(shape))

    def twice(f, weights):
        def second(x):
            x = x.detach().requires_grad_()
            first, = torch.autograd.grad(f(x).sum(), x, create_graph=True)
            return torch.autograd.grad((first * torch.tensor(weights, dtype=x.dtype)).sum(), x)[0]
        return second

    weights = [1.0, 10.0, 100.0, 1000.0]
    for values in ([2.0, 5.0, 3.0, 7.0], [2.0, 0.0, 3.0, 7.0], [2.0, 0.0, 0.0, 3.0], [0.0, 0.0, 0.0, 3.0], [0.0] * 4):
        x = torch.tensor(values)
        case("prod", {"axis": 0, "weights": weights}, twice(lambda x: x.prod(0), weights), x)
        case("cumprod", {"axis": 0, "weights": weights}, twice(lambda x: x.cumprod(0), weights), x)
    write("edges", cases)


def printed():
    """Each case: dtype, shape, data, and what `print(tensor)` writes under PyTorch's default options."""
    inf, nan = math.inf, math.nan
    f = torch.float32
    tensors = {
        "scalar": torch.tensor(19.6666667),
        "scalar_whole": torch.tensor(3.0),
        "scalar_int": torch.tensor(42),
        "scalar_bool": torch.tensor(True),
        "scalar_large": torch.tensor(1.5e9),
        "scalar_small": torch.tensor(-2.5e-7),
        "scalar_nan": torch.tensor(nan),
        "vector": torch.tensor([2.0, 2.66666667, 3.3333333]),
        "whole": torch.tensor([1.0, 2.0, -3.0]),
        "whole_large": torch.tensor([1.0, 100000.0]),
        "whole_huge": torch.tensor([1.0, 1e9]),
        "negative": torch.tensor([-0.5, 0.25, -12.125]),
        "negative_zero": torch.tensor([-0.0, 0.0]),
        "mixed_magnitudes": torch.tensor([1e-5, 1000.0]),
        "small": torch.tensor([0.00001, 0.00002]),
        "ratio_over_1000": torch.tensor([0.001, 1.5, 10.5]),
        "large_fractions": torch.tensor([123456.789, 0.5]),
        "past_1e8": torch.tensor([1.5e8, 2.25e8]),
        "rounds_up": torch.tensor([0.99999, 9.99999]),
        "specials": torch.tensor([1.0, inf, -inf, nan]),
        "specials_fractions": torch.tensor([0.5, inf, -inf, nan]),
        "only_specials": torch.tensor([nan, inf]),
        "ints": torch.tensor([1, -20, 300]),
        "ints_i32": torch.tensor([[7, 8], [-9, 10]], dtype=torch.int32),
        "bytes": torch.tensor([0, 255], dtype=torch.uint8),
        "bools": torch.tensor([[True, False], [False, True]]),
        "double": torch.tensor([0.1, 0.2], dtype=torch.float64),
        "half": torch.tensor([0.1, 0.25], dtype=torch.float16),
        "empty": torch.empty(0),
        "empty_2d": torch.empty(0, 3),
        "empty_inner": torch.empty(2, 0, 3),
        "matrix": torch.arange(6, dtype=f).reshape(2, 3) / 4,
        "matrix_widths": torch.tensor([[1.5, -22.25], [333.125, 0.0]]),
        "column": torch.tensor([[1.0], [2.5]]),
        "cube": torch.arange(12, dtype=f).reshape(2, 3, 2),
        "rank_4": torch.arange(8).reshape(2, 2, 1, 2),
        "wraps": torch.arange(30, dtype=f) / 8,
        "wraps_ints": torch.arange(100),
        "wraps_bools": torch.arange(40) % 3 == 0,
        "exactly_1000": torch.arange(1000),
        "summarised": torch.arange(2000, dtype=f),
        "summarised_ints": torch.arange(1001),
        "summarised_matrix": torch.arange(1200, dtype=f).reshape(30, 40) / 16,
        "summarised_cube": (torch.arange(1050).reshape(7, 10, 15)),
        "summarised_long_and_thin": torch.arange(1002, dtype=f).reshape(501, 2),
        "summarised_short_and_wide": torch.arange(1002).reshape(2, 501),
    }
    cases = []
    for name, t in tensors.items():
        dtype = str(t.dtype).removeprefix("torch.")
        cases.append({"name": name, "dtype": dtype, **tensor(t), "text": str(t)})
    write("print", cases)


def network_cases():
    """(group, kind, arguments, module or function, inputs, whether it trains) of every case of networks()."""
    n, g = torch.nn, torch.Generator().manual_seed(7)
    u = lambda *shape: uniform(g, *shape, low=-2.0, high=2.0)

    # Functions of a single tensor. Away from kinks: inputs are moved by 1/256.
    x = u(3, 4) + 1 / 256
    for kind, arguments, f in [
        ("gelu", {}, F.gelu), ("gelu_tanh", {}, lambda x: F.gelu(x, approximate="tanh")), ("silu", {}, F.silu),
        ("softplus", dict(beta=1.0, threshold=20.0), F.softplus),
        ("softplus", dict(beta=2.0, threshold=1.5), lambda x: F.softplus(x, 2.0, 1.5)),
        ("elu", dict(alpha=0.75), lambda x: F.elu(x, 0.75)), ("celu", dict(alpha=0.75), lambda x: F.celu(x, 0.75)),
        ("selu", {}, F.selu), ("leaky_relu", dict(slope=0.125), lambda x: F.leaky_relu(x, 0.125)),
        ("hardtanh", dict(low=-0.5, high=1.0), lambda x: F.hardtanh(x, -0.5, 1.0)), ("relu6", {}, lambda x: F.relu6(x * 4)),
        ("hardsigmoid", {}, lambda x: F.hardsigmoid(x * 2)), ("hardswish", {}, lambda x: F.hardswish(x * 2)),
        ("mish", {}, F.mish), ("logsigmoid", {}, F.logsigmoid), ("glu", dict(axis=1), lambda x: F.glu(x, 1)),
        ("softsign", {}, F.softsign),
    ]:
        yield "activations", kind, arguments, f, [x], True
    yield "activations", "PReLU", dict(n=4), n.PReLU(4), [x], True
    yield "activations", "PReLU", dict(n=1), n.PReLU(1), [u(2, 3, 2) + 1 / 256], True

    image, line = u(3, 4, 2, 3), u(3, 4, 5)
    for train in (True, False):
        yield "norms", "BatchNorm1d", dict(c=4), n.BatchNorm1d(4), [u(5, 4)], train
        yield "norms", "BatchNorm1d", dict(c=4), n.BatchNorm1d(4), [line], train
        yield "norms", "BatchNorm2d", dict(c=4), n.BatchNorm2d(4), [image], train
        yield "norms", "BatchNorm2d", dict(c=4, momentum=None), n.BatchNorm2d(4, momentum=None), [image], train
        yield "norms", "BatchNorm2d", dict(c=4, affine=False, track=False), \
            n.BatchNorm2d(4, affine=False, track_running_stats=False), [image], train
        yield "norms", "BatchNorm3d", dict(c=2, eps=0.125), n.BatchNorm3d(2, eps=0.125), [u(2, 2, 2, 3, 2)], train
        yield "norms", "InstanceNorm1d", dict(c=4, affine=False, track=False), n.InstanceNorm1d(4), [line], train
        yield "norms", "InstanceNorm2d", dict(c=4, affine=True, track=True), \
            n.InstanceNorm2d(4, affine=True, track_running_stats=True), [image], train
    yield "norms", "LayerNorm", dict(shape=[5]), n.LayerNorm(5), [line], True
    yield "norms", "LayerNorm", dict(shape=[2, 3], bias=False), n.LayerNorm([2, 3], bias=False), [image], True
    yield "norms", "LayerNorm", dict(shape=[5], affine=False), n.LayerNorm(5, elementwise_affine=False), [line], True
    yield "norms", "RMSNorm", dict(shape=[5]), n.RMSNorm(5), [line], True
    yield "norms", "RMSNorm", dict(shape=[4, 5], eps=0.125), n.RMSNorm([4, 5], eps=0.125), [line], True
    yield "norms", "GroupNorm", dict(groups=2, c=4), n.GroupNorm(2, 4), [image], True

    yield "shapes", "pixel_shuffle", dict(r=2), lambda x: F.pixel_shuffle(x, 2), [u(2, 8, 2, 3)], True
    yield "shapes", "pixel_unshuffle", dict(r=2), lambda x: F.pixel_unshuffle(x, 2), [u(2, 2, 4, 6)], True
    for mode in ("reflect", "replicate", "circular", "constant"):
        yield "shapes", "pad", dict(mode=mode, sides=[[1, 0], [2, 1]]), lambda x: F.pad(x, (2, 1, 1, 0), mode=mode), [image], True
    yield "shapes", "interpolate", dict(size=[4, 9]), lambda x: F.interpolate(x, (4, 9)), [image], True
    yield "shapes", "interpolate", dict(size=[3, 2]), lambda x: F.interpolate(x, (3, 2)), [image], True
    wide = u(2, 2, 7, 6)
    for size in ([3, 4], [1, 1], [7, 2], [9, 4]):
        yield "shapes", "adaptive_avg_pool2d", dict(size=size), lambda x: F.adaptive_avg_pool2d(x, size), [wide], True
        yield "shapes", "adaptive_max_pool2d", dict(size=size), lambda x: F.adaptive_max_pool2d(x, size), [wide], True
    yield "shapes", "adaptive_avg_pool1d", dict(size=[3]), lambda x: F.adaptive_avg_pool1d(x, 3), [line], True
    yield "shapes", "adaptive_max_pool3d", dict(size=[1, 2, 3]), \
        lambda x: F.adaptive_max_pool3d(x, (1, 2, 3)), [u(1, 2, 3, 3, 4)], True

    q, k, v = u(2, 4, 3, 2), u(2, 4, 5, 2), u(2, 4, 5, 3)
    sdpa = F.scaled_dot_product_attention
    yield "attention", "sdpa", {}, sdpa, [q, k, v], True
    yield "attention", "sdpa", dict(scale=0.25), lambda q, k, v: sdpa(q, k, v, scale=0.25), [q, k, v], True
    yield "attention", "sdpa", dict(causal=True), lambda q, k, v: sdpa(q, k, v, is_causal=True), [q, k, v], True
    kept = torch.tensor([[True, False, True, True, False], [False, True, True, False, True], [True] * 5])
    yield "attention", "sdpa", dict(mask=kept.int().reshape(-1).tolist()), \
        lambda q, k, v: sdpa(q, k, v, attn_mask=kept), [q, k, v], True
    yield "attention", "sdpa", dict(additive=True), lambda q, k, v, m: sdpa(q, k, v, attn_mask=m), [q, k, v, u(3, 5)], True
    yield "attention", "sdpa", dict(gqa=True), lambda q, k, v: sdpa(q, k, v, enable_gqa=True), \
        [q, u(2, 2, 5, 2), u(2, 2, 5, 3)], True
    mha = n.MultiheadAttention(4, 2)
    yield "attention", "MultiheadAttention", dict(e=4, h=2), mha, [u(3, 2, 4), u(5, 2, 4), u(5, 2, 4)], True
    first = n.MultiheadAttention(4, 2, batch_first=True)
    padding = torch.tensor([[False, False, True], [False, False, False]])
    def masked(module, x):
        later = n.Transformer.generate_square_subsequent_mask(3, dtype=torch.float64) == -math.inf
        return module(x, x, x, key_padding_mask=padding, attn_mask=later)
    yield "attention", "MultiheadAttentionMasked", dict(e=4, h=2), (first, masked), [u(2, 3, 4)], True
    for norm_first in (False, True):
        encoder = n.TransformerEncoderLayer(4, 2, 6, dropout=0.0, activation="gelu", norm_first=norm_first, batch_first=True)
        yield "attention", "TransformerEncoderLayer", dict(norm_first=norm_first), encoder, [u(2, 3, 4)], True
        decoder = n.TransformerDecoderLayer(4, 2, 6, dropout=0.0, norm_first=norm_first)
        causal = lambda m, t, e: m(t, e, tgt_mask=n.Transformer.generate_square_subsequent_mask(3, dtype=torch.float64),
                                   tgt_is_causal=True)
        yield "attention", "TransformerDecoderLayer", dict(norm_first=norm_first), (decoder, causal), \
            [u(3, 2, 4), u(5, 2, 4)], True
    layer = n.TransformerEncoderLayer(4, 2, 6, dropout=0.0)
    yield "attention", "TransformerEncoder", {}, \
        n.TransformerEncoder(layer, 2, n.LayerNorm(4), enable_nested_tensor=False), [u(3, 2, 4)], True

    for kind in ("RNN", "LSTM", "GRU"):
        make = getattr(n, kind)
        yield "recurrent", kind, {}, make(3, 4), [u(5, 2, 3)], True
        yield "recurrent", kind, dict(layers=2, bidirectional=True, batch_first=True), \
            make(3, 4, num_layers=2, bidirectional=True, batch_first=True), [u(2, 4, 3)], True
        yield "recurrent", kind, dict(bias=False), make(3, 4, bias=False), [u(4, 3)], True
        state = [u(1, 2, 4)] * (2 if kind == "LSTM" else 1)
        given = lambda m, x, *s: m(x, s if len(s) > 1 else s[0])
        yield "recurrent", kind, dict(given=True), (make(3, 4), given), [u(3, 2, 3)] + state, True
        yield "recurrent", kind + "Cell", {}, getattr(n, kind + "Cell")(3, 4), [u(2, 3)], True
    yield "recurrent", "RNN", dict(relu=True), n.RNN(3, 4, nonlinearity="relu"), [u(5, 2, 3)], True

    a, b = u(4, 3) + 1 / 256, u(4, 3)
    share, soft = torch.rand(4, 3, generator=g, dtype=torch.float64), torch.rand(4, 3, generator=g, dtype=torch.float64)
    share, soft = (share * 60 + 2).round() / 64, (soft * 60 + 2).round() / 64
    sign = torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64)
    pos_weight = (torch.rand(3, generator=g, dtype=torch.float64) * 64).round() / 32
    for reduction in ("mean", "sum", "none"):
        r = dict(reduction=reduction)
        for kind, arguments, f, inputs in [
            ("smooth_l1", dict(beta=0.5), lambda a, b: F.smooth_l1_loss(a, b, beta=0.5, **r), [a, b]),
            ("smooth_l1", dict(beta=0.0), lambda a, b: F.smooth_l1_loss(a, b, beta=0.0, **r), [a, b]),
            ("huber", dict(delta=0.5), lambda a, b: F.huber_loss(a, b, delta=0.5, **r), [a, b]),
            ("bce", {}, lambda a, b: F.binary_cross_entropy(a, b, **r), [share, soft]),
            ("bce_logits", dict(pos_weight=pos_weight.tolist()),
             lambda a, b: F.binary_cross_entropy_with_logits(a, b, pos_weight=pos_weight, **r), [a, soft]),
            ("kl_div", dict(log_target=False), lambda a, b: F.kl_div(a, b, **r), [a, soft]),
            ("kl_div", dict(log_target=True), lambda a, b: F.kl_div(a, b, log_target=True, **r), [a, b]),
            ("cosine_embedding", dict(margin=0.25), lambda a, b: F.cosine_embedding_loss(a, b, sign, margin=0.25, **r), [a, b]),
            ("margin_ranking", dict(margin=0.25), lambda a, b: F.margin_ranking_loss(a, b, sign, margin=0.25, **r),
             [a[:, 0].clone(), b[:, 0].clone()]),
            ("triplet_margin", dict(margin=1.0, swap=False), lambda a, b, c: F.triplet_margin_loss(a, b, c, **r),
             [a, b, share]),
            ("triplet_margin", dict(margin=2.0, swap=True),
             lambda a, b, c: F.triplet_margin_loss(a, b, c, margin=2.0, swap=True, **r), [a, b, share]),
        ]:
            yield "losses", kind, {**arguments, **r}, f, inputs, True
    yield "losses", "kl_div", dict(log_target=False, reduction="batchmean"), \
        lambda a, b: F.kl_div(a, b, reduction="batchmean"), [a, soft], True
    yield "losses", "cosine_similarity", dict(axis=1), lambda a, b: F.cosine_similarity(a, b, 1), [a, b], True
    yield "losses", "normalize", dict(p=2.0, axis=1), lambda a: F.normalize(a, dim=1), [a], True
    yield "losses", "normalize", dict(p=3.0, axis=0), lambda a: F.normalize(a, p=3.0, dim=0), [a], True
    yield "losses", "pairwise_distance", dict(p=2.0), F.pairwise_distance, [a, b], True
    yield "losses", "pairwise_distance", dict(p=1.0), lambda a, b: F.pairwise_distance(a, b, p=1.0), [a, b], True


def layer_cases():
    """As network_cases(), of what came later."""
    n, g = torch.nn, torch.Generator().manual_seed(11)
    u = lambda *shape: uniform(g, *shape, low=-2.0, high=2.0)
    line, image, volume = u(2, 3, 5), u(2, 2, 4, 5), u(1, 2, 3, 2, 4)

    def resize(x, arguments):
        call = lambda x: F.interpolate(x, size=arguments.get("size"), scale_factor=arguments.get("scale"), mode=arguments["mode"],
                                       align_corners=arguments.get("align_corners"),
                                       recompute_scale_factor=arguments.get("recompute"))
        return "resize", "interpolate", arguments, call, [x], True
    for mode in ("nearest", "nearest-exact", "area"):
        yield resize(line, dict(mode=mode, size=[8]))
        yield resize(line, dict(mode=mode, scale=[0.7]))
        yield resize(image, dict(mode=mode, size=[7, 3]))
        yield resize(image, dict(mode=mode, scale=[1.75, 2.0]))
        yield resize(image, dict(mode=mode, scale=[1.75, 2.0], recompute=True))
        yield resize(volume, dict(mode=mode, size=[2, 4, 6]))
    for mode, x, size, scale in [("linear", line, [8], [1.3]), ("bilinear", image, [7, 3], [1.75, 0.5]),
                                 ("bicubic", image, [7, 3], [1.75, 0.5]), ("trilinear", volume, [2, 4, 7], [1.5, 2.3, 0.8])]:
        for corners in (False, True):
            yield resize(x, dict(mode=mode, size=size, align_corners=corners))
            yield resize(x, dict(mode=mode, scale=scale, align_corners=corners))
        yield resize(x, dict(mode=mode, scale=scale, align_corners=False, recompute=True))
        yield resize(x, dict(mode=mode, size=[1] * len(size), align_corners=True))
    # Not bicubic: where the size stays, PyTorch's gradient is that of a copy, though its output is not one.
    u(1, 1, 10, 4)
    yield resize(u(1, 1, 10, 4), dict(mode="bilinear", scale=[1.09, 1.0], align_corners=False))
    yield resize(u(1, 1, 10, 4), dict(mode="nearest-exact", scale=[1.09, 1.0]))

    def blocks(x, kernel, dilation=1, padding=0, stride=1):
        a = dict(kernel=kernel, dilation=[dilation] * 2, padding=[padding] * 2, stride=[stride] * 2)
        columns = F.unfold(x, kernel, dilation, padding, stride)
        yield "blocks", "unfold", a, lambda x: F.unfold(x, kernel, dilation, padding, stride), [x], True
        size = list(x.shape[-2:])
        yield "blocks", "fold", {**a, "size": size}, lambda c: F.fold(c, size, kernel, dilation, padding, stride), \
            [u(*columns.shape)], True
    wide = u(2, 2, 6, 5)
    yield from blocks(wide, [2, 3])
    yield from blocks(wide, [2, 2], dilation=2, padding=1, stride=3)
    yield from blocks(wide[0].clone(), [3, 2], padding=1, stride=2)
    positive = wide.abs() + 1 / 128
    yield "blocks", "lp_pool", dict(p=2.0, kernel=[2, 3], stride=[2, 1]), lambda x: F.lp_pool2d(x, 2.0, (2, 3), (2, 1)), [wide], True
    yield "blocks", "lp_pool", dict(p=1.5, kernel=[2, 2], stride=[2, 2], ceil=True), \
        lambda x: F.lp_pool2d(x, 1.5, 2, ceil_mode=True), [positive], True
    yield "blocks", "lp_pool", dict(p=3.0, kernel=[2], stride=[2]), lambda x: F.lp_pool1d(x, 3.0, 2), [line.abs() + 1 / 128], True
    yield "blocks", "lp_pool", dict(p=2.0, kernel=[2, 1, 2], stride=[2, 1, 2]), lambda x: F.lp_pool3d(x, 2.0, (2, 1, 2)), [volume], True
    distinct = (torch.randperm(60, generator=g, dtype=torch.float64) / 16).reshape(2, 1, 6, 5)
    for source, kernel, stride, padding, sized in [(distinct, 2, 2, 0, True), (distinct, 3, 2, 1, True), (distinct, 2, 1, 0, True),
                                                   (distinct[..., :4].contiguous(), 2, 2, 0, False)]:
        # Elements that go to one place are equal, as those of a pooling are.
        values, indices = F.max_pool2d(source, kernel, stride, padding, return_indices=True)
        a = dict(kernel=kernel, stride=stride, padding=padding, indices=indices.reshape(-1).tolist(), shape=list(indices.shape))
        size = list(source.shape[2:]) if sized else None
        yield "blocks", "max_unpool", {**a, "size": size} if sized else a, \
            lambda x: F.max_unpool2d(x, indices, kernel, stride, padding, output_size=size), [values], True
    for size in ([3, 4], [6, 5], [4, 3]):
        both = lambda x: torch.cat([t.double().reshape(-1) for t in F.adaptive_max_pool2d(x, size, return_indices=True)])
        yield "blocks", "adaptive_indices", dict(size=size), both, [distinct], True
    yield "blocks", "local_response_norm", dict(size=3, alpha=0.5, beta=0.75, k=1.5), \
        lambda x: F.local_response_norm(x, 3, 0.5, 0.75, 1.5), [u(2, 5, 3)], True
    yield "blocks", "local_response_norm", dict(size=2, alpha=0.5, beta=0.75, k=1.5), \
        lambda x: F.local_response_norm(x, 2, 0.5, 0.75, 1.5), [u(2, 5, 3, 2)], True

    x = u(3, 4) + 1 / 256
    for kind, arguments, f in [
        ("tanhshrink", {}, F.tanhshrink), ("hardshrink", dict(lambd=0.75), lambda x: F.hardshrink(x, 0.75)),
        ("softshrink", dict(lambd=0.75), lambda x: F.softshrink(x, 0.75)),
        ("threshold", dict(threshold=0.25, value=-3.0), lambda x: F.threshold(x, 0.25, -3.0)),
        ("softmin", {}, lambda x: F.softmin(x, 1)), ("rrelu", {}, lambda x: F.rrelu(x, training=False)),
        ("softmax2d", {}, n.Softmax2d()), ("addmm", {}, lambda x, a, b: torch.addmm(x, a, b, beta=0.5, alpha=2.0)),
        ("baddbmm", {}, lambda x, a, b: torch.baddbmm(x, a, b, beta=0.5, alpha=2.0)),
        ("addbmm", {}, lambda x, a, b: torch.addbmm(x, a, b, beta=0.5, alpha=2.0)),
        ("addmv", {}, lambda x, a, b: torch.addmv(x, a, b, beta=0.5, alpha=2.0)),
        ("addr", {}, lambda x, a, b: torch.addr(x, a, b, beta=0.5, alpha=2.0)), ("dot", {}, torch.dot),
    ]:
        inputs = {"softmax2d": [image], "addmm": [u(4), u(3, 2), u(2, 4)], "baddbmm": [u(2, 3, 4), u(2, 3, 2), u(2, 2, 4)],
                  "addbmm": [u(3, 4), u(2, 3, 2), u(2, 2, 4)], "addmv": [u(3), u(3, 2), u(2)], "addr": [u(3, 2), u(3), u(2)],
                  "dot": [u(5), u(5)]}.get(kind, [x])
        yield "elementwise", kind, arguments, f, inputs, True

    flat, offsets = torch.tensor([3, 0, 0, 4, 2, 1, 3, 1]), torch.tensor([0, 3, 3, 7])
    square = torch.tensor([[3, 0, 1], [2, 2, 4]])
    def bag(mode, indices, offsets=None, weights=None, padding=None, last=False):
        a = dict(mode=mode, indices=indices.reshape(-1).tolist(), shape=list(indices.shape))
        if offsets is not None:
            a["offsets"] = offsets.tolist()
        if padding is not None:
            a["padding"] = padding
        a["last"] = last
        call = lambda w, *s: F.embedding_bag(indices, w, offsets, mode=mode, padding_idx=padding, include_last_offset=last,
                                             per_sample_weights=s[0] if s else None)
        return "bags", "embedding_bag", a, call, [u(5, 3)] + ([weights] if weights is not None else []), True
    for mode in ("sum", "mean", "max"):
        yield bag(mode, flat, offsets)
        yield bag(mode, square)
        yield bag(mode, flat, offsets, padding=3)
        yield bag(mode, flat, torch.tensor([0, 3, 3, 8]), last=True)
        yield bag(mode, square, padding=2)
    yield bag("sum", flat, offsets, weights=u(8))
    yield bag("sum", square, weights=u(2, 3), padding=2)
    for norm_type in (2.0, 1.0):
        table = n.Embedding(5, 3, max_norm=1.0, norm_type=norm_type)
        yield "bags", "Embedding", dict(max_norm=1.0, norm_type=norm_type, indices=[4, 1, 1]), \
            (table, lambda m: m(torch.tensor([4, 1, 1]))), [], True
    table = n.EmbeddingBag(5, 3, max_norm=1.0, mode="sum")
    yield "bags", "EmbeddingBag", dict(indices=[[4, 1], [1, 0]]), (table, lambda m: m(torch.tensor([[4, 1], [1, 0]]))), [], True

    lengths = [3, 5, 1]
    def packed(module, x, *state):
        pack, pad = n.utils.rnn.pack_padded_sequence, n.utils.rnn.pad_packed_sequence
        first = module.batch_first
        rows = pack(x, lengths, batch_first=first, enforce_sorted=False)
        out, last = module(rows, (state if len(state) > 1 else state[0]) if state else None)
        return pad(out, batch_first=first, total_length=5)[0], last
    for kind in ("RNN", "LSTM", "GRU"):
        make = getattr(n, kind)
        yield "sequences", kind, dict(lengths=lengths), (make(3, 4), packed), [u(5, 3, 3)], True
        yield "sequences", kind, dict(lengths=lengths, layers=2, bidirectional=True, batch_first=True), \
            (make(3, 2, num_layers=2, bidirectional=True, batch_first=True), packed), [u(3, 5, 3)], True
        yield "sequences", kind, dict(lengths=lengths, given=True), (make(3, 4), packed), \
            [u(5, 3, 3)] + [u(1, 3, 4)] * (2 if kind == "LSTM" else 1), True
    yield "sequences", "LSTM", dict(proj=2), n.LSTM(3, 4, proj_size=2), [u(5, 2, 3)], True
    yield "sequences", "LSTM", dict(proj=2, layers=2, bidirectional=True, lengths=lengths), \
        (n.LSTM(3, 4, num_layers=2, bidirectional=True, proj_size=2), packed), [u(5, 3, 3)], True

    later = torch.triu(torch.ones(3, 4), 2).bool()
    padding = torch.tensor([[False, False, False, True], [False, False, True, False]])
    def heads(average):
        return lambda m, q, k, v: m(q, k, v, attn_mask=later, key_padding_mask=padding, average_attn_weights=average)
    q, k, v = u(3, 2, 4), u(4, 2, 3), u(4, 2, 5)
    for arguments in (dict(kdim=3, vdim=5), dict(kdim=3, vdim=5, add_bias_kv=True, add_zero_attn=True), dict(kdim=3, vdim=5, bias=False)):
        yield "heads", "MultiheadAttention", {**arguments, "average": True}, (n.MultiheadAttention(4, 2, **arguments), heads(True)), \
            [q, k, v], True
    same = u(4, 2, 4)
    for arguments in (dict(add_bias_kv=True), dict(add_zero_attn=True), {}):
        yield "heads", "MultiheadAttention", {**arguments, "average": False}, \
            (n.MultiheadAttention(4, 2, **arguments), heads(False)), [q, same, same.clone()], True

    x, y = u(4, 3) + 1 / 256, u(4, 3)
    counts = torch.tensor([0.0, 1.0, 2.0, 5.0, 0.5, 3.0, 1.0, 0.0, 7.0, 1.5, 4.0, 2.0], dtype=torch.float64).reshape(4, 3)
    variance = torch.tensor([0.5, 1.0, 2.0, 0.0, 0.25, 3.0, 1.0, 1.5, 0.75, 1.25, 1e-8, 2.0], dtype=torch.float64).reshape(4, 3)
    sign = torch.tensor([1.0, -1.0] * 6, dtype=torch.float64).reshape(4, 3)
    labels, w = torch.tensor([2, 0, 1, 1]), torch.tensor([0.5, 1.25, 2.0], dtype=torch.float64)
    several = torch.tensor([[2, -1, 0], [0, 1, 2], [-1, 0, 1], [1, 0, -1]])
    picture, classes = u(2, 3, 2, 2), torch.tensor([[[0, 2], [1, -100]], [[2, 2], [0, 1]]])
    for reduction in ("mean", "sum", "none"):
        r = dict(reduction=reduction)
        for kind, a, f, inputs in [
            ("poisson", dict(log=True, full=False), lambda x: F.poisson_nll_loss(x, counts, **r), [x]),
            ("poisson", dict(log=False, full=True), lambda x: F.poisson_nll_loss(x, counts, log_input=False, full=True, **r), [x.abs()]),
            ("gaussian", dict(full=False), lambda x, y, v: F.gaussian_nll_loss(x, y, v, **r), [x, y, variance]),
            ("gaussian", dict(full=True), lambda x, y, v: F.gaussian_nll_loss(x, y, v, full=True, **r), [x, y, variance[:, 0].clone()]),
            ("multi_margin", dict(p=1, margin=0.5), lambda x: F.multi_margin_loss(x, labels, margin=0.5, **r), [x]),
            ("multi_margin", dict(p=2, margin=1.0, weight=w.tolist()), lambda x: F.multi_margin_loss(x, labels, 2, weight=w, **r), [x]),
            ("multi_label_margin", {}, lambda x: F.multilabel_margin_loss(x, several, **r), [x]),
            ("multi_label_soft_margin", dict(weight=w.tolist()),
             lambda x: F.multilabel_soft_margin_loss(x, (sign + 1) / 2, weight=w, **r), [x]),
            ("soft_margin", {}, lambda x: F.soft_margin_loss(x, sign, **r), [x]),
            ("hinge_embedding", dict(margin=0.5), lambda x: F.hinge_embedding_loss(x, sign, margin=0.5, **r), [x]),
            ("nll2d", {}, lambda x: F.nll_loss(x, classes, weight=w, **r), [picture]),
        ]:
            yield "more_losses", kind, {**a, **r}, f, inputs, True

    logits = u(6, 3, 4)
    def ctc(logits, labels, inputs, targets, reduction, blank=0, zero=False):
        a = dict(labels=labels.reshape(-1).tolist(), shape=list(labels.shape), inputs=inputs, targets=targets, reduction=reduction,
                 blank=blank, zero=zero)
        call = lambda x: F.ctc_loss(F.log_softmax(x, -1), labels, tuple(inputs), tuple(targets), blank, reduction, zero)
        return "ctc", "ctc", a, call, [logits], True
    square = torch.tensor([[1, 2, 2], [3, 1, 1], [2, 1, 1]])
    for reduction in ("mean", "sum", "none"):
        yield ctc(logits, square, [6, 6, 6], [3, 3, 3], reduction)
        yield ctc(logits, square, [6, 4, 5], [3, 1, 0], reduction)
    yield ctc(logits, torch.tensor([1, 2, 2, 3, 2]), [6, 3, 5], [3, 1, 1], "none")
    yield ctc(logits, square - 1, [6, 5, 6], [3, 3, 2], "mean", blank=3)
    yield ctc(logits, square, [6, 2, 6], [3, 3, 2], "none", zero=True)
    yield ctc(logits, square, [6, 2, 6], [3, 3, 2], "mean", zero=True)
    yield ctc(logits[:, 0].clone(), torch.tensor([1, 2, 2]), [6], [3], "none")


def layers():
    """As networks(), of what came later."""
    write_layers("layers", layer_cases(), 12)


def networks():
    """Layers and functions of layers."""
    write_layers("networks", network_cases(), 8)


def write_layers(file, all_cases, seed):
    """Layers and functions of layers, computed in float64 and written as float32.

    Each case: its group, the kind and its arguments, whether it trains, the inputs, "state" with what the module's state dict holds
    before, the output (several ones flattened and put one after the other), a cotangent, "grads" of the sum of output times cotangent
    in the inputs, in "parameters" by name, and "after", the buffers of the state dict afterwards. Integers of a state dict are 0-d.
    """
    g = torch.Generator().manual_seed(seed)
    single = lambda t: {"shape": list(t.shape), "data": [number(x, torch.float32) for x in t.detach().reshape(-1).tolist()]}
    cases = []
    for group, kind, arguments, target, inputs, train in all_cases:
        module, run = target if isinstance(target, tuple) else (target, None)
        inputs = [t.to(torch.float64).clone().requires_grad_() for t in inputs]
        state, parameters = {}, {}
        if isinstance(module, torch.nn.Module):
            module = module.double().train(train)
            for name, tensor_ in module.state_dict().items():
                if tensor_.is_floating_point():
                    low = 0.5 if name.endswith("running_var") else -1.0
                    tensor_.copy_(uniform(g, *tensor_.shape, low=low))
            state = {name: single(t) for name, t in module.state_dict().items()}
            parameters = dict(module.named_parameters())
        out = module(*inputs) if run is None else run(module, *inputs)
        flat = []
        def collect(o):
            if isinstance(o, (tuple, list)):
                for part in o:
                    collect(part)
            elif o is not None:
                flat.append(o)
        collect(out)
        out = flat[0] if len(flat) == 1 else torch.cat([o.reshape(-1) for o in flat])
        cotangent = uniform(g, *out.shape) if out.shape else uniform(g, 1).reshape(())
        leaves = inputs + list(parameters.values())
        grads = torch.autograd.grad((out * cotangent).sum(), leaves, allow_unused=True)
        grads = [torch.zeros_like(leaf) if d is None else d for leaf, d in zip(leaves, grads)]
        case = {"group": group, "kind": kind, "args": arguments, "train": train, "inputs": [single(t) for t in inputs],
                "state": state, "output": single(out), "cotangent": single(cotangent),
                "grads": [single(d) for d in grads[:len(inputs)]],
                "parameters": {name: single(d) for name, d in zip(parameters, grads[len(inputs):])}}
        if isinstance(module, torch.nn.Module):
            case["after"] = {name: single(t) for name, t in module.state_dict().items() if name not in parameters}
        cases.append(case)
    write(file, cases)


def operations():
    """What PyTorch computes for every row of the table of operations (tools/operations), in float64 or int64.

    The rows come from `cargo xtask operations --questions`. Each case: the row's name and expression, the digest of its inputs,
    the results, and the gradients in floating-point inputs of the sum of results times ((37 i mod 64) - 31.5) / 32, null where there
    is none. Numbers have twelve digits.
    """
    rows = questions("--questions")
    array = short_array
    cases, wrong = [], []
    for row in rows:
        dtypes = {"float64": torch.float64, "int64": torch.int64, "bool": torch.bool}
        inputs = [torch.tensor([float(v) for v in i["data"]], dtype=torch.float64).to(dtypes[i["dtype"]]).reshape(i["shape"]) for i in row["inputs"]]
        floating = [t for t in inputs if t.is_floating_point()]
        if row["order"] > 0:
            for t in floating:
                t.requires_grad_()
        names = dict(zip("xyzw", inputs), torch=torch, torchvision=torchvision, F=F, math=math)
        torch.set_default_dtype(torch.float64)
        try:
            out = eval(row["torch"], names)
            out = list(out) if isinstance(out, (tuple, list)) else [out]
            tracked = [t for t in out if t.requires_grad]
            weights = lambda t: ((torch.arange(t.numel()) * 37 % 64 - 31.5) / 32).to(t.dtype).reshape(t.shape)
            total = sum((t * weights(t)).sum() for t in tracked)
            grads = torch.autograd.grad(total, floating, allow_unused=True) if tracked else [None] * len(floating)
        except Exception as e:
            wrong.append(f"{row['name']}: {row['torch']}: {e}")
            continue
        finally:
            torch.set_default_dtype(torch.float32)
        cases.append({"name": row["name"], "torch": row["torch"], "inputs": row["digest"], "outputs": [array(t) for t in out],
                      "grads": [None if g is None else array(g) for g in grads]})
    if wrong:
        sys.exit("\n".join(wrong))
    write("operations", cases)
    integer_operations()


def questions(kind):
    """What `cargo xtask operations` prints with this option."""
    import subprocess

    root = FIXTURES.parent.parent.parent.parent
    text = subprocess.run(["cargo", "xtask", "operations", kind], check=True, cwd=root, stdout=subprocess.PIPE).stdout
    return json.loads(text)


def short_array(t):
    def short(x):
        x = number(x)
        return float(f"{x:.12g}") if isinstance(x, float) else x

    return {"shape": list(t.shape), "data": [short(x) for x in t.detach().reshape(-1).tolist()]}


def integer_operations():
    """What PyTorch gives for every row of the table with int64, int32, uint8 and bool inputs: for each that it takes, the row's key and
    the results with their dtypes."""
    import warnings

    cases = []
    for row in questions("--integer-questions"):
        inputs = [torch.tensor([float(v) for v in i["data"]], dtype=torch.float64).to(getattr(torch, i["dtype"])).reshape(i["shape"]) for i in row["inputs"]]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                out = eval(row["torch"], dict(zip("xyzw", inputs), torch=torch, torchvision=torchvision, F=F, math=math))
            out = list(out) if isinstance(out, (tuple, list)) else [out]
            arrays = [{**short_array(t), "dtype": str(t.dtype).removeprefix("torch.")} for t in out]
        except Exception:
            continue
        cases.append([row["key"], arrays])
    write("operations_integers", cases)


def distributions():
    """torch.distributions in float64.

    Each case: the kind, its parameters, the batch and event shapes, values with their log_prob, and entropy, mean, variance, cdf (at the
    values) and icdf (at "shares") where PyTorch has them, else null; the gradients of the sum of log_prob, in the value where it is no
    count, and in the parameters. Shared: "shares", and "divergences", each of two kinds with their parameters.
    """
    import torch.distributions as D

    kinds = {
        "normal": D.Normal,
        "log_normal": D.LogNormal,
        "laplace": D.Laplace,
        "uniform": D.Uniform,
        "exponential": D.Exponential,
        "gamma": D.Gamma,
        "beta": D.Beta,
        "dirichlet": D.Dirichlet,
        "poisson": D.Poisson,
        "bernoulli_probs": lambda p: D.Bernoulli(probs=p),
        "bernoulli_logits": lambda p: D.Bernoulli(logits=p),
        "binomial_probs": lambda n, p: D.Binomial(n, probs=p),
        "binomial_logits": lambda n, p: D.Binomial(n, logits=p),
        "categorical_probs": lambda p: D.Categorical(probs=p),
        "categorical_logits": lambda p: D.Categorical(logits=p),
        "multivariate_covariance": lambda m, c: D.MultivariateNormal(m, c),
        "multivariate_precision": lambda m, c: D.MultivariateNormal(m, precision_matrix=c),
        "multivariate_tril": lambda m, c: D.MultivariateNormal(m, scale_tril=c),
        "independent_normal": lambda m, s: D.Independent(D.Normal(m, s), 1),
    }
    t = lambda *x: torch.tensor(*x, dtype=torch.float64)
    matrix, factor = t([[2.0, 0.5], [0.5, 1.25]]), t([[1.5, 0.0], [-0.5, 0.75]])
    several = torch.stack([matrix, t([[1.0, -0.25], [-0.25, 3.0]])])
    given = [
        ("normal", [t([[-1.0], [2.0]]), t([0.5, 1.5, 8.0])], t([-1.25, 0.5, 30.0])),
        ("normal", [t(0.0), t(1.0)], t([-9.0, 0.0, 3.0])),
        ("log_normal", [t([0.5, -1.0]), t(0.75)], t([[0.5, 2.0], [3.0, 0.125]])),
        ("laplace", [t([0.5, -1.0]), t([0.75, 2.0])], t([[-2.0, 2.0], [3.0, 0.125], [0.25, -40.0]])),
        ("uniform", [t([0.5, -1.0]), t([2.0, 3.0])], t([[0.75, 2.0], [1.5, -0.125]])),
        ("exponential", [t([0.5, 2.0])], t([[0.75, 2.0], [1.5, 0.125]])),
        ("gamma", [t([[0.25], [4.0]]), t([0.5, 2.0])], t([0.75, 6.0])),
        ("beta", [t([[0.25], [4.0]]), t([0.5, 2.0])], t([0.75, 0.125])),
        ("dirichlet", [t([[0.5, 1.5, 3.0], [2.0, 1.0, 0.75]])], t([[0.25, 0.625, 0.125], [0.5, 0.375, 0.125]])),
        ("poisson", [t([0.5, 20.0])], t([[0.0, 20.0], [3.0, 7.0]])),
        ("bernoulli_probs", [t([0.25, 0.875, 0.5])], t([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])),
        ("bernoulli_logits", [t([-3.0, 0.0, 60.0])], t([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])),
        ("binomial_probs", [t(20.0), t([0.25, 0.875, 0.5])], t([[1.0, 19.0, 10.0], [0.0, 18.0, 4.0]])),
        ("binomial_logits", [t([3.0, 8.0]), t([[-3.0], [0.5]])], t([2.0, 7.0])),
        ("categorical_probs", [t([[1.0, 2.0, 5.0], [3.0, 1.0, 0.0]])], t([[0.0, 1.0], [2.0, 0.0]])),
        ("categorical_logits", [t([[1.0, -2.0, 0.5], [300.0, 1.0, 0.0]])], t([1.0, 2.0])),
        ("multivariate_covariance", [t([0.5, -1.0]), matrix], t([[0.0, 1.0], [-2.0, 0.25], [3.0, 1.5]])),
        ("multivariate_covariance", [t([[0.5, -1.0], [0.0, 2.0]]), several], t([0.0, 1.0])),
        ("multivariate_precision", [t([0.5, -1.0]), matrix], t([[0.0, 1.0], [-2.0, 0.25]])),
        ("multivariate_tril", [t([[0.5, -1.0], [0.0, 2.0]]), factor], t([[0.0, 1.0], [-2.0, 0.25]])),
        ("independent_normal", [t([[0.5, -1.0], [0.0, 2.0]]), t([0.5, 1.5])], t([[0.0, 1.0], [-2.0, 0.25]])),
    ]
    shares = t([0.0625, 0.5, 0.9375])

    def or_none(f):
        try:
            return tensor(f())
        except NotImplementedError:
            return None

    cases = []
    for kind, parameters, value in given:
        parameters = [p.clone().requires_grad_() for p in parameters]
        value = value.clone().requires_grad_(not kind.startswith(("categorical", "poisson", "bernoulli", "binomial")))
        d = kinds[kind](*parameters)
        found = d.log_prob(value)
        leaves = ([value] if value.requires_grad else []) + parameters
        grads = torch.autograd.grad(found.sum(), leaves, allow_unused=True)
        grads = [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, grads)]
        q = shares.reshape([3] + [1] * len(d.batch_shape))
        nameless = kind.startswith("categorical")
        cases.append({"kind": kind, "parameters": [tensor(p) for p in parameters], "batch": list(d.batch_shape),
                      "event": list(d.event_shape), "value": tensor(value), "log_prob": tensor(found),
                      "entropy": or_none(d.entropy) if not kind.startswith("binomial") else None, "mean": None if nameless else or_none(lambda: d.mean),
                      "variance": None if nameless else or_none(lambda: d.variance),
                      "cdf": or_none(lambda: d.cdf(value)) if kind != "gamma" else None, "icdf": or_none(lambda: d.icdf(q)),
                      "grads": [tensor(g) for g in grads]})

    one = {
        "normal": [t([[-1.0], [2.0]]), t([0.5, 1.5])],
        "laplace": [t([[0.5], [-1.0]]), t([0.75, 2.0])],
        "log_normal": [t([0.5, -1.0]), t([0.75, 2.0])],
        "uniform": [t([[0.25], [0.0]]), t([0.5, 0.875])],
        "exponential": [t([0.5, 2.0])],
        "gamma": [t([[0.25], [4.0]]), t([0.5, 2.0])],
        "beta": [t([[0.25], [4.0]]), t([0.5, 2.0])],
        "dirichlet": [t([[0.5, 1.5, 3.0], [2.0, 1.0, 0.75]])],
        "poisson": [t([0.5, 20.0])],
        "bernoulli_probs": [t([[0.25], [0.875], [0.0]])],
        "binomial_probs": [t(20.0), t([[0.25], [0.875]])],
        "categorical_probs": [t([[1.0, 2.0, 5.0], [3.0, 1.0, 0.0]])],
        "multivariate_covariance": [t([[0.5, -1.0], [0.0, 2.0]]), several],
        "independent_normal": [t([[0.5, -1.0], [0.0, 2.0]]), t([0.5, 1.5])],
    }
    other = {
        "normal": [t([0.25, 1.0]), t([1.0, 3.0])],
        "laplace": [t([0.25, 1.0]), t([1.0, 3.0])],
        "log_normal": [t([0.25, 1.0]), t([1.0, 3.0])],
        "uniform": [t([0.0, 0.125]), t([0.75, 1.0])],
        "exponential": [t([1.5, 0.25])],
        "gamma": [t([1.5, 0.25]), t([1.0, 3.0])],
        "beta": [t([1.5, 0.25]), t([1.0, 3.0])],
        "dirichlet": [t([1.5, 0.25, 2.0])],
        "poisson": [t([1.5, 3.0])],
        "bernoulli_probs": [t([0.5, 0.0])],
        "binomial_probs": [t([20.0, 12.0]), t([0.5, 0.25])],
        "categorical_probs": [t([[3.0, 1.0, 4.0], [1.0, 0.0, 1.0]])],
        "multivariate_covariance": [t([1.0, 0.5]), matrix],
        "independent_normal": [t([[0.25, 1.0], [0.0, 0.5]]), t([1.0, 3.0])],
    }
    divergences = []
    for p_kind, p in one.items():
        for q_kind, q in other.items():
            of_p, of_q = kinds[p_kind](*p), kinds[q_kind](*q)
            try:
                # Several of PyTorch's formulas take batches of one shape only.
                batch = torch.broadcast_shapes(of_p.batch_shape, of_q.batch_shape)
                found = D.kl_divergence(of_p.expand(batch), of_q.expand(batch))
            except (NotImplementedError, RuntimeError):
                continue
            divergences.append({"p": p_kind, "of_p": [tensor(x) for x in p], "q": q_kind, "of_q": [tensor(x) for x in q],
                                "found": tensor(found)})
    write("distributions", cases, shares=tensor(shares), divergences=divergences)


# Parts of names of functions that are not operations of dense real tensors.
NOT_DENSE_REAL = (
    r"_$|^_|autocast|sparse|quant(?!ile)|fbgemm|cudnn|mkldnn|miopen|complex|conj|(?<!index)_copy$|sym_|_stats|_elemt|rnn|lstm|gru|backward|^is_(?!close|in$|inf$|nan$|"
    r"finite|neginf|posinf)|set_|get_|storage|coalesce|crow|ccol|col_indices|row_indices|anomaly|parse_|dlpack|^q_|import_ir|has_torch|"
    r"handle_torch|assert_|boolean_dispatch|unify_|typename|determin|profiler|_subclass|pin_memory|share_memory|retain|register|data_ptr|"
    r"_generator$|fake_|saddmm|dsmm|hsmm|hspmm|^smm|spmm|scaled_(addmm|mm|grouped)|grouped_mm|batch_norm_|native_|unsafe_|real$|imag|angle|"
    r"polar|adjoint|resolve_neg|qscheme|sspaddmm"
)
# Infrastructure, and names that torch.linalg has taken over.
NO_OPERATION = (
    r"^(m?H|H|data|device|dtype|grad\w*|layout|name|names|shape|size|itemsize|element_size|nbytes|ndim|ndimension|nelement|dim|"
    r"dim_order|numel|numpy|tolist|item|cpu|cuda|xpu|ipu|mtia|type|type_as|volatile|reinforce|output_nr|module_load|stride|values|indices|"
    r"bool|byte|char|short|int|long|half|float|double|bfloat16|cfloat|cdouble|chalf|compile|compiled\w+|fork|wait|save|load|vmap|while_loop|"
    r"cond|seed|initial_seed|manual_seed|init_num_threads|thread_safe\w+|classproperty|can_cast|promote_types|result_type|from_\w+|frombuffer|"
    r"as_tensor|asarray|tensor|scalar_tensor|hash_tensor|new|new_\w+|empty\w*|fill|put|index|record_stream|detach|dequantize|resize|resize_as|"
    r"map|symeig|eig|lstsq|cholesky|solve|lu|qr|chain_matmul|matrix_rank|triangular_solve|nonzero_static|prepare_\w+|"
    r"clear_\w+|merge_\w+|int_repr|choose_\w+|export|range|where|apply|align_\w+|as_strided\w*|constant_pad_nd|convolution|slice_inverse|"
    r"frobenius_norm|nuclear_norm|norm_except_dim|upsample\w*|embedding_renorm|geqrf|orgqr|ormqr|requires_grad|to|to_\w+|dense_dim|"
    r"multi_head_attention_forward|affine_grid_generator|grid_sampler\w*|conv_tbc|unravel_index)$"
)


def names():
    """tools/operations/torch.tsv: PyTorch's operations of dense real tensors, with the reason where one is absent on purpose; and tested.tsv:
    the operations that PyTorch's own suite tests.

    A line is a name, a tab and the reason, which is kept. Forms in place, with a storage, of sparse, complex or quantized tensors are
    left out.
    """
    import re

    found = {}
    for prefix, module in [("torch.Tensor.", torch.Tensor), ("torch.nn.functional.", F), ("torch.linalg.", torch.linalg), ("torch.fft.", torch.fft), ("torch.", torch)]:
        for name in dir(module):
            thing = getattr(module, name) if name != "grad" else None
            unfit = re.search(NOT_DENSE_REAL, name) or module not in (torch.linalg, torch.fft) and re.match(NO_OPERATION, name)
            if name[0].isupper() or unfit or not callable(thing) or isinstance(thing, type):
                continue
            found[name] = prefix + name
    path = FIXTURES.parent.parent.parent / "operations/torch.tsv"
    old = dict(line.split("\t") for line in path.read_text().splitlines()) if path.exists() else {}
    lines = [f"{full}\t{old.get(full, '')}" for full in sorted(found.values())]
    path.write_text("\n".join(lines) + "\n")
    print(f"{path.name}: {len(lines)} names")

    # The operations that PyTorch's own suite tests, one per line; reasons in the old file are kept.
    # PyTorch's test framework is not needed.
    import types
    import unittest

    sys.modules.setdefault("expecttest", types.SimpleNamespace(TestCase=unittest.TestCase))
    from torch.testing._internal.common_methods_invocations import op_db

    path = path.parent / "tested.tsv"
    old = dict(line.split("\t") for line in path.read_text().splitlines()) if path.exists() else {}
    lines = [f"{name}\t{old.get(name, '')}" for name in sorted({op.name for op in op_db})]
    path.write_text("\n".join(lines) + "\n")
    print(f"{path.name}: {len(lines)} names")


def autocast():
    """Autocast's lists for CUDA from PyTorch's own header, and what its autocast to bf16 on the CPU makes of operations: dtypes and values."""
    header = (Path(torch.__file__).parent / "include/ATen/autocast_mode.h").read_text()

    def listed(macro):
        start = header.index(f"#define {macro}(_)")
        body = header[start:].split("\n\n")[0]
        return sorted(set(re.findall(r"_\((?:ADD_NS\()?(\w+)", body)) - {"_"})

    rng = torch.Generator().manual_seed(28)
    x, y, w = uniform(rng, 4, 6), uniform(rng, 6, 5), uniform(rng, 3, 6)
    b, images, kernels = uniform(rng, 3), uniform(rng, 2, 3, 5, 5), uniform(rng, 4, 3, 3, 3)
    q, k, v = (uniform(rng, 2, 3, 4) for _ in range(3))
    batch = uniform(rng, 2, 4, 6)
    bf = torch.bfloat16
    cases = []

    def case(op, f, *inputs, half=()):
        args = [t.to(bf if i in half else torch.float32) for i, t in enumerate(inputs)]
        with torch.autocast("cpu", dtype=bf):
            out = f(*args)
        cases.append({"op": op, "half": list(half), "inputs": [tensor(t.float()) for t in inputs],
                      "dtype": str(out.dtype).removeprefix("torch."), "result": tensor(out.float())})

    case("matmul", torch.matmul, x, y)
    case("matmul", torch.matmul, x, y, half=(0,))
    case("bmm", torch.bmm, batch, batch.transpose(1, 2).contiguous())
    case("linear", F.linear, x, w, b)
    case("addmm", torch.addmm, uniform(rng, 4, 5), x, y)
    case("conv2d", F.conv2d, images, kernels, uniform(rng, 4))
    case("conv_transpose2d", F.conv_transpose2d, images, uniform(rng, 3, 2, 3, 3), uniform(rng, 2))
    case("scaled_dot_product_attention", F.scaled_dot_product_attention, q, k, v)
    case("mse_loss", F.mse_loss, x, uniform(rng, 4, 6), half=(0,))
    case("l1_loss", F.l1_loss, x, uniform(rng, 4, 6), half=(0, 1))
    case("cdist", torch.cdist, x, w, half=(0,))
    case("prod", torch.prod, x, half=(0,))
    case("add", torch.add, x, uniform(rng, 4, 6), half=(0,))
    case("add", torch.add, x, uniform(rng, 4, 6))
    case("cat", lambda a, c: torch.cat([a, c]), x, uniform(rng, 2, 6), half=(1,))
    for name in ("relu", "tanh", "sigmoid", "mean"):
        case(name, getattr(torch, name), x, half=(0,))
        case(name, getattr(torch, name), x)
    for name in ("gelu", "silu", "elu", "mish", "logsigmoid", "selu"):
        case(name, getattr(F, name), x, half=(0,))
    case("max_pool2d", lambda t: F.max_pool2d(t, 2), images, half=(0,))
    case("batch_norm", lambda t, g, h: F.batch_norm(t, None, None, g, h, True), images, uniform(rng, 3), uniform(rng, 3), half=(0,))
    write("autocast", cases, lower=listed("AT_FORALL_LOWER_PRECISION_FP"),
          fp32=sorted(listed("AT_FORALL_FP32") + listed("AT_FORALL_FP32_SET_OPT_DTYPE") + ["norm"]),
          promote=listed("AT_FORALL_PROMOTE"))


def grad_scaler():
    """torch.amp.GradScaler over steps whose gradients are finite or not: scales, growth trackers, parameters."""
    cases = []
    for options, bad, clip in [
        (dict(init_scale=1024.0, growth_interval=3), {2, 3, 9}, None),
        (dict(init_scale=65536.0, growth_factor=3.0, backoff_factor=0.3, growth_interval=2), {0, 5}, 0.5),
        (dict(init_scale=2.0 ** 126, growth_interval=1), {4}, None),
        (dict(init_scale=1e-3, growth_factor=1.7, growth_interval=1, backoff_factor=0.9), {1, 2}, 1.0),
    ]:
        w = torch.tensor([1.0, -2.0], requires_grad=True)
        optimizer = torch.optim.SGD([w], lr=0.125, momentum=0.5)
        scaler = torch.amp.GradScaler("cpu", **options)
        steps = []
        for step in range(12):
            optimizer.zero_grad()
            factor = torch.tensor([float("inf") if step in bad else 1.0, 0.25 * step])
            loss = (w * w * factor).sum() * (2.0 ** -126 if options["init_scale"] > 1e30 else 1.0)
            scaler.scale(loss).backward()
            if clip is not None:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_([w], clip)
            scaler.step(optimizer)
            scaler.update()
            state = scaler.state_dict()
            steps.append({"scale": state["scale"], "tracker": state["_growth_tracker"], "w": data(w)})
        cases.append({"options": options, "bad": sorted(bad), "clip": clip, "steps": steps})
    write("grad_scaler", cases)


FILES = {"autocast": autocast, "grad_scaler": grad_scaler, "sgd": sgd, "optimizers": optimizers, "lbfgs": lbfgs, "schedules": schedules, "cross_entropy": cross_entropy,
         "ops": ops, "order": order, "edges": edges, "print": printed, "networks": networks, "layers": layers,
         "distributions": distributions,
         "operations": operations, "names": names}

if __name__ == "__main__":
    for name in sys.argv[1:] or FILES:
        if name not in FILES:
            sys.exit(f"no fixtures named {name}; there are {', '.join(FILES)}")
        FILES[name]()
