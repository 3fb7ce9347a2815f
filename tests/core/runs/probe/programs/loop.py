"""What every loop program needs: sections, each in a thread and so with steps of its own.

A section does its training and says, before it goes on, what each step was by its own arithmetic;
the test compares that with what the probe recorded. Runs on Python 3.8 and torch 1.13.
"""

import json
import math
import os
import sys
import threading
import traceback

import torch
from torch import nn

VERSION = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


class Skip(Exception):
    """This torch lacks what the section is about."""


def needs(version, what):
    """Skip the section below a version of torch, such as (2, 3)."""
    if version > VERSION:
        raise Skip(f"torch {torch.__version__} has no {what}")


class Told:
    """What a section says of its steps and of other records."""

    def __init__(self, name):
        self.fields = {"section": name, "steps": [], "records": []}

    def step(self, **expected):
        """The fields of the next step's record."""
        self.fields["steps"].append(expected)

    def record(self, kind, **expected):
        """Fields of the next record of a kind, such as ``optimizer``."""
        self.fields["records"].append(dict(expected, k=kind))

    def say(self):
        """Print it all as one line, in one piece: other processes may print too."""
        sys.stdout.flush()
        os.write(1, ("@" + json.dumps(self.fields) + "\n").encode())


def section(function):
    """Decorator: run the function now, in a thread of its own."""
    told = Told(function.__name__)

    def run():
        told.fields["tid"] = threading.get_native_id()
        try:
            torch.manual_seed(0)
            function(told)
        except Skip as reason:
            told.fields["skip"] = str(reason)
        except BaseException:
            told.fields["error"] = traceback.format_exc()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    told.say()
    return function


def net(inputs=3, outputs=2):
    """A model of four tensors."""
    return nn.Sequential(nn.Linear(inputs, 4), nn.Tanh(), nn.Linear(4, outputs))


def batch(size=5, inputs=3, outputs=2):
    """Inputs and targets, other ones at each call."""
    return torch.randn(size, inputs), torch.randn(size, outputs)


def mse(model, x, y):
    """Mean squared error."""
    return (model(x) - y).pow(2).mean()


def norm(tensors):
    """The 2-norm of tensors taken together."""
    return math.sqrt(sum(float(t.detach().double().pow(2).sum()) for t in tensors))


def gradients(parameters):
    """The 2-norm of their gradients."""
    return norm([p.grad for p in parameters if p.grad is not None])


class Change:
    """What happens to parameters between now and ``done``."""

    def __init__(self, parameters):
        self.parameters = list(parameters)
        self.old = [p.detach().clone() for p in self.parameters]

    def done(self):
        """The fields of a step's record on it."""
        moved = [p.detach().double() - o.double() for p, o in zip(self.parameters, self.old)]
        size = norm(moved)
        return {
            "param_norm": norm(self.parameters),
            "update_norm": size,
            "params_changed": size != 0,
            "norm_elements": sum(p.numel() for p in self.parameters),
        }
