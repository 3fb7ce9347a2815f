"""Clipping, by whatever call or hand."""

import inspect

import torch
from loop import Change, Skip, batch, gradients, mse, net, norm, section
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_


def foreach_choices():
    """Every implementation that this torch lets a caller choose."""
    if "foreach" not in inspect.signature(clip_grad_norm_).parameters:
        return [{}]
    return [{}, {"foreach": True}, {"foreach": False}]


@section
def by_norm(told):
    for options in foreach_choices():
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for n in range(3):
            optimizer.zero_grad()
            loss = mse(model, *batch())
            loss.backward()
            before = gradients(model.parameters())
            parameters = list(model.parameters()) if n == 1 else model.parameters()
            limit = before / 4
            clip_grad_norm_(parameters, limit, **options)
            after = gradients(model.parameters())
            if abs(after / before - 0.25) > 1e-3:
                raise AssertionError("clipping did not clip")
            change = Change(model.parameters())
            optimizer.step()
            told.step(
                grad_norm=before, always=["grad_norm", "grad_norm_source"], grad_norm_after=after,
                light={"grad_norm_source": "clip", "grad_norm": before}, by_hand=False,
                parity={"grad_norm_source": "computed"}, loss=loss.item(),
                clips=[["clip_grad_norm_", limit, 2.0, before]], **change.done()
            )  # fmt: skip


@section
def other_norms(told):
    """A largest element or a sum is no 2-norm: it is recorded as the clip's, not as the gradients'."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for kind, word in ((float("inf"), "inf"), ("inf", "inf"), (1.0, "1"), (3, "3")):
        mse(model, *batch()).backward()
        flat = torch.cat([p.grad.flatten() for p in model.parameters()])
        total = float(flat.norm(p=float(kind)))
        before = gradients(model.parameters())
        clip_grad_norm_(model.parameters(), 0.5, norm_type=kind)
        after = gradients(model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        told.step(
            clips=[["clip_grad_norm_", 0.5, float(kind), total]], grad_norm_after=after,
            light={"grad_norm": None, "why": "grad_norm"}, parity={"grad_norm": before},
            signature=f"B C(0.5,{word}) S Z"
        )  # fmt: skip


@section
def by_value(told):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        mse(model, *batch()).backward()
        before = gradients(model.parameters())
        clip_grad_value_(model.parameters(), 0.05)
        after = gradients(model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        told.step(
            clips=[["clip_grad_value_", 0.05, None, None]], grad_norm_after=after,
            light={"grad_norm": None}, parity={"grad_norm": before}, signature="B CV(0.05) S Z"
        )  # fmt: skip


@section
def in_two_halves(told):
    utils = torch.nn.utils
    if not hasattr(utils, "get_total_norm"):
        raise Skip("torch %s has no get_total_norm" % torch.__version__)  # noqa: UP031
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        mse(model, *batch()).backward()
        before = gradients(model.parameters())
        total = utils.get_total_norm([p.grad for p in model.parameters()])
        utils.clip_grads_with_norm_(model.parameters(), 0.125, total)
        after = gradients(model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        told.step(
            clips=[["clip_grads_with_norm_", 0.125, 2.0, before]], grad_norm_after=after,
            grad_norm=before, always=["grad_norm"], signature="B C(0.125) S Z"
        )  # fmt: skip


@section
def a_part(told):
    """The norm of a part is not the norm of the gradients."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        mse(model, *batch()).backward()
        before, part = gradients(model.parameters()), gradients(model[0].parameters())
        clip_grad_norm_(model[0].parameters(), part / 2)
        after = gradients(model.parameters())
        optimizer.step()
        told.step(
            clips=[["clip_grad_norm_", part / 2, 2.0, part]], grad_norm_after=after,
            light={"grad_norm": None, "why": "grad_norm"}, parity={"grad_norm": before}
        )  # fmt: skip


@section
def part_by_part(told):
    """All parts together are."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        mse(model, *batch()).backward()
        before = gradients(model.parameters())
        clip_grad_norm_(model[0].parameters(), 0.01)
        clip_grad_norm_(model[2].parameters(), 0.01)
        after = gradients(model.parameters())
        optimizer.step()
        told.step(grad_norm=before, always=["grad_norm"], grad_norm_after=after)


@section
def more_than_is_trained(told):
    """The norm over two models is not the norm of the one that steps."""
    model, other = net(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model.zero_grad()
        other.zero_grad()
        x, y = batch()
        (mse(model, x, y) + mse(other, x, y)).backward()
        before = gradients(model.parameters())
        both = list(model.parameters()) + list(other.parameters())
        total = gradients(both)
        clip_grad_norm_(both, 0.1)
        after = gradients(model.parameters())
        optimizer.step()
        told.step(
            clips=[["clip_grad_norm_", 0.1, 2.0, total]], grad_norm_after=after,
            light={"grad_norm": None}, parity={"grad_norm": before}
        )  # fmt: skip


class Sharded(nn.Module):
    """Clips by a method of its own, as FSDP does."""

    def __init__(self, inside):
        super().__init__()
        self.module, self.inside = net(), inside

    def forward(self, x):
        return self.module(x)

    def clip_grad_norm_(self, max_norm, norm_type=2.0):
        if self.inside:
            return clip_grad_norm_(self.parameters(), max_norm, norm_type)
        total = torch.tensor(norm([p.grad for p in self.parameters()]))
        for p in self.parameters():
            p.grad.mul_(min(1.0, max_norm / float(total)))
        return total


@section
def by_a_method(told):
    for inside in (False, True):
        model = Sharded(inside)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        name = "clip_grad_norm_" if inside else "Sharded.clip_grad_norm_"
        for _ in range(2):
            mse(model, *batch()).backward()
            before = gradients(model.parameters())
            model.clip_grad_norm_(0.1)
            after = gradients(model.parameters())
            optimizer.step()
            optimizer.zero_grad()
            told.step(
                clips=[[name, 0.1, 2.0, before]], grad_norm=before, always=["grad_norm"],
                grad_norm_after=after, signature="B C(0.1) S Z", by_hand=False
            )  # fmt: skip


class Clipping(torch.optim.SGD):
    """Clips inside its step."""

    def step(self, closure=None):
        clip_grad_norm_(self.param_groups[0]["params"], 0.1)
        return super().step(closure)


@section
def inside_the_step(told):
    model = net()
    optimizer = Clipping(model.parameters(), lr=0.1)
    for _ in range(2):
        mse(model, *batch()).backward()
        before, change = gradients(model.parameters()), Change(model.parameters())
        optimizer.step()
        after = gradients(model.parameters())
        optimizer.zero_grad()
        told.step(
            clips=[["clip_grad_norm_", 0.1, 2.0, before]], grad_norm=before, grad_norm_after=after,
            signature="B C(0.1) S Z", by_hand=False, **change.done()
        )  # fmt: skip


@section
def by_hand(told):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for n in range(4):
        loss = mse(model, *batch())
        loss.backward()
        before = gradients(model.parameters())
        for p in model.parameters():
            if n == 1:
                p.grad.mul_(0.5)
            elif n == 2:
                p.grad.data.clamp_(-0.01, 0.01)
            elif n == 3:
                p.grad = p.grad / 3
        after = gradients(model.parameters())
        change = Change(model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        told.step(
            loss=loss.item(), grad_norm_after=after, by_hand=n > 0, clips=[],
            light={"signature": "B S Z"}, parity={
                "grad_norm": before, "signature": "B H S Z" if n else "B S Z",
            }, **change.done()
        )  # fmt: skip


@section
def by_hand_and_by_call(told):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        mse(model, *batch()).backward()
        for p in model.parameters():
            p.grad.mul_(0.5)
        before = gradients(model.parameters())
        clip_grad_norm_(model.parameters(), 0.1)
        after = gradients(model.parameters())
        optimizer.step()
        optimizer.zero_grad()
        told.step(
            grad_norm=before, always=["grad_norm"], grad_norm_after=after, by_hand=True,
            light={"signature": "B C(0.1) S Z", "grad_norm": before},
            parity={"signature": "B H C(0.1) S Z"}
        )  # fmt: skip


@section
def too_late(told):
    """Behind the step it clips nothing that is used."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        mse(model, *batch()).backward()
        before, change = gradients(model.parameters()), Change(model.parameters())
        optimizer.step()
        clip_grad_norm_(model.parameters(), before / 2)
        optimizer.zero_grad()
        told.step(
            grad_norm_after=before, parity={"grad_norm": before}, clips=[
                ["clip_grad_norm_", before / 2, 2.0, before]
            ], **change.done()
        )  # fmt: skip


@section
def not_finite(told):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mse(model, *batch()).backward()
    model[0].weight.grad[0, 0] = float("nan")
    clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    told.step(clips=[["clip_grad_norm_", 1.0, 2.0, float("nan")]], grad_norm=float("nan"))
