"""GradScaler and autocast."""

import torch
from loop import Change, batch, gradients, mse, needs, net, section
from torch.nn.utils import clip_grad_norm_

SCALE = 1024.0


def scaler(**options):
    """A scaler that works without a GPU, which torch has since 2.3."""
    needs((2, 3), "GradScaler for the CPU")
    return torch.amp.GradScaler("cpu", init_scale=SCALE, **options)


def poison(model):
    """A gradient that overflowed."""
    model[0].weight.grad[0, 0] = float("inf")


@section
def unscaled_then_clipped(told):
    scales, model = scaler(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        loss = mse(model, *batch())
        scales.scale(loss).backward()
        scales.unscale_(optimizer)
        before = gradients(model.parameters())
        clip_grad_norm_(model.parameters(), 0.1)
        after = gradients(model.parameters())
        change = Change(model.parameters())
        scales.step(optimizer)
        scales.update()
        optimizer.zero_grad()
        told.step(
            loss=loss.item(), loss_source="backward, unscaled", grad_norm=before, backwards=1,
            grad_norm_after=after, always=["grad_norm"], by_hand=False, skipped=0,
            clips=[["clip_grad_norm_", 0.1, 2.0, before]], signature="B C(0.1) S Z",
            **change.done()
        )  # fmt: skip


@section
def never_unscaled_by_hand(told):
    scales, model = scaler(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        loss = mse(model, *batch())
        scales.scale(loss).backward()
        true = gradients(model.parameters()) / SCALE
        change = Change(model.parameters())
        scales.step(optimizer)
        scales.update()
        optimizer.zero_grad()
        told.step(
            loss=loss.item(), loss_source="backward, unscaled", grad_norm=true, by_hand=False,
            grad_norm_after=true, signature="B S Z", **change.done()
        )  # fmt: skip


@section
def clipped_while_scaled(told):
    """A common mistake: what the clip saw is said to be scaled."""
    scales, model = scaler(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        loss = mse(model, *batch())
        scales.scale(loss).backward()
        scaled = gradients(model.parameters())
        clip_grad_norm_(model.parameters(), 1.0)
        after = gradients(model.parameters()) / SCALE
        change = Change(model.parameters())
        scales.step(optimizer)
        scales.update()
        optimizer.zero_grad()
        told.step(
            loss=loss.item(), clips=[["clip_grad_norm_", 1.0, 2.0, scaled]], grad_norm_after=after,
            light={"grad_norm": scaled, "grad_norm_source": "clip, scaled"},
            parity={"grad_norm": scaled / SCALE, "grad_norm_source": "computed"}, **change.done()
        )  # fmt: skip


@section
def disabled(told):
    scales, model = scaler(enabled=False), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        loss = mse(model, *batch())
        scales.scale(loss).backward()
        scales.unscale_(optimizer)
        before = gradients(model.parameters())
        scales.step(optimizer)
        scales.update()
        optimizer.zero_grad()
        told.step(
            loss=loss.item(), loss_source="backward", grad_norm=before, grad_norm_after=before
        )


@section
def skipped(told):
    """Steps that did not happen are counted apart, and their losses belong to none."""
    scales, model = scaler(growth_interval=1000), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    lost = 0
    for n in range(7):
        optimizer.zero_grad()
        loss = mse(model, *batch())
        scales.scale(loss).backward()
        if n in (0, 2, 3):
            poison(model)
        scale = scales.get_scale()
        true, change = gradients(model.parameters()) / scale, Change(model.parameters())
        scales.step(optimizer)
        scales.update()
        fields = change.done()
        if n in (0, 2, 3):
            if fields["params_changed"]:
                raise AssertionError("the scaler did not skip")
            lost += 1
            continue
        told.step(
            loss=loss.item(), backwards=1, skipped=lost, samples=5 * (1 + lost), by_hand=False,
            grad_norm_after=true, grad_norm=true, **fields
        )  # fmt: skip
        lost = 0


@section
def skipped_by_a_fused_optimizer(told):
    """It is called all the same, and changes nothing."""
    needs((2, 4), "fused optimizers for the CPU")
    scales, model = scaler(growth_interval=1000), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    if not getattr(optimizer, "_step_supports_amp_scaling", False):
        raise AssertionError("this one would not be called")
    for n in range(4):
        optimizer.zero_grad()
        loss = mse(model, *batch())
        scales.scale(loss).backward()
        if n == 1:
            poison(model)
        true = gradients(model.parameters()) / scales.get_scale()
        change = Change(model.parameters())
        scales.step(optimizer)
        scales.update()
        fields = change.done()
        if n == 1:
            if fields["params_changed"]:
                raise AssertionError("the step was not skipped")
            continue
        told.step(
            loss=loss.item(), backwards=1, skipped=int(n == 2), grad_norm=true,
            grad_norm_after=true, by_hand=False, **fields
        )  # fmt: skip


@section
def accumulated(told):
    scales, model = scaler(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        losses = []
        for _ in range(3):
            loss = mse(model, *batch()) / 3
            scales.scale(loss).backward()
            losses.append(loss.item())
        true = gradients(model.parameters()) / SCALE
        scales.step(optimizer)
        scales.update()
        optimizer.zero_grad()
        told.step(loss=sum(losses), losses=losses, backwards=3, samples=15, grad_norm=true)


@section
def sum_of_scaled(told):
    """The loss behind it can't be told: said to be scaled."""
    scales, model = scaler(), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss = scales.scale(mse(model, *batch())) + scales.scale(mse(model, *batch()))
        loss.backward()
        true = gradients(model.parameters()) / SCALE
        scales.step(optimizer)
        scales.update()
        told.step(loss=loss.item(), loss_source="backward, scaled", grad_norm=true)


@section
def autocast(told):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x, y = batch()
            out = model(x)
            loss = (out.float() - y).pow(2).mean()
        if out.dtype != torch.bfloat16:
            raise AssertionError("autocast did nothing")
        loss.backward()
        before, change = gradients(model.parameters()), Change(model.parameters())
        optimizer.step()
        told.step(loss=loss.item(), grad_norm=before, samples=5, **change.done())
