"""Captures models in every way torch has, before, within and after training, and prints what came out."""

import sys
import warnings

import torch
from torch import nn


def show(name, capture):
    """What a capture gives, or the type of what it raises: either has to be the same under the probe."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            print(name, capture())
        except Exception as error:
            print(name, type(error).__name__)
        print(name, sorted(str(w.message)[:60] for w in seen))


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.0), nn.Linear(8, 2))
x = torch.randn(3, 4)


def captures():
    show("trace", lambda: torch.jit.trace(model, x).graph)
    show("trace of one", lambda: torch.jit.trace(nn.Linear(4, 2), x).code)
    show("script", lambda: torch.jit.script(model).code)
    show("fx", lambda: torch.fx.symbolic_trace(model).code)
    if hasattr(torch, "export") and sys.version_info >= (3, 9):
        batch = {0: torch.export.Dim("batch", min=2, max=64)}
        show("export", lambda: torch.export.export(model, (x,), dynamic_shapes=(batch,)).graph)
    from torch.fx.experimental.proxy_tensor import make_fx

    show("make_fx", lambda: make_fx(lambda a: model(a))(x).code)
    show("make_fx symbolic", lambda: make_fx(lambda a: model(a), tracing_mode="symbolic")(x).code)


captures()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    loss = model(torch.randn(5, 4)).square().mean()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
captures()
print(sum(p.sum() for p in model.parameters()).item())
