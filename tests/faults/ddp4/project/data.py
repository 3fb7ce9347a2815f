"""Pictures of strokes in noise: made from a seed, the same on every machine."""

import torch
from torch.utils.data import TensorDataset

CLASSES, SIZE = 6, 12


def pictures(count, seed):
    """``count`` pictures of one of six strokes each, with noise; (pictures, labels)."""
    draw = torch.Generator().manual_seed(seed)
    strokes = torch.randn(CLASSES, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(7))
    labels = torch.randint(CLASSES, (count,), generator=draw)
    strength = 0.5 + 0.4 * torch.rand(count, 1, 1, 1, generator=draw)
    noise = torch.randn(count, 1, SIZE, SIZE, generator=draw)
    return strength * strokes[labels] + noise, labels


def datasets():
    """(training set, test set). Neither is a multiple of what four processes take at a time."""
    return TensorDataset(*pictures(1000, seed=1)), TensorDataset(*pictures(1000, seed=2))
