"""scikit-learn's 8x8 handwritten digits as sequences of ink tokens.

Every non-zero pixel is one token: its position on the grid (0..63) and its intensity (1..16).
Blank paper is not part of the sequence, so a 1 is much shorter than an 8.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

from .config import Config

POSITIONS = 64
PAD, MASK = 0, 17
INTENSITIES = 18  # padding, 1..16, mask
TEST_SIZE = 360


class Batch(NamedTuple):
    position: Tensor  # (batch, tokens) int64
    intensity: Tensor  # (batch, tokens) int64, MASK where hidden
    ink: Tensor  # (batch, tokens) bool, False on padding
    masked: Tensor  # (batch, tokens) bool, True where the intensity is to be predicted
    target: Tensor  # (batch, tokens) int64, the true intensities
    label: Tensor  # (batch,) int64


class InkDigits(Dataset):
    """Digits as ink; with a mask rate, hides some intensities anew each time one is read."""

    def __init__(self, images, labels, mask_rate: float = 0.0, seed: int = 0):
        self.ink = []
        for image in images:
            pixels = torch.as_tensor(image, dtype=torch.long).flatten()
            position = pixels.nonzero().squeeze(1)
            self.ink.append((position, pixels[position]))
        self.labels = torch.as_tensor(labels, dtype=torch.long)
        self.mask_rate = mask_rate
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return len(self.ink)

    def __getitem__(self, index: int):
        position, target = self.ink[index]
        masked = torch.rand(len(target), generator=self.generator) < self.mask_rate
        intensity = target.masked_fill(masked, MASK)
        return position, intensity, masked, target, self.labels[index]


def collate(samples) -> Batch:
    """Pad the samples to the longest one of the batch."""
    position, intensity, masked, target, label = zip(*samples)
    lengths = torch.tensor([len(p) for p in position])

    def pad(rows):
        return pad_sequence(list(rows), batch_first=True, padding_value=PAD)

    ink = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]
    return Batch(pad(position), pad(intensity), ink, pad(masked), pad(target), torch.stack(label))


def make_loaders(cfg: Config, pin_memory: bool = False) -> tuple[DataLoader, DataLoader]:
    """The training loader (shuffled, masked) and the test loader (360 digits, nothing hidden)."""
    digits = load_digits()
    # The split does not depend on the seed of the run: runs are comparable.
    train_x, test_x, train_y, test_y = train_test_split(
        digits.images, digits.target, test_size=TEST_SIZE, stratify=digits.target, random_state=0
    )
    train_loader = DataLoader(
        InkDigits(train_x, train_y, cfg.mask_rate, seed=cfg.seed + 1),
        batch_size=cfg.batch_size,
        shuffle=True,
        drop_last=True,  # batch norm dislikes a small last batch
        collate_fn=collate,
        pin_memory=pin_memory,
        generator=torch.Generator().manual_seed(cfg.seed),
    )
    test_loader = DataLoader(
        InkDigits(test_x, test_y),
        batch_size=cfg.eval_batch_size,
        collate_fn=collate,
        pin_memory=pin_memory,
    )
    return train_loader, test_loader
