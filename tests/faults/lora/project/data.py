"""Sequences of tokens; the class is which of three groups of words is used most."""

import torch
from torch.utils.data import TensorDataset

from base import LENGTH, PAD, VOCAB

CLASSES = 3


def make_dataset(count, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (count,), generator=generator)
    ids = torch.full((count, LENGTH), PAD)
    for row, label in enumerate(labels.tolist()):
        length = int(torch.randint(8, LENGTH + 1, (1,), generator=generator))
        words = torch.randint(1, VOCAB, (length,), generator=generator)
        marked = torch.rand(length, generator=generator) < 0.5
        words[marked] = words[marked] // CLASSES * CLASSES + label  # words of a class: id mod 3
        ids[row, :length] = words.clamp(1, VOCAB - 1)
    return TensorDataset(ids, labels)
