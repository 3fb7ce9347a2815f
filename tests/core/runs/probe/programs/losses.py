"""Where the loss of a step comes from."""

import torch
from loop import Change, Skip, batch, gradients, mse, needs, net, norm, section
from torch import nn


@section
def plain(told):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(6):
        loss = mse(model, *batch())
        loss.backward()
        grad = gradients(model.parameters())
        change = Change(model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        told.step(
            loss=loss.item(), loss_source="backward", backwards=1, closures=0, skipped=0,
            grad_norm=grad, grad_norm_after=grad, grad_norm_source="computed",
            signature="B S Z", samples=5, optimizer="SGD", lr=0.1, clips=[], **change.done()
        )  # fmt: skip


@section
def autograd_backward(told):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for several in (False, True, False):
        optimizer.zero_grad()
        x, y = batch()
        loss = mse(model, x, y)
        other = model(x).abs().mean()
        torch.autograd.backward([loss, other] if several else loss)
        optimizer.step()
        told.step(
            loss=loss.item() + (other.item() if several else 0), loss_source="backward", backwards=1
        )


@section
def sum_backward(told):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        x, y = batch()
        loss = (model(x) - y).pow(2)
        loss.sum().backward()
        optimizer.step()
        told.step(loss=loss.sum().item(), loss_source="backward", backwards=1)
    optimizer.zero_grad()
    loss = (model(x) - y).pow(2)
    loss.backward(gradient=torch.ones_like(loss))
    optimizer.step()
    told.step(loss=None, loss_source=None, backwards=1, why="loss")


@section
def several_losses(told):
    model, head = net(outputs=4), nn.Linear(4, 1)
    parameters = list(model.parameters()) + list(head.parameters())
    optimizer = torch.optim.Adam(parameters, lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        hidden = model(batch()[0])
        first, second = hidden.pow(2).mean(), head(hidden).mean()
        first.backward(retain_graph=True)
        second.backward()
        grad, change = gradients(parameters), Change(parameters)
        optimizer.step()
        told.step(
            loss=first.item() + second.item(), losses=[first.item(), second.item()], backwards=2,
            grad_norm=grad, samples=5, **change.done()
        )  # fmt: skip


@section
def accumulation(told):
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(3):
        losses = []
        for _ in range(4):
            loss = mse(model, *batch()) / 4
            loss.backward()
            losses.append(loss.item())
        grad, change = gradients(model.parameters()), Change(model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        told.step(
            loss=sum(losses), losses=losses, backwards=4, samples=20, grad_norm=grad,
            grad_norm_after=grad, signature="B B B B S Z", **change.done()
        )  # fmt: skip


@section
def cleared(told):
    """A backward pass whose gradients are thrown away is no part of the step."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        mse(model, *batch()).backward()
        optimizer.zero_grad()
        loss = mse(model, *batch())
        loss.backward()
        optimizer.step()
        model.zero_grad()
        told.step(loss=loss.item(), backwards=1, losses=None, signature="B Z B S Z")


@section
def closure(told):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(3):
        x, y = batch()
        seen = []

        def evaluate():
            optimizer.zero_grad()
            loss = mse(model, x, y)
            loss.backward()
            seen.append((loss.item(), gradients(model.parameters())))
            return loss

        change = Change(model.parameters())
        optimizer.step(evaluate)
        loss, grad = seen[0]
        told.step(
            loss=loss, loss_source="backward", backwards=1, closures=1, samples=5,
            grad_norm=grad, grad_norm_after=grad, signature="B S Z", **change.done()
        )  # fmt: skip


@section
def lbfgs(told):
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=5)
    for _ in range(3):
        x, y = batch()
        seen = []

        def evaluate():
            optimizer.zero_grad()
            loss = mse(model, x, y)
            loss.backward()
            seen.append((loss.item(), gradients(model.parameters())))
            return loss

        change = Change(model.parameters())
        returned = optimizer.step(closure=evaluate)
        if len(seen) < 2:
            raise AssertionError("one evaluation proves nothing")
        told.step(
            loss=returned.item(), loss_source="step", closures=len(seen), samples=5, optimizer="LBFGS",
            grad_norm=seen[0][1], signature="B S Z", **change.done()
        )  # fmt: skip


class Spsa(torch.optim.Optimizer):
    """Two evaluations at perturbed parameters and no gradient."""

    def __init__(self, params, lr, answers):
        super().__init__(params, {"lr": lr})
        self.answers = answers

    @torch.no_grad()
    def step(self, closure=None):
        group = self.param_groups[0]
        signs = [torch.sign(torch.randn_like(p)) for p in group["params"]]

        def move(by):
            for i, p in enumerate(group["params"]):
                p.add_(signs[i], alpha=by)

        move(0.01)
        up = float(closure())
        move(-0.02)
        down = float(closure())
        move(0.01)
        move(-group["lr"] * (up - down) / 0.02)
        return (up + down) / 2 if self.answers else None


@section
def zeroth_order(told):
    for answers in (True, False):
        model = net()
        optimizer = Spsa(model.parameters(), 0.01, answers)
        for _ in range(2):
            x, y = batch()
            values = []

            def evaluate():
                loss = mse(model, x, y)
                values.append(loss.item())
                return loss

            change = Change(model.parameters())
            optimizer.step(evaluate)
            told.step(
                loss=sum(values) / 2 if answers else values[1],
                loss_source="step" if answers else "closure", backwards=0, closures=2, samples=5,
                grad_norm=None, grad_norm_after=None, signature="S", **change.done()
            )  # fmt: skip


@section
def zeroth_order_by_hand(told):
    """As MeZO does it: no closure, no backward; the step is told a gradient made by hand."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        x, y = batch()
        signs = [torch.sign(torch.randn_like(p)) for p in model.parameters()]

        def move(by):
            with torch.no_grad():
                for i, p in enumerate(model.parameters()):
                    p.add_(signs[i], alpha=by)

        losses = []
        for by in (0.01, -0.02):
            move(by)
            with torch.no_grad():
                losses.append(mse(model, x, y).item())
        move(0.01)
        for i, p in enumerate(model.parameters()):
            p.grad = signs[i] * ((losses[0] - losses[1]) / 0.02)
        grad, change = gradients(model.parameters()), Change(model.parameters())
        optimizer.step()
        told.step(
            loss=None, loss_source=None, backwards=0, samples=10, why="loss", signature="S",
            grad_norm=grad, grad_norm_after=grad, **change.done()
        )  # fmt: skip


@section
def autograd_grad(told):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parameters = list(model.parameters())
    for _ in range(2):
        loss = mse(model, *batch())
        for p, g in zip(parameters, torch.autograd.grad(loss, parameters)):
            p.grad = g
        grad, change = gradients(parameters), Change(parameters)
        optimizer.step()
        told.step(
            loss=loss.item(), loss_source="autograd.grad", backwards=0, grad_norm=grad, samples=5,
            **change.done()
        )  # fmt: skip


@section
def gradient_penalty(told):
    """autograd.grad inside a loss is no training pass of its own."""
    model = net(outputs=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        x = torch.randn(4, 3, requires_grad=True)
        value = model(x).sum()
        (slope,) = torch.autograd.grad(value, x, create_graph=True)
        loss = value + slope.pow(2).sum()
        loss.backward()
        optimizer.step()
        told.step(loss=loss.item(), loss_source="backward", backwards=1, samples=4)


@section
def evaluation_between(told):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model.train()
        loss = mse(model, *batch())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        told.step(loss=loss.item(), samples=5, signature="B S Z")
        model.eval()
        with torch.no_grad():
            mse(model, *batch(7))


@section
def failed_step(told):
    """A step that raises an exception is none; the next one counts."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def fail():
        raise ValueError("the data are gone")

    for _ in range(2):
        try:
            optimizer.step(fail)
            raise AssertionError("no exception")
        except ValueError:
            pass
        optimizer.zero_grad()
        loss = mse(model, *batch())
        loss.backward()
        optimizer.step()
        told.step(loss=loss.item(), backwards=1)


@section
def changed_in_place(told):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss = mse(model, *batch())
        loss.backward()
        value = loss.item()
        loss.detach().mul_(1000)
        optimizer.step()
        told.step(loss=value)


@section
def functional(told):
    needs((2, 0), "torch.func")
    model = net()
    values = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    optimizer = torch.optim.SGD(values.values(), lr=0.1)
    told.record("optimizer", orphaned=None, tensors=4)
    for _ in range(3):
        optimizer.zero_grad()
        x, y = batch()
        loss = (torch.func.functional_call(model, values, (x,)) - y).pow(2).mean()
        loss.backward()
        grad, change = gradients(values.values()), Change(values.values())
        optimizer.step()
        told.step(loss=loss.item(), grad_norm=grad, samples=None, **change.done())


@section
def functional_gradients(told):
    needs((2, 0), "torch.func")
    model = net()
    names = [name for name, _ in model.named_parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        x, y = batch()
        loss_of = lambda values: (torch.func.functional_call(model, values, (x,)) - y).pow(2).mean()  # noqa: E731
        found = torch.func.grad(loss_of)({n: p.detach() for n, p in model.named_parameters()})
        for p, name in zip(model.parameters(), names):
            p.grad = found[name]
        grad, change = norm(found.values()), Change(model.parameters())
        optimizer.step()
        told.step(loss=None, why="loss", backwards=0, grad_norm=grad, **change.done())


@section
def own_update(told):
    """Parameters changed without an optimizer: no step is seen, and none is invented."""
    model = net()
    for _ in range(2):
        mse(model, *batch()).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
                p.grad = None
    if not model[0].weight.requires_grad:
        raise Skip("never")
