"""A classifier of two layers and its data: what the programs beside this file train."""

import torch

FEATURES, CLASSES, BATCH = 6, 3, 4


def seeded():
    torch.manual_seed(0)


def model(width=8):
    return torch.nn.Sequential(
        torch.nn.Linear(FEATURES, width), torch.nn.Tanh(), torch.nn.Linear(width, CLASSES)
    )


def batches(count, size=BATCH):
    """Batches on the host: features, and the index of the largest of the first three."""
    for _ in range(count):
        x = torch.randn(size, FEATURES)
        yield x, x[:, :CLASSES].argmax(1)
