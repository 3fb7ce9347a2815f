# ruff: noqa: E402
"""Loops of accelerate: with its optimizer wrapper, with its clipping, accumulating, scaled."""

import sys

sys.modules["torch_xla"] = None  # where it is installed these libraries train on its devices

import accelerate
import torch
from accelerate import Accelerator
from loop import Change, batch, gradients, net, section
from torch.utils.data import DataLoader, TensorDataset


def data():
    """Twelve samples in batches of three."""
    x, y = batch(12)
    return DataLoader(TensorDataset(x, y), batch_size=3)


def fresh(**options):
    """An accelerator that remembers nothing of the section before."""
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    accelerate.state.GradientState._reset_state()
    return Accelerator(cpu=True, **options)


@section
def prepared(told):
    accelerator, model = fresh(), net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 0.5**n)
    model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, data(), schedule)
    told.record("optimizer", cls="AdamW", orphaned=0, tensors=4)
    for n, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        accelerator.backward(loss)
        before = gradients(model.parameters())
        accelerator.clip_grad_norm_(model.parameters(), 0.1)
        after, change = gradients(model.parameters()), Change(model.parameters())
        optimizer.step()
        schedule.step()
        told.step(
            loss=loss.item(), samples=3, lr=0.01 * 0.5**n, grad_norm=before, always=["grad_norm"],
            grad_norm_after=after, optimizer="AdamW", backwards=1,
            signature="B C(0.1) S L Z" if n < 3 else "B C(0.1) S L", **change.done()
        )  # fmt: skip


@section
def optimizer_not_prepared(told):
    accelerator, model = fresh(), net()
    model, loader = accelerator.prepare(model, data())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        accelerator.backward(loss)
        before, change = gradients(model.parameters()), Change(model.parameters())
        optimizer.step()
        told.step(loss=loss.item(), samples=3, grad_norm=before, optimizer="SGD", **change.done())


@section
def accumulating(told):
    """Two batches a step; accelerate divides each loss by two, and a step in between is none."""
    accelerator, model = fresh(gradient_accumulation_steps=2), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, data())
    losses = []
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = (model(x) - y).pow(2).mean()
            accelerator.backward(loss)
            losses.append(loss.item() / 2)
            before, change = gradients(model.parameters()), Change(model.parameters())
            if accelerator.sync_gradients:
                accelerator.clip_grad_value_(model.parameters(), 0.05)
            after = gradients(model.parameters())
            optimizer.step()
            optimizer.zero_grad()
            if accelerator.sync_gradients:
                told.step(
                    loss=sum(losses), losses=losses, backwards=2, samples=6, grad_norm_after=after,
                    light={"grad_norm": None}, parity={"grad_norm": before},
                    signature="B B CV(0.05) S Z", **change.done()
                )  # fmt: skip
                losses = []


@section
def bfloat16(told):
    accelerator, model = fresh(mixed_precision="bf16"), net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, data())
    for x, y in loader:
        optimizer.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        accelerator.backward(loss)
        before, change = gradients(model.parameters()), Change(model.parameters())
        optimizer.step()
        told.step(loss=loss.item(), samples=3, grad_norm=before, **change.done())
