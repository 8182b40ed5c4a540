#!/usr/bin/env python3
"""PyTorch's side of `cargo xtask bench`: the same cases on the same work.

    pip install torch numpy
    cargo xtask bench --vs-torch --python PYTHON       # runs this file, a case at a time, right after Taper's

Cases come in on stdin, one a line, and each is answered by a line of JSON. A line of JSON describes an expression of inputs that
are in files, or a known model; a name is that of a program below. Inputs are on the device before the clock starts; on a GPU, each
timed call waits for the device.
"""
import argparse
import functools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:N, or gpu: cuda if torch has it, else cpu")
parser.add_argument("--budget", type=float, default=2.0, help="seconds a case")
parser.add_argument("--serve", action="store_true", help="as every side of the benchmark does: read cases from stdin")
args = parser.parse_args()

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError as error:
    print(json.dumps({"error": str(error)}), flush=True)
    sys.exit(2)

torch.set_num_threads(args.threads)
torch.manual_seed(0)
device = args.device
if device == "gpu":
    device = "cuda" if torch.cuda.is_available() else "cpu"
on_gpu = device.startswith("cuda")
if on_gpu and not torch.cuda.is_available():
    print(json.dumps({"error": f"--device {device}: torch finds no CUDA device"}), flush=True)
    sys.exit(2)
cases = {}


def rand(*shape):
    return torch.rand(*shape, device=device)


def centred(*shape, dtype=torch.float32):
    return (rand(*shape) - 0.5).to(dtype)


def indices(bound, *shape):
    return torch.randint(0, bound, shape, device=device)


def leaf(*shape):
    return rand(*shape).requires_grad_()


def wait():
    if on_gpu:
        torch.cuda.synchronize()


def case(name, make, flop=None, ops=None, least=10, most=2000):
    """`make` builds the inputs and gives the call to time."""
    cases[name] = dict(make=make, flop=flop, ops=ops, least=least, most=most)


def run(name):
    spec = cases[name]
    call = spec["make"]()
    # A GPU raises its clock only after a while of work.
    begin = time.perf_counter()
    calls = 0
    while calls < 3 or (device != "cpu" and time.perf_counter() - begin < 1.5):
        call()
        wait()
        calls += 1
    times = []
    begin = time.perf_counter()
    budget = spec.get("budget", args.budget)
    while len(times) < spec["least"] or (time.perf_counter() - begin < budget and len(times) < spec["most"]):
        start = time.perf_counter()
        call()
        wait()
        times.append((time.perf_counter() - start) * 1e3)
    extra = {}
    median = statistics.median(times)
    if spec["flop"]:
        extra["gflops"] = round(spec["flop"] / median / 1e6, 1)
    if spec["ops"]:
        extra["ns_per_op"] = round(median * 1e6 / spec["ops"], 1)
    return line(name, times, **extra)


def line(name, times, **extra):
    return dict(peer="torch", case=name, median_ms=round(statistics.median(times), 6), min_ms=round(min(times), 6),
                mean_ms=round(statistics.mean(times), 6), reps=len(times), device=device, threads=args.threads, **extra)


def start_to_first_result(name):
    """A process of its own, from its start to its end; in between it makes two matrices and their product."""
    program = f"import torch; torch.set_num_threads({args.threads}); " \
              f"print((torch.rand(64, 64, device={device!r}) @ torch.rand(64, 64, device={device!r}))[0, 0].item())"
    times = []
    for _ in range(4):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
        times.append((time.perf_counter() - start) * 1e3)
    return line(name, times[1:], version=torch.__version__)


# Training.
def training_step(batch, widths, activation):
    def make():
        layers = []
        for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
            layers += [activation()] * (i > 0) + [torch.nn.Linear(inputs, outputs)]
        net = torch.nn.Sequential(*layers).to(device)
        sgd = torch.optim.SGD(net.parameters(), lr=0.01)
        x, y = rand(batch, widths[0]), indices(widths[-1], batch)

        def call():
            sgd.zero_grad()
            F.cross_entropy(net(x), y).backward()
            sgd.step()
        return call
    return make


def momentum_step():
    parameters = [leaf(256, 256) for _ in range(20)]
    for parameter in parameters:
        parameter.grad = rand(256, 256)
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9).step


for batch in (64, 1024):
    case(f"simplenet_step_{batch}", training_step(batch, (784, 128, 10), torch.nn.ReLU))
case("more_mlp_step_gelu_256x512", training_step(256, (512, 512, 512, 512), torch.nn.GELU))
case("more_sgd_momentum_20x256x256", momentum_step)


# The overhead of an operation beyond its arithmetic.
def small_adds(grad, times=10_000):
    def make():
        a, b = rand(16).requires_grad_(grad), rand(16)

        def call():
            for _ in range(times):
                a + b
        return call
    return make


def small_add_batch():
    left, right = [rand(16) for _ in range(100)], [rand(16) for _ in range(100)]
    return lambda: [a + b for a in left for b in right]


def chain_of_1000(backward):
    def make():
        s = leaf(1)

        def call():
            r = s
            for _ in range(500):
                r = r * 1.0001 + 0.1
            r.backward() if backward else r.detach().item()
        return call
    return make


case("small_add_nograd", small_adds(False), ops=10_000, most=50)
case("small_add_grad", small_adds(True), ops=10_000, most=50)
case("small_add_batch", small_add_batch, ops=10_000, most=50)
case("chain1000_forward", chain_of_1000(False), ops=1000, most=200)
case("chain1000_forward_backward", chain_of_1000(True), ops=1000, most=200)
case("dropped_graphs", small_adds(True, 200_000), ops=200_000, least=3, most=10)

# Sequences.
LSTM = 2 * 64 * 32 * 4 * 256 * (128 + 256)


def lstm_forward():
    net, x = nn.LSTM(128, 256).to(device), centred(64, 32, 128)

    def call():
        with torch.no_grad():
            return net(x)
    return call


def lstm_backward():
    net, x = nn.LSTM(128, 256).to(device), centred(64, 32, 128)

    def call():
        net.zero_grad()
        net(x)[0].sum().backward()
    return call


case("lstm_64x32_128_256_fwd", lstm_forward, flop=LSTM)
case("lstm_64x32_128_256_fwd_bwd", lstm_backward, flop=3 * LSTM)


# Networks.
class MnistNet(nn.Module):
    """The network of PyTorch's basic MNIST example."""
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = F.dropout(F.max_pool2d(x, 2), 0.25, self.training).flatten(1)
        return self.fc2(F.dropout(F.relu(self.fc1(x)), 0.5, self.training))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, seen=None):
        """`seen` holds the keys and values of the tokens before, and gets those of these."""
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, d // self.heads).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(d, -1))
        first = not seen
        if seen is not None:
            if seen:
                k, v = torch.cat([seen[0], k], 2), torch.cat([seen[1], v], 2)
            seen[:] = k, v
        x = x + self.out(attention(q, k, v, is_causal=first).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class Gpt(nn.Module):
    """Four pre-norm blocks, width 256, 8 heads, 128 tokens, vocabulary 512."""
    def __init__(self, vocabulary=512, width=256, blocks=4, tokens=128):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocabulary, width), nn.Parameter(torch.zeros(tokens, width))
        self.blocks = nn.Sequential(*[Block(width, 8) for _ in range(blocks)])
        self.ln, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, i):
        return self.head(self.ln(self.blocks(self.tok(i) + self.pos)))


class Residual(nn.Module):
    def __init__(self, c, o, stride):
        super().__init__()
        self.a, self.b = nn.Conv2d(c, o, 3, stride, 1, bias=False), nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(o), nn.BatchNorm2d(o)
        same = c == o and stride == 1
        self.short = nn.Identity() if same else nn.Sequential(nn.Conv2d(c, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        return F.relu(self.nb(self.b(F.relu(self.na(self.a(x))))) + self.short(x))


def resnet20():
    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    c = 16
    for o, stride in ((16, 1), (16, 1), (16, 1), (32, 2), (32, 1), (32, 1), (64, 2), (64, 1), (64, 1)):
        layers.append(Residual(c, o, stride))
        c = o
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def network_step(build, batch, loss, optimizer, context=None):
    """zero_grad, forward, loss, backward, optimizer step."""
    def make():
        net = build().to(device)
        opt = optimizer(net.parameters())
        x, y = batch()

        def call():
            opt.zero_grad()
            if context:
                with context():
                    value = loss(net(x), y)
            else:
                value = loss(net(x), y)
            value.backward()
            opt.step()
        return call
    return make


def classes(*shape):
    return lambda: (centred(*shape), indices(10, shape[0]))


def tokens():
    i = indices(512, 8, 129)
    return i[:, :-1], i[:, 1:]


def language_loss(logits, targets):
    return F.cross_entropy(logits.reshape(-1, 512).float(), targets.reshape(-1))


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-3)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=1e-4)


def autocast(dtype):
    return lambda: torch.autocast(device.split(":")[0], dtype=dtype)


for name, parts in {
    "mnist_cnn_step_64": (MnistNet, classes(64, 1, 28, 28), F.cross_entropy, torch.optim.Adam),
    "resnet20_step_32": (resnet20, classes(32, 3, 32, 32), F.cross_entropy, sgd),
    "gpt_step_8x128": (Gpt, tokens, language_loss, adamw),
}.items():
    case(name, network_step(*parts))
    case(name + "_autocast_bf16", network_step(*parts, autocast(torch.bfloat16)))
    case(name + "_autocast_f16", network_step(*parts, autocast(torch.float16)))


def adamw_step():
    parameters = [centred(500, 1000).requires_grad_() for _ in range(10)]
    for parameter in parameters:
        parameter.grad = rand(500, 1000)
    return torch.optim.AdamW(parameters).step


def whole_context(net, i, seen):
    return net.head(net.ln(net.blocks(net.tok(i) + net.pos[:i.shape[1]])))[:, -1]


def cached(net, i, seen):
    at = seen[0][0].shape[2] if seen[0] else 0
    x = net.tok(i[:, at:]) + net.pos[at:i.shape[1]]
    for block, kept in zip(net.blocks, seen):
        x = block(x, kept)
    return net.head(net.ln(x[:, -1]))


def generation(logits):
    """One token after the other from a prompt of 64, greedily."""
    def make():
        net, start = Gpt().to(device).eval(), indices(512, 1, 64)

        def call():
            i, seen = start, [[] for _ in net.blocks]
            with torch.no_grad():
                for _ in range(64):
                    i = torch.cat([i, logits(net, i, seen).argmax(-1, keepdim=True)], 1)
            return i
        return call
    return make


case("adamw_step_5M", adamw_step)
case("gpt_generate_64_tokens", generation(whole_context), ops=64)
case("gpt_generate_64_tokens_kv_cache", generation(cached), ops=64)

# Data and files, on the host.
def loader_epoch():
    """One shuffled pass over 60,000 images in memory, batches of 64, no worker processes."""
    data = torch.utils.data.TensorDataset(torch.rand(60_000, 784), torch.randint(0, 10, (60_000,)))
    batches = torch.utils.data.DataLoader(data, batch_size=64, shuffle=True)
    return lambda: sum(float(x[0, 0]) for x, _ in batches)


def weights(make):
    return {f"w.{i}": make(1000, 2500) for i in range(10)}


def save_state_dict():
    from safetensors.torch import save_file
    state, folder = weights(rand), tempfile.TemporaryDirectory()
    return lambda: save_file(state, os.path.join(folder.name, "s.safetensors"))


def load_state_dict():
    from safetensors.torch import load_file, save_file
    folder = tempfile.TemporaryDirectory()
    save_file(weights(rand), os.path.join(folder.name, "s.safetensors"))
    net = weights(lambda *shape: torch.zeros(*shape, device=device))

    def call():
        # The folder goes with its last mention.
        for name, value in load_file(os.path.join(folder.name, "s.safetensors")).items():
            net[name].copy_(value)
    return call


case("dataloader_epoch_60000x784_b64", loader_epoch, least=3)
case("save_state_dict_100MB", save_state_dict)
case("load_state_dict_100MB", load_state_dict)


def written(results, folder):
    """Writes results as their plain bytes, and says what they are."""
    told = []
    for k, result in enumerate(results if isinstance(results, (tuple, list)) else [results]):
        array = (result.float() if result.element_size() < 4 and result.is_floating_point() else result).contiguous().cpu().numpy()
        array.tofile(os.path.join(folder, f"result{k}"))
        told.append(dict(shape=list(array.shape), dtype=str(array.dtype)))
    return told


def tensor_of(file, wide):
    """An input from its description: plain bytes, floats as the dtype "as", or as float64."""
    import numpy
    values = torch.from_numpy(numpy.fromfile(file["path"], dtype=file["dtype"])).reshape(file["shape"])
    if wide and values.is_floating_point():
        values = values.double()
    elif file["as"]:
        values = values.to(getattr(torch, file["as"]))
    return values.to(device)


def expression(question):
    """An expression of inputs that are in files, or the gradients of its sum weighted by the last of them. Its results are written
    beside these; for "wide", those of the inputs as float64, without a clock."""
    name, wide = question["case"], question.get("wide", False)
    inputs = [tensor_of(file, wide) for file in question["inputs"]]
    if on_gpu:
        torch.set_default_device(device)
    torch.set_grad_enabled(question["gradients"])
    try:
        function = eval("lambda x=None, y=None, z=None, w=None: " + question["torch"],
                        dict(torch=torch, F=F, L=torch.linalg, math=math, functools=functools))
        if question["compiled"]:
            function = torch.compile(function)

        def call():
            return function(*inputs)
        if question["gradients"]:
            weight = inputs.pop()
            leaves = [x.requires_grad_() for x in inputs if x.is_floating_point()]

            def call():
                return torch.autograd.grad((function(*inputs) * weight).sum(), leaves)
        if wide:
            return dict(peer="torch", case=name, results=written(call(), question["folder"]))
        least, most = question["reps"]
        cases[name] = dict(make=lambda: call, flop=question["flop"], ops=question["ops"], least=least, most=most, budget=question["budget"])
        answer = run(name)
        return dict(answer, results=written(call(), question["folder"]))
    finally:
        cases.pop(name, None)
        torch.set_grad_enabled(True)
        if on_gpu:
            torch.set_default_device(None)


# A file read in a process of its own: milliseconds, and megabytes beyond those at the start.
LOAD = """
import sys, time
import torch
from safetensors.torch import load_file
torch.set_num_threads(int(sys.argv[2]))

def status(field):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1.024 / 1e3 for line in file if line.startswith(field))

before = status("VmRSS")
start = time.perf_counter()
state = load_file(sys.argv[1])
# One byte of each page.
total = sum(int(value.reshape(-1).view(torch.uint8)[::4096].sum()) for value in state.values())
print((time.perf_counter() - start) * 1e3, status("VmHWM") - before)
"""
known_models = {}


def known_model(question):
    """A model of transformers, or the loading of its file. Models stay in memory for the next turn."""
    name, folder, length = question["case"], question["folder"], question["length"]
    if question["model"] == "load":
        command = [sys.executable, "-c", LOAD, os.path.join(folder, "model.safetensors"), str(args.threads)]
        runs = [subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() for _ in range(length)]
        return line(name, [float(ms) for ms, _ in runs], peak_mb=round(max(float(mb) for _, mb in runs)))
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    kind = transformers.AutoModel if question["model"] == "sentences" else transformers.AutoModelForCausalLM
    key = (folder, question["dtype"])
    if key not in known_models:
        known_models.clear()
        known_models[key] = kind.from_pretrained(folder, dtype=getattr(torch, question["dtype"])).to(device).eval()
    net, batch = known_models[key], question["batch"]
    rows = batch if question["model"] == "sentences" else 1
    ids = (100 + torch.arange(rows * length) * 7919 % 30_000).reshape(rows, length).to(device)
    mask = torch.ones_like(ids)
    calls = dict(
        sentences=lambda: net(input_ids=ids, attention_mask=mask).last_hidden_state,
        prompt=lambda: net(input_ids=ids, use_cache=True, logits_to_keep=1).logits[:, -1].float(),
        generate=lambda: net.generate(input_ids=ids, attention_mask=mask, do_sample=False, use_cache=True, pad_token_id=0,
                                      max_new_tokens=batch, min_new_tokens=batch)[0, length:],
    )

    def call():
        with torch.inference_mode():
            return calls[question["model"]]()
    cases[name] = dict(make=lambda: call, flop=None, ops=batch if question["model"] == "generate" else None, least=3, most=2000,
                       budget=question["budget"])
    try:
        told, result = run(name), call()
    finally:
        cases.pop(name, None)
    if question["model"] == "generate":
        result = torch.tensor([result[0], len(result)], dtype=torch.float32)
    return dict(told, outputs=[dict(mean=float(result.double().mean()), most=float(result.abs().max()))])


cases["simplenet_step_64_busy"] = cases["simplenet_step_64"]


def named(device):
    return f"{device} ({torch.cuda.get_device_name(device)})" if on_gpu else device


def answer(name):
    question = json.loads(name) if name.startswith("{") else {}
    name = question.get("case", name)
    try:
        if "model" in question:
            return known_model(question)
        if question:
            return expression(question)
        if name == "import":
            return start_to_first_result(name)
        if name in cases:
            return run(name)
        return dict(peer="torch", case=name, absent="not PyTorch's to measure")
    except Exception as error:  # torch.compile without a C++ compiler, above all
        why = str(error).strip() or type(error).__name__
        return dict(peer="torch", case=name, absent=why.splitlines()[0][:120])


print(json.dumps({"version": torch.__version__, "device": named(device)}), flush=True)
for name in sys.stdin:
    print(json.dumps(answer(name.strip())), flush=True)
