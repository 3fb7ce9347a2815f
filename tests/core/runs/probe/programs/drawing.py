"""Draws random numbers in each way that programs do, on a device, and prints them.

drawing.py cpu|xla
"""

import random
import sys

import numpy
import torch

device = torch.device("cpu")
if sys.argv[1] == "xla":
    import torch_xla
    import torch_xla.core.xla_model as xm

    device = torch_xla.device()
shown = {}


def show(name, tensor):
    shown[name] = tensor.detach().cpu().double().flatten()[:4].tolist()
    assert tensor.device.type == device.type or name == "explicit", name


model = torch.nn.Linear(4, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
show("randn", torch.randn(3, 4, device=device))
show("half", torch.rand((20,), device=device, dtype=torch.bfloat16))
show("randint", torch.randint(0, 100, (5,), device=device))
show("randperm", torch.randperm(9, device=device))
x = torch.zeros(5, 20, device=device)
show("randn_like", torch.randn_like(x))
show("randn_like of a view", torch.randn_like(x.t()))
show("rand_like as float64", torch.rand_like(x, dtype=torch.float64))
show("normal_", torch.empty(5, 7, device=device).normal_(1.0, 2.0))
show("uniform_ into a view", torch.empty(5, 7, device=device).t().uniform_())
show("bernoulli", torch.bernoulli(torch.full((9,), 0.5, device=device)))
show("multinomial", torch.multinomial(torch.ones(9, device=device), 4))
show("normal", torch.normal(mean=0, std=1, size=(4, 5), device=device))
show("normal of tensors", torch.normal(x, x + 1))
show("rsample", torch.distributions.Normal(x, x + 1).rsample())
show("gamma", torch.distributions.Gamma(x + 1, x + 1).sample())
show("gumbel", torch.nn.functional.gumbel_softmax(x))
show("grad", torch.randn(3, device=device, requires_grad=True).mul(2))
weight = torch.nn.Parameter(torch.empty(6, 6, device=device))
torch.nn.init.kaiming_uniform_(weight)
show("init", weight)
shown["hosts"] = [random.random(), numpy.random.rand()]
torch.manual_seed(7)
show("seeded", torch.randn(4, device=device))
show("explicit", torch.randn(3, generator=torch.Generator().manual_seed(3)))

# A generator of the device's: set to a seed, and set back to a state.
(torch_xla.manual_seed if device.type == "xla" else torch.manual_seed)(11)
show("seeded there", torch.randn(4, device=device))
state = xm.get_rng_state() if device.type == "xla" else torch.get_rng_state()
one = torch.randn(4, device=device)
(xm.set_rng_state if device.type == "xla" else torch.set_rng_state)(state)
assert (one == torch.randn(4, device=device)).all()
show("after a state", one)


def perturb(seed, scale):
    """As a zeroth-order optimizer does."""
    torch.manual_seed(seed)
    for p in model.parameters():
        z = torch.normal(mean=0, std=1, size=p.size(), device=p.device, dtype=p.dtype)
        p.data.add_(scale * z)


with torch.no_grad():
    before = model.weight.clone()
    for scale in (1e-3, -2e-3, 1e-3):
        perturb(5, scale)
        shown[f"loss {scale:g}"] = [float(model(x[:, :4] + 1).sum())]
    assert torch.allclose(before, model.weight, atol=1e-6)


class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return 20

    def __getitem__(self, index):
        return index + torch.rand(()) / 2 + random.random() / 4 + numpy.random.rand() / 8


for workers in (0, 2):
    loader = torch.utils.data.DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=workers)
    shown[f"batches, {workers} workers"] = [float(batch[0]) for batch in loader]
again = [float(Noisy()[0]) for _ in range(2)]
assert again[0] != again[1]
torch.set_default_device(device)
show("default device", torch.randn(3))
assert torch.zeros(1).device.type == device.type
with torch.device("cpu"):
    assert torch.rand(1).device.type == "cpu"
for name, numbers in shown.items():
    print(name, *numbers, sep="\t")
