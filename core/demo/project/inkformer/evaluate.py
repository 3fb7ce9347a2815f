"""Accuracy on the test digits, in training or of a checkpoint."""

from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader

from .config import Config
from .data import Batch, make_loaders
from .model import Inkformer


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader, on_gpu: bool) -> tuple[int, int]:
    """How many digits of the loader the model names rightly, and how many there are."""
    model.eval()
    correct, total = 0, 0
    for batch in loader:
        if on_gpu:
            batch = Batch(*(t.cuda(non_blocking=True) for t in batch))
        logits, _ = model(batch.position, batch.intensity, batch.ink)
        correct += (logits.argmax(1) == batch.label).sum().item()
        total += len(batch.label)
    return correct, total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", nargs="?", default="runs/base/checkpoint.pt")
    args = parser.parse_args()
    checkpoint = torch.load(args.checkpoint, map_location="cpu")
    cfg = Config(**checkpoint["config"])
    model = Inkformer(cfg)
    model.load_state_dict(checkpoint["model"])
    correct, total = evaluate(model, make_loaders(cfg)[1], on_gpu=False)
    print(f"test accuracy: {correct / total:.4f} ({correct}/{total})")


if __name__ == "__main__":
    main()
