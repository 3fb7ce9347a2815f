"""Train a small model, some steps at a time, as told on standard input.

Handed to the project's Python by ``core.bench.worker``, never imported from Pilotage. Python 3.8 and
newer, torch 1.13 and newer. One JSON object a line comes in (``{"do": "make" | "run" | "counters" |
"end", ...}``), one goes out; times are in seconds.

The loop is a plain one, as in most scripts: zero_grad, forward, backward, clip, step, the end of the
graph where there is one, and the loss read every tenth step.
"""

import json
import os
import sys
import time
import types

READ_EVERY = 10  # steps between two reads of the loss, as loops that log do
BATCHES = 4  # different batches on the host; one is moved to the device in each step
CLIP = 1.0

# Ours by name; the rest of torch_xla's names are summed below.
METRICS = {
    "compile_times": ("CompileTime",),
    "executes": ("ExecuteTime",),
    "transfers_from": ("TransferFromDeviceTime", "TransferFromServerTime"),
    "transfers_to": ("TransferToDeviceTime", "TransferToServerTime"),
}
COUNTERS = {"compiles": "UncachedCompile", "scalar_reads": "aten::_local_scalar_dense"}


def _answers():
    """The stream for answers; what the program itself or a library prints goes to stderr."""
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return stream


def mlp(torch, size, depth):
    """Linear layers: 2 tensors each."""
    nn = torch.nn
    layers = []
    for _ in range(depth - 1):
        layers += [nn.Linear(size, size), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(size, 10))


def transformer(torch, size, depth):
    """An embedding, blocks of attention and MLP, a head: 5 tensors and 12 a block."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
            self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
            self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

        def forward(self, x):
            batch, length, _ = x.shape
            parts = self.qkv(self.norm1(x)).view(batch, length, 3, 4, size // 4)
            q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
            weights = torch.softmax(q @ k.transpose(-2, -1) / (size // 4) ** 0.5, dim=-1)
            x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, size))
            return x + self.down(torch.relu(self.up(self.norm2(x))))

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(100, size)
            self.place = nn.Parameter(torch.zeros(16, size))
            self.blocks = nn.ModuleList([Block() for _ in range(depth)])
            self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, 10, bias=False)

        def forward(self, x):
            x = self.embed(x) + self.place
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x).mean(1))

    return Transformer()


def cnn(torch, size, depth):
    """Convolutions with batch normalisation, a head: 4 tensors a convolution and 2."""
    nn = torch.nn
    layers, channels = [], 3
    for index in range(depth):
        layers += [nn.Conv2d(channels, size, 3, padding=1), nn.BatchNorm2d(size), nn.ReLU()]
        channels = size
        if index in (1, 3):
            layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(size, 10))


def _inputs(torch, name, size, batch):
    if name == "transformer":
        return torch.randint(0, 100, (batch, 16))
    if name == "cnn":
        return torch.randn(batch, 3, 16, 16)
    return torch.randn(batch, size)


MODELS = {"mlp": mlp, "transformer": transformer, "cnn": cnn}


class Switch:
    """Takes everything that the probe has put in place in torch out again, and puts it back.

    So that steps with the probe and without it can take turns in one process: between two processes
    the same steps differ by up to 15 %, by the luck of where their memory lies.
    """

    def __init__(self):
        self.on = True
        self.attributes = []  # (owner, name, the probe's function, the original)
        self.hooks = []  # (dict of hooks, key, the probe's function)
        seen = set()
        for name, module in list(sys.modules.items()):
            if name.split(".")[0] not in ("torch", "torch_xla") or module is None:
                continue
            # By type(): isinstance() would ask some objects for their class, which they warn of.
            owners = [module] + [v for v in vars(module).values() if issubclass(type(v), type)]
            for owner in owners:
                if id(owner) not in seen:
                    seen.add(id(owner))
                    self._look(owner)

    def _look(self, owner):
        for name, value in list(vars(owner).items()):
            if _of_the_probe(value):
                original = value
                while _of_the_probe(original):
                    original = getattr(original, "__wrapped__", None)
                if (
                    original is not None
                ):  # not where there was nothing, as in the end of an iterator
                    self.attributes.append((owner, name, value, original))
            elif issubclass(type(value), dict) and not name.startswith("__"):
                # Global hooks of optimizers and modules.
                for key, entry in list(value.items()):
                    if _of_the_probe(entry):
                        self.hooks.append((value, key, entry))

    def turn(self, on):
        """Let the following steps be watched, or not."""
        if on == self.on:
            return
        self.on = on
        for owner, name, ours, original in self.attributes:
            setattr(owner, name, ours if on else original)
        for hooks, key, ours in self.hooks:
            if on:
                hooks[key] = ours
            else:
                del hooks[key]


def _of_the_probe(value):
    if type(value) is not types.FunctionType:
        return False
    return str(value.__globals__.get("__name__")).split(".")[0] == "pilotage_probe"


class Training:
    """One model and its optimizer on the device, and batches on the host."""

    def __init__(self, torch, device, sync, name, size, depth, batch):
        torch.manual_seed(0)
        self.torch, self.device, self.sync = torch, device, sync
        self.model = MODELS[name](torch, size, depth).to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.batches = [
            (_inputs(torch, name, size, batch), torch.randint(0, 10, (batch,)))
            for _ in range(BATCHES)
        ]
        self.done = 0
        self.loss = None

    def step(self):
        """One optimizer step."""
        inputs, targets = self.batches[self.done % BATCHES]
        inputs, targets = inputs.to(self.device), targets.to(self.device)
        self.optimizer.zero_grad()
        loss = self.torch.nn.functional.cross_entropy(self.model(inputs), targets)
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
        self.optimizer.step()
        if self.sync is not None:
            self.sync()
        self.done += 1
        if self.done % READ_EVERY == 0:
            self.loss = loss.item()

    def run(self, steps, wait):
        """(seconds, processor seconds of all threads) of each of that many steps.

        What is still under way at the end is waited for.
        """
        times, processor = [], []
        for _ in range(steps):
            used, since = time.process_time(), time.perf_counter()
            self.step()
            times.append(time.perf_counter() - since)
            processor.append(time.process_time() - used)
        if wait is not None:
            wait()
        return times, processor


def counters(metrics):
    """Totals of this process by XLA's own counters; ``fallbacks`` are all other ``aten::``."""
    if metrics is None:
        return None
    found = {}
    for name, candidates in METRICS.items():
        data = [metrics.metric_data(candidate) for candidate in candidates]
        found[name] = sum(entry[0] for entry in data if entry is not None)
    for name, counter in COUNTERS.items():
        found[name] = metrics.counter_value(counter) or 0
    others = [n for n in metrics.counter_names() if n.startswith("aten::")]
    found["fallbacks"] = sum(
        metrics.counter_value(n) or 0 for n in others if n != COUNTERS["scalar_reads"]
    )
    return found


def main():
    """Greet, then do what is asked for until ``end`` or the end of the input."""
    answers = _answers()

    def answer(value):
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    import torch

    torch.set_num_threads(1)  # one process steps at a time, and others use this machine too
    greeting = {"bench": 1, "torch": torch.__version__, "torch_xla": None, "python": sys.version}
    device, sync, wait, metrics = torch.device("cpu"), None, None, None
    if sys.argv[1] == "xla":
        import torch_xla
        import torch_xla.core.xla_model as xm
        import torch_xla.debug.metrics as metrics

        device = torch_xla.device() if hasattr(torch_xla, "device") else xm.xla_device()
        # Looked up at each call, as in a script: the probe puts its own in place.
        owner = torch_xla if hasattr(torch_xla, "sync") else xm
        name = "sync" if owner is torch_xla else "mark_step"

        def sync():
            getattr(owner, name)()

        wait = xm.wait_device_ops
        greeting["torch_xla"] = torch_xla.__version__
    answer(greeting)

    training = switch = None
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "make":
            training = None  # one at a time: memory
            if switch is not None:
                switch.turn(True)
                switch = None
            shape = [command[name] for name in ("model", "size", "depth", "batch")]
            training = Training(torch, device, sync, *shape)
            tensors = list(training.model.parameters())
            answer({"tensors": len(tensors), "parameters": sum(p.numel() for p in tensors)})
        elif command["do"] == "run":
            if "watched" in command:
                switch = switch or Switch()
                switch.turn(command["watched"])
            places = None if switch is None else len(switch.attributes) + len(switch.hooks)
            times, processor = training.run(command["steps"], wait)
            answer({"seconds": times, "processor": processor, "places": places})
        elif command["do"] == "counters":
            answer({"counters": counters(metrics)})
        elif command["do"] == "end":
            break


if __name__ == "__main__":
    main()
