"""Glyphs of strokes on an 8x8 grid, the same every time."""

import torch
from torch.utils.data import DataLoader, TensorDataset

from networks import SIDE


def make_glyphs(count, seed):
    generator = torch.Generator().manual_seed(seed)
    images = torch.zeros(count, SIDE, SIDE)
    places = torch.randint(1, SIDE - 1, (count, 3), generator=generator)
    for image, (row, col, kind) in zip(images, places.tolist()):
        image[row] = 1.0
        image[:, col] = 1.0
        if kind > 3:
            image[:row] = image[:row] * 0.5
        if kind % 2:
            image[:, :col] = 0.0
    noise = 0.05 * torch.rand(images.shape, generator=generator)
    return (images * 0.95 + noise).clamp(0, 1).flatten(1)


def make_loaders(batch_size):
    train = TensorDataset(make_glyphs(216, seed=21))
    test = TensorDataset(make_glyphs(128, seed=22))
    return (
        DataLoader(train, batch_size=batch_size, shuffle=True),
        DataLoader(test, batch_size=64),
    )
