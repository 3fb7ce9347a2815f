"""What a program can see of the functions it calls: signatures, tracebacks, warnings, pickles."""

import inspect
import pickle
import traceback
import warnings

import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR

model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = StepLR(optimizer, 1)
watched = [
    torch.Tensor.backward,
    torch.autograd.backward,
    torch.autograd.grad,
    nn.Module.__call__,
    nn.Module._apply,
    nn.Module.zero_grad,
    nn.utils.clip_grad_norm_,
    nn.utils.clip_grad_value_,
    torch.optim.Optimizer.__init__,
    torch.optim.Optimizer.zero_grad,
    torch.optim.Optimizer.add_param_group,
    torch.optim.SGD.step,
    optimizer.step,
    StepLR.step,
    torch.cuda.amp.GradScaler.scale,
    torch.cuda.amp.GradScaler.step,
]
for function in watched:
    print(function.__module__, function.__qualname__, inspect.signature(function))
    print(len(inspect.getsource(function)), (function.__doc__ or "")[:40].strip())
print(pickle.loads(pickle.dumps(nn.utils.clip_grad_norm_)) is nn.utils.clip_grad_norm_)


def closure():
    """Fails as the data may."""
    raise ValueError("the data are gone")


class Broken(nn.Module):
    """Fails in its forward."""

    def forward(self, x):
        return x.missing


broken = Broken()
attempts = [
    lambda: torch.zeros(1).backward(),
    lambda: torch.autograd.backward(torch.zeros(1)),
    lambda: model("text"),
    lambda: nn.Sequential(broken)(torch.zeros(1)),
    lambda: optimizer.step(closure),
    lambda: optimizer.step(closure=closure, more=1),
    lambda: nn.utils.clip_grad_norm_(model.parameters()),
    lambda: nn.utils.clip_grad_norm_((1 / 0 for _ in "x"), 1.0),
    lambda: torch.optim.SGD([], lr=0.1),
    lambda: model.to("nowhere"),
]
for attempt in attempts:
    try:
        attempt()
        print("no exception")
    except Exception:
        lines = traceback.format_exc().splitlines()
        # The generator that is clipped is asked through one of the probe's own.
        print("\n".join(line for line in lines if "object at 0x" not in line))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model(torch.ones(1, 2)).sum().backward(create_graph=True)
    nn.utils.clip_grad_norm_((p for p in []), 1.0)
    schedule.step()
    torch.nn.functional.softmax(torch.ones(2))
for warning in caught:
    print(warning.category.__name__, warning.filename, warning.lineno, str(warning.message)[:60])
schedule.step()
raise SystemExit(closure())
