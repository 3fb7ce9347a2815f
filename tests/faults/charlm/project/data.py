"""Sentences of a small grammar, as left-padded lines of characters."""

import random

import torch
from torch.utils.data import DataLoader, Dataset

PAD = 0
IGNORE = -100
CHARS = "\n abcdefghijklmnopqrstuvwxyz,."
STOI = {char: i + 1 for i, char in enumerate(CHARS)}
VOCAB = len(CHARS) + 1

NOUNS = ["cat", "dog", "fox", "crow", "hen", "girl", "owl", "horse"]
VERBS = ["sees", "likes", "finds", "hears", "meets"]
PLACES = ["by a lake", "in the barn", "near town", "at dawn"]


def sentence(rng):
    text = f"the {rng.choice(NOUNS)} {rng.choice(VERBS)} the {rng.choice(NOUNS)}"
    if rng.random() < 0.4:
        text += " " + rng.choice(PLACES)
    return text + ".\n"


class Lines(Dataset):
    """Each item is one sentence as a list of character ids."""

    def __init__(self, count, seed):
        rng = random.Random(seed)
        self.lines = [[STOI[char] for char in sentence(rng)] for _ in range(count)]

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        return self.lines[index]


class Collate:
    """Pads on the left to `block` characters: (ids, mask, targets)."""

    def __init__(self, block):
        self.block = block

    def __call__(self, lines):
        ids = torch.full((len(lines), self.block), PAD, dtype=torch.long)
        mask = torch.zeros(len(lines), self.block, dtype=torch.bool)
        targets = torch.full((len(lines), self.block), IGNORE, dtype=torch.long)
        for row, line in enumerate(lines):
            line = line[: self.block + 1]
            n = len(line) - 1
            ids[row, -n:] = torch.tensor(line[:-1])
            mask[row, -n:] = True
            targets[row, -n:] = torch.tensor(line[1:])
        return ids, mask, targets


def make_loaders(args):
    collate = Collate(args.block)
    pin = torch.cuda.is_available()
    train = DataLoader(
        Lines(args.train_lines, seed=1),
        batch_size=args.batch_size,
        shuffle=True,
        collate_fn=collate,
        pin_memory=pin,
    )
    valid = DataLoader(
        Lines(args.valid_lines, seed=2),
        batch_size=args.batch_size,
        collate_fn=collate,
        pin_memory=pin,
    )
    return train, valid
