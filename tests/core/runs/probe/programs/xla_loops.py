"""Loops on an XLA device: plain, accumulating and clipped, and two models trained in turn.

What each step was is worked out by the same loop on the CPU, in float32, once the one on the
device is done: a backward pass on the CPU before that would break those on the device.
"""

import copy
import threading

import torch
import torch_xla
import torch_xla.core.xla_model as xm
from loop import Change, Told, gradients, net

sync = getattr(torch_xla, "sync", None) or xm.mark_step  # torch_xla 2.3 has the latter only
told = Told("main")
told.fields["tid"] = threading.get_native_id()


def train(models, device, rounds, parts=1, limit=None, say=False):
    """Train each model in turn; ``parts`` backward passes a step, clipped to ``limit``."""
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    torch.manual_seed(7)  # after them: a parity run sets seeds of its own where they are made
    for _ in range(rounds):
        held = []
        for i, model in enumerate(models):
            optimizers[i].zero_grad()
            for _ in range(parts):
                x, y = torch.randn(5, 3), torch.randn(5, 2)
                loss = (model(x.to(device)) - y.to(device)).pow(2).mean() / parts
                loss.backward()
                held.append(loss)
            if say:
                before = gradients(model.parameters())
            if limit:
                torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
            if say:
                after, change = gradients(model.parameters()), Change(model.parameters())
            optimizers[i].step()
            if say:
                value = sum(loss.item() for loss in held[-parts:])
                told.step(
                    backwards=parts, samples=5 * parts, optimizer_id=i + 1 if limit is None else 3,
                    parity={
                        "loss": value, "grad_norm": before, "grad_norm_after": after,
                        "by_hand": False, **change.done(),
                    },
                    # Of two optimizers before one sync the first is done when its loss is read.
                    light={
                        "loss": value if i == len(models) - 1 else None, "grad_norm": None,
                        "grad_norm_after": None, "update_norm": None,
                    },
                )  # fmt: skip
        if device != "cpu":
            sync()
            for loss in held:
                loss.item()


def both(device, models, say=False):
    """All that is trained: two models in turn, then one of them with accumulation and clipping."""
    train(models, device, 3, say=say)
    train(models[:1], device, 3, parts=2, limit=0.05, say=say)


torch.manual_seed(0)
on_cpu = [net(), net()]
device = torch_xla.device()
both(device, [copy.deepcopy(model).to(device) for model in on_cpu])
# Another thread: its steps are its own.
thread = threading.Thread(target=both, args=("cpu", on_cpu, True))
thread.start()
thread.join()
told.say()
