"""A small convolutional classifier with group normalisation."""

from torch import nn

from data import CLASSES


class Net(nn.Module):
    """Two convolutions, normalised in groups, and two linear layers."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.GroupNorm(2, 8),
            nn.GELU(),
            nn.AvgPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.GroupNorm(4, 16),
            nn.GELU(),
            nn.AvgPool2d(2),
        )
        self.hidden = nn.Linear(16 * 9, 32)
        self.head = nn.Linear(32, CLASSES)

    def forward(self, x):
        x = self.features(x).flatten(1)
        return self.head(self.hidden(x).tanh())
