"""Parameters that are frozen, replaced, added, tied, or not where the optimizer thinks."""

import torch
from loop import Change, batch, gradients, mse, net, section
from torch import nn


@section
def frozen(told):
    model = net()
    for p in model[0].parameters():
        p.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told.record("model", parameters=3 * 4 + 4 + 4 * 2 + 2, trainable=4 * 2 + 2, tensors=4)
    told.record("optimizer", tensors=4, orphaned=0)
    for _ in range(3):
        optimizer.zero_grad()
        loss = mse(model, *batch())
        loss.backward()
        total = torch.nn.utils.clip_grad_norm_(model.parameters(), 1e-3).item()
        after = gradients(model[2].parameters())
        change = Change(model[2].parameters())
        optimizer.step()
        told.step(
            loss=loss.item(), grad_norm=total, always=["grad_norm"], grad_norm_after=after,
            **change.done()
        )  # fmt: skip


@section
def melted(told):
    """Unfrozen in mid-training: the model is described again."""
    model = net()
    for p in model[0].parameters():
        p.requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told.record("model", trainable=10)
    told.record("model", trainable=26)
    for n in range(1, 7):
        if n == 5:
            for p in model[0].parameters():
                p.requires_grad_(True)
        optimizer.zero_grad()
        loss = mse(model, *batch())
        loss.backward()
        trained = [p for p in model.parameters() if p.requires_grad]
        grad, change = gradients(trained), Change(trained)
        optimizer.step()
        told.step(loss=loss.item(), grad_norm=grad, **change.done())


@section
def optimizer_before_the_move(told):
    """Every tensor of the optimizer is one that the model no longer has."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for layer in (model[0], model[2]):
        layer.weight = nn.Parameter(layer.weight.detach().clone())
        layer.bias = nn.Parameter(layer.bias.detach().clone())
    told.record("optimizer", tensors=4, orphaned=4)
    for _ in range(2):
        optimizer.zero_grad()
        loss = mse(model, *batch())
        loss.backward()
        grad, change = gradients(model.parameters()), Change(model.parameters())
        optimizer.step()
        fields = change.done()
        if fields["params_changed"]:
            raise AssertionError("the model changed")
        told.step(loss=loss.item(), grad_norm=grad, samples=5, **fields)


@section
def one_layer_replaced(told):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model[2] = nn.Linear(4, 2)
    told.record("optimizer", tensors=4, orphaned=2)
    for _ in range(2):
        optimizer.zero_grad()
        loss = mse(model, *batch())
        loss.backward()
        grad, change = gradients(model.parameters()), Change(model.parameters())
        optimizer.step()
        told.step(loss=loss.item(), grad_norm=grad, **change.done())


@section
def replaced_later(told):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told.record("optimizer", tensors=4, orphaned=0)
    told.record("optimizer", tensors=4, orphaned=1)
    for n in range(1, 7):
        if n == 5:
            model[2].weight = nn.Parameter(model[2].weight.detach().clone())
        optimizer.zero_grad()
        loss = mse(model, *batch())
        loss.backward()
        optimizer.step()
        told.step(loss=loss.item())


@section
def group_added(told):
    model = net()
    optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)
    told.record("optimizer", tensors=2, orphaned=0)
    told.record("optimizer", tensors=4, orphaned=0)
    for n in range(1, 5):
        if n == 3:
            optimizer.add_param_group({"params": model[2].parameters(), "lr": 0.2})
        optimizer.zero_grad()
        loss = mse(model, *batch())
        loss.backward()
        grad, change = gradients(model.parameters()), Change(model.parameters())
        optimizer.step()
        told.step(
            loss=loss.item(), grad_norm=grad, **change.done(),
            groups=[{"lr": lr, "weight_decay": 0} for lr in ([0.1, 0.2] if n > 2 else [0.1])]
        )  # fmt: skip


@section
def tied(told):
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Tanh(), nn.Linear(3, 3, bias=False))
    model[2].weight = model[0].weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told.record("model", parameters=9, tensors=1, tied=[["0.weight", "2.weight"]])
    told.record("optimizer", tensors=1, orphaned=0)
    for _ in range(2):
        optimizer.zero_grad()
        loss = mse(model, *batch(outputs=3))
        loss.backward()
        total = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01).item()
        after = gradients(model.parameters())
        change = Change(model.parameters())
        optimizer.step()
        told.step(
            loss=loss.item(), grad_norm=total, always=["grad_norm"], grad_norm_after=after,
            **change.done()
        )  # fmt: skip


class Parts(nn.Module):
    """Never called itself: its parts are, one by one."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode, self.rest = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(5, 5)
        self.scale = nn.Parameter(torch.ones(1))


@section
def called_part_by_part(told):
    """A part that was not called this time is not foreign to the model."""
    model = Parts()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told.record("optimizer", tensors=7, orphaned=0)
    for _ in range(2):
        optimizer.zero_grad()
        x, y = batch()
        loss = (model.decode(model.encode(x)) * model.scale - y).pow(2).mean()
        loss.backward()
        optimizer.step()
        told.step(loss=loss.item(), samples=5)


@section
def lazy_module(told):
    model = nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.Linear(4, 2))
    model(torch.zeros(1, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told.record("model", parameters=26)
    for _ in range(2):
        optimizer.zero_grad()
        loss = mse(model, *batch())
        loss.backward()
        optimizer.step()
        told.step(loss=loss.item())


@section
def data_parallel(told):
    model = nn.DataParallel(net())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told.record("model", root="Sequential", parameters=26)
    for _ in range(2):
        optimizer.zero_grad()
        loss = mse(model, *batch())
        loss.backward()
        grad, change = gradients(model.parameters()), Change(model.parameters())
        optimizer.step()
        told.step(loss=loss.item(), grad_norm=grad, samples=5, **change.done())
