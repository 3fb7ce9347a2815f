"""Points of four classes in twelve dimensions, and a network with a frozen first layer."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES, FEATURES = 4, 12


def make_points(count, seed):
    centres = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(99))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    noise = torch.randn(count, FEATURES, generator=generator)
    return TensorDataset(centres[labels] + 1.1 * noise, labels)


class Network(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(FEATURES, width), nn.GELU(), nn.LayerNorm(width))
        self.head = nn.Linear(width, CLASSES)
        self.features.requires_grad_(False)

    def forward(self, x):
        return self.head(self.features(x))


def make_loaders(batch_size):
    train = DataLoader(make_points(376, seed=31), batch_size=batch_size, shuffle=True)
    test = DataLoader(make_points(240, seed=32), batch_size=80)
    return train, test
