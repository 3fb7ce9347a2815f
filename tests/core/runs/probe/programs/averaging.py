"""A model that is trained, and copies of it: a module, a table in an object, and a local list.

``python averaging.py DECAY``: prints what their distances are after four steps.
"""

import copy
import json
import sys

import torch

DECAY, STEPS = float(sys.argv[1]), 4


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)

    def forward(self, x):
        return self.two(self.one(x).tanh())


class Shadow:
    """As in many projects: {name: average}."""

    def __init__(self, model):
        self.shadow = {n: p.detach().clone() for n, p in model.named_parameters()}

    def update(self, model):
        for name, parameter in model.named_parameters():
            self.shadow[name].lerp_(parameter.detach(), 1 - DECAY)


def distance(copies, model):
    weights = [p.detach().double() for p in model.parameters()]
    apart = sum((w - c.detach().double()).square().sum() for w, c in zip(weights, copies))
    return float(apart / sum(w.square().sum() for w in weights)) ** 0.5


def main():
    torch.manual_seed(0)
    model = Net()
    average, shadow = copy.deepcopy(model), Shadow(model)
    averages = [p.detach().clone() for p in model.parameters()]
    same = {name: p.detach() for name, p in model.named_parameters()}
    equal = [p.detach().clone() for p in model.parameters()]
    other = [torch.zeros(4, 8), torch.zeros(8), torch.zeros(1, 8), torch.zeros(1)]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS + 1):
        x = torch.linspace(-1, 1, 64).view(16, 4)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        if step == STEPS:
            several = (average.parameters(), shadow.shadow.values(), averages)
            print(json.dumps([distance(found, model) for found in several]), flush=True)
        optimizer.zero_grad()
        loss.backward()  # which ends a parity run of four steps
        optimizer.step()
        shadow.update(model)
        with torch.no_grad():
            for mine, held, now, weight in zip(
                average.parameters(), averages, equal, model.parameters()
            ):
                mine.lerp_(weight, 0.01)
                held.lerp_(weight, 0.5)
                now.copy_(weight)
    assert same and other
    with torch.no_grad():
        wrapped = torch.nn.Sequential(model).eval()  # of the same weights
        wrapped(x), average(x[:5])


main()
