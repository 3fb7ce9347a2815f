"""Several models, each with an optimizer of its own: captured once, then replayed as it is or wrong.

    replayed.py cpu|xla FAULT,FAULT,...

Each fault is in another model, so that one run shows them all. The weights are other ones at each
start (of the process's own id), so what agrees has been taken over from the reference.
"""

import os
import random
import sys
from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

where, faults = sys.argv[1], set(sys.argv[2].split(",")) if len(sys.argv) > 2 else set()
if where == "xla":
    import torch_xla

    device = torch_xla.device()
else:
    device = torch.device("cpu")
seed = os.getpid()


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-3 if "eps" in faults else 1e-5)
        self.attention = nn.MultiheadAttention(width, 2, dropout=0.1, batch_first=True)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x, mask=None):
        h = self.norm(x)
        x = x + self.attention(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + self.dropout(self.down(functional.gelu(self.up(x))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList([Block(8), Block(8)])
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("scale", torch.tensor(0.5), persistent=False)

    def forward(self, ids):
        x = self.embedding(ids) * self.scale
        mask = torch.full((ids.shape[1], ids.shape[1]), float("-inf")).triu(1).to(x.device)
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.head(x)


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.relu = nn.ReLU(inplace=True)
        self.second = nn.Conv2d(4, 4, 3)
        self.head = nn.Linear(4, 5)

    def forward(self, x):
        x = self.relu(self.norm(self.first(x)))
        x = self.relu(self.norm(self.second(x)))
        x = x * 1.001 if "scaled" in faults else x
        return self.head(x.mean((2, 3)))


@dataclass
class Output(OrderedDict):
    """As transformers' ModelOutput: a dataclass and a mapping of what is not None."""

    loss: object = None
    logits: object = None

    def __post_init__(self):
        super().__init__({k: v for k, v in vars(self).items() if v is not None})


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, values, *, flip=False):
        kind = "tanh" if "gelu" in faults else "none"
        return {"hidden": self.two(functional.gelu(self.one(values), approximate=kind)), "n": 3}


class Labelled(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = Inner(), nn.Linear(6, 3)
        self.steps = 0
        self.log = []

    def forward(self, values, labels=None):
        self.steps += 1
        self.log.append(random.random())
        hidden = self.body(values, flip=True)["hidden"]
        if "detach" in faults:
            hidden = hidden.detach()
        logits = self.head(hidden)
        return Output(functional.cross_entropy(logits, labels), logits)


def mlp(*sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.Tanh()]
    return nn.Sequential(OrderedDict(zip(["in", "act", "out", "end"], layers)))


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        name = "renamed" if "renamed" in faults else "net"
        self.name = name
        setattr(self, name, mlp(4, 6, 5))

    def forward(self, noise):
        return getattr(self, self.name)(noise)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(5, 6, 1)

    def forward(self, x):
        return self.net(x)


torch.manual_seed(seed)
transformer, convolutions, labelled = Transformer(), Convolutions(), Labelled()
critic, generator = Critic(), Generator()
for module in (transformer, convolutions, labelled, critic, generator):
    module.to(device)
if where == "xla":
    transformer.head.weight = transformer.embedding.weight
optimizers = {
    module: torch.optim.SGD(module.parameters(), lr=0.01)
    for module in (transformer, convolutions, labelled, critic, generator)
}
draw = torch.Generator().manual_seed(5)
ids = torch.randint(0, 20, (2, 6), generator=draw)
images = torch.randn(3, 3, 8, 8, generator=draw)
values, labels = torch.randn(4, 6, generator=draw), torch.tensor([0, 1, 2, 0])
real, noise = torch.randn(4, 5, generator=draw), torch.randn(4, 4, generator=draw)
if "padded" in faults:
    ids = functional.pad(ids, (0, 2))
ids, images, values, labels, real, noise = (
    tensor.to(device) for tensor in (ids, images, values, labels, real, noise)
)


def step(module, loss, clip=False):
    loss.backward()
    if clip:
        nn.utils.clip_grad_norm_(module.parameters(), 0.01)
    optimizers[module].step()
    for optimizer in optimizers.values():
        optimizer.zero_grad()
    if where == "xla":
        torch_xla.sync()


for _ in range(2):
    random.seed(1)
    state = torch.get_rng_state()
    step(transformer, transformer(ids).square().mean(), clip=True)
    step(convolutions, convolutions(images).square().mean())
    step(labelled, labelled(values, labels=labels).loss)
    fake = generator(noise)
    step(critic, critic(real).mean() - critic(fake.detach()).mean())
    step(generator, critic(fake).mean())
    # Neither generators nor what the modules keep must show that they ran more often.
    assert torch.equal(state, torch.get_rng_state())
    assert labelled.log[-1] == random.Random(1).random()
assert labelled.steps == len(labelled.log) == 2
assert int(convolutions.norm.num_batches_tracked) == 4
print(
    "sum", sum(float(p.detach().cpu().double().sum()) for m in optimizers for p in m.parameters())
)
