"""Several optimizers, and optimizers of unusual kinds."""

import copy
import pickle
import threading

import torch
from loop import Change, batch, gradients, mse, needs, net, norm, section
from torch import nn


def gan():
    """Two models of different size, and an optimizer for each."""
    generator, judge = net(2, 3), nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
    return (
        generator,
        judge,
        torch.optim.Adam(generator.parameters(), lr=0.01),
        torch.optim.SGD(judge.parameters(), lr=0.1),
    )


@section
def gan_in_turn(told):
    generator, judge, of_generator, of_judge = gan()
    told.record("optimizer", optimizer_id=1, cls="SGD", orphaned=0, tensors=4)
    told.record("optimizer", optimizer_id=2, cls="Adam", orphaned=0, tensors=4)
    told.record("model", optimizer_id=1, parameters=3 * 8 + 8 + 8 + 1, tensors=4)
    told.record("model", optimizer_id=2, parameters=2 * 4 + 4 + 4 * 3 + 3, tensors=4)
    for n in (1, 2, 3):
        of_judge.zero_grad()
        real, fake = torch.randn(5, 3), generator(torch.randn(5, 2)).detach()
        loss = judge(fake).mean() - judge(real).mean()
        loss.backward()
        grad, change = gradients(judge.parameters()), Change(judge.parameters())
        of_judge.step()
        told.step(
            optimizer="SGD", optimizer_id=1, optimizer_n=n, loss=loss.item(), backwards=1,
            samples=10, grad_norm=grad, grad_norm_after=grad, lr=0.1, **change.done()
        )  # fmt: skip
        of_generator.zero_grad()
        loss = -judge(generator(torch.randn(6, 2))).mean()
        loss.backward()
        grad, change = gradients(generator.parameters()), Change(generator.parameters())
        of_generator.step()
        told.step(
            optimizer="Adam", optimizer_id=2, optimizer_n=n, loss=loss.item(), backwards=1,
            samples=6, grad_norm=grad, grad_norm_after=grad, lr=0.01, **change.done()
        )  # fmt: skip


@section
def gan_at_once(told):
    generator, judge, of_generator, of_judge = gan()
    for n in (1, 2):
        of_judge.zero_grad()
        of_generator.zero_grad()
        fake = generator(torch.randn(5, 2))
        of_fake = judge(fake).mean()
        first = judge(fake.detach()).mean() - judge(torch.randn(5, 3)).mean()
        second = -of_fake
        second.backward()
        for p in judge.parameters():
            p.grad = None
        first.backward()
        changes = Change(judge.parameters()), Change(generator.parameters())
        grads = gradients(judge.parameters()), gradients(generator.parameters())
        of_judge.step()
        of_generator.step()
        told.step(
            optimizer_id=1, optimizer_n=n, backwards=2, loss=first.item() + second.item(),
            losses=[second.item(), first.item()], grad_norm=grads[0], samples=15,
            **changes[0].done()
        )  # fmt: skip
        told.step(
            optimizer_id=2, optimizer_n=n, backwards=0, loss=None, why="loss", samples=5,
            grad_norm=grads[1], grad_norm_after=grads[1], **changes[1].done()
        )  # fmt: skip


@section
def one_model_two_optimizers(told):
    model = net()
    body = torch.optim.SGD(model[0].parameters(), lr=0.1)
    head = torch.optim.SGD(model[2].parameters(), lr=0.01)
    for _ in range(3):
        body.zero_grad()
        head.zero_grad()
        loss = mse(model, *batch())
        loss.backward()
        grads = gradients(model[0].parameters()), gradients(model[2].parameters())
        changes = Change(model[0].parameters()), Change(model[2].parameters())
        body.step()
        head.step()
        told.step(
            loss=loss.item(), optimizer_id=1, samples=5, lr=0.1, grad_norm=grads[0],
            **changes[0].done()
        )  # fmt: skip
        told.step(
            loss=None, why="loss", optimizer_id=2, samples=5, lr=0.01, grad_norm=grads[1],
            **changes[1].done()
        )  # fmt: skip


@section
def one_model_then_another(told):
    for part in (1, 2):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            loss = mse(model, *batch())
            loss.backward()
            grad, change = gradients(model.parameters()), Change(model.parameters())
            optimizer.step()
            optimizer.zero_grad()
            told.step(
                loss=loss.item(), samples=5, optimizer="SGD", signature="B S Z", grad_norm=grad, optimizer_id=part,
                **change.done()
            )  # fmt: skip
        told.record("optimizer", orphaned=0, tensors=4)


class Lookahead(torch.optim.Optimizer):
    """Wraps another optimizer, shares its groups and steps it."""

    def __init__(self, base):
        super().__init__(base.param_groups, {})
        self.base = base
        self.param_groups = base.param_groups

    def zero_grad(self, set_to_none=True):
        self.base.zero_grad()

    def step(self, closure=None):
        loss = self.base.step(closure)
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.mul_(0.99)
        return loss


@section
def wrapped(told):
    """Only the outer of two counts, and what it changed is what both did."""
    model = net()
    optimizer = Lookahead(torch.optim.SGD(model.parameters(), lr=0.1))
    told.record("optimizer", cls="Lookahead", orphaned=0)
    for _ in range(3):
        optimizer.zero_grad()
        loss = mse(model, *batch())
        loss.backward()
        grad, change = gradients(model.parameters()), Change(model.parameters())
        optimizer.step()
        told.step(loss=loss.item(), optimizer="Lookahead", grad_norm=grad, **change.done())


class Own(torch.optim.Optimizer):
    """A step that calls no parent."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.5})

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(p.grad, alpha=-group["lr"])
        return "done"


class Loud(torch.optim.SGD):
    """A step that calls its parent's."""

    def step(self, closure=None):
        loss = super().step(closure)
        return loss


class Quiet(Loud):
    """Inherits that step."""


@section
def subclasses(told):
    model = net()
    for cls in (Own, Loud, Quiet):
        optimizer = cls(model.parameters()) if cls is Own else cls(model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            loss = mse(model, *batch())
            loss.backward()
            grad, change = gradients(model.parameters()), Change(model.parameters())
            optimizer.step()
            told.step(
                loss=loss.item(), optimizer=cls.__name__, grad_norm=grad, samples=5,
                loss_source="backward", **change.done()
            )  # fmt: skip


@section
def implementations(told):
    """for-loop, foreach and fused do the same."""
    for name, lowest in (("foreach", (2, 0)), ("fused", (2, 4))):
        needs((2, 0), "foreach for the CPU")
        if lowest > tuple(int(x) for x in torch.__version__.split("+")[0].split(".")[:2]):
            continue
        model = net()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, **{name: True})
        for _ in range(2):
            optimizer.zero_grad(set_to_none=False)
            loss = mse(model, *batch())
            loss.backward()
            grad, change = gradients(model.parameters()), Change(model.parameters())
            optimizer.step()
            told.step(loss=loss.item(), grad_norm=grad, grad_norm_after=grad, **change.done())


@section
def copied_and_unpickled(told):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    told.record("optimizer", orphaned=0)
    loss = mse(model, *batch())
    loss.backward()
    optimizer.step()
    told.step(loss=loss.item(), optimizer_id=1)
    other, twin = pickle.loads(pickle.dumps((model, optimizer)))
    told.record("optimizer", orphaned=0)
    other.zero_grad()
    loss = mse(other, *batch())
    loss.backward()
    grad, change = gradients(other.parameters()), Change(other.parameters())
    twin.step()
    told.step(loss=loss.item(), optimizer_id=2, grad_norm=grad, samples=5, **change.done())
    del other, twin
    model, optimizer = copy.deepcopy((model, optimizer))
    told.record("optimizer", orphaned=0)
    model.zero_grad()
    loss = mse(model, *batch())
    loss.backward()
    optimizer.step()
    told.step(loss=loss.item(), samples=5)


@section
def two_threads(told):
    """Replicas in threads: this one's steps hold nothing of the other's."""
    turn = threading.Barrier(2, timeout=30)

    def train(say):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            turn.wait()
            loss = mse(model, *batch(3 if say else 4))
            loss.backward()
            turn.wait()
            grad, change = gradients(model.parameters()), Change(model.parameters())
            turn.wait()
            optimizer.step()
            fields = change.done()
            turn.wait()
            if say:
                told.step(loss=loss.item(), samples=3, backwards=1, grad_norm=grad, **fields)

    other = threading.Thread(target=train, args=(False,))
    other.start()
    train(True)
    other.join()


@section
def schedules(told):
    model = net()
    groups = [
        {"params": model[0].parameters(), "lr": 0.1},
        {"params": model[2].parameters(), "lr": 0.2, "weight_decay": 0.01},
    ]
    optimizer = torch.optim.SGD(groups, lr=1.0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 0.5**n)
    for n in range(4):
        loss = mse(model, *batch())
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        told.step(
            groups=[
                {"lr": 0.1 * 0.5**n, "weight_decay": 0},
                {"lr": 0.2 * 0.5**n, "weight_decay": 0.01},
            ],
            signature="B S L Z",
        )


@section
def rate_as_a_tensor(told):
    needs((2, 1), "learning rates that are tensors")
    model = net()
    rate = torch.tensor(0.25)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, foreach=False)
    for _ in range(3):
        mse(model, *batch()).backward()
        told.step(lr=float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        optimizer.zero_grad()
        optimizer.param_groups[0]["lr"].mul_(0.5)


@section
def sum_of_norms(told):
    """A sparse gradient, as embeddings can have."""
    model = nn.Sequential(nn.Embedding(10, 3, sparse=True), nn.Flatten())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss = model(torch.tensor([[1, 2], [2, 3]])).pow(2).sum()
        loss.backward()
        grad = norm([p.grad.coalesce().values() for p in model.parameters()])
        change = Change(model.parameters())
        optimizer.step()
        told.step(loss=loss.item(), grad_norm=grad, samples=2, **change.done())
