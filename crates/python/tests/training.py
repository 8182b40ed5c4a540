"""Short trainings from values of numpy, whose losses are the same in PyTorch and Taper.

``python training.py`` writes what an installed PyTorch computes to ``losses.json``.
"""

import json
import pathlib

import numpy

OPTIMIZERS = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3, "nesterov": True},
    "Adam": {"lr": 0.01, "amsgrad": True},
    "AdamW": {"lr": 0.01},
    "RMSprop": {"lr": 0.01, "momentum": 0.5},
    "Adagrad": {"lr": 0.1},
    "NAdam": {"lr": 0.01},
    "RAdam": {"lr": 0.01},
    "Adadelta": {"lr": 1.0},
    "Adamax": {"lr": 0.01},
    "ASGD": {"lr": 0.01},
    "Rprop": {"lr": 0.01},
}


def filled(torch, rng, module):
    for parameter in module.parameters():
        values = (rng.standard_normal(tuple(parameter.shape)) * 0.2).astype(numpy.float32)
        parameter.data.copy_(torch.from_numpy(values))
    return module


def normal(torch, rng, *sizes):
    return torch.from_numpy(rng.standard_normal(sizes).astype(numpy.float32))


def convolutions(torch, name):
    """Losses and rates of a network of convolutions with one of the optimizers."""
    nn, rng = torch.nn, numpy.random.default_rng(1)
    network = filled(torch, rng, nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 10)
    ))
    optimizer = getattr(torch.optim, name)(network.parameters(), **OPTIMIZERS[name])
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    losses = []
    for _ in range(6):
        images, labels = normal(torch, rng, 8, 1, 8, 8), torch.from_numpy(rng.integers(0, 10, (8,)))
        loss = nn.CrossEntropyLoss()(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(network.parameters(), 5.0)
        optimizer.step()
        schedule.step()
        losses += [loss.item(), float(norm), optimizer.param_groups[0]["lr"]]
    network.eval()
    return [*losses, network(torch.ones(1, 1, 8, 8)).sum().item(), network[1].running_var.sum().item()]


def recurrent(torch, name):
    """Losses of one of the recurrent layers, with two layers in both directions."""
    nn, rng = torch.nn, numpy.random.default_rng(2)
    layer = filled(torch, rng, getattr(nn, name)(5, 7, num_layers=2, batch_first=True, bidirectional=True))
    head = filled(torch, rng, nn.Linear(14, 1))
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()], lr=0.01)
    losses = []
    for _ in range(5):
        out, states = layer(normal(torch, rng, 3, 6, 5))
        last = states[0] if isinstance(states, tuple) else states
        loss = (head(out) ** 2).mean() + last.sum() * 0.01
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def transformer(torch, name):
    """The output and the gradient of an encoder under a mask."""
    nn, rng = torch.nn, numpy.random.default_rng(3)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=name == "first")
    encoder = filled(torch, rng, nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    x = normal(torch, rng, 3, 6, 8).requires_grad_()
    out = encoder(x, mask=nn.Transformer.generate_square_subsequent_mask(6))
    (out**2).sum().backward()
    return [out.sum().item(), x.grad.abs().sum().item()]


def schedules(torch, name):
    """The rates of a schedule over twelve steps."""
    made = {
        "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10),
        "warm": lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 4, 2),
        "one cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 1.0, total_steps=14),
        "exponential": lambda o: torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
        "linear": lambda o: torch.optim.lr_scheduler.LinearLR(o, total_iters=5),
        "milestones": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [2, 5, 5]),
        "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 1 / (1 + step)),
        "polynomial": lambda o: torch.optim.lr_scheduler.PolynomialLR(o, 6, 2.0),
        "sequential": lambda o: torch.optim.lr_scheduler.SequentialLR(
            o, [torch.optim.lr_scheduler.ConstantLR(o, 0.1, 3), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)], [3]
        ),
        "cyclic": lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.1, 1.0, 4, cycle_momentum=False),
    }
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.5)
    schedule, rates = made[name](optimizer), []
    for _ in range(12):
        optimizer.step()
        schedule.step()
        rates.append(schedule.get_last_lr()[0])
    return rates


PROGRAMS = (
    *((convolutions, name) for name in OPTIMIZERS),
    *((recurrent, name) for name in ("RNN", "GRU", "LSTM")),
    *((transformer, name) for name in ("first", "last")),
    *((schedules, name) for name in ("cosine", "warm", "one cycle", "exponential", "linear", "milestones", "lambda",
                                     "polynomial", "sequential", "cyclic")),
)


if __name__ == "__main__":
    import torch

    found = {f"{program.__name__} {name}": program(torch, name) for program, name in PROGRAMS}
    (pathlib.Path(__file__).parent / "losses.json").write_text(json.dumps(found, indent=0) + "\n")
