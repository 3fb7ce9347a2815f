"""torch.compile, with the backend that compiles nothing but traces everything."""

import sys

import torch
from loop import VERSION, Change, Skip, batch, gradients, mse, needs, net, section


def compiled(what, **options):
    """``torch.compile``, where this torch has it for this Python."""
    needs((2, 1), "torch.compile worth the name")
    if sys.version_info < (3, 9):
        raise Skip("torch.compile in threads crashes Python 3.8 now and then, the probe or not")
    if sys.version_info >= (3, 13) and torch.__version__ < "2.6":
        raise Skip("no torch.compile for this Python")
    return torch.compile(what, backend="eager", **options)


@section
def model_compiled(told):
    inner = net()
    model = compiled(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told.record("model", root="Sequential", parameters=26)
    told.record("optimizer", orphaned=0, tensors=4)
    for _ in range(3):
        optimizer.zero_grad()
        loss = mse(model, *batch())
        loss.backward()
        before = gradients(inner.parameters())
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        change = Change(inner.parameters())
        optimizer.step()
        told.step(
            loss=loss.item(), samples=5, grad_norm=before, always=["grad_norm"], **change.done()
        )


@section
def compiled_in_place(told):
    model = net()
    needs((2, 3), "Module.compile")
    model.compile(backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told.record("optimizer", orphaned=0, tensors=4)
    for _ in range(2):
        optimizer.zero_grad()
        loss = mse(model, *batch())
        loss.backward()
        before, change = gradients(model.parameters()), Change(model.parameters())
        optimizer.step()
        told.step(loss=loss.item(), samples=5, grad_norm=before, **change.done())


@section
def only_inside_a_compiled_function(told):
    """The model is never seen: what is not known is None, the rest comes from the optimizer.

    Before torch 2.5 a compiled graph still calls the layers as modules: these are seen.
    """
    model = net()
    loss_of = compiled(lambda x, y: mse(model, x, y), fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    layers = VERSION < (2, 5)
    told.record("optimizer", orphaned=0 if layers else None, tensors=4)
    for _ in range(3):
        optimizer.zero_grad()
        loss = loss_of(*batch())
        loss.backward()
        before, change = gradients(model.parameters()), Change(model.parameters())
        optimizer.step()
        told.step(
            loss=loss.item(), samples=5 if layers else None, grad_norm=before, **change.done()
        )


@section
def step_compiled(told):
    """A step that is compiled in one piece is not seen; where the tracing stops at it, it is."""
    needs((2, 3), "compiled optimizers")
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=True)
    step = compiled(lambda: optimizer.step())
    told.fields["may be unseen"] = True
    for _ in range(2):
        optimizer.zero_grad()
        loss = mse(model, *batch())
        loss.backward()
        before, change = gradients(model.parameters()), Change(model.parameters())
        step()
        fields = change.done()
        if not fields["params_changed"]:
            raise AssertionError("no step was made")
        told.step(loss=loss.item(), grad_norm=before, **fields)


def graphs():
    """What was compiled: the probe must not change it."""
    counters = sys.modules["torch._dynamo.utils"].counters
    return [dict(counters["stats"]), dict(counters["graph_break"])]


if "torch._dynamo.utils" in sys.modules:
    print("graphs", graphs())
